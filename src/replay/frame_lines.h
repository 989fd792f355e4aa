/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known of C frames: the functions behind an address, inlined ones first, with file and line. Texts are kept once, so that
 * two lines are the same when their numbers are.
 *
 * They come from the trace or from debug information, and go into the trace (docs/trace-format.md, Frames). Not thread-safe. A zeroed
 * struct is an empty one.
 */
#ifndef MSCOPE_REPLAY_FRAME_LINES_H
#define MSCOPE_REPLAY_FRAME_LINES_H

#include <stdbool.h>

#include "base/index.h"
#include "base/strbuf.h"
#include "symbols/lines.h"

struct frame_line {
	uint64_t key;	   /* of the place, for struct sites; counts once `origin` is known */
	uint32_t function; /* offset in `texts`, 0: unknown */
	uint32_t file;	   /* the same */
	uint32_t line;
	uint8_t origin; /* enum origin, for struct sites; 0: not asked yet */
};

/* The lines of one frame. */
struct frame_range {
	uint32_t first; /* in frame_lines.all */
	uint8_t count;	/* may be 0: nothing is to be known */
	bool known;	/* they were added */
	bool cut;	/* they may be had another time, so that they are not saved */
};

struct frame_lines {
	struct frame_line *all;
	size_t count, room;
	struct strbuf texts;  /* NUL-terminated; the first one is empty */
	struct index by_text; /* offsets in `texts` */
};

void frame_lines_fini(struct frame_lines *lines);

/* Takes the lines of a frame, of which nothing was known. 0 or -ENOMEM. */
int frame_lines_add(struct frame_lines *lines, struct frame_range *range,
		    const struct lines_frame *frames, size_t count, bool cut);

/* The lines of a frame, innermost first, borrowed until the next one is added; NULL when none were added. */
struct frame_line *frame_lines_get(const struct frame_lines *lines, const struct frame_range *range,
				   size_t *out_count);

/* A text by its offset; NULL for 0. */
const char *frame_lines_text(const struct frame_lines *lines, uint32_t offset);

/* Appends the lines of a frame in the form that a packed trace keeps, and takes them. What is malformed is left out. */
void frame_lines_save(const struct frame_lines *lines, const struct frame_range *range,
		      struct strbuf *out);
void frame_lines_load(struct frame_lines *lines, struct frame_range *range, const char *data,
		      size_t bytes);

/* Takes the texts of a packed trace, before any line of it. */
void frame_lines_load_texts(struct frame_lines *lines, const char *data, size_t bytes);

#endif
