/* SPDX-License-Identifier: Apache-2.0 */
#include "twin/release.h"

#include <stdio.h>

#define ROUND_DIVISION_1 TWIN_ROUND_DIVISION_1
#define NON_SPLIT_OPTION TWIN_NON_SPLIT_OPTION
#define SEGMENT_OPTION	 TWIN_SEGMENT_OPTION
#define OBJECT_ORDER	 TWIN_OBJECT_ORDER
#define KEEPS_EXPANDABLE TWIN_KEEPS_EXPANDABLE
#define NEW_PARSER	 TWIN_NEW_PARSER
#define PRIVATE_ARENAS	 TWIN_PRIVATE_ARENAS
#define CAPTURE_RETRIES	 TWIN_CAPTURE_RETRIES

static const struct twin_release RELEASES[] = {
#define RELEASE(major, minor, rules) {(major), (minor), (rules)},
#include "twin/releases.def"
#undef RELEASE
};

struct twin_release twin_release_of(uint32_t minor)
{
	struct twin_release release = RELEASES[0];

	for (size_t i = 0; i < sizeof(RELEASES) / sizeof(RELEASES[0]); i++)
		if (RELEASES[i].minor <= minor)
			release = RELEASES[i];
	release.minor = minor;
	return release;
}

int twin_release_parse(const char *text, struct twin_release *out, struct mscope_error *err)
{
	unsigned int major = 0, minor = 0;
	int length = 0;

	if (sscanf(text, "%3u.%3u%n", &major, &minor, &length) != 2 ||
	    (text[length] != '\0' && text[length] != '.' && text[length] != '+'))
		return error_set(err, MSCOPE_E_USAGE,
				 "%.40s is not a release of PyTorch; write for example 2.11", text);
	if (major != 2 || minor < TWIN_MINOR_FIRST || minor > TWIN_MINOR_LAST)
		return error_set(err, MSCOPE_E_USAGE,
				 "the allocator of PyTorch %u.%u is not known; 2.%u to 2.%u are",
				 major, minor, TWIN_MINOR_FIRST, TWIN_MINOR_LAST);
	*out = twin_release_of(minor);
	return 0;
}
