/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the sampler tells the engine, over a pipe. Header-only, shared by both.
 */
#ifndef MSCOPE_TRACE_SAMPLER_H
#define MSCOPE_TRACE_SAMPLER_H

#include "base/compiler.h"

#define SAMPLER_ENV	    "MSMEMSCOPE_SAMPLER_FD"
#define SAMPLER_FILE	    "libmsmemscope_sampler.so"
#define SAMPLER_INTERVAL_MS 100

struct sampler_record {
	uint32_t device; /* physical number */
	uint32_t pid;	 /* 0: the whole device */
	uint64_t bytes;
	/* What the device has in all; 0: unknown, or the record is about a process. */
	uint64_t total_bytes;
};

#endif
