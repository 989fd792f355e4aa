/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of a run, shared by run_open.c, run_live.c and run.c; other files use trace/run.h.
 *
 * Every writer of the run is a stream of pieces (chunks, by sequence). A stream that has a record stands in a heap by the time of
 * that record; a stream whose next piece is not opened yet stands there by the piece's base time, so that only as many chunks are
 * in memory as writers were active at one time.
 */
#ifndef MSCOPE_TRACE_RUN_STATE_H
#define MSCOPE_TRACE_RUN_STATE_H

#include "base/descriptors.h"
#include "base/map.h"
#include "trace/builder.h"
#include "trace/layout.h"
#include "trace/pack.h"
#include "trace/run.h"

struct piece {
	uint32_t sequence;
	uint32_t number; /* of the raw chunk, or of the packed entry */
	bool packed;
	uint64_t base_ns;
	uint64_t records_before; /* of a raw chunk, see struct chunk */
	/* How far writers_time_ns() has read ahead for the last time in it; live only. */
	bool scanned;
	uint32_t scan_at;
	uint64_t scan_base_ns;
	uint64_t scan_time_ns;
};

struct stream {
	uint32_t writer;
	uint32_t tid;
	struct piece *pieces; /* from `next` on not read yet; sorted by sequence */
	size_t piece_count, piece_room, next;
	bool opened; /* the piece before `next` is being read */
	bool in_heap;
	bool started;  /* a piece has been opened, so gaps can be counted */
	bool injected; /* the engine's own: its records are in run.injected */
	struct piece current;
	const struct chunk *chunk; /* of a live piece: its header */
	const uint8_t *data;	   /* the records of the piece */
	uint8_t *buffer;	   /* owns `data` unless it is injected */
	uint32_t buffer_room;
	uint32_t at, limit; /* bytes of `data` that were read, that there are */
	uint64_t base_ns;
	uint64_t time_ns; /* of the record at `at` */
	uint32_t bytes;	  /* its length */
	uint32_t read;	  /* records of the piece that were read */
	/* Records that the writer made up to the piece, where its raw chunks say so; `counts`: the piece before was such a one. */
	uint64_t made;
	bool counts;
};

struct run {
	bool live;
	/* Another process is the engine of this run; see run_observe.c. */
	bool observed;
	bool stale;	    /* a chunk that was not read is gone */
	char *part;	    /* path of the engine's part */
	uint64_t part_end;  /* where its next block begins */
	size_t part_listed; /* entries of `index` that have become pieces */
	bool final;
	struct lazy_file raw; /* no path: there is none; see raw_fd() */
	int pack_fd;
	uint64_t raw_size;
	struct trace_header *mapped; /* live: the raw file's own header and ring */
	/* Where chunks are, as of the header when it was checked: while live, the traced program can write to it. */
	uint32_t chunk_bytes, chunks_max, salt;
	uint64_t chunks_at;
	uint64_t latest_ns;    /* no record is younger; see run_poll() */
	uint64_t refreshed_ns; /* live: when the header was last read */
	uint64_t ring_head;    /* live: as we stored it last */
	uint8_t *preamble;     /* copy of header, identity and table */
	uint32_t preamble_bytes;
	struct layout_table layout;
	struct pack_index index;
	uint8_t *frames;
	size_t frames_bytes;
	struct stream *streams;
	size_t stream_count, stream_room;
	struct map by_writer; /* writer number -> index of its stream */
	size_t *heap;	      /* indices of streams */
	size_t heap_count, heap_room;
	/* No stream but the first of the heap has a record before it; 0: not known. */
	uint64_t rival_ns;
	/* The stream of the event that run_next() returned last; NULL once it was left. Streams are only added while it is NULL. */
	struct stream *last;
	uint64_t padded[64]; /* a record of an older version, with 0 for the fields that it lacks */
	uint64_t watermark_ns;
	uint64_t returned_ns; /* time of the latest event that run_next() returned */
	/* Live chunks: their mappings, and the numbers to check again. */
	struct chunk **chunks;
	size_t chunk_room;
	uint32_t scanned;
	bool overrun;	   /* next_chunk is beyond the file */
	uint32_t *waiting; /* taken but not published yet, or released and not taken again */
	size_t waiting_count, waiting_room;
	run_consumed *consumed;
	void *consumed_arg;
	uint32_t free_max; /* live: free chunks that are kept for writers; RUN_FREE_MIN at least */
	uint32_t made_ready;	 /* live: chunks that the engine took to fill them with zeros */
	bool checkpointed;	 /* older chunks were dropped and summed up */
	uint32_t as_writer;	 /* whose definitions follow in the checkpoint */
	bool settled;		 /* what the process made is compared with what was read */
	struct builder injected; /* records of run_inject() */
	struct run_damage damage;
};

/* More events than a process can make in a day and a half. */
#define TRACE_LOSS_MAX (UINT64_C(1) << 47)

/* ---- run_open.c ---- */

/* Descriptor of the raw file, for now; -errno. */
int raw_fd(struct run *run);

/* Whether there is a raw file. */
static inline bool has_raw(const struct run *run)
{
	return run->raw.path != NULL;
}

/* The stream of a writer, made if it is new; NULL: no memory. Moves the streams. */
struct stream *stream_get(struct run *run, uint32_t writer);

/* Whether a chunk is one of this run. */
bool chunk_is_ours(const struct run *run, const struct chunk *chunk);

/* Whether it was one before the program wrote over a word of its header, and has records. To be asked when no writer has it. */
bool chunk_was_ours(const struct run *run, const struct chunk *chunk);

/* File offset of a raw chunk. */
uint64_t chunk_offset(const struct run *run, uint32_t number);

/* ---- run_live.c ---- */

/* A chunk of a raw file that may still grow, mapped; NULL: it cannot be. */
struct chunk *chunk_map(struct run *run, uint32_t number);

/* How many chunks writers have taken, and the file has. */
uint32_t chunks_taken(struct run *run);

/* Finds chunks that writers have published since the last call. 0 or -ENOMEM. */
int chunks_scan(struct run *run, bool final);

/* Takes over what has changed in the header of a live run, as far as it can be. */
void header_refresh(struct run *run, bool final);

/* Time below which every writer has committed its records: at most `now_ns`. */
uint64_t writers_time_ns(struct run *run, uint64_t now_ns);

/* Adds a piece to those of its writer that are not read yet. 0 or -ENOMEM. Moves the streams. */
int piece_add(struct run *run, uint32_t writer, const struct piece *piece);

/* ---- run_observe.c ---- */

/* Finds what has come in the raw file and in the engine's part. 0, -ENOMEM or -ESTALE. */
int observed_scan(struct run *run);

/* Whether the chunk that a piece names still is that piece. To be asked again behind each read of the chunk. */
bool observed_holds(const struct run *run, uint32_t writer, const struct piece *piece,
		    const struct chunk *chunk);

/* The stream's piece has left the raw file: goes on in its packed copy. */
void observed_unpack(struct run *run, struct stream *s);

/* ---- run.c ---- */

/* Makes the stream's buffer as large as this, at least; NULL: no memory. */
uint8_t *stream_buffer(struct stream *s, uint32_t bytes);

/* Whether a record of this run can have this time; while live, none is younger than now. */
bool time_is_possible(struct run *run, uint64_t time_ns);

/* Leaves the record behind that run_next() returned last; only now may its memory go. */
void run_advance(struct run *run);

/* The piece that a stream is in has been read to its end. */
void piece_done(struct run *run, struct stream *s);

#endif
