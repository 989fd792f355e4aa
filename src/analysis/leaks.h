/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What counts as leaked. Steps 0 (before the first) and 1 build what a program keeps; a block of a memory pool that was
 * allocated in a later step and still there when the last step had ended is leaked. What was freed before that is not, whatever
 * step it was in; what was freed after it had outlived all steps, as by an interpreter that ends. A block is no leak when others
 * of its pool, place and size were as old when a step freed them: gradients live until the next step. What was allocated while recording was off was never judged. The driver's own memory is judged the same way on devices that no pool
 * reports from; where a pool does, the driver's blocks are the pool's cache.
 */
#ifndef MSCOPE_ANALYSIS_LEAKS_H
#define MSCOPE_ANALYSIS_LEAKS_H

#include "replay/replay.h"

#define LEAKS_FIRST_STEP 2u

/* True for a block that is leaked if it lives now and this is the end. */
bool block_is_leaked(const struct replay *replay, const struct block *block);

/* True when a memory pool of a framework reported from this device: the driver's blocks there are its cache. */
bool device_has_pool(const struct replay *replay, uint32_t device);

/* The last step that ended, 0: none did. */
uint32_t last_ended_step(const struct replay *replay);

#endif
