/* SPDX-License-Identifier: Apache-2.0 */
#include "twin/pairing.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "twin/block_sizes.h"

#define WINDOW	    384u /* requests of each run among which the best way is looked for */
#define SQUARE_NEAR 0.01
#define MOVED_BY    3u /* requests: a free that moves less has not moved */

void requests_fini(struct requests *requests)
{
	free(requests->all);
	*requests = (struct requests){0};
}

int requests_of(const struct program *program, struct requests *out)
{
	const struct pool_history *h = program->history;

	*out = (struct requests){
		.all = calloc((size_t)program->request_count + 1, sizeof(*out->all)),
		.blocks = h->blocks_only};
	if (out->all == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < program->event_count; i++) {
		const struct program_event *e = &program->events[i];

		if (e->kind == PROGRAM_REQUEST) {
			size_t source = program->sources[i];
			uint32_t site = source == 0 ? 0 : h->events[source - 1].site;

			out->all[out->count++] =
				(struct request){.bytes = e->bytes,
						 .lane = e->lane,
						 .site_id = site,
						 .site = site == 0 ? 0 : h->sites[site - 1].hash,
						 .freed = UINT32_MAX};
		} else if (e->kind == PROGRAM_ASK_FREE || e->kind == PROGRAM_FREE) {
			if (out->all[e->id].freed == UINT32_MAX)
				out->all[e->id].freed = (uint32_t)out->count;
		}
	}
	return 0;
}

enum growth growth_of(uint64_t small_bytes, uint64_t big_bytes, uint64_t small_batch,
		      uint64_t big_batch)
{
	double ratio = (double)big_batch / (double)small_batch;
	double full = (double)small_bytes * ratio, square = full * ratio;

	if (small_bytes == big_bytes)
		return GROWTH_NONE;
	if (big_bytes < small_bytes)
		return GROWTH_SHRINKS;
	/* A size is a whole number of elements of at most 16 bytes. */
	if ((double)big_bytes > full + 16)
		return (double)big_bytes >= square * (1 - SQUARE_NEAR) &&
				       (double)big_bytes <= square * (1 + SQUARE_NEAR)
			       ? GROWTH_SQUARE
			       : GROWTH_MORE;
	return (double)big_bytes >= full - 16 ? GROWTH_FULL : GROWTH_PARTLY;
}

struct aligning {
	const struct requests *small, *big;
	uint64_t small_batch, big_batch;
};

static bool can_be_one(const struct request *a, const struct request *b)
{
	return a->lane == b->lane && (a->site == b->site || a->site == 0 || b->site == 0);
}

/* How much larger a block may be than what was asked for. */
static uint64_t slack_of(const struct requests *requests, uint64_t bytes)
{
	if (!requests->blocks)
		return 0;
	return bytes > TWIN_SMALL_MOST ? TWIN_SMALL_MOST : TWIN_BLOCK_LEAST;
}

/* Whether the requests of two blocks can be of one tensor. */
static bool within_slack(const struct aligning *g, uint64_t small_bytes, uint64_t big_bytes)
{
	uint64_t small_slack = slack_of(g->small, small_bytes);
	uint64_t big_slack = slack_of(g->big, big_bytes);
	double full = (double)small_bytes * (double)g->big_batch / (double)g->small_batch;

	return small_slack + big_slack > 0 && big_bytes + small_slack >= small_bytes &&
	       (double)less_u64(big_bytes, big_slack) <= full;
}

/* How well a pair fits; below 0: it does not. */
static int fit(const struct aligning *g, size_t i, size_t j)
{
	const struct request *a = &g->small->all[i], *b = &g->big->all[j];
	bool known = a->site != 0 && a->site == b->site;

	if (!can_be_one(a, b))
		return -8;
	switch (growth_of(a->bytes, b->bytes, g->small_batch, g->big_batch)) {
	case GROWTH_NONE:
	case GROWTH_FULL:
		return 3;
	case GROWTH_PARTLY:
	case GROWTH_SQUARE:
		return known ? 3 : 1;
	case GROWTH_SHRINKS:
	case GROWTH_MORE:
		if (within_slack(g, a->bytes, b->bytes))
			return known ? 3 : 1;
		break;
	}
	return known ? 1 : -3;
}

/* ---- where it does not fit ---- */

enum way { WAY_PAIR, WAY_SMALL, WAY_BIG };

/* The best way through the next WINDOW requests of both runs. */
struct window {
	int32_t score[WINDOW + 1][WINDOW + 1];
	uint8_t way[WINDOW + 1][WINDOW + 1];
	uint8_t path[2 * WINDOW];
};

