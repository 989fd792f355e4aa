/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one state machine: events of a run in time order go in, rows and the state of memory come out. A pure function of the
 * trace: the same events give the same rows, whether they come live or from a file that was packed long ago.
 *
 *     replay_new(&setup, &replay)      before the first event
 *     replay_observe()                 optional: an observer of blocks, rows and steps
 *     replay_event()                   each event of the run
 *     replay_end()                     once there are no more
 *     queries                          at any time between two events
 *     replay_free()
 *
 * It knows which blocks live, what each pool and device holds, which contexts and stacks the writers' numbers mean, and what is
 * loaded where. Memory grows with live blocks (about 100 bytes each, 30 more once addresses inside them are asked for), distinct
 * stacks and threads, never with events. One thread uses it at a time; no globals. Other folders include this header,
 * facts.h, figures.h, ooms.h and watches.h; state.h is for src/replay and its tests.
 */
#ifndef MSCOPE_REPLAY_REPLAY_H
#define MSCOPE_REPLAY_REPLAY_H

#include <stdbool.h>

#include "dump/format.h"
#include "replay/driver_pages.h"
#include "replay/owners.h"
#include "symbols/origin.h"
#include "trace/context.h"
#include "trace/run.h"

struct checkpoint;
struct dump;
struct elf_cache;
struct facts;
struct figures;
struct module;
struct oom;
struct strbuf;
struct watches;
struct words;
struct pack_writer;
struct replay;

/* ---- what comes out ---- */

struct block {
	uint64_t address;
	uint64_t size_bytes;
	uint64_t requested_bytes; /* what a pool was asked for; 0 if it does not tell */
	uint64_t allocation_id;
	uint64_t time_ns;	/* monotonic, of its allocation */
	uint64_t launches : 48; /* kernels launched before it was allocated */
	uint64_t undone : 16;	/* frees of it that failed so far */
	uint32_t context;	/* see replay_context() */
	uint32_t stack;		/* see replay_frames() and replay_places() */
	uint32_t tid;		/* thread that allocated it */
	uint32_t latest_step;	/* the latest step that had begun at its allocation; 0 if none */
	uint32_t alloc_step;	/* the step in progress at its allocation; 0 if none */
	uint32_t owner;		/* see replay_owner_text(); 0 unless owners are asked for */
	uint32_t place;		/* see replay_place(); 0 if the pool does not tell */
	uint8_t segment_of; /* pool that holds this block of the driver; 0 if none is known to */
	uint8_t space;	    /* of replay/live.h, with the next */
	bool keyed : 1;	    /* something else than its address gives it back */
	bool hidden : 1;    /* allocated outside of windows, and no row has shown it yet */
	bool outside_window : 1; /* allocated outside of windows: analyses do not judge it */
	bool after_end : 1; /* freed after the end of the program's own code: alive at the end */
};

/* For qsort() of pointers to blocks: in the order in which they were allocated. */
static inline int block_order(const void *a, const void *b)
{
	const struct block *x = *(const struct block *const *)a,
			   *y = *(const struct block *const *)b;

	return ORDER_UP(x->allocation_id, y->allocation_id);
}

/* For which stream and private pool a framework's pool keeps memory. */
struct pool_place {
	uint64_t stream;			/* the framework's number; POOL_STREAM_UNKNOWN */
	uint32_t private_first, private_second; /* both 0: of none; POOL_PRIVATE_UNKNOWN */
};

bool pool_place_is_private(const struct pool_place *place);

/* Memory that a framework's pool has from the driver. */
struct pool_segment {
	uint64_t address;
	uint64_t size_bytes;
	uint32_t usage;	      /* index of the pool among replay_usages(), + 1 */
	uint32_t place;	      /* see replay_place() */
	uint8_t driver_space; /* where the block of the driver lives that it made; 0: none */
};

