/* SPDX-License-Identifier: Apache-2.0 */
/*
 * churn N: N short-lived threads of two events each, eight at a time. What is kept per thread must go on to the next one:
 * says on stderr by how many KiB the address space grew at its peak after the first tenth of the threads.
 */
#include <pthread.h>
#include <stdio.h>

#include "target.h"

#define AT_A_TIME 8

static void *work(void *argument)
{
	struct truth *truth = truth_new(2);
	(void)argument;

	truth_free(truth, truth_alloc(truth, 4096, FLAG_NORMAL));
	return NULL;
}

static long peak_kib(void)
{
	long peak = -1;
	char line[256];
	FILE *file = fopen("/proc/self/status", "r");

	target_check(file != NULL, "no /proc");
	while (fgets(line, sizeof(line), file) != NULL)
		if (strncmp(line, "VmPeak:", 7) == 0)
			peak = atol(line + 7);
	fclose(file);
	return peak;
}

int main(int argc, char **argv)
{
	unsigned left = argc > 1 ? (unsigned)atoi(argv[1]) : 10000;
	unsigned tenth = left - left / 10;
	long peak = 0;

	while (left > 0) {
		unsigned count = left < AT_A_TIME ? left : AT_A_TIME;
		pthread_t threads[AT_A_TIME];

		for (unsigned i = 0; i < count; i++)
			target_check(pthread_create(&threads[i], NULL, work, NULL) == 0,
				     "no thread");
		for (unsigned i = 0; i < count; i++)
			pthread_join(threads[i], NULL);
		left -= count;
		if (left > tenth)
			peak = peak_kib();
	}
	fprintf(stderr, "growth_kib %ld\n", peak_kib() - peak);
	truth_write();
	return 0;
}
