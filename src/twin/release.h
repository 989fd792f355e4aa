/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which release of PyTorch the twin plays: its number and the rules that hold for it (releases.def).
 */
#ifndef MSCOPE_TWIN_RELEASE_H
#define MSCOPE_TWIN_RELEASE_H

#include <stdbool.h>

#include "base/compiler.h"
#include "base/status.h"

enum twin_rule {
	TWIN_ROUND_DIVISION_1 = 1,
	TWIN_NON_SPLIT_OPTION = 2,
	TWIN_SEGMENT_OPTION = 8,
	TWIN_OBJECT_ORDER = 16,
	TWIN_KEEPS_EXPANDABLE = 32,
	TWIN_NEW_PARSER = 4,
	TWIN_PRIVATE_ARENAS = 64,
	TWIN_CAPTURE_RETRIES = 128,
};

struct twin_release {
	uint32_t major;
	uint32_t minor;
	uint32_t rules; /* enum twin_rule */
};

/* Oldest and newest release whose rules are known. */
#define TWIN_MINOR_FIRST 1u
#define TWIN_MINOR_LAST	 15u

/* The release of a text such as "2.11", "2.11.0" or "2.11.0+cu130". `err` says which releases are known. */
int twin_release_parse(const char *text, struct twin_release *out, struct mscope_error *err);

/* Release 2.`minor`, which must be one of TWIN_MINOR_FIRST to TWIN_MINOR_LAST. */
struct twin_release twin_release_of(uint32_t minor);

#endif
