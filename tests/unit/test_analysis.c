/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claims about analysis/: what counts as leaked, how much a pool's use comes and goes, what is held, whose memory it is, what is
 * there unused, and who ended when the kernel killed for want of memory. The traces are made by hand, so that they can hold what no
 * driver does in the order that a test needs: windows of recording, steps that overlap, operators without an end, labels that come
 * late or name a byte inside a block.
 */
#include "replay/facts.h"
#include "symbols/elf_cache.h"
#include "unit.h"

#include <errno.h>

#include "analysis/alive.h"
#include "analysis/analyses.h"
#include "analysis/by_stack.h"
#include "analysis/leaks.h"
#include "sink/attr_writer.h"
#include "trace/session.h"
#include "trace_maker.h"

#define PTA	  1u /* contexts of the first writer; of the second the same */
#define HAL	  2u
#define PTA_1	  3u
#define MINDSPORE 4u
#define ATB	  5u
#define HOST	  6u
#define PINNED	  7u
#define WORKSPACE 8u
#define HAL_9	  9u

#define STEP 1u /* text of both writers */

struct play {
	struct maker maker;
	struct maker_writer w[2];
	uint64_t now;
	uint64_t ranges;
	uint32_t texts;
	struct facts facts;
	struct elf_cache elves;
	struct run *run;
	struct replay *replay;
	struct analyses analyses;
	char owners[64][64]; /* of the MALLOC rows, by allocation_id */
	struct strbuf out;
	bool splits_steps;
	bool asks; /* for all that is known, after each event */
};

static const char *told(struct play *p);

static uint32_t text(struct play *p, int writer, const char *text)
{
	struct event_text_def event = {.id = ++p->texts, .text_bytes = strlen(text)};
	uint64_t words[EVENT_BYTES_text_def / 8];

	event_text_def_encode(words, &event);
	maker_variable(&p->w[writer], p->now++, EVENT_text_def, words, sizeof(words), text,
		       (uint32_t)strlen(text));
	return p->texts;
}

static int begin(void **state)
{
	struct play *p = calloc(1, sizeof(*p));
	char path[300];
	int i;

	(void)snprintf(path, sizeof(path), "%s/raw", unit_directory);
	maker_make(&p->maker, path, MAKER_CHUNK_BYTES, 16 * MAKER_CHUNKS);
	p->now = 2000;
	for (i = 0; i < 2; i++) {
		struct maker_writer *w = &p->w[i];

		*w = (struct maker_writer){.maker = &p->maker, .number = (uint32_t)i + 1};
		maker_thread(w, p->now++, 70 + (uint32_t)i);
		maker_context(w, p->now++, PTA, POOL_pta, BLOCK_ALLOC, 0);
		maker_context(w, p->now++, HAL, POOL_hal, BLOCK_ALLOC, 0);
		maker_context(w, p->now++, PTA_1, POOL_pta, BLOCK_ALLOC, 1);
		maker_context(w, p->now++, MINDSPORE, POOL_mindspore, BLOCK_ALLOC, 0);
		maker_context(w, p->now++, ATB, POOL_atb, BLOCK_ALLOC, 0);
		maker_context(w, p->now++, HOST, POOL_host, BLOCK_ALLOC, DEVICE_HOST);
		maker_context(w, p->now++, PINNED, POOL_host_pinned, BLOCK_ALLOC, DEVICE_HOST);
		maker_context(w, p->now++, WORKSPACE, POOL_pta_workspace, BLOCK_ALLOC, 0);
		maker_context(w, p->now++, HAL_9, POOL_hal, BLOCK_ALLOC, 9);
		p->texts = STEP - 1;
		(void)text(p, i, STEP_MESSAGE);
	}
	*state = p;
	return 0;
}

static void stop(struct play *p)
{
	if (p->run == NULL)
		return;
	analyses_fini(&p->analyses);
	replay_free(p->replay);
	run_close(p->run);
	p->run = NULL;
}

static int end(void **state)
{
	struct play *p = *state;

	stop(p);
	facts_fini(&p->facts);
	elf_cache_fini(&p->elves);
	maker_fini(&p->maker);
	strbuf_fini(&p->out);
	free(p);
	return 0;
}

static int keep_owner(void *arg, struct replay *replay, const struct row *row)
{
	struct play *p = arg;

	(void)replay;
	if (row->kind == ROW_MALLOC) {
		if (row->block->allocation_id >= MSCOPE_COUNT(p->owners))
			return 0;
		(void)snprintf(p->owners[row->block->allocation_id], sizeof(p->owners[0]), "%s",
			       row->owner == NULL ? "-" : row->owner);
	} else {
		assert_null(row->owner);
	}
	return 0;
}

static void play_again(struct play *p, uint32_t bits, const struct facts *known)
{
	static const uint32_t steps[] = {3, 12};
	struct replay_setup setup;
	struct trace_event event;

	assert_int_equal(run_open(p->maker.path, NULL, false, &p->run, NULL), 0);
	setup = (struct replay_setup){.run = p->run,
				      .elves = &p->elves,
				      .root = "/nowhere",
				      .row = keep_owner,
				      .arg = p,
				      .known = known,
				      .steps = steps,
				      .step_count = p->splits_steps ? MSCOPE_COUNT(steps) : 0};
	if (known == NULL) {
		assert_int_equal(facts_init(&p->facts, unit_directory, NULL), 0);
		setup.facts = &p->facts;
	}
	assert_int_equal(replay_new(&setup, &p->replay), 0);
	analyses_init(&p->analyses, bits, true, p->replay);
	assert_int_equal(run_poll(p->run, 0, true), 0);
	while (run_next(p->run, &event)) {
		assert_int_equal(replay_event(p->replay, &event), 0);
		if (p->asks)
			(void)told(p);
	}
}

static void play(struct play *p, uint32_t bits)
{
	play_again(p, bits, NULL);
}

static const char *told(struct play *p)
{
	struct findings found = {0};
	struct analysis_view view = {
		.replay = p->replay, .found = &found, .lines = UINT32_MAX, .frames = 2};

	analyses_judge(&p->analyses, p->replay, 0, &found);
	strbuf_reset(&p->out);
	analyses_text(&p->analyses, &view, &p->out);
	findings_fini(&found);
	return strbuf_str(&p->out);
}

static uint64_t step_begin(struct play *p, int writer)
{
	p->ranges++;
	MAKER_EVENT(&p->w[writer], p->now++, PTA, mark, .kind = 2, .text = STEP,
		    .range = p->ranges);
	return p->ranges;
}

static void step_end(struct play *p, int writer, uint64_t range)
{
	MAKER_EVENT(&p->w[writer], p->now++, PTA, mark, .kind = 3, .range = range);
}

static void take(struct play *p, uint32_t context, uint64_t address, uint64_t size)
{
	maker_alloc(&p->w[0], p->now++, context, address, size, 0);
}

static void give(struct play *p, uint32_t context, uint64_t address)
{
	maker_free(&p->w[0], p->now++, context, address);
}

/* Steps in which nothing happens. */
static void pass(struct play *p, int count)
{
	while (count-- > 0)
		step_end(p, 0, step_begin(p, 0));
}

/* Addresses of the leaks, as they are told. */
static size_t leaked(struct play *p, uint64_t *out)
{
	const char *at = told(p);
	size_t count = 0;

	while ((at = strstr(at, " leak of ")) != NULL) {
		at = strstr(at, " at 0x") + 4;
		out[count++] = strtoull(at, NULL, 16);
	}
	return count;
}