/* What PyTorch's pool may take of a device. */
struct pool_share {
	uint32_t device;
	double fraction;       /* memory fraction in force; below 0: none was set */
	uint64_t device_bytes; /* memory of the device, as PyTorch counts it; 0: unknown */
	bool late;	       /* it was set when the pool had memory, or changed */
};

/* What PyTorch's pools were told besides requests. */
struct pool_facts {
	uint64_t release;   /* major << 32 | minor << 16 | patch; 0: unknown */
	char settings[512]; /* of the environment, then of calls */
	bool settings_known;
	bool changed; /* settings changed when the pool had memory */
	bool watched; /* each call of empty_cache() is in the trace */
	struct pool_share *shares;
	size_t share_count, share_room;
};

/* What one pool holds on one device. */
/* A pool and its device at the moment when most of the pool was in use. */
struct usage_peak {
	uint64_t reserved_bytes;  /* see usage_reserved() */
	uint64_t requested_bytes; /* what was asked for of what lived; 0: not known of all */
	uint64_t waiting_bytes, private_bytes;
	/* What the driver had given on that device, in whole pages, and what its own pools kept beside that; UINT64_MAX: unknown. */
	uint64_t driver_bytes, kept_bytes;
};

struct usage {
	uint8_t pool;
	uint8_t vendor; /* VENDOR_UNKNOWN: not told yet */
	uint32_t device;
	uint64_t live_bytes;
	uint64_t live_blocks;
	uint64_t peak_bytes;
	uint64_t peak_time_ns;
	uint64_t allocated_bytes; /* sum of all allocations */
	uint64_t allocations;
	uint64_t frees;
	uint64_t reserved_bytes; /* what the pool holds from the driver; UINT64_MAX if unknown */
	/* Of it, what the pool gave back since it last told a total. */
	uint64_t returned_bytes;
	uint64_t peak_reserved_bytes; /* the most of it; 0 if unknown */
	uint64_t end_bytes;	      /* these two by replay_usage_at_end() */
	uint64_t end_blocks;
	/* Of live_bytes: what lies in pools of the driver, and what moves between device and host as it is used. */
	uint64_t async_bytes, managed_bytes;
	int64_t outside_bytes;	/* what live_bytes lacks: since stop(), until the next start() */
	uint64_t highest_bytes; /* the most that was held, in windows and outside; for snapshots */
	/* Memory of a driver that counts whole pages: see driver_pages.h. */
	struct driver_pages pages;
	uint32_t driver; /* the device's entry of driver figures, from 1; 0: none */
	bool hidden;	 /* of a device that nothing asked for: the observer does not hear of it */
	/* What follows is known where the pool tells. */
	bool detailed;
	bool private_unknown;	       /* it does not tell which are of private pools */
	bool all_segments;	       /* it has told of every segment */
	uint64_t detailed_bytes;       /* of live_bytes, blocks whose requested size is known */
	uint64_t requested_bytes;      /* what was asked for of them */
	uint64_t requested_peak_bytes; /* the most of it */
	uint64_t waiting_bytes;	       /* freed by the program; other streams still use them */
	uint64_t waiting_blocks;
	uint64_t waiting_requested_bytes;
	uint64_t segment_bytes;	     /* segments that are known */
	uint64_t private_bytes;	     /* of these, of private pools */
	uint64_t private_live_bytes; /* of live_bytes, blocks in private pools */
	struct usage_peak at_peak;   /* of pools on devices */
};

/* Devices that a user asked for. Zeroed: all. */
struct replay_choice {
	bool some; /* the others count */
	bool host; /* tensors in host memory; with them, or where all devices are chosen, also pinned host memory */
	/* A bit for each, up to 31; all bits: every one. */
	uint32_t npus, gpus;
};

bool replay_choice_takes(const struct replay_choice *choice, uint8_t vendor, uint32_t device,
			 uint8_t pool);

