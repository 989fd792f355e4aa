/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run: the trace of one process image as a stream of events in time order. It reads a raw file while it grows, a raw file
 * that was left behind, a packed file, or a raw file together with its packed part; reading is the same as recovering.
 *
 *     run_open()                       once
 *     run_poll(), run_next()...        while the process lives, again and again
 *     run_poll(final), run_next()...   to the end
 *
 * Events of all writers are merged by time, ties by writer. A live run returns only events below the watermark, so nothing comes
 * late: the watermark is now, or the last time of any writer that is busy. Nothing in a file is trusted; what is malformed is
 * skipped and counted in struct run_damage. One thread uses a run at a time.
 */
#ifndef MSCOPE_TRACE_RUN_H
#define MSCOPE_TRACE_RUN_H

#include <stdbool.h>

#include "base/status.h"
#include "trace/chunk.h"
#include "trace/record.h"

struct trace_event {
	uint32_t type;
	uint32_t context;
	uint32_t writer;
	uint32_t tid;	       /* thread that wrote it, 0 before the first thread record */
	uint64_t time_ns;      /* monotonic */
	const uint64_t *words; /* the whole record, valid until the next run_next() */
	uint32_t bytes;
	/* Of a variable record, behind the fixed part as this trace's table has it. */
	const uint8_t *payload;
	uint32_t payload_bytes;
	uint32_t sequence; /* of its chunk, among those of the writer */
};

struct run_damage {
	uint64_t bad_chunks;	 /* with a malformed header */
	uint64_t missing_chunks; /* gaps in a writer's sequence */
	uint64_t bad_records;	 /* chunks whose rest was skipped at a malformed record */
	uint64_t skipped_bytes;	 /* in all of these */
	/* Made by the process, and in none of the chunks that could be read. */
	uint64_t lost_records;
	bool cut; /* a packed trace without its end: more may have followed */
	/* Headers of the raw file, or of chunks in it, had words that cannot be: the program wrote over them. */
	bool overwritten;
	bool truncated;	      /* the raw file was cut while its process lived */
	uint64_t late_events; /* came below an earlier watermark; must be 0 */
};

/* A chunk that has been read to its end, for the engine to pack. */
struct run_chunk {
	uint32_t number; /* in the raw file */
	uint32_t writer;
	uint32_t sequence;
	uint64_t base_ns;
	const void *records;
	uint32_t bytes;
};

struct run;

/*
 * Opens what there is of one run: `raw_path` and `pack_path` may be NULL, not both. With `live`, the raw file is mapped and may
 * grow. MSCOPE_E_FOREIGN, MSCOPE_E_VERSION, MSCOPE_E_TRUNCATED or -errno with a sentence in `err`.
 */
int run_open(const char *raw_path, const char *pack_path, bool live, struct run **out,
	     struct mscope_error *err);

/*
 * Opens a run that an engine follows, to read beside it: nothing is written to its files. What the engine has packed and given back
 * to the writers is read from its part, which may not be there yet. run_poll() returns -ESTALE when the engine has dropped chunks
 * that were not read: the run has to be opened anew. What the engine puts in itself comes late.
 */
int run_observe(const char *raw_path, const char *pack_path, struct run **out,
		struct mscope_error *err);
/* Whether the next run_poll() returns that: what run_next() returned is not all there was. */
bool run_is_stale(const struct run *run);
void run_close(struct run *run);

/*
 * Header as it stood at the last run_poll(), valid until run_close(). Words in it are possible; one that was not is as it was before.
 * The live one is the raw file's own, mapped: the traced program may have written anything to it.
 */
const struct trace_header *run_header(const struct run *run);
struct trace_header *run_header_live(struct run *run);

/* About how many events are not read yet: by the bytes that they take. */
uint64_t run_left_events(const struct run *run);

/* Notes which signal killed the process. */
void run_killed_by(struct run *run, uint32_t signal);

/* Whether the process registered for expedited barriers. */
bool run_has_barrier(const struct run *run);

/* A value of the identity text, or NULL. */
const char *run_identity(const struct run *run, const char *key);
/* The device of a dry run, such as npu:64G; NULL: a device was used. */
const char *run_dry(const struct run *run);
/* Settings of PyTorch's allocator in the environment of the process; "" if there were none. */
const char *run_torch_settings(const struct run *run, bool npu);

