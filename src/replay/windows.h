/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Windows: between start() and stop() of the API events are recorded and shown; outside, only blocks are followed, hidden, so
 * that a window can begin with what lives already. Also the settings that the program chooses through the API.
 */
#ifndef MSCOPE_REPLAY_WINDOWS_H
#define MSCOPE_REPLAY_WINDOWS_H

#include "replay/replay.h"

struct checkpoint;

struct windows {
	uint32_t state;			/* enum recording as the trace tells it */
	uint32_t settings_count;	/* how often settings changed */
	struct event_settings settings; /* the latest, when `settings_count` is not 0 */
};

int windows_init(struct replay *replay);

void windows_save(const struct replay *replay, struct checkpoint *cp);

#endif
