/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One pass over a run: its events go through the replay, the analyses hear of them, the sink writes what comes out, and facts
 * that come after their rows were written are kept for a second pass. The wiring is here and nowhere else; the live engine
 * (pipeline.c), export, info, selftest and --compare differ in the setup alone.
 *
 *     run_open()  ->  pass_open()  ->  pass_read() until no event is left, or pass_all()  ->  pass_close()  ->  run_close()
 *
 * Without a sink the events are replayed and analysed, and nothing is written. One thread; the pass must not move in memory
 * while it is open.
 */
#ifndef MSCOPE_ENGINE_PASS_H
#define MSCOPE_ENGINE_PASS_H

#include <stdbool.h>

#include "analysis/analyses.h"
#include "replay/facts.h"
#include "replay/replay.h"
#include "sink/sink.h"
#include "trace/session.h"

/* Pointers are borrowed until pass_close(), the names of directories only for pass_open(). */
struct pass_setup {
	struct run *run;
	struct elf_cache *elves;
	const char *root;  /* where the process sees its files: "/proc/PID/root"; NULL: as we do */
	uint32_t analysis; /* bits of enum session_analysis */
	struct event_settings settings; /* of these only what an analysis obeys counts */
	bool fixed_settings;		/* what the program chooses changes nothing of them */
	bool follow_analysis;		/* the program's own choice of analyses takes their place */
	struct sink_config sink;	/* what is written; no project: nothing */
	uint32_t oom_top;		/* blocks that analysis oom lists; 0: it is not asked for */
	struct replay_choice choice;	/* devices that analyses hear of */
	bool follow_choice;		/* as in struct replay_setup */
	/* Steps whose memory analysis decompose splits up, besides the peak and the end. */
	const uint32_t *steps;
	size_t step_count;
	bool unended; /* the process runs on: no row of its end, and no calls, which are in files of their own */
	bool close_live; /* --insight-close-live: blocks that were never freed get a row FREE */
	/* A failure of the files does not end the reading: rows are dropped from then on. See pass.sink_error. */
	bool survive_sink;
	const char *facts_directory; /* where facts that come late are kept; NULL: nowhere */
	const struct facts *known;   /* facts of an earlier pass; NULL: there was none */
	bool only_writes;	     /* no analysis looks on */
	bool steps_matter;	     /* `row` chooses by steps; the sink's choice is known */
	/* Called for each row, before the sink. 0 or a negative code, which ends the reading. May be NULL; `arg` is event_arg. */
	int (*row)(void *arg, struct replay *replay, const struct row *row);
	/* Called for each event, after the replay has taken it. 0 or a negative code, which ends the reading. May be NULL. */
	int (*event)(void *arg, struct replay *replay, const struct trace_event *event);
	void *event_arg;
	/* Called by pass_all() now and then with the number of events so far; true: stop. May be NULL. */
	bool (*progress)(void *arg, uint64_t events);
	void *progress_arg;
};

struct pass {
	struct pass_setup setup;
	struct replay *replay;
	struct analyses analyses;
	struct facts facts;
	struct sink *sink;
	struct mscope_error sink_error; /* first failure of the files */
	uint64_t kernel_rows;		/* launches that the trace has names for */
};

/* Rows that a session asks for. It is borrowed. */
struct row_filter pass_filter(const struct session *session);

/* Devices that a session asks for. */
struct replay_choice pass_choice(const struct session *session);

/* What a session asks to be written, and how, into `project`. Both are borrowed. */
struct sink_config pass_sink(const struct session *session, struct project *project);

/* On failure nothing is left open. */
int pass_open(struct pass *pass, const struct pass_setup *setup, struct mscope_error *err);

/* Takes up to `most` of the events that run_poll() has made available. 0 or the code of what failed. */
int pass_read(struct pass *pass, uint64_t most, uint64_t *out_count);

/* After the last event: publishes what only the end of the run decides, and gives back memory that only events need. */
int pass_end(struct pass *pass);

/* Files are written so far; with pass_sync() each of them is also whole by itself, as it would be at the end. */
void pass_flush(struct pass *pass);
void pass_sync(struct pass *pass);

/* Before a part of the trace is given up: its rows survive a kill. */
void pass_secure(struct pass *pass);

/* Completes the files; without `keep`, those of a replacing pass are removed. */
int pass_close_sink(struct pass *pass, bool keep, struct mscope_error *err);

/* Reads the run to its end and completes the files. -EINTR: stopped by `progress`. */
int pass_all(struct pass *pass, struct mscope_error *err);

/*
 * Writes the files of `first` once more, from `run`, with the facts that it found: over its files (`replace`), or because they are
 * gone. `first` is at its end and still open.
 */
int pass_again(const struct pass *first, struct run *run, bool replace, struct mscope_error *err);

void pass_close(struct pass *pass);

#endif
