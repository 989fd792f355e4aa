/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What PyTorch's pool was told besides requests: its release, settings, memory fractions, and calls of empty_cache(). whatif plays a
 * run under these; struct pool_facts in replay.h has them.
 */
#ifndef MSCOPE_REPLAY_POOL_FACTS_H
#define MSCOPE_REPLAY_POOL_FACTS_H

#include "replay/replay.h"

struct checkpoint;

void pool_facts_fini(struct replay *replay);
void pool_facts_save(const struct replay *replay, struct checkpoint *cp);

#endif
