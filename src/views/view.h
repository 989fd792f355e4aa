/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A view is what another viewer shows of a whole trace: one or a few files, in that viewer's own format. The list is base/views.def;
 * a view is one table of operations.
 *
 * The run is read twice. The first pass finds what is known only at its end: peaks, leaks, owners, frees that failed, lines of
 * stacks. The second one hands rows and events to the view, which writes as they come; memory grows with what lives, with distinct
 * stacks and names, never with events. Numbers of stacks, contexts and allocations are the same in both passes.
 *
 *     view_prepare()  ->  first pass  ->  view_open()  ->  view_row(), view_event()...  ->  view_end()  ->  view_close()
 *
 * Files have another name until they are complete, and are never written over. One thread.
 */
#ifndef MSCOPE_VIEWS_VIEW_H
#define MSCOPE_VIEWS_VIEW_H

#include "analysis/analyses.h"
#include "base/status.h"
#include "base/strbuf.h"
#include "replay/replay.h"
#include "sink/project.h"

#define VIEW_FILES_MAX 4u

struct view_file {
	struct strbuf text; /* not in the file yet */
	int fd;
	char path[PROJECT_PATH_MAX];
};

struct view;

/* Functions return 0 or a negative code, which ends the export; those that a view does not need are NULL. */
struct view_form {
	/* Ends of the files' names; as many as there are files. */
	const char *suffixes[VIEW_FILES_MAX];
	size_t state_bytes; /* zeroed memory of its own: view.state */
	/* Of the first pass, for what must be known before the second one begins. */
	int (*first_row)(struct view *view, const struct row *row);
	int (*begin)(struct view *view);
	int (*row)(struct view *view, const struct row *row);
	/* After the replay has taken it, and behind the rows that it makes. */
	int (*event)(struct view *view, const struct trace_event *event);
	int (*end)(struct view *view);
	void (*fini)(struct view *view);
};

struct view {
	const struct view_form *form;
	struct replay *replay; /* of the second pass */
	struct replay *first; /* of the first one, at the end of the run; has the lines of stacks */
	struct analyses *analyses; /* of the first one */
	struct view_file files[VIEW_FILES_MAX];
	size_t file_count;
	bool opened;
	void *state;
};

#define VIEW(number, symbol, word, table) extern const struct view_form table;
#include "base/views.def"
#undef VIEW

/* The view with this number, NULL when there is none. */
const struct view_form *view_get(uint32_t number);

/* Begins a view whose `form` is set, and nothing else; before the first pass. Needs view_close() in either case. 0 or -ENOMEM. */
int view_prepare(struct view *view);

/*
 * Makes the files `directory`/`stem`SUFFIX, with _2, _3, ... behind the stem where one of them is there already. The other pointers
 * of `view` are set by the caller. Needs view_close() in either case.
 */
int view_open(struct view *view, const char *directory, const char *stem, struct mscope_error *err);

int view_row(struct view *view, const struct row *row);
int view_event(struct view *view, const struct trace_event *event);

/* The run is at its end: writes the rest, and gives the files their names. */
int view_end(struct view *view, struct mscope_error *err);

/* Frees it; files that are not complete are removed. */
void view_close(struct view *view);

/* ---- for views ---- */

/* Writes out what a file has, once it is much. 0 or -errno. */
int view_flush(struct view_file *file);

/* The frames of a stack, innermost first, as replay_stack_lines(), without those of a recorder at its inner end. */
const struct stack_line *view_lines(const struct view *view, uint32_t stack, uint32_t *out_count);

/* Appends what a frame is called: its function, else its module and offset. */
void view_frame_name(const struct stack_line *line, struct strbuf *out);

/* "PTA device 0", "HOST". */
void view_pool_name(uint8_t pool, uint32_t device, struct strbuf *out);

/* The name of the program, or "" where the trace does not tell it. */
const char *view_program(const struct view *view);

#endif
