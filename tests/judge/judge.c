/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How often the analysis of leaks is right. Random programs are made of shapes with known truth (shapes.h), their events go through
 * the real replay and the real analysis, and what is found is compared with the truth.
 *
 *     judge [RUNS [PROGRAMS [SEED]]]
 *
 * RUNS of each shape and length give the table; then so many PROGRAMS of several places, devices, pools and threads are tried. Ends
 * with 1 when a bar of docs/decisions/0015-leaks-by-growth.md is missed.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/trace_maker.h"
#include "analysis/analyses.h"
#include "analysis/leaks.h"
#include "shapes.h"
#include "symbols/elf_cache.h"
#include "trace/session.h"

#define DEVICES		8u
#define WRITERS		4u
#define SPOTS		24u
#define SEGMENT_BYTES	(UINT64_C(64) << 20)
#define STEP_TEXT	1u
#define JITTER_NS	8000000u
#define CHANCE_PROGRAMS 10000u
#define FILLED_STEPS	50u /* a cache that still fills in a run of this length is counted, too */

/* ---- a program ---- */

struct made_block {
	uint64_t address;
	uint64_t bytes;
	uint32_t spot;
	bool freed;
};

/* Where a spot takes its memory from. */
struct source {
	uint8_t pool;
	uint32_t device;
};

static const struct run *a_run;
static struct elf_cache elves;

struct program {
	struct replay *replay;
	struct analyses analyses;
	bool stacks, timed;
	uint64_t now_ns;
	struct made_block *blocks;
	uint32_t block_count, block_room;
	uint8_t *spot_by_id; /* by allocation id: its spot + 1, 0: a pool's own */
	uint32_t id_count, id_room;
	struct source source[SPOTS];
	uint64_t segment_end[DEVICES]; /* of the driver's blocks that pools of a device use */
	uint64_t pool_next[DEVICES];
	uint64_t next_address;
	struct spot spots[SPOTS];
	uint32_t spot_count;
};

static struct program P;

