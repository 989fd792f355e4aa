/* SPDX-License-Identifier: Apache-2.0 */
#include "base/nearest.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

#define NAME_MAX_BYTES 40 /* longer ones are nobody's slip */
#define NAME_MIN_BYTES 4  /* shorter ones are near to too much: gpu to cpu */
#define TEXT_MAX_BYTES 256
#define ROOM_MAX       8u
#define FAR	       (2u * TEXT_MAX_BYTES)

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

/* Letters that differ, are missing, are too many, or stand in the place of their neighbour. FAR for long texts. */
static size_t count_faults(const char *a, size_t a_length, const char *b, size_t b_length)
{
	size_t rows[3][TEXT_MAX_BYTES + 1], *before = rows[0], *last = rows[1], *now = rows[2],
					    *spare;
	size_t i, k;

	if (a_length > TEXT_MAX_BYTES || b_length > TEXT_MAX_BYTES)
		return FAR;
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

/* How unlike two names are, 0: they differ in case alone. FAR: they have nothing to do with each other. */
static size_t unlikeness(const char *wanted, const char *name)
{
	static const char separators[] = "./:";
	size_t length = strlen(wanted), best, part, bytes;

	best = count_faults(wanted, length, name, strlen(name));
	for (part = 0; name[part] != '\0'; part += bytes + (name[part + bytes] != '\0')) {
		size_t found;

		bytes = strcspn(name + part, separators);
		found = count_faults(wanted, length, name + part, bytes) + 1;
		if (bytes > 0 && found < best)
			best = found;
	}
	if (best > 1 && length > 0 && name[0] != '\0' &&
	    (strcasestr(name, wanted) != NULL || strcasestr(wanted, name) != NULL))
		return 1;
	/* More than half of it wrong is another word. */
	return best > 2 && best > (length + 1) / 2 ? FAR : best;
}

size_t nearest_names(const char *wanted, const char *const *names, size_t count, const char **out,
		     size_t room)
{
	size_t scores[ROOM_MAX], found = 0, i, at;

	if (room > ROOM_MAX)
		room = ROOM_MAX;
	for (i = 0; i < count; i++) {
		size_t score = unlikeness(wanted, names[i]);

		if (score == FAR)
			continue;
		for (at = found; at > 0 && scores[at - 1] > score; at--)
			;
		if (at == room)
			continue;
		if (found < room)
			found++;
		memmove(&scores[at + 1], &scores[at], (found - at - 1) * sizeof(scores[0]));
		memmove(&out[at + 1], &out[at], (found - at - 1) * sizeof(out[0]));
		scores[at] = score;
		out[at] = names[i];
	}
	return found;
}
