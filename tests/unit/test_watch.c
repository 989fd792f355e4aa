/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claims about watching memory: the checksum has the known values however it is cut into pieces; which ranges are looked at is
 * what a plain model says, for thousands of random sequences of operators, watches, removals and frees; and memory that another
 * thread gives back is not read. What may be written at a moment is what calls in progress declared, as a model has it byte by
 * byte; and what is said of a change is what two copies of the memory say.
 */
#include "unit.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collector/watch/checksum.h"
#include "collector/watch/watch_calls.h"
#include "collector/watch/watch_compare.h"
#include "collector/watch/watch_plan.h"

/* ---- the checksum ---- */

static uint64_t sum(const void *data, size_t bytes)
{
	return checksum_end(checksum_add(CHECKSUM_BEGIN, data, bytes));
}

static void the_checksum_has_the_known_values(void **state)
{
	static const uint8_t zeros[24];
	uint8_t all[256];
	uint32_t i;

	(void)state;
	for (i = 0; i < sizeof(all); i++)
		all[i] = (uint8_t)i;
	assert_true(sum("", 0) == 0);
	assert_true(sum("a", 1) == UINT64_C(0x856176de4cff4e76));
	assert_true(sum("123456789", 9) == UINT64_C(0xb86883e6fa710a9f));
	assert_true(sum(zeros, 1) == UINT64_C(0xeb16d7a787b7faa0));
	assert_true(sum(zeros, 8) == UINT64_C(0x98b12cacc211a013));
	assert_true(sum(zeros, 24) == UINT64_C(0x8a0a12adcfb1b554));
	assert_true(sum(all, sizeof(all)) == UINT64_C(0xc48455633bde63a5));
}

/* By the definition, a bit at a time. */
static uint64_t slow_sum(const uint8_t *data, size_t bytes)
{
	uint64_t value = UINT64_MAX;
	size_t i, k;

	for (i = 0; i < bytes; i++) {
		value ^= data[i];
		for (k = 0; k < 8; k++)
			value = value & 1 ? value >> 1 ^ UINT64_C(0x42f0e1eba9ea3693) : value >> 1;
	}
	return ~value;
}

static void pieces_give_the_sum_of_the_whole(void **state)
{
	uint64_t seed = 42;
	uint8_t data[1000];
	uint32_t round;
	size_t i;

	(void)state;
	for (round = 0; round < 500; round++) {
		size_t from = unit_random(&seed) % 16;
		size_t bytes = unit_random(&seed) % (sizeof(data) - from), at = 0;
		uint64_t value = CHECKSUM_BEGIN;

		for (i = 0; i < sizeof(data); i++)
			data[i] = (uint8_t)unit_random(&seed);
		while (at < bytes) {
			size_t piece = 1 + unit_random(&seed) % (bytes - at);

			value = checksum_add(value, data + from + at, piece);
			at += piece;
		}
		assert_true(checksum_end(value) == slow_sum(data + from, bytes));
	}
}

/* What others sum up by chunks becomes the sum of the whole. */
static void sums_of_chunks_give_the_sum_of_the_whole(void **state)
{
	static uint8_t data[5 * CHECKSUM_CHUNK];
	uint64_t seed = 7;
	uint32_t round;
	size_t i;

	(void)state;
	for (round = 0; round < 200; round++) {
		size_t bytes = round < 5 ? round * CHECKSUM_CHUNK
					 : unit_random(&seed) % (sizeof(data) + 1);
		uint64_t value = CHECKSUM_BEGIN;
		size_t at, piece;

		for (i = 0; i < sizeof(data); i++)
			data[i] = (uint8_t)unit_random(&seed);
		for (at = 0; at < bytes; at += piece) {
			piece = bytes - at < CHECKSUM_CHUNK ? bytes - at : CHECKSUM_CHUNK;
			value = checksum_join(value, checksum_add(0, data + at, piece), piece);
		}
		assert_true(value == checksum_add(CHECKSUM_BEGIN, data, bytes));
	}
}

/* ---- comparing by sums of chunks ---- */

#define CHUNKS 10u

static struct comparison chunked;

/* One dump of a range of CHUNKS chunks, of which the last is shorter. Returns the chunks that were to be read, as bits. */
static uint32_t dump_by_sums(uint8_t *data, uint64_t bytes, bool fresh, uint32_t at_a_time)
{
	uint64_t sums[CHUNKS], total = CHECKSUM_BEGIN, at, i;
	uint32_t asked = 0;

	compare_begin(&chunked, 1, bytes, fresh);
	assert_true(compare_sums_begin(&chunked, CHUNKS));
	for (at = 0; at < CHUNKS; at += at_a_time) {
		uint64_t count = CHUNKS - at < at_a_time ? CHUNKS - at : at_a_time;
		struct chunk_run run = {.end = at};

		for (i = 0; i < count; i++) {
			uint64_t from = (at + i) * CHECKSUM_CHUNK, left = bytes - from;
			size_t piece = left < CHECKSUM_CHUNK ? (size_t)left : CHECKSUM_CHUNK;

			sums[i] = checksum_add(0, data + from, piece);
			total = checksum_join(total, sums[i], piece);
		}
		while (compare_next(&chunked, at, sums, count, run.end, &run)) {
			uint64_t end = run.end * CHECKSUM_CHUNK;

			end = end < bytes ? end : bytes;
			compare_piece(&chunked, run.first * CHECKSUM_CHUNK,
				      data + run.first * CHECKSUM_CHUNK,
				      (size_t)(end - run.first * CHECKSUM_CHUNK));
			for (i = run.first; i < run.end; i++)
				asked |= 1u << i;
		}
		compare_sums_keep(&chunked, at, sums, count);
	}
	compare_end(&chunked, bytes, checksum_end(total));
	return asked;
}

