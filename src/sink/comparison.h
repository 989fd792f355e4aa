/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A comparison (analysis/compare.h) as a user gets it: the file memory_compare_STAMP.csv with every call, and the same as a short
 * text or as JSON.
 */
#ifndef MSCOPE_SINK_COMPARISON_H
#define MSCOPE_SINK_COMPARISON_H

#include "analysis/compare.h"
#include "base/json.h"
#include "sink/project.h"

/* Differences and names that the text shows of each device. */
#define COMPARISON_SHOWN 20
#define COMPARISON_NAMES 10

/*
 * Writes OUTPUT/compare/memory_compare_STAMP.csv and returns its path. An existing file is never written to: _2, _3, ... follow.
 * After a failure there is no file.
 */
int comparison_csv(const struct compare *compare, const char *output, uint64_t wall_ns,
		   int32_t utc_offset_s, char out_path[PROJECT_PATH_MAX + 64],
		   struct mscope_error *err);

/* Per device: sums, the largest differences, calls that one run has alone. `paths` are the two inputs. */
void comparison_text(const struct compare *compare, const char *const paths[2], bool colour,
		     struct strbuf *out);

/* All of it, into an object that is open. */
void comparison_json(const struct compare *compare, struct json *json);

#endif
