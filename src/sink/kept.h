/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of no device and marks, kept because the file of a device that comes later needs them too. A program may mark millions of moments,
 * so only the latest stay in memory; the others wait in a file without a name.
 */
#ifndef MSCOPE_SINK_KEPT_H
#define MSCOPE_SINK_KEPT_H

#include "replay/replay.h"

struct kept_rows {
	uint64_t count;
	struct strbuf recent;
	uint64_t spooled; /* bytes in the file */
	int fd;		  /* of the file, where `spooled` is not 0 */
};

typedef int kept_visit(void *arg, const struct row *row, struct mscope_error *err);

/* Keeps a row that has neither block nor layer. `directory` is where the file may be. */
int kept_add(struct kept_rows *kept, const struct row *row, const char *directory,
	     struct mscope_error *err);

/* Visits all of them, the oldest first, until `visit` returns something else than 0. */
int kept_each(const struct kept_rows *kept, kept_visit *visit, void *arg, struct mscope_error *err);

void kept_fini(struct kept_rows *kept);

#endif
