/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/layout.h"

#include <stdio.h>
#include <string.h>

#include "base/status.h"

static const struct layout_table own = {
	.types =
		{
#define FIXED	 false
#define VARIABLE true
#define EVENT(number, name, words_, shape, fields, meaning)                                        \
	[number] = {.words = (words_), .variable = (shape)},
#include "trace/events.def"
#undef EVENT
#undef FIXED
#undef VARIABLE
		},
};

const struct layout_table *layout_own_table(void)
{
	return &own;
}

int layout_parse(const char *text, size_t bytes, struct layout_table *out)
{
	const char *end = text + bytes;
	struct layout_table table = {0};
	int type;

	while (text < end) {
		const char *stop = memchr(text, '\n', (size_t)(end - text));
		char line[1024], name[64], shape[16];
		unsigned int number, words;

		if (stop == NULL || (size_t)(stop - text) >= sizeof(line))
			return MSCOPE_E_DAMAGED;
		memcpy(line, text, (size_t)(stop - text));
		line[stop - text] = '\0';
		if (sscanf(line, "%3u %63s %3u %15s", &number, name, &words, shape) != 4 ||
		    number == 0 || number > 255 || words < 1 || words > 64 ||
		    (strcmp(shape, "FIXED") != 0 && (strcmp(shape, "VARIABLE") != 0 || words < 2)))
			return MSCOPE_E_DAMAGED;
		table.types[number] = (struct layout){.words = (uint8_t)words,
						      .variable = strcmp(shape, "VARIABLE") == 0};
		text = stop + 1;
	}
	for (type = 0; type < 256; type++) {
		const struct layout *ours = &own.types[type], *theirs = &table.types[type];

		if (ours->words != 0 && theirs->words != 0 && ours->variable != theirs->variable)
			return MSCOPE_E_DAMAGED;
		/* Those that had a second word always had one. */
		if (ours->words > 1 && theirs->words == 1)
			return MSCOPE_E_DAMAGED;
	}
	*out = table;
	return 0;
}
