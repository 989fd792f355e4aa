/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts of a run, each stored once: names of operators and kernels, messages of marks, shapes. Writers number a bounded count of
 * texts and use the numbers again, but a program may say something new with each mark. So texts that no number and nothing in
 * progress refers to are swept out from time to time, and memory does not grow with events.
 *
 * A text is referred to by its offset + 1; 0 is no text. Texts with a number that has the bit TEXT_ONCE hardly come twice: each
 * writer has a few slots for them, and the latest is the one that counts.
 */
#ifndef MSCOPE_REPLAY_TEXTS_H
#define MSCOPE_REPLAY_TEXTS_H

#include <stdbool.h>

#include "base/map.h"
#include "base/strbuf.h"
#include "replay/replay.h"

struct texts {
	struct strbuf bytes;   /* NUL-terminated texts */
	struct map by_content; /* hash -> offset */
	size_t sweep_at;       /* bytes from which on a sweep is worth its time */
};

void texts_fini(struct replay *replay);

/* Offset of a text, new or known. 0 or -ENOMEM. */
int texts_intern(struct texts *texts, const void *text, size_t bytes, uint32_t *out_offset);

/* The text that a record names by its writer's number, and where it lies; NULL and 0 if there is none. */
const char *texts_find(const struct replay *replay, const struct trace_event *event, uint64_t id);
uint32_t texts_offset(const struct replay *replay, const struct trace_event *event, uint64_t id);

/* The text at an offset + 1; NULL for 0. */
static inline const char *texts_at(const struct texts *texts, uint32_t offset)
{
	return offset == 0 ? NULL : texts->bytes.data + offset - 1;
}

/* A sweep that goes on: whatever holds an offset + 1 passes it through texts_keep(). */
struct texts_sweep {
	struct texts *texts;
	struct texts kept;
	struct map moved; /* old offset -> new one */
	int error;
};

/* Keeps a text: its new offset + 1. 0 stays 0. */
uint32_t texts_keep(struct texts_sweep *sweep, uint32_t offset);

#endif
