/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening a run: what its header says, what is in the raw and in the packed file, and which chunks each writer has.
 */
#include "trace/run_state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/io.h"
#include "trace/session.h"
#include "trace/table.h"

/* ---- opening ---- */

static int check_header(const struct trace_header *h, const char *path, struct mscope_error *err)
{
	if (memcmp(h->magic, TRACE_MAGIC, sizeof(h->magic)) != 0)
		return error_set(err, MSCOPE_E_FOREIGN, "%s is not a msmemscope trace", path);
	if (h->endian != TRACE_ENDIAN)
		return error_set(err, MSCOPE_E_FOREIGN,
				 "%s was written on a machine of the other byte order", path);
	if (h->version > TRACE_VERSION || h->incompatible != 0)
		return error_set(err, MSCOPE_E_VERSION,
				 "%s was written by a newer version of msmemscope (format %u)",
				 path, h->version);
	if (h->header_bytes != TRACE_HEADER_BYTES || h->chunk_bytes < 4096 ||
	    h->chunk_bytes > (16u << 20) || h->chunk_bytes % 8 != 0 || h->chunks_max == 0 ||
	    h->chunks_max > (1u << 24) ||
	    h->chunks_at < h->header_bytes + (uint64_t)h->chunks_max * 4 ||
	    h->chunks_at > (1u << 30) || h->identity_bytes > TRACE_IDENTITY_MAX ||
	    h->table_bytes > TRACE_TABLE_MAX)
		return error_set(err, MSCOPE_E_DAMAGED, "the header of %s is damaged", path);
	return 0;
}

/* Checks the header that is in `preamble` and takes from it what finding chunks depends on. */
static int take_header(struct run *run, const char *path, struct mscope_error *err)
{
	const struct trace_header *h = (const struct trace_header *)(const void *)run->preamble;
	int r = check_header(h, path, err);

	if (r < 0)
		return r;
	run->chunk_bytes = h->chunk_bytes;
	run->chunks_max = h->chunks_max;
	run->chunks_at = h->chunks_at;
	run->salt = h->salt;
	if (layout_parse((const char *)h + TRACE_TABLE_AT, h->table_bytes, &run->layout) < 0)
		return error_set(err, MSCOPE_E_DAMAGED, "the event table of %s is damaged", path);
	return 0;
}

static int preamble_alloc(struct run *run, struct mscope_error *err)
{
	/* As aligned as the struct that it begins with. */
	run->preamble = aligned_alloc(_Alignof(struct trace_header), TRACE_HEADER_BYTES);
	run->preamble_bytes = TRACE_HEADER_BYTES;
	return run->preamble == NULL ? error_set(err, -ENOMEM, "no memory") : 0;
}

int raw_fd(struct run *run)
{
	return lazy_file_fd(&run->raw);
}

/*
 * A new header for a process of ours that has written over its own before it was first read: all of it is known but the times, which
 * are those of now. Its number and the salt are in its name. False: it is no such process.
 */
static bool rebuild_header(struct run *run, const char *path)
{
	struct trace_header *h = (struct trace_header *)(void *)run->preamble;
	const char *name = strrchr(path, '/');
	unsigned int pid, id[6], i;
	struct mscope_error err;
	struct timespec wall;
	int end = 0;

	if (!run->live || name == NULL ||
	    sscanf(name, "/%u-%2x%2x%2x%2x%2x%2x" SESSION_RAW "%n", &pid, &id[0], &id[1], &id[2],
		   &id[3], &id[4], &id[5], &end) != 7 ||
	    end == 0 || name[end] != '\0')
		return false;
	memset(run->preamble, 0, TRACE_HEADER_BYTES);
	trace_header_init(h);
	h->pid = pid;
	for (i = 0; i < MSCOPE_COUNT(id); i++)
		h->run_id[i] = (uint8_t)id[i];
	memcpy(&h->salt, h->run_id, sizeof(h->salt));
	h->table_bytes = (uint32_t)trace_table_bytes();
	memcpy(run->preamble + TRACE_TABLE_AT, trace_table_text(), h->table_bytes);
	h->monotonic_ns = clock_monotonic_ns();
	(void)clock_gettime(CLOCK_REALTIME, &wall);
	h->realtime_ns = (uint64_t)wall.tv_sec * 1000000000u + (uint64_t)wall.tv_nsec;
	atomic_store(&h->state, TRACE_RECORDING);
	/* Its lock alone tells whether it lives. */
	h->compatible = TRACE_FEATURE_LOCKED;
	run->damage.overwritten = true;
	return take_header(run, path, &err) == 0;
}

