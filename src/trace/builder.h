/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds the records of one writer, as they stand in a chunk: what the engine writes by itself (checkpoints, samples), what import
 * makes out of rows, and what tests need. The collector has its own way, in collector/record/hot.h.
 *
 *     struct builder b = {.writer = 1, .pack = pack};      the caller owns the pack
 *     b.time_ns = now;                                     time of the records that follow
 *     BUILDER_PUT(&b, thread, 0, .tid = tid);              a record of fixed length
 *     BUILDER_BEGIN(&b, note, 0, .text_bytes = 5);         a record with a payload, in any number of parts
 *     builder_payload(&b, "hello", 5);
 *     builder_end(&b);                                     pads it and fills in its length
 *     builder_flush(&b);                                   the last chunk goes into the pack
 *     r = b.error;                                         the first thing that went wrong, 0: nothing
 *     builder_fini(&b);
 *
 * A chunk is put into the pack once it has `chunk_bytes` of records. Without a pack it grows until builder_flush(), and the caller
 * reads `records`. After an error later calls do nothing useful, but are allowed. One thread uses a builder at a time.
 */
#ifndef MSCOPE_TRACE_BUILDER_H
#define MSCOPE_TRACE_BUILDER_H

#include <stdbool.h>

#include "base/compiler.h"
#include "base/strbuf.h"
#include "trace/chunk.h"
#include "trace/context.h"
#include "trace/pack.h"
#include "trace/record.h"

/* When a chunk is full; a record may still reach beyond it. Chunks of a raw trace are about as large. */
#define BUILDER_CHUNK_BYTES (TRACE_CHUNK_BYTES - CHUNK_HEADER_BYTES - 8192u)

/* Zeroed but for the first members it is a new one. */
struct builder {
	uint32_t writer;	  /* number of the writer, from 1 */
	struct pack_writer *pack; /* where chunks go, NULL: the caller takes them */
	size_t chunk_bytes;	  /* records of a chunk at most, 0: BUILDER_CHUNK_BYTES */
	uint64_t time_ns;	  /* time of the records that follow; the caller sets it */
	uint32_t sequence;	  /* of the chunk that is being built */
	struct strbuf records;	  /* of that chunk */
	bool open;		  /* that chunk has begun */
	size_t record_at;	  /* where the record with a payload begins that is being built */
	uint64_t chunk_ns;	  /* time base of the chunk */
	uint64_t base_ns;	  /* what the next record's time counts from */
	int error;		  /* the first one, 0: none */
};

/* Releases the memory; chunks that were not flushed are lost. */
void builder_fini(struct builder *b);

/* Begins a chunk whose times count from `base_ns`. Not needed: otherwise they count from the first record. */
void builder_begin_chunk(struct builder *b, uint64_t base_ns);

/* Ends the chunk, if there is one: puts it into the pack, and empties `records`. */
void builder_flush(struct builder *b);

/* Appends a record of `count` words. Word 0 is filled in here. */
void builder_put(struct builder *b, enum event_type type, uint32_t context, uint64_t *words,
		 size_t count);

/* A record with a payload: its fixed part, any number of payload parts, its end. Word 0 and the length are filled in here. */
void builder_begin(struct builder *b, enum event_type type, uint32_t context, uint64_t *words,
		   size_t count);
void builder_payload(struct builder *b, const void *bytes, size_t length);
void builder_end(struct builder *b);

/* Remembers an error of the caller's, unless there was one before. 0 is none. */
void builder_fail(struct builder *b, int error);

/* Encodes an event struct and passes the words to `function`. */
#define BUILDER_CALL(function, b, event, context, in)                                              \
	do {                                                                                       \
		uint64_t words_[EVENT_BYTES_##event / 8];                                          \
                                                                                                   \
		event_##event##_encode(words_, in);                                                \
		function(b, EVENT_##event, context, words_, MSCOPE_COUNT(words_));                 \
	} while (0)

/* BUILDER_PUT(b, event, context, .field = value, ...): a record of fixed length. */
#define BUILDER_PUT(b, event, context, ...)                                                        \
	BUILDER_CALL(builder_put, b, event, context, (&(struct event_##event){__VA_ARGS__}))

/* BUILDER_PUT_EVENT(b, event, context, &struct_event): the same from a struct that the caller has filled. */
#define BUILDER_PUT_EVENT(b, event, context, in) BUILDER_CALL(builder_put, b, event, context, in)

/* BUILDER_BEGIN(b, event, context, .field = value, ...): the fixed part of a record with a payload. */
#define BUILDER_BEGIN(b, event, context, ...)                                                      \
	BUILDER_CALL(builder_begin, b, event, context, (&(struct event_##event){__VA_ARGS__}))

/* ---- records that most builders need ---- */

void builder_put_context(struct builder *b, uint64_t id, const struct context *context);
void builder_put_text(struct builder *b, uint64_t id, const char *text, size_t length);

/* ---- what a trace begins with ---- */

/*
 * The first TRACE_HEADER_BYTES of a trace of this version: header, event table, and the identity text (key=value, each ended by
 * NUL). The caller fills in the rest of the header. Released by free(); NULL: no memory.
 */
struct trace_header *preamble_new(const char *identity, size_t identity_bytes);

/* The same in memory of the caller's, which is zeroed. */
void preamble_init(struct trace_header *header, const char *identity, size_t identity_bytes);

/* Puts the TRACE_HEADER_BYTES at `preamble` into a packed trace. -errno. */
int preamble_put(struct pack_writer *pack, const void *preamble);

#endif
