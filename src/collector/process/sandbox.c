/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seccomp filters. A program that installs one by prctl(2), or that gives up new privileges first as an unprivileged one and every
 * user of libseccomp must, is quiet from that call on (quiet.h). A filter that came before the program was started is not noticed: it
 * let the loader open files, and lets us. Nor is one that a privileged program installs by a bare seccomp(2). See confine.c for the
 * other ways to give up rights.
 */
#include <errno.h>
#include <stdarg.h>
#include <sys/prctl.h>

#include "collector/loader/hook.h"
#include "collector/process/confine.h"
#include "collector/process/process.h"
#include "collector/quiet.h"
#include "collector/record/chunk_supply.h"
#include "collector/record/early.h"
#include "collector/sys.h"
#include "collector/vendor.h"

/* Without a driver nothing is recorded yet, and a program that loads one later must be able to open files. */
static bool driver_is_loaded(void)
{
	uint32_t vendor;

	for (vendor = VENDOR_FIRST; vendor < VENDOR_END; vendor++) {
		struct hook hook = {.name = vendor_ops(vendor)->driver};

		if (hook.name != NULL && hook_original(&hook) != NULL)
			return true;
	}
	return false;
}

static MSCOPE_COLD void sandbox_begins(void)
{
	static struct lock lock;
	int saved_errno = errno;
	uint32_t recording;

	if (!quiet_is_on() && lock_take_within(&lock, 0)) {
		/* The first event could not open anything any more. */
		confine_begins();
		recording = recording_now();
		if (recording == RECORDING_DETACHED && driver_is_loaded())
			recording = collector_attach_slow();
		if ((recording == RECORDING_ON || recording == RECORDING_SHADOW ||
		     recording == RECORDING_EARLY) &&
		    driver_is_loaded()) {
			quiet_prepare();
			if (recording == RECORDING_EARLY)
				early_become_quiet();
			else
				writers_become_quiet();
			quiet_begin();
		}
		lock_release(&lock);
	}
	errno = saved_errno;
}

MSCOPE_EXPORT int prctl(int option, ...)
{
	hook_prctl *original = HOOK_ORIGINAL(prctl);
	unsigned long given[4];
	va_list arguments;
	uint32_t i;

	va_start(arguments, option);
	for (i = 0; i < MSCOPE_COUNT(given); i++)
		given[i] = va_arg(arguments, unsigned long);
	va_end(arguments);
	if (MSCOPE_UNLIKELY(option == PR_SET_SECCOMP || option == PR_SET_NO_NEW_PRIVS))
		sandbox_begins();
	return original != NULL
		       ? original(option, given[0], given[1], given[2], given[3])
		       : (int)syscall(SYS_prctl, option, given[0], given[1], given[2], given[3]);
}