static void only_chunks_that_changed_are_read(void **state)
{
	static uint8_t data[CHUNKS * CHECKSUM_CHUNK];
	const uint64_t bytes = sizeof(data) - 100;
	uint64_t seed = 99;
	uint32_t round, i;

	(void)state;
	chunked.allowed_count = 0;
	assert_int_equal(dump_by_sums(data, bytes, true, 3), (1u << CHUNKS) - 1);
	assert_false(chunked.change.compared);
	for (round = 0; round < 200; round++) {
		uint32_t count = unit_random(&seed) % 4, changed = 0, first = UINT32_MAX, last = 0;
		uint32_t chunks = 0;
		struct watch_span allowed = {unit_random(&seed) % bytes, 0};

		allowed.end = allowed.first + 1 + unit_random(&seed) % 9000;
		chunked.allowed[0] = allowed;
		chunked.allowed_count = 1;
		for (i = 0; i < count; i++) {
			uint32_t at = (uint32_t)(unit_random(&seed) % bytes);
			bool again = (chunks & 1u << at / CHECKSUM_CHUNK) != 0;

			if (again)
				continue; /* a byte may not be changed twice */
			data[at] ^= (uint8_t)(1 + unit_random(&seed) % 255);
			chunks |= 1u << at / CHECKSUM_CHUNK;
			if (at >= allowed.first && at < allowed.end)
				continue;
			changed++;
			first = at < first ? at : first;
			last = at > last ? at : last;
		}
		assert_int_equal(dump_by_sums(data, bytes, false, 1 + round % CHUNKS), chunks);
		assert_int_equal(chunked.change.stray_bytes, changed);
		assert_true(changed == 0 ||
			    (chunked.change.first == first && chunked.change.last == last));
		/* A dump by copying in between: the sums before it say nothing any more. */
		if (round % 50 == 49) {
			compare_begin(&chunked, 1, bytes, false);
			compare_piece(&chunked, 0, data, (size_t)bytes);
			compare_end(&chunked, bytes, 0);
			assert_int_equal(chunked.change.bytes, 0);
			chunked.allowed_count = 0;
			assert_int_equal(dump_by_sums(data, bytes, false, 4), (1u << CHUNKS) - 1);
			assert_int_equal(chunked.change.bytes, 0);
		}
	}
	compare_forget(1);
}

/* Of a range that there is no room for a copy of, the sums say which chunks changed. */
static void without_a_copy_the_chunks_are_known(void **state)
{
	static uint8_t data[CHUNKS * CHECKSUM_CHUNK];
	const uint64_t bytes = sizeof(data) - 100;

	(void)state;
	chunked.allowed_count = 0;
	/* Takes all the room there is. */
	compare_begin(&chunked, 2, COPIES_MAX, true);
	assert_int_equal(dump_by_sums(data, bytes, true, 4), 0);
	data[2 * CHECKSUM_CHUNK + 7] ^= 1;
	data[sizeof(data) - 101] ^= 1;
	assert_int_equal(dump_by_sums(data, bytes, false, 4), 0);
	assert_true(chunked.change.bytes == BYTES_UNKNOWN);
	assert_true(chunked.change.stray_bytes == BYTES_UNKNOWN);
	assert_int_equal(chunked.change.first, 2 * CHECKSUM_CHUNK);
	assert_int_equal(chunked.change.last, bytes - 1);
	/* What was declared excuses its own chunks, and no others. */
	chunked.allowed[0] = (struct watch_span){2 * CHECKSUM_CHUNK + 7, 2 * CHECKSUM_CHUNK + 8};
	chunked.allowed_count = 1;
	data[2 * CHECKSUM_CHUNK + 7] ^= 1;
	(void)dump_by_sums(data, bytes, false, 4);
	assert_true(chunked.change.bytes == BYTES_UNKNOWN);
	assert_int_equal(chunked.change.stray_bytes, 0);
	data[5 * CHECKSUM_CHUNK] ^= 1;
	(void)dump_by_sums(data, bytes, false, 4);
	assert_int_equal(chunked.change.first, 5 * CHECKSUM_CHUNK);
	assert_int_equal(chunked.change.last, 6 * CHECKSUM_CHUNK - 1);
	chunked.allowed_count = 0;
	(void)dump_by_sums(data, bytes, false, 4);
	assert_int_equal(chunked.change.bytes, 0);
	compare_reset();
}

/* ---- single rules ---- */

static struct watch watch;

static void begin_watch(const char *start, uint32_t output, const char *end, uint32_t level)
{
	struct session_watch settings = {.on = 1, .output = output};

	(void)snprintf(settings.start, sizeof(settings.start), "%s", start);
	(void)snprintf(settings.end, sizeof(settings.end), "%s", end);
	watch_init(&watch, &settings, level);
}

static void operators_are_known_by_their_bare_names(void **state)
{
	(void)state;
	begin_watch("mul", UINT32_MAX, "add", 1);
	assert_true(watch_wants_outputs(&watch, "torch._ops.aten.mul.Tensor", "aten::mul"));
	assert_true(watch_wants_outputs(&watch, "aten::mul", NULL));
	assert_true(watch_wants_outputs(&watch, "mul", NULL));
	assert_false(watch_wants_outputs(&watch, "torch._ops.aten.mul_.Tensor", "aten::mul_"));
	assert_false(watch_wants_outputs(&watch, "aten::add", "layer/mul"));
	begin_watch("aten::mul", UINT32_MAX, "add", 1);
	assert_false(watch_wants_outputs(&watch, "npu::mul", "npu::mul"));
}

static uint32_t tell_at(uint32_t level, const char *name, const char *path, uint32_t kind,
			const struct watch_output *outputs, uint32_t count, struct watch_plan *plan)
{
	struct watch_call call = {.kind = kind,
				  .level = level,
				  .name = name,
				  .path = path,
				  .outputs = outputs,
				  .output_count = count};

	if (watch_plan(&watch, &call, plan))
		watch_finish(&watch, plan, true);
	return plan->count;
}

static uint32_t tell(const char *name, uint32_t kind, const struct watch_output *outputs,
		     uint32_t count)
{
	struct watch_plan plan;

	return tell_at(SESSION_LEVEL_OP, name, NULL, kind, outputs, count, &plan);
}

static const struct watch_output two[] = {{0x1000, 64}, {0x2000, 128}};

