/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a launch does around its engine, with engines that are slow, silent or broken. Each case runs a visible process of its
 * own, which leaves what it saw in a page shared with the test. What the program sees of it is shown by e2e/test_signals.py.
 */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/startup.h"
#include "cli/supervisor.h"

enum { PATIENCE_MS = 30000, PAUSE_MS = 400 };

/* Seen by all processes of a case. */
static struct page {
	struct supervisor_result result;
	int returned;				/* by supervisor_run() */
	struct supervisor_message messages[16]; /* received by the engine */
	_Atomic int message_count;
	_Atomic int engine_pid; /* set when the engine begins */
	_Atomic int engine_done;
	_Atomic int let_go; /* set by a test: the slow engine may end */
} * page;

static void sleep_ms(int ms)
{
	struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000L};

	while (nanosleep(&ts, &ts) != 0)
		continue;
}

static void await(_Atomic int *value, int wanted)
{
	for (int ms = 0; atomic_load(value) < wanted; ms += 2) {
		assert_true(ms < PATIENCE_MS);
		sleep_ms(2);
	}
}

static int receive(int control_fd)
{
	struct pollfd fd = {.fd = control_fd, .events = POLLIN};
	int at = atomic_load(&page->message_count);
	int r;

	do {
		(void)poll(&fd, 1, -1);
		r = supervisor_receive(control_fd, &page->messages[at]);
	} while (r == -EAGAIN);
	if (r == 0)
		atomic_store(&page->message_count, at + 1);
	return r == 0 ? page->messages[at].event : r;
}

/* Waits for the end, then for one more word, or for the supervisor's death. */
static int engine_that_waits(void *arg, int control_fd)
{
	(void)arg;
	atomic_store(&page->engine_pid, getpid());
	while (receive(control_fd) >= 0) {
		if (page->messages[page->message_count - 1].event == SUPERVISOR_INTERRUPTED)
			return 5;
	}
	atomic_store(&page->engine_done, 1);
	return 0;
}

static void wait_for_end(int control_fd)
{
	int event;

	atomic_store(&page->engine_pid, getpid());
	do
		event = receive(control_fd);
	while (event > 0 && event != SUPERVISOR_ENDED);
}

static int engine_that_finishes(void *arg, int control_fd)
{
	(void)arg;
	wait_for_end(control_fd);
	atomic_store(&page->engine_done, 1);
	return 4;
}

static int engine_that_is_slow(void *arg, int control_fd)
{
	(void)arg;
	wait_for_end(control_fd);
	await(&page->let_go, 1);
	atomic_store(&page->engine_done, 1);
	return 0;
}

static int engine_that_hangs(void *arg, int control_fd)
{
	(void)arg;
	wait_for_end(control_fd);
	for (;;)
		pause();
	return 0;
}

static int engine_that_dies(void *arg, int control_fd)
{
	(void)arg;
	(void)control_fd;
	atomic_store(&page->engine_pid, getpid());
	(void)kill(getpid(), SIGKILL);
	return 0;
}

static char true_path[] = "/bin/true", sleep_path[] = "/bin/sleep", ten[] = "10",
	    sh_path[] = "/bin/sh", dash_c[] = "-c";
static char *just_true[] = {true_path, NULL};
static char *long_sleep[] = {sleep_path, ten, NULL};

/* Starts a visible process in a group of its own. */
static pid_t launch(char *const *argv, int (*engine)(void *, int))
{
	struct supervisor_launch what = {
		.path = argv[0], .argv = argv, .envp = environ, .engine = engine};
	pid_t pid;

	memset(page, 0, sizeof(*page));
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		(void)setpgid(0, 0);
		page->returned = supervisor_run(&what, &page->result);
		_exit(0);
	}
	(void)setpgid(pid, pid);
	return pid;
}

static void finish(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(page->returned, 0);
}

static void engine_is_told_how_the_program_ended(void **state)
{
	char script[] = "exit 42";
	char *argv[] = {sh_path, dash_c, script, NULL};
	(void)state;

	finish(launch(argv, engine_that_finishes));
	assert_int_equal(WEXITSTATUS(page->result.status), 42);
	assert_int_equal(page->result.exec_errno, 0);
	assert_int_equal(page->message_count, 2);
	assert_int_equal(page->messages[0].event, SUPERVISOR_STARTED);
	assert_int_equal(page->messages[1].event, SUPERVISOR_ENDED);
	assert_true(page->messages[1].pid > 0);
	assert_int_equal(page->messages[1].status, page->result.status);
	assert_int_equal(WEXITSTATUS(page->result.engine_status), 4);
	assert_false(page->result.engine_lost);
	assert_false(page->result.interrupted);
}

