/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How rows leave the engine: one file per device, in a form that is one operations table (the list is in sink.c). The sink
 * chooses the file, the form writes the row. Files are created when the first row of a device comes; rows of no device go into
 * all of them, and where there is none, into one for the host.
 */
#ifndef MSCOPE_SINK_SINK_H
#define MSCOPE_SINK_SINK_H

#include <stdbool.h>

#include "replay/replay.h"
#include "sink/project.h"

/* What is written; the rest is only analysed. */
struct row_filter {
	uint32_t groups;  /* bit of enum row_group for each that is written; ALWAYS is always */
	uint32_t devices; /* bit for each device that is written, up to 31 */
	bool all_devices; /* also those without a bit */
	bool host;	  /* rows of the host's own memory that no device is part of */
	const uint32_t *steps; /* step numbers that are written; NULL: all */
	size_t step_count;
};

struct sink_config {
	struct project *project; /* borrowed */
	const struct sink_form *form;
	struct row_filter filter;
	bool replace; /* write beside the files of an earlier pass and rename over them at the end */
	uint32_t c_depth;      /* frames that the C call stack column shows at most, 0: none */
	uint32_t python_depth; /* and the Python one */
	const char *
		spool; /* directory for rows that wait until their file is known, NULL: the output directory */
	bool follow_rows; /* what the program chose through the API replaces the filter, but for steps */
	bool follow_stacks; /* and the depth of stacks */
	bool resume; /* go on in the files of a killed engine: rows before the first one that comes are kept */
};

/* Text of a call stack column; no bytes: an empty column. */
struct stack_text {
	const char *text;
	size_t bytes;
};

struct form_file;

/* One line of python_trace, before a sink gives it a form. */
struct sink_call {
	const char *text;  /* FuncInfo */
	uint64_t start_ns; /* wall clock, 0: unknown */
	uint64_t end_ns;
	uint32_t pid;
	uint32_t tid;
};

/* A file of one form. Every function but open may be called only with what open gave. */
struct sink_form {
	const char *name;
	const char *extension; /* with its dot */
	bool one_stamp; /* all files of a process have the stamp of its project, not of their first row */
	/* Makes the file anew, or with `resume` goes on in one that has rows, dropping those from row `first_id` on. */
	int (*open)(const char *path, bool resume, uint64_t first_id, struct form_file **out,
		    struct mscope_error *err);
	/* `device`, `python` and `c` are texts of their columns. */
	int (*row)(struct form_file *file, const struct row *row, const char *device,
		   struct stack_text python, struct stack_text c, struct mscope_error *err);
	/* A row of the Python trace into the same file; NULL: this form has a file for each thread. */
	int (*call)(struct form_file *file, const struct sink_call *call, struct mscope_error *err);
	int (*flush)(struct form_file *file, struct mscope_error *err);
	/* After a flush: whoever copies or opens the file alone finds all of it. NULL: so it is anyway. */
	int (*settle)(struct form_file *file, struct mscope_error *err);
	/* Frees it; with `keep` the file is complete afterwards. */
	int (*close)(struct form_file *file, bool keep, struct mscope_error *err);
};

extern const struct sink_form form_csv;
extern const struct sink_form form_sqlite;

/* The form with this number in a session (0 csv, 1 db), NULL when there is none. */
const struct sink_form *form_get(uint32_t number);

struct sink;

int sink_open(const struct sink_config *config, struct sink **out, struct mscope_error *err);
int sink_row(struct sink *sink, struct replay *replay, const struct row *row,
	     struct mscope_error *err);
/* A dump of watched memory, which has a file of its own. */
int sink_dump(struct sink *sink, const struct dump *dump, struct mscope_error *err);
/* Of the Python trace: `row` is one of the calls of `replay`. It is in its file after sink_settle() or sink_close(). */
int sink_call(struct sink *sink, const struct replay *replay, const struct call_row *row,
	      struct mscope_error *err);
int sink_flush(struct sink *sink, struct mscope_error *err);
/* The same, and every file is whole by itself, as it would be at the end. */
int sink_settle(struct sink *sink, struct mscope_error *err);

/* Bits of row_filter.groups for bits of enum session_events and enum session_level. */
uint32_t row_filter_groups(uint32_t events, uint32_t level);

/* Frees the sink; with `keep`, files are complete afterwards, without it those of a replacing pass are removed. */
int sink_close(struct sink *sink, bool keep, struct mscope_error *err);

/* For calls.c: the file of a device, made if need be for something that happened at `time_ns`. */
int sink_file(struct sink *sink, uint32_t device, uint8_t vendor, uint64_t time_ns,
	      struct form_file **out, struct mscope_error *err);

/* calls.c: files of the Python trace. */
struct call_files;

int calls_open(const struct sink_config *config, struct sink *sink, struct call_files **out,
	       struct mscope_error *err);
int calls_put(struct call_files *files, const struct sink_call *call, uint32_t device,
	      uint8_t vendor, struct mscope_error *err);
/* Everything so far goes to where it belongs: the threads' devices are what is known of them now. */
int calls_settle(struct call_files *files, struct mscope_error *err);
/* With `keep` files are complete afterwards. Frees it. */
int calls_close(struct call_files *files, bool keep, struct mscope_error *err);

#endif