/* The driver's own figures of a device, as last sampled. UINT64_MAX: unknown. */
struct driver_usage {
	uint32_t device;
	uint64_t process_bytes;
	uint64_t device_bytes;
	uint64_t total_bytes;  /* of the device, 0: unknown */
	uint32_t hal;	       /* the usage of the driver's memory there, from 1; 0: none */
	uint64_t others_bytes; /* what other processes use */
	uint64_t others;       /* how many of them */
	/* By enum driver_cost: what the driver is known to have taken for itself, and when it last did; 0: never. */
	uint64_t cost_bytes[COSTS];
	uint64_t cost_ns[COSTS];
	/* What the driver's pools of stream-ordered memory hold, live blocks included; and what memory nodes of graphs do. */
	uint64_t pools_bytes, graphs_bytes;
	char name[33]; /* the product, as its vendor calls it; empty: unknown */
};

_Static_assert(ROW_END <= 32, "a word has a bit for each kind of row");

/* One line of memscope_dump, before a sink gives it a form. Pointers are borrowed for the call. */
struct row {
	uint64_t id;
	enum row_kind kind;
	uint64_t time_ns; /* wall clock */
	uint32_t pid;
	uint32_t tid;
	uint32_t writer; /* of the record; 0 if there is none */
	const struct context *context;
	const char *name;     /* column Name; NULL if empty */
	uint64_t range;	      /* of RANGE_START and RANGE_END: its number */
	uint16_t inefficient; /* of MALLOC: bits of enum inefficiency that an earlier pass found */
	const struct pool_place *place; /* of MALLOC: NULL if the pool does not tell */
	const char *owner; /* of MALLOC: owner of the memory; NULL if unknown or not asked for */
	uint32_t stack;	   /* of this event */
	uint32_t step;	   /* the step it belongs to; 0 if none */
	bool shadow;	   /* made by the replay, or outside of any window: no statistics */
	bool late;	   /* published after it happened: `step` counts, not the open steps */
	/* Of MALLOC, FREE and accesses. */
	const struct block *block; /* NULL: an access to memory of no live block */
	uint64_t address;	   /* the block's own, or the first byte that is accessed */
	/* Of MALLOC and FREE. */
	uint64_t used_bytes; /* live bytes of that pool and device, this event included */
	/* As in struct usage; of a free by the driver, of the pool that had the block. */
	uint64_t reserved_bytes;
	uint64_t process_bytes; /* as in struct driver_usage */
	uint64_t device_bytes;	/* as in struct driver_usage; also of START_TRACE */
	uint64_t total_bytes;	/* of START_TRACE: as in struct driver_usage */
	/* Of kernels. */
	uint32_t stream;
	uint32_t task;
	/* Of operators and their kernels, and of accesses. */
	enum layer layer;	   /* 0: the row is none of these */
	const char *path;	   /* NULL: the layer has no such paths */
	uint64_t workspace;	   /* address, 0: none */
	uint64_t size_bytes;	   /* of the workspace, or of what is accessed */
	const char *dtype, *shape; /* as the framework spells them; NULL if unknown */
	const char *format;
	/* Of SNAPSHOT: what it shows, and the request that was refused; NULL if the program asked for it. Of OOM_TRIGGER: `oom` alone. */
	const struct figures *figures;
	const struct oom *oom;
	/* Of OOM_RECENT and OOM_TOP, with `block`. */
	const char *block_pool;
	uint64_t block_ns; /* wall clock */
	const char *dry;   /* the device of a dry run, set by the sink; NULL: a device was used */
};

/* One line of python_trace. Borrowed for the call. */
struct call_row {
	const char *prefix; /* "", "start: " or "stop: " */
	const char *text;
	uint64_t start_ns; /* monotonic, 0: unknown */
	uint64_t end_ns;
	uint32_t writer;
	uint32_t tid;
};

