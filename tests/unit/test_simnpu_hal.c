/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated driver, seen through its exported functions only. It reads its variables once per process, so every test
 * runs in a child of its own with the machine it wants; the parent never calls the library.
 */
#include <stdlib.h>

#include "unit.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ascend_hal.h>

#define KIB 1024ULL
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)

/* The flag words that the runtime really passes, for device 0. */
#define DEV_NORMAL (MEM_DEV | MEM_TYPE_HBM | MEM_SET_ALIGN(9))
#define DEV_HUGE   (DEV_NORMAL | MEM_PAGE_HUGE)
#define DEV_GIANT  (MEM_DEV | MEM_TYPE_HBM | MEM_PAGE_GIANT)
#define HOST	   (MEM_HOST | MEM_SET_ALIGN(9))

/* In the child: says where it failed and ends. cmocka's assertions would go on with the parent's list of tests. */
#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			(void)fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);      \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

/* This program's own Inner functions come first in the process, so the library's public names must end up here. */
static _Atomic unsigned inner_calls;

static void *next_symbol(const char *name)
{
	void *symbol = dlsym(RTLD_NEXT, name);

	CHECK(symbol);
	inner_calls++;
	return symbol;
}

drvError_t halMemCreateInner(drv_mem_handle_t **handle, size_t size,
			     const struct drv_mem_prop *prop, uint64_t flag)
{
	drvError_t (*next)(drv_mem_handle_t **, size_t, const struct drv_mem_prop *, uint64_t);

	*(void **)&next = next_symbol("halMemCreateInner");
	return next(handle, size, prop, flag);
}

drvError_t halMemReleaseInner(drv_mem_handle_t *handle)
{
	drvError_t (*next)(drv_mem_handle_t *);

	*(void **)&next = next_symbol("halMemReleaseInner");
	return next(handle);
}

static drvError_t (*next_alloc)(void **, unsigned long long, unsigned long long);
static drvError_t (*next_free)(void *);

__attribute__((constructor)) static void find_next(void)
{
	*(void **)&next_alloc = next_symbol("halMemAllocInner");
	*(void **)&next_free = next_symbol("halMemFreeInner");
}

drvError_t halMemAllocInner(void **pp, unsigned long long size, unsigned long long flag)
{
	atomic_fetch_add_explicit(&inner_calls, 1, memory_order_relaxed);
	return next_alloc(pp, size, flag);
}

drvError_t halMemFreeInner(void *pp)
{
	atomic_fetch_add_explicit(&inner_calls, 1, memory_order_relaxed);
	return next_free(pp);
}

static void set_variable(const char *name, const char *value)
{
	if (value)
		(void)setenv(name, value, 1);
	else
		(void)unsetenv(name);
}

/* Runs `body` on a machine with these variables; NULL leaves one unset. */
static void in_child(const char *devices, const char *hbm, void (*body)(void))
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		set_variable("SIMNPU_DEVICES", devices);
		set_variable("SIMNPU_HBM", hbm);
		(void)alarm(UNIT_HANGS_S);
		body();
		_exit(0);
	}
	assert_int_equal(unit_wait(pid), 0);
}

static void *must_alloc(uint64_t size, uint64_t flag)
{
	void *address = NULL;

	CHECK(halMemAlloc(&address, size, flag) == DRV_ERROR_NONE);
	CHECK(address);
	return address;
}

static void must_free(void *address)
{
	CHECK(halMemFree(address) == DRV_ERROR_NONE);
}

static drvError_t try_alloc(uint64_t size, uint64_t flag)
{
	void *address = NULL;
	drvError_t error = halMemAlloc(&address, size, flag);

	if (!error)
		must_free(address);
	else
		CHECK(!address);
	return error;
}

/* Whether a device has exactly so many bytes left, a multiple of 4 KiB. Asked with memory that needs no addresses. */
static void check_left(uint32_t device, uint64_t bytes)
{
	struct drv_mem_prop prop = {.side = MEM_DEV_SIDE, .devid = device};
	drv_mem_handle_t *handle = NULL;

	CHECK(halMemCreate(&handle, bytes + 4 * KIB, &prop, 0) == DRV_ERROR_OUT_OF_MEMORY);
	if (bytes) {
		CHECK(halMemCreate(&handle, bytes, &prop, 0) == DRV_ERROR_NONE);
		CHECK(halMemRelease(handle) == DRV_ERROR_NONE);
	}
}

static void check_default_machine(void)
{
	uint32_t count = 0;
	uint32_t id;

	CHECK(drvGetDevNum(&count) == DRV_ERROR_NONE);
	CHECK(count == 8);
	for (id = 0; id < count; id++)
		check_left(id, 64 * GIB);
	CHECK(try_alloc(1, DEV_NORMAL + count) == DRV_ERROR_INVALID_DEVICE);
	CHECK(try_alloc(1, DEV_NORMAL + 1023) == DRV_ERROR_INVALID_DEVICE);
	CHECK(drvGetDevNum(NULL) == DRV_ERROR_INVALID_VALUE);
}

