/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What changed in watched memory since it was dumped last, byte by byte. A copy of each watched range is kept for that, COPIES_MAX
 * bytes in all; of ranges that there is no room for, only that they changed is known. Where a device makes checksums of chunks
 * itself, those are kept, too: chunks that have the same one as before need not be looked at. Needs nothing of the collector; the
 * caller sees to it that one thread at a time is in here.
 */
#ifndef MSCOPE_COLLECTOR_WATCH_COMPARE_H
#define MSCOPE_COLLECTOR_WATCH_COMPARE_H

#include "collector/watch/watch_calls.h"
#include "collector/watch/watch_plan.h"

#define COPIES_MAX    (UINT64_C(1) << 30)
#define BYTES_UNKNOWN UINT64_MAX

/* Offsets in the range. */
struct watch_change {
	bool compared;	      /* there was something to compare it with */
	uint64_t bytes;	      /* that changed; BYTES_UNKNOWN: some */
	uint64_t stray_bytes; /* of these, those that no call in progress declared to write */
	uint64_t first, last; /* of these */
};

struct comparison {
	struct watch_change change;
	/* What may change: offsets, sorted, without overlaps. */
	struct watch_span allowed[WATCH_SPANS];
	uint32_t allowed_count;
	uint32_t entry;	   /* of the range in its table */
	uint64_t bytes;	   /* of the range */
	uint8_t *copy;	   /* NULL: there is none */
	uint64_t compared; /* bytes of the copy that hold what the last dump had */
	uint64_t *sums;	   /* of chunks; NULL: they are not used */
	uint64_t summed;   /* chunks whose sums are those of the last dump */
};

struct chunk_run {
	uint64_t first, end; /* numbers of chunks */
};

/* Begins with the range of an entry; `fresh`: it was not dumped before. `allowed` is set by the caller. */
void compare_begin(struct comparison *comparison, uint32_t entry, uint64_t bytes, bool fresh);

/* The next piece of what it holds now. */
void compare_piece(struct comparison *comparison, uint64_t at, const uint8_t *data, size_t bytes);

/*
 * The same by sums of chunks: begins, with so many; false: there is no room for them. Of the `count` sums from chunk `at` on, the
 * next run of chunks from `from` on that are to be read and handed to compare_piece(), because they changed or nothing is known of
 * them; false: there is none. Then the sums are kept.
 */
bool compare_sums_begin(struct comparison *comparison, uint64_t chunks);
bool compare_next(struct comparison *comparison, uint64_t at, const uint64_t *sums, uint64_t count,
		  uint64_t from, struct chunk_run *out);
void compare_sums_keep(struct comparison *comparison, uint64_t at, const uint64_t *sums,
		       uint64_t count);

/* `bytes` of it could be read. */
void compare_end(struct comparison *comparison, uint64_t bytes, uint64_t checksum);

/* The range of an entry is no longer watched. */
void compare_forget(uint32_t entry);
void compare_reset(void);

#endif
