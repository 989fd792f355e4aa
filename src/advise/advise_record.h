/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run as advise needs it: when each block of a framework's pool came and went, who made and who saved it, and what the graph ran. Moments
 * are counted: each block that comes or goes and each record of the graph is one. Memory grows with events, about 100 bytes each.
 */
#ifndef MSCOPE_ADVISE_RECORD_H
#define MSCOPE_ADVISE_RECORD_H

#include "base/map.h"
#include "replay/replay.h"

#define ADVISE_NEVER SIZE_MAX
#define ADVISE_NONE  UINT32_MAX

/* What a pool of a framework holds on a device. */
struct advise_pool {
	uint8_t vendor, pool;
	uint32_t device;
	uint64_t peak; /* requested bytes, where the pool says them */
	size_t peak_at;
	uint64_t live;
};

struct advise_block {
	uint64_t bytes; /* requested, where the pool says it */
	size_t born, died;
	size_t used; /* when the last operator that used it had ended; ADVISE_NEVER: not known */
	uint32_t pool;
	uint32_t call; /* innermost module that ran when it was made; ADVISE_NONE */
	uint32_t tid;
	uint32_t stack;
	size_t dropped;	  /* the program has no variable of it any more; ADVISE_NEVER: not known */
	size_t complete;  /* of a gradient: when the last part of it had been added */
	uint64_t gone_in; /* number of the node that ran when it went, and 1; 0: none */
	uint32_t save;	  /* the first of those that saved it, linked; ADVISE_NONE */
	uint32_t touch;	  /* the latest of its touches, linked; ADVISE_NONE */
	uint8_t kind;	  /* enum owner_class when it went */
	uint8_t element_bytes; /* of a state of an optimizer; 0: unknown */
	bool cast;	       /* a copy of a weight in another type */
};

/* A node of the graph saved a block. */
struct advise_save {
	uint64_t node;
	uint64_t address;
	uint64_t bytes; /* of the tensor, which may be a part of the block */
	uint32_t block, next;
	bool result; /* its own operator made the block */
	size_t at;
};

/* A module was given a block, or gave it. */
struct advise_touch {
	uint32_t call, block, next;
	bool gives;
	uint32_t first; /* dimension; 0: unknown */
};

struct advise_module {
	char *layer;	  /* as in replay/owners.h; the next two point into it */
	const char *kind; /* its class; NULL: it is one of PyTorch's own without parts */
	const char *line; /* "file:line" that calls it */
	bool again;	  /* it is computed again in the backward pass already */
	bool compiled;	  /* torch.compile made it, or what is around it under the same name */
};

/* The forward pass of a module. Its nodes are those from `first_node` on, before `end_node`. */
struct advise_call {
	uint32_t module, parent, tid;
	uint64_t first_node, end_node;
	size_t start, end;
	uint64_t start_ns, end_ns;
	bool has_nodes;
};

struct advise_node {
	uint64_t number;
	size_t started; /* its operator; ADVISE_NEVER: not seen */
	size_t saved;	/* the last time that it saved something; ADVISE_NEVER: nothing */
	bool result;	/* it saved what its own operator made */
	size_t runs;	/* in a backward pass, for the first time; ADVISE_NEVER: it did not */
	uint32_t run;	/* the first of its runs, linked; ADVISE_NONE */
	size_t released;
};

/* A node runs in a backward pass: once, or with retain_graph in several. */
struct advise_node_run {
	uint32_t pass, next;
	size_t from;
	size_t computed; /* before its gradients are summed up over what was broadcast; ADVISE_NEVER: they are not */
	size_t to;
};

/* One moment: a block that comes or goes. Neither: something else. */
struct advise_moment {
	uint64_t time_ns; /* since the epoch */
	uint32_t block;
	bool comes;
};

struct advise_record {
	struct advise_pool *pools;
	size_t pool_count, pool_room;
	struct advise_block *blocks;
	size_t block_count, block_room;
	struct advise_save *saves;
	size_t save_count, save_room;
	struct advise_touch *touches;
	size_t touch_count, touch_room;
	struct advise_module *modules;
	size_t module_count, module_room;
	struct advise_call *calls;
	size_t call_count, call_room;
	struct advise_node *nodes; /* by number, once the record is complete */
	size_t node_count, node_room;
	struct advise_node_run *runs;
	size_t run_count, run_room;
	struct advise_moment *moments;
	size_t moment_count, moment_room;
	uint32_t *open; /* calls in progress */
	size_t open_count, open_room;
	size_t *zeroed; /* when gradients were set to zero */
	size_t zeroed_count, zeroed_room;
	char *zeroed_line; /* "file:line" of the first time; NULL: not known */
	struct {
		size_t at;
		uint32_t block;
	} * adds;
	size_t adds_count, adds_room;
	/* Sums of the backward pass that PyTorch does in place when it is not recorded: block `sum` is `of` then. */
	struct {
		uint32_t sum, of;
	} * sums;
	size_t sum_count, sum_room;
	uint32_t sum_of, sum_tid; /* a sum of this block and another starts, on a thread */
	bool summing, sum_own;
	struct {
		size_t at;
		uint64_t ns;
		uint32_t step; /* that have begun */
		uint32_t open; /* the one in progress then, as people count; 0: none */
	} * steps;
	size_t step_count, step_room;
	struct map by_id;     /* allocation id -> block */
	struct map by_layer;  /* hash of a layer -> module */
	struct map by_number; /* number of a node -> index, until the record is complete */
	uint64_t now_ns;      /* since the epoch */
	uint32_t running;     /* the node that the backward pass is in, ADVISE_NONE */
	uint32_t pass;	      /* how many backward passes have ended */
	uint32_t tid;	      /* the thread that ran modules */
	bool threads;	      /* several did */
	bool accesses;	      /* were recorded */
	/* Operators in progress, by thread, and what they use. */
	struct {
		uint32_t tid, depth;
	} * threads_open;
	size_t thread_count, thread_room;
	struct {
		uint32_t tid, block;
	} * uses;
	size_t use_count, use_room;
};

/* Both are for struct pass_setup; arg: the record. 0 or -ENOMEM. */
int advise_record_row(void *arg, struct replay *replay, const struct row *row);
int advise_record_event(void *arg, struct replay *replay, const struct trace_event *event);

/* After the last event. 0 or -ENOMEM. */
int advise_record_end(struct advise_record *record, struct replay *replay);
void advise_record_fini(struct advise_record *record);

/* The node with a number, or the next lower one that ran; NULL: none. */
const struct advise_node *advise_record_node(const struct advise_record *record, uint64_t number);

/* When the graph lets go of what a node has saved; ADVISE_NEVER: not in this record. */
size_t advise_record_release(const struct advise_record *record, uint64_t number);

/* The run of a node in a backward pass; NULL: there is none. */
const struct advise_node_run *advise_record_run(const struct advise_record *record,
						const struct advise_node *node, uint32_t pass);

/* The first backward pass, from one on, in which a node runs; ADVISE_NONE: there is none. */
uint32_t advise_record_pass(const struct advise_record *record, const struct advise_node *node,
			    uint32_t from);

/* When a node lets go of what a hook gives it in a backward pass: it has that no longer than it computes. */
size_t advise_record_unpacked(const struct advise_record *record, uint64_t number, uint32_t pass);

/* The first of these moments, which are in order, after another; ADVISE_NEVER: there is none. */
size_t advise_moment_after(const size_t *moments, size_t count, size_t after);

#endif
