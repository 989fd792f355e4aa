/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a traced process still lives. It is found in our /proc by what its trace says of it: number, pid namespace, start time; also
 * when it lives in a namespace below ours and has another number there. Then a pidfd tells (kernel 5.3; a quarter of our
 * descriptors may be such), else /proc, where the start time distinguishes it from a later process with its number.
 *
 * No error is read as its death: what cannot be found out is PROCESS_UNKNOWN.
 */
#ifndef MSCOPE_ENGINE_TRACED_PROCESS_H
#define MSCOPE_ENGINE_TRACED_PROCESS_H

#include <stdbool.h>

#include "trace/chunk.h"

enum process_life {
	PROCESS_ALIVE,
	PROCESS_GONE,
	PROCESS_UNKNOWN, /* we cannot see it, or could not look now */
};

struct process {
	uint32_t pid; /* as we see it, 0: it is not in our /proc */
	uint64_t start_ticks;
	int pidfd; /* -1: none, ask /proc */
};

/* `namespace` is the pid namespace that the trace names, NULL: unknown. */
void process_watch(struct process *process, const struct trace_header *header,
		   const char *namespace);
/* The process that has this number now; false when there is none. */
bool process_watch_pid(struct process *process, uint32_t pid);
enum process_life process_life(const struct process *process);

/* Waits up to a second for a process that has been killed and is on its way out; true: it is gone. */
bool process_ends_soon(const struct process *process);

/* The state letter of /proc/PID/stat, 0 when it cannot be read. */
char process_state(uint32_t pid);

/* What /proc/PID/stat says. */
struct process_stat {
	char state;
	char name[16]; /* zero padded */
	uint32_t parent;
	uint32_t flags;
	uint32_t threads;
	uint64_t start_ticks;
};
bool process_stat(uint32_t pid, struct process_stat *out);

/* The number of a process in its own namespace: the last one behind "NSpid:". 0 when unknown. */
uint32_t process_inner_pid(uint32_t pid);

/* Memory that the process has resident, UINT64_MAX if unknown. */
uint64_t process_resident_bytes(uint32_t pid);

/* The same with shared pages by its share. Takes about 18 ms for each GiB, with a lock of the process. UINT64_MAX if unknown. */
uint64_t process_share_bytes(uint32_t pid);
void process_unwatch(struct process *process);

#endif
