/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claims about engine/ and the directories it makes: sessions are found, locked and removed when nothing is left in them; two
 * runs never share a project directory and one run never has two; and an engine that dies at any step leaves what a second one
 * needs to write every row once.
 *
 * An engine that dies is a child of this process that ends without closing anything.
 */
#include "symbols/elf_cache.h"
#include "unit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "engine/beater.h"
#include "engine/recover.h"
#include "sink/project.h"
#include "sink/report.h"
#include "trace_maker.h"

#define HAL  1u
#define FREE 2u

static void path_in(char out[600], const char *name)
{
	(void)snprintf(out, 600, "%s/%s", unit_directory, name);
}

static bool exists(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

static void write_text(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	(void)fputs(text, file);
	(void)fclose(file);
}

/* ---- sessions ---- */

static void fill_settings(struct session *wanted)
{
	*wanted = (struct session){
		.bytes = sizeof(*wanted),
		.state = RECORDING_ON,
		.launch_pid = 4242,
		.realtime_ns = UINT64_C(1700000000) * 1000000000u,
		.events = SESSION_ALLOC | SESSION_FREE | SESSION_LAUNCH,
		.all_devices = 1,
		.host = 1,
	};
	memcpy(wanted->magic, SESSION_MAGIC, sizeof(wanted->magic));
	(void)snprintf(wanted->output, sizeof(wanted->output), "%s/out", unit_directory);
}

static void make_session(struct session_place *out, const char *trace_dir)
{
	struct session wanted;

	fill_settings(&wanted);
	assert_int_equal(session_create(&wanted, trace_dir, out, NULL), 0);
}

struct found {
	char paths[8][SESSION_PATH_MAX];
	int count;
};

static void keep_found(void *arg, const char *path)
{
	struct found *found = arg;

	assert_true(found->count < 8);
	(void)snprintf(found->paths[found->count++], SESSION_PATH_MAX, "%s", path);
}

static struct found search(const char *path)
{
	static struct found found;

	found.count = 0;
	session_search(path, keep_found, &found);
	return found;
}

static void session_is_found_again_with_its_settings(void **state)
{
	struct session_place first, second, again;
	struct found found;
	char out[600];

	(void)state;
	path_in(out, "out");
	make_session(&first, NULL);
	make_session(&second, NULL); /* the same pid in the same second */
	assert_string_not_equal(first.directory, second.directory);
	assert_int_equal(search(out).count, 2);
	found = search(first.directory);
	assert_int_equal(found.count, 1);
	assert_string_equal(found.paths[0], first.directory);
	assert_int_equal(session_open(first.directory, &again, NULL), 0);
	assert_int_equal(again.session->launch_pid, 4242);
	assert_string_equal(again.session->output, out);
	session_close(&again);
	assert_true(session_remove(&first));
	assert_false(exists(first.directory));
	assert_int_equal(search(out).count, 1);
	assert_true(session_remove(&second));
	session_close(&first);
	session_close(&second);
}

static void session_elsewhere_is_found_by_its_pointer(void **state)
{
	struct session_place place, again;
	char out[600], other[600];

	(void)state;
	path_in(out, "out");
	path_in(other, "disk");
	make_session(&place, other);
	assert_true(place.elsewhere);
	assert_memory_equal(place.directory, other, strlen(other));
	assert_true(exists(place.pointer));
	assert_string_equal(search(out).paths[0], place.directory);
	assert_int_equal(session_open(place.directory, &again, NULL), 0);
	assert_string_equal(again.pointer, place.pointer);
	assert_true(session_remove(&again));
	assert_false(exists(place.pointer));
	assert_int_equal(search(out).count, 0);
	session_close(&place);
	session_close(&again);
}

static void session_with_a_trace_in_it_is_not_removed(void **state)
{
	static const char *const traces[] = {"1-ab.raw", "1-ab.part"};
	struct session_place place;
	char path[SESSION_PATH_MAX + 64];
	size_t i;

	(void)state;
	make_session(&place, NULL);
	for (i = 0; i < MSCOPE_COUNT(traces); i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", place.directory, traces[i]);
		write_text(path, "x");
		assert_false(session_remove(&place));
		assert_true(exists(path));
		assert_int_equal(search(place.directory).count, 1);
		(void)unlink(path);
	}
	/* What a process left that was killed before its first event is nobody's. */
	(void)snprintf(path, sizeof(path), "%s/.1-ab.raw", place.directory);
	write_text(path, "x");
	assert_true(session_remove(&place));
	assert_false(exists(place.directory));
	session_close(&place);
}

static void session_lock_ends_with_the_engine_however_it_ends(void **state)
{
	struct session_place place, other;
	int ready[2], status;
	pid_t engine;
	char byte;

	(void)state;
	/* Locked from its birth, so that nobody takes a launch that is about to start for one that was left behind. */
	make_session(&place, NULL);
	assert_true(place.locked);
	assert_int_equal(pipe(ready), 0);
	engine = fork();
	if (engine == 0) {
		byte = session_lock(&place) == 0 ? 'y' : 'n';
		(void)!write(ready[1], &byte, 1);
		for (;;)
			(void)pause();
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	assert_int_equal(byte, 'y');
	/* The one who made it lets go; the engine has it still. */
	session_close(&place);
	assert_int_equal(session_open(place.directory, &other, NULL), 0);
	assert_int_equal(session_lock(&other), -EBUSY);
	assert_int_equal(recover_session(place.directory, &(struct runs_ops){0},
					 &(struct runs_result){0}, NULL),
			 -EBUSY);
	assert_int_equal(kill(engine, SIGKILL), 0);
	assert_int_equal(waitpid(engine, &status, 0), engine);
	assert_int_equal(session_lock(&other), 0);
	(void)close(ready[0]);
	(void)close(ready[1]);
	session_close(&other);
}

static void what_is_no_session_is_left_alone(void **state)
{
	struct session_place place, other;
	char path[SESSION_PATH_MAX + 64], plain[600], out[600];
	struct session spoilt;

	(void)state;
	path_in(out, "out");
	path_in(plain, "plain");
	assert_int_equal(mkdir(plain, 0700), 0);
	assert_true(session_open(plain, &other, NULL) < 0);
	assert_int_equal(search(plain).count, 0);
	assert_int_equal(search("/nowhere/at/all").count, 0);
	make_session(&place, NULL);
	(void)snprintf(path, sizeof(path), "%s/.msmemscope_9_20260101000000_1.where", out);
	write_text(path, plain); /* points to something else */
	assert_int_equal(search(out).count, 1);
	spoilt = *place.session;
	place.session->magic[0] ^= 1;
	assert_int_equal(session_open(place.directory, &other, NULL), MSCOPE_E_FOREIGN);
	*place.session = spoilt;
	memset(place.session->output, 'x', sizeof(place.session->output));
	assert_int_equal(session_open(place.directory, &other, NULL), MSCOPE_E_FOREIGN);
	*place.session = spoilt;
	(void)snprintf(path, sizeof(path), "%s/session", place.directory);
	assert_int_equal(truncate(path, 100), 0);
	assert_int_equal(session_open(place.directory, &other, NULL), MSCOPE_E_FOREIGN);
	assert_int_equal(search(out).count, 0);
	session_close(&place);
}

static void output_that_cannot_be_used_is_said_with_its_name(void **state)
{
	struct session_place place;
	struct mscope_error err = {0};
	struct session wanted;
	char path[600];

	(void)state;
	path_in(path, "file");
	write_text(path, "in the way");
	fill_settings(&wanted);
	(void)snprintf(wanted.output, sizeof(wanted.output), "%s/below", path);
	assert_int_equal(session_create(&wanted, NULL, &place, &err), -ENOTDIR);
	assert_non_null(strstr(err.message, wanted.output));
}

/* ---- project directories ---- */

static void two_runs_never_share_a_project_directory(void **state)
{
	struct project a = {
		.output = unit_directory, .pid = 7, .start_ns = UINT64_C(1700000000) * 1000000000u};
	struct project b = a, c;
	char report[PROJECT_PATH_MAX + 16];

	(void)state;
	a.run_id[0] = 1;
	b.run_id[0] = 2;
	assert_int_equal(project_make(&a, VENDOR_ASCEND, NULL), 0);
	assert_int_equal(project_make(&b, VENDOR_ASCEND, NULL), 0);
	assert_string_equal(strrchr(a.path, '/'), "/msmemscope_7_20231114221320_ascend");
	assert_string_equal(strrchr(b.path, '/'), "/msmemscope_7_20231114221320_ascend_2");
	/* The same run goes on where an engine was killed, ... */
	c = (struct project){.output = unit_directory, .pid = 7, .start_ns = a.start_ns};
	memcpy(c.run_id, b.run_id, sizeof(c.run_id));
	assert_int_equal(project_make(&c, VENDOR_ASCEND, NULL), 0);
	assert_string_equal(c.path, b.path);
	/* ... but not in a directory that is complete, which has a report at least. */
	(void)snprintf(report, sizeof(report), "%s/report.txt", b.path);
	assert_int_equal(close(open(report, O_WRONLY | O_CREAT, 0600)), 0);
	project_complete(&b);
	c.made = false;
	assert_int_equal(project_make(&c, VENDOR_ASCEND, NULL), 0);
	assert_string_equal(strrchr(c.path, '/'), "/msmemscope_7_20231114221320_ascend_3");
}

/* Makes and uses a directory, as the engine of another process with the same number does at the same time. Returns the exit status. */
static int make_one(uint8_t engine, uint8_t round)
{
	struct project project = {.output = unit_directory,
				  .pid = 8,
				  .start_ns = (UINT64_C(1700000000) + round) * 1000000000u};
	char path[PROJECT_PATH_MAX + 16];
	int fd;

	project.run_id[0] = engine;
	project.run_id[1] = round;
	if (project_make(&project, VENDOR_ASCEND, NULL) < 0)
		return 1;
	(void)snprintf(path, sizeof(path), "%s/owner", project.path);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
	if (fd < 0)
		return 2;
	(void)close(fd);
	return 0;
}

static void engines_that_begin_together_never_share_a_project_directory(void **state)
{
	enum { ENGINES = 4, ROUNDS = 50 };
	uint8_t engine, round;
	pid_t children[ENGINES];
	int status;

	(void)state;
	for (engine = 0; engine < ENGINES; engine++) {
		children[engine] = fork();
		assert_true(children[engine] >= 0);
		for (round = 0; children[engine] == 0; round++) {
			int r = round == ROUNDS ? 0 : make_one(engine, round);

			if (r != 0 || round == ROUNDS)
				_exit(r);
		}
	}
	for (engine = 0; engine < ENGINES; engine++) {
		assert_int_equal(waitpid(children[engine], &status, 0), children[engine]);
		assert_int_equal(status, 0);
	}
}

static void a_beater_shows_life_until_the_work_is_done(void **state)
{
	_Atomic uint32_t heartbeat = 0;
	struct beater beater;
	uint32_t last;

	(void)state;
	beater_begin(&beater, &heartbeat);
	while (atomic_load(&heartbeat) < 2)
		(void)sched_yield();
	beater_end(&beater);
	last = atomic_load(&heartbeat);
	beater_begin(&beater, NULL); /* no process waits */
	beater_end(&beater);
	assert_int_equal(atomic_load(&heartbeat), last);
}

static void names_are_spelled_from_the_trace_alone(void **state)
{
	char stamp[16], device[16];

	(void)state;
	project_stamp(UINT64_C(1700000000) * 1000000000u, 0, stamp);
	assert_string_equal(stamp, "20231114221320");
	project_stamp(UINT64_C(1700000000) * 1000000000u, 8 * 3600, stamp);
	assert_string_equal(stamp, "20231115061320");
	project_stamp(UINT64_MAX, INT32_MAX,
		      stamp); /* a damaged header must not make a long name */
	assert_int_equal(strlen(stamp), 14);
	project_device_text(DEVICE_HOST, device);
	assert_string_equal(device, "cpu");
	project_device_text(DEVICE_UNKNOWN, device);
	assert_string_equal(device, "N/A");
	project_device_text(4000000000u, device);
	assert_string_equal(device, "4000000000");
}

/* ---- a run to play with ---- */

struct stage {
	struct session_place place;
	struct maker maker;
	struct maker_writer w[2];
	uint64_t now;
	uint64_t next; /* address that is allocated next */
	uint64_t rows; /* that the trace means */
};

static void raise_stage(struct stage *s, uint64_t max_disk_bytes)
{
	char path[SESSION_PATH_MAX + 64];
	uint32_t i;

	*s = (struct stage){.now = 2000, .next = 0x1000};
	make_session(&s->place, NULL);
	session_unlock(&s->place); /* engines come and go in children */
	s->place.session->max_trace_bytes = max_disk_bytes;
	(void)snprintf(path, sizeof(path), "%s/4711-112233445566.raw", s->place.directory);
	assert_true(strlen(path) < sizeof(s->maker.path));
	maker_make(&s->maker, path, MAKER_CHUNK_BYTES, 4096);
	for (i = 0; i < 2; i++) {
		s->w[i] = (struct maker_writer){.maker = &s->maker, .number = i + 1};
		maker_thread(&s->w[i], s->now++, 70 + i);
		maker_context(&s->w[i], s->now++, HAL, POOL_hal, BLOCK_ALLOC, 0);
		maker_context(&s->w[i], s->now++, FREE, POOL_hal, BLOCK_ALLOC, DEVICE_UNKNOWN);
	}
}

static bool is_freed(uint64_t address)
{
	return address / 16 % 8 != 0;
}

/* Writer 1 allocates, writer 2 frees all but every eighth. */
static void act(struct stage *s, uint32_t allocations)
{
	while (allocations-- > 0) {
		maker_alloc(&s->w[0], s->now++, HAL, s->next, 16, 0);
		s->rows++;
		if (is_freed(s->next)) {
			maker_free(&s->w[1], s->now++, FREE, s->next);
			s->rows++;
		}
		s->next += 16;
	}
}

static void strike_stage(struct stage *s)
{
	(void)munmap(s->maker.header, s->maker.bytes);
	session_close(&s->place);
}

/* All rows of the only project, in one file: numbered from 0 without a gap, times rising. Returns how many. */
static uint64_t check_rows(uint64_t *out_first_tid)
{
	char path[600], name[300] = "", line[1024];
	const struct dirent *entry;
	uint64_t rows = 0, before = 0;
	DIR *dir;
	FILE *file;

	path_in(path, "out");
	dir = opendir(path);
	while ((entry = readdir(dir)) != NULL) {
		if (strncmp(entry->d_name, "msmemscope_", 11) == 0) {
			assert_string_equal(name, "");
			(void)snprintf(name, sizeof(name), "out/%s/device_0/dump", entry->d_name);
		}
	}
	(void)closedir(dir);
	path_in(path, name);
	dir = opendir(path);
	assert_non_null(dir);
	name[0] = '\0';
	while ((entry = readdir(dir)) != NULL) {
		if (entry->d_name[0] == '.')
			continue;
		assert_string_equal(name, "");
		(void)snprintf(name, sizeof(name), "%s", entry->d_name);
	}
	(void)closedir(dir);
	(void)snprintf(path + strlen(path), sizeof(path) - strlen(path), "/%s", name);
	file = fopen(path, "r");
	assert_non_null(file);
	assert_non_null(fgets(line, sizeof(line), file));
	assert_memory_equal(line, "ID,Event,", 9);
	while (fgets(line, sizeof(line), file) != NULL) {
		unsigned long long id, time, tid;
		char event[16];

		assert_int_equal(sscanf(line, "%llu,%15[A-Z],HAL,N/A,%llu,4711,%llu,0,0x", &id,
					event, &time, &tid),
				 4);
		assert_int_equal(id, rows);
		assert_true(time >= before);
		assert_int_equal(tid, strcmp(event, "MALLOC") == 0 ? 70 : 71);
		before = time;
		if (rows == 0 && out_first_tid != NULL)
			*out_first_tid = tid;
		rows++;
	}
	(void)fclose(file);
	return rows;
}

struct outcome {
	uint64_t events, rows, live, dropped, damaged;
};

static void keep_outcome(void *arg, struct pipeline *pipeline)
{
	struct outcome *outcome = arg;
	struct report report = {.replay = pipeline->pass.replay};

	outcome->events = replay_totals(pipeline->pass.replay)->events;
	outcome->rows = replay_totals(pipeline->pass.replay)->rows;
	outcome->live = replay_block_count(pipeline->pass.replay);
	outcome->dropped = replay_totals(pipeline->pass.replay)->dropped_events;
	outcome->damaged = report_is_damaged(&report);
}

static struct outcome recover(const char *session_directory)
{
	struct outcome outcome = {0};
	struct runs_ops ops = {.finished = keep_outcome, .arg = &outcome};
	struct runs_result result;
	struct mscope_error err = {0};

	if (recover_session(session_directory, &ops, &result, &err) < 0)
		fail_msg("%s", err.message);
	assert_int_equal(result.runs, 1);
	assert_int_equal(result.failed, 0);
	assert_false(exists(session_directory));
	return outcome;
}

/* ---- pipelines ---- */

static void run_that_ends_leaves_its_project_and_nothing_else(void **state)
{
	struct elf_cache elves = {0};
	struct pipeline pipeline;
	char path[PROJECT_PATH_MAX + 16];
	struct stage s;
	int i;

	(void)state;
	raise_stage(&s, 0);
	assert_int_equal(pipeline_open(&pipeline, &s.place, &elves, strrchr(s.maker.path, '/') + 1,
				       true, NULL),
			 0);
	for (i = 0; i < 10; i++) {
		act(&s, 100);
		assert_true(pipeline_step(&pipeline, s.now) >= 100);
	}
	assert_int_equal(pipeline_finish(&pipeline, NULL, NULL), 0);
	(void)snprintf(path, sizeof(path), "%s/trace.msc", pipeline.project.path);
	pipeline_close(&pipeline);
	elf_cache_fini(&elves);
	assert_int_equal(check_rows(NULL), s.rows);
	assert_true(exists(path));
	assert_false(exists(s.maker.path));
	assert_true(session_remove(&s.place));
	strike_stage(&s);
}

/* Whatever comes next may load code into it. */
static void the_driver_is_asked_when_a_context_is_made(void **state)
{
	struct elf_cache elves = {0};
	struct pipeline pipeline;
	struct stage s;

	(void)state;
	raise_stage(&s, 0);
	assert_int_equal(pipeline_open(&pipeline, &s.place, &elves, strrchr(s.maker.path, '/') + 1,
				       true, NULL),
			 0);
	act(&s, 10);
	assert_true(pipeline_step(&pipeline, s.now) > 0);
	assert_true(pipeline_has_grown(&pipeline));
	assert_false(pipeline_has_grown(&pipeline));
	MAKER_EVENT(&s.w[0], s.now++, HAL, driver_cost, .device = 0, .kind = COST_CODE);
	assert_true(pipeline_step(&pipeline, s.now) > 0);
	assert_false(pipeline_has_grown(&pipeline));
	MAKER_EVENT(&s.w[0], s.now++, HAL, driver_cost, .device = 0, .kind = COST_CONTEXT);
	assert_true(pipeline_step(&pipeline, s.now) > 0);
	assert_true(pipeline_has_grown(&pipeline));
	assert_false(pipeline_has_grown(&pipeline));
	assert_int_equal(pipeline_finish(&pipeline, NULL, NULL), 0);
	pipeline_close(&pipeline);
	elf_cache_fini(&elves);
	assert_true(session_remove(&s.place));
	strike_stage(&s);
}

/* Runs `steps` rounds of a program and of an engine that then dies. */
static void engine_dies(struct stage *s, uint32_t steps)
{
	pid_t engine = fork();
	uint32_t i;
	int status;

	if (engine == 0) {
		struct elf_cache elves = {0};
		struct pipeline pipeline;

		if (pipeline_open(&pipeline, &s->place, &elves, strrchr(s->maker.path, '/') + 1,
				  true, NULL) < 0)
			_exit(1);
		for (i = 0; i < steps; i++) {
			act(s, 100);
			(void)pipeline_step(&pipeline, s->now);
		}
		_exit(0);
	}
	assert_int_equal(waitpid(engine, &status, 0), engine);
	assert_int_equal(status, 0);
	/* The child counted its rows for itself. */
	for (i = 0; i < steps * 100; i++, s->next += 16)
		s->rows += is_freed(s->next) ? 2 : 1;
}

static void rows_are_whole_after_an_engine_died(void **state)
{
	struct outcome outcome;
	struct stage s;

	(void)state;
	raise_stage(&s, 0);
	engine_dies(&s, 10);
	outcome = recover(s.place.directory);
	assert_int_equal(outcome.damaged, 0);
	assert_int_equal(outcome.rows, s.rows);
	assert_int_equal(check_rows(NULL), s.rows);
	strike_stage(&s);
}

static void rows_before_a_checkpoint_survive_an_engine_that_died(void **state)
{
	struct outcome outcome;
	struct stage s;

	(void)state;
	raise_stage(&s, 4096); /* a limit of a few chunks */
	engine_dies(&s, 40);
	outcome = recover(s.place.directory);
	assert_true(outcome.dropped > 1000);
	assert_int_equal(outcome.damaged, 0);
	assert_int_equal(outcome.rows, s.rows);
	assert_int_equal(check_rows(NULL), s.rows);
	strike_stage(&s);
}

static void packed_part_alone_is_finished(void **state)
{
	struct elf_cache elves = {0};
	struct pipeline pipeline;
	char trace[PROJECT_PATH_MAX + 16], part[SESSION_PATH_MAX + 64];
	struct outcome outcome;
	struct stage s;

	(void)state;
	raise_stage(&s, 0);
	act(&s, 500);
	assert_int_equal(pipeline_open(&pipeline, &s.place, &elves, strrchr(s.maker.path, '/') + 1,
				       true, NULL),
			 0);
	assert_int_equal(pipeline_finish(&pipeline, NULL, NULL), 0);
	(void)snprintf(trace, sizeof(trace), "%s/trace.msc", pipeline.project.path);
	(void)snprintf(part, sizeof(part), "%s", pipeline.part_file);
	pipeline_close(&pipeline);
	elf_cache_fini(&elves);
	/* As if it had been killed between the removal of the raw trace and the move of the packed one. */
	assert_int_equal(rename(trace, part), 0);
	(void)snprintf(trace, sizeof(trace), "rm -rf '%s/out/'msmemscope_*", unit_directory);
	assert_int_equal(system(trace), 0);
	outcome = recover(s.place.directory);
	assert_int_equal(outcome.damaged, 0);
	assert_int_equal(check_rows(NULL), s.rows);
	strike_stage(&s);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, unit_make_directory, unit_remove_directory)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(session_is_found_again_with_its_settings),
		TEST(session_elsewhere_is_found_by_its_pointer),
		TEST(session_with_a_trace_in_it_is_not_removed),
		TEST(session_lock_ends_with_the_engine_however_it_ends),
		TEST(what_is_no_session_is_left_alone),
		TEST(output_that_cannot_be_used_is_said_with_its_name),
		TEST(two_runs_never_share_a_project_directory),
		TEST(engines_that_begin_together_never_share_a_project_directory),
		TEST(a_beater_shows_life_until_the_work_is_done),
		TEST(names_are_spelled_from_the_trace_alone),
		TEST(run_that_ends_leaves_its_project_and_nothing_else),
		TEST(the_driver_is_asked_when_a_context_is_made),
		TEST(rows_are_whole_after_an_engine_died),
		TEST(rows_before_a_checkpoint_survive_an_engine_that_died),
		TEST(packed_part_alone_is_finished),
	};

	return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}
