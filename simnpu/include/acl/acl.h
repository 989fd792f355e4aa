/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AscendCL as the simulated NPU offers it: link with -lascendcl. Every function may be called from any thread.
 */
#ifndef ACL_H
#define ACL_H

#include "acl_base.h"
#include "acl_op.h"
#include "acl_rt.h"

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/*
 * Starts the use of AscendCL. `configPath` is NULL, empty, or a file that can be read (its content is not interpreted),
 * otherwise ACL_ERROR_INVALID_FILE. ACL_ERROR_REPEAT_INITIALIZE when it was called before.
 */
aclError aclInit(const char *configPath);

/* Ends it. ACL_ERROR_UNINITIALIZE without aclInit(), ACL_ERROR_REPEAT_FINALIZE the second time. */
aclError aclFinalize(void);

/* What went wrong last on this thread, in words; NULL when nothing did since the last call. */
const char *aclGetRecentErrMsg(void);

/* The code of that. The first one also forgets it. */
aclError aclrtGetLastError(aclrtLastErrLevel level);
aclError aclrtPeekAtLastError(aclrtLastErrLevel level);

/* SIMNPU_CANN, or "9.0.0", for every package. `versionStr` has room for 128 bytes. */
aclError aclsysGetVersionStr(char *pkgName, char *versionStr);
aclError aclsysGetCANNVersion(aclCANNPackageName name, aclCANNPackageVersion *version);

/* Infinities and bfloat16 are there, compilation of operators is not: 1, 1, 0. */
aclError aclGetCannAttributeList(const aclCannAttr **cannAttrList, size_t *num);
aclError aclGetCannAttribute(aclCannAttr cannAttr, int32_t *value);

/* A line of a program's own log. To stdout with ASCEND_SLOG_PRINT_TO_STDOUT=1, from ASCEND_GLOBAL_LOG_LEVEL (3: errors) on. */
void aclAppLog(aclLogLevel logLevel, const char *func, const char *file, uint32_t line,
	       const char *fmt, ...) __attribute__((format(printf, 5, 6)));

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