static void from_start_to_end_each_operator_looks_twice(void **state)
{
	uint32_t round;

	(void)state;
	begin_watch("a", UINT32_MAX, "c", SESSION_LEVEL_OP);
	for (round = 0; round < 3; round++) {
		assert_int_equal(tell("b", OPERATION_BEGINS, NULL, 0), 0);
		assert_int_equal(tell("b", OPERATION_ENDED, NULL, 0), 0);
		assert_int_equal(tell("a", OPERATION_BEGINS, NULL, 0), 0);
		assert_int_equal(tell("a", OPERATION_ENDED, two, 2), 2);
		assert_int_equal(tell("b", OPERATION_BEGINS, NULL, 0), 2);
		assert_int_equal(tell("b", OPERATION_ENDED, NULL, 0), 2);
		assert_int_equal(tell("c", OPERATION_BEGINS, NULL, 0), 2);
		assert_int_equal(tell("c", OPERATION_ENDED, NULL, 0), 2);
		assert_int_equal(atomic_load(&watch.range_count), 0);
	}
}

static void one_output_is_watched_when_one_was_named(void **state)
{
	struct watch_plan plan;

	(void)state;
	begin_watch("a", 1, "c", SESSION_LEVEL_OP);
	assert_int_equal(tell_at(SESSION_LEVEL_OP, "a", NULL, OPERATION_ENDED, two, 2, &plan), 1);
	assert_int_equal(watch.ranges[plan.ranges[0]].output, 1);
	assert_true(watch.ranges[plan.ranges[0]].address == 0x2000);
	/* One that the operator does not have means all of them. */
	begin_watch("a", 2, "c", SESSION_LEVEL_OP);
	assert_int_equal(tell("a", OPERATION_ENDED, two, 2), 2);
}

static void operators_are_found_by_path_with_and_without_its_place(void **state)
{
	static const char path[] = "token0/layer0/module0/op0";
	struct watch_plan plan;
	struct watch_call call = {.name = "op0", .path = "3_4242/token0/layer0/module0/op0"};

	(void)state;
	begin_watch(path, UINT32_MAX, "x", SESSION_LEVEL_OP);
	assert_int_equal(tell_at(SESSION_LEVEL_OP, "op0", "0_1/token0/layer0/module0/op1",
				 OPERATION_ENDED, two, 2, &plan),
			 0);
	assert_int_equal(
		tell_at(SESSION_LEVEL_OP, "op0", call.path, OPERATION_ENDED, two, 2, &plan), 2);
	assert_string_equal(watch_shown(&watch, &call), path);
	begin_watch(path, UINT32_MAX, "x", SESSION_LEVEL_OP);
	assert_int_equal(tell_at(SESSION_LEVEL_OP, "op0", path, OPERATION_ENDED, two, 2, &plan), 2);
	begin_watch(call.path, UINT32_MAX, "x", SESSION_LEVEL_OP);
	assert_int_equal(
		tell_at(SESSION_LEVEL_OP, "op0", call.path, OPERATION_ENDED, two, 2, &plan), 2);
	begin_watch("op0", UINT32_MAX, "x", SESSION_LEVEL_OP);
	assert_int_equal(
		tell_at(SESSION_LEVEL_OP, "op0", call.path, OPERATION_ENDED, two, 2, &plan), 2);
	assert_string_equal(watch_shown(&watch, &call), "op0");
}

static void the_level_says_who_looks(void **state)
{
	struct watch_plan plan;

	(void)state;
	begin_watch("a", UINT32_MAX, "c", SESSION_LEVEL_KERNEL);
	/* Start and end look at every level, because the watch begins and ends with them. */
	assert_int_equal(tell("a", OPERATION_ENDED, two, 2), 2);
	assert_int_equal(tell("b", OPERATION_BEGINS, NULL, 0), 0);
	assert_int_equal(tell_at(SESSION_LEVEL_KERNEL, "k", NULL, OPERATION_BEGINS, NULL, 0, &plan),
			 2);
	assert_int_equal(tell_at(SESSION_LEVEL_KERNEL, "k", NULL, OPERATION_ENDED, NULL, 0, &plan),
			 2);
	assert_int_equal(tell("b", OPERATION_ENDED, NULL, 0), 0);
	assert_int_equal(tell("c", OPERATION_ENDED, NULL, 0), 2);
	begin_watch("a", UINT32_MAX, "c", SESSION_LEVEL_OP);
	assert_int_equal(tell("a", OPERATION_ENDED, two, 2), 2);
	assert_int_equal(tell_at(SESSION_LEVEL_KERNEL, "k", NULL, OPERATION_BEGINS, NULL, 0, &plan),
			 0);
	assert_int_equal(tell("b", OPERATION_BEGINS, NULL, 0), 2);
}

static int add(uint64_t address, uint64_t bytes, int64_t limit)
{
	struct watch_range range = {.address = address, .bytes = bytes};

	return watch_add(&watch, &range, limit);
}

static void a_block_that_had_its_dumps_stops_no_other(void **state)
{
	(void)state;
	begin_watch("", UINT32_MAX, "", SESSION_LEVEL_OP);
	assert_int_equal(atomic_load(&watch.active), 0);
	assert_int_equal(add(0x1000, 8, 1), 0);
	assert_int_equal(add(0x2000, 8, 3), 0);
	assert_int_equal(add(0x3000, 8, WATCH_UNLIMITED), 0);
	assert_int_equal(add(0x4000, 8, 0), 0);
	assert_int_equal(tell("a", OPERATION_BEGINS, NULL, 0), 3);
	assert_int_equal(tell("a", OPERATION_ENDED, NULL, 0), 2);
	assert_int_equal(tell("b", OPERATION_BEGINS, NULL, 0), 2);
	assert_int_equal(tell("b", OPERATION_ENDED, NULL, 0), 1);
	assert_int_equal(watch_remove(&watch, 0x3000, 9), -ENOENT);
	assert_int_equal(watch_remove(&watch, 0x3000, 8), 0);
	assert_int_equal(watch_remove(&watch, 0x3000, 8), -ENOENT);
	assert_int_equal(atomic_load(&watch.active), 0);
}

static void dumps_that_could_not_be_made_do_not_count(void **state)
{
	struct watch_call call = {.kind = OPERATION_BEGINS, .level = SESSION_LEVEL_OP, .name = "a"};
	struct watch_plan plan;

	(void)state;
	begin_watch("", UINT32_MAX, "", SESSION_LEVEL_OP);
	assert_int_equal(add(0x1000, 8, 1), 0);
	assert_true(watch_plan(&watch, &call, &plan));
	watch_finish(&watch, &plan, false);
	assert_true(watch_plan(&watch, &call, &plan));
	watch_finish(&watch, &plan, true);
	assert_false(watch_plan(&watch, &call, &plan));
}

