/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox HOW BEFORE THREADS AFTER [CHILD]: takes BEFORE blocks, then installs a seccomp filter that kills the process at every system
 * call a recorder may want to make late (opening and growing files, advice about memory, limits, its own ids), then takes AFTER blocks
 * in each of THREADS threads, the first of which is this one; at last a forked child takes CHILD blocks. HOW: "prctl" installs it by
 * prctl(2), "seccomp" by seccomp(2) as libseccomp does. The truth goes to stdout: no file can be opened.
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The log asks for the pid at its end. */
static pid_t own_pid;
#define getpid() own_pid

#include "target.h"

static const int forbidden[] = {
#ifdef SYS_open
	SYS_open,	 SYS_getrlimit,
#endif
	SYS_openat,	 SYS_fallocate,	 SYS_madvise,  SYS_prlimit64, SYS_ftruncate,
	SYS_gettid,	 SYS_getpid,	 SYS_tgkill,   SYS_flock,     SYS_prctl,
	SYS_sched_yield, SYS_readlinkat, SYS_pwrite64,
};
#define FORBIDDEN (sizeof(forbidden) / sizeof(forbidden[0]))

static unsigned pairs;
static atomic_uint done;

static void install(const char *how)
{
	struct sock_filter code[1 + 2 * FORBIDDEN + 1];
	struct sock_fprog program = {.filter = code};
	unsigned short at = 0;
	long r;

	code[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
						  offsetof(struct seccomp_data, nr));
	for (size_t i = 0; i < FORBIDDEN; i++) {
		code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
							  (unsigned)forbidden[i], 0, 1);
		code[at++] =
			(struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
	}
	code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	program.len = at;
	target_check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs failed");
	if (strcmp(how, "prctl") == 0)
		r = prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
	else
		r = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
	target_check(r == 0, "no filter");
}

static void work(struct truth *truth)
{
	uint64_t seed = (uint64_t)truth->first_id * 2654435761u + 1;

	for (unsigned i = 0; i < pairs; i++) {
		struct block *block = truth_alloc(truth, target_random_size(&seed), FLAG_NORMAL);
		struct timespec pause = {.tv_nsec = 1000000};

		if (i % 1024 != 7) /* the stand-in driver has few blocks */
			truth_free(truth, block);
		if (i % 1024 == 0)
			nanosleep(&pause, NULL);
	}
}

static void *thread_main(void *argument)
{
	static _Thread_local int cleared;
	struct truth *truth = argument;

	/* The one way left to learn it. */
	truth->tid = (pid_t)syscall(SYS_set_tid_address, &cleared);
	work(truth);
	atomic_fetch_add(&done, 1);
	for (;;) /* a thread that ends gives advice about its stack */
		pause();
	return NULL;
}

int main(int argc, char **argv)
{
	unsigned before, threads, child;
	struct truth *logs[16] = {0};
	pid_t pid;

	own_pid = target_tid();
	target_check(argc >= 5, "usage: sandbox HOW BEFORE THREADS AFTER [CHILD]");
	before = (unsigned)atoi(argv[2]);
	threads = (unsigned)atoi(argv[3]);
	pairs = (unsigned)atoi(argv[4]);
	child = argc > 5 ? (unsigned)atoi(argv[5]) : 0;
	target_check(threads >= 1 && threads <= 16, "1 to 16 threads");
	for (unsigned i = 0; i < threads; i++)
		logs[i] = truth_new(2 * (size_t)(pairs + before));
	truth_live(logs[0], before, 0);
	install(argv[1]);
	for (unsigned i = 1; i < threads; i++) {
		pthread_t thread;

		target_check(pthread_create(&thread, NULL, thread_main, logs[i]) == 0, "no thread");
	}
	work(logs[0]);
	while (atomic_load(&done) < threads - 1) {
		struct timespec pause = {.tv_nsec = 1000000};

		nanosleep(&pause, NULL);
	}
	if (child > 0) {
		pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
		target_check(pid >= 0, "no child");
		if (pid == 0) {
			for (unsigned i = 0; i < child; i++) {
				void *block;

				(void)halMemAlloc(&block, 4096, FLAG_NORMAL);
			}
			_exit(0);
		}
		{
			int status;

			target_check(waitpid(pid, &status, 0) == pid && status == 0,
				     "the child was killed");
		}
	}
	truth_write_to(NULL);
	return 0;
}