/* Steps of optimizers, each with a block that stays, and then steps that the program marks. */
static void train(struct play *p, bool optimizer)
{
	uint64_t address = 0x100000, range;
	int i;

	for (i = 0; i < 8; i++, address += 0x1000) {
		take(p, PTA, address, 64);
		if (optimizer)
			MAKER_EVENT(&p->w[0], p->now++, 0, optimizer_step,
				    .number = (uint64_t)i + 1);
	}
	for (i = 0; i < 12; i++) {
		range = step_begin(p, 0);
		take(p, PTA, 0x90000, 32);
		give(p, PTA, 0x90000);
		step_end(p, 0, range);
	}
}

static void what_was_found_by_automatic_steps_is_forgotten_when_one_is_marked(void **state)
{
	struct play *p = *state;
	uint64_t found[64];
	void *other = NULL;
	char text[4096];

	train(p, true);
	play(p, SESSION_LEAKS);
	assert_int_equal(leaked(p, found), 0);
	(void)snprintf(text, sizeof(text), "%s", told(p));
	assert_int_equal(begin(&other), 0);
	train(other, false);
	play(other, SESSION_LEAKS);
	assert_string_equal(told(other), text);
	assert_int_equal(end(&other), 0);
}

/* ---- leaks ---- */

static void steps_before_the_second_leak_nothing(void **state)
{
	struct play *p = *state;
	uint64_t found[8], range;

	take(p, PTA, 0x1000, 8);
	range = step_begin(p, 0);
	take(p, PTA, 0x2000, 8);
	step_end(p, 0, range);
	take(p, PTA, 0x3000, 8); /* after step 1 and before step 2 */
	range = step_begin(p, 0);
	take(p, PTA, 0x4000, 8);
	step_end(p, 0, range);
	take(p, PTA, 0x5000, 8); /* after the last step: it is in none that was judged */
	play(p, SESSION_LEAKS);
	assert_int_equal(leaked(p, found), 1);
	assert_int_equal(found[0], 0x4000);
	assert_non_null(strstr(told(p),
			       "Not judged: 1 block, 8 B of the PyTorch pool (PTA) on NPU 0; they "
			       "were allocated after the last step ended.\n"));
}

static void what_a_later_step_frees_is_no_leak(void **state)
{
	struct play *p = *state;
	uint64_t found[8], range;

	pass(p, 1);
	range = step_begin(p, 0);
	take(p, PTA, 0x1000, 8);
	take(p, PTA, 0x2000, 8);
	step_end(p, 0, range);
	pass(p, 1);
	give(p, PTA, 0x1000);
	pass(p, 1);
	play(p, SESSION_LEAKS);
	assert_int_equal(leaked(p, found), 1);
	assert_int_equal(found[0], 0x2000);
	assert_non_null(
		strstr(told(p), "SUMMARY: 7.62939e-06 Mb(s) may have leaked in 1 allocation(s)"));
}

/* As an interpreter does that ends, or a program behind its loop. */
static void what_is_freed_after_the_last_step_had_leaked(void **state)
{
	struct play *p = *state;
	uint64_t found[8], range;

	pass(p, 1);
	range = step_begin(p, 0);
	take(p, PTA, 0x1000, 8);
	take(p, PTA, 0x2000, 8);
	step_end(p, 0, range);
	range = step_begin(p, 0);
	take(p, PTA, 0x3000, 8);
	step_end(p, 0, range);
	give(p, PTA, 0x3000);
	give(p, PTA, 0x2000);
	give(p, PTA, 0x1000);
	maker_undo(&p->w[0], p->now++, PTA, 0x1000); /* it is alive after all */
	play(p, SESSION_LEAKS);
	assert_int_equal(leaked(p, found), 3);
	assert_int_equal(found[0], 0x1000);
	assert_int_equal(found[1], 0x2000);
	assert_non_null(strstr(told(p), "\n2 of them were freed only after the last step"));
}

static void an_inner_range_ends_no_step(void **state)
{
	struct play *p = *state;
	uint64_t found[8], range;

	pass(p, 1);
	range = step_begin(p, 0);
	MAKER_EVENT(&p->w[0], p->now++, PTA, mark, .kind = 2, .range = 77);
	take(p, PTA, 0x1000, 8);
	MAKER_EVENT(&p->w[0], p->now++, PTA, mark, .kind = 3, .range = 77);
	(void)range; /* never ends: the program dies inside it */
	play(p, SESSION_LEAKS);
	assert_int_equal(leaked(p, found), 0);
	assert_non_null(
		strstr(told(p), "Leaks are not judged: no step after the first has ended."));
}

static void all_memory_is_judged_but_a_pools_cache(void **state)
{
	struct play *p = *state;
	uint64_t found[8], range;

	pass(p, 1);
	range = step_begin(p, 0);
	take(p, HAL, 0x1000, 0x2000);
	take(p, PTA, 0x1100, 8); /* inside the driver's block, which is the pool's cache */
	take(p, MINDSPORE, 0x2000, 8);
	take(p, ATB, 0x3000, 8);
	take(p, HOST, 0x4000, 8);
	take(p, WORKSPACE, 0x5000, 8);
	take(p, PINNED, 0x6000, 8);
	take(p, HAL, 0x7000, 8); /* beside the pools */
	take(p, HAL_9, 0x8000, 8);
	step_end(p, 0, range);
	play(p, SESSION_LEAKS);
	assert_int_equal(leaked(p, found), 8);
	assert_non_null(strstr(told(p), "Direct Hal memory leak of 0.000008 Mb(s) at 0x8000 in "
					"kernel_0 at step 2.\n"));
	assert_non_null(strstr(told(p), "Direct Hal memory leak of 0.000008 Mb(s) at 0x7000 in "));
	assert_non_null(strstr(told(p), "Direct Pytorch workspace memory pool leak of "));
	assert_non_null(strstr(told(p), "Direct Pinned host memory leak of "));
	assert_non_null(strstr(told(p), "Suspected memory leaks on device cpu ======\n"));
	assert_null(strstr(told(p), "at 0x1000 in"));
	assert_non_null(strstr(
		told(p), "Not judged: 1 block, 8.0 KiB of the driver (HAL) on NPU 0; a framework's "
			 "pool took it, and the pool is judged.\n"));
}

/* Windows of the API, deferred mode: only what a window shows is judged, with all frees. */
static void only_what_windows_show_is_judged(void **state)
{
	struct play *p = *state;
	uint64_t found[8], range;

	p->maker.header->first_state = RECORDING_SHADOW;
	take(p, PTA, 0x1000, 8);
	MAKER_EVENT(&p->w[0], p->now++, 0, state, .state = RECORDING_ON);
	pass(p, 1);
	range = step_begin(p, 0);
	take(p, PTA, 0x2000, 8);
	take(p, PTA, 0x3000, 8);
	step_end(p, 0, range);
	MAKER_EVENT(&p->w[0], p->now++, 0, state, .state = RECORDING_SHADOW);
	give(p, PTA, 0x2000);
	take(p, PTA, 0x4000, 8);
	MAKER_EVENT(&p->w[0], p->now++, 0, state, .state = RECORDING_ON);
	pass(p, 1);
	play(p, SESSION_LEAKS);
	assert_int_equal(leaked(p, found), 1);
	assert_int_equal(found[0], 0x3000);
}

