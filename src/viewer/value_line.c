/* SPDX-License-Identifier: Apache-2.0 */
#include "viewer/value_line.h"

#include <errno.h>
#include <stdlib.h>

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
	return 0;
}

static const struct line_point *points_of(const struct line *line)
{
	return (const void *)line->points.data;
}

int line_finish(struct line *line)
{
	const struct line_point *points = points_of(line);
	uint64_t count = line->count, i;
	int level;

	for (level = 0; level < (int)LINE_LEVELS && count > 1; level++) {
		uint64_t next = (count + LINE_FAN - 1) / LINE_FAN;
		struct line_range *ranges = malloc(next * sizeof(*ranges));

		if (ranges == NULL)
			return -ENOMEM;
		for (i = 0; i < count; i++) {
			struct line_range one =
				level == 0 ? (struct line_range){points[i].bytes, points[i].bytes}
					   : line->levels[level - 1][i];
			struct line_range *to = &ranges[i / LINE_FAN];

			if (i % LINE_FAN == 0)
				*to = one;
			to->least = one.least < to->least ? one.least : to->least;
			to->most = one.most > to->most ? one.most : to->most;
		}
		line->levels[level] = ranges;
		line->level_count[level] = next;
		count = next;
	}
	return 0;
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
	uint64_t low = 0, high = line->count;

	while (low < high) {
		uint64_t middle = low + (high - low) / 2;

		if (points[middle].time_ns <= time_ns)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void widen(struct line_range *range, uint64_t least, uint64_t most)
{
	range->least = least < range->least ? least : range->least;
	range->most = most > range->most ? most : range->most;
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
		while (level + 1 < (int)LINE_LEVELS && line->levels[level + 1] != NULL &&
		       at % (unit * LINE_FAN) == 0 && at + unit * LINE_FAN <= end) {
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
