/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine of a launch: follows every process that records in a session directory while it runs, and finishes its files when
 * it ends, however it ends. One thread.
 */
#ifndef MSCOPE_ENGINE_FOLLOW_H
#define MSCOPE_ENGINE_FOLLOW_H

#include "engine/runs.h"

enum follow_news {
	FOLLOW_NOTHING,	    /* go on */
	FOLLOW_ENDED,	    /* the program is gone; finish what has ended and return */
	FOLLOW_INTERRUPTED, /* the user does not want to wait: leave everything as it is and return */
};

struct follow_ops {
	struct runs_ops runs;
	/* Waits up to `timeout_ms` for news. `arg` is that of `runs`. */
	enum follow_news (*wait)(void *arg, int timeout_ms);
	const char *sampler; /* library that asks the driver for its figures, NULL: none */
	bool sample_first;   /* a device is expected: the driver is asked before anything is read */
};

/* A driver that takes longer to answer gives its first figures later. */
#define FOLLOW_FIRST_SAMPLE_MS 300

struct follow;

/* Takes the session's lock. Place and ops are borrowed until follow_free(). NULL: the reason is in `err`. */
struct follow *follow_new(struct session_place *place, const struct follow_ops *ops,
			  struct mscope_error *err);
void follow_free(struct follow *follow);

/*
 * Follows until the program has ended and every process that recorded has ended too, or only processes remain that outlive the
 * program: then it returns and follow_orphans() may go on, in this process or in a child of it.
 */
int follow_launch(struct follow *follow, struct runs_result *out, struct mscope_error *err);

/* Goes on with what follow_launch() left alive, until it ends. The result counts what came since. */
void follow_orphans(struct follow *follow, struct runs_result *out);

#endif
