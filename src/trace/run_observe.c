/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a run beside its engine. The engine packs a chunk into its part, then gives the chunk back to the writers; so a chunk of a
 * writer is in the raw file, or in the part, or in both with the same records:
 *
 *     clock, barrier  ->  headers of raw chunks  ->  blocks of the part  ->  which writers are busy
 *
 * In this order nothing is missed: a chunk that was published before the barrier and is not in the raw file when its header is read
 * has been packed by then. What is copied from a raw chunk counts only if the chunk's header still names the same piece behind the
 * copy: a chunk changes hands by its magic, which goes first and comes last. Else the rest of the piece is read from the part, from
 * the record on at which the copy stands.
 *
 * Headers of chunks are read by read(2): mapping a chunk whose space was given back would take that space again.
 */
#include "trace/run_state.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"

bool observed_holds(const struct run *run, uint32_t writer, const struct piece *piece,
		    const struct chunk *chunk)
{
	/* Loads of the chunk's records come before those of its header. */
	atomic_thread_fence(memory_order_acquire);
	return chunk_is_ours(run, chunk) && chunk->writer == writer &&
	       chunk->sequence == piece->sequence;
}

/* Adds a piece unless it is known or has been read; a packed one takes the place of a raw one. */
static int add(struct run *run, uint32_t writer, const struct piece *piece)
{
	struct stream *s = stream_get(run, writer);
	size_t i;

	if (s == NULL)
		return -ENOMEM;
	if (s->started && piece->sequence <= s->current.sequence)
		return 0;
	for (i = s->piece_count; i > s->next && s->pieces[i - 1].sequence >= piece->sequence; i--) {
		if (s->pieces[i - 1].sequence != piece->sequence)
			continue;
		if (piece->packed)
			s->pieces[i - 1] = *piece;
		return 0;
	}
	return piece_add(run, writer, piece);
}

static int scan_raw(struct run *run)
{
	uint32_t next = chunks_taken(run), number;
	int r = 0;

	for (number = 0; number < next && r == 0; number++) {
		struct piece piece = {.number = number};
		struct chunk head;

		if (io_read_at(raw_fd(run), &head, sizeof(head), chunk_offset(run, number)) < 0 ||
		    !chunk_is_ours(run, &head) || head.base_ns > run->latest_ns)
			continue;
		piece.sequence = head.sequence;
		piece.base_ns = head.base_ns;
		r = add(run, head.writer, &piece);
	}
	run->scanned = next;
	return r;
}

/* Reads what is new in the engine's part. -ESTALE: it has begun another one. */
static int read_part(struct run *run)
{
	struct stat ours, named;
	int r;

	if (run->pack_fd < 0) {
		r = io_open_file(run->part, O_RDONLY | O_NOFOLLOW, NULL);
		if (r < 0)
			return 0; /* nothing is packed yet */
		run->pack_fd = r;
	}
	/* At the end it gets another name, and is the same file. */
	if (fstat(run->pack_fd, &ours) < 0 ||
	    (stat(run->part, &named) == 0 &&
	     (named.st_dev != ours.st_dev || named.st_ino != ours.st_ino)))
		return -ESTALE;
	r = pack_index_more(run->pack_fd, &run->index, &run->part_end);
	return r == -EAGAIN ? 0 : r;
}

static int list_part(struct run *run)
{
	int r = 0;

	for (; r == 0 && run->part_listed < run->index.count; run->part_listed++) {
		const struct pack_block *block = &run->index.entries[run->part_listed].block;
		struct piece piece = {.sequence = block->sequence,
				      .number = (uint32_t)run->part_listed,
				      .packed = true,
				      .base_ns = block->base_ns};

		if (block->kind != PACK_CHUNK || block->writer == 0)
			continue;
		r = add(run, block->writer, &piece);
		run->checkpointed |= block->writer == CHECKPOINT_WRITER;
	}
	return r;
}

int observed_scan(struct run *run)
{
	int r = run->stale ? -ESTALE : scan_raw(run);

	if (r == 0)
		r = read_part(run);
	return r == 0 ? list_part(run) : r;
}

bool run_is_stale(const struct run *run)
{
	return run->stale;
}

void observed_unpack(struct run *run, struct stream *s)
{
	const struct pack_entry *entry = NULL;
	uint8_t *data;
	size_t i;

	if (run->chunks[s->current.number] != NULL)
		(void)munmap(run->chunks[s->current.number], run->chunk_bytes);
	run->chunks[s->current.number] = NULL;
	s->chunk = NULL;
	/* Whatever becomes of it, it is no longer in the raw file. */
	s->current.packed = true;
	run->stale |= read_part(run) < 0;
	for (i = run->index.count; i > 0 && entry == NULL; i--) {
		const struct pack_block *block = &run->index.entries[i - 1].block;

		if (block->kind == PACK_CHUNK && block->writer == s->writer &&
		    block->sequence == s->current.sequence)
			entry = &run->index.entries[i - 1];
	}
	data = entry == NULL ? NULL : stream_buffer(s, entry->block.raw_bytes + 1);
	s->limit = s->at;
	if (data == NULL || entry->block.raw_bytes < s->at ||
	    pack_entry_read(run->pack_fd, entry, data) < 0) {
		run->stale = true;
		return;
	}
	s->data = data;
	s->limit = entry->block.raw_bytes;
}
