/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mstx: how a program tells a tool where it is (marks, ranges, domains) and what its memory pools hand out
 * (ms_tools_ext_mem.h). Without a tool every call is a load and a branch, and gives 0 or NULL.
 *
 * Including this header is enough: each shared object or executable that does so carries the implementation and a private,
 * hidden context, which looks for a tool at the first call. All source files of one object share that context. With
 * MSTX_NO_IMPL defined there are declarations only, and the object links libms_tools_ext.so, which is one more such object.
 * C and C++; link libdl where the C library still has one. Every function may be called from any thread.
 *
 * MSTX_SIM_OLD_HEADER gives the header as it was before mstxGetToolId(), to test tools against programs of that time.
 */
#ifndef MSTX_MS_TOOLS_EXT_H
#define MSTX_MS_TOOLS_EXT_H

#include <stddef.h>
#include <stdint.h>

#if defined(MSTX_SIM_LIBRARY)
/* libms_tools_ext.so itself. */
#define MSTX_API     __attribute__((visibility("default")))
#define MSTX_PRIVATE __attribute__((visibility("hidden")))
#elif defined(MSTX_NO_IMPL)
#define MSTX_API
#else
/* Weak, so that several source files of an object may include the implementation and the linker keeps one. */
#define MSTX_API     __attribute__((weak, visibility("hidden")))
#define MSTX_PRIVATE MSTX_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define MSTX_SUCCESS	0
#define MSTX_FAIL	1
#define MSTX_INVALID_ID 0

/* What mstxGetToolId() may answer. */
#define MSTX_TOOL_INVALID_ID	 0x0
#define MSTX_TOOL_MSPROF_ID	 0x1000
#define MSTX_TOOL_MSOPPROF_ID	 0x1001
#define MSTX_TOOL_MSSANITIZER_ID 0x1002
#define MSTX_TOOL_MSLEAKS_ID	 0x1003

typedef void *aclrtStream;

typedef uint64_t mstxRangeId;

typedef struct mstxDomainRegistration_st mstxDomainRegistration_t;
typedef mstxDomainRegistration_t *mstxDomainHandle_t;

/*
 * A point in time, and a span of it. `message` is text in UTF-8 and may be NULL; `stream` says on which stream the device is
 * to note it too, NULL for the host only. A range may end on another thread. 0 is no range.
 */
MSTX_API void mstxMarkA(const char *message, aclrtStream stream);
MSTX_API mstxRangeId mstxRangeStartA(const char *message, aclrtStream stream);
MSTX_API void mstxRangeEnd(mstxRangeId id);

#ifndef MSTX_SIM_OLD_HEADER
/* Which tool listens. `*id` is untouched when none does or the tool does not say. */
MSTX_API void mstxGetToolId(uint64_t *id);
#endif

/* A domain keeps one library's marks apart from those of others. NULL is the domain of everybody, and what a tool answers that
 * does not know the name. */
MSTX_API mstxDomainHandle_t mstxDomainCreateA(const char *name);
MSTX_API void mstxDomainDestroy(mstxDomainHandle_t domain);
MSTX_API void mstxDomainMarkA(mstxDomainHandle_t domain, const char *message, aclrtStream stream);
MSTX_API mstxRangeId mstxDomainRangeStartA(mstxDomainHandle_t domain, const char *message,
					   aclrtStream stream);
MSTX_API void mstxDomainRangeEnd(mstxDomainHandle_t domain, mstxRangeId id);

/*
 * What a tool sees. It exports
 *
 *     int InitInjectionMstx(mstxGetModuleFuncTableFunc getFuncTable);
 *
 * and is found at the first mstx call of each object: in the file that MSTX_INJECTION_PATH names, else among the libraries
 * of the process. getFuncTable() gives the table of a module: table[i] is the address of a function pointer, into which the
 * tool stores its function; valid are 1 to size - 1, entries 0 and `size` are NULL. What it leaves alone does nothing. When it
 * returns anything but 0, nothing of this object does, for good.
 */
typedef void (*mstxFuncPointer)(void);
typedef int (*mstxGetModuleFuncTableFunc)(int module, mstxFuncPointer ***outTable,
					  unsigned int *outSize);
typedef int (*mstxInitInjectionFunc)(mstxGetModuleFuncTableFunc getFuncTable);

typedef enum mstxFuncModule {
	MSTX_API_MODULE_INVALID = 0,
	MSTX_API_MODULE_CORE = 1,
	MSTX_API_MODULE_CORE_DOMAIN = 2,
	MSTX_API_MODULE_CORE_MEM = 3,
} mstxFuncModule;

enum {
	MSTX_FUNC_MARKA = 1,
	MSTX_FUNC_RANGE_STARTA = 2,
	MSTX_FUNC_RANGE_END = 3,
#ifdef MSTX_SIM_OLD_HEADER
	MSTX_FUNC_END = 4,
#else
	MSTX_FUNC_GET_TOOL_ID = 4,
	MSTX_FUNC_END = 5,
#endif

	MSTX_FUNC_DOMAIN_CREATEA = 1,
	MSTX_FUNC_DOMAIN_DESTROY = 2,
	MSTX_FUNC_DOMAIN_MARKA = 3,
	MSTX_FUNC_DOMAIN_RANGE_STARTA = 4,
	MSTX_FUNC_DOMAIN_RANGE_END = 5,
	MSTX_FUNC_DOMAIN_END = 6,

	MSTX_FUNC_MEM_HEAP_REGISTER = 1,
	MSTX_FUNC_MEM_HEAP_UNREGISTER = 2,
	MSTX_FUNC_MEM_REGIONS_REGISTER = 3,
	MSTX_FUNC_MEM_REGIONS_UNREGISTER = 4,
	MSTX_FUNC_MEM_END = 5,
};

#ifdef __cplusplus
}
#endif

#include "ms_tools_ext_mem.h"

#ifndef MSTX_NO_IMPL
#include "mstx_detail/impl.h"
#endif

#endif
