// SPDX-License-Identifier: Apache-2.0
// libtorch_cuda.so: the class of pluggable allocators, whose table of virtual functions it exports.
#include "torch_pool.h"

namespace torch { namespace cuda { namespace CUDAPluggableAllocator {
struct PUBLIC CUDAPluggableAllocator : c10::cuda::CUDACachingAllocator::CUDAAllocator {
	bool initialized() override;
	void init(int devices) override;
	void *malloc(int8_t device, size_t bytes, uint64_t stream, MempoolId pool) override;
	void free(void *block, bool waits) override;
	void attachAllocatorTraceTracker(Tracker tracker) override;
	std::string name() override;
};
bool CUDAPluggableAllocator::initialized() { return false; }
void CUDAPluggableAllocator::init(int) {}
void *CUDAPluggableAllocator::malloc(int8_t, size_t, uint64_t, MempoolId) { return nullptr; }
void CUDAPluggableAllocator::free(void *, bool) {}
void CUDAPluggableAllocator::attachAllocatorTraceTracker(Tracker) { throw 1; }
std::string CUDAPluggableAllocator::name() { return "pluggable"; }
}}}

namespace at { namespace cuda { namespace detail {
PUBLIC const int &getDefaultCUDAGenerator(int8_t device)
{
	static const int generators[64] = {};

	return generators[device];
}
}}}

namespace c10 { namespace cuda { namespace detail {
void init_p2p_access_cache(int64_t devices);
}}}

// What PyTorch does when CUDA is first used.
extern "C" PUBLIC void make_cuda_ready(int devices, int version)
{
	c10::cuda::CUDACachingAllocator::allocator.load()->init(devices);
	if (version >= 210)
		c10::cuda::detail::init_p2p_access_cache(devices);
}
