/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A twin of PyTorch's caching allocator: the same requests get the same blocks at the same addresses as from the allocator
 * of a release under given settings, without a device and without PyTorch.
 *
 * Requests come in lanes. A lane is a stream of one pool: the pool that every program has, or a private one (CUDA graphs,
 * MemPool). Blocks never move between lanes. A lane has two shelves, for small and for large blocks.
 *
 *     release.c              which rules hold for a release        allocator_settings.c   settings as figures
 *     block_sizes.c          rounding, choice of pool and segment  shelves.c              blocks, free blocks in order
 *     twin.c                 malloc and free                       arenas.c               expandable segments
 *     giving_back.c          empty_cache, retries, gc              places.c               where the driver puts segments
 *     pool_history.c         what a record tells                   program.c              played under one condition after another
 *     record_replay.c        the record against itself             older.c                state before the first event
 *     older_maps.c           expandable segments before it         older_arenas.c         the same as arenas
 *     pairing.c              requests of two runs                  batches.c              the same program with another batch
 *
 * Not thread-safe; several twins may run at once. The owner frees a twin with twin_free().
 */
#ifndef MSCOPE_TWIN_TWIN_H
#define MSCOPE_TWIN_TWIN_H

#include <stdbool.h>

#include "base/compiler.h"
#include "twin/allocator_settings.h"
#include "twin/release.h"

struct twin;

/* Where the driver puts what it gives. */
enum twin_order {
	TWIN_ASCENDING,
	TWIN_DESCENDING,
	TWIN_RANDOM,	  /* by `seed` */
	TWIN_LIKE_DRIVER, /* as CUDA's driver mostly does it; what was given back is not given again */
};

/*
 * Addresses that somebody else decides, for the replay of a record. `place` gives the address of a new segment of `bytes`,
 * or of the arena whose first `bytes` are mapped; 0: the record has none, and the request is refused with left_record.
 */
struct twin_places {
	uint64_t (*place)(void *context, uint32_t lane, uint64_t bytes, bool arena);
	void *context;
};

struct twin_conditions {
	struct twin_release release;
	struct twin_settings settings;
	uint64_t device_bytes;	 /* memory of the device: size of arenas */
	uint64_t capacity_bytes; /* what the driver can give in all; UINT64_MAX: no end */
	uint64_t limit_bytes;	 /* what the pool may reserve; UINT64_MAX: not limited */
	enum twin_order order;
	uint64_t seed;
	const struct twin_places *places; /* NULL: `order` decides */
};

struct twin_figures {
	uint64_t reserved, reserved_peak;
	uint64_t active, active_peak;	      /* until the free is complete */
	uint64_t in_use, in_use_peak;	      /* until the free is asked for */
	uint64_t requested, requested_peak;   /* as in_use, before rounding */
	uint64_t device_allocs, device_frees; /* calls of the driver */
	uint64_t retries, refusals;
};

#define TWIN_NONE UINT32_MAX

/* 0 or -ENOMEM. */
int twin_new(const struct twin_conditions *conditions, struct twin **out);
void twin_free(struct twin *twin);

/* Makes lane `lane` known; `private_pool` says that its pool is given back only after twin_pool_unused(). */
int twin_lane(struct twin *twin, uint32_t lane, bool private_pool);
void twin_pool_unused(struct twin *twin, uint32_t lane);
/* Requests begin, or end, to go to a private pool: a graph is captured, or a MemPool is in use. */
void twin_capturing(struct twin *twin, bool begins);

/*
 * Requests `bytes` in a lane. 0 and the number of a block, or TWIN_NONE in `out_block` when it is refused as out of memory.
 * -ENOMEM when the twin itself has no memory.
 */
int twin_request(struct twin *twin, uint32_t lane, uint64_t bytes, uint32_t *out_block);
/* The program asked for the free; the block is not free before twin_release(). */
void twin_ask_free(struct twin *twin, uint32_t block);
/* The free is complete. Asks for it too if nobody did. 0 or -ENOMEM. */
int twin_release(struct twin *twin, uint32_t block);
/* empty_cache(). 0 or -ENOMEM. */
int twin_empty_cache(struct twin *twin);

/* Gives back the free segment at an address, or the free part of an arena there. `out_done` says whether there was one. 0 or -ENOMEM. */
int twin_give_back(struct twin *twin, uint64_t address, bool *out_done);

/*
 * Maps a part of an expandable segment for a request of `request` bytes, or of a new one if none has the address. `out_done` says
 * whether the part can be mapped next there. 0 or -ENOMEM.
 */
int twin_map_part(struct twin *twin, uint32_t lane, uint64_t request, uint64_t address,
		  uint64_t bytes, bool *out_done);

uint64_t twin_address(const struct twin *twin, uint32_t block);
uint64_t twin_size(const struct twin *twin, uint32_t block);
const struct twin_figures *twin_figures(const struct twin *twin);
/* Whether equal free blocks of different segments were chosen from, so that the order of addresses decided. */
bool twin_had_ties(const struct twin *twin);
/* Whether the last request that was served got a part of a free block, so that the block has just its size. */
bool twin_was_split(const struct twin *twin);
/* Whether `places` had no address for a segment that the twin wanted. */
bool twin_left_record(const struct twin *twin);

/*
 * State at the start of a record: segments that exist already, then the blocks in them that are in use, by ascending address. `bytes` of
 * a block may be 0: the size that its request would get. TWIN_NONE in `out_block`: no segment has free room there. 0 or -ENOMEM.
 */
int twin_add_segment(struct twin *twin, uint32_t lane, uint64_t address, uint64_t bytes,
		     bool small);
int twin_add_block(struct twin *twin, uint64_t address, uint64_t bytes, uint64_t requested,
		   uint32_t *out_block);
/* An expandable segment, then the ranges of it that are mapped, by ascending address. 0 or -ENOMEM. */
int twin_add_arena(struct twin *twin, uint32_t lane, bool small, uint64_t address);
int twin_add_mapped(struct twin *twin, uint64_t address, uint64_t bytes);

/* All of that state is there. */
void twin_older_done(struct twin *twin);
/* The address that the record has for the next request: it decides between blocks whose order the record does not tell. */
void twin_expect(struct twin *twin, uint64_t address);

/* The limit that a memory fraction sets, as `release` computes it; UINT64_MAX: none. */
uint64_t twin_limit_of_fraction(const struct twin_release *release, double fraction,
				uint64_t device_bytes);

#endif