/* Words of a raw header that cannot be are 0 from here on. */
static void check_words(struct run *run)
{
	struct trace_header *h = (struct trace_header *)(void *)run->preamble;
	uint32_t i;

	h->lost_chunks = h->cut_chunks = h->damage = h->signal = 0;
	h->skipped_bytes = h->lost_records = 0;
	for (i = 0; i < TRACE_LOSSES_MAX; i++) {
		if (atomic_load(&h->loss[i]) > TRACE_LOSS_MAX)
			run->damage.overwritten = true;
		/* header_refresh() takes those of a live run. */
		if (run->live || atomic_load(&h->loss[i]) > TRACE_LOSS_MAX)
			atomic_store(&h->loss[i], 0);
	}
}

static int open_raw(struct run *run, const char *path, struct mscope_error *err)
{
	struct stat st;
	int r;

	r = lazy_file_open(
		&run->raw, path,
		(run->live && !run->observed ? O_RDWR : O_RDONLY) | O_NOFOLLOW | O_NONBLOCK, 0);
	if (r == 0 && fstat(raw_fd(run), &st) < 0)
		r = -errno;
	if (r < 0)
		return error_set(err, r, "cannot open %s: %s", path, strerror(-r));
	if (!S_ISREG(st.st_mode))
		return error_set(err, MSCOPE_E_FOREIGN, "%s is not a file", path);
	run->raw_size = (uint64_t)st.st_size;
	if (run->raw_size < TRACE_HEADER_BYTES)
		return error_set(err, MSCOPE_E_TRUNCATED, "%s is too short for a trace", path);
	r = preamble_alloc(run, err);
	if (r == 0 && (r = io_read_at(raw_fd(run), run->preamble, TRACE_HEADER_BYTES, 0)) < 0)
		(void)error_set(err, r, "cannot read %s: %s", path, mscope_status_str(r));
	if (r == 0)
		r = take_header(run, path, err);
	if (r == MSCOPE_E_DAMAGED || r == MSCOPE_E_FOREIGN || r == MSCOPE_E_VERSION)
		r = rebuild_header(run, path) ? 0 : r;
	if (r == 0)
		check_words(run);
	if (r == 0 && run->live) {
		void *p;

		if (run->raw_size < run->chunks_at)
			return error_set(err, MSCOPE_E_TRUNCATED, "%s is too short for a trace",
					 path);
		p = mmap(NULL, run->chunks_at, PROT_READ | (run->observed ? 0 : PROT_WRITE),
			 MAP_SHARED, raw_fd(run), 0);
		if (p == MAP_FAILED)
			return error_set(err, -errno, "cannot map %s: %s", path, strerror(errno));
		run->mapped = p;
	}
	return r;
}

/* What was damaged when the trace was packed. */
static void take_damage(struct run *run)
{
	const struct trace_header *h = run_header(run);

	run->damage.bad_chunks += h->lost_chunks;
	run->damage.bad_records += h->cut_chunks;
	run->damage.skipped_bytes += h->skipped_bytes;
	run->damage.lost_records += h->lost_records;
	run->damage.overwritten = (h->damage & TRACE_DAMAGE_HEADER) != 0;
	run->damage.truncated = (h->damage & TRACE_DAMAGE_CUT) != 0;
}

/* Joins the blocks of frames; those that are damaged are left out and counted. 0 or -ENOMEM. */
static int read_frames(struct run *run, uint64_t *skipped_bytes)
{
	size_t i;

	for (i = 0; i < run->index.count; i++) {
		struct pack_entry *entry = &run->index.entries[i];
		uint8_t *joined;

		if (entry->block.kind != PACK_FRAMES)
			continue;
		joined = realloc(run->frames, run->frames_bytes + entry->block.raw_bytes + 1);
		if (joined == NULL)
			return -ENOMEM;
		run->frames = joined;
		if (pack_entry_read(run->pack_fd, entry, joined + run->frames_bytes) == 0)
			run->frames_bytes += entry->block.raw_bytes;
		else
			*skipped_bytes += entry->block.packed_bytes;
	}
	return 0;
}

void *run_take_frames(struct run *run, size_t *out_bytes)
{
	uint64_t again = 0; /* counted when the run was opened */
	void *frames;

	if (run->frames == NULL)
		(void)read_frames(run, &again);
	frames = run->frames;
	*out_bytes = run->frames_bytes;
	run->frames = NULL;
	run->frames_bytes = 0;
	return frames;
}

