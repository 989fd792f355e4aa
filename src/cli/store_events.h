/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store add --events=DIR: the events of a process as Parquet, in the layout that DuckDB, Spark and others read as one table:
 *
 *     DIR/run=NAME/rank=N/device=D/part-KEY.parquet
 *
 * KEY is the process's key in the store, so that adding it again replaces its parts. Rows are those that export gives for the same
 * trace. A part is whole or absent: it is written under a hidden name and renamed.
 */
#ifndef MSCOPE_CLI_STORE_EVENTS_H
#define MSCOPE_CLI_STORE_EVENTS_H

#include "engine/input.h"
#include "engine/pass.h"

struct store_events {
	struct session *session; /* what the launch asked for */
	struct project project;	 /* says where temporary files go; never made */
	struct strbuf partition;
	char part[40];
};

/* Makes a pass over `input`, whose process has this key, write its events too. `out` lives as long as the pass and needs store_events_fini(), also on failure. */
int store_events_choose(struct store_events *out, const char *directory, const char *run,
			int64_t key, const struct input *input, struct pass_setup *setup);

/* After pass_all(): writes the files again if rows lack what became known after them. */
int store_events_end(const struct pass *pass, const struct input *input, struct mscope_error *err);

void store_events_fini(struct store_events *events);

#endif
