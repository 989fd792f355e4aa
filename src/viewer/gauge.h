/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One process that is being recorded, as figures of now: read beside its engine (trace/run_observe.c), so nothing waits for us. What a
 * pool holds is known at once. A child of ours works out which call sites hold it and which of them leak, with the state of that
 * moment: to read names of code may take seconds, and keys must work meanwhile.
 *
 *     gauge_open()  ->  gauge_poll() again and again  ->  gauge_close()
 */
#ifndef MSCOPE_VIEWER_GAUGE_H
#define MSCOPE_VIEWER_GAUGE_H

#include <sys/types.h>

#include "analysis/growth.h"
#include "engine/live_run.h"
#include "engine/pass.h"
#include "symbols/elf_cache.h"

#define GAUGE_PLACES	40u  /* that are kept: leaks first, then those that hold most */
#define GAUGE_FORECASTS 16u  /* devices */
#define GAUGE_WHERE	240u /* bytes of a place's line */
#define GAUGE_LEVELS	11u  /* begins of steps that growth is seen over: ten steps */

enum gauge_state {
	GAUGE_RUNS,
	GAUGE_WAITS, /* it records nothing until the program calls start() */
	GAUGE_BLIND, /* it cannot be read before it ends */
	GAUGE_ENDED,
	GAUGE_LOST, /* it cannot be read further */
};

struct gauge_place {
	enum growth_verdict verdict; /* GROWTH_KEPT: nothing is said against it */
	enum severity severity;
	uint8_t pool;
	uint32_t device;
	uint64_t bytes, blocks;
	double growth_bytes; /* per step; of a leak or a suspect */
	bool frames;	     /* `where` is a row of frames: a stack was recorded */
	char where[GAUGE_WHERE];
};

/* A device that will be full, as far as leaks make it so. */
struct gauge_forecast {
	struct finding_forecast found;
	char sentence[GAUGE_WHERE + 160u];
};

/* What the child found. Lies in memory that it shares with us. */
struct gauge_judgement {
	bool judged;  /* something could be judged */
	bool by_time; /* there are no steps: growth is per part of the run */
	uint32_t forecast_count;
	struct gauge_forecast forecasts[GAUGE_FORECASTS]; /* the first that is full stands first */
	uint64_t leaks, suspects;
	uint64_t place_count; /* of all places that hold something */
	uint32_t kept;	      /* of `places` */
	uint32_t steps;	      /* that had begun by then */
	struct gauge_place places[GAUGE_PLACES];
};

/* A pool on a device: what usage does not tell. */
struct gauge_pool {
	uint64_t levels[GAUGE_LEVELS]; /* what it held when steps began, the latest last */
	uint32_t level_count;
	uint64_t allocations; /* at the last gauge_mark() */
	uint64_t bytes;	      /* the same of live bytes */
};

struct gauge {
	enum gauge_state state;
	struct live_run live;
	struct elf_cache elves;
	struct pass pass;
	struct event_settings settings;
	struct replay_choice choice;
	char *name; /* script or program */
	uint32_t pid;
	int64_t rank;	      /* -1: none */
	bool caught_up;	      /* what was there when it was opened has been read */
	uint64_t events_left; /* about */
	uint32_t step;
	struct gauge_pool *pools; /* by index of usage */
	size_t pool_count, pool_room;
	/* At the last gauge_mark(), for rates. */
	uint64_t mark_ns, mark_events;
	uint32_t mark_step;
	double seconds; /* between the last two */
	double events_rate, steps_rate;
	double *rates;	/* allocations per second, by index of usage */
	double *drifts; /* change of live bytes per second */
	size_t rate_count;
	/* The child. */
	pid_t judge;
	uint64_t judge_began_ns, judge_took_ns, judge_ended_ns;
	struct gauge_judgement *asked;	/* shared with the child */
	struct gauge_judgement *latest; /* the last that was answered; NULL: none yet */
	uint64_t judged_events;		/* events behind `latest` */
};

/*
 * Opens the trace `name` of the session directory `files`; `session` has its settings. 0, or a negative code said in `err`; needs
 * gauge_close() in either case. The gauge must not move.
 */
int gauge_open(struct gauge *gauge, const char *files, const char *name,
	       const struct session *session, struct mscope_error *err);
void gauge_close(struct gauge *gauge);

/* Reads on for up to so many events. `now_ns` as in run_poll(). True: there are more. */
bool gauge_poll(struct gauge *gauge, uint64_t now_ns, uint64_t most);

/* Ends a span of rates and begins the next. */
void gauge_mark(struct gauge *gauge, uint64_t now_ns);

/* Asks for places and verdicts, unless that is going on or was done a moment ago; with `wait` returns when they are there. */
void gauge_judge(struct gauge *gauge, bool wait);

/*
 * Everything that is found so far, on this process and not in a child: the analyses have ended then, and gauge_close() is all that may
 * follow. Call stacks of the first `frames`. Needs findings_fini() before that.
 */
void gauge_findings(struct gauge *gauge, size_t frames, struct findings *out);

/* What a pool holds now and has held at most, in windows and outside of them. */
uint64_t gauge_used(const struct usage *usage);
uint64_t gauge_peak(const struct usage *usage);

/* Growth of a pool by steps, bytes per step. False: there are not enough steps yet. */
bool gauge_growth(const struct gauge *gauge, size_t usage, double *out);

/* What the process has resident of the host's memory (RSS); 0: unknown, or it has ended. */
uint64_t gauge_resident(const struct gauge *gauge);

/* Events that were not recorded, and requests for memory that were refused. */
uint64_t gauge_lost(const struct gauge *gauge);
uint64_t gauge_refused(const struct gauge *gauge);

#endif
