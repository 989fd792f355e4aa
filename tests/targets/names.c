/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names: threads whose names hold what breaks careless writers of csv and JSON: quotes, commas, braces, a line break, Chinese,
 * half a character (the kernel cuts names at 15 bytes), nothing at all. Says on stderr, in hexadecimal, what was set.
 */
#include <pthread.h>
#include <stdio.h>
#include <sys/prctl.h>

#include "target.h"

static const char *const names[] = {
	"say \"hi\", you", "{a:1,b}", "line\nbreak\t", "内存线程", "a内存分析线程",
	"back\\slash",	   "",	      "\x01\x7f\xff",
};
#define NAMES (sizeof(names) / sizeof(*names))

static void *work(void *argument)
{
	const char *name = *(const char *const *)argument;

	prctl(PR_SET_NAME, name);
	truth_live(truth_new(100), 50, 0);
	return NULL;
}

int main(void)
{
	for (unsigned i = 0; i < NAMES; i++) {
		char seen[17] = {0};
		pthread_t thread;

		pthread_create(&thread, NULL, work, (void *)(uintptr_t)&names[i]);
		pthread_join(thread, NULL);
		memcpy(seen, names[i], strnlen(names[i], 15));
		for (const char *at = seen; *at != 0; at++)
			fprintf(stderr, "%02x", (unsigned)(unsigned char)*at);
		fprintf(stderr, "\n");
	}
	truth_write();
	return 0;
}