/* What a trace does that a correct program's does not; shown by info. */
struct replay_oddities {
	uint64_t frees_unknown; /* of an address that no live block has */
	uint64_t allocs_over;	/* of an address that a live block has: its free was not seen */
	uint64_t undone_frees;
	uint64_t undone_unknown;
	uint64_t contexts_unknown; /* records whose context was never defined */
	uint64_t stacks_unknown;
	uint64_t kernels_unknown;     /* executions without a launch */
	uint64_t bad_definitions;     /* malformed definitions */
	uint64_t operations_unpaired; /* ends without a begin, begins whose end is missing */
};

/* Counts over all events so far, those before a checkpoint included. */
struct replay_totals {
	uint64_t events;
	uint64_t dropped_events;      /* of these, events that the trace no longer has */
	uint64_t events_by_type[256]; /* by event number */
	uint64_t rows;
	uint64_t allocations; /* allocation ids handed out */
	uint64_t launches;    /* kernels */
	uint64_t threads;
	uint64_t operations[LAYER_END]; /* begun, by layer */
	uint64_t first_ns, last_ns;	/* monotonic */
	uint64_t windows;		/* begun through the API */
	struct replay_oddities oddities;
};

/* ---- setting up ---- */

/* Consumers of rows, dumps of watched memory, and Python calls. 0 or a negative code, which replay_event() returns. */
typedef int replay_row(void *arg, struct replay *replay, const struct row *row);
typedef int replay_dump(void *arg, struct replay *replay, const struct dump *dump);
typedef int replay_call(void *arg, struct replay *replay, const struct call_row *row);

/* Everything is borrowed until replay_free(). */
struct replay_setup {
	struct run *run;	 /* for clocks and identity */
	struct elf_cache *elves; /* files of modules */
	const char *root;	 /* where module paths begin: "" or "/proc/PID/root" */
	replay_row *row;	 /* these three may be NULL */
	replay_dump *dump;
	replay_call *call;
	void *arg;		   /* of the three */
	struct facts *facts;	   /* collects facts; NULL: facts are dropped */
	const struct facts *known; /* facts of an earlier pass over this trace; NULL: first pass */
	bool steps_matter;	   /* rows are filtered by step */
	uint32_t oom_top;	   /* blocks that analysis oom lists; 0: it is not asked for */
	struct replay_choice choice; /* devices that the observer hears of */
	bool follow_choice;	     /* what the program chooses takes its place */
	const uint32_t *steps;	     /* whose memory analysis decompose splits up */
	size_t step_count;
};

/* 0 or -ENOMEM. */
int replay_new(const struct replay_setup *setup, struct replay **out);
void replay_free(struct replay *replay);

enum block_change {
	BLOCK_ADDED,	  /* usage includes it already */
	BLOCK_REMOVED,	  /* usage still includes it */
	BLOCK_RESTORED,	  /* its free failed: it lives on, and usage includes it again */
	BLOCK_RELABELLED, /* `owner` is the previous one */
	BLOCK_SHOWN, /* allocated outside of windows; one begins, and rows show it from here on */
	BLOCK_CHANGES
};

/* Those that change what lives, or whose it is. */
#define BLOCK_CHANGES_ALL ((1u << BLOCK_SHOWN) - 1)

/*
 * The observer of a replay: analyses. It hears of each change of a block, whether or not that is a row, then of the row; of the
 * begin of a step before the row that begins it, and of its end when the step is no longer open. It names the rows and changes
 * that it wants; rows that nothing wants are counted and not made. Functions may be NULL where nothing is wanted.
 */