static void a_leak_knows_how_many_kernels_came_before_it(void **state)
{
	struct play *p = *state;
	uint64_t range;
	uint32_t i;

	pass(p, 1);
	for (i = 1; i <= 3; i++)
		MAKER_EVENT(&p->w[1], p->now++, PTA, kernel_launch, .task = i);
	range = step_begin(p, 0);
	take(p, PTA, 0x1000, 1 << 20);
	step_end(p, 0, range);
	MAKER_EVENT(&p->w[1], p->now++, PTA, kernel_launch, .task = 4);
	play(p, SESSION_LEAKS);
	assert_non_null(strstr(
		told(p), "====== WARNING: Suspected memory leaks on device 0 ======\n"
			 "suspect: PTA blocks of 1.0 MiB on NPU 0  grew in 1 of 1 steps, 1 "
			 "block, 1.0 MiB. Too short to tell a leak from a cache that fills: run "
			 "10 steps or more.\n"
			 "Direct Pytorch Caching memory pool leak of 1.000000 Mb(s) at "
			 "0x1000 in kernel_3 at step 2.\n"
			 "====== SUMMARY: 1 Mb(s) may have leaked in 1 allocation(s) ======\n"));
}

static void a_program_without_steps_hears_how_to_mark_them(void **state)
{
	struct play *p = *state;

	take(p, PTA, 0x1000, 8);
	play(p, SESSION_LEAKS);
	assert_memory_equal(
		told(p),
		"Leaks are not judged: no step was marked, and what was recorded is too "
		"short to be judged by time. msmemscope.step() or a range named "
		"\"step start\"",
		146);
}

static void without_analyses_nothing_is_told(void **state)
{
	struct play *p = *state;

	pass(p, 1);
	(void)step_begin(p, 0);
	take(p, PTA, 0x1000, 8);
	pass(p, 2);
	play(p, 0);
	assert_string_equal(told(p), "");
}

static void what_each_step_leaves_to_the_next_is_no_leak(void **state)
{
	struct play *p = *state;
	uint64_t found[8], range, i;

	for (i = 1; i <= 8; i++) {
		range = step_begin(p, 0);
		if (i > 1)
			give(p, PTA, 0x1000 * (i - 1));
		take(p, PTA, 0x1000 * i, 512);
		if (i == 8)
			take(p, PTA, 0x9000, 1024); /* which no step before has done */
		step_end(p, 0, range);
	}
	play(p, SESSION_LEAKS);
	assert_int_equal(leaked(p, found), 1);
	assert_int_equal(found[0], 0x9000);
	assert_non_null(strstr(told(p),
			       "kept: PTA blocks of 512 B on NPU 0  1 block, 512 B, and does "
			       "not grow after the first step.\n"));
}

/* ---- fluctuation ---- */

static void fluctuation_is_least_over_most_use_inside_a_step(void **state)
{
	struct play *p = *state;
	uint64_t range;

	range = step_begin(p, 0);
	take(p, PTA, 0x1000, 1); /* the first step counts for nothing */
	take(p, PTA, 0x2000, 1535);
	step_end(p, 0, range);
	take(p, PTA, 0x9000, 1 << 20); /* nor does what is between steps */
	give(p, PTA, 0x9000);
	range = step_begin(p, 0);
	take(p, PTA, 0x3000, 1024); /* 2560 */
	give(p, PTA, 0x3000);	    /* 1536 */
	step_end(p, 0, range);
	range = step_begin(p, 0);
	take(p, PTA, 0x4000, 1024); /* 2560 */
	take(p, PTA, 0x5000, 1024); /* 3584 */
	step_end(p, 0, range);
	range = step_begin(p, 0);
	give(p, PTA, 0x4000); /* 2560 */
	step_end(p, 0, range);
	(void)step_begin(p, 0);
	give(p, PTA, 0x5000); /* it has not ended */
	play(p, SESSION_LEAKS);
	/* Each row would cost more than the analysis itself. */
	assert_int_equal(p->analyses.observer.rows & (1u << ROW_MALLOC | 1u << ROW_FREE), 0);
	assert_non_null(strstr(
		told(p), "======= Pytorch Caching memory pool Gap Analysis of Device 0 =======\n"
			 "\tMinAlloc/MaxAlloc(%)     MinAllocMem(MB)          StepId\n"
			 "MinGap\t60.0000                  0.0015                   2\n"
			 "MaxGap\t100.0000                 0.0024                   4\n"));
}

/* A row shows what was taken outside of windows when one begins; the step that begins with it knows that level. */
static void what_a_window_shows_when_it_begins_is_in_use(void **state)
{
	struct play *p = *state;

	MAKER_EVENT(&p->w[0], p->now++, 0, step, .number = 1);
	MAKER_EVENT(&p->w[0], p->now++, 0, state, .state = RECORDING_SHADOW);
	take(p, PTA, 0x1000, 4096);
	take(p, PTA, 0x2000, 1024);
	give(p, PTA, 0x1000);
	MAKER_EVENT(&p->w[0], p->now++, 0, state, .state = RECORDING_ON); /* 1024 */
	take(p, PTA, 0x3000, 3072);					  /* 4096 */
	MAKER_EVENT(&p->w[0], p->now++, 0, step, .number = 2);
	play(p, SESSION_LEAKS);
	assert_non_null(strstr(told(p), "MinGap\t25.0000                  0.0010"));
}

static void each_device_and_pool_fluctuates_by_itself(void **state)
{
	struct play *p = *state;
	uint64_t range;

	pass(p, 1);
	range = step_begin(p, 0);
	take(p, PTA_1, 0x1000, 300);
	take(p, PTA, 0x2000, 100);
	take(p, PTA, 0x3000, 300);
	take(p, HAL, 0x4000, 300); /* no pool */
	step_end(p, 0, range);
	play(p, SESSION_LEAKS);
	assert_non_null(strstr(told(p), "of Device 0 =======\n\tMinAlloc/MaxAlloc(%)     "
					"MinAllocMem(MB)          StepId\nMinGap\t25.0000 "));
	assert_non_null(strstr(told(p), "of Device 1 =======\n\tMinAlloc/MaxAlloc(%)     "
					"MinAllocMem(MB)          StepId\nMinGap\t100.0000 "));
	assert_null(strstr(told(p), "Hal memory Gap"));
}

static void steps_of_two_threads_that_overlap_are_two_steps(void **state)
{
	struct play *p = *state;
	uint64_t a, b, found[8];

	pass(p, 1);
	a = step_begin(p, 0);
	take(p, PTA, 0x1000, 100);
	b = step_begin(p, 1);
	take(p, PTA, 0x2000, 300);
	step_end(p, 0, a);
	take(p, PTA, 0x3000, 400);
	step_end(p, 1, b);
	play(p, SESSION_LEAKS);
	assert_int_equal(leaked(p, found), 3);
	assert_non_null(strstr(told(p),
			       "MinGap\t25.0000                  0.0001                   2\n"
			       "MaxGap\t50.0000                  0.0004                   3\n"));
}

/* ---- kept ---- */