/* Takes header and frames from the packed file; the raw file's header, when there is one, is newer and stays. */
static int open_pack(struct run *run, const char *path, struct mscope_error *err)
{
	size_t i;
	int r;

	r = io_open_file(path, O_RDONLY, err);
	if (r < 0)
		return r;
	run->pack_fd = r;
	if (has_raw(run) && lseek(run->pack_fd, 0, SEEK_END) < (off_t)strlen(PACK_MAGIC))
		return 0; /* the engine was killed before its first word */
	r = pack_index_read(run->pack_fd, &run->index, err);
	if (r < 0)
		return r;
	/* What an engine was killed in the middle of packing is still in the raw file. */
	run->damage.skipped_bytes +=
		run->index.skipped_bytes - (has_raw(run) ? run->index.torn_bytes : 0);
	run->damage.cut = !has_raw(run) && !run->index.ended;
	r = read_frames(run, &run->damage.skipped_bytes);
	if (r < 0)
		return error_set(err, r, "no memory");
	if (has_raw(run))
		return 0;
	r = preamble_alloc(run, err);
	if (r < 0)
		return r;
	/* The last one that can be read. */
	for (i = run->index.count; i-- > 0;) {
		const struct pack_entry *entry = &run->index.entries[i];

		if (entry->block.kind != PACK_HEADER ||
		    entry->block.raw_bytes != TRACE_HEADER_BYTES)
			continue;
		if (pack_entry_read(run->pack_fd, entry, run->preamble) == 0) {
			r = take_header(run, path, err);
			take_damage(run);
			return r;
		}
		run->damage.skipped_bytes += entry->block.packed_bytes;
	}
	return error_set(err, MSCOPE_E_DAMAGED, "%s has no readable header", path);
}

/* ---- streams and pieces ---- */

uint64_t chunk_offset(const struct run *run, uint32_t number)
{
	return run->chunks_at + (uint64_t)number * run->chunk_bytes;
}

struct stream *stream_get(struct run *run, uint32_t writer)
{
	struct map_key key = {writer, 0};
	uint64_t *known = map_get(&run->by_writer, key);

	if (known != NULL)
		return &run->streams[*known];
	if (ARRAY_RESERVE(run->streams, run->stream_room, run->stream_count + 1) < 0 ||
	    ARRAY_RESERVE(run->heap, run->heap_room, run->stream_count + 1) < 0 ||
	    map_put(&run->by_writer, key, run->stream_count) < 0)
		return NULL;
	run->streams[run->stream_count] = (struct stream){.writer = writer};
	return &run->streams[run->stream_count++];
}

/* Of a raw file: the engine's own numbers are not. */
static bool writer_is_possible(uint32_t writer)
{
	return writer != 0 && writer != ENGINE_WRITER && writer != CHECKPOINT_WRITER;
}

static bool check_holds(const struct run *run, const struct chunk *chunk)
{
	return writer_is_possible(chunk->writer) &&
	       (chunk->check == 0 || chunk->check == chunk_check(chunk, run->salt));
}

bool chunk_is_ours(const struct run *run, const struct chunk *chunk)
{
	return atomic_load_explicit(&chunk->magic, memory_order_acquire) == CHUNK_MAGIC &&
	       chunk->salt == run->salt && check_holds(run, chunk);
}

bool chunk_was_ours(const struct run *run, const struct chunk *chunk)
{
	uint32_t state = atomic_load_explicit(&chunk->state, memory_order_acquire);
	uint32_t committed = atomic_load_explicit(&chunk->committed, memory_order_acquire);

	return (atomic_load_explicit(&chunk->magic, memory_order_acquire) == CHUNK_MAGIC ||
		chunk->salt == run->salt) &&
	       check_holds(run, chunk) && (state == CHUNK_OPEN || state == CHUNK_SEALED) &&
	       committed > CHUNK_HEADER_BYTES && committed <= run->chunk_bytes;
}

static int compare_pieces(const void *a, const void *b)
{
	const struct piece *x = a, *y = b;

	if (x->sequence != y->sequence)
		return x->sequence < y->sequence ? -1 : 1;
	return x->packed == y->packed ? 0 : x->packed ? -1 : 1;
}

/* Sorts the pieces of a run that is not live; one that is both packed and still in the raw file counts once. */
static void pieces_sort(struct stream *s)
{
	size_t from, to = 0;

	qsort(s->pieces, s->piece_count, sizeof(*s->pieces), compare_pieces);
	for (from = 0; from < s->piece_count; from++) {
		if (to > 0 && s->pieces[to - 1].sequence == s->pieces[from].sequence)
			continue;
		s->pieces[to++] = s->pieces[from];
	}
	s->piece_count = to;
}

/* Appends without keeping order; pieces_sort() follows. */
static int piece_append(struct run *run, uint32_t writer, const struct piece *piece)
{
	struct stream *s = stream_get(run, writer);

	if (s == NULL || ARRAY_RESERVE(s->pieces, s->piece_room, s->piece_count + 1) < 0)
		return -ENOMEM;
	s->pieces[s->piece_count++] = *piece;
	return 0;
}

