/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one state machine: events of a run in time order go in, rows and the state of memory come out. A pure function of the
 * trace: the same events give the same rows, whether they come live or from a file that was packed long ago.
 *
 * It knows which blocks live, what each pool and device holds, which contexts and stacks the writers' numbers mean, and what is
 * loaded where. Memory grows with live blocks (about 100 bytes each, 30 more once addresses inside them are asked for), distinct stacks and threads, never with events.
 * One thread uses it at a time; no globals.
 */
#ifndef MSCOPE_REPLAY_REPLAY_H
#define MSCOPE_REPLAY_REPLAY_H

#include <stdbool.h>

#include "base/map.h"
#include "replay/calls.h"
#include "replay/facts.h"
#include "replay/operations.h"
#include "replay/owners.h"
#include "replay/python.h"
#include "replay/ranges.h"
#include "replay/stacks.h"
#include "replay/texts.h"
#include "replay/watches.h"
#include "symbols/elf_cache.h"
#include "trace/context.h"
#include "trace/run.h"

struct block {
	uint64_t address;
	uint64_t size_bytes;
	uint64_t allocation_id;
	uint64_t time_ns; /* monotonic, of its allocation */
	uint32_t context; /* index into replay.contexts */
	uint32_t stack;	  /* index into replay.stacks */
	uint32_t tid;
	uint32_t step;	   /* that had begun last when it was allocated, 0: none had */
	uint32_t inside;   /* step in which its allocation lies, 0: in none */
	uint32_t owner;	   /* of replay.owners, while owners are asked for */
	uint64_t launches; /* kernels launched before it was allocated */
	uint16_t undone;   /* frees of it that failed so far */
	bool shadow; /* allocated while only shadows were recorded, and no window has shown it since */
	bool outside; /* allocated while only shadows were recorded: nobody judges it, whoever shows it */
};

/* What one pool holds on one device. */
struct usage {
	uint8_t pool;
	uint32_t device;
	uint64_t live_bytes;
	uint64_t live_blocks;
	uint64_t peak_bytes;
	uint64_t peak_time_ns;
	uint64_t allocated_bytes; /* all that was ever handed out */
	uint64_t allocations;
	uint64_t frees;
	uint64_t
		reserved_bytes; /* what the pool says it holds from the driver; UINT64_MAX: it does not say */
};

/* The driver's own figures of a device, as last sampled. UINT64_MAX: unknown. */
struct driver_usage {
	uint32_t device;
	uint64_t process_bytes;
	uint64_t device_bytes;
	uint64_t total_bytes; /* of the device, 0: unknown */
};

/* A range named STEP_MESSAGE is a step; they count from 1. */
#define STEP_MESSAGE "step start"

/* Who tells steps: the first who does, for the whole run. */
enum step_source {
	STEPS_UNKNOWN,
	STEPS_RANGES, /* ranges named STEP_MESSAGE */
	STEPS_API,    /* step() of the API: each call ends a step, and the next one begins */
};

#define STEP_NO_RANGE UINT64_MAX /* the range of a step that step() ends */

struct open_step {
	uint64_t range;
	uint32_t step;
};

/* How a device's counter becomes our time. */
struct device_clock {
	uint32_t device;
	uint64_t time_ns;
	uint64_t counter;
	uint64_t frequency_hz;
};

enum row_group {
	ROW_GROUP_ALWAYS,
	ROW_GROUP_ALLOC,
	ROW_GROUP_FREE,
	ROW_GROUP_KERNEL,
	ROW_GROUP_OP,
	ROW_GROUP_ACCESS,
};

enum row_kind {
	ROW_NONE,
#define ROW(symbol, event, event_type, group) ROW_##symbol,
#include "replay/rows.def"
#undef ROW
	ROW_END
};

