/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claims about trace/builder.h: what is built is read back by a run, with its times, texts and payloads; chunks are split where
 * they are full and nowhere inside a record; an error is kept, whatever follows it.
 */
#include <errno.h>

#include "unit.h"

#include "trace/builder.h"
#include "trace/run.h"

void *__real_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size);

/* Allocations until one fails, -1: none does. */
static int allocations_left = -1;
static int failed_allocations;

void *__wrap_realloc(void *old, size_t size)
{
	if (allocations_left == 0) {
		failed_allocations++;
		return NULL;
	}
	if (allocations_left > 0)
		allocations_left--;
	return __real_realloc(old, size);
}

/* A pack with a header, into which builders write. */
static struct pack_writer *pack_begin(void)
{
	static const char identity[] = "program=built";
	struct trace_header *header = preamble_new(identity, sizeof(identity));
	struct pack_writer *pack;

	assert_non_null(header);
	(void)unlink(unit_path("pack"));
	assert_int_equal(pack_writer_open(unit_path("pack"), &pack, NULL), 0);
	assert_int_equal(preamble_put(pack, header), 0);
	free(header);
	return pack;
}

/* Ends the pack and opens it for reading. */
static struct run *pack_read(struct pack_writer *pack)
{
	struct run *run;

	assert_int_equal(pack_writer_put(pack, &(struct pack_block){.kind = PACK_END}, ""), 0);
	pack_writer_close(pack);
	assert_int_equal(run_open(NULL, unit_path("pack"), false, &run, NULL), 0);
	assert_int_equal(run_poll(run, 0, true), 0);
	return run;
}

static void assert_whole(const struct run *run)
{
	const struct run_damage *damage = run_damage(run);

	assert_int_equal(damage->bad_chunks + damage->missing_chunks + damage->bad_records +
				 damage->skipped_bytes + damage->late_events,
			 0);
	assert_false(damage->cut);
}

static void built_records_are_read_back(void **state)
{
	const struct context context = {.pool = POOL_pta,
					.kind = BLOCK_CREATE,
					.page = PAGE_HUGE,
					.vendor = VENDOR_ASCEND,
					.device = 3,
					.module = 33,
					.flags = 7};
	struct event_step step = {.number = 5};
	struct builder b = {.writer = 9, .pack = pack_begin(), .time_ns = 1000};
	struct pack_writer *pack = b.pack;
	struct event_context_def got;
	struct trace_event event;
	struct run *run;

	(void)state;
	BUILDER_PUT(&b, thread, 0, .tid = 71);
	builder_put_context(&b, 4, &context);
	b.time_ns = 1001;
	builder_put_text(&b, 2, "twelve bytes", 12);
	builder_put_text(&b, 3, "", 0);
	BUILDER_BEGIN(&b, module_load, 0, .id = 1, .build_id_bytes = 3, .path_bytes = 6);
	builder_payload(&b, "abc", 3);
	builder_payload(&b, "/lib/x", 6);
	builder_end(&b);
	BUILDER_PUT_EVENT(&b, step, 4, &step);
	builder_flush(&b);
	assert_int_equal(b.error, 0);
	builder_fini(&b);
	run = pack_read(pack);
	assert_string_equal(run_identity(run, "program"), "built");
	assert_true(run_next(run, &event));
	assert_int_equal(event.type, EVENT_thread);
	assert_int_equal(event.writer, 9);
	assert_int_equal(event.tid, 71);
	assert_int_equal(event.time_ns, 1000);
	assert_true(run_next(run, &event));
	event_context_def_decode(event.words, &got);
	assert_int_equal(got.id, 4);
	assert_int_equal(got.pool, POOL_pta);
	assert_int_equal(got.kind, BLOCK_CREATE);
	assert_int_equal(got.page, PAGE_HUGE);
	assert_int_equal(got.vendor, VENDOR_ASCEND);
	assert_int_equal(got.device, 3);
	assert_int_equal(got.module, 33);
	assert_int_equal(got.flags, 7);
	assert_true(run_next(run, &event));
	assert_int_equal(event.type, EVENT_text_def);
	assert_int_equal(event.time_ns, 1001);
	assert_int_equal(event.payload_bytes, 16);
	assert_memory_equal(event.payload, "twelve bytes\0\0\0\0", 16);
	assert_true(run_next(run, &event));
	assert_int_equal(event.payload_bytes, 0);
	assert_true(run_next(run, &event));
	assert_int_equal(event.type, EVENT_module_load);
	assert_memory_equal(event.payload, "abc/lib/x", 9);
	assert_true(run_next(run, &event));
	assert_int_equal(event.type, EVENT_step);
	assert_int_equal(event.context, 4);
	assert_int_equal(event.words[1], 5);
	assert_false(run_next(run, &event));
	assert_whole(run);
	run_close(run);
}

