/* SPDX-License-Identifier: Apache-2.0 */
/*
 * late_load FILE...: loads libraries after the start, the collector or others that want room for initial-exec TLS, then takes
 * memory in two threads. Exits 0 when every library was loaded.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#include "target.h"

#define PAIRS 200

static void *work(void *argument)
{
	(void)argument;
	truth_live(truth_new(2 * PAIRS), PAIRS, 0);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t thread;

	for (int i = 1; i < argc; i++) {
		if (dlopen(argv[i], RTLD_NOW | RTLD_GLOBAL) == NULL) {
			fprintf(stderr, "%s\n", dlerror());
			return 98;
		}
	}
	work(NULL);
	pthread_create(&thread, NULL, work, NULL);
	pthread_join(thread, NULL);
	truth_write();
	return 0;
}
