/* SPDX-License-Identifier: Apache-2.0 */
/* Kills the process at a chosen passage of a chosen point; see testpoint.h. Only in the crash tests' build. */
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collector/testpoint.h"

void testpoint_hit(const char *name)
{
	static _Atomic long passages;
	const char *wanted = getenv("MSMEMSCOPE_TESTPOINT");
	size_t length = strlen(name);

	if (wanted == NULL || strncmp(wanted, name, length) != 0 || wanted[length] != ':')
		return;
	if (atomic_fetch_add(&passages, 1) + 1 == strtol(wanted + length + 1, NULL, 10))
		(void)kill(getpid(), SIGKILL);
}
