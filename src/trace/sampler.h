/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the sampler tells the engine, over a pipe: a record per process on a device, then one of the device; then one that ends the round. It asks
 * the driver at once when it starts, then every 100 ms, and whenever a byte comes on its standard input. Header-only, shared by both.
 */
#ifndef MSCOPE_TRACE_SAMPLER_H
#define MSCOPE_TRACE_SAMPLER_H

#include "base/compiler.h"

#define SAMPLER_ENV	    "MSMEMSCOPE_SAMPLER_FD"
#define SAMPLER_FILE	    "libmsmemscope_sampler.so"
#define SAMPLER_INTERVAL_MS 100
#define SAMPLER_NAME_BYTES  32
#define SAMPLER_ROUND_ENDS  UINT32_MAX /* as `device` */

struct sampler_record {
	uint32_t device; /* physical number, unless by_uuid */
	uint32_t pid;	 /* 0: the whole device */
	uint64_t bytes;
	/* What the device has in all; 0: unknown, or the record is about a process. */
	uint64_t total_bytes;
	uint32_t vendor; /* enum vendor; 0: of the host */
	/* Of a device: 1 if the records of all its processes came before it. */
	uint32_t listed;
	/* 1: programs have other numbers for devices than this one; theirs is the one of the same `uuid` (struct trace_cards). */
	uint32_t by_uuid;
	uint8_t uuid[16]; /* zeros: unknown */
	/* Of a device: the product, as its vendor calls it; ends with a zero if there is room. */
	char name[SAMPLER_NAME_BYTES];
};

#endif
