/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run as the page needs it: one pass over the trace keeps every block with its begin and end, and what each pool held at each
 * moment, in files without names (base/spool.h), so that any question about any moment is one scan of plain arrays. The replay and
 * the analyses stay open behind it: texts and findings come from them.
 *
 * Times are the wall clock's, as in the dump. Not thread-safe.
 */
#ifndef MSCOPE_VIEWER_MODEL_H
#define MSCOPE_VIEWER_MODEL_H

#include <sys/types.h>

#include "base/json.h"
#include "base/strbuf.h"
#include "engine/input.h"
#include "engine/live_run.h"
#include "engine/pass.h"
#include "symbols/elf_cache.h"
#include "viewer/history.h"
#include "viewer/value_line.h"

#define MODEL_ALIVE UINT64_MAX

/* By allocation id; one that is all zero was never seen. */
struct model_block {
	uint64_t start_ns;
	uint64_t end_ns; /* MODEL_ALIVE: it was not freed */
	uint64_t address;
	uint64_t size_bytes;
	uint64_t requested_bytes; /* what the pool was asked for; 0: it does not tell */
	uint32_t stack;
	uint32_t free_stack; /* 0: it was not freed, or without a stack */
	uint32_t owner;
	uint32_t operation; /* that it was allocated in, see history_name(); 0: none */
	uint32_t accesses;
	uint32_t tid;
	uint32_t step; /* the latest that had begun */
	uint32_t pool; /* index in model.pools, + 1 */
	/* See replay_place(); 0: the pool does not tell. Of a snapshot of PyTorch the context, whose flags are the stream. */
	uint32_t pool_place;
	bool outside; /* allocated while recording was off */
};

enum model_figure {
	MODEL_USED,	/* what its blocks hold */
	MODEL_RESERVED, /* what the pool has from the driver */
	MODEL_DEVICE,	/* what the driver says is used of the device, by anybody */
	MODEL_FIGURES,
};

struct model_pool {
	struct line lines[MODEL_FIGURES];
	uint8_t pool;
	uint32_t device;
	uint64_t peak_bytes, peak_ns;
	uint64_t total_bytes; /* of the device, 0: unknown */
	uint64_t blocks;
	bool hidden;	   /* of a device that nobody asked for */
	bool dropped_peak; /* it was before the part of the trace that is left: see model_cut.c */
};

struct model_step {
	uint64_t time_ns;
	uint32_t number;
};

/* Something that happened, as one line for people. */
struct model_marker {
	uint64_t time_ns;
	const char *kind; /* "oom", "mark" or "snapshot" */
	char *text;
};

struct model {
	const char *word;      /* what the user named */
	const char *directory; /* of the files without names */
	bool complete;	       /* the run is read to its end */
	bool is_live;	    /* its process is being recorded, and more may come; see model_live.c */
	bool caught_up;	    /* of what had come at the last look, all is read */
	uint64_t polled_ns; /* when that was */
	struct live_run live;
	struct model_found *found, *asked; /* findings so far, and where a child writes the next */
	pid_t judge;			   /* that child; 0: none */
	uint64_t judge_began_ns, judge_ended_ns, judged_events;
	struct mscope_error error; /* why it is not read further */
	struct input input;
	struct elf_cache elves;
	struct pass pass;
	struct spool blocks; /* struct model_block */
	struct history history;
	uint64_t block_count;
	struct line resident;	  /* what the process has in memory of the host (RSS) */
	struct model_pool *pools; /* by index of usage */
	size_t pool_count, pool_room;
	struct model_step *steps;
	size_t step_count, step_room;
	struct model_marker *markers;
	size_t marker_count, marker_room;
	/* Set after model_open(): times before the last start() of the program are left out. */
	bool last_window;
	bool ends_now; /* set after model_open(): of a run that goes on, what has come is all of it */
	uint64_t from_ns, to_ns;
	uint64_t cut_ns; /* where what --max-disk left of the trace starts; 0: the trace is whole */
	uint64_t events;
	/* The place of each stack, found when first asked for. */
	uint32_t *sites;
	size_t site_count, site_room;
	/* The first site that reads the same, of each. */
	uint32_t *places;
	size_t place_room;
	struct map place_names;
	/* Of each owner the first that reads the same: labels in another order, or of another thread, are owners of their own. */
	struct map owners, owner_texts;
	/* Of a run that is read to its end, made when first asked for. */
	struct leaks_findings *leaks;
	struct findings findings;
	bool judged;
};

