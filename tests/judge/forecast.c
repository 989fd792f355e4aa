/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How good the forecast of a full device is. Random programs grow steadily on a small device until it is full; their events go
 * through the real replay and the real analysis. Others fill caches, swing, or stand still, and must not be announced.
 *
 *     forecast [PROGRAMS [SEED]]
 *
 * Counted: programs announced at least five steps ahead, forecasts at half of the way that are within 10 % of the truth, truths inside
 * the range, and healthy programs that were announced. Ends with 1 when a bar is missed.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/trace_maker.h"
#include "analysis/analyses.h"
#include "analysis/forecast_watch.h"
#include "analysis/leaks.h"
#include "shapes.h"
#include "symbols/elf_cache.h"
#include "trace/session.h"

#define MIB	  (UINT64_C(1) << 20)
#define STEP_TEXT 1u
#define STACKS	  8u
#define STEP_NS	  UINT64_C(120000000)
#define STEPS_MAX 600u
#define HAL	  1u
#define PTA	  2u
#define HELD	  65536u

static uint64_t among(uint64_t first, uint64_t last)
{
	return first + (chance_next() >> 20) % (last - first + 1);
}

/* ---- a program on a device ---- */

static const struct run *a_run;
static struct elf_cache elves;

struct taken {
	uint64_t address, bytes;
};

static struct {
	struct replay *replay;
	struct analyses analyses;
	uint64_t now_ns;
	uint64_t next_address;
	uint64_t total, others;
	bool pooled;
	uint64_t segment,
		waste; /* of a pool: its segments; hundredths that it needs beyond what is in use */
	uint64_t driver, use, reserved, most;
	struct taken *held;
	uint32_t held_count;
} P;

