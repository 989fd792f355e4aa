/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MSCOPE_VIEWER_RANKS_H
#define MSCOPE_VIEWER_RANKS_H

#include "viewer/questions.h"

/* Keeps what is shown of a process beside others; reads its run if that has not been done. */
void viewed_rank(struct viewed *viewed, size_t index);

/*
 * Processes from number `from` on, one object each, and the number of the next one to ask for: as many as can be read in a moment, at
 * least one. A run that nobody looks at is closed again, so memory does not grow with their number.
 */
void answer_ranks(struct viewed *viewed, size_t from, struct json *json);

#endif