static void default_machine_is_8_devices_of_64_gib(void **state)
{
	(void)state;
	in_child(NULL, NULL, check_default_machine);
	in_child("", "", check_default_machine);
}

static void check_32_devices_of_512_mib(void)
{
	uint32_t count = 0;

	CHECK(drvGetDevNum(&count) == DRV_ERROR_NONE);
	CHECK(count == 32);
	check_left(31, 512 * MIB);
	CHECK(try_alloc(1, DEV_NORMAL + 32) == DRV_ERROR_INVALID_DEVICE);
}

static void check_one_device_of_12_kib(void)
{
	check_left(0, 12 * KIB);
	CHECK(try_alloc(1, DEV_NORMAL + 1) == DRV_ERROR_INVALID_DEVICE);
}

static void check_1_tib(void)
{
	check_left(0, 1024 * GIB);
}

/* One block of all the memory, with small ones in the way before and after. */
static void check_whole_capacity(void)
{
	void *small = must_alloc(1, DEV_NORMAL);
	char *whole;

	CHECK(try_alloc(8 * GIB, DEV_NORMAL) == DRV_ERROR_OUT_OF_MEMORY);
	must_free(small);
	whole = must_alloc(8 * GIB, DEV_NORMAL);
	whole[0] = 1;
	whole[8 * GIB - 1] = 1;
	CHECK(try_alloc(1, DEV_NORMAL) == DRV_ERROR_OUT_OF_MEMORY);
	must_free(whole);
	CHECK(try_alloc(8 * GIB, DEV_GIANT) == DRV_ERROR_NONE);
}

static void one_block_can_be_the_whole_device(void **state)
{
	(void)state;
	in_child("1", "8G", check_whole_capacity);
}

static void variables_set_devices_and_capacity(void **state)
{
	(void)state;
	in_child("32", "512M", check_32_devices_of_512_mib);
	in_child("32", "536870912", check_32_devices_of_512_mib);
	in_child("1", "12k", check_one_device_of_12_kib);
	in_child("1", "1T", check_1_tib);
}

/* Default values hold, and each bad variable is worth one line however often the library is called. */
static void check_bad_variables(void)
{
	char text[1024] = "";
	int pipe_fds[2];
	ssize_t length;
	unsigned lines = 0;

	CHECK(pipe(pipe_fds) == 0);
	CHECK(dup2(pipe_fds[1], STDERR_FILENO) >= 0);
	check_default_machine();
	check_default_machine();
	CHECK(close(pipe_fds[1]) == 0 && close(STDERR_FILENO) == 0);
	length = read(pipe_fds[0], text, sizeof(text) - 1);
	CHECK(length > 0);
	for (; length > 0; length--)
		lines += text[length - 1] == '\n';
	CHECK(lines == 2);
	CHECK(strstr(text, "SIMNPU_DEVICES") && strstr(text, "SIMNPU_HBM"));
}

static void bad_variables_cost_one_line_each(void **state)
{
	(void)state;
	in_child("0", "64Q", check_bad_variables);
	in_child("33", "-1", check_bad_variables);
	in_child("eight", "G", check_bad_variables);
	in_child("8 ", "64GB", check_bad_variables);
	in_child("99999999999999999999", "99999999999T", check_bad_variables);
	in_child("-8", "4095", check_bad_variables);
}

static void check_alloc_arguments(void)
{
	void *address = NULL;
	unsigned long long type;

	CHECK(halMemAlloc(NULL, 4096, DEV_NORMAL) == DRV_ERROR_INVALID_VALUE);
	CHECK(halMemAlloc(&address, 0, DEV_NORMAL) == DRV_ERROR_INVALID_VALUE);
	CHECK(try_alloc(1, DEV_HUGE | MEM_PAGE_GIANT) == DRV_ERROR_INVALID_VALUE);
	CHECK(try_alloc(1, MEM_RESERVE) == DRV_ERROR_NOT_SUPPORT);
	for (type = MEM_UVM_VAL + 1; type < 16; type++)
		CHECK(try_alloc(1, type << MEM_VIRT_BIT) == DRV_ERROR_INVALID_MALLOC_TYPE);
	CHECK(try_alloc(1, MEM_SVM + 2) == DRV_ERROR_INVALID_DEVICE);
	CHECK(try_alloc(1, MEM_DVPP + 2) == DRV_ERROR_INVALID_DEVICE);
	CHECK(try_alloc(1, MEM_HOST + 2) == DRV_ERROR_NONE);
	CHECK(try_alloc(UINT64_MAX, DEV_NORMAL) == DRV_ERROR_OUT_OF_MEMORY);
	CHECK(try_alloc(UINT64_MAX, DEV_GIANT) == DRV_ERROR_OUT_OF_MEMORY);
	CHECK(try_alloc(UINT64_MAX, HOST) == DRV_ERROR_OUT_OF_MEMORY);
}

static void wrong_arguments_get_the_drivers_codes(void **state)
{
	(void)state;
	in_child("2", "1G", check_alloc_arguments);
}

