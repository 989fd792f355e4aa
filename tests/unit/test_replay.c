/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claims about replay/: which rows a trace means and what lives at its end. Traces are made by hand, so that they can hold what
 * no driver does: an address handed out twice, a free of nothing, a free that failed, numbers that were never defined.
 */
#include <errno.h>

#include "replay/facts.h"
#include "symbols/elf_cache.h"
#include "symbols/modules.h"
#include "unit.h"

#include "replay/state.h"
#include "sink/kept.h"
#include "sink/attr_writer.h"
#include "trace/session.h"
#include "trace_maker.h"

#define HAL  1u /* contexts that every writer of these tests defines */
#define HOST 2u
#define FREE 3u
#define PTA  4u
#define MADE 5u
#define ATB  6u /* parts of its pool, given back by handles */

struct kept_row {
	struct row row;
	struct block block;
	struct context context;
	char name[32];
	char attr[300]; /* as JSON */
};

struct play {
	struct maker maker;
	struct maker_writer w[4];
	uint64_t now;
	struct kept_row rows[64];
	size_t row_count;
	bool steps_matter;
	struct facts facts;
	struct elf_cache elves;
	struct run *run;
	struct replay *replay;
};

static void define_contexts(struct play *p, struct maker_writer *w)
{
	maker_context(w, p->now++, HAL, POOL_hal, BLOCK_ALLOC, 0);
	maker_context(w, p->now++, HOST, POOL_host_pinned, BLOCK_ALLOC, DEVICE_HOST);
	maker_context(w, p->now++, FREE, POOL_hal, BLOCK_ALLOC, DEVICE_UNKNOWN);
	maker_context(w, p->now++, PTA, POOL_pta, BLOCK_ALLOC, 0);
	maker_context(w, p->now++, MADE, POOL_hal, BLOCK_CREATE, 1);
	maker_context(w, p->now++, ATB, POOL_atb, BLOCK_HANDLE, 0);
}

/* A trace whose two first writers are ready to be used: w[0] is thread 70, w[1] thread 71. */
static int begin(void **state)
{
	struct play *p = calloc(1, sizeof(*p));
	char path[300];
	uint32_t i;

	(void)snprintf(path, sizeof(path), "%s/raw", unit_directory);
	maker_make(&p->maker, path, MAKER_CHUNK_BYTES, MAKER_CHUNKS);
	p->now = 2000;
	for (i = 0; i < MSCOPE_COUNT(p->w); i++)
		p->w[i] = (struct maker_writer){.maker = &p->maker, .number = i + 1};
	for (i = 0; i < 2; i++) {
		maker_thread(&p->w[i], p->now++, 70 + i);
		define_contexts(p, &p->w[i]);
	}
	*state = p;
	return 0;
}

static void stop(struct play *p)
{
	if (p->run == NULL)
		return;
	replay_free(p->replay);
	run_close(p->run);
	p->run = NULL;
	p->row_count = 0;
}

static int end(void **state)
{
	struct play *p = *state;

	stop(p);
	facts_fini(&p->facts);
	elf_cache_fini(&p->elves);
	maker_fini(&p->maker);
	free(p);
	return 0;
}

static int keep_row(void *arg, struct replay *replay, const struct row *row)
{
	struct play *p = arg;
	struct kept_row *kept = &p->rows[p->row_count++];
	struct strbuf attr = {0};

	(void)replay;
	assert_true(p->row_count <= MSCOPE_COUNT(p->rows));
	*kept = (struct kept_row){.row = *row, .context = *row->context};
	if (row->block != NULL)
		kept->block = *row->block;
	(void)snprintf(kept->name, sizeof(kept->name), "%s", row->name == NULL ? "" : row->name);
	attr_add(&attr, ATTR_JSON, row);
	assert_true(attr.length < sizeof(kept->attr));
	memcpy(kept->attr, strbuf_str(&attr), attr.length + 1);
	strbuf_fini(&attr);
	assert_int_equal(row->id, p->row_count - 1);
	return 0;
}

/* Plays the trace as it stands. `known` are the facts of an earlier pass, or NULL. */
static void play(struct play *p, const struct facts *known)
{
	struct replay_setup setup;
	struct trace_event event;

	stop(p);
	assert_int_equal(run_open(p->maker.path, NULL, false, &p->run, NULL), 0);
	setup = (struct replay_setup){.run = p->run,
				      .elves = &p->elves,
				      .root = "/nowhere",
				      .row = keep_row,
				      .arg = p,
				      .known = known,
				      .steps_matter = p->steps_matter};
	if (known == NULL) {
		facts_fini(&p->facts);
		assert_int_equal(facts_init(&p->facts, unit_directory, NULL), 0);
		setup.facts = &p->facts;
	}
	assert_int_equal(replay_new(&setup, &p->replay), 0);
	assert_int_equal(run_poll(p->run, 0, true), 0);
	while (run_next(p->run, &event))
		assert_int_equal(replay_event(p->replay, &event), 0);
	assert_int_equal(p->replay->totals.rows, p->row_count);
}

static void assert_row(const struct play *p, size_t at, enum row_kind kind, uint64_t address,
		       uint64_t allocation_id, uint64_t used_bytes)
{
	const struct kept_row *kept = &p->rows[at];

	assert_true(at < p->row_count);
	assert_int_equal(kept->row.kind, kind);
	assert_int_equal(kept->block.address, address);
	assert_int_equal(kept->block.allocation_id, allocation_id);
	assert_int_equal(kept->row.used_bytes, used_bytes);
}

static const struct usage *usage_of(const struct play *p, uint8_t pool, uint32_t device)
{
	size_t i;

	for (i = 0; i < p->replay->usages.count; i++) {
		if (p->replay->usages.all[i].pool == pool &&
		    p->replay->usages.all[i].device == device)
			return &p->replay->usages.all[i];
	}
	fail_msg("no usage of pool %u on device %u", pool, device);
	return NULL;
}

static bool is_live(const struct play *p, uint64_t address)
{
	const struct block *block;
	size_t cursor = 0;

	while ((block = replay_next_block(p->replay, &cursor)) != NULL) {
		if (block->address == address)
			return true;
	}
	return false;
}

/* ---- blocks ---- */

static void allocation_and_free_are_a_row_each(void **state)
{
	struct play *p = *state;

	maker_alloc(&p->w[0], 5000, HAL, 0xa000, 100, 0);
	maker_alloc(&p->w[0], 5001, HAL, 0xb000, 50, 0);
	maker_free(&p->w[1], 5002, FREE, 0xa000);
	play(p, NULL);
	assert_int_equal(p->row_count, 3);
	assert_row(p, 0, ROW_MALLOC, 0xa000, 1, 100);
	assert_row(p, 1, ROW_MALLOC, 0xb000, 2, 150);
	assert_row(p, 2, ROW_FREE, 0xa000, 1, 50);
	assert_int_equal(p->rows[0].row.pid, 4711);
	assert_int_equal(p->rows[0].row.tid, 70);
	assert_int_equal(p->rows[2].row.tid, 71); /* who freed it */
	assert_int_equal(p->rows[2].block.size_bytes, 100);
	/* A free does not know the device; the block does. */
	assert_int_equal(p->rows[2].context.device, 0);
	assert_true(p->rows[0].row.time_ns ==
		    p->maker.header->realtime_ns + 5000 - p->maker.header->monotonic_ns);
	assert_false(is_live(p, 0xa000));
	assert_true(is_live(p, 0xb000));
	assert_int_equal(p->replay->totals.threads, 2);
}

static void usage_is_counted_by_pool_and_device(void **state)
{
	struct play *p = *state;
	const struct usage *hal, *host;

	maker_alloc(&p->w[0], 5000, HAL, 0xa000, 100, 0);
	maker_alloc(&p->w[0], 5001, HOST, 0xb000, 7, 0);
	maker_alloc(&p->w[0], 5002, MADE, 0xc000, 1000, 0);
	maker_alloc(&p->w[0], 5003, HAL, 0xd000, 300, 0);
	maker_free(&p->w[0], 5004, FREE, 0xa000);
	maker_free(&p->w[0], 5005, FREE,
		   0xb000); /* the driver's free does not say that it is host memory */
	play(p, NULL);
	hal = usage_of(p, POOL_hal, 0);
	assert_int_equal(hal->live_bytes, 300);
	assert_int_equal(hal->live_blocks, 1);
	assert_int_equal(hal->peak_bytes, 400);
	assert_int_equal(hal->peak_time_ns, 5003);
	assert_int_equal(hal->allocations, 2);
	assert_int_equal(hal->allocated_bytes, 400);
	assert_int_equal(hal->frees, 1);
	host = usage_of(p, POOL_host_pinned, DEVICE_HOST);
	assert_int_equal(host->live_blocks, 0);
	assert_int_equal(host->frees, 1);
	assert_int_equal(usage_of(p, POOL_hal, 1)->live_bytes, 1000);
	assert_row(p, 5, ROW_FREE, 0xb000, 2, 0);
	assert_int_equal(p->replay->totals.oddities.frees_unknown, 0);
}

static void same_number_means_another_block_elsewhere(void **state)
{
	struct play *p = *state;

	/* The driver's address, the framework's address and a handle are equal and have nothing to do with each other. */
	maker_alloc(&p->w[0], 5000, HAL, 0xa000, 1, 0);
	maker_alloc(&p->w[0], 5001, PTA, 0xa000, 2, 0);
	maker_alloc(&p->w[0], 5002, MADE, 0xa000, 3, 0);
	maker_free(&p->w[0], 5003, PTA, 0xa000);
	play(p, NULL);
	assert_int_equal(p->replay->totals.oddities.allocs_over, 0);
	assert_int_equal(replay_block_count(p->replay), 2);
	assert_row(p, 3, ROW_FREE, 0xa000, 2, 0);
}

static void large_values_come_by_the_wide_record(void **state)
{
	struct play *p = *state;
	uint64_t frames[1] = {0x1234};

	maker_stack(&p->w[0], 4999, 0x2000000, frames, 1);
	MAKER_EVENT(&p->w[0], 5000, HAL, block_alloc_wide, .address = UINT64_MAX,
		    .size_bytes = UINT64_C(1) << 50, .stack = 0x2000000);
	play(p, NULL);
	assert_int_equal(p->row_count, 1);
	assert_true(p->rows[0].block.size_bytes == UINT64_C(1) << 50);
	assert_true(p->rows[0].block.address == UINT64_MAX);
	assert_int_not_equal(p->rows[0].row.stack, 0);
}

static void address_handed_out_twice_closes_the_first_block(void **state)
{
	struct play *p = *state;

	maker_alloc(&p->w[0], 5000, HAL, 0xa000, 100, 0);
	maker_alloc(&p->w[1], 5001, HAL, 0xa000, 30, 0);
	maker_free(&p->w[0], 5002, FREE, 0xa000);
	play(p, NULL);
	assert_int_equal(p->row_count, 4);
	assert_row(p, 1, ROW_FREE, 0xa000, 1, 0);
	assert_true(p->rows[1].row.shadow); /* nobody saw it: made by us */
	assert_row(p, 2, ROW_MALLOC, 0xa000, 2, 30);
	assert_row(p, 3, ROW_FREE, 0xa000, 2, 0);
	assert_false(p->rows[3].row.shadow);
	assert_int_equal(p->replay->totals.oddities.allocs_over, 1);
	assert_int_equal(replay_block_count(p->replay), 0);
}

static void free_of_nothing_is_counted_and_is_no_row(void **state)
{
	struct play *p = *state;

	maker_free(&p->w[0], 5000, FREE, 0xa000);
	maker_alloc(&p->w[0], 5001, HAL, 0xa000, 1, 0);
	maker_free(&p->w[0], 5002, FREE, 0xa000);
	maker_free(&p->w[0], 5003, FREE, 0xa000);
	play(p, NULL);
	assert_int_equal(p->row_count, 2);
	assert_int_equal(p->replay->totals.oddities.frees_unknown, 2);
}

/* Calls that were under way in the hooks of an earlier run while the next one began. */
static void what_is_older_than_late_hooks_is_forgotten(void **state)
{
	struct play *p = *state;
	uint64_t address;

	p->maker.header->first_state = RECORDING_SHADOW;
	maker_free(&p->w[1], 5000, FREE, 0xa000);
	for (address = 0xb000; address < 0xf000; address += 0x1000)
		maker_alloc(&p->w[1], 5001, HAL, address, 10, 0);
	MAKER_EVENT(&p->w[0], 5002, 0, late_hooks, .slots = 0);
	MAKER_EVENT(&p->w[0], 5003, 0, late_hooks, .slots = 3);
	maker_alloc(&p->w[1], 5004, HAL, 0xb000, 20, 0); /* nobody saw its free */
	maker_free(&p->w[1], 5005, FREE, 0xc000);
	MAKER_EVENT(&p->w[0], 5006, 0, state, .state = RECORDING_ON);
	maker_free(&p->w[1], 5007, FREE, 0xd000);
	play(p, NULL);
	assert_int_equal(p->replay->totals.oddities.frees_unknown, 0);
	assert_int_equal(p->replay->totals.oddities.allocs_over, 0);
	assert_int_equal(replay_block_count(p->replay), 1);
	assert_int_equal(usage_of(p, POOL_hal, 0)->live_bytes, 20);
	assert_int_equal(p->row_count, 2); /* the window's begin, and the block that it found */
}