static void pauses_longer_than_a_delta_keep_their_time(void **state)
{
	static const uint64_t times[] = {5, 5 + UINT64_C(0xffffffff), UINT64_C(0x100000006),
					 UINT64_C(0x300000000), UINT64_MAX - 1};
	struct builder b = {.writer = 1, .pack = pack_begin()};
	struct pack_writer *pack = b.pack;
	struct trace_event event;
	struct run *run;
	size_t i;

	(void)state;
	for (i = 0; i < MSCOPE_COUNT(times); i++) {
		b.time_ns = times[i];
		BUILDER_PUT(&b, step, 0, .number = i);
	}
	builder_flush(&b);
	assert_int_equal(b.error, 0);
	builder_fini(&b);
	run = pack_read(pack);
	for (i = 0; i < MSCOPE_COUNT(times); i++) {
		assert_true(run_next(run, &event));
		assert_int_equal(event.words[1], i);
		assert_int_equal(event.time_ns, times[i]);
	}
	assert_false(run_next(run, &event));
	assert_whole(run);
	run_close(run);
}

static void full_chunks_go_out_and_join_again(void **state)
{
	struct builder a = {.writer = 1, .pack = pack_begin(), .chunk_bytes = 100};
	struct builder b = {.writer = 2, .pack = a.pack};
	struct pack_writer *pack = a.pack;
	static const char text[300];
	struct trace_event event;
	struct run *run;
	uint64_t i, next[2] = {0};

	(void)state;
	for (i = 0; i < 50; i++) {
		a.time_ns = b.time_ns = 100 + i;
		BUILDER_PUT(&a, step, 0, .number = i);
		BUILDER_PUT(&b, step, 0, .number = i);
		if (i % 10 == 0)
			builder_put_text(&a, 1, text, sizeof(text));
		assert_true(a.records.length < 100 + 16 + 24 + 304);
	}
	assert_int_equal(b.sequence, 0);
	assert_true(a.sequence > 7);
	builder_flush(&a);
	builder_flush(&a); /* there is no chunk: nothing happens */
	builder_flush(&b);
	assert_int_equal(b.sequence, 1);
	assert_int_equal(a.error, 0);
	assert_int_equal(b.error, 0);
	builder_fini(&a);
	builder_fini(&b);
	run = pack_read(pack);
	while (run_next(run, &event)) {
		if (event.type == EVENT_text_def)
			continue;
		assert_int_equal(event.words[1], next[event.writer - 1]++);
		assert_int_equal(event.time_ns, 100 + event.words[1]);
	}
	assert_int_equal(next[0], 50);
	assert_int_equal(next[1], 50);
	assert_whole(run);
	run_close(run);
}

static void chunk_without_a_pack_is_for_the_caller(void **state)
{
	struct builder b = {.writer = 1, .chunk_bytes = 16, .time_ns = 70};

	(void)state;
	builder_begin_chunk(&b, 50);
	BUILDER_PUT(&b, step, 0, .number = 1);
	BUILDER_PUT(&b, step, 0, .number = 2);
	BUILDER_PUT(&b, step, 0, .number = 3);
	assert_int_equal(b.chunk_ns, 50);
	assert_int_equal(b.records.length, 3 * EVENT_BYTES_step);
	assert_int_equal(b.records.data[4], 20);
	builder_flush(&b);
	assert_int_equal(b.records.length, 0);
	assert_int_equal(b.sequence, 1);
	BUILDER_PUT(&b, step, 0, .number = 4);
	assert_int_equal(b.chunk_ns, 70);
	assert_int_equal(b.error, 0);
	builder_fini(&b);
}

static void every_failed_allocation_is_told(void **state)
{
	int n, i, error = -ENOMEM;

	(void)state;
	for (n = 0; error != 0; n++) {
		struct builder b = {.writer = 1};

		failed_allocations = 0;
		allocations_left = n;
		for (i = 0; i < 200; i++)
			builder_put_text(&b, 1, "some text of some length", 24);
		builder_flush(&b);
		allocations_left = -1;
		error = b.error;
		assert_int_equal(error, failed_allocations > 0 ? -ENOMEM : 0);
		/* It stays, although memory is there again. */
		BUILDER_PUT(&b, step, 0, .number = 1);
		builder_flush(&b);
		assert_int_equal(b.error, error);
		builder_fini(&b);
	}
	assert_true(n > 3);
}

static void first_error_stays(void **state)
{
	struct builder b = {.writer = 1};

	(void)state;
	builder_fail(&b, 0);
	assert_int_equal(b.error, 0);
	builder_fail(&b, MSCOPE_E_LIMIT);
	builder_fail(&b, -ENOSPC);
	assert_int_equal(b.error, MSCOPE_E_LIMIT);
	builder_fini(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(built_records_are_read_back),
		cmocka_unit_test(pauses_longer_than_a_delta_keep_their_time),
		cmocka_unit_test(full_chunks_go_out_and_join_again),
		cmocka_unit_test(chunk_without_a_pack_is_for_the_caller),
		cmocka_unit_test(every_failed_allocation_is_told),
		cmocka_unit_test(first_error_stays),
	};

	return cmocka_run_group_tests_name("builder", tests, unit_make_directory,
					   unit_remove_directory);
}