static void without_a_start_the_end_ends_what_the_program_watches(void **state)
{
	(void)state;
	begin_watch("", UINT32_MAX, "c", SESSION_LEVEL_OP);
	assert_int_equal(add(0x1000, 8, WATCH_UNLIMITED), 0);
	assert_int_equal(tell("a", OPERATION_ENDED, two, 2), 1);
	assert_int_equal(tell("c", OPERATION_BEGINS, NULL, 0), 1);
	assert_int_equal(tell("c", OPERATION_ENDED, NULL, 0), 1);
	assert_int_equal(tell("a", OPERATION_BEGINS, NULL, 0), 0);
	begin_watch("a", UINT32_MAX, "c", SESSION_LEVEL_OP);
	assert_int_equal(add(0x1000, 8, WATCH_UNLIMITED), 0);
	assert_int_equal(tell("c", OPERATION_ENDED, NULL, 0), 1);
	assert_int_equal(tell("a", OPERATION_ENDED, two, 2), 3);
	assert_int_equal(tell("c", OPERATION_ENDED, NULL, 0), 3);
	assert_int_equal(tell("b", OPERATION_ENDED, NULL, 0), 1);
}

static void memory_that_is_given_back_is_not_read(void **state)
{
	struct watch_call call = {.kind = OPERATION_BEGINS, .level = SESSION_LEVEL_OP, .name = "b"};
	char name[SESSION_WATCH_MAX];
	struct watch_plan plan;

	(void)state;
	begin_watch("a", UINT32_MAX, "c", SESSION_LEVEL_OP);
	assert_int_equal(tell("a", OPERATION_ENDED, two, 2), 2);
	assert_true(watch_plan(&watch, &call, &plan));
	assert_true(watch_read_begin(&watch.ranges[plan.ranges[0]]));
	watch_read_end(&watch.ranges[plan.ranges[0]]);
	assert_int_equal(watch_free(&watch, 0x3000, 0, false, name), 0);
	assert_int_equal(watch_free(&watch, 0x1000, 0, false, name), 1);
	assert_string_equal(name, "a");
	assert_false(watch_read_begin(&watch.ranges[plan.ranges[0]]));
	assert_true(watch_read_begin(&watch.ranges[plan.ranges[1]]));
	watch_read_end(&watch.ranges[plan.ranges[1]]);
	watch_finish(&watch, &plan, true);
	assert_int_equal(tell("b", OPERATION_ENDED, NULL, 0), 1);
	/* By its size: also what lies inside. When nothing of a start is left, the next one begins again. */
	assert_int_equal(watch_free(&watch, 0x1f00, 0x100, false, name), 0);
	assert_int_equal(watch_free(&watch, 0x1f00, 0x101, false, name), 1);
	assert_int_equal(tell("b", OPERATION_BEGINS, NULL, 0), 0);
	assert_int_equal(tell("a", OPERATION_ENDED, two, 2), 2);
}

static void a_neighbour_that_is_given_back_does_not_end_a_watch(void **state)
{
	struct watch_range range = {.address = 0x1000, .bytes = 0x400, .name = "long"};
	struct watch_span ignored[WATCH_IGNORED];
	char name[SESSION_WATCH_MAX];

	(void)state;
	begin_watch("", UINT32_MAX, "", SESSION_LEVEL_OP);
	assert_int_equal(watch_add(&watch, &range, WATCH_UNLIMITED), 0);
	assert_int_equal(watch_free(&watch, 0x1200, 0x100, false, name), 0);
	assert_int_equal(tell("b", OPERATION_BEGINS, NULL, 0), 1);
	assert_int_equal(atomic_load(&watch.ranges[0].readable), 0x400);
	assert_int_equal(watch_ignored(&watch, 0, ignored), 1);
	assert_true(ignored[0].first <= 0x1200 && ignored[0].first > 0x1000);
	assert_true(ignored[0].end >= 0x1300 && ignored[0].end < 0x1400);
	/* What goes back to the driver cannot be read any more. */
	assert_int_equal(watch_free(&watch, 0x1300, 0x1000, true, name), 0);
	assert_int_equal(atomic_load(&watch.ranges[0].readable), 0x300);
	assert_int_equal(tell("b", OPERATION_ENDED, NULL, 0), 1);
	/* Its own block does end it. */
	assert_int_equal(watch_free(&watch, 0xf00, 0x200, false, name), 1);
	assert_string_equal(name, "long");
	assert_int_equal(tell("b", OPERATION_BEGINS, NULL, 0), 0);
}

static void what_was_asked_for_is_off_and_what_the_program_watches_stays(void **state)
{
	struct watch_range range = {.address = 0x9000, .bytes = 16, .name = "own"};

	(void)state;
	begin_watch("a", UINT32_MAX, "c", SESSION_LEVEL_OP);
	assert_int_equal(watch_add(&watch, &range, WATCH_UNLIMITED), 0);
	assert_int_equal(tell("a", OPERATION_ENDED, two, 2), 3);
	watch_off(&watch);
	assert_int_equal(tell("b", OPERATION_ENDED, NULL, 0), 1);
	assert_int_equal(tell("a", OPERATION_ENDED, two, 2), 1);
	assert_int_equal(watch_remove(&watch, 0x9000, 16), 0);
	assert_int_equal(atomic_load(&watch.active), 0);
}

static void names_are_new_once(void **state)
{
	struct watch_call call = {.kind = OPERATION_BEGINS, .level = SESSION_LEVEL_OP, .name = "b"};
	struct watch_plan plan;

	(void)state;
	begin_watch("a", UINT32_MAX, "c", SESSION_LEVEL_OP);
	(void)watch_plan(&watch, &call, &plan);
	assert_true(plan.is_new && plan.seen == 0);
	(void)watch_plan(&watch, &call, &plan);
	assert_false(plan.is_new);
	call.name = "a";
	(void)watch_plan(&watch, &call, &plan);
	assert_true(plan.is_new && plan.seen == SEEN_START);
	call.kind = OPERATION_ENDED;
	(void)watch_plan(&watch, &call, &plan);
	assert_true(!plan.is_new && plan.seen == 0);
}

