/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the analysis of leaks keeps while a run is replayed. leaks.c fills it, leaks_findings.c judges it at the end, leaks_text.c tells
 * the result. Private to these three.
 *
 * Places are found by pool, device and stack id; without a stack by pool, device and size. Stacks that mean the same functions and
 * lines become one place at the end. Memory grows with distinct places and with blocks freed since a step ended, never with events.
 */
#ifndef MSCOPE_ANALYSIS_LEAKS_STATE_H
#define MSCOPE_ANALYSIS_LEAKS_STATE_H

#include "analysis/analyses.h"
#include "analysis/by_stack.h"
#include "analysis/forecast.h"
#include "analysis/leaks.h"

#define LEAKS_CACHE 512u /* entries, a power of two */

/* Pool and device. */
struct group {
	uint8_t pool;
	uint32_t device;
	uint32_t on;	      /* index of its device */
	bool handles;	      /* driver memory by handles, which has no address */
	bool framework;	      /* a framework's pool, which takes its memory from the driver */
	uint32_t sizes;	      /* its places without a stack */
	uint64_t end_bytes;   /* all memory of the pool when the last step ended */
	struct growth growth; /* of all its places together; without ages, which the places have */
};

struct place {
	struct growth growth;
	uint64_t size; /* without a stack: of its blocks, or the lower end of a class */
	uint32_t stack;
	uint32_t group : 31;
	uint32_t touched : 1; /* since the last step ended */
};

/* A block that was freed since a step ended last, and is older than its step. */
struct freed {
	struct leaks_block block;
	uint32_t place;
	uint32_t step; /* as leaks_step_of() says */
	uint32_t owner;
	uint32_t unused; /* as unused_of() says */
};

/* Smaller blocks are rounded by less than a kilobyte. */
#define ROUNDED_FROM (UINT64_C(1) << 20)

/*
 * What a pool gave beyond the request, where it says so: PyTorch leaves up to 1 MiB of a large block unused, now more and now less,
 * which hides growth by less. Growth is judged without it.
 */
static inline uint32_t unused_of(const struct block *block)
{
	uint64_t unused = block->size_bytes - block->requested_bytes;

	return block->requested_bytes == 0 || block->size_bytes < ROUNDED_FROM ||
			       unused > UINT32_MAX
		       ? 0
		       : (uint32_t)unused;
}

static inline uint64_t judged_bytes(const struct block *block)
{
	return block->size_bytes - unused_of(block);
}

/* A block of the driver that no block of a pool lay in so far. */
struct unclaimed {
	uint64_t address, end;
	uint64_t allocation_id;
	uint32_t place;
	uint32_t step;
};

struct device_state {
	uint32_t device;
	bool pooled; /* a framework's pool reports from it: its driver blocks are told apart */
	struct unclaimed *unclaimed; /* by address */
	size_t unclaimed_count, unclaimed_room;
	uint64_t claimed_bytes; /* live driver blocks that pools use */
	struct growth handles;	/* what the driver gave by handles less what pools hold */
	struct device_level level;
};

struct place_cache {
	uint64_t size;
	uint32_t stack, group;
	uint32_t place; /* + 1 */
};

/* The program asks what keeps its memory at 4, 8, 16, ... seconds: more pauses than these would take years. */
#define LEAKS_PAUSES 32u

/* The program stood still for us; by the real clock. */
struct leaks_pause {
	uint64_t from_ns, ns;
};

struct leaks {
	struct group *groups;
	size_t group_count, group_room;
	uint32_t *by_context; /* group + 1 of a context, 0: not known yet */
	size_t context_room;
	struct place *places;
	size_t place_count, place_room;
	struct by_stack by_stack; /* of places */
	struct place_cache cache[LEAKS_CACHE];
	uint32_t *touched;
	size_t touched_count, touched_room;
	struct freed *freed;
	size_t freed_count, freed_room;
	struct device_state *devices;
	size_t device_count, device_room;
	uint8_t *holds; /* by owner: 0 not looked at yet, 1 no, 2 yes */
	size_t holds_room;

	/*
	 * Steps, or equal parts of time until a step is marked. They count from the one in which the analysis began: step 1 is
	 * never judged, whatever the program calls it.
	 */
	bool by_step;
	bool contiguous; /* each step begins where the one before it ends */
	uint32_t offset; /* to add to get the program's own number */
	uint32_t now;	 /* step that a block allocated now belongs to */
	uint32_t ended;	 /* last ended step, 0: none */
	/*
	 * A step in which a request was refused may have been left early, without what it would have kept: its end counts once another
	 * step starts.
	 */
	bool refused;	  /* since a step ended last */
	uint32_t left;	  /* step whose end does not count yet, 0: none */
	uint64_t left_ns; /* when it ended */
	uint64_t start_ns, part_ns;
	uint64_t latest_ns; /* of the allocations; by time only */
	struct leaks_pause pauses[LEAKS_PAUSES];
	uint32_t pause_count;
	uint64_t last_end_ns;
	uint64_t lengths[64]; /* of every `stride`-th step, for the median */
	uint32_t length_count, stride, length_skipped;
};

/* The step that a block counts for: the first whose end could see it. */
uint32_t leaks_step_of(const struct leaks *leaks, const struct block *block);

/* The place of a live block; UINT32_MAX if it has none. */
uint32_t leaks_place_of(const struct leaks *leaks, const struct replay *replay,
			const struct block *block);

/* True if a live block of the driver is a pool's cache. */
bool leaks_is_claimed(const struct leaks *leaks, const struct group *group,
		      const struct block *block);

/* True if owners like this one hold their memory for the whole run. */
bool leaks_owner_holds(const struct replay *replay, uint32_t owner);

/* What pools hold from the driver on this device, all together; 0: none says so. */
uint64_t leaks_reserved(const struct replay *replay, uint32_t device);

/* The size of a class of sizes, as a place has it, has this bit. */
#define LEAKS_CLASS (UINT64_C(1) << 63)

/* Of what tells places apart; `size` counts without a stack. */
static inline uint64_t leaks_place_hash(uint32_t group, uint32_t stack, uint64_t size)
{
	uint64_t hash = ((uint64_t)group << 32 | stack) * UINT64_C(0x9e3779b97f4a7c15);

	return hash + (stack != 0 ? 0 : size * UINT64_C(0xd6e8feb86659fd93));
}

/* The place with this key; NULL if there is none. */
static inline const struct place *leaks_place_at(const struct leaks *leaks, uint32_t group,
						 uint32_t stack, uint64_t size)
{
	struct by_stack_search search =
		by_stack_search(&leaks->by_stack, stack, leaks_place_hash(group, stack, size));
	uint32_t at;

	while (by_stack_next(&leaks->by_stack, &search, &at)) {
		const struct place *place = &leaks->places[at];

		if (place->group == group && place->stack == stack &&
		    (stack != 0 || place->size == size))
			return place;
	}
	return NULL;
}

/* Frees everything; the state is a new one then. */
void leaks_clear(struct leaks *leaks);

/* analysis.keep. */
int leaks_keep(void *state, const struct replay *replay, struct words *words);

/* analysis.judge, analysis.text and analysis.json. */
int leaks_report(const void *state, struct replay *replay, struct findings *out);
int leaks_say(void *state, const struct analysis_view *view, struct strbuf *out);
int leaks_json(void *state, const struct analysis_view *view, struct json *json);

/* Judges at any moment; to be freed with leaks_findings_free(). `most`: places that are listed, by verdict. NULL: no memory. */
struct leaks_findings *leaks_judge(const struct leaks *leaks, struct replay *replay,
				   const size_t most[3]);

#endif