struct replay_observer {
	uint32_t rows;	 /* bits 1 << enum row_kind */
	uint32_t blocks; /* bits 1 << enum block_change */
	void (*row)(void *arg, struct replay *replay, const struct row *row);
	void (*step)(void *arg, struct replay *replay, uint32_t step, bool begins);
	/* New figures of the driver about a device came. */
	void (*sample)(void *arg, struct replay *replay, const struct driver_usage *driver);
	/* New figures came of a process that this one started, or of limits on the host. */
	void (*host)(void *arg, struct replay *replay, const struct trace_event *event);
	void (*block)(void *arg, struct replay *replay, enum block_change change,
		      const struct block *block, const struct usage *usage, uint32_t owner);
	/* Steps told so far were automatic, and the program has marked one now: they have never been. */
	void (*restart)(void *arg, struct replay *replay);
	/* The program chose other settings through the API. */
	void (*settings)(void *arg, struct replay *replay);
	/* A checkpoint is written: appends states by checkpoint_put_kept(); and gets them back when it is read. 0 or -ENOMEM. */
	void (*save)(void *arg, const struct replay *replay, struct checkpoint *cp);
	int (*load)(void *arg, struct replay *replay, const char *name, uint32_t version,
		    struct words *words);
};

/* In observer.save: appends what is kept under a name, whose form is `version`. */
void checkpoint_put_kept(struct checkpoint *cp, const char *name, uint32_t version,
			 const struct strbuf *state);

/* Sets the observer; both are borrowed. Its members may change while it is set. */
void replay_observe(struct replay *replay, const struct replay_observer *observer, void *arg);

/* Finds the owners of blocks from here on, also of those that live already. 0 or -ENOMEM. */
int replay_decompose(struct replay *replay);

/* Whether rows name the owner of their memory; needs replay_decompose(). */
void replay_show_owners(struct replay *replay, bool show);

/* ---- events ---- */

/* Takes one event. 0, -ENOMEM, or the code of a consumer. */
int replay_event(struct replay *replay, const struct trace_event *event);

/* The trace has no more events: publishes the Python calls that never ended, and gives back memory that only events need. */
int replay_end(struct replay *replay);

/* Publishes a row FREE, marked as made by the replay, for each live block in the order of allocation. The blocks stay alive. */
int replay_close_live(struct replay *replay);

/*
 * Writes a checkpoint, for --max-disk: replaces the packed trace at `path` by a new one that begins with the state of this replay,
 * and `*pack` by its writer. Chunks that were read to their end need not be kept; those that follow go on behind the checkpoint.
 * On failure both stay as they were. MSCOPE_E_VERSION: the trace is of another version, which has no such checkpoints.
 */
int replay_checkpoint(struct replay *replay, const char *path, struct pack_writer **pack,
		      struct mscope_error *err);

/* Records in the facts how a block was not used well: bits of enum inefficiency. */
void replay_learn_inefficient(struct replay *replay, const struct block *block, uint16_t bits);

/* ---- queries: results are borrowed until the next event ---- */

const struct run *replay_run(const struct replay *replay);
const struct replay_totals *replay_totals(const struct replay *replay);

/* Of the events those that are figures that the engine asked for. */
uint64_t replay_samples(const struct replay_totals *totals);

/* Kernels of GPUs whose launch was recorded, and not when they ran; launches into a graph count too. */
uint64_t replay_kernels_untimed(const struct replay *replay);

/* Vendor of the first device that was used; without one, of the first other context, or of what was asked for. */
uint8_t replay_vendor(const struct replay *replay);

/* The same while more may come: before a device was used, that of the devices that were asked for. */
uint8_t replay_likely_vendor(const struct replay *replay);

/* Something that a person should know, by index from 0; NULL at the end. */
const char *replay_note(const struct replay *replay, size_t index);

/* enum recording as the trace tells it. */
uint32_t replay_state(const struct replay *replay);

/* Settings chosen through the API, and how often they changed; the settings count only if that is not 0. */
const struct event_settings *replay_settings(const struct replay *replay);
uint32_t replay_settings_count(const struct replay *replay);

/* Thread that a writer's records come from at present; 0 if unknown. */
uint32_t replay_writer_tid(const struct replay *replay, uint32_t writer);