/*
 * Opens the run that `word` names, of dump files the process `pid` or 0 for the first; both names are borrowed. 0, or a negative code said in `err`; needs model_close() in either case.
 * The model must not move.
 */
int model_open(struct model *model, const char *word, uint32_t pid, const char *directory,
	       struct mscope_error *err);
void model_close(struct model *model);

/*
 * Reads up to so many events more. Everything can be asked for meanwhile, of what has been read; findings come with the end. 0, or the
 * code of model->error: it is not read further.
 */
int model_read(struct model *model, uint64_t most);

/* ---- a run whose process is being recorded: model_live.c ---- */

/* Opens the run beside its engine if the word means one that is being recorded: 1; 0: it does not; or a negative code said in `err`. */
int model_live_open(struct model *model, const char *word, struct mscope_error *err);
void model_live_close(struct model *model);

/* Makes available what has come. 0 or a negative code; -ESTALE: the model has to be opened anew. */
int model_live_poll(struct model *model);

/* Whether it is time to look again. */
bool model_live_is_due(const struct model *model);

/* Says the findings of what had come a moment ago. False: there are none yet. */
bool model_live_findings(struct model *model, struct json *json);

/* ---- a trace whose oldest part was dropped: model_cut.c ---- */

/* Takes pools and live blocks of the checkpoint that the trace starts with, once it is loaded. 0, -ENOMEM or -ENOSPC. */
int model_take_checkpoint(struct model *model, struct replay *replay);

struct peaks;

/* Who held the peak of a pool whose blocks of that time were dropped, out of `peaks`, which needs peaks_fini(); NULL: it is not known. */
const struct peak *model_dropped_peak(struct model *model, const struct model_pool *pool,
				      struct peaks *peaks);

/* A block that stands for those of one holder of such a peak, for group_key(). */
struct peak_place;
struct model_block model_holder(const struct peak_place *place);

/* The pool with this index, new or known; NULL: no memory or disk. */
struct model_pool *model_pool_at(struct model *model, size_t index);

/* The block with this number, new or known; `start_ns` counts if it is new. NULL: no memory or disk. */
struct model_block *model_block_of(struct model *model, struct replay *replay,
				   const struct block *block, uint64_t start_ns);

/* Block by index from 0; NULL: there is none with this number. */
static inline const struct model_block *model_block(const struct model *model, uint64_t index)
{
	const struct model_block *block =
		(const struct model_block *)(const void *)model->blocks.data + index;

	return block->pool == 0 ? NULL : block;
}

/* Times go out from the begin of the run on: a browser's numbers have no room for more. */
static inline uint64_t model_since(const struct model *model, uint64_t time_ns)
{
	return time_ns > model->from_ns ? time_ns - model->from_ns : 0;
}

/* What the process has resident is shown with pools of the host. */
static inline const struct line *model_resident(const struct model *model,
						const struct model_pool *pool)
{
	return pool->device == DEVICE_HOST && model->resident.count > 0 ? &model->resident : NULL;
}

static inline bool model_lives(const struct model_block *block, uint64_t time_ns)
{
	return block->start_ns <= time_ns && block->end_ns > time_ns;
}

/* What leaks; NULL before the run is read to its end: asking ends the analysis. */
const struct leaks_findings *model_leaks(struct model *model);

/* Call sites of a list whose call stacks its findings have. */
#define MODEL_STACKS 20u

/* What people see of it, named and grouped as everywhere. NULL while the run is not read to its end. */
const struct findings *model_findings(struct model *model);

/* The highest peak of all pools. */
uint64_t model_highest(const struct model *model);

/* The name of a call site, as the findings have it. False if no stack was recorded. */
bool model_name(struct model *model, uint32_t stack, struct strbuf *out);

/* The latest step that had begun; 0: none. */
uint32_t model_step(const struct model *model, uint64_t time_ns);

/* The place of a stack (findings/site.h); 0 without a stack. */
uint32_t model_site(struct model *model, uint32_t stack);

/* The owner that stands for all with the same text. */
uint32_t model_owner(struct model *model, uint32_t owner);

/* The first owner with the same layer and class; of those without a layer, with the same class. */
uint32_t model_layer(struct model *model, uint32_t owner);

/* The first site whose name is the same: what a person takes for one call site. 0 without a stack. */
uint32_t model_place(struct model *model, uint32_t stack);

#endif