/* ---- who may write ---- */

#define PLACES	     512u /* addresses of the model */
#define OPEN_THREADS 3u
#define DEPTH	     4u
#define DECLARED     3u

struct open_call {
	bool ended;
	char name[8];
	bool may[PLACES];
	uint32_t lasts;
};

struct open_model {
	struct open_call open[OPEN_THREADS][DEPTH];
	uint32_t depth[OPEN_THREADS];
	struct open_call over[64];
	uint32_t over_count;
};

static bool open_may(const struct open_model *model, uint32_t place)
{
	uint32_t i;

	for (i = 0; i < OPEN_THREADS; i++) {
		if (model->depth[i] > 0 && model->open[i][model->depth[i] - 1].may[place])
			return true;
	}
	for (i = 0; i < model->over_count; i++) {
		if (model->over[i].may[place])
			return true;
	}
	return false;
}

static void check_allowed(struct watch_calls *calls, const struct open_model *model, uint64_t *seed)
{
	uint64_t first = unit_random(seed) % PLACES;
	struct watch_span within = {first, first + 1 + unit_random(seed) % (PLACES - first)};
	struct watch_span found[WATCH_SPANS];
	uint32_t count = watch_calls_allowed(calls, within, found, WATCH_SPANS), i, at = 0;
	uint64_t place;

	for (i = 1; i < count; i++)
		assert_true(found[i - 1].end < found[i].first);
	for (place = 0; place < PLACES; place++) {
		bool inside = place >= within.first && place < within.end;

		while (at < count && found[at].end <= place)
			at++;
		assert_int_equal(at < count && found[at].first <= place,
				 inside && open_may(model, (uint32_t)place));
	}
}

static void open_end(struct open_model *model, uint32_t thread, bool seen)
{
	struct open_call *call = &model->open[thread][--model->depth[thread]];

	if (!seen || call->lasts > 0)
		model->over[model->over_count++] = *call;
}

static void open_dumped(struct open_model *model)
{
	uint32_t i, kept = 0;

	for (i = 0; i < model->over_count; i++) {
		if (model->over[i].lasts > 1) {
			model->over[kept] = model->over[i];
			model->over[kept++].lasts--;
		}
	}
	model->over_count = kept;
}

static void open_declare(struct watch_calls *calls, struct open_model *model, uint32_t thread,
			 uint64_t *seed)
{
	struct open_call *call = &model->open[thread][model->depth[thread] - 1];
	struct watch_span spans[DECLARED];
	uint32_t count = (uint32_t)(unit_random(seed) % (DECLARED + 1)), i;
	bool lasting = unit_random(seed) % 16 == 0 && count > 0;
	uint64_t place;

	for (i = 0; i < count; i++) {
		spans[i].first = unit_random(seed) % PLACES;
		spans[i].end = spans[i].first + unit_random(seed) % (PLACES - spans[i].first);
		for (place = spans[i].first; place < spans[i].end; place++)
			call->may[place] = true;
	}
	if (lasting)
		call->lasts = WATCH_LASTS;
	watch_calls_declare(calls, thread + 1, call->name, spans, count, lasting);
}

static void what_may_be_written_is_what_calls_in_progress_declared(void **state)
{
	static struct watch_calls calls;
	static struct open_model model;
	uint64_t seed = 7;
	uint32_t round;

	(void)state;
	watch_calls_reset(&calls);
	for (round = 0; round < 20000; round++) {
		uint32_t thread = (uint32_t)(unit_random(&seed) % OPEN_THREADS);
		uint32_t *depth = &model.depth[thread];
		uint64_t what = unit_random(&seed) % 8;

		if (what < 3 && *depth < DEPTH) {
			struct open_call *call = &model.open[thread][(*depth)++];

			*call = (struct open_call){0};
			(void)snprintf(call->name, sizeof(call->name), "op%u", *depth);
			assert_true(watch_calls_open(&calls, thread + 1, call->name, 0));
			open_declare(&calls, &model, thread, &seed);
		} else if (what < 6 && *depth > 0 && model.over_count < 32) {
			bool seen = unit_random(&seed) % 4 != 0;
			/* Sometimes the end of the inner one does not come. */
			uint32_t leave = *depth > 1 && unit_random(&seed) % 8 == 0 ? 2 : 1;

			*depth -= leave - 1;
			watch_calls_close(&calls, thread + 1, model.open[thread][*depth - 1].name,
					  seen);
			open_end(&model, thread, seen);
			if (seen) {
				watch_calls_seen(&calls);
				open_dumped(&model);
			}
		} else if (what == 6) {
			watch_calls_seen(&calls);
			open_dumped(&model);
		} else if (*depth > 0) {
			open_declare(&calls, &model, thread, &seed);
		}
		check_allowed(&calls, &model, &seed);
	}
}

static void a_call_that_an_exception_left_is_over_when_the_next_one_begins(void **state)
{
	static struct watch_calls calls;
	struct watch_span outer = {10, 20}, inner = {30, 40}, found[4];
	char shown[WATCH_SHOWN];

	(void)state;
	watch_calls_reset(&calls);
	assert_true(watch_calls_open(&calls, 1, "outer", 1000));
	watch_calls_declare(&calls, 1, "outer", &outer, 1, false);
	assert_true(watch_calls_open(&calls, 1, "inner", 900));
	watch_calls_declare(&calls, 1, "inner", &inner, 1, false);
	assert_true(watch_calls_inside(&calls, 1, "inner", shown));
	assert_string_equal(shown, "outer");
	/* Its end does not come, and another one begins where it did. */
	assert_true(watch_calls_open(&calls, 1, "next", 900));
	assert_int_equal(watch_calls_allowed(&calls, (struct watch_span){0, 50}, found, 4), 0);
	watch_calls_close(&calls, 1, "next", true);
	assert_int_equal(watch_calls_allowed(&calls, (struct watch_span){0, 50}, found, 4), 1);
	assert_true(found[0].first == 10 && found[0].end == 20);
	assert_true(watch_calls_open(&calls, 1, "later", 1000));
	watch_calls_close(&calls, 1, "later", true);
	assert_int_equal(watch_calls_allowed(&calls, (struct watch_span){0, 50}, found, 4), 0);
	assert_false(watch_calls_inside(&calls, 1, "", shown));
}

