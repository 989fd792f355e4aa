/* SPDX-License-Identifier: Apache-2.0 */
/* What a dry run's pool needs when the driver hands out other addresses: two free blocks are alike, and the lower one is taken. */
#include "unit.h"

#include <string.h>

#include "cli/dry_orders.h"

#define MIB ((uint64_t)1 << 20)

static struct pool_recorder recorder;
static const struct pool_histories histories = {.pools = &recorder, .count = 1};

static void add(int kind, uint64_t address, uint64_t bytes)
{
	const struct history_event event = {
		.kind = (uint8_t)kind, .address = address, .bytes = bytes};

	assert_true(pool_history_add(&recorder.history, &event) == 0);
}

static void take(uint64_t address, uint64_t bytes)
{
	add(HISTORY_ALLOC, address, bytes);
}

static void give(uint64_t address, uint64_t bytes)
{
	add(HISTORY_FREE_ASKED, address, bytes);
	add(HISTORY_FREE_DONE, address, bytes);
}

/* Two segments of 20 MiB, each with a block of 6 and one of 14 MiB. */
static void begin(void)
{
	const uint64_t first = 0x700000000000, second = first + 20 * MIB;

	memset(&recorder, 0, sizeof(recorder));
	(void)strcpy(recorder.history.torch, "2.11.0");
	recorder.history.settings_known = true;
	add(HISTORY_SEGMENT, first, 20 * MIB);
	take(first, 6 * MIB);
	take(first + 6 * MIB, 14 * MIB);
	add(HISTORY_SEGMENT, second, 20 * MIB);
	take(second, 6 * MIB);
	take(second + 6 * MIB, 14 * MIB);
}

static void figures_without_ties_are_one(void **state)
{
	struct dry_orders found = {.needs_low = 40 * MIB,
				   .needs_high = 40 * MIB,
				   .reserves_low = 40 * MIB,
				   .reserves_high = 40 * MIB};

	(void)state;
	begin();
	assert_true(dry_orders_play(&histories, 0, UINT64_MAX, &found) == 0);
	assert_true(found.requested == 40 * MIB);
	assert_true(found.needs_low == 40 * MIB && found.needs_high == 40 * MIB);
	assert_true(found.reserves_low == 40 * MIB && found.reserves_high == 40 * MIB);
	pool_history_fini(&recorder.history);
}

/* The block that takes the place of one of the two keeps its segment from being free as a whole, or the other one. */
static void the_order_of_addresses_makes_a_range(void **state)
{
	const uint64_t first = 0x700000000000, second = first + 20 * MIB;
	struct dry_orders found = {.needs_low = 40 * MIB,
				   .needs_high = 40 * MIB,
				   .reserves_low = 58 * MIB,
				   .reserves_high = 58 * MIB};

	(void)state;
	begin();
	give(first, 6 * MIB);
	give(second, 6 * MIB);
	take(first, 6 * MIB);
	give(first + 6 * MIB, 14 * MIB);
	add(HISTORY_SEGMENT, second + 20 * MIB, 18 * MIB);
	take(second + 20 * MIB, 18 * MIB);
	assert_true(dry_orders_play(&histories, 0, UINT64_MAX, &found) == 0);
	assert_true(found.reserves_low == 40 * MIB && found.reserves_high == 58 * MIB);
	assert_true(!found.refused);
	/* On a card with less, that one is no figure: the program dies with it. */
	found.reserves_high = 40 * MIB;
	assert_true(dry_orders_play(&histories, 0, 50 * MIB, &found) == 0);
	assert_true(found.reserves_high == 40 * MIB && found.refused);
	pool_history_fini(&recorder.history);
}

/* What the pool has cached goes back when the driver refuses more. */
static void no_figure_is_above_what_the_card_has(void **state)
{
	const uint64_t first = 0x700000000000;
	struct dry_orders found = {.needs_low = 1,
				   .needs_high = 1,
				   .reserves_low = 40 * MIB,
				   .reserves_high = 40 * MIB};

	(void)state;
	memset(&recorder, 0, sizeof(recorder));
	(void)strcpy(recorder.history.torch, "2.11.0");
	recorder.history.settings_known = true;
	add(HISTORY_SEGMENT, first, 30 * MIB);
	take(first, 30 * MIB);
	give(first, 30 * MIB);
	add(HISTORY_SEGMENT_GONE, first, 30 * MIB);
	add(HISTORY_SEGMENT, first, 40 * MIB);
	take(first, 40 * MIB);
	assert_true(dry_orders_play(&histories, 0, 60 * MIB, &found) == 0);
	assert_true(found.requested == 40 * MIB);
	assert_true(found.reserves_high == 40 * MIB && !found.refused);
	/* A request that was refused, and that the program could do without. */
	add(HISTORY_REFUSED, 0, 80 * MIB);
	assert_true(dry_orders_play(&histories, 0, 60 * MIB, &found) == 0);
	assert_true(found.reserves_high == 40 * MIB && !found.refused);
	pool_history_fini(&recorder.history);
}

static void a_record_that_does_not_replay_leaves_the_figures(void **state)
{
	struct dry_orders found = {
		.needs_low = 1, .needs_high = 2, .reserves_low = 3, .reserves_high = 4};

	(void)state;
	begin();
	take(0x123450000, 6 * MIB);
	assert_true(dry_orders_play(&histories, 0, UINT64_MAX, &found) == 0 &&
		    dry_orders_play(&histories, 7, UINT64_MAX, &found) == 0);
	assert_true(found.requested == 0 && found.needs_low == 1 && found.needs_high == 2 &&
		    found.reserves_low == 3 && found.reserves_high == 4);
	pool_history_fini(&recorder.history);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(figures_without_ties_are_one),
		cmocka_unit_test(the_order_of_addresses_makes_a_range),
		cmocka_unit_test(no_figure_is_above_what_the_card_has),
		cmocka_unit_test(a_record_that_does_not_replay_leaves_the_figures),
	};

	return cmocka_run_group_tests_name("dry_orders", tests, NULL, NULL);
}