static void fill_cell(const struct aligning *g, struct window *w, size_t i, size_t j, size_t a,
		      size_t b)
{
	int32_t pair = w->score[a - 1][b - 1] + fit(g, i + a - 1, j + b - 1);
	int32_t small = w->score[a - 1][b] - 1, big = w->score[a][b - 1] - 1;

	w->score[a][b] = pair;
	w->way[a][b] = WAY_PAIR;
	if (small > w->score[a][b]) {
		w->score[a][b] = small;
		w->way[a][b] = WAY_SMALL;
	}
	if (big > w->score[a][b]) {
		w->score[a][b] = big;
		w->way[a][b] = WAY_BIG;
	}
}

/*
 * Takes the first half of the best way from (i, j) on; it ends where either run's part of the window does, so that what is behind the
 * window need not be skipped. Returns the steps in `path`.
 */
static size_t find_way(const struct aligning *g, struct window *w, size_t i, size_t j)
{
	size_t rows = less_u64(g->small->count, i), columns = less_u64(g->big->count, j), a, b;
	size_t best_a, best_b, length = 0;

	rows = rows > WINDOW ? WINDOW : rows;
	columns = columns > WINDOW ? WINDOW : columns;
	for (a = 0; a <= rows; a++)
		for (b = 0; b <= columns; b++) {
			if (a > 0 && b > 0) {
				fill_cell(g, w, i, j, a, b);
				continue;
			}
			w->score[a][b] = -(int32_t)(a + b);
			w->way[a][b] = a > 0 ? WAY_SMALL : WAY_BIG;
		}
	best_a = rows;
	best_b = columns;
	for (a = 0; a <= rows; a++)
		if (w->score[a][columns] > w->score[best_a][best_b]) {
			best_a = a;
			best_b = columns;
		}
	for (b = 0; b <= columns; b++)
		if (w->score[rows][b] > w->score[best_a][best_b]) {
			best_a = rows;
			best_b = b;
		}
	for (a = best_a, b = best_b; a > 0 || b > 0; length++) {
		w->path[length] = w->way[a][b];
		a -= w->path[length] != WAY_BIG;
		b -= w->path[length] != WAY_SMALL;
	}
	for (a = 0; a < length / 2; a++) {
		uint8_t step = w->path[a];

		w->path[a] = w->path[length - 1 - a];
		w->path[length - 1 - a] = step;
	}
	return rows < WINDOW && columns < WINDOW ? length : (length + 1) / 2;
}

int pairing_make(const struct requests *small, uint64_t small_batch, const struct requests *big,
		 uint64_t big_batch, struct pairing *out)
{
	struct aligning g = {small, big, small_batch, big_batch};
	struct window *window = malloc(sizeof(*window));
	size_t i = 0, j = 0, steps;

	*out = (struct pairing){.partner = malloc((big->count + 1) * sizeof(*out->partner))};
	if (out->partner == NULL || window == NULL) {
		free(window);
		return -ENOMEM;
	}
	for (size_t k = 0; k < big->count; k++)
		out->partner[k] = PAIRING_NONE;
	while (i < small->count && j < big->count) {
		if (fit(&g, i, j) > 0) {
			out->partner[j++] = (uint32_t)i++;
			out->paired++;
			continue;
		}
		steps = find_way(&g, window, i, j);
		for (size_t k = 0; k < steps; k++) {
			if (window->path[k] == WAY_PAIR &&
			    can_be_one(&small->all[i], &big->all[j])) {
				out->partner[j] = (uint32_t)i;
				out->paired++;
			}
			i += window->path[k] != WAY_BIG;
			j += window->path[k] != WAY_SMALL;
		}
	}
	free(window);
	out->gaps = small->count + big->count - 2 * out->paired;
	return 0;
}

double pairing_moved(const struct pairing *pairing, const struct requests *small,
		     const struct requests *big)
{
	double all = 0, moved = 0;
	/* Where each request of the smaller run went; a free is compared by the requests around it. */
	uint32_t *to = calloc(small->count + 1, sizeof(*to));
	uint32_t next = 0;

	if (to == NULL)
		return 1;
	for (size_t i = 0, j = 0; i <= small->count; i++) {
		while (j < big->count &&
		       (pairing->partner[j] == PAIRING_NONE || pairing->partner[j] < i))
			j++;
		next = (uint32_t)j;
		to[i] = next;
	}
	for (size_t j = 0; j < big->count; j++) {
		const struct request *b = &big->all[j], *a;
		uint32_t expected, distance;

		if (pairing->partner[j] == PAIRING_NONE)
			continue;
		a = &small->all[pairing->partner[j]];
		all += (double)b->bytes;
		if (a->freed == UINT32_MAX && b->freed == UINT32_MAX)
			continue;
		expected = a->freed == UINT32_MAX ? UINT32_MAX : to[a->freed];
		distance = expected > b->freed ? expected - b->freed : b->freed - expected;
		if (distance > MOVED_BY)
			moved += (double)b->bytes;
	}
	free(to);
	return all > 0 ? moved / all : 1;
}