static void late_hooks_of_a_child_keep_what_is_known(void **state)
{
	struct play *p = *state;

	p->maker.header->first_state = RECORDING_SHADOW;
	maker_alloc(&p->w[1], 5000, HAL, 0xa000, 10, 0);
	MAKER_EVENT(&p->w[0], 5001, 0, late_hooks, .slots = 0);
	maker_free(&p->w[1], 5002, FREE, 0xb000);
	play(p, NULL);
	assert_int_equal(replay_block_count(p->replay), 1);
	assert_int_equal(p->replay->totals.oddities.frees_unknown, 0);
}

/* ---- frees that failed ---- */

static void free_that_failed_leaves_the_block_alive(void **state)
{
	struct play *p = *state;

	maker_alloc(&p->w[0], 5000, HAL, 0xa000, 100, 0);
	maker_free(&p->w[0], 5001, FREE, 0xa000);
	maker_undo(&p->w[0], 5002, FREE, 0xa000);
	maker_alloc(&p->w[0], 5003, HAL, 0xb000, 1, 0);
	play(p, NULL);
	assert_true(is_live(p, 0xa000));
	assert_int_equal(usage_of(p, POOL_hal, 0)->live_bytes, 101);
	assert_int_equal(usage_of(p, POOL_hal, 0)->frees, 0);
	assert_int_equal(p->replay->totals.oddities.undone_frees, 1);
	/* The row was out before the undo was known; the facts say that it must go. */
	assert_int_equal(p->row_count, 3);
	assert_true(p->facts.changed);
	assert_int_equal(facts_get(&p->facts, 1).undone_frees, 1);
	assert_int_equal(facts_get(&p->facts, 2).undone_frees, 0);
	play(p, &p->facts);
	assert_int_equal(p->row_count, 2);
	assert_row(p, 0, ROW_MALLOC, 0xa000, 1, 100);
	assert_row(p, 1, ROW_MALLOC, 0xb000, 2, 101);
	assert_true(is_live(p, 0xa000));
	assert_int_equal(p->replay->totals.oddities.undone_frees, 1);
}

static void free_that_works_at_the_third_try_is_one_row_in_the_end(void **state)
{
	struct play *p = *state;
	int i;

	maker_alloc(&p->w[0], 5000, HAL, 0xa000, 100, 0);
	for (i = 0; i < 2; i++) {
		/* By another thread than the one before, as programs do. */
		maker_free(&p->w[i], 5001 + (uint64_t)i * 2, FREE, 0xa000);
		maker_undo(&p->w[i], 5002 + (uint64_t)i * 2, FREE, 0xa000);
	}
	maker_free(&p->w[0], 5010, FREE, 0xa000);
	maker_alloc(&p->w[0], 5011, HAL, 0xa000, 8, 0);
	play(p, NULL);
	assert_int_equal(facts_get(&p->facts, 1).undone_frees, 2);
	assert_int_equal(p->replay->totals.oddities.allocs_over, 0);
	play(p, &p->facts);
	assert_int_equal(p->row_count, 3);
	assert_row(p, 1, ROW_FREE, 0xa000, 1, 0);
	assert_true(p->rows[1].row.time_ns ==
		    p->maker.header->realtime_ns + 5010 - p->maker.header->monotonic_ns);
	assert_row(p, 2, ROW_MALLOC, 0xa000, 2, 8);
	assert_int_equal(p->replay->totals.oddities.undone_frees, 2);
}

static void undo_belongs_to_the_same_thread_and_to_no_older_free(void **state)
{
	struct play *p = *state;

	maker_alloc(&p->w[0], 5000, HAL, 0xa000, 100, 0);
	maker_free(&p->w[0], 5001, FREE, 0xa000);
	maker_undo(&p->w[1], 5002, FREE, 0xa000); /* that thread announced nothing */
	maker_free(&p->w[0], 5003, FREE, 0xa000); /* nothing there, and the driver says so, too */
	maker_undo(&p->w[0], 5004, FREE, 0xa000);
	play(p, NULL);
	assert_false(is_live(p, 0xa000));
	assert_int_equal(p->row_count, 2);
	assert_int_equal(p->replay->totals.oddities.undone_unknown, 1);
	assert_int_equal(p->replay->totals.oddities.frees_unknown, 0);
	assert_false(p->facts.changed);
}

static void undo_is_found_past_the_events_of_a_signal_handler(void **state)
{
	struct play *p = *state;

	maker_alloc(&p->w[0], 5000, HAL, 0xa000, 100, 0);
	maker_alloc(&p->w[0], 5001, HAL, 0xb000, 1, 0);
	maker_free(&p->w[0], 5002, FREE, 0xa000);
	maker_free(&p->w[0], 5003, FREE, 0xb000);
	maker_alloc(&p->w[0], 5004, HAL, 0xc000, 1, 0);
	maker_undo(&p->w[0], 5005, FREE, 0xa000);
	play(p, NULL);
	assert_true(is_live(p, 0xa000));
	assert_false(is_live(p, 0xb000));
}

/*
 * Several threads free one block. Each announces its free, asks the driver, and undoes when that refuses; the block goes to
 * whoever asks first. In some of the orders the address is handed out again in between, or the threads free more.
 */
struct race {
	uint32_t frees; /* threads that free; the next one allocates */
	bool refuse;	/* the driver refuses all */
	bool reuse,
		busy; /* the address is handed out again; threads that are done free other blocks */
	char order[32]; /* one digit for each step: the thread */
	uint32_t steps, tried;
};

enum {
	RACE_BLOCK = 0xa000,
	RACE_OTHERS = 0x100000,
	RACE_STEPS = 3, /* announce, ask, undo */
};

/* Writes the trace of one order. False: threads freed the block and the one after it, which no undo can tell. */
static bool race_write(struct play *p, const struct race *race, uint32_t *out_winner,
		       uint64_t *out_time, bool *out_reused)
{
	uint64_t announced[4] = {0}, now = 5000;
	uint32_t at[4] = {0}, i, n;
	bool failed[4] = {false}, live = true, taken = false;

	*out_winner = UINT32_MAX;
	*out_reused = false;
	maker_alloc(&p->w[0], now++, HAL, RACE_BLOCK, 100, 0);
	for (i = 0; i < race->steps; i++) {
		uint32_t thread = (uint32_t)(race->order[i] - '0'), step = at[thread]++;
		struct maker_writer *w = &p->w[thread];

		now++;
		if (thread == race->frees) {
			if (step == 0)
				taken = !live;
			else if (taken)
				maker_alloc(w, now, HAL, RACE_BLOCK, 8, 0);
			*out_reused = taken;
		} else if (step == 0) {
			announced[thread] = now;
			maker_free(w, now, FREE, RACE_BLOCK);
		} else if (step == 1) {
			failed[thread] = race->refuse || !live;
			if (failed[thread] && taken)
				return false;
			if (!failed[thread]) {
				live = false;
				*out_winner = thread;
				*out_time = announced[thread];
			}
		} else {
			if (failed[thread])
				maker_undo(w, now, FREE, RACE_BLOCK);
			for (n = 0; race->busy && n < 2 * RECENT_FREES; n++, now += 2) {
				uint64_t other = RACE_OTHERS + 16 * now;

				maker_alloc(w, now, HAL, other, 1, 0);
				maker_free(w, now + 1, FREE, other);
			}
		}
	}
	return true;
}

static void race_check(const struct race *race)
{
	uint64_t time_ns = 0, wall;
	uint32_t winner, i, found = 0, pass;
	void *state = NULL;
	struct play *p;
	bool reused;

	assert_int_equal(begin(&state), 0);
	p = state;
	for (i = 2; i < MSCOPE_COUNT(p->w); i++) {
		maker_thread(&p->w[i], p->now++, 70 + i);
		define_contexts(p, &p->w[i]);
	}
	if (race_write(p, race, &winner, &time_ns, &reused)) {
		wall = p->maker.header->realtime_ns - p->maker.header->monotonic_ns;
		for (pass = 1; pass <= 2; pass++) {
			play(p, pass == 1 ? NULL : &p->facts);
			if (is_live(p, RACE_BLOCK) != (winner == UINT32_MAX || reused) ||
			    usage_of(p, POOL_hal, 0)->live_blocks !=
				    (winner == UINT32_MAX || reused) ||
			    p->replay->totals.oddities.allocs_over != 0)
				fail_msg("order %s: the block lives wrongly", race->order);
		}
		play(p, NULL);
		assert_int_equal(p->replay->totals.oddities.frees_unknown, 0);
		assert_int_equal(p->replay->totals.oddities.undone_unknown, 0);
		play(p, &p->facts);
		for (i = 0; i < p->row_count; i++) {
			const struct kept_row *kept = &p->rows[i];

			if (kept->row.kind != ROW_FREE || kept->block.address != RACE_BLOCK)
				continue;
			found++;
			if (kept->row.tid != 70 + winner || kept->row.time_ns != wall + time_ns)
				fail_msg("order %s: a wrong free has the row", race->order);
		}
		if (found != (winner != UINT32_MAX))
			fail_msg("order %s: %u rows of frees", race->order, found);
	}
	end(&state);
}

/* Every order of the steps that are left. */
static void race_orders(struct race *race, uint32_t *left, uint32_t threads)
{
	bool done = true;
	uint32_t i;

	for (i = 0; i < threads; i++) {
		if (left[i] == 0)
			continue;
		done = false;
		left[i]--;
		race->order[race->steps++] = (char)('0' + i);
		race_orders(race, left, threads);
		race->order[--race->steps] = '\0';
		left[i]++;
	}
	if (done) {
		race->tried++;
		race_check(race);
	}
}

static void block_that_threads_free_at_once_ends_with_the_free_that_worked(void **state)
{
	static const struct race races[] = {
		{.frees = 2},
		{.frees = 2, .refuse = true},
		{.frees = 2, .busy = true},
		{.frees = 2, .reuse = true},
		{.frees = 2, .refuse = true, .busy = true},
		{.frees = 2, .reuse = true, .busy = true},
		{.frees = 3},
	};
	size_t i;

	(void)state;
	for (i = 0; i < MSCOPE_COUNT(races); i++) {
		struct race race = races[i];
		uint32_t left[4] = {RACE_STEPS, RACE_STEPS, race.frees == 3 ? RACE_STEPS : 2};

		race_orders(&race, left, race.frees + race.reuse);
		assert_int_equal(race.tried, race.frees == 3 ? 1680 : race.reuse ? 560 : 20);
	}
}

/* ---- states ---- */

static void shadows_that_live_are_shown_when_a_window_begins(void **state)
{
	struct play *p = *state;

	p->maker.header->first_state = RECORDING_SHADOW;
	maker_alloc(&p->w[1], 5000, HAL, 0xa000, 100, 0);
	maker_alloc(&p->w[0], 5001, MADE, 0xb000, 10, 0);
	maker_alloc(&p->w[0], 5002, HAL, 0xd000, 7, 0);
	maker_free(&p->w[0], 5003, FREE, 0xd000); /* came and went unseen */
	MAKER_EVENT(&p->w[0], 5004, 0, state, .state = RECORDING_ON);
	maker_alloc(&p->w[0], 5005, HAL, 0xc000, 1, 0);
	maker_free(&p->w[0], 5006, FREE, 0xa000);
	play(p, NULL);
	assert_int_equal(p->row_count, 5);
	assert_int_equal(p->rows[0].row.kind, ROW_START_TRACE);
	assert_int_equal(p->rows[0].context.device, DEVICE_UNKNOWN);
	assert_row(p, 1, ROW_MALLOC, 0xa000, 1, 100);
	assert_row(p, 2, ROW_MALLOC, 0xb000, 2, 10);
	assert_true(p->rows[1].row.shadow && p->rows[2].row.shadow);
	assert_int_equal(p->rows[1].row.tid, 71);
	assert_int_equal(p->rows[1].row.time_ns, p->rows[0].row.time_ns);
	assert_int_equal(p->rows[2].context.kind, BLOCK_CREATE);
	assert_row(p, 3, ROW_MALLOC, 0xc000, 4, 101); /* what lives counts from the first row on */
	assert_row(p, 4, ROW_FREE, 0xa000, 1, 1);
	assert_false(p->rows[4].row.shadow);
	assert_true(is_live(p, 0xb000));
}

