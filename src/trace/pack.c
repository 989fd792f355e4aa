/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/pack.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <xxhash.h>
#include <zstd.h>

#include "base/array.h"
#include "base/descriptors.h"
#include "base/io.h"
#include "trace/columns.h"

/* Level 4: a sixth smaller than level 1 on records in columns, for 10 ns more of the engine's time per event (docs/benchmarks.md). */
#define PACK_LEVEL 4

struct pack_writer {
	struct lazy_file file;
	uint64_t end; /* offset behind the last whole block */
	bool unnamed; /* read once and gone: not worth compressing */
};

/* What compressing needs, 2 MB: one for all writers of this process, because one thread uses them. It goes with the last. */
static struct {
	uint32_t writers;
	ZSTD_CCtx *zstd;
	uint8_t *packed;
	size_t packed_room;
	uint8_t *columns;
	size_t columns_room;
} shared;

/* Chunks take less; frames of a whole run may take much more, once. */
#define SHARED_KEPT ((size_t)1 << 20)

static void shared_unref(void)
{
	if (--shared.writers > 0)
		return;
	ZSTD_freeCCtx(shared.zstd);
	free(shared.packed);
	free(shared.columns);
	memset(&shared, 0, sizeof(shared));
}

static uint64_t header_sum(const struct pack_block *block)
{
	return XXH3_64bits(block, offsetof(struct pack_block, header_sum));
}

/* A file in a directory of the caller's has a name behind the descriptor. */
static bool is_unnamed(const char *path)
{
	return strncmp(path, PACK_UNNAMED, strlen(PACK_UNNAMED)) == 0 &&
	       strchr(path + strlen(PACK_UNNAMED), '/') == NULL;
}

int pack_writer_open(const char *path, struct pack_writer **out, struct mscope_error *err)
{
	struct pack_writer *writer = calloc(1, sizeof(*writer));
	struct pack_index index = {0};
	int r, fd;

	if (writer == NULL)
		return error_set(err, -ENOMEM, "no memory");
	writer->unnamed = is_unnamed(path);
	shared.writers++;
	if (shared.zstd == NULL && (shared.zstd = ZSTD_createCCtx()) == NULL) {
		r = error_set(err, -ENOMEM, "no memory");
		goto fail;
	}
	r = lazy_file_open(&writer->file, path,
			   O_RDWR | O_CREAT | (writer->unnamed ? 0 : O_NOFOLLOW), 0600);
	if (r < 0) {
		(void)error_set(err, r, "cannot write %s: %s", path, strerror(-r));
		goto fail;
	}
	fd = pack_writer_fd(writer);
	/* One that was killed before its first word is as good as new. */
	if (lseek(fd, 0, SEEK_END) < (off_t)strlen(PACK_MAGIC)) {
		if (pwrite(fd, PACK_MAGIC, 8, 0) != 8) {
			r = error_set(err, errno != 0 ? -errno : -ENOSPC, "cannot write %s", path);
			goto fail;
		}
		writer->end = 8;
	} else {
		r = pack_index_read(fd, &index, err);
		if (r < 0)
			goto fail;
		writer->end = 8;
		if (index.count > 0) {
			const struct pack_entry *last = &index.entries[index.count - 1];

			writer->end = last->at + last->block.packed_bytes;
		}
		pack_index_fini(&index);
		/* What a killed writer left of a block would look like damage behind ours. */
		if (ftruncate(fd, (off_t)writer->end) < 0) {
			r = error_set(err, -errno, "cannot write %s: %s", path, strerror(errno));
			goto fail;
		}
	}
	*out = writer;
	return 0;
fail:
	pack_writer_close(writer);
	return r;
}

/* Whether a block may unpack to its raw_bytes. A header has one size, whatever it packs to. */
static bool ratio_holds(const struct pack_block *block)
{
	return block->raw_bytes <=
		       PACK_BYTES_FREE + (uint64_t)PACK_RATIO_MAX * block->packed_bytes ||
	       (block->kind == PACK_HEADER && block->raw_bytes <= TRACE_HEADER_BYTES);
}

