/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one editor of lifetimes and sizes. It has the memory of one pool as a curve over the moments of a record; a rule changes when blocks
 * come and go and how large they are, and asks for the peak that comes out. Nothing of the record itself changes.
 */
#ifndef MSCOPE_ADVISE_EDITOR_H
#define MSCOPE_ADVISE_EDITOR_H

#include "advise/advise_record.h"

struct editor {
	const struct advise_record *record;
	uint32_t pool;
	int64_t *recorded; /* by moment: what comes or goes in the record */
	int64_t *change;   /* the same, edited */
	int64_t *passing;  /* by moment: what came between it and the next one, and stayed */
	int64_t *surge;	   /* the most of this on the way */
};

/* 0 or -ENOMEM. */
int editor_init(struct editor *editor, const struct advise_record *record, uint32_t pool);
void editor_fini(struct editor *editor);

/* Back to the record. */
void editor_reset(struct editor *editor);

/* A block goes at another moment, ADVISE_NEVER: it stays; or has another size. */
void editor_free_at(struct editor *editor, uint32_t block, size_t at);
void editor_resize(struct editor *editor, uint32_t block, uint64_t bytes);

/* Bytes that are not there in the record, or are not there any more, from a moment on. */
void editor_add(struct editor *editor, size_t at, int64_t bytes);

/* A block that is not in the record, from a moment until another. */
void editor_span(struct editor *editor, size_t from, size_t until, uint64_t bytes);

/* The same right after a moment: those that come one after another make a peak of their own. */
void editor_pass(struct editor *editor, size_t at, int64_t bytes);

/* The peak of what is edited, and when it is. */
uint64_t editor_peak(const struct editor *editor, size_t *out_at);

#endif