static void what_stays_and_does_not_grow_is_kept(void **state)
{
	struct play *p = *state;
	uint64_t range, i;

	take(p, PTA, 0x1000, 1 << 20);
	for (i = 1; i <= 12; i++) {
		range = step_begin(p, 0);
		if (i == 1)
			take(p, PTA, 0x2000, 2 << 20);
		if (i == 3)
			take(p, PTA, 0x3000, 3 << 20);
		take(p, PTA, 0x10000 * i, 512); /* grows */
		step_end(p, 0, range);
	}
	play(p, SESSION_LEAKS);
	assert_non_null(strstr(
		told(p),
		"kept: PTA blocks of 3.0 MiB on NPU 0  1 block, 3.0 MiB, made in step 3; "
		"nothing in "
		"the 9 steps since (if it grows again, then by less than 341 KiB per step).\n"
		"  3.0 MiB at 0x3000 in kernel_0 at step 3\n"
		"kept: PTA blocks of 2.0 MiB on NPU 0  1 block, 2.0 MiB, and does not grow "
		"after the "
		"first step.\n"
		"  2.0 MiB at 0x2000 in kernel_0 at step 1\n"
		"kept: PTA blocks of 1.0 MiB on NPU 0  1 block, 1.0 MiB, and does not grow "
		"after the "
		"first step.\n"
		"  1.0 MiB at 0x1000 in kernel_0 at step 0\n"));
	assert_non_null(strstr(
		told(p),
		"====== ERROR: Detected memory leaks on device 0 ======\n"
		"leak: PTA blocks of 512 B on NPU 0  about 512.0 B per step (460.8 to 563.2), "
		"11 blocks, 5.5 KiB since step 2. Nothing of it was freed.\n"
		"Direct Pytorch Caching memory pool leak of 0.000488 Mb(s) at 0x20000 in "));
	assert_non_null(strstr(told(p), "The PyTorch pool (PTA) on NPU 0: about +"));
}

/* ---- owners ---- */

static void label(struct play *p, int writer, enum label_kind kind, const char *name,
		  uint64_t address)
{
	uint32_t id = text(p, writer, name);

	MAKER_EVENT(&p->w[writer], p->now++, 0, label, .kind = kind, .text = id,
		    .address = address);
}

static void frameworks_and_components_are_named(void **state)
{
	struct play *p = *state;
	static const uint32_t modules[] = {0, 7, 75, 76, MODULE_UNKNOWN};
	uint32_t i;

	take(p, PTA, 0x1000, 1);
	take(p, WORKSPACE, 0x1000, 1);
	take(p, ATB, 0x1000, 1);
	take(p, MINDSPORE, 0x1000, 1);
	take(p, HAL, 0x1000, 1);
	take(p, PINNED, 0x2000, 1);
	for (i = 0; i < MSCOPE_COUNT(modules); i++) {
		MAKER_EVENT(&p->w[0], p->now++, 0, context_def, .id = 20 + i, .pool = POOL_hal,
			    .vendor = VENDOR_ASCEND, .module = modules[i]);
		take(p, 20 + i, 0x3000 + i, 1);
	}
	MAKER_EVENT(&p->w[0], p->now++, 0, context_def, .id = 30, .pool = POOL_hal,
		    .vendor = VENDOR_CUDA, .module = MODULE_UNKNOWN);
	take(p, 30, 0x4000, 1);
	play(p, SESSION_DECOMPOSE);
	assert_string_equal(p->owners[1], "PTA");
	assert_string_equal(p->owners[2], "PTA_WORKSPACE");
	assert_string_equal(p->owners[3], "ATB");
	assert_string_equal(p->owners[4], "MINDSPORE");
	assert_string_equal(p->owners[5], "CANN@APP");
	assert_string_equal(p->owners[6], "-");
	assert_string_equal(p->owners[7], "CANN@SLOG");
	assert_string_equal(p->owners[8], "CANN@RUNTIME");
	assert_string_equal(p->owners[9], "CANN@INVLID_MOUDLE_ID");
	assert_string_equal(p->owners[10], "CANN@UNKNOWN");
	assert_string_equal(p->owners[11], "CANN@UNKNOWN");
	assert_string_equal(p->owners[12], "CUDA");
}

static void who_does_not_ask_for_owners_gets_none(void **state)
{
	struct play *p = *state;

	take(p, PTA, 0x1000, 1);
	label(p, 0, LABEL_MODEL, "model@weight", 0x1000);
	play(p, SESSION_LEAKS);
	assert_string_equal(p->owners[1], "-");
	assert_false(p->facts.changed);
}

static void blocks_of_an_aten_operator_are_its_own(void **state)
{
	struct play *p = *state;
	uint32_t name = text(p, 0, "aten.mul");

	take(p, PTA, 0x1000, 1);
	MAKER_EVENT(&p->w[0], p->now++, PTA, operation, .name = name, .kind = OPERATION_BEGINS,
		    .layer = LAYER_ATEN);
	take(p, PTA, 0x2000, 1);
	take(p, HAL, 0x3000, 1);
	maker_alloc(&p->w[1], p->now++, PTA, 0x4000, 1, 0); /* of another thread */
	take(p, PTA, 0x5000, 1);
	MAKER_EVENT(&p->w[0], p->now++, PTA, operation, .name = name, .kind = OPERATION_ENDED,
		    .layer = LAYER_ATEN);
	take(p, PTA, 0x6000, 1);
	label(p, 0, LABEL_MODEL, "model@gradient", 0x5000); /* another class takes its place */
	play(p, SESSION_DECOMPOSE);
	assert_string_equal(p->owners[1], "PTA");
	assert_string_equal(p->owners[2], "PTA@ops@aten");
	assert_string_equal(p->owners[3], "CANN@APP");
	assert_string_equal(p->owners[4], "PTA");
	assert_string_equal(p->owners[6], "PTA");
	assert_true(p->facts.changed);
}

/* One block for each pair of labels: what comes second counts only if its class allows it. */
static void a_class_gives_way_to_higher_ones_only(void **state)
{
	static const struct {
		const char *first, *second, *wanted;
	} cases[] = {
		{"model@temporary@forward", "model@activation", "PTA@model@activation"},
		{"model@activation", "model@temporary@forward", "PTA@model@activation"},
		{"model@input", "model@activation", "PTA@model@input"},
		{"model@activation", "model@input", "PTA@model@activation"},
		{"model@weight", "model@gradient", "PTA@model@weight"},
		{"model@gradient", "model@weight", "PTA@model@weight"},
		{"model@buffer@a", "model@buffer@b.a", "PTA@model@buffer@b.a"},
		{"model@activation", "model@kv_cache@k", "PTA@model@kv_cache@k"},
		{"model@bufferless", "model@temporary", "PTA@model@temporary"}, /* not a class */
		{"model@saved", "model@temporary", "PTA@model@input"},
		{"model@temporary@forward", "model@saved", "PTA@model@activation"},
		{"model@weight", "model@saved", "PTA@model@weight"},
	};
	struct play *p = *state;
	struct replay *first;
	struct facts facts;
	struct run *run;
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(cases); i++) {
		take(p, PTA, 0x1000 * (i + 1), 16);
		label(p, 0, LABEL_MODEL, cases[i].first, 0x1000 * (i + 1));
		label(p, 0, LABEL_MODEL, cases[i].second, 0x1000 * (i + 1));
	}
	play(p, SESSION_DECOMPOSE);
	analyses_fini(&p->analyses);
	facts = p->facts;
	first = p->replay;
	run = p->run;
	play_again(p, SESSION_DECOMPOSE, &facts);
	for (i = 0; i < MSCOPE_COUNT(cases); i++)
		assert_string_equal(p->owners[i + 1], cases[i].wanted);
	replay_free(first);
	run_close(run);
}

