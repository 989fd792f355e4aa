/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When will a device be full? At the end of each step this notes what the process has in use on the device (blocks of pools, and
 * driver memory beside them), how much more it had during the step, and what the driver gave it. A device is full when
 *
 *     in use at the peak of a step + what the pools need beside that + everybody else's memory  =  the device's memory
 *
 * Whether the device fills is judged by the level of what is in use when steps end (growth.h): it must climb, and by more than it
 * swings. How fast is seen from the peaks, which may grow faster: a tensor that grows by torch.cat is there twice. A pool can use the room that
 * it has reserved before it needs more, but cannot always; and a pool may reserve more than is asked of it. So the answer is a
 * range of steps, wider where the rate itself rises: the early end assumes that the room is of no use, the late end that all of it is.
 *
 *     device_level_sample()     when the driver gave figures
 *     device_level_step()       when a step has ended
 *     device_level_forecast()   at any moment
 */
#ifndef MSCOPE_ANALYSIS_FORECAST_H
#define MSCOPE_ANALYSIS_FORECAST_H

#include "analysis/growth.h"
#include "findings/findings.h"
#include "replay/replay.h"

#define FORECAST_SAMPLES 5u
#define FORECAST_POINTS	 32u

/* When a step ended: what was in use, and the peaks so far. */
struct level_point {
	uint32_t step;
	uint64_t level, use, given;
};

struct device_level {
	struct growth growth; /* of what is in use when steps end */
	uint64_t given_peak;  /* the most that the driver gave */
	uint32_t peak_step;   /* the last step in which `use_peak` rose */
	uint64_t use_peak;    /* the most in use, pool by pool */
	uint64_t swing; /* by how much the peak of a step was above what its end left, at most */
	/* From the second step on, every `stride`-th; when there are too many, every second goes. */
	struct level_point points[FORECAST_POINTS];
	uint32_t point_count, stride, skipped;
	/* What the driver counted beyond what it gave to this process: other processes, contexts. The latest samples, as a ring. */
	uint64_t beside[FORECAST_SAMPLES];
	uint32_t samples;
};

/* Growth of one device, and the steps that are left until it is full. */
struct device_forecast {
	uint32_t device;
	bool climbs;	      /* by its level; else the rate is that of call sites that leak */
	bool steady;	      /* it grew as fast in the later half of the steps as in the first */
	uint64_t total_bytes; /* of the device */
	uint64_t used_bytes;  /* at the peak, by everybody */
	double rate, rate_low, rate_high; /* bytes per step */
	double gain; /* of the rate, per step, where it rises with the steps; else 0 */
	uint64_t steps, steps_low, steps_high;
	/* As steps_low, if the rate does not go on rising: who announces a device asks that. What has just grown much may be a cache. */
	uint64_t steps_even;
	double even, even_high; /* rates for it */
};

/* What is known of call sites that leak on the device: bytes per step. */
struct device_growth {
	double leaking;
	double copied,
		copied_bytes; /* of these, blocks that are replaced by larger ones, and what they have now */
};

void device_level_fini(struct device_level *level);

/* `driver` has new figures. */
void device_level_sample(struct device_level *level, const struct replay *replay,
			 const struct driver_usage *driver);

/* Steps count from 1 and never decrease. 0 or -ENOMEM. */
int device_level_step(struct device_level *level, const struct replay *replay, uint32_t device,
		      uint32_t step);

/* Two steps become one: step s is (s + 1) / 2 from now on. */
void device_level_coarsen(struct device_level *level);

/* Forgets the history of growth; figures stay. */
void device_level_restart(struct device_level *level);

/*
 * After `steps` ended steps. The rate of call sites counts where the level does not climb. False: nothing grows, or the device's size is
 * not known.
 */
bool device_level_forecast(const struct device_level *level, const struct replay *replay,
			   uint32_t device, uint32_t steps, const struct device_growth *growth,
			   struct device_forecast *out);

/* Whether the level rose in the later half of the steps, as fast as in the first half, though it does not climb yet: in few large rises, say. */
bool device_level_rises(const struct device_level *level, uint32_t steps);

/* As a finding, after `step`; `step_seconds`: length of a step, 0: unknown. */
struct finding_forecast forecast_finding(const struct device_forecast *forecast,
					 const struct replay *replay, uint32_t step,
					 double step_seconds);

#endif
