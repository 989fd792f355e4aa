/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the page asks, and the answers: JSON that fits the pixels it is for, however long the run is. The server answers over HTTP,
 * a report carries a few answers in its file; both come from here.
 */
#ifndef MSCOPE_VIEWER_ANSWERS_H
#define MSCOPE_VIEWER_ANSWERS_H

#include "base/json.h"
#include "viewer/model.h"

#define ANSWER_WIDTH_MAX  4096u
#define ANSWER_GROUPS	  12u	 /* that are told apart by colour; the rest is one */
#define ANSWER_RECTANGLES 20000u /* of one picture */
#define ANSWER_ROWS_MAX	  1000u	 /* of one page of the table */
#define ANSWER_LEAKS	  200u	 /* places */

enum answer_by {
	BY_OWNER,
	BY_LAYER, /* part of a model, with the class of its memory */
	BY_PLACE, /* as a person reads it: one line */
	BY_STACK, /* by all functions and lines */
};

/* What a tree of call stacks is made of. */
enum answer_what {
	OF_MOMENT, /* blocks that live at `at`; with `and` also at that one, side by side */
	OF_LEAKS,  /* blocks of places that are called leaks */
	OF_ALL,	   /* everything that was allocated */
	OF_PEAK,   /* as OF_MOMENT; `at` is the pool's peak, which may be older than the trace */
};

struct question {
	uint32_t pool; /* index */
	uint64_t from_ns, to_ns;
	uint32_t width;
	enum answer_by by;
	enum answer_what what;
	uint64_t at_ns, and_ns; /* 0: none */
	uint64_t block;		/* allocation id */
	/* The second moment's own run and pool; NULL: they are those of the first. */
	struct model *other;
	uint32_t other_pool;
	const char *text;  /* part of a place, an owner, an operator or a stack, NULL: any */
	const char *event; /* kind of the events, as in the dump, NULL: any */
	uint64_t least_bytes, most_bytes;
	uint64_t address; /* that a block has in it; 0: any */
	bool never_freed;
	uint32_t offset, count;
	bool by_time; /* the table is in the order of allocation, else largest first */
	bool brief;   /* the summary is one of very many */
};

/*
 * Who the process was, its pools, steps, marks and what was found; brief, as one of a thousand: without steps and ranges, and of marks
 * only what ran out of memory.
 */
void answer_summary(struct model *model, const struct question *question, struct json *json);

/* "PyTorch pool (PTA) on NPU 0", as the screen has it; "CPU tensors" says where they are. */
void answer_pool_name(const struct model *model, const struct model_pool *pool, const char *key,
		      struct json *json);

/* Up to `most` leaks and suspects as an array; `findings` may be NULL. Returns how many more there are. */
size_t answer_leaks(struct model *model, const struct findings *findings, const char *key,
		    size_t most, struct json *json);

/* Devices that will be full, as an array; `findings` may be NULL. */
void answer_forecasts(const struct findings *findings, const char *key, struct json *json);

/* What the pool held over time: least and most of each of `width` spans, reserved and device beside it, and split by groups. */
void answer_series(struct model *model, const struct question *question, struct json *json);

static inline const struct model_pool *question_pool(const struct model *model,
						     const struct question *question)
{
	return question->pool < model->pool_count ? &model->pools[question->pool] : NULL;
}

/* What the pool held at `at`, and by whom, exactly. */
void answer_moment(struct model *model, const struct question *question, struct json *json);

/* The same at `at` and `and`, side by side; groups of two runs are the same if their names are. */
void answer_difference(struct model *model, const struct question *question, struct json *json);

/* The moment from `from` to `to` at which the pool held most. */
void answer_highest(struct model *model, const struct question *question, struct json *json);

/* The pool at `at` by address: segments from the driver, the blocks in them, and the holes between these. */
void answer_segments(struct model *model, const struct question *question, struct json *json);

/* What a pool of PyTorch would reserve from `from` to `to` under other settings, best first; "refusal" says why that is not known. */
void answer_what_if(struct model *model, const struct question *question, struct json *json);

/* What a pool would hold from `from` to `to` after the best changes of the program; "refusal" says why that is not known. */
void answer_advise(struct model *model, const struct question *question, struct json *json);
/* Whether that may be asked about a pool. */
bool answer_has_advice(const struct model *model, size_t pool);

/* What was not used well, as `info` tells it. */
void answer_waste(struct model *model, const struct question *question, struct json *json);

/* Blocks as rectangles of time and address. */
void answer_blocks(struct model *model, const struct question *question, struct json *json);

/* A tree of call stacks, outermost first, as arrays; a node names its parent by index. */
void answer_tree(struct model *model, const struct question *question, struct json *json);

/* A page of a table of blocks. */
void answer_table(struct model *model, const struct question *question, struct json *json);

/* A page of what happened, in the order of the dump. */
void answer_events(struct model *model, const struct question *question, struct json *json);

/* Adds "segment" to an object: where the block lay at its allocation, and its neighbours there. */
void answer_neighbours(struct model *model, uint64_t id, struct json *json);

/* All about one block. */
void answer_block(struct model *model, const struct question *question, struct json *json);

#endif
