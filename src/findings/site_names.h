/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of the call sites of one document. A name shows the user's frame with its caller and callee (site.h). Where several call
 * sites would have the same name, each also shows the innermost frame in which they differ:
 *
 *     train.py:17 -> Sequential.forward -> Linear.forward
 *     train.py:17 -> Sequential.forward -> GELU.forward
 *
 * Call sites that no frame tells apart share their name, and one line shows them all.
 *
 *     site_names_add()       every call site of the document
 *     site_names_settle()    gives names to those that have none
 *     site_name()            as often as needed
 *
 * The names depend on which call sites were added before site_names_settle(), not on their order. Those that are added later are told apart
 * from all others, and change no name that was given. A zeroed struct is an empty one; not thread-safe.
 */
#ifndef MSCOPE_FINDINGS_SITE_NAMES_H
#define MSCOPE_FINDINGS_SITE_NAMES_H

#include "base/map.h"
#include "base/strbuf.h"
#include "replay/replay.h"

struct site_names {
	struct map index; /* call site -> index of `all` */
	struct named_site *all;
	size_t count, room;
	size_t settled;	  /* the first so many have their names */
	struct map texts; /* hash of a frame's text -> its number */
	/* Frames that tell something, call site by call site, innermost first. */
	struct named_frame *frames;
	size_t frame_count, frame_room;
	struct strbuf names; /* NUL-terminated */
};

/* `stack`: any stack of the call site. 0 or -ENOMEM. */
int site_names_add(struct site_names *names, struct replay *replay, uint32_t stack);
int site_names_settle(struct site_names *names, struct replay *replay);

/* The name of a stack's call site; NULL: no stack was recorded, or it was not added. Borrowed until site_names_fini(). */
const char *site_name(const struct site_names *names, struct replay *replay, uint32_t stack);

/*
 * Appends the innermost line of the user's own code in the name of a stack's call site: "model.py:31 main". False, and nothing is appended,
 * where it has none.
 */
bool site_own_line(const struct site_names *names, struct replay *replay, uint32_t stack,
		   struct strbuf *out);

void site_names_fini(struct site_names *names);

#endif
