/* SPDX-License-Identifier: Apache-2.0 */
/* Processes whose memory of the host grows, while the run goes on (host.c). */
#ifndef MSCOPE_ANALYSIS_HOST_H
#define MSCOPE_ANALYSIS_HOST_H

#include "analysis/analyses.h"

struct host_growing {
	uint32_t pid;	  /* as it sees itself */
	bool own;	  /* the recorded process itself */
	const char *name; /* borrowed, until the next event */
	size_t group;	  /* ordinal of the first with the same name */
};

/* Those that run and grow, or may: half of the time, the bytes and the steps that a verdict takes are enough. How many, at most `most`. */
size_t host_growing(const struct analyses *analyses, const struct replay *replay,
		    struct host_growing *out, size_t most);

#endif