/* One line of memscope_dump, before a sink gives it a form. Pointers are borrowed for the call. */
struct row {
	uint64_t id;
	enum row_kind kind;
	uint64_t time_ns; /* wall clock */
	uint32_t pid;
	uint32_t tid;
	uint32_t writer; /* of the record, 0: there is none */
	const struct context *context;
	const char *name;     /* text of the column Name, NULL: none */
	uint16_t inefficient; /* of MALLOC: bits of enum inefficiency that an earlier pass found */
	const char *owner;    /* of MALLOC: whose memory it is, NULL: not asked for or nobody's */
	uint32_t stack;	      /* of this event */
	uint32_t step;	      /* in which it lies, 0: in none */
	bool shadow;	      /* made by us, or outside of any window: no statistics */
	bool late; /* told after it happened: only `step` is its own, not the steps that are open now */
	/* Of MALLOC, FREE and accesses. */
	const struct block *block; /* NULL: an access to what no live block contains */
	uint64_t address;	   /* the block's own, or the first byte that is accessed */
	/* Of MALLOC and FREE. */
	uint64_t used_bytes;	 /* live bytes of that pool and device, this event included */
	uint64_t reserved_bytes; /* as in struct usage */
	uint64_t process_bytes;	 /* as in struct driver_usage */
	uint64_t device_bytes;	 /* also of START_TRACE, with ... */
	uint64_t total_bytes;	 /* ... what the device has, 0: unknown */
	/* Of kernels. */
	uint32_t stream;
	uint32_t task;
	/* Of operators and their kernels, and of accesses. */
	enum layer layer;	   /* 0: the row is none of these */
	const char *path;	   /* NULL: the layer has no such paths */
	uint64_t workspace;	   /* address, 0: none */
	uint64_t size_bytes;	   /* of the workspace, or of what is accessed */
	const char *dtype, *shape; /* as the framework spells them, NULL: not told */
	const char *format;
};

/* What a trace does that a correct program's does not; shown by info. */
struct replay_oddities {
	uint64_t frees_unknown; /* of an address that no live block has */
	uint64_t allocs_over;	/* of an address that a live block has: its free was not seen */
	uint64_t undone_frees;
	uint64_t undone_unknown;
	uint64_t contexts_unknown; /* records whose context was never defined */
	uint64_t stacks_unknown;
	uint64_t kernels_unknown; /* executions without a launch */
	uint64_t bad_definitions; /* definitions that do not hold */
	uint64_t
		operations_unpaired; /* operators that ended without a begin, or did not end inside another */
};

struct replay_writer;
struct replay;

enum block_change {
	BLOCK_ADDED,	  /* usage counts it already */
	BLOCK_REMOVED,	  /* usage still counts it */
	BLOCK_RELABELLED, /* `owner` is the one that it had */
};

/*
 * Who looks on while a run is played: analyses. Told what happens to blocks, whether or not that is a row, then given the row;
 * told that a step begins before the row that begins it, and that it ended when it is open no more. Members may be NULL.
 */
struct replay_observer {
	void (*row)(void *arg, struct replay *replay, const struct row *row);
	void (*step)(void *arg, struct replay *replay, uint32_t step, bool begins);
	void (*block)(void *arg, struct replay *replay, enum block_change change,
		      const struct block *block, const struct usage *usage, uint32_t owner);
	/* The program chose other settings through the API. */
	void (*settings)(void *arg, struct replay *replay);
};

/* Where rows go. Returns 0 or a negative code, which replay_event() hands on. */
typedef int replay_row(void *arg, struct replay *replay, const struct row *row);

/* The same for dumps of watched memory, which are no rows. */
typedef int replay_dump(void *arg, struct replay *replay, const struct dump *dump);

struct replay {
	const struct run *run;			/* for clocks and identity; borrowed */
	replay_row *row;			/* NULL: nobody wants rows */
	replay_dump *dump;			/* NULL: nobody wants dumps */
	void *row_arg;				/* for both */
	const struct replay_observer *observer; /* NULL: nobody; borrowed */
	void *observer_arg;
	bool decompose;	     /* owners are asked for, replay_decompose() */
	bool show_owners;    /* and rows have them */
	struct facts *facts; /* facts found are put here, NULL: not; borrowed */
	const struct facts *
		known; /* facts of an earlier pass over the same trace, NULL: first pass; borrowed */
	uint32_t state;			/* enum recording as the trace tells it */
	uint32_t windows;		/* begun through the API */
	struct event_settings settings; /* chosen through the API, when `settings_count` is not 0 */
	uint32_t settings_count;	/* how often they changed */

	struct context *contexts; /* distinct ones; [0] is the unknown one */
	size_t context_count, context_room;
	struct map context_ids; /* writer, id -> index */
	struct modules modules;
	struct stacks stacks;
	struct map stack_ids; /* writer, id -> index */
	struct codes codes;
	struct map code_ids;	     /* writer, id -> index */
	struct python_place *places; /* room to define a stack */
	size_t place_room;
	struct block *blocks; /* slots; those in `live` count */
	size_t block_count, block_room;
	uint32_t *free_slots;
	size_t free_count, free_room;
	struct map live;      /* space, address -> slot */
	struct ranges ranges; /* the same blocks by address; kept once somebody asked */
	bool ranged;
	struct usage *usages;
	size_t usage_count, usage_room;
	struct driver_usage *drivers;
	size_t driver_count, driver_room;
	struct device_clock *clocks;
	size_t clock_count, clock_room;
	struct texts texts;  /* names and messages */
	struct map text_ids; /* writer, id -> offset */
	struct map
		launches; /* device, stream and task -> name and stream, of kernels that have not ended */
	struct map launch_steps; /* the same key -> step of the launch, of those inside one */
	struct owners owners;
	uint64_t launch_count;
	uint64_t operations[LAYER_END]; /* begun so far, by layer */
	struct open_step *open_steps;	/* ranges that are steps and have not ended, oldest first */
	size_t open_step_count, open_step_room;
	uint32_t steps;		       /* seen so far */
	uint8_t step_source;	       /* enum step_source */
	bool step_other;	       /* the other source was told about */
	bool steps_matter;	       /* set by the owner: rows are chosen by their step */
	struct replay_writer *writers; /* by writer number */
	size_t writer_room;
	struct watches watches;
	struct calls calls; /* whoever wants its rows sets its row function */
	char **notes;
	size_t note_count, note_room;

