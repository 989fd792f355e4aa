/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for PyTorch's allocators on CUDA: the classes and names of libc10_cuda.so and libtorch_cuda.so that lead to a tracker, by a
 * real C++ compiler. PADDING: virtual functions before the interesting ones. LAYOUT: 0 as PyTorch 2.11 has TraceEntry, 1 as 2.3, 2 to 4
 * in forms that never were.
 */
#ifndef MSCOPE_TESTS_TORCH_POOL_H
#define MSCOPE_TESTS_TORCH_POOL_H

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#ifndef PADDING
#define PADDING 11
#endif
#ifndef LAYOUT
#define LAYOUT 0
#endif

#define PUBLIC __attribute__((visibility("default")))

using MempoolId = std::pair<unsigned long long, unsigned long long>;

#if LAYOUT == 1
namespace c10
{
namespace cuda
{
namespace CUDACachingAllocator
{
#else
namespace c10
{
namespace CachingDeviceAllocator
{
#endif
struct PUBLIC TraceEntry {
	enum Action {
		ALLOC,
		FREE_REQUESTED,
		FREE_COMPLETED,
		SEGMENT_ALLOC,
		SEGMENT_FREE,
		SEGMENT_MAP,
		SEGMENT_UNMAP,
		SNAPSHOT,
		OOM
	};
	Action action;
	int8_t device;
#if LAYOUT == 2
	uint64_t inserted = 7;
#endif
	size_t address;
#if LAYOUT != 3
	std::shared_ptr<int> context;
#endif
#if LAYOUT == 4
	size_t size;
	void *stream;
#else
	void *stream;
	size_t size;
#endif
#if LAYOUT != 1
	MempoolId mempool;
#endif
	uint64_t time;
#if LAYOUT != 1
	std::string compiled, user;
#endif
};
#if LAYOUT == 1
}
}
}
using c10::cuda::CUDACachingAllocator::TraceEntry;
#else
}
}
using c10::CachingDeviceAllocator::TraceEntry;
#endif

using Tracker = std::function<void(const TraceEntry &)>;

template <int N> struct PUBLIC Padded : Padded<N - 1> {
	virtual void pad(std::integral_constant<int, N>)
	{
	}
};
template <> struct PUBLIC Padded<0> {
	virtual ~Padded() = default;
};

namespace c10
{
namespace cuda
{
namespace CUDACachingAllocator
{
class PUBLIC CUDAAllocator : public Padded<PADDING>
{
      public:
	virtual bool initialized() = 0;
	virtual void init(int devices) = 0;
	virtual void *malloc(int8_t device, size_t bytes, uint64_t stream, MempoolId pool) = 0;
	virtual void free(void *block, bool waits) = 0;
	virtual void attachAllocatorTraceTracker(Tracker tracker) = 0;
	virtual std::string name() = 0;
};
PUBLIC extern std::atomic<CUDAAllocator *> allocator;
} // namespace CUDACachingAllocator
} // namespace cuda
} // namespace c10

#endif
