/* SPDX-License-Identifier: Apache-2.0 */
#include "sink/digest_findings.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/leaks.h"
#include "base/vendors.h"
#include "sink/screen_oom.h"
#include "trace/session.h"

#define TABLE 6 /* lines of another analysis' list */

/* Figures of pools that were judged. */
static void take_trends(struct digest *out)
{
	const struct findings *found = out->found;
	size_t k;

	FINDINGS_EACH (found, trend, trend) {
		for (k = 0; k < out->pool_count; k++) {
			struct digest_pool *pool = &out->pools[k];

			if (pool->pool != trend->pool || pool->device != trend->device)
				continue;
			pool->judged = found->judgement.judged;
			pool->growth_bytes = trend->bytes_per_step;
			pool->trend = trend_word(trend->trend);
		}
	}
}

static void take_leaks(struct digest *out, const struct report *report,
		       const struct analysis_view *view)
{
	const struct findings_judgement *judgement = &out->found->judgement;

	out->full_steps = UINT64_MAX;
	if (!judgement->asked || !replay_has_allocated(report->replay))
		return;
	FINDINGS_EACH (out->found, forecast, forecast) {
		if (forecast->full_step_low - forecast->step < out->full_steps)
			out->full_steps = forecast->full_step_low - forecast->step;
	}
	take_trends(out);
	if (!judgement->judged)
		analyses_text_of(report->analyses, ANALYSIS_ID_leaks, view, &out->not_judged);
}

/* The screen shows the last one in full: the program survived the earlier ones. */
static void take_ooms(struct digest *out, const struct report *report)
{
	size_t count = FINDINGS_COUNT(out->found, oom);

	out->oom_count = (uint32_t)count;
	out->oom_asked = (report->analyses->bits & SESSION_OOM) != 0;
	if (count == 0)
		return;
	screen_oom(out->found, &FINDINGS(out->found, oom)[count - 1], count - 1, &out->oom,
		   &out->oom_held);
}

/* Of GPUs, where people ask why the driver's figure and the framework's differ; report.txt has all devices. */
static void take_held(struct digest *out)
{
	FINDINGS_EACH (out->found, device_memory, device) {
		if (device->platform == VENDOR_CUDA)
			device_brief(out->found, device, &out->devices_held);
	}
}

void digest_take_findings(struct digest *out, const struct report *report)
{
	struct analysis_view view = {.replay = report->replay, .lines = TABLE, .frames = 1};
	size_t i;

	out->found = report->found;
	if (out->found == NULL) {
		out->own = calloc(1, sizeof(*out->own));
		if (out->own == NULL)
			return;
		out->found = report_judged(report, out->own);
	}
	view.found = out->found;
	out->verdict = out->found->verdict;
	what_if_lines(out->found, &out->what_if);
	if (report->analyses == NULL)
		return;
	out->decomposed = (report->analyses->bits & SESSION_DECOMPOSE) != 0;
	take_ooms(out, report);
	take_leaks(out, report, &view);
	take_held(out);
	if (report->analyses->bits & SESSION_LEAKS)
		analyses_text_of(report->analyses, ANALYSIS_ID_fluctuation, &view, &out->gaps);
	for (i = 0; i < ANALYSES; i++) {
		if (analysis_of((enum analysis_id)i)->section != NULL)
			analyses_text_of(report->analyses, (enum analysis_id)i, &view,
					 &out->sections[i]);
	}
}