static void block_of_a_window_ends_when_it_ends(void **state)
{
	struct play *p = *state;

	maker_alloc(&p->w[0], 5000, HAL, 0xa000, 100, 0);
	maker_alloc(&p->w[0], 5001, HAL, 0xb000, 10, 0);
	MAKER_EVENT(&p->w[0], 5002, 0, state, .state = RECORDING_SHADOW);
	maker_free(&p->w[0], 5003, FREE, 0xa000);
	maker_alloc(&p->w[0], 5004, HAL, 0xa000, 3, 0); /* and is handed out again, unseen */
	MAKER_EVENT(&p->w[0], 5005, 0, state, .state = RECORDING_ON);
	maker_free(&p->w[0], 5006, FREE, 0xb000);
	play(p, NULL);
	assert_int_equal(p->row_count, 7);
	assert_int_equal(p->rows[2].row.kind, ROW_STOP_TRACE);
	assert_row(p, 3, ROW_FREE, 0xa000, 1, 10);
	assert_true(p->rows[3].row.shadow);
	assert_int_equal(p->rows[3].row.time_ns, p->rows[4].row.time_ns); /* start() tells of it */
	assert_int_equal(p->rows[4].row.kind, ROW_START_TRACE);
	assert_row(p, 5, ROW_MALLOC, 0xa000, 3, 13);
	assert_row(p, 6, ROW_FREE, 0xb000, 2, 3);
	assert_int_equal(p->replay->totals.oddities.allocs_over, 0);
}

static void figures_and_rows_are_those_of_the_last_stop(void **state)
{
	struct play *p = *state;
	uint64_t bytes, blocks;
	const struct usage *usage;

	maker_alloc(&p->w[0], 5000, HAL, 0xa000, 100, 0);
	maker_alloc(&p->w[0], 5001, HAL, 0xb000, 10, 0);
	maker_free(&p->w[0], 5002, FREE, 0xb000);
	MAKER_EVENT(&p->w[0], 5003, 0, state, .state = RECORDING_SHADOW);
	maker_alloc(&p->w[0], 5004, HAL, 0xc000, 5000, 0); /* came and went */
	maker_free(&p->w[0], 5005, FREE, 0xc000);
	maker_free(&p->w[0], 5006, FREE, 0xa000);
	maker_alloc(&p->w[0], 5007, HAL, 0xa000, 7, 0);
	MAKER_EVENT(&p->w[0], 5008, 0, ended, .kind = END_MAIN);
	maker_free(&p->w[0], 5009, FREE, 0xa000);
	play(p, NULL);
	assert_int_equal(p->row_count, 4);
	assert_int_equal(p->rows[3].row.kind, ROW_STOP_TRACE);
	assert_int_equal(replay_ended(p->replay), END_STOP);
	usage = &p->replay->usages.all[0];
	replay_usage_at_end(p->replay, usage, &bytes, &blocks);
	assert_int_equal(bytes, 100);
	assert_int_equal(blocks, 1);
	assert_int_equal(replay_count_at_end(p->replay), 1);
	assert_int_equal(usage->peak_bytes, 110);
	assert_int_equal(usage->highest_bytes, 5100);
	assert_int_equal(usage->allocations, 2);
	assert_int_equal(usage->frees, 1);
	assert_int_equal(usage->live_bytes, 100);
	assert_int_equal(usage->live_bytes + (uint64_t)usage->outside_bytes, 0);
}

static void window_begins_with_what_happened_since_the_last(void **state)
{
	struct play *p = *state;
	const struct usage *usage;

	maker_alloc(&p->w[0], 5000, HAL, 0xa000, 100, 0);
	maker_alloc(&p->w[0], 5001, HAL, 0xb000, 10, 0);
	MAKER_EVENT(&p->w[0], 5002, 0, state, .state = RECORDING_SHADOW);
	maker_alloc(&p->w[0], 5003, HAL, 0xc000, 5000, 0);
	maker_free(&p->w[0], 5004, FREE, 0xc000);
	maker_free(&p->w[0], 5005, FREE, 0xa000);
	maker_alloc(&p->w[0], 5006, HAL, 0xd000, 50, 0);
	MAKER_EVENT(&p->w[0], 5007, 0, state, .state = RECORDING_ON);
	maker_free(&p->w[0], 5008, FREE, 0xd000);
	play(p, NULL);
	usage = &p->replay->usages.all[0];
	assert_int_equal(usage->live_bytes, 10);
	assert_int_equal(usage->outside_bytes, 0);
	assert_int_equal(usage->peak_bytes, 110);
	assert_int_equal(usage->allocations, 3);
	assert_int_equal(usage->frees, 2);
	assert_int_equal(replay_ended(p->replay), END_NONE);
	assert_false(is_live(p, 0xa000));
	assert_true(is_live(p, 0xb000));
}

static void what_is_no_memory_stays_inside_windows(void **state)
{
	struct play *p = *state;

	maker_text(&p->w[1], p->now++, 1, "op");
	MAKER_EVENT(&p->w[0], 5000, HAL, mark, .kind = 1);
	MAKER_EVENT(&p->w[1], 5001, HAL, operation, .name = 1, .kind = OPERATION_BEGINS,
		    .layer = LAYER_ATEN);
	MAKER_EVENT(&p->w[0], 5002, 0, state, .state = RECORDING_SHADOW);
	/* By threads that had not noticed yet. */
	MAKER_EVENT(&p->w[1], 5003, HAL, mark, .kind = 1);
	MAKER_EVENT(&p->w[1], 5004, HAL, step, .number = 1);
	MAKER_EVENT(&p->w[1], 5005, 0, system, .kind = 1);
	MAKER_EVENT(&p->w[0], 5006, 0, state, .state = RECORDING_SHADOW);
	play(p, NULL);
	assert_int_equal(p->row_count, 3);
	assert_int_equal(p->rows[0].row.kind, ROW_MARK);
	assert_int_equal(p->rows[1].row.kind, ROW_ATEN_START);
	assert_int_equal(p->rows[2].row.kind, ROW_STOP_TRACE);
	assert_null(replay_operation(p->replay, 2, LAYER_ATEN));
	assert_int_equal(p->replay->steps.begun, 0);
}

static void settings_of_the_program_are_known_from_their_record_on(void **state)
{
	struct play *p = *state;

	MAKER_EVENT(&p->w[0], 5000, 0, settings, .events = SESSION_LAUNCH, .c_depth = 7,
		    .devices = 0x80000001u, .python_depth = 9, .oom_top = 10, .host = 1);
	play(p, NULL);
	assert_int_equal(p->replay->windows.settings_count, 1);
	assert_int_equal(p->replay->windows.settings.events, SESSION_LAUNCH);
	assert_int_equal(p->replay->windows.settings.c_depth, 7);
	assert_int_equal(p->replay->windows.settings.devices, 0x80000001u);
	assert_int_equal(p->row_count, 0);
}

/* ---- definitions ---- */

static void contexts_of_all_writers_are_kept_once(void **state)
{
	struct play *p = *state;

	/* Those of every writer under other numbers. */
	maker_thread(&p->w[2], p->now++, 72);
	maker_context(&p->w[2], p->now++, 900, POOL_hal, BLOCK_ALLOC, 0);
	maker_alloc(&p->w[2], 5000, 900, 0xa000, 1, 0);
	maker_alloc(&p->w[0], 5001, HAL, 0xb000, 1, 0);
	play(p, NULL);
	assert_int_equal(p->replay->definitions.context_count, 1 + 6);
	assert_int_equal(p->rows[0].block.context, p->rows[1].block.context);
	assert_int_equal(p->replay->usages.count, 1);
}

static void number_without_definition_is_unknown_and_counted(void **state)
{
	struct play *p = *state;

	maker_alloc(&p->w[0], 5000, 77, 0xa000, 1, 88);
	play(p, NULL);
	assert_int_equal(p->row_count, 1);
	assert_int_equal(p->rows[0].context.device, DEVICE_UNKNOWN);
	assert_int_equal(p->rows[0].context.pool, POOL_UNKNOWN);
	assert_int_equal(p->rows[0].row.stack, 0);
	assert_int_equal(p->replay->totals.oddities.contexts_unknown, 1);
	assert_int_equal(p->replay->totals.oddities.stacks_unknown, 1);
}

static const char *frame_text(struct play *p, uint32_t stack, uint32_t at)
{
	uint32_t count;
	const uint32_t *frames = stacks_frames(&p->replay->definitions.stacks, stack, &count);

	assert_true(at < count);
	return stacks_frame_text(&p->replay->definitions.stacks, frames[at]);
}

static void equal_stacks_of_different_writers_are_one(void **state)
{
	struct play *p = *state;
	uint64_t a[] = {0x10100, 0x20200, 0x99999}, b[] = {0x10100, 0x20200};

	maker_module(&p->w[1], 4000, 1, 0x10000, 0x20000, "/lib/a.so");
	maker_module(&p->w[1], 4001, 2, 0x20000, 0x30000, "/lib/b.so");
	maker_stack(&p->w[0], 4002, 1, a, 3);
	maker_stack(&p->w[0], 4003, 2, b, 2);
	maker_stack(&p->w[1], 4004, 55, a, 3);
	maker_alloc(&p->w[0], 5000, HAL, 0xa000, 1, 1);
	maker_alloc(&p->w[0], 5001, HAL, 0xb000, 1, 2);
	maker_alloc(&p->w[1], 5002, HAL, 0xc000, 1, 55);
	play(p, NULL);
	assert_int_equal(p->rows[0].row.stack, p->rows[2].row.stack);
	assert_int_not_equal(p->rows[0].row.stack, p->rows[1].row.stack);
	assert_string_equal(frame_text(p, p->rows[0].row.stack, 0), "/lib/a.so(+0x100) [0x10100]");
	assert_string_equal(frame_text(p, p->rows[0].row.stack, 1), "/lib/b.so(+0x200) [0x20200]");
	assert_string_equal(frame_text(p, p->rows[0].row.stack, 2), "[0x99999]");
}

static void stack_keeps_the_module_it_was_defined_with(void **state)
{
	struct play *p = *state;
	uint64_t frames[] = {0x10100};

	maker_module(&p->w[0], 4000, 1, 0x10000, 0x20000, "/lib/old.so");
	maker_stack(&p->w[0], 4001, 1, frames, 1);
	MAKER_EVENT(&p->w[0], 4002, 0, module_unload, .id = 1);
	maker_module(&p->w[0], 4003, 2, 0x10000, 0x20000, "/lib/new.so");
	maker_stack(&p->w[0], 4004, 2, frames, 1);
	maker_alloc(&p->w[0], 5000, HAL, 0xa000, 1, 1);
	maker_alloc(&p->w[0], 5001, HAL, 0xb000, 1, 2);
	play(p, NULL);
	assert_string_equal(frame_text(p, p->rows[0].row.stack, 0),
			    "/lib/old.so(+0x100) [0x10100]");
	assert_string_equal(frame_text(p, p->rows[1].row.stack, 0),
			    "/lib/new.so(+0x100) [0x10100]");
}

static void free_has_the_stack_of_its_own_caller(void **state)
{
	struct play *p = *state;
	uint64_t here[] = {0x1}, there[] = {0x2};

	maker_stack(&p->w[0], 4000, 1, here, 1);
	maker_stack(&p->w[1], 4001, 1, there, 1);
	maker_alloc(&p->w[0], 5000, HAL, 0xa000, 1, 1);
	MAKER_EVENT(&p->w[1], 5001, FREE, block_free_traced, .address = 0xa000, .stack = 1);
	maker_alloc(&p->w[0], 5002, HAL, 0xa000, 1, 1);
	maker_free(&p->w[1], 5003, FREE, 0xa000);
	play(p, NULL);
	assert_int_equal(p->row_count, 4);
	assert_string_equal(frame_text(p, p->rows[1].row.stack, 0), "[0x2]");
	assert_int_equal(p->rows[3].row.stack, 0);
}

static void frame_texts_survive_being_saved(void **state)
{
	struct play *p = *state;
	uint64_t frames[] = {0x10100, 0x5};
	struct strbuf saved = {0};
	struct modules modules;
	struct stacks stacks;
	uint32_t number;

	maker_module(&p->w[0], 4000, 1, 0x10000, 0x20000, "/lib/a.so");
	maker_stack(&p->w[0], 4001, 1, frames, 2);
	play(p, NULL);
	assert_int_equal(stacks_save(&p->replay->definitions.stacks, &saved, NULL, NULL), 0);
	/* A machine where nothing is known but what was saved, and where the file ends too early. */
	modules_init(&modules, &p->elves);
	stacks_init(&stacks, &modules, "/nowhere");
	stacks_load(&stacks, saved.data, saved.length);
	assert_int_equal(
		stacks_number(&stacks, &(struct frame){.address = 0x10100, .module = 1}, &number),
		0);
	assert_string_equal(stacks_frame_text(&stacks, number), "/lib/a.so(+0x100) [0x10100]");
	stacks_load(&stacks, saved.data, saved.length - 1);
	stacks_load(&stacks, NULL, 0);
	stacks_fini(&stacks);
	modules_fini(&modules);
	strbuf_fini(&saved);
}

