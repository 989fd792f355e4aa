/* SPDX-License-Identifier: Apache-2.0 */
/* What verbs say while and after they read a run: how far they are, and what of it could not be read. */
#ifndef MSCOPE_CLI_READING_H
#define MSCOPE_CLI_READING_H

#include "engine/input.h"

/* A line on the terminal that shows progress. */
struct reading {
	const char *word; /* what is read, as the user named it */
	const char *unit; /* what is counted: "rows" or "events" */
	int log_level;
	bool processes; /* dump files may have rows of several processes */
	bool shown;
};

/* Opens an input as input_open() does, and shows progress while dump files are read. */
int reading_open(struct reading *reading, struct input *input, struct mscope_error *err);

/* The processes that dump files have rows of, in the order of their first rows; none of a trace. */
struct reading_processes {
	uint32_t pids[IMPORT_PROCESSES_MAX];
	size_t count;
};

/* The same of one process, as input_open_process() does; which there are goes to `out`. */
int reading_open_process(struct reading *reading, uint32_t pid, struct input *input,
			 struct reading_processes *out, struct mscope_error *err);

/*
 * Calls `one` for the run that a word names, and where dump files have rows of several processes for each of them: it opens the run with
 * reading_open_process(), says what they are, and returns an exit code. Returns the worst.
 */
int reading_each(const char *word,
		 int (*one)(void *arg, const char *word, uint32_t pid,
			    struct reading_processes *out),
		 void *arg);

/*
 * A verb that answers about each run that its words name, from options->argv[first] on: opens it, lets `answer` have it, and says what of
 * it could not be read. The worst exit code.
 */
struct options;
typedef int reading_answer(void *arg, const char *word, struct input *input);
int reading_answers(const struct options *options, int first, reading_answer *answer, void *arg);

/* Shows that `count` units are done, on a terminal and unless the log level forbids it. `arg` is the struct reading. */
void reading_progress(void *arg, uint64_t count);

/* Removes the line. */
void reading_end(struct reading *reading);

/* Devices that analyses hear of: those that the options name, else those of the launch; NULL: it is unknown. */
struct pass_setup;
struct session;
void reading_choose_devices(const struct options *options, const struct session *launch,
			    struct pass_setup *setup);

/* Analyses and devices: those that are asked for, else those that the launch was asked for. */
void reading_choose(const struct options *options, struct pass_setup *setup);

/* Whether a run that was read is damaged; says what is made of it all the same: "what can be read is stored". */
struct replay;
bool reading_is_damaged(const struct reading *reading, const struct input *input,
			struct replay *replay, const char *what);

/* Warns of rows of dump files that were left out. True when some were damaged. */
bool reading_warn_rows(const struct reading *reading, const struct input *input);

#endif
