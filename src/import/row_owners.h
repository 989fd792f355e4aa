/* SPDX-License-Identifier: Apache-2.0 */
/* Owners of blocks as rows have them, "PTA@model@weight@my_label": the pool's name, a class of the model, the user's labels. */
#ifndef MSCOPE_IMPORT_ROW_OWNERS_H
#define MSCOPE_IMPORT_ROW_OWNERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Parts of a text; a length of 0: it has no such part. */
struct row_owner {
	const char *class; /* "model@weight", "model@buffer@layers.0.table", "ops@aten" */
	size_t class_length;
	const char *label; /* all labels, joined by @ as they are in the text */
	size_t label_length;
	uint32_t module; /* component of CANN that asked for memory of the driver; MODULE_UNKNOWN */
};

/* `is_driver`: memory of a driver; that of Ascend says which component asked for it: "CANN@HCCL". */
struct row_owner row_owner_of(const char *text, bool is_driver);

#endif
