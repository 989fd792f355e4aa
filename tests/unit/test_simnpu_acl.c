/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated AscendCL, runtime, profiler interface and device, seen through their exported functions only. Variables are
 * read once per process, so every test runs in a child of its own with the machine it wants; the parent never calls the
 * libraries.
 *
 * This program defines some of the names that the libraries call each other by. It comes first in the process, so those
 * calls end up here, as they would in a tool, and are passed on.
 */
#include <stdlib.h>

#include "unit.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <acl/acl.h>
#include <ascend_hal.h>
#include <profiling/prof_api.h>
#include <runtime/rt.h>
#include <simnpu.h>

#define KIB 1024ULL
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)

#define MODULE_APP (33ULL << MEM_MODULE_ID_BIT)

/* In the child: says where it failed and ends. cmocka's assertions would go on with the parent's list of tests. */
#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			(void)fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);      \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

#define CHECK_OK(call) CHECK((call) == ACL_SUCCESS)

static void *next_symbol(const char *name)
{
	void *symbol = dlsym(RTLD_NEXT, name);

	CHECK(symbol);
	return symbol;
}

/* The last calls of halMemAlloc(), and whether they are to fail. */
static struct {
	uint64_t size;
	uint64_t flag;
} allocs[64];
static atomic_uint alloc_count;
static drvError_t alloc_failure;

drvError_t halMemAlloc(void **pp, unsigned long long size, unsigned long long flag)
{
	drvError_t (*next)(void **, unsigned long long, unsigned long long);
	unsigned n = atomic_fetch_add(&alloc_count, 1);

	CHECK(n < sizeof(allocs) / sizeof(allocs[0]));
	allocs[n].size = size;
	allocs[n].flag = flag;
	if (alloc_failure)
		return alloc_failure;
	*(void **)&next = next_symbol("halMemAlloc");
	return next(pp, size, flag);
}

static struct drv_mem_prop last_prop;

drvError_t halMemCreate(drv_mem_handle_t **handle, size_t size, const struct drv_mem_prop *prop,
			uint64_t flag)
{
	drvError_t (*next)(drv_mem_handle_t **, size_t, const struct drv_mem_prop *, uint64_t);

	last_prop = *prop;
	*(void **)&next = next_symbol("halMemCreate");
	return next(handle, size, prop, flag);
}

static atomic_uint impl_launches;

aclError aclrtLaunchKernelImpl(aclrtFuncHandle, uint32_t, const void *, size_t, aclrtStream);
aclError aclrtLaunchKernelImpl(aclrtFuncHandle function, uint32_t blocks, const void *args,
			       size_t size, aclrtStream stream)
{
	aclError (*next)(aclrtFuncHandle, uint32_t, const void *, size_t, aclrtStream);

	impl_launches++;
	*(void **)&next = next_symbol("aclrtLaunchKernelImpl");
	return next(function, blocks, args, size, stream);
}

/* Runs `body` on a machine with these variables, NAME=VALUE separated by spaces. */
static void in_child(const char *variables, void (*body)(void))
{
	static const char *const known[] = {
		"SIMNPU_DEVICES",
		"SIMNPU_HBM",
		"SIMNPU_SOC",
		"SIMNPU_LOG",
		"ASCEND_RT_VISIBLE_DEVICES",
		"SIMNPU_EXPAND_STREAMS",
	};
	char *copy = strdup(variables);
	char *rest = copy;
	char *word;
	pid_t pid;
	size_t n;

	assert_non_null(copy);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		for (n = 0; n < sizeof(known) / sizeof(known[0]); n++)
			(void)unsetenv(known[n]);
		while ((word = strsep(&rest, " "))) {
			if (*word)
				(void)putenv(word);
		}
		(void)alarm(UNIT_HANGS_S);
		body();
		_exit(0);
	}
	free(copy);
	assert_int_equal(unit_wait(pid), 0);
}

static void *must_malloc(size_t size)
{
	void *address = NULL;

	CHECK_OK(aclrtMalloc(&address, size, ACL_MEM_MALLOC_HUGE_FIRST));
	CHECK(address);
	return address;
}

static aclrtStream must_stream(void)
{
	aclrtStream stream = NULL;

	CHECK_OK(aclrtCreateStream(&stream));
	CHECK(stream);
	return stream;
}

static void *must_register(const char *name, void (*fn)(void *, size_t, uint32_t))
{
	void *handle = NULL;

	CHECK_OK(simnpuRegisterKernel(name, fn, &handle));
	return handle;
}

/* Memory: flags, sizes, codes. */

static void malloc_cases(void)
{
	static const struct {
		int policy;
		uint64_t size;
		uint64_t driver_size;
		uint64_t flag;
	} cases[] = {
		{ACL_MEM_MALLOC_HUGE_FIRST, 256, 288, 0x904402},
		{ACL_MEM_MALLOC_HUGE_FIRST, 1, 64, 0x904402},
		{ACL_MEM_MALLOC_HUGE_FIRST, 33, 96, 0x904402},
		/* The limit counts what is asked of the driver: 1 MiB is not above 1 MiB. */
		{ACL_MEM_MALLOC_HUGE_FIRST, MIB - 32, MIB, 0x904402},
		{ACL_MEM_MALLOC_HUGE_FIRST, MIB - 31, MIB + 32, 0x924402},
		{ACL_MEM_MALLOC_HUGE_FIRST, 4 * MIB, 4 * MIB + 32, 0x924402},
		{ACL_MEM_MALLOC_HUGE_ONLY, 256, 288, 0x924402},
		{ACL_MEM_MALLOC_NORMAL_ONLY, 4 * MIB, 4 * MIB + 32, 0x904402},
		{ACL_MEM_MALLOC_HUGE_FIRST_P2P, 4 * MIB, 4 * MIB + 32, 0x2924402},
		{ACL_MEM_MALLOC_HUGE_ONLY_P2P, 256, 288, 0x2924402},
		{ACL_MEM_MALLOC_NORMAL_ONLY_P2P, 256, 288, 0x2904402},
		{ACL_MEM_MALLOC_HUGE1G_ONLY, 256, 256, 0x80004402},
		{ACL_MEM_MALLOC_HUGE1G_ONLY_P2P, 257, 288, 0x82004402},
		{ACL_MEM_MALLOC_HUGE_FIRST | ACL_MEM_TYPE_HIGH_BAND_WIDTH, 256, 288, 0x904402},
	};
	void *address;
	size_t n;

	CHECK_OK(aclrtSetDevice(2));
	for (n = 0; n < sizeof(cases) / sizeof(cases[0]); n++) {
		alloc_count = 0;
		CHECK_OK(aclrtMalloc(&address, cases[n].size,
				     (aclrtMemMallocPolicy)cases[n].policy));
		CHECK(alloc_count == 1);
		CHECK(allocs[0].size == cases[n].driver_size);
		CHECK(allocs[0].flag == (cases[n].flag | MODULE_APP));
		CHECK_OK(aclrtFree(address));
	}
	alloc_count = 0;
	CHECK_OK(aclrtMallocAlign32(&address, 257, ACL_MEM_MALLOC_HUGE_FIRST));
	CHECK(allocs[0].size == 288);
	CHECK_OK(aclrtMallocAlign32(&address, 256, ACL_MEM_MALLOC_HUGE_FIRST));
	CHECK(allocs[1].size == 256);
	CHECK(allocs[1].flag == (0x904402 | MODULE_APP));
}

static void policy_and_size_decide_flag_and_padding(void **state)
{
	(void)state;
	in_child("", malloc_cases);
}

static void double_attempt(void)
{
	void *address = (void *)(uintptr_t)1;

	CHECK_OK(aclrtSetDevice(0));
	CHECK(aclrtMalloc(&address, 128 * MIB, ACL_MEM_MALLOC_HUGE_FIRST) ==
	      ACL_ERROR_RT_MEMORY_ALLOCATION);
	CHECK(alloc_count == 2);
	CHECK(allocs[0].flag == (0x924400 | MODULE_APP) &&
	      allocs[1].flag == (0x904400 | MODULE_APP));
	CHECK(allocs[0].size == 128 * MIB + 32 && allocs[1].size == allocs[0].size);
	CHECK(address == (void *)(uintptr_t)1);

	CHECK(aclrtMalloc(&address, 128 * MIB, ACL_MEM_MALLOC_HUGE_ONLY) ==
	      ACL_ERROR_RT_MEMORY_ALLOCATION);
	CHECK(alloc_count == 3);
	CHECK(aclrtMalloc(&address, 128 * MIB, ACL_MEM_MALLOC_NORMAL_ONLY) ==
	      ACL_ERROR_RT_MEMORY_ALLOCATION);
	CHECK(alloc_count == 4);
	CHECK(aclrtMalloc(&address, GIB, ACL_MEM_MALLOC_HUGE1G_ONLY) ==
	      ACL_ERROR_RT_MEMORY_ALLOCATION);
	CHECK(alloc_count == 5);

	/* 63 MiB do not fit as huge pages beside 2 MiB, but as normal ones. */
	CHECK_OK(aclrtMalloc(&address, MIB, ACL_MEM_MALLOC_HUGE_ONLY));
	alloc_count = 0;
	CHECK_OK(aclrtMalloc(&address, 63 * MIB - 32, ACL_MEM_MALLOC_NORMAL_ONLY));
	CHECK_OK(aclrtFree(address));
	CHECK_OK(aclrtMalloc(&address, 63 * MIB - 32, ACL_MEM_MALLOC_HUGE_FIRST));
	CHECK(alloc_count == 3);

	/* Any failure is reason enough for the second attempt, and the second decides what the program sees. */
	alloc_count = 0;
	alloc_failure = DRV_ERROR_NO_RESOURCES;
	CHECK(aclrtMalloc(&address, 4 * MIB, ACL_MEM_MALLOC_HUGE_FIRST) ==
	      ACL_ERROR_RT_RESOURCE_ALLOC_FAIL);
	CHECK(alloc_count == 2);
}

static void huge_pages_first_asks_twice_before_it_gives_up(void **state)
{
	(void)state;
	in_child("SIMNPU_HBM=65M", double_attempt);
}

