/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file DIR/asked of a session: which process the engine asks for the Python containers that grow, and the answer. Every process of a
 * launch maps it, also one that has no trace (a DataLoader worker): a forked child inherits the mapping. One question at a time. Looking
 * takes memory, which is not to be taken for growth of the program: each look says how much.
 */
#ifndef MSCOPE_TRACE_ASKED_H
#define MSCOPE_TRACE_ASKED_H

#include <stdatomic.h>
#include <stdint.h>

#define ASKED_FILE	 "asked"
#define ASKED_CONTAINERS 3u
#define ASKED_TEXT_MAX	 1200u
#define ASKED_LOOKS	 8u

/* One container that grows; process, before `answered`. */
struct asked_container {
	uint64_t items;	       /* that it has */
	uint64_t gained;       /* of them, since the question before */
	uint64_t gained_bytes; /* what these take, by a sample */
	uint32_t text_bytes;   /* of `texts`: as in the event host_container */
	char texts[ASKED_TEXT_MAX];
};

/* What it took a process to look among its objects, for whatever question; any process. */
struct asked_look {
	_Atomic uint32_t number; /* from 1; after the rest */
	uint32_t pid;
	uint32_t milliseconds;
	uint32_t reserved;
	uint64_t level_bytes; /* resident after it */
	uint64_t look_bytes;  /* of it, what it has more by looking */
};

struct asked {
	/* Grows by 1 with each question; engine, after the rest of the question. */
	_Atomic uint32_t number;
	uint32_t pid;	      /* of the process that is asked, as it sees itself */
	uint64_t start_ticks; /* its start time in /proc/PID/stat, 0: unknown */
	/* Number of the question that is answered; process, after the rest of the answer. */
	_Atomic uint32_t answered;
	uint32_t count;		 /* of containers; 0: none is known to grow */
	uint32_t milliseconds;	 /* since the question before, 0: there was none */
	_Atomic uint32_t looks;	 /* ever made; any process */
	uint64_t resident_bytes; /* what the process has more resident since then */
	struct asked_container containers[ASKED_CONTAINERS];
	/* The latest looks, by number. */
	struct asked_look look[ASKED_LOOKS];
};

_Static_assert(sizeof(struct asked) <= 4096, "one page");

#endif
