/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One run from its raw trace to its files: a pass over its events (engine/pass.h), and the packed copy beside it. The same for
 * a process that is alive (engine/follow.c) and for one that was left behind (engine/recover.c).
 *
 *     pipeline_open()      once
 *     pipeline_step()      again and again while the process lives
 *     pipeline_finish()    when it does not: everything is read, files are complete, the packed trace is in its place
 *     pipeline_close()
 *
 * An error (full disk, no memory) stops the part that met it and is kept for the report; raw traces are only removed when
 * everything they hold is safe elsewhere.
 */
#ifndef MSCOPE_ENGINE_PIPELINE_H
#define MSCOPE_ENGINE_PIPELINE_H

#include <stdbool.h>

#include "analysis/forecast_watch.h"
#include "base/log.h"
#include "engine/pass.h"
#include "engine/session_place.h"
#include "engine/what_if_finding.h"
#include "sink/project.h"
#include "trace/pack.h"
#include "trace/sampler.h"

#define PIPELINE_FILE_MAX 4096
#define PIPELINE_DEVICES  64 /* devices of one machine whose usage is followed */

struct pipeline {
	const struct session *session; /* borrowed */
	/* As a person knows the files, and as they are opened: see session_place.files. */
	char raw_path[SESSION_PATH_MAX + 64];
	char raw_file[PIPELINE_FILE_MAX], part_file[PIPELINE_FILE_MAX];
	char root[64]; /* where the process sees its files */
	bool live;
	bool ending; /* the packed trace is whole */
	bool finished;
	bool empty;	       /* nothing was ever recorded: no files were made of it */
	bool settings_written; /* settings and log are in the project directory */
	struct run *run;
	struct pass pass;
	struct project project;
	struct log log; /* in the project directory once there is one */
	struct pack_writer *pack;
	struct mscope_error pack_error; /* first failure of the packed trace */
	struct mscope_error read_error; /* first failure of reading and replaying */
	/* Last figures put into the run, by device, the host last. */
	struct driver_usage sampled[PIPELINE_DEVICES + 1];
	uint64_t injected_ns;			/* when they were last made a chunk */
	bool named[PIPELINE_DEVICES];		/* the run has the product's name */
	bool sampled_new[PIPELINE_DEVICES + 1]; /* figures that no record has yet */
	uint64_t held_bytes;			/* the most that its pools have held of devices */
	uint64_t context_ns;			/* when a context of a device was made last */
	/* Bytes of the packed trace below which dropping older chunks would gain nothing. */
	uint64_t shrink_at;
	bool shrunk; /* they were: rows can no longer be made again */
	/* See dump_bound.h: bytes of the project, of those of other processes, and why rows are no longer written. */
	uint64_t dump_bytes, other_dump_bytes;
	struct mscope_error dump_stopped;
	uint32_t chunks_before; /* taken by writers at the last look, to know the pace */
	uint32_t chunks_ahead;	/* that are kept ready for them */
	/* See oom_watch.h: the last refused request that was ended, and verdicts that were told. */
	uint64_t oom_settled_ns;
	size_t ooms_said, ooms_written;
	struct forecast_watch forecast;
	uint64_t keepers_next_ns; /* see keeper_watch(); since the trace began */
	size_t keepers_told;	  /* answers of the process that the log has */
	struct what_if_asker what_if;
	/* How often pipeline_complete() was called, and what there was the last time. */
	uint32_t completions;
	uint64_t complete_rows, complete_events;
};

/* Lets a report of it say what other settings would have done; its trace must be whole. */
void pipeline_what_if(struct pipeline *pipeline, struct report *report);

/*
 * `name` is that of the raw file in the session's directory; it may be missing when only a packed part is left (it is then found
 * beside it). 0, or the code of run_open().
 */
int pipeline_open(struct pipeline *pipeline, const struct session_place *place,
		  struct elf_cache *elves, const char *name, bool live, struct mscope_error *err);

/*
 * Where the process with this number of ours sees its files: elsewhere than we do when it lives in a container of its own. 0: it is
 * not seen.
 */
void pipeline_find_root(struct pipeline *pipeline, uint32_t pid);

/* Reads what is new. `now_ns` as in run_poll(). Returns the number of events taken. */
uint64_t pipeline_step(struct pipeline *pipeline, uint64_t now_ns);

/* Bytes that its packed trace takes. */
uint64_t pipeline_disk_bytes(const struct pipeline *pipeline);

/* Drops the older part of its packed trace, which the files have. False: that would gain nothing, or failed. */
bool pipeline_shrink(struct pipeline *pipeline);

/* Number of a request of the process that waits for an answer, and enum trace_request; 0: none. To be asked before `now_ns` is read. */
uint32_t pipeline_request(struct pipeline *pipeline, uint32_t *out_kind);

/*
 * After a step: makes the files whole, with everything that came before the request. False: a writer is still in the middle of a
 * record, step again.
 */
bool pipeline_sync(struct pipeline *pipeline);
void pipeline_answer(struct pipeline *pipeline, uint32_t number);

/* Who hears of complete files. Each function may be NULL. */
struct pipeline_teller {
	/* In a process of its own that ends with the call, with the state as of the end: what this changes is lost. */
	void (*tell)(void *arg, struct pipeline *pipeline, bool ends);
	/* Then here. */
	void (*told)(void *arg, struct pipeline *pipeline, bool ends);
	/* A file that could not be completed; of the report in that process of its own. */
	void (*incomplete)(void *arg, const struct pipeline *pipeline,
			   const struct mscope_error *err);
	void *arg;
	bool ends; /* the program ends */
};

/*
 * For a child of the engine, which ends afterwards: the state as if the process had ended with what was read of it. Nothing is
 * written for it.
 */
void pipeline_end_here(struct pipeline *pipeline);

/* After pipeline_sync(): all files as if the process had ended here, the report and the packed trace too. */
void pipeline_complete(struct pipeline *pipeline, const struct pipeline_teller *teller);

/* True when nothing came since then that any file shows. */
bool pipeline_is_complete(const struct pipeline *pipeline);

/* True when not everything could be read or written. */
bool pipeline_has_failed(const struct pipeline *pipeline);

/*
 * True if its pools hold more of a device than ever when this was last asked, or a context was made since: the driver's figures have
 * changed. What a context takes is known only until the driver loads code into it.
 */
bool pipeline_has_grown(struct pipeline *pipeline);

/* Takes a figure of the driver: of a device (pid 0) or of this process on it. */
void pipeline_sample(struct pipeline *pipeline, const struct sampler_record *record,
		     uint64_t now_ns);

/* The same of all other processes together; `device` is the record of the device. */
void pipeline_sample_others(struct pipeline *pipeline, const struct sampler_record *device,
			    uint32_t processes, uint64_t bytes, uint64_t now_ns);

/* True when the run has used a device, so that the driver's figures are worth asking for. */
bool pipeline_uses_device(const struct pipeline *pipeline);

/* Called now and then with about how many events are left to be read; true: stop. */
typedef bool pipeline_left(void *arg, uint64_t events);

/* Reads the rest and completes all files. 0 or the first error, which is also kept. `left` may be NULL. */
int pipeline_finish(struct pipeline *pipeline, pipeline_left *left, void *arg);
void pipeline_close(struct pipeline *pipeline);

#endif
