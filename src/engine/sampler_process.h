/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts and reads the sampler (src/collector/sampler): what the driver itself counts for devices and processes. Optional by
 * nature: where it cannot run, its figures are missing and nothing else is.
 */
#ifndef MSCOPE_ENGINE_SAMPLER_PROCESS_H
#define MSCOPE_ENGINE_SAMPLER_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

#include "trace/sampler.h"

struct sampler {
	int fd;	    /* -1: does not run */
	int ask_fd; /* a byte asks for a round */
	pid_t pid;
	char pending[sizeof(struct sampler_record)]; /* a record of which the rest has not come */
	size_t pending_bytes;
};

/* `library` is the file to preload. After a failure there are no records. */
void sampler_start(struct sampler *sampler, const char *library);

typedef void sampler_take(void *arg, const struct sampler_record *record);

/* Hands on what has come; never waits. Returns true if a round has ended in it. */
bool sampler_read(struct sampler *sampler, sampler_take *take, void *arg);
/* Waits at most so long for the end of a round, and hands on what has come. False: none came, or it does not run. */
bool sampler_wait(struct sampler *sampler, int timeout_ms, sampler_take *take, void *arg);

/* Asks for a round now; its records come later. */
void sampler_ask(const struct sampler *sampler);

void sampler_stop(struct sampler *sampler);

#endif
