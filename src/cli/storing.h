/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --store of a launch: what each process held goes into the store when it has ended. The engine makes the rows, and a child of the
 * engine writes them, so a database that is away or slow keeps neither the engine nor the program waiting; only the end of the
 * launch waits, 10 s or $MSMEMSCOPE_STORE_WAIT at most. What could not be stored is in the traces: one sentence says how to add it.
 *
 * A process that still runs is stored after stop() and, with --store-every, from time to time: a child of the engine, with the state
 * of that moment, makes the rows and writes them. If the store is away, the next time or the end does it, and nothing is said. It is
 * ended before the rows of the process's end go out, so older rows never take the place of newer ones.
 */
#ifndef MSCOPE_CLI_STORING_H
#define MSCOPE_CLI_STORING_H

#include <sys/types.h>

#include "cli/outcome.h"
#include "cli/store_place.h"

#define STORING_CHILDREN 4u /* at a time */

struct storing_child {
	pid_t pid;	   /* 0: none */
	int fd;		   /* that it says what failed by */
	uint64_t until_ns; /* then it is killed */
	/* Of a process that still runs: its key, and the events that it had. */
	bool living;
	int64_t process;
	uint64_t events;
};

/* A process that still runs. */
struct storing_living {
	int64_t process;
	uint64_t due_ns; /* UINT64_MAX: not asked for */
	uint64_t events; /* that the store knows of; UINT64_MAX: none */
};

struct storing {
	struct store_place place; /* choice.url is NULL: nothing is stored */
	char *url;		  /* with its file made absolute: the engine may go elsewhere */
	double patience_s;
	double every_s; /* 0: processes are stored when they end */
	char run[256];	/* of the last process */
	struct storing_child children[STORING_CHILDREN];
	struct store_rows *waiting; /* that no child has yet */
	size_t count, room;
	struct storing_living *living;
	size_t living_count, living_room;
	uint64_t blocked_ns; /* until then a store that has failed is not tried again */
	uint32_t stored, failed;
	struct mscope_error err; /* the first failure */
};

/* A code with a sentence when the URL is wrong. */
int storing_init(struct storing *storing, const struct options *options, struct mscope_error *err);

/* Takes a process that is finished. */
void storing_add(struct storing *storing, struct pipeline *pipeline);

/* Looks at a process that runs, and stores it if that is due. */
void storing_look(struct storing *storing, struct pipeline *pipeline);

/* The next look stores it: the user has asked for its files. */
void storing_soon(struct storing *storing, const struct pipeline *pipeline);

/* Starts and collects children; never waits. */
void storing_step(struct storing *storing);

/* Waits for all of them, and says what came of it. */
void storing_finish(struct storing *storing, struct outcome *outcome, const char *output);

#endif
