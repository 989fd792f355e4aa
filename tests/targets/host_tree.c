/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host_tree SECONDS KIND...: takes steps of 50 ms, each with a block of the device, and a child for each KIND, which calls no hook:
 *
 *     grows    keeps 512 KiB more in each step's time
 *     swings   takes 16 MiB and gives them back, once in twelve steps
 *     fills    keeps more until a third of the time is over
 *     ends     lives for a third of the time
 *     parent   a child that stays as it is; the parent itself keeps 512 KiB more in each step
 *
 * It keeps 1 MiB of pinned memory. Prints {"steps": N, "children": [[pid, kind], ...]}.
 */
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include "mstx/ms_tools_ext.h"
#include "target.h"

#define STEP_NS	 50000000L
#define KEEP	 (512u << 10)
#define SWING	 (16u << 20)
#define CHILDREN 16
#define PINNED	 (1u << 20)

static void keep(size_t bytes)
{
	char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	target_check(at != MAP_FAILED, "no memory");
	memset(at, 1, bytes);
}

static void nap(void)
{
	(void)nanosleep(&(struct timespec){.tv_nsec = STEP_NS}, NULL);
}

static _Noreturn void child(const char *kind, unsigned steps)
{
	char *swing = NULL;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)prctl(PR_SET_NAME, kind);
	for (unsigned i = 0; strcmp(kind, "ends") != 0 || i < steps / 3; i++) {
		if (strcmp(kind, "grows") == 0 || strcmp(kind, "pt_data_worker") == 0 ||
		    (strcmp(kind, "fills") == 0 && i < steps / 3))
			keep(KEEP);
		if (strcmp(kind, "swings") == 0 && i % 12 == 0) {
			swing = mmap(NULL, SWING, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			memset(swing, 1, SWING);
		} else if (strcmp(kind, "swings") == 0 && i % 12 == 6) {
			(void)munmap(swing, SWING);
		}
		nap();
	}
	_exit(0);
}

int main(int argc, char **argv)
{
	unsigned steps = argc > 1 ? (unsigned)atoi(argv[1]) * 20 : 200, count = 0;
	bool grows = false;
	pid_t pids[CHILDREN];
	void *pinned = NULL;

	target_check(halMemAlloc(&pinned, PINNED, FLAG_HOST) == 0, "no pinned memory");
	for (int i = 2; i < argc && count < CHILDREN; i++) {
		grows = grows || strcmp(argv[i], "parent") == 0;
		pids[count] = fork();
		target_check(pids[count] >= 0, "no child");
		if (pids[count++] == 0)
			child(argv[i], steps);
	}
	for (unsigned i = 0; i < steps; i++) {
		mstxRangeId step = mstxRangeStartA("step start", NULL);
		void *address = NULL;

		target_check(halMemAlloc(&address, 4096, FLAG_NORMAL) == 0 &&
				     halMemFree(address) == 0,
			     "the driver failed");
		if (grows)
			keep(KEEP);
		nap();
		mstxRangeEnd(step);
	}
	printf("{\"steps\": %u, \"children\": [", steps);
	for (unsigned i = 0; i < count; i++) {
		(void)kill(pids[i], SIGKILL);
		(void)waitpid(pids[i], NULL, 0);
		printf("%s[%d, \"%s\"]", i > 0 ? ", " : "", (int)pids[i], argv[2 + i]);
	}
	printf("]}\n");
	return 0;
}