/* Lists the chunks of a raw file that no process writes any more. */
static int list_raw(struct run *run)
{
	uint32_t count = atomic_load(&((struct trace_header *)(void *)run->preamble)->next_chunk),
		 number;
	uint64_t there = run->raw_size > run->chunks_at
				 ? (run->raw_size - run->chunks_at) / run->chunk_bytes
				 : 0;
	struct chunk head;

	if (count > run->chunks_max)
		count = run->chunks_max;
	if (count > there) {
		run->damage.missing_chunks += count - there;
		count = (uint32_t)there;
	}
	for (number = 0; number < count; number++) {
		struct piece piece = {.number = number};
		int r = io_read_at(raw_fd(run), &head, sizeof(head), chunk_offset(run, number));

		if (r == 0 && !chunk_is_ours(run, &head) && chunk_was_ours(run, &head)) {
			run->damage.overwritten = true;
		} else if (r < 0 || (atomic_load(&head.magic) != 0 && !chunk_is_ours(run, &head))) {
			run->damage.bad_chunks++;
			run->damage.skipped_bytes += run->chunk_bytes;
			continue;
		} else if (atomic_load(&head.magic) == 0 ||
			   atomic_load(&head.state) == CHUNK_FREE) {
			/* Never published, or released: nothing in it counts. */
			continue;
		}
		piece.sequence = head.sequence;
		piece.base_ns = head.base_ns;
		piece.records_before = head.records_before;
		r = piece_append(run, head.writer, &piece);
		if (r < 0)
			return r;
	}
	return 0;
}

static int list_pieces(struct run *run)
{
	size_t i;
	int r = 0;

	for (i = 0; i < run->index.count && r == 0; i++) {
		const struct pack_block *block = &run->index.entries[i].block;
		struct piece piece = {.sequence = block->sequence,
				      .number = (uint32_t)i,
				      .packed = true,
				      .base_ns = block->base_ns};

		if (block->kind == PACK_CHUNK && block->writer != 0)
			r = piece_append(run, block->writer, &piece);
	}
	if (r == 0 && has_raw(run))
		r = list_raw(run);
	run->checkpointed =
		map_get(&run->by_writer, (struct map_key){CHECKPOINT_WRITER, 0}) != NULL;
	for (i = 0; i < run->stream_count; i++)
		pieces_sort(&run->streams[i]);
	return r;
}

static struct run *run_new(bool live, struct mscope_error *err)
{
	struct run *run = calloc(1, sizeof(*run));

	if (run == NULL) {
		(void)error_set(err, -ENOMEM, "no memory");
		return NULL;
	}
	run->live = live;
	run->latest_ns = UINT64_MAX;
	run->pack_fd = -1;
	return run;
}

int run_observe(const char *raw_path, const char *pack_path, struct run **out,
		struct mscope_error *err)
{
	struct run *run = run_new(true, err);
	int r;

	if (run == NULL)
		return -ENOMEM;
	run->observed = true;
	run->part = strdup(pack_path);
	r = run->part == NULL ? error_set(err, -ENOMEM, "no memory") : open_raw(run, raw_path, err);
	if (r < 0) {
		run_close(run);
		return r;
	}
	*out = run;
	return 0;
}

int run_open(const char *raw_path, const char *pack_path, bool live, struct run **out,
	     struct mscope_error *err)
{
	struct run *run = run_new(live, err);
	int r = 0;

	if (run == NULL)
		return -ENOMEM;
	if (raw_path != NULL)
		r = open_raw(run, raw_path, err);
	if (r == 0 && pack_path != NULL)
		r = open_pack(run, pack_path, err);
	if (r == 0 && !live) {
		r = list_pieces(run);
		if (r < 0)
			(void)error_set(err, r, "no memory");
	}
	if (r < 0) {
		run_close(run);
		return r;
	}
	*out = run;
	return 0;
}

void run_close(struct run *run)
{
	size_t i;

	if (run == NULL)
		return;
	for (i = 0; i < run->stream_count; i++) {
		free(run->streams[i].pieces);
		free(run->streams[i].buffer);
	}
	for (i = 0; i < run->chunk_room; i++) {
		if (run->chunks[i] != NULL)
			(void)munmap(run->chunks[i], run->chunk_bytes);
	}
	builder_fini(&run->injected);
	if (run->mapped != NULL)
		(void)munmap(run->mapped, run->chunks_at);
	(void)lazy_file_close(&run->raw);
	if (run->pack_fd >= 0)
		(void)close(run->pack_fd);
	pack_index_fini(&run->index);
	map_fini(&run->by_writer);
	free(run->part);
	free(run->preamble);
	free(run->frames);
	free(run->streams);
	free(run->heap);
	free(run->chunks);
	free(run->waiting);
	free(run);
}
