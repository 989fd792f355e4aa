/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every writer of the run is a stream of pieces (chunks, by sequence). A stream that has a record to give stands in a heap by
 * the time of that record; a stream whose next piece is not opened yet stands there by the piece's base time, so that only as
 * many chunks are in memory as writers were active at one time.
 */
#include "trace/run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/io.h"
#include "base/map.h"
#include "trace/layout.h"
#include "trace/pack.h"
#include "trace/table.h"

struct piece {
	uint32_t sequence;
	uint32_t number; /* of the raw chunk, or of the packed entry */
	bool packed;
	uint64_t base_ns;
	/* How far run_poll() has looked ahead for the last time in it; live only. */
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
	bool started;	      /* a piece has been opened, so gaps can be told */
	bool injected;	      /* the engine's own: `buffer` is written by run_inject() */
	size_t buffer_room;   /* of an injected stream */
	uint64_t injected_ns; /* time of its last record */
	struct piece current;
	const uint8_t *data; /* its bytes, chunk header included */
	uint8_t *buffer;     /* owns `data` unless it is mapped */
	uint32_t at, limit;
	uint64_t base_ns;
	uint64_t time_ns; /* of the record at `at` */
	uint32_t bytes;	  /* its length */
};

struct run {
	bool live;
	bool final;
	int raw_fd, pack_fd;
	uint64_t raw_size;
	struct trace_header *mapped; /* live: the raw file's own header and ring */
	/* Where chunks are, as the header said when it was checked: while live, the traced program can write to it. */
	uint32_t chunk_bytes, chunks_max, salt;
	uint64_t chunks_at;
	uint8_t *preamble; /* else: copy of header, identity and table */
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
	struct stream *
		last; /* gave the last event; moves on at the next call. Streams are only added while it is NULL */
	uint32_t last_bytes;
	uint64_t padded[64]; /* a record of an older version, with 0 for the fields that it lacks */
	uint64_t watermark_ns, emitted_ns;
	/* Live chunks: their mappings, and the numbers to look at again. */
	void **chunks;
	size_t chunk_room;
	uint32_t scanned;
	uint32_t *waiting; /* handed out but not published yet, or given back and not taken again */
	size_t waiting_count, waiting_room;
	run_consumed *consumed;
	void *consumed_arg;
	bool checkpointed;  /* older chunks were dropped and summed up */
	uint32_t as_writer; /* whose thread the checkpoint tells next */
	struct run_damage damage;
};

const struct trace_header *run_header(const struct run *run)
{
	return run->mapped != NULL ? run->mapped
				   : (const struct trace_header *)(const void *)run->preamble;
}

struct trace_header *run_header_live(struct run *run)
{
	return run->mapped;
}

const struct run_damage *run_damage(const struct run *run)
{
	return &run->damage;
}

bool run_is_checkpointed(const struct run *run)
{
	return run->checkpointed;
}

void run_on_consumed(struct run *run, run_consumed *consumed, void *arg)
{
	run->consumed = consumed;
	run->consumed_arg = arg;
}

bool run_adopt_layout(struct run *run)
{
	struct trace_header *h = (struct trace_header *)(void *)run->preamble;
	const struct layout_table *own = layout_own_table();
	uint32_t type;

	if (memcmp(&run->layout, own, sizeof(run->layout)) == 0)
		return true;
	for (type = 0; type < MSCOPE_COUNT(own->types); type++) {
		if (run->layout.types[type].words != 0 &&
		    run->layout.types[type].words != own->types[type].words &&
		    type != EVENT_checkpoint && type != EVENT_live_block)
			return false;
	}
	/* The header of a process that lives is its own. */
	if (run->mapped != NULL)
		return false;
	h->table_bytes = (uint32_t)trace_table_bytes();
	memcpy((char *)h + TRACE_TABLE_AT, trace_table_text(), h->table_bytes);
	return true;
}

uint64_t run_wall_ns(const struct run *run, uint64_t time_ns)
{
	const struct trace_header *h = run_header(run);

	return h->realtime_ns + (time_ns - h->monotonic_ns);
}

