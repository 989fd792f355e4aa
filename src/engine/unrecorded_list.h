/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The segment in which processes of a launch count what they could not record (trace/unrecorded.h), from the command's side.
 */
#ifndef MSCOPE_ENGINE_UNRECORDED_LIST_H
#define MSCOPE_ENGINE_UNRECORDED_LIST_H

#include <stdbool.h>

#include "base/strbuf.h"
#include "trace/session.h"
#include "trace/unrecorded.h"

/*
 * Makes the segment and names it in the session. It goes with the last process that has it: this one, and those that it forks. NULL
 * where the kernel has none; the session then says so.
 */
const struct unrecorded *unrecorded_create(struct session *session);

/* Adds a line for each process that lost events, at most 10 and one for all others. Returns how many processes. */
uint32_t unrecorded_text(const struct unrecorded *unrecorded, const char *directory,
			 struct strbuf *out);

#endif
