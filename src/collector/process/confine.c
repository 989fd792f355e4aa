/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process may give up what recording needs before it uses a device for the first time: the user who may write to the session, the
 * root directory it lies in, the right to open files. So the calls that do this attach first; afterwards the trace is mapped, and
 * needs none of it. A process that never records leaves an empty trace by this, which the engine removes.
 *
 * What is given up by other means, and what a started program inherits, is met by unrecorded_count.c.
 */
#include "collector/process/confine.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "collector/memory.h"
#include "collector/process/process.h"

#define HOOK HOOK_DEFINE
#include "collector/process/hooks.def"
#undef HOOK

/* A limit on descriptors below this is meant to keep the process from opening files. */
#define DESCRIPTORS_FEW 64u

MSCOPE_COLD void confine_begins(void)
{
	int saved_errno = errno;

	collector.confined = true;
	if (recording_now() == RECORDING_DETACHED &&
	    (collector.session[0] != '\0' || getenv(SESSION_ENV) != NULL))
		(void)collector_attach_slow();
	errno = saved_errno;
}

static void user_changes(uid_t effective)
{
	if (effective != (uid_t)-1 && effective != geteuid())
		confine_begins();
}

/* `limit` is the program's, and may be no address at all; both kinds of struct begin with the soft limit. */
static void limit_changes(int resource, const void *limit)
{
	rlim64_t soft;

	if ((resource != RLIMIT_NOFILE && resource != RLIMIT_FSIZE) ||
	    memory_read(&soft, (uint64_t)(uintptr_t)limit, sizeof(soft)) != sizeof(soft))
		return;
	if (resource == RLIMIT_NOFILE ? soft < DESCRIPTORS_FEW : soft != RLIM64_INFINITY)
		confine_begins();
}

#define CALL_ORIGINAL(name, ...)                                                                   \
	do {                                                                                       \
		hook_##name *original = HOOK_ORIGINAL(name);                                       \
                                                                                                   \
		if (original != NULL)                                                              \
			return original(__VA_ARGS__);                                              \
		errno = ENOSYS;                                                                    \
		return -1;                                                                         \
	} while (0)

MSCOPE_EXPORT int setuid(uid_t uid)
{
	user_changes(uid);
	CALL_ORIGINAL(setuid, uid);
}

MSCOPE_EXPORT int seteuid(uid_t uid)
{
	user_changes(uid);
	CALL_ORIGINAL(seteuid, uid);
}

MSCOPE_EXPORT int setreuid(uid_t real, uid_t effective)
{
	user_changes(effective);
	CALL_ORIGINAL(setreuid, real, effective);
}

MSCOPE_EXPORT int setresuid(uid_t real, uid_t effective, uid_t saved)
{
	user_changes(effective);
	CALL_ORIGINAL(setresuid, real, effective, saved);
}

MSCOPE_EXPORT int chroot(const char *path)
{
	confine_begins();
	CALL_ORIGINAL(chroot, path);
}

MSCOPE_EXPORT int setrlimit(__rlimit_resource_t resource, const struct rlimit *limit)
{
	limit_changes((int)resource, limit);
	CALL_ORIGINAL(setrlimit, resource, limit);
}

MSCOPE_EXPORT int setrlimit64(__rlimit_resource_t resource, const struct rlimit64 *limit)
{
	limit_changes((int)resource, limit);
	CALL_ORIGINAL(setrlimit64, resource, limit);
}

MSCOPE_EXPORT int prlimit(pid_t pid, enum __rlimit_resource resource, const struct rlimit *limit,
			  struct rlimit *old)
{
	if (pid == 0 || pid == getpid())
		limit_changes((int)resource, limit);
	CALL_ORIGINAL(prlimit, pid, resource, limit, old);
}

MSCOPE_EXPORT int prlimit64(pid_t pid, enum __rlimit_resource resource,
			    const struct rlimit64 *limit, struct rlimit64 *old)
{
	if (pid == 0 || pid == getpid())
		limit_changes((int)resource, limit);
	CALL_ORIGINAL(prlimit64, pid, resource, limit, old);
}

MSCOPE_EXPORT int unshare(int flags)
{
	if (flags & (CLONE_NEWNS | CLONE_NEWUSER | CLONE_NEWIPC))
		confine_begins();
	CALL_ORIGINAL(unshare, flags);
}

MSCOPE_EXPORT int setns(int fd, int kind)
{
	confine_begins();
	CALL_ORIGINAL(setns, fd, kind);
}