static void driver_codes(void)
{
	static const struct {
		drvError_t driver;
		int acl;
	} codes[] = {
		{DRV_ERROR_OUT_OF_MEMORY, 207001}, {DRV_ERROR_INVALID_DEVICE, 107001},
		{DRV_ERROR_INVALID_VALUE, 107000}, {DRV_ERROR_INVALID_HANDLE, 107017},
		{DRV_ERROR_NOT_SUPPORT, 207000},   {DRV_ERROR_INNER_ERR, 507899},
	};
	const char *message;
	void *address;
	size_t n;

	CHECK_OK(aclrtSetDevice(0));
	CHECK(!aclGetRecentErrMsg());
	for (n = 0; n < sizeof(codes) / sizeof(codes[0]); n++) {
		alloc_failure = codes[n].driver;
		CHECK(aclrtMalloc(&address, 256, ACL_MEM_MALLOC_HUGE_FIRST) == codes[n].acl);
		CHECK(aclrtMallocHost(&address, 256) == codes[n].acl);
	}
	message = aclGetRecentErrMsg();
	CHECK(message && strstr(message, "507899"));
	CHECK(!aclGetRecentErrMsg());
}

static void codes_of_the_driver_become_codes_of_acl(void **state)
{
	(void)state;
	in_child("", driver_codes);
}

static void host_flags(void)
{
	aclrtMallocAttribute attributes[2] = {
		{.attr = ACL_RT_MEM_ATTR_VA_FLAG, .value.vaFlag = 1},
		{.attr = ACL_RT_MEM_ATTR_MODULE_ID, .value.moduleId = 3},
	};
	aclrtMallocConfig config = {attributes, 1};
	void *addresses[4];

	CHECK_OK(aclrtSetDevice(5));
	CHECK_OK(aclrtMallocHost(&addresses[0], 1000));
	CHECK(allocs[0].size == 1000 && allocs[0].flag == (0x900800 | MODULE_APP));
	CHECK_OK(aclrtMallocHostWithCfg(&addresses[1], 1000, NULL));
	CHECK(allocs[1].flag == (0x900800 | MODULE_APP));
	CHECK_OK(aclrtMallocHostWithCfg(&addresses[2], 1000, &config));
	CHECK(allocs[2].flag == (0x901800 | MODULE_APP));
	config.numAttrs = 2;
	CHECK_OK(aclrtMallocHostWithCfg(&addresses[3], 1000, &config));
	CHECK(allocs[3].flag == (0x901800 | 3ULL << MEM_MODULE_ID_BIT));
	CHECK(alloc_count == 4);
	memset(addresses[0], 1, 1000);
	CHECK_OK(aclrtFreeHost(addresses[0]));
	CHECK(aclrtFreeHost(addresses[0]) == ACL_ERROR_RT_PARAM_INVALID);

	alloc_count = 0;
	CHECK_OK(rtMalloc(&addresses[0], 4 * MIB, RT_MEMORY_SVM, 7));
	CHECK(allocs[0].flag == (0x920005 | 7ULL << MEM_MODULE_ID_BIT));
	CHECK(allocs[0].size == 4 * MIB);
}

static void host_and_managed_memory_have_their_own_flags(void **state)
{
	(void)state;
	in_child("", host_flags);
}