/* Turns `data` into what goes into the file; stored as it is when that is not smaller, or much too small. */
static int encode(struct pack_block *block, const void *data, const void **out)
{
	const void *source = data;
	size_t source_bytes = block->raw_bytes, room, got;
	int r;

	block->codec = PACK_ZSTD;
	if (block->kind == PACK_CHUNK) {
		r = array_reserve(&shared.columns, &shared.columns_room,
				  columns_room(block->raw_bytes), 1);
		if (r < 0)
			return r;
		got = columns_split(data, block->raw_bytes, shared.columns);
		if (got > 0) {
			block->codec = PACK_ZSTD_COLUMNS;
			source = shared.columns;
			source_bytes = got;
		}
	}
	room = ZSTD_compressBound(source_bytes);
	r = array_reserve(&shared.packed, &shared.packed_room, room, 1);
	if (r < 0)
		return r;
	got = ZSTD_compressCCtx(shared.zstd, shared.packed, shared.packed_room, source,
				source_bytes, PACK_LEVEL);
	block->packed_bytes = (uint32_t)got;
	if (ZSTD_isError(got) || got >= block->raw_bytes || !ratio_holds(block)) {
		block->codec = PACK_STORED;
		block->packed_bytes = block->raw_bytes;
		*out = data;
	} else {
		*out = shared.packed;
	}
	return 0;
}

int pack_writer_put(struct pack_writer *writer, const struct pack_block *meta, const void *data)
{
	struct pack_block block = *meta;
	const void *packed = NULL;
	struct iovec parts[2];
	uint64_t at = writer->end;
	int r, fd, first = 0;

	block.magic = PACK_BLOCK_MAGIC;
	if (writer->unnamed) {
		block.codec = PACK_STORED;
		block.packed_bytes = block.raw_bytes;
		packed = data;
	} else if ((r = encode(&block, data, &packed)) < 0) {
		return r;
	}
	block.sum = XXH3_64bits(packed, block.packed_bytes);
	block.header_sum = header_sum(&block);
	parts[0] = (struct iovec){.iov_base = &block, .iov_len = sizeof(block)};
	memcpy(&parts[1].iov_base, &packed, sizeof(packed));
	parts[1].iov_len = block.packed_bytes;
	fd = pack_writer_fd(writer);
	if (fd < 0)
		return fd;
	while (first < 2) {
		ssize_t wrote = pwritev(fd, parts + first, 2 - first, (off_t)at);

		if (wrote < 0 && errno == EINTR)
			continue;
		if (wrote <= 0) {
			r = wrote < 0 ? -errno : -ENOSPC;
			(void)!ftruncate(fd, (off_t)writer->end);
			return r;
		}
		at += (uint64_t)wrote;
		while (first < 2 && (size_t)wrote >= parts[first].iov_len) {
			wrote -= (ssize_t)parts[first].iov_len;
			first++;
		}
		if (first < 2) {
			parts[first].iov_base = (char *)parts[first].iov_base + wrote;
			parts[first].iov_len -= (size_t)wrote;
		}
	}
	writer->end = at;
	if (shared.packed_room > SHARED_KEPT) {
		free(shared.packed);
		shared.packed = NULL;
		shared.packed_room = 0;
	}
	return 0;
}

uint64_t pack_writer_bytes(const struct pack_writer *writer)
{
	return writer->end;
}

int pack_writer_fd(struct pack_writer *writer)
{
	return lazy_file_fd(&writer->file);
}

int pack_writer_renamed(struct pack_writer *writer, const char *path)
{
	return lazy_file_renamed(&writer->file, path);
}

void pack_writer_close(struct pack_writer *writer)
{
	if (writer == NULL)
		return;
	(void)lazy_file_close(&writer->file);
	shared_unref();
	free(writer);
}

/* ---- reading ---- */

bool pack_probe(int fd)
{
	char magic[8];

	return io_read_at(fd, magic, sizeof(magic), 0) == 0 &&
	       memcmp(magic, PACK_MAGIC, sizeof(magic)) == 0;
}

static bool block_holds(const struct pack_block *block, uint64_t at, uint64_t size)
{
	return block->magic == PACK_BLOCK_MAGIC && block->header_sum == header_sum(block) &&
	       block->raw_bytes <= PACK_BYTES_MAX && block->packed_bytes <= PACK_BYTES_MAX &&
	       block->packed_bytes <= size - at - sizeof(*block) && ratio_holds(block);
}

