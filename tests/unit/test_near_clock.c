/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claims about collector/python/near_clock.h: its times are between readings of the clock before and after, but for the reading's own
 * length; they never go back; after any other record the clock itself is read; a time that is far from its base gets another one.
 */
#include <stdlib.h>

#include "unit.h"

#include "collector/python/near_clock.h"

#define CALLS 2000000u
/* What a reading lags behind at most, with the longest one that is believed on a slow processor. */
#define LAG_NS 400u
/* Of NEAR_NS: how far a clock that is being set may run from its counter. */
#define AHEAD_NS 20u

#define RECORDS_AT 128u

static struct writer *made_writer(void)
{
	struct writer *w = aligned_alloc(64, (sizeof(*w) + 63) & ~(size_t)63);

	assert_non_null(w);
	memset(w, 0, sizeof(*w));
	w->chunk = calloc(2, TRACE_CHUNK_BYTES);
	assert_non_null(w->chunk);
	w->used = RECORDS_AT;
	w->base_ns = clock_ns();
	return w;
}

static void release(struct writer *w)
{
	free(w->chunk);
	free(w);
}

/* Records a call; its time. */
static uint64_t record(struct near_clock *near, struct writer *w)
{
	uint8_t *at = w->chunk + w->used;
	uint32_t delta = near_clock_delta(near, w, &at);

	assert_ptr_equal(at, w->chunk + w->used);
	w->used += 8;
	near->next = at + 8;
	return w->base_ns + delta;
}

static void times_are_those_of_the_clock(void **state)
{
	struct near_clock near = {0};
	struct writer *w = made_writer();
	uint64_t before, now, last = 0, i;

	(void)state;
	near_clock_begin();
	for (i = 0; i < CALLS; i++) {
		if (w->used == TRACE_CHUNK_BYTES)
			w->used = RECORDS_AT;
		before = clock_ns();
		now = record(&near, w);
		assert_in_range(now, before - LAG_NS, clock_ns() + AHEAD_NS);
		assert_true(now >= last);
		last = now;
	}
	release(w);
}

static void after_another_record_the_clock_is_read(void **state)
{
	struct near_clock near = {0};
	struct writer *w = made_writer();
	uint8_t *chunk = w->chunk;
	uint32_t i;

	(void)state;
	for (i = 0; i < 1000; i++) {
		uint64_t other, now;

		(void)record(&near, w);
		other = clock_ns();
		if (i % 2 == 0)
			w->used += 16;
		else
			w->chunk = w->chunk == chunk ? chunk + TRACE_CHUNK_BYTES : chunk;
		now = record(&near, w);
		assert_true(now >= other);
		assert_int_equal(now, w->base_ns + near.since_ns);
	}
	w->chunk = chunk;
	release(w);
}

static void a_time_far_from_its_base_gets_another_one(void **state)
{
	struct near_clock near = {0};
	struct writer *w = made_writer();
	uint64_t base = w->base_ns - UINT32_MAX, first, second;

	(void)state;
	w->base_ns = base;
	first = record(&near, w);
	second = record(&near, w);
	assert_int_equal(w->used, RECORDS_AT + EVENT_BYTES_time_base + 16);
	assert_int_equal(w->base_ns, first);
	assert_true(second >= first);
	/* Just before that each reads the clock, or a sum would not fit. */
	w->base_ns = second + NEAR_NS / 2 - UINT32_MAX;
	near.next = NULL;
	(void)record(&near, w);
	assert_int_equal(near.most, 0);
	release(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(times_are_those_of_the_clock),
		cmocka_unit_test(after_another_record_the_clock_is_read),
		cmocka_unit_test(a_time_far_from_its_base_gets_another_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