const void *run_frames(const struct run *run, size_t *out_bytes)
{
	*out_bytes = run->frames_bytes;
	return run->frames;
}

const void *run_preamble(const struct run *run, uint32_t *out_bytes)
{
	*out_bytes = run->preamble_bytes;
	return run->mapped != NULL ? (const void *)run->mapped : run->preamble;
}

const char *run_identity(const struct run *run, const char *key)
{
	const struct trace_header *h = run_header(run);
	uint32_t bytes =
		h->identity_bytes < TRACE_IDENTITY_MAX ? h->identity_bytes : TRACE_IDENTITY_MAX;
	const char *at = (const char *)h + TRACE_IDENTITY_AT, *end = at + bytes;
	size_t length = strlen(key);

	while (at < end) {
		const char *stop = memchr(at, '\0', (size_t)(end - at));

		if (stop == NULL)
			return NULL;
		if ((size_t)(stop - at) > length && memcmp(at, key, length) == 0 &&
		    at[length] == '=')
			return at + length + 1;
		at = stop + 1;
	}
	return NULL;
}

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

static int preamble_new(struct run *run, struct mscope_error *err)
{
	/* As aligned as the struct that it begins with. */
	run->preamble = aligned_alloc(_Alignof(struct trace_header), TRACE_HEADER_BYTES);
	run->preamble_bytes = TRACE_HEADER_BYTES;
	return run->preamble == NULL ? error_set(err, -ENOMEM, "no memory") : 0;
}

