/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts of a run, each stored once: names of operators and kernels, messages of marks, shapes. Writers give numbers to a bounded
 * count of texts and use the numbers again, but a program may say something new with each mark; so what nobody can name any
 * more is dropped from time to time, and memory does not grow with events.
 */
#ifndef MSCOPE_REPLAY_TEXTS_H
#define MSCOPE_REPLAY_TEXTS_H

#include <stdbool.h>

#include "base/map.h"
#include "base/strbuf.h"

struct texts {
	struct strbuf bytes;   /* NUL-terminated texts */
	struct map by_content; /* hash -> offset */
	size_t sweep_at;       /* bytes from which on it is worth a sweep */
};

void texts_fini(struct texts *texts);

/* Offset of a text, new or known. 0 or -ENOMEM. */
int texts_intern(struct texts *texts, const void *text, size_t bytes, uint64_t *out_offset);

bool texts_want_sweep(const struct texts *texts);

/* A sweep: begin, keep each offset that is still used, which changes it, end. */
struct texts_sweep {
	struct texts *texts;
	struct texts kept;
	struct map moved; /* old offset -> new one */
	int error;
};

void texts_sweep_begin(struct texts_sweep *sweep, struct texts *texts);
uint64_t texts_keep(struct texts_sweep *sweep, uint64_t offset);
/* 0, or -ENOMEM: then offsets are of no use any more. */
int texts_sweep_end(struct texts_sweep *sweep);

#endif
