/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claims about a run that is read beside its engine (trace/run_observe.c): the reader returns every event once and in order, whatever the
 * engine packs and gives back meanwhile, also in the middle of a chunk; it waits for whoever is busy; it writes nothing; it
 * says when the engine has dropped what was not read; and any bytes in the engine's part end with an answer.
 */
#include "unit.h"

#include <errno.h>

#include "live_writers.h"
#include "trace/pack.h"
#include "trace/run.h"
#include "trace_maker.h"

#define WRITERS 4u
#define CHUNKS	24u
#define EVENTS	6000u

static uint32_t chance(uint32_t of)
{
	static uint64_t state = 35;

	return (uint32_t)(unit_random(&state) % of);
}

/* The engine of a trace: packs what it has read, and gives the chunk back. */
struct engine {
	struct run *run;
	struct pack_writer *pack;
	uint64_t packed;
};

static void pack_and_release(void *arg, const struct run_chunk *chunk)
{
	struct engine *engine = arg;
	struct pack_block meta = {.kind = PACK_CHUNK,
				  .raw_bytes = chunk->bytes,
				  .writer = chunk->writer,
				  .sequence = chunk->sequence,
				  .base_ns = chunk->base_ns};

	assert_int_equal(pack_writer_put(engine->pack, &meta, chunk->records), 0);
	engine->packed++;
	if (chunk->number != RUN_CHUNK_NONE)
		run_release(engine->run, chunk->number);
}

static void engine_open(struct engine *engine, struct maker *m)
{
	*engine = (struct engine){0};
	(void)unlink(unit_path("part"));
	assert_int_equal(run_open(m->path, NULL, true, &engine->run, NULL), 0);
	assert_int_equal(pack_writer_open(unit_path("part"), &engine->pack, NULL), 0);
	assert_int_equal(preamble_put(engine->pack, m->header), 0);
	run_on_consumed(engine->run, pack_and_release, engine);
}

static void engine_close(struct engine *engine)
{
	run_close(engine->run);
	pack_writer_close(engine->pack);
}

static void engine_turn(struct engine *engine, uint64_t now)
{
	struct trace_event event;

	assert_int_equal(run_poll(engine->run, now, false), 0);
	while (run_next(engine->run, &event))
		;
}

static struct run *observe(const struct maker *m)
{
	struct run *run = NULL;

	assert_int_equal(run_observe(m->path, unit_path("part"), &run, NULL), 0);
	return run;
}

static bool is_whole(const struct run *run)
{
	const struct run_damage *damage = run_damage(run);

	return damage->bad_chunks + damage->missing_chunks + damage->bad_records +
			       damage->skipped_bytes + damage->late_events ==
		       0 &&
	       !damage->overwritten && !damage->truncated;
}

/* ---- one thread: any order of turns ---- */

struct schedule {
	struct maker m;
	struct maker_writer writers[WRITERS];
	struct engine engine;
	uint64_t
		given; /* events so far; the number of an event is its address, 10 times it its time */
};

static uint64_t time_of(uint64_t event)
{
	return 1000 + event * 10;
}

/* Reads what there is below `now`; the engine has its turns in between. */
static void read_on(struct schedule *s, struct run *run, uint64_t *next, uint64_t now, bool final)
{
	struct trace_event event;

	assert_int_equal(run_poll(run, now, final), 0);
	while (run_next(run, &event)) {
		if (event.writer == ENGINE_WRITER)
			continue;
		assert_int_equal(event.words[1], *next);
		assert_int_equal(event.time_ns, time_of(*next));
		(*next)++;
		if (chance(50) == 0)
			engine_turn(&s->engine, time_of(s->given));
	}
	assert_int_equal(*next, s->given);
}

static void random_schedule(void)
{
	struct schedule s = {0};
	struct run *first, *late = NULL;
	uint64_t first_next = 0, late_next = 0;
	uint32_t i, writers = 1 + chance(WRITERS), pace = 1 + chance(400);

	maker_make(&s.m, unit_path("raw"), MAKER_CHUNK_BYTES, CHUNKS);
	for (i = 0; i < WRITERS; i++)
		s.writers[i] = (struct maker_writer){.maker = &s.m, .number = i + 1};
	engine_open(&s.engine, &s.m);
	first = observe(&s.m);
	while (s.given < EVENTS) {
		uint32_t some = chance(pace) + 1;

		for (i = 0; i < some; i++, s.given++)
			maker_alloc(&s.writers[chance(writers)], time_of(s.given), 0, s.given, 1,
				    0);
		/* The ring is small: who writes must have its chunks back in time. */
		engine_turn(&s.engine, time_of(s.given));
		if (chance(3) == 0)
			read_on(&s, first, &first_next, time_of(s.given), false);
		if (late == NULL && s.given > EVENTS / 2)
			late = observe(&s.m);
		else if (late != NULL && chance(5) == 0)
			read_on(&s, late, &late_next, time_of(s.given), false);
	}
	read_on(&s, first, &first_next, time_of(s.given), false);
	read_on(&s, late, &late_next, 0, true);
	assert_true(is_whole(first) && is_whole(late));
	run_close(first);
	run_close(late);
	engine_close(&s.engine);
	maker_fini(&s.m);
}

