// SPDX-License-Identifier: Apache-2.0
// libpool_calls.so: the stand-in pool for Python programs, by functions that ctypes can call. Segments lie in memory that is only reserved.
#include "torch_pool.h"

#include <sys/mman.h>

extern "C" {
void make_cuda_ready(int devices, int version);
void pool_driver(uint64_t (*take)(uint64_t), void (*give)(uint64_t));
}

namespace at { namespace cuda { namespace detail {
const int &getDefaultCUDAGenerator(int8_t device);
}}}

struct c10_device {
	int8_t type, index;
};
extern "C" void _ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE(int64_t, size_t, size_t, c10_device);

static uint64_t next;

static uint64_t take(uint64_t bytes)
{
	next += bytes;
	return next - bytes;
}

static void give(uint64_t) {}

extern "C" PUBLIC void calls_init()
{
	next = reinterpret_cast<uint64_t>(mmap(nullptr, uint64_t{1} << 36, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
	pool_driver(take, give);
	make_cuda_ready(2, 211);
	(void)at::cuda::detail::getDefaultCUDAGenerator(0);
}
extern "C" PUBLIC void *calls_malloc(uint64_t bytes, uint64_t stream)
{
	return c10::cuda::CUDACachingAllocator::allocator.load()->malloc(0, bytes, stream, {0, 0});
}
extern "C" PUBLIC void calls_free(void *block)
{
	c10::cuda::CUDACachingAllocator::allocator.load()->free(block, false);
}
/* What PyTorch tells c10 when a request stays refused. */
extern "C" PUBLIC void calls_refuse(uint64_t bytes, uint64_t allocated, uint64_t reserved)
{
	_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE((int64_t)bytes, allocated, reserved, c10_device{1, 0});
}