/* Operators at kernel level end where nothing is dumped; any number of them may run between two dumps. */
static void what_many_calls_wrote_that_no_dump_has_seen_is_allowed(void **state)
{
	static struct watch_calls calls;
	struct watch_span found[WATCH_SPANS];
	uint32_t i;

	(void)state;
	watch_calls_reset(&calls);
	for (i = 0; i < 3 * WATCH_CALLS; i++) {
		struct watch_span span = {UINT64_C(16) * (i % 100), UINT64_C(16) * (i % 100) + 8};

		assert_true(watch_calls_open(&calls, 1, "op", 0));
		watch_calls_declare(&calls, 1, "op", &span, 1, false);
		watch_calls_close(&calls, 1, "op", false);
	}
	assert_int_equal(
		watch_calls_allowed(&calls, (struct watch_span){0, 4096}, found, WATCH_SPANS), 100);
	for (i = 0; i < 100; i++)
		assert_true(found[i].first == UINT64_C(16) * i &&
			    found[i].end == UINT64_C(16) * i + 8);
	/* Calls in progress are never joined. */
	for (i = 0; i < WATCH_CALLS - 1; i++)
		assert_true(watch_calls_open(&calls, 2 + i, "op", 0));
	assert_false(watch_calls_open(&calls, 1, "op", 0));
	watch_calls_seen(&calls);
	assert_true(watch_calls_open(&calls, 1, "op", 0));
	assert_int_equal(
		watch_calls_allowed(&calls, (struct watch_span){0, 4096}, found, WATCH_SPANS), 0);
}

static void a_list_of_spans_without_room_covers_what_it_was_given(void **state)
{
	uint64_t seed = 3;
	uint32_t round, i;

	(void)state;
	for (round = 0; round < 2000; round++) {
		struct watch_span list[8];
		bool given[PLACES] = {false};
		uint32_t count = 0, room = 1 + (uint32_t)(unit_random(&seed) % 8);

		for (i = 0; i < 20; i++) {
			uint64_t first = unit_random(&seed) % PLACES;
			struct watch_span span = {first, first + unit_random(&seed) %
									 (PLACES - first) / 8};
			uint64_t place;

			count = watch_span_add(list, count, room, span);
			assert_true(count <= room);
			for (place = span.first; place < span.end; place++)
				given[place] = true;
		}
		for (i = 0; i < PLACES; i++) {
			uint32_t k;

			for (k = 0; k < count && !(list[k].first <= i && i < list[k].end); k++)
				;
			assert_true(!given[i] || k < count);
		}
	}
}

/* ---- what changed ---- */

static void check_change(const struct watch_change *change, const uint8_t *was, const uint8_t *is,
			 size_t bytes, const bool *may)
{
	uint64_t changed = 0, stray = 0, first = 0, last = 0;
	size_t i;

	for (i = 0; i < bytes; i++) {
		changed += was[i] != is[i];
		if (was[i] == is[i] || may[i])
			continue;
		if (stray++ == 0)
			first = i;
		last = i;
	}
	assert_true(change->compared && change->bytes == changed && change->stray_bytes == stray);
	assert_true(stray == 0 || (change->first == first && change->last == last));
}

static void a_change_is_told_byte_by_byte(void **state)
{
	static struct comparison comparison;
	uint8_t was[700], is[700];
	uint64_t seed = 11;
	uint32_t round, i;

	(void)state;
	for (round = 0; round < 3000; round++) {
		size_t bytes = 1 + unit_random(&seed) % sizeof(is), at = 0;
		bool may[700] = {false};

		for (i = 0; i < sizeof(was); i++)
			was[i] = is[i] = (uint8_t)unit_random(&seed);
		comparison.allowed_count = 0;
		compare_begin(&comparison, round % 5, bytes, true);
		compare_piece(&comparison, 0, was, bytes);
		compare_end(&comparison, bytes, 1);
		assert_false(comparison.change.compared);
		for (i = (uint32_t)(unit_random(&seed) % 6); i > 0; i--) {
			size_t from = unit_random(&seed) % bytes;

			memset(is + from, (int)unit_random(&seed),
			       unit_random(&seed) % (bytes - from + 1));
		}
		for (i = (uint32_t)(unit_random(&seed) % 4); i > 0; i--) {
			uint64_t from = unit_random(&seed) % bytes;
			struct watch_span span = {from,
						  from + unit_random(&seed) % (bytes - from + 1)};
			uint64_t place;

			comparison.allowed_count = watch_span_add(
				comparison.allowed, comparison.allowed_count, 8, span);
			for (place = span.first; place < span.end; place++)
				may[place] = true;
		}
		compare_begin(&comparison, round % 5, bytes, false);
		while (at < bytes) {
			size_t piece = 1 + unit_random(&seed) % (bytes - at);

			compare_piece(&comparison, at, is + at, piece);
			at += piece;
		}
		compare_end(&comparison, bytes, 2);
		check_change(&comparison.change, was, is, bytes, may);
	}
	compare_reset();
}

static void more_can_be_compared_than_is_kept(void **state)
{
	static struct comparison comparison;
	uint8_t byte = 1;

	(void)state;
	comparison.allowed_count = 0;
	compare_begin(&comparison, 0, COPIES_MAX + 1, true);
	assert_null(comparison.copy);
	compare_piece(&comparison, 0, &byte, 1);
	compare_end(&comparison, COPIES_MAX + 1, 5);
	compare_begin(&comparison, 0, COPIES_MAX + 1, false);
	compare_end(&comparison, COPIES_MAX + 1, 5);
	assert_true(comparison.change.compared && comparison.change.bytes == 0);
	compare_begin(&comparison, 0, COPIES_MAX + 1, false);
	compare_end(&comparison, COPIES_MAX + 1, 6);
	assert_true(comparison.change.bytes == BYTES_UNKNOWN &&
		    comparison.change.stray_bytes == BYTES_UNKNOWN);
	comparison.allowed[0] = (struct watch_span){0, 5};
	comparison.allowed_count = 1;
	compare_begin(&comparison, 0, COPIES_MAX + 1, false);
	compare_end(&comparison, COPIES_MAX + 1, 7);
	assert_true(comparison.change.bytes == BYTES_UNKNOWN && comparison.change.stray_bytes == 0);
	compare_reset();
}

