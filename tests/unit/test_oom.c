/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claims about requests that were refused: which refusals are one request (replay/ooms.c), and what a series of levels says
 * (analysis/oom_levels.c). Traces are made by hand.
 */
#include "replay/figures.h"
#include "replay/ooms.h"
#include "symbols/elf_cache.h"
#include "unit.h"

#include "analysis/oom.h"
#include "analysis/oom_levels.h"
#include "replay/state.h"
#include "trace/session.h"
#include "trace_maker.h"

#define HAL  1u
#define FREE 2u
#define PTA  3u
#define MIB  (UINT64_C(1) << 20)
#define HUGE (UINT64_C(1) << 17)

struct play {
	struct maker maker;
	struct maker_writer w[2];
	uint64_t now;
	struct elf_cache elves;
	struct run *run;
	struct replay *replay;
	struct analyses analyses;
	struct findings found;
	struct oom rows[16]; /* of SNAPSHOT; zero where the program asked for it */
	struct figures figures[16];
	char names[16][32];
	size_t count;
	uint32_t oom_top;     /* blocks of each list of details */
	uint64_t details[16]; /* their addresses, the newest first, then the largest */
	size_t detail_count;
};

static int begin(void **state)
{
	struct play *p = calloc(1, sizeof(*p));
	char path[300];
	uint32_t i;

	(void)snprintf(path, sizeof(path), "%s/raw", unit_directory);
	maker_make(&p->maker, path, MAKER_CHUNK_BYTES, MAKER_CHUNKS);
	p->now = 2000;
	for (i = 0; i < MSCOPE_COUNT(p->w); i++) {
		p->w[i] = (struct maker_writer){.maker = &p->maker, .number = i + 1};
		maker_thread(&p->w[i], p->now++, 70 + i);
		maker_context(&p->w[i], p->now++, HAL, POOL_hal, BLOCK_ALLOC, 0);
		maker_context(&p->w[i], p->now++, FREE, POOL_hal, BLOCK_ALLOC, DEVICE_UNKNOWN);
		maker_context(&p->w[i], p->now++, PTA, POOL_pta, BLOCK_ALLOC, 0);
	}
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

static int keep_row(void *arg, struct replay *replay, const struct row *row)
{
	struct play *p = arg;

	(void)replay;
	if (row->kind == ROW_OOM_RECENT || row->kind == ROW_OOM_TOP) {
		assert_true(p->detail_count < MSCOPE_COUNT(p->details));
		p->details[p->detail_count++] = row->block->address;
	}
	if (row->kind != ROW_SNAPSHOT)
		return 0;
	assert_true(p->count < MSCOPE_COUNT(p->rows));
	if (row->oom != NULL)
		p->rows[p->count] = *row->oom;
	p->figures[p->count] = *row->figures;
	(void)snprintf(p->names[p->count++], sizeof(p->names[0]), "%s",
		       row->name == NULL ? "" : row->name);
	return 0;
}

static void play(struct play *p)
{
	struct replay_setup setup;
	struct trace_event event;

	assert_int_equal(run_open(p->maker.path, NULL, false, &p->run, NULL), 0);
	setup = (struct replay_setup){.run = p->run,
				      .elves = &p->elves,
				      .root = "/nowhere",
				      .oom_top = p->oom_top,
				      .row = keep_row,
				      .arg = p};
	assert_int_equal(replay_new(&setup, &p->replay), 0);
	analyses_init(&p->analyses, 0, false, p->replay);
	assert_int_equal(run_poll(p->run, 0, true), 0);
	while (run_next(p->run, &event))
		assert_int_equal(replay_event(p->replay, &event), 0);
	assert_int_equal(replay_end(p->replay), 0);
}

static void refuse(struct play *p, struct maker_writer *w, uint64_t bytes, uint64_t flag,
		   uint64_t left)
{
	MAKER_EVENT(w, p->now++, HAL, oom, .requested_bytes = bytes, .flag = flag,
		    .allocated_bytes = UINT64_MAX, .reserved_bytes = UINT64_MAX, .free_bytes = left,
		    .total_bytes = 1000 * MIB, .call = OOM_HAL_ALLOC);
}

/* The one verdict of a run. */
static const struct finding_oom *verdict_of(struct play *p)
{
	analyses_find_ooms(&p->analyses, p->replay, &p->found);
	assert_int_equal(FINDINGS_COUNT(&p->found, oom), 1);
	return FINDINGS(&p->found, oom);
}

static size_t verdicts(const struct play *p)
{
	return analyses_oom_count(&p->analyses);
}

static void assert_pairs(const struct play *p, size_t count)
{
	size_t i;

	assert_int_equal(p->count, 2 * count);
	for (i = 0; i < p->count; i++)
		assert_string_equal(p->names[i],
				    i % 2 == 0 ? OOM_SNAPSHOT_BEFORE : OOM_SNAPSHOT_AFTER);
}

/* Without stacks, pages and size tell that the runtime tries again. */
static void huge_pages_then_normal_ones_are_one_request(void **state)
{
	struct play *p = *state;

	refuse(p, &p->w[0], 64 * MIB, HUGE, 0);
	refuse(p, &p->w[0], 64 * MIB, 0, 0);
	play(p);
	assert_pairs(p, 1);
	assert_int_equal(p->rows[1].tries, 2);
	assert_int_equal(verdicts(p), 1);
}

static void normal_pages_instead_of_huge_ones_are_no_oom(void **state)
{
	struct play *p = *state;

	refuse(p, &p->w[0], 64 * MIB, HUGE, 0);
	maker_alloc(&p->w[0], p->now++, HAL, 0xa000, 64 * MIB, 0);
	play(p);
	assert_pairs(p, 1);
	assert_true(p->rows[1].recovered);
	assert_int_equal(verdicts(p), 0);
	analyses_find_ooms(&p->analyses, p->replay, &p->found);
	assert_int_equal(p->found.ooms_recovered, 1);
}

static void without_a_pool_each_request_is_its_own(void **state)
{
	struct play *p = *state;

	maker_alloc(&p->w[0], p->now++, HAL, 0xa000, 900 * MIB, 0);
	refuse(p, &p->w[0], 200 * MIB, 0, 100 * MIB);
	refuse(p, &p->w[0], 300 * MIB, 0, 100 * MIB);
	maker_free(&p->w[0], p->now++, FREE, 0xa000);
	refuse(p, &p->w[0], 2000 * MIB, 0, 1000 * MIB);
	refuse(p, &p->w[1], 2000 * MIB, 0, 1000 * MIB);
	play(p);
	assert_int_equal(p->count, 8);
	/* What is freed afterwards was held at the moment. */
	assert_int_equal(p->rows[2].after.allocated_bytes, 900 * MIB);
	assert_int_equal(p->rows[5].after.allocated_bytes, 0);
}

/* It tries, gives back what it has cached, and tries again. */
static void what_a_pool_gives_back_between_tries_is_told(void **state)
{
	struct play *p = *state;

	maker_alloc(&p->w[0], p->now++, HAL, 0x100000, 600 * MIB, 0);
	maker_alloc(&p->w[0], p->now++, HAL, 0x90000000, 300 * MIB, 0);
	MAKER_EVENT(&p->w[0], p->now++, PTA, pool_total, .reserved_bytes = 900 * MIB);
	maker_alloc(&p->w[0], p->now++, PTA, 0x100000, 500 * MIB, 0);
	refuse(p, &p->w[0], 700 * MIB, HUGE, 100 * MIB);
	refuse(p, &p->w[0], 700 * MIB, 0, 100 * MIB);
	maker_free(&p->w[0], p->now++, FREE, 0x90000000);
	refuse(p, &p->w[0], 700 * MIB, HUGE, 400 * MIB);
	refuse(p, &p->w[0], 700 * MIB, 0, 400 * MIB);
	maker_free(&p->w[0], p->now++, PTA, 0x100000); /* an exception passes by */
	play(p);
	assert_pairs(p, 1);
	assert_int_equal(p->rows[1].tries, 4);
	assert_int_equal(p->rows[1].given_back_bytes, 300 * MIB);
	assert_int_equal(p->rows[1].before.reserved_bytes, 900 * MIB);
	assert_int_equal(p->rows[1].before.free_bytes, 100 * MIB);
	assert_int_equal(p->rows[1].after.reserved_bytes, 600 * MIB);
	assert_int_equal(p->rows[1].after.free_bytes, 400 * MIB);
	assert_int_equal(p->rows[1].after.allocated_bytes, 500 * MIB);
	assert_int_equal(p->rows[1].pool, POOL_pta);
}

static void pool_that_succeeds_then_has_recovered(void **state)
{
	struct play *p = *state;

	maker_alloc(&p->w[0], p->now++, HAL, 0x100000, 900 * MIB, 0);
	MAKER_EVENT(&p->w[0], p->now++, PTA, pool_total, .reserved_bytes = 900 * MIB);
	maker_alloc(&p->w[0], p->now++, PTA, 0x100000, 1 * MIB, 0);
	refuse(p, &p->w[0], 700 * MIB, 0, 100 * MIB);
	maker_free(&p->w[0], p->now++, FREE, 0x100000);
	maker_alloc(&p->w[0], p->now++, HAL, 0x200000, 700 * MIB, 0);
	play(p);
	assert_pairs(p, 1);
	assert_true(p->rows[1].recovered);
	assert_int_equal(verdicts(p), 0);
}

/* The engine makes its rows known while the program does nothing; an allocator that waited for the device tries again later. */
static void late_try_is_of_the_request_that_the_engine_told(void **state)
{
	struct play *p = *state;

	refuse(p, &p->w[0], 64 * MIB, HUGE, 0);
	MAKER_EVENT(&p->w[1], p->now++, 0, oom_end, .writer = 1);
	p->now += UINT64_C(5000000000);
	refuse(p, &p->w[0], 64 * MIB, 0, 0);
	MAKER_EVENT(&p->w[1], p->now++, 0, oom_end, .writer = 1);
	play(p);
	assert_pairs(p, 1);
}

static void another_request_is_another_after_the_engine_told_one(void **state)
{
	struct play *p = *state;

	refuse(p, &p->w[0], 64 * MIB, HUGE, 0);
	MAKER_EVENT(&p->w[1], p->now++, 0, oom_end, .writer = 1);
	refuse(p, &p->w[0], 65 * MIB, 0, 0);
	MAKER_EVENT(&p->w[1], p->now++, 0, oom_end, .writer = 1);
	maker_alloc(&p->w[0], p->now++, HAL, 0x100000, 1 * MIB, 0);
	refuse(p, &p->w[0], 65 * MIB, HUGE, 0);
	play(p);
	assert_pairs(p, 3);
}

/* ---- levels ---- */

static struct rise rise_of(enum level_series kind, uint32_t count, const uint64_t *levels,
			   uint64_t now)
{
	struct series series = {.count = count, .interval = 1, .end = 100 * count};
	uint32_t i;

	for (i = 0; i < count; i++)
		series.at[i] = kind == BY_STEPS ? i + 1 : 100 * (i + 1);
	return levels_rise(&series, kind, levels, now);
}

static void steady_growth_is_seen_and_what_stops_is_not(void **state)
{
	const uint64_t grows[] = {10, 20, 30, 40, 50, 60, 70, 80};
	const uint64_t fills[] = {10, 20, 30, 40, 40, 40, 40, 40, 40, 40, 40, 40};
	const uint64_t swings[] = {10, 90, 20, 80, 10, 95, 15, 70};
	const uint64_t bursts[] = {40, 40, 40, 40, 40, 40, 60, 80};

	(void)state;
	assert_int_equal(rise_of(BY_STEPS, 8, grows, 80).bytes, 70);
	assert_int_equal(rise_of(BY_ALLOCATIONS, 8, grows, 80).bytes, 70);
	assert_int_equal(rise_of(BY_STEPS, 8, grows, 10).bytes, 0); /* freed meanwhile */
	assert_int_equal(rise_of(BY_STEPS, 12, fills, 40).bytes, 0);
	assert_int_equal(rise_of(BY_ALLOCATIONS, 12, fills, 40).bytes, 0);
	assert_int_equal(rise_of(BY_STEPS, 8, swings, 90).bytes, 0);
	assert_int_equal(rise_of(BY_ALLOCATIONS, 8, bursts, 80).bytes, 0);
	assert_int_equal(rise_of(BY_STEPS, 3, grows, 30).bytes, 0); /* too short to tell */
}

/* What places held comes back as it was: nothing, small, round and odd levels, and to 1 of 2^32 what is larger. */
static void what_places_held_comes_back(void **state)
{
	enum { PLACES = 40 };
	static const uint32_t bits[] = {0, 4, 8, 16, 20, 32, 44};
	static uint64_t model[PLACES][SAMPLES];
	struct levels levels = {0};
	uint64_t random = 3, past[SAMPLES];
	uint32_t i, k, widths[LEVEL_WIDTHS] = {0};

	(void)state;
	levels.places = calloc(PLACES, sizeof(*levels.places));
	levels.bytes = calloc(PLACES, sizeof(*levels.bytes));
	assert_non_null(levels.places);
	assert_non_null(levels.bytes);
	for (k = 0; k < SAMPLES; k++) {
		/* More come later. */
		levels.place_count = k < SAMPLES / 2 ? PLACES / 2 : PLACES;
		for (i = 0; i < levels.place_count; i++) {
			uint64_t word = unit_random(&random);
			uint64_t most = UINT64_C(1) << bits[i % MSCOPE_COUNT(bits)];

			model[i][k] = word % 5 == 0 ? 0 : (word >> 8) % most << (i % 4 * 6);
			levels.bytes[i] = model[i][k];
		}
		assert_int_equal(levels_keep(&levels, BY_STEPS, k), 0);
	}
	for (i = 0; i < PLACES; i++) {
		uint64_t lost = (UINT64_C(1) << levels.places[i].shift[BY_STEPS] % 64) - 1;

		levels_of_place(&levels, &levels.places[i], BY_STEPS, past);
		for (k = 0; k < SAMPLES; k++) {
			if (levels.places[i].width[BY_STEPS] == LEVEL_WIDE)
				assert_int_equal(past[k], model[i][k] & ~lost);
			else
				assert_int_equal(past[k], model[i][k]);
		}
	}
	for (i = 0; i < PLACES; i++)
		widths[levels.places[i].width[BY_STEPS]]++;
	assert_true(widths[LEVEL_BYTES] >= PLACES / 8);
	assert_true(widths[LEVEL_NARROW] >= PLACES / 8);
	assert_true(widths[LEVEL_WIDE] > PLACES / 4);
	levels_fini(&levels);
}

/* Samples are thinned, and still cover the whole run. */
static void samples_cover_a_long_run(void **state)
{
	struct play *p = *state;
	struct levels levels = {0};
	uint32_t step;

	maker_alloc(&p->w[0], p->now++, HAL, 0xa000, 4096, 0);
	play(p);
	for (step = 1; step <= 1000; step++) {
		levels.allocations += 10;
		assert_int_equal(levels_step_ended(&levels, p->replay, step), 0);
	}
	assert_in_range(levels.series[BY_STEPS].count, SAMPLES / 2, SAMPLES);
	assert_in_range(levels.series[BY_STEPS].at[0], 1, 64);
	assert_in_range(levels.series[BY_STEPS].at[levels.series[BY_STEPS].count - 1], 930, 1000);
	levels_fini(&levels);
}

/* ---- details ---- */

/* The newest and the largest of the device that refused, and no more than are asked for. */
static void details_are_of_the_device_that_refused(void **state)
{
	static const uint64_t expected[] = {0xd000, 0xb000, 0xb000, 0xa000};
	struct play *p = *state;
	struct maker_writer *w = &p->w[0];

	maker_context(w, p->now++, 4, POOL_hal, BLOCK_ALLOC, 1);
	maker_alloc(w, p->now++, HAL, 0xa000, 2 * MIB, 0);
	maker_alloc(w, p->now++, HAL, 0xb000, 3 * MIB, 0);
	maker_alloc(w, p->now++, 4, 0xc000, 9 * MIB, 0);
	maker_alloc(w, p->now++, HAL, 0xd000, MIB, 0);
	maker_alloc(w, p->now++, 4, 0xe000, 9 * MIB, 0);
	refuse(p, w, 64 * MIB, 0, 0);
	p->oom_top = 2;
	play(p);
	assert_int_equal(p->detail_count, MSCOPE_COUNT(expected));
	assert_memory_equal(p->details, expected, sizeof(expected));
}

/* Beside the pool the driver gave more: that is not what the pool had. */
static void a_spike_is_compared_with_its_own_pool(void **state)
{
	struct play *p = *state;
	struct maker_writer *w = &p->w[0];
	const struct finding_oom *oom;

	maker_alloc(w, p->now++, HAL, 0xa000000, 100 * MIB, 0);
	maker_alloc(w, p->now++, PTA, 0xb000000, 40 * MIB, 0);
	maker_free(w, p->now++, PTA, 0xb000000);
	MAKER_EVENT(w, p->now++, PTA, oom, .requested_bytes = 950 * MIB, .allocated_bytes = 0,
		    .reserved_bytes = 0, .free_bytes = 900 * MIB, .total_bytes = 1000 * MIB,
		    .call = OOM_TORCH_CUDA);
	play(p);
	oom = verdict_of(p);
	assert_int_equal(oom->cause, OOM_CAUSE_SPIKE);
	assert_int_equal(oom->most_bytes, 40 * MIB);
	assert_int_equal(oom->largest_bytes, 100 * MIB);
	/* The pool has nothing now, and is not among those that have. */
	assert_int_equal(oom->pools.count, 1);
	assert_int_equal(FINDINGS(&p->found, oom_pool)[oom->pools.first].pool, POOL_hal);
}

/* ---- snapshots that the program asks for ---- */

#define UNKNOWN UINT64_MAX
#define POOL_UNSAID                                                                                \
	.reserved_bytes = UNKNOWN, .max_reserved_bytes = UNKNOWN, .allocated_bytes = UNKNOWN,      \
	.max_allocated_bytes = UNKNOWN
#define DEVICE_UNSAID .total_bytes = UNKNOWN, .free_bytes = UNKNOWN

static void assert_figures(const struct figures *found, const struct figures *expected)
{
	assert_memory_equal(found, expected, sizeof(*found));
}

static void a_snapshot_has_what_the_framework_said(void **state)
{
	static const struct figures said = {5 * MIB, 6 * MIB, 3 * MIB, 4 * MIB, 1000 * MIB,
					    10,	     UNKNOWN, UNKNOWN, UNKNOWN};
	struct play *p = *state;

	maker_text(&p->w[0], p->now++, 1, "after forward");
	maker_alloc(&p->w[0], p->now++, PTA, 0xa000, MIB, 0);
	MAKER_EVENT(&p->w[0], p->now++, HAL, snapshot, .name = 1, .tracked = 1,
		    .reserved_bytes = said.reserved_bytes,
		    .max_reserved_bytes = said.max_reserved_bytes,
		    .allocated_bytes = said.allocated_bytes,
		    .max_allocated_bytes = said.max_allocated_bytes,
		    .total_bytes = said.total_bytes, .free_bytes = said.free_bytes);
	play(p);
	assert_int_equal(p->count, 1);
	assert_string_equal(p->names[0], "after forward");
	assert_figures(&p->figures[0], &said);
	assert_int_equal(verdicts(p), 0);
}

/* Outside of windows, too; the driver's last sample is the device's figure. */
static void a_snapshot_has_what_the_pool_and_the_samples_say(void **state)
{
	static const struct figures driver = {7 * MIB,	7 * MIB, 7 * MIB, 7 * MIB, 64 * MIB,
					      60 * MIB, UNKNOWN, UNKNOWN, UNKNOWN};
	static const struct figures pool = {9 * MIB,  9 * MIB, MIB,	3 * MIB, 64 * MIB,
					    60 * MIB, UNKNOWN, UNKNOWN, UNKNOWN};
	struct play *p = *state;
	struct maker_writer *w = &p->w[0];

	p->maker.header->first_state = RECORDING_SHADOW;
	maker_text(w, p->now++, 1, "s");
	maker_alloc(w, p->now++, HAL, 0xb000, 7 * MIB, 0);
	MAKER_EVENT(w, p->now++, 0, usage_sample, .device = 0, .total_mib = 64,
		    .process_bytes = UNKNOWN, .device_bytes = 4 * MIB);
	MAKER_EVENT(w, p->now++, HAL, snapshot, .name = 1, .tracked = 1, POOL_UNSAID,
		    DEVICE_UNSAID);
	MAKER_EVENT(w, p->now++, PTA, pool_total, .reserved_bytes = 9 * MIB);
	maker_alloc(w, p->now++, PTA, 0xa000, MIB, 0);
	maker_alloc(w, p->now++, PTA, 0xa100, 2 * MIB, 0);
	maker_free(w, p->now++, PTA, 0xa100);
	MAKER_EVENT(w, p->now++, HAL, snapshot, .name = 1, .tracked = 1, POOL_UNSAID,
		    DEVICE_UNSAID);
	play(p);
	assert_int_equal(p->count, 2);
	assert_figures(&p->figures[0], &driver);
	assert_figures(&p->figures[1], &pool);
}

/* As in a trace that was made from a file, or of a run that does not record blocks. */
static void what_nothing_tells_of_a_snapshot_stays_unknown(void **state)
{
	static const struct figures part = {UNKNOWN, UNKNOWN, 5,       UNKNOWN, UNKNOWN,
					    UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN};
	struct play *p = *state;

	maker_alloc(&p->w[0], p->now++, PTA, 0xa000, MIB, 0);
	MAKER_EVENT(&p->w[0], p->now++, HAL, snapshot, .name = 0, .reserved_bytes = UNKNOWN,
		    .max_reserved_bytes = UNKNOWN, .allocated_bytes = 5,
		    .max_allocated_bytes = UNKNOWN, DEVICE_UNSAID);
	play(p);
	assert_int_equal(p->count, 1);
	assert_figures(&p->figures[0], &part);
}

/* A handler of the exception asks for one: the refused request has ended before. */
static void a_snapshot_after_a_refusal_comes_behind_its_rows(void **state)
{
	struct play *p = *state;

	maker_text(&p->w[0], p->now++, 1, "in except");
	refuse(p, &p->w[0], 64 * MIB, 0, 0);
	MAKER_EVENT(&p->w[0], p->now++, HAL, snapshot, .name = 1, .tracked = 1, POOL_UNSAID,
		    DEVICE_UNSAID);
	play(p);
	assert_int_equal(p->count, 3);
	assert_string_equal(p->names[1], OOM_SNAPSHOT_AFTER);
	assert_string_equal(p->names[2], "in except");
	assert_int_equal(verdicts(p), 1);
}

/* A pool that tells: segments, blocks and frees that wait, on a device of 1000 MiB. Then a request that does not fit. */
static const struct finding_oom *play_pool(struct play *p, uint64_t private_bytes,
					   uint64_t waiting_bytes, uint64_t requested)
{
	struct maker_writer *w = &p->w[0];
	uint64_t common = 1000 * MIB - private_bytes;

	MAKER_EVENT(w, p->now++, HAL, block_alloc_wide, .address = 0x10000000000,
		    .size_bytes = common);
	MAKER_EVENT(w, p->now++, PTA, pool_segment, .address = 0x10000000000, .size_bytes = common,
		    .kind = SEGMENT_ALLOC);
	if (private_bytes != 0) {
		MAKER_EVENT(w, p->now++, HAL, block_alloc_wide, .address = 0x20000000000,
			    .size_bytes = private_bytes);
		MAKER_EVENT(w, p->now++, PTA, pool_segment, .address = 0x20000000000,
			    .size_bytes = private_bytes, .private_second = 3,
			    .kind = SEGMENT_ALLOC);
	}
	MAKER_EVENT(w, p->now++, PTA, pool_total, .reserved_bytes = 1000 * MIB);
	MAKER_EVENT(w, p->now++, PTA, block_alloc_pool, .address = 0x10000000000,
		    .size_bytes = common - waiting_bytes,
		    .requested_bytes = common - waiting_bytes - 100);
	if (waiting_bytes != 0) {
		uint64_t address = 0x10000000000 + common - waiting_bytes;

		MAKER_EVENT(w, p->now++, PTA, block_alloc_pool, .address = address,
			    .size_bytes = waiting_bytes, .requested_bytes = waiting_bytes);
		MAKER_EVENT(w, p->now++, PTA, block_free, .address = address);
		MAKER_EVENT(w, p->now++, PTA, pool_block, .address = address,
			    .size_bytes = waiting_bytes, .requested_bytes = waiting_bytes,
			    .kind = POOL_BLOCK_WAITS);
	}
	MAKER_EVENT(w, p->now++, PTA, oom, .requested_bytes = requested,
		    .allocated_bytes = common - waiting_bytes, .reserved_bytes = 1000 * MIB,
		    .free_bytes = 0, .total_bytes = 1000 * MIB, .call = OOM_TORCH_CUDA);
	play(p);
	return verdict_of(p);
}

static void what_waits_for_streams_is_a_cause(void **state)
{
	const struct play *p = *state;
	const struct finding_oom *verdict = play_pool(*state, 0, 400 * MIB, 300 * MIB);

	assert_string_equal(oom_cause_text(verdict->cause), "waiting for streams");
	assert_int_equal(verdict->waiting_bytes, 400 * MIB);
	assert_int_equal(verdict->reserved_unused_bytes, 0);
	assert_int_equal(FINDINGS(&p->found, oom_pool)[0].waiting_bytes +
				 FINDINGS(&p->found, oom_pool)[1].waiting_bytes,
			 400 * MIB);
}

static void what_private_pools_keep_is_a_cause(void **state)
{
	const struct finding_oom *verdict = play_pool(*state, 500 * MIB, 0, 300 * MIB);

	assert_string_equal(oom_cause_text(verdict->cause), "private pools");
	assert_int_equal(verdict->private_pools_unused_bytes, 500 * MIB);
	assert_int_equal(verdict->reserved_unused_bytes, 0);
}

/* ---- causes of short programs ---- */

static uint64_t random_state = 31;

static uint64_t random_from(uint64_t low, uint64_t high)
{
	return low + unit_random(&random_state) % (high - low + 1);
}

/* A program on a device of 1,000 MiB that takes memory of the driver, or of a pool that may not have more than 1,000 of 4,000 MiB. */
struct shorty {
	struct play *p;
	bool limited;
	uint64_t used, blocks;
	uint32_t stack; /* of what it does from now on */
};

#define KEEPS 1u

static uint64_t take(struct shorty *s, uint64_t bytes)
{
	uint64_t address = 0x100000 + ++s->blocks * 0x1000000000;

	if (s->limited) {
		maker_alloc(&s->p->w[0], s->p->now++, HAL, address, bytes, 0);
		MAKER_EVENT(&s->p->w[0], s->p->now++, PTA, pool_total,
			    .reserved_bytes = s->used + bytes);
	}
	maker_alloc(&s->p->w[0], s->p->now++, s->limited ? PTA : HAL, address, bytes, s->stack);
	s->used += bytes;
	return address;
}

static void give(struct shorty *s, uint64_t address, uint64_t bytes)
{
	maker_free(&s->p->w[0], s->p->now++, s->limited ? PTA : HAL, address);
	if (s->limited)
		maker_free(&s->p->w[0], s->p->now++, HAL, address);
	s->used -= bytes;
}

static void ask_too_much(struct shorty *s, uint64_t bytes)
{
	uint64_t total = s->limited ? 4000 * MIB : 1000 * MIB;

	assert_true(s->used + bytes > 1000 * MIB);
	MAKER_EVENT(&s->p->w[0], s->p->now++, s->limited ? PTA : HAL, oom, .requested_bytes = bytes,
		    .allocated_bytes = s->limited ? s->used : UINT64_MAX,
		    .reserved_bytes = s->limited ? s->used : UINT64_MAX,
		    .free_bytes = total - s->used, .total_bytes = total, .stack = s->stack,
		    .call = s->limited ? OOM_TORCH_CUDA : OOM_HAL_ALLOC);
}

/* Blocks of work that come and go, of at most `most` bytes each and little in all. */
static void work(struct shorty *s, unsigned count, uint64_t most)
{
	while (count-- > 0) {
		uint64_t bytes = random_from(1, most / 512) * 512, address = take(s, bytes);

		give(s, address, bytes);
	}
}

/* One program of a kind whose cause is known; returns it. */
static enum oom_cause play_short(struct shorty *s, unsigned kind)
{
	unsigned count, i;
	uint64_t size;

	switch (kind) {
	case 0: /* the same again and again */
		s->stack = random_from(0, 1) != 0 ? KEEPS : 0;
		count = (unsigned)random_from(4, 12);
		size = 1000 * MIB / (count + 1) / 512 * 512 + 512;
		size += random_from(0, (1000 * MIB - size * count) / count / 512) * 512;
		for (i = 0; i < count; i++)
			(void)take(s, size);
		ask_too_much(s, size);
		return OOM_CAUSE_GROWTH;
	case 1: /* too few of the same to be called growth, and no larger than those before */
		count = (unsigned)random_from(1, 3);
		size = 1000 * MIB / (count + 1) / 512 * 512 + 512;
		for (i = 0; i < count; i++)
			(void)take(s, size);
		ask_too_much(s, size);
		return OOM_CAUSE_FULL;
	case 2: /* a few blocks of different sizes fill it up */
		while (s->used < 800 * MIB)
			(void)take(s, (random_from(100, 190)) * MIB + s->blocks * 512);
		ask_too_much(s, 1001 * MIB - s->used + random_from(0, 20) * MIB);
		return OOM_CAUSE_FULL;
	case 3: /* work, then one request that is far larger */
		(void)take(s, random_from(20, 80) * MIB);
		work(s, (unsigned)random_from(8, 200), 20 * MIB);
		ask_too_much(s, random_from(990, 3000) * MIB);
		return OOM_CAUSE_SPIKE;
	case 4: /* work at a low level, then few large blocks of the same size */
		work(s, (unsigned)random_from(5, 60), 20 * MIB);
		size = random_from(340, 490) * MIB;
		for (i = 0; i < 2; i++)
			(void)take(s, size);
		ask_too_much(s, size);
		return OOM_CAUSE_FULL;
	default: /* the device is full, and work goes on at that level */
		(void)take(s, random_from(880, 920) * MIB);
		work(s, (unsigned)random_from(40, 200), 60 * MIB);
		ask_too_much(s, 1001 * MIB - s->used + random_from(0, 20) * MIB);
		return OOM_CAUSE_FULL;
	}
}

static void causes_of_short_programs_are_true(void **state)
{
	struct play *p = *state;
	const uint64_t frame = 0x1000;
	unsigned round;

	for (round = 0; round < 200; round++) {
		struct shorty s = {.p = p, .limited = round % 2 != 0};

		const struct finding_oom *verdict;
		struct strbuf why = {0};
		enum oom_cause cause;

		maker_stack(&p->w[0], p->now++, KEEPS, &frame, 1);
		cause = play_short(&s, round / 2 % 6);
		play(p);
		verdict = verdict_of(p);
		oom_why(&p->found, verdict, &why);
		if (verdict->cause != cause)
			fail_msg("program %u: %s instead of %s: %s", round,
				 oom_cause_text(verdict->cause), oom_cause_text(cause),
				 strbuf_str(&why));
		/* Sentences that are said only where they are true. */
		if (round / 2 % 6 != 5)
			assert_null(strstr(strbuf_str(&why), "steady level"));
		else
			assert_non_null(strstr(strbuf_str(&why), "steady level"));
		strbuf_fini(&why);
		assert_int_equal(end(state), 0);
		assert_int_equal(begin(state), 0);
		p = *state;
	}
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
	const struct CMUnitTest tests[] = {
		TEST(causes_of_short_programs_are_true),
		TEST(huge_pages_then_normal_ones_are_one_request),
		TEST(normal_pages_instead_of_huge_ones_are_no_oom),
		TEST(without_a_pool_each_request_is_its_own),
		TEST(what_a_pool_gives_back_between_tries_is_told),
		TEST(pool_that_succeeds_then_has_recovered),
		TEST(late_try_is_of_the_request_that_the_engine_told),
		TEST(another_request_is_another_after_the_engine_told_one),
		cmocka_unit_test(steady_growth_is_seen_and_what_stops_is_not),
		cmocka_unit_test(what_places_held_comes_back),
		TEST(samples_cover_a_long_run),
		TEST(details_are_of_the_device_that_refused),
		TEST(a_spike_is_compared_with_its_own_pool),
		TEST(a_snapshot_has_what_the_framework_said),
		TEST(a_snapshot_has_what_the_pool_and_the_samples_say),
		TEST(what_nothing_tells_of_a_snapshot_stays_unknown),
		TEST(a_snapshot_after_a_refusal_comes_behind_its_rows),
		TEST(what_waits_for_streams_is_a_cause),
		TEST(what_private_pools_keep_is_a_cause),
	};

	return cmocka_run_group_tests_name("oom", tests, unit_make_directory,
					   unit_remove_empty_directory);
}
