/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/startup.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/io.h"

/* Where ps looks for our command line; empty unless startup_prepare() was called. */
static struct {
	char *start;
	size_t bytes;
} title;

/* Paths take 4 KiB each, several at once; nothing of ours recurses without a bound. */
#define STACK_ENOUGH ((size_t)1 << 20)
#define STACK_OWN    ((size_t)8 << 20)

/* What runs on a stack of our own: makecontext() hands on no pointers. */
static struct {
	int (*run)(int argc, char **argv);
	int argc;
	char **argv;
	int result;
	ucontext_t here, there;
} own;

static void run_there(void)
{
	own.result = own.run(own.argc, own.argv);
}

/* Gives threads that are started without a wish as much as they usually have. */
static void enlarge_threads(void)
{
	pthread_attr_t attr;

	if (pthread_attr_init(&attr) != 0)
		return;
	if (pthread_attr_setstacksize(&attr, STACK_ENOUGH) == 0)
		(void)pthread_setattr_default_np(&attr);
	(void)pthread_attr_destroy(&attr);
}

int startup_run(int (*run)(int argc, char **argv), int argc, char **argv)
{
	struct rlimit limit;
	void *stack;

	if (getrlimit(RLIMIT_STACK, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY ||
	    limit.rlim_cur >= STACK_ENOUGH)
		return run(argc, argv);
	stack = mmap(NULL, STACK_OWN, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
	if (stack == MAP_FAILED || getcontext(&own.there) < 0)
		return run(argc, argv);
	enlarge_threads();
	own.run = run;
	own.argc = argc;
	own.argv = argv;
	own.there.uc_stack.ss_sp = stack;
	own.there.uc_stack.ss_size = STACK_OWN;
	own.there.uc_link = &own.here;
	makecontext(&own.there, run_there, 0);
	return swapcontext(&own.here, &own.there) < 0 ? run(argc, argv) : own.result;
}

/* Something to read nothing from and write nothing to, also where there is no /dev. */
static int open_null(void)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	return fd >= 0 ? fd : open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* The words and the vector that points to them, in one allocation. */
static char **copy_words(int argc, char *const *argv)
{
	size_t vector = ((size_t)argc + 1) * sizeof(char *), bytes = vector;
	char **copy, *text;

	for (int i = 0; i < argc; i++)
		bytes += strlen(argv[i]) + 1;
	copy = calloc(1, bytes);
	if (copy == NULL)
		return NULL;
	text = (char *)copy + vector;
	for (int i = 0; i < argc; i++) {
		size_t length = strlen(argv[i]) + 1;

		copy[i] = memcpy(text, argv[i], length);
		text += length;
	}
	return copy;
}

static bool file_size_ignored, stdout_closed;

void startup_restore_signals(void)
{
	if (file_size_ignored)
		(void)signal(SIGXFSZ, SIG_DFL);
}

bool startup_ignores(int signo)
{
	return signo == SIGXFSZ && file_size_ignored;
}

char **startup_prepare(int argc, char **argv)
{
	char **copy = copy_words(argc, argv);
	char *end = argc > 0 ? argv[0] : NULL;

	file_size_ignored = signal(SIGXFSZ, SIG_IGN) == SIG_DFL;
	for (int fd = 0; fd <= 2; fd++) {
		/* The lowest free number is the one that is missing. */
		if (fcntl(fd, F_GETFD) < 0) {
			stdout_closed |= fd == STDOUT_FILENO;
			(void)open_null();
		}
	}
	if (copy == NULL)
		return NULL;
	for (int i = 0; i < argc && argv[i] == end; i++)
		end += strlen(end) + 1;
	if (argc > 0) {
		title.start = argv[0];
		title.bytes = (size_t)(end - argv[0]);
	}
	return copy;
}

bool startup_stdout_is_closed(void)
{
	return stdout_closed;
}

void startup_retitle(const char *name, char *const *argv)
{
	size_t at = 0;

	(void)prctl(PR_SET_NAME, name);
	if (title.bytes == 0)
		return;
	memset(title.start, 0, title.bytes);
	for (int i = -1; (i < 0 || argv[i] != NULL) && at < title.bytes; i++) {
		int n = snprintf(title.start + at, title.bytes - at, i < 0 ? "%s:" : " %s",
				 i < 0 ? name : argv[i]);

		if (n < 0)
			break;
		at += (size_t)n;
	}
}

void startup_release_inherited(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int null = open_null();
	long limit = dir == NULL ? sysconf(_SC_OPEN_MAX) : 0;
	int fd = 0;

	for (;;) {
		if (dir != NULL) {
			struct dirent *entry = readdir(dir);

			if (entry == NULL)
				break;
			fd = atoi(entry->d_name);
			if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
				continue;
		} else if (fd++ >= limit || fd > 65536) {
			break;
		}
		if (fd > STDERR_FILENO) {
			int flags = fcntl(fd, F_GETFD);

			if (flags >= 0 && (flags & FD_CLOEXEC) == 0)
				(void)close(fd);
		}
	}
	for (fd = STDIN_FILENO; fd <= STDOUT_FILENO && null >= 0; fd++) {
		int flags = fcntl(fd, F_GETFD);

		if (flags >= 0 && (flags & FD_CLOEXEC) == 0)
			(void)dup3(null, fd, O_CLOEXEC);
	}
	io_close(&null);
	if (dir != NULL)
		(void)closedir(dir);
}
