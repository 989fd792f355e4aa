/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_ledger WHAT SEED [MILLISECONDS]: takes memory of CUDA's driver in one way, holds still, and says what the driver counts then.
 *
 *     odd       blocks of all sizes, few of them whole pages; every third is given back
 *     small     many blocks that share pages
 *     pages     blocks of whole pages
 *     async     stream-ordered memory, half of it given back
 *     managed   managed memory before and behind its first use on the device
 *     physical  physical memory, mapped, as expandable segments are
 *     contexts  a second context on the same device, with memory of its own
 *     code      modules of kernels, from PTX text
 *     sizes     what a block of each of some sizes takes, which is what it prints
 *
 * Each hold is a line of JSON on stdout: {"hold", "from_ns", "to_ns", "began", "before", "used", "asked", "blocks"}; used is what
 * cuMemGetInfo() says, began what it said when there was a context and nothing else.
 */
#include <time.h>

#include "cuda_driver.h"

#define MIB	   ((size_t)1 << 20)
#define BLOCKS_MAX 4096

static uint64_t chance;
static int hold_ms = 800;
static cu_address blocks[BLOCKS_MAX];
static size_t sizes[BLOCKS_MAX];
static int block_count;
static uint64_t asked, began;

static uint64_t next(void)
{
	chance ^= chance << 13;
	chance ^= chance >> 7;
	chance ^= chance << 17;
	return chance;
}

static uint64_t now_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t used_now(void)
{
	size_t left, total;

	CUDA(cuMemGetInfo(&left, &total));
	return total - left;
}

/* The driver is asked by others every 100 ms, and the answer may take 300 ms. */
static void hold(const char *name)
{
	struct timespec rest = {.tv_sec = hold_ms / 1000, .tv_nsec = hold_ms % 1000 * 1000000L};
	uint64_t from, before;

	CUDA(cuCtxSynchronize());
	from = now_ns();
	before = used_now();
	(void)nanosleep(&rest, NULL);
	(void)printf(
		"{\"hold\":\"%s\",\"from_ns\":%llu,\"to_ns\":%llu,\"began\":%llu,\"before\":%llu,"
		"\"used\":%llu,\"asked\":%llu,\"blocks\":%d}\n",
		name, (unsigned long long)from, (unsigned long long)now_ns(),
		(unsigned long long)began, (unsigned long long)before,
		(unsigned long long)used_now(), (unsigned long long)asked, block_count);
	(void)fflush(stdout);
}

/* ---- device memory ---- */

static void take(size_t bytes)
{
	CUDA(cuMemAlloc(&blocks[block_count], bytes));
	sizes[block_count++] = bytes;
	asked += bytes;
}

static void give_third(void)
{
	int i, kept = 0;

	for (i = 0; i < block_count; i++) {
		if (i % 3 == 0) {
			asked -= sizes[i];
			CUDA(cuMemFree(blocks[i]));
		} else {
			sizes[kept] = sizes[i];
			blocks[kept++] = blocks[i];
		}
	}
	block_count = kept;
}

static void odd(void)
{
	int i;

	for (i = 0; i < 240; i++)
		take(next() % (next() % 4 == 0 ? 12 * MIB : 3 * MIB) + 1);
	hold("odd");
	give_third();
	hold("a third given back");
}

static void small(void)
{
	int i;

	for (i = 0; i < 3000; i++)
		take(next() % 200000 + 1);
	hold("small");
}

static void pages(void)
{
	int i;

	for (i = 0; i < 60; i++)
		take((next() % 20 + 1) * 2 * MIB);
	hold("pages");
	give_third();
	hold("a third given back");
}

static void async(void)
{
	int i, kept = 0;

	for (i = 0; i < 80; i++) {
		sizes[i] = (next() % 16 + 1) * 2 * MIB;
		CUDA(cuMemAllocAsync(&blocks[i], sizes[i], NULL));
		asked += sizes[i];
	}
	block_count = i;
	hold("async");
	for (i = 0; i < block_count; i++) {
		if (i % 2 == 0) {
			CUDA(cuMemFreeAsync(blocks[i], NULL));
			asked -= sizes[i];
		} else {
			blocks[kept++] = blocks[i];
		}
	}
	block_count = kept;
	hold("half given back");
}

static void managed(void)
{
	int (*set)(cu_address, unsigned char, size_t);
	cu_address address;

	*(void **)&set = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuMemsetD8_v2");
	hold("nothing");
	CUDA(cuMemAllocManaged(&address, 512 * MIB, 1));
	asked = 512 * MIB;
	hold("not used yet");
	if (set != NULL && set(address, 1, 512 * MIB) != 0)
		cuda_fail("cuMemsetD8", 0);
	hold("used");
}

