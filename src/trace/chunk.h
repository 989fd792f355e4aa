/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The raw trace file of one process, byte for byte. This header is the specification; docs/trace-format.md explains it.
 *
 *     0          header: struct trace_header, then the identity text and the event table        64 KiB
 *     64 KiB     ring of free chunk numbers, engine -> writers                                  chunks_max * 4 bytes
 *     chunks_at  chunk 0, chunk 1, ...                                                          chunk_bytes each
 *
 * One thread at a time writes a chunk, with plain stores, and publishes what it wrote by a release store of `committed`.
 * Everything below `committed` is the trace, also for a reader that comes after the process was killed at any moment.
 * The reader is the recovery: nothing else tells a clean file from a killed one but `state`.
 *
 * A chunk's life:   (unused) -> OPEN -> SEALED -> FREE -> OPEN ...
 *     OPEN   by the writer, magic last;  SEALED by the writer when the next record does not fit;
 *     FREE   by the engine, after it has stored a compressed copy elsewhere; then its number goes into the ring.
 * The engine also puts unused chunks into the ring, after it has written zeros to them: what comes out of the ring has pages.
 *
 * All numbers are little-endian; all offsets are multiples of 64 KiB so that machines with large pages can map them.
 */
#ifndef MSCOPE_TRACE_CHUNK_H
#define MSCOPE_TRACE_CHUNK_H

#include <stdatomic.h>

#include "base/compiler.h"

#define TRACE_MAGIC	     "MSCTRACE"
#define TRACE_VERSION	     1u
#define TRACE_ENDIAN	     0x01020304u
#define TRACE_HEADER_BYTES   65536u
#define TRACE_CHUNK_BYTES    262144u
#define TRACE_CHUNKS_MAX     65536u
#define TRACE_RESERVE_CHUNKS 256u /* most chunks that a writer takes disk space for at a time */
#define TRACE_SPARE_BYTES    (2u << 20) /* of the disk, left to the packed copy and the results */
#define TRACE_ALONE_MIN	     2u /* chunks that a process may have whatever --max-disk says */
#define TRACE_CHUNKS_AT	     (TRACE_HEADER_BYTES + UINT64_C(4) * TRACE_CHUNKS_MAX)
#define TRACE_IDENTITY_AT    4096u
#define TRACE_IDENTITY_MAX   28672u
#define TRACE_TABLE_AT	     32768u
#define TRACE_TABLE_MAX	     32768u
#define TRACE_LOSSES_MAX     16u

#define CHUNK_MAGIC	   0x4b4e4843u /* "CHNK" */
#define CHUNK_HEADER_BYTES 128u

enum trace_state {
	TRACE_RECORDING = 1,
	TRACE_CLOSED = 2, /* the process ran its exit handlers */
};

/* Why recording ended before the process did. */
enum trace_stop {
	TRACE_STOP_NONE = 0,
	TRACE_STOP_NO_SPACE = 1, /* the disk is full or the directory is gone */
	TRACE_STOP_FULL = 2,	 /* chunks_max chunks wait for the engine */
	TRACE_STOP_LIMIT =
		3, /* --max-disk is reached and no engine lives that could drop anything */
};

/* What a process may ask of the engine that follows it. */
enum trace_request {
	TRACE_REQUEST_FLUSH = 1, /* everything recorded so far is to stand in the files */
	/* The process is about to end and takes the engine with it: finish now. */
	TRACE_REQUEST_FINISH = 2,
	/* The same as flush, and all files are to be as if the process had ended here: report and packed trace too. */
	TRACE_REQUEST_COMPLETE = 3,
	/* The same, because the program ends: a user who reads what was found reads all of it now. */
	TRACE_REQUEST_END = 4,
	/* Call sites are to be judged by what was recorded so far; those that may leak stand in `question` then. */
	TRACE_REQUEST_JUDGE = 5,
};

