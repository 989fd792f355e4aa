/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A form in which rows leave the engine. Each sink is one operations table; the list is in sink.c. A sink creates its files
 * when the first row of a device comes, keeps what it has in buffers of bounded size, and reports the first error it meets.
 */
#ifndef MSCOPE_SINK_SINK_H
#define MSCOPE_SINK_SINK_H

#include <stdbool.h>

#include "replay/replay.h"
#include "sink/project.h"

struct sink;

struct sink_config {
	struct project *project; /* borrowed */
	bool replace;            /* write beside the files of an earlier pass and rename over them at the end */
	bool c_stacks;           /* fill the C call stack column */
	bool kernels;            /* rows of kernels, --level=kernel */
	bool resume;             /* go on in the files of a killed engine: rows before the first one that comes are kept */
};

struct sink_ops {
	const char *name;
	int (*open)(const struct sink_config *config, struct sink **out, struct mscope_error *err);
	int (*row)(struct sink *sink, struct replay *replay, const struct row *row, struct mscope_error *err);
	/* Makes what was written so far visible to others. */
	int (*flush)(struct sink *sink, struct mscope_error *err);
	/* Frees the sink; with `keep`, files are complete afterwards, without it those of a replacing pass are removed. */
	int (*close)(struct sink *sink, bool keep, struct mscope_error *err);
};

extern const struct sink_ops sink_csv;

#endif
