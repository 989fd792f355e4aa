/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claims about what the analysis of leaks finds: which memory is judged, what is one place, how fast it grows, and when a device will be
 * full. How often verdicts are right is the claim of tests/judge.
 */
#include "symbols/elf_cache.h"
#include "unit.h"

#include "analysis/analyses.h"
#include "analysis/leaks.h"
#include "analysis/leaks_state.h"
#include "trace/session.h"
#include "trace_maker.h"

#define PTA	1u /* contexts */
#define HAL	2u
#define HANDLES 3u
#define PINNED	4u

#define STEP 1u /* text */

#define MIB (UINT64_C(1) << 20)

struct play {
	struct maker maker;
	struct run *run;
	struct elf_cache elves;
	struct replay *replay;
	struct analyses analyses;
	uint64_t now;
	uint64_t ranges;
	struct strbuf out;
	struct leaks_findings *found; /* the latest */
};

static void feed(struct play *p, uint32_t type, uint32_t context, const uint64_t *words,
		 uint32_t bytes, const void *payload, uint32_t payload_bytes)
{
	struct trace_event event = {.type = type,
				    .context = context,
				    .writer = 1,
				    .tid = 7,
				    .time_ns = ++p->now,
				    .words = words,
				    .bytes = bytes,
				    .payload = payload,
				    .payload_bytes = payload_bytes};

	assert_int_equal(replay_event(p->replay, &event), 0);
}

