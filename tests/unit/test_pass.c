/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claims about one pass over a run (engine/pass.h), and about what a word means as a run (engine/input.h). Runs are made by hand.
 */
#include "symbols/elf_cache.h"
#include "unit.h"

#include <errno.h>

#include "engine/export.h"
#include "trace_maker.h"

#define HAL  1u
#define FREE 2u

#define HEADER "ID,Event,Event Type,Name,Timestamp(ns),Process Id,Thread Id,Device Id,Ptr,Attr\n"

/* Every other block is freed. */
static void make_trace(const char *path, uint32_t blocks)
{
	struct maker maker;
	struct maker_writer w = {.maker = &maker, .number = 1};
	uint64_t now = 2000;
	uint32_t i;

	maker_make(&maker, path, 1u << 16, 512);
	maker_thread(&w, now++, 70);
	maker_context(&w, now++, HAL, POOL_hal, BLOCK_ALLOC, 0);
	maker_context(&w, now++, FREE, POOL_hal, BLOCK_ALLOC, DEVICE_UNKNOWN);
	for (i = 0; i < blocks; i++) {
		maker_alloc(&w, now++, HAL, 0x1000 + i * 16, 16, 0);
		if (i % 2 == 0)
			maker_free(&w, now++, FREE, 0x1000 + i * 16);
	}
	(void)munmap(maker.header, maker.bytes);
}

static uint64_t rows_of(uint32_t blocks)
{
	return blocks + (blocks + 1) / 2;
}

/* ---- passes ---- */

/* A pass over a trace of its own. */
struct played {
	struct elf_cache elves;
	struct run *run;
	struct project project;
	struct session session;
	struct pass pass;
};

static void open_run(struct played *p, uint32_t blocks)
{
	*p = (struct played){
		.session = {.events = SESSION_ALLOC | SESSION_FREE, .all_devices = 1, .host = 1}};
	(void)snprintf(p->session.output, sizeof(p->session.output), "%s/out", unit_directory);
	p->project = (struct project){.output = p->session.output, .pid = 4711};
	make_trace(unit_path("pass.raw"), blocks);
	assert_int_equal(run_open(unit_path("pass.raw"), NULL, false, &p->run, NULL), 0);
}

static struct pass_setup setup_of(struct played *p)
{
	return (struct pass_setup){.run = p->run, .elves = &p->elves};
}

static void played_close(struct played *p)
{
	pass_close(&p->pass);
	run_close(p->run);
	elf_cache_fini(&p->elves);
}

static int count_event(void *arg, struct replay *replay, const struct trace_event *event)
{
	uint64_t *left = arg;

	(void)event;
	assert_non_null(replay);
	return --*left == 0 ? -EDOM : 0;
}

static void pass_without_a_sink_replays_and_writes_nothing(void **state)
{
	struct pass_setup setup;
	struct played p;

	(void)state;
	open_run(&p, 100);
	setup = setup_of(&p);
	assert_int_equal(pass_open(&p.pass, &setup, NULL), 0);
	assert_int_equal(pass_all(&p.pass, NULL), 0);
	assert_int_equal(replay_totals(p.pass.replay)->rows, rows_of(100));
	assert_int_equal(replay_block_count(p.pass.replay), 50);
	assert_int_equal(access(p.session.output, F_OK), -1);
	played_close(&p);
}

/* Of a trace of many chunks: about as many as there are, fewer from chunk to chunk, and none when it is read. */
static void what_is_left_to_be_read_is_counted(void **state)
{
	const uint64_t all = rows_of(30000);
	struct trace_event event;
	uint64_t left, before;
	uint64_t read = 0;
	struct played p;

	(void)state;
	open_run(&p, 30000);
	assert_int_equal(run_poll(p.run, 0, true), 0);
	before = run_left_events(p.run);
	assert_in_range(before, all * 3 / 4, all * 3 / 2);
	while (run_next(p.run, &event)) {
		if (++read % 5000 != 0)
			continue;
		left = run_left_events(p.run);
		assert_true(left < before);
		before = left;
	}
	assert_in_range(read, all, all + 10);
	assert_int_equal(run_left_events(p.run), 0);
	played_close(&p);
}