static void check_real_flag_words(void)
{
	static const unsigned long long words[] = {
		0x924400, 0x904400, 0x80004400, 0x900800, 0x901800, 0x920000, 0x900000,
	};
	size_t i;

	for (i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		char *block = must_alloc(288, words[i] | 0x2100000000000000ULL);

		memset(block, 0x5a, 288);
		must_free(block);
	}
}

static void flag_words_of_the_runtime_are_served(void **state)
{
	(void)state;
	in_child(NULL, "2G", check_real_flag_words);
}

static void check_page_accounting(void)
{
	void *blocks[3];

	blocks[0] = must_alloc(1, DEV_NORMAL);
	check_left(0, 4 * GIB - 4 * KIB);
	blocks[1] = must_alloc(2 * MIB + 1, DEV_HUGE);
	check_left(0, 4 * GIB - 4 * KIB - 4 * MIB);
	blocks[2] = must_alloc(1, DEV_GIANT);
	check_left(0, 3 * GIB - 4 * KIB - 4 * MIB);
	CHECK((uintptr_t)blocks[1] % (2 * MIB) == 0);
	must_free(blocks[1]);
	check_left(0, 3 * GIB - 4 * KIB);
	must_free(blocks[0]);
	must_free(blocks[2]);
	check_left(0, 4 * GIB);
	/* Five pages are five pages, although no power of two. */
	blocks[0] = must_alloc(5 * 4 * KIB, DEV_NORMAL);
	check_left(0, 4 * GIB - 5 * 4 * KIB);
	check_left(1, 4 * GIB);
}

static void memory_is_charged_in_whole_pages(void **state)
{
	(void)state;
	in_child("2", "4G", check_page_accounting);
}

/* Fills the device to the last byte, sees the code for it, gives one block back and gets it again. */
static void fill_and_recover(uint64_t size, uint64_t flag, unsigned count)
{
	void **blocks = calloc(count, sizeof(*blocks));
	unsigned round;
	unsigned i;

	CHECK(blocks);
	for (round = 0; round < 2; round++) {
		for (i = 0; i < count; i++)
			blocks[i] = must_alloc(size, flag);
		CHECK(try_alloc(1, flag) == DRV_ERROR_OUT_OF_MEMORY);
		CHECK(try_alloc(1, DEV_NORMAL) == DRV_ERROR_OUT_OF_MEMORY);
		must_free(blocks[count / 2]);
		blocks[count / 2] = must_alloc(size, flag);
		CHECK(try_alloc(1, flag) == DRV_ERROR_OUT_OF_MEMORY);
		for (i = 0; i < count; i++)
			must_free(blocks[i]);
		check_left(0, 64 * MIB);
	}
	free(blocks);
}

static void check_exhaustion(void)
{
	fill_and_recover(100, DEV_NORMAL, 16384);
	fill_and_recover(64 * KIB, DEV_NORMAL, 1024);
	fill_and_recover(2 * MIB, DEV_HUGE, 32);
	fill_and_recover(16 * MIB, DEV_HUGE, 4);
	CHECK(try_alloc(1, DEV_GIANT) == DRV_ERROR_OUT_OF_MEMORY);
}

static void exhaustion_is_code_6_and_ends_with_a_free(void **state)
{
	(void)state;
	in_child("1", "64M", check_exhaustion);
}

static void check_host_memory(void)
{
	static const unsigned long long types[] = {MEM_HOST, MEM_HOST_AGENT, MEM_HOST_UVA};
	void *blocks[3];
	size_t i;

	for (i = 0; i < 3; i++) {
		blocks[i] = must_alloc(256 * MIB, types[i]);
		memset(blocks[i], 1, 4096);
	}
	check_left(0, 64 * MIB);
	for (i = 0; i < 3; i++)
		must_free(blocks[i]);
}

static void host_memory_costs_no_hbm(void **state)
{
	(void)state;
	in_child("1", "64M", check_host_memory);
}

static void check_wrong_frees(void)
{
	static const uint64_t sizes[] = {4 * KIB, 2 * MIB, 8 * MIB};
	char here;
	size_t i;

	/* Before the first allocation there is no device memory at all. */
	CHECK(halMemFree(&here) == DRV_ERROR_INVALID_VALUE);
	CHECK(halMemFree(NULL) == DRV_ERROR_INVALID_VALUE);
	for (i = 0; i < 3; i++) {
		char *block = must_alloc(sizes[i], DEV_NORMAL);

		CHECK(halMemFree(&here) == DRV_ERROR_INVALID_VALUE);
		CHECK(halMemFree(NULL) == DRV_ERROR_INVALID_VALUE);
		CHECK(halMemFree((void *)UINTPTR_MAX) == DRV_ERROR_INVALID_VALUE);
		CHECK(halMemFree(block + 1) == DRV_ERROR_INVALID_VALUE);
		CHECK(halMemFree(block + sizes[i]) == DRV_ERROR_INVALID_VALUE);
		CHECK(halMemFree(block + 1 * GIB) == DRV_ERROR_INVALID_VALUE);
		if (sizes[i] > 4 * KIB)
			CHECK(halMemFree(block + sizes[i] / 2) == DRV_ERROR_INVALID_VALUE);
		must_free(block);
		CHECK(halMemFree(block) == DRV_ERROR_INVALID_VALUE);
	}
	check_left(0, 64 * MIB);
}

