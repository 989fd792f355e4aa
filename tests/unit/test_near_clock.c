/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claims about collector/python/near_clock.h: its times are between readings of the clock before and after, but for the reading's own
 * length; they never go back; and after any other record the clock itself is read.
 */
#include <stdlib.h>

#include "unit.h"

#include "collector/python/near_clock.h"

#define CALLS 2000000u
/* What a reading lags behind at most, with the longest one that is believed on a slow processor. */
#define LAG_NS 400u
/* Of NEAR_NS: how far a clock that is being set may run from its counter. */
#define AHEAD_NS 20u

static struct writer *made_writer(void)
{
	struct writer *w = aligned_alloc(64, (sizeof(*w) + 63) & ~(size_t)63);

	assert_non_null(w);
	memset(w, 0, sizeof(*w));
	w->base_ns = clock_ns();
	return w;
}

static void times_are_those_of_the_clock(void **state)
{
	struct near_clock near = {0};
	struct writer *w = made_writer();
	uint64_t before, now, last = 0, i;

	(void)state;
	near_clock_begin();
	for (i = 0; i < CALLS; i++) {
		before = clock_ns();
		now = near_clock_ns(&near, w);
		assert_in_range(now, before - LAG_NS, clock_ns() + AHEAD_NS);
		assert_true(now >= last);
		last = now;
		w->made++;
		near_clock_used(&near, w);
	}
	free(w);
}

static void after_another_record_the_clock_is_read(void **state)
{
	struct near_clock near = {0};
	struct writer *w = made_writer();
	uint32_t i;

	(void)state;
	for (i = 0; i < 1000; i++) {
		uint64_t other, now;

		(void)near_clock_ns(&near, w);
		w->made++;
		near_clock_used(&near, w);
		other = clock_ns();
		if (i % 2 == 0)
			w->made++;
		else
			w->base_ns++;
		now = near_clock_ns(&near, w);
		assert_true(now >= other);
		assert_int_equal(now, near.ns);
		near_clock_used(&near, w);
	}
	free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(times_are_those_of_the_clock),
		cmocka_unit_test(after_another_record_the_clock_is_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
