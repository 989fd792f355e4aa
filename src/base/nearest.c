/* SPDX-License-Identifier: Apache-2.0 */
#include "base/nearest.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#define LENGTH_MAX 256u
#define ROOM_MAX   8u
#define FAR	   (2u * LENGTH_MAX)

static size_t least(size_t a, size_t b, size_t c)
{
	size_t d = a < b ? a : b;

	return d < c ? d : c;
}

/* Letters to add, drop or change, whatever their case. */
static size_t distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
	size_t row[LENGTH_MAX + 1], i, k;

	if (a_length > LENGTH_MAX || b_length > LENGTH_MAX)
		return FAR;
	for (k = 0; k <= b_length; k++)
		row[k] = k;
	for (i = 0; i < a_length; i++) {
		size_t corner = row[0];

		row[0] = i + 1;
		for (k = 0; k < b_length; k++) {
			size_t above = row[k + 1];
			size_t other = tolower((unsigned char)a[i]) != tolower((unsigned char)b[k]);

			row[k + 1] = least(above + 1, row[k] + 1, corner + other);
			corner = above;
		}
	}
	return row[b_length];
}

/* How unlike two names are, 0: they differ in case alone. FAR: they have nothing to do with each other. */
static size_t unlikeness(const char *wanted, const char *name)
{
	static const char separators[] = "./:";
	size_t length = strlen(wanted), best, part, bytes;

	best = distance(wanted, length, name, strlen(name));
	for (part = 0; name[part] != '\0'; part += bytes + (name[part + bytes] != '\0')) {
		size_t found;

		bytes = strcspn(name + part, separators);
		found = distance(wanted, length, name + part, bytes) + 1;
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