static void event_that_is_refused_ends_the_reading(void **state)
{
	uint64_t left = 10;
	struct pass_setup setup;
	struct mscope_error err = {0};
	struct played p;

	(void)state;
	open_run(&p, 100);
	setup = setup_of(&p);
	setup.event = count_event;
	setup.event_arg = &left;
	assert_int_equal(pass_open(&p.pass, &setup, NULL), 0);
	assert_int_equal(pass_all(&p.pass, &err), -EDOM);
	assert_int_equal(replay_totals(p.pass.replay)->events, 10);
	assert_non_null(strstr(err.message, "cannot read more of the trace"));
	played_close(&p);
}

static bool stop_at_once(void *arg, uint64_t events)
{
	*(uint64_t *)arg = events;
	return true;
}

static void pass_stops_when_it_is_told_to(void **state)
{
	const uint32_t blocks = 800000; /* more events than between two calls */
	struct pass_setup setup;
	uint64_t seen = 0;
	struct played p;

	(void)state;
	open_run(&p, blocks);
	setup = setup_of(&p);
	setup.progress = stop_at_once;
	setup.progress_arg = &seen;
	assert_int_equal(pass_open(&p.pass, &setup, NULL), 0);
	assert_int_equal(pass_all(&p.pass, NULL), -EINTR);
	assert_int_equal(replay_totals(p.pass.replay)->events, seen);
	assert_true(seen < rows_of(blocks));
	played_close(&p);
}

/* Files that cannot be written: where the project should be made, there is a file. */
static void failure_of_the_files_ends_the_reading_or_not(void **state)
{
	bool survive[] = {false, true};
	size_t i;

	(void)state;
	for (i = 0; i < MSCOPE_COUNT(survive); i++) {
		struct pass_setup setup;
		struct mscope_error err = {0};
		struct played p;
		int r;

		open_run(&p, 100);
		unit_write_file(p.session.output, "x", 1);
		setup = setup_of(&p);
		setup.sink = pass_sink(&p.session, &p.project);
		setup.survive_sink = survive[i];
		assert_int_equal(pass_open(&p.pass, &setup, NULL), 0);
		r = pass_all(&p.pass, &err);
		assert_int_equal(r, survive[i] ? 0 : -ENOTDIR);
		assert_int_equal(p.pass.sink_error.code, -ENOTDIR);
		assert_int_equal(replay_totals(p.pass.replay)->rows, survive[i] ? rows_of(100) : 1);
		assert_string_equal(err.message, p.pass.sink_error.message);
		played_close(&p);
		assert_int_equal(unlink(unit_path("out")), 0);
	}
}

static void pass_that_was_never_opened_can_be_closed(void **state)
{
	struct pass pass = {0};
	struct input input = {0};

	(void)state;
	pass_close(&pass);
	input_close(&input);
	/* Descriptor 0 is not theirs. */
	assert_true(fcntl(0, F_GETFD) >= 0);
}

/* ---- inputs ---- */

/* A dump of two blocks, of which one is freed. */
static const char dump[] =
	HEADER "0,MALLOC,HAL,N/"
	       "A,1700000000000000001,77,77,0,4096,\"{allocation_id:1,addr:4096,size:512}\"\n"
	       "1,MALLOC,HAL,N/"
	       "A,1700000000000000002,77,77,0,8192,\"{allocation_id:2,addr:8192,size:16}\"\n"
	       "2,FREE,HAL,N/"
	       "A,1700000000000000003,77,77,0,4096,\"{allocation_id:1,addr:4096,size:512}\"\n";

static void make_directories(const char *path)
{
	assert_int_equal(project_mkdirs(unit_path(path)), 0);
}

static void write_dump(const char *name)
{
	unit_write_file(unit_path(name), dump, sizeof(dump) - 1);
}

