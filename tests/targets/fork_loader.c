/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork_loader COUNT: children that walk the loaded objects, as a C++ exception does, forked while other threads call a hooked
 * function whose library is not there. Looking for it is the collector's own business: without the collector nobody in this
 * program is inside the loader at a fork, so no child can find the loader's lock taken.
 */
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>

#include "target.h"

#define THREADS 3

extern int rtKernelLaunch(const void *stub, uint32_t blocks, void *args, uint32_t bytes, void *desc,
			  void *stream) __attribute__((weak));

static atomic_bool stopping;

static void *launch(void *argument)
{
	(void)argument;
	while (!atomic_load(&stopping)) {
		if (rtKernelLaunch != NULL)
			rtKernelLaunch(NULL, 1, NULL, 0, NULL, NULL);
	}
	return NULL;
}

static int nothing(struct dl_phdr_info *info, size_t bytes, void *argument)
{
	(void)info;
	(void)bytes;
	(void)argument;
	return 1;
}

int main(int argc, char **argv)
{
	int count = argc > 1 ? atoi(argv[1]) : 1, i, status;
	pthread_t threads[THREADS];

	for (i = 0; i < THREADS; i++)
		target_check(pthread_create(&threads[i], NULL, launch, NULL) == 0, "no thread");
	for (i = 0; i < count; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			alarm(60);
			(void)dl_iterate_phdr(nothing, NULL);
			_exit(0);
		}
		target_check(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0,
			     "a child did not get through");
	}
	atomic_store(&stopping, true);
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	printf("%d children\n", count);
	return 0;
}
