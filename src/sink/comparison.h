/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A comparison (analysis/compare.h) as a user gets it: the file memory_compare_STAMP.csv with every call, and one screen of text or
 * JSON with what makes the runs differ (analysis/differences.h).
 */
#ifndef MSCOPE_SINK_COMPARISON_H
#define MSCOPE_SINK_COMPARISON_H

#include "analysis/differences.h"
#include "base/json.h"
#include "sink/project.h"

/* Lines of the text at most: pools, layers, places, calls. All of it is one screen. */
#define COMPARISON_POOLS	       3
#define COMPARISON_LAYERS	       4
#define COMPARISON_PLACES	       5
#define COMPARISON_CALLS	       5
#define COMPARISON_CALLS_BESIDE_LAYERS 2

/* The file, while ranks are written one after the other. */
struct comparison_file {
	char path[PROJECT_PATH_MAX + 64];
	int fd;
};

/*
 * Makes OUTPUT/compare/memory_compare_STAMP.csv with its header. An existing file is never written to: _2, _3, ... follow. After a
 * failure of any of these there is no file.
 */
int comparison_file_open(struct comparison_file *file, const char *output, uint64_t wall_ns,
			 int32_t utc_offset_s, struct mscope_error *err);
int comparison_file_add(struct comparison_file *file, const struct compare *compare,
			struct mscope_error *err);
int comparison_file_close(struct comparison_file *file, bool keep, struct mscope_error *err);

/* Pools, then what differs, the largest first. */
void comparison_text(const struct compare *compare, const struct differences *differences,
		     bool colour, struct strbuf *out);

/* One line: the pool whose peak differs most, and by how much. */
void comparison_line(const struct compare *compare, const struct differences *differences,
		     struct strbuf *out);

/* How much the runs differ, in bytes of peak or end: which of several ranks is worth a screen. */
uint64_t comparison_size(const struct differences *differences);

/* All of it, into an object that is open. 0 or -ENOMEM. */
int comparison_json(const struct compare *compare, const struct differences *differences,
		    struct json *json);

#endif
