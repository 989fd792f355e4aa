/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prctl(), by which a program forbids itself system calls. See confine.c for the other ways to give up rights.
 */
#include <errno.h>
#include <stdarg.h>
#include <sys/prctl.h>

#include "collector/process/confine.h"

MSCOPE_EXPORT int prctl(int option, ...)
{
	hook_prctl *original = HOOK_ORIGINAL(prctl);
	unsigned long words[4];
	va_list args;
	int i;

	/* As libc reads them, whatever the caller passed. */
	va_start(args, option);
	for (i = 0; i < 4; i++)
		words[i] = va_arg(args, unsigned long);
	va_end(args);
	/* A filter without rights to install it is preceded by the second. */
	if (option == PR_SET_SECCOMP || option == PR_SET_NO_NEW_PRIVS)
		confine_begins();
	if (original != NULL)
		return original(option, words[0], words[1], words[2], words[3]);
	errno = ENOSYS;
	return -1;
}
