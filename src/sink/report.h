/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one run amounts to, for people and for scripts: identity, usage, what was alive at the end and where it came from, what
 * was lost, what it cost. As text: report.txt and `info`; sink/report_json.h has the same facts as JSON, sink/screen.h shows the
 * most important ones at the end of a launch.
 */
#ifndef MSCOPE_SINK_REPORT_H
#define MSCOPE_SINK_REPORT_H

#include "analysis/alive.h"
#include "analysis/analyses.h"
#include "base/json.h"
#include "replay/replay.h"
#include "sink/project.h"

#define REPORT_STACKS  1000	  /* call sites of a list whose call stacks a document has */
#define REPORT_TOP     10	  /* entries of a list that `info` shows */
#define REPORT_PLACES  500	  /* entries of a list in report.txt */
#define REPORT_BLOCKS  100	  /* blocks of a place in report.txt */
#define REPORT_FRAMES  12	  /* of a call stack */
#define REPORT_WATCHED 3	  /* watched blocks on the screen */
#define REPORT_BYTES   (4u << 20) /* of report.txt at most */

/* What a dry run on this device, as its trace names it, does not see: a sentence. */
const char *report_dry_not_counted(const char *device);

enum report_order {
	REPORT_BY_BYTES,
	REPORT_BY_BLOCKS,
	REPORT_BY_STEP,
};

/* How much of it a text shows. Zeroed: as report.txt. */
struct report_shown {
	uint32_t top;	 /* entries of each list; 0: as report.txt */
	uint32_t blocks; /* of each place of held memory; with `top` 0 as report.txt */
	bool all;	 /* everything, whatever `top` and `blocks` say */
	enum report_order order;
	const uint32_t *steps; /* only blocks of these steps; NULL: of all */
	uint32_t step_count;
	bool by_device; /* of chosen devices alone */
};

struct report {
	struct replay *replay;	   /* at the end of the run */
	const char *trace_path;	   /* what was read, NULL: leave out */
	bool input_damaged;	   /* not all of what was read could become a run */
	bool runs;		   /* the process runs on */
	bool from_dump;		   /* from rows of a dump, which say nothing of process and tool */
	struct report_shown shown; /* of a text; of JSON only `all`: every held block */
	struct analyses *analyses; /* whose results are part of it; NULL: none */
	const struct findings *found; /* what they found; NULL: each renderer asks them again */
	/* Adds what only a second reading of the run tells (engine/what_if_finding.h); NULL: nothing does. */
	void (*late)(void *arg, struct replay *replay, struct findings *found);
	void *late_arg;
};

/* The findings of a report: `found`, else what its analyses find now, in `own`, which the caller ends with findings_fini(). */
const struct findings *report_judged(const struct report *report, struct findings *own);

/*
 * Puts report.txt and findings.json, the document of `info --json`, into the project directory, which is made if no row has made it.
 * Lists of a report.txt that would be too large are cut, and a note in it says so.
 */
int report_write(const struct report *report, struct project *project, struct mscope_error *err);

void report_text(const struct report *report, struct strbuf *out);

/* How much the analyses show of their lists. */
struct analysis_view report_view(const struct report *report, const struct findings *found);

/* The pools that are shown, by number of device; to be freed. NULL: no memory. */
const struct usage **report_pools(const struct replay *replay, size_t *out_count);

/* Nothing was asked for: neither a window nor what needs none, a trace of calls or a watch. */
bool report_is_empty_handed(const struct replay *replay);

/* What was lost or is damaged, a line each; nothing when nothing was. */
void report_losses(const struct report *report, struct strbuf *out);

/* True when the process ended by itself, as far as the trace knows. */
bool report_is_closed(const struct report *report);

/* True when something of the trace is missing or did not hold: the answer then is exit code 3's. */
bool report_is_damaged(const struct report *report);

#endif
