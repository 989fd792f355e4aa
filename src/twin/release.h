/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which release of PyTorch, or of torch_npu, the twin plays: its number and the rules that hold for it (releases.def).
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
	TWIN_PADDING = 256,
	TWIN_ALIGNED = 512,
	TWIN_WHOLE_FRACTION = 1024,
};

struct twin_release {
	uint32_t major;
	uint32_t minor;
	uint32_t rules; /* enum twin_rule */
	bool npu;	/* of torch_npu */
};

/* Oldest and newest release whose rules are known. */
#define TWIN_MINOR_FIRST 1u
#define TWIN_MINOR_LAST	 15u
/* The same of torch_npu. */
#define TWIN_NPU_MINOR_FIRST 6u
#define TWIN_NPU_MINOR_LAST  13u

/* The release of a text such as "2.11", "2.11.0" or "2.11.0+cu130". `err` says which releases are known. */
int twin_release_parse(const char *text, bool npu, struct twin_release *out,
		       struct mscope_error *err);

/* Release 2.`minor`, which must be one that is known. */
struct twin_release twin_release_of(uint32_t minor, bool npu);
/* The newest that is known, and the oldest. */
uint32_t twin_release_last(bool npu);
uint32_t twin_release_first(bool npu);
/* "PyTorch" or "torch_npu". */
const char *twin_release_product(bool npu);

#endif
