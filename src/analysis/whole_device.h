/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The whole device: who has what the driver says is used. At each sample of the driver's figures
 *
 *     used = pools + driver memory outside of them, by the library that asked + what pools of the driver keep
 *            + what the driver took for contexts, code and graphs + other processes + unknown
 *
 * Every part is known by itself: pools say what they have reserved, driver memory is recorded call by call, other processes are
 * counted by the driver. What the driver takes for itself is measured when it does: a record driver_cost says that a context came to
 * be or code was loaded, and what the driver counts for this process, and no call explains, grows with the samples just behind it. What
 * grows at any other time is unknown; only that is a remainder.
 *
 * A sample comes a little later than what it shows: of the driver's levels just before it the one that fits best is taken, and where
 * more is known than the sample has, that is used.
 */
#ifndef MSCOPE_ANALYSIS_WHOLE_DEVICE_H
#define MSCOPE_ANALYSIS_WHOLE_DEVICE_H

#include "analysis/analyses.h"

#define DEVICE_LIBRARIES 16u /* told apart; the last has the rest */
#define DEVICE_POOLS	 8u
#define DEVICE_POINTS	 240u /* over time */

struct device_moment {
	uint64_t time_ns; /* monotonic; 0: there is none */
	uint64_t used_bytes;
	uint64_t parts[PARTS_OF_DEVICE];
};

struct device_pool {
	uint64_t pool; /* pools.def */
	uint64_t reserved_bytes;
	uint64_t live_bytes;
	/* Where the pool tells; what was asked for 0: unknown. */
	uint64_t requested_bytes, waiting_bytes, private_bytes;
};

struct device_library {
	char name[40]; /* "cuBLAS"; of a module that no list names its file; "" : not known */
	uint64_t bytes, blocks;
};

/* The device at one moment, with the figures of its pools and the libraries that have driver memory outside of them. */
struct device_view {
	uint64_t when; /* enum device_when */
	uint64_t pool; /* of DEVICE_POOL_PEAK, pools.def */
	struct device_moment moment;
	uint64_t others; /* processes */
	struct device_pool pools[DEVICE_POOLS];
	size_t pool_count;
	struct device_library libraries[DEVICE_LIBRARIES]; /* most first */
	size_t library_count;
	uint64_t split_bytes; /* what they were split from */
};

struct device_account {
	uint32_t device;
	uint8_t vendor;
	uint64_t total_bytes; /* 0: unknown */
	struct device_moment last;
	uint64_t last_others;  /* processes */
	uint64_t last_managed; /* of driver memory outside of pools: managed memory */
	struct device_view fullest;
	/* With the first sample after it. */
	struct device_view pool_peak;
	uint64_t peak_bytes; /* what was in use of that pool; 0: there is none yet */
	/* The last request that was refused, not those that repeat it; a time of 0: none was. */
	struct device_view refused;
	uint64_t refused_bytes, refused_stack, refused_last_ns;
	bool refused_is_new; /* no sample came after it */
	struct device_moment points[DEVICE_POINTS];
	size_t point_count;
	uint64_t point_gap_ns;
	bool ends_lower;       /* since the last point's time less was used, as `last` says */
	uint64_t costs[COSTS]; /* measured so far, by enum driver_cost */
	uint64_t cost_last;    /* which of them grew last; 0: none */
	uint64_t cost_slack;   /* by how much it may have been measured too small */
	/* What the driver last counted for no process, and what of it came with contexts of this one. */
	uint64_t stray, context_stray;
	uint64_t sampled_ns; /* when the driver last counted this process */
};

/* Accounts by number of device; NULL if there is none. */
const struct device_account *analyses_devices(const struct analyses *analyses, size_t *out_count);

/*
 * The moment that people ask about: when memory ran out, else when most of the largest pool was in use, else the fullest sample. What
 * the program did since the last sample is in it.
 */
void device_then(const struct device_account *account, const struct replay *replay,
		 struct device_view *out);

/* Adds the device to what was found. */
void device_find(const struct device_account *account, struct replay *replay,
		 struct findings *found);

/* How people call the library that a file is: "cuBLAS" for libcublasLt.so.12; NULL if no list names it. */
const char *device_library_name(const char *path);

/* Whether driver memory with this stack is a piece of a pool that is not recorded, as XLA's: what the program keeps in it is not known. */
bool device_stack_is_pooled(const struct replay *replay, uint32_t stack);

#endif
