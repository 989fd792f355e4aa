/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checksums of watched memory, a csv per device, beside the project directories:
 *
 *     OUTPUT/watch_dump/watch_dump_data_check_sum_DEVICE_STAMP.csv     on a clash _2, _3, ... before .csv
 *
 * A line for each dump whose bytes are in no file of their own. The stamp is the time of the first. Which file belongs to a run
 * stands in its project directory until the run is complete, so that recovering it writes the same file anew.
 */
#ifndef MSCOPE_SINK_WATCH_SINK_H
#define MSCOPE_SINK_WATCH_SINK_H

#include "base/status.h"
#include "base/strbuf.h"
#include "replay/watches.h"
#include "sink/project.h"

struct watch_file;

struct watch_sink {
	struct project *project; /* borrowed */
	bool fresh; /* the trace is no longer whole: what a killed engine wrote is kept, not written anew */
	bool leftovers; /* bytes were written to files, the last of which may not be whole */
	struct watch_file **files;
	size_t count, room;
};

/* The name of a dump, as the csv and the files with bytes have it. */
void watch_dump_name(struct strbuf *out, const struct dump *dump);

int watch_sink_dump(struct watch_sink *sink, const struct dump *dump, struct mscope_error *err);
int watch_sink_flush(struct watch_sink *sink, struct mscope_error *err);

/* With `keep`, the files are complete afterwards. */
int watch_sink_close(struct watch_sink *sink, bool keep, struct mscope_error *err);

#endif