static void wrong_and_double_frees_are_refused(void **state)
{
	(void)state;
	in_child("1", "64M", check_wrong_frees);
}

static void check_alignment(void)
{
	unsigned exponent;

	for (exponent = 0; exponent < 32; exponent++) {
		void *first = must_alloc(1, MEM_DEV | MEM_SET_ALIGN(exponent));
		void *second = must_alloc(1, MEM_DEV | MEM_SET_ALIGN(exponent));

		CHECK(((uintptr_t)first | (uintptr_t)second) % (1ULL << exponent) == 0);
		check_left(0, 64 * MIB - 8 * KIB);
		must_free(first);
		must_free(second);
	}
}

static void alignment_field_is_honoured(void **state)
{
	(void)state;
	in_child("1", "64M", check_alignment);
}

static void check_reuse(void)
{
	static const uint64_t sizes[] = {1, 60 * KIB, 2 * MIB, 8 * MIB};
	size_t i;
	unsigned n;

	for (i = 0; i < 4; i++) {
		void *a = must_alloc(sizes[i], DEV_NORMAL);
		void *b = must_alloc(sizes[i], DEV_NORMAL);
		void *first;
		void *second;

		CHECK(a != b);
		for (n = 0; n < 20; n++) {
			must_free(a);
			must_free(b);
			/* Large neighbours have become one block meanwhile, whose beginning comes first. */
			first = must_alloc(sizes[i], DEV_NORMAL);
			second = must_alloc(sizes[i], DEV_NORMAL);
			CHECK((first == b && second == a) ||
			      (sizes[i] > 2 * MIB && first == a && second == b));
		}
	}
}

static void freed_address_is_the_next_one_given(void **state)
{
	(void)state;
	in_child("1", "64M", check_reuse);
}

static size_t resident_bytes(void)
{
	unsigned long total = 0;
	unsigned long resident = 0;
	FILE *file = fopen("/proc/self/statm", "r");

	CHECK(file && fscanf(file, "%lu %lu", &total, &resident) == 2);
	(void)fclose(file);
	return resident * (size_t)sysconf(_SC_PAGESIZE);
}

static void check_memory_is_returned(void)
{
	char *blocks[512];
	size_t most;
	unsigned round;
	unsigned i;

	/* One large block, freed by one call. */
	blocks[0] = must_alloc(2 * GIB, DEV_HUGE);
	memset(blocks[0], 1, 64 * MIB);
	most = resident_bytes();
	must_free(blocks[0]);
	CHECK(resident_bytes() < most - 60 * MIB);

	/* Many small ones: what stays is bounded. */
	for (round = 0; round < 2; round++) {
		for (i = 0; i < 512; i++) {
			blocks[i] = must_alloc(1 * MIB, DEV_NORMAL);
			memset(blocks[i], 1, 1 * MIB);
		}
		most = resident_bytes();
		for (i = 0; i < 512; i++)
			must_free(blocks[i]);
		CHECK(resident_bytes() < most - 200 * MIB);
	}
}

static void freed_memory_goes_back_to_the_kernel(void **state)
{
	(void)state;
	in_child("1", "4G", check_memory_is_returned);
}

/* With no more addresses than memory, a block of all of it needs every small one to have become whole again. */
static void check_scarce_addresses(void)
{
	static void *blocks[4096];
	struct rlimit limit;
	unsigned long total = 0;
	FILE *file = fopen("/proc/self/statm", "r");
	unsigned i;

	CHECK(file && fscanf(file, "%lu", &total) == 1);
	(void)fclose(file);
	limit.rlim_cur = limit.rlim_max = total * (size_t)sysconf(_SC_PAGESIZE) + 3 * GIB / 2;
	CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
	for (i = 0; i < 4096; i++)
		blocks[i] = must_alloc((i % 32 + 1) * 4 * KIB, DEV_NORMAL);
	for (i = 0; i < 4096; i++)
		must_free(blocks[i]);
	CHECK(try_alloc(1 * GIB, DEV_NORMAL) == DRV_ERROR_NONE);
}

static void free_memory_is_whole_even_when_addresses_are_scarce(void **state)
{
	(void)state;
	in_child("1", "1G", check_scarce_addresses);
}

