/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks and where they lie; private to src/twin.
 *
 * A block is a row of one table and is known by its number; 0 is no block. The blocks of a segment or arena form a list in
 * the order of their addresses. A shelf has the free blocks of one lane and kind (small or large) in a tree, ordered by size
 * and then by address (or by the age of the object, releases.def), and in a second tree the parts of arenas that are not
 * mapped, ordered by address. The trees are treaps: the shape depends on priorities that come from block numbers, so every
 * operation takes logarithmic time whatever the sizes are, and equal runs make equal trees.
 */
#ifndef MSCOPE_TWIN_SHELVES_H
#define MSCOPE_TWIN_SHELVES_H

#include <stdbool.h>

#include "base/compiler.h"
#include "twin/twin.h"

struct block {
	/* Position in a tree; set when the block is put there. */
	uint64_t key;
	uint64_t tie;
	uint32_t left, right;
	/* Neighbours in the segment or arena; 0: none. */
	uint32_t prev, next;
	uint64_t address;
	uint64_t size;
	uint64_t requested; /* while in use */
	uint64_t object;    /* number of the object, in order of creation */
	uint64_t searches;  /* of the pool when the block became free: its age counts from there */
	uint32_t priority;
	uint32_t shelf;
	uint32_t segment; /* number of the segment or arena, for the comparison of equal blocks */
	uint32_t arena;	  /* 0: an ordinary segment; else the arena's number from 1 */
	bool used;	  /* handed out, or its free is not complete */
	bool asked;	  /* its free was asked for */
	bool mapped;
};

struct shelf {
	uint32_t free;	   /* roots of the trees */
	uint32_t unmapped; /* only of arenas */
	bool small;
	bool private_pool;
	bool unused; /* a private pool that no graph uses any more */
};

struct arena {
	uint64_t address;
	uint64_t bytes;
	uint64_t unit;
};

/* What is left of a piece of addresses that the driver took for a segment. */
struct driver_rest {
	uint64_t address, bytes;
};

#define DRIVER_RESTS 64u

struct twin {
	struct twin_conditions conditions;
	struct twin_figures figures;
	struct block *blocks; /* 0 is no block */
	size_t block_count, block_room;
	uint32_t spare;	       /* first of the unused rows, linked by `next` */
	struct shelf *shelves; /* two for each lane: large, small */
	size_t shelf_count, shelf_room;
	struct arena *arenas;
	size_t arena_count, arena_room;
	uint64_t objects;      /* created so far */
	uint64_t searches;     /* of the large pool that is not private: what ages of gc count */
	int captures;	       /* private pools that requests go to */
	uint64_t driver_bytes; /* given by the driver now */
	uint64_t next_low, next_high, next_arena; /* places.c */
	struct driver_rest driver_rests[DRIVER_RESTS];
	uint32_t driver_rest_last;
	uint64_t placed;
	uint32_t segment_count; /* segments and arenas so far */
	uint32_t older_rest; /* older.c: what is free, or not mapped, after what was added last */
	/* So many objects were there when the record began, in an order that it does not tell. */
	uint64_t older_objects;
	uint64_t recorded; /* address that the next request has in the record; 0: not known */
	bool left_record;
	bool ties;
	bool split; /* the last request got a part of a free block */
};

/* A new block without neighbours, in no tree. 0 when memory is out. */
uint32_t block_make(struct twin *twin, uint32_t shelf, uint64_t address, uint64_t size);
/* Forgets a block that is in no tree; its neighbours become neighbours. */
void block_drop(struct twin *twin, uint32_t block);
/* Puts `block`, which has no neighbours, before or after `where`. */
void block_link_before(struct twin *twin, uint32_t block, uint32_t where);
void block_link_after(struct twin *twin, uint32_t block, uint32_t where);

static inline struct block *block_at(const struct twin *twin, uint32_t block)
{
	return &twin->blocks[block];
}

/* Puts a block onto its shelf, with the free ones or with those that are not mapped. */
void shelf_put(struct twin *twin, uint32_t block);
void shelf_take(struct twin *twin, uint32_t block);
/* First free block of at least `size` bytes; the one after `block`; the last one below `size`; the first one. 0: none. */
uint32_t shelf_find(const struct twin *twin, uint32_t shelf, uint64_t size);
uint32_t shelf_after(const struct twin *twin, uint32_t block);
uint32_t shelf_below(const struct twin *twin, uint32_t shelf, uint64_t size);
uint32_t shelf_before(const struct twin *twin, uint32_t block);
uint32_t shelf_first(const struct twin *twin, uint32_t shelf);
/* First part that is not mapped at or above `address`. */
uint32_t shelf_unmapped(const struct twin *twin, uint32_t shelf, uint64_t address);

/* Joins `block`, which is in no tree, with its neighbours that are free and mapped alike. The result is `block`. */
void block_join(struct twin *twin, uint32_t block);

/* ---- twin.c ---- */

/* Changes what is reserved; a positive amount is a call of the driver that gave, a negative one that took. */
void reserved_add(struct twin *twin, uint64_t bytes);
void reserved_subtract(struct twin *twin, uint64_t bytes);
/* A block was handed out. */
void figures_take(struct twin *twin, uint32_t block);
/* Whether the driver has `bytes` more. */
bool driver_has(const struct twin *twin, uint64_t bytes);

/* ---- places.c ---- */

/* Address of a new segment or arena; 0: the record has none. */
uint64_t place_segment(struct twin *twin, uint32_t lane, uint64_t bytes);
uint64_t place_arena(struct twin *twin, uint32_t lane, uint64_t bytes, uint64_t first_bytes);
/* A segment went back; its addresses may be given again. */
void place_back(struct twin *twin, uint64_t address, uint64_t bytes);

/* ---- arenas.c ---- */

/* A new arena, of which nothing is mapped. 0 or -ENOMEM. */
int arena_make(struct twin *twin, uint32_t shelf, uint64_t address, uint64_t bytes,
	       uint32_t *out_block);
/* How many addresses an arena of a shelf has. */
uint64_t arena_bytes(const struct twin *twin, uint32_t shelf);
/* A mapped free block of at least `size` bytes that is in no tree; TWIN_NONE in `out_block` when the driver has no more. */
int arena_request(struct twin *twin, uint32_t shelf, uint64_t size, uint32_t *out_block);
/* Unmaps the whole units of a free block on its shelf. 0 or -ENOMEM. */
int arena_unmap(struct twin *twin, uint32_t block);

/* ---- giving_back.c ---- */

/* Gives every segment that is free as a whole back to the driver. 0 or -ENOMEM. */
int release_all(struct twin *twin);
/* With max_split_size_mb: gives large blocks back until `size` bytes are there. Whether that was enough. */
bool release_available(struct twin *twin, uint32_t shelf, uint64_t size);
/* Garbage collection before a new segment. */
void collect_garbage(struct twin *twin);

#endif
