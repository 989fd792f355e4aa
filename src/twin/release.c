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
#define PADDING		 TWIN_PADDING
#define ALIGNED		 TWIN_ALIGNED
#define WHOLE_FRACTION	 TWIN_WHOLE_FRACTION

static const struct twin_release RELEASES[] = {
#define RELEASE(major, minor, rules)	 {(major), (minor), (rules), false},
#define NPU_RELEASE(major, minor, rules) {(major), (minor), (rules), true},
#include "twin/releases.def"
#undef NPU_RELEASE
#undef RELEASE
};

struct twin_release twin_release_of(uint32_t minor, bool npu)
{
	struct twin_release release = {.npu = npu};

	for (size_t i = 0; i < sizeof(RELEASES) / sizeof(RELEASES[0]); i++)
		if (RELEASES[i].npu == npu && RELEASES[i].minor <= minor)
			release = RELEASES[i];
	release.minor = minor;
	return release;
}

uint32_t twin_release_last(bool npu)
{
	return npu ? TWIN_NPU_MINOR_LAST : TWIN_MINOR_LAST;
}

uint32_t twin_release_first(bool npu)
{
	return npu ? TWIN_NPU_MINOR_FIRST : TWIN_MINOR_FIRST;
}

const char *twin_release_product(bool npu)
{
	return npu ? "torch_npu" : "PyTorch";
}

static int unknown_release(unsigned int major, unsigned int minor, bool npu,
			   struct mscope_error *err)
{
	const char *product = twin_release_product(npu);

	return error_set(err, MSCOPE_E_USAGE,
			 "the allocator of %s %u.%u is not known; 2.%u to 2.%u are", product, major,
			 minor, twin_release_first(npu), twin_release_last(npu));
}

int twin_release_parse(const char *text, bool npu, struct twin_release *out,
		       struct mscope_error *err)
{
	unsigned int major = 0, minor = 0;
	int length = 0;

	if (sscanf(text, "%3u.%3u%n", &major, &minor, &length) != 2 ||
	    (text[length] != '\0' && text[length] != '.' && text[length] != '+'))
		return error_set(err, MSCOPE_E_USAGE,
				 "%.40s is not a release of %s; write for example 2.%u", text,
				 twin_release_product(npu), npu ? TWIN_NPU_MINOR_LAST : 11u);
	if (major != 2 || minor < twin_release_first(npu) || minor > twin_release_last(npu))
		return unknown_release(major, minor, npu, err);
	*out = twin_release_of(minor, npu);
	return 0;
}