/* The first device that the thread of a writer used; DEVICE_UNKNOWN if none so far. */
uint32_t replay_writer_device(const struct replay *replay, uint32_t writer);

/* Distinct contexts; [0] is the unknown one. NULL while there are none. */
const struct context *replay_contexts(const struct replay *replay, size_t *out_count);
const struct context *replay_context(const struct replay *replay, uint32_t context);

/* What a record names, without counting what is unknown: its context, and the text with a number (NULL if undefined). */
const struct context *replay_event_context(const struct replay *replay,
					   const struct trace_event *event);
const char *replay_event_text(const struct replay *replay, const struct trace_event *event,
			      uint64_t id);

/* What a record `call` enters, as the Python trace shows it; NULL if it enters nothing, or that is unknown. Borrowed until the next call. */
const char *replay_event_call(struct replay *replay, const struct trace_event *event);

/* Texts of a keeper, in the order of the record. */
enum keeper_text {
	KEEPER_KIND,
	KEEPER_WHAT,
	KEEPER_NAME,
	KEEPER_ROOT,
	KEEPER_HOLDS,
	KEEPER_PATH,
	KEEPER_CURE,
	KEEPER_TEXTS
};

struct keeper {
	uint64_t address;    /* of the block that it was found for */
	uint64_t size_bytes; /* of the same */
	uint32_t stack;	     /* 0: none was recorded */
	uint32_t device;
	uint8_t pool;
	uint32_t newest_step; /* in which the block was allocated, as in struct block */
	uint32_t step;	      /* the latest that had begun when it was found */
	uint32_t tenths;      /* of a second into the run, when it was found */
	uint64_t items;
	uint64_t most; /* items that the container may have, 0: no limit is known */
	bool full;     /* the container drops an old item for each new one */
	bool renewed;  /* a variable whose new values are not made from its old ones */
	uint32_t held, looked;
	char *texts[KEEPER_TEXTS]; /* all in one allocation, that of the first */
};

/* Which Python objects keep blocks, as far as the process has found out; borrowed. */
const struct keeper *replay_keepers(const struct replay *replay, size_t *out_count);
/* When the process answered last, 0: never. It stood still until then. */
uint64_t replay_keeper_ns(const struct replay *replay);

/* Walks the live blocks in table order: start with *cursor = 0; NULL at the end. */
const struct block *replay_next_block(const struct replay *replay, size_t *cursor);
size_t replay_block_count(const struct replay *replay);

/* The blocks that an observer knows of: those that live; after stop(), those that lived at that moment. Walks the same way. */
const struct block *replay_next_observed(const struct replay *replay, size_t *cursor);
size_t replay_count_observed(const struct replay *replay);

/*
 * What the program held when its own code ended, before destructors, exit handlers and the interpreter freed the rest (ending.h).
 * Where the trace does not tell that moment it is the last event: the live blocks, and END_NONE. Walks as replay_next_block() does.
 */
enum end_kind replay_ended(const struct replay *replay);
uint64_t replay_end_ns(const struct replay *replay);
const struct block *replay_next_at_end(const struct replay *replay, size_t *cursor);
size_t replay_count_at_end(const struct replay *replay);
void replay_usage_at_end(const struct replay *replay, const struct usage *usage,
			 uint64_t *out_bytes, uint64_t *out_blocks);

/*
 * The live block that contains a byte; with DEVICE_UNKNOWN, of any device. A framework's block lies inside one of the driver and
 * is the answer then. NULL if there is none. The first call sorts the blocks.
 */
const struct block *replay_block_at(struct replay *replay, uint32_t device, uint64_t address);

/* What each pool holds on each device, and the entry of one block. */
const struct usage *replay_usages(const struct replay *replay, size_t *out_count);

/* Whether memory was allocated on a device that was asked for. */
bool replay_has_allocated(const struct replay *replay);
const struct usage *replay_usage(const struct replay *replay, const struct block *block);