/* After damage: the next offset at which a valid block header stands, or `size`. */
static uint64_t search_block(int fd, uint64_t from, uint64_t size)
{
	uint8_t window[65536];
	uint64_t at = from;

	while (size - at >= sizeof(struct pack_block)) {
		size_t bytes = size - at < sizeof(window) ? (size_t)(size - at) : sizeof(window);
		size_t i;

		if (io_read_at(fd, window, bytes, at) < 0)
			return size;
		for (i = 0; i + sizeof(struct pack_block) <= bytes; i++) {
			struct pack_block block;

			memcpy(&block, window + i, sizeof(block));
			if (block.magic == PACK_BLOCK_MAGIC && block_holds(&block, at + i, size))
				return at + i;
		}
		at += bytes - sizeof(struct pack_block) + 1;
	}
	return size;
}

int pack_index_read(int fd, struct pack_index *out, struct mscope_error *err)
{
	struct pack_index index = {0};
	struct stat st;
	uint64_t at = 8, size;
	int r;

	if (fstat(fd, &st) < 0)
		return error_set(err, -errno, "cannot read the trace: %s", strerror(errno));
	if (!pack_probe(fd))
		return error_set(err, MSCOPE_E_FOREIGN, "this is not a packed trace");
	size = (uint64_t)st.st_size;
	while (at < size) {
		struct pack_block block;
		uint64_t next;

		if (size - at >= sizeof(block) && io_read_at(fd, &block, sizeof(block), at) == 0 &&
		    block_holds(&block, at, size)) {
			r = ARRAY_RESERVE(index.entries, index.room, index.count + 1);
			if (r < 0) {
				pack_index_fini(&index);
				return error_set(err, r, "no memory");
			}
			index.entries[index.count++] =
				(struct pack_entry){.block = block, .at = at + sizeof(block)};
			index.ended = block.kind == PACK_END;
			at += sizeof(block) + block.packed_bytes;
			continue;
		}
		next = search_block(fd, at + 1 < size ? at + 1 : size, size);
		index.skipped_bytes += next - at;
		if (next == size)
			index.torn_bytes = next - at;
		at = next;
	}
	*out = index;
	return 0;
}

int pack_index_more(int fd, struct pack_index *index, uint64_t *at)
{
	struct pack_block block;
	struct stat st;
	uint64_t size;
	int r = 0;

	if (fstat(fd, &st) < 0 || (*at == 0 && !pack_probe(fd)))
		return -EAGAIN;
	size = (uint64_t)st.st_size;
	*at = *at == 0 ? 8 : *at;
	while (r == 0 && size > *at && size - *at >= sizeof(block) &&
	       io_read_at(fd, &block, sizeof(block), *at) == 0 && block_holds(&block, *at, size)) {
		r = ARRAY_RESERVE(index->entries, index->room, index->count + 1);
		if (r < 0)
			break;
		index->entries[index->count++] =
			(struct pack_entry){.block = block, .at = *at + sizeof(block)};
		*at += sizeof(block) + block.packed_bytes;
	}
	return r;
}

void pack_index_fini(struct pack_index *index)
{
	free(index->entries);
	*index = (struct pack_index){0};
}

int pack_entry_read(int fd, const struct pack_entry *entry, void *out)
{
	const struct pack_block *block = &entry->block;
	uint8_t *packed = malloc(block->packed_bytes + 1u), *columns = NULL;
	size_t got;
	int r;

	if (packed == NULL)
		return -ENOMEM;
	r = io_read_at(fd, packed, block->packed_bytes, entry->at);
	if (r < 0)
		goto out;
	r = MSCOPE_E_DAMAGED;
	if (XXH3_64bits(packed, block->packed_bytes) != block->sum)
		goto out;
	if (block->codec == PACK_STORED) {
		if (block->packed_bytes != block->raw_bytes)
			goto out;
		memcpy(out, packed, block->raw_bytes);
		r = 0;
	} else if (block->codec == PACK_ZSTD) {
		got = ZSTD_decompress(out, block->raw_bytes, packed, block->packed_bytes);
		if (got == block->raw_bytes)
			r = 0;
	} else if (block->codec == PACK_ZSTD_COLUMNS) {
		columns = malloc(columns_room(block->raw_bytes));
		if (columns == NULL) {
			r = -ENOMEM;
			goto out;
		}
		got = ZSTD_decompress(columns, columns_room(block->raw_bytes), packed,
				      block->packed_bytes);
		if (!ZSTD_isError(got) && columns_join(columns, got, out, block->raw_bytes))
			r = 0;
	}
out:
	free(columns);
	free(packed);
	return r;
}