static void more_blocks_than_there_is_room_for_are_counted(void **state)
{
	static struct watch_output many[WATCH_RANGES + 5];
	struct watch_plan plan;
	uint32_t i;

	(void)state;
	for (i = 0; i < MSCOPE_COUNT(many); i++)
		many[i] = (struct watch_output){0x1000 * (i + 1), 16};
	begin_watch("a", UINT32_MAX, "c", SESSION_LEVEL_OP);
	assert_int_equal(tell_at(SESSION_LEVEL_OP, "a", NULL, OPERATION_ENDED, many,
				 MSCOPE_COUNT(many), &plan),
			 WATCH_RANGES);
	assert_int_equal(plan.dropped, 5);
	assert_int_equal(add(0x10, 8, 1), -ENOSPC);
	assert_int_equal(tell("c", OPERATION_ENDED, NULL, 0), WATCH_RANGES);
	assert_int_equal(add(0x10, 8, 1), 0);
}

/* ---- against a model ---- */

struct model_range {
	uint64_t address, bytes;
	uint32_t output;
	int64_t left;
	bool api;
};

struct model {
	struct model_range ranges[512];
	size_t count;
	bool open;
	uint64_t counts[8];
};

static const char *const names[8] = {"a", "b", "c", "d", "e", "f", "g", "h"};

static void model_remove(struct model *model, size_t at)
{
	memmove(&model->ranges[at], &model->ranges[at + 1],
		(--model->count - at) * sizeof(model->ranges[0]));
}

static bool model_has(const struct model *model, bool api)
{
	size_t i;

	for (i = 0; i < model->count; i++) {
		if (model->ranges[i].api == api)
			return true;
	}
	return false;
}

/* An operator in the model; fills what it looks at, as address and output. */
static size_t model_tell(struct model *model, const char *start, const char *end, uint32_t only,
			 uint32_t name, uint32_t kind, const struct watch_output *outputs,
			 uint32_t count, struct model_range *seen)
{
	bool is_start = strcmp(names[name], start) == 0, is_end = strcmp(names[name], end) == 0;
	size_t i, found = 0;

	if (kind == OPERATION_BEGINS || model->counts[name] == 0)
		model->counts[name]++;
	for (i = 0; i < model->count; i++) {
		seen[found++] = model->ranges[i];
		if (model->ranges[i].left > 0 && --model->ranges[i].left == 0)
			model_remove(model, i--);
	}
	if (kind != OPERATION_ENDED)
		return found;
	if (is_end && (model->open || start[0] == '\0')) {
		for (i = 0; i < model->count; i++) {
			if (!model->ranges[i].api || start[0] == '\0')
				model_remove(model, i--);
		}
		model->open = false;
	} else if (is_start && !model->open) {
		for (i = 0; i < count; i++) {
			struct model_range range = {outputs[i].address, outputs[i].bytes,
						    (uint32_t)i, WATCH_UNLIMITED, false};

			if (only < count && i != only)
				continue;
			seen[found++] = model->ranges[model->count++] = range;
			model->open = true;
		}
	}
	return found;
}

static void assert_same(const struct watch_plan *plan, const struct model_range *seen, size_t found)
{
	bool used[512] = {false};
	size_t i, k;

	assert_int_equal(plan->count, found);
	for (i = 0; i < plan->count; i++) {
		const struct watch_range *range = &watch.ranges[plan->ranges[i]];

		for (k = 0; k < found; k++) {
			if (!used[k] && seen[k].address == range->address &&
			    seen[k].bytes == range->bytes && seen[k].output == range->output &&
			    seen[k].api == range->from_api)
				break;
		}
		assert_true(k < found);
		used[k] = true;
	}
}

static void random_step(uint64_t *seed, struct model *model, const char *start, const char *end,
			uint32_t only)
{
	uint64_t address = 0x1000 * (1 + unit_random(seed) % 8), choice = unit_random(seed) % 20;
	struct model_range seen[512];
	char name[SESSION_WATCH_MAX];
	size_t i, found;

	if (choice == 0 && model->count < 100) {
		int64_t limit = (int64_t)(unit_random(seed) % 6) - 1;

		for (i = 0; i < model->count && limit != 0; i++) {
			if (model->ranges[i].api && model->ranges[i].address == address)
				model_remove(model, i--);
		}
		assert_int_equal(add(address, 32, limit), 0);
		if (limit != 0)
			model->ranges[model->count++] =
				(struct model_range){address, 32, 0, limit, true};
	} else if (choice == 1) {
		for (i = 0, found = 0; i < model->count; i++) {
			if (model->ranges[i].api && model->ranges[i].address == address) {
				model_remove(model, i--);
				found++;
			}
		}
		assert_int_equal(watch_remove(&watch, address, 32), found > 0 ? 0 : -ENOENT);
	} else if (choice == 2) {
		for (i = 0, found = 0; i < model->count; i++) {
			if (model->ranges[i].address == address) {
				model_remove(model, i--);
				found++;
			}
		}
		assert_int_equal(watch_free(&watch, address, 0, false, name), found);
		if (found > 0 && !model_has(model, false))
			model->open = false;
	} else {
		uint32_t which = (uint32_t)(unit_random(seed) % 8);
		uint32_t kind = unit_random(seed) % 2 ? OPERATION_BEGINS : OPERATION_ENDED;
		struct watch_output outputs[3];
		uint32_t count = (uint32_t)(unit_random(seed) % 4);
		struct watch_call call = {.kind = kind,
					  .level = SESSION_LEVEL_OP,
					  .name = names[which],
					  .outputs = outputs,
					  .output_count = count};
		struct watch_plan plan;

		for (i = 0; i < count; i++)
			outputs[i] =
				(struct watch_output){0x1000 * (1 + unit_random(seed) % 8), 16};
		found = model_tell(model, start, end, only, which, kind, outputs, count, seen);
		assert_true(watch_plan(&watch, &call, &plan) == (found > 0));
		assert_same(&plan, seen, found);
		assert_true(plan.number == model->counts[which]);
		if (plan.count > 0)
			watch_finish(&watch, &plan, true);
	}
	assert_int_equal(atomic_load(&watch.range_count), model->count);
}