static void every_order_of_turns_gives_every_event_once(void **state)
{
	int i;

	(void)state;
	for (i = 0; i < 60; i++)
		random_schedule();
}

static void reader_waits_for_whoever_is_busy(void **state)
{
	struct schedule s = {0};
	struct trace_event event;
	uint64_t words[3] = {0, 7, 1};
	struct run *run;

	(void)state;
	maker_make(&s.m, unit_path("raw"), MAKER_CHUNK_BYTES, CHUNKS);
	s.writers[0] = (struct maker_writer){.maker = &s.m, .number = 1};
	s.writers[1] = (struct maker_writer){.maker = &s.m, .number = 2};
	engine_open(&s.engine, &s.m);
	run = observe(&s.m);
	maker_alloc(&s.writers[0], 1000, 0, 1, 1, 0);
	maker_alloc(&s.writers[1], 1010, 0, 2, 1, 0);
	/* It has read the clock, at 1020, and has not written yet; the other goes on. */
	maker_busy(&s.writers[0]);
	maker_alloc(&s.writers[1], 1030, 0, 3, 1, 0);
	assert_int_equal(run_poll(run, 1040, false), 0);
	assert_false(run_next(run, &event));
	maker_put_busy(&s.writers[0], 1020, EVENT_block_alloc, 0, words, sizeof(words));
	maker_idle(&s.writers[0]);
	assert_int_equal(run_poll(run, 1050, false), 0);
	assert_true(run_next(run, &event) && event.words[1] == 1);
	assert_true(run_next(run, &event) && event.words[1] == 2);
	assert_true(run_next(run, &event) && event.words[1] == 7);
	assert_true(run_next(run, &event) && event.words[1] == 3);
	assert_false(run_next(run, &event));
	assert_true(is_whole(run));
	run_close(run);
	engine_close(&s.engine);
	maker_fini(&s.m);
}

static void what_the_engine_dropped_is_told(void **state)
{
	struct schedule s = {0};
	struct trace_event event;
	struct run *run;
	int i;

	(void)state;
	maker_make(&s.m, unit_path("raw"), MAKER_CHUNK_BYTES, CHUNKS);
	s.writers[0] = (struct maker_writer){.maker = &s.m, .number = 1};
	engine_open(&s.engine, &s.m);
	for (i = 0; i < 2000; i++) {
		maker_alloc(&s.writers[0], time_of((uint64_t)i), 0, (uint64_t)i, 1, 0);
		if (i % 100 == 0)
			engine_turn(&s.engine, time_of((uint64_t)i));
	}
	run = observe(&s.m);
	assert_int_equal(run_poll(run, time_of(2000), false), 0);
	assert_true(run_next(run, &event));
	(void)unlink(unit_path("part")); /* it stays open there, so the next one is another file */
	assert_int_equal(close(open(unit_path("part"), O_CREAT | O_WRONLY, 0600)), 0);
	assert_int_equal(run_poll(run, time_of(2000), false), -ESTALE);
	run_close(run);
	engine_close(&s.engine);
	maker_fini(&s.m);
}

static void nothing_is_mapped_for_writing(void **state)
{
	struct schedule s = {0};
	struct trace_event event;
	struct run *run;
	char line[1024];
	FILE *maps;
	int seen = 0;

	(void)state;
	maker_make(&s.m, unit_path("raw"), MAKER_CHUNK_BYTES, CHUNKS);
	s.writers[0] = (struct maker_writer){.maker = &s.m, .number = 1};
	maker_alloc(&s.writers[0], 1000, 0, 1, 1, 0);
	(void)unlink(unit_path("part"));
	run = observe(&s.m);
	assert_int_equal(run_poll(run, 2000, false), 0);
	assert_true(run_next(run, &event));
	(void)munmap(s.m.header, s.m.bytes); /* the maker's own */
	maps = fopen("/proc/self/maps", "r");
	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps) != NULL) {
		if (strstr(line, unit_directory) == NULL)
			continue;
		seen++;
		assert_non_null(strstr(line, " r--s "));
	}
	(void)fclose(maps);
	assert_true(seen > 0); /* an emulator tells of neighbours as one */
	run_close(run);
	(void)unlink(s.m.path);
}

