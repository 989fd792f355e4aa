/* SPDX-License-Identifier: Apache-2.0 */
#include "sink/digest_findings.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/leaks.h"
#include "analysis/peak.h"
#include "analysis/site.h"
#include "sink/project.h"
#include "trace/session.h"

#define MIB	 1048576.0
#define TRENDS	 3 /* pools whose growth is told */
#define UNJUDGED 2 /* sentences about memory that was not judged */
#define TABLE	 6 /* lines of another analysis' list */

static char *take_text(struct strbuf *text)
{
	char *taken = strdup(strbuf_str(text));

	strbuf_fini(text);
	return taken;
}

static void take_leaks(struct digest *out, const struct report *report)
{
	struct analysis_view view = {.replay = report->replay, .lines = 3, .frames = 1};

	analyses_text_of(report->analyses, ANALYSIS_ID_leaks, &view, &out->judged);
	out->verdict = out->judged.length == 0			     ? DIGEST_NOTHING
		       : strstr(out->judged.data, "ERROR: ") != NULL ? DIGEST_LEAK
								     : DIGEST_FINE;
}

/* ---- the peak ---- */

static void take_peak(struct digest *out, const struct report *report)
{
	struct peaks peaks = {0};
	size_t i;

	if (peaks_find(report->analyses, report->replay, &peaks) < 0)
		return;
	if (peaks.count > 0 && peaks.all[0].bytes > 0) {
		const struct peak *peak = &peaks.all[0];

		out->peak = (struct digest_peak){.pool = peak->pool,
						 .device = peak->device,
						 .bytes = peak->bytes,
						 .step = peak->step};
		for (i = 0; i < peak->place_count && i < DIGEST_PEAK; i++) {
			struct strbuf where = {0};

			peak_place_text(report->replay, &peak->places[i], &where);
			out->peak.holders[i] = (struct digest_holder){
				.where = take_text(&where), .bytes = peak->places[i].bytes};
			out->peak.holder_count++;
		}
		out->peak.more = peak->place_count - out->peak.holder_count;
	}
	peaks_fini(&peaks);
}

void digest_take_findings(struct digest *out, const struct report *report)
{
	struct analysis_view view = {.replay = report->replay, .lines = TABLE, .frames = 1};

	if (report->analyses == NULL)
		return;
	take_leaks(out, report);
	take_peak(out, report);
	if (report->analyses->bits & SESSION_LEAKS)
		analyses_text_of(report->analyses, ANALYSIS_ID_fluctuation, &view, &out->gaps);
	analyses_text_of(report->analyses, ANALYSIS_ID_decompose, &view, &out->tables);
	analyses_text_of(report->analyses, ANALYSIS_ID_inefficient, &view, &out->tables);
}