/* Bits of trace_header.compatible. */
enum trace_feature {
	/*
	 * The process locked the file (flock) before it mapped it: a lock that can be had tells a reader in any pid namespace that no
	 * mapping is left, neither the process's own nor one that a forked child inherited.
	 */
	TRACE_FEATURE_LOCKED = 1,
	/* `loss_sum` is kept. */
	TRACE_FEATURE_LOSS_SUM = 2,
};

/* Bits of trace_header.damage. */
enum trace_damage {
	TRACE_DAMAGE_HEADER = 1, /* words of the header could not be */
	TRACE_DAMAGE_CUT = 2,	 /* the file was cut while the process lived */
};

enum chunk_state {
	CHUNK_UNUSED = 0,
	CHUNK_OPEN = 1,
	CHUNK_SEALED = 2,
	CHUNK_FREE = 3,
};

enum loss_cause {
#define LOSS(number, name, sentence) LOSS_##name = (number),
#include "trace/losses.def"
#undef LOSS
	LOSS_END
};

#define QUESTION_SITES	8u
#define QUESTION_BLOCKS 32u

/* Call sites that leak or may leak, for a process that can find out what keeps their blocks; engine. */
struct trace_question {
	/* Grows by 2; odd while the engine writes the rest. */
	_Atomic uint32_t number;
	uint32_t sites;
	struct {
		uint32_t count;
		uint32_t reserved;
		/* Of blocks that live, some of all ages, the newest last. */
		uint64_t addresses[QUESTION_BLOCKS];
	} site[QUESTION_SITES];
};

#define TRACE_CARDS 32u

/*
 * The devices that a driver shows to the process and by what it knows each, since its management library numbers them otherwise;
 * process, once.
 */
struct trace_cards {
	_Atomic uint32_t count; /* 0: not asked yet */
	uint32_t reserved;
	struct {
		uint32_t device; /* number in records */
		uint32_t reserved;
		uint8_t uuid[16]; /* zeros: the driver does not say */
	} card[TRACE_CARDS];
};

struct trace_header {
	/* Written once, before the file gets its name; never changes. */
	char magic[8];	       /* TRACE_MAGIC */
	uint32_t version;      /* TRACE_VERSION; a reader refuses a higher one */
	uint32_t endian;       /* TRACE_ENDIAN as the writer stores it */
	uint32_t header_bytes; /* where the ring begins */
	uint32_t chunk_bytes;  /* size of a chunk */
	uint32_t chunks_max;   /* most chunks the file can have, entries of the ring */
	uint32_t table_bytes;  /* length of the event table at TRACE_TABLE_AT */
	/* Length of the identity text at TRACE_IDENTITY_AT: key=value, each ended by NUL. */
	uint32_t identity_bytes;
	uint32_t pid;		   /* as the process sees itself */
	uint32_t parent_pid;	   /* when recording began */
	int32_t utc_offset_s;	   /* local time minus UTC where the launch was typed */
	uint64_t compatible;	   /* feature bits that an older reader may ignore */
	uint64_t incompatible;	   /* feature bits that an older reader must refuse */
	uint64_t chunks_at;	   /* file offset of chunk 0 */
	uint8_t run_id[16];	   /* random; one per process image that recorded */
	uint8_t parent_run_id[16]; /* the run this process was forked from, else zero */
	uint64_t start_ticks;  /* start time of the process in /proc/PID/stat, tells a reused pid */
	uint64_t realtime_ns;  /* wall clock, taken together with ... */
	uint64_t monotonic_ns; /* ... this reading of the clock that all records use */
	uint64_t clock_cost_ns; /* what one clock read costs here, measured at start */
	uint32_t salt;		/* first word of run_id; every chunk repeats it */
	uint32_t c_depth;	/* C frames asked for, 0: none */
	uint32_t first_state;	/* enum recording when it began, 0: on */
	uint32_t python_shown;	/* Python frames asked for, 0: none; stacks may have more */
	/* Chunks that the process has address space for: the engine makes no others ready. 0: unknown. */
	uint32_t chunks_mapped;
	/*
	 * Of a packed trace: what became of its raw file and its process; the engine writes them with its last copy of the header. In a
	 * raw file they say nothing.
	 */
	uint32_t lost_chunks;	/* with a malformed header */
	uint64_t skipped_bytes; /* malformed records, and chunks that could not be read */
	uint32_t cut_chunks;	/* chunks with malformed records */
	uint32_t damage;	/* enum trace_damage */
	uint32_t signal;	/* that killed the process, 0: none, or unknown */
	uint64_t lost_records;	/* made by the process and not in the packed trace */

