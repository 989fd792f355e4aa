/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library that wants 1 KiB of initial-exec TLS, as some OpenMP and OpenGL runtimes do. Loaded late it gets that out of a
 * small reserve of the process, which a collector must leave to others.
 */
#include <string.h>

char *tls_greedy(void);

static __thread char room[1024] __attribute__((tls_model("initial-exec")));

char *tls_greedy(void)
{
	memset(room, 1, sizeof(room));
	return room;
}