/* Somebody else is where the device's memory usually lies. */
static void check_taken_address(void)
{
	void *usual = must_alloc(1, DEV_NORMAL + 1);
	char *wish = (char *)usual - (1ULL << 40);
	void *taken = mmap(wish, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *block;

	CHECK(taken != MAP_FAILED);
	block = must_alloc(64 * MIB, DEV_NORMAL);
	CHECK(block != taken);
	block[0] = 1;
	block[64 * MIB - 1] = 1;
	must_free(block);
	must_free(usual);
	check_alignment();
	check_reuse();
}

static void device_works_where_its_usual_address_is_taken(void **state)
{
	(void)state;
	in_child("2", "64M", check_taken_address);
}

enum {
	THREADS = 8,
	SLOTS = 256,
};

/*
 * Live blocks lie in slots that all threads share, so each is mostly freed by another thread than took it. `owned` has a
 * byte for each page that an address of the device may lead to: two live blocks on one page are seen at once.
 */
struct hammer {
	_Atomic(uint64_t *) slots[SLOTS];
	_Atomic unsigned char *owned;
	uintptr_t base;
	unsigned rounds;
	_Atomic unsigned refusals;
	_Atomic bool stop;
};

static struct hammer hammer;

#define HAMMER_RANGE (1ULL << 41)

static void hammer_init(unsigned rounds)
{
	void *probe = must_alloc(1, DEV_NORMAL);

	hammer.base = (uintptr_t)probe - HAMMER_RANGE / 2;
	must_free(probe);
	hammer.owned = mmap(NULL, HAMMER_RANGE / 4096, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK((void *)hammer.owned != MAP_FAILED);
	hammer.rounds = rounds;
}

static void set_owned(const void *block, uint64_t size, unsigned char value)
{
	uint64_t page = ((uintptr_t)block - hammer.base) / 4096;
	uint64_t end = page + (size + 4095) / 4096;

	for (; page < end; page++)
		CHECK(atomic_exchange(&hammer.owned[page], value) != value);
}

/* A block says its size and, on each page, its own address. Sizes are multiples of 16: its last word opens no page. */
static void stamp(uint64_t *block, uint64_t size)
{
	uint64_t word;

	for (word = 0; word < size / 8; word += 512)
		block[word] = (uint64_t)(uintptr_t)&block[word];
	block[1] = size;
	block[size / 8 - 1] = ~size;
}

static void check_stamp(const uint64_t *block, uint64_t size)
{
	uint64_t word;

	for (word = 0; word < size / 8; word += 512)
		CHECK(block[word] == (uint64_t)(uintptr_t)&block[word]);
	CHECK(block[size / 8 - 1] == ~size);
}

static void hammer_free(uint64_t *block)
{
	uint64_t size = block[1];

	check_stamp(block, size);
	set_owned(block, size, 0);
	must_free(block);
}

static unsigned random_next(unsigned *seed)
{
	*seed = *seed * 1664525u + 1013904223u;
	return *seed >> 8;
}

static void *hammer_run(void *argument)
{
	unsigned seed = (unsigned)(uintptr_t)argument;
	unsigned round;

	for (round = 0; round < hammer.rounds; round++) {
		_Atomic(uint64_t *) *slot = &hammer.slots[random_next(&seed) % SLOTS];
		uint64_t size =
			64 + (random_next(&seed) % 512 << random_next(&seed) % 14) / 16 * 16;
		uint64_t flag = random_next(&seed) % 16 ? DEV_NORMAL : DEV_HUGE;
		uint64_t *block = atomic_exchange(slot, NULL);
		void *address = NULL;
		drvError_t error;

		if (block)
			hammer_free(block);
		error = halMemAlloc(&address, size, flag);
		if (error) {
			CHECK(error == DRV_ERROR_OUT_OF_MEMORY);
			atomic_fetch_add(&hammer.refusals, 1);
			continue;
		}
		set_owned(address, size, 1);
		stamp(address, size);
		block = atomic_exchange(slot, address);
		if (block)
			hammer_free(block);
	}
	return NULL;
}

static void hammer_start(pthread_t *threads)
{
	uintptr_t i;

	for (i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, hammer_run, (void *)(i + 1)) == 0);
}

static void hammer_join(pthread_t *threads)
{
	unsigned i;

	for (i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	for (i = 0; i < SLOTS; i++) {
		uint64_t *block = atomic_exchange(&hammer.slots[i], NULL);

		if (block)
			hammer_free(block);
	}
}

static void check_hammered(void)
{
	pthread_t threads[THREADS];

	hammer_init(20000);
	hammer_start(threads);
	hammer_join(threads);
	CHECK(hammer.refusals > 0);
	check_left(0, 64 * MIB);
}

static void live_blocks_of_8_threads_never_overlap(void **state)
{
	(void)state;
	in_child("1", "64M", check_hammered);
}

/* Every thread holds at most its share of the device, so nobody may ever be refused, however tight it is. */
static void *stay_within_share(void *argument)
{
	static const uint64_t sizes[] = {4 * KIB, 20 * KIB, 1 * MIB, 2 * MIB, 3 * MIB, 8 * MIB};
	unsigned seed = (unsigned)(uintptr_t)argument;
	unsigned round;

	for (round = 0; round < 5000; round++) {
		uint64_t left = 8 * MIB;
		void *blocks[64];
		unsigned count = 0;

		while (left >= 4 * KIB && count < 64) {
			uint64_t size = sizes[random_next(&seed) % 6];

			if (size > left)
				size = left;
			blocks[count++] = must_alloc(size, DEV_NORMAL);
			left -= size;
		}
		while (count)
			must_free(blocks[--count]);
	}
	return NULL;
}

static void check_shares(void)
{
	pthread_t threads[THREADS];
	uintptr_t i;

	for (i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, stay_within_share, (void *)(i + 1)) == 0);
	for (i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	check_left(0, 64 * MIB);
}

static void what_fits_is_never_refused(void **state)
{
	(void)state;
	in_child("1", "64M", check_shares);
}

static void *_Atomic contested;
static _Atomic unsigned winners;
static pthread_barrier_t barrier;

enum {
	CONTESTS = 2000,
};

static void *free_contested(void *argument)
{
	unsigned i;

	(void)argument;
	for (i = 0; i < CONTESTS; i++) {
		(void)pthread_barrier_wait(&barrier);
		if (halMemFree(contested) == DRV_ERROR_NONE)
			winners++;
		(void)pthread_barrier_wait(&barrier);
	}
	return NULL;
}

static void check_racing_frees(void)
{
	pthread_t threads[2];
	unsigned i;

	CHECK(pthread_barrier_init(&barrier, NULL, 3) == 0);
	for (i = 0; i < 2; i++)
		CHECK(pthread_create(&threads[i], NULL, free_contested, NULL) == 0);
	for (i = 0; i < CONTESTS; i++) {
		contested = must_alloc(i % 2 ? 4 * KIB : 4 * MIB, DEV_NORMAL);
		(void)pthread_barrier_wait(&barrier);
		(void)pthread_barrier_wait(&barrier);
		CHECK(winners == i + 1);
	}
	for (i = 0; i < 2; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	check_left(0, 64 * MIB);
}

static void one_of_two_racing_frees_succeeds(void **state)
{
	(void)state;
	in_child("1", "64M", check_racing_frees);
}

/*
 * In a child of a process whose threads use device 0. A request that is too large makes the library look at everything it has,
 * so a lock or list that was in use when the process forked would be noticed.
 */
static void use_in_forked_child(void)
{
	struct drv_mem_prop prop = {.side = MEM_DEV_SIDE};
	drv_mem_handle_t *handle;
	char *blocks[64];
	unsigned i;

	(void)alarm(UNIT_HANGS_S);
	for (i = 0; i < 64; i++) {
		blocks[i] = must_alloc(i % 8 ? 8 * KIB : 4 * MIB, DEV_NORMAL + i % 2);
		memset(blocks[i], (int)i, 8 * KIB);
	}
	CHECK(try_alloc(1 * GIB, DEV_NORMAL) == DRV_ERROR_OUT_OF_MEMORY);
	for (i = 0; i < 64; i++) {
		CHECK(blocks[i][8 * KIB - 1] == (char)i);
		must_free(blocks[i]);
	}
	CHECK(halMemCreate(&handle, 4 * KIB, &prop, 0) == DRV_ERROR_NONE);
	CHECK(halMemRelease(handle) == DRV_ERROR_NONE);
	check_left(1, 1 * GIB - 4 * KIB);
	_exit(0);
}

/* Much of its time it holds some lock of the library. */
static void *churn(void *argument)
{
	unsigned i;

	(void)argument;
	for (i = 0; !atomic_load_explicit(&hammer.stop, memory_order_relaxed); i++)
		must_free(must_alloc(i % 4 ? 4 * KIB : 4 * MIB, DEV_NORMAL));
	return NULL;
}

static void check_fork(void)
{
	pthread_t threads[THREADS];
	unsigned i;

	(void)must_alloc(1, DEV_NORMAL + 1);
	for (i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, churn, NULL) == 0);
	for (i = 0; i < 40; i++) {
		int status = -1;
		pid_t pid = fork();

		CHECK(pid >= 0);
		if (pid == 0)
			use_in_forked_child();
		CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	}
	atomic_store(&hammer.stop, true);
	for (i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	check_left(0, 1 * GIB);
}

static void child_forked_among_threads_can_allocate(void **state)
{
	(void)state;
	in_child("2", "1G", check_fork);
}

static void check_create_arguments(void)
{
	struct drv_mem_prop prop = {.side = MEM_DEV_SIDE};
	struct drv_mem_prop wrong;
	drv_mem_handle_t *handle = NULL;

	CHECK(halMemCreate(NULL, 4096, &prop, 0) == DRV_ERROR_INVALID_VALUE);
	CHECK(halMemCreate(&handle, 4096, NULL, 0) == DRV_ERROR_INVALID_VALUE);
	CHECK(halMemCreate(&handle, 0, &prop, 0) == DRV_ERROR_INVALID_VALUE);
	CHECK(halMemCreate(&handle, 4096, &prop, 1) == DRV_ERROR_INVALID_VALUE);
	CHECK(halMemCreate(&handle, 4097, &prop, 0) == DRV_ERROR_INVALID_VALUE);
	wrong = (struct drv_mem_prop){.side = MEM_DEV_SIDE, .pg_type = MEM_HUGE_PAGE_TYPE};
	CHECK(halMemCreate(&handle, 1 * MIB, &wrong, 0) == DRV_ERROR_INVALID_VALUE);
	wrong.pg_type = MEM_GIANT_PAGE_TYPE;
	CHECK(halMemCreate(&handle, 2 * MIB, &wrong, 0) == DRV_ERROR_INVALID_VALUE);
	wrong.pg_type = MEM_GIANT_PAGE_TYPE + 1;
	CHECK(halMemCreate(&handle, 1 * GIB, &wrong, 0) == DRV_ERROR_INVALID_VALUE);
	wrong = (struct drv_mem_prop){.side = MEM_DEV_SIDE, .devid = 2};
	CHECK(halMemCreate(&handle, 4096, &wrong, 0) == DRV_ERROR_INVALID_DEVICE);
	wrong = (struct drv_mem_prop){.side = MEM_HOST_NUMA_SIDE + 1};
	CHECK(halMemCreate(&handle, 4096, &wrong, 0) == DRV_ERROR_INVALID_VALUE);
	wrong = (struct drv_mem_prop){.side = MEM_DEV_SIDE, .mem_type = MEM_TS_DDR_TYPE + 1};
	CHECK(halMemCreate(&handle, 4096, &wrong, 0) == DRV_ERROR_INVALID_VALUE);
	CHECK(!handle);
	check_left(0, 4 * GIB);
}

static void check_handles(void)
{
	struct drv_mem_prop prop = {
		.side = MEM_DEV_SIDE, .devid = 1, .pg_type = MEM_HUGE_PAGE_TYPE};
	struct drv_mem_prop host = {.side = MEM_HOST_NUMA_SIDE, .devid = 7};
	drv_mem_handle_t *handles[1000];
	drv_mem_handle_t *extra;
	char here[64];
	unsigned i;
	unsigned k;

	for (i = 0; i < 1000; i++) {
		CHECK(halMemCreate(&handles[i], 2 * MIB, &prop, 0) == DRV_ERROR_NONE);
		for (k = 0; k < i; k++)
			CHECK(handles[i] != handles[k]);
	}
	check_left(1, 4 * GIB - 2000 * MIB);
	check_left(0, 4 * GIB);
	CHECK(halMemCreate(&extra, 4 * GIB, &prop, 0) == DRV_ERROR_OUT_OF_MEMORY);
	CHECK(halMemCreate(&extra, 8 * GIB, &host, 0) == DRV_ERROR_NONE);
	CHECK(halMemRelease(extra) == DRV_ERROR_NONE);

	CHECK(halMemRelease(NULL) == DRV_ERROR_INVALID_VALUE);
	CHECK(halMemRelease((drv_mem_handle_t *)here) == DRV_ERROR_INVALID_HANDLE);
	CHECK(halMemRelease((drv_mem_handle_t *)((char *)handles[0] + 1)) ==
	      DRV_ERROR_INVALID_HANDLE);
	CHECK(halMemRelease((drv_mem_handle_t *)((char *)handles[0] + 1 * GIB)) ==
	      DRV_ERROR_INVALID_HANDLE);
	for (i = 0; i < 1000; i++) {
		CHECK(halMemRelease(handles[i]) == DRV_ERROR_NONE);
		CHECK(halMemRelease(handles[i]) == DRV_ERROR_INVALID_HANDLE);
	}
	check_left(1, 4 * GIB);
}

static void created_memory_is_charged_until_released(void **state)
{
	(void)state;
	in_child("2", "4G", check_create_arguments);
	in_child("2", "4G", check_handles);
}

static void check_inner_calls(void)
{
	struct drv_mem_prop prop = {.side = MEM_DEV_SIDE};
	drv_mem_handle_t *handle;
	unsigned before = inner_calls;
	void *block;

	block = must_alloc(1, DEV_NORMAL);
	CHECK(inner_calls == before + 1);
	must_free(block);
	CHECK(inner_calls == before + 2);
	CHECK(halMemCreate(&handle, 4096, &prop, 0) == DRV_ERROR_NONE);
	CHECK(inner_calls == before + 3);
	CHECK(halMemRelease(handle) == DRV_ERROR_NONE);
	CHECK(inner_calls == before + 4);
}

static void public_names_call_the_inner_ones_by_the_linker(void **state)
{
	(void)state;
	in_child("1", "64M", check_inner_calls);
}

/* The file of the library under test, or of the old driver beside it. */
static void library_path(bool old, char *path, size_t size)
{
	const char *name = "/libascend_hal.so";
	Dl_info info;

	CHECK(dladdr((void *)(uintptr_t)next_alloc, &info));
	CHECK(strlen(info.dli_fname) > strlen(name));
	(void)snprintf(path, size, "%.*s%s%s", (int)(strlen(info.dli_fname) - strlen(name)),
		       info.dli_fname, old ? "-old" : "", name);
}

/* How many symbols the library exports; all of them must be named as the driver's are. */
static unsigned count_exports(bool old)
{
	char path[4096];
	const char *file;
	const Elf64_Ehdr *header;
	const Elf64_Shdr *sections;
	unsigned count = 0;
	struct stat status;
	unsigned i;
	int fd;

	library_path(old, path, sizeof(path));
	fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0 && fstat(fd, &status) == 0);
	file = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	CHECK(file != MAP_FAILED);
	header = (const Elf64_Ehdr *)file;
	sections = (const Elf64_Shdr *)(file + header->e_shoff);
	for (i = 0; i < header->e_shnum; i++) {
		const Elf64_Sym *symbol = (const Elf64_Sym *)(file + sections[i].sh_offset);
		const Elf64_Sym *end = symbol + sections[i].sh_size / sizeof(*symbol);
		const char *names;

		if (sections[i].sh_type != SHT_DYNSYM)
			continue;
		names = file + sections[sections[i].sh_link].sh_offset;
		for (; symbol < end; symbol++) {
			const char *name = names + symbol->st_name;

			if (symbol->st_shndx == SHN_UNDEF ||
			    ELF64_ST_BIND(symbol->st_info) == STB_LOCAL)
				continue;
			CHECK(strncmp(name, "hal", 3) == 0 || strncmp(name, "drv", 3) == 0 ||
			      strncmp(name, "prof_", 5) == 0);
			count++;
		}
	}
	return count;
}

static void check_exports(void)
{
	unsigned count = count_exports(false);

	CHECK(count > 2);
	/* All but the two Inner functions that the old driver lacks. */
	CHECK(count_exports(true) == count - 2);
}

static void only_driver_names_are_exported(void **state)
{
	(void)state;
	in_child(NULL, NULL, check_exports);
}

/* In a namespace of its own, or its calls would come out in the new driver that this program is linked with. */
static void check_old_driver(void)
{
	struct drv_mem_prop prop = {.side = MEM_DEV_SIDE};
	drvError_t (*alloc)(void **, unsigned long long, unsigned long long);
	drvError_t (*create)(drv_mem_handle_t **, size_t, const struct drv_mem_prop *, uint64_t);
	drvError_t (*release)(drv_mem_handle_t *);
	drvError_t (*give)(void *);
	drv_mem_handle_t *handle;
	unsigned before = inner_calls;
	char path[4096];
	void *library;
	void *block;

	library_path(true, path, sizeof(path));
	library = dlmopen(LM_ID_NEWLM, path, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		(void)fprintf(stderr, "%s\n", dlerror());
	CHECK(library);
	CHECK(!dlsym(library, "halMemCreateInner"));
	CHECK(!dlsym(library, "halMemReleaseInner"));
	CHECK(dlsym(library, "halMemAllocInner") && dlsym(library, "halMemFreeInner"));
	*(void **)&alloc = dlsym(library, "halMemAlloc");
	*(void **)&give = dlsym(library, "halMemFree");
	*(void **)&create = dlsym(library, "halMemCreate");
	*(void **)&release = dlsym(library, "halMemRelease");
	CHECK(alloc && give && create && release);

	CHECK(create(&handle, 60 * MIB, &prop, 0) == DRV_ERROR_NONE);
	CHECK(alloc(&block, 5 * MIB, DEV_NORMAL) == DRV_ERROR_OUT_OF_MEMORY);
	CHECK(alloc(&block, 4 * MIB, DEV_NORMAL) == DRV_ERROR_NONE);
	CHECK(give(block) == DRV_ERROR_NONE);
	CHECK(release(handle) == DRV_ERROR_NONE);
	CHECK(alloc(&block, 64 * MIB, DEV_NORMAL) == DRV_ERROR_NONE);
	CHECK(inner_calls == before);
}

static void old_driver_has_no_inner_create_and_release(void **state)
{
	(void)state;
	in_child("1", "64M", check_old_driver);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(default_machine_is_8_devices_of_64_gib),
		cmocka_unit_test(variables_set_devices_and_capacity),
		cmocka_unit_test(one_block_can_be_the_whole_device),
		cmocka_unit_test(bad_variables_cost_one_line_each),
		cmocka_unit_test(wrong_arguments_get_the_drivers_codes),
		cmocka_unit_test(flag_words_of_the_runtime_are_served),
		cmocka_unit_test(memory_is_charged_in_whole_pages),
		cmocka_unit_test(exhaustion_is_code_6_and_ends_with_a_free),
		cmocka_unit_test(host_memory_costs_no_hbm),
		cmocka_unit_test(wrong_and_double_frees_are_refused),
		cmocka_unit_test(alignment_field_is_honoured),
		cmocka_unit_test(freed_address_is_the_next_one_given),
		cmocka_unit_test(freed_memory_goes_back_to_the_kernel),
		cmocka_unit_test(free_memory_is_whole_even_when_addresses_are_scarce),
		cmocka_unit_test(device_works_where_its_usual_address_is_taken),
		cmocka_unit_test(live_blocks_of_8_threads_never_overlap),
		cmocka_unit_test(what_fits_is_never_refused),
		cmocka_unit_test(one_of_two_racing_frees_succeeds),
		cmocka_unit_test(child_forked_among_threads_can_allocate),
		cmocka_unit_test(created_memory_is_charged_until_released),
		cmocka_unit_test(public_names_call_the_inner_ones_by_the_linker),
		cmocka_unit_test(only_driver_names_are_exported),
		cmocka_unit_test(old_driver_has_no_inner_create_and_release),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
