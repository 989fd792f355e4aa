// SPDX-License-Identifier: Apache-2.0
// libc10_cuda.so: a caching allocator that tells its trackers and c10 what PyTorch's does, in the same order and under the same lock.
// ASYNC: another allocator is in use, as with backend:cudaMallocAsync.
#include "torch_pool.h"

#include <dlfcn.h>
#include <map>
#include <mutex>
#include <random>
#include <sys/mman.h>
#include <time.h>
#include <vector>

struct c10_device {
	int8_t type, index;
};
extern "C" void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *, int64_t, size_t, size_t, c10_device);

namespace c10 { namespace cuda { namespace detail {
PUBLIC void init_p2p_access_cache(int64_t devices);
void init_p2p_access_cache(int64_t) {}
}}}

namespace c10 { namespace cuda { namespace CUDACachingAllocator {
std::atomic<CUDAAllocator *> allocator;

namespace Native {

struct Block {
	uint64_t address, size, requested, stream;
	MempoolId pool;
	bool used, waits;
};

struct Segment {
	uint64_t size, stream;
	MempoolId pool;
	bool mapped;
};

static uint64_t (*driver_take)(uint64_t);
static void (*driver_give)(uint64_t);

struct DevicePool {
	std::recursive_mutex mutex;
	std::vector<Tracker> trackers;
	std::map<uint64_t, Block> blocks;     /* all of them, free ones too */
	std::map<uint64_t, Segment> segments; /* also what is mapped, page by page */
	uint64_t allocated = 0, reserved = 0, next_mapping = 0;
	bool expandable = false;
	int8_t device = 0;

