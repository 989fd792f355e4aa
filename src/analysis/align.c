/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A path goes from (0, 0) to the ends of both sequences: right takes an element of the first, down one of the second, diagonally
 * both. reach[k] is how far right a path with d steps aside gets on diagonal k = x - y. One bit for each d and k, which way it
 * came, is enough to find the path again: back along the bits gives the steps aside, and going forward the equal elements between
 * them are as many as there are.
 */
#include "analysis/align.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NOWHERE (-1)

struct aligner {
	const uint32_t *first, *second;
	size_t first_count, second_count; /* of what is left */
	int64_t *reach;			  /* by diagonal, of 2 * ALIGN_EXACT + 3 */
	/* Row d begins at bit d * (d + 1) / 2, with an entry for each second diagonal. */
	uint8_t *came_down;
	uint8_t *steps; /* of the present piece, true: down */
};

static size_t bit_of(int64_t d, int64_t k)
{
	return (size_t)(d * (d + 1) / 2 + (k + d) / 2);
}

static void bit_set(uint8_t *bits, size_t bit, bool value)
{
	uint8_t mask = (uint8_t)(1u << (bit & 7));

	if (value)
		bits[bit >> 3] |= mask;
	else
		bits[bit >> 3] &= (uint8_t)~mask;
}

static bool bit_get(const uint8_t *bits, size_t bit)
{
	return (bits[bit >> 3] >> (bit & 7) & 1) != 0;
}

/*
 * Lets paths grow until one is at both ends or ALIGN_EXACT steps are used up. Gives the steps aside and the diagonal of the path
 * that is at the end, or of the one that is furthest; true for the first.
 */
static bool grow(struct aligner *a, int64_t *out_d, int64_t *out_k)
{
	int64_t *reach = a->reach + ALIGN_EXACT + 1;
	int64_t n = (int64_t)a->first_count, m = (int64_t)a->second_count, d, k, furthest = -1;

	for (d = 0; d <= (int64_t)ALIGN_EXACT; d++) {
		furthest = -1;
		for (k = -d; k <= d; k += 2) {
			/* Neither may leave the sequences; a diagonal that no path is on any more has NOWHERE. */
			bool may_down = k != d && reach[k + 1] >= 0 && reach[k + 1] - k <= m;
			bool may_right = k != -d && reach[k - 1] >= 0 && reach[k - 1] < n;
			bool down = may_down && (!may_right || reach[k - 1] < reach[k + 1]);
			int64_t x = 0, y;

			if (d > 0 && !may_down && !may_right) {
				reach[k] = NOWHERE;
				continue;
			}
			if (d > 0)
				x = down ? reach[k + 1] : reach[k - 1] + 1;
			y = x - k;
			bit_set(a->came_down, bit_of(d, k), down);
			while (x < n && y < m && a->first[x] == a->second[y]) {
				x++;
				y++;
			}
			reach[k] = x;
			if (x == n && y == m) {
				*out_d = d;
				*out_k = k;
				return true;
			}
			if (x + y > furthest) {
				furthest = x + y;
				*out_d = d;
				*out_k = k;
			}
		}
	}
	return false;
}

/* Walks the path to diagonal k with d steps aside, and moves the beginning behind it. */
static int walk(struct aligner *a, int64_t d, int64_t k, size_t *first, size_t *second,
		align_visit *visit, void *arg)
{
	size_t x = 0, y = 0;
	int64_t i;
	int r = 0;

	for (i = d; i > 0; i--) {
		bool down = bit_get(a->came_down, bit_of(i, k));

		a->steps[i] = down;
		k += down ? 1 : -1;
	}
	for (i = 0; i <= d && r == 0; i++) {
		if (i > 0 && a->steps[i])
			r = visit(arg, ALIGN_SECOND, *first + x, *second + y++);
		else if (i > 0)
			r = visit(arg, ALIGN_FIRST, *first + x++, *second + y);
		while (r == 0 && x < a->first_count && y < a->second_count &&
		       a->first[x] == a->second[y]) {
			r = visit(arg, ALIGN_BOTH, *first + x, *second + y);
			x++;
			y++;
		}
	}
	*first += x;
	*second += y;
	a->first += x;
	a->second += y;
	a->first_count -= x;
	a->second_count -= y;
	return r;
}

int align(const uint32_t *first, size_t first_count, const uint32_t *second, size_t second_count,
	  align_visit *visit, void *arg, bool *out_exact)
{
	struct aligner a = {
		.first = first,
		.second = second,
		.first_count = first_count,
		.second_count = second_count,
		.reach = calloc(2 * ALIGN_EXACT + 4, sizeof(*a.reach)),
		.came_down = calloc((ALIGN_EXACT + 1) * (ALIGN_EXACT + 2) / 16 + 1, 1),
		.steps = calloc(ALIGN_EXACT + 1, 1),
	};
	size_t x = 0, y = 0;
	int64_t d = 0, k = 0;
	bool whole = false, exact = true;
	int r = a.reach == NULL || a.came_down == NULL || a.steps == NULL ? -ENOMEM : 0;

	while (r == 0 && !whole) {
		whole = grow(&a, &d, &k);
		exact = exact && whole;
		r = walk(&a, d, k, &x, &y, visit, arg);
	}
	if (out_exact != NULL)
		*out_exact = exact;
	free(a.reach);
	free(a.came_down);
	free(a.steps);
	return r;
}
