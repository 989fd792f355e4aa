/* SPDX-License-Identifier: Apache-2.0 */
/* The judgement of leaks, who held the peaks, and what happened when memory ran out, as values of a process' document. */
#include "sink/report_findings.h"

static void json_judgement(const struct findings *found, struct json *json)
{
	const struct findings_judgement *judgement = &found->judgement;

	if (!judgement->asked) {
		json_null(json, "judgement");
		return;
	}
	json_object(json, "judgement");
	json_bool(json, "judged", judgement->judged);
	json_bool(json, "clean", judgement->clean);
	json_bool(json, "by_time", judgement->by_time);
	json_u64(json, "last_step", judgement->last_step);
	json_u64(json, "leaks", judgement->leaks);
	json_u64(json, "suspects", judgement->suspects);
	json_u64(json, "kept", judgement->kept);
	findings_json(found, FINDING_unjudged, "unjudged", SIZE_MAX, json);
	json_end(json);
}

void report_findings_json(const struct report *report, struct json *json)
{
	size_t most = report->shown.all ? SIZE_MAX : REPORT_STACKS;
	const struct findings *found = report->found;

	json_judgement(found, json);
	findings_json(found, FINDING_trend, "trends", SIZE_MAX, json);
	findings_json(found, FINDING_place, "places", most, json);
	findings_json(found, FINDING_forecast, "forecasts", SIZE_MAX, json);
	findings_json(found, FINDING_what_if, "what_if", SIZE_MAX, json);
	findings_json(found, FINDING_host_process, "host_processes", SIZE_MAX, json);
	findings_json(found, FINDING_host_growth, "host_growth", SIZE_MAX, json);
	findings_json(found, FINDING_host_kill, "host_kills", SIZE_MAX, json);
	findings_json(found, FINDING_layer, "layers", SIZE_MAX, json);
	if (FINDINGS_COUNT(found, peak) == 0)
		json_null(json, "peak");
	else
		finding_json(found, FINDING_peak, FINDINGS(found, peak), "peak", most, json);
	/* The analysis itself has the list. */
	if (report->analyses == NULL) {
		json_array(json, "oom");
		json_end(json);
	}
}
