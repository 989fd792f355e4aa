/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verdicts about call sites and pools, and why they were given. JSON has their words; the sentences are in sentences.c.
 */
#ifndef MSCOPE_FINDINGS_VERDICTS_H
#define MSCOPE_FINDINGS_VERDICTS_H

/* A process in one word: the worst that holds. */
enum process_verdict {
	VERDICT_NOTHING, /* nothing was looked for, or nothing could be judged */
	VERDICT_FINE,
	VERDICT_SUSPECT,
	VERDICT_LEAK,
	VERDICT_OOM,
	VERDICTS
};

/* How bad it is; colours mean it. */
enum severity {
	SEVERITY_NONE,
	SEVERITY_TITLE, /* a heading; no finding has it */
	SEVERITY_GOOD,
	SEVERITY_WARNING,
	SEVERITY_ERROR,
	SEVERITIES
};

enum growth_verdict {
	GROWTH_KEPT, /* of a pool: it is steady */
	GROWTH_SUSPECT,
	GROWTH_LEAK,
	GROWTH_VERDICTS
};

/* Why a verdict was given; the report has a sentence for each. */
enum growth_reason {
	GROWTH_FLAT,	/* kept: no rise after the first step */
	GROWTH_STOPPED, /* kept: it rose, and was quiet for much longer than ever between rises */
	GROWTH_IN_USE,	/* kept: all blocks are within the age at which this place frees */
	GROWTH_OWNED,	/* kept: weights and optimizer state are held for the whole run */
	GROWTH_BOUNDED, /* kept: in a container that is full and drops its oldest items */
	GROWTH_STAYS,	/* leak: blocks stay, step after step */
	GROWTH_CLIMBS, /* leak: the level climbs although blocks are freed, as when each replaces a smaller one */
	GROWTH_FORGETS, /* leak: the place frees within its step, but for some */
	GROWTH_ONCE,	/* suspect: one step of a place that frees within its step left something */
	GROWTH_SIZES, /* leak by a beat, else suspect: blocks of many sizes grow together, and no stack tells their places */
	GROWTH_TOO_SHORT, /* suspect: a rise, and too few steps to tell */
	GROWTH_FILLS,	  /* suspect: in a container that has a limit and has not reached it */
	GROWTH_RENEWED,	  /* suspect: the current value of one variable, larger each time */
	GROWTH_REASONS
};

/* Why memory was not judged. */
enum leaks_unjudged_reason {
	LEAKS_NO_STEP, /* no step after the first has ended, and the run is too short to judge it by time */
	LEAKS_OUTSIDE_WINDOW, /* allocated while recording was off */
	LEAKS_POOL_CACHE,     /* driver memory that a framework's pool took: see the pool */
	LEAKS_HANDLES,	      /* driver memory by handles; no pool tells how much of it it holds */
	LEAKS_AFTER_LAST,     /* allocated after the last step ended */
	LEAKS_POOL_UNSEEN, /* driver memory that may be of a framework's pool, which is not recorded */
	LEAKS_POOL_FOREIGN, /* a piece of a library's own pool, such as XLA's, which is never recorded */
	LEAKS_UNJUDGED_END
};

/* Why memory ran out. */
enum oom_cause {
	OOM_CAUSE_FULL,		 /* the program needs more than the device has; nothing grew */
	OOM_CAUSE_GROWTH,	 /* a place, or a pool, grew steadily */
	OOM_CAUSE_SPIKE,	 /* one request, or one step, asks for far more than all before */
	OOM_CAUSE_FRAGMENTATION, /* enough is free, in pieces that are too small */
	OOM_CAUSE_OUTSIDE,	 /* memory of the driver beside the pool */
	OOM_CAUSE_OTHERS,	 /* memory of other processes */
	OOM_CAUSE_WAITING,	 /* freed, and other streams still use it */
	OOM_CAUSE_PRIVATE,	 /* private pools keep it for themselves */
	OOM_CAUSES
};

/* Which moment of a device. */
enum device_when {
	DEVICE_FULLEST,	  /* most of the device was used, of all samples */
	DEVICE_POOL_PEAK, /* most of its largest pool was in use */
	DEVICE_REFUSED,	  /* memory ran out */
};

/* Parts of a device's memory, in the order in which they are shown: PART(ID, field of findings that have FINDING_PARTS). */
#define DEVICE_PARTS                                                                               \
	PART(POOLS, pools_bytes)                                                                   \
	PART(OUTSIDE, outside_bytes)                                                               \
	PART(KEPT, kept_bytes)                                                                     \
	PART(CONTEXT, context_bytes)                                                               \
	PART(CODE, code_bytes)                                                                     \
	PART(GRAPH, graphs_bytes)                                                                  \
	PART(OTHERS, other_processes_bytes)                                                        \
	PART(UNKNOWN, unknown_bytes)

enum device_part {
#define PART(id, field) PART_##id,
	DEVICE_PARTS
#undef PART
		PARTS_OF_DEVICE
};

/* "none", "ok", "suspect", "leak" or "oom", as the JSON document has it. */
const char *process_verdict_word(enum process_verdict verdict);

/* "none", "good", "warning" or "error". */
const char *severity_word(enum severity severity);

/* "leak", "suspect" or "kept"; of a pool "grows", "may be growing" or "steady". */
const char *verdict_word(enum growth_verdict verdict);
const char *trend_word(enum growth_verdict verdict);

/* Words of JSON: "stays", "climbs" and so on; "no_step", "outside_window" and so on. */
const char *reason_word(enum growth_reason reason);
const char *unjudged_word(enum leaks_unjudged_reason reason);

/* "growth", "spike" and so on. */
const char *oom_cause_text(enum oom_cause cause);

#endif
