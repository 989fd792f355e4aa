// SPDX-License-Identifier: Apache-2.0
// pool_random SEED [version=N] [late] [expandable] [threads] [first]: a random program on the stand-in pool. It measures itself: a
// snapshot by that name, and the pool's own truth at that moment. Prints all of these as one line of JSON.
#include "torch_pool.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

extern "C" {
void make_cuda_ready(int devices, int version);
void pool_driver(uint64_t (*take)(uint64_t), void (*give)(uint64_t));
void pool_expand(bool on);
void pool_drain();
void pool_empty_cache();
std::string *pool_truth();
}

namespace at { namespace cuda { namespace detail {
const int &getDefaultCUDAGenerator(int8_t device);
}}}

using Mutex = std::mutex;
static c10::cuda::CUDACachingAllocator::CUDAAllocator *pool;
static int (*cu_alloc)(uint64_t *, size_t);
static int (*cu_free)(uint64_t);
static void *context;
static int (*cu_set)(void *);
static std::string said;
static std::mt19937_64 numbers;
static std::vector<MempoolId> privates = {{0, 0}, {0, 0}, {0, 0}, {3, 0}, {0, 7}};
static std::vector<uint64_t> streams = {0, 0, 0x7f0000001000, 0x55aa00002000};

static uint64_t take(uint64_t bytes)
{
	uint64_t address = 0;

	cu_set(context);
	if (cu_alloc(&address, bytes) != 0)
		abort();
	return address;
}

static void give(uint64_t address)
{
	cu_set(context);
	if (cu_free(address) != 0)
		abort();
}

static void *find(void *library, const char *name, int version)
{
	auto get = (int (*)(const char *, void **, int, uint64_t))dlsym(library, "cuGetProcAddress");
	void *function = nullptr;

	if (get == nullptr || get(name, &function, version, 0) != 0)
		abort();
	return function;
}

static void open_driver()
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);

	if (library == nullptr)
		abort();
	cu_alloc = (int (*)(uint64_t *, size_t))find(library, "cuMemAlloc", 3020);
	cu_free = (int (*)(uint64_t))find(library, "cuMemFree", 3020);
	cu_set = (int (*)(void *))find(library, "cuCtxSetCurrent", 4000);
	((int (*)(unsigned))find(library, "cuInit", 2000))(0);
	((int (*)(void **, int))find(library, "cuDevicePrimaryCtxRetain", 7000))(&context, 0);
	cu_set(context);
}

static void churn(unsigned seed, int count, std::vector<void *> &held)
{
	std::mt19937_64 own(seed);

	for (int i = 0; i < count; i++) {
		if (!held.empty() && own() % 100 < 46) {
			size_t at = own() % held.size();

			pool->free(held[at], own() % 4 == 0);
			held[at] = held.back();
			held.pop_back();
		} else {
			uint64_t most = own() % 3 == 0 ? 5 << 20 : own() % 2 ? 4000 : 300000;

			held.push_back(pool->malloc(0, 1 + own() % most, streams[own() % streams.size()], privates[own() % privates.size()]));
		}
		if (own() % 50 == 0)
			pool_drain();
		if (own() % 80 == 0)
			pool_empty_cache();
	}
}

static void measure(const char *name)
{
	auto snapshot = (int (*)(uint32_t, uint32_t, const char *, const uint64_t *))dlsym(RTLD_DEFAULT, "mscope_snapshot");
	uint64_t unknown[6];

	memset(unknown, 0xff, sizeof(unknown));
	said += std::string(said.empty() ? "" : ", ") + "\"" + name + "\": " + *pool_truth();
	if (snapshot != nullptr)
		snapshot(1 << 8, 1, name, unknown);
}

int main(int argc, char **argv)
{
	std::vector<std::vector<void *>> held(4);
	std::vector<std::thread> threads;
	unsigned seed = (unsigned)atoi(argv[1]);
	int version = 211, workers = 1;
	bool expandable = false;

	for (int i = 2; i < argc; i++) {
		if (strncmp(argv[i], "version=", 8) == 0)
			version = atoi(argv[i] + 8);
		expandable = expandable || strcmp(argv[i], "expandable") == 0;
		workers = strcmp(argv[i], "threads") == 0 ? 4 : workers;
	}
	if (version < 206)
		privates = {{0, 0}};
	numbers.seed(seed);
	open_driver();
	pool_driver(take, give);
	make_cuda_ready(1 + (int)(numbers() % 4), version);
	(void)at::cuda::detail::getDefaultCUDAGenerator(0);
	pool = c10::cuda::CUDACachingAllocator::allocator.load();
	pool_expand(expandable);
	churn(seed, 100, held[0]);
	measure("begun");
	for (int i = 0; i < workers; i++)
		threads.emplace_back(churn, seed * 7 + (unsigned)i, 300, std::ref(held[(size_t)i]));
	for (auto &thread : threads)
		thread.join();
	measure("full");
	for (auto &part : held) {
		for (size_t i = 0; i < part.size(); i += 2) {
			pool->free(part[i], i % 3 == 0);
			part[i] = part.back();
			part.pop_back();
		}
	}
	measure("half");
	pool_drain();
	measure("drained");
	pool_empty_cache();
	measure("emptied");
	churn(seed + 1, 60, held[0]);
	measure("again");
	printf("{%s}\n", said.c_str());
	return 0;
}
