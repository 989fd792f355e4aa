/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a record tells about one pool on one device: requests, frees and segments in order, and the state before the first of
 * them. A reader of a trace or of a snapshot fills it; program.h plays it.
 *
 * The owner zeroes a history first and ends with pool_history_fini(). Not thread-safe.
 */
#ifndef MSCOPE_TWIN_POOL_HISTORY_H
#define MSCOPE_TWIN_POOL_HISTORY_H

#include <stdbool.h>

#include "base/compiler.h"

enum history_kind {
	HISTORY_ALLOC,
	HISTORY_FREE_ASKED, /* the program freed it; other streams may still use it */
	HISTORY_FREE_DONE,  /* its memory can be handed out again */
	HISTORY_SEGMENT,    /* the driver gave a segment */
	HISTORY_SEGMENT_GONE,
	HISTORY_MAP, /* the driver mapped a part of an expandable segment */
	HISTORY_UNMAP,
	HISTORY_REFUSED, /* a request was refused: out of memory */
	HISTORY_EMPTY_CACHE,
};

struct history_event {
	uint64_t address;
	uint64_t bytes; /* as requested; of segments: their size */
	uint64_t stream;
	uint64_t private_pool; /* 0: of none */
	uint64_t time_ns;      /* since the epoch; 0: unknown */
	uint32_t step;	       /* in progress, from 1; 0: none */
	uint32_t site;	       /* of a request: number of its call site, from 1; 0: unknown */
	uint8_t kind;
};

/* A segment that existed before the first event, and a block in it that was in use. */
struct history_segment {
	uint64_t address, bytes, stream, private_pool;
	bool small;
	bool kind_unknown; /* whether it is small shows in its blocks */
	bool expandable;   /* a range of an expandable segment that was mapped */
};

struct history_block {
	uint64_t address;
	uint64_t bytes;	    /* of the block; 0: unknown, requested and rounded */
	uint64_t requested; /* 0: unknown */
	uint64_t stream, private_pool;
};

/* A call site. */
struct history_site {
	uint64_t hash; /* of its text, the same in other runs; never 0 */
	char *name;    /* as a person knows it */
};

struct pool_history {
	struct history_event *events;
	size_t event_count, event_room;
	struct history_segment *segments;
	size_t segment_count, segment_room;
	struct history_block *blocks;
	size_t block_count, block_room;
	struct history_site *sites;
	size_t site_count, site_room;
	uint32_t device;
	char torch[32];	    /* release; "": unknown */
	char settings[512]; /* in force at the start */
	bool settings_known;
	bool settings_changed;	/* while the record was made */
	bool empty_cache_known; /* calls that freed nothing are in the record too */
	uint64_t device_bytes;	/* 0: unknown */
	/* Of the device, what others than the pool used at its peak; 0: unknown. */
	uint64_t outside_bytes;
	double fraction;    /* memory fraction in force; 0: none is known */
	bool fraction_late; /* it was set when the pool had memory, or changed */
	bool npu;
	bool blocks_only; /* sizes are those of blocks, as the pool rounded them; streams and late frees are unknown */
};

void pool_history_fini(struct pool_history *history);
/* 0 or -ENOMEM. */
int pool_history_add(struct pool_history *history, const struct history_event *event);
int pool_history_add_segment(struct pool_history *history, const struct history_segment *segment);
int pool_history_add_block(struct pool_history *history, const struct history_block *block);

/* Where settings are unknown, or were told before they changed: expandable segments in the record say that they were on. */
void pool_history_assume_settings(struct pool_history *history);

/* The number of a new call site; 0: no memory. */
uint32_t pool_history_add_site(struct pool_history *history, uint64_t hash, const char *name);

/*
 * Turns segments and blocks of the end into those of the start, by going back through the events. 0 or -ENOMEM. What does not
 * fit together is left: the replay of the record finds it.
 */
int pool_history_rewind(struct pool_history *history);
/* The same of expandable segments alone (older_maps.c). */
int pool_history_rewind_maps(struct pool_history *history);

#endif
