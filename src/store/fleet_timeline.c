/* SPDX-License-Identifier: Apache-2.0 */
/* The points of all ranks on one scale of time: the wall clock, from the first point of any rank to the end of the last. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/map.h"
#include "store/fleet.h"

struct point {
	int64_t time_ns;
	uint64_t bytes;
	uint32_t rank;
	bool first; /* of its device */
};

struct taking {
	struct map ranks; /* process to index */
	struct point *points;
	size_t count, room;
	int64_t process;
	char device[32]; /* of the last point */
};

static int take_point(void *arg, const struct store_value *values, size_t count)
{
	struct taking *taking = arg;
	const uint64_t *rank = count < 4 ? NULL
					 : map_get(&taking->ranks,
						   (struct map_key){(uint64_t)values[0].number, 0});
	size_t length;
	bool same;

	if (rank == NULL)
		return 0; /* of a process that is no rank */
	if (ARRAY_RESERVE(taking->points, taking->room, taking->count + 1) < 0)
		return -ENOMEM;
	length = values[1].bytes < sizeof(taking->device) ? values[1].bytes
							  : sizeof(taking->device) - 1;
	same = taking->count > 0 && taking->process == values[0].number &&
	       strlen(taking->device) == length &&
	       memcmp(taking->device, values[1].text, length) == 0;
	taking->points[taking->count++] = (struct point){.time_ns = values[2].number,
							 .bytes = (uint64_t)values[3].number,
							 .rank = (uint32_t)*rank,
							 .first = !same};
	taking->process = values[0].number;
	memcpy(taking->device, values[1].text, length);
	taking->device[length] = '\0';
	return 0;
}

/* When a point ends: with the next of its device, or as much later as it is behind the last. */
static int64_t end_of(const struct taking *taking, size_t at)
{
	const struct point *point = &taking->points[at];

	if (at + 1 < taking->count && !point[1].first)
		return point[1].time_ns;
	return point->time_ns + (point->first ? 1 : point->time_ns - point[-1].time_ns);
}

static size_t column(const struct fleet_timeline *line, int64_t time_ns)
{
	double part = (double)(time_ns - line->from_ns) / (double)(line->to_ns - line->from_ns) *
		      (double)line->width;

	return part < 0 ? 0 : part >= (double)line->width ? line->width - 1 : (size_t)part;
}

/* The points of one device, which begin at `at`, join what the rank's other devices hold. Returns where they end. */
static size_t add_device(const struct taking *taking, size_t at, struct fleet_timeline *line,
			 uint64_t *most)
{
	uint64_t *row = line->values + taking->points[at].rank * line->width;
	size_t i;

	memset(most, 0, line->width * sizeof(*most));
	do {
		const struct point *point = &taking->points[at];
		size_t last = column(line, end_of(taking, at) - 1);

		for (i = column(line, point->time_ns); i <= last; i++)
			most[i] = point->bytes > most[i] ? point->bytes : most[i];
		at++;
	} while (at < taking->count && !taking->points[at].first);
	for (i = 0; i < line->width; i++)
		row[i] += most[i];
	return at;
}

static int spread_out(const struct fleet *fleet, const struct taking *taking,
		      struct fleet_timeline *line)
{
	uint64_t *most = calloc(line->width, sizeof(*most));
	size_t i = 0;

	line->values = calloc(fleet->rank_count * line->width + 1, sizeof(*line->values));
	for (i = 0; i < taking->count; i++) {
		int64_t end = end_of(taking, i);

		if (i == 0 || taking->points[i].time_ns < line->from_ns)
			line->from_ns = taking->points[i].time_ns;
		if (i == 0 || end > line->to_ns)
			line->to_ns = end;
	}
	if (line->to_ns <= line->from_ns)
		line->to_ns = line->from_ns + 1;
	for (i = 0; most != NULL && line->values != NULL && i < taking->count;)
		i = add_device(taking, i, line, most);
	free(most);
	return most == NULL || line->values == NULL ? -ENOMEM : 0;
}

int fleet_timeline(const struct fleet *fleet, size_t pool, size_t width, struct fleet_timeline *out,
		   struct mscope_error *err)
{
	struct store_value key[2] = {store_int(fleet->run), store_str(fleet->pools[pool])};
	struct taking taking = {0};
	size_t i;
	int r = 0;

	*out = (struct fleet_timeline){.width = width};
	for (i = 0; r == 0 && i < fleet->rank_count; i++)
		r = map_put(&taking.ranks, (struct map_key){(uint64_t)fleet->ranks[i].process, 0},
			    i);
	if (r == 0)
		r = store_query(
			fleet->store,
			"SELECT process, device, time_ns, bytes FROM timeline WHERE run = $1 AND pool = $2 ORDER BY process, device, point",
			key, 2, take_point, &taking, err);
	if (r == 0)
		r = spread_out(fleet, &taking, out);
	if (r == -ENOMEM)
		(void)error_set(err, r, "no memory");
	map_fini(&taking.ranks);
	free(taking.points);
	return r;
}

void fleet_timeline_fini(struct fleet_timeline *line)
{
	free(line->values);
	*line = (struct fleet_timeline){0};
}
