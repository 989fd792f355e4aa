/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claims about a process that has few descriptors: files that are closed for a while lose nothing, and a process that cannot be asked
 * about is not dead.
 */
#include "unit.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>

#include "base/io.h"
#include "engine/traced_process.h"

/* Its list is looked at. */
#include "base/descriptors.c"

#define FILES 200

static struct rlimit before;

static int lower_limit(void **state)
{
	struct rlimit few;

	if (unit_make_directory(state) != 0 || getrlimit(RLIMIT_NOFILE, &before) < 0)
		return -1;
	few = (struct rlimit){.rlim_cur = 80, .rlim_max = before.rlim_max};
	if (setrlimit(RLIMIT_NOFILE, &few) < 0)
		return -1;
	list.limit = 0;
	return 0;
}

static int restore_limit(void **state)
{
	(void)setrlimit(RLIMIT_NOFILE, &before);
	list.limit = 0;
	return unit_remove_directory(state);
}

static void path_of(char path[300], unsigned number)
{
	(void)snprintf(path, 300, "%s/file%u", unit_directory, number);
}

static void files_outnumber_descriptors_and_keep_all_lines(void **state)
{
	struct lazy_file *files = calloc(FILES, sizeof(*files));
	char path[300], line[32], text[256];
	unsigned i, round;

	(void)state;
	assert_non_null(files);
	for (i = 0; i < FILES; i++) {
		path_of(path, i);
		assert_int_equal(lazy_file_open(&files[i], path, O_WRONLY | O_CREAT, 0600), 0);
	}
	for (round = 0; round < 3; round++) {
		for (i = 0; i < FILES; i++) {
			int length = snprintf(line, sizeof(line), "%u.%u\n", i, round);

			assert_true(lazy_file_fd(&files[i]) >= 0);
			assert_int_equal(io_write(files[i].fd, line, (size_t)length), 0);
			assert_true(list.open <= descriptors_limit() / 2);
		}
	}
	for (i = 0; i < FILES; i++) {
		assert_int_equal(lazy_file_close(&files[i]), 0);
		path_of(path, i);
		assert_true(io_read_text(path, text, sizeof(text)));
		(void)snprintf(path, sizeof(path), "%u.0\n%u.1\n%u.2\n", i, i, i);
		assert_string_equal(text, path);
	}
	assert_int_equal(list.open, 0);
	assert_null(list.newest);
	assert_null(list.oldest);
	free(files);
}

static void closed_file_is_not_taken_for_another_one(void **state)
{
	struct lazy_file file;
	char path[300], other[300];

	(void)state;
	path_of(path, 1);
	path_of(other, 2);
	assert_int_equal(lazy_file_open(&file, path, O_RDWR | O_CREAT, 0600), 0);
	assert_true(descriptors_close_oldest(NULL));
	assert_int_equal(file.fd, -1);
	assert_int_equal(rename(path, other), 0);
	assert_int_equal(lazy_file_fd(&file), -ENOENT);
	assert_int_equal(close(open(path, O_WRONLY | O_CREAT, 0600)), 0);
	assert_int_equal(lazy_file_fd(&file), -ESTALE);
	assert_int_equal(lazy_file_renamed(&file, other), 0);
	assert_true(lazy_file_fd(&file) >= 0);
	assert_int_equal(lazy_file_close(&file), 0);
	assert_false(descriptors_close_oldest(NULL));
}

static void process_that_cannot_be_asked_about_is_not_gone(void **state)
{
	struct process process;
	int taken[200], count = 0, i, fd;
	pid_t child = fork();

	(void)state;
	if (child == 0) {
		(void)pause();
		_exit(0);
	}
	assert_true(process_watch_pid(&process, (uint32_t)child));
	process_unwatch(&process); /* as if no pidfd could be had */
	assert_int_equal(process_life(&process), PROCESS_ALIVE);
	while ((fd = open("/dev/null", O_RDONLY)) >= 0 && count < 200)
		taken[count++] = fd;
	assert_int_equal(errno, EMFILE);
	assert_int_equal(process_life(&process), PROCESS_UNKNOWN);
	for (i = 0; i < count; i++)
		(void)close(taken[i]);
	assert_int_equal(kill(child, SIGKILL), 0);
	/* Dead and not waited for, then gone. An emulator's own thread may outlive the first one for a moment. */
	while (process_life(&process) == PROCESS_ALIVE)
		(void)usleep(1000);
	assert_int_equal(process_life(&process), PROCESS_GONE);
	assert_int_equal(process_state((uint32_t)child), 'Z');
	assert_int_equal(waitpid(child, NULL, 0), child);
	assert_int_equal(process_life(&process), PROCESS_GONE);
}

static void process_without_a_known_namespace_is_unknown(void **state)
{
	struct trace_header header = {.pid = (uint32_t)getpid()};
	struct process process;

	(void)state;
	process_watch(&process, &header, NULL);
	assert_int_equal(process_life(&process), PROCESS_UNKNOWN);
	process_watch(&process, &header, "pid:[1]");
	assert_int_equal(process_life(&process), PROCESS_UNKNOWN);
	process_unwatch(&process);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, lower_limit, restore_limit)
	const struct CMUnitTest tests[] = {
		TEST(files_outnumber_descriptors_and_keep_all_lines),
		TEST(closed_file_is_not_taken_for_another_one),
		TEST(process_that_cannot_be_asked_about_is_not_gone),
		TEST(process_without_a_known_namespace_is_unknown),
	};
#undef TEST

	return cmocka_run_group_tests_name("descriptors", tests, NULL, NULL);
}
