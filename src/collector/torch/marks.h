/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages of mstx marks by which older tools report operators and accesses. Needs nothing but the text.
 */
#ifndef MSCOPE_COLLECTOR_TORCH_MARKS_H
#define MSCOPE_COLLECTOR_TORCH_MARKS_H

#include "base/compiler.h"
#include "trace/context.h"

/* A part of a text; NULL when there is none. */
struct text_span {
	const char *text;
	uint32_t bytes;
};

struct torch_access {
	uint64_t address;
	uint64_t size_bytes;
	uint32_t kind; /* enum access_kind */
	struct text_span name;
	struct text_span dtype;
	struct text_span shape;
};

enum aten_mark_kind {
	ATEN_MARK_NONE,
	ATEN_MARK_BEGIN,
	ATEN_MARK_END,
	ATEN_MARK_ACCESS,
};

#define ATEN_DEVICE_NONE UINT32_MAX

struct aten_mark {
	enum aten_mark_kind kind;
	uint32_t device; /* number behind "npu:", ATEN_DEVICE_NONE: there is none */
	/* Of begin and end only the name. The texts lie in the message. */
	struct torch_access access;
};

/* Reads the message of a mark. ATEN_MARK_NONE: it is not of this protocol, or lacks a field that it needs. */
void aten_mark_parse(const char *message, struct aten_mark *out);

#endif