static void wrong_arguments(void)
{
	const aclrtPhysicalMemProp prop = {.memAttr = (aclrtMemAttr)99};
	aclrtDrvMemHandle handle;
	char bytes[8] = {0};
	size_t unused;
	void *address;

	CHECK_OK(aclrtSetDevice(0));
	CHECK(aclrtMalloc(NULL, 1, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_ERROR_INVALID_PARAM);
	CHECK(aclrtMalloc(&address, 0, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_ERROR_INVALID_PARAM);
	CHECK(aclrtMalloc(&address, SIZE_MAX, ACL_MEM_MALLOC_HUGE_FIRST) ==
	      ACL_ERROR_INVALID_PARAM);
	CHECK(aclrtMalloc(&address, 1, (aclrtMemMallocPolicy)8) == ACL_ERROR_INVALID_PARAM);
	CHECK(alloc_count == 0);
	CHECK(aclrtFree(NULL) == ACL_ERROR_INVALID_PARAM);
	CHECK(aclrtFree(bytes) == ACL_ERROR_RT_PARAM_INVALID);
	CHECK(aclrtMallocHost(NULL, 1) == ACL_ERROR_INVALID_PARAM);
	CHECK(aclrtMemcpy(bytes, 4, bytes, 5, ACL_MEMCPY_DEFAULT) == ACL_ERROR_INVALID_PARAM);
	CHECK(aclrtMemcpy(bytes, 8, NULL, 5, ACL_MEMCPY_DEFAULT) == ACL_ERROR_INVALID_PARAM);
	CHECK(aclrtMemcpy(bytes, 8, bytes, 5, (aclrtMemcpyKind)8) == ACL_ERROR_RT_PARAM_INVALID);
	CHECK_OK(aclrtMemcpy(bytes, 0, bytes, 0, ACL_MEMCPY_DEFAULT));
	CHECK(aclrtMemset(bytes, 4, 0, 5) == ACL_ERROR_INVALID_PARAM);
	CHECK(aclrtGetMemInfo((aclrtMemAttr)18, &unused, &unused) == ACL_ERROR_INVALID_PARAM);
	CHECK(aclrtMallocPhysical(&handle, 2 * MIB, &prop, 0) == ACL_ERROR_INVALID_PARAM);
	CHECK(aclrtGetDevice(NULL) == ACL_ERROR_INVALID_PARAM);
	CHECK(aclrtSetDevice(-1) == ACL_ERROR_RT_INVALID_DEVICEID);
	CHECK(aclrtSetDevice(8) == ACL_ERROR_RT_INVALID_DEVICEID);
}

static void wrong_arguments_are_refused(void **state)
{
	(void)state;
	in_child("", wrong_arguments);
}

static void copies(void)
{
	char *device;
	char *host;
	size_t n;

	CHECK_OK(aclrtSetDevice(0));
	device = must_malloc(MIB);
	CHECK_OK(aclrtMallocHost((void **)&host, MIB));
	for (n = 0; n < MIB; n++)
		host[n] = (char)(n * 7);
	CHECK_OK(aclrtMemcpy(device, MIB, host, MIB, ACL_MEMCPY_HOST_TO_DEVICE));
	CHECK_OK(aclrtMemset(host, MIB, 0, MIB));
	CHECK(host[1] == 0);
	CHECK_OK(aclrtMemcpyAsync(host, MIB, device, MIB, ACL_MEMCPY_DEVICE_TO_HOST, NULL));
	CHECK_OK(aclrtMemsetAsync(device, MIB, 0x55, MIB, NULL));
	CHECK_OK(aclrtSynchronizeStream(NULL));
	for (n = 0; n < MIB; n++)
		CHECK(host[n] == (char)(n * 7) && device[n] == 0x55);
}

static void copies_move_bytes(void **state)
{
	(void)state;
	in_child("", copies);
}

static void mem_info(void)
{
	size_t total;
	size_t before;
	size_t after;
	void *block;

	CHECK(aclrtGetMemInfo(ACL_HBM_MEM, &before, &total) == ACL_ERROR_RT_CONTEXT_NULL);
	CHECK_OK(aclrtSetDevice(0));
	CHECK_OK(aclrtGetMemInfo(ACL_HBM_MEM, &before, &total));
	CHECK(total == GIB && before == GIB);
	block = must_malloc(5 * MIB);
	CHECK_OK(aclrtGetMemInfo(ACL_HBM_MEM_HUGE, &after, &total));
	CHECK(after == GIB - 6 * MIB);
	CHECK_OK(aclrtSetDevice(1));
	CHECK_OK(aclrtGetMemInfo(ACL_HBM_MEM, &after, &total));
	CHECK(after == GIB);
	CHECK_OK(aclrtGetMemInfo(ACL_DDR_MEM, &after, &total));
	CHECK(after == 0 && total == 0);
	CHECK_OK(aclrtFree(block));
	CHECK_OK(aclrtSetDevice(0));
	CHECK_OK(aclrtGetMemInfo(ACL_HBM_MEM, &after, &total));
	CHECK(after == before);
}

static void memory_info_follows_allocations(void **state)
{
	(void)state;
	in_child("SIMNPU_HBM=1G", mem_info);
}

static void registration(void)
{
	char *memory = malloc(8192);

	CHECK(aclrtHostRegisterV2(memory, 8192, ACL_HOST_REG_PINNED) == ACL_ERROR_RT_CONTEXT_NULL);
	CHECK_OK(aclrtSetDevice(0));
	CHECK(aclrtHostRegisterV2(NULL, 1, 0) == ACL_ERROR_INVALID_PARAM);
	CHECK_OK(aclrtHostRegisterV2(memory, 4096, ACL_HOST_REG_PINNED));
	CHECK(aclrtHostRegisterV2(memory + 4095, 10, 0) == ACL_ERROR_RT_PARAM_INVALID);
	CHECK_OK(aclrtHostRegisterV2(memory + 4096, 4096, ACL_HOST_REG_MAPPED));
	CHECK(aclrtHostUnregister(memory + 1) == ACL_ERROR_RT_PARAM_INVALID);
	CHECK_OK(aclrtHostUnregister(memory));
	CHECK(aclrtHostUnregister(memory) == ACL_ERROR_RT_PARAM_INVALID);
	CHECK_OK(aclrtHostUnregister(memory + 4096));
	CHECK_OK(aclrtHostRegisterV2(memory, 8192, 0));
}

static void host_memory_is_registered_once(void **state)
{
	(void)state;
	in_child("", registration);
}

/* Memory and addresses apart. */

static aclrtDrvMemHandle must_create(size_t size, aclrtMemAttr attr, uint32_t device)
{
	const aclrtPhysicalMemProp prop = {
		.memAttr = attr,
		.location = {.id = device, .type = ACL_MEM_LOCATION_TYPE_DEVICE},
	};
	aclrtDrvMemHandle handle;

	CHECK_OK(aclrtMallocPhysical(&handle, size, &prop, 0));
	return handle;
}

static void segments(void)
{
	const aclrtPhysicalMemProp prop = {
		.memAttr = ACL_HBM_MEM_HUGE,
		.location = {.type = ACL_MEM_LOCATION_TYPE_DEVICE},
	};
	aclrtDrvMemHandle handles[4];
	aclrtDrvMemHandle extra;
	char *base;
	size_t n;

	/* More addresses than memory, filled piece by piece, as allocators with expandable segments do. */
	CHECK_OK(aclrtReserveMemAddress((void **)&base, 256 * MIB, 0, NULL, 1));
	CHECK((uintptr_t)base % (2 * MIB) == 0);
	for (n = 0; n < 4; n++) {
		handles[n] = must_create(2 * MIB, ACL_HBM_MEM_HUGE, 0);
		CHECK_OK(aclrtMapMem(base + n * 2 * MIB, 2 * MIB, 0, handles[n], 0));
		memset(base + n * 2 * MIB, (int)n + 1, 2 * MIB);
	}
	CHECK(base[2 * MIB - 1] == 1 && base[2 * MIB] == 2);
	CHECK(aclrtMallocPhysical(&extra, 2 * MIB, &prop, 0) == ACL_ERROR_RT_MEMORY_ALLOCATION);

	/* Taken from the middle and put at the end, the contents come along. */
	CHECK_OK(aclrtUnmapMem(base + 2 * MIB));
	CHECK_OK(aclrtMapMem(base + 8 * MIB, 2 * MIB, 0, handles[1], 0));
	CHECK(base[8 * MIB] == 2 && base[10 * MIB - 1] == 2);

	/* A released handle lives on in its mapping. */
	CHECK_OK(aclrtFreePhysical(handles[0]));
	base[5]++;
	CHECK(base[5] == 2);
	CHECK(aclrtMallocPhysical(&extra, 2 * MIB, &prop, 0) == ACL_ERROR_RT_MEMORY_ALLOCATION);
	CHECK_OK(aclrtUnmapMem(base));
	CHECK(aclrtFreePhysical(handles[0]) == ACL_ERROR_RT_INVALID_HANDLE);
	CHECK_OK(aclrtMallocPhysical(&extra, 2 * MIB, &prop, 0));
	CHECK_OK(aclrtMapMem(base, 2 * MIB, 0, extra, 0));
	CHECK(base[5] == 0);

	CHECK(aclrtReleaseMemAddress(base) != ACL_SUCCESS);
	CHECK_OK(aclrtUnmapMem(base));
	for (n = 2; n < 5; n++)
		CHECK_OK(aclrtUnmapMem(base + n * 2 * MIB));
	CHECK_OK(aclrtReleaseMemAddress(base));
	for (n = 1; n < 4; n++)
		CHECK_OK(aclrtFreePhysical(handles[n]));
	CHECK_OK(aclrtFreePhysical(extra));
}

static void memory_and_addresses_can_be_taken_apart(void **state)
{
	(void)state;
	in_child("SIMNPU_HBM=8M", segments);
}

static void alias(void)
{
	aclrtDrvMemHandle handle = must_create(2 * MIB, ACL_HBM_MEM_HUGE, 0);
	volatile char *base; /* the compiler must not believe that two addresses are two bytes */
	void *start;

	CHECK_OK(aclrtReserveMemAddress(&start, 8 * MIB, 0, NULL, 0));
	base = start;
	CHECK_OK(aclrtMapMem(start, 2 * MIB, 0, handle, 0));
	if (unit_is_emulated()) {
		CHECK(aclrtMapMem((char *)start + 4 * MIB, 2 * MIB, 0, handle, 0) ==
		      ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
		return;
	}
	CHECK_OK(aclrtMapMem((char *)start + 4 * MIB, 2 * MIB, 0, handle, 0));
	base[100] = 42;
	CHECK(base[4 * MIB + 100] == 42);
	CHECK_OK(aclrtUnmapMem(start));
	base[4 * MIB + 100]++;
	CHECK_OK(aclrtMapMem((char *)start + 2 * MIB, 2 * MIB, 0, handle, 0));
	CHECK(base[2 * MIB + 100] == 43);
	CHECK_OK(aclrtUnmapMem((char *)start + 2 * MIB));
	CHECK_OK(aclrtUnmapMem((char *)start + 4 * MIB));
	CHECK_OK(aclrtFreePhysical(handle));
}

static void one_handle_can_be_at_two_addresses(void **state)
{
	(void)state;
	in_child("", alias);
}

static void map_codes(void)
{
	aclrtDrvMemHandle handle = must_create(4 * MIB, ACL_HBM_MEM_HUGE, 0);
	struct drv_mem_handle *driver_handle = handle;
	char *base;
	void *wish;
	void *other;

	CHECK(aclrtReserveMemAddress(NULL, MIB, 0, NULL, 0) == ACL_ERROR_INVALID_PARAM);
	CHECK(halMemAddressReserve((void **)&base, 8 * MIB, 1, NULL, 0) == DRV_ERROR_INVALID_VALUE);
	CHECK(halMemAddressReserve((void **)&base, 0, 0, NULL, 0) == DRV_ERROR_INVALID_VALUE);
	CHECK(halMemAddressReserve((void **)&base, SIZE_MAX, 0, NULL, 0) ==
	      DRV_ERROR_OUT_OF_MEMORY);
	/* Less than a page gets a whole huge page of addresses: a client probes with 512 bytes. */
	CHECK(!halMemAddressReserve(&wish, 512, 0, NULL, 1));
	CHECK(!halMemAddressReserve(&other, 2 * MIB, 0, wish, 1) && other != wish);
	CHECK(!halMemAddressFree(other) && !halMemAddressFree(wish));
	CHECK(halMemAddressReserve((void **)&base, 1ULL << 60, 0, NULL, 0) ==
	      DRV_ERROR_OUT_OF_MEMORY);
	CHECK(!halMemAddressReserve((void **)&base, 8 * MIB, 0, NULL, 0));
	CHECK(halMemMap(base, 2 * MIB, 0, driver_handle, 0) == DRV_ERROR_INVALID_VALUE);
	CHECK(halMemMap(base, 4 * MIB, MIB, driver_handle, 0) == DRV_ERROR_INVALID_VALUE);
	CHECK(halMemMap(base, 4 * MIB, 0, driver_handle, 1) == DRV_ERROR_INVALID_VALUE);
	CHECK(halMemMap(base + 6 * MIB, 4 * MIB, 0, driver_handle, 0) == DRV_ERROR_INVALID_VALUE);
	CHECK(halMemMap(base - 4096, 4 * MIB, 0, driver_handle, 0) == DRV_ERROR_INVALID_VALUE);
	CHECK(halMemMap(base, 4 * MIB, 0, (void *)base, 0) == DRV_ERROR_INVALID_HANDLE);
	CHECK(!halMemMap(base + MIB, 4 * MIB, 0, driver_handle, 0));
	CHECK(halMemMap(base + 4 * MIB, 4 * MIB, 0, driver_handle, 0) == DRV_ERROR_BUSY);
	CHECK(halMemUnmap(base) == DRV_ERROR_INVALID_VALUE);
	CHECK(halMemUnmap(base + 2 * MIB) == DRV_ERROR_INVALID_VALUE);
	CHECK(halMemAddressFree(base) == DRV_ERROR_BUSY);
	CHECK(!halMemUnmap(base + MIB));
	CHECK(halMemAddressFree(base + MIB) == DRV_ERROR_INVALID_VALUE);
	CHECK(!halMemAddressFree(base));
	CHECK(halMemAddressFree(base) == DRV_ERROR_INVALID_VALUE);

	/* An address that is free is granted, one that is not is a mere wish. */
	CHECK(!halMemAddressReserve(&wish, 8 * MIB, 0, base, 0));
	CHECK(wish == base);
	CHECK(!halMemAddressReserve(&wish, 8 * MIB, 0, base, 0));
	CHECK(wish != base);
}

static void wrong_mappings_are_refused(void **state)
{
	(void)state;
	in_child("", map_codes);
}

/* Devices and contexts. */

static void visible(void)
{
	aclrtContext context;
	uint32_t count = 0;
	int32_t device = -1;

	CHECK_OK(aclrtGetDeviceCount(&count));
	CHECK(count == 2);
	CHECK(aclrtSetDevice(2) == ACL_ERROR_RT_INVALID_DEVICEID);
	CHECK_OK(aclrtSetDevice(1));
	CHECK_OK(aclrtGetDevice(&device));
	CHECK(device == 1);
	(void)must_malloc(256);
	CHECK((allocs[0].flag & MEM_DEVID_MASK) == 2);
	(void)must_create(4096, ACL_HBM_MEM_NORMAL, 0);
	CHECK(last_prop.devid == 5 && last_prop.module_id == 33);
	CHECK(last_prop.pg_type == MEM_NORMAL_PAGE_TYPE && last_prop.mem_type == MEM_HBM_TYPE &&
	      last_prop.side == MEM_DEV_SIDE);
	(void)must_create(GIB, ACL_MEM_P2P_HUGE1G, 1);
	CHECK(last_prop.devid == 2 && last_prop.pg_type == MEM_GIANT_PAGE_TYPE &&
	      last_prop.mem_type == MEM_P2P_HBM_TYPE);
	CHECK_OK(aclrtCreateContext(&context, 0));
	(void)must_malloc(256);
	CHECK((allocs[1].flag & MEM_DEVID_MASK) == 5);
}

static void sees_nothing(void)
{
	uint32_t count = 1;

	CHECK_OK(aclrtGetDeviceCount(&count));
	CHECK(count == 0);
	CHECK(aclrtSetDevice(0) == ACL_ERROR_RT_INVALID_DEVICEID);
}

static void flags_carry_physical_device_ids(void **state)
{
	(void)state;
	in_child("ASCEND_RT_VISIBLE_DEVICES=5,2", visible);
	in_child("ASCEND_RT_VISIBLE_DEVICES=5,\t2\t", visible);
}

static void a_bad_list_shows_no_device(void **state)
{
	(void)state;
	in_child("ASCEND_RT_VISIBLE_DEVICES=0,x", sees_nothing);
	in_child("ASCEND_RT_VISIBLE_DEVICES=", sees_nothing);
	in_child("ASCEND_RT_VISIBLE_DEVICES=1,", sees_nothing);
	in_child("ASCEND_RT_VISIBLE_DEVICES=1,1", sees_nothing);
	in_child("ASCEND_RT_VISIBLE_DEVICES=8", sees_nothing);
	in_child("ASCEND_RT_VISIBLE_DEVICES=-1", sees_nothing);
}

static void init_codes(void)
{
	CHECK(aclFinalize() == ACL_ERROR_UNINITIALIZE);
	CHECK(aclInit("/nonexistent/acl.json") == ACL_ERROR_INVALID_FILE);
	CHECK_OK(aclInit(NULL));
	CHECK(aclInit(NULL) == ACL_ERROR_REPEAT_INITIALIZE);
	CHECK_OK(aclFinalize());
	CHECK(aclFinalize() == ACL_ERROR_REPEAT_FINALIZE);
	CHECK_OK(aclInit("/dev/null"));
}

static void init_and_finalize_come_once(void **state)
{
	(void)state;
	in_child("", init_codes);
}

static void *sees_no_context(void *unused)
{
	int32_t device;

	(void)unused;
	CHECK(aclrtGetDevice(&device) == ACL_ERROR_RT_CONTEXT_NULL);
	CHECK_OK(aclrtSetDevice(3));
	CHECK_OK(aclrtGetDevice(&device));
	CHECK(device == 3);
	return NULL;
}

static void context_life(void)
{
	aclrtContext primary;
	aclrtContext own;
	aclrtContext other;
	pthread_t thread;
	aclrtStream stream;
	int32_t device;
	char byte = 0;
	void *block;

	CHECK(aclrtGetDevice(&device) == ACL_ERROR_RT_CONTEXT_NULL);
	CHECK(aclrtMalloc(&block, 1, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_ERROR_RT_CONTEXT_NULL);
	CHECK(aclrtCreateStream(&stream) == ACL_ERROR_RT_CONTEXT_NULL);
	CHECK(aclrtSynchronizeDevice() == ACL_ERROR_RT_CONTEXT_NULL);
	CHECK(aclrtSynchronizeStream(NULL) == ACL_ERROR_RT_CONTEXT_NULL);
	CHECK(aclrtResetDevice(1) == ACL_ERROR_RT_CONTEXT_NULL);

	CHECK_OK(aclrtSetDevice(1));
	CHECK_OK(aclrtGetCurrentContext(&primary));
	CHECK(pthread_create(&thread, NULL, sees_no_context, NULL) == 0);
	CHECK(pthread_join(thread, NULL) == 0);

	CHECK_OK(aclrtCreateContext(&own, 2));
	CHECK(own != primary);
	CHECK_OK(aclrtGetDevice(&device));
	CHECK(device == 2);
	stream = must_stream();
	CHECK_OK(aclrtMemsetAsync(&byte, 1, 7, 1, stream));
	CHECK_OK(aclrtSetCurrentContext(primary));
	CHECK_OK(aclrtGetDevice(&device));
	CHECK(device == 1);
	/* A stream belongs to the context that it was created in. */
	CHECK(aclrtMemsetAsync(&byte, 1, 8, 1, stream) == ACL_ERROR_RT_STREAM_CONTEXT);
	CHECK_OK(aclrtSynchronizeStream(stream));
	CHECK(byte == 7);
	CHECK_OK(aclrtDestroyStream(stream));
	CHECK(aclrtDestroyStream(stream) == ACL_ERROR_RT_STREAM_CONTEXT);
	CHECK(aclrtMemsetAsync(&byte, 1, 8, 1, stream) == ACL_ERROR_RT_STREAM_CONTEXT);
	CHECK(aclrtSynchronizeStream(stream) == ACL_ERROR_RT_STREAM_CONTEXT);

	CHECK_OK(aclrtSetCurrentContext(own));
	CHECK_OK(aclrtDestroyContext(own));
	CHECK(aclrtGetDevice(&device) == ACL_ERROR_RT_CONTEXT_NULL);
	CHECK(aclrtSetCurrentContext(own) == ACL_ERROR_RT_PARAM_INVALID);
	/* What comes to lie in the same place is not the context that this thread had. */
	CHECK_OK(rtCtxCreate(&other, 0, 4));
	CHECK_OK(aclrtDestroyContext(other));

	/* The device's own context ends with as many resets as there were sets. */
	CHECK_OK(aclrtSetDevice(1));
	CHECK(aclrtDestroyContext(primary) == ACL_ERROR_RT_PARAM_INVALID);
	CHECK_OK(aclrtResetDevice(1));
	CHECK_OK(aclrtGetDevice(&device));
	CHECK_OK(aclrtResetDevice(1));
	CHECK(aclrtGetDevice(&device) == ACL_ERROR_RT_CONTEXT_NULL);
	CHECK(aclrtResetDevice(1) == ACL_ERROR_RT_CONTEXT_NULL);
}

static void a_thread_works_in_one_context(void **state)
{
	(void)state;
	in_child("", context_life);
}

/* Streams and kernels. */

/* Adds `add` to `*counter`. */
struct add_args {
	uint64_t *counter;
	uint64_t add;
};

static void add_kernel(void *args, size_t size, uint32_t block_dim)
{
	struct add_args *a = args;

	CHECK(size >= sizeof(*a) && block_dim == 4);
	*a->counter += a->add;
}

/* Appends to a list, so that the order shows. */
struct append_args {
	uint32_t *list; /* [0] counts */
	uint32_t value;
};

static void append_kernel(void *args, size_t size, uint32_t block_dim)
{
	struct append_args *a = args;

	(void)size;
	(void)block_dim;
	a->list[++a->list[0]] = a->value;
}

static atomic_bool gate;

static void gate_kernel(void *args, size_t size, uint32_t block_dim)
{
	(void)args;
	(void)size;
	(void)block_dim;
	while (!atomic_load(&gate))
		(void)usleep(100);
}

static void open_gate_kernel(void *args, size_t size, uint32_t block_dim)
{
	(void)args;
	(void)size;
	(void)block_dim;
	atomic_store(&gate, true);
}

static void launches(void)
{
	uint64_t expected = 0;
	struct add_args args;
	rtArgsEx_t info = {.args = &args, .argsSize = sizeof(args)};
	rtAicpuArgsEx_t cpu_info = {.args = &args, .argsSize = sizeof(args)};
	aclrtParamHandle parameter;
	aclrtArgsHandle list;
	aclrtStream stream;
	uint64_t *counter;
	void *kernel;
	int way;

	CHECK_OK(aclrtSetDevice(0));
	stream = must_stream();
	counter = must_malloc(sizeof(*counter));
	kernel = must_register("add", add_kernel);
	CHECK_OK(aclrtMemset(counter, 8, 0, 8));
	for (way = 0; way < 10; way++) {
		args = (struct add_args){counter, 1ULL << 4 * way};
		expected += args.add;
		CHECK_OK(aclrtKernelArgsInit(kernel, &list));
		CHECK_OK(aclrtKernelArgsAppend(list, &args.counter, 8, &parameter));
		CHECK_OK(aclrtKernelArgsAppend(list, &args.add, 8, &parameter));
		CHECK_OK(aclrtKernelArgsFinalize(list));
		switch (way) {
		case 0:
			CHECK_OK(rtKernelLaunch(kernel, 4, &args, sizeof(args), NULL, stream));
			break;
		case 1:
			CHECK_OK(rtKernelLaunchWithHandleV2(kernel, 77, 4, &info, NULL, stream,
							    NULL));
			break;
		case 2:
			CHECK_OK(rtKernelLaunchWithFlagV2(kernel, 4, &info, NULL, stream, 0, NULL));
			break;
		case 3:
			CHECK_OK(rtAicpuKernelLaunchExWithArgs(2, "add", 4, &cpu_info, NULL, stream,
							       0));
			break;
		case 4:
			CHECK_OK(rtLaunchKernelByFuncHandle(kernel, 4, list, stream));
			break;
		case 5:
			CHECK_OK(rtLaunchKernelByFuncHandleV2(kernel, 4, list, stream, NULL));
			break;
		case 6:
			CHECK(impl_launches == 0);
			CHECK_OK(aclrtLaunchKernel(kernel, 4, &args, sizeof(args), stream));
			CHECK(impl_launches == 1);
			break;
		case 7:
			CHECK_OK(aclrtLaunchKernelV2(kernel, 4, &args, sizeof(args), NULL, stream));
			break;
		case 8:
			CHECK_OK(aclrtLaunchKernelWithConfig(kernel, 4, stream, NULL, list, NULL));
			break;
		default:
			CHECK_OK(aclrtLaunchKernelWithHostArgs(kernel, 4, stream, NULL, &args,
							       sizeof(args), NULL, 0));
			break;
		}
		/* The arguments were copied. */
		memset(&args, 0xff, sizeof(args));
		CHECK_OK(aclrtSynchronizeStream(stream));
		CHECK(*counter == expected);
	}
	CHECK(expected == 0x1111111111);

	CHECK(aclrtLaunchKernel(&args, 4, &args, 8, stream) == ACL_ERROR_RT_INVALID_HANDLE);
	CHECK(aclrtLaunchKernel(NULL, 4, &args, 8, stream) == ACL_ERROR_INVALID_PARAM);
	CHECK(aclrtLaunchKernel(kernel, 0, &args, 8, stream) == ACL_ERROR_RT_PARAM_INVALID);
	CHECK(aclrtLaunchKernel(kernel, 4, NULL, 8, stream) == ACL_ERROR_RT_PARAM_INVALID);
	CHECK(aclrtLaunchKernel(kernel, 4, &args, 8, &args) == ACL_ERROR_RT_STREAM_CONTEXT);
	CHECK(rtAicpuKernelLaunchExWithArgs(2, "sub", 4, &cpu_info, NULL, stream, 0) ==
	      ACL_ERROR_RT_INVALID_HANDLE);
	CHECK(rtLaunchKernelByFuncHandle(kernel, 4, kernel, stream) == ACL_ERROR_RT_INVALID_HANDLE);
}

static void every_launch_function_runs_the_kernel(void **state)
{
	(void)state;
	in_child("", launches);
}

static void registry(void)
{
	void *first = must_register("same", add_kernel);
	void *second;

	CHECK(must_register("same", add_kernel) == first);
	CHECK(must_register("other", add_kernel) != first);
	CHECK(simnpuRegisterKernel("same", append_kernel, &second) == ACL_ERROR_RT_PARAM_INVALID);
	CHECK(simnpuRegisterKernel("", add_kernel, &second) == ACL_ERROR_RT_PARAM_INVALID);
	CHECK(simnpuRegisterKernel("two words", add_kernel, &second) == ACL_ERROR_RT_PARAM_INVALID);
	CHECK(simnpuRegisterKernel(NULL, add_kernel, &second) == ACL_ERROR_RT_PARAM_INVALID);
	CHECK(simnpuRegisterKernel("none", NULL, &second) == ACL_ERROR_RT_PARAM_INVALID);
}

static void a_kernel_name_stands_for_one_function(void **state)
{
	(void)state;
	in_child("", registry);
}

/* Copies what `data` points to, which lies behind it in the arguments. */
struct inline_args {
	uint64_t *out;
	const uint64_t *data;
	const uint64_t *tiling;
	uint64_t payload[2];
};

static void inline_kernel(void *args, size_t size, uint32_t block_dim)
{
	struct inline_args *a = args;

	(void)block_dim;
	CHECK(size == sizeof(*a));
	a->out[0] = *a->data;
	if (a->tiling)
		a->out[1] = *a->tiling;
}

static void place_holders(void)
{
	rtHostInputInfo_t input = {offsetof(struct inline_args, data),
				   offsetof(struct inline_args, payload)};
	aclrtPlaceHolderInfo holder = {input.addrOffset, input.dataOffset};
	struct inline_args args = {.payload = {11, 22}};
	rtArgsEx_t info = {
		.args = &args,
		.argsSize = sizeof(args),
		.hostInputInfoPtr = &input,
		.hostInputInfoNum = 1,
		.hasTiling = 1,
		.tilingAddrOffset = offsetof(struct inline_args, tiling),
		.tilingDataOffset = offsetof(struct inline_args, payload[1]),
	};
	void *kernel = must_register("inline", inline_kernel);

	CHECK_OK(aclrtSetDevice(0));
	args.out = must_malloc(64);
	CHECK_OK(rtKernelLaunchWithFlagV2(kernel, 1, &info, NULL, NULL, 0, NULL));
	CHECK_OK(aclrtSynchronizeDevice());
	CHECK(args.out[0] == 11 && args.out[1] == 22);
	args.payload[0] = 33;
	CHECK_OK(aclrtLaunchKernelWithHostArgs(kernel, 1, NULL, NULL, &args, sizeof(args), &holder,
					       1));
	CHECK_OK(aclrtSynchronizeStream(NULL));
	CHECK(args.out[0] == 33);
	holder.addrOffset = sizeof(args) - 7;
	CHECK(aclrtLaunchKernelWithHostArgs(kernel, 1, NULL, NULL, &args, sizeof(args), &holder,
					    1) == ACL_ERROR_RT_PARAM_INVALID);
}

static void addresses_in_arguments_point_into_the_copy(void **state)
{
	(void)state;
	in_child("", place_holders);
}

static void args_lists(void)
{
	void *kernel = must_register("add", add_kernel);
	aclrtParamHandle parameter;
	struct add_args args;
	aclrtArgsHandle first;
	aclrtArgsHandle list;
	uint64_t *counter;
	unsigned n;

	CHECK_OK(aclrtSetDevice(0));
	counter = must_malloc(8);
	*counter = 0;
	args = (struct add_args){counter, 3};
	CHECK_OK(aclrtKernelArgsInit(kernel, &first));
	CHECK_OK(aclrtKernelArgsAppend(first, &args.counter, 8, &parameter));
	CHECK_OK(aclrtKernelArgsAppend(first, &args.add, 8, &parameter));
	for (n = 0; n < 4095; n++)
		CHECK_OK(aclrtKernelArgsInit(kernel, &list));
	CHECK_OK(aclrtLaunchKernelWithConfig(kernel, 4, NULL, NULL, first, NULL));
	CHECK_OK(aclrtLaunchKernelWithConfig(kernel, 4, NULL, NULL, first, NULL));
	CHECK_OK(aclrtSynchronizeStream(NULL));
	CHECK(*counter == 6);
	/* As many as a program likes, one after the other. */
	for (n = 0; n < 10000; n++)
		CHECK_OK(aclrtKernelArgsInit(kernel, &list));
	CHECK(aclrtKernelArgsAppend(list, &args, 2 * MIB, &parameter) ==
	      ACL_ERROR_RT_PARAM_INVALID);
}

static void an_argument_list_can_be_launched_again(void **state)
{
	(void)state;
	in_child("", args_lists);
}

static void order(void)
{
	const uint32_t count = 3000;
	void *append = must_register("append", append_kernel);
	void *wait = must_register("wait", gate_kernel);
	void *release = must_register("release", open_gate_kernel);
	struct append_args args;
	aclrtStream blocked;
	aclrtStream free_one;
	int32_t ids[2];
	uint32_t *list;
	uint32_t n;

	CHECK_OK(aclrtSetDevice(0));
	blocked = must_stream();
	free_one = must_stream();
	CHECK_OK(aclrtStreamGetId(blocked, &ids[0]));
	CHECK_OK(aclrtStreamGetId(free_one, &ids[1]));
	CHECK(ids[0] != ids[1]);
	list = must_malloc((count + 1) * sizeof(*list));
	list[0] = 0;
	args.list = list;

	CHECK_OK(aclrtLaunchKernel(wait, 1, NULL, 0, blocked));
	for (n = 0; n < count; n++) {
		args.value = n;
		CHECK_OK(aclrtLaunchKernel(append, 1, &args, sizeof(args), blocked));
	}
	/* Nothing ran so far, and another stream does not have to wait for that. */
	CHECK(list[0] == 0);
	CHECK_OK(aclrtLaunchKernel(release, 1, NULL, 0, free_one));
	CHECK_OK(aclrtSynchronizeStream(free_one));
	CHECK_OK(aclrtSynchronizeStream(blocked));
	CHECK(list[0] == count);
	for (n = 0; n < count; n++)
		CHECK(list[n + 1] == n);

	/* Synchronising the device covers all of its streams, destroying a stream what is on it. */
	list[0] = 0;
	for (n = 0; n < count / 2; n++)
		CHECK_OK(aclrtLaunchKernel(append, 1, &args, sizeof(args), blocked));
	CHECK_OK(aclrtSynchronizeDevice());
	CHECK(list[0] == count / 2);
	for (n = 0; n < count / 2; n++)
		CHECK_OK(aclrtLaunchKernel(append, 1, &args, sizeof(args), blocked));
	CHECK_OK(aclrtDestroyStream(blocked));
	CHECK(list[0] == count);
}

static void a_stream_runs_its_tasks_in_order_and_later(void **state)
{
	(void)state;
	in_child("", order);
}

static void event_life(void)
{
	void *append = must_register("append", append_kernel);
	void *wait = must_register("wait", gate_kernel);
	aclrtEventRecordedStatus status;
	struct append_args args;
	aclrtStream first;
	aclrtStream second;
	aclrtEvent begin;
	aclrtEvent end;
	float ms = -1;

	CHECK_OK(aclrtSetDevice(0));
	first = must_stream();
	second = must_stream();
	CHECK_OK(aclrtCreateEvent(&begin));
	CHECK_OK(aclrtCreateEvent(&end));
	CHECK_OK(aclrtSynchronizeEvent(begin));
	CHECK(aclrtEventElapsedTime(&ms, begin, end) == ACL_ERROR_RT_PARAM_INVALID);
	args.list = must_malloc(64);
	args.list[0] = 0;

	CHECK_OK(aclrtRecordEvent(begin, first));
	CHECK_OK(aclrtLaunchKernel(wait, 1, NULL, 0, first));
	args.value = 1;
	CHECK_OK(aclrtLaunchKernel(append, 1, &args, sizeof(args), first));
	CHECK_OK(aclrtRecordEvent(end, first));
	CHECK_OK(aclrtStreamWaitEvent(second, end));
	args.value = 2;
	CHECK_OK(aclrtLaunchKernel(append, 1, &args, sizeof(args), second));
	CHECK_OK(aclrtSynchronizeEvent(begin));
	CHECK_OK(aclrtQueryEventStatus(end, &status));
	CHECK(status == ACL_EVENT_RECORDED_STATUS_NOT_READY);
	(void)usleep(5000);
	CHECK(args.list[0] == 0);
	atomic_store(&gate, true);
	CHECK_OK(aclrtSynchronizeStream(second));
	CHECK(args.list[0] == 2 && args.list[1] == 1 && args.list[2] == 2);
	CHECK_OK(aclrtQueryEventStatus(end, &status));
	CHECK(status == ACL_EVENT_RECORDED_STATUS_COMPLETE);
	CHECK_OK(aclrtEventElapsedTime(&ms, begin, end));
	CHECK(ms >= 5 && ms < 60000);

	/* An event that is destroyed lives until no stream needs it. */
	CHECK_OK(aclrtRecordEvent(end, first));
	CHECK_OK(aclrtStreamWaitEvent(second, end));
	CHECK_OK(aclrtDestroyEvent(end));
	CHECK(aclrtDestroyEvent(end) == ACL_ERROR_RT_PARAM_INVALID);
	CHECK(aclrtRecordEvent(end, first) == ACL_ERROR_RT_PARAM_INVALID);
	CHECK_OK(aclrtSynchronizeDevice());
}

static void events_order_streams_and_measure(void **state)
{
	(void)state;
	in_child("", event_life);
}

static void *launch_many(void *kernel)
{
	uint64_t *counter;
	struct add_args args;
	aclrtStream stream;
	unsigned n;

	CHECK_OK(aclrtSetDevice(1));
	stream = must_stream();
	counter = must_malloc(8);
	*counter = 0;
	args = (struct add_args){counter, 1};
	for (n = 0; n < 1000; n++) {
		CHECK_OK(aclrtLaunchKernel(kernel, 4, &args, sizeof(args), stream));
		if (n % 100 == 0) {
			CHECK_OK(aclrtSynchronizeStream(stream));
			CHECK(*counter == n + 1);
		}
	}
	CHECK_OK(aclrtDestroyStream(stream));
	CHECK(*counter == 1000);
	return NULL;
}

static void many_threads(void)
{
	void *kernel = must_register("add", add_kernel);
	pthread_t threads[8];
	unsigned n;

	for (n = 0; n < 8; n++)
		CHECK(pthread_create(&threads[n], NULL, launch_many, kernel) == 0);
	for (n = 0; n < 8; n++)
		CHECK(pthread_join(threads[n], NULL) == 0);
}

static void threads_do_not_disturb_each_other(void **state)
{
	(void)state;
	in_child("", many_threads);
}

/* Profiling. */

#define SEEN_MAX 200000

/* What the callbacks got, in order. */
static struct seen {
	bool is_hash;
	uint32_t thread;
	struct MsprofCompactInfo record;
} * seen;
static atomic_uint seen_count;

static struct seen *add_seen(void)
{
	unsigned n = atomic_fetch_add(&seen_count, 1);

	CHECK(n < SEEN_MAX);
	seen[n] = (struct seen){.thread = (uint32_t)syscall(SYS_gettid)};
	return &seen[n];
}

static uint64_t hash_callback(const char *text, size_t length)
{
	CHECK(length == strlen(text));
	add_seen()->is_hash = true;
	return 1000 + (unsigned char)text[0];
}

static int32_t compact_callback(uint32_t aging, const void *data, uint32_t length)
{
	CHECK(aging == 1 && length == sizeof(struct MsprofCompactInfo));
	memcpy(&add_seen()->record, data, length);
	return 0;
}

static int32_t set_callback(int32_t type, void *callback)
{
	return MsprofRegisterProfileCallback(type, callback, sizeof(callback));
}

static void listen(void)
{
	uint64_t (*hash)(const char *, size_t) = hash_callback;
	int32_t (*compact)(uint32_t, const void *, uint32_t) = compact_callback;

	seen = calloc(SEEN_MAX, sizeof(*seen));
	CHECK(seen);
	CHECK(set_callback(PROFILE_REPORT_GET_HASH_ID_C_CALLBACK, *(void **)&hash) == 0);
	CHECK(set_callback(PROFILE_REPORT_COMPACT_CALLBACK, *(void **)&compact) == 0);
}

static int32_t command(uint32_t type, uint32_t device)
{
	MsprofCommandHandle handle = {
		.profSwitch = PROF_TASK_TIME | PROF_RUNTIME_TRACE,
		.devNums = 1,
		.devIdList = {device},
		.modelId = UINT32_MAX,
		.type = type,
	};

	return profSetProfCommand(&handle, sizeof(handle));
}

static const struct MsprofRuntimeTrack *track_of(const struct seen *s)
{
	CHECK(!s->is_hash);
	CHECK(s->record.magicNumber == 0x5a5a && s->record.level == 5000);
	CHECK(s->record.type == RT_PROFILE_TYPE_TASK_TRACK);
	CHECK(s->record.threadId == s->thread);
	CHECK(s->record.timeStamp > 0);
	return &s->record.data.runtimeTrack;
}

static void callbacks(void)
{
	void *kernel = must_register("nop", open_gate_kernel);
	uint32_t self = (uint32_t)syscall(SYS_gettid);
	const struct MsprofRuntimeTrack *track;
	aclrtStream stream;
	int32_t id;
	char byte;

	CHECK(MsprofRegisterProfileCallback(17, &byte, 8) == -1);
	CHECK(MsprofRegisterProfileCallback(4, NULL, 8) == -1);
	CHECK(MsprofRegisterProfileCallback(4, &byte, 4) == -1);
	/* Taken and forgotten. */
	CHECK(MsprofRegisterProfileCallback(7, &byte, 8) == 0);
	CHECK(profSetProfCommand(NULL, sizeof(MsprofCommandHandle)) == -1);
	CHECK(profSetProfCommand(&byte, 1) == -1);

	CHECK_OK(aclrtSetDevice(1)); /* physical 6 */
	CHECK_OK(aclrtLaunchKernel(kernel, 1, NULL, 0, NULL));
	listen();
	CHECK_OK(aclrtLaunchKernel(kernel, 1, NULL, 0, NULL));
	CHECK(seen_count == 1 && seen[0].is_hash && seen[0].thread == self);

	CHECK(command(PROF_COMMANDHANDLE_TYPE_START, 3) == 0);
	CHECK_OK(aclrtLaunchKernel(kernel, 1, NULL, 0, NULL));
	CHECK(seen_count == 2);
	CHECK(command(PROF_COMMANDHANDLE_TYPE_START, 6) == 0);
	stream = must_stream();
	CHECK_OK(aclrtStreamGetId(stream, &id));
	seen_count = 0;
	CHECK_OK(aclrtLaunchKernel(kernel, 1, NULL, 0, stream));
	CHECK_OK(rtKernelLaunch(kernel, 1, NULL, 0, NULL, NULL));
	CHECK_OK(aclrtMemsetAsync(&byte, 1, 0, 1, stream));
	CHECK(seen_count == 5);
	CHECK(seen[0].is_hash && seen[2].is_hash);
	track = track_of(&seen[1]);
	CHECK(seen[1].thread == self);
	CHECK(track->deviceId == 6 && track->streamId == id && track->taskId == 0);
	CHECK(track->kernelName == 1000 + 'n' && track->taskType == 0);
	track = track_of(&seen[3]);
	CHECK(track->deviceId == 6 && track->streamId != id && track->taskId == 3);
	/* A task that is no kernel. */
	track = track_of(&seen[4]);
	CHECK(track->streamId == id && track->taskId == 1 && track->kernelName == 0);

	CHECK(command(PROF_COMMANDHANDLE_TYPE_STOP, 6) == 0);
	CHECK_OK(aclrtLaunchKernel(kernel, 1, NULL, 0, stream));
	CHECK(seen_count == 6 && seen[5].is_hash);
	CHECK_OK(aclrtSynchronizeDevice());
}

static void launches_tell_name_then_task_on_the_same_thread(void **state)
{
	(void)state;
	in_child("ASCEND_RT_VISIBLE_DEVICES=2,6", callbacks);
}

/* A device's log, as one who knows the layouts reads it. */
struct stars {
	bool end;
	uint32_t kind;
	uint32_t stream; /* UINT32_MAX where the record has none */
	uint32_t task;
	uint64_t counter;
};

static void decode_ids(uint32_t raw_stream, uint32_t raw_task, bool expanded, struct stars *out)
{
	uint32_t stream = raw_stream;
	uint32_t task = raw_task;

	if (expanded) {
		if (out->kind != 3 && out->kind != 4 && (stream & 0x8000)) {
			stream = raw_task;
			task = (raw_task & 0x8000) | (raw_stream & 0x7fff);
		}
		stream &= 0x7fff;
	} else {
		if (stream & 0x1000) {
			task = (raw_task & 0x1fff) | (raw_stream & 0xe000);
		} else if (stream & 0x2000) {
			stream = (raw_stream & 0xf000) | (raw_task & 0xfff);
			task = (raw_task & 0xf000) | (raw_stream & 0xfff);
		}
		stream %= 2048;
	}
	out->stream = stream;
	out->task = task;
}

/* The shapes in which ids came, as bits. */
static unsigned shapes;

static struct stars decode(const uint32_t *words, bool is_new, bool expanded)
{
	struct stars s = {.end = words[0] & 0x3f, .kind = words[0] >> 10 & 0x3f};

	CHECK((words[0] & 0x3f) <= 1);
	CHECK(words[0] >> 16 == 0x6bd3);
	s.counter = words[2] | (uint64_t)words[3] << 32;
	if (is_new) {
		s.stream = UINT32_MAX;
		s.task = words[1];
		return s;
	}
	shapes |= 1u << (words[1] >> 12 & 0xf);
	decode_ids(words[1] & 0xffff, words[1] >> 16, expanded, &s);
	return s;
}

static uint32_t enable[11] = {[0] = 1, [6] = 1};
static struct prof_start_para start_para = {
	.sample_period = 20,
	.real_time = 1,
	.user_data = enable,
	.user_data_size = 36,
};

/* Reads all that is there, with a buffer that cuts records. */
static struct stars *drain(uint32_t device, bool is_new, bool expanded, size_t *out_count)
{
	const size_t record = is_new ? 32 : 64;
	const size_t max = 32 * MIB;
	struct stars *decoded;
	size_t fill = 0;
	uint32_t *bytes;
	size_t n;
	int got;

	bytes = malloc(max);
	CHECK(bytes);
	for (;;) {
		CHECK(max - fill > 1000);
		got = prof_channel_read(device, CHANNEL_STARS_SOC_LOG_BUFFER, (char *)bytes + fill,
					1000);
		if (got <= 0)
			break;
		fill += (size_t)got;
	}
	CHECK(fill % record == 0);
	*out_count = fill / record;
	decoded = calloc(*out_count + 1, sizeof(*decoded));
	CHECK(decoded);
	for (n = 0; n < *out_count; n++)
		decoded[n] = decode(bytes + n * record / 4, is_new, expanded);
	free(bytes);
	return decoded;
}

static char log_path[] = "/tmp/simnpu-log-XXXXXX";

/* A line of SIMNPU_LOG. */
struct ran {
	unsigned device;
	unsigned stream;
	unsigned task;
	char name[16];
	uint64_t begin_ns;
	uint64_t end_ns;
};

static struct ran *read_log(size_t *out_count)
{
	struct ran *ran = calloc(SEEN_MAX, sizeof(*ran));
	FILE *file = fopen(log_path, "r");
	size_t n;

	CHECK(ran && file);
	for (n = 0; n < SEEN_MAX; n++) {
		unsigned long long begin;
		unsigned long long end;

		if (fscanf(file, "%u %u %u %15s %llu %llu\n", &ran[n].device, &ran[n].stream,
			   &ran[n].task, ran[n].name, &begin, &end) != 6)
			break;
		ran[n].begin_ns = begin;
		ran[n].end_ns = end;
		CHECK(begin <= end);
	}
	CHECK(feof(file));
	(void)fclose(file);
	*out_count = n;
	return ran;
}

static void find_record(const struct stars *records, size_t count, const struct ran *ran, bool end,
			bool is_new)
{
	uint64_t counter = (end ? ran->end_ns : ran->begin_ns) / 20;
	size_t found = 0;
	size_t n;

	for (n = 0; n < count; n++) {
		if (records[n].end == end && records[n].counter == counter &&
		    records[n].task == (is_new ? ran->task : ran->task % 65536) &&
		    (is_new || records[n].stream == ran->stream))
			found++;
	}
	CHECK(found == 1);
}

/* Kernels, copies and events on several streams: launch records, device records and the log must tell the same story. */
static void compare_stories(bool is_new, bool expanded)
{
	void *kernels[2] = {must_register("alpha", open_gate_kernel),
			    must_register("beta", open_gate_kernel)};
	unsigned kernel_count = 0;
	aclrtStream streams[5];
	struct stars *records;
	size_t record_count;
	struct ran *ran;
	aclrtEvent event;
	size_t ran_count;
	char bytes[16];
	unsigned n;

	listen();
	CHECK_OK(aclrtSetDevice(3));
	CHECK(prof_drv_start(3, CHANNEL_STARS_SOC_LOG_BUFFER, &start_para) == PROF_OK);
	CHECK(command(PROF_COMMANDHANDLE_TYPE_START, 3) == 0);
	CHECK_OK(aclrtCreateEvent(&event));
	for (n = 0; n < 5; n++)
		streams[n] = must_stream();
	for (n = 0; n < 300; n++) {
		CHECK_OK(aclrtLaunchKernel(kernels[n % 2], 1, NULL, 0, streams[n % 5]));
		if (n % 7 == 0)
			CHECK_OK(aclrtMemsetAsync(bytes, 16, 0, 16, streams[n % 5]));
		if (n % 11 == 0)
			CHECK_OK(aclrtRecordEvent(event, streams[n % 5]));
	}
	CHECK_OK(aclrtSynchronizeDevice());
	records = drain(3, is_new, expanded, &record_count);
	ran = read_log(&ran_count);
	CHECK(ran_count == 300);
	CHECK(record_count == 2 * (300 + 43 + 28));

	/* Every launch that was told is one line of the log, and has its two records. */
	for (n = 0; n < seen_count; n++) {
		const struct MsprofRuntimeTrack *track;
		size_t line;
		size_t found = 0;

		if (seen[n].is_hash)
			continue;
		if (expanded && n == 0) {
			CHECK(seen[n].record.type == MSPROF_STREAM_EXPAND_SPEC_TYPE);
			CHECK(seen[n].record.data.streamExpandInfo.expandStatus == 1);
			continue;
		}
		track = track_of(&seen[n]);
		CHECK(track->deviceId == 3);
		if (!track->kernelName)
			continue;
		kernel_count++;
		for (line = 0; line < ran_count; line++) {
			if (ran[line].device == 3 && ran[line].stream == track->streamId &&
			    ran[line].task == track->taskId &&
			    track->kernelName == 1000 + (uint64_t)ran[line].name[0]) {
				find_record(records, record_count, &ran[line], false, is_new);
				find_record(records, record_count, &ran[line], true, is_new);
				found++;
			}
		}
		CHECK(found == 1);
	}
	CHECK(kernel_count == 300);
}

static void compare_old(void)
{
	compare_stories(false, false);
	CHECK(shapes == (1 << 0 | 1 << 1 | 1 << 2));
}

static void compare_new(void)
{
	CHECK(strcmp(aclrtGetSocName(), "Ascend950PR_9599") == 0);
	compare_stories(true, false);
}

static void compare_expanded(void)
{
	compare_stories(false, true);
	CHECK(shapes == (1 << 0 | 1 << 8));
}

static void with_log(const char *variables, void (*body)(void))
{
	char all[256];
	int fd;

	(void)strcpy(log_path, "/tmp/simnpu-log-XXXXXX");
	fd = mkstemp(log_path);
	assert_true(fd >= 0);
	(void)close(fd);
	(void)snprintf(all, sizeof(all), "SIMNPU_LOG=%s %s", log_path, variables);
	in_child(all, body);
	(void)unlink(log_path);
}

static void launches_device_and_log_agree(void **state)
{
	(void)state;
	with_log("", compare_old);
}

static void launches_device_and_log_agree_on_new_chips(void **state)
{
	(void)state;
	with_log("SIMNPU_SOC=Ascend950PR_9599", compare_new);
}

static void launches_device_and_log_agree_with_expanded_streams(void **state)
{
	(void)state;
	with_log("SIMNPU_EXPAND_STREAMS=1", compare_expanded);
}

/* One stream, so many tasks that every bit of a task number is used and it starts over. */
static void count_through(bool expanded)
{
	const uint32_t count = 70000;
	void *kernel = must_register("nop", open_gate_kernel);
	struct stars *records;
	size_t record_count;
	aclrtStream stream;
	uint32_t task = 0;
	int32_t id = -1;
	uint32_t n;

	CHECK_OK(aclrtSetDevice(0));
	/* A high number, as far as they go. */
	for (n = 0; n < (expanded ? 20000 : 2047); n++)
		(void)must_stream();
	stream = must_stream();
	CHECK_OK(aclrtStreamGetId(stream, &id));
	CHECK(id == (expanded ? 20000 : 2047));
	CHECK(prof_drv_start(0, CHANNEL_STARS_SOC_LOG_BUFFER, &start_para) == PROF_OK);
	for (n = 0; n < count; n++)
		CHECK_OK(aclrtLaunchKernel(kernel, 1, NULL, 0, stream));
	CHECK_OK(aclrtSynchronizeStream(stream));
	records = drain(0, false, expanded, &record_count);
	CHECK(record_count == 2 * count);
	for (n = 0; n < record_count; n++) {
		CHECK(records[n].stream == (uint32_t)id);
		CHECK(records[n].end == n % 2);
		CHECK(records[n].task == task % 65536);
		CHECK(n == 0 || records[n].counter >= records[n - 1].counter);
		task += n % 2;
	}
	if (!expanded)
		CHECK(aclrtCreateStream(&stream) == ACL_ERROR_RT_RESOURCE_ALLOC_FAIL);
}

static void count_old(void)
{
	count_through(false);
}

static void count_expanded(void)
{
	count_through(true);
}

static void ids_can_be_read_back_to_the_last_bit(void **state)
{
	(void)state;
	in_child("", count_old);
	in_child("SIMNPU_EXPAND_STREAMS=1", count_expanded);
}

static void channel_codes(void)
{
	void *kernel = must_register("nop", open_gate_kernel);
	struct prof_start_para no_tasks = {.real_time = 1};
	char buffer[256];
	uint64_t before;

	CHECK(prof_drv_start(8, 50, &start_para) == PROF_ERROR);
	CHECK(prof_drv_start(0, 0, &start_para) == PROF_ERROR);
	CHECK(prof_drv_start(0, 160, &start_para) == PROF_ERROR);
	CHECK(prof_drv_start(0, 50, NULL) == PROF_ERROR);
	CHECK(prof_stop(0, 50) == PROF_STOPPED_ALREADY);
	CHECK(prof_channel_read(0, 50, buffer, sizeof(buffer)) == PROF_STOPPED_ALREADY);
	CHECK(prof_drv_start(0, 50, &start_para) == PROF_OK);
	CHECK(prof_drv_start(0, 50, &start_para) == PROF_STARTED_ALREADY);
	CHECK(prof_drv_start(0, 44, &start_para) == PROF_OK);
	CHECK(prof_channel_read(0, 50, NULL, 10) == PROF_ERROR);
	CHECK(prof_channel_read(0, 50, buffer, 0) == PROF_ERROR);

	/* An empty channel lets its reader wait a little. */
	before = unit_now_ns();
	CHECK(prof_channel_read(0, 50, buffer, sizeof(buffer)) == 0);
	CHECK(prof_channel_read(0, 44, buffer, sizeof(buffer)) == 0);
	CHECK(unit_now_ns() - before >= 9000000);

	/* A stopped one gives what it still has. */
	CHECK_OK(aclrtSetDevice(0));
	CHECK_OK(aclrtLaunchKernel(kernel, 1, NULL, 0, NULL));
	CHECK_OK(aclrtSynchronizeStream(NULL));
	CHECK(prof_stop(0, 50) == PROF_OK);
	CHECK(prof_stop(0, 50) == PROF_STOPPED_ALREADY);
	CHECK_OK(aclrtLaunchKernel(kernel, 1, NULL, 0, NULL));
	CHECK_OK(aclrtSynchronizeStream(NULL));
	CHECK(prof_channel_read(0, 50, buffer, 100) == 100);
	CHECK(prof_channel_read(0, 50, buffer, 100) == 28);
	CHECK(prof_channel_read(0, 50, buffer, 100) == PROF_STOPPED_ALREADY);

	CHECK(prof_drv_start(0, 50, &no_tasks) == PROF_OK);
	CHECK_OK(aclrtLaunchKernel(kernel, 1, NULL, 0, NULL));
	CHECK_OK(aclrtSynchronizeStream(NULL));
	CHECK(prof_channel_read(0, 50, buffer, 100) == 0);
}

static void channels_can_be_started_read_and_stopped(void **state)
{
	(void)state;
	in_child("", channel_codes);
}

/* Reads `count` records, which are of tasks from `task` on. */
static void read_in_order(size_t count, uint32_t task)
{
	const size_t bytes = count * 64;
	char *buffer = malloc(bytes);
	size_t fill = 0;
	size_t n;

	CHECK(buffer);
	while (fill < bytes) {
		int got = prof_channel_read(0, 50, buffer + fill, (unsigned)(bytes - fill));

		CHECK(got > 0);
		fill += (size_t)got;
	}
	for (n = 0; n < count; n++) {
		struct stars s = decode((uint32_t *)(void *)(buffer + n * 64), false, false);

		CHECK(s.task == (task + n / 2) % 65536 && s.end == n % 2);
	}
	free(buffer);
}

static void overflow(void)
{
	const size_t capacity = 64 * MIB / 64;
	const size_t launched = capacity / 2 + 5000;
	void *kernel = must_register("nop", open_gate_kernel);
	char line[128] = "";
	char more[64];
	int ends[2];
	size_t n;

	CHECK_OK(aclrtSetDevice(0));
	CHECK(prof_drv_start(0, 50, &start_para) == PROF_OK);
	for (n = 0; n < launched; n++)
		CHECK_OK(aclrtLaunchKernel(kernel, 1, NULL, 0, NULL));
	CHECK_OK(aclrtSynchronizeStream(NULL));
	/* Room for more, which lies around the end of the ring. */
	read_in_order(capacity / 2, 0);
	for (n = 0; n < 1000; n++)
		CHECK_OK(aclrtLaunchKernel(kernel, 1, NULL, 0, NULL));
	CHECK_OK(aclrtSynchronizeStream(NULL));
	read_in_order(capacity / 2, (uint32_t)capacity / 4);
	read_in_order(2000, (uint32_t)launched);
	CHECK(prof_channel_read(0, 50, more, sizeof(more)) == 0);

	CHECK(pipe(ends) == 0 && dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
	CHECK(prof_stop(0, 50) == PROF_OK);
	CHECK(read(ends[0], line, sizeof(line) - 1) > 0);
	CHECK(strcmp(line, "simnpu: nobody read 10000 profiling records of device 0 in time\n") ==
	      0);
}

static void what_nobody_reads_is_lost_and_counted(void **state)
{
	(void)state;
	if (unit_is_emulated())
		skip();
	in_child("", overflow);
}

static void device_info(void)
{
	int64_t frequency = 0;
	int64_t version = 0;
	int64_t counter = 0;
	uint64_t before = unit_now_ns();

	CHECK(halGetDeviceInfo(0, 0, INFO_TYPE_SYS_COUNT, &counter) == 0);
	CHECK(halGetDeviceInfo(0, 0, INFO_TYPE_DEV_OSC_FREQUE, &frequency) == 0);
	CHECK(halGetDeviceInfo(0, 0, INFO_TYPE_VERSION, &version) == 0);
	CHECK(frequency == 50000);
	/* Counts by kHz are milliseconds. */
	CHECK((uint64_t)counter * 1000000 / (uint64_t)frequency + 20 >= before);
	CHECK((uint64_t)counter * 1000000 / (uint64_t)frequency <= unit_now_ns());
	CHECK((version >> 8 & 0xff) == 5);
	CHECK(halGetDeviceInfo(8, 0, 13, &counter) == DRV_ERROR_INVALID_DEVICE);
	CHECK(halGetDeviceInfo(0, 0, 999, &counter) == DRV_ERROR_NOT_SUPPORT);
	CHECK(halGetDeviceInfo(0, 4, 13, &counter) == DRV_ERROR_NOT_SUPPORT);
	CHECK(halGetDeviceInfo(0, 0, 13, NULL) == DRV_ERROR_INVALID_VALUE);
}

static void counter_and_frequency_fit_the_clock(void **state)
{
	(void)state;
	in_child("", device_info);
}

/* Fork, and how the libraries hang together. */

static void fork_amid(void)
{
	void *append = must_register("append", append_kernel);
	void *wait = must_register("wait", gate_kernel);
	struct append_args args;
	char buffer[64];
	aclrtStream stream;
	aclrtEvent event;
	unsigned round;
	pid_t pid;

	CHECK_OK(aclrtSetDevice(0));
	CHECK_OK(aclrtCreateEvent(&event));
	stream = must_stream();
	args.list = must_malloc(MIB);
	CHECK(prof_drv_start(0, 50, &start_para) == PROF_OK);
	for (round = 1; round <= 30; round++) {
		unsigned n;

		atomic_store(&gate, false);
		args.list[0] = 0;
		args.value = round;
		CHECK_OK(aclrtLaunchKernel(wait, 1, NULL, 0, stream));
		for (n = 0; n < 5; n++)
			CHECK_OK(aclrtLaunchKernel(append, 1, &args, sizeof(args), stream));
		CHECK_OK(aclrtRecordEvent(event, stream));
		pid = fork();
		CHECK(pid >= 0);
		if (pid == 0) {
			/* Nothing is left to wait for, and the stream works. */
			CHECK_OK(aclrtSynchronizeDevice());
			CHECK_OK(aclrtSynchronizeEvent(event));
			CHECK(args.list[0] == 0);
			CHECK(prof_channel_read(0, 50, buffer, 64) == PROF_STOPPED_ALREADY);
			CHECK_OK(aclrtLaunchKernel(append, 1, &args, sizeof(args), stream));
			CHECK_OK(aclrtSynchronizeStream(stream));
			CHECK(args.list[0] == 1 && args.list[1] == round);
			CHECK_OK(aclrtDestroyStream(stream));
			CHECK_OK(aclrtCreateStream(&stream));
			_exit(0);
		}
		CHECK(unit_wait(pid) == 0);
		atomic_store(&gate, true);
		CHECK_OK(aclrtSynchronizeEvent(event));
		CHECK(args.list[0] == 5);
	}
	CHECK(prof_channel_read(0, 50, buffer, 64) == 64);
}

static void a_forked_child_starts_with_empty_streams(void **state)
{
	(void)state;
	if (unit_is_emulated())
		skip();
	in_child("", fork_amid);
}

static atomic_bool forks_done;

static void *launch_until_done(void *kernel)
{
	aclrtStream stream;
	aclrtEvent event;

	CHECK_OK(aclrtSetDevice(1));
	while (!atomic_load(&forks_done)) {
		stream = must_stream();
		CHECK_OK(aclrtCreateEvent(&event));
		CHECK_OK(aclrtLaunchKernel(kernel, 1, NULL, 0, stream));
		CHECK_OK(aclrtRecordEvent(event, stream));
		CHECK_OK(aclrtStreamWaitEvent(NULL, event));
		CHECK_OK(aclrtDestroyEvent(event));
		CHECK_OK(aclrtDestroyStream(stream));
	}
	return NULL;
}

static void fork_storm(void)
{
	void *kernel = must_register("nop", open_gate_kernel);
	pthread_t threads[4];
	unsigned n;

	for (n = 0; n < 4; n++)
		CHECK(pthread_create(&threads[n], NULL, launch_until_done, kernel) == 0);
	for (n = 0; n < 100; n++) {
		pid_t pid = fork();

		CHECK(pid >= 0);
		if (pid == 0) {
			aclrtStream stream;

			(void)alarm(UNIT_HANGS_S);
			CHECK_OK(aclrtSetDevice(1));
			stream = must_stream();
			CHECK_OK(aclrtLaunchKernel(kernel, 1, NULL, 0, stream));
			CHECK_OK(aclrtLaunchKernel(kernel, 1, NULL, 0, NULL));
			CHECK_OK(aclrtSynchronizeDevice());
			CHECK_OK(aclrtDestroyStream(stream));
			_exit(0);
		}
		CHECK(unit_wait(pid) == 0);
	}
	atomic_store(&forks_done, true);
	for (n = 0; n < 4; n++)
		CHECK(pthread_join(threads[n], NULL) == 0);
}

static void fork_finds_the_libraries_at_rest(void **state)
{
	(void)state;
	if (unit_is_emulated())
		skip();
	in_child("", fork_storm);
}

static const char *library_of(const char *symbol)
{
	void *address = dlsym(RTLD_DEFAULT, symbol);
	Dl_info info;

	CHECK(address && dladdr(address, &info));
	return strrchr(info.dli_fname, '/') + 1;
}

static void places(void)
{
	static const struct {
		const char *symbol;
		const char *library;
	} expected[] = {
		{"aclrtGetDevice", "libascendcl.so"},
		{"aclrtLaunchKernelWithConfig", "libascendcl.so"},
		{"aclrtGetDeviceImpl", "libacl_rt_impl.so"},
		{"aclrtStreamGetIdImpl", "libacl_rt_impl.so"},
		{"aclrtLaunchKernelV2Impl", "libacl_rt_impl.so"},
		{"rtGetDevice", "libruntime.so"},
		{"rtKernelLaunch", "libruntime.so"},
		{"MsprofRegisterProfileCallback", "libprofapi.so"},
		{"profSetProfCommand", "libprofapi.so"},
		{"halMemFree", "libascend_hal.so"},
		{"prof_channel_read", "libascend_hal.so"},
	};
	size_t n;

	for (n = 0; n < sizeof(expected) / sizeof(expected[0]); n++)
		CHECK(strcmp(library_of(expected[n].symbol), expected[n].library) == 0);
}

static void every_symbol_is_in_the_library_that_tools_open(void **state)
{
	(void)state;
	in_child("", places);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(policy_and_size_decide_flag_and_padding),
		cmocka_unit_test(huge_pages_first_asks_twice_before_it_gives_up),
		cmocka_unit_test(codes_of_the_driver_become_codes_of_acl),
		cmocka_unit_test(host_and_managed_memory_have_their_own_flags),
		cmocka_unit_test(wrong_arguments_are_refused),
		cmocka_unit_test(copies_move_bytes),
		cmocka_unit_test(memory_info_follows_allocations),
		cmocka_unit_test(host_memory_is_registered_once),
		cmocka_unit_test(memory_and_addresses_can_be_taken_apart),
		cmocka_unit_test(one_handle_can_be_at_two_addresses),
		cmocka_unit_test(wrong_mappings_are_refused),
		cmocka_unit_test(flags_carry_physical_device_ids),
		cmocka_unit_test(a_bad_list_shows_no_device),
		cmocka_unit_test(init_and_finalize_come_once),
		cmocka_unit_test(a_thread_works_in_one_context),
		cmocka_unit_test(every_launch_function_runs_the_kernel),
		cmocka_unit_test(a_kernel_name_stands_for_one_function),
		cmocka_unit_test(addresses_in_arguments_point_into_the_copy),
		cmocka_unit_test(an_argument_list_can_be_launched_again),
		cmocka_unit_test(a_stream_runs_its_tasks_in_order_and_later),
		cmocka_unit_test(events_order_streams_and_measure),
		cmocka_unit_test(threads_do_not_disturb_each_other),
		cmocka_unit_test(launches_tell_name_then_task_on_the_same_thread),
		cmocka_unit_test(launches_device_and_log_agree),
		cmocka_unit_test(launches_device_and_log_agree_on_new_chips),
		cmocka_unit_test(launches_device_and_log_agree_with_expanded_streams),
		cmocka_unit_test(ids_can_be_read_back_to_the_last_bit),
		cmocka_unit_test(channels_can_be_started_read_and_stopped),
		cmocka_unit_test(what_nobody_reads_is_lost_and_counted),
		cmocka_unit_test(counter_and_frequency_fit_the_clock),
		cmocka_unit_test(a_forked_child_starts_with_empty_streams),
		cmocka_unit_test(fork_finds_the_libraries_at_rest),
		cmocka_unit_test(every_symbol_is_in_the_library_that_tools_open),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
