/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which places of a program keep more and more memory, how fast, and how sure that is. A place is where blocks come from: pool,
 * device and call stack by functions and lines; without stacks pool, device and size. growth.h has the rule and its three verdicts.
 *
 * All memory is judged: framework pools, workspaces, pinned and registered host memory, and driver memory beside a framework's
 * pool. Driver blocks that a pool's blocks lay in are the pool's cache and are not judged; what the driver gave by handles
 * (expandable segments) is judged as one place per device, less what the pools say they hold. The first step is never judged. What
 * is freed behind the last ended step counts as never freed, because the end of a program frees everything.
 *
 * Where no step is marked, the run is cut into equal parts of time, and these count as steps (`by_time`).
 */
#ifndef MSCOPE_ANALYSIS_LEAKS_H
#define MSCOPE_ANALYSIS_LEAKS_H

#include "analysis/forecast.h"
#include "analysis/growth.h"
#include "analysis/growth_missing.h"
#include "findings/findings.h"
#include "replay/replay.h"

struct analyses;
struct analysis_view;

#define LEAKS_FIRST_STEP 2u
#define LEAKS_EXAMPLES	 3u
#define LEAKS_KEPT	 100u

/* Places of a verdict that are listed; those of a pool beyond are summed up as one place, the rest. */
#define LEAKS_PLACES 10000u

/* A block of a place. */
struct leaks_block {
	uint64_t address;
	uint64_t size_bytes;
	uint64_t allocation_id;
	uint64_t kernel; /* kernels launched before it was allocated */
	uint32_t step;	 /* as in block.latest_step; the part of the run if by_time */
	uint32_t stack;
	bool freed_late; /* freed, but only after the last step */
};

struct leaks_place {
	enum growth_verdict verdict;
	enum growth_reason reason;
	uint8_t pool;
	bool on_gpu; /* kernels that were not recorded are not counted there */
	uint32_t device;
	uint32_t owner;	  /* of its blocks, see replay_owner_text(); 0: unknown or several */
	uint32_t stack;	  /* of its first block; 0: none was recorded */
	bool beside_pool; /* driver memory beside a framework's pool */
	bool by_handles;  /* driver memory by handles less what pools hold: no blocks are known */
	uint64_t size_min, size_max; /* of the blocks that live */
	uint64_t blocks, bytes;	     /* alive when the last step ended */
	uint64_t overdue_blocks; /* of these: older than is usual here, and not of the first step */
	uint64_t overdue_bytes;
	uint64_t young_blocks,
		young_bytes;  /* of the first step not, overdue not: in use, or too young to tell */
	int32_t usual_age;    /* steps within which the place frees; -1: it hardly frees */
	uint64_t freed_usual; /* blocks freed within that age, */
	uint64_t freed;	      /* of so many freed at all */
	double bytes_per_step; /* growth, with an interval of 95 % */
	double bytes_per_step_low, bytes_per_step_high;
	double blocks_per_step;
	uint32_t first_step, last_step; /* of the growth; 0: there is none */
	uint32_t rises;			/* steps in which it grew for good, */
	uint32_t rise_steps;		/* of so many steps since and with the first */
	uint32_t quiet;			/* steps since the last rise */
	uint32_t pause;			/* the longest between two rises */
	struct growth_missing missing;	/* of a suspect: what would decide it */
	uint32_t every; /* steps between those in which blocks stayed; 0: uneven, or each one */
	double bound_per_step; /* of kept places: if it grows again, then by less than this */
	double share;	       /* of all growth of its pool, 0 to 1 */
	uint64_t full_steps; /* until the device is full at the rate of all its leaks; 0: unknown */
	double full_seconds; /* the same; 0: unknown */
	uint64_t call_sites; /* of the rest; 0: it is one place */
	/* Its overdue blocks, or all of later steps if none is overdue; of kept places the first LEAKS_KEPT. Oldest first. The rest has none. */
	struct leaks_block *list;
	size_t list_count;
	uint64_t listed_blocks, listed_bytes; /* of these, or of those of the rest */
	uint64_t late_blocks;		      /* of them: freed, but only after the last step */
	/* The first of the list that are worth to be shown; at most LEAKS_EXAMPLES. */
	uint32_t example_count;
};

/* All memory of one pool on one device. */
struct leaks_pool {
	/* leak: it grows; suspect: it may be growing; kept: it is steady */
	enum growth_verdict verdict;
	enum growth_reason reason;
	uint8_t pool;
	uint32_t device;
	uint64_t peak_bytes, end_bytes; /* end: as replay_usage_at_end() says */
	double bytes_per_step;		/* trend from the second step on */
	double bytes_low, bytes_high;
	uint32_t rises;	     /* steps in which its level rose, */
	uint32_t rise_steps; /* the number of steps that were judged */
	/* Of a steady one that grew in 3 steps or more, and for longer than it has been quiet; 0: others. */
	uint32_t first_rise, last_rise;
	uint64_t grown_bytes;
	double explained;	 /* share of its growth that places called leaks have, 0 to 1 */
	uint64_t capacity_bytes; /* of the device; 0: unknown */
};

/* Memory that lives at the end and was not judged. LEAKS_POOL_CACHE is no gap in the judgement, the others are. */
struct leaks_unjudged {
	enum leaks_unjudged_reason reason;
	uint8_t pool;
	uint32_t device;
	uint64_t blocks, bytes;
};

struct leaks_findings {
	bool judged;	     /* false: no place was judged, see `unjudged` */
	bool by_time;	     /* "steps" are equal parts of the run */
	double step_seconds; /* median length of a step; of a part if by_time; 0: unknown */
	uint32_t last_step;  /* steps 2 to last_step were judged */
	size_t leaks, suspects, kept; /* places */
	/* Leaks by rate, then suspects by bytes, then kept places by bytes; the largest first, and the rest last. All leaks are there. */
	const struct leaks_place *places;
	size_t place_count;
	const struct leaks_pool *pools; /* by device and pool */
	size_t pool_count;
	const struct leaks_unjudged *unjudged;
	size_t unjudged_count;
	/* Devices that will be full if they go on like this. */
	const struct device_forecast *forecasts;
	size_t forecast_count;
	bool clean; /* everything was judged, every place is kept, every pool steady: "no leak was found" is true */
};

/*
 * What the analysis has found so far, call site by call site; what people see of it is in struct findings. To be freed before the
 * replay takes another event. NULL if the analysis was not asked for, failed, or there is no memory.
 */
struct leaks_findings *leaks_findings(const struct analyses *analyses, struct replay *replay);
void leaks_findings_free(struct leaks_findings *findings);

/*
 * Devices whose level climbs, or only rises (`climbs` false, nothing else known), judged by that alone: cheap, and for every step. At most `most` of them are filled in; `out_step` is the last step
 * that ended, `out_ended` how many did. 0 where no step was marked.
 */
size_t leaks_climbing(const struct analyses *analyses, const struct replay *replay,
		      struct device_forecast *out, size_t most, uint32_t *out_step,
		      uint32_t *out_ended);

/* The last step that ended; 0 if none did. */
uint32_t last_ended_step(const struct replay *replay);

#endif
