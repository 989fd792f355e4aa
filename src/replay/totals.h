/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts over the whole run (struct replay_totals in replay.h), and notes to the reader of a report.
 */
#ifndef MSCOPE_REPLAY_TOTALS_H
#define MSCOPE_REPLAY_TOTALS_H

#include "replay/replay.h"

struct checkpoint;

struct notes {
	char **all;
	size_t count, room;
};

void notes_fini(struct replay *replay);

/* Adds a note of the replay's own. 0 or -ENOMEM. */
int notes_add(struct replay *replay, const char *format, ...) MSCOPE_PRINTF(2, 3);

/* Adds an item to the note that begins with `start`, which it adds when there is none. Once for each item. 0 or -ENOMEM. */
int notes_add_item(struct replay *replay, const char *start, const char *item);

void notes_save(const struct replay *replay, struct checkpoint *cp);

#endif