static void any_sequence_is_watched_as_the_model_says(void **state)
{
	static const char *const starts[] = {"a", "", "b", "h"};
	static const char *const ends[] = {"c", "c", "b", ""};
	uint64_t seed = 7;
	uint32_t round, step;

	(void)state;
	for (round = 0; round < 400; round++) {
		const char *start = starts[round % 4], *end = ends[round % 4];
		uint32_t only = round % 3 == 0 ? 1 : UINT32_MAX;
		struct model model = {0};

		begin_watch(start, only, end, SESSION_LEVEL_OP);
		for (step = 0; step < 300; step++)
			random_step(&seed, &model, start, end, only);
	}
}

/* ---- several threads ---- */

#define SHARED		 8u
#define SHARED_LOOPS	 20000u
#define SHARED_LOOPS_MAX (1000 * SHARED_LOOPS)

static _Atomic uint32_t alive[SHARED]; /* 1: the block may be read */
static _Atomic uint32_t done, bad_reads, good_reads;

static uint64_t shared_address(uint32_t block)
{
	return 0x10000 * (block + 1);
}

/* Operators that read every range of their plans, as long as they may. */
static void *shared_operators(void *arg)
{
	struct watch_call call = {.kind = OPERATION_BEGINS, .level = SESSION_LEVEL_OP, .name = arg};
	struct watch_plan plan;
	uint32_t i;

	while (atomic_load(&done) == 0) {
		if (!watch_plan(&watch, &call, &plan))
			continue;
		for (i = 0; i < plan.count; i++) {
			struct watch_range *range = &watch.ranges[plan.ranges[i]];

			if (!watch_read_begin(range))
				continue;
			if (atomic_load(&alive[range->address / 0x10000 - 1]) == 0)
				atomic_fetch_add(&bad_reads, 1);
			atomic_fetch_add(&good_reads, 1);
			watch_read_end(range);
		}
		watch_finish(&watch, &plan, true);
	}
	return NULL;
}

/* Takes a block, watches it, and gives it back. */
static void *shared_owner(void *arg)
{
	uint32_t block = (uint32_t)(uintptr_t)arg, i;
	char name[SESSION_WATCH_MAX];

	/* On a busy machine the readers may not have had their turn yet. */
	for (i = 0; i < SHARED_LOOPS || (atomic_load(&good_reads) == 0 && i < SHARED_LOOPS_MAX);
	     i++) {
		atomic_store(&alive[block], 1);
		(void)add(shared_address(block), 64, i % 3 == 0 ? 2 : WATCH_UNLIMITED);
		(void)watch_free(&watch, shared_address(block), 0x100, false, name);
		atomic_store(&alive[block], 0);
	}
	return NULL;
}

static void nobody_reads_memory_that_another_thread_has_given_back(void **state)
{
	static char operator_names[2][4] = {"one", "two"};
	pthread_t operators[2], owners[SHARED];
	uint32_t i;

	(void)state;
	begin_watch("", UINT32_MAX, "", SESSION_LEVEL_OP);
	for (i = 0; i < 2; i++)
		assert_int_equal(
			pthread_create(&operators[i], NULL, shared_operators, operator_names[i]),
			0);
	for (i = 0; i < SHARED; i++)
		assert_int_equal(
			pthread_create(&owners[i], NULL, shared_owner, (void *)(uintptr_t)i), 0);
	for (i = 0; i < SHARED; i++)
		assert_int_equal(pthread_join(owners[i], NULL), 0);
	atomic_store(&done, 1);
	for (i = 0; i < 2; i++)
		assert_int_equal(pthread_join(operators[i], NULL), 0);
	assert_int_equal(atomic_load(&bad_reads), 0);
	assert_true(atomic_load(&good_reads) > 0);
	assert_int_equal(atomic_load(&watch.range_count), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_checksum_has_the_known_values),
		cmocka_unit_test(operators_are_known_by_their_bare_names),
		cmocka_unit_test(pieces_give_the_sum_of_the_whole),
		cmocka_unit_test(sums_of_chunks_give_the_sum_of_the_whole),
		cmocka_unit_test(only_chunks_that_changed_are_read),
		cmocka_unit_test(without_a_copy_the_chunks_are_known),
		cmocka_unit_test(from_start_to_end_each_operator_looks_twice),
		cmocka_unit_test(one_output_is_watched_when_one_was_named),
		cmocka_unit_test(operators_are_found_by_path_with_and_without_its_place),
		cmocka_unit_test(the_level_says_who_looks),
		cmocka_unit_test(a_block_that_had_its_dumps_stops_no_other),
		cmocka_unit_test(dumps_that_could_not_be_made_do_not_count),
		cmocka_unit_test(without_a_start_the_end_ends_what_the_program_watches),
		cmocka_unit_test(memory_that_is_given_back_is_not_read),
		cmocka_unit_test(a_neighbour_that_is_given_back_does_not_end_a_watch),
		cmocka_unit_test(what_was_asked_for_is_off_and_what_the_program_watches_stays),
		cmocka_unit_test(names_are_new_once),
		cmocka_unit_test(what_may_be_written_is_what_calls_in_progress_declared),
		cmocka_unit_test(a_call_that_an_exception_left_is_over_when_the_next_one_begins),
		cmocka_unit_test(what_many_calls_wrote_that_no_dump_has_seen_is_allowed),
		cmocka_unit_test(a_list_of_spans_without_room_covers_what_it_was_given),
		cmocka_unit_test(a_change_is_told_byte_by_byte),
		cmocka_unit_test(more_can_be_compared_than_is_kept),
		cmocka_unit_test(more_blocks_than_there_is_room_for_are_counted),
		cmocka_unit_test(any_sequence_is_watched_as_the_model_says),
		cmocka_unit_test(nobody_reads_memory_that_another_thread_has_given_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
