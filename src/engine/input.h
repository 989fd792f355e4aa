/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which recorded run a word on the command line means, for every verb, and how it is opened:
 *
 *     a packed or raw trace     a csv or db file of memscope_dump     a directory with such files or a trace.msc
 *     a project directory       a directory of results with exactly one project in it
 *
 * A trace is read as it is. Dump files become a temporary trace first (import/import.h), so every reader reads every input.
 */
#ifndef MSCOPE_ENGINE_INPUT_H
#define MSCOPE_ENGINE_INPUT_H

#include <limits.h>
#include <stdbool.h>

#include "import/import.h"
#include "sink/project.h"
#include "trace/run.h"

struct input {
	struct run *run;
	char found[PATH_MAX]; /* what was read: the file, or the directory of the files */
	char raw[PATH_MAX];   /* path of the raw trace; "": none */
	char pack[PATH_MAX];  /* path of the packed trace; "": none */
	bool unfinished;      /* a raw trace: `recover` has not made its files */
	bool imported;	      /* from dump files */
	struct import import; /* how that went */
	int import_fd;	      /* keeps the temporary trace; -1: none */
	bool anonymous;	      /* the temporary trace is one without names (anonymize.h) */
};

/* Called now and then with the rows of dump files that were read so far. */
typedef void input_progress(void *arg, uint64_t rows);

/*
 * Opens what `word` names; `progress` may be NULL. 0, or a negative code with a sentence in `err`; needs input_close() in either
 * case.
 */
int input_open(struct input *input, const char *word, input_progress *progress, void *arg,
	       struct mscope_error *err);
/* The same; dump files may have rows of several processes, which a comparison tells apart by their devices. */
int input_open_processes(struct input *input, const char *word, input_progress *progress, void *arg,
			 struct mscope_error *err);
/* The same of one process, where dump files have several, by its pid or 0 for the first; with the numbers of their rows. */
int input_open_process(struct input *input, const char *word, uint32_t pid,
		       input_progress *progress, void *arg, struct mscope_error *err);
/* One that is all zero was never opened, which is fine. */
void input_close(struct input *input);

/* Opens the same run once more, for a second pass; the caller closes it. */
int input_reopen(const struct input *input, struct run **out, struct mscope_error *err);

/* True when the input was unfinished, or dump files could not be read as a whole. Damage of a trace itself: run_damage(). */
bool input_is_damaged(const struct input *input);

/*
 * The output directory that the run's own results are in, where results of the same kind belong: above a project or session
 * directory, else the directory of the file itself. Absolute.
 */
int input_home(const struct input *input, char *out, size_t bytes, struct mscope_error *err);

/* "msmemscope_PID_STAMP", how the names of this run's results begin. */
void input_stem(const struct input *input, char out[PROJECT_STEM_MAX]);

/* A process of a launch of many, by the rank that its launcher gave it. */
struct input_rank {
	char *path; /* of its project */
	uint32_t rank;
};

/*
 * The ranks whose projects a directory holds, by number; none unless it holds several projects and each has a rank of its own.
 * 0 or -ENOMEM; the caller frees the paths and the array.
 */
int input_ranks(const char *word, struct input_rank **out, size_t *out_count);

/*
 * The processes whose projects a directory holds, by name; `rank` is the pid that the name has. None unless it holds several projects.
 * As input_ranks().
 */
int input_processes(const char *word, struct input_rank **out, size_t *out_count);

/* The exit code for an input that cannot be opened. */
int input_exit_code(int code);

#endif
