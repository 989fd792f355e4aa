/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The project directory of one run, and the files in it. Nothing is created before something is to be written:
 *
 *     OUTPUT/msmemscope_PID_STAMP_VENDOR/            0750, created exclusively; on a clash _2, _3, ...
 *         device_ID|device_cpu/dump/NAME_STAMP.EXT   0600
 *         report.txt  trace.msc
 *
 * Stamps are local time where the launch was typed, taken from the trace: the same trace gives the same names.
 */
#ifndef MSCOPE_SINK_PROJECT_H
#define MSCOPE_SINK_PROJECT_H

#include <stdbool.h>

#include "base/status.h"
#include "base/strbuf.h"

#define PROJECT_PATH_MAX 4608
#define PROJECT_STEM_MAX 64
#define PROJECT_TRACE	 "trace.msc"
#define PROJECT_REPORT	 "report.txt"
#define PROJECT_FINDINGS "findings.json"

struct project {
	const char *output; /* absolute; borrowed */
	uint32_t pid;
	uint64_t start_ns; /* wall clock, for the stamp */
	int32_t utc_offset_s;
	uint8_t run_id[16]; /* whose directory it is, kept in a marker file until it is complete */
	bool exclusive;	    /* always a new directory, none that was begun and left */
	bool made;
	bool named;	/* somebody was told its path, which stays from then on */
	uint8_t vendor; /* that its name tells, once made */
	/* "msmemscope_PID_STAMP" of the run that `export` made it of, which config.json keeps; "": it was recorded */
	char exported_from[PROJECT_STEM_MAX];
	uint32_t dumps;		     /* files with rows, calls or checksums that were begun in it */
	char path[PROJECT_PATH_MAX]; /* once made */
};

/* "YYYYMMDDHHMMSS" of a wall clock time. */
void project_stamp(uint64_t wall_ns, int32_t utc_offset_s, char out[16]);

/* How a name of a project begins, before its vendor: "msmemscope_PID_STAMP". */
void project_stem(const char *name, char out[PROJECT_STEM_MAX]);

/*
 * Creates the directory unless it is there. `vendor` is enum vendor. A directory that an engine began for the same run and did
 * not complete is taken over, so that recovering does not make a second one.
 */
int project_make(struct project *project, uint8_t vendor, struct mscope_error *err);

/*
 * Gives the directory the name of a vendor, where it was made by rows of another one: tensors in host memory come before the first
 * of a device. No file in it is open by its path. It keeps its name where it cannot be renamed, and where its path was told.
 */
void project_settle(struct project *project, uint8_t vendor);

/* Writes a small text file of this name into the directory, which has been made. */
int project_write(const struct project *project, const char *name, const struct strbuf *text,
		  uint32_t mode, struct mscope_error *err);

/* Files whose names begin so are there until the directory is complete. */
#define PROJECT_UNFINISHED ".unfinished"

/* Everything is in it: the markers go. */
void project_complete(const struct project *project);

/* Creates `path` and what is missing above it, 0750. An existing directory is fine. */
int project_mkdirs(const char *path);

/* "cpu", "N/A" or the number, as files and directories spell a device. */
void project_device_text(uint32_t device, char out[16]);

#endif
