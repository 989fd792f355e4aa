/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --store of a launch: what each process held goes into the store when it has ended. The engine makes the rows, and a child of the
 * engine writes them, so a database that is away or slow keeps neither the engine nor the program waiting; only the end of the
 * launch waits, 10 s or $MSMEMSCOPE_STORE_WAIT at most. What could not be stored is in the traces: one sentence says how to add it.
 */
#ifndef MSCOPE_CLI_STORING_H
#define MSCOPE_CLI_STORING_H

#include <sys/types.h>

#include "cli/outcome.h"
#include "cli/store_place.h"

#define STORING_CHILDREN 4u /* at a time */

struct storing_child {
	pid_t pid; /* 0: none */
	int fd;	   /* that it says what failed by */
};

struct storing {
	struct store_place place; /* choice.url is NULL: nothing is stored */
	char *url;		  /* with its file made absolute: the engine may go elsewhere */
	double patience_s;
	char run[256]; /* of the last process */
	char stamp[32];
	struct storing_child children[STORING_CHILDREN];
	struct store_rows *waiting; /* that no child has yet */
	size_t count, room;
	uint32_t stored, failed;
	struct mscope_error err; /* the first failure */
};

/* A code with a sentence when the URL is wrong. */
int storing_init(struct storing *storing, const struct options *options, struct mscope_error *err);

/* Takes a process that is finished. */
void storing_add(struct storing *storing, struct pipeline *pipeline);

/* Starts and collects children; never waits. */
void storing_step(struct storing *storing);

/* Waits for all of them, and says what came of it. */
void storing_finish(struct storing *storing, struct outcome *outcome, const char *output);

#endif
