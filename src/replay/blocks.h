/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The live blocks: allocations and frees make them come and go, rows tell of both. A block lies in a slot, which it keeps until
 * no undo record can bring it back (undo.h). Blocks are found by what gives them back, and by any address inside them.
 */
#ifndef MSCOPE_REPLAY_BLOCKS_H
#define MSCOPE_REPLAY_BLOCKS_H

#include "replay/live.h"
#include "replay/ranges.h"
#include "replay/replay.h"

struct checkpoint;
struct writer;

/* As a writer that has freed a block: no undo record can bring it back. */
#define FREED_FOR_GOOD UINT32_MAX

struct blocks {
	struct block *all; /* slots; those in `live` live */
	size_t count, room;
	uint32_t *free_slots;
	size_t free_count, free_room;
	struct live live;
	struct ranges ranges; /* the live ones by address; kept once asked for */
	bool ranged;
	bool late; /* the program had blocks before it had hooks: frees of unknown blocks are expected */
};

void blocks_fini(struct replay *replay);

/*
 * Which blocks an address can be confused with: a driver's block and a framework's may share it, a handle and an address too.
 * The driver's pools are one space, because a free does not say which of them it means.
 */
uint8_t context_space(const struct context *context);

/*
 * Whether it is odd that a free finds no block. Host memory that was registered and not pinned has none, and blocks that are older than
 * the hooks of a program are not known.
 */
bool free_is_odd(const struct replay *replay, uint32_t context);

/* A block that a pool or driver handed out. */
struct new_block {
	uint64_t key, address, size_bytes;
	uint64_t requested_bytes; /* as in struct block, with the next two */
	uint32_t place;
	uint8_t segment_of;
	uint32_t stack;
};

/* A block came to be, in a context. `writer`, whose record it is, may be NULL. 0, -ENOMEM, or the code of the consumer. */
int blocks_allocate(struct replay *replay, const struct trace_event *event, struct writer *writer,
		    uint32_t context, const struct new_block *asked);

/* Makes the block in a slot live, found by `key`: its address, or its handle. Publishes nothing. 0 or -ENOMEM. */
int blocks_insert(struct replay *replay, uint8_t space, uint64_t key, uint32_t slot,
		  struct usage *usage, enum block_change change);

/* Puts a block into its usage, or takes it out, and tells the observer. */
void blocks_count(struct replay *replay, struct block *block, struct usage *usage,
		  enum block_change change);
void blocks_uncount(struct replay *replay, struct block *block, struct usage *usage);

/* Gives back the slot of a block that does not live. */
void blocks_release(struct blocks *blocks, uint32_t slot);

/* Ends a block without a row, as if it had been freed. 0 or -ENOMEM. */
int blocks_end(struct replay *replay, const struct live_entry *entry);

/* The same with the row of a free. */
int blocks_free(struct replay *replay, const struct trace_event *event,
		const struct live_entry *entry);

/* The live blocks in the order of allocation; NULL: no memory. The caller frees the list. */
struct block **blocks_sorted(const struct blocks *blocks, size_t *out_count);

/* Publishes the row of an allocation or a free. `event` is when and where. 0, or the code of the consumer. */
int blocks_publish(struct replay *replay, enum row_kind kind, const struct trace_event *event,
		   const struct block *block, const struct usage *usage, uint32_t stack,
		   bool shadow);

void blocks_save(const struct replay *replay, struct checkpoint *cp);

/* Appends a block to a checkpoint; `freed_by` is the writer that has freed it, 0: it lives. */
void blocks_save_block(const struct replay *replay, struct checkpoint *cp,
		       const struct block *block, uint64_t key, uint32_t freed_by);

/* True for a block of a device that nothing asked for. */
bool blocks_hide(const struct replay *replay, const struct block *block);

#endif