/* Key and value of the identity of an imported memory snapshot of PyTorch: its contexts have the stream in their flags. */
#define RUN_SOURCE_KEY "source"
#define RUN_SNAPSHOT   "pytorch-snapshot"
bool run_is_snapshot(const struct run *run);

/* Another key of such a trace: how often its call sites come round (import/snapshot_rounds.h). Fewer than the least say nothing of leaks. */
#define RUN_ROUNDS_KEY "rounds"
#define RUN_ROUNDS_MIN 8u
uint64_t run_rounds(const struct run *run);

/* The first `bytes` bytes of the raw file that describe the run: header, identity, event table. */
const void *run_preamble(const struct run *run, uint32_t *out_bytes);

/* Called when a chunk has been read to its end and is sealed (or the run is final). */
typedef void run_consumed(void *arg, const struct run_chunk *chunk);
void run_on_consumed(struct run *run, run_consumed *consumed, void *arg);

/* Calls `each` for every chunk that is being read, as far as it has been read. */
void run_each_open(struct run *run, run_consumed *each, void *arg);

/*
 * Looks for new chunks and records. `now_ns` was read before a barrier that all writers passed (see engine/follow.c); 0 when
 * there was none, then nothing new is returned yet. `final`: no process writes any more, everything is returned.
 */
int run_poll(struct run *run, uint64_t now_ns, bool final);

/* The next event in order; false when there is none below the watermark. */
bool run_next(struct run *run, struct trace_event *out);

#define RUN_FREE_MIN 64u /* free chunks that are always kept */

/* Gives a consumed chunk of a live run back to the writers, or its space to the disk. Its memory must not be read afterwards. */
void run_release(struct run *run, uint32_t number);

/*
 * Puts a record of the engine's own (fixed shape, word 0 is filled in here) into a live run, at `time_ns` or at the watermark if
 * that is later, so that it never comes late. It becomes part of the packed trace like any other.
 */
int run_inject(struct run *run, uint32_t type, uint64_t time_ns, uint64_t *words, uint32_t count);

/*
 * Makes a chunk of the records that were put in and have been read, so that it is packed and those beside the engine get it. False:
 * there are none, or some have not been read yet.
 */
bool run_inject_flush(struct run *run);

/* Number of a consumed chunk that lies in no raw file. */
#define RUN_CHUNK_NONE UINT32_MAX

/* Takes disk space for `ahead` chunks beyond those handed out, so that writers need not. -errno when there is none. */
int run_reserve(struct run *run, uint32_t ahead);

/* Whether the process that writes the raw file, or a child of it, still has it mapped. 1, 0, or negative when nothing tells. */
int run_is_mapped(struct run *run);

/* Chunks that writers have taken so far, modulo 2^32. */
uint32_t run_taken(struct run *run);

/*
 * Puts unused chunks into the ring of free ones until `free_wanted` are there, at most `most` now. Zeros are written to them first: a
 * writer that takes one finds its pages in the page cache, while sixteen threads that each make pages of one file wait for each
 * other. As many chunks, four times over, are kept when they come back. -errno.
 */
int run_make_ready(struct run *run, uint32_t free_wanted, uint32_t most);

/* Everything below this time has been returned or is about to be; UINT64_MAX when no process writes any more. */
uint64_t run_watermark_ns(const struct run *run);

const struct run_damage *run_damage(const struct run *run);

/* True when older chunks were dropped and a checkpoint stands in their place: rows before it cannot be made again. */
bool run_is_checkpointed(const struct run *run);

/*
 * Makes the preamble describe records of this version, so that a checkpoint can be put before those of the run. False when records
 * of the run, other than those of a checkpoint, are laid out in another way; nothing has changed then.
 */
bool run_adopt_layout(struct run *run);

/* Wall clock of a record's time. */
uint64_t run_wall_ns(const struct run *run, uint64_t time_ns);

/*
 * Bytes of packed blocks of kind FRAMES, unpacked and joined; NULL when there are none. The caller frees them: they may be tens of
 * megabytes that are needed once. They are read again for another caller.
 */
void *run_take_frames(struct run *run, size_t *out_bytes);

#endif