	/* Written while recording, by whom each line says. On a cache line of their own each where it matters. */
	_Alignas(64) _Atomic uint32_t state; /* enum trace_state; process */
	_Atomic uint32_t stop;		     /* enum trace_stop; process, once */
	_Atomic uint32_t stop_errno;	     /* errno behind it */
	/*
	 * First chunk number never handed out; any writer, or the engine for chunks that it fills with zeros and puts into the ring.
	 * By compare and swap.
	 */
	_Atomic uint32_t next_chunk;
	/* Chunks that have disk space; engine, or a writer when the engine lags. */
	_Atomic uint32_t reserved_chunks;
	_Atomic uint32_t engine_pid; /* pid of the engine that follows, 0: none */
	_Atomic uint32_t writers;    /* writers ever created; any writer */
	/* 1: the process registered for expedited barriers; process, once. */
	_Atomic uint32_t membarrier;
	/* Chunks whose disk space the engine has given back for good; engine. */
	_Atomic uint32_t punched_chunks;
	/* Chunks that the file may have when no engine follows it: --max-disk less what is packed. Process, then engine. */
	_Atomic uint32_t alone_chunks;
	/* 1: a seccomp filter may forbid our system calls, so only the engine takes space and makes chunks ready; process. */
	_Atomic uint32_t quiet;
	/* Free chunk numbers ever put into the ring; engine only. */
	_Alignas(64) _Atomic uint64_t ring_head;
	/* Free chunk numbers ever taken out; writers, by compare and swap. */
	_Alignas(64) _Atomic uint64_t ring_tail;
	/* Events not recorded, by enum loss_cause. */
	_Alignas(64) _Atomic uint64_t loss[TRACE_LOSSES_MAX];
	_Atomic uint64_t stall_max_ns;	 /* longest time a slow path of ours held a thread */
	_Atomic uint64_t stall_total_ns; /* all of them together */
	_Atomic uint64_t stall_count;
	/* Records that the process had made when it ended by itself; process, before `state` becomes TRACE_CLOSED. 0: unknown. */
	_Atomic uint64_t made_records;
	/* All of `loss` together: figures that do not add up to it were written over by the program. */
	_Atomic uint64_t loss_sum;

	/*
	 * What the process asks of the engine, and the answer: no descriptor, only these words and a futex on `answer`. One
	 * request at a time.
	 */
	/* Time of the request: what was recorded before it is meant; process. */
	_Alignas(64) _Atomic uint64_t request_ns;
	_Atomic uint32_t request;      /* number of the latest request, from 1; process */
	_Atomic uint32_t request_kind; /* enum trace_request; process, before `request` */
	_Atomic uint32_t answer;       /* number of the latest request that was done; engine */
	_Atomic uint32_t heartbeat;    /* grows while the engine works; engine */
	/* What the engine wants to know of the process; it need not answer. A record `keeper` does. */
	_Alignas(64) struct trace_question question;
	_Alignas(64) struct trace_cards cards;
};

_Static_assert(sizeof(struct trace_header) <= TRACE_IDENTITY_AT,
	       "identity text must not overlap the header");
_Static_assert(TRACE_CHUNKS_MAX * sizeof(uint32_t) % 65536 == 0,
	       "chunks are at multiples of 64 KiB after the ring");
_Static_assert(LOSS_END <= (int)TRACE_LOSSES_MAX, "more causes of loss than slots");

