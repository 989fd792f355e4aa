/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one finished process has to say to a person, as plain data: it outlives the replay, so that a summary of many processes
 * can be made when the last one has ended. digest_take() fills it; sink/screen.h shows it; --fail-on asks it.
 *
 * Every text is owned, UTF-8, without a newline; a `struct strbuf` holds whole lines.
 */
#ifndef MSCOPE_SINK_DIGEST_H
#define MSCOPE_SINK_DIGEST_H

#include <stdbool.h>

#include "base/strbuf.h"
#include "sink/report.h"

#define DIGEST_PLACES 64 /* kept of each verdict, the worst first; the counts are of all */
#define DIGEST_PEAK   3	 /* places shown at the peak of a pool */

enum digest_verdict {
	DIGEST_NOTHING, /* nothing was looked for, or nothing could be judged */
	DIGEST_FINE,
	DIGEST_SUSPECT,
	DIGEST_LEAK,
	DIGEST_OOM,
	DIGEST_VERDICTS
};

/* A pool on a device. */
struct digest_pool {
	uint8_t pool;
	uint32_t device;
	uint64_t peak_bytes, end_bytes, end_blocks;
	bool judged;	     /* the trend below is known */
	double growth_bytes; /* per step by the pool's trend; below 0 it shrinks */
	const char *trend;   /* "grows", "may be growing" or "steady"; not owned */
};

/* A place that leaks or may leak. */
struct digest_place {
	enum digest_verdict verdict; /* DIGEST_LEAK or DIGEST_SUSPECT */
	uint8_t pool;
	uint32_t device;
	uint64_t bytes, blocks;
	double growth_bytes; /* per step */
	char *where;	     /* one line that names the place; ranks are compared by it */
	char *sentence;	     /* its name, and what is known of it */
	char *known;	     /* the same without its name */
	char *kept_by;	     /* what keeps its blocks and the cure, whole lines; empty: unknown */
	char *direct;	     /* the compatible line of its first block; NULL if there is none */
};

/* A part of what a pool held at its peak. */
struct digest_holder {
	char *where;
	uint64_t bytes;
};

/* The peak of the pool that held most. */
struct digest_peak {
	uint8_t pool;
	uint32_t device;
	uint64_t bytes; /* 0: unknown */
	uint32_t step;	/* 0: outside of steps */
	struct digest_holder holders[DIGEST_PEAK];
	size_t holder_count, more; /* shown; further places */
};

/* Sum of the leaks of a device, for the compatible SUMMARY line. */
struct digest_device {
	uint32_t device;
	uint64_t bytes, blocks, places;
};

struct digest {
	uint32_t pid;
	int64_t rank, local_rank; /* -1: none */
	char *name;		  /* script or program */
	uint64_t events;
	uint64_t steps;
	double seconds;
	bool automatic; /* the steps are those of an optimizer */
	bool killed, damaged, lossy, deferred;
	/* That killed it, as run_signal() names it; NULL: none, or unknown. Not owned. */
	const char *signal;
	bool has_stacks;
	enum digest_verdict verdict;
	struct digest_pool *pools; /* largest peak first */
	size_t pool_count;
	struct digest_place *places; /* leaks first, largest rate first */
	size_t place_count;
	uint64_t leak_places, suspect_places; /* of all */
	uint64_t full_steps;		      /* until a device is full; UINT64_MAX: none will be */
	struct digest_device *devices;	      /* that have leaks */
	size_t device_count;
	struct digest_peak peak;
	/* Whole lines. */
	struct strbuf judged; /* what was looked at and is in order, or why nothing was judged */
	struct strbuf trends; /* growth of pools, a line each */
	struct strbuf oom;    /* what happened when memory ran out */
	struct strbuf devices_held; /* who has what of each GPU, a line each */
	struct strbuf gaps;	    /* fluctuation of pools, the compatible table */
	struct strbuf tables;	    /* results of other analyses */
	struct strbuf watched;	    /* watched blocks */
	bool overwritten;	    /* one of them changed, and nobody declared it */
	struct strbuf moments;	    /* which moment the end is, and who told the steps */
	struct strbuf losses;	    /* what was lost or is damaged, and notes */
	uint32_t oom_count;
	bool oom_asked; /* the analysis of it was named */
	char *project;	/* its directory, NULL: none */
	char *dumps;	/* directory of watched memory, NULL: none */
	/* The process in the document of --summary-json; empty: not asked for. */
	struct strbuf json;
};

/* Fills `out`, which is zeroed, from a run at its end. Where memory is short, parts are missing. */
void digest_take(struct digest *out, const struct report *report);
void digest_fini(struct digest *digest);

/* "none", "ok", "suspect", "leak" or "oom", as the JSON document has it. */
const char *digest_verdict_word(enum digest_verdict verdict);

/* "train.py" from the command of an interpreter, else the name of the program; to be freed. NULL without memory. */
char *digest_name(const char *exe, const char *command);

/* The rank of a process as its launcher numbers it, -1 if it has none. */
int64_t digest_rank(const struct run *run, bool local);

#endif
