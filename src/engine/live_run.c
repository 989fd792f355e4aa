/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/live_run.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/bus.h"
#include "base/text.h"
#include "trace/session.h"

/* As pipeline_find_root(): a process in a container sees other files than we do. */
static void find_root(struct live_run *live)
{
	char path[64], theirs[64], ours[64];
	ssize_t a, b;

	if (live->process.pid == 0)
		return;
	(void)snprintf(path, sizeof(path), "/proc/%u/ns/mnt", live->process.pid);
	a = readlink(path, theirs, sizeof(theirs));
	b = readlink("/proc/self/ns/mnt", ours, sizeof(ours));
	if (a > 0 && b > 0 && (a != b || memcmp(theirs, ours, (size_t)a) != 0))
		(void)snprintf(live->root, sizeof(live->root), "/proc/%u/root", live->process.pid);
}

int live_run_open(struct live_run *live, const char *path, struct mscope_error *err)
{
	int r;

	*live = (struct live_run){.process = {.pidfd = -1}};
	if (!text_ends_with(path, SESSION_RAW) ||
	    snprintf(live->raw, sizeof(live->raw), "%s", path) >= (int)sizeof(live->raw) ||
	    snprintf(live->part, sizeof(live->part), "%.*s%s",
		     (int)(strlen(path) - strlen(SESSION_RAW)), path,
		     SESSION_PART) >= (int)sizeof(live->part))
		return error_set(err, -EINVAL, "%s is not a raw trace", path);
	bus_guard(); /* a process can cut the trace that we have mapped */
	r = run_observe(live->raw, live->part, &live->run, err);
	if (r < 0)
		return r;
	process_watch(&live->process, run_header(live->run),
		      run_identity(live->run, "pid_namespace"));
	find_root(live);
	return 0;
}

void live_run_close(struct live_run *live)
{
	if (live->raw[0] == '\0')
		return; /* never opened */
	run_close(live->run);
	process_unwatch(&live->process);
	*live = (struct live_run){0};
}

bool live_run_is_readable(const struct live_run *live)
{
	return live->ended || run_has_barrier(live->run);
}

/* Whether nothing is written to the trace any more: the engine has finished it, or nobody is left to. */
static bool has_ended(const struct live_run *live)
{
	uint32_t engine;

	if (access(live->raw, F_OK) < 0)
		return true;
	if (process_life(&live->process) != PROCESS_GONE)
		return false;
	engine =
		atomic_load_explicit(&run_header_live(live->run)->engine_pid, memory_order_relaxed);
	return engine != 0 && kill((pid_t)engine, 0) < 0 && errno == ESRCH;
}

int live_run_poll(struct live_run *live, uint64_t now_ns)
{
	if (!live->ended)
		live->ended = has_ended(live);
	return run_poll(live->run, now_ns, live->ended);
}

int live_run_again(struct live_run *live, struct run **out_old)
{
	struct run *run = NULL;
	int r = run_observe(live->raw, live->part, &run, NULL);

	if (r == 0) {
		*out_old = live->run;
		live->run = run;
	}
	return r;
}
