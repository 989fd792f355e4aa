/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one editor of lifetimes and sizes. It has the memory of one pool as a curve over the moments of a record; a rule changes when blocks
 * come and go and how large they are, and asks for the peak that comes out. Nothing of the record itself changes.
 */
#ifndef MSCOPE_ADVISE_EDITOR_H
#define MSCOPE_ADVISE_EDITOR_H

#include "advise/advise_record.h"

enum edit_kind {
	EDIT_GOES, /* it goes at the moment */
	EDIT_MOVED, /* the same, and the record's own end of it counts no more; ADVISE_NEVER: it stays */
	EDIT_COMES,
	EDIT_RESIZED,
};

/* One change of a block, for those who need more than the sum of all: advise/reserving.h. */
struct edit {
	size_t at;
	uint64_t bytes; /* of EDIT_COMES and EDIT_RESIZED */
	uint64_t copy;	/* 0: the block itself; else a second one that is like it */
	uint32_t block;
	uint8_t kind;
	bool after; /* the moment itself */
};

struct editor {
	const struct advise_record *record;
	uint32_t pool;
	struct edit *edits; /* of devices' pools: as they were made */
	size_t edit_count, edit_room;
	uint64_t copies;
	bool lists;	   /* edits are wanted */
	bool unlisted;	   /* no memory: some are missing */
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

/* A block is not there from one moment until another. */
void editor_absent(struct editor *editor, uint32_t block, size_t from, size_t until);

/* A block that is not in the record, from a moment until another; its library asks for it as for one of the record. */
void editor_span(struct editor *editor, uint32_t like, size_t from, size_t until, uint64_t bytes);

/*
 * A block comes for a second time, or goes, right after a moment: those that come one after another make a peak of their own. `copy`:
 * which second time it is, from 1.
 */
void editor_comes_again(struct editor *editor, uint32_t block, uint64_t copy, size_t at);
void editor_goes_again(struct editor *editor, uint32_t block, uint64_t copy, size_t at);
/* Bytes that are no block of the record, among these. */
void editor_passes(struct editor *editor, size_t at, int64_t bytes);
/* The same at the moment itself. */
void editor_ends_again(struct editor *editor, uint32_t block, uint64_t copy, size_t at);

/* The peak of what is edited, and when it is. */
uint64_t editor_peak(const struct editor *editor, size_t *out_at);

/* A span of time, since the epoch, in equal parts. */
struct editor_span {
	uint64_t from_ns, to_ns;
	uint32_t width;
};

/* The most of each part of a span; one without a moment has what was there before it. */
void editor_curve(const struct editor *editor, const struct editor_span *span, uint64_t *out);

#endif