static void failure_of_exec_is_known_exactly(void **state)
{
	static const struct {
		const char *path;
		int expected;
	} cases[] = {{"/nowhere/at/all", ENOENT}, {"/", EACCES}, {"/bin/true/x", ENOTDIR}};
	(void)state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char path[32];
		char *argv[] = {path, NULL};

		strcpy(path, cases[i].path);
		finish(launch(argv, engine_that_finishes));
		assert_int_equal(page->result.exec_errno, cases[i].expected);
		assert_int_equal(page->message_count, 1);
		assert_int_equal(page->messages[0].event, SUPERVISOR_ENDED);
		assert_int_equal(page->messages[0].exec_errno, cases[i].expected);
	}
}

static void death_of_the_engine_is_noted_and_harmless(void **state)
{
	(void)state;
	finish(launch(just_true, engine_that_dies));
	assert_int_equal(page->result.status, 0);
	assert_true(page->result.engine_lost);
	assert_int_equal(WTERMSIG(page->result.engine_status), SIGKILL);
}

static void engine_goes_on_when_the_supervisor_is_killed(void **state)
{
	pid_t pid = launch(long_sleep, engine_that_waits);
	int status;
	(void)state;

	await(&page->message_count, 1);
	(void)kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	await(&page->engine_done, 1);
	/* The program has died with the supervisor. */
	for (int ms = 0; kill(page->messages[0].pid, 0) == 0; ms += 2) {
		assert_true(ms < PATIENCE_MS);
		sleep_ms(2);
	}
}

/* Lets a slow engine end when the supervisor has had time for the signals it was sent. */
static void let_go(void)
{
	sleep_ms(PAUSE_MS);
	atomic_store(&page->let_go, 1);
}

/* Sends the signal when the program is gone for some time. */
static void interrupt_late(pid_t pid, int signo)
{
	await(&page->message_count, 2);
	sleep_ms(PAUSE_MS);
	(void)kill(pid, signo);
}

static void interrupt_while_files_are_finished_stops_the_engine(void **state)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGQUIT};
	(void)state;

	for (size_t i = 0; i < 3; i++) {
		pid_t pid = launch(just_true, engine_that_waits);

		interrupt_late(pid, signals[i]);
		finish(pid);
		assert_true(page->result.interrupted);
		assert_int_equal(WEXITSTATUS(page->result.engine_status), 5);
		assert_int_equal(page->result.status, 0);
	}
}

static void engine_that_ignores_an_interrupt_is_killed(void **state)
{
	pid_t pid = launch(just_true, engine_that_hangs);
	(void)state;

	interrupt_late(pid, SIGINT);
	finish(pid);
	assert_true(page->result.interrupted);
	assert_true(page->result.engine_lost);
	assert_int_equal(WTERMSIG(page->result.engine_status), SIGKILL);
}

static void other_late_signals_interrupt_nothing(void **state)
{
	pid_t pid = launch(just_true, engine_that_is_slow);
	(void)state;

	interrupt_late(pid, SIGHUP);
	(void)kill(pid, SIGUSR1);
	(void)kill(-pid, SIGHUP);
	let_go();
	finish(pid);
	assert_false(page->result.interrupted);
	assert_int_equal(page->engine_done, 1);
}

static int64_t now_ms(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * INT64_C(1000) + ts.tv_nsec / 1000000;
}

static void signal_that_ends_the_program_is_no_interrupt(void **state)
{
	int64_t began;
	(void)state;

	/* What comes 250 ms after the program's end would be an interrupt: a turn in which we were kept waiting proves nothing. */
	do {
		pid_t pid = launch(long_sleep, engine_that_is_slow);

		/* As `timeout` does: to the pid, then to the group. */
		await(&page->message_count, 1);
		began = now_ms();
		(void)kill(pid, SIGTERM);
		(void)kill(-pid, SIGTERM);
		await(&page->message_count, 2);
		(void)kill(-pid, SIGTERM);
		began = now_ms() - began;
		let_go();
		finish(pid);
		assert_int_equal(WTERMSIG(page->result.status), SIGTERM);
	} while (page->result.interrupted && began >= 200);
	assert_false(page->result.interrupted);
	assert_int_equal(page->engine_done, 1);
}