static void physical(void)
{
	struct cu_properties properties = {.type = 1, .location = {.type = 1, .id = 0}};
	struct cu_access access = {.location = {.type = 1, .id = 0}, .flags = 3};
	size_t bytes = 20 * MIB;
	cu_address base;
	int i;

	CUDA(cuMemAddressReserve(&base, 64 * bytes, 0, 0, 0));
	for (i = 0; i < 24; i++) {
		cu_address handle;

		CUDA(cuMemCreate(&handle, bytes, &properties, 0));
		CUDA(cuMemMap(base + (cu_address)i * bytes, bytes, 0, handle, 0));
		CUDA(cuMemRelease(handle));
		CUDA(cuMemSetAccess(base + (cu_address)i * bytes, bytes, &access, 1));
		asked += bytes;
		block_count++;
	}
	hold("physical");
	for (i = 0; i < 12; i++) {
		CUDA(cuMemUnmap(base + (cu_address)i * bytes, bytes));
		asked -= bytes;
		block_count--;
	}
	hold("half unmapped");
}

/* ---- what the driver takes for itself ---- */

static void contexts(void)
{
	int (*create)(cu_handle *, unsigned int, int), (*destroy)(cu_handle);
	cu_handle second;
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);

	*(void **)&create = dlsym(driver, "cuCtxCreate_v2");
	*(void **)&destroy = dlsym(driver, "cuCtxDestroy_v2");
	if (create == NULL || destroy == NULL)
		cuda_fail("no cuCtxCreate_v2", 0);
	take(64 * MIB);
	hold("one context");
	if (create(&second, 0, 0) != 0)
		cuda_fail("no second context", 0);
	hold("two contexts");
	take(32 * MIB);
	hold("memory of the second");
	if (destroy(second) != 0)
		cuda_fail("cuCtxDestroy", 0);
	asked -= 32 * MIB;
	block_count--;
	CUDA(cuCtxSetCurrent(cuda_contexts[0]));
	hold("the second is gone");
}

/* Needs `local` bytes of each thread. */
static const char deep[] =
	".version 7.0\n.target sm_80\n.address_size 64\n"
	".visible .entry deep(.param .u64 out, .param .u32 at)\n{\n"
	"\t.local .align 4 .b8 room[4096];\n\t.reg .b32 %r<8>;\n\t.reg .b64 %d<8>;\n"
	"\tld.param.u64 %d1, [out];\n\tld.param.u32 %r1, [at];\n"
	"\tand.b32 %r2, %r1, 4092;\n\tshl.b32 %r3, %r1, 3;\n\tand.b32 %r4, %r3, 4092;\n"
	"\tmov.u64 %d2, room;\n\tcvt.u64.u32 %d3, %r2;\n\tcvt.u64.u32 %d4, %r4;\n"
	"\tadd.u64 %d5, %d2, %d3;\n\tadd.u64 %d6, %d2, %d4;\n"
	"\tst.local.u32 [%d5], %r1;\n\tld.local.u32 %r5, [%d6];\n\tst.global.u32 [%d1], %r5;\n"
	"\tret;\n}\n";

static void code(void)
{
	cu_handle modules[8], function;
	unsigned int at = (unsigned int)next();
	cu_address out;
	void *parameters[] = {&out, &at};
	int i;

	take(200 * MIB);
	out = blocks[0];
	hold("no code");
	for (i = 0; i < 8; i++)
		CUDA(cuModuleLoadData(&modules[i], deep));
	hold("loaded");
	CUDA(cuModuleGetFunction(&function, modules[0], "deep"));
	CUDA(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL));
	hold("launched");
}

static void tell_sizes(void)
{
	static const size_t some[] = {512,	    4096,     65536,	    300000,  524288,
				      700000,	    1048575,  1048576,	    1048577, 1500000,
				      2097151,	    2097152,  2097153,	    3 * MIB, 5 * MIB,
				      20 * MIB + 1, 33 * MIB, 100 * MIB + 1};
	size_t i;
	int k;

	for (i = 0; i < sizeof(some) / sizeof(some[0]); i++) {
		uint64_t before = used_now();

		block_count = 0;
		for (k = 0; k < 16; k++)
			take(some[i]);
		(void)printf("{\"size\":%zu,\"sixteen\":%llu", some[i],
			     (unsigned long long)(used_now() - before));
		for (k = 0; k < 16; k++)
			CUDA(cuMemFree(blocks[k]));
		(void)printf(",\"behind\":%lld}\n", (long long)(used_now() - before));
	}
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} kinds[] = {{"odd", odd},	     {"small", small},	   {"pages", pages},
		     {"async", async},	     {"managed", managed}, {"physical", physical},
		     {"contexts", contexts}, {"code", code},	   {"sizes", tell_sizes}};
	size_t i;

	if (argc < 3)
		cuda_fail("cuda_ledger WHAT SEED [MILLISECONDS]", 0);
	chance = (strtoull(argv[2], NULL, 10) + 1) * 0x9e3779b97f4a7c15u;
	if (argc > 3)
		hold_ms = atoi(argv[3]);
	cuda_begin();
	began = used_now();
	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (strcmp(kinds[i].name, argv[1]) == 0)
			kinds[i].run();
	}
	return 0;
}
