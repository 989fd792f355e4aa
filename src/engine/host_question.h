/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which containers of Python grow in a process whose host memory grows. The engine judges (analysis/host.h), the process looks
 * (python/msmemscope/_containers.py), and they meet in a file of the session (trace/asked.h), since a DataLoader worker has no trace. One
 * process of a name is asked: it is asked as soon as it may grow, again after 4 s, and from then on after twice the time each. The answer
 * becomes records of all runs that the process belongs to. So does what looking took, for this question or for another.
 */
#ifndef MSCOPE_ENGINE_HOST_QUESTION_H
#define MSCOPE_ENGINE_HOST_QUESTION_H

#include "engine/runs.h"
#include "trace/asked.h"

#define HOST_ASKED_MAX 16u

struct host_question {
	const struct session_place *place; /* borrowed */
	struct asked *asked;		   /* NULL: not mapped yet, or cannot be */
	bool tried;
	uint32_t looks_taken; /* of asked.looks */
	uint64_t judge_ns;    /* when processes are judged again */
	/* The process that is asked now and since when; NULL: none is. */
	struct host_asked *waits_for;
	uint64_t since_ns;
	struct host_asked {
		uint32_t pid;	/* as we see it */
		uint32_t inner; /* as it sees itself */
		uint64_t start_ticks;
		uint64_t next_ns,
			pause_ns; /* when it may be asked again, and how long after that */
	} all[HOST_ASKED_MAX];
	uint32_t count;
};

void host_question_look(struct host_question *question, const struct runs *runs, uint64_t now_ns);
void host_question_fini(struct host_question *question);

#endif
