/* SPDX-License-Identifier: Apache-2.0 */
#include "base/nearest.h"

#include <stdbool.h>
#include <string.h>

#define NAME_MAX_BYTES 40 /* longer ones are nobody's slip */
#define NAME_MIN_BYTES 4  /* shorter ones are near to too much: gpu to cpu */

static char folded(char c)
{
	if (c >= 'A' && c <= 'Z')
		return (char)(c - 'A' + 'a');
	return c == '_' ? '-' : c;
}

static bool same(char a, char b)
{
	return folded(a) == folded(b);
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Letters that differ, are missing, are too many, or stand in the place of their neighbour. */
static size_t count_faults(const char *a, size_t a_length, const char *b, size_t b_length)
{
	size_t rows[3][NAME_MAX_BYTES + 1], *before = rows[0], *last = rows[1], *now = rows[2],
					    *spare;
	size_t i, k;

	for (k = 0; k <= b_length; k++)
		last[k] = k;
	for (i = 1; i <= a_length; i++) {
		now[0] = i;
		for (k = 1; k <= b_length; k++) {
			now[k] = least(least(last[k], now[k - 1]) + 1,
				       last[k - 1] + !same(a[i - 1], b[k - 1]));
			if (i > 1 && k > 1 && same(a[i - 1], b[k - 2]) && same(a[i - 2], b[k - 1]))
				now[k] = least(now[k], before[k - 2] + 1);
		}
		spare = before;
		before = last;
		last = now;
		now = spare;
	}
	return last[b_length];
}

/* Whether the text is one of the parts of the name. */
static bool is_part(const char *text, size_t length, const char *name)
{
	size_t part;

	for (; *name != '\0'; name += part + (name[part] == '-')) {
		part = strcspn(name, "-");
		if (part == length && count_faults(text, length, name, part) == 0)
			return true;
	}
	return false;
}

void nearest_offer(struct nearest *nearest, const char *name)
{
	size_t length = strlen(name), allowed = (nearest->length + 2) / 3, faults;

	if (nearest->length < NAME_MIN_BYTES || nearest->length > NAME_MAX_BYTES ||
	    length > NAME_MAX_BYTES)
		return;
	faults = count_faults(nearest->text, nearest->length, name, length);
	if (faults > allowed && is_part(nearest->text, nearest->length, name))
		faults = allowed;
	if (faults <= allowed && (nearest->best == NULL || faults < nearest->faults)) {
		nearest->best = name;
		nearest->faults = faults;
	}
}
