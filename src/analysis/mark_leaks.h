/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leaks between marks: of three marks A, B and C with one name, what was allocated between A and B must be freed before C. The
 * marks are those with the numbers start, start + 1 and start + 2, counted from 0.
 *
 * Marks count for all devices of their process. A device with three or more marks of its own is judged by these alone: its thread
 * may be in another place than those of other devices.
 *
 * Memory of the driver that a framework's pool took and hands out in pieces is the pool's cache; it is told apart from leaks.
 */
#ifndef MSCOPE_ANALYSIS_MARK_LEAKS_H
#define MSCOPE_ANALYSIS_MARK_LEAKS_H

#include "analysis/analyses.h"

/* What is judged; all pointers are borrowed until the analyses end. */
struct marks_choice {
	const char *name;
	uint32_t start;
	/* Of imported files: the column ID of each MALLOC row, by allocation_id - 1. NULL: as the replay numbers rows. */
	const uint64_t *row_ids;
	size_t row_id_count;
};

/* Before the first event. */
void marks_choose(struct analyses *analyses, const struct marks_choice *choice);

#endif