struct chunk {
	/* Line 0: written when the chunk is opened or sealed. */
	_Atomic uint32_t magic;	 /* CHUNK_MAGIC, stored last when opening */
	uint32_t salt;		 /* trace_header.salt */
	uint32_t writer;	 /* who writes it, from 1 */
	uint32_t sequence;	 /* of this writer's chunks, from 0 */
	uint64_t base_ns;	 /* time base of the first record */
	_Atomic uint32_t state;	 /* enum chunk_state */
	uint32_t check;		 /* chunk_check() of this line, 0: an older process */
	uint64_t records_before; /* that its writer made before this chunk */
	uint64_t reserved_2[3];
	/* Line 1: written for each record. */
	/* Bytes that count, header included; release store by the writer. */
	_Atomic uint32_t committed;
	_Atomic uint32_t busy; /* 1 from before the clock is read until after the commit */
	/* Records below `committed`, time bases not counted; stored after it, from a copy that stray stores do not reach. */
	_Atomic uint32_t records;
	uint32_t reserved_3[13];
};

_Static_assert(sizeof(struct chunk) == CHUNK_HEADER_BYTES, "the chunk header is two cache lines");

/* What every header of this version has in common: an empty one with the layout that we write. */
static inline void trace_header_init(struct trace_header *header)
{
	__builtin_memset((void *)header, 0, sizeof(*header));
	__builtin_memcpy(header->magic, TRACE_MAGIC, sizeof(header->magic));
	header->version = TRACE_VERSION;
	header->endian = TRACE_ENDIAN;
	header->header_bytes = TRACE_HEADER_BYTES;
	header->chunk_bytes = TRACE_CHUNK_BYTES;
	header->chunks_max = TRACE_CHUNKS_MAX;
	header->chunks_at = TRACE_CHUNKS_AT;
}

/* Chunks of a process at most while no engine reads them; `max_bytes` 0: no limit. A few are always allowed, or nothing is recorded. */
static inline uint32_t trace_alone_chunks(uint64_t max_bytes, uint64_t packed_bytes)
{
	/* The header and the ring take up to a chunk and a half. */
	uint64_t taken = packed_bytes + TRACE_CHUNK_BYTES * 3 / 2;
	uint64_t chunks = max_bytes > taken ? (max_bytes - taken) / TRACE_CHUNK_BYTES : 0;

	if (max_bytes == 0 || chunks > TRACE_CHUNKS_MAX)
		return TRACE_CHUNKS_MAX;
	return chunks < TRACE_ALONE_MIN ? TRACE_ALONE_MIN : (uint32_t)chunks;
}

/* File offset of a chunk; 64-bit so that a damaged number cannot wrap. */
static inline uint64_t chunk_at(const struct trace_header *header, uint32_t number)
{
	return header->chunks_at + (uint64_t)number * header->chunk_bytes;
}

/* The same for a file that we write: nothing of its header is used, which the program can overwrite. */
static inline uint64_t chunk_at_own(uint32_t number)
{
	return TRACE_CHUNKS_AT + (uint64_t)number * TRACE_CHUNK_BYTES;
}

/* A sum over what a chunk says of itself, so that a reader knows a header that the program wrote over. Never 0. */
static inline uint32_t chunk_check(const struct chunk *chunk, uint32_t salt)
{
	const uint64_t words[] = {(uint64_t)chunk->writer << 32 | chunk->sequence, chunk->base_ns,
				  chunk->records_before};
	uint64_t sum = salt;
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(words); i++) {
		sum = (sum ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15);
		sum ^= sum >> 32;
	}
	return (uint32_t)sum | 1;
}

/* What the reader may trust of a chunk. Pairs with the release store in record_commit() of the collector. */
static inline uint32_t chunk_committed(const struct chunk *chunk, uint32_t chunk_bytes)
{
	uint32_t committed = atomic_load_explicit(&chunk->committed, memory_order_acquire);

	if (committed < CHUNK_HEADER_BYTES)
		return CHUNK_HEADER_BYTES;
	return committed > chunk_bytes ? chunk_bytes : committed;
}

#endif
