/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine of a launch: follows every process that records in a session directory while it runs, and finishes its files when
 * it ends, however it ends. And the same afterwards: recovers what was left by an engine that was killed.
 */
#ifndef MSCOPE_ENGINE_FOLLOW_H
#define MSCOPE_ENGINE_FOLLOW_H

#include "engine/pipeline.h"
#include "engine/session.h"

enum follow_news {
	FOLLOW_NOTHING,	    /* go on */
	FOLLOW_ENDED,	    /* the program is gone; finish what has ended and return */
	FOLLOW_INTERRUPTED, /* the user does not want to wait: leave everything as it is and return */
};

struct follow_ops {
	/* Waits up to `timeout_ms` for news. */
	enum follow_news (*wait)(void *arg, int timeout_ms);
	/* A run is finished (or could not be: see its errors). Borrowed for the call. */
	void (*finished)(void *arg, struct pipeline *pipeline);
	/* Called now and then during long work; true: stop and leave things as they are. */
	bool (*progress)(void *arg, uint64_t events_done);
	/* A trace that cannot be read at all. */
	void (*unreadable)(void *arg, const char *path, const struct mscope_error *err);
	const char *sampler; /* library that asks the driver for its figures, NULL: none */
	void *arg;
};

struct follow_result {
	uint32_t runs;	      /* finished */
	uint32_t failed;      /* with an error; what was recorded is kept where it is */
	uint32_t still_alive; /* processes that run on after the program ended */
	bool interrupted;
};

/*
 * Follows until the program has ended and every process that recorded has ended too, or only processes remain that outlive the
 * program: then it returns and follow_orphans() may go on in the background.
 */
int follow_launch(struct session_place *place, const struct follow_ops *ops,
		  struct follow_result *out, struct mscope_error *err);

/* Goes on with what follow_launch() left alive, until it ends. */
void follow_orphans(struct session_place *place, const struct follow_ops *ops,
		    struct follow_result *out);

/*
 * Finishes what a killed engine left in a session directory. Processes that still run are left alone and counted.
 * -EBUSY when an engine is at work there.
 */
int recover_session(const char *directory, const struct follow_ops *ops, struct follow_result *out,
		    struct mscope_error *err);

#endif