static void ignored_interrupt_stays_ignored(void **state)
{
	pid_t pid;
	(void)state;

	/* As in a background job of a shell without job control. */
	(void)signal(SIGINT, SIG_IGN);
	pid = launch(just_true, engine_that_is_slow);
	(void)signal(SIGINT, SIG_DFL);
	interrupt_late(pid, SIGINT);
	let_go();
	finish(pid);
	assert_false(page->result.interrupted);
	assert_int_equal(page->engine_done, 1);
}

static void pipe_ends_with_the_program_and_not_with_the_engine(void **state)
{
	int ends[2], saved = dup(STDOUT_FILENO);
	char byte;
	pid_t pid;
	(void)state;

	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	(void)dup2(ends[1], STDOUT_FILENO);
	(void)close(ends[1]);
	pid = launch(just_true, engine_that_is_slow);
	(void)dup2(saved, STDOUT_FILENO);
	(void)close(saved);
	assert_int_equal(read(ends[0], &byte, 1), 0);
	assert_int_equal(page->engine_done, 0);
	(void)close(ends[0]);
	atomic_store(&page->let_go, 1);
	finish(pid);
}

static void nothing_is_started_when_descriptors_run_out(void **state)
{
	char script[] = "exit 3";
	char *argv[] = {sh_path, dash_c, script, NULL};
	struct supervisor_launch what = {
		.path = sh_path, .argv = argv, .envp = environ, .engine = engine_that_finishes};
	int failed = 0, worked = 0;
	(void)state;

	for (rlim_t limit = 3; limit < 24; limit++) {
		int status;
		pid_t pid;

		memset(page, 0, sizeof(*page));
		pid = fork();
		assert_true(pid >= 0);
		if (pid == 0) {
			struct rlimit few = {limit, limit};
			sigset_t mask;

			for (int fd = 3; fd < 64; fd++)
				(void)close(fd);
			(void)setrlimit(RLIMIT_NOFILE, &few);
			page->returned = supervisor_run(&what, &page->result);
			(void)sigprocmask(SIG_BLOCK, NULL, &mask);
			/* On failure nothing is blocked and no child is left behind. */
			if (page->returned != 0 &&
			    (sigismember(&mask, SIGTERM) || waitpid(-1, NULL, WNOHANG) != -1))
				_exit(1);
			_exit(0);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
		if (page->returned != 0) {
			assert_int_equal(page->returned, -EMFILE);
			assert_int_equal(page->engine_pid, 0);
			failed++;
		} else {
			assert_int_equal(WEXITSTATUS(page->result.status), 3);
			worked++;
		}
	}
	assert_true(failed > 0 && worked > 0);
}

/* The linker gives us these in place of libc's: one allocation fails when it is asked for. */
static bool calloc_fails;
void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);

void *__wrap_calloc(size_t count, size_t bytes)
{
	return calloc_fails ? NULL : __real_calloc(count, bytes);
}

static void words_are_copied_or_refused_as_a_whole(void **state)
{
	char first[] = "msmemscope", second[] = "", third[] = "--help";
	char *argv[] = {first, second, third, NULL};
	char **copy;
	(void)state;

	calloc_fails = true;
	copy = startup_prepare(3, argv);
	calloc_fails = false;
	assert_null(copy);

	copy = startup_prepare(3, argv);
	assert_non_null(copy);
	for (int i = 0; i < 3; i++) {
		assert_string_equal(copy[i], argv[i]);
		assert_ptr_not_equal(copy[i], argv[i]);
	}
	assert_null(copy[3]);
	free(copy);

	copy = startup_prepare(0, &argv[3]);
	assert_non_null(copy);
	assert_null(copy[0]);
	free(copy);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(engine_is_told_how_the_program_ended),
		cmocka_unit_test(failure_of_exec_is_known_exactly),
		cmocka_unit_test(death_of_the_engine_is_noted_and_harmless),
		cmocka_unit_test(engine_goes_on_when_the_supervisor_is_killed),
		cmocka_unit_test(interrupt_while_files_are_finished_stops_the_engine),
		cmocka_unit_test(engine_that_ignores_an_interrupt_is_killed),
		cmocka_unit_test(other_late_signals_interrupt_nothing),
		cmocka_unit_test(signal_that_ends_the_program_is_no_interrupt),
		cmocka_unit_test(ignored_interrupt_stays_ignored),
		cmocka_unit_test(pipe_ends_with_the_program_and_not_with_the_engine),
		cmocka_unit_test(nothing_is_started_when_descriptors_run_out),
		cmocka_unit_test(words_are_copied_or_refused_as_a_whole),
	};

	page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