struct parts {
	struct modules *modules;
	size_t count, frames,
		left; /* parts that were loaded, what they had, and those to come before a failure */
};

/* Each part can be read alone: no frame is cut. */
static int load_part(void *arg, const struct strbuf *part)
{
	struct parts *parts = arg;
	struct stacks stacks;
	size_t i;

	stacks_init(&stacks, parts->modules, "/nowhere");
	stacks_load(&stacks, part->data, part->length);
	for (i = 0; i < stacks.frame_count; i++)
		assert_int_not_equal(stacks.frames[i].text, 0);
	parts->frames += stacks.frame_count;
	parts->count++;
	stacks_fini(&stacks);
	return parts->left-- == 0 ? -ENOSPC : 0;
}

static void frame_texts_are_saved_in_parts(void **state)
{
	struct play *p = *state;
	struct parts parts = {.left = 100};
	struct strbuf buffer = {0};
	struct modules modules;
	struct stacks stacks;
	uint64_t address;
	uint32_t stack;

	modules_init(&modules, &p->elves);
	stacks_init(&stacks, &modules, "/nowhere");
	parts.modules = &modules;
	for (address = 1; address <= 200000; address++)
		assert_int_equal(stacks_intern(&stacks, (const uint8_t *)&address, 1,
					       (struct stack_places){0}, &stack),
				 0);
	assert_int_equal(stacks_save(&stacks, &buffer, load_part, &parts), 0);
	assert_int_equal(parts.frames, 200000);
	assert_in_range(parts.count, 2, 20);
	parts = (struct parts){.modules = &modules, .left = 1};
	assert_int_equal(stacks_save(&stacks, &buffer, load_part, &parts), -ENOSPC);
	assert_int_equal(parts.count, 2);
	stacks_fini(&stacks);
	modules_fini(&modules);
	strbuf_fini(&buffer);
}

static void definitions_that_do_not_hold_are_counted(void **state)
{
	struct play *p = *state;
	struct event_stack_def stack = {.id = 9, .c_frames = 1000};
	struct event_module_load module = {.id = 9, .start = 1, .end = 2, .path_bytes = 65535};
	struct event_note note = {.text_bytes = UINT32_MAX};
	uint64_t words[8];

	event_stack_def_encode(words, &stack);
	maker_variable(&p->w[0], 4000, EVENT_stack_def, words, EVENT_BYTES_stack_def, "", 0);
	event_module_load_encode(words, &module);
	maker_variable(&p->w[0], 4001, EVENT_module_load, words, EVENT_BYTES_module_load, "", 0);
	event_note_encode(words, &note);
	maker_variable(&p->w[0], 4002, EVENT_note, words, EVENT_BYTES_note, "", 0);
	maker_module(&p->w[0], 4003, 7, 10, 10, "/lib/empty.so");
	MAKER_EVENT(&p->w[0], 4004, 0, module_unload, .id = 1234);
	maker_note(&p->w[0], 4005, "a word to the reader");
	maker_alloc(&p->w[0], 5000, HAL, 0xa000, 1, 0);
	play(p, NULL);
	assert_int_equal(p->replay->totals.oddities.bad_definitions, 5);
	assert_int_equal(p->replay->notes.count, 1);
	assert_string_equal(replay_note(p->replay, 0), "a word to the reader");
	assert_int_equal(p->row_count, 1);
}

static void checkpoint_records_of_an_ordinary_writer_mean_nothing(void **state)
{
	struct play *p = *state;

	MAKER_EVENT(&p->w[0], 4000, 0, checkpoint, .rows = 1000, .allocations = 1000,
		    .time_ns = UINT64_MAX);
	MAKER_EVENT(&p->w[0], 4001, 0, live_block, .address = 0xa000, .size_bytes = 1,
		    .allocation_id = 5);
	maker_alloc(&p->w[0], 5000, HAL, 0xb000, 1, 0);
	play(p, NULL);
	assert_int_equal(p->row_count, 1);
	assert_row(p, 0, ROW_MALLOC, 0xb000, 1, 1);
	assert_false(is_live(p, 0xa000));
}

/* ---- names, steps ---- */

static void step_has_what_happens_in_it_and_what_it_launched(void **state)
{
	enum { BEGINS = 1, ENDS = 2, START = 2, END = 3, STEP = 1, OTHER = 2, KERNEL = 3 };
	static const struct {
		enum row_kind kind;
		uint32_t step;
	} expected[] = {
		{ROW_RANGE_START, 1},	{ROW_MALLOC, 1},	{ROW_RANGE_START, 1},
		{ROW_KERNEL_LAUNCH, 1}, {ROW_RANGE_END, 1},	{ROW_RANGE_END, 1},
		{ROW_FREE, 0},		{ROW_RANGE_START, 2},	{ROW_KERNEL_BEGIN, 1},
		{ROW_KERNEL_END, 1},	{ROW_KERNEL_LAUNCH, 2}, {ROW_RANGE_END, 2},
		{ROW_KERNEL_LAUNCH, 0}, {ROW_KERNEL_BEGIN, 2},	{ROW_KERNEL_BEGIN, 0},
	};
	struct play *p = *state;
	struct maker_writer *w = &p->w[0];
	size_t i;

	maker_text(w, p->now++, STEP, STEP_MESSAGE);
	maker_text(w, p->now++, OTHER, "forward");
	maker_text(w, p->now++, KERNEL, "MatMul");
	MAKER_EVENT(w, p->now++, HAL, mark, .text = STEP, .kind = START, .range = 10);
	maker_alloc(w, p->now++, HAL, 0x1000, 16, 0);
	MAKER_EVENT(w, p->now++, HAL, mark, .text = OTHER, .kind = START, .range = 11);
	MAKER_EVENT(w, p->now++, HAL, kernel_launch, .name = KERNEL, .stream = 3, .task = 7);
	MAKER_EVENT(w, p->now++, HAL, mark, .kind = END, .range = 11);
	MAKER_EVENT(w, p->now++, HAL, mark, .kind = END, .range = 10);
	maker_free(w, p->now++, HAL, 0x1000);
	MAKER_EVENT(w, p->now++, HAL, mark, .text = STEP, .kind = START, .range = 12);
	/* The device tells of the first step's kernel when the second step runs. */
	MAKER_EVENT(w, p->now++, HAL, kernel_execute, .stream = 3, .task = 7, .kind = BEGINS);
	MAKER_EVENT(w, p->now++, HAL, kernel_execute, .stream = 3, .task = 7, .kind = ENDS);
	MAKER_EVENT(w, p->now++, HAL, kernel_launch, .name = KERNEL, .stream = 3, .task = 7);
	MAKER_EVENT(w, p->now++, HAL, mark, .kind = END, .range = 12);
	MAKER_EVENT(w, p->now++, HAL, kernel_launch, .name = KERNEL, .stream = 3, .task = 8);
	/* A device that does not tell the stream. */
	MAKER_EVENT(w, p->now++, HAL, kernel_execute, .stream = UINT32_MAX, .task = 7,
		    .kind = BEGINS);
	MAKER_EVENT(w, p->now++, HAL, kernel_execute, .stream = 3, .task = 8, .kind = BEGINS);
	play(p, NULL);
	assert_int_equal(p->row_count, MSCOPE_COUNT(expected));
	for (i = 0; i < p->row_count; i++) {
		assert_int_equal(p->rows[i].row.kind, expected[i].kind);
		assert_int_equal(p->rows[i].row.step, expected[i].step);
	}
	assert_int_equal(p->replay->steps.begun, 2);
}

/* A stream was destroyed; the next one has its number and counts its tasks anew, before the device's log was read. */
static void kernels_of_a_stream_number_that_is_used_again_are_told_apart(void **state)
{
	enum { FIRST = 1, SECOND, THIRD, BEGINS = 1, ENDS };
	static const char *const names[] = {"first", "second", "third"};
	struct play *p = *state;
	struct maker_writer *w = &p->w[0];
	size_t i, executed = 0;

	for (i = 0; i < MSCOPE_COUNT(names); i++) {
		maker_text(w, p->now++, FIRST + (uint32_t)i, names[i]);
		MAKER_EVENT(w, p->now++, HAL, kernel_launch, .name = FIRST + i, .stream = 3,
			    .task = 7);
	}
	for (i = 0; i < 2 * MSCOPE_COUNT(names); i++)
		MAKER_EVENT(w, p->now++, HAL, kernel_execute, .stream = 3, .task = 7,
			    .kind = i % 2 == 0 ? BEGINS : ENDS);
	/* The first of these is lost: the clock tells that the execution is of the second. */
	MAKER_EVENT(w, p->now++, HAL, device_clock, .counter = p->now, .frequency_hz = 1000000000);
	MAKER_EVENT(w, p->now++, HAL, kernel_launch, .name = FIRST, .stream = 3, .task = 8);
	p->now += 5000000;
	MAKER_EVENT(w, p->now++, HAL, kernel_launch, .name = SECOND, .stream = 3, .task = 8);
	p->now += 5000000;
	MAKER_EVENT(w, p->now, HAL, kernel_execute, .stream = 3, .task = 8, .counter = p->now,
		    .kind = ENDS);
	play(p, NULL);
	assert_int_equal(p->replay->totals.oddities.kernels_unknown, 0);
	for (i = 0; i < p->row_count; i++) {
		const char *wanted = executed < 6 ? names[executed / 2] : "second";

		if (p->rows[i].row.kind == ROW_KERNEL_LAUNCH)
			continue;
		assert_string_equal(p->rows[i].name, wanted);
		executed++;
	}
	assert_int_equal(executed, 7);
	assert_int_equal(p->replay->kernels.older_count, 0);
	assert_int_equal(p->replay->kernels.launches.count, 0);
}

/* Another task of the same stream, and the same task of another stream, wait for the log as well. */
static void kernels_that_wait_are_found_by_stream_and_task(void **state)
{
	enum { FIRST = 1, ENDS = 2 };
	static const struct {
		const char *name;
		uint32_t stream, task;
	} launches[] = {{"a", 3, 7},	   {"a again", 3, 7}, {"b", 4, 8},
			{"b again", 4, 8}, {"c", 3, 8},	      {"c again", 3, 8}};
	static const size_t order[] = {4, 0, 2};
	struct play *p = *state;
	struct maker_writer *w = &p->w[0];
	size_t i, executed = 0;

	for (i = 0; i < MSCOPE_COUNT(launches); i++) {
		maker_text(w, p->now++, FIRST + (uint32_t)i, launches[i].name);
		MAKER_EVENT(w, p->now++, HAL, kernel_launch, .name = FIRST + (uint32_t)i,
			    .stream = launches[i].stream, .task = launches[i].task);
	}
	for (i = 0; i < MSCOPE_COUNT(order); i++)
		MAKER_EVENT(w, p->now++, HAL, kernel_execute, .stream = launches[order[i]].stream,
			    .task = launches[order[i]].task, .kind = ENDS);
	play(p, NULL);
	for (i = 0; i < p->row_count; i++) {
		if (p->rows[i].row.kind == ROW_KERNEL_LAUNCH)
			continue;
		assert_string_equal(p->rows[i].name, launches[order[executed]].name);
		executed++;
	}
	assert_int_equal(executed, MSCOPE_COUNT(order));
}

/* The device's clock runs 200 ppm faster than it says: after 10 s that would be 2 ms, which pairs each second take out. */
static void execution_times_lie_between_the_pairs_of_a_clock(void **state)
{
	enum { NAME = 1, SECOND = 1000000000, RATE = 1000200000, BEGINS = 1 };
	struct play *p = *state;
	struct maker_writer *w = &p->w[0];
	const uint64_t start = p->now + 1000;
	uint64_t shown[2], truth[2];
	size_t i, executed = 0;

	maker_text(w, p->now++, NAME, "kernel");
	for (i = 0; i <= 10; i++)
		MAKER_EVENT(w, start + i * SECOND, HAL, device_clock, .counter = 77 + i * RATE,
			    .frequency_hz = SECOND);
	/* Half a second before the latest pair, and 0.9 s after it. */
	truth[0] = start + 10 * (uint64_t)SECOND - SECOND / 2;
	truth[1] = start + 10 * (uint64_t)SECOND + SECOND / 10 * 9;
	for (i = 0; i < 2; i++) {
		p->now = start + (uint64_t)(11 + i) * SECOND;
		MAKER_EVENT(w, p->now++, HAL, kernel_launch, .name = NAME, .stream = 1, .task = i);
		MAKER_EVENT(w, p->now++, HAL, kernel_execute, .stream = 1, .task = i,
			    .kind = BEGINS,
			    .counter = 77 + (uint64_t)((double)(truth[i] - start) * 1.0002));
	}
	play(p, NULL);
	for (i = 0; i < p->row_count; i++) {
		if (p->rows[i].row.kind == ROW_KERNEL_BEGIN)
			shown[executed++] = p->rows[i].row.time_ns;
	}
	assert_int_equal(executed, 2);
	for (i = 0; i < 2; i++) {
		uint64_t wall = run_wall_ns(p->run, truth[i]);

		assert_in_range(shown[i], wall - 1000, wall + 1000);
	}
}