/* Opens a word and counts the blocks that live at the end of its run, or fails with this code. */
static void expect(const char *name, int code, size_t blocks, const char *home)
{
	struct elf_cache elves = {0};
	struct mscope_error err = {0};
	struct input input;
	struct pass pass = {0};
	char found[PATH_MAX], expected[PATH_MAX];
	int r = input_open(&input, unit_path(name), NULL, NULL, &err);

	if (r != code)
		fail_msg("%s: %d, not %d: %s", name, r, code, err.message);
	if (r == 0) {
		struct pass_setup setup = {.run = input.run, .elves = &elves};
		struct run *again = NULL;

		assert_int_equal(pass_open(&pass, &setup, NULL), 0);
		assert_int_equal(pass_all(&pass, NULL), 0);
		assert_int_equal(replay_block_count(pass.replay), blocks);
		/* A second pass finds the same. */
		assert_int_equal(input_reopen(&input, &again, NULL), 0);
		assert_int_equal(run_header(again)->pid, run_header(input.run)->pid);
		run_close(again);
		assert_int_equal(input_home(&input, found, sizeof(found), NULL), 0);
		assert_string_equal(found, realpath(unit_path(home), expected));
	} else {
		assert_non_null(strstr(err.message, unit_path(name)));
	}
	pass_close(&pass);
	input_close(&input);
	elf_cache_fini(&elves);
}

static void word_means_a_trace_a_dump_or_a_directory_of_one_run(void **state)
{
	(void)state;
	make_trace(unit_path("t.raw"), 100);
	expect("t.raw", 0, 50, ".");
	/* A name does not matter where the content tells. */
	assert_int_equal(rename(unit_path("t.raw"), unit_path("some")), 0);
	expect("some", 0, 50, ".");
	write_dump("dump.txt");
	expect("dump.txt", 0, 1, ".");

	make_directories("results/msmemscope_77_1_ascend/device_0/dump");
	write_dump("results/msmemscope_77_1_ascend/device_0/dump/memscope_dump_1.csv");
	expect("results/msmemscope_77_1_ascend/device_0/dump/memscope_dump_1.csv", 0, 1, "results");
	expect("results/msmemscope_77_1_ascend/device_0/dump", 0, 1, "results");
	expect("results/msmemscope_77_1_ascend/device_0", 0, 1, "results");
	expect("results/msmemscope_77_1_ascend", 0, 1, "results");
	expect("results", 0, 1, "results");
	/* The other tool and an older name of it. */
	make_directories("older/msleaks_77_1_ascend/dump");
	write_dump("older/msleaks_77_1_ascend/dump/leaks_dump_1.csv");
	expect("older", 0, 1, "older");
	/* A project that has nothing to read is left out, unless it is named. */
	make_directories("results/msmemscope_78_1_ascend/dump");
	expect("results", 0, 1, "results");
	expect("results/msmemscope_78_1_ascend", MSCOPE_E_ABSENT, 0, NULL);
	/* Two projects are not one run. */
	write_dump("results/msmemscope_78_1_ascend/dump/memscope_dump_1.csv");
	expect("results", MSCOPE_E_LIMIT, 0, NULL);
}

static void export_is_left_out_where_its_run_is_there(void **state)
{
	static const char config[] = "{\n    \"exportedFrom\": \"msmemscope_77_1\"\n}\n",
			  copy[] = "results/msmemscope_77_1_ascend_2";
	char path[64];

	(void)state;
	make_directories("results/msmemscope_77_1_ascend/dump");
	write_dump("results/msmemscope_77_1_ascend/dump/memscope_dump_1.csv");
	(void)snprintf(path, sizeof(path), "%s/dump", copy);
	make_directories(path);
	(void)snprintf(path, sizeof(path), "%s/dump/memscope_dump_1.csv", copy);
	write_dump(path);
	expect("results", MSCOPE_E_LIMIT, 0, NULL);
	(void)snprintf(path, sizeof(path), "%s/config.json", copy);
	unit_write_file(unit_path(path), config, sizeof(config) - 1);
	expect("results", 0, 1, "results");
	expect(copy, 0, 1, "results");
	/* Without its run it is all there is. */
	assert_int_equal(
		rename(unit_path("results/msmemscope_77_1_ascend"), unit_path("elsewhere")), 0);
	expect("results", 0, 1, "results");
}