static void what_a_thread_allocates_has_the_class_that_it_entered(void **state)
{
	struct play *p = *state;

	label(p, 0, LABEL_CLASS_PUSH, "model@temporary@forward", 0);
	take(p, PTA, 0x1000, 1);
	take(p, HAL, 0x2000, 1);			    /* no memory of tensors */
	maker_alloc(&p->w[1], p->now++, PTA, 0x3000, 1, 0); /* of another thread */
	label(p, 0, LABEL_PUSH, "mine", 0);
	label(p, 0, LABEL_CLASS_PUSH, "model@temporary@optimizer", 0); /* never left */
	take(p, PTA, 0x4000, 1);
	label(p, 0, LABEL_CLASS_POP, "model@temporary@forward", 0);
	take(p, PTA, 0x5000, 1);
	label(p, 0, LABEL_CLASS_POP, "model@temporary@forward", 0);
	play(p, SESSION_DECOMPOSE);
	assert_string_equal(p->owners[1], "PTA@model@temporary@forward");
	assert_string_equal(p->owners[2], "CANN@APP");
	assert_string_equal(p->owners[3], "PTA");
	assert_string_equal(p->owners[4], "PTA@model@temporary@optimizer@mine");
	assert_string_equal(p->owners[5], "PTA@mine");
}

/* Steps, labels before and after their blocks, operators that are in progress, a window, and a request that is refused. */
static void play_all_sorts(struct play *p)
{
	uint64_t address = 0x10000, range;
	int i;

	take(p, PTA, 0x1000, 640);
	label(p, 0, LABEL_MODEL, "model@weight", 0x1000);
	for (i = 0; i < 12; i++, address += 0x1000) {
		range = step_begin(p, 0);
		MAKER_EVENT(&p->w[0], p->now++, PTA, operation, .name = STEP,
			    .kind = OPERATION_BEGINS);
		label(p, 0, LABEL_PUSH, i % 3 == 0 ? "one" : "two", 0);
		take(p, PTA, address, 64);
		take(p, HAL, 0x900000, 4096);
		label(p, 0, LABEL_POP, i % 3 == 0 ? "one" : "two", 0);
		take(p, PTA, 0x2000, 1000u + (uint64_t)i);
		if (i > 2)
			label(p, 0, LABEL_MODEL, "model@gradient", address);
		give(p, PTA, 0x2000);
		give(p, HAL, 0x900000);
		if (i == 6)
			MAKER_EVENT(&p->w[0], p->now++, PTA, oom, .requested_bytes = 1 << 20,
				    .free_bytes = 1, .total_bytes = 1 << 20);
		if (i % 2 == 0)
			MAKER_EVENT(&p->w[0], p->now++, PTA, operation, .name = STEP,
				    .kind = OPERATION_ENDED);
		step_end(p, 0, range);
	}
}

static void asking_at_every_event_changes_no_answer(void **state)
{
	uint32_t bits = SESSION_LEAKS | SESSION_DECOMPOSE | SESSION_INEFFICIENT | SESSION_OOM |
			SESSION_LAUNCHES | SESSION_MARKS | SESSION_TIMELINE;
	struct play *p = *state;
	void *other = NULL;

	play_all_sorts(p);
	p->splits_steps = true;
	play(p, bits);
	assert_int_equal(begin(&other), 0);
	((struct play *)other)->splits_steps = true;
	((struct play *)other)->asks = true;
	play_all_sorts(other);
	play(other, bits);
	assert_non_null(strstr(told(p), "by owner"));
	assert_non_null(strstr(told(p), "out of memory    step 3 most"));
	assert_string_equal(told(other), told(p));
	assert_int_equal(end(&other), 0);
}

static void a_step_has_nothing_of_a_pool_that_comes_later(void **state)
{
	struct play *p = *state;
	uint64_t third;

	pass(p, 2);
	third = step_begin(p, 0);
	take(p, PTA, 0x1000, 1 << 10);
	step_end(p, 0, third);
	take(p, HAL_9, 0x9000, 2 << 10);
	p->splits_steps = true;
	play(p, SESSION_DECOMPOSE);
	assert_string_equal(strstr(told(p), "HAL memory"),
			    "HAL memory of device 9 by owner\n"
			    "   at its peak   at the end    step 3 most     step 3 end\n"
			    "       2.0 KiB      2.0 KiB            0 B            0 B  CANN@APP\n"
			    "       2.0 KiB      2.0 KiB            0 B            0 B  total\n");
}

/* Without decompose rows name the owner of what the user has labelled, and of nothing else. */
static void labels_of_the_user_need_no_analysis(void **state)
{
	struct play *p = *state;

	take(p, PTA, 0x1000, 1);
	label(p, 0, LABEL_CLASS_PUSH, "model@temporary@forward", 0);
	label(p, 0, LABEL_MODEL, "model@weight", 0x1000);
	label(p, 0, LABEL_PUSH, "mine", 0);
	take(p, PTA, 0x2000, 1);
	maker_alloc(&p->w[1], p->now++, PTA, 0x3000, 1, 0);
	label(p, 0, LABEL_POP, "mine", 0);
	take(p, PTA, 0x4000, 1);
	play(p, SESSION_LEAKS);
	assert_string_equal(p->owners[1], "-");
	assert_string_equal(p->owners[2], "PTA@mine");
	assert_string_equal(p->owners[3], "-");
	assert_string_equal(p->owners[4], "-");
	assert_null(strstr(told(p), "by owner"));
}

static void labels_of_a_thread_stand_in_order_of_entry(void **state)
{
	struct play *p = *state;

	label(p, 0, LABEL_PUSH, "one", 0);
	label(p, 0, LABEL_PUSH, "two", 0);
	label(p, 0, LABEL_PUSH, "one", 0); /* again, inside: counts once */
	take(p, PTA, 0x1000, 1);
	label(p, 0, LABEL_PUSH, "three", 0);
	label(p, 0, LABEL_PUSH, "four", 0);
	take(p, PTA, 0x2000, 1);
	maker_alloc(&p->w[1], p->now++, PTA, 0x3000, 1, 0);
	label(p, 0, LABEL_POP, "one", 0);
	take(p, PTA, 0x4000, 1);
	label(p, 0, LABEL_POP, "two", 0);
	label(p, 0, LABEL_POP, "one", 0);
	label(p, 0, LABEL_POP, "never", 0);
	take(p, HAL, 0x5000, 1);
	label(p, 0, LABEL_POP, "four", 0);
	label(p, 0, LABEL_POP, "three", 0);
	take(p, PTA, 0x6000, 1);
	play(p, SESSION_DECOMPOSE);
	assert_string_equal(p->owners[1], "PTA@one@two");
	assert_string_equal(p->owners[2], "PTA@one@two@three@four");
	assert_string_equal(p->owners[3], "PTA");
	assert_string_equal(p->owners[4], "PTA@one@two@three@four");
	assert_string_equal(p->owners[5], "CANN@APP@three@four");
	assert_string_equal(p->owners[6], "PTA");
	assert_false(p->facts.changed);
}