#define FEED(context_, what, ...)                                                                  \
	do {                                                                                       \
		struct event_##what in_ = {__VA_ARGS__};                                           \
		uint64_t words_[EVENT_BYTES_##what / 8];                                           \
                                                                                                   \
		event_##what##_encode(words_, &in_);                                               \
		feed(EVENT_##what, context_, words_, sizeof(words_), NULL, 0);                     \
	} while (0)

static void feed(uint32_t type, uint32_t context, const uint64_t *words, uint32_t bytes,
		 const void *payload, uint32_t payload_bytes)
{
	struct trace_event event = {.type = type,
				    .context = context,
				    .writer = 1,
				    .tid = 1,
				    .time_ns = ++P.now_ns,
				    .words = words,
				    .bytes = bytes,
				    .payload = payload,
				    .payload_bytes = payload_bytes};

	if (replay_event(P.replay, &event) < 0)
		maker_fail("replay");
}

static void begin(uint64_t total)
{
	static const char step[] = STEP_MESSAGE;
	struct replay_setup setup = {
		.run = (struct run *)a_run, .elves = &elves, .root = "/nowhere"};
	struct event_text_def text = {.id = STEP_TEXT, .text_bytes = sizeof(step) - 1};
	uint64_t words[EVENT_BYTES_text_def / 8], i;

	memset(&P, 0, sizeof(P));
	P.now_ns = 1000;
	P.next_address = UINT64_C(0x100000000000);
	P.total = total;
	P.held = calloc(HELD, sizeof(*P.held));
	if (P.held == NULL || replay_new(&setup, &P.replay) < 0)
		maker_fail("replay");
	analyses_init(&P.analyses, SESSION_LEAKS, false, P.replay);
	FEED(0, context_def, .id = HAL, .pool = POOL_hal, .vendor = VENDOR_ASCEND, .device = 0,
	     .module = MODULE_UNKNOWN);
	FEED(0, context_def, .id = PTA, .pool = POOL_pta, .vendor = VENDOR_ASCEND, .device = 0,
	     .module = MODULE_UNKNOWN);
	event_text_def_encode(words, &text);
	feed(EVENT_text_def, 0, words, sizeof(words), step, sizeof(step) - 1);
	for (i = 1; i <= STACKS; i++) {
		struct event_stack_def stack = {.id = (uint32_t)i, .c_frames = 1};
		uint64_t frame = 0x1000 * i, stack_words[EVENT_BYTES_stack_def / 8];

		event_stack_def_encode(stack_words, &stack);
		feed(EVENT_stack_def, 0, stack_words, sizeof(stack_words), &frame, 8);
	}
}

static void end(void)
{
	analyses_fini(&P.analyses);
	replay_free(P.replay);
	free(P.held);
}

static void sample(void)
{
	FEED(0, usage_sample, .device = 0, .total_mib = (uint32_t)(P.total / MIB),
	     .process_bytes = UINT64_MAX, .device_bytes = P.others + P.driver);
}

static uint64_t new_address(uint64_t bytes)
{
	uint64_t address = P.next_address;

	P.next_address += bytes + 4096;
	return address;
}

static bool driver_take(uint64_t bytes, uint32_t stack, uint64_t *out)
{
	if (P.others + P.driver + bytes > P.total)
		return false;
	P.driver += bytes;
	P.most = P.driver > P.most ? P.driver : P.most;
	*out = new_address(bytes);
	FEED(HAL, block_alloc, .address = *out, .size_bytes = bytes, .stack = stack);
	return true;
}

/* A pool that packs well, but for its waste. False: the device is full. */
static bool take(uint64_t bytes, uint32_t stack, struct taken *out)
{
	uint64_t address, need;

	out->bytes = bytes;
	if (!P.pooled)
		return driver_take(bytes, stack, &out->address);
	need = (P.use + bytes) / 100 * (100 + P.waste);
	while (need > P.reserved) {
		uint64_t more = P.segment;

		if (!driver_take(more, STACKS, &address))
			return false;
		P.reserved += more;
		FEED(PTA, pool_total, .reserved_bytes = P.reserved);
	}
	P.use += bytes;
	out->address = new_address(bytes);
	FEED(PTA, block_alloc, .address = out->address, .size_bytes = bytes, .stack = stack);
	return true;
}

static void give(const struct taken *block)
{
	if (P.pooled)
		P.use -= block->bytes;
	else
		P.driver -= block->bytes;
	FEED(P.pooled ? PTA : HAL, block_free, .address = block->address);
}

static bool keep(uint64_t bytes, uint32_t stack)
{
	if (P.held_count == HELD || !take(bytes, stack, &P.held[P.held_count]))
		return false;
	P.held_count++;
	return true;
}

static bool transient(uint64_t bytes, uint32_t count)
{
	struct taken blocks[16];
	uint32_t i, taken;
	bool good = true;

	for (taken = 0; taken < count && good; taken += good)
		good = take(among(bytes / count / 2, bytes / count * 3 / 2) + 512, 2,
			    &blocks[taken]);
	if (good && chance(0.5))
		sample();
	for (i = 0; i < taken; i++)
		give(&blocks[i]);
	return good;
}

static void step_mark(bool begins, uint32_t step)
{
	if (begins)
		FEED(HAL, mark, .kind = 2, .text = STEP_TEXT, .range = step);
	else
		FEED(HAL, mark, .kind = 3, .range = step);
	if (!begins)
		P.now_ns += STEP_NS;
}

/* ---- programs that fill a device ---- */

struct told {
	uint32_t said; /* step of the announcement, 0: none */
	uint32_t full; /* in which the device was full */
	char what[160];
	uint64_t at[STEPS_MAX + 1], low[STEPS_MAX + 1],
		high[STEPS_MAX + 1]; /* forecasts after steps */
};

static struct told T;

static void note(struct forecast_watch *watch, uint32_t step)
{
	struct finding_forecast forecast;
	struct leaks_findings *found;
	struct strbuf text = {0};

	if (forecast_watch(watch, &P.analyses, P.replay, P.now_ns, &forecast, &text) && T.said == 0)
		T.said = step;
	strbuf_fini(&text);
	T.at[step] = 0;
	found = leaks_findings(&P.analyses, P.replay);
	if (found == NULL)
		maker_fail("findings");
	if (found->forecast_count == 1 && found->forecasts[0].climbs) {
		T.at[step] = step + found->forecasts[0].steps;
		T.low[step] = step + found->forecasts[0].steps_low;
		T.high[step] = step + found->forecasts[0].steps_high;
	}
	leaks_findings_free(found);
}

/* `rare`: what is kept comes in every fourth to sixth step only. */
static void fill(bool rare)
{
	uint64_t total = among(256, 4096) * MIB, weights = total / 100 * among(5, 35);
	uint64_t moving = total / 100 * among(1, 15), size, leaked;
	uint32_t form = (uint32_t)among(0, 2), every = chance(0.25) ? (uint32_t)among(2, 3) : 1;
	uint32_t planned = (uint32_t)among(40, 300), count = (uint32_t)among(2, 12), step;
	struct forecast_watch watch = {0};
	struct taken grows = {0}, larger;
	bool good = true;

	if (rare)
		every = (uint32_t)among(4, 6);
	begin(total);
	P.others = chance(0.3) ? total / 100 * among(1, 20) : 0;
	P.pooled = chance(0.6);
	P.segment = among(2, 64) * MIB;
	P.waste = chance(0.5) ? 0 : among(1, 30);
	while (P.use + (P.pooled ? 0 : P.driver) < weights && keep(among(1, 8) * MIB, 1))
		;
	leaked = (total - P.others) / 100 * 95 - weights - moving;
	size = leaked / planned * every / (form == 1 ? 2 : 1) / 100 * 100 / (100 + P.waste) * 100;
	size = size < 4096 ? 4096 : size;
	memset(&T, 0, sizeof(T));
	(void)snprintf(T.what, sizeof(T.what),
		       "form %u, every %u, pooled %d, segment %llu MiB, waste %llu, moving %llu in "
		       "%u, size %llu, total %llu MiB",
		       form, every, P.pooled, (unsigned long long)(P.segment / MIB),
		       (unsigned long long)P.waste, (unsigned long long)(moving / MIB), count,
		       (unsigned long long)(size / 1024), (unsigned long long)(total / MIB));
	for (step = 1; good && step <= STEPS_MAX; step++) {
		uint64_t bytes = among(size - size / 4, size + size / 4);

		step_mark(true, step);
		sample();
		good = transient(moving, count);
		if (good && form == 1) {
			good = take(grows.bytes + bytes, 3, &larger);
			if (good && grows.bytes != 0)
				give(&grows);
			if (good)
				grows = larger;
		} else if (good && form == 2 && P.pooled) {
			uint64_t address;

			good = step % every != 0 || driver_take(bytes, 4, &address);
		} else if (good) {
			good = step % every != 0 || keep(bytes, 5);
		}
		if (!good)
			break;
		step_mark(false, step);
		note(&watch, step);
	}
	T.full = step;
	end();
}

/* ---- programs that do not: the healthy shapes of judge.c ---- */

#define SPOTS 6u

static struct taken shape_blocks[HELD];
static uint32_t shape_count_taken;

uint32_t spot_take(struct spot *spot, uint64_t bytes)
{
	if (shape_count_taken == HELD)
		maker_fail("too many blocks");
	if (!take(bytes, spot->number + 1, &shape_blocks[shape_count_taken]))
		maker_fail("a device that is large enough");
	return shape_count_taken++;
}

void spot_leak(struct spot *spot, uint64_t bytes)
{
	(void)spot_take(spot, bytes);
}

void spot_give(struct spot *spot, uint32_t block)
{
	(void)spot;
	give(&shape_blocks[block]);
}

static const struct shape *healthy_shape(void)
{
	const struct shape *shape;

	do
		shape = &shapes[below(shape_count)];
	while (shape->truth != HEALTHY || shape->still_fills);
	return shape;
}

/* True: it was announced. */
static bool healthy(uint64_t total, uint64_t *out_peak)
{
	uint32_t steps = between(20, 200), spots = between(1, SPOTS), step, i;
	struct forecast_watch watch = {0};
	struct spot all[SPOTS];

	begin(total);
	shape_count_taken = 0;
	P.pooled = chance(0.6);
	P.segment = between(2, 64) * MIB;
	memset(&T, 0, sizeof(T));
	for (i = 0; i < spots; i++)
		all[i] = (struct spot){.number = i,
				       .shape = healthy_shape(),
				       .steps = steps,
				       .size = between(1024, 1 << 20)};
	for (i = between(4, 40); i > 0; i--)
		(void)keep(between(1, 4096) * 1024, STACKS - 1);
	for (step = 1; step <= steps; step++) {
		step_mark(true, step);
		sample();
		for (i = 0; i < spots; i++) {
			all[i].step = step;
			all[i].shape->step(&all[i]);
		}
		step_mark(false, step);
		note(&watch, step);
	}
	*out_peak = P.most;
	if (T.said != 0)
		printf("announced after step %u of %u, full at %llu: %s and %u others\n", T.said,
		       steps, (unsigned long long)T.at[T.said], all[0].shape->name, spots - 1);
	for (i = 0; i < spots; i++)
		free(all[i].queue);
	end();
	return T.said != 0;
}

/* ---- all together ---- */

static int misses;

static void bar(bool met, const char *what, double is, double wanted)
{
	printf("%s  %s: %.2f (bar %.2f)\n", met ? "met   " : "MISSED", what, is, wanted);
	misses += !met;
}

static void check_filling(uint32_t programs)
{
	uint32_t ahead = 0, near = 0, inside = 0, judged = 0, early = 0, tried = 0, i;
	double off, sum = 0;

	for (i = 0; i < programs; i++) {
		uint32_t half;

		fill(false);
		if (T.full < 30 || T.full > STEPS_MAX)
			continue;
		tried++;
		ahead += T.said != 0 && T.said + 5 <= T.full;
		early += T.said != 0 && T.said < 10;
		half = T.full / 2;
		if (T.at[half] == 0)
			continue;
		judged++;
		off = ((double)T.at[half] - T.full) / T.full;
		sum += off;
		near += fabs(off) <= 0.1;
		if (fabs(off) > 0.1 && getenv("FORECAST_VERBOSE") != NULL)
			printf("off %+.0f %%: full %u, said %llu (%llu to %llu) at half: %s\n",
			       100 * off, T.full, (unsigned long long)T.at[half],
			       (unsigned long long)T.low[half], (unsigned long long)T.high[half],
			       T.what);
		inside += T.low[half] <= T.full && T.full <= T.high[half] + 1;
	}
	printf("%u programs that fill a device, %u with a forecast at half of the way, mean error "
	       "%+.1f %%\n",
	       tried, judged, 100 * sum / (judged == 0 ? 1 : judged));
	bar(ahead >= 0.95 * tried, "announced at least 5 steps ahead, per cent",
	    100.0 * ahead / tried, 95);
	bar(near >= 0.9 * judged, "the step within 10 % at half of the way, per cent",
	    100.0 * near / (judged == 0 ? 1 : judged), 90);
	bar(inside >= 0.9 * judged, "the step inside the range, per cent",
	    100.0 * inside / (judged == 0 ? 1 : judged), 90);
	bar(early == 0, "announced in the first ten steps", early, 0);
}

static void check_rare(uint32_t programs)
{
	uint32_t ahead = 0, tried = 0, i;

	for (i = 0; i < programs; i++) {
		fill(true);
		if (T.full < 30 || T.full > STEPS_MAX)
			continue;
		tried++;
		ahead += T.said != 0 && T.said + 5 <= T.full;
	}
	bar(ahead >= 0.97 * tried,
	    "announced at least 5 steps ahead, of programs that grow every 4 to 6 steps, per cent",
	    100.0 * ahead / tried, 97);
}

static void check_healthy(uint32_t programs)
{
	uint32_t announced = 0, i;

	for (i = 0; i < programs; i++) {
		uint64_t factor = between(5, 50), before = chance_state, peak;

		(void)healthy(UINT64_C(1) << 40, &peak);
		chance_state = before;
		announced += healthy(peak * factor, &peak);
	}
	bar(announced <= (programs + 999) / 1000, "healthy programs announced", announced,
	    (programs + 999) / 1000);
}

int main(int argc, char **argv)
{
	uint32_t programs = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 300;
	struct maker maker;
	struct run *run;
	char path[] = "/tmp/forecast.XXXXXX";
	int fd = mkstemp(path);

	if (argc > 2)
		chance_state ^= strtoull(argv[2], NULL, 10) * UINT64_C(0x9e3779b97f4a7c15);
	if (fd < 0)
		maker_fail("a temporary file");
	(void)close(fd);
	/* Only its clocks are needed. */
	maker_make(&maker, path, MAKER_CHUNK_BYTES, 1);
	if (run_open(path, NULL, false, &run, NULL) < 0)
		maker_fail("the trace");
	a_run = run;
	check_filling(programs);
	check_healthy(programs);
	check_rare(programs);
	run_close(run);
	maker_fini(&maker);
	return misses > 0;
}
