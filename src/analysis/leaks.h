/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a leak is. A block is leaked if all of this is true:
 *
 *   - A memory pool of a framework handed it out. On a device where no pool reports, blocks of the driver count instead; where
 *     one does, the driver's blocks are the pool's cache.
 *   - It was allocated in step 2 or later. Before that a program builds what it keeps.
 *   - It was still alive when the last step ended. A block that is freed after that is leaked too: the end of a program frees
 *     everything.
 *   - It is older than blocks like it get. Blocks of the same pool, place and size that a step freed tell the usual lifetime:
 *     gradients live until the next step, a queue of three batches for three.
 *   - It was allocated while recording was on. Other blocks are not judged.
 */
#ifndef MSCOPE_ANALYSIS_LEAKS_H
#define MSCOPE_ANALYSIS_LEAKS_H

#include "replay/replay.h"

#define LEAKS_FIRST_STEP 2u

/* True if a block that is alive now would be leaked if the run ended here, its usual lifetime apart. */
bool block_is_leaked(const struct replay *replay, const struct block *block);

/* True if a memory pool of a framework reported from this device. */
bool device_has_pool(const struct replay *replay, uint32_t device);

/* The last step that ended; 0 if none did. */
uint32_t last_ended_step(const struct replay *replay);

#endif