	void tell(TraceEntry::Action action, uint64_t address, uint64_t size, uint64_t stream, MempoolId pool)
	{
		timespec now;

		clock_gettime(CLOCK_MONOTONIC, &now);
		TraceEntry entry{};
		entry.action = action;
		entry.device = device;
		entry.address = address;
		entry.size = size;
		entry.stream = reinterpret_cast<void *>(stream);
#if LAYOUT != 1
		entry.mempool = pool;
#else
		(void)pool;
#endif
		entry.time = (uint64_t{1} << 40) + (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
		for (const auto &tracker : trackers)
			tracker(entry);
	}

	void report(uint64_t address, int64_t bytes)
	{
		_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(reinterpret_cast<void *>(address), bytes, allocated, reserved,
								      c10_device{1, device});
	}

	void merge(std::map<uint64_t, Block>::iterator block)
	{
		auto next = std::next(block);

		if (next != blocks.end() && !next->second.used && !next->second.waits && next->first == block->first + block->second.size &&
		    next->second.stream == block->second.stream && next->second.pool == block->second.pool && same_segment(*block, *next)) {
			block->second.size += next->second.size;
			blocks.erase(next);
		}
	}

	bool same_segment(const std::pair<const uint64_t, Block> &a, const std::pair<const uint64_t, Block> &b)
	{
		auto of = std::prev(segments.upper_bound(a.first));

		return of->second.mapped || b.first < of->first + of->second.size;
	}

	void release(std::map<uint64_t, Block>::iterator block)
	{
		block->second.used = block->second.waits = false;
		tell(TraceEntry::FREE_COMPLETED, block->first, block->second.requested, block->second.stream, block->second.pool);
		merge(block);
		if (block != blocks.begin() && !std::prev(block)->second.used && !std::prev(block)->second.waits)
			merge(std::prev(block));
	}

	void drain()
	{
		for (bool again = true; again;) {
			again = false;
			for (auto at = blocks.begin(); at != blocks.end(); ++at) {
				if (at->second.waits) {
					release(at); /* it may be part of another block now */
					again = true;
					break;
				}
			}
		}
	}

	void grow(uint64_t size, uint64_t stream, MempoolId pool)
	{
		uint64_t bytes = size <= (1 << 20) ? 2 << 20 : (size + (2 << 20) - 1) & -uint64_t(2 << 20), address;

		if (expandable) {
			if (next_mapping == 0)
				next_mapping = reinterpret_cast<uint64_t>(mmap(nullptr, uint64_t{1} << 36, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
			address = next_mapping;
			next_mapping += bytes;
		} else {
			address = driver_take(bytes);
		}
		reserved += bytes;
		segments[address] = Segment{bytes, stream, pool, expandable};
		blocks[address] = Block{address, bytes, 0, stream, pool, false, false};
		tell(expandable ? TraceEntry::SEGMENT_MAP : TraceEntry::SEGMENT_ALLOC, address, bytes, stream, pool);
	}

	void *malloc(uint64_t requested, uint64_t stream, MempoolId pool)
	{
		std::lock_guard<std::recursive_mutex> lock(mutex);
		uint64_t size = (requested + 511) & -uint64_t(512);

		for (;;) {
			for (auto at = blocks.begin(); at != blocks.end(); ++at) {
				Block &block = at->second;

				if (block.used || block.waits || block.size < size || block.stream != stream || block.pool != pool)
					continue;
				if (block.size - size > 512) {
					blocks[block.address + size] = Block{block.address + size, block.size - size, 0, stream, pool, false, false};
					block.size = size;
				}
				block.used = true;
				block.requested = requested;
				allocated += block.size;
				tell(TraceEntry::ALLOC, block.address, requested, stream, pool);
				report(block.address, (int64_t)block.size);
				return reinterpret_cast<void *>(block.address);
			}
			grow(size, stream, pool);
		}
	}

	void free(uint64_t address, bool waits)
	{
		std::lock_guard<std::recursive_mutex> lock(mutex);
		auto at = blocks.find(address);
		uint64_t size = at->second.size;

		allocated -= size;
		at->second.used = false;
		tell(TraceEntry::FREE_REQUESTED, address, at->second.requested, at->second.stream, at->second.pool);
		if (waits)
			at->second.waits = true;
		else
			release(at);
		report(address, -(int64_t)size);
	}

	void empty_cache()
	{
		std::lock_guard<std::recursive_mutex> lock(mutex);

		for (auto at = blocks.begin(); at != blocks.end();) {
			const Block block = at->second;
			auto segment = std::prev(segments.upper_bound(block.address));
			uint64_t start = block.address, end = start + block.size;

			if (segment->second.mapped) { /* whole pages go, whatever they were mapped with */
				start = (start + (2 << 20) - 1) & -uint64_t(2 << 20);
				end &= -uint64_t(2 << 20);
			}
			if (block.used || block.waits || start >= end ||
			    (!segment->second.mapped && (start != segment->first || end - start != segment->second.size))) {
				++at;
				continue;
			}
			reserved -= end - start;
			tell(segment->second.mapped ? TraceEntry::SEGMENT_UNMAP : TraceEntry::SEGMENT_FREE, start, end - start, block.stream, block.pool);
			at = blocks.erase(at);
			if (segment->second.mapped) {
				unmap(start, end);
				if (start > block.address)
					blocks[block.address] = Block{block.address, start - block.address, 0, block.stream, block.pool, false, false};
				if (end < block.address + block.size)
					blocks[end] = Block{end, block.address + block.size - end, 0, block.stream, block.pool, false, false};
				at = blocks.upper_bound(end);
			} else {
				driver_give(start);
				segments.erase(segment);
			}
		}
	}

	void unmap(uint64_t start, uint64_t end)
	{
		for (auto at = segments.begin(); at != segments.end();) {
			uint64_t from = at->first, to = from + at->second.size;
			Segment segment = at->second;

			if (to <= start || from >= end) {
				++at;
				continue;
			}
			at = segments.erase(at);
			if (from < start)
				segments[from] = Segment{start - from, segment.stream, segment.pool, true};
			if (to > end)
				segments[end] = Segment{to - end, segment.stream, segment.pool, true};
		}
	}
};

class NativeCachingAllocator : public CUDAAllocator {
public:
	std::vector<std::unique_ptr<DevicePool>> pools;
	std::map<uint64_t, int8_t> devices;
	std::mutex mutex;

	bool initialized() override { return !pools.empty(); }
	void init(int count) override
	{
		while ((int)pools.size() < count) {
			pools.emplace_back(new DevicePool);
			pools.back()->device = (int8_t)(pools.size() - 1);
		}
	}
	void *malloc(int8_t device, size_t bytes, uint64_t stream, MempoolId pool) override
	{
		void *block = pools[(size_t)device]->malloc(bytes, stream, pool);
		std::lock_guard<std::mutex> lock(mutex);

		devices[reinterpret_cast<uint64_t>(block)] = device;
		return block;
	}
	void free(void *block, bool waits) override
	{
		uint64_t address = reinterpret_cast<uint64_t>(block);
		int8_t device;
		{
			std::lock_guard<std::mutex> lock(mutex);
			device = devices[address];
			devices.erase(address);
		}
		pools[(size_t)device]->free(address, waits);
	}
	void attachAllocatorTraceTracker(Tracker tracker) override
	{
		for (auto &pool : pools) {
			std::lock_guard<std::recursive_mutex> lock(pool->mutex);
			pool->trackers.emplace_back(tracker);
		}
	}
	std::string name() override { return "native"; }
};

static NativeCachingAllocator native;

} // namespace Native

namespace CudaMallocAsync {
class CudaMallocAsyncAllocator : public Native::NativeCachingAllocator {
	void attachAllocatorTraceTracker(Tracker) override { throw 1; }
	std::string name() override { return "cudaMallocAsync"; }
};
static CudaMallocAsyncAllocator other;
}

#ifdef ASYNC
#define CHOSEN CudaMallocAsync::other
#else
#define CHOSEN Native::native
#endif
struct Initializer {
	Initializer() { allocator.store(&CHOSEN); }
};
static Initializer initializer;

}}}

using namespace c10::cuda::CUDACachingAllocator;

extern "C" PUBLIC void pool_driver(uint64_t (*take)(uint64_t), void (*give)(uint64_t))
{
	Native::driver_take = take;
	Native::driver_give = give;
}
extern "C" PUBLIC void pool_expand(bool on)
{
	for (auto &pool : CHOSEN.pools)
		pool->expandable = on;
}
extern "C" PUBLIC void pool_drain()
{
	for (auto &pool : CHOSEN.pools) {
		std::lock_guard<std::recursive_mutex> lock(pool->mutex);
		pool->drain();
	}
}
extern "C" PUBLIC void pool_empty_cache()
{
	for (auto &pool : CHOSEN.pools)
		pool->empty_cache();
}
// What the pool of device 0 has, as a line of JSON.
extern "C" PUBLIC std::string *pool_truth()
{
	auto &pool = *CHOSEN.pools[0];
	std::lock_guard<std::recursive_mutex> lock(pool.mutex);
	std::map<std::string, uint64_t> blocks, pools;
	uint64_t requested = 0, active = 0, waiting = 0, waits = 0, count = 0;
	auto place = [](uint64_t stream, MempoolId of) {
		return std::to_string(stream) + " " + std::to_string(of.first) + "-" + std::to_string(of.second);
	};
	auto text = [](const std::map<std::string, uint64_t> &map) {
		std::string out;
		for (const auto &item : map)
			out += (out.empty() ? "\"" : ", \"") + item.first + "\": " + std::to_string(item.second);
		return "{" + out + "}";
	};
	std::string segments;

	for (const auto &item : pool.blocks) {
		const auto &block = item.second;
		if (block.used) {
			blocks[place(block.stream, block.pool) + " size"] += block.size;
			blocks[place(block.stream, block.pool) + " requested"] += block.requested;
		}
		if (block.waits) {
			waiting += block.size;
			waits += block.requested;
			count++;
		}
		if (block.used || block.waits) {
			requested += block.requested;
			active += block.size;
		}
	}
	for (const auto &item : pool.segments) {
		pools[place(item.second.stream, item.second.pool)] += item.second.size;
		segments += (segments.empty() ? "[" : ", [") + std::to_string(item.first) + ", " + std::to_string(item.second.size) + ", " +
			    (item.second.mapped ? "true]" : "false]");
	}
	return new std::string("{\"requested\": " + std::to_string(requested) + ", \"active\": " + std::to_string(active) +
			       ", \"allocated\": " + std::to_string(pool.allocated) + ", \"reserved\": " + std::to_string(pool.reserved) +
			       ", \"blocks\": " + text(blocks) + ", \"segments\": [" + segments + "], \"pools\": " + text(pools) +
			       ", \"waiting\": {\"size\": " + std::to_string(waiting) + ", \"requested\": " + std::to_string(waits) +
			       ", \"blocks\": " + std::to_string(count) + "}}");
}