static void late_labels_reach_rows_by_a_second_pass(void **state)
{
	struct play *p = *state;
	struct facts facts;
	struct replay *first;
	struct run *run;

	label(p, 0, LABEL_PUSH, "loop", 0);
	label(p, 0, LABEL_PUSH, "inner", 0);
	take(p, PTA, 0x1000, 256);
	take(p, PTA, 0x2000, 256);
	take(p, PTA, 0x3000, 256);
	take(p, HAL, 0x0, 1 << 20);
	label(p, 0, LABEL_MODEL, "model@gradient", 0x1000);
	label(p, 0, LABEL_MODEL, "model@weight", 0x1080); /* a byte inside; the later one counts */
	label(p, 0, LABEL_TENSOR, "mine", 0x2000);
	label(p, 0, LABEL_TENSOR, "a\"b\n", 0x30ff);
	label(p, 0, LABEL_TENSOR, "nobody's", 0x8000000);
	give(p, PTA, 0x1000);
	label(p, 0, LABEL_MODEL, "model@activation", 0x1000); /* now inside the driver's block */
	play(p, SESSION_DECOMPOSE);
	assert_string_equal(p->owners[1], "PTA@loop@inner");
	assert_true(p->facts.changed);
	/* The first pass stays open while the second one reads, as in the engine. */
	analyses_fini(&p->analyses);
	facts = p->facts;
	first = p->replay;
	run = p->run;
	play_again(p, SESSION_DECOMPOSE, &facts);
	assert_string_equal(p->owners[1], "PTA@model@weight@loop@inner");
	assert_string_equal(p->owners[2], "PTA@mine@inner");
	assert_string_equal(p->owners[3], "PTA@a\"b\\x0a@inner");
	assert_string_equal(p->owners[4], "CANN@APP@model@activation@loop@inner");
	replay_free(first);
	run_close(run);
}

static void a_thread_that_ended_takes_its_labels_along(void **state)
{
	struct play *p = *state;

	label(p, 1, LABEL_PUSH, "gone", 0);
	maker_thread(&p->w[1], p->now++, 99);
	maker_thread(&p->w[1], p->now++, 71); /* the number is given again */
	maker_alloc(&p->w[1], p->now++, PTA, 0x1000, 1, 0);
	play(p, SESSION_DECOMPOSE);
	assert_string_equal(p->owners[1], "PTA");
}

static void shares_of_owners_are_the_total_at_the_peak_and_at_the_end(void **state)
{
	struct play *p = *state;

	take(p, PTA, 0x1000, 4096);
	label(p, 0, LABEL_PUSH, "batch", 0);
	take(p, PTA, 0x3000, 1024);
	label(p, 0, LABEL_POP, "batch", 0);
	take(p, PTA, 0x4000, 512); /* 5632: the peak */
	give(p, PTA, 0x3000);
	take(p, PTA, 0x5000, 100);
	label(p, 0, LABEL_MODEL, "model@weight", 0x1000); /* after the peak, and part of it */
	label(p, 0, LABEL_MODEL, "model@weight", 0x5000); /* no part of it */
	give(p, PTA, 0x4000);
	take(p, PTA_1, 0x7000, 2048);
	play(p, SESSION_DECOMPOSE);
	assert_non_null(strstr(told(p), "PTA memory of device 0 by owner\n"
					"   at its peak   at the end\n"
					"       4.0 KiB      4.1 KiB  PTA@model@weight\n"
					"       1.0 KiB          0 B  PTA@batch\n"
					"         512 B          0 B  PTA itself\n"
					"       5.5 KiB      4.1 KiB  total\n"
					"PTA memory of device 1 by owner\n"
					"   at its peak   at the end\n"
					"       2.0 KiB      2.0 KiB  PTA\n"
					"       2.0 KiB      2.0 KiB  total\n"));
}

/* What a module makes is its own, tensors have their names, and owners are shown as without layers. */
static void layers_of_a_model_have_what_is_theirs_at_the_peak(void **state)
{
	struct play *p = *state;

	take(p, PTA, 0x1000, 4096);
	label(p, 0, LABEL_MODEL, "model@weight", 0x1000);
	label(p, 0, LABEL_CLASS_PUSH, "model@temporary@forward", 0);
	label(p, 0, LABEL_LAYER_PUSH, "Net@", 0);
	take(p, PTA, 0x3000, 1024);
	label(p, 0, LABEL_LAYER_PUSH, "Net@up", 0);
	take(p, PTA, 0x4000, 2048);
	maker_alloc(&p->w[1], p->now++, PTA, 0x7000, 10, 0); /* of another thread */
	label(p, 0, LABEL_LAYER_POP, "Net@", 0);	     /* leaves both */
	label(p, 0, LABEL_CLASS_POP, "model@temporary@forward", 0);
	take(p, PTA, 0x5000, 512); /* 7690: the peak */
	give(p, PTA, 0x4000);
	label(p, 0, LABEL_MODEL, "model@gradient", 0x5000);
	label(p, 0, LABEL_LAYER, "Net@up@weight", 0x5000); /* both after the peak */
	label(p, 0, LABEL_LAYER, "Net@up@weight@down.weight", 0x1000);
	give(p, PTA, 0x5000);
	play(p, SESSION_DECOMPOSE);
	assert_string_equal(p->owners[1], "PTA");
	assert_string_equal(p->owners[3], "PTA@model@temporary@forward");
	assert_non_null(strstr(
		told(p),
		"       4.0 KiB      4.0 KiB    PTA@model@weight\n"
		"       3.0 KiB      1.0 KiB    PTA@model@temporary@forward\n"
		"         512 B          0 B    PTA@model@gradient\n"
		"          10 B         10 B  PTA itself\n"
		"       7.5 KiB      5.0 KiB  total\n"
		"Layers in the PyTorch pool (PTA) on NPU 0, at its peak\n"
		"       total     weight   gradient  optimizer activation      other  layer\n"
		"     6.5 KiB    4.0 KiB      512 B          -          -    2.0 KiB  up (weight "
		"is "
		"down.weight too)\n"
		"     1.0 KiB          -          -          -          -    1.0 KiB  Net\n"
		"        10 B          -          -          -          -       10 B  of no "
		"layer\n"));
}

/* config(analysis=...) while the program runs. */
static void the_program_may_choose_analyses_later(void **state)
{
	struct play *p = *state;

	take(p, PTA, 0x1000, 4096);
	take(p, PTA, 0x3000, 4096);
	give(p, PTA, 0x3000);
	MAKER_EVENT(&p->w[0], p->now++, 0, settings, .analysis = SESSION_DECOMPOSE,
		    .events = SESSION_ALLOC | SESSION_FREE);
	label(p, 0, LABEL_MODEL, "model@weight", 0x1000);
	take(p, PTA, 0x4000, 512);
	give(p, PTA, 0x4000);
	play(p, SESSION_LEAKS);
	assert_string_equal(p->owners[2], "-");
	assert_string_equal(p->owners[3], "PTA");
	assert_non_null(strstr(told(p), "PTA memory of device 0 by owner\n"
					"   at its peak   at the end\n"
					"       4.0 KiB      4.0 KiB  PTA@model@weight\n"
					"         512 B          0 B  PTA itself\n"
					"       4.5 KiB      4.0 KiB  total\n"));
}

