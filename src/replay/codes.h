/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Python functions of one run: each distinct one kept once, however many writers defined it, and the text of a place in one as
 * Python's own tools write it, "file(line): name". Not thread-safe.
 */
#ifndef MSCOPE_REPLAY_CODES_H
#define MSCOPE_REPLAY_CODES_H

#include "base/map.h"
#include "base/strbuf.h"
#include "trace/run.h"

struct code {
	size_t at; /* in codes.data: file name, name, line table */
	uint32_t first_line;
	uint32_t table_bytes;
	uint16_t file_bytes;
	uint16_t name_bytes;
	uint16_t minor; /* x of the interpreter's version 3.x */
};

struct codes {
	struct code *all; /* [0] is the unknown one */
	size_t count, room;
	struct strbuf data;
	struct map by_print; /* hash of a definition -> index */
	struct map ids;	     /* writer, id -> index */
	struct strbuf text;  /* NUL-terminated texts of places */
	struct map texts;    /* code, line -> offset in `text` */
};

void codes_fini(struct codes *codes);

/* Takes a code_def of `writer`. 0, -ENOMEM, or -EINVAL when it does not hold. */
int codes_define(struct codes *codes, uint32_t writer, const struct trace_event *event);

/* Index of a writer's code, 0: unknown. */
uint32_t codes_find(const struct codes *codes, uint32_t writer, uint64_t id);

/* Line of the byte offset `at` in the code's instructions; the first line of the function when the table does not tell. */
uint32_t codes_line(const struct codes *codes, uint32_t code, uint32_t at);

/* Offset of the text "file(line): name", + 1; 0 when out of memory. */
size_t codes_place(struct codes *codes, uint32_t code, uint32_t line);

#endif
