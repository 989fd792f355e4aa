/* SPDX-License-Identifier: Apache-2.0 */
/* Claims about memory of the host: what a look of ours takes is no growth and hides none, and the latest answer of a process counts. */
#include "unit.h"

#include "analysis/analyses.h"
#include "analysis/host.h"
#include "symbols/elf_cache.h"
#include "trace_maker.h"

#define MIB    (UINT64_C(1) << 20)
#define WORKER 8u
#define TICKS  220u /* of 100 ms */
#define RATE   (MIB / 5)

struct play {
	struct maker maker;
	struct run *run;
	struct elf_cache elves;
	struct replay *replay;
	struct analyses analyses;
	uint64_t now;
	struct findings found;
};

static void feed(struct play *p, uint32_t type, const uint64_t *words, uint32_t bytes,
		 const void *payload, uint32_t payload_bytes)
{
	struct trace_event event = {.type = type,
				    .writer = 1,
				    .tid = 7,
				    .time_ns = p->now,
				    .words = words,
				    .bytes = bytes,
				    .payload = payload,
				    .payload_bytes = payload_bytes};

	assert_int_equal(replay_event(p->replay, &event), 0);
}

#define FEED(p, payload_, bytes_, what, ...)                                                       \
	do {                                                                                       \
		struct event_##what in_ = {__VA_ARGS__};                                           \
		uint64_t words_[EVENT_BYTES_##what / 8];                                           \
                                                                                                   \
		event_##what##_encode(words_, &in_);                                               \
		feed(p, EVENT_##what, words_, sizeof(words_), payload_, bytes_);                   \
	} while (0)

static int begin(void **state)
{
	struct play *p = calloc(1, sizeof(*p));
	struct replay_setup setup = {.root = "/nowhere"};
	char path[300];

	(void)snprintf(path, sizeof(path), "%s/raw", unit_directory);
	maker_make(&p->maker, path, MAKER_CHUNK_BYTES, 1);
	assert_int_equal(run_open(path, NULL, false, &p->run, NULL), 0);
	setup.run = p->run;
	setup.elves = &p->elves;
	assert_int_equal(replay_new(&setup, &p->replay), 0);
	analyses_init(&p->analyses, 0, true, p->replay);
	p->now = 2000;
	*state = p;
	return 0;
}

static int end(void **state)
{
	struct play *p = *state;

	findings_fini(&p->found);
	analyses_fini(&p->analyses);
	replay_free(p->replay);
	run_close(p->run);
	elf_cache_fini(&p->elves);
	maker_fini(&p->maker);
	free(p);
	return 0;
}

static void tell_level(struct play *p, uint64_t bytes)
{
	FEED(p, NULL, 0, host_process, .pid = WORKER, .parent = 1, .resident_bytes = bytes,
	     .share_bytes = UINT64_MAX, .name_low = 0x61, .state = HOST_PROCESS_RUNS);
}

/*
 * Grows by RATE in a tick. Each look takes `look_bytes`, of which the program has `used` again before its level rises any more; with
 * `told` the looks are in the trace.
 */
static const struct findings *grow(struct play *p, uint64_t look_bytes, bool used, bool told)
{
	uint64_t level = 200 * MIB, excess = 0, tick;

	for (tick = 0; tick < TICKS; tick++) {
		uint64_t of_excess = used && excess > RATE ? RATE : used ? excess : 0;

		p->now += 100000000;
		excess -= of_excess;
		level += RATE - of_excess;
		if (tick == 60 || tick == 100 || tick == 180) {
			level += look_bytes;
			excess += look_bytes;
		}
		/* The level is seen before the look is. */
		if (of_excess < RATE)
			tell_level(p, level);
		if (told && (tick == 60 || tick == 100 || tick == 180))
			FEED(p, NULL, 0, host_container, .pid = WORKER, .level_bytes = level,
			     .look_bytes = look_bytes, .look_milliseconds = 90);
	}
	findings_fini(&p->found);
	analyses_judge(&p->analyses, p->replay, 0, &p->found);
	return &p->found;
}

static void what_a_look_takes_hides_no_growth(void **state)
{
	assert_int_equal(FINDINGS_COUNT(grow(*state, 6 * MIB, true, true), host_growth), 1);
	assert_in_range(FINDINGS(&((struct play *)*state)->found, host_growth)[0].bytes_per_second,
			9.0 * RATE, 11.0 * RATE);
}

static void what_a_look_keeps_hides_no_growth(void **state)
{
	assert_int_equal(FINDINGS_COUNT(grow(*state, 6 * MIB, false, true), host_growth), 1);
}

/* So that the claim above is one. */
static void without_its_word_it_would(void **state)
{
	assert_int_equal(FINDINGS_COUNT(grow(*state, 6 * MIB, true, false), host_growth), 0);
}

static void answer(struct play *p, uint32_t rank, const char *texts, uint32_t bytes)
{
	FEED(p, texts, bytes, host_container, .text_bytes = bytes, .pid = WORKER, .rank = rank,
	     .milliseconds = 4000, .items = 120, .gained = 40, .gained_bytes = 3 * MIB,
	     .resident_bytes = 4 * MIB);
}

static void the_latest_answer_counts(void **state)
{
	static const char rows[] = "list\0rows\0class Store (a.py:1)\0a.py:9\0bytes\0clear it";
	static const char seen[] = "dict\0seen\0global of a.py\0\0\0drop it";
	const struct finding_host_container *container;
	const struct findings *found;
	struct host_growing growing;
	struct play *p = *state;

	found = grow(p, 0, false, false);
	assert_int_equal(host_growing(&p->analyses, p->replay, &growing, 1), 1);
	assert_int_equal(growing.pid, WORKER);
	assert_string_equal(FINDINGS(found, host_growth)[0].growing, "");
	answer(p, 0, seen, sizeof(seen));
	answer(p, 0, rows, sizeof(rows));
	answer(p, 1, seen, sizeof(seen));
	answer(p, 3, seen, sizeof(seen)); /* of ranks there are three, one after the other */
	findings_fini(&p->found);
	analyses_judge(&p->analyses, p->replay, 0, &p->found);
	assert_int_equal(FINDINGS_COUNT(found, host_container), 2);
	container = FINDINGS(found, host_container);
	assert_string_equal(container->name, "rows");
	assert_string_equal(container->filled, "a.py:9");
	assert_in_range(container->share * 100, 74, 76);
	assert_string_equal(FINDINGS(found, host_growth)[0].cure, "clear it");
	assert_string_equal(
		FINDINGS(found, host_growth)[0].growing,
		"list `rows` of class Store (a.py:1), 120 items, +10 per second, filled at a.py:9");
	/* One that knows of none takes the names away. */
	answer(p, 0, NULL, 0);
	findings_fini(&p->found);
	analyses_judge(&p->analyses, p->replay, 0, &p->found);
	assert_int_equal(FINDINGS_COUNT(found, host_container), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(what_a_look_takes_hides_no_growth, begin, end),
		cmocka_unit_test_setup_teardown(what_a_look_keeps_hides_no_growth, begin, end),
		cmocka_unit_test_setup_teardown(without_its_word_it_would, begin, end),
		cmocka_unit_test_setup_teardown(the_latest_answer_counts, begin, end),
	};

	return cmocka_run_group_tests(tests, unit_make_directory, unit_remove_empty_directory);
}