/* The place of a block or segment; NULL for 0. */
const struct pool_place *replay_place(const struct replay *replay, uint32_t place);

/* What the pools of PyTorch were told; of a device, NULL if nothing was. */
const struct pool_facts *replay_pool_facts(const struct replay *replay);
const struct pool_share *replay_pool_share(const struct replay *replay, uint32_t device);

/* The driver's own figures of a device; NULL if there are none. */
const struct driver_usage *replay_driver_usage(const struct replay *replay, uint32_t device);

/* What the driver has given on a device that need not be there. */
uint64_t replay_driver_managed(const struct replay *replay, uint32_t device);

/* Of what the driver's pools hold on a device, what no block lives in. */
uint64_t replay_driver_kept(const struct replay *replay, uint32_t device);

/*
 * What the driver had given this process on a device, with what its pools keep, at a moment that is not known exactly: of the levels
 * since `since_ns` the one nearest to `wanted`. `*out_pools` is what pools of frameworks had reserved of it then.
 */
uint64_t replay_driver_level(const struct replay *replay, uint32_t device, uint64_t since_ns,
			     uint64_t wanted, uint64_t *out_pools);

/* The highest of these levels that is not above `most`; UINT64_MAX if there is none. */
uint64_t replay_driver_level_below(const struct replay *replay, uint32_t device, uint64_t since_ns,
				   uint64_t most);

/* What a framework's pool has from the driver; 0 for memory of the driver itself. */
uint64_t usage_reserved(const struct usage *usage);

/* What was asked for of all that lives in a pool; 0: not known of all. */
uint64_t usage_requested(const struct usage *usage);
/* The most that was asked for at once. It does not depend on what the pool had cached; of pools that do not tell, the peak of their blocks. */
uint64_t usage_requested_peak(const struct usage *usage);

/* Whether a framework has a pool whose blocks are not recorded: memory of the driver may be its. */
bool replay_has_unseen_pool(const struct replay *replay);

/* Text of block.owner, "" if unknown. False while owners are not asked for. */
const char *replay_owner_text(const struct replay *replay, uint32_t owner);

/* The same where people read it: "" unless owners are asked for or the user labelled the block. */
const char *replay_owner_shown(const struct replay *replay, uint32_t owner);

/* Whether the layer of any block is known. */
bool replay_has_layers(const struct replay *replay);

/* Which part of a model the memory of block.owner is (replay/owners.h), "" if unknown. */
const char *replay_owner_layer(const struct replay *replay, uint32_t owner);

/* The owner that has the text of block.owner and no layer: owners that differ only in layers have the same. */
uint32_t replay_owner_plain(const struct replay *replay, uint32_t owner);

/* Class of block.owner. What is decided by class asks here; texts hold labels of the user's own too. */
enum owner_class replay_owner_class(const struct replay *replay, uint32_t owner);
bool replay_is_decomposed(const struct replay *replay);

/* Steps that the setup names for analysis decompose. */
const uint32_t *replay_wanted_steps(const struct replay *replay, size_t *out_count);

/*
 * Steps that have begun, as analyses see them: marked by the program, else told by optimizers (automatic); those in progress by index from
 * 0, oldest first, 0 at the end.
 */
uint32_t replay_steps(const struct replay *replay);
uint32_t replay_open_step(const struct replay *replay, size_t index);
bool replay_step_is_open(const struct replay *replay, uint32_t step);
bool replay_steps_are_automatic(const struct replay *replay);

/* The same of marked steps alone: rows and what is chosen by steps know no others. */
uint32_t replay_marked_steps(const struct replay *replay);
uint32_t replay_marked_step(const struct replay *replay, size_t index);

/* An operation in progress. */
struct open_operation {
	uint8_t layer;	  /* enum layer */
	uint64_t number;  /* ordinal within its layer in this process, from 1 */
	uint32_t name;	  /* a text, as src/replay numbers them */
	uint64_t time_ns; /* monotonic */
};