static void owner_stands_in_attr_behind_the_figures(void **state)
{
	struct play *p = *state;
	struct block block = {.address = 0x10, .size_bytes = 5, .allocation_id = 3};
	struct context context = {.pool = POOL_hal, .page = PAGE_HUGE};
	struct row row = {.kind = ROW_MALLOC,
			  .block = &block,
			  .context = &context,
			  .owner = "CANN@APP@say \"x\"",
			  .used_bytes = 5,
			  .reserved_bytes = UINT64_MAX,
			  .process_bytes = UINT64_MAX,
			  .device_bytes = UINT64_MAX};

	attr_add(&p->out, ATTR_CSV, &row);
	assert_string_equal(strbuf_str(&p->out),
			    "{allocation_id:3,addr:0x0000000000000010,size:5,used:5,owner:CANN@APP@"
			    "say \"\"x\"\",page_type:huge,alloc_type:alloc}");
	strbuf_reset(&p->out);
	attr_add(&p->out, ATTR_JSON, &row);
	assert_non_null(
		strstr(strbuf_str(&p->out), "\"owner\":\"CANN@APP@say \\\"x\\\"\",\"page_"));
}

/* ---- inefficient memory ---- */

static void operation(struct play *p, uint32_t name, enum operation_kind kind)
{
	MAKER_EVENT(&p->w[0], p->now++, PTA, operation, .name = name, .kind = kind,
		    .layer = LAYER_ATEN);
}

static void use(struct play *p, uint64_t address)
{
	MAKER_EVENT(&p->w[0], p->now++, PTA, access, .address = address, .kind = ACCESS_READ,
		    .layer = LAYER_ATEN);
}

static void window(struct play *p, enum recording state)
{
	MAKER_EVENT(&p->w[0], p->now++, 0, state, .state = state);
}

static uint16_t inefficiency(const struct play *p, uint64_t allocation_id)
{
	return facts_get(&p->facts, allocation_id).inefficient;
}

static void memory_that_waits_for_its_use_is_told(void **state)
{
	struct play *p = *state;

	take(p, PTA, 0x1000, 1); /* too early: 0x2000 is freed before it is used */
	take(p, PTA, 0x2000, 1);
	use(p, 0x2000);
	give(p, PTA, 0x2000);
	use(p, 0x1000);
	take(p, PTA, 0x3000, 1); /* before 0x1000 is freed, too late */
	use(p, 0x3000);
	give(p, PTA, 0x1000);
	play(p, SESSION_INEFFICIENT);
	assert_int_equal(inefficiency(p, 1), INEFFICIENT_EARLY | INEFFICIENT_LATE);
	assert_int_equal(inefficiency(p, 2), 0);
	assert_int_equal(inefficiency(p, 3), 0);
}

static void a_block_that_its_own_operator_uses_is_not_early(void **state)
{
	struct play *p = *state;
	uint32_t name = text(p, 0, "aten.mul");

	take(p, PTA, 0x2000, 1);
	operation(p, name, OPERATION_BEGINS);
	take(p, PTA, 0x1000, 1);
	use(p, 0x1000); /* as operators use what they return */
	operation(p, name, OPERATION_ENDED);
	give(p, PTA, 0x2000);
	use(p, 0x1000);
	play(p, SESSION_INEFFICIENT);
	assert_int_equal(inefficiency(p, 1), 0);
	assert_int_equal(inefficiency(p, 2), 0);
	assert_non_null(strstr(told(p), "Inefficient memory: none found.\n"));
}

static void inefficient_memory_has_a_price(void **state)
{
	struct play *p = *state;

	take(p, PTA, 0x1000, 100 << 10); /* needed at the end */
	take(p, PTA, 0x100000, 300 << 10);
	use(p, 0x100000);
	take(p, PTA, 0x200000, 50 << 10); /* with it the peak */
	use(p, 0x200000);
	give(p, PTA, 0x200000);
	give(p, PTA, 0x100000); /* too late, but that was not the peak's fault alone */
	use(p, 0x1000);
	play(p, SESSION_INEFFICIENT);
	assert_string_equal(strstr(told(p), "Inefficient"),
			    "Inefficient memory: PTA on device 0 peaks at 450 KiB; with all of it "
			    "mended at 300 KiB, 33 % less\n"
			    "  100 KiB less: blocks of 64.0 KiB or more\n"
			    "    1 block allocated too early: allocate at the first use\n"
			    "    100 KiB in 1 block, first is allocation_id 1\n"
			    "  50.0 KiB less: blocks of 256 KiB or more\n"
			    "    1 block freed too late: free after the last use\n"
			    "    300 KiB in 1 block, first is allocation_id 2\n");
}

/* What a pool had is forgotten where nobody asks for it any more. */
static void a_long_run_has_the_same_price(void **state)
{
	struct play *p = *state;

	for (int turn = 0; turn < 2; turn++) {
		for (uint64_t i = 0; i < 6000; i++) {
			take(p, PTA, 0x10000000 + i * 64, 16);
			use(p, 0x10000000 + i * 64);
		}
		for (uint64_t i = 0; i < 6000; i++) {
			use(p, 0x10000000 + i * 64);
			give(p, PTA, 0x10000000 + i * 64);
		}
		if (turn == 0)
			take(p, PTA, 0x1000, 100 << 10); /* needed at the end */
	}
	take(p, PTA, 0x100000, 300 << 10); /* the peak */
	use(p, 0x100000);
	give(p, PTA, 0x100000);
	use(p, 0x1000);
	play(p, SESSION_INEFFICIENT);
	assert_string_equal(
		strstr(told(p), "Inefficient"),
		"Inefficient memory: PTA on device 0 peaks at 400 KiB; with all of it "
		"mended at 300 KiB, 25 % less\n"
		"  100 KiB less: blocks of 64.0 KiB or more\n"
		"    1 block allocated too early: allocate at the first use\n"
		"    100 KiB in 1 block, first is allocation_id 6001\n"
		"  no less: blocks of less than 1 KiB\n"
		"    12000 blocks idle for long between two uses: free or offload meanwhile\n"
		"    188 KiB in 12000 blocks, first is allocation_id 1\n");
}

static void an_operator_ends_with_the_window_that_it_is_in(void **state)
{
	struct play *p = *state;
	uint32_t name = text(p, 0, "aten.mul");

	operation(p, name, OPERATION_BEGINS);
	window(p, RECORDING_SHADOW); /* its end is not recorded */
	window(p, RECORDING_ON);
	take(p, PTA, 0x1000, 1);
	take(p, PTA, 0x2000, 1);
	give(p, PTA, 0x2000);
	use(p, 0x1000); /* each at a time of its own, none of them inside the operator */
	play(p, SESSION_INEFFICIENT);
	assert_int_equal(inefficiency(p, 1), INEFFICIENT_EARLY);
}

static void blocks_that_end_outside_of_windows_are_forgotten(void **state)
{
	struct play *p = *state;

	take(p, PTA, 0x1000, 1);
	use(p, 0x1000);
	take(p, PTA, 0x2000, 1);
	window(p, RECORDING_SHADOW);
	give(p, PTA, 0x1000); /* after an allocation, but nobody knows what came between */
	window(p, RECORDING_ON);
	take(p, PTA, 0x1000, 1);
	take(p, PTA, 0x2000, 1); /* its free was not seen */
	play(p, SESSION_INEFFICIENT);
	assert_int_equal(inefficiency(p, 1), 0);
	assert_int_equal(inefficiency(p, 2), 0);
	assert_false(p->facts.changed);
}

