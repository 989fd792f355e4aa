/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trace of a process that is being recorded, read beside its engine until both are done with it (trace/run_observe.c says how).
 * Nothing is written, locked or asked for.
 */
#ifndef MSCOPE_ENGINE_LIVE_RUN_H
#define MSCOPE_ENGINE_LIVE_RUN_H

#include <limits.h>

#include "engine/traced_process.h"
#include "trace/run.h"

struct live_run {
	struct run *run;
	char raw[PATH_MAX], part[PATH_MAX];
	char root[64]; /* where the process sees its files: "" or "/proc/PID/root" */
	struct process process;
	bool ended; /* what run_next() returns now is the rest */
};

/* Opens the raw trace at `path`. 0, or a negative code said in `err`; needs live_run_close() in either case. */
int live_run_open(struct live_run *live, const char *path, struct mscope_error *err);
void live_run_close(struct live_run *live);

/* Whether the run can be read before it ends: its process takes part in barriers. */
bool live_run_is_readable(const struct live_run *live);

/*
 * Makes available what has come; `now_ns` as in run_poll(). 0, -ESTALE (the engine dropped what was not read: begin again with
 * live_run_again()) or another negative code.
 */
int live_run_poll(struct live_run *live, uint64_t now_ns);

/* Opens the same trace anew; `run` is another one then, and the caller closes the old one. */
int live_run_again(struct live_run *live, struct run **out_old);

#endif