static void assert_steps(const struct play *p, const uint32_t *steps, size_t count)
{
	size_t i;

	assert_int_equal(p->row_count, count);
	for (i = 0; i < count; i++)
		assert_int_equal(p->rows[i].row.step, steps[i]);
}

static void each_call_of_step_ends_one_that_began_with_the_window(void **state)
{
	static const uint32_t steps[] = {1, 1, 1, 2, 2, 3, 3, 0, 3, 3};
	struct play *p = *state;
	struct maker_writer *w = &p->w[0];

	p->maker.header->first_state = RECORDING_SHADOW;
	MAKER_EVENT(w, 5000, 0, state, .state = RECORDING_ON);
	maker_alloc(w, 5001, HAL, 0xa000, 1, 0);
	MAKER_EVENT(w, 5002, HAL, step, .number = 1);
	maker_free(w, 5003, FREE, 0xa000);
	MAKER_EVENT(w, 5004, HAL, step, .number = 2);
	maker_alloc(w, 5005, HAL, 0xb000, 1, 0);
	MAKER_EVENT(w, 5006, 0, state, .state = RECORDING_SHADOW);
	maker_free(w, 5007, FREE, 0xb000); /* in no step */
	MAKER_EVENT(w, 5008, 0, state, .state = RECORDING_ON);
	MAKER_EVENT(w, 5009, HAL, step, .number = 3);
	play(p, NULL);
	assert_steps(p, steps, MSCOPE_COUNT(steps));
	assert_int_equal(p->rows[2].row.kind, ROW_STEP);
	assert_int_equal(p->replay->steps.begun, 3);
	assert_false(p->facts.changed);
}

static void steps_have_one_source_the_first(void **state)
{
	struct play *p = *state;
	struct maker_writer *w = &p->w[0];

	maker_text(w, p->now++, 1, STEP_MESSAGE);
	MAKER_EVENT(w, 5000, HAL, step, .number = 1);
	MAKER_EVENT(w, 5001, HAL, mark, .text = 1, .kind = 2, .range = 10);
	MAKER_EVENT(w, 5002, HAL, mark, .kind = 3, .range = 10);
	MAKER_EVENT(w, 5003, HAL, mark, .text = 1, .kind = 2, .range = 11);
	play(p, NULL);
	assert_int_equal(p->replay->steps.begun, 1);
	assert_int_equal(p->replay->notes.count, 1);
	assert_string_equal(
		replay_note(p->replay, 0),
		"using steps from step(), ignoring those from ranges named 'step start'");
	assert_int_equal(p->row_count, 4);
}

static void ranges_that_come_first_are_the_steps(void **state)
{
	struct play *p = *state;
	struct maker_writer *w = &p->w[0];

	maker_text(w, p->now++, 1, STEP_MESSAGE);
	MAKER_EVENT(w, 5000, HAL, mark, .text = 1, .kind = 2, .range = 10);
	MAKER_EVENT(w, 5001, HAL, step, .number = 1);
	MAKER_EVENT(w, 5002, HAL, mark, .kind = 3, .range = 10);
	maker_alloc(w, 5003, HAL, 0xa000, 1, 0);
	play(p, NULL);
	assert_int_equal(p->replay->steps.begun, 1);
	assert_int_equal(p->row_count, 3); /* no row STEP */
	assert_int_equal(p->rows[1].row.step, 1);
	assert_int_equal(p->rows[2].row.step, 0);
	assert_int_equal(p->replay->notes.count, 1);
}

static void who_tells_the_steps_is_known_to_the_second_pass(void **state)
{
	static const uint32_t first[] = {0, 1, 2}, second[] = {1, 1, 2};
	struct play *p = *state;
	struct maker_writer *w = &p->w[0];

	/* No start(): only the first step() tells that a step was under way. */
	maker_alloc(w, 5000, HAL, 0xa000, 1, 0);
	MAKER_EVENT(w, 5001, HAL, step, .number = 1);
	maker_free(w, 5002, FREE, 0xa000);
	p->steps_matter = true;
	play(p, NULL);
	assert_steps(p, first, MSCOPE_COUNT(first));
	assert_true(p->facts.changed);
	play(p, &p->facts);
	assert_steps(p, second, MSCOPE_COUNT(second));
}

static void window_with_ranges_has_what_is_before_them_in_no_step(void **state)
{
	static const uint32_t first[] = {1, 1, 1}, second[] = {0, 0, 1};
	struct play *p = *state;
	struct maker_writer *w = &p->w[0];

	p->maker.header->first_state = RECORDING_SHADOW;
	maker_text(w, p->now++, 1, STEP_MESSAGE);
	MAKER_EVENT(w, 5000, 0, state, .state = RECORDING_ON);
	maker_alloc(w, 5001, HAL, 0xa000, 1, 0);
	MAKER_EVENT(w, 5002, HAL, mark, .text = 1, .kind = 2, .range = 10);
	p->steps_matter = true;
	play(p, NULL);
	assert_steps(p, first, MSCOPE_COUNT(first));
	assert_true(p->facts.changed);
	play(p, &p->facts);
	assert_steps(p, second, MSCOPE_COUNT(second));
}

/* Changes of steps, as an observer hears them: one letter and the step. */
static void keep_step(void *arg, struct replay *replay, uint32_t step, bool begins)
{
	(void)replay;
	strbuf_addf(arg, "%c%u ", begins ? 'b' : 'e', step);
}

static void keep_restart(void *arg, struct replay *replay)
{
	(void)replay;
	strbuf_add_str(arg, "restart ");
}

/* Plays the trace; `heard` is what an observer was told of steps. */
static void play_steps(struct play *p, const char *heard)
{
	static const struct replay_observer observer = {.step = keep_step, .restart = keep_restart};
	struct strbuf text = {0};
	struct trace_event event;

	stop(p);
	assert_int_equal(run_open(p->maker.path, NULL, false, &p->run, NULL), 0);
	assert_int_equal(replay_new(&(struct replay_setup){.run = p->run,
							   .elves = &p->elves,
							   .root = "/nowhere",
							   .row = keep_row,
							   .arg = p},
				    &p->replay),
			 0);
	replay_observe(p->replay, &observer, &text);
	assert_int_equal(run_poll(p->run, 0, true), 0);
	while (run_next(p->run, &event))
		assert_int_equal(replay_event(p->replay, &event), 0);
	assert_string_equal(strbuf_str(&text), heard);
	strbuf_fini(&text);
}

static void optimizers_tell_steps_to_analyses_and_not_to_rows(void **state)
{
	struct play *p = *state;
	struct maker_writer *w = &p->w[0];
	size_t i;

	maker_alloc(w, 5000, HAL, 0xa000, 1, 0);
	MAKER_EVENT(w, 5001, 0, optimizer_step, .number = 1);
	maker_alloc(w, 5002, HAL, 0xb000, 1, 0);
	MAKER_EVENT(w, 5003, 0, optimizer_step, .number = 2);
	maker_alloc(w, 5004, HAL, 0xc000, 1, 0);
	play_steps(p, "b1 e1 b2 e2 b3 ");
	assert_int_equal(p->row_count, 3);
	for (i = 0; i < 3; i++) {
		assert_int_equal(p->rows[i].row.kind, ROW_MALLOC);
		assert_int_equal(p->rows[i].row.step, 0);
		assert_int_equal(p->rows[i].block.alloc_step, 0);
	}
	assert_int_equal(p->rows[1].block.latest_step, 2);
	assert_int_equal(p->rows[2].block.latest_step, 3);
	assert_true(replay_steps_are_automatic(p->replay));
	assert_int_equal(replay_steps(p->replay), 2);
	assert_int_equal(replay_open_step(p->replay, 0), 3);
	assert_int_equal(replay_marked_steps(p->replay), 0);
	assert_int_equal(replay_marked_step(p->replay, 0), 0);
}

static void marks_of_the_program_undo_steps_of_optimizers(void **state)
{
	struct play *p = *state;
	struct maker_writer *w = &p->w[0];
	const struct block *block;
	size_t cursor = 0;

	maker_text(w, p->now++, 1, STEP_MESSAGE);
	MAKER_EVENT(w, 5001, 0, optimizer_step, .number = 1);
	maker_alloc(w, 5002, HAL, 0xb000, 1, 0);
	MAKER_EVENT(w, 5003, 0, optimizer_step, .number = 2);
	MAKER_EVENT(w, 5004, HAL, mark, .text = 1, .kind = 2, .range = 10);
	MAKER_EVENT(w, 5005, 0, optimizer_step, .number = 3);
	MAKER_EVENT(w, 5006, HAL, mark, .kind = 3, .range = 10);
	MAKER_EVENT(w, 5007, 0, optimizer_step, .number = 4);
	play_steps(p, "b1 e1 b2 e2 b3 restart b1 e1 ");
	assert_false(replay_steps_are_automatic(p->replay));
	assert_int_equal(replay_steps(p->replay), 1);
	assert_int_equal(p->replay->notes.count, 0);
	block = replay_next_block(p->replay, &cursor);
	assert_int_equal(block->latest_step, 0);
}

static void step_of_the_api_undoes_steps_of_optimizers_in_a_window(void **state)
{
	static const uint32_t steps[] = {1, 1, 1, 2};
	struct play *p = *state;
	struct maker_writer *w = &p->w[0];

	p->maker.header->first_state = RECORDING_SHADOW;
	MAKER_EVENT(w, 5000, 0, state, .state = RECORDING_ON);
	MAKER_EVENT(w, 5001, 0, optimizer_step, .number = 1);
	maker_alloc(w, 5002, HAL, 0xa000, 1, 0); /* the program's first step, which start() began */
	MAKER_EVENT(w, 5003, HAL, step, .number = 1);
	MAKER_EVENT(w, 5004, 0, optimizer_step, .number = 2);
	maker_alloc(w, 5005, HAL, 0xb000, 1, 0);
	play_steps(p, "b1 e1 b2 restart b1 e1 b2 ");
	assert_steps(p, steps, MSCOPE_COUNT(steps));
	assert_int_equal(replay_steps(p->replay), 1);
}

/* Steps of an optimizer, and then marks of the program: calls of step(), or ranges. */
static void train_and_mark(struct play *p, uint64_t steps, uint64_t marks, bool ranges)
{
	struct maker_writer *w = &p->w[0];
	uint64_t i;

	maker_text(w, p->now++, 1, STEP_MESSAGE);
	for (i = 1; i <= steps; i++)
		MAKER_EVENT(w, 5000 + i, 0, optimizer_step, .number = i);
	for (i = 1; i <= marks; i++) {
		if (!ranges)
			MAKER_EVENT(w, 6000 + 3 * i, HAL, step, .number = i);
		if (ranges)
			MAKER_EVENT(w, 6000 + 3 * i, HAL, mark, .text = 1, .kind = 2, .range = i);
		MAKER_EVENT(w, 6001 + 3 * i, 0, optimizer_step, .number = steps + i);
		if (ranges)
			MAKER_EVENT(w, 6002 + 3 * i, HAL, mark, .kind = 3, .range = i);
	}
}

#define NINE_STEPS "b1 e1 b2 e2 b3 e3 b4 e4 b5 e5 b6 e6 b7 e7 b8 e8 b9 e9 b10 "

static void few_late_marks_leave_the_steps_of_the_optimizer(void **state)
{
	struct play *p = *state;

	train_and_mark(p, 9, 2, false);
	play_steps(p, NINE_STEPS "e10 b11 e11 b12 ");
	assert_true(replay_steps_are_automatic(p->replay));
	assert_int_equal(replay_steps(p->replay), 11);
	assert_int_equal(replay_marked_steps(p->replay), 2);
	/* Rows know them all the same. */
	assert_int_equal(p->row_count, 2);
	assert_int_equal(p->rows[1].row.step, 2);
}

static void a_third_late_mark_counts(void **state)
{
	struct play *p = *state;

	train_and_mark(p, 9, 4, false);
	play_steps(p, NINE_STEPS "e10 b11 e11 b12 restart b4 e4 b5 ");
	assert_false(replay_steps_are_automatic(p->replay));
	assert_int_equal(replay_steps(p->replay), 4);
}

static void a_third_late_range_counts(void **state)
{
	struct play *p = *state;

	train_and_mark(p, 9, 4, true);
	play_steps(p, NINE_STEPS "e10 b11 e11 b12 restart b3 e3 b4 e4 ");
	assert_int_equal(replay_steps(p->replay), 4);
}

