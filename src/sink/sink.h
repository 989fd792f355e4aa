/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How rows leave the engine: one file per device, in a form that is one table of operations (the list is base/forms.def). The
 * sink chooses the file, the form writes the row. Files are created when the first row of a device comes; rows of no device go into
 * all of them, and where there is none, into one for the host.
 */
#ifndef MSCOPE_SINK_SINK_H
#define MSCOPE_SINK_SINK_H

#include <stdbool.h>

#include "replay/replay.h"
#include "sink/project.h"

/* What is written; the rest is only analysed. */
struct row_filter {
	uint32_t groups; /* bit of enum row_group for each that is written; ALWAYS is always */
	/* A bit for each device that is written, up to 31; all bits: every one. */
	uint32_t npus, gpus;
	bool host;	       /* rows of the host's own memory that no device is part of */
	const uint32_t *steps; /* step numbers that are written; NULL: all */
	size_t step_count;
};

struct sink_config {
	struct project *project; /* borrowed */
	const struct sink_form *form;
	struct row_filter filter;
	/* Write beside the files of an earlier pass and rename over them at the end. */
	bool replace;
	uint32_t c_depth;      /* frames that the C call stack column shows at most, 0: none */
	uint32_t python_depth; /* and the Python one */
	/* Directory for rows that wait until their file is known, NULL: the output directory. */
	const char *spool;
	/* Settings that the program chose through the API replace the filter, but for steps; and the depth of stacks. */
	bool follow_rows, follow_stacks;
	/* Continue the files of a killed engine: their rows before the first one that comes stay. */
	bool resume;
	/*
	 * Files are PARTITION/device=D/PART.EXTENSION, as engines that read many ranks expect them, and nothing else is written: no project,
	 * no dump of watched memory, no Python trace. The form puts a whole file in place of one of that name. NULL: into the project.
	 */
	const char *partition, *part;
	const char *dry; /* every row says it: the device of a dry run; NULL: a device was used */
};

/* Text of a call stack column; no bytes: an empty column. */
struct stack_text {
	const char *text;
	size_t bytes;
};

struct form_file;

/* One line of python_trace, before it has a form. */
struct sink_call {
	const char *text;  /* FuncInfo */
	uint64_t start_ns; /* wall clock, 0: unknown */
	uint64_t end_ns;
	uint32_t pid;
	uint32_t tid;
};

/* Where the Python trace goes. Every form says so. */
enum sink_calls {
	CALLS_UNDECIDED, /* refused by sink_open() */
	CALLS_IN_FILE,	 /* into the file of the thread's device, by call() */
	CALLS_IN_CSV,	 /* into csv files of its own, one for each thread */
	CALLS_NOWHERE,	 /* there are no files: the trace has them */
};

/* A file of one form. Every function but open takes a file that open returned; a form without open has none of them. */
struct sink_form {
	const char *extension; /* with its dot */
	enum sink_calls calls;
	/* All files of a process have the stamp of its project, not of their first row. */
	bool one_stamp;
	/* NULL: nothing is written, and there is no sink. Makes the file anew, or with `resume` continues one that has rows, dropping those from row `first_id` on. */
	int (*open)(const char *path, bool resume, uint64_t first_id, struct form_file **out,
		    struct mscope_error *err);
	/* `device`, `python` and `c` are texts of their columns. */
	int (*row)(struct form_file *file, const struct row *row, const char *device,
		   struct stack_text python, struct stack_text c, struct mscope_error *err);
	/*
	 * Whether the file has this stack, shown to these depths, from an earlier row: then its texts are not made, and row(), which comes
	 * next, gets none. NULL: never.
	 */
	bool (*knows_stack)(struct form_file *file, uint32_t stack, uint32_t c_depth,
			    uint32_t python_depth);
	/* A row of the Python trace; NULL unless `calls` is CALLS_IN_FILE. */
	int (*call)(struct form_file *file, const struct sink_call *call, struct mscope_error *err);
	/* Hands all rows to the kernel. */
	int (*flush)(struct form_file *file, struct mscope_error *err);
	/* After a flush: makes the file complete for other processes. NULL if every flush already does. */
	int (*publish)(struct form_file *file, struct mscope_error *err);
	/* Rows so far survive a kill, because the trace may lose them now. NULL if every flush already does that. */
	int (*secure)(struct form_file *file, struct mscope_error *err);
	/* A file of a replacing pass has taken the place of `path`: files beside it that belonged to it go. May be NULL. */
	void (*replaced)(const char *path);
	/* Frees it; with `keep` the file is complete afterwards. */
	int (*close)(struct form_file *file, bool keep, struct mscope_error *err);
};

#define FORM(number, symbol, word, table) extern const struct sink_form table;
#include "base/forms.def"
#undef FORM

/* The form with this number in a session, NULL when there is none. */
const struct sink_form *form_get(uint32_t number);

struct sink;

int sink_open(const struct sink_config *config, struct sink **out, struct mscope_error *err);
int sink_row(struct sink *sink, struct replay *replay, const struct row *row,
	     struct mscope_error *err);
/* A dump of watched memory, which has a file of its own. */
int sink_dump(struct sink *sink, const struct dump *dump, struct mscope_error *err);
/* Of the Python trace: `row` is one of the calls of `replay`. It is in its file after sink_publish() or sink_close(). */
int sink_call(struct sink *sink, const struct replay *replay, const struct call_row *row,
	      struct mscope_error *err);
int sink_flush(struct sink *sink, struct mscope_error *err);
/* The same, and every file is complete for other processes, as it would be at the end. */
int sink_publish(struct sink *sink, struct mscope_error *err);
/* Rows so far survive a kill without the part of the trace that they came from. */
int sink_secure(struct sink *sink, struct mscope_error *err);
/*
 * Closes the files of rows, so that another pass can replace them; the next row goes on behind what is in them then. False: the
 * files also have what such a pass leaves out.
 */
bool sink_suspend(struct sink *sink, struct mscope_error *err);

/* Whether what happens now lies in the devices and steps that are written; the program's own choice through the API counts. */
bool row_filter_takes(const struct row_filter *filter, const struct replay *replay,
		      const struct context *context);

/* The same of a row, with its kind. */
bool row_filter_takes_row(const struct row_filter *filter, const struct replay *replay,
			  const struct row *row);

/* Bits of row_filter.groups for bits of enum session_events and enum session_level. */
uint32_t row_filter_groups(uint32_t events, uint32_t level);

/*
 * Adds KEY=VALUE, the name of a directory that engines take for a column: characters that mean something to them or to a file system
 * are written %HH. U+FFFD stands for each byte that is not UTF-8.
 */
void sink_add_partition(struct strbuf *out, const char *key, const char *value);

/* Frees the sink; with `keep`, files are complete afterwards, without it those of a replacing pass are removed. */
int sink_close(struct sink *sink, bool keep, struct mscope_error *err);

/* For call_files.c: the file of a device, made if need be for something that happened at `time_ns`. */
int sink_file(struct sink *sink, uint32_t device, uint8_t vendor, uint64_t time_ns,
	      struct form_file **out, struct mscope_error *err);

#endif
