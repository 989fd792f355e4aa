/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one run amounts to, for people and for scripts: identity, usage, what was alive at the end and where it came from, what
 * was lost, what it cost. The same facts as text (report.txt, end of a launch, `info`) and as JSON (`info --json`).
 */
#ifndef MSCOPE_SINK_REPORT_H
#define MSCOPE_SINK_REPORT_H

#include "analysis/alive.h"
#include "analysis/analyses.h"
#include "base/json.h"
#include "replay/replay.h"
#include "sink/project.h"

/* Groups of live blocks and frames of each that a detailed text shows; the JSON has all blocks. */
#define REPORT_GROUPS 10
#define REPORT_SITE   3	 /* frames of a block in such a list */
#define REPORT_LINES  20 /* of each list of an analysis, in a text without detail */
#define REPORT_FRAMES 8

struct report {
	struct replay *replay;	   /* at the end of the run */
	const char *trace_path;	   /* what was read, NULL: leave out */
	bool input_damaged;	   /* not all of what was read could become a run */
	bool from_dump;		   /* from rows of a dump, which say nothing of process and tool */
	bool detail;		   /* also identity, modules and figures of the tool itself */
	uint32_t groups;	   /* groups of live blocks shown in a text without detail, */
	uint32_t frames;	   /* and frames of each */
	struct analyses *analyses; /* whose results are part of it; NULL: none */
};

/* Puts report.txt into the project directory, which is made if no row has made it. */
int report_write(const struct report *report, struct project *project, struct mscope_error *err);

void report_text(const struct report *report, struct strbuf *out);
void report_json(const struct report *report, struct json *json);

/* "1.5 MiB" and the like. */
void report_size(struct strbuf *out, uint64_t bytes);

/* What was lost or is damaged, a line each; nothing when nothing was. */
void report_losses(const struct report *report, struct strbuf *out);

/* True when the process ended by itself, as far as the trace knows. */
bool report_is_closed(const struct report *report);

/* True when something of the trace is missing or did not hold: the answer then is exit code 3's. */
bool report_is_damaged(const struct report *report);

#endif