static void word_that_means_no_run_is_refused_with_its_name(void **state)
{
	(void)state;
	make_directories("empty");
	expect("empty", MSCOPE_E_ABSENT, 0, NULL);
	expect("absent", -ENOENT, 0, NULL);
	assert_int_equal(mkfifo(unit_path("fifo"), 0600), 0);
	expect("fifo", MSCOPE_E_FOREIGN, 0, NULL);
	unit_write_file(unit_path("text"), "hello\n", 6);
	expect("text", MSCOPE_E_FOREIGN, 0, NULL);
	/* A trace that lost its beginning is still one by its name, and damaged. */
	unit_write_file(unit_path("cut.raw"), "MS", 2);
	expect("cut.raw", MSCOPE_E_TRUNCATED, 0, NULL);
	unit_write_file(unit_path("cut.msc"), "", 0);
	expect("cut.msc", MSCOPE_E_TRUNCATED, 0, NULL);
	assert_int_equal(input_exit_code(MSCOPE_E_TRUNCATED), MSCOPE_EXIT_DAMAGED);
	assert_int_equal(input_exit_code(MSCOPE_E_FOREIGN), MSCOPE_EXIT_FAILED);
}

static void damage_of_the_input_is_known(void **state)
{
	static const char bad[] = HEADER "junk\n0,MALLOC,HAL,N/A,1700000000000000001,77,77,0,4096,"
					 "\"{allocation_id:1,addr:4096,size:512}\"\n";
	struct input input;

	(void)state;
	unit_write_file(unit_path("bad.csv"), bad, sizeof(bad) - 1);
	assert_int_equal(input_open(&input, unit_path("bad.csv"), NULL, NULL, NULL), 0);
	assert_true(input_is_damaged(&input) && input.imported && !input.unfinished);
	assert_int_equal(input.import.reading.bad_rows, 1);
	input_close(&input);
	write_dump("good.csv");
	assert_int_equal(input_open(&input, unit_path("good.csv"), NULL, NULL, NULL), 0);
	assert_true(!input_is_damaged(&input) && input.imported);
	input_close(&input);
	make_trace(unit_path("t.raw"), 1);
	assert_int_equal(input_open(&input, unit_path("t.raw"), NULL, NULL, NULL), 0);
	assert_true(input_is_damaged(&input) && input.unfinished && !input.imported);
	input_close(&input);
}

/* ---- export ---- */

static void export_makes_a_project_or_nothing(void **state)
{
	struct elf_cache elves = {0};
	struct session session = {.events = SESSION_ALLOC | SESSION_FREE, .all_devices = 1};
	struct project project = {.output = session.output};
	struct input input;
	struct export_job job = {
		.input = &input, .session = &session, .project = &project, .elves = &elves};
	struct mscope_error err = {0};

	(void)state;
	write_dump("good.csv");
	assert_int_equal(input_open(&input, unit_path("good.csv"), NULL, NULL, NULL), 0);
	(void)snprintf(session.output, sizeof(session.output), "%s", unit_path("good.csv"));
	assert_int_equal(export_all(&job, &err), -ENOTDIR);
	assert_non_null(strstr(err.message, session.output));
	assert_false(project.made);
	export_close(&job);
	(void)snprintf(session.output, sizeof(session.output), "%s", unit_path("out"));
	assert_int_equal(export_all(&job, &err), 0);
	assert_true(project.made);
	assert_int_equal(replay_block_count(job.pass.replay), 1);
	export_close(&job);
	input_close(&input);
	elf_cache_fini(&elves);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, unit_make_directory, unit_remove_directory)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(pass_without_a_sink_replays_and_writes_nothing),
		TEST(what_is_left_to_be_read_is_counted),
		TEST(event_that_is_refused_ends_the_reading),
		TEST(pass_stops_when_it_is_told_to),
		TEST(failure_of_the_files_ends_the_reading_or_not),
		TEST(pass_that_was_never_opened_can_be_closed),
		TEST(word_means_a_trace_a_dump_or_a_directory_of_one_run),
		TEST(export_is_left_out_where_its_run_is_there),
		TEST(word_that_means_no_run_is_refused_with_its_name),
		TEST(damage_of_the_input_is_known),
		TEST(export_makes_a_project_or_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
