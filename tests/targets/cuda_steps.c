/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_steps WHAT: small programs on CUDA's driver.
 *
 *     init      the driver is initialised, and that is all
 *     contexts  memory that ends with its context, and memory that does not
 *     fork      a child that is forked before the parent uses CUDA; both use it
 *     refused   more memory than there is, twice; then what fits
 *     grows     keeps a block in every round, until one is refused
 *     launches  kernels in each way, from PTX text
 *     peer      memory of the first device, made and mapped for both by a thread that is on the last one
 *     others    what is freed as device memory and is not: of a pool of host memory, a sparse array
 */
#include <sys/wait.h>

#include "cuda_driver.h"

#define MIB ((size_t)1 << 20)

static cu_address take(size_t bytes, int device)
{
	cu_address address;

	CUDA(cuCtxSetCurrent(cuda_contexts[device]));
	CUDA(cuMemAlloc(&address, bytes));
	cuda_took(address, bytes, device, "HAL");
	return address;
}

static void give(cu_address address)
{
	cuda_gives(address);
	CUDA(cuMemFree(address));
}

/* ---- contexts ---- */

static void contexts(void)
{
	int last = cuda_devices - 1;
	cu_address kept = take(MIB, 0), lost[3], pooled;
	int i;

	for (i = 0; i < 3; i++)
		lost[i] = take((size_t)(i + 2) * MIB, last);
	CUDA(cuMemAllocAsync(&pooled, 7 * MIB, NULL));
	cuda_took(pooled, 7 * MIB, last, "HAL");
	/* All of the device's context, but not of its pools. */
	for (i = 0; i < 3 && last != 0; i++)
		cuda_gives(lost[i]);
	if (last != 0)
		CUDA(cuDevicePrimaryCtxReset(last));
	CUDA(cuCtxSetCurrent(cuda_contexts[0]));
	give(kept);
}

/* ---- refusals ---- */

static void refused(void)
{
	size_t left, total;
	cu_address address;

	CUDA(cuMemGetInfo(&left, &total));
	if (cuda.cuMemAlloc(&address, total * 2) != 2 ||
	    cuda.cuMemAlloc(&address, left + 64 * MIB) != 2)
		cuda_fail("it was not refused", 0);
	(void)printf("{\"refused\":[%zu,%zu]}\n", total * 2, left + 64 * MIB);
	give(take(4 * MIB, 0));
}

static void grows(void)
{
	size_t left, total, size;
	cu_address address;
	int rounds = 0, result = 0;

	CUDA(cuMemGetInfo(&left, &total));
	size = left / 40;
	while (result == 0) {
		if (rounds < 30)
			give(take(size / 2, 0));
		result = cuda.cuMemAlloc(&address, size); /* kept */
		if (result == 0)
			cuda_took(address, size, 0, "HAL");
		rounds++;
	}
	(void)printf("{\"refused\":[%zu],\"rounds\":%d}\n", size, rounds);
}

/* ---- launches ---- */

static const char ptx[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
			  ".visible .entry plain_kernel()\n{\n\tret;\n}\n"
			  ".visible .entry _ZN5shape6kernel4fillIfLi4EEEvPT_i()\n{\n\tret;\n}\n";

static void launches(void)
{
	struct cu_launch_config config = {.grid = {1, 1, 1}, .block = {1, 1, 1}};
	cu_handle module, plain, fill;
	int i;

	CUDA(cuModuleLoadData(&module, ptx));
	CUDA(cuModuleGetFunction(&plain, module, "plain_kernel"));
	CUDA(cuModuleGetFunction(&fill, module, "_ZN5shape6kernel4fillIfLi4EEEvPT_i"));
	give(take(MIB, 0));
	for (i = 0; i < 5; i++)
		CUDA(cuLaunchKernel(plain, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	for (i = 0; i < 4; i++)
		CUDA(cuLaunchKernelEx(&config, fill, NULL, NULL));
	for (i = 0; i < 3; i++)
		CUDA(cuLaunchCooperativeKernel(plain, 1, 1, 1, 1, 1, 1, 0, NULL, NULL));
	CUDA(cuCtxSynchronize());
	CUDA(cuModuleUnload(module));
}

/* ---- other memory ---- */

static void others(void)
{
	struct cu_pool_properties properties = {.type = 1, .location = {2, 0}};
	struct cu_array_3d sparse = {4096, 4096, 0, 0x20, 1, 0x40}, plain = {64, 64, 2, 0x20, 1, 0};
	cu_address blocks[3];
	cu_handle pool, array;
	int i;

	CUDA(cuMemPoolCreate(&pool, &properties));
	for (i = 0; i < 3; i++) {
		CUDA(cuMemAllocFromPoolAsync(&blocks[i], (size_t)(i + 1) * MIB, pool, NULL));
		cuda_took(blocks[i], (size_t)(i + 1) * MIB, -1, "HOST_PINNED");
	}
	for (i = 0; i < 3; i++) {
		cuda_gives(blocks[i]);
		CUDA(cuMemFreeAsync(blocks[i], NULL));
		give(take((size_t)(i + 2) * MIB, 0));
	}
	CUDA(cuMemPoolDestroy(pool));
	CUDA(cuArray3DCreate(&array, &sparse));
	CUDA(cuArrayDestroy(array));
	CUDA(cuArray3DCreate(&array, &plain));
	cuda_took((uint64_t)(uintptr_t)array, 64 * 64 * 2 * 4, 0, "HAL");
	cuda_gives((uint64_t)(uintptr_t)array);
	CUDA(cuArrayDestroy(array));
}

/* ---- memory of one device that another one reads ---- */

static void peer(void)
{
	int last = cuda_devices - 1, i;
	struct cu_properties properties = {.type = 1, .location = {1, 0}};
	struct cu_access access[] = {{{1, 0}, 3}, {{1, last}, 3}};
	cu_address handle, mapped[2];

	CUDA(cuCtxSetCurrent(cuda_contexts[last]));
	CUDA(cuMemCreate(&handle, 4 * MIB, &properties, 0));
	cuda_took(handle, 4 * MIB, 0, "HAL");
	for (i = 0; i < 2; i++) {
		CUDA(cuMemAddressReserve(&mapped[i], 4 * MIB, 0, 0, 0));
		CUDA(cuMemMap(mapped[i], 4 * MIB, 0, handle, 0));
		CUDA(cuMemSetAccess(mapped[i], 4 * MIB, access, 2));
	}
	CUDA(cuMemRelease(handle));
	CUDA(cuMemUnmap(mapped[0], 4 * MIB));
	give(take(MIB, last));
	cuda_gives(handle);
	CUDA(cuMemUnmap(mapped[1], 4 * MIB));
	for (i = 0; i < 2; i++)
		CUDA(cuMemAddressFree(mapped[i], 4 * MIB));
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	pid_t child = -1;

	if (strcmp(what, "init") == 0) {
		*(void **)&cuda.cuInit = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuInit");
		CUDA(cuInit(0));
		return 0;
	}
	if (strcmp(what, "fork") == 0)
		child = fork();
	cuda_begin();
	if (strcmp(what, "contexts") == 0)
		contexts();
	else if (strcmp(what, "refused") == 0)
		refused();
	else if (strcmp(what, "grows") == 0)
		grows();
	else if (strcmp(what, "launches") == 0)
		launches();
	else if (strcmp(what, "peer") == 0)
		peer();
	else if (strcmp(what, "others") == 0)
		others();
	else
		give(take((child == 0 ? 3 : 2) * MIB, 0));
	cuda_tell();
	if (child > 0)
		(void)waitpid(child, NULL, 0);
	return 0;
}