static void early_marks_count_at_once(void **state)
{
	struct play *p = *state;

	train_and_mark(p, 8, 1, false);
	play_steps(p, "b1 e1 b2 e2 b3 e3 b4 e4 b5 e5 b6 e6 b7 e7 b8 e8 b9 restart b2 ");
	assert_false(replay_steps_are_automatic(p->replay));
}

/* ---- the end of the program's own code ---- */

static bool lived_at_end(const struct play *p, uint64_t address)
{
	const struct block *block;
	size_t cursor = 0;
	uint32_t found = 0;

	while ((block = replay_next_at_end(p->replay, &cursor)) != NULL)
		found += block->address == address;
	assert_true(found <= 1);
	return found == 1;
}

static void what_teardown_frees_was_alive_at_the_end(void **state)
{
	struct play *p = *state;
	uint64_t bytes, blocks;

	maker_alloc(&p->w[0], 5000, HAL, 0xa000, 100, 0);
	maker_alloc(&p->w[0], 5001, HAL, 0xb000, 20, 0);
	maker_alloc(&p->w[0], 5002, HAL, 0xc000, 3, 0);
	maker_free(&p->w[1], 5003, FREE, 0xb000);
	MAKER_EVENT(&p->w[0], 5004, 0, ended, .kind = END_MAIN);
	maker_free(&p->w[1], 5005, FREE, 0xa000);
	maker_alloc(&p->w[1], 5006, HAL, 0xa000, 7, 0); /* the address again, in an exit handler */
	maker_alloc(&p->w[0], 5007, HAL, 0xd000, 9, 0);
	maker_free(&p->w[0], 5008, FREE, 0xd000);
	MAKER_EVENT(&p->w[0], 5009, 0, ended, .kind = END_EXIT); /* the first one counts */
	maker_free(&p->w[0], 5010, FREE, 0xc000);
	play(p, NULL);
	assert_int_equal(replay_ended(p->replay), END_MAIN);
	assert_int_equal(replay_end_ns(p->replay), 5004);
	assert_int_equal(replay_count_at_end(p->replay), 2);
	assert_true(lived_at_end(p, 0xa000));
	assert_true(lived_at_end(p, 0xc000));
	replay_usage_at_end(p->replay, usage_of(p, POOL_hal, 0), &bytes, &blocks);
	assert_int_equal(bytes, 103);
	assert_int_equal(blocks, 2);
	/* Rows and usage go on as ever. */
	assert_int_equal(usage_of(p, POOL_hal, 0)->live_bytes, 7);
	assert_int_equal(replay_block_count(p->replay), 1);
	assert_int_equal(p->row_count, 9);
	assert_row(p, 8, ROW_FREE, 0xc000, 3, 7);
}

static void without_a_record_the_end_is_the_last_event(void **state)
{
	struct play *p = *state;
	uint64_t bytes, blocks;

	maker_alloc(&p->w[0], 5000, HAL, 0xa000, 100, 0);
	maker_alloc(&p->w[0], 5001, HAL, 0xb000, 20, 0);
	maker_free(&p->w[0], 5002, FREE, 0xa000);
	play(p, NULL);
	assert_int_equal(replay_ended(p->replay), END_NONE);
	assert_int_equal(replay_end_ns(p->replay), 5002);
	assert_int_equal(replay_count_at_end(p->replay), 1);
	assert_true(lived_at_end(p, 0xb000));
	replay_usage_at_end(p->replay, usage_of(p, POOL_hal, 0), &bytes, &blocks);
	assert_int_equal(bytes, 20);
	assert_int_equal(blocks, 1);
}

static void free_that_fails_over_the_end_did_not_happen(void **state)
{
	struct play *p = *state;
	uint64_t bytes, blocks;
	int pass;

	maker_alloc(&p->w[0], 5000, HAL, 0xa000, 100, 0);
	maker_alloc(&p->w[0], 5001, HAL, 0xb000, 20, 0);
	maker_free(&p->w[0], 5002, FREE, 0xa000);
	MAKER_EVENT(&p->w[1], 5003, 0, ended, .kind = END_EXIT);
	maker_undo(&p->w[0], 5004, FREE, 0xa000);
	maker_free(&p->w[0], 5005, FREE, 0xb000);
	maker_undo(&p->w[0], 5006, FREE, 0xb000);
	maker_free(&p->w[0], 5007, FREE, 0xb000);
	for (pass = 0; pass < 2; pass++) {
		play(p, pass == 0 ? NULL : &p->facts);
		assert_int_equal(replay_count_at_end(p->replay), 2);
		assert_true(lived_at_end(p, 0xa000));
		assert_true(lived_at_end(p, 0xb000));
		replay_usage_at_end(p->replay, usage_of(p, POOL_hal, 0), &bytes, &blocks);
		assert_int_equal(bytes, 120);
		assert_int_equal(blocks, 2);
	}
}

static void text_number_means_what_it_was_last_defined_as(void **state)
{
	struct play *p = *state;
	struct maker_writer *w = &p->w[0];
	uint32_t i;

	maker_text(w, p->now++, 1, "first");
	maker_text(&p->w[1], p->now++, 1, "another's");
	for (i = 0; i < 2; i++) {
		MAKER_EVENT(w, p->now++, HAL, mark, .text = 1, .kind = 1);
		maker_text(w, p->now++, 1, "second");
	}
	/* Texts that are not kept, and a number that none of them has. */
	maker_text(w, p->now++, TEXT_ONCE | 3, "a/1");
	for (i = 0; i < 2; i++) {
		MAKER_EVENT(w, p->now++, HAL, operation, .name = 1, .kind = OPERATION_BEGINS,
			    .layer = LAYER_ATB_KERNEL, .path = TEXT_ONCE | 3);
		maker_text(w, p->now++, TEXT_ONCE | 3, "a/2 is longer");
	}
	maker_text(w, p->now++, TEXT_ONCE | TEXT_ONCE_SLOTS, "a/3");
	MAKER_EVENT(&p->w[1], p->now++, HAL, operation, .name = 1, .kind = OPERATION_BEGINS,
		    .layer = LAYER_ATB_KERNEL, .path = TEXT_ONCE | 3);
	play(p, NULL);
	assert_int_equal(p->row_count, 5);
	assert_string_equal(p->rows[0].name, "first");
	assert_string_equal(p->rows[1].name, "second");
	assert_string_equal(p->rows[2].attr, "{\"path\":\"a/1\"}");
	assert_string_equal(p->rows[3].attr, "{\"path\":\"a/2 is longer\"}");
	assert_string_equal(p->rows[4].name, "another's");
	assert_string_equal(p->rows[4].attr, "");
	assert_int_equal(p->replay->totals.oddities.bad_definitions, 1);
	assert_int_equal(p->replay->texts.by_content.count, 3);
}

struct told {
	char name[64]; /* of the latest row */
	uint64_t rows;
};

static int keep_name(void *arg, struct replay *replay, const struct row *row)
{
	struct told *told = arg;

	(void)replay;
	told->rows++;
	(void)snprintf(told->name, sizeof(told->name), "%s", row->name);
	return 0;
}

static int keep_call(void *arg, const struct call_row *row)
{
	(void)snprintf(arg, 64, "%s", row->text);
	return 0;
}

