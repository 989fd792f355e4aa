/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report.html of a launch: one file for all its processes, made when the last of them has ended. A child of the engine reads the traces
 * that were kept; it may fail or be interrupted, and everything else is complete by then.
 */
#ifndef MSCOPE_CLI_LAUNCH_REPORT_H
#define MSCOPE_CLI_LAUNCH_REPORT_H

#include "cli/outcome.h"

#define LAUNCH_REPORT_FILE	"report.html"
#define LAUNCH_REPORT_EVENTS	2000000u /* beyond it only on request: reading would take seconds */
#define LAUNCH_REPORT_PROCESSES 64u

struct launch_report_run {
	char *project, *name;
	int64_t rank;
};

struct launch_report {
	bool off;
	struct launch_report_run *runs;
	size_t count, room;
	uint64_t events;
	uint64_t used_bytes, limit_bytes; /* of --max-disk; 0: there is no limit */
};

/* Takes a process that is finished; one without a trace in its project does not count. */
void launch_report_add(struct launch_report *report, const struct pipeline *pipeline);

/*
 * Makes the file and tells `outcome` of it, or why there is none. Temporary files lie in `directory`. `stopped` is asked now and then,
 * and may be NULL; where it is true, the file is not made. Empty afterwards.
 */
void launch_report_make(struct launch_report *report, struct outcome *outcome,
			const char *directory, bool (*stopped)(void *arg), void *arg);

#endif