static void any_bytes_in_the_part_end_with_an_answer(void **state)
{
	struct schedule s = {0};
	struct trace_event event;
	uint8_t *bytes;
	size_t length;
	int i, k;

	(void)state;
	maker_make(&s.m, unit_path("raw"), MAKER_CHUNK_BYTES, CHUNKS);
	s.writers[0] = (struct maker_writer){.maker = &s.m, .number = 1};
	engine_open(&s.engine, &s.m);
	for (i = 0; i < 1500; i++) {
		maker_alloc(&s.writers[0], time_of((uint64_t)i), 0, (uint64_t)i, 1, 0);
		if (i % 100 == 0)
			engine_turn(&s.engine, time_of((uint64_t)i));
	}
	engine_close(&s.engine);
	bytes = unit_read_file(unit_path("part"), &length);
	for (i = 0; i < 300; i++) {
		uint8_t *bent = malloc(length);
		size_t left = chance(2) ? length : chance((uint32_t)length);
		struct run *run;

		assert_non_null(bent);
		memcpy(bent, bytes, length);
		for (k = (int)chance(6); k > 0 && left > 0; k--)
			bent[chance((uint32_t)left)] ^= (uint8_t)(1u << chance(8));
		unit_write_file(unit_path("part"), bent, left);
		run = observe(&s.m);
		for (k = 0; k < 3; k++) {
			if (run_poll(run, time_of(2000), k == 2) < 0)
				break;
			while (run_next(run, &event))
				assert_true(event.words[1] < 1500);
		}
		run_close(run);
		free(bent);
	}
	free(bytes);
	maker_fini(&s.m);
}

/* ---- threads ---- */

#define THREADS	      3u
#define THREAD_EVENTS 12000u

static atomic_bool engine_stops;

static void *run_engine(void *arg)
{
	struct engine *engine = arg;

	while (!atomic_load(&engine_stops)) {
		uint64_t now = unit_now_ns();

		assert_true(barrier());
		engine_turn(engine, now);
	}
	return NULL;
}

static void reader_beside_an_engine_sees_every_event_of_every_thread(void **state)
{
	struct live_writer live[THREADS];
	uint64_t next[THREADS] = {0};
	struct engine engine;
	struct trace_event event;
	pthread_t engine_thread;
	struct maker m;
	struct run *run;
	bool last = false;
	uint32_t i;

	(void)state;
	if (!barrier_setup())
		skip();
	maker_make(&m, unit_path("raw"), MAKER_CHUNK_BYTES, THREADS * THREAD_EVENTS / 128);
	engine_open(&engine, &m);
	run = observe(&m);
	atomic_store(&live_running, THREADS);
	assert_int_equal(pthread_create(&engine_thread, NULL, run_engine, &engine), 0);
	for (i = 0; i < THREADS; i++) {
		live[i] = (struct live_writer){.w = {.maker = &m, .number = i + 1},
					       .events = THREAD_EVENTS};
		assert_int_equal(pthread_create(&live[i].thread, NULL, write_live, &live[i]), 0);
	}
	while (!last) {
		uint64_t now;

		last = atomic_load(&live_running) == 0;
		now = unit_now_ns();
		assert_true(barrier());
		assert_int_equal(run_poll(run, now, false), 0);
		while (run_next(run, &event)) {
			assert_int_equal(event.words[1] >> 32, event.writer);
			assert_int_equal(event.words[1] & UINT32_MAX, next[event.writer - 1]);
			next[event.writer - 1]++;
		}
		atomic_fetch_add(&live_polls, 1);
	}
	atomic_store(&engine_stops, true);
	(void)pthread_join(engine_thread, NULL);
	for (i = 0; i < THREADS; i++) {
		(void)pthread_join(live[i].thread, NULL);
		/* All had ended before the clock was read for the last time. */
		assert_int_equal(next[i], THREAD_EVENTS);
	}
	assert_true(engine.packed > 100);
	assert_true(is_whole(run));
	run_close(run);
	engine_close(&engine);
	maker_fini(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_order_of_turns_gives_every_event_once),
		cmocka_unit_test(reader_waits_for_whoever_is_busy),
		cmocka_unit_test(what_the_engine_dropped_is_told),
		cmocka_unit_test(nothing_is_mapped_for_writing),
		cmocka_unit_test(any_bytes_in_the_part_end_with_an_answer),
		cmocka_unit_test(reader_beside_an_engine_sees_every_event_of_every_thread),
	};

	return cmocka_run_group_tests(tests, unit_make_directory, unit_remove_directory);
}
