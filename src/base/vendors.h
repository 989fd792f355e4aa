/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vendors.def as C: the numbers, and what the engine knows of each. A header alone, so that the collector may use it.
 */
#ifndef MSCOPE_BASE_VENDORS_H
#define MSCOPE_BASE_VENDORS_H

#include <stdbool.h>

#include "base/compiler.h"

enum vendor {
	VENDOR_UNKNOWN = 0,
	VENDOR_FIRST = 1,
#define VENDOR(number, symbol, name, suffix, owner, sampled, c10, word) VENDOR_##symbol = (number),
#include "base/vendors.def"
#undef VENDOR
	VENDOR_END
};

/* c10::DeviceType of their tensors in PyTorch, -1: none. */
enum {
#define VENDOR(number, symbol, name, suffix, owner, sampled, c10, word) C10_##symbol = (c10),
#include "base/vendors.def"
#undef VENDOR
};

struct vendor_row {
	const char *suffix; /* of project directories */
	const char *owner;  /* of driver memory; with a trailing @ a component's name follows */
	bool sampled;	    /* the driver is asked for usage figures */
};

/* The row of a vendor. A number that this version does not know gives a row like that of traces without a device. */
static inline const struct vendor_row *vendor_row(uint32_t vendor)
{
	static const struct vendor_row rows[] = {
		[VENDOR_UNKNOWN] = {"cpu", "CANN@", false},
#define VENDOR(number, symbol, name, suffix, owner, sampled, c10, word)                            \
	[number] = {suffix, owner, sampled},
#include "base/vendors.def"
#undef VENDOR
	};

	return &rows[vendor < MSCOPE_COUNT(rows) ? vendor : VENDOR_UNKNOWN];
}

#endif