#define FEED(writer_, context_, what, ...)                                                         \
	do {                                                                                       \
		struct event_##what in_ = {__VA_ARGS__};                                           \
		uint64_t words_[EVENT_BYTES_##what / 8];                                           \
                                                                                                   \
		event_##what##_encode(words_, &in_);                                               \
		feed(writer_, EVENT_##what, context_, words_, sizeof(words_), NULL, 0);            \
	} while (0)

static void feed(uint32_t writer, uint32_t type, uint32_t context, const uint64_t *words,
		 uint32_t bytes, const void *payload, uint32_t payload_bytes)
{
	struct trace_event event = {.type = type,
				    .context = context,
				    .writer = writer,
				    .tid = writer,
				    .time_ns = ++P.now_ns,
				    .words = words,
				    .bytes = bytes,
				    .payload = payload,
				    .payload_bytes = payload_bytes};

	/* Without steps nothing keeps time: a part may end anywhere in a loop. */
	if (P.timed)
		P.now_ns += below(JITTER_NS);
	if (replay_event(P.replay, &event) < 0)
		maker_fail("replay");
}

/* Contexts of a writer: pool + POOL_END * device, from 1. */
static uint32_t context_of(uint8_t pool, uint32_t device)
{
	return 1 + pool + POOL_END * device;
}

static uint32_t writer_of(const struct spot *spot)
{
	return 1 + spot->number % WRITERS;
}

static void define(void)
{
	static const char step[] = STEP_MESSAGE;
	uint32_t writer, device, pool, i;

	for (writer = 1; writer <= WRITERS; writer++) {
		struct event_text_def text = {.id = STEP_TEXT, .text_bytes = sizeof(step) - 1};
		uint64_t words[EVENT_BYTES_text_def / 8];

		for (device = 0; device < DEVICES; device++) {
			for (pool = 1; pool < POOL_END; pool++)
				FEED(writer, 0, context_def,
				     .id = context_of((uint8_t)pool, device), .pool = pool,
				     .vendor = VENDOR_ASCEND,
				     .device = pool == POOL_host ? DEVICE_HOST : device,
				     .module = MODULE_UNKNOWN);
		}
		event_text_def_encode(words, &text);
		feed(writer, EVENT_text_def, 0, words, sizeof(words), step, sizeof(step) - 1);
		for (i = 1; i <= SPOTS; i++) {
			struct event_stack_def stack = {.id = i, .c_frames = 1};
			uint64_t frame = 0x1000 * i, stack_words[EVENT_BYTES_stack_def / 8];

			event_stack_def_encode(stack_words, &stack);
			feed(writer, EVENT_stack_def, 0, stack_words, sizeof(stack_words), &frame,
			     8);
		}
	}
}

static void program_begin(bool stacks, bool timed)
{
	struct replay_setup setup = {
		.run = (struct run *)a_run, .elves = &elves, .root = "/nowhere"};
	uint32_t i;

	for (i = 0; i < P.spot_count; i++)
		free(P.spots[i].queue);
	free(P.blocks);
	free(P.spot_by_id);
	P = (struct program){.stacks = stacks,
			     .timed = timed,
			     .now_ns = 1000,
			     .next_address = UINT64_C(0x100000000000)};
	if (replay_new(&setup, &P.replay) < 0)
		maker_fail("replay");
	analyses_init(&P.analyses, SESSION_LEAKS, false, P.replay);
	define();
	for (i = 0; i < DEVICES; i++)
		P.pool_next[i] = P.segment_end[i] =
			UINT64_C(0x200000000000) + i * (UINT64_C(1) << 40);
}

static void program_end(void)
{
	analyses_fini(&P.analyses);
	replay_free(P.replay);
}

/* The next allocation has this spot + 1. */
static void count_id(uint32_t spot)
{
	if (P.id_count + 1 >= P.id_room) {
		P.id_room = P.id_room == 0 ? 1024 : 2 * P.id_room;
		P.spot_by_id = realloc(P.spot_by_id, P.id_room);
		if (P.spot_by_id == NULL)
			maker_fail("memory");
	}
	P.spot_by_id[++P.id_count] = (uint8_t)spot;
}

/* Pools of frameworks take their memory from blocks of the driver. */
static uint64_t address_for(const struct source *source, uint64_t bytes)
{
	uint64_t *next = &P.pool_next[source->device], *end = &P.segment_end[source->device];
	uint64_t address;

	if (pool_is_driver(source->pool)) {
		address = P.next_address;
		P.next_address += bytes + 4096;
		return address;
	}
	if (*next + bytes > *end) {
		uint64_t segment = bytes > SEGMENT_BYTES ? bytes : SEGMENT_BYTES;

		*next = *end;
		count_id(0);
		FEED(1, context_of(POOL_hal, source->device), block_alloc, .address = *next,
		     .size_bytes = segment, .stack = P.stacks ? SPOTS : 0);
		*end = *next + segment;
	}
	address = *next;
	*next += bytes;
	return address;
}

uint32_t spot_take(struct spot *spot, uint64_t bytes)
{
	const struct source *source = &P.source[spot->number];
	uint64_t address = address_for(source, bytes);

	if (P.block_count == P.block_room) {
		P.block_room = P.block_room == 0 ? 1024 : 2 * P.block_room;
		P.blocks = realloc(P.blocks, P.block_room * sizeof(*P.blocks));
		if (P.blocks == NULL)
			maker_fail("memory");
	}
	count_id(spot->number + 1);
	P.blocks[P.block_count] =
		(struct made_block){.address = address, .bytes = bytes, .spot = spot->number};
	FEED(writer_of(spot), context_of(source->pool, source->device), block_alloc,
	     .address = address, .size_bytes = bytes, .stack = P.stacks ? spot->number + 1 : 0);
	return P.block_count++;
}

void spot_leak(struct spot *spot, uint64_t bytes)
{
	(void)spot_take(spot, bytes);
	spot->leaked_steps += spot->step > 1 && spot->last_leak != spot->step;
	spot->last_leak = spot->step;
}

void spot_give(struct spot *spot, uint32_t block)
{
	const struct source *source = &P.source[spot->number];

	P.blocks[block].freed = true;
	FEED(writer_of(spot), context_of(source->pool, source->device), block_free,
	     .address = P.blocks[block].address);
}

static void add_spot(const struct shape *shape, uint32_t steps, uint8_t pool, uint32_t device)
{
	struct spot *spot = &P.spots[P.spot_count];

	*spot = (struct spot){.number = P.spot_count,
			      .shape = shape,
			      .steps = steps,
			      .size = between(1024, 1 << 20)};
	P.source[P.spot_count++] = (struct source){.pool = pool, .device = device};
}

/* Plays the steps. Afterwards a program may free everything on its way out. */
static void play(uint32_t steps)
{
	uint32_t step, i;
	bool clean_exit = chance(0.5);

	for (step = 1; step <= steps; step++) {
		if (P.timed)
			P.now_ns += 50000000;
		else
			FEED(1, context_of(POOL_hal, 0), mark, .kind = 2, .text = STEP_TEXT,
			     .range = step);
		for (i = 0; i < P.spot_count; i++) {
			P.spots[i].step = step;
			P.spots[i].shape->step(&P.spots[i]);
		}
		if (!P.timed)
			FEED(1, context_of(POOL_hal, 0), mark, .kind = 3, .range = step);
	}
	for (i = 0; i < P.block_count && clean_exit; i++) {
		if (!P.blocks[i].freed)
			spot_give(&P.spots[P.blocks[i].spot], i);
	}
}

/* ---- what was found ---- */

/* The gravest verdict on a place that has blocks of the spot, and that place. */
static enum growth_verdict verdict_on(const struct leaks_findings *f, uint32_t spot,
				      const struct leaks_place **out_place)
{
	enum growth_verdict verdict = GROWTH_KEPT;
	size_t i, k;

	*out_place = NULL;
	for (i = 0; i < f->place_count; i++) {
		const struct leaks_place *place = &f->places[i];

		if (place->verdict <= verdict && *out_place != NULL)
			continue;
		for (k = 0; k < place->list_count; k++) {
			if (P.spot_by_id[place->list[k].allocation_id] != spot + 1)
				continue;
			verdict = place->verdict;
			*out_place = place;
			break;
		}
	}
	return verdict;
}

static const struct leaks_findings *judged(void)
{
	static struct leaks_findings *latest;

	leaks_findings_free(latest);
	latest = leaks_findings(&P.analyses, P.replay);
	if (latest == NULL)
		maker_fail("findings");
	return latest;
}

/* ---- the table ---- */

static const uint32_t lengths[] = {5, 10, 20, 100};
#define LENGTHS (sizeof(lengths) / sizeof(lengths[0]))

struct cell {
	uint32_t said[3], runs;
};

static uint32_t rates_right, rates;

static void run_cell(const struct shape *shape, uint32_t steps, bool stacks, bool timed,
		     uint32_t runs, struct cell *cell)
{
	uint32_t i;

	*cell = (struct cell){0};
	for (i = 0; i < runs; i++) {
		const struct leaks_findings *f;
		const struct leaks_place *place;
		enum growth_verdict verdict;

		program_begin(stacks, timed);
		add_spot(shape, steps, POOL_pta, 0);
		play(steps);
		f = judged();
		verdict = verdict_on(f, 0, &place);
		/* One that left nothing did not leak; by time a short run is not judged. */
		if (f->judged && (shape->truth != LEAKING || P.spots[0].leaked_steps > 0)) {
			cell->said[verdict]++;
			cell->runs++;
		}
		if (verdict == GROWTH_LEAK && shape->truth == LEAKING && P.spots[0].rate > 0 &&
		    stacks && !timed) {
			rates++;
			rates_right += P.spots[0].rate >= place->bytes_per_step_low &&
				       P.spots[0].rate <= place->bytes_per_step_high;
		}
		program_end();
	}
}

static double share(const struct cell *cell, enum growth_verdict verdict)
{
	return cell->runs == 0 ? 0 : 100.0 * cell->said[verdict] / cell->runs;
}

struct mean_of {
	double said[3];
	uint32_t shapes;
};

static void run_table(uint32_t runs, bool stacks, bool timed, struct mean_of means[TRUTHS][LENGTHS])
{
	static const char *const truth[] = {"leaking", "healthy", "open"};
	uint32_t s, l, v, t;

	printf("%s%s: said leak/suspect/kept, per cent\n%-38s",
	       stacks ? "with stacks" : "without stacks", timed ? ", by time" : "", "");
	for (l = 0; l < LENGTHS; l++)
		printf("%11u", lengths[l]);
	printf("\n");
	for (s = 0; s < shape_count; s++) {
		printf("%-30s%-8s", shapes[s].name, truth[shapes[s].truth]);
		for (l = 0; l < LENGTHS; l++) {
			struct mean_of *mean = &means[shapes[s].truth][l];
			struct cell cell;

			run_cell(&shapes[s], lengths[l], stacks, timed, runs, &cell);
			printf("  %3.0f/%2.0f/%2.0f", share(&cell, GROWTH_LEAK),
			       share(&cell, GROWTH_SUSPECT), share(&cell, GROWTH_KEPT));
			if (cell.runs == 0)
				continue;
			mean->shapes++;
			for (v = 0; v < 3; v++)
				mean->said[v] += share(&cell, (enum growth_verdict)v);
		}
		printf("\n");
	}
	for (t = 0; t < TRUTHS; t++) {
		printf("mean of %-30s", truth[t]);
		for (l = 0; l < LENGTHS; l++) {
			struct mean_of *mean = &means[t][l];

			for (v = 0; v < 3; v++)
				mean->said[v] /= mean->shapes == 0 ? 1 : mean->shapes;
			printf("  %3.0f/%2.0f/%2.0f", mean->said[GROWTH_LEAK],
			       mean->said[GROWTH_SUSPECT], mean->said[GROWTH_KEPT]);
		}
		printf("\n");
	}
}

/* ---- the bars ---- */

static int misses;

static void bar(bool met, const char *what, double is, double wanted)
{
	printf("%s  %s: %.2f (bar %.2f)\n", met ? "met   " : "MISSED", what, is, wanted);
	misses += !met;
}

/* The columns of judgement.md, section 3. */
static void check_table(struct mean_of means[TRUTHS][LENGTHS], bool stacks)
{
	static const double leak[2][LENGTHS] = {{0, 16, 42, 73}, {0, 26, 60, 88}};
	static const double accused[2][LENGTHS] = {{0, 1, 2, 0}, {0, 1, 1, 0}};
	static const double kept[2][LENGTHS] = {{43, 57, 65, 71}, {47, 67, 75, 82}};
	char what[80];
	uint32_t l;

	for (l = 0; l < LENGTHS; l++) {
		double is = means[LEAKING][l].said[GROWTH_LEAK];

		(void)snprintf(what, sizeof(what), "leaking places called leak, %s, %u steps",
			       stacks ? "stacks" : "no stacks", lengths[l]);
		bar(is >= leak[stacks][l], what, is, leak[stacks][l]);
		is = means[HEALTHY][l].said[GROWTH_LEAK];
		(void)snprintf(what, sizeof(what), "healthy places called leak, %s, %u steps",
			       stacks ? "stacks" : "no stacks", lengths[l]);
		/* The bars are rounded. */
		bar(is < accused[stacks][l] + 0.5, what, is, accused[stacks][l]);
		is = means[HEALTHY][l].said[GROWTH_KEPT];
		(void)snprintf(what, sizeof(what), "healthy places called kept, %s, %u steps",
			       stacks ? "stacks" : "no stacks", lengths[l]);
		bar(is >= kept[stacks][l] - 0.5, what, is, kept[stacks][l]);
	}
}

struct counts {
	uint32_t accused, healthy, kept_leaks, clear_leaks, long_leaks, long_called, silent;
};

/* Pools of a random program; those of frameworks lie beside blocks of the driver. */
static void random_program(struct counts *counts, bool verbose)
{
	static const uint8_t pools[] = {POOL_pta,	    POOL_pta, POOL_atb,	 POOL_mindspore,
					POOL_pta_workspace, POOL_hal, POOL_host, POOL_host_pinned};
	uint32_t steps = chance(0.2) ? 100 : between(3, 200), devices = between(1, DEVICES);
	uint32_t spots = between(2, 10), i;
	const struct leaks_findings *f;
	bool pools_say = false, places_say = false, leaks = false;

	program_begin(chance(0.7), false);
	for (i = 0; i < spots; i++)
		add_spot(&shapes[below(shape_count)], steps, pools[below(sizeof(pools))],
			 below(devices));
	play(steps);
	f = judged();
	for (i = 0; i < f->pool_count; i++)
		pools_say |= f->pools[i].verdict != GROWTH_KEPT;
	places_say = f->leaks + f->suspects > 0;
	for (i = 0; i < P.spot_count; i++) {
		const struct spot *spot = &P.spots[i];
		const struct leaks_place *place;
		enum growth_verdict verdict = verdict_on(f, i, &place);

		if (spot->shape->truth == HEALTHY &&
		    (!spot->shape->still_fills || steps >= FILLED_STEPS)) {
			counts->healthy++;
			counts->accused += verdict == GROWTH_LEAK;
			if (verdict == GROWTH_LEAK && verbose)
				printf("accused: %s, %u steps, %s, reason %d\n", spot->shape->name,
				       steps, P.stacks ? "stacks" : "no stacks", place->reason);
		}
		if (spot->shape->truth != LEAKING)
			continue;
		if (spot->leaked_steps >= 6) {
			leaks = true;
			counts->clear_leaks++;
			counts->kept_leaks += verdict == GROWTH_KEPT;
			if (verdict == GROWTH_KEPT && verbose)
				printf("kept: %s, %u steps, %s, reason %d, %u leaked\n",
				       spot->shape->name, steps, P.stacks ? "stacks" : "no stacks",
				       place == NULL ? -1 : (int)place->reason, spot->leaked_steps);
		}
		if (steps == 100 && P.stacks && spot->leaked_steps > 0) {
			counts->long_leaks++;
			counts->long_called += verdict == GROWTH_LEAK;
		}
	}
	counts->silent += leaks && (f->clean || (!pools_say && !places_say));
	program_end();
}

static void check_programs(uint32_t programs)
{
	struct counts counts = {0};
	uint32_t i;

	for (i = 0; i < programs; i++)
		random_program(&counts, true);
	printf("%u random programs: %u healthy places, %u leaking ones with blocks of 6 steps or "
	       "more\n",
	       programs, counts.healthy, counts.clear_leaks);
	/* None of a thousand programs; of very many, chance makes some histories that nobody could tell. */
	bar(counts.accused <= programs / CHANCE_PROGRAMS, "healthy places called leak",
	    counts.accused, programs / CHANCE_PROGRAMS);
	bar(counts.kept_leaks <= programs / CHANCE_PROGRAMS, "clear leaks called kept",
	    counts.kept_leaks, programs / CHANCE_PROGRAMS);
	bar(counts.silent == 0, "growing programs of which nothing is said", counts.silent, 0);
	if (counts.long_leaks >= 20)
		bar(counts.long_called >= 0.88 * counts.long_leaks,
		    "leaks of 100 steps called leak, per cent",
		    100.0 * counts.long_called / counts.long_leaks, 88);
}

int main(int argc, char **argv)
{
	uint32_t runs = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 30;
	uint32_t programs = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 300;
	struct mean_of means[TRUTHS][LENGTHS];
	struct maker maker;
	struct run *run;
	char path[] = "/tmp/judge.XXXXXX";
	int fd = mkstemp(path), stacks;

	if (argc > 3)
		chance_state ^= strtoull(argv[3], NULL, 10) * UINT64_C(0x9e3779b97f4a7c15);
	if (fd < 0)
		maker_fail("a temporary file");
	(void)close(fd);
	/* Only its clocks are needed. */
	maker_make(&maker, path, MAKER_CHUNK_BYTES, 1);
	if (run_open(path, NULL, false, &run, NULL) < 0)
		maker_fail("the trace");
	a_run = run;
	for (stacks = 1; stacks >= 0; stacks--) {
		memset(means, 0, sizeof(means));
		run_table(runs, stacks != 0, false, means);
		check_table(means, stacks != 0);
	}
	bar(rates_right >= 0.9 * rates, "truth inside the interval of the rate, per cent",
	    100.0 * rates_right / (rates == 0 ? 1 : rates), 90);
	memset(means, 0, sizeof(means));
	run_table(runs, true, true, means);
	check_programs(programs);
	run_close(run);
	maker_fini(&maker);
	return misses > 0;
}
