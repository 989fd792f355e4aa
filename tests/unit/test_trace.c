/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claims about trace/: what an encoder wrote its decoder reads; a table tells every length or is refused; columns give back
 * the same bytes; a packed file that was cut or bent loses the blocks that were hit and no others; a run gives every committed
 * record once, in order of time, from a raw file, a packed one or both, while it grows or afterwards, and counts the rest.
 */
#include "unit.h"

#include <errno.h>
#include <sys/stat.h>
#include <time.h>

#include "live_writers.h"
#include "trace/builder.h"
#include "trace/columns.h"
#include "trace/context.h"
#include "trace/layout.h"
#include "trace/pack.h"
#include "trace/run.h"
#include "trace/table.h"
#include "trace_maker.h"

/* ---- what is on disk stays where it is ---- */

/* docs/trace-format.md says the same. A field moves only with a new version of the format. */
#define AT(type, member, offset)                                                                   \
	_Static_assert(offsetof(struct type, member) == (offset), #type "." #member " has moved")
AT(trace_header, version, 8);
AT(trace_header, endian, 12);
AT(trace_header, header_bytes, 16);
AT(trace_header, chunk_bytes, 20);
AT(trace_header, chunks_max, 24);
AT(trace_header, table_bytes, 28);
AT(trace_header, identity_bytes, 32);
AT(trace_header, pid, 36);
AT(trace_header, parent_pid, 40);
AT(trace_header, utc_offset_s, 44);
AT(trace_header, compatible, 48);
AT(trace_header, incompatible, 56);
AT(trace_header, chunks_at, 64);
AT(trace_header, run_id, 72);
AT(trace_header, parent_run_id, 88);
AT(trace_header, start_ticks, 104);
AT(trace_header, realtime_ns, 112);
AT(trace_header, monotonic_ns, 120);
AT(trace_header, clock_cost_ns, 128);
AT(trace_header, salt, 136);
AT(trace_header, c_depth, 140);
AT(trace_header, first_state, 144);
AT(trace_header, python_shown, 148);
AT(trace_header, chunks_mapped, 152);
AT(trace_header, signal, 176);
AT(trace_header, lost_records, 184);
AT(trace_header, state, 192);
AT(trace_header, stop, 196);
AT(trace_header, stop_errno, 200);
AT(trace_header, next_chunk, 204);
AT(trace_header, reserved_chunks, 208);
AT(trace_header, engine_pid, 212);
AT(trace_header, writers, 216);
AT(trace_header, membarrier, 220);
AT(trace_header, punched_chunks, 224);
AT(trace_header, alone_chunks, 228);
AT(trace_header, quiet, 232);
AT(trace_header, ring_head, 256);
AT(trace_header, ring_tail, 320);
AT(trace_header, loss, 384);
AT(trace_header, stall_max_ns, 512);
AT(trace_header, stall_total_ns, 520);
AT(trace_header, stall_count, 528);
AT(trace_header, made_records, 536);
AT(trace_header, loss_sum, 544);
AT(trace_header, request_ns, 576);
AT(trace_header, request, 584);
AT(trace_header, request_kind, 588);
AT(trace_header, answer, 592);
AT(trace_header, heartbeat, 596);
AT(chunk, salt, 4);
AT(chunk, writer, 8);
AT(chunk, sequence, 12);
AT(chunk, base_ns, 16);
AT(chunk, state, 24);
AT(chunk, check, 28);
AT(chunk, records_before, 32);
AT(chunk, committed, 64);
AT(chunk, busy, 68);
AT(chunk, records, 72);
AT(pack_block, kind, 4);
AT(pack_block, codec, 5);
AT(pack_block, raw_bytes, 8);
AT(pack_block, packed_bytes, 12);
AT(pack_block, writer, 16);
AT(pack_block, sequence, 20);
AT(pack_block, base_ns, 24);
AT(pack_block, sum, 48);
AT(pack_block, header_sum, 56);

/* ---- records ---- */

static void every_field_of_every_event_survives_its_encoder(void **state)
{
	uint64_t seed = 1;
	int round;

	(void)state;
	for (round = 0; round < 200; round++) {
#define FIELD(name, word, shift, bits, meaning)                                                    \
	in.name = unit_random(&seed) << 8 & RECORD_MASK(bits);
#define EVENT(number, name, words, shape, fields, meaning)                                         \
	{                                                                                          \
		struct event_##name in, out;                                                       \
		uint64_t record[(words)] = {0};                                                    \
		fields;                                                                            \
		event_##name##_encode(record, &in);                                                \
		event_##name##_decode(record, &out);                                               \
		assert_memory_equal(&in, &out, sizeof(in));                                        \
	}
#include "trace/events.def"
#undef EVENT
#undef FIELD
	}
}

static void no_field_of_an_event_reaches_into_another(void **state)
{
	(void)state;
	/* Each field alone with all its bits and more: the others must stay 0, and what is too wide must be cut. */
#define FIELD(name, word, shift, bits, meaning)                                                    \
	memset(&in, 0, sizeof(in));                                                                \
	in.name = UINT64_MAX;                                                                      \
	encode(record, &in);                                                                       \
	decode(record, &out);                                                                      \
	in.name = RECORD_MASK(bits);                                                               \
	assert_memory_equal(&in, &out, sizeof(in));
#define EVENT(number, name, words, shape, fields, meaning)                                         \
	{                                                                                          \
		void (*encode)(uint64_t *, const struct event_##name *) = event_##name##_encode;   \
		void (*decode)(const uint64_t *, struct event_##name *) = event_##name##_decode;   \
		struct event_##name in, out;                                                       \
		uint64_t record[(words)] = {0};                                                    \
		fields                                                                             \
	}
#include "trace/events.def"
#undef EVENT
#undef FIELD
}

static void word_0_holds_type_context_and_delta(void **state)
{
	uint64_t word0 = record_word0(EVENT_block_free, CONTEXT_MAX, UINT32_MAX);

	(void)state;
	assert_int_equal(record_type(word0), EVENT_block_free);
	assert_int_equal(record_context(word0), CONTEXT_MAX);
	assert_int_equal(record_delta(word0), UINT32_MAX);
	assert_int_equal(record_type(record_word0(255, 0, 0)), 255);
}

/* ---- layout ---- */

static void own_table_reads_as_itself(void **state)
{
	struct layout_table table;

	(void)state;
	assert_int_equal(layout_parse(trace_table_text(), trace_table_bytes(), &table), 0);
	assert_memory_equal(&table, layout_own_table(), sizeof(table));
	assert_int_equal(layout_own(EVENT_NONE)->words, 0);
}

static void table_of_a_newer_version_is_understood(void **state)
{
	static const char newer[] = "2 block_alloc 5 FIXED address:1:0:64\n"
				    "200 of_the_future 3 FIXED\n201 also 4 VARIABLE bytes:1:0:32\n";
	struct layout_table table;

	(void)state;
	assert_int_equal(layout_parse(newer, sizeof(newer) - 1, &table), 0);
	assert_int_equal(table.types[2].words, 5);
	assert_int_equal(table.types[200].words, 3);
	assert_false(table.types[200].variable);
	assert_true(table.types[201].variable);
	assert_int_equal(table.types[3].words, 0);
}

static void table_of_an_older_version_is_understood(void **state)
{
	static const char older[] = "15 live_block 7 FIXED address:1:0:64\n";
	struct layout_table table;

	(void)state;
	assert_int_equal(layout_parse(older, sizeof(older) - 1, &table), 0);
	assert_int_equal(table.types[15].words, 7);
	assert_true(layout_own(EVENT_live_block)->words > 7);
}

static void damaged_table_is_refused(void **state)
{
	static const char *const damaged[] = {
		"2 block_alloc 3 FIXED",      /* the line does not end */
		"2 block_alloc 3 VARIABLE\n", /* another shape */
		"7 stack_def 3 FIXED\n",
		"0 nothing 2 FIXED\n",
		"256 too_many 2 FIXED\n",
		"200 short 0 FIXED\n",
		"1 time_base 1 FIXED\n",
		"200 short 1 VARIABLE\n",
		"200 long 65 FIXED\n",
		"200 strange 3 ROUND\n",
		"200 words\n",
		"\n",
		"one two three four\n",
		"-1 negative 2 FIXED\n",
	};
	char text[4096];
	struct layout_table table;
	size_t i;

	(void)state;
	for (i = 0; i < MSCOPE_COUNT(damaged); i++) {
		if (layout_parse(damaged[i], strlen(damaged[i]), &table) != MSCOPE_E_DAMAGED)
			fail_msg("accepted: %s", damaged[i]);
	}
	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = '\n';
	assert_int_equal(layout_parse(text, sizeof(text), &table), MSCOPE_E_DAMAGED);
}

static void any_bytes_are_an_answer_as_a_table(void **state)
{
	char text[16384];
	struct layout_table table;
	uint64_t seed = 2;
	int round;

	(void)state;
	for (round = 0; round < 3000; round++) {
		size_t bytes = trace_table_bytes(), n;

		assert_true(bytes <= sizeof(text));
		memcpy(text, trace_table_text(), bytes);
		for (n = unit_random(&seed) % 4 + 1; n > 0; n--)
			text[unit_random(&seed) % bytes] = (char)unit_random(&seed);
		if (layout_parse(text, unit_random(&seed) % (bytes + 1), &table) == 0) {
			for (n = 0; n < 256; n++)
				assert_true(table.types[n].words >= 2 || !table.types[n].variable);
		}
	}
}

/* ---- columns ---- */

/* A record of any type we know, random but for what must hold. */
static size_t random_record(uint64_t *seed, uint8_t *out)
{
	uint32_t type = 1 + (uint32_t)(unit_random(seed) % (EVENT_END - 1));
	const struct layout *layout = layout_own(type);
	uint32_t bytes = layout->words * 8u, i;

	if (layout->variable)
		bytes += 8 * (uint32_t)(unit_random(seed) % 40);
	for (i = 0; i < bytes; i++)
		out[i] = (uint8_t)unit_random(seed);
	memcpy(out,
	       &(uint64_t){record_word0(type, (uint32_t)unit_random(seed),
					(uint32_t)(unit_random(seed) >> unit_random(seed) % 40))},
	       8);
	if (layout->variable)
		memcpy(out + 8, &bytes, sizeof(bytes));
	return bytes;
}

/* Buffers of exactly the promised size, so that a sanitizer sees the first byte too many. */
static void assert_columns_exact(const uint8_t *records, size_t bytes)
{
	uint8_t *columns = malloc(columns_room(bytes)), *back = malloc(bytes + !bytes);
	size_t length = columns_split(records, bytes, columns);

	assert_in_range(length, 1, columns_room(bytes));
	columns = realloc(columns, length);
	assert_true(columns_join(columns, length, back, bytes));
	assert_memory_equal(records, back, bytes);
	free(columns);
	free(back);
}

static void columns_give_back_the_same_records(void **state)
{
	uint8_t *records = calloc(1, 65536);
	uint64_t seed = 3;
	int round;

	(void)state;
	assert_columns_exact(records, 0);
	for (round = 0; round < 300; round++) {
		size_t bytes = 0, most = unit_random(&seed) % 60000;

		while (bytes < most)
			bytes += random_record(&seed, records + bytes);
		assert_columns_exact(records, bytes);
	}
	free(records);
}

static void columns_of_one_record_of_each_type_give_it_back(void **state)
{
	uint64_t seed = 4, records[64];
	uint32_t type;

	(void)state;
	for (type = 1; type < EVENT_END; type++) {
		uint32_t bytes = layout_own(type)->words * 8u;
		size_t i;

		for (i = 0; i < MSCOPE_COUNT(records); i++)
			records[i] = unit_random(&seed);
		records[0] = record_word0(type, CONTEXT_MAX, UINT32_MAX);
		if (layout_own(type)->variable)
			memcpy(&records[1], &bytes, sizeof(bytes));
		assert_columns_exact((const uint8_t *)records, bytes);
	}
}

static void records_that_do_not_hold_are_not_split(void **state)
{
	uint8_t records[4096], out[8192];
	uint64_t seed = 5;
	size_t bytes = 0;

	(void)state;
	while (bytes < 3000)
		bytes += random_record(&seed, records + bytes);
	assert_int_equal(columns_split(records, bytes - 8, out), 0); /* cut */
	records[0] = 0;
	assert_int_equal(columns_split(records, bytes, out), 0);
	records[0] = 250;
	assert_int_equal(columns_split(records, bytes, out), 0);
}

/* As a later version writes them: a type that we do not know, and one of ours with a word more. */
static void columns_of_other_versions_are_joined_by_the_shapes_they_carry(void **state)
{
	static const uint32_t lengths[] = {2, 4, 2, 2, 2, 16, 16};
	static const uint8_t bytes[] = {250,
					3,
					EVENT_block_free,
					3, /* shapes */
					250,
					EVENT_block_free, /* types */
					7,
					8, /* contexts */
					10,
					2}; /* times: 5, then 1 more */
	static const uint64_t words[] = {0x11, 0x33, 0x22, 0x44};
	const uint64_t wanted[] = {record_word0(250, 7, 5),
				   0x11,
				   0x22,
				   record_word0(EVENT_block_free, 8, 6),
				   0x33,
				   0x44};
	uint8_t columns[sizeof(lengths) + sizeof(bytes) + sizeof(words)];
	uint64_t out[6];

	(void)state;
	memcpy(columns, lengths, sizeof(lengths));
	memcpy(columns + sizeof(lengths), bytes, sizeof(bytes));
	memcpy(columns + sizeof(lengths) + sizeof(bytes), words, sizeof(words));
	assert_true(columns_join(columns, sizeof(columns), out, sizeof(out)));
	assert_memory_equal(out, wanted, sizeof(out));
	assert_false(columns_join(columns, sizeof(columns), out, sizeof(out) - 8));
}

static void hostile_columns_end_with_an_answer(void **state)
{
	uint8_t *records = malloc(8192), *columns = malloc(columns_room(8192)), *back;
	uint64_t seed = 6;
	size_t bytes = 0, length;
	int round;

	(void)state;
	while (bytes < 6000)
		bytes += random_record(&seed, records + bytes);
	length = columns_split(records, bytes, columns);
	for (round = 0; round < 4000; round++) {
		size_t cut = unit_random(&seed) % 4 == 0 ? unit_random(&seed) % length : length;
		size_t wanted = unit_random(&seed) % 8 == 0 ? unit_random(&seed) % 8192 : bytes;
		uint8_t *spoilt = malloc(cut + !cut);
		size_t n;

		memcpy(spoilt, columns, cut);
		for (n = unit_random(&seed) % 6; n > 0 && cut > 0; n--) {
			/* The lengths at the front matter most. */
			size_t at = unit_random(&seed) %
				    (unit_random(&seed) % 2 && cut > 24 ? 24 : cut);

			spoilt[at] = (uint8_t)unit_random(&seed);
		}
		back = malloc(wanted + !wanted);
		(void)columns_join(spoilt, cut, back, wanted);
		free(back);
		free(spoilt);
	}
	free(columns);
	free(records);
}

/* ---- packed files ---- */

/* One test trace for all of these: three writers, a few chunks each; `made_events` is how many events it has. */
#define WRITERS	   3u
#define PER_WRITER 40u
#define BLOCKS_MAX 32u
static uint32_t made_events;

static void make_trace(struct maker *m)
{
	struct maker_writer w[WRITERS] = {{0}};
	uint64_t now = 5000, seed = 7;
	uint32_t i, n;

	maker_make(m, unit_path("raw"), MAKER_CHUNK_BYTES, MAKER_CHUNKS);
	made_events = 0;
	for (n = 0; n < WRITERS; n++) {
		w[n] = (struct maker_writer){.maker = m, .number = n + 1};
		maker_thread(&w[n], now++, 100 + n);
		maker_context(&w[n], now++, 1, POOL_hal, BLOCK_ALLOC, n);
		made_events += 2;
	}
	for (i = 0; i < PER_WRITER; i++) {
		for (n = 0; n < WRITERS; n++) {
			now += unit_random(&seed) % 1000;
			maker_alloc(&w[n], now, 1, i << 8 | n, i + 1, 0);
			if (i % 3 == 0)
				maker_free(&w[n], now + 1, 1, i << 8 | n);
			made_events += i % 3 == 0 ? 2 : 1;
			if (i % 16 == 15)
				maker_seal(&w[n]);
		}
	}
}

struct packed {
	struct pack_writer *writer;
	uint32_t blocks;
	uint64_t ends[BLOCKS_MAX]; /* offset behind each block */
	uint32_t kinds[BLOCKS_MAX];
	uint32_t events[BLOCKS_MAX]; /* in each block */
};

static void pack_put(struct packed *p, uint32_t kind, const void *data, uint32_t bytes,
		     const struct run_chunk *chunk)
{
	struct pack_block meta = {.kind = (uint8_t)kind, .raw_bytes = bytes};

	assert_true(p->blocks < BLOCKS_MAX);
	if (chunk != NULL) {
		meta.writer = chunk->writer;
		meta.sequence = chunk->sequence;
		meta.base_ns = chunk->base_ns;
	}
	assert_int_equal(pack_writer_put(p->writer, &meta, data), 0);
	p->kinds[p->blocks] = kind;
	p->ends[p->blocks++] = pack_writer_bytes(p->writer);
}

static void pack_chunk(void *arg, const struct run_chunk *chunk)
{
	struct packed *p = arg;
	const uint8_t *at = chunk->records;
	uint32_t left = chunk->bytes;

	pack_put(p, PACK_CHUNK, chunk->records, chunk->bytes, chunk);
	while (left > 0) {
		uint32_t bytes = (uint32_t)layout_record_bytes(layout_own_table(), at, left);

		assert_true(bytes > 0);
		p->events[p->blocks - 1] += at[0] != EVENT_time_base;
		at += bytes;
		left -= bytes;
	}
}

/* The test trace as the engine packs it: header, chunks, frames, header, end. */
static void make_pack(struct packed *out)
{
	struct trace_event event;
	struct packed p = {0};
	const void *preamble;
	struct run *run;
	uint32_t bytes;
	struct maker m;

	make_trace(&m);
	(void)unlink(unit_path("pack"));
	assert_int_equal(pack_writer_open(unit_path("pack"), &p.writer, NULL), 0);
	assert_int_equal(run_open(m.path, NULL, false, &run, NULL), 0);
	preamble = run_preamble(run, &bytes);
	pack_put(&p, PACK_HEADER, preamble, bytes, NULL);
	run_on_consumed(run, pack_chunk, &p);
	assert_int_equal(run_poll(run, 0, true), 0);
	while (run_next(run, &event))
		;
	pack_put(&p, PACK_FRAMES, "not read here", 13, NULL);
	pack_put(&p, PACK_HEADER, preamble, bytes, NULL);
	pack_put(&p, PACK_END, "", 0, NULL);
	run_close(run);
	pack_writer_close(p.writer);
	maker_fini(&m);
	*out = p;
}

/* Reads to the end. The number of events, or the code of run_open(). */
static int count_events(const char *raw, const char *pack, struct run_damage *out_damage)
{
	struct trace_event event;
	struct run *run;
	uint64_t before = 0;
	int r = run_open(raw, pack, false, &run, NULL), count = 0;

	if (r < 0)
		return r;
	r = run_poll(run, 0, true);
	while (r == 0 && run_next(run, &event)) {
		assert_true(event.time_ns >= before || run_damage(run)->late_events > 0);
		before = event.time_ns;
		count++;
	}
	if (out_damage != NULL)
		*out_damage = *run_damage(run);
	run_close(run);
	return r < 0 ? r : count;
}

static bool is_damaged(const struct run_damage *d)
{
	return d->bad_chunks + d->missing_chunks + d->bad_records + d->skipped_bytes > 0 ||
	       d->cut || d->overwritten || d->truncated;
}

static void packed_trace_has_the_events_of_the_raw_one(void **state)
{
	struct run_damage damage;
	struct packed p;

	(void)state;
	make_pack(&p);
	assert_in_range(p.blocks, 8, BLOCKS_MAX);
	assert_int_equal(count_events(NULL, unit_path("pack"), &damage), made_events);
	assert_false(is_damaged(&damage));
	assert_int_equal(damage.late_events, 0);
}

static void packed_block_comes_back_byte_for_byte(void **state)
{
	uint64_t seed = 8;
	uint8_t data[5000], back[5000];
	struct pack_index index;
	struct pack_writer *writer;
	size_t i, sizes[] = {0, 1, 16, 5000, 5000};
	int fd;

	(void)state;
	(void)unlink(unit_path("pack"));
	assert_int_equal(pack_writer_open(unit_path("pack"), &writer, NULL), 0);
	for (i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)unit_random(&seed); /* cannot be compressed: stored */
	for (i = 0; i < MSCOPE_COUNT(sizes); i++) {
		struct pack_block meta = {.kind = PACK_CHUNK,
					  .raw_bytes = (uint32_t)sizes[i],
					  .writer = 7,
					  .sequence = (uint32_t)i,
					  .base_ns = UINT64_MAX - i};

		if (i == 4)
			memset(data, 'a', sizeof(data)); /* not records: compressed as it is */
		assert_int_equal(pack_writer_put(writer, &meta, data), 0);
	}
	pack_writer_close(writer);
	fd = open(unit_path("pack"), O_RDONLY);
	assert_true(pack_probe(fd));
	assert_int_equal(pack_index_read(fd, &index, NULL), 0);
	assert_int_equal(index.count, MSCOPE_COUNT(sizes));
	assert_int_equal(index.skipped_bytes, 0);
	assert_false(index.ended);
	assert_int_equal(index.entries[3].block.codec, PACK_STORED);
	assert_int_equal(index.entries[4].block.codec, PACK_ZSTD);
	for (i = 0; i < index.count; i++) {
		assert_int_equal(index.entries[i].block.sequence, i);
		assert_true(index.entries[i].block.base_ns == UINT64_MAX - i);
		assert_int_equal(pack_entry_read(fd, &index.entries[i], back), 0);
	}
	assert_memory_equal(back, data, sizeof(data));
	pack_index_fini(&index);
	(void)close(fd);
}

/* A stray store of the program into the header: what the file has is read, and no page behind its end is touched. */
static void number_of_chunks_beyond_the_file_is_damage(void **state)
{
	struct trace_event event;
	uint32_t used, events = 0;
	struct run *run;
	struct maker m;
	off_t bytes;
	struct stat st;

	(void)state;
	make_trace(&m);
	used = atomic_load(&m.header->next_chunk);
	assert_true(used < m.header->chunks_max);
	bytes = (off_t)(m.header->chunks_at + (uint64_t)used * m.header->chunk_bytes);
	assert_int_equal(truncate(m.path, bytes), 0);
	assert_int_equal(run_open(m.path, NULL, true, &run, NULL), 0);
	atomic_store(&m.header->next_chunk, UINT32_MAX);
	assert_int_equal(run_reserve(run, 8), 0);
	assert_int_equal(run_poll(run, 0, true), 0);
	while (run_next(run, &event))
		events++;
	assert_int_equal(events, made_events);
	assert_int_equal(run_damage(run)->bad_chunks, 1);
	assert_int_equal(stat(m.path, &st), 0);
	assert_int_equal(st.st_size, bytes);
	run_close(run);
	maker_fini(&m);
}

/* The memory of a reader is bounded by the size of the file, and the writer keeps to it. */
static void what_packs_too_well_is_stored_as_it_is(void **state)
{
	static uint8_t data[1 << 20], back[sizeof(data)];
	struct pack_block meta = {.kind = PACK_FRAMES, .raw_bytes = sizeof(data)};
	struct pack_index index = {0};
	struct pack_writer *writer;
	int fd;

	(void)state;
	(void)unlink(unit_path("pack"));
	assert_int_equal(pack_writer_open(unit_path("pack"), &writer, NULL), 0);
	assert_int_equal(pack_writer_put(writer, &meta, data), 0);
	pack_writer_close(writer);
	fd = open(unit_path("pack"), O_RDONLY);
	assert_int_equal(pack_index_read(fd, &index, NULL), 0);
	assert_int_equal(index.count, 1);
	assert_int_equal(index.entries[0].block.codec, PACK_STORED);
	memset(back, 1, sizeof(back));
	assert_int_equal(pack_entry_read(fd, &index.entries[0], back), 0);
	assert_memory_equal(back, data, sizeof(data));
	pack_index_fini(&index);
	(void)close(fd);
}

static void pack_cut_at_any_byte_has_all_blocks_before_the_cut(void **state)
{
	struct run_damage damage;
	struct packed p;
	size_t bytes, cut;
	uint8_t *data;

	(void)state;
	make_pack(&p);
	data = unit_read_file(unit_path("pack"), &bytes);
	assert_int_equal(bytes, p.ends[p.blocks - 1]);
	unit_write_file(unit_path("copy"), data, bytes);
	for (cut = bytes; cut-- > 0;) {
		int wanted = 0, found;
		uint32_t i;

		assert_int_equal(truncate(unit_path("copy"), (off_t)cut), 0);
		found = count_events(NULL, unit_path("copy"), &damage);
		if (cut < p.ends[0]) {
			assert_int_equal(found, cut < 8 ? MSCOPE_E_FOREIGN : MSCOPE_E_DAMAGED);
			continue;
		}
		for (i = 0; i < p.blocks && p.ends[i] <= cut; i++)
			wanted += (int)p.events[i];
		assert_int_equal(found, wanted);
		assert_true(is_damaged(&damage));
	}
	free(data);
}

static void bent_bit_costs_the_block_it_hits_and_no_other(void **state)
{
	struct run_damage damage;
	struct packed p;
	size_t bytes, at;
	uint8_t *data;
	uint32_t block = 0;
	int fd;

	(void)state;
	make_pack(&p);
	data = unit_read_file(unit_path("pack"), &bytes);
	fd = open(unit_path("pack"), O_WRONLY | O_CLOEXEC);
	for (at = 0; at < bytes; at++) {
		uint8_t bent = data[at] ^ (uint8_t)(1u << (at * 5 + at / 8) % 8);
		int found;

		while (p.ends[block] <= at)
			block++;
		assert_int_equal(pwrite(fd, &bent, 1, (off_t)at), 1);
		found = count_events(NULL, unit_path("pack"), &damage);
		assert_int_equal(pwrite(fd, &data[at], 1, (off_t)at), 1);
		if (at < 8) {
			assert_int_equal(found, MSCOPE_E_FOREIGN);
			continue;
		}
		/* The header stands there twice, so that it survives as well. */
		if (found != (int)(made_events - p.events[block]))
			fail_msg("byte %zu in block %u: %d events of %u", at, block, found,
				 made_events);
		if (p.kinds[block] == PACK_CHUNK)
			assert_true(is_damaged(&damage));
	}
	(void)close(fd);
	free(data);
}

static void pack_is_continued_behind_its_last_whole_block(void **state)
{
	struct pack_block meta = {.kind = PACK_CHUNK, .raw_bytes = 8, .writer = 1, .sequence = 99};
	struct run_damage damage;
	struct pack_writer *writer;
	struct packed p;
	size_t bytes, cut;
	uint8_t *data;

	(void)state;
	make_pack(&p);
	data = unit_read_file(unit_path("pack"), &bytes);
	/* As after a kill in the middle of the last chunk's block: what is left of it must not stay behind the new one. */
	for (cut = p.ends[p.blocks - 5] + 1; cut < p.ends[p.blocks - 4]; cut += 7) {
		struct stat st;

		unit_write_file(unit_path("copy"), data, cut);
		assert_int_equal(pack_writer_open(unit_path("copy"), &writer, NULL), 0);
		assert_int_equal(pack_writer_bytes(writer), p.ends[p.blocks - 5]);
		meta.kind = PACK_END;
		meta.raw_bytes = 0;
		assert_int_equal(pack_writer_put(writer, &meta, ""), 0);
		assert_int_equal(stat(unit_path("copy"), &st), 0);
		assert_int_equal(st.st_size, pack_writer_bytes(writer));
		pack_writer_close(writer);
		assert_true(count_events(NULL, unit_path("copy"), &damage) > 0);
		assert_int_equal(damage.skipped_bytes, 0);
		assert_false(damage.cut);
	}
	/* Something that is no packed trace is not written to. */
	unit_write_file(unit_path("copy"), (const uint8_t *)"precious", 8);
	assert_int_equal(pack_writer_open(unit_path("copy"), &writer, NULL), MSCOPE_E_FOREIGN);
	free(data);
}

/* ---- runs ---- */

struct seen {
	uint64_t times[4096];
	uint32_t writers[4096];
	uint64_t addresses[4096];
	uint32_t tids[4096];
	size_t count; /* of block events */
	struct run_damage damage;
};

static void see(struct run *run, struct seen *seen)
{
	struct trace_event event;

	while (run_next(run, &event)) {
		if (event.type != EVENT_block_alloc && event.type != EVENT_block_free)
			continue;
		assert_true(seen->count < MSCOPE_COUNT(seen->times));
		seen->times[seen->count] = event.time_ns;
		seen->writers[seen->count] = event.writer;
		seen->tids[seen->count] = event.tid;
		seen->addresses[seen->count++] = event.words[1];
	}
	seen->damage = *run_damage(run);
}

static struct seen seen; /* large */

static void read_all(const struct maker *m)
{
	struct run *run;

	memset(&seen, 0, sizeof(seen));
	assert_int_equal(run_open(m->path, NULL, false, &run, NULL), 0);
	assert_int_equal(run_poll(run, 0, true), 0);
	see(run, &seen);
	run_close(run);
}

static void writers_are_merged_by_time_and_ties_by_writer(void **state)
{
	struct maker_writer a = {.number = 2}, b = {.number = 1}, c = {.number = 9};
	const uint64_t times[] = {10, 20, 20, 20, 30, 31, 32};
	const uint32_t writers[] = {2, 1, 2, 9, 9, 1, 2};
	struct maker m;
	size_t i;

	(void)state;
	maker_make(&m, unit_path("raw"), MAKER_CHUNK_BYTES, MAKER_CHUNKS);
	a.maker = b.maker = c.maker = &m;
	maker_alloc(&a, 10, 0, 1, 1, 0);
	maker_alloc(&a, 20, 0, 2, 1, 0);
	maker_thread(&b, 1, 77);
	maker_alloc(&b, 20, 0, 3, 1, 0);
	maker_alloc(&c, 20, 0, 4, 1, 0);
	maker_alloc(&c, 30, 0, 5, 1, 0);
	maker_seal(&b);
	maker_alloc(&b, 31, 0, 6, 1, 0);
	maker_alloc(&a, 32, 0, 7, 1, 0);
	read_all(&m);
	assert_int_equal(seen.count, MSCOPE_COUNT(times));
	for (i = 0; i < seen.count; i++) {
		assert_int_equal(seen.times[i], times[i]);
		assert_int_equal(seen.writers[i], writers[i]);
		assert_int_equal(seen.tids[i], writers[i] == 1 ? 77 : 0);
	}
	assert_false(is_damaged(&seen.damage));
	assert_int_equal(seen.damage.late_events, 0);
	maker_fini(&m);
}

static void pauses_longer_than_a_delta_keep_their_time(void **state)
{
	struct maker_writer w = {.number = 1};
	uint64_t now = 1, second = 1000000000;
	struct maker m;
	int i;

	(void)state;
	maker_make(&m, unit_path("raw"), MAKER_CHUNK_BYTES, MAKER_CHUNKS);
	w.maker = &m;
	for (i = 0; i < 300; i++, now += i % 3 == 0 ? 5 * second : second / 3)
		maker_alloc(&w, now, 0, now, 1, 0);
	maker_alloc(&w, UINT64_MAX - 1, 0, UINT64_MAX - 1, 1, 0);
	read_all(&m);
	assert_int_equal(seen.count, 301);
	for (i = 0; i < 301; i++)
		assert_true(seen.times[i] == seen.addresses[i]);
	assert_false(is_damaged(&seen.damage));
	maker_fini(&m);
}

/* A table in which every record has become one word longer than ours, as a later version may have it. */
static void records_that_grew_in_a_later_version_are_read(void **state)
{
	struct maker_writer w = {.number = 1};
	uint64_t base[3] = {0, 6000000000u, 7}, alloc[4] = {0, 42, 1, 7};
	struct maker m;
	char *table;

	(void)state;
	maker_make(&m, unit_path("raw"), MAKER_CHUNK_BYTES, MAKER_CHUNKS);
	table = (char *)m.header + TRACE_TABLE_AT;
	m.header->table_bytes =
		(uint32_t)sprintf(table, "1 time_base 3 FIXED\n2 block_alloc 4 FIXED\n");
	w.maker = &m;
	maker_put(&w, 10, EVENT_time_base, 0, base, sizeof(base));
	w.base_ns = base[1];
	maker_put(&w, base[1] + 5, EVENT_block_alloc, 0, alloc, sizeof(alloc));
	maker_put(&w, base[1] + 6, EVENT_block_alloc, 0, alloc, sizeof(alloc));
	read_all(&m);
	assert_false(is_damaged(&seen.damage));
	assert_int_equal(seen.count, 2);
	assert_true(seen.times[1] == base[1] + 6);
	maker_fini(&m);
}

static void lost_chunks_are_counted_by_the_gap_they_leave(void **state)
{
	struct maker_writer w = {.number = 1}, other = {.number = 2, .sequence = 3};
	struct maker m;
	uint32_t i;

	(void)state;
	maker_make(&m, unit_path("raw"), MAKER_CHUNK_BYTES, MAKER_CHUNKS);
	w.maker = other.maker = &m;
	for (i = 0; i < 6; i++) {
		maker_alloc(&w, i + 1, 0, i, 1, 0);
		maker_seal(&w);
	}
	memset(maker_chunk(&m, 2), 0, CHUNK_HEADER_BYTES);
	memset(maker_chunk(&m, 3), 0, CHUNK_HEADER_BYTES);
	maker_alloc(&other, 5, 0, 99, 1, 0);
	read_all(&m);
	assert_int_equal(seen.count, 5);
	assert_int_equal(seen.damage.missing_chunks, 2 + 3);
	assert_int_equal(seen.damage.bad_chunks, 0);
	maker_fini(&m);
}

static void chunk_that_is_not_ours_is_skipped_and_counted(void **state)
{
	struct maker_writer w[6] = {{0}};
	struct maker m;
	uint32_t i;

	(void)state;
	maker_make(&m, unit_path("raw"), MAKER_CHUNK_BYTES, MAKER_CHUNKS);
	for (i = 0; i < MSCOPE_COUNT(w); i++) {
		w[i] = (struct maker_writer){.maker = &m, .number = i + 1};
		maker_alloc(&w[i], 10 + i, 0, i, 1, 0);
	}
	atomic_store(&maker_chunk(&m, 0)->magic, 0x12345678);
	maker_chunk(&m, 0)->salt ^= 1;
	atomic_store(&maker_chunk(&m, 1)->magic, 0x12345678);
	atomic_store(&maker_chunk(&m, 1)->state, 77);
	maker_chunk(&m, 2)->writer = 0;
	read_all(&m);
	assert_int_equal(seen.damage.bad_chunks, 3);
	assert_int_equal(seen.damage.skipped_bytes, 3 * MAKER_CHUNK_BYTES);
	assert_false(seen.damage.overwritten);
	assert_int_equal(seen.count, 3);
	assert_int_equal(seen.addresses[0], 3);
	/* One word alone does not hide what is in it. */
	atomic_store(&maker_chunk(&m, 3)->magic, 0x12345678);
	maker_chunk(&m, 4)->salt ^= 1;
	read_all(&m);
	assert_int_equal(seen.damage.bad_chunks, 3);
	assert_true(seen.damage.overwritten);
	assert_int_equal(seen.count, 3);
	maker_fini(&m);
}

static void only_what_was_committed_counts(void **state)
{
	struct maker_writer w = {.number = 1};
	struct maker m;
	struct chunk *chunk;
	uint32_t before = 0, i;

	(void)state;
	maker_make(&m, unit_path("raw"), MAKER_CHUNK_BYTES, MAKER_CHUNKS);
	w.maker = &m;
	for (i = 0; i < 10; i++) {
		maker_alloc(&w, i + 1, 0, i, 1, 0);
		if (i == 6)
			before = w.used;
	}
	chunk = maker_chunk(&m, 0);
	/* The bytes of the rest are all there, and do not count. */
	atomic_store(&chunk->committed, before);
	read_all(&m);
	assert_int_equal(seen.count, 7);
	assert_false(is_damaged(&seen.damage));
	/* Less than its own header: nothing. Also fine: killed before the first record. */
	for (i = 0; i <= CHUNK_HEADER_BYTES; i += 32) {
		atomic_store(&chunk->committed, i);
		read_all(&m);
		assert_int_equal(seen.count, 0);
		assert_false(is_damaged(&seen.damage));
	}
	/* In the middle of a record: the record is given up, what was whole stays. */
	atomic_store(&chunk->committed, before - 8);
	read_all(&m);
	assert_int_equal(seen.count, 6);
	assert_int_equal(seen.damage.bad_records, 1);
	/* More than there is: the chunk ends where it ends, and the zeros behind the last record are no record. */
	atomic_store(&chunk->committed, UINT32_MAX);
	read_all(&m);
	assert_int_equal(seen.count, 10);
	assert_int_equal(seen.damage.bad_records, 1);
	assert_int_equal(seen.damage.skipped_bytes, MAKER_CHUNK_BYTES - w.used);
	maker_fini(&m);
}

static void record_that_does_not_hold_ends_its_chunk_alone(void **state)
{
	const uint32_t lengths[] = {0, 8, 23, 4096, UINT32_MAX};
	struct maker m;
	size_t i;

	(void)state;
	for (i = 0; i < MSCOPE_COUNT(lengths); i++) {
		struct maker_writer w = {.number = 1}, other = {.number = 2};
		uint32_t at;

		maker_make(&m, unit_path("raw"), MAKER_CHUNK_BYTES, MAKER_CHUNKS);
		w.maker = other.maker = &m;
		maker_alloc(&w, 1, 0, 1, 1, 0);
		at = w.used;
		maker_note(&w, 2, "its length will be spoilt");
		maker_alloc(&w, 3, 0, 2, 1, 0);
		maker_seal(&w);
		maker_alloc(&w, 4, 0, 3, 1, 0);
		maker_alloc(&other, 5, 0, 4, 1, 0);
		memcpy((char *)maker_chunk(&m, 0) + at + 8, &lengths[i], 4);
		read_all(&m);
		assert_int_equal(seen.count, 3);
		assert_int_equal(seen.addresses[1], 3);
		assert_int_equal(seen.addresses[2], 4);
		assert_int_equal(seen.damage.bad_records, 1);
		assert_int_equal(seen.damage.bad_chunks, 0);
		maker_fini(&m);
	}
}

static void event_of_an_unknown_type_is_passed_over_by_its_length(void **state)
{
	struct maker_writer w = {.number = 1};
	uint64_t words[3] = {0, 1, 2};
	struct trace_event event;
	struct maker m;
	struct run *run;
	char *table;

	(void)state;
	maker_make(&m, unit_path("raw"), MAKER_CHUNK_BYTES, MAKER_CHUNKS);
	table = (char *)m.header + TRACE_TABLE_AT;
	m.header->table_bytes +=
		(uint32_t)sprintf(table + m.header->table_bytes, "240 later 3 FIXED x:1:0:64\n");
	w.maker = &m;
	maker_alloc(&w, 1, 0, 1, 1, 0);
	maker_put(&w, 2, 240, 0, words, sizeof(words));
	maker_alloc(&w, 3, 0, 2, 1, 0);
	assert_int_equal(run_open(m.path, NULL, false, &run, NULL), 0);
	assert_int_equal(run_poll(run, 0, true), 0);
	assert_true(run_next(run, &event));
	assert_true(run_next(run, &event));
	assert_int_equal(event.type, 240);
	assert_int_equal(event.bytes, 24);
	assert_true(run_next(run, &event));
	assert_int_equal(event.words[1], 2);
	assert_false(run_next(run, &event));
	assert_false(is_damaged(run_damage(run)));
	run_close(run);
	maker_fini(&m);
}

/* Which call the next record is. */
static void assert_call(struct run *run, uint64_t time_ns, uint32_t kind, uint32_t what,
			uint32_t at)
{
	struct trace_event event;
	struct event_call call;

	assert_true(run_next(run, &event));
	event_call_decode(event.words, &call);
	assert_int_equal(event.type, EVENT_call);
	assert_int_equal(event.context, 0);
	assert_int_equal(event.time_ns, time_ns);
	assert_int_equal(event.payload_bytes, 0);
	assert_int_equal(call.kind, kind);
	assert_int_equal(call.what, what);
	assert_int_equal(call.at, at);
}

static uint64_t short_call(uint64_t kind, uint64_t code)
{
	return kind | code << 3;
}

static void calls_in_a_word_or_two_read_as_calls(void **state)
{
	struct maker_writer w = {.number = 1};
	uint64_t words[2] = {0, 7 | UINT64_C(12) << 32}, word, last = 0;
	struct event_call_short call = {.kind = CALL_LEAVE, .code = (1 << 21) - 1};
	struct maker m;
	struct run *run;
	uint8_t *at;

	(void)state;
	maker_make(&m, unit_path("raw"), MAKER_CHUNK_BYTES, MAKER_CHUNKS);
	w.maker = &m;
	maker_put(&w, 1, EVENT_call_short, (uint32_t)short_call(CALL_ENTER, 1), words, 8);
	maker_put(&w, 2, EVENT_call_c, 0, words, 16);
	maker_put(&w, 3, EVENT_call_short, (uint32_t)short_call(CALL_C_LEAVE, 0), words, 8);
	/* What the fields say is the context. */
	word = record_word0(EVENT_call_short, 0, 0);
	event_call_short_encode(&word, &call);
	assert_int_equal(record_type(word), EVENT_call_short);
	assert_int_equal(record_context(word), short_call(CALL_LEAVE, (1 << 21) - 1));
	/* To the last word of the chunk. */
	at = (uint8_t *)w.chunk + w.used;
	while (w.used < MAKER_CHUNK_BYTES) {
		word = record_word0(EVENT_call_short, record_context(word),
				    (uint32_t)(4 + last - w.base_ns));
		memcpy(at, &word, 8);
		at += 8;
		w.used += 8;
		last++;
	}
	atomic_store(&w.chunk->committed, w.used);
	assert_int_equal(run_open(m.path, NULL, false, &run, NULL), 0);
	assert_int_equal(run_poll(run, 0, true), 0);
	assert_call(run, 1, CALL_ENTER, 1, UINT32_MAX);
	assert_call(run, 2, CALL_C_ENTER, 7, 12);
	assert_call(run, 3, CALL_C_LEAVE, 0, UINT32_MAX);
	for (word = 0; word < last; word++)
		assert_call(run, 4 + word, CALL_LEAVE, (1 << 21) - 1, UINT32_MAX);
	assert_int_equal(count_events(m.path, NULL, NULL), 3 + last);
	assert_false(is_damaged(run_damage(run)));
	run_close(run);
	maker_fini(&m);
}

static void file_cut_at_any_chunk_gives_what_is_left(void **state)
{
	struct maker_writer w = {.number = 1};
	struct run_damage damage;
	struct maker m;
	uint32_t i;

	(void)state;
	maker_make(&m, unit_path("raw"), MAKER_CHUNK_BYTES, MAKER_CHUNKS);
	w.maker = &m;
	for (i = 0; i < 8; i++) {
		maker_alloc(&w, i + 1, 0, i, 1, 0);
		maker_seal(&w);
	}
	for (i = 8 * 4; i-- > 0;) {
		assert_int_equal(
			truncate(m.path, (off_t)(m.header->chunks_at + i * MAKER_CHUNK_BYTES / 4)),
			0);
		assert_int_equal(count_events(m.path, NULL, &damage), i / 4);
		assert_int_equal(damage.missing_chunks, 8 - i / 4);
	}
	assert_int_equal(truncate(m.path, TRACE_HEADER_BYTES), 0);
	assert_int_equal(count_events(m.path, NULL, &damage), 0);
	assert_int_equal(truncate(m.path, TRACE_HEADER_BYTES - 1), 0);
	assert_int_equal(count_events(m.path, NULL, &damage), MSCOPE_E_TRUNCATED);
	assert_int_equal(truncate(m.path, 0), 0);
	assert_int_equal(count_events(m.path, NULL, &damage), MSCOPE_E_TRUNCATED);
	(void)unlink(m.path);
	assert_int_equal(count_events(m.path, NULL, &damage), -ENOENT);
	(void)munmap(m.header, m.bytes);
}

static void clock_that_ran_backwards_is_told(void **state)
{
	struct maker_writer w = {.number = 1};
	struct maker m;

	(void)state;
	maker_make(&m, unit_path("raw"), MAKER_CHUNK_BYTES, MAKER_CHUNKS);
	w.maker = &m;
	maker_alloc(&w, 1000, 0, 1, 1, 0);
	maker_seal(&w);
	maker_alloc(&w, 10, 0, 2, 1, 0);
	read_all(&m);
	assert_int_equal(seen.count, 2);
	assert_int_equal(seen.damage.late_events, 1);
	maker_fini(&m);
}

static void spoil_header(struct trace_header *h, uint32_t how)
{
	switch (how) {
	case 0:
		h->magic[3] ^= 1;
		break;
	case 1:
		h->endian = 0x04030201;
		break;
	case 2:
		h->version++;
		break;
	case 3:
		h->incompatible = UINT64_C(1) << 63;
		break;
	case 4:
		h->header_bytes = 4096;
		break;
	case 5:
		h->chunk_bytes = 0;
		break;
	case 6:
		h->chunk_bytes += 4;
		break;
	case 7:
		h->chunks_max = UINT32_MAX;
		break;
	case 8:
		h->chunks_at = 0;
		break;
	case 9:
		h->chunks_at = UINT64_MAX - 7;
		break;
	case 10:
		h->table_bytes = TRACE_TABLE_MAX + 1;
		break;
	case 11:
		h->identity_bytes = UINT32_MAX;
		break;
	case 12:
		((char *)h)[TRACE_TABLE_AT] = 'x';
		break;
	}
}

static void header_that_cannot_be_trusted_is_refused_with_a_reason(void **state)
{
	const int codes[] = {MSCOPE_E_FOREIGN, MSCOPE_E_FOREIGN, MSCOPE_E_VERSION, MSCOPE_E_VERSION,
			     MSCOPE_E_DAMAGED, MSCOPE_E_DAMAGED, MSCOPE_E_DAMAGED, MSCOPE_E_DAMAGED,
			     MSCOPE_E_DAMAGED, MSCOPE_E_DAMAGED, MSCOPE_E_DAMAGED, MSCOPE_E_DAMAGED,
			     MSCOPE_E_DAMAGED};
	struct mscope_error err;
	struct run *run;
	struct maker m;
	uint32_t how;

	(void)state;
	for (how = 0; how < MSCOPE_COUNT(codes); how++) {
		maker_make(&m, unit_path("raw"), MAKER_CHUNK_BYTES, MAKER_CHUNKS);
		spoil_header(m.header, how);
		err = (struct mscope_error){0};
		assert_int_equal(run_open(m.path, NULL, false, &run, &err), codes[how]);
		assert_int_equal(err.code, codes[how]);
		assert_non_null(strstr(err.message, m.path));
		assert_int_equal(run_open(m.path, NULL, true, &run, &err), codes[how]);
		maker_fini(&m);
	}
	assert_int_equal(run_open(unit_directory, NULL, false, &run, &err), MSCOPE_E_FOREIGN);
	maker_make(&m, unit_path("raw"), MAKER_CHUNK_BYTES, MAKER_CHUNKS);
	m.header->compatible = UINT64_MAX; /* may be ignored */
	assert_int_equal(symlink(m.path, unit_path("link")), 0);
	assert_int_equal(run_open(m.path, NULL, false, &run, NULL), 0);
	assert_string_equal(run_identity(run, "host"), "none");
	assert_string_equal(run_identity(run, "program"), "made by hand");
	assert_null(run_identity(run, "hos"));
	assert_null(run_identity(run, "nothing"));
	assert_true(run_wall_ns(run, 1500) == UINT64_C(1700000000) * 1000000000u + 1500);
	run_close(run);
	/* Raw traces lie where others may write; a link there would make us read something else. */
	assert_int_equal(run_open(unit_path("link"), NULL, false, &run, &err), -ELOOP);
	maker_fini(&m);
}

static void chunk_that_is_packed_and_still_raw_counts_once(void **state)
{
	struct run_damage damage;
	struct packed p;
	struct maker m;
	uint32_t i;

	(void)state;
	make_pack(&p);
	make_trace(&m);
	/* Killed at the worst moment: everything is in both. */
	assert_int_equal(count_events(m.path, unit_path("pack"), &damage), made_events);
	assert_false(is_damaged(&damage));
	/* And in the orderly one: the raw chunks were given back. */
	for (i = 0; i < atomic_load(&m.header->next_chunk); i += 2) {
		atomic_store(&maker_chunk(&m, i)->committed, 0);
		atomic_store(&maker_chunk(&m, i)->state, CHUNK_FREE);
	}
	assert_int_equal(count_events(m.path, unit_path("pack"), &damage), made_events);
	assert_false(is_damaged(&damage));
	/* A part that ends in the middle of a block is whole together with the raw file that the block came from. */
	assert_int_equal(truncate(unit_path("pack"), (off_t)p.ends[1] - 3), 0);
	maker_fini(&m);
	make_trace(&m);
	assert_int_equal(count_events(m.path, unit_path("pack"), &damage), made_events);
	assert_false(is_damaged(&damage));
	maker_fini(&m);
}

/* ---- live runs ---- */

struct consumer {
	struct run *run;
	uint32_t chunks;
	bool release;
};

static void take_chunk(void *arg, const struct run_chunk *chunk)
{
	struct consumer *consumer = arg;

	consumer->chunks++;
	if (consumer->release)
		run_release(consumer->run, chunk->number);
}

static void poll_and_see(struct run *run, uint64_t unit_now_ns, bool final)
{
	assert_int_equal(run_poll(run, unit_now_ns, final), 0);
	see(run, &seen);
}

static void live_reader_waits_for_whoever_is_busy(void **state)
{
	struct maker_writer a = {.number = 1}, b = {.number = 2};
	uint64_t words[3] = {0, 3, 1};
	struct maker m;
	struct run *run;

	(void)state;
	maker_make(&m, unit_path("raw"), MAKER_CHUNK_BYTES, MAKER_CHUNKS);
	memset(&seen, 0, sizeof(seen));
	a.maker = b.maker = &m;
	assert_int_equal(run_open(m.path, NULL, true, &run, NULL), 0);
	poll_and_see(run, 5, false);
	maker_alloc(&a, 10, 0, 1, 1, 0);
	maker_alloc(&b, 20, 0, 2, 1, 0);
	poll_and_see(run, 20, false);
	assert_int_equal(seen.count,
			 1); /* what has the time of the reading itself may have company yet */
	/* Writer 1 is about to write something older than what writer 2 has written. */
	maker_room(&a, 24, 21);
	maker_busy(&a);
	maker_alloc(&b, 40, 0, 4, 1, 0);
	poll_and_see(run, 50, false);
	assert_int_equal(seen.count, 1);
	maker_put_busy(&a, 30, EVENT_block_alloc, 0, words, sizeof(words));
	poll_and_see(run, 51, false);
	assert_int_equal(seen.count, 2); /* committed but busy: up to its last time */
	maker_idle(&a);
	poll_and_see(run, 52, false);
	assert_int_equal(seen.count, 4);
	assert_int_equal(seen.addresses[2], 3);
	assert_int_equal(seen.addresses[3], 4);
	/* Without a barrier nothing more is given out; at the end everything is. */
	maker_alloc(&b, 60, 0, 5, 1, 0);
	poll_and_see(run, 0, false);
	assert_int_equal(seen.count, 4);
	maker_busy(&a);
	poll_and_see(run, 0, true);
	assert_int_equal(seen.count, 5);
	assert_int_equal(seen.damage.late_events, 0);
	assert_false(is_damaged(&seen.damage));
	run_close(run);
	maker_fini(&m);
}

/* A stray store makes a length too long for a moment: the reader waits for the writer's next commit. */
static void live_reader_gets_over_a_length_that_cannot_be(void **state)
{
	struct maker_writer a = {.number = 1};
	struct maker m;
	struct run *run;

	(void)state;
	maker_make(&m, unit_path("raw"), MAKER_CHUNK_BYTES, MAKER_CHUNKS);
	memset(&seen, 0, sizeof(seen));
	a.maker = &m;
	assert_int_equal(run_open(m.path, NULL, true, &run, NULL), 0);
	maker_alloc(&a, 10, 0, 1, 1, 0);
	atomic_store(&maker_chunk(&m, 0)->committed, MAKER_CHUNK_BYTES);
	poll_and_see(run, 50, false);
	assert_int_equal(seen.count, 1);
	maker_alloc(&a, 60, 0, 2, 1, 0);
	poll_and_see(run, 100, true);
	assert_int_equal(seen.count, 2);
	assert_int_equal(seen.addresses[1], 2);
	assert_false(is_damaged(&seen.damage));
	run_close(run);
	maker_fini(&m);
}

/* Each chunk says how many records its writer made before: what is between two of them and not read is lost, and counted once. */
static void records_between_two_chunks_are_counted_once(void **state)
{
	static const uint64_t made_before[] = {0, 2 + 5, 9, 11 + 3, 4};
	struct run_damage damage;
	struct maker_writer w;
	struct maker m;
	size_t i;

	(void)state;
	maker_make(&m, unit_path("raw"), MAKER_CHUNK_BYTES, MAKER_CHUNKS);
	w = (struct maker_writer){.maker = &m, .number = 1};
	for (i = 0; i < MSCOPE_COUNT(made_before); i++) {
		maker_next_chunk(&w, 2000 + 10 * i)->records_before = made_before[i];
		maker_thread(&w, 2001 + 10 * i, 70);
		maker_thread(&w, 2002 + 10 * i, 71);
	}
	maker_seal(&w);
	assert_int_equal(count_events(m.path, NULL, &damage), 2 * MSCOPE_COUNT(made_before));
	assert_int_equal(damage.lost_records, 5 + 3);
	maker_fini(&m);
}

static uint64_t nested_losses(const struct run *run)
{
	return atomic_load(&((struct trace_header *)(uintptr_t)run_header(run))->loss[0]);
}

static void live_reader_keeps_the_last_count_that_can_be(void **state)
{
	const struct trace_header *packed;
	struct maker m;
	struct run *run;
	uint32_t bytes;

	(void)state;
	maker_make(&m, unit_path("raw"), MAKER_CHUNK_BYTES, MAKER_CHUNKS);
	assert_int_equal(run_open(m.path, NULL, true, &run, NULL), 0);
	atomic_store(&m.header->loss[0], 3);
	assert_int_equal(run_poll(run, 5, false), 0);
	assert_int_equal(nested_losses(run), 3);
	assert_false(is_damaged(run_damage(run)));
	atomic_store(&m.header->loss[0], UINT64_C(18270886242979246430));
	m.header->pid ^= 1;
	assert_int_equal(run_poll(run, 6, true), 0);
	assert_int_equal(nested_losses(run), 3);
	assert_int_equal(run_header(run)->pid, m.header->pid ^ 1);
	assert_true(run_damage(run)->overwritten);
	packed = run_preamble(run, &bytes);
	assert_int_equal(packed->damage, TRACE_DAMAGE_HEADER);
	run_close(run);
	/* Of a process that is gone the count is not known. */
	assert_int_equal(run_open(m.path, NULL, false, &run, NULL), 0);
	assert_int_equal(nested_losses(run), 0);
	assert_true(run_damage(run)->overwritten);
	run_close(run);
	maker_fini(&m);
}

static uint64_t disk_bytes(const char *path)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

/* The engine puts chunks with pages into the ring, never more than the process has mapped, and counts only what writers took. */
static void chunks_are_made_ready_ahead_of_writers(void **state)
{
	struct maker_writer a = {.number = 1};
	uint64_t before;
	struct maker m;
	struct run *run;

	(void)state;
	maker_make(&m, unit_path("raw"), TRACE_CHUNK_BYTES, MAKER_CHUNKS);
	m.header->chunks_mapped = 10;
	atomic_store(&m.header->reserved_chunks, 0);
	memset(&seen, 0, sizeof(seen));
	a.maker = &m;
	assert_int_equal(run_open(m.path, NULL, true, &run, NULL), 0);
	maker_alloc(&a, 10, 0, 1, 1, 0);
	assert_int_equal(run_taken(run), 1);
	before = disk_bytes(m.path);
	assert_int_equal(run_make_ready(run, 4, 3), 0);
	assert_int_equal(atomic_load(&m.header->ring_head), 3);
	assert_int_equal(atomic_load(&m.header->next_chunk), 4);
	assert_true(disk_bytes(m.path) >= before + 3 * TRACE_CHUNK_BYTES);
	assert_int_equal(run_make_ready(run, 4, 3), 0);
	assert_int_equal(atomic_load(&m.header->ring_head), 4);
	assert_int_equal(run_make_ready(run, 4, 3), 0);
	assert_int_equal(atomic_load(&m.header->ring_head), 4);
	assert_int_equal(run_taken(run), 1);
	/* A reader that looks while they wait sees nothing in them; a writer's records in them it sees. */
	poll_and_see(run, 15, false);
	assert_int_equal(seen.count, 1);
	maker_seal(&a);
	maker_alloc(&a, 20, 0, 2, 1, 0);
	assert_int_equal(a.chunk->sequence, 1);
	assert_ptr_equal(a.chunk, maker_chunk(&m, 1));
	assert_int_equal(run_taken(run), 2);
	poll_and_see(run, 30, false);
	assert_int_equal(seen.count, 2);
	/* Ten chunks are mapped there. */
	assert_int_equal(run_make_ready(run, 60, 60), 0);
	assert_int_equal(atomic_load(&m.header->next_chunk), 10);
	assert_int_equal(run_make_ready(run, 60, 60), 0);
	assert_int_equal(atomic_load(&m.header->next_chunk), 10);
	poll_and_see(run, 0, true);
	assert_int_equal(seen.count, 2);
	assert_false(is_damaged(&seen.damage));
	run_close(run);
	/* The same for a reader of what is left behind. */
	memset(&seen, 0, sizeof(seen));
	assert_int_equal(run_open(m.path, NULL, false, &run, NULL), 0);
	poll_and_see(run, 0, true);
	assert_int_equal(seen.count, 2);
	assert_false(is_damaged(&seen.damage));
	run_close(run);
	maker_fini(&m);
}

static void live_reader_waits_for_a_chunk_that_is_not_published(void **state)
{
	struct maker_writer a = {.number = 1};
	struct chunk *second;
	struct maker m;
	struct run *run;

	(void)state;
	maker_make(&m, unit_path("raw"), MAKER_CHUNK_BYTES, MAKER_CHUNKS);
	memset(&seen, 0, sizeof(seen));
	a.maker = &m;
	assert_int_equal(run_open(m.path, NULL, true, &run, NULL), 0);
	maker_alloc(&a, 10, 0, 1, 1, 0);
	maker_seal(&a);
	maker_alloc(&a, 20, 0, 2, 1, 0);
	second = a.chunk;
	maker_seal(&a);
	maker_alloc(&a, 30, 0, 3, 1, 0);
	/* The number is taken, the magic is not there yet; a later one is. */
	atomic_store(&second->magic, 0);
	poll_and_see(run, 100, false);
	assert_int_equal(seen.count, 1);
	poll_and_see(run, 101, false);
	assert_int_equal(seen.count, 1);
	atomic_store(&second->magic, CHUNK_MAGIC);
	poll_and_see(run, 102, false);
	assert_int_equal(seen.count, 3);
	/* Killed with a number taken and nothing published: no damage, nobody committed anything there. */
	(void)maker_take_chunk(&m);
	poll_and_see(run, 0, true);
	assert_int_equal(seen.count, 3);
	assert_false(is_damaged(&seen.damage));
	run_close(run);
	maker_fini(&m);
}

static void chunks_that_were_given_back_are_used_again(void **state)
{
	struct maker_writer a = {.number = 1}, b = {.number = 2};
	struct consumer consumer = {.release = true};
	uint64_t now = 1, given = 0;
	struct maker m;
	struct run *run;

	(void)state;
	/* Sixteen chunks for what would fill two hundred. */
	maker_make(&m, unit_path("raw"), MAKER_CHUNK_BYTES, 16);
	a.maker = b.maker = &m;
	assert_int_equal(run_open(m.path, NULL, true, &run, NULL), 0);
	consumer.run = run;
	run_on_consumed(run, take_chunk, &consumer);
	while (given < 32768) {
		int i;

		for (i = 0; i < 256; i++) {
			maker_alloc(i % 2 ? &a : &b, now, 0, given++, 1, 0);
			now++;
		}
		memset(&seen, 0, sizeof(seen));
		poll_and_see(run, now, false);
		assert_int_equal(seen.count, 256);
		for (i = 0; i < 256; i++)
			assert_int_equal(seen.addresses[i], given - 256 + (uint64_t)i);
	}
	poll_and_see(run, 0, true);
	assert_false(is_damaged(&seen.damage));
	assert_true(consumer.chunks > 150);
	assert_true(atomic_load(&m.header->ring_tail) > 100);
	run_close(run);
	/* Whoever comes later finds no trace of what was given back. */
	assert_int_equal(count_events(m.path, NULL, &seen.damage), 0);
	assert_false(seen.damage.bad_chunks + seen.damage.bad_records + seen.damage.skipped_bytes >
		     0);
	maker_fini(&m);
}

static void space_of_chunks_that_nobody_needs_is_given_back(void **state)
{
	struct maker_writer a = {.number = 1};
	struct consumer consumer = {.release = true};
	struct stat before, after;
	struct maker m;
	struct run *run;
	uint64_t now;

	(void)state;
	maker_make(&m, unit_path("raw"), 65536, 200);
	a.maker = &m;
	for (now = 1; atomic_load(&m.header->next_chunk) < 200; now++)
		maker_alloc(&a, now, 0, now, 1, 0);
	maker_seal(&a);
	assert_int_equal(stat(m.path, &before), 0);
	assert_int_equal(run_open(m.path, NULL, true, &run, NULL), 0);
	consumer.run = run;
	run_on_consumed(run, take_chunk, &consumer);
	assert_int_equal(run_poll(run, now, false), 0);
	while (run_next(run, &(struct trace_event){0}))
		;
	/* The last record is left behind at the next call. */
	assert_int_equal(run_poll(run, now, false), 0);
	assert_int_equal(consumer.chunks, 200);
	/* 64 of them wait in the ring, the rest is a hole. */
	assert_int_equal(atomic_load(&m.header->ring_head), 64);
	assert_int_equal(stat(m.path, &after), 0);
	assert_int_equal(after.st_size, before.st_size);
	assert_true(after.st_blocks < before.st_blocks / 2);
	run_close(run);
	maker_fini(&m);
}

/* ---- live with threads ---- */

#define LIVE_THREADS 4u
#define LIVE_EVENTS  16384u

static void live_reader_sees_every_event_of_every_thread_once_and_in_order(void **state)
{
	struct live_writer live[LIVE_THREADS];
	struct consumer consumer = {.release = true};
	uint64_t next[LIVE_THREADS] = {0}, early = 0;
	struct trace_event event;
	struct maker m;
	struct run *run;
	bool last = false;
	uint32_t i;

	(void)state;
	if (!barrier_setup())
		skip();
	/* Chunks for all of it, in case the reader never gets a turn. */
	maker_make(&m, unit_path("raw"), MAKER_CHUNK_BYTES, LIVE_THREADS * LIVE_EVENTS / 128);
	assert_int_equal(run_open(m.path, NULL, true, &run, NULL), 0);
	consumer.run = run;
	run_on_consumed(run, take_chunk, &consumer);
	atomic_store(&live_running, LIVE_THREADS);
	for (i = 0; i < LIVE_THREADS; i++) {
		live[i] = (struct live_writer){.w = {.maker = &m, .number = i + 1},
					       .events = LIVE_EVENTS};
		assert_int_equal(pthread_create(&live[i].thread, NULL, write_live, &live[i]), 0);
	}
	while (!last) {
		uint64_t now;

		last = atomic_load(&live_running) == 0;
		now = unit_now_ns();
		assert_true(barrier());
		assert_int_equal(run_poll(run, now, last), 0);
		while (run_next(run, &event)) {
			/* No event may come after one that was given out already; run_next() counts those. */
			assert_int_equal(event.words[1] >> 32, event.writer);
			assert_int_equal(event.words[1] & UINT32_MAX, next[event.writer - 1]);
			next[event.writer - 1]++;
			early += !last;
		}
		atomic_fetch_add(&live_polls, 1);
	}
	for (i = 0; i < LIVE_THREADS; i++) {
		(void)pthread_join(live[i].thread, NULL);
		assert_int_equal(next[i], LIVE_EVENTS);
	}
	assert_int_equal(run_damage(run)->late_events, 0);
	assert_false(is_damaged(run_damage(run)));
	assert_true(early >= LIVE_THREADS * LIVE_EVENTS / 2);
	run_close(run);
	maker_fini(&m);
}

/* ---- records of the engine's own ---- */

static void keep_chunk(void *arg, const struct run_chunk *chunk)
{
	struct pack_block meta = {.kind = PACK_CHUNK,
				  .raw_bytes = chunk->bytes,
				  .writer = chunk->writer,
				  .sequence = chunk->sequence,
				  .base_ns = chunk->base_ns};

	assert_true((chunk->number == RUN_CHUNK_NONE) == (chunk->writer == ENGINE_WRITER));
	assert_int_equal(pack_writer_put(arg, &meta, chunk->records), 0);
}

static void inject_step(struct run *run, uint64_t time_ns, uint64_t number)
{
	uint64_t words[EVENT_BYTES_step / 8];

	event_step_encode(words, &(struct event_step){.number = number});
	assert_int_equal(run_inject(run, EVENT_step, time_ns, words, MSCOPE_COUNT(words)), 0);
}

/* Reads what there is: times never fall, and the engine's own records have the next numbers. Returns how many. */
static uint64_t read_injected(struct run *run, uint64_t *next, uint64_t *last_ns)
{
	struct trace_event event;
	uint64_t count = 0;

	while (run_next(run, &event)) {
		assert_true(event.time_ns >= *last_ns);
		*last_ns = event.time_ns;
		if (event.writer == ENGINE_WRITER)
			assert_int_equal(event.words[1], (*next)++);
		count++;
	}
	return count;
}

static void records_of_the_engine_come_in_order_and_are_packed(void **state)
{
	uint64_t i, next = 0, last_ns = 0, now = 1000, count = 0;
	struct maker_writer a = {.number = 1};
	struct pack_writer *pack;
	struct maker m;
	struct run *run;

	(void)state;
	maker_make(&m, unit_path("raw"), MAKER_CHUNK_BYTES, MAKER_CHUNKS);
	a.maker = &m;
	(void)unlink(unit_path("pack"));
	assert_int_equal(pack_writer_open(unit_path("pack"), &pack, NULL), 0);
	assert_int_equal(preamble_put(pack, m.header), 0);
	assert_int_equal(run_open(m.path, NULL, true, &run, NULL), 0);
	run_on_consumed(run, keep_chunk, pack);
	/* More than one piece, pauses longer than a delta, and times that lie before the watermark. */
	for (i = 0; i < 10000; i++) {
		now += i % 1000 == 999 ? UINT64_C(6000000000) : 3;
		if (i % 100 == 0)
			maker_alloc(&a, now - 1, 0, i, 1, 0);
		inject_step(run, i % 7 == 0 ? 5 : now, i);
		if (i % 50 == 0) {
			assert_int_equal(run_poll(run, now, false), 0);
			count += read_injected(run, &next, &last_ns);
		}
	}
	assert_int_equal(run_poll(run, now, true), 0);
	count += read_injected(run, &next, &last_ns);
	assert_int_equal(next, 10000);
	assert_int_equal(run_damage(run)->late_events, 0);
	assert_false(is_damaged(run_damage(run)));
	run_close(run);
	assert_int_equal(pack_writer_put(pack, &(struct pack_block){.kind = PACK_END}, ""), 0);
	pack_writer_close(pack);
	/* The same from the packed trace. */
	assert_int_equal(run_open(NULL, unit_path("pack"), false, &run, NULL), 0);
	assert_int_equal(run_poll(run, 0, true), 0);
	next = last_ns = 0;
	assert_int_equal(read_injected(run, &next, &last_ns), count);
	assert_int_equal(next, 10000);
	assert_false(is_damaged(run_damage(run)));
	run_close(run);
	maker_fini(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_field_of_every_event_survives_its_encoder),
		cmocka_unit_test(no_field_of_an_event_reaches_into_another),
		cmocka_unit_test(word_0_holds_type_context_and_delta),
		cmocka_unit_test(own_table_reads_as_itself),
		cmocka_unit_test(table_of_a_newer_version_is_understood),
		cmocka_unit_test(table_of_an_older_version_is_understood),
		cmocka_unit_test(damaged_table_is_refused),
		cmocka_unit_test(any_bytes_are_an_answer_as_a_table),
		cmocka_unit_test(columns_give_back_the_same_records),
		cmocka_unit_test(columns_of_one_record_of_each_type_give_it_back),
		cmocka_unit_test(records_that_do_not_hold_are_not_split),
		cmocka_unit_test(columns_of_other_versions_are_joined_by_the_shapes_they_carry),
		cmocka_unit_test(hostile_columns_end_with_an_answer),
		cmocka_unit_test(packed_trace_has_the_events_of_the_raw_one),
		cmocka_unit_test(packed_block_comes_back_byte_for_byte),
		cmocka_unit_test(number_of_chunks_beyond_the_file_is_damage),
		cmocka_unit_test(what_packs_too_well_is_stored_as_it_is),
		cmocka_unit_test(pack_cut_at_any_byte_has_all_blocks_before_the_cut),
		cmocka_unit_test(bent_bit_costs_the_block_it_hits_and_no_other),
		cmocka_unit_test(pack_is_continued_behind_its_last_whole_block),
		cmocka_unit_test(writers_are_merged_by_time_and_ties_by_writer),
		cmocka_unit_test(pauses_longer_than_a_delta_keep_their_time),
		cmocka_unit_test(records_that_grew_in_a_later_version_are_read),
		cmocka_unit_test(lost_chunks_are_counted_by_the_gap_they_leave),
		cmocka_unit_test(chunk_that_is_not_ours_is_skipped_and_counted),
		cmocka_unit_test(only_what_was_committed_counts),
		cmocka_unit_test(record_that_does_not_hold_ends_its_chunk_alone),
		cmocka_unit_test(event_of_an_unknown_type_is_passed_over_by_its_length),
		cmocka_unit_test(calls_in_a_word_or_two_read_as_calls),
		cmocka_unit_test(file_cut_at_any_chunk_gives_what_is_left),
		cmocka_unit_test(clock_that_ran_backwards_is_told),
		cmocka_unit_test(header_that_cannot_be_trusted_is_refused_with_a_reason),
		cmocka_unit_test(chunk_that_is_packed_and_still_raw_counts_once),
		cmocka_unit_test(live_reader_waits_for_whoever_is_busy),
		cmocka_unit_test(live_reader_gets_over_a_length_that_cannot_be),
		cmocka_unit_test(records_between_two_chunks_are_counted_once),
		cmocka_unit_test(live_reader_keeps_the_last_count_that_can_be),
		cmocka_unit_test(chunks_are_made_ready_ahead_of_writers),
		cmocka_unit_test(live_reader_waits_for_a_chunk_that_is_not_published),
		cmocka_unit_test(chunks_that_were_given_back_are_used_again),
		cmocka_unit_test(space_of_chunks_that_nobody_needs_is_given_back),
		cmocka_unit_test(live_reader_sees_every_event_of_every_thread_once_and_in_order),
		cmocka_unit_test(records_of_the_engine_come_in_order_and_are_packed),
	};

	return cmocka_run_group_tests_name("trace", tests, unit_make_directory,
					   unit_remove_directory);
}
