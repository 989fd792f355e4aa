/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels: they are registered and launched, and do nothing. Those of PyTorch take memory only through its allocator, which is real; what the
 * kernels of another library take or compute is not known, so their launches fail with its name.
 */
#include "sim.h"

#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CODE_BYTES  (UINT64_C(96) << 20) /* of PyTorch's kernels on the card: measured on an H200 */
#define MODULES_MAX 64

static uint64_t launches;

struct dimensions {
	unsigned int x, y, z;
};

struct configuration {
	struct dimensions grid, block;
	size_t shared;
	void *stream;
};

static __thread struct configuration pushed[8];
static __thread unsigned int pushed_count;

SIM_API void **__cudaRegisterFatBinary(void *image);
SIM_API void __cudaRegisterFatBinaryEnd(void **handle);
SIM_API void __cudaUnregisterFatBinary(void **handle);
SIM_API void __cudaRegisterFunction(void **handle, const char *host, char *device,
				    const char *name);
SIM_API void __cudaRegisterVar(void **handle, char *host, char *device, const char *name);
SIM_API char __cudaInitModule(void **handle);
SIM_API int __cudaGetKernel(void **out, const void *function);
SIM_API unsigned int __cudaPushCallConfiguration(struct dimensions grid, struct dimensions block,
						 size_t shared, void *stream);
SIM_API int __cudaPopCallConfiguration(struct dimensions *grid, struct dimensions *block,
				       size_t *shared, void **stream);
SIM_API int cudaLaunchKernel(const void *function, struct dimensions grid, struct dimensions block,
			     void **arguments, size_t shared, void *stream);
SIM_API int __cudaLaunchKernel(const void *function, struct dimensions grid,
			       struct dimensions block, void **arguments, size_t shared,
			       void *stream);
SIM_API int cudaLaunchCooperativeKernel(const void *function, struct dimensions grid,
					struct dimensions block, void **arguments, size_t shared,
					void *stream);
SIM_API int cudaLaunchKernelExC(const void *configuration, const void *function, void **arguments);
SIM_API int cudaFuncGetAttributes(void *out, const void *function);
SIM_API int cudaFuncSetAttribute(const void *function, int attribute, int value);
SIM_API int cudaGetSymbolAddress(void **out, const void *symbol);
SIM_API int cudaMemcpyToSymbol(const void *symbol, const void *from, size_t bytes, size_t offset,
			       int kind);
SIM_API int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *out, const void *function,
								   int threads, size_t shared,
								   unsigned int flags);
SIM_API int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *out, const void *function,
							  int threads, size_t shared);
SIM_API int cudaProfilerStart(void);
SIM_API int cudaProfilerStop(void);

uint64_t sim_launches(void)
{
	return __atomic_load_n(&launches, __ATOMIC_ACQUIRE);
}

void sim_launched(void)
{
	if (__atomic_fetch_add(&launches, 1, __ATOMIC_ACQ_REL) == 0)
		sim_beside(CODE_BYTES);
}

/* ---- whose kernel it is ---- */

struct module {
	uintptr_t start, end;
	const char *name; /* NULL: PyTorch's own */
};

static struct module modules[MODULES_MAX];
static size_t module_count;
static pthread_mutex_t modules_lock = PTHREAD_MUTEX_INITIALIZER;

struct looked_for {
	uintptr_t address;
	struct module found;
};

static bool is_pytorch(const char *path)
{
	static const char *const own[] = {"/torch/lib/", "/torchvision/", "/torchaudio/"};
	size_t i;

	for (i = 0; i < sizeof(own) / sizeof(*own); i++) {
		if (strstr(path, own[i]) != NULL)
			return true;
	}
	return false;
}

static int compare(struct dl_phdr_info *info, size_t size, void *context)
{
	struct looked_for *looked = context;
	size_t i;

	(void)size;
	for (i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];
		uintptr_t start = info->dlpi_addr + part->p_vaddr;

		if (part->p_type != PT_LOAD || looked->address - start >= part->p_memsz)
			continue;
		looked->found.start = start;
		looked->found.end = start + part->p_memsz;
		/* A program without libraries of its own is one that was built against these. */
		if (!is_pytorch(info->dlpi_name) && info->dlpi_name[0] != '\0')
			looked->found.name = strdup(info->dlpi_name);
		return 1;
	}
	return 0;
}

const char *sim_stranger(const void *function)
{
	uintptr_t address = (uintptr_t)function;
	struct looked_for looked = {.address = address};
	size_t i, count = __atomic_load_n(&module_count, __ATOMIC_ACQUIRE);

	for (i = 0; i < count; i++) {
		if (address >= modules[i].start && address < modules[i].end)
			return modules[i].name;
	}
	if (dl_iterate_phdr(compare, &looked) == 0)
		return NULL;
	(void)pthread_mutex_lock(&modules_lock);
	if (module_count < MODULES_MAX) {
		modules[module_count] = looked.found;
		__atomic_store_n(&module_count, module_count + 1, __ATOMIC_RELEASE);
	}
	(void)pthread_mutex_unlock(&modules_lock);
	return looked.found.name;
}

/* Why no kernel can run on this card; "": each can. */
static char refused[200];

SIM_API void simcuda_refuse(const char *why);
void simcuda_refuse(const char *why)
{
	(void)snprintf(refused, sizeof(refused), "%s", why);
}

/* The capability that PyTorch's kernels for this card were compiled for: an L4 (8.9) runs those of 8.6. 0: its own. */
static int compiled_for;

