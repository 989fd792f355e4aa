/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A record that begins amid expandable segments: its mapped ranges as the arenas that they are parts of. Each stream and private pool
 * has one arena for small blocks and one for large ones; that begins at the lowest address that the record has of it.
 */
#ifndef MSCOPE_TWIN_OLDER_ARENAS_H
#define MSCOPE_TWIN_OLDER_ARENAS_H

#include "twin/program.h"

/* Adds the expandable segments of the history's start. 0 or -ENOMEM. */
int older_arenas_add(const struct program *program, const struct twin_conditions *conditions,
		     struct twin *twin);

#endif
