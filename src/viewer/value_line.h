/* SPDX-License-Identifier: Apache-2.0 */
/* A figure over time, in a file without a name, that is asked for least and most of any span. Not thread-safe. */
#ifndef MSCOPE_VIEWER_VALUE_LINE_H
#define MSCOPE_VIEWER_VALUE_LINE_H

#include <stdbool.h>

#include "base/spool.h"

/* A value from a time on. */
struct line_point {
	uint64_t time_ns;
	uint64_t bytes;
};

struct line_range {
	uint64_t least, most;
};

#define LINE_FAN    16u
#define LINE_LEVELS 10u

/* A figure over time; and for quick answers, least and most of each 16 points, of each 16 of these, and so on. */
struct line {
	struct spool points;
	uint64_t count;
	struct line_range *levels[LINE_LEVELS]; /* of groups that are full */
	size_t level_room[LINE_LEVELS];
};

/* Adds a value; a time before the last one counts as the last one. `points` must be there. 0, -ENOSPC or -ENOMEM. */
int line_add(struct line *line, uint64_t time_ns, uint64_t bytes);

void line_fini(struct line *line);

/* Least and most of a line in a span of time, with the value that it began with. False: nothing is known yet. */
bool line_range(const struct line *line, uint64_t from_ns, uint64_t to_ns, struct line_range *out);

/* When it was highest in a span of time, at first, with the value that it began with. False: nothing is known yet. */
bool line_highest(const struct line *line, uint64_t from_ns, uint64_t to_ns, uint64_t *out_time_ns,
		  uint64_t *out_bytes);

#endif
