/* SPDX-License-Identifier: Apache-2.0 */
#include "viewer/value_line.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"

static const struct line_point *points_of(const struct line *line)
{
	return (const void *)line->points.data;
}

static void widen(struct line_range *range, uint64_t least, uint64_t most)
{
	range->least = least < range->least ? least : range->least;
	range->most = most > range->most ? most : range->most;
}

/* After a point: groups that it has filled. */
static int fill_levels(struct line *line)
{
	uint64_t unit = LINE_FAN, i, number;
	int level;

	for (level = 0; level < (int)LINE_LEVELS && line->count % unit == 0; level++) {
		struct line_range range = {UINT64_MAX, 0};

		number = line->count / unit - 1;
		for (i = number * LINE_FAN; i < (number + 1) * LINE_FAN; i++) {
			if (level == 0)
				widen(&range, points_of(line)[i].bytes, points_of(line)[i].bytes);
			else
				widen(&range, line->levels[level - 1][i].least,
				      line->levels[level - 1][i].most);
		}
		if (array_reserve(&line->levels[level], &line->level_room[level], number + 1,
				  sizeof(range)) < 0)
			return -ENOMEM;
		line->levels[level][number] = range;
		unit *= LINE_FAN;
	}
	return 0;
}

int line_add(struct line *line, uint64_t time_ns, uint64_t bytes)
{
	struct line_point *last, *point;

	if (line->count > 0) {
		last = spool_at(&line->points, line->count - 1);
		if (last->bytes == bytes)
			return 0;
		/* Of several values at one time the last counts, but the most must not vanish. */
		if (time_ns < last->time_ns)
			time_ns = last->time_ns;
	}
	point = spool_at(&line->points, line->count);
	if (point == NULL)
		return -ENOSPC;
	*point = (struct line_point){.time_ns = time_ns, .bytes = bytes};
	line->count++;
	return fill_levels(line);
}

void line_fini(struct line *line)
{
	int level;

	for (level = 0; level < (int)LINE_LEVELS; level++)
		free(line->levels[level]);
	spool_fini(&line->points);
	*line = (struct line){0};
}

/* How many points are not later than a time. */
static uint64_t points_until(const struct line *line, uint64_t time_ns)
{
	const struct line_point *points = points_of(line);
	return COUNT_FRONT(at, line->count, points[at].time_ns <= time_ns);
}

bool line_range(const struct line *line, uint64_t from_ns, uint64_t to_ns, struct line_range *out)
{
	const struct line_point *points = points_of(line);
	uint64_t at = points_until(line, from_ns), end = points_until(line, to_ns);

	if (end == 0)
		return false;
	at = at == 0 ? 0 : at - 1; /* the value in force when the span begins */
	*out = (struct line_range){UINT64_MAX, 0};
	while (at < end) {
		uint64_t unit = 1;
		int level = -1;

		/* The largest group that begins here and fits. */
		while (level + 1 < (int)LINE_LEVELS && at % (unit * LINE_FAN) == 0 &&
		       at + unit * LINE_FAN <= end) {
			unit *= LINE_FAN;
			level++;
		}
		if (level < 0)
			widen(out, points[at].bytes, points[at].bytes);
		else
			widen(out, line->levels[level][at / unit].least,
			      line->levels[level][at / unit].most);
		at += unit;
	}
	return true;
}

bool line_highest(const struct line *line, uint64_t from_ns, uint64_t to_ns, uint64_t *out_time_ns,
		  uint64_t *out_bytes)
{
	const struct line_point *points = points_of(line);
	uint64_t first = points_until(line, from_ns), end = points_until(line, to_ns), at, highest;

	if (end == 0)
		return false;
	first = first == 0 ? 0 : first - 1;
	for (highest = at = first; at < end; at++) {
		if (points[at].bytes > points[highest].bytes)
			highest = at;
	}
	*out_time_ns = points[highest].time_ns < from_ns ? from_ns : points[highest].time_ns;
	*out_bytes = points[highest].bytes;
	return true;
}
