/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A history as a program for the twin: requests have numbers, streams and private pools are lanes. It is made once and played
 * under many conditions, 16 bytes an event.
 */
#ifndef MSCOPE_TWIN_PROGRAM_H
#define MSCOPE_TWIN_PROGRAM_H

#include "twin/pool_history.h"
#include "twin/twin.h"

enum program_kind {
	PROGRAM_REQUEST,
	PROGRAM_ASK_FREE,
	PROGRAM_FREE,
	PROGRAM_EMPTY_CACHE,
	PROGRAM_GONE, /* the record gives a segment back here; only its own replay does the same */
	PROGRAM_MAPPED, /* the record maps memory here for a request that was then not served, or only after a retry; likewise */
	PROGRAM_POOL_UNUSED, /* of a lane */
	PROGRAM_TRY,	     /* the request that the record ends with, which was refused there */
};

struct program_event {
	uint64_t bytes;
	uint32_t id; /* of the request */
	uint32_t lane : 24;
	uint32_t kind : 8;
};

struct program_lane {
	uint64_t stream;
	uint64_t private_pool;
};

struct program {
	const struct pool_history *history; /* borrowed */
	struct program_event *events;
	size_t event_count, event_room;
	uint32_t *sources; /* of each event: its number in the history + 1; 0: older than it */
	size_t source_room;
	struct program_lane *lanes;
	size_t lane_count, lane_room;
	uint32_t request_count;
	size_t older_count; /* the first events: requests that are older than the record */
	uint64_t older_bytes;
	/* Most bytes whose free was asked for and not complete when a request came. */
	uint64_t waiting_peak;
	/* Requested bytes until the free is complete, as which waiting ones count too. */
	uint64_t alive_peak;
	uint64_t waiting_segments; /* what segments of their own would take for what waited then */
	uint64_t reserved_peak;	   /* of the record */
	bool ends_refused;
	/* A play begins with the segments that the record begins with, and older blocks as these conditions made them; NULL: it allocates them. */
	const struct twin_conditions *older_as;
	/*
	 * Where sizes are those of blocks, of each request how many bytes fewer it may have asked for: the pool does not split off what it
	 * hardly needs. Its replay fills it; NULL: the record has requests.
	 */
	uint32_t *slack;
};

/* Bit of a slack: a block of this size has been split off, so that another one is likely to be of the same tensor. */
#define PROGRAM_SLACK_UNLIKELY 1u

struct program_result {
	struct twin_figures figures;
	size_t refused_at; /* number in the history of the first refused request; SIZE_MAX: none */
	uint32_t refused_step;
	bool ties; /* the order of addresses decided at least once */
};

/* 0 or -ENOMEM; needs program_fini() in either case. `history` must outlive it. */
int program_make(struct program *program, const struct pool_history *history);
void program_fini(struct program *program);

/* The lane of a stream and private pool; TWIN_NONE: there is none. */
uint32_t program_lane_of(const struct program *program, uint64_t stream, uint64_t private_pool);

/*
 * The same with other requests within the slack: with 0 and 1 all as small as they may be, else by chance. Odd numbers leave sizes
 * alone whose slack is unlikely. Only its events are its own. 0 or -ENOMEM.
 */
int program_vary(const struct program *program, uint64_t seed, struct program *out);

/* How a play may differ from the record: when frees that waited are complete. */
enum program_waits {
	PROGRAM_AS_RECORDED,
	PROGRAM_AT_ONCE, /* when they are asked for */
	PROGRAM_LATER,	 /* after three times as many requests */
};

/* Plays it until its end, or until the first refused request if `stop` says so. 0 or -ENOMEM. */
int program_play(const struct program *program, const struct twin_conditions *conditions,
		 enum program_waits waits, bool stop, struct program_result *out);

/* What the pool reserves after each event of the history, of which `out` has as many, in a play with frees as recorded. 0 or -ENOMEM. */
int program_reserved(const struct program *program, const struct twin_conditions *conditions,
		     uint64_t *out);

/* Adds segments and blocks that are older than the record; `blocks` gets the numbers of the blocks. 0 or -ENOMEM. */
int program_add_older(const struct program *program, const struct twin_conditions *conditions,
		      struct twin *twin, uint32_t *blocks);

/* How a replay of the record itself compares. */
struct program_agreement {
	bool agrees;
	uint64_t addresses; /* compared and equal */
	size_t left_at; /* number in the history of the first event that differs; SIZE_MAX: none */
	uint64_t recorded, replayed; /* addresses there; 0: none */
	const char *why;
	struct twin_figures figures;
};

/* Plays the record under its own release and settings, with its segments where they were. 0 or -ENOMEM. */
int program_replay(const struct program *program, const struct twin_conditions *conditions,
		   struct program_agreement *out);

#endif