#define FEED_WITH(p, context_, payload_, bytes_, what, ...)                                        \
	do {                                                                                       \
		struct event_##what in_ = {__VA_ARGS__};                                           \
		uint64_t words_[EVENT_BYTES_##what / 8];                                           \
                                                                                                   \
		event_##what##_encode(words_, &in_);                                               \
		feed(p, EVENT_##what, context_, words_, sizeof(words_), payload_, bytes_);         \
	} while (0)

#define FEED(p, context_, ...) FEED_WITH(p, context_, NULL, 0, __VA_ARGS__)

static void define_text(struct play *p, uint32_t id, const char *text)
{
	FEED_WITH(p, 0, text, (uint32_t)strlen(text), text_def, .id = id,
		  .text_bytes = strlen(text));
}

static void define_context(struct play *p, uint32_t id, uint32_t pool, uint32_t kind)
{
	FEED(p, 0, context_def, .id = id, .pool = pool, .kind = kind, .vendor = VENDOR_ASCEND,
	     .device = 0, .module = MODULE_UNKNOWN);
}

static void start(struct play *p, uint32_t bits)
{
	struct replay_setup setup = {.run = p->run, .elves = &p->elves, .root = "/nowhere"};

	assert_int_equal(replay_new(&setup, &p->replay), 0);
	analyses_init(&p->analyses, bits, true, p->replay);
	define_context(p, PTA, POOL_pta, BLOCK_ALLOC);
	define_context(p, HAL, POOL_hal, BLOCK_ALLOC);
	define_context(p, HANDLES, POOL_hal, BLOCK_CREATE);
	define_text(p, STEP, STEP_MESSAGE);
}

static int begin(void **state)
{
	struct play *p = calloc(1, sizeof(*p));
	char path[300];

	(void)snprintf(path, sizeof(path), "%s/raw", unit_directory);
	maker_make(&p->maker, path, MAKER_CHUNK_BYTES, 1);
	assert_int_equal(run_open(path, NULL, false, &p->run, NULL), 0);
	p->now = 2000;
	*state = p;
	return 0;
}

static int end(void **state)
{
	struct play *p = *state;

	leaks_findings_free(p->found);
	analyses_fini(&p->analyses);
	replay_free(p->replay);
	run_close(p->run);
	elf_cache_fini(&p->elves);
	maker_fini(&p->maker);
	strbuf_fini(&p->out);
	free(p);
	return 0;
}

static void step_begin(struct play *p)
{
	FEED(p, PTA, mark, .kind = 2, .text = STEP, .range = ++p->ranges);
}

static void step_end(struct play *p)
{
	FEED(p, PTA, mark, .kind = 3, .range = p->ranges);
}

static void take(struct play *p, uint32_t context, uint64_t address, uint64_t size, uint32_t stack)
{
	FEED(p, context, block_alloc, .address = address, .size_bytes = size, .stack = stack);
}

static void give(struct play *p, uint32_t context, uint64_t address)
{
	FEED(p, context, block_free, .address = address);
}

static const struct leaks_findings *found(struct play *p)
{
	leaks_findings_free(p->found);
	p->found = leaks_findings(&p->analyses, p->replay);
	assert_non_null(p->found);
	return p->found;
}

static const char *told(struct play *p)
{
	struct findings told = {0};
	struct analysis_view view = {
		.replay = p->replay, .found = &told, .lines = UINT32_MAX, .frames = 2};

	analyses_judge(&p->analyses, p->replay, 0, &told);
	strbuf_reset(&p->out);
	analyses_text(&p->analyses, &view, &p->out);
	findings_fini(&told);
	return strbuf_str(&p->out);
}

/* ---- histories ---- */

static void what_rose_in_two_places_rose_in_both_together(void **state)
{
	struct growth a = {0}, b = {0};
	uint32_t step;

	(void)state;
	for (step = 1; step <= 20; step++) {
		growth_alloc(step % 2 ? &a : &b, 100);
		/* A temporary of the other place, which a step frees later. */
		growth_alloc(step % 2 ? &b : &a, 1000);
		assert_int_equal(growth_step(&a, step), 0);
		assert_int_equal(growth_step(&b, step), 0);
		assert_int_equal(growth_free(step % 2 ? &b : &a, 1000, 1), 0);
	}
	assert_int_equal(growth_step(&a, 21), 0);
	assert_int_equal(growth_step(&b, 21), 0);
	assert_int_equal(growth_merge(&a, &b), 0);
	assert_int_equal(a.before, 2000);
	assert_int_equal(a.late, 20);
	/* The 100 of the first step of each are not counted. */
	assert_int_equal(growth_since_first(&a), 1800);
	assert_true(a.rises->count >= 10);
	growth_fini(&a);
	growth_fini(&b);
}

static void two_steps_that_become_one_keep_levels_and_ages(void **state)
{
	struct growth g = {0};
	uint32_t step;

	(void)state;
	for (step = 1; step <= 64; step++) {
		growth_alloc(&g, 10);
		growth_alloc(&g, 500);
		assert_int_equal(growth_free(&g, 500, 16), 0);
		assert_int_equal(growth_step(&g, step), 0);
	}
	growth_coarsen(&g);
	growth_coarsen(&g);
	assert_int_equal(g.rises->rise[g.rises->count - 1].last, 16);
	assert_int_equal(g.rises->rise[g.rises->count - 1].level, 640);
	assert_int_equal(
		growth_freed_within(&g, 3) + g.late - growth_freed_within(&g, 5) + g.instep, 0);
	assert_int_equal(growth_freed_within(&g, 5), 64);
	growth_fini(&g);
}

/* A block in each step; two wait to be freed, and three from step `deeper` on. */
static struct growth_judgement queue_of(uint32_t steps, uint32_t deeper)
{
	struct growth_survivor survivors[3];
	struct growth_facts facts = {
		.steps = steps, .stacks_known = true, .survivors = survivors, .survivor_count = 3};
	struct growth_judgement judged;
	struct growth g = {0};
	uint32_t step, i;

	for (step = 1; step <= steps; step++) {
		growth_alloc(&g, 100);
		if (step > 2 && step != deeper)
			assert_int_equal(growth_free(&g, 100, step < deeper ? 2 : 3), 0);
		assert_int_equal(growth_step(&g, step), 0);
	}
	for (i = 0; i < 3; i++)
		survivors[i] = (struct growth_survivor){.step = steps - 2 + i, .bytes = 100};
	growth_judge(&g, &facts, &judged);
	growth_fini(&g);
	return judged;
}

/* What was held in the first half of the run may be held at its end; in a short run that is three quarters. */
static void a_queue_that_became_deeper_late_is_not_kept(void **state)
{
	(void)state;
	assert_int_equal(queue_of(16, 12).verdict, GROWTH_KEPT);
	assert_int_equal(queue_of(16, 13).verdict, GROWTH_SUSPECT);
	assert_int_equal(queue_of(19, 14).verdict, GROWTH_KEPT);
	assert_int_equal(queue_of(19, 15).verdict, GROWTH_SUSPECT);
	assert_int_equal(queue_of(20, 10).verdict, GROWTH_KEPT);
	assert_int_equal(queue_of(20, 11).verdict, GROWTH_SUSPECT);
}

/* Ages are kept in buckets, two an octave: what is said is the age at which a block may still come back, and not half as much again. */
static void the_usual_age_is_one_at_which_blocks_are_freed(void **state)
{
	struct growth_facts facts = {.steps = 300, .stacks_known = true};
	uint32_t age, step;
	int32_t usual;

	(void)state;
	for (age = 1; age <= 100; age++) {
		struct growth g = {0};

		for (step = 1; step <= 300; step++) {
			if (step <= 300 - age)
				growth_alloc(&g, 100);
			if (step > age)
				assert_int_equal(growth_free(&g, 100, age), 0);
			assert_int_equal(growth_step(&g, step), 0);
		}
		(void)growth_in_use(&g, &facts, &usual);
		assert_in_range(usual, age, age + age / 2);
		assert_int_equal(growth_freed_within(&g, usual), 300 - age);
		assert_int_equal(growth_freed_within(&g, (int32_t)age / 2), 0);
		growth_fini(&g);
	}
}

/* ---- what a suspect lacks ---- */

/* A place that keeps a block in each step that `every` divides, from `first` to `last`, seen after `steps`. */
static struct growth_judgement keeps(uint32_t first, uint32_t every, uint32_t last, uint32_t steps,
				     struct growth_missing *out_missing)
{
	struct growth_survivor survivors[800];
	struct growth_facts facts = {.steps = steps, .stacks_known = true, .survivors = survivors};
	struct growth_judgement judged;
	struct growth g = {0};
	uint32_t step;

	for (step = first; step <= last && step <= steps; step += every) {
		growth_alloc(&g, 100);
		assert_int_equal(growth_step(&g, step), 0);
		survivors[facts.survivor_count++] =
			(struct growth_survivor){.step = step, .bytes = 100};
	}
	growth_judge(&g, &facts, &judged);
	if (out_missing != NULL)
		*out_missing = growth_missing(&g, &facts, &judged);
	growth_fini(&g);
	return judged;
}

/* Each place is judged again after the steps that were said to decide it. */
static void as_many_steps_as_are_said_decide_a_suspect(void **state)
{
	uint32_t every, first, steps, growing = 0, quiet = 0;
	struct growth_missing missing;

	(void)state;
	for (every = 1; every <= 12; every++) {
		for (first = 2; first <= 8; first += 3) {
			for (steps = first; steps <= 60; steps++) {
				if (keeps(first, every, 60, steps, &missing).verdict !=
				    GROWTH_SUSPECT)
					continue;
				if (missing.steps == 0)
					continue;
				assert_true(missing.steps <= 512);
				if (missing.by_quiet) {
					assert_int_equal(keeps(first, every, steps,
							       steps + missing.steps, NULL)
								 .verdict,
							 GROWTH_KEPT);
					assert_int_equal(keeps(first, every, steps,
							       steps + missing.steps - 1, NULL)
								 .verdict,
							 GROWTH_SUSPECT);
					quiet++;
					continue;
				}
				assert_int_equal(missing.every, every);
				assert_int_equal(
					keeps(first, every, 600, steps + missing.steps, NULL)
						.verdict,
					GROWTH_LEAK);
				growing++;
			}
		}
	}
	assert_true(growing > 400 && quiet > 20);
}

static void a_pause_as_long_as_all_before_is_no_silence(void **state)
{
	struct play *p = *state;
	const char *text;
	uint64_t i;

	start(p, SESSION_LEAKS);
	for (i = 1; i <= 18; i++) {
		step_begin(p);
		if (i % 4 == 0)
			take(p, PTA, 0x1000 * i, MIB, 0);
		step_end(p);
	}
	text = told(p);
	assert_non_null(strstr(text,
			       "grew in 4 of 15 steps, 4 blocks, 4.0 MiB. It grew every fourth "
			       "step; "));
	assert_non_null(strstr(text, " more steps would decide it."));
	assert_null(strstr(text, "in the last"));
}

static void one_quiet_step_is_the_last_step(void **state)
{
	struct play *p = *state;
	uint64_t i;

	start(p, SESSION_LEAKS);
	for (i = 1; i <= 12; i++) {
		step_begin(p);
		if (i >= 7 && i <= 11)
			take(p, PTA, 0x1000 * i, MIB, 0);
		step_end(p);
	}
	assert_non_null(strstr(told(p), "It did not grow in the last step; 2 more steps without "
					"growth would show that it has stopped."));
}

/* ---- which memory ---- */

/* Segments of a pool come and stay; what lies beside it grows. */
static void driver_memory_beside_a_pool_is_judged_and_its_cache_is_not(void **state)
{
	struct play *p = *state;
	const struct leaks_findings *f;
	uint64_t i;

	start(p, SESSION_LEAKS);
	for (i = 1; i <= 20; i++) {
		step_begin(p);
		take(p, HAL, 0x100000000 * i, 64 * MIB, 0);
		take(p, PTA, 0x100000000 * i + 512, MIB, 0);
		give(p, PTA, 0x100000000 * i + 512);
		take(p, HAL, 0x10000000 + i * MIB, 4096, 0);
		step_end(p);
	}
	f = found(p);
	assert_int_equal(f->leaks, 1);
	assert_int_equal(f->places[0].pool, POOL_hal);
	assert_true(f->places[0].beside_pool);
	assert_int_equal(f->places[0].overdue_blocks, 19);
	assert_int_equal(f->places[0].size_max, 4096);
	assert_int_equal(f->unjudged_count, 1);
	assert_int_equal(f->unjudged[0].reason, LEAKS_POOL_CACHE);
	assert_int_equal(f->unjudged[0].bytes, 20 * 64 * MIB);
}

/* Expandable segments: the driver gives handles, and the pool says what it holds of them. */
static void grow_by_handles(struct play *p, uint64_t lost)
{
	uint64_t i;

	for (i = 1; i <= 20; i++) {
		step_begin(p);
		take(p, HANDLES, i, 2 * MIB, 0);
		FEED(p, PTA, pool_total, .reserved_bytes = i * (2 * MIB - lost));
		take(p, PTA, 0x100000000 * i, MIB, 0);
		give(p, PTA, 0x100000000 * i);
		step_end(p);
	}
}

static void handles_are_judged_by_what_pools_do_not_hold(void **state)
{
	struct play *p = *state;
	const struct leaks_findings *f;

	start(p, SESSION_LEAKS);
	grow_by_handles(p, 4096);
	f = found(p);
	assert_int_equal(f->leaks, 1);
	assert_true(f->places[0].by_handles);
	assert_int_equal(f->places[0].bytes_per_step, 4096);
	assert_false(f->clean);
	assert_non_null(strstr(told(p), "driver memory beside the pools grows: 4.0 KiB per step"));
}

static void handles_that_a_pool_holds_are_no_leak(void **state)
{
	struct play *p = *state;

	start(p, SESSION_LEAKS);
	grow_by_handles(p, 0);
	assert_int_equal(found(p)->leaks + found(p)->suspects, 0);
	assert_non_null(strstr(told(p), "No leak was found in steps 2 to 20."));
}

static void handles_without_a_word_of_the_pool_are_not_judged(void **state)
{
	struct play *p = *state;

	start(p, SESSION_LEAKS);
	grow_by_handles(p, 2 * MIB);
	assert_false(found(p)->clean);
	assert_int_equal(found(p)->unjudged[0].reason, LEAKS_HANDLES);
	assert_null(strstr(told(p), "No leak was found"));
}

/* ---- owners ---- */

static void optimizer_state_is_never_a_leak(void **state)
{
	struct play *p = *state;
	const struct leaks_findings *f;
	uint64_t i;

	start(p, SESSION_LEAKS | SESSION_DECOMPOSE);
	define_text(p, 2, "model@optimizer_state");
	for (i = 1; i <= 20; i++) {
		step_begin(p);
		take(p, PTA, 0x1000 * i, 512, 0);
		FEED(p, 0, label, .kind = LABEL_MODEL, .text = 2, .address = 0x1000 * i);
		step_end(p);
	}
	f = found(p);
	assert_int_equal(f->leaks + f->suspects, 0);
	assert_int_equal(f->places[0].reason, GROWTH_OWNED);
	assert_int_equal(f->places[0].blocks, 20);
}

/* ---- places ---- */

/* Two call sites of one line: neither leaks often, the line does. */
static void one_line_of_a_script_is_one_place(void **state)
{
	static const char code[] = "train.pystep";
	struct play *p = *state;
	const struct leaks_findings *f;
	uint64_t i;

	start(p, SESSION_LEAKS);
	FEED_WITH(p, 0, code, sizeof(code) - 1, code_def, .id = 1, .first_line = 5, .minor = 12,
		  .file_bytes = 8, .name_bytes = 4);
	for (i = 1; i <= 2; i++) {
		uint64_t frames[2] = {0x1000, 1 | 2 * i << 32};

		FEED_WITH(p, 0, frames, sizeof(frames), stack_def, .id = i, .c_frames = 1,
			  .python_frames = 1);
	}
	for (i = 1; i <= 20; i++) {
		step_begin(p);
		take(p, PTA, 0x1000 * i, 512, 1 + (uint32_t)(i % 2));
		step_end(p);
	}
	f = found(p);
	assert_int_equal(f->place_count, 1);
	assert_int_equal(f->leaks, 1);
	assert_int_equal(f->places[0].overdue_blocks, 19);
	assert_int_equal(f->places[0].bytes_per_step, 512);
	assert_int_equal(f->places[0].example_count, LEAKS_EXAMPLES);
	assert_int_equal(f->places[0].list[0].step, 2);
}

/* What DistributedDataParallel makes once in step 2 is known by its maker; in the user's own file it is one kept block, a suspect. */
static void what_a_framework_makes_once_and_holds_is_kept(void **state)
{
	static const char *const files[] = {"/lib/site-packages/torch/nn/parallel/distributed.py",
					    "/data/torch/nn/parallel/distributed.py.d/mine.py"};
	static const char function[] = "DistributedDataParallel._pre_forward";
	struct play *p = *state;
	const struct leaks_findings *f;
	uint64_t i;

	start(p, SESSION_LEAKS);
	for (i = 1; i <= 2; i++) {
		uint64_t frame = i;
		char code[128];
		int length = snprintf(code, sizeof(code), "%s%s", files[i - 1], function);

		FEED_WITH(p, 0, code, (size_t)length, code_def, .id = i, .first_line = 5,
			  .minor = 12, .file_bytes = (uint32_t)strlen(files[i - 1]),
			  .name_bytes = sizeof(function) - 1);
		FEED_WITH(p, 0, &frame, sizeof(frame), stack_def, .id = i, .python_frames = 1);
	}
	for (i = 1; i <= 40; i++) {
		step_begin(p);
		if (i == 2 || i == 30) {
			take(p, PTA, 0x1000 * i, 4096, 1);
			take(p, PTA, 0x100000 + 0x1000 * i, 512, 2);
		}
		step_end(p);
	}
	f = found(p);
	assert_int_equal(f->place_count, 2);
	assert_int_equal(f->suspects, 1);
	assert_int_equal(f->places[0].stack, 2);
	assert_int_equal(f->places[1].verdict, GROWTH_KEPT);
	assert_int_equal(f->places[1].reason, GROWTH_OWNED);
}

static void the_forecast_is_what_is_left_by_the_rate_of_all_leaks(void **state)
{
	struct play *p = *state;
	const struct leaks_findings *f;
	const char *at;
	uint64_t i;

	start(p, SESSION_LEAKS);
	FEED(p, 0, usage_sample, .device = 0, .total_mib = 1024, .process_bytes = UINT64_MAX,
	     .device_bytes = 24 * MIB);
	for (i = 1; i <= 20; i++) {
		step_begin(p);
		take(p, PTA, 0x1000 * i, MIB, 0);
		take(p, PTA, 0x1000000 * i, 3 * MIB, 0);
		p->now += 500000000;
		step_end(p);
	}
	f = found(p);
	assert_int_equal(f->leaks, 2);
	assert_int_equal(f->places[0].bytes_per_step, 3 * MIB); /* the fastest first */
	/* The driver counted 24 MiB before the first block; 80 came since. */
	assert_int_equal(f->places[0].full_steps, 230);
	assert_int_equal(f->places[1].full_steps, 230);
	assert_int_equal(f->forecast_count, 1);
	assert_true(f->forecasts[0].climbs && f->forecasts[0].steady);
	assert_true(f->forecasts[0].steps_low < 230 && f->forecasts[0].steps_high > 230);
	assert_true(f->places[0].full_seconds > 114 && f->places[0].full_seconds < 116);
	assert_true(f->places[0].share > 0.74 && f->places[0].share < 0.76);
	at = strstr(told(p), " is full in about 230 steps (about 115 s), at step ");
	assert_non_null(at);
	/* It is said of the device, not of each call site. */
	assert_null(strstr(at + 1, " is full in about "));
	assert_int_equal(f->pool_count, 1);
	assert_int_equal(f->pools[0].bytes_per_step, 4 * MIB);
	assert_int_equal(f->pools[0].rises, 19);
	assert_int_equal(f->pools[0].rise_steps, 19);
	assert_true(f->pools[0].explained > 0.99);
}

static void refuse(struct play *p, uint64_t bytes)
{
	FEED(p, HAL, oom, .requested_bytes = bytes, .allocated_bytes = UINT64_MAX,
	     .reserved_bytes = UINT64_MAX, .free_bytes = 0, .total_bytes = 256 * MIB,
	     .call = OOM_HAL_ALLOC);
}

/* What the step would have kept is missing, and what it would have freed is there. */
static void a_step_that_was_left_because_memory_ran_out_is_not_judged(void **state)
{
	struct play *p = *state;
	const struct leaks_findings *f;
	uint64_t i;

	start(p, SESSION_LEAKS);
	FEED(p, 0, usage_sample, .device = 0, .total_mib = 256, .process_bytes = UINT64_MAX,
	     .device_bytes = 0);
	for (i = 1; i <= 16; i++) {
		step_begin(p);
		take(p, HAL, 0x1000000 * i, 6 * MIB, 0);
		step_end(p);
	}
	step_begin(p);
	take(p, HAL, 0x100000, 20 * MIB, 0);
	refuse(p, 6 * MIB);
	step_end(p);
	f = found(p);
	assert_int_equal(f->last_step, 16);
	assert_int_equal(f->leaks, 1);
	assert_int_equal(f->suspects, 0);
	assert_int_equal(f->places[0].bytes_per_step, 6 * MIB);
	assert_int_equal(f->pools[0].bytes_per_step, 6 * MIB);
	assert_true(f->pools[0].explained > 0.99);
	/* The device was full: it will not be so at a later step. */
	assert_int_equal(f->forecast_count, 0);
	assert_int_equal(f->places[0].full_steps, 0);
	/* The program went on after all: the step was one like others. */
	give(p, HAL, 0x100000);
	step_begin(p);
	take(p, HAL, 0x1000000 * i, 6 * MIB, 0);
	step_end(p);
	f = found(p);
	assert_int_equal(f->last_step, 18);
	assert_int_equal(f->forecast_count, 1);
}

/* PyTorch caches what it pins, so the driver's blocks do not say whose they are now. */
static void pinned_memory_beside_pytorch_may_be_kept_elsewhere(void **state)
{
	static const char note[] =
		"PyTorch reuses pinned memory: these blocks were first taken here, "
		"and another line may keep them.";
	struct play *p = *state;
	uint64_t i, torch;

	for (torch = 0; torch < 2; torch++) {
		start(p, SESSION_LEAKS);
		FEED(p, 0, context_def, .id = PINNED, .pool = POOL_host_pinned, .kind = BLOCK_ALLOC,
		     .vendor = VENDOR_ASCEND, .device = DEVICE_HOST, .module = MODULE_UNKNOWN);
		for (i = 1; i <= 12; i++) {
			step_begin(p);
			if (torch) {
				take(p, PTA, 0x1000, MIB, 0);
				give(p, PTA, 0x1000);
			}
			take(p, PINNED, 0x10000000 * i, MIB, 0);
			step_end(p);
		}
		assert_non_null(strstr(told(p), "leak: HOST_PINNED blocks of 1.0 MiB"));
		assert_int_equal(strstr(told(p), note) != NULL, torch);
		if (torch)
			break;
		analyses_fini(&p->analyses);
		replay_free(p->replay);
	}
}

/* Six leaks and six kept places: of more than are wanted the least become one, with their sums. */
static void what_is_not_told_one_by_one_is_the_rest(void **state)
{
	struct play *p = *state;
	const struct leaks_findings *all;
	struct leaks_findings *few;
	const size_t most[3] = {2, 2, 2};
	uint64_t i, k, rests = 0;

	start(p, SESSION_LEAKS);
	for (i = 1; i <= 30; i++) {
		step_begin(p);
		for (k = 1; k <= 6; k++) {
			if (i == 1)
				take(p, PTA, 0x100000000 * k, 100 * MIB * k, 0);
			take(p, PTA, 0x1000000000 * k + 0x4000000 * i, MIB * k, 0);
		}
		step_end(p);
	}
	all = found(p);
	assert_int_equal(all->leaks, 6);
	assert_int_equal(all->kept, 6);
	few = leaks_judge(p->analyses.state[ANALYSIS_ID_leaks], p->replay, most);
	assert_non_null(few);
	assert_int_equal(few->leaks, 6);
	assert_int_equal(few->kept, 6);
	assert_int_equal(few->place_count, 6);
	assert_int_equal(few->clean, all->clean);
	for (i = 0; i < few->place_count; i++) {
		const struct leaks_place *place = &few->places[i];
		uint64_t bytes = 0, blocks = 0, listed = 0;
		double rate = 0;

		if (place->call_sites == 0) {
			assert_int_equal(place->bytes, all->places[i < 2 ? i : i + 3].bytes);
			continue;
		}
		for (k = 0; k < all->place_count; k++) {
			if (all->places[k].verdict != place->verdict || k % 6 < 2)
				continue;
			bytes += all->places[k].bytes;
			blocks += all->places[k].blocks;
			listed += all->places[k].listed_blocks;
			rate += all->places[k].bytes_per_step;
		}
		rests++;
		assert_int_equal(place->call_sites, 4);
		assert_int_equal(place->bytes, bytes);
		assert_int_equal(place->blocks, blocks);
		assert_int_equal(place->listed_blocks, listed);
		assert_true(place->bytes_per_step > rate - 1 && place->bytes_per_step < rate + 1);
		assert_null(place->list);
		assert_int_equal(i, place->verdict == GROWTH_LEAK ? 2 : 5);
	}
	assert_int_equal(rests, 2);
	leaks_findings_free(few);
}

/* ---- blocks of many sizes without stacks ---- */

/* Two blocks of ever other sizes stay in each step; in step 7 another one was made. */
static void blocks_of_many_sizes_that_stay_by_a_beat_are_a_leak(void **state)
{
	struct play *p = *state;
	const struct leaks_findings *f;
	uint64_t i, k;

	start(p, SESSION_LEAKS);
	for (i = 1; i <= 30; i++) {
		step_begin(p);
		take(p, PTA, 0x1000000 * i, 100000 + 37 * i, 0);
		take(p, PTA, 0x1000000 * i + 0x800000, 200000 - 41 * i, 0);
		if (i == 7)
			take(p, PTA, 0x10, 150000, 0);
		step_end(p);
	}
	f = found(p);
	assert_int_equal(f->leaks, 1);
	assert_int_equal(f->places[0].reason, GROWTH_SIZES);
	assert_int_equal(f->places[0].list_count, 2 * 28);
	for (k = 0; k < f->places[0].list_count; k++)
		assert_int_not_equal(f->places[0].list[k].step, 7);
	assert_true(f->places[0].bytes_per_step_low < 300000 &&
		    f->places[0].bytes_per_step_high > 299000);
	assert_int_equal(f->suspects, 1);
	assert_int_equal(f->places[1].list_count, 3);
	assert_non_null(strstr(told(p), "Its blocks have many sizes"));
}

static void a_block_that_replaces_a_smaller_one_is_a_leak(void **state)
{
	struct play *p = *state;
	const struct leaks_findings *f;
	uint64_t i;

	start(p, SESSION_LEAKS);
	for (i = 1; i <= 20; i++) {
		step_begin(p);
		take(p, PTA, 0x10000000 * i, i * MIB, 0);
		if (i > 1)
			give(p, PTA, 0x10000000 * (i - 1));
		step_end(p);
	}
	f = found(p);
	assert_int_equal(f->leaks, 1);
	assert_int_equal(f->suspects, 0);
	assert_int_equal(f->places[0].reason, GROWTH_CLIMBS);
	assert_int_equal(f->places[0].bytes_per_step, MIB);
	assert_non_null(strstr(told(p), "grows by reallocation: 1.0 MiB per step"));
}

/* The pool leaves up to 1 MiB of a block unused, which is much more than a step adds. */
static void growth_is_judged_by_what_was_asked_for(void **state)
{
	struct play *p = *state;
	const struct leaks_findings *f;
	uint64_t i;

	start(p, SESSION_LEAKS);
	for (i = 1; i <= 30; i++) {
		uint64_t asked = 2 * MIB + i * (MIB / 16);

		step_begin(p);
		FEED(p, PTA, block_alloc_pool, .address = 0x10000000 * i,
		     .size_bytes = asked + i * 7919 % 1000 * 1024, .requested_bytes = asked,
		     .stream = 0);
		if (i > 1)
			give(p, PTA, 0x10000000 * (i - 1));
		step_end(p);
	}
	f = found(p);
	assert_int_equal(f->leaks, 1);
	assert_int_equal(f->places[0].reason, GROWTH_CLIMBS);
	assert_int_equal(f->places[0].bytes_per_step, MIB / 16);
}

/* Beside buffers that are a hundred times as large, which hide it from the level of the pool. */
static void a_chain_of_reallocations_is_seen_beside_large_buffers(void **state)
{
	struct play *p = *state;
	const struct leaks_findings *f;
	uint64_t i;

	start(p, SESSION_LEAKS);
	for (i = 1; i <= 40; i++) {
		step_begin(p);
		take(p, PTA, 0x10000000 * i, 1000 * i, 0);
		take(p, PTA, 0x10000000 * i + MIB, MIB + 5003 * (i * i % 41), 0);
		if (i > 1) {
			give(p, PTA, 0x10000000 * (i - 1));
			give(p, PTA, 0x10000000 * (i - 1) + MIB);
		}
		step_end(p);
	}
	f = found(p);
	assert_int_equal(f->leaks, 1);
	assert_int_equal(f->places[0].reason, GROWTH_CLIMBS);
	assert_int_equal(f->places[0].bytes_per_step, 1000);
	assert_int_equal(f->places[0].bytes, 40000);
}

static void buffers_of_many_sizes_that_turn_over_are_kept(void **state)
{
	struct play *p = *state;
	uint64_t i;

	start(p, SESSION_LEAKS);
	for (i = 1; i <= 20; i++) {
		step_begin(p);
		take(p, PTA, 0x10000000 * i, MIB + 5003 * (i * 7 % 20), 0);
		if (i > 2)
			give(p, PTA, 0x10000000 * (i - 2));
		step_end(p);
	}
	assert_int_equal(found(p)->leaks + found(p)->suspects, 0);
	assert_int_equal(found(p)->places[0].reason, GROWTH_IN_USE);
	assert_non_null(strstr(told(p), "No leak was found in steps 2 to 20."));
}

/* Three come, two go: all are freed some day, and more and more live. */
static void a_queue_that_falls_behind_is_not_kept(void **state)
{
	struct play *p = *state;
	uint64_t i, k, in = 0, out = 0;

	start(p, SESSION_LEAKS);
	for (i = 1; i <= 60; i++) {
		step_begin(p);
		for (k = 0; k < 2 + i % 3; k++)
			take(p, PTA, 0x10000 * ++in, 512, 1);
		for (k = 0; k < 1 + i % 2 && out < in; k++)
			give(p, PTA, 0x10000 * ++out);
		step_end(p);
	}
	assert_int_not_equal(found(p)->places[0].verdict, GROWTH_KEPT);
	assert_null(strstr(told(p), "No leak was found"));
}

/* ---- by time ---- */

static void run_without_steps(struct play *p, bool loop, uint32_t stack)
{
	uint64_t i;

	for (i = 1; i <= 200; i++) {
		p->now += 20000000;
		take(p, PTA, 0x100000 * i, 1000, stack);
		if (loop) {
			take(p, PTA, 0x1000, 5000, 0);
			give(p, PTA, 0x1000);
		}
	}
}

static void without_steps_parts_of_time_are_judged(void **state)
{
	struct play *p = *state;
	const struct leaks_findings *f;

	start(p, SESSION_LEAKS);
	run_without_steps(p, true, 0);
	f = found(p);
	assert_true(f->judged && f->by_time);
	assert_int_equal(f->leaks, 1);
	assert_true(f->places[0].bytes_per_step / f->step_seconds > 49000);
	assert_true(f->places[0].bytes_per_step / f->step_seconds < 51000);
	assert_memory_equal(told(p), "No step was marked: growth is judged over ", 42);
	assert_non_null(strstr(told(p), "48.8 KiB per second ("));
}

/* What a library makes when the call site runs first stays beside what leaks there, and is no part of it. */
static void without_steps_a_workspace_is_no_part_of_a_leak(void **state)
{
	static const char code[] = "serve.pyloop";
	const uint64_t frame = 1;
	struct play *p = *state;
	const struct leaks_findings *f;

	start(p, SESSION_LEAKS);
	FEED_WITH(p, 0, code, sizeof(code) - 1, code_def, .id = 1, .first_line = 5, .minor = 12,
		  .file_bytes = 8, .name_bytes = 4);
	FEED_WITH(p, 0, &frame, sizeof(frame), stack_def, .id = 1, .python_frames = 1);
	take(p, PTA, 0x1000, 5000, 0);
	give(p, PTA, 0x1000);
	p->now += 200000000;
	take(p, PTA, 0x900000000, 33554432, 1);
	run_without_steps(p, true, 1);
	f = found(p);
	assert_int_equal(f->leaks, 1);
	assert_int_equal(f->places[0].bytes, 199 * 1000);
	assert_int_equal(f->places[0].overdue_blocks, f->places[0].listed_blocks);
	assert_int_equal(f->places[0].size_max, 1000);
	assert_true(f->places[0].bytes_per_step / f->step_seconds > 45000);
	assert_true(f->places[0].bytes_per_step / f->step_seconds < 55000);
}

/* A suspect whose blocks the program itself has found in a deque that is full. */
static void what_a_full_container_has_is_kept(void **state)
{
	static const char texts[] = "local\0deque\0replay\0local of main()\0\0replay[3]\0\0";
	struct play *p = *state;
	const struct leaks_findings *f;
	uint64_t i;

	start(p, SESSION_LEAKS);
	for (i = 1; i <= 5; i++) {
		step_begin(p);
		take(p, PTA, 0x1000 * i, 512, 0);
		step_end(p);
	}
	assert_int_equal(found(p)->suspects, 1);
	FEED_WITH(p, 0, texts, sizeof(texts) - 1, keeper, .text_bytes = sizeof(texts) - 1,
		  .address = 0x5000, .items = 5, .full = 1, .held = 4, .looked = 5);
	assert_int_equal(found(p)->suspects, 1);
	FEED_WITH(p, 0, texts, sizeof(texts) - 1, keeper, .text_bytes = sizeof(texts) - 1,
		  .address = 0x5000, .items = 5, .full = 1, .held = 5, .looked = 5);
	f = found(p);
	assert_int_equal(f->suspects, 0);
	assert_int_equal(f->places[0].verdict, GROWTH_KEPT);
	assert_int_equal(f->places[0].reason, GROWTH_BOUNDED);
	assert_non_null(strstr(told(p), "in a container that is full and drops its oldest items"));
}

/* One that has room for more: how much it holds when it is full is known. */
static void what_a_container_with_a_limit_has_is_a_suspect(void **state)
{
	static const char texts[] = "local\0deque\0replay\0local of main()\0\0replay[3]\0\0";
	struct play *p = *state;
	const struct leaks_findings *f;
	uint64_t i;

	start(p, SESSION_LEAKS);
	for (i = 1; i <= 20; i++) {
		step_begin(p);
		take(p, PTA, 0x100000 * i, MIB / 16, 0);
		step_end(p);
	}
	assert_int_equal(found(p)->leaks, 1);
	FEED_WITH(p, 0, texts, sizeof(texts) - 1, keeper, .text_bytes = sizeof(texts) - 1,
		  .address = 0x500000, .items = 20, .most = 100, .held = 19, .looked = 20);
	assert_int_equal(found(p)->leaks, 1);
	FEED_WITH(p, 0, texts, sizeof(texts) - 1, keeper, .text_bytes = sizeof(texts) - 1,
		  .address = 0x500000, .items = 20, .most = 100, .held = 20, .looked = 20);
	f = found(p);
	assert_int_equal(f->leaks, 0);
	assert_int_equal(f->places[0].verdict, GROWTH_SUSPECT);
	assert_int_equal(f->places[0].reason, GROWTH_FILLS);
	assert_non_null(strstr(told(p), "What keeps them has a limit: about 6.2 MiB when full."));
}

/* A chain of reallocations that the program has found to be the values of one variable, none made from the one before. */
static void larger_and_larger_values_of_a_variable_are_a_suspect(void **state)
{
	static const char texts[] = "local\0tensor\0x\0local of main()\0\0x\0\0";
	static const char code[] = "train.pymain";
	struct play *p = *state;
	const struct leaks_findings *f;
	uint64_t i, renewed, frame = 1;

	start(p, SESSION_LEAKS);
	FEED_WITH(p, 0, code, sizeof(code) - 1, code_def, .id = 1, .first_line = 5, .minor = 12,
		  .file_bytes = 8, .name_bytes = 4);
	FEED_WITH(p, 0, &frame, sizeof(frame), stack_def, .id = 1, .python_frames = 1);
	for (i = 1; i <= 20; i++) {
		step_begin(p);
		take(p, PTA, 0x10000000 * i, i * MIB, 1);
		if (i > 1)
			give(p, PTA, 0x10000000 * (i - 1));
		step_end(p);
	}
	for (renewed = 0; renewed < 2; renewed++) {
		FEED_WITH(p, 0, texts, sizeof(texts) - 1, keeper, .text_bytes = sizeof(texts) - 1,
			  .address = 0x10000000ull * 20, .held = 1, .looked = 1,
			  .renewed = renewed);
		f = found(p);
		assert_int_equal(f->leaks, renewed == 0);
		assert_int_equal(f->places[0].reason,
				 renewed == 0 ? GROWTH_CLIMBS : GROWTH_RENEWED);
	}
	assert_int_equal(f->places[0].verdict, GROWTH_SUSPECT);
	assert_non_null(strstr(told(p), "one block: the current value of a variable"));
}

/* The program looks for what keeps its memory, and makes nothing meanwhile; it ends soon after. */
static void a_pause_for_a_question_is_no_silence(void **state)
{
	struct play *p = *state;
	const struct leaks_findings *f;
	uint64_t steps;

	start(p, SESSION_LEAKS);
	run_without_steps(p, true, 0);
	steps = found(p)->last_step;
	p->now += 900000000;
	FEED(p, 0, keeper, .address = 1);
	p->now += 2000000;
	take(p, PTA, 0x77700000, 1000, 0);
	f = found(p);
	assert_int_equal(f->leaks, 1);
	assert_in_range(f->last_step, steps, steps + 1);
	assert_true(f->pools[0].rises <= f->pools[0].rise_steps);
	/* Without the question it is. */
	p->now += 900000000;
	take(p, PTA, 0x77800000, 1000, 0);
	assert_int_equal(found(p)->leaks, 0);
}

static void a_program_that_only_starts_is_suspected_at_most(void **state)
{
	struct play *p = *state;

	start(p, SESSION_LEAKS);
	run_without_steps(p, false, 0);
	assert_int_equal(found(p)->leaks, 0);
	assert_int_equal(found(p)->suspects, 1);
	assert_non_null(strstr(told(p), "mark steps."));
}

static void the_first_step_ends_the_judgement_by_time(void **state)
{
	struct play *p = *state;
	uint64_t i;

	start(p, SESSION_LEAKS);
	run_without_steps(p, true, 0);
	for (i = 1; i <= 12; i++) {
		step_begin(p);
		take(p, PTA, 0x1000, 5000, 0);
		give(p, PTA, 0x1000);
		step_end(p);
	}
	assert_false(found(p)->by_time);
	assert_int_equal(found(p)->last_step, 12);
	assert_true(found(p)->clean);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_rose_in_two_places_rose_in_both_together),
		cmocka_unit_test(two_steps_that_become_one_keep_levels_and_ages),
		cmocka_unit_test(a_queue_that_became_deeper_late_is_not_kept),
		cmocka_unit_test(the_usual_age_is_one_at_which_blocks_are_freed),
		cmocka_unit_test(as_many_steps_as_are_said_decide_a_suspect),
		cmocka_unit_test_setup_teardown(a_pause_as_long_as_all_before_is_no_silence, begin,
						end),
		cmocka_unit_test_setup_teardown(one_quiet_step_is_the_last_step, begin, end),
		cmocka_unit_test_setup_teardown(
			driver_memory_beside_a_pool_is_judged_and_its_cache_is_not, begin, end),
		cmocka_unit_test_setup_teardown(handles_are_judged_by_what_pools_do_not_hold, begin,
						end),
		cmocka_unit_test_setup_teardown(handles_that_a_pool_holds_are_no_leak, begin, end),
		cmocka_unit_test_setup_teardown(handles_without_a_word_of_the_pool_are_not_judged,
						begin, end),
		cmocka_unit_test_setup_teardown(optimizer_state_is_never_a_leak, begin, end),
		cmocka_unit_test_setup_teardown(one_line_of_a_script_is_one_place, begin, end),
		cmocka_unit_test_setup_teardown(what_a_framework_makes_once_and_holds_is_kept,
						begin, end),
		cmocka_unit_test_setup_teardown(
			the_forecast_is_what_is_left_by_the_rate_of_all_leaks, begin, end),
		cmocka_unit_test_setup_teardown(
			a_step_that_was_left_because_memory_ran_out_is_not_judged, begin, end),
		cmocka_unit_test_setup_teardown(what_is_not_told_one_by_one_is_the_rest, begin,
						end),
		cmocka_unit_test_setup_teardown(blocks_of_many_sizes_that_stay_by_a_beat_are_a_leak,
						begin, end),
		cmocka_unit_test_setup_teardown(a_block_that_replaces_a_smaller_one_is_a_leak,
						begin, end),
		cmocka_unit_test_setup_teardown(pinned_memory_beside_pytorch_may_be_kept_elsewhere,
						begin, end),
		cmocka_unit_test_setup_teardown(growth_is_judged_by_what_was_asked_for, begin, end),
		cmocka_unit_test_setup_teardown(
			a_chain_of_reallocations_is_seen_beside_large_buffers, begin, end),
		cmocka_unit_test_setup_teardown(buffers_of_many_sizes_that_turn_over_are_kept,
						begin, end),
		cmocka_unit_test_setup_teardown(a_queue_that_falls_behind_is_not_kept, begin, end),
		cmocka_unit_test_setup_teardown(without_steps_parts_of_time_are_judged, begin, end),
		cmocka_unit_test_setup_teardown(without_steps_a_workspace_is_no_part_of_a_leak,
						begin, end),
		cmocka_unit_test_setup_teardown(what_a_full_container_has_is_kept, begin, end),
		cmocka_unit_test_setup_teardown(what_a_container_with_a_limit_has_is_a_suspect,
						begin, end),
		cmocka_unit_test_setup_teardown(
			larger_and_larger_values_of_a_variable_are_a_suspect, begin, end),
		cmocka_unit_test_setup_teardown(a_pause_for_a_question_is_no_silence, begin, end),
		cmocka_unit_test_setup_teardown(a_program_that_only_starts_is_suspected_at_most,
						begin, end),
		cmocka_unit_test_setup_teardown(the_first_step_ends_the_judgement_by_time, begin,
						end),
	};

	return cmocka_run_group_tests(tests, unit_make_directory, unit_remove_empty_directory);
}
