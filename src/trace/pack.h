/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A packed trace (trace.msc, or NAME.part while it grows): the same chunks as in the raw file, compressed, with what is needed
 * to read them elsewhere. A sequence of blocks, each a 64-byte header and its bytes:
 *
 *     HEADER   the raw file's header with identity and event table; written first, and again at the end (the last one counts)
 *     CHUNK    the committed records of one chunk
 *     FRAMES   names of code addresses, so that stacks can be read where the libraries are not
 *     END      nothing follows: the file is whole
 *
 * A block's header carries its lengths and XXH3 sums of itself and of its bytes. A file that was cut has all blocks before the
 * cut; a damaged block is skipped by searching the next header. Written by append only. A block unpacks to no more than
 * PACK_RATIO_MAX allows, so that the memory of a reader is bounded by the size of its file.
 */
#ifndef MSCOPE_TRACE_PACK_H
#define MSCOPE_TRACE_PACK_H

#include <stdbool.h>
#include <stdio.h>

#include "base/status.h"
#include "trace/chunk.h"

#define PACK_MAGIC	 "MSCPACK1"
#define PACK_BLOCK_MAGIC 0x4b4c4230u /* "0BLK" */
#define PACK_BYTES_MAX	 (64u << 20) /* a larger block is not ours */
#define PACK_BYTES_FREE	 16384u	     /* a block may always have as many bytes */
#define PACK_RATIO_MAX                                                                             \
	256u /* and so many more for each byte in the file; what packs better is stored as it is */

/* Writer number of the records that the engine writes in the place of dropped ones; comes before all others. */
#define CHECKPOINT_WRITER 0xfffffffeu

/* Writer number of what the engine itself puts into a run: figures that it asks the driver for. */
#define ENGINE_WRITER 0xfffffffdu

enum pack_kind {
	PACK_HEADER = 1,
	PACK_CHUNK = 2,
	PACK_FRAMES = 3,
	PACK_END = 4,
};

enum pack_codec {
	PACK_STORED = 0,
	PACK_ZSTD = 1,
	PACK_ZSTD_COLUMNS = 2, /* records turned into columns first (trace/columns.h) */
};

struct pack_block {
	uint32_t magic; /* PACK_BLOCK_MAGIC */
	uint8_t kind;	/* enum pack_kind */
	uint8_t codec;	/* enum pack_codec */
	uint16_t reserved_1;
	uint32_t raw_bytes;    /* length after unpacking */
	uint32_t packed_bytes; /* length in the file */
	uint32_t writer;       /* CHUNK: of the chunk's header */
	uint32_t sequence;     /* CHUNK: of the chunk's header */
	uint64_t base_ns;      /* CHUNK: of the chunk's header */
	uint64_t reserved_2[2];
	uint64_t sum;	     /* XXH3 of the packed bytes */
	uint64_t header_sum; /* XXH3 of the 56 bytes before this */
};

_Static_assert(sizeof(struct pack_block) == 64, "the block header is one cache line");

/* ---- writing ---- */

struct pack_writer;

/* Paths of descriptors: a file of the caller's that has no name, whose blocks are stored as they are. Other paths may not be links. */
#define PACK_UNNAMED "/proc/self/fd/"

/* Appends to `path`, created 0600 when new. Continues behind what is whole in an existing file; the torn rest goes. */
int pack_writer_open(const char *path, struct pack_writer **out, struct mscope_error *err);

/*
 * Appends one block. The block is complete on the file system when this returns: the engine frees the raw chunk afterwards.
 * -errno when it could not be written; the file then ends with the last whole block.
 */
int pack_writer_put(struct pack_writer *writer, const struct pack_block *meta, const void *data);
uint64_t pack_writer_bytes(const struct pack_writer *writer);
/* The file behind it, to be read when its name is gone. Borrowed until another file is used; -errno. */
int pack_writer_fd(struct pack_writer *writer);
/* Its file has another name from now on. 0 or -ENOMEM. */
int pack_writer_renamed(struct pack_writer *writer, const char *path);
void pack_writer_close(struct pack_writer *writer);

/* ---- reading ---- */

struct pack_entry {
	struct pack_block block;
	uint64_t at; /* file offset of the bytes */
};

struct pack_index {
	struct pack_entry *entries;
	size_t count, room;
	uint64_t skipped_bytes; /* that belong to no valid block */
	uint64_t torn_bytes; /* of these, behind the last valid block: where a writer was killed */
	bool ended;	     /* the last block is an END */
};

/* True when the file begins like a packed trace. */
bool pack_probe(int fd);

/* Lists all valid blocks. -errno or MSCOPE_E_FOREIGN. */
int pack_index_read(int fd, struct pack_index *out, struct mscope_error *err);
void pack_index_fini(struct pack_index *index);

/*
 * Adds the whole blocks from offset *at on, which becomes the offset behind them, of a file that another process appends to. *at 0: its
 * begin. 0, -ENOMEM, or -EAGAIN while it has not even its magic.
 */
int pack_index_more(int fd, struct pack_index *index, uint64_t *at);

/* Reads and unpacks one block into `out`, which has room for block.raw_bytes. MSCOPE_E_DAMAGED when sums differ. */
int pack_entry_read(int fd, const struct pack_entry *entry, void *out);

#endif
