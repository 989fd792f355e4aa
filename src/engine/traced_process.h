/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a traced process still lives. By a pidfd where the kernel has them (5.3), else by /proc; in both cases the start time
 * in the trace header distinguishes the process from a later one with its number.
 */
#ifndef MSCOPE_ENGINE_TRACED_PROCESS_H
#define MSCOPE_ENGINE_TRACED_PROCESS_H

#include <stdbool.h>

#include "trace/chunk.h"

struct process {
	uint32_t pid;
	uint64_t start_ticks;
	int pidfd;    /* -1: none, ask /proc */
	bool foreign; /* lives in another pid namespace: unknown, taken for alive */
};

/* `namespace` is the pid namespace that the trace names, NULL: unknown. */
void process_watch(struct process *process, const struct trace_header *header,
		   const char *namespace);
/* The process that has this number now; false when there is none. */
bool process_watch_pid(struct process *process, uint32_t pid);
bool process_is_alive(const struct process *process);

/* The state letter of /proc/PID/stat, 0 when it cannot be read. */
char process_state(uint32_t pid);

/* Memory that the process has resident, UINT64_MAX if unknown. */
uint64_t process_resident_bytes(const struct process *process);
void process_unwatch(struct process *process);

#endif