SIM_API void simcuda_compiled_for(int capability);
void simcuda_compiled_for(int capability)
{
	compiled_for = capability;
}

static int launch(const void *function)
{
	const char *library = sim_stranger(function);
	char what[256];

	if (refused[0] != '\0')
		return sim_error(sim_fail(refused));
	if (library != NULL) {
		const char *slash = strrchr(library, '/');

		(void)snprintf(what, sizeof(what),
			       "%.100s launches kernels of its own, whose memory is not known",
			       slash == NULL ? library : slash + 1);
		return sim_error(sim_fail(what));
	}
	sim_launched();
	return SIM_OK;
}

/* ---- registering ---- */

void **__cudaRegisterFatBinary(void *image)
{
	static void *handle;

	(void)image;
	return &handle;
}

void __cudaRegisterFatBinaryEnd(void **handle)
{
	(void)handle;
}

void __cudaUnregisterFatBinary(void **handle)
{
	(void)handle;
}

/* The names are not needed: a kernel is the address of its host function. */
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name)
{
	(void)handle;
	(void)host;
	(void)device;
	(void)name;
}

void __cudaRegisterVar(void **handle, char *host, char *device, const char *name)
{
	(void)handle;
	(void)host;
	(void)device;
	(void)name;
}

char __cudaInitModule(void **handle)
{
	(void)handle;
	return 1;
}

int __cudaGetKernel(void **out, const void *function)
{
	memcpy(out, &function, sizeof(function));
	return SIM_OK;
}

/* ---- launching ---- */

unsigned int __cudaPushCallConfiguration(struct dimensions grid, struct dimensions block,
					 size_t shared, void *stream)
{
	if (pushed_count == sizeof(pushed) / sizeof(*pushed))
		return 1;
	pushed[pushed_count++] = (struct configuration){grid, block, shared, stream};
	return 0;
}

int __cudaPopCallConfiguration(struct dimensions *grid, struct dimensions *block, size_t *shared,
			       void **stream)
{
	const struct configuration *top;

	if (pushed_count == 0)
		return sim_error(SIM_INVALID_VALUE);
	top = &pushed[--pushed_count];
	*grid = top->grid;
	*block = top->block;
	*shared = top->shared;
	*stream = top->stream;
	return SIM_OK;
}

int cudaLaunchKernel(const void *function, struct dimensions grid, struct dimensions block,
		     void **arguments, size_t shared, void *stream)
{
	(void)grid;
	(void)block;
	(void)arguments;
	(void)shared;
	(void)stream;
	return launch(function);
}

int __cudaLaunchKernel(const void *function, struct dimensions grid, struct dimensions block,
		       void **arguments, size_t shared, void *stream)
{
	return cudaLaunchKernel(function, grid, block, arguments, shared, stream);
}

int cudaLaunchCooperativeKernel(const void *function, struct dimensions grid,
				struct dimensions block, void **arguments, size_t shared,
				void *stream)
{
	return cudaLaunchKernel(function, grid, block, arguments, shared, stream);
}

int cudaLaunchKernelExC(const void *configuration, const void *function, void **arguments)
{
	(void)configuration;
	(void)arguments;
	return launch(function);
}

/* ---- what a kernel is like ---- */

int cudaFuncGetAttributes(void *out, const void *function)
{
	const struct sim_card *card = sim_card();
	const int code = compiled_for > 0 ? compiled_for : card->major * 10 + card->minor;
	struct {
		size_t shared, constant, local;
		int threads, registers, ptx, binary, cache, dynamic_shared, carveout;
	} answer = {.threads = 1024,
		    .registers = 32,
		    .ptx = code,
		    .binary = code,
		    .dynamic_shared = 48 << 10,
		    .carveout = -1};

	(void)function;
	memcpy(out, &answer, sizeof(answer));
	return SIM_OK;
}

int cudaFuncSetAttribute(const void *function, int attribute, int value)
{
	(void)function;
	(void)attribute;
	(void)value;
	return SIM_OK;
}

/* Variables of the card are those of the host beside them: nobody reads them but kernels. */
int cudaGetSymbolAddress(void **out, const void *symbol)
{
	memcpy(out, &symbol, sizeof(symbol));
	return SIM_OK;
}

int cudaMemcpyToSymbol(const void *symbol, const void *from, size_t bytes, size_t offset, int kind)
{
	(void)symbol;
	(void)from;
	(void)bytes;
	(void)offset;
	(void)kind;
	return SIM_OK;
}

/* As if registers allowed two thousand threads; blocks are bound by threads and shared memory. */
int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *out, const void *function,
							   int threads, size_t shared,
							   unsigned int flags)
{
	const struct sim_card *card = sim_card();
	int blocks = threads <= 0 ? 1 : card->sm_threads / threads;
	size_t room = (size_t)card->sm_shared << 10;

	(void)function;
	(void)flags;
	if (shared > 0 && (size_t)blocks > room / (shared + 1024))
		blocks = (int)(room / (shared + 1024));
	*out = blocks < 1 ? 1 : blocks > 32 ? 32 : blocks;
	return SIM_OK;
}

int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *out, const void *function, int threads,
						  size_t shared)
{
	return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(out, function, threads,
								      shared, 0);
}

int cudaProfilerStart(void)
{
	return SIM_OK;
}

int cudaProfilerStop(void)
{
	return SIM_OK;
}