/* The innermost operation of a layer in progress on the thread of a writer (as in row.writer); NULL if there is none. */
const struct open_operation *replay_operation(const struct replay *replay, uint32_t writer,
					      enum layer layer);

/* Whether the thread of a writer is in an operation of one of these layers: bits 1 << enum layer. */
bool replay_in_operation(const struct replay *replay, uint32_t writer, uint32_t layers);

/* A return address. */
struct frame {
	uint64_t address;
	uint64_t module; /* id, 0: unknown */
};

/* A place in a Python function: index of the function, byte offset of the instruction. */
struct python_place {
	uint32_t code;
	uint32_t offset;
};

/* One more than the highest number of a stack. */
size_t replay_stack_count(const struct replay *replay);

/* The C and the Python frames of a stack, innermost first; NULL if there are none. C frames have numbers; equal ones are one frame. */
const uint32_t *replay_frames(const struct replay *replay, uint32_t stack, uint32_t *out_count);
const struct frame *replay_frame(const struct replay *replay, uint32_t frame);
const struct python_place *replay_places(const struct replay *replay, uint32_t stack,
					 uint32_t *out_count);

/* Their texts: as backtrace_symbols() of glibc has them, and "file(line): function". Borrowed until the next call. */
const char *replay_frame_text(struct replay *replay, uint32_t frame);
const char *replay_place_text(struct replay *replay, const struct python_place *place);

/* A function in a call stack, as people read it: of a script, or of C with inlined functions as lines of their own. */
struct stack_line {
	const char *function; /* demangled; NULL if unknown */
	const char *file;     /* source file; NULL if unknown */
	const char *module; /* path of the file that holds the code; NULL of a script, or unknown */
	uint64_t offset;    /* of the instruction, as the module was linked; 0 of a script */
	uint32_t line;	    /* 0: unknown */
	bool script;	    /* a function of Python */
	enum origin origin; /* whose code it is */
};

/*
 * The C and Python frames of a stack in one, innermost first; NULL if there are none. What the trace does not tell of C frames is
 * read from the files of the modules, for all stacks at once (symbols/lines.h). Borrowed until the next call.
 */
const struct stack_line *replay_stack_lines(struct replay *replay, uint32_t stack,
					    uint32_t *out_count);

/* Whether it had more Python frames than were recorded. */
bool replay_stack_is_cut(const struct replay *replay, uint32_t stack);

/* The lowest stack with the same functions and lines; see sites.h. 0 for 0. */
uint32_t replay_site(struct replay *replay, uint32_t stack);

/*
 * Appends what kept lines from being found, a sentence and a newline each: debug information that could not be read, and modules of
 * the user's own that have none. Only what was asked for by then counts.
 */
void replay_line_notes(struct replay *replay, struct strbuf *out);

/* Takes a part of what is saved; a failure ends the saving. */
typedef int replay_put(void *arg, const struct strbuf *part);

/* Gives the text of every frame in the form that a packed trace keeps (PACK_FRAMES), part by part. 0, or what `put` returned. */
int replay_save_frames(struct replay *replay, replay_put *put, void *arg);

/* Modules that are or were loaded, in table order: start with *cursor = 0; NULL at the end. One by its id, or NULL. */
const struct module *replay_next_module(const struct replay *replay, size_t *cursor);
const struct module *replay_module(const struct replay *replay, uint64_t id);

/* A refused request that may still be tried again, if its last try was not later than `before_ns`. When that was; 0: there is none. */
uint64_t replay_open_oom(const struct replay *replay, uint64_t before_ns, uint32_t *out_writer);

const struct watches *replay_watches(const struct replay *replay);

/* True for memory of the driver itself, false for the pool of a framework. */
bool pool_is_driver(uint8_t pool);

/* True where the blocks are memory of tensors: the program can be asked what keeps them. */
bool pool_has_tensors(uint8_t pool);

#endif
