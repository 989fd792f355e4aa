/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runs of one session directory: every trace in it gets a pipeline, and a check whether its process still lives. Shared by
 * engine/follow.c, which reads them while their processes run, and engine/recover.c, which finishes what was left behind.
 */
#ifndef MSCOPE_ENGINE_RUNS_H
#define MSCOPE_ENGINE_RUNS_H

#include "engine/host_memory.h"
#include "engine/pipeline.h"
#include "engine/traced_process.h"
#include "engine/session_place.h"
#include "symbols/elf_cache.h"

/* What the caller hears of them. Each function may be NULL. */
struct runs_ops {
	/* A run is finished (or could not be: see its errors). Borrowed for the call. */
	void (*finished)(void *arg, struct pipeline *pipeline);
	/* The files of a process that runs on are complete; as in struct pipeline_teller. */
	void (*tell)(void *arg, struct pipeline *pipeline, bool ends);
	void (*told)(void *arg, struct pipeline *pipeline, bool ends);
	void (*incomplete)(void *arg, const struct pipeline *pipeline,
			   const struct mscope_error *err);
	/* A process that runs on, each time that its events were read. */
	void (*living)(void *arg, struct pipeline *pipeline);
	/* Called now and then during long work; true: stop and leave things as they are. */
	bool (*progress)(void *arg, uint64_t events_left);
	/* Memory ran out in a process that still runs: whole lines for a person. */
	void (*out_of_memory)(void *arg, const struct pipeline *pipeline, const char *text);
	/* A device will be full: one sentence for a person. */
	void (*forecast)(void *arg, const struct pipeline *pipeline,
			 const struct finding_forecast *forecast, const char *text);
	/* The signal that killed a process which is gone; 0: none, or unknown. May be NULL. */
	uint32_t (*killed_by)(void *arg, uint32_t pid);
	/* A trace that cannot be read at all. */
	void (*unreadable)(void *arg, const char *path, const struct mscope_error *err);
	void *arg;
};

struct runs_result {
	uint32_t runs;	      /* finished */
	uint32_t failed;      /* with an error; what was recorded is kept where it is */
	uint32_t still_alive; /* processes that run on */
	bool interrupted;
};

struct session_run {
	struct pipeline pipeline;
	struct process process;
	char name[300];		 /* of the raw file */
	struct host_family host; /* memory of the host */
	uint32_t request;	 /* that waits for an answer, 0: none */
	uint32_t request_kind;
	bool done;
	bool sampled;	  /* it has the figures that it began with */
	bool uses_device; /* the driver was asked for its figures since */
};

struct runs {
	struct session_place *place; /* borrowed */
	bool live; /* their processes may be running: traces are read as they grow */
	struct runs_ops ops;
	struct runs_result result;
	/* Packed traces, and dumps and reports, of processes that have ended. */
	uint64_t finished_bytes, finished_dump_bytes;
	struct elf_cache elves;
	struct session_run **items;
	size_t count, room;
	char **refused; /* names of traces that could not be opened: reported once */
	size_t refused_count, refused_room;
};

void runs_init(struct runs *runs, struct session_place *place, bool live,
	       const struct runs_ops *ops);
void runs_fini(struct runs *runs);

/* Opens the traces that are new in the directory. 0 or -ENOMEM. */
int runs_scan(struct runs *runs);

/*
 * Whether its process may still write: what the process says, and where that is not known, whether the file is mapped. Unknown: yes,
 * but `otherwise` when it lives where we see nothing and its trace has no lock.
 */
bool runs_is_alive(struct session_run *item, bool otherwise);

/* Keeps the packed traces of all processes within the session's limit: the largest of those that grow lose their older part. */
void runs_keep_limit(struct runs *runs);

/* Completes the files of one run and reports it. False: the user does not want to wait. */
bool runs_finish(struct runs *runs, struct session_run *item);

#endif