/* Elements 3 * stack and 3 * stack + 1 are of a stack, the others of none; all of a stack have one hash. */
static void elements_are_found_by_stack(void **state)
{
	enum { STACKS = 300 };
	struct by_stack found = {0};
	uint32_t stack, i, element, seen;

	(void)state;
	/* From the last: stacks need not come in order. */
	for (stack = STACKS; stack > 0; stack--) {
		for (i = 0; i < 3; i++)
			assert_int_equal(by_stack_add(&found, i < 2 ? stack : 0,
						      (uint64_t)stack << 20, 3 * stack + i),
					 0);
	}
	assert_int_equal(found.others.count, 2 * STACKS);
	for (stack = 1; stack <= STACKS; stack++) {
		struct by_stack_search search =
			by_stack_search(&found, stack, (uint64_t)stack << 20);

		for (seen = 0; by_stack_next(&found, &search, &element);) {
			if (element / 3 == stack)
				seen |= 1u << element % 3;
		}
		assert_int_equal(seen, 7);
		search = by_stack_search(&found, 0, (uint64_t)stack << 20);
		for (seen = 0; by_stack_next(&found, &search, &element);) {
			if (element / 3 == stack)
				seen |= 1u << element % 3;
		}
		assert_int_equal(seen, 6);
	}
	by_stack_fini(&found);
	assert_int_equal(by_stack_add(&found, 1, 0, UINT32_MAX), -ENOMEM);
}

/* ---- host memory ---- */

static void end_process(struct play *p, uint32_t pid)
{
	MAKER_EVENT(&p->w[0], p->now++, 0, host_process, .pid = pid, .parent = 1,
		    .resident_bytes = 4096, .share_bytes = UINT64_MAX, .state = HOST_PROCESS_ENDED);
}

static void tell_kills(struct play *p, uint64_t kills)
{
	MAKER_EVENT(&p->w[0], p->now++, 0, host_limit, .limit_bytes = UINT64_MAX, .kills = kills,
		    .hits = UINT64_MAX);
}

static void who_ended_between_the_counts_of_kills_is_named(void **state)
{
	struct play *p = *state;
	struct findings found = {0};

	tell_kills(p, 4);
	end_process(p, 100);
	tell_kills(p, 4);
	end_process(p, 200);
	tell_kills(p, 5);
	end_process(p, 300);
	tell_kills(p, 5);
	play(p, 0);
	analyses_judge(&p->analyses, p->replay, 0, &found);
	assert_int_equal(FINDINGS_COUNT(&found, host_kill), 1);
	assert_int_equal(FINDINGS(&found, host_kill)->kills, 1);
	assert_string_equal(FINDINGS(&found, host_kill)->ended, " (pid 200, 4.0 KiB)");
	findings_fini(&found);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(elements_are_found_by_stack),
		cmocka_unit_test_setup_teardown(steps_before_the_second_leak_nothing, begin, end),
		cmocka_unit_test_setup_teardown(
			what_was_found_by_automatic_steps_is_forgotten_when_one_is_marked, begin,
			end),
		cmocka_unit_test_setup_teardown(what_a_later_step_frees_is_no_leak, begin, end),
		cmocka_unit_test_setup_teardown(what_is_freed_after_the_last_step_had_leaked, begin,
						end),
		cmocka_unit_test_setup_teardown(an_inner_range_ends_no_step, begin, end),
		cmocka_unit_test_setup_teardown(all_memory_is_judged_but_a_pools_cache, begin, end),
		cmocka_unit_test_setup_teardown(only_what_windows_show_is_judged, begin, end),
		cmocka_unit_test_setup_teardown(a_leak_knows_how_many_kernels_came_before_it, begin,
						end),
		cmocka_unit_test_setup_teardown(a_program_without_steps_hears_how_to_mark_them,
						begin, end),
		cmocka_unit_test_setup_teardown(without_analyses_nothing_is_told, begin, end),
		cmocka_unit_test_setup_teardown(what_each_step_leaves_to_the_next_is_no_leak, begin,
						end),
		cmocka_unit_test_setup_teardown(fluctuation_is_least_over_most_use_inside_a_step,
						begin, end),
		cmocka_unit_test_setup_teardown(what_a_window_shows_when_it_begins_is_in_use, begin,
						end),
		cmocka_unit_test_setup_teardown(each_device_and_pool_fluctuates_by_itself, begin,
						end),
		cmocka_unit_test_setup_teardown(steps_of_two_threads_that_overlap_are_two_steps,
						begin, end),
		cmocka_unit_test_setup_teardown(what_stays_and_does_not_grow_is_kept, begin, end),
		cmocka_unit_test_setup_teardown(frameworks_and_components_are_named, begin, end),
		cmocka_unit_test_setup_teardown(who_does_not_ask_for_owners_gets_none, begin, end),
		cmocka_unit_test_setup_teardown(blocks_of_an_aten_operator_are_its_own, begin, end),
		cmocka_unit_test_setup_teardown(a_class_gives_way_to_higher_ones_only, begin, end),
		cmocka_unit_test_setup_teardown(
			what_a_thread_allocates_has_the_class_that_it_entered, begin, end),
		cmocka_unit_test_setup_teardown(asking_at_every_event_changes_no_answer, begin,
						end),
		cmocka_unit_test_setup_teardown(a_step_has_nothing_of_a_pool_that_comes_later,
						begin, end),
		cmocka_unit_test_setup_teardown(labels_of_the_user_need_no_analysis, begin, end),
		cmocka_unit_test_setup_teardown(labels_of_a_thread_stand_in_order_of_entry, begin,
						end),
		cmocka_unit_test_setup_teardown(late_labels_reach_rows_by_a_second_pass, begin,
						end),
		cmocka_unit_test_setup_teardown(a_thread_that_ended_takes_its_labels_along, begin,
						end),
		cmocka_unit_test_setup_teardown(
			shares_of_owners_are_the_total_at_the_peak_and_at_the_end, begin, end),
		cmocka_unit_test_setup_teardown(layers_of_a_model_have_what_is_theirs_at_the_peak,
						begin, end),
		cmocka_unit_test_setup_teardown(the_program_may_choose_analyses_later, begin, end),
		cmocka_unit_test_setup_teardown(owner_stands_in_attr_behind_the_figures, begin,
						end),
		cmocka_unit_test_setup_teardown(memory_that_waits_for_its_use_is_told, begin, end),
		cmocka_unit_test_setup_teardown(a_block_that_its_own_operator_uses_is_not_early,
						begin, end),
		cmocka_unit_test_setup_teardown(inefficient_memory_has_a_price, begin, end),
		cmocka_unit_test_setup_teardown(a_long_run_has_the_same_price, begin, end),
		cmocka_unit_test_setup_teardown(an_operator_ends_with_the_window_that_it_is_in,
						begin, end),
		cmocka_unit_test_setup_teardown(who_ended_between_the_counts_of_kills_is_named,
						begin, end),
		cmocka_unit_test_setup_teardown(blocks_that_end_outside_of_windows_are_forgotten,
						begin, end),
	};

	return cmocka_run_group_tests(tests, unit_make_directory, unit_remove_empty_directory);
}