	uint64_t events;
	uint64_t events_by_type[256];
	uint64_t rows;
	uint64_t allocations;	 /* allocation ids given */
	uint64_t dropped_events; /* before a checkpoint */
	uint64_t checkpoint_ns;	 /* block events before it are in the checkpoint already */
	uint32_t
		as_writer; /* inside a checkpoint: whose definitions come, 0: the checkpoint's own */
	uint64_t threads;
	uint64_t first_ns, last_ns; /* monotonic */
	struct replay_oddities oddities;
};

/* `root` is where module paths begin, "" or "/proc/PID/root"; borrowed, as is `elves`. */
void replay_init(struct replay *replay, const struct run *run, struct elf_cache *elves,
		 const char *root);
void replay_fini(struct replay *replay);

/* Takes one event. 0, -ENOMEM, or what the row function returned. */
int replay_event(struct replay *replay, const struct trace_event *event);

/* Thread that a writer's records come from at present, 0: unknown. Writers are numbered from 1 to `writer_room` - 1 at most. */
uint32_t replay_writer_tid(const struct replay *replay, uint32_t writer);

/* The first device that the thread of a writer used, DEVICE_UNKNOWN: none so far. */
uint32_t replay_writer_device(const struct replay *replay, uint32_t writer);

/* Vendor of what was seen first. */
uint8_t replay_vendor(const struct replay *replay);

/* The trace has no more events: gives the rows of calls that never ended. */
int replay_end(struct replay *replay);

/*
 * The innermost operation of a layer that is open on the thread of a writer (as in row.writer), NULL: that thread is in none.
 * Borrowed until the next event.
 */
const struct open_operation *replay_operation(const struct replay *replay, uint32_t writer,
					      enum layer layer);

/*
 * The live block that a byte lies in; with DEVICE_UNKNOWN, of any device. A framework's block lies inside one of the driver and
 * is the answer then. NULL when there is none. The first call sorts the blocks; borrowed until the next event.
 */
const struct block *replay_block_at(struct replay *replay, uint32_t device, uint64_t address);

/* The latest text with a number that has the bit TEXT_ONCE, NULL when there is none. Borrowed until the next event. */
const char *replay_text_once(const struct replay *replay, uint32_t writer, uint64_t id);

/* Gives a row FREE, marked as made by us, for each live block, in the order of their allocation. The blocks stay alive. */
int replay_close_live(struct replay *replay);

/* Walks the live blocks in table order: start with *cursor = 0; NULL at the end. */
const struct block *replay_next_block(const struct replay *replay, size_t *cursor);

const struct context *replay_context(const struct replay *replay, uint32_t context);

/* Finds out from here on whose memory blocks are, also those that live already. 0 or -ENOMEM. */
int replay_decompose(struct replay *replay);

/* What the pool and device of a block hold. */
const struct usage *replay_usage(const struct replay *replay, const struct block *block);

/* True when a step has begun and not ended. */
bool replay_step_is_open(const struct replay *replay, uint32_t step);

/* True for what is taken from the driver itself, and is no pool of a framework. */
bool pool_is_driver(uint8_t pool);

/* "0" and so on, "cpu" for the host, "N/A" for unknown. */
void device_text(uint32_t device, char out[16]);

/* Text of a pool as files spell it. */
const char *pool_event_type(uint8_t pool);

/* Columns Event and Event Type of a row, and what filters know of it. */
const char *row_event(enum row_kind kind);
const char *row_event_type(const struct row *row);
enum row_group row_group(enum row_kind kind);

/* Whether a row has an address, which is what the column Ptr shows. */
static inline bool row_has_address(const struct row *row)
{
	enum row_group group = row_group(row->kind);

	return group == ROW_GROUP_ALLOC || group == ROW_GROUP_FREE || group == ROW_GROUP_ACCESS;
}

#endif
