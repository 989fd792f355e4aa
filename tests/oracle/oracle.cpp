// SPDX-License-Identifier: Apache-2.0
// Plays a list of requests with the real caching allocator of libc10_cuda.so, on cuda_standin.c in place of a device. Standard input is
// a line "run" and then events, standard output as of tests/twin/twin_player.c; PYTORCH_CUDA_ALLOC_CONF has the settings, STANDIN_BYTES
// the device's memory.
#include <c10/cuda/CUDACachingAllocator.h>

#if __has_include(<c10/cuda/PeerToPeerAccess.h>)
#include <c10/cuda/PeerToPeerAccess.h>
#define ORACLE_PEERS
#endif

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unordered_map>
#include <unistd.h>

namespace alloc = c10::cuda::CUDACachingAllocator;

#ifndef ORACLE_STATS
#define ORACLE_STATS c10::CachingDeviceAllocator
#endif

static int64_t current(const ORACLE_STATS::StatArray &array)
{
	return array[0].current;
}

static int64_t peak(const ORACLE_STATS::StatArray &array)
{
	return array[0].peak;
}

// The private pool of an entry; -1: the release does not say it.
template <class Entry> static auto pool_of(const Entry &entry, int) -> decltype(static_cast<long>(entry.mempool_.first))
{
	return static_cast<long>(entry.mempool_.first);
}

template <class Entry> static long pool_of(const Entry &, long)
{
	return -1;
}

// With ORACLE_HISTORY set: a line for each entry of the allocator's own history, as a memory snapshot has them.
static void print_entry(const alloc::TraceEntry &entry)
{
	static const char *const actions[] = {"alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map",
					      "segment_unmap", "snapshot", "oom"};

	if (static_cast<size_t>(entry.action_) < sizeof(actions) / sizeof(actions[0]))
		printf("history %s %zu %zu %zu %ld\n", actions[entry.action_], static_cast<size_t>(entry.addr_), entry.size_,
		       reinterpret_cast<size_t>(entry.stream_), pool_of(entry, 0));
}

// The same: the segments and blocks at the end.
static void print_segments()
{
	auto info = alloc::snapshot();

	for (const auto &segment : info.segments) {
		printf("segment %zu %zu %zu %d %d %zu\n", static_cast<size_t>(segment.address), static_cast<size_t>(segment.total_size),
		       reinterpret_cast<size_t>(segment.stream), segment.is_large, segment.is_expandable,
		       static_cast<size_t>(segment.owner_private_pool_id.first));
		for (const auto &block : segment.blocks)
			printf("block %zu %zu %d\n", static_cast<size_t>(block.size), static_cast<size_t>(block.requested_size), block.active);
	}
}

int main()
{
	std::unordered_map<uint64_t, void *> blocks;
	char line[1024];
	uint64_t event = 0;
	int64_t first = -1, refused = 0;

#ifdef ORACLE_PEERS
	c10::cuda::detail::init_p2p_access_cache(1);
#endif
	alloc::init(1);
#ifdef ORACLE_TRACKER
	if (getenv("ORACLE_HISTORY"))
		alloc::attachAllocatorTraceTracker(print_entry);
#endif
	while (fgets(line, sizeof line, stdin)) {
		uint64_t id, bytes, stream;

		if (!strncmp(line, "run ", 4)) {
			char fraction[32];

			if (sscanf(line, "run %*s %*s %31s", fraction) == 1 && strcmp(fraction, "-"))
				alloc::setMemoryFraction(strtod(fraction, nullptr), 0);
			continue;
		}
		if (sscanf(line, "a %" SCNu64 " %" SCNu64 " %" SCNu64, &id, &bytes, &stream) == 3) {
			try {
				void *p = alloc::raw_alloc_with_stream(bytes, reinterpret_cast<cudaStream_t>(stream * 16));
				blocks[id] = p;
				printf("%" PRIu64 " %" PRIx64 " %" PRId64 "\n", event, reinterpret_cast<uint64_t>(p),
				       current(alloc::getDeviceStats(0).reserved_bytes));
			} catch (const c10::OutOfMemoryError &) {
				if (first < 0)
					first = static_cast<int64_t>(event);
				refused++;
				printf("%" PRIu64 " oom 0\n", event);
			}
		} else if (sscanf(line, "f %" SCNu64, &id) == 1) {
			auto found = blocks.find(id);

			if (found != blocks.end()) {
				alloc::raw_delete(found->second);
				blocks.erase(found);
			}
		} else if (line[0] == 'e') {
			alloc::emptyCache();
#ifdef ORACLE_POOLS
		} else if (sscanf(line, "p %" SCNu64 " %" SCNu64, &id, &stream) == 2) {
			// As a graph's capture and a MemPool do it: what this stream requests goes to the pool.
			alloc::beginAllocateToPool(0, {id, 0}, [stream](cudaStream_t s) { return s == reinterpret_cast<cudaStream_t>(stream * 16); });
		} else if (sscanf(line, "q %" SCNu64, &id) == 1) {
			alloc::endAllocateToPool(0, {id, 0});
		} else if (sscanf(line, "r %" SCNu64, &id) == 1) {
			alloc::releasePool(0, {id, 0});
#endif
		}
		event++;
	}
	if (getenv("ORACLE_HISTORY"))
		print_segments();
	auto stats = alloc::getDeviceStats(0);
	printf("figures reserved_peak=%" PRId64 " active_peak=%" PRId64 " allocated_peak=%" PRId64 " requested_peak=%" PRId64
	       " reserved=%" PRId64 " retries=%" PRId64 " ooms=%" PRId64 " first_oom=%" PRId64 "\n",
	       peak(stats.reserved_bytes), peak(stats.active_bytes), peak(stats.allocated_bytes), peak(stats.requested_bytes),
	       current(stats.reserved_bytes), stats.num_alloc_retries, refused, first);
	fflush(stdout);
	_exit(0); // blocks that are left would be freed by destructors in an order of their own
}