/* A record of writer 1 that comes without a file. */
#define HAND(p, record_, ...)                                                                      \
	do {                                                                                       \
		struct event_##record_ in_ = {__VA_ARGS__};                                        \
		uint64_t words_[EVENT_BYTES_##record_ / 8];                                        \
		struct trace_event made_ = {.type = EVENT_##record_,                               \
					    .writer = 1,                                           \
					    .tid = 70,                                             \
					    .context = HAL,                                        \
					    .time_ns = (p)->now++,                                 \
					    .words = words_};                                      \
                                                                                                   \
		event_##record_##_encode(words_, &in_);                                            \
		assert_int_equal(replay_event((p)->replay, &made_), 0);                            \
	} while (0)

static void hand_text(struct play *p, uint32_t id, const char *text)
{
	struct event_text_def def = {.id = id, .text_bytes = strlen(text)};
	uint64_t words[EVENT_BYTES_text_def / 8];
	struct trace_event event = {.type = EVENT_text_def,
				    .writer = 1,
				    .time_ns = p->now++,
				    .words = words,
				    .payload = (const uint8_t *)text,
				    .payload_bytes = (uint32_t)strlen(text)};

	event_text_def_encode(words, &def);
	assert_int_equal(replay_event(p->replay, &event), 0);
}

static void texts_that_nobody_can_name_any_more_take_no_memory(void **state)
{
	struct play *p = *state;
	struct told told = {0};
	char text[64], call[64] = "";
	uint32_t i;

	play(p, NULL);
	p->replay->setup.row = keep_name;
	p->replay->setup.arg = &told;
	p->replay->calls.row = keep_call;
	p->replay->calls.row_arg = call;
	hand_text(p, 1, "stays");
	hand_text(p, 2, "a kernel");
	HAND(p, kernel_launch, .name = 2, .stream = 3, .task = 4);
	hand_text(p, 2, "an operator");
	HAND(p, operation, .name = 2, .kind = OPERATION_BEGINS, .layer = LAYER_ATEN);
	hand_text(p, 2, "a range");
	HAND(p, call, .what = 2, .kind = CALL_RANGE_BEGIN);
	for (i = 0; i < 200000; i++) {
		(void)snprintf(text, sizeof(text), "iteration %u of very many", i);
		hand_text(p, 2 + i % 3, text);
		HAND(p, mark, .text = 2 + i % 3, .kind = 1);
		assert_string_equal(told.name, text);
		assert_true(p->replay->texts.bytes.length < 1u << 20);
		assert_true(p->replay->texts.by_content.count < 40000);
	}
	HAND(p, mark, .text = 1, .kind = 1);
	assert_string_equal(told.name, "stays");
	HAND(p, kernel_execute, .stream = 3, .task = 4, .kind = 2);
	assert_string_equal(told.name, "a kernel");
	hand_text(p, 9, "an operator");
	HAND(p, operation, .name = 9, .kind = OPERATION_ENDED, .layer = LAYER_ATEN);
	assert_int_equal(p->replay->totals.oddities.operations_unpaired, 0);
	hand_text(p, 9, "a range");
	HAND(p, call, .what = 9, .kind = CALL_RANGE_END);
	assert_string_equal(call, "a range");
}

struct kept_check {
	uint64_t next;
	uint64_t stop_at;
};

static int check_kept(void *arg, const struct row *row, struct mscope_error *err)
{
	struct kept_check *check = arg;
	char name[32];

	(void)err;
	(void)snprintf(name, sizeof(name), "mark %llu", (unsigned long long)check->next);
	assert_int_equal(row->id, check->next);
	assert_int_equal(row->context->device, DEVICE_UNKNOWN);
	if (check->next % 3 == 0)
		assert_null(row->name);
	else
		assert_string_equal(row->name, name);
	return ++check->next == check->stop_at ? 7 : 0;
}

static void rows_of_no_device_wait_outside_of_memory(void **state)
{
	struct context context = {.device = DEVICE_UNKNOWN};
	struct kept_check check = {0}, some = {.stop_at = 10};
	struct kept_rows kept = {0};
	char name[32];
	uint64_t i;

	(void)state;
	assert_int_equal(kept_each(&kept, check_kept, &check, NULL), 0);
	assert_int_equal(check.next, 0);
	for (i = 0; i < 20000; i++) {
		struct row row = {.id = i, .kind = ROW_MARK, .context = &context};

		(void)snprintf(name, sizeof(name), "mark %llu", (unsigned long long)i);
		row.name = i % 3 == 0 ? NULL : name;
		assert_int_equal(kept_add(&kept, &row, unit_directory, NULL), 0);
		assert_true(kept.recent.room < 1u << 20);
	}
	assert_true(kept.spooled > 1u << 20);
	assert_int_equal(kept_each(&kept, check_kept, &check, NULL), 0);
	assert_int_equal(check.next, 20000);
	assert_int_equal(kept_each(&kept, check_kept, &some, NULL), 7);
	assert_int_equal(some.next, 10);
	kept_fini(&kept);
	for (i = 0; i < 20000; i++) {
		struct row row = {.id = i, .kind = ROW_MARK, .context = &context};
		struct mscope_error err = {0};

		if (kept_add(&kept, &row, "/nowhere", &err) < 0) {
			assert_non_null(strstr(err.message, "/nowhere"));
			break;
		}
	}
	assert_in_range(i, 1, 19999);
	kept_fini(&kept);
}

/* ---- operators and accesses ---- */

static void operators_are_rows_and_nest_by_thread(void **state)
{
	enum { ADD = 1, LINEAR = 2, KERNEL = 3, OP_PATH = 4, BEFORE = 5, AFTER = 6 };
	struct play *p = *state;
	struct maker_writer *w = &p->w[0];
	const struct open_operation *open;

	maker_text(w, p->now++, ADD, "aten.add");
	maker_text(w, p->now++, LINEAR, "Linear");
	maker_text(w, p->now++, KERNEL, "0_Kernel");
	maker_text(w, p->now++, OP_PATH, "0_1/0/0_\"Linear\"");
	maker_text(w, p->now++, BEFORE, "0_1/0/0_Linear/0_Kernel/before");
	maker_text(w, p->now++, AFTER, "0_1/0/0_Linear/0_Kernel/after");
	maker_text(&p->w[1], p->now++, 1, "aten.mul");
	MAKER_EVENT(w, p->now++, HAL, operation, .name = ADD, .kind = OPERATION_BEGINS,
		    .layer = LAYER_ATEN);
	MAKER_EVENT(w, p->now++, HAL, operation, .name = LINEAR, .kind = OPERATION_BEGINS,
		    .layer = LAYER_ATB, .path = OP_PATH, .workspace = 0x12c040000000,
		    .workspace_bytes = 4096);
	MAKER_EVENT(w, p->now++, HAL, operation, .name = KERNEL, .kind = OPERATION_BEGINS,
		    .layer = LAYER_ATB_KERNEL, .path = BEFORE);
	MAKER_EVENT(w, p->now++, HAL, operation, .name = KERNEL, .kind = OPERATION_ENDED,
		    .layer = LAYER_ATB_KERNEL, .path = AFTER);
	MAKER_EVENT(w, p->now++, HAL, operation, .name = LINEAR, .kind = OPERATION_ENDED,
		    .layer = LAYER_ATB, .path = OP_PATH);
	MAKER_EVENT(&p->w[1], p->now++, HAL, operation, .name = 1, .kind = OPERATION_BEGINS,
		    .layer = LAYER_ATEN);
	play(p, NULL);
	assert_int_equal(p->row_count, 6);
	assert_int_equal(p->rows[0].row.kind, ROW_ATEN_START);
	assert_string_equal(p->rows[0].name, "aten.add");
	assert_string_equal(p->rows[0].attr, "");
	assert_int_equal(p->rows[0].row.writer, 1);
	assert_int_equal(p->rows[1].row.kind, ROW_ATB_START);
	assert_string_equal(
		p->rows[1].attr,
		"{\"path\":\"0_1/0/0_\\\"Linear\\\"\",\"workspace_ptr\":\"0x12c040000000\","
		"\"workspace_size\":\"4096\"}");
	assert_int_equal(p->rows[2].row.kind, ROW_ATB_KERNEL_START);
	assert_string_equal(p->rows[2].attr, "{\"path\":\"0_1/0/0_Linear/0_Kernel/before\"}");
	assert_int_equal(p->rows[3].row.kind, ROW_ATB_KERNEL_END);
	assert_string_equal(p->rows[3].attr, "{\"path\":\"0_1/0/0_Linear/0_Kernel/after\"}");
	assert_int_equal(p->rows[4].row.kind, ROW_ATB_END);
	assert_string_equal(p->rows[4].attr,
			    "{\"path\":\"0_1/0/0_\\\"Linear\\\"\",\"workspace_ptr\":\"0\","
			    "\"workspace_size\":\"0\"}");
	assert_int_equal(p->replay->totals.operations[LAYER_ATEN], 2);
	assert_int_equal(p->replay->totals.operations[LAYER_ATB], 1);
	assert_int_equal(p->replay->totals.operations[LAYER_ATB_KERNEL], 1);
	open = replay_operation(p->replay, 2, LAYER_ATEN);
	assert_int_equal(open->number, 2);
	assert_int_equal(replay_operation(p->replay, 1, LAYER_ATEN)->number, 1);
	assert_null(replay_operation(p->replay, 1, LAYER_ATB));
	assert_null(replay_operation(p->replay, 1, LAYER_ATB_KERNEL));
	assert_null(replay_operation(p->replay, 70000, LAYER_ATEN));
	assert_int_equal(p->replay->totals.oddities.operations_unpaired, 0);
}

static void operator_without_its_other_half_is_counted(void **state)
{
	enum { OUTER = 1, INNER = 2 };
	struct play *p = *state;
	struct maker_writer *w = &p->w[0];
	int i;

	maker_text(w, p->now++, OUTER, "outer");
	maker_text(w, p->now++, INNER, "inner");
	/* An end whose begin nobody saw, numbers that mean nothing, and an inner one that does not end. */
	MAKER_EVENT(w, p->now++, HAL, operation, .name = OUTER, .kind = OPERATION_ENDED,
		    .layer = LAYER_ATEN);
	MAKER_EVENT(w, p->now++, HAL, operation, .name = OUTER, .kind = 3, .layer = LAYER_ATEN);
	MAKER_EVENT(w, p->now++, HAL, operation, .name = OUTER, .kind = OPERATION_BEGINS,
		    .layer = LAYER_END);
	MAKER_EVENT(w, p->now++, HAL, access, .address = 1, .kind = 4, .layer = LAYER_ATEN);
	MAKER_EVENT(w, p->now++, HAL, access, .address = 1, .kind = ACCESS_READ, .layer = 0);
	MAKER_EVENT(w, p->now++, HAL, operation, .name = OUTER, .kind = OPERATION_BEGINS,
		    .layer = LAYER_ATEN);
	for (i = 0; i < 3; i++)
		MAKER_EVENT(w, p->now++, HAL, operation, .name = INNER, .kind = OPERATION_BEGINS,
			    .layer = LAYER_ATEN);
	MAKER_EVENT(w, p->now++, HAL, operation, .name = OUTER, .kind = OPERATION_ENDED,
		    .layer = LAYER_ATEN);
	play(p, NULL);
	assert_int_equal(p->row_count, 6);
	assert_int_equal(p->replay->totals.oddities.operations_unpaired, 4);
	assert_null(replay_operation(p->replay, 1, LAYER_ATEN));
	/* A thread that takes the writer over is inside nothing. */
	MAKER_EVENT(w, p->now++, HAL, operation, .name = OUTER, .kind = OPERATION_BEGINS,
		    .layer = LAYER_ATEN);
	maker_thread(w, p->now++, 99);
	play(p, NULL);
	assert_null(replay_operation(p->replay, 1, LAYER_ATEN));
}

static void access_is_of_the_innermost_block_that_has_its_first_byte(void **state)
{
	enum { NAME = 1, DTYPE = 2, SHAPE = 3, FORMAT = 4 };
	struct play *p = *state;
	struct maker_writer *w = &p->w[0];
	static const struct {
		uint64_t address;
		uint64_t allocation_id; /* 0: none */
	} expected[] = {
		{0x10000, 2}, /* the framework's, though the driver's begins there too */
		{0x10040, 2}, {0x100ff, 2}, {0x10100, 3}, /* the next of the pool */
		{0x10180, 1},				  /* between them: only the driver's */
		{0x18000, 4}, /* found by its handle, read by its address */
		{0x1ffff, 1}, {0x20000, 0}, {0xffff, 0},  {7, 0}, /* a handle is no address */
	};
	size_t i;

	maker_text(w, p->now++, NAME, "aten.mul");
	maker_text(w, p->now++, DTYPE, "torch.float32");
	maker_text(w, p->now++, SHAPE, "torch.Size([2, 3])");
	maker_text(w, p->now++, FORMAT, "ACL_FORMAT_ND");
	maker_alloc(w, p->now++, HAL, 0x10000, 0x10000, 0);
	maker_alloc(w, p->now++, PTA, 0x10000, 0x100, 0);
	maker_alloc(w, p->now++, PTA, 0x10100, 0x80, 0);
	MAKER_EVENT(w, p->now++, ATB, region_alloc, .handle = 7, .address = 0x18000,
		    .size_bytes = 0x200);
	maker_alloc(w, p->now++, MADE, 7, 0x100, 0);
	for (i = 0; i < MSCOPE_COUNT(expected); i++)
		MAKER_EVENT(w, p->now++, HAL, access, .address = expected[i].address,
			    .size_bytes = 24, .name = NAME, .kind = ACCESS_READ,
			    .layer = LAYER_ATEN, .dtype = DTYPE, .shape = SHAPE);
	/* What is allocated and freed later counts, too; another device's memory does not; memory knows its device. */
	maker_free(w, p->now++, PTA, 0x10100);
	MAKER_EVENT(w, p->now++, FREE, access, .address = 0x10100, .name = NAME,
		    .kind = ACCESS_WRITE, .layer = LAYER_ATB, .dtype = DTYPE, .shape = SHAPE,
		    .format = FORMAT);
	maker_alloc(w, p->now++, PTA, 0x10100, 0x40, 0);
	MAKER_EVENT(w, p->now++, HAL, access, .address = 0x10120, .kind = ACCESS_UNKNOWN,
		    .layer = LAYER_ATB_KERNEL);
	MAKER_EVENT(w, p->now++, MADE, access, .address = 0x10120, .kind = ACCESS_READ,
		    .layer = LAYER_ATEN);
	MAKER_EVENT(w, p->now++, HOST, access, .address = 0x10120, .kind = ACCESS_READ,
		    .layer = LAYER_ATEN);
	play(p, NULL);
	for (i = 0; i < MSCOPE_COUNT(expected); i++) {
		const struct kept_row *kept = &p->rows[5 + i];

		assert_int_equal(kept->row.kind, ROW_READ);
		assert_int_equal(kept->row.address, expected[i].address);
		assert_int_equal(kept->block.allocation_id, expected[i].allocation_id);
	}
	assert_string_equal(
		p->rows[6].attr,
		"{\"allocation_id\":\"2\",\"addr\":\"0x0000000000010040\",\"size\":\"24\","
		"\"type\":\"PTA\",\"dtype\":\"torch.float32\","
		"\"shape\":\"torch.Size([2, 3])\"}");
	assert_string_equal(p->rows[12].attr, "{\"addr\":\"0x0000000000020000\",\"size\":\"24\","
					      "\"type\":\"PTA\",\"dtype\":\"torch.float32\","
					      "\"shape\":\"torch.Size([2, 3])\"}");
	assert_int_equal(p->row_count, 5 + MSCOPE_COUNT(expected) + 6);
	i = p->row_count - 5;
	assert_int_equal(p->rows[i].row.kind, ROW_WRITE);
	assert_int_equal(p->rows[i].context.device, 0);
	assert_string_equal(
		p->rows[i].attr,
		"{\"allocation_id\":\"1\",\"addr\":\"0x0000000000010100\",\"size\":\"0\","
		"\"type\":\"ATB\",\"dtype\":\"torch.float32\","
		"\"format\":\"ACL_FORMAT_ND\",\"shape\":\"torch.Size([2, 3])\"}");
	assert_int_equal(p->rows[i + 2].row.kind, ROW_ACCESS);
	assert_int_equal(p->rows[i + 2].block.allocation_id, 6);
	assert_null(p->rows[i + 3].row.block);
	assert_string_equal(p->rows[i + 4].attr,
			    "{\"addr\":\"0x0000000000010120\",\"size\":\"0\",\"type\":\"HOST\"}");
	assert_true(row_has_address(p->rows[i].row.kind) && row_has_address(p->rows[0].row.kind));
}

/* Against a plain table: many blocks come and go in an order that makes leaves split, run low and join. */
static void blocks_are_found_by_any_byte_whatever_came_and_went(void **state)
{
	enum { PLACES = 20000, ROUNDS = 200000 };
	static uint8_t live[PLACES];
	struct ranges ranges = {0};
	uint64_t random = 88172645463325252u, at;
	uint32_t slot, i, want;
	size_t low, high;

	(void)state;
	for (i = 0; i < ROUNDS; i++) {
		random ^= random << 13, random ^= random >> 7, random ^= random << 17;
		/* Fills in the first half, empties in the second. */
		at = random % PLACES;
		if (!live[at] && (i < ROUNDS / 2 || random >> 60 == 0)) {
			assert_int_equal(ranges_insert(&ranges, 3, 0, at * 16, (uint32_t)at), 0);
			live[at] = 1;
		} else if (live[at]) {
			ranges_remove(&ranges, 3, 0, at * 16, (uint32_t)at + 1); /* not that one */
			ranges_remove(&ranges, 3, 0, at * 16, (uint32_t)at);
			live[at] = 0;
		}
		if (i % 64 != 0)
			continue;
		at = (random >> 20) % PLACES;
		for (want = (uint32_t)at + 1; want > 0 && !live[want - 1]; want--)
			;
		slot = UINT32_MAX;
		assert_int_equal(ranges.lane_count, 1);
		assert_int_equal(lane_below(&ranges.lanes[0], at * 16 + 15, &slot), want > 0);
		if (want > 0)
			assert_int_equal(slot, want - 1);
	}
	/* Two at one address: the newest is found, and each can be removed. */
	assert_int_equal(ranges_insert(&ranges, 3, 1, 64, 1), 0);
	assert_int_equal(ranges_insert(&ranges, 3, 1, 64, 2), 0);
	assert_true(lane_below(&ranges.lanes[1], 64, &slot) && slot == 2);
	ranges_remove(&ranges, 3, 1, 64, 1);
	assert_true(lane_below(&ranges.lanes[1], 64, &slot) && slot == 2);
	ranges_remove(&ranges, 3, 1, 64, 2);
	assert_false(lane_below(&ranges.lanes[1], UINT64_MAX, &slot));
	ranges_remove(&ranges, 9, 9, 64, 2);
	for (low = high = i = 0; i < PLACES; i++)
		low += live[i];
	for (i = 0; i < ranges.lanes[0].leaf_count; i++)
		high += 1520;
	assert_true(high < low * 40 + 1520); /* memory goes back with the blocks */
	ranges_fini(&ranges);
}

/* ---- numbers and live blocks by key ---- */

static void numbers_mean_what_was_defined_last_however_large(void **state)
{
	static const uint32_t given[] = {1, 2, 900, 70000, UINT32_MAX, 3};
	struct numbers numbers = {0};
	uint32_t i, number, value, sum = 0;
	size_t cursor = 0, count = 0;

	(void)state;
	assert_int_equal(numbers_get(&numbers, 1), 0);
	for (i = 0; i < MSCOPE_COUNT(given); i++)
		assert_int_equal(numbers_put(&numbers, given[i], 10 + i), 0);
	assert_int_equal(numbers_put(&numbers, 2, 7), 0);
	assert_int_equal(numbers_put(&numbers, 70000, 8), 0);
	for (i = 0; i < MSCOPE_COUNT(given); i++)
		assert_int_equal(numbers_get(&numbers, given[i]), i == 1 ? 8 : i == 3 ? 9 : 11 + i);
	assert_int_equal(numbers_get(&numbers, 899), 0);
	assert_int_equal(numbers_get(&numbers, 69999), 0);
	assert_true(numbers.page_count * NUMBERS_PAGE <
		    2000); /* large ones do not take the room of those below them */
	/* The array grows over a number that was apart before. */
	for (i = 4; i < 80000; i++)
		assert_int_equal(numbers_put(&numbers, i, i), 0);
	assert_int_equal(numbers_get(&numbers, 70000), 70001);
	assert_int_equal(numbers_get(&numbers, UINT32_MAX), 15);
	while (numbers_next(&numbers, &cursor, &number, &value)) {
		sum += number == 70000;
		count++;
	}
	assert_int_equal(count, 79999 + 1);
	assert_int_equal(sum, 1);
	numbers_fini(&numbers);
}

/* Stacks that are defined again in the order of before take no memory for each number; what breaks the order is kept all the same. */
static void numbers_that_follow_each_other_take_no_room(void **state)
{
	struct numbers numbers = {0};
	uint64_t random = 5;
	uint32_t i, *model = calloc(100000, sizeof(*model));
	size_t open = 0;

	(void)state;
	assert_non_null(model);
	for (i = 1; i < 100000; i++) {
		model[i] = (i - 1) % 7000 + 1;
		assert_int_equal(numbers_put(&numbers, i, model[i] - 1), 0);
	}
	for (i = 0; i < numbers.page_count; i++)
		open += numbers.pages[i].values != NULL;
	assert_true(open < 20);
	assert_int_equal(numbers.count, 99999);
	for (i = 0; i < 5000; i++) {
		uint32_t number = 1 + (uint32_t)(unit_random(&random) % 99999);

		model[number] = 1 + (uint32_t)(unit_random(&random) % 100);
		assert_int_equal(numbers_put(&numbers, number, model[number] - 1), 0);
	}
	for (i = 0; i < 100000; i++)
		assert_int_equal(numbers_get(&numbers, i), model[i]);
	assert_int_equal(numbers.count, 99999);
	numbers_fini(&numbers);
	free(model);
}

/* By their address, or by another key in one of the three spaces. */
static void live_blocks_are_found_by_space_and_key(void **state)
{
	static uint32_t model[3][512]; /* slot + 1 */
	static struct block all[3 * 512];
	struct blocks blocks = {.all = all};
	const struct live_entry *entry;
	uint64_t random = 11, i;
	size_t cursor = 0, count = 0;

	(void)state;
	for (i = 0; i < 200000; i++) {
		uint64_t at = unit_random(&random) % 512, space = unit_random(&random) % 3;
		uint64_t key = at << 21; /* as aligned as addresses are */
		uint32_t slot = (uint32_t)(space * 512 + at);

		entry = live_get(&blocks, (uint8_t)space, key);
		assert_int_equal(entry == NULL ? 0 : entry->slot + 1, model[space][at]);
		if (entry != NULL) {
			assert_int_equal(live_key(&blocks, entry->slot), key);
			live_remove(&blocks, entry);
			model[space][at] = 0;
			count--;
		} else {
			all[slot].address = space == 2 ? i : key;
			assert_int_equal(live_put(&blocks, (uint8_t)space, key, slot), 0);
			model[space][at] = slot + 1;
			count++;
		}
		assert_int_equal(blocks.live.count, count);
	}
	while ((entry = live_next(&blocks.live, &cursor)) != NULL) {
		uint64_t key = live_key(&blocks, entry->slot);

		assert_int_equal(model[all[entry->slot].space][key >> 21], entry->slot + 1);
		count--;
	}
	assert_int_equal(count, 0);
	assert_true(blocks.live.keys.count <= 512);
	live_fini(&blocks.live);
}

/* ---- observers ---- */

struct observed {
	uint64_t rows[ROW_END];
	uint64_t changes[BLOCK_CHANGES];
};

static void observe_row(void *arg, struct replay *replay, const struct row *row)
{
	(void)replay;
	((struct observed *)arg)->rows[row->kind]++;
}

static void observe_block(void *arg, struct replay *replay, enum block_change change,
			  const struct block *block, const struct usage *usage, uint32_t owner)
{
	(void)replay;
	(void)block;
	(void)usage;
	(void)owner;
	((struct observed *)arg)->changes[change]++;
}

static void observer_hears_of_what_it_wants_alone(void **state)
{
	const struct replay_observer observer = {.rows = 1u << ROW_FREE | 1u << ROW_MARK,
						 .blocks =
							 1u << BLOCK_REMOVED | 1u << BLOCK_RESTORED,
						 .row = observe_row,
						 .block = observe_block};
	struct observed observed = {{0}, {0}};
	struct play *p = *state;
	struct trace_event event;

	maker_alloc(&p->w[0], 5000, HAL, 0xa000, 100, 0);
	maker_alloc(&p->w[0], 5001, HAL, 0xb000, 50, 0);
	maker_free(&p->w[1], 5002, FREE, 0xa000);
	maker_free(&p->w[1], 5003, FREE, 0xb000);
	maker_undo(&p->w[1], 5004, FREE, 0xb000);
	MAKER_EVENT(&p->w[0], 5005, HAL, mark, .kind = 1);
	MAKER_EVENT(&p->w[0], 5006, HAL, system, .kind = 1);
	assert_int_equal(run_open(p->maker.path, NULL, false, &p->run, NULL), 0);
	assert_int_equal(replay_new(&(struct replay_setup){.run = p->run,
							   .elves = &p->elves,
							   .root = "/nowhere"},
				    &p->replay),
			 0);
	replay_observe(p->replay, &observer, &observed);
	assert_int_equal(run_poll(p->run, 0, true), 0);
	while (run_next(p->run, &event))
		assert_int_equal(replay_event(p->replay, &event), 0);
	/* Rows that nothing takes are counted, too. */
	assert_int_equal(replay_totals(p->replay)->rows, 6);
	assert_int_equal(observed.rows[ROW_FREE], 2);
	assert_int_equal(observed.rows[ROW_MARK], 1);
	assert_int_equal(observed.rows[ROW_MALLOC] + observed.rows[ROW_ACL_INIT], 0);
	assert_int_equal(observed.changes[BLOCK_REMOVED], 2);
	assert_int_equal(observed.changes[BLOCK_RESTORED], 1);
	assert_int_equal(observed.changes[BLOCK_ADDED], 0);
}

/* ---- facts ---- */

static void facts_of_any_allocation_are_kept_apart(void **state)
{
	struct facts facts;

	(void)state;
	assert_int_equal(facts_init(&facts, unit_directory, NULL), 0);
	assert_int_equal(facts_get(&facts, 5).undone_frees, 0);
	facts_at(&facts, 1)->undone_frees = 1;
	facts_at(&facts, 5000000)->undone_frees = 2; /* moves the mapping */
	assert_int_equal(facts_get(&facts, 1).undone_frees, 1);
	assert_int_equal(facts_get(&facts, 5000000).undone_frees, 2);
	assert_int_equal(facts_get(&facts, 4999999).undone_frees, 0);
	assert_int_equal(facts_get(&facts, UINT64_MAX).undone_frees, 0);
	facts_fini(&facts);
	assert_null(facts_at(&facts, 1));
	assert_true(facts_init(&facts, "/nowhere", NULL) < 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(allocation_and_free_are_a_row_each),
		TEST(usage_is_counted_by_pool_and_device),
		TEST(same_number_means_another_block_elsewhere),
		TEST(large_values_come_by_the_wide_record),
		TEST(address_handed_out_twice_closes_the_first_block),
		TEST(free_of_nothing_is_counted_and_is_no_row),
		TEST(what_is_older_than_late_hooks_is_forgotten),
		TEST(late_hooks_of_a_child_keep_what_is_known),
		TEST(free_that_failed_leaves_the_block_alive),
		TEST(free_that_works_at_the_third_try_is_one_row_in_the_end),
		TEST(undo_belongs_to_the_same_thread_and_to_no_older_free),
		TEST(undo_is_found_past_the_events_of_a_signal_handler),
		cmocka_unit_test(block_that_threads_free_at_once_ends_with_the_free_that_worked),
		TEST(shadows_that_live_are_shown_when_a_window_begins),
		TEST(block_of_a_window_ends_when_it_ends),
		TEST(figures_and_rows_are_those_of_the_last_stop),
		TEST(window_begins_with_what_happened_since_the_last),
		TEST(what_is_no_memory_stays_inside_windows),
		TEST(settings_of_the_program_are_known_from_their_record_on),
		TEST(contexts_of_all_writers_are_kept_once),
		TEST(number_without_definition_is_unknown_and_counted),
		TEST(equal_stacks_of_different_writers_are_one),
		TEST(stack_keeps_the_module_it_was_defined_with),
		TEST(free_has_the_stack_of_its_own_caller),
		TEST(frame_texts_survive_being_saved),
		TEST(frame_texts_are_saved_in_parts),
		TEST(definitions_that_do_not_hold_are_counted),
		TEST(checkpoint_records_of_an_ordinary_writer_mean_nothing),
		TEST(step_has_what_happens_in_it_and_what_it_launched),
		TEST(kernels_of_a_stream_number_that_is_used_again_are_told_apart),
		TEST(kernels_that_wait_are_found_by_stream_and_task),
		TEST(execution_times_lie_between_the_pairs_of_a_clock),
		TEST(each_call_of_step_ends_one_that_began_with_the_window),
		TEST(steps_have_one_source_the_first),
		TEST(ranges_that_come_first_are_the_steps),
		TEST(who_tells_the_steps_is_known_to_the_second_pass),
		TEST(window_with_ranges_has_what_is_before_them_in_no_step),
		TEST(optimizers_tell_steps_to_analyses_and_not_to_rows),
		TEST(marks_of_the_program_undo_steps_of_optimizers),
		TEST(step_of_the_api_undoes_steps_of_optimizers_in_a_window),
		TEST(few_late_marks_leave_the_steps_of_the_optimizer),
		TEST(a_third_late_mark_counts),
		TEST(a_third_late_range_counts),
		TEST(early_marks_count_at_once),
		TEST(what_teardown_frees_was_alive_at_the_end),
		TEST(without_a_record_the_end_is_the_last_event),
		TEST(free_that_fails_over_the_end_did_not_happen),
		TEST(text_number_means_what_it_was_last_defined_as),
		TEST(texts_that_nobody_can_name_any_more_take_no_memory),
		TEST(rows_of_no_device_wait_outside_of_memory),
		TEST(operators_are_rows_and_nest_by_thread),
		TEST(operator_without_its_other_half_is_counted),
		TEST(access_is_of_the_innermost_block_that_has_its_first_byte),
		cmocka_unit_test(blocks_are_found_by_any_byte_whatever_came_and_went),
		cmocka_unit_test(numbers_mean_what_was_defined_last_however_large),
		cmocka_unit_test(numbers_that_follow_each_other_take_no_room),
		cmocka_unit_test(live_blocks_are_found_by_space_and_key),
		TEST(observer_hears_of_what_it_wants_alone),
		cmocka_unit_test(facts_of_any_allocation_are_kept_apart),
	};

	return cmocka_run_group_tests_name("replay", tests, unit_make_directory_in_memory,
					   unit_remove_empty_directory);
}
