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
#include "findings/findings.h"
#include "sink/report.h"

/* A pool on a device. */
struct digest_pool {
	uint8_t pool;
	uint32_t device;
	uint64_t peak_bytes, end_bytes, end_blocks;
	uint64_t requested_peak_bytes; /* see usage_requested_peak() */
	bool judged;		       /* the trend below is known */
	double growth_bytes;	       /* per step by the pool's trend; below 0 it shrinks */
	const char *trend;	       /* "grows", "may be growing" or "steady"; not owned */
};

/* A device that it used. */
struct digest_device {
	uint32_t device;
	uint64_t total_bytes; /* 0: unknown */
	char name[33];	      /* the product, "NVIDIA H200"; empty: unknown */
};

struct digest {
	uint32_t pid;
	int64_t rank, local_rank; /* -1: none */
	char *name;		  /* script or program */
	char *dry;		  /* device of a dry run; NULL: it is not one */
	uint64_t events;
	uint64_t steps;
	double seconds;
	bool automatic;	 /* the steps are those of an optimizer */
	uint32_t marked; /* steps that the program marked */
	bool snapshot; /* it is a snapshot of PyTorch: its steps are rounds of the same call sites */
	bool windowed; /* its end is the stop() of the last window */
	bool damaged, lossy, deferred;
	/* That killed it, as run_signal() names it; NULL: none, or unknown. Not owned. */
	const char *signal;
	enum process_verdict verdict; /* of `found` */
	/* What was found. `own` is NULL if the report had it already: then it lives as long as that. */
	const struct findings *found;
	struct findings *own;
	struct digest_pool *pools; /* largest peak first */
	size_t pool_count;
	uint64_t full_steps;	       /* until a device is full; UINT64_MAX: none will be */
	struct digest_device *devices; /* by number, those of the host not counted */
	size_t device_count;
	uint64_t memory_bytes; /* of the machine; 0: unknown */
	/* Whole lines. */
	struct strbuf not_judged;	  /* why nothing was judged */
	struct strbuf oom;		  /* what happened when memory ran out */
	struct strbuf oom_held;		  /* and who held it then */
	struct strbuf what_if;		  /* what other settings would do */
	struct strbuf devices_held;	  /* what each GPU held, a line each */
	struct strbuf gaps;		  /* fluctuation of pools, the compatible table */
	struct strbuf sections[ANALYSES]; /* of analyses that have a part of the screen */
	struct strbuf watched;		  /* watched blocks */
	bool overwritten;		  /* one of them changed, and nobody declared it */
	struct strbuf losses;		  /* what was lost or is damaged, and notes */
	uint32_t oom_count;
	bool oom_asked;	 /* the analysis of it was named */
	bool decomposed; /* owners were asked for */
	char *project;	 /* its directory, NULL: none */
	char *dumps;	 /* directory of watched memory, NULL: none */
	/* The process in the document of --summary-json; empty: not asked for. */
	struct strbuf json;
};

/* Fills `out`, which is zeroed, from a run at its end. Where memory is short, parts are missing. */
void digest_take(struct digest *out, const struct report *report);

/* The same without what was found: who it is, and how it ended. */
void digest_identify(struct digest *out, const struct report *report);
void digest_fini(struct digest *digest);

/* Whether an analysis has something for its part of the screen. */
bool digest_has_section(const struct digest *digest);

/* "train.py" from the command of an interpreter, else the name of the program; to be freed. NULL without memory. */
char *digest_name(const char *exe, const char *command, const char *lengths);

/* The name of a run; a worker that Python's multiprocessing spawned has that of the script. */
char *digest_run_name(const struct run *run);

/* The rank of a process as its launcher numbers it, -1 if it has none. */
int64_t digest_rank(const struct run *run, bool local);

#endif