static int open_raw(struct run *run, const char *path, struct mscope_error *err)
{
	struct stat st;
	int r;

	run->raw_fd = open(path, (run->live ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW);
	if (run->raw_fd < 0 || fstat(run->raw_fd, &st) < 0)
		return error_set(err, -errno, "cannot open %s: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return error_set(err, MSCOPE_E_FOREIGN, "%s is not a file", path);
	run->raw_size = (uint64_t)st.st_size;
	if (run->raw_size < TRACE_HEADER_BYTES)
		return error_set(err, MSCOPE_E_TRUNCATED, "%s is too short for a trace", path);
	r = preamble_new(run, err);
	if (r == 0 && (r = io_read_at(run->raw_fd, run->preamble, TRACE_HEADER_BYTES, 0)) < 0)
		(void)error_set(err, r, "cannot read %s: %s", path, mscope_status_str(r));
	if (r == 0)
		r = take_header(run, path, err);
	if (r == 0 && run->live) {
		void *p;

		if (run->raw_size < run->chunks_at)
			return error_set(err, MSCOPE_E_TRUNCATED, "%s is too short for a trace",
					 path);
		p = mmap(NULL, run->chunks_at, PROT_READ | PROT_WRITE, MAP_SHARED, run->raw_fd, 0);
		if (p == MAP_FAILED)
			return error_set(err, -errno, "cannot map %s: %s", path, strerror(errno));
		run->mapped = p;
	}
	return r;
}

/* Takes header and frames from the packed file; the raw file's header, when there is one, is newer and stays. */
static int open_pack(struct run *run, const char *path, struct mscope_error *err)
{
	size_t i;
	int r;

	run->pack_fd = open(path, O_RDONLY | O_CLOEXEC);
	if (run->pack_fd < 0)
		return error_set(err, -errno, "cannot open %s: %s", path, strerror(errno));
	if (run->raw_fd >= 0 && lseek(run->pack_fd, 0, SEEK_END) < (off_t)strlen(PACK_MAGIC))
		return 0; /* the engine was killed before its first word */
	r = pack_index_read(run->pack_fd, &run->index, err);
	if (r < 0)
		return r;
	/* What an engine was killed in the middle of packing is still in the raw file. */
	run->damage.skipped_bytes +=
		run->index.skipped_bytes - (run->raw_fd >= 0 ? run->index.torn_bytes : 0);
	run->damage.cut = run->raw_fd < 0 && !run->index.ended;
	for (i = 0; i < run->index.count; i++) {
		struct pack_entry *entry = &run->index.entries[i];

		if (entry->block.kind == PACK_FRAMES) {
			uint8_t *joined = realloc(run->frames,
						  run->frames_bytes + entry->block.raw_bytes + 1);

			if (joined == NULL)
				return error_set(err, -ENOMEM, "no memory");
			run->frames = joined;
			if (pack_entry_read(run->pack_fd, entry, joined + run->frames_bytes) == 0)
				run->frames_bytes += entry->block.raw_bytes;
			else
				run->damage.skipped_bytes += entry->block.packed_bytes;
		}
	}
	if (run->raw_fd >= 0)
		return 0;
	r = preamble_new(run, err);
	if (r < 0)
		return r;
	/* The last one that can be read. */
	for (i = run->index.count; i-- > 0;) {
		const struct pack_entry *entry = &run->index.entries[i];

		if (entry->block.kind != PACK_HEADER ||
		    entry->block.raw_bytes != TRACE_HEADER_BYTES)
			continue;
		if (pack_entry_read(run->pack_fd, entry, run->preamble) == 0)
			return take_header(run, path, err);
		run->damage.skipped_bytes += entry->block.packed_bytes;
	}
	return error_set(err, MSCOPE_E_DAMAGED, "%s has no readable header", path);
}

/* ---- streams and pieces ---- */

static uint64_t place_of(const struct run *run, uint32_t number)
{
	return run->chunks_at + (uint64_t)number * run->chunk_bytes;
}

static struct stream *stream_get(struct run *run, uint32_t writer)
{
	struct map_key key = {writer, 0};
	uint64_t *known = map_get(&run->by_writer, key);

	if (known != NULL)
		return &run->streams[*known];
	if (array_reserve(&run->streams, &run->stream_room, run->stream_count + 1,
			  sizeof(*run->streams)) < 0 ||
	    array_reserve(&run->heap, &run->heap_room, run->stream_count + 1, sizeof(*run->heap)) <
		    0 ||
	    map_put(&run->by_writer, key, run->stream_count) < 0)
		return NULL;
	run->streams[run->stream_count] = (struct stream){.writer = writer};
	return &run->streams[run->stream_count++];
}

static int piece_add(struct run *run, uint32_t writer, const struct piece *piece)
{
	struct stream *s = stream_get(run, writer);
	size_t at;

	if (s == NULL)
		return -ENOMEM;
	if (s->next > 0 && s->next == s->piece_count)
		s->next = s->piece_count = 0;
	if (array_reserve(&s->pieces, &s->piece_room, s->piece_count + 1, sizeof(*s->pieces)) < 0)
		return -ENOMEM;
	for (at = s->piece_count; at > s->next && s->pieces[at - 1].sequence > piece->sequence;
	     at--)
		s->pieces[at] = s->pieces[at - 1];
	s->pieces[at] = *piece;
	s->piece_count++;
	return 0;
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

static bool chunk_header_holds(const struct run *run, const struct chunk *chunk)
{
	return atomic_load_explicit(&chunk->magic, memory_order_acquire) == CHUNK_MAGIC &&
	       chunk->salt == run->salt && chunk->writer != 0;
}

/* Appends without keeping order; pieces_sort() follows. */
static int piece_append(struct run *run, uint32_t writer, const struct piece *piece)
{
	struct stream *s = stream_get(run, writer);

	if (s == NULL ||
	    array_reserve(&s->pieces, &s->piece_room, s->piece_count + 1, sizeof(*s->pieces)) < 0)
		return -ENOMEM;
	s->pieces[s->piece_count++] = *piece;
	return 0;
}

/* Lists the chunks of a raw file that nobody writes any more. */
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
		uint32_t state;
		int r = io_read_at(run->raw_fd, &head, sizeof(head), place_of(run, number));

		state = atomic_load(&head.state);
		if (r < 0 || (atomic_load(&head.magic) != 0 && !chunk_header_holds(run, &head))) {
			run->damage.bad_chunks++;
			run->damage.skipped_bytes += run->chunk_bytes;
			continue;
		}
		/* Never published, or given back: nothing in it counts. */
		if (atomic_load(&head.magic) == 0 || state == CHUNK_FREE)
			continue;
		piece.sequence = head.sequence;
		piece.base_ns = head.base_ns;
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
	if (r == 0 && run->raw_fd >= 0)
		r = list_raw(run);
	run->checkpointed =
		map_get(&run->by_writer, (struct map_key){CHECKPOINT_WRITER, 0}) != NULL;
	for (i = 0; i < run->stream_count; i++)
		pieces_sort(&run->streams[i]);
	return r;
}

int run_open(const char *raw_path, const char *pack_path, bool live, struct run **out,
	     struct mscope_error *err)
{
	struct run *run = calloc(1, sizeof(*run));
	int r = 0;

	if (run == NULL)
		return error_set(err, -ENOMEM, "no memory");
	run->live = live;
	run->raw_fd = run->pack_fd = -1;
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
	if (run->mapped != NULL)
		(void)munmap(run->mapped, run->chunks_at);
	if (run->raw_fd >= 0)
		(void)close(run->raw_fd);
	if (run->pack_fd >= 0)
		(void)close(run->pack_fd);
	pack_index_fini(&run->index);
	map_fini(&run->by_writer);
	free(run->preamble);
	free(run->frames);
	free(run->streams);
	free(run->heap);
	free(run->chunks);
	free(run->waiting);
	free(run);
}

/* ---- heap of streams ---- */

static uint64_t stream_key(const struct stream *s)
{
	return s->opened ? s->time_ns : s->pieces[s->next].base_ns;
}

static bool before(const struct run *run, size_t a, size_t b)
{
	const struct stream *x = &run->streams[a], *y = &run->streams[b];
	uint64_t kx = stream_key(x), ky = stream_key(y);

	return kx != ky ? kx < ky : x->writer < y->writer;
}

static void heap_up(struct run *run, size_t at)
{
	while (at > 0 && before(run, run->heap[at], run->heap[(at - 1) / 2])) {
		size_t other = run->heap[at];

		run->heap[at] = run->heap[(at - 1) / 2];
		run->heap[(at - 1) / 2] = other;
		at = (at - 1) / 2;
	}
}

static void heap_down(struct run *run, size_t at)
{
	for (;;) {
		size_t child = at * 2 + 1, other;

		if (child >= run->heap_count)
			return;
		if (child + 1 < run->heap_count &&
		    before(run, run->heap[child + 1], run->heap[child]))
			child++;
		if (!before(run, run->heap[child], run->heap[at]))
			return;
		other = run->heap[at];
		run->heap[at] = run->heap[child];
		run->heap[child] = other;
		at = child;
	}
}

static void heap_push(struct run *run, size_t index)
{
	run->streams[index].in_heap = true;
	run->heap[run->heap_count] = index;
	heap_up(run, run->heap_count++);
}

static void heap_pop(struct run *run)
{
	run->streams[run->heap[0]].in_heap = false;
	run->heap[0] = run->heap[--run->heap_count];
	heap_down(run, 0);
}

/* ---- reading a stream ---- */

static void *live_chunk(struct run *run, uint32_t number)
{
	size_t room = run->chunk_room;
	void *p;

	if (array_reserve(&run->chunks, &run->chunk_room, (size_t)number + 1,
			  sizeof(*run->chunks)) < 0)
		return NULL;
	if (run->chunk_room > room)
		memset(run->chunks + room, 0, (run->chunk_room - room) * sizeof(*run->chunks));
	if (run->chunks[number] == NULL) {
		p = mmap(NULL, run->chunk_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, run->raw_fd,
			 (off_t)place_of(run, number));
		if (p == MAP_FAILED)
			return NULL;
		run->chunks[number] = p;
	}
	return run->chunks[number];
}

/* Puts the next piece under the stream's hands. False when it cannot be read; it is then counted and passed over. */
static bool piece_open(struct run *run, struct stream *s)
{
	struct piece *piece = &s->pieces[s->next++];
	uint32_t expected = s->started ? s->current.sequence + 1 : 0;

	/* Behind a checkpoint the first chunks of a writer are gone on purpose. */
	if (piece->sequence > expected && (s->started || !run->checkpointed))
		run->damage.missing_chunks += piece->sequence - expected;
	s->started = true;
	s->current = *piece;
	s->base_ns = piece->base_ns;
	s->at = CHUNK_HEADER_BYTES;
	s->limit = CHUNK_HEADER_BYTES;
	if (piece->packed) {
		const struct pack_entry *entry = &run->index.entries[piece->number];
		uint8_t *grown =
			realloc(s->buffer, CHUNK_HEADER_BYTES + (size_t)entry->block.raw_bytes);

		if (grown == NULL)
			goto bad;
		s->buffer = grown;
		if (pack_entry_read(run->pack_fd, entry, grown + CHUNK_HEADER_BYTES) < 0)
			goto bad;
		s->limit = CHUNK_HEADER_BYTES + entry->block.raw_bytes;
		s->data = s->buffer;
	} else if (run->live) {
		s->data = live_chunk(run, piece->number);
		if (s->data == NULL)
			goto bad;
		s->limit = chunk_committed((const struct chunk *)(const void *)s->data,
					   run->chunk_bytes);
	} else {
		uint8_t *grown = realloc(s->buffer, run->chunk_bytes);

		if (grown == NULL)
			goto bad;
		s->buffer = grown;
		if (io_read_at(run->raw_fd, grown, run->chunk_bytes, place_of(run, piece->number)) <
		    0)
			goto bad;
		s->limit = chunk_committed((const struct chunk *)(const void *)grown,
					   run->chunk_bytes);
		s->data = s->buffer;
	}
	s->opened = true;
	return true;
bad:
	run->damage.bad_chunks++;
	run->damage.skipped_bytes += run->chunk_bytes;
	return false;
}

static bool piece_sealed(const struct run *run, const struct stream *s)
{
	if (run->final || !run->live)
		return true;
	return atomic_load_explicit(&((const struct chunk *)(const void *)s->data)->state,
				    memory_order_acquire) == CHUNK_SEALED;
}

/* True when the stream has a piece that may be opened now; while live, the next in sequence must be the one. */
static bool piece_ready(const struct run *run, const struct stream *s)
{
	if (s->next >= s->piece_count)
		return false;
	return !run->live || run->final ||
	       s->pieces[s->next].sequence == (s->started ? s->current.sequence + 1 : 0);
}

static void piece_done(struct run *run, struct stream *s)
{
	struct run_chunk chunk = {
		.number = s->current.number,
		.writer = s->writer,
		.sequence = s->current.sequence,
		.base_ns = s->current.base_ns,
		.records = s->data + CHUNK_HEADER_BYTES,
		.bytes = s->limit - CHUNK_HEADER_BYTES,
	};

	s->opened = false;
	if (run->consumed != NULL && !s->current.packed)
		run->consumed(run->consumed_arg, &chunk);
	s->data = NULL;
	if (s->next == s->piece_count) {
		free(s->buffer);
		s->buffer = NULL;
		s->buffer_room = 0;
	}
}

/*
 * Brings the stream to its next record. True when it has one: `at` stands on it, `time_ns` is its time. Otherwise the stream is
 * at its end for now.
 */
static bool stream_settle(struct run *run, struct stream *s)
{
	for (;;) {
		uint64_t words[2];
		size_t bytes;

		if (!s->opened) {
			if (!piece_ready(run, s))
				return false;
			(void)piece_open(run, s);
			continue;
		}
		if (s->at >= s->limit && s->injected) {
			if (!run->final)
				return false;
			piece_done(run, s);
			continue;
		}
		if (s->at >= s->limit && run->live && !s->current.packed) {
			/* Sealed first, length second: a sealed chunk's length is final. */
			bool sealed = piece_sealed(run, s);

			s->limit = chunk_committed((const struct chunk *)(const void *)s->data,
						   run->chunk_bytes);
			if (s->at >= s->limit) {
				if (!sealed)
					return false;
				piece_done(run, s);
				continue;
			}
		} else if (s->at >= s->limit) {
			piece_done(run, s);
			continue;
		}
		bytes = layout_record_bytes(&run->layout, s->data + s->at, s->limit - s->at);
		if (bytes == 0) {
			run->damage.bad_records++;
			run->damage.skipped_bytes += s->limit - s->at;
			s->limit = s->at; /* what was good is kept, also by whoever packs it */
			piece_done(run, s);
			continue;
		}
		memcpy(words, s->data + s->at, sizeof(words));
		if (record_type(words[0]) == EVENT_time_base) {
			s->base_ns = words[1];
			s->at += (uint32_t)bytes;
			continue;
		}
		s->time_ns = s->base_ns + record_delta(words[0]);
		s->bytes = (uint32_t)bytes;
		return true;
	}
}

/* ---- live ---- */

/* Time of the last record in an open chunk that is in the middle of the next one. */
static uint64_t piece_last_time(const struct run *run, struct piece *piece,
				const struct chunk *chunk)
{
	uint32_t limit = chunk_committed(chunk, run->chunk_bytes);
	const uint8_t *data = (const uint8_t *)chunk;

	if (piece->scan_at == 0) {
		piece->scan_at = CHUNK_HEADER_BYTES;
		piece->scan_base_ns = piece->scan_time_ns = piece->base_ns;
	}
	while (piece->scan_at < limit) {
		size_t bytes = layout_record_bytes(&run->layout, data + piece->scan_at,
						   limit - piece->scan_at);
		uint64_t words[2];

		if (bytes == 0)
			break;
		memcpy(words, data + piece->scan_at, sizeof(words));
		if (record_type(words[0]) == EVENT_time_base)
			piece->scan_base_ns = piece->scan_time_ns = words[1];
		else
			piece->scan_time_ns = piece->scan_base_ns + record_delta(words[0]);
		piece->scan_at += (uint32_t)bytes;
	}
	return piece->scan_time_ns;
}

/* Newest piece of a stream: the only one that its writer can be busy in. */
static struct piece *newest(struct stream *s)
{
	if (s->injected)
		return NULL;
	if (s->next < s->piece_count)
		return &s->pieces[s->piece_count - 1];
	return s->opened ? &s->current : NULL;
}

static int scan_chunk(struct run *run, uint32_t number, bool *out_taken)
{
	const struct chunk *chunk = live_chunk(run, number);
	struct piece piece = {.number = number};

	*out_taken = false;
	if (chunk == NULL)
		return -ENOMEM;
	if (atomic_load_explicit(&chunk->magic, memory_order_acquire) != CHUNK_MAGIC)
		return 0;
	*out_taken = true;
	if (!chunk_header_holds(run, chunk)) {
		run->damage.bad_chunks++;
		return 0;
	}
	piece.sequence = chunk->sequence;
	piece.base_ns = chunk->base_ns;
	return piece_add(run, chunk->writer, &piece);
}

static int scan_chunks(struct run *run)
{
	uint32_t next = atomic_load_explicit(&run->mapped->next_chunk, memory_order_acquire);
	size_t from, to = 0;
	bool taken;
	int r;

	if (next > run->chunks_max)
		next = run->chunks_max;
	for (from = 0; from < run->waiting_count; from++) {
		r = scan_chunk(run, run->waiting[from], &taken);
		if (r < 0)
			return r;
		if (!taken)
			run->waiting[to++] = run->waiting[from];
	}
	run->waiting_count = to;
	for (; run->scanned < next; run->scanned++) {
		r = scan_chunk(run, run->scanned, &taken);
		if (r == 0 && !taken) {
			r = array_reserve(&run->waiting, &run->waiting_room, run->waiting_count + 1,
					  sizeof(*run->waiting));
			if (r == 0)
				run->waiting[run->waiting_count++] = run->scanned;
		}
		if (r < 0)
			return r;
	}
	return 0;
}

/* Leaves the record behind that was given last; only now may its memory go. */
static void advance_last(struct run *run)
{
	struct stream *s = run->last;

	if (s == NULL)
		return;
	run->last = NULL;
	s->at += run->last_bytes;
	if (stream_settle(run, s))
		heap_down(run, 0);
	else
		heap_pop(run);
}

static void refill(struct run *run)
{
	size_t i;

	for (i = 0; i < run->stream_count; i++) {
		struct stream *s = &run->streams[i];

		if (s->in_heap)
			continue;
		/* An unopened first piece waits in the heap by its base time; what is open is brought to its next record. */
		if (s->opened ? stream_settle(run, s) : piece_ready(run, s))
			heap_push(run, i);
	}
}

int run_poll(struct run *run, uint64_t now_ns, bool final)
{
	uint64_t watermark = final || !run->live ? UINT64_MAX : now_ns;
	size_t i;
	int r;

	advance_last(run);
	if (!run->live) {
		run->watermark_ns = watermark;
		run->final = true;
		refill(run);
		return 0;
	}
	r = scan_chunks(run);
	if (r < 0)
		return r;
	run->final = final;
	for (i = 0; i < run->stream_count && !final; i++) {
		struct piece *piece = newest(&run->streams[i]);
		const struct chunk *chunk = piece == NULL ? NULL : live_chunk(run, piece->number);
		uint64_t last;

		if (chunk == NULL || atomic_load_explicit(&chunk->busy, memory_order_acquire) == 0)
			continue;
		last = piece_last_time(run, piece, chunk);
		if (last < watermark)
			watermark = last;
	}
	if (watermark > run->watermark_ns)
		run->watermark_ns = watermark;
	refill(run);
	return 0;
}

uint64_t run_watermark_ns(const struct run *run)
{
	return run->watermark_ns;
}

void run_release(struct run *run, uint32_t number)
{
	struct trace_header *h = run->mapped;
	struct chunk *chunk = live_chunk(run, number);
	uint64_t head;

	if (h == NULL || chunk == NULL)
		return;
	/* The length goes first: whoever reads the chunk from here on finds nothing in it. */
	atomic_store_explicit(&chunk->committed, 0, memory_order_relaxed);
	atomic_store_explicit(&chunk->busy, 0, memory_order_relaxed);
	atomic_store_explicit(&chunk->state, CHUNK_FREE, memory_order_relaxed);
	atomic_store_explicit(&chunk->magic, 0, memory_order_release);
	head = atomic_load_explicit(&h->ring_head, memory_order_relaxed);
	if (head - atomic_load_explicit(&h->ring_tail, memory_order_relaxed) >= 64 ||
	    array_reserve(&run->waiting, &run->waiting_room, run->waiting_count + 1,
			  sizeof(*run->waiting)) < 0) {
		/* Enough wait to be taken again; give the disk space of this one back, it is never used again. */
		(void)fallocate(run->raw_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				(off_t)place_of(run, number), run->chunk_bytes);
		(void)munmap(run->chunks[number], run->chunk_bytes);
		run->chunks[number] = NULL;
		return;
	}
	run->waiting[run->waiting_count++] = number;
	atomic_store_explicit((_Atomic uint32_t *)(void *)((char *)h + TRACE_HEADER_BYTES) +
				      head % run->chunks_max,
			      number, memory_order_relaxed);
	/* Pairs with the acquire in ring_take() of the collector. */
	atomic_store_explicit(&h->ring_head, head + 1, memory_order_release);
}

#define INJECTED_BYTES 65536u

int run_inject(struct run *run, uint32_t type, uint64_t time_ns, uint64_t *words, uint32_t count)
{
	uint32_t bytes = EVENT_BYTES_time_base + count * 8;
	uint64_t base[2];
	struct stream *s;
	int r;

	advance_last(run); /* streams may move when one is added */
	s = stream_get(run, ENGINE_WRITER);
	if (s == NULL)
		return -ENOMEM;
	/* A full piece goes the way of all chunks, once it has been read. */
	if (s->opened && s->limit + bytes > INJECTED_BYTES && s->at >= s->limit)
		piece_done(run, s);
	if (!s->opened) {
		s->current = (struct piece){.sequence = s->started ? s->current.sequence + 1 : 0,
					    .number = RUN_CHUNK_NONE};
		s->started = s->opened = s->injected = true;
		s->at = s->limit = CHUNK_HEADER_BYTES;
	}
	r = array_reserve(&s->buffer, &s->buffer_room, s->limit + bytes, 1);
	if (r < 0)
		return r;
	s->data = s->buffer;
	if (time_ns < run->watermark_ns)
		time_ns = run->watermark_ns;
	if (time_ns < s->injected_ns)
		time_ns = s->injected_ns;
	s->injected_ns = time_ns;
	base[0] = record_word0(EVENT_time_base, 0, 0);
	base[1] = time_ns;
	words[0] = record_word0(type, 0, 0);
	memcpy(s->buffer + s->limit, base, sizeof(base));
	memcpy(s->buffer + s->limit + sizeof(base), words, count * 8);
	s->limit += bytes;
	return 0;
}

int run_reserve(struct run *run, uint32_t ahead)
{
	struct trace_header *h = run->mapped;
	uint32_t next = atomic_load_explicit(&h->next_chunk, memory_order_relaxed);
	uint32_t reserved = atomic_load_explicit(&h->reserved_chunks, memory_order_acquire);
	uint32_t step = TRACE_RESERVE_BYTES / run->chunk_bytes;

	while (reserved < next + ahead && reserved + step <= run->chunks_max) {
		if (fallocate(run->raw_fd, 0, (off_t)place_of(run, reserved), TRACE_RESERVE_BYTES) <
		    0)
			return -errno;
		/* Pairs with the acquire in ensure_reserved() of the collector, which may have been faster. */
		if (atomic_compare_exchange_strong(&h->reserved_chunks, &reserved, reserved + step))
			reserved += step;
	}
	return 0;
}

/* Whose records follow. A checkpoint says it for writers whose own thread record was dropped. */
static void take_thread(struct run *run, struct stream *s, const uint64_t *words)
{
	struct event_thread thread;
	uint64_t *other = NULL;

	if (s->writer == CHECKPOINT_WRITER)
		other = map_get(&run->by_writer, (struct map_key){run->as_writer, 0});
	event_thread_decode(words, &thread);
	(other != NULL ? &run->streams[*other] : s)->tid = (uint32_t)thread.tid;
}

bool run_next(struct run *run, struct trace_event *out)
{
	struct stream *s;
	uint64_t word0;

	advance_last(run);
	for (;;) {
		if (run->heap_count == 0)
			return false;
		s = &run->streams[run->heap[0]];
		if (stream_key(s) >= run->watermark_ns)
			return false;
		if (s->opened)
			break;
		if (stream_settle(run, s))
			heap_down(run, 0);
		else
			heap_pop(run);
	}
	memcpy(&word0, s->data + s->at, sizeof(word0));
	run->last = s;
	run->last_bytes = s->bytes;
	out->type = record_type(word0);
	out->context = record_context(word0);
	out->writer = s->writer;
	out->time_ns = s->time_ns;
	out->words = (const uint64_t *)(const void *)(s->data + s->at);
	if (MSCOPE_UNLIKELY(run->layout.types[out->type].words < layout_own(out->type)->words)) {
		memset(run->padded, 0, sizeof(run->padded));
		memcpy(run->padded, s->data + s->at, run->layout.types[out->type].words * 8u);
		out->words = run->padded;
	}
	out->bytes = run->last_bytes;
	out->payload = s->data + s->at + run->layout.types[out->type].words * 8u;
	out->payload_bytes = run->last_bytes - run->layout.types[out->type].words * 8u;
	if (out->type == EVENT_thread)
		take_thread(run, s, out->words);
	else if (out->type == EVENT_as_writer && s->writer == CHECKPOINT_WRITER)
		run->as_writer = (uint32_t)out->words[1];
	out->tid = s->tid;
	if (s->time_ns < run->emitted_ns)
		run->damage.late_events++;
	else
		run->emitted_ns = s->time_ns;
	return true;
}
