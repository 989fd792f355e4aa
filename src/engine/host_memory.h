/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the host: what a traced process and the processes that it has started have resident, and what their container allows. Asked
 * for from outside, by /proc and the cgroup's files, and put into the trace as records; the traced processes do nothing for it.
 *
 *     host_table_look()     now and then: which processes there are, and whose children
 *     host_family_look()    for each run: finds its members, samples those that are known
 *     host_family_end()     when its process is gone: how the limits were then
 *
 * A process that was started by a traced one belongs to its family and to those of its traced ancestors, whether it has a trace or not.
 */
#ifndef MSCOPE_ENGINE_HOST_MEMORY_H
#define MSCOPE_ENGINE_HOST_MEMORY_H

#include <stdbool.h>

#include "base/compiler.h"

struct run;

#define HOST_MEMBERS_MAX 64u

/* Processes of the machine by number. */
struct host_table {
	struct host_entry {
		uint32_t pid, parent;
	} * all;
	size_t count, room;
	uint64_t due_ns; /* when it is read again: reading takes 2 % of the time at most */
	uint64_t reads;
};

/* Where the limits of a cgroup are; empty: there are none. */
struct host_limits {
	char own[256];	    /* directory of the process' own cgroup */
	char limiting[256]; /* of it or the one above it that has the lowest limit */
	bool unified;	    /* cgroup v2 */
	uint64_t told_used, told_kills, told_available;
	bool told;
};

struct host_member {
	uint32_t pid;	/* as we see it */
	uint32_t inner; /* as it sees itself */
	uint32_t parent;
	uint64_t start_ticks;
	uint64_t seen_bytes, told_bytes; /* when last looked at; as the trace has it */
	char name[16];
};

struct host_family {
	struct host_member *members; /* that run */
	size_t count, room;
	uint64_t table_reads; /* of the table, when members were last looked for */
	uint64_t limits_ns;
	bool limits_found;
	struct host_limits limits;
};

void host_table_look(struct host_table *table, uint64_t now_ns);
void host_table_fini(struct host_table *table);

/* `pid`: the traced process, as we see it. */
void host_family_look(struct host_family *family, const struct host_table *table, struct run *run,
		      uint32_t pid, uint64_t now_ns);

/* What its members have of shared memory: takes a while, so only where it is asked for. Nothing for a process without members. */
void host_family_shares(struct host_family *family, struct run *run, uint32_t pid, uint64_t now_ns);

void host_family_end(struct host_family *family, struct run *run, uint64_t now_ns);
void host_family_fini(struct host_family *family);

/* Whether a figure has changed enough to be told. */
bool host_has_changed(uint64_t told_bytes, uint64_t bytes);

#endif
