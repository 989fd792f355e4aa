/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of the Python trace: python_trace_TID_STAMP.csv beside the dump of the thread's device, or rows in the file of that device,
 * as the form says (enum sink_calls).
 *
 * A thread runs Python long before it touches a device, and the directory of the project is named by the device's vendor. So rows
 * wait until files are asked for: per thread in a small buffer, and from there as a block in one file without a name.
 */
#ifndef MSCOPE_SINK_CALL_FILES_H
#define MSCOPE_SINK_CALL_FILES_H

#include "sink/sink.h"

struct call_files;

int call_files_open(const struct sink_config *config, struct sink *sink, struct call_files **out,
		    struct mscope_error *err);
int call_files_put(struct call_files *files, const struct sink_call *call, uint32_t device,
		   uint8_t vendor, struct mscope_error *err);

/* Writes everything so far into its file, by the devices that threads have now. `files` may be NULL. */
int call_files_publish(struct call_files *files, struct mscope_error *err);

/* Frees it; with `keep` the files are complete afterwards. `files` may be NULL. */
int call_files_close(struct call_files *files, bool keep, struct mscope_error *err);

#endif
