/* SPDX-License-Identifier: Apache-2.0 */
/* The judgement of leaks, who held the peaks, and what happened when memory ran out, as values of a process' document. */
#include "sink/report_findings.h"

#include "analysis/leaks.h"
#include "analysis/oom.h"
#include "analysis/peak.h"
#include "analysis/site.h"
#include "sink/project.h"

static const char *const verdicts[] = {
	[GROWTH_KEPT] = "kept", [GROWTH_SUSPECT] = "suspect", [GROWTH_LEAK] = "leak"};

static const char *const unjudged[LEAKS_UNJUDGED_END] = {[LEAKS_NO_STEP] = "no_step",
							 [LEAKS_OUTSIDE_WINDOW] = "outside_window",
							 [LEAKS_POOL_CACHE] = "pool_cache",
							 [LEAKS_HANDLES] = "handles",
							 [LEAKS_AFTER_LAST] = "after_last_step"};

static void json_pool(struct json *json, uint32_t device, uint8_t pool)
{
	char text[16];

	project_device_text(device, text);
	json_string(json, "device", text);
	json_string(json, "pool", pool_event_type(pool));
}

static void json_sentence(struct json *json, const char *key, struct strbuf *text)
{
	json_string(json, key, strbuf_str(text));
	strbuf_fini(text);
}

/* ---- leaks ---- */

static void json_examples(const struct leaks_place *place, struct json *json)
{
	uint32_t i;

	json_array(json, "examples");
	for (i = 0; i < place->example_count; i++) {
		const struct leaks_block *block = &place->list[i];
		struct strbuf address = {0};

		strbuf_add_hex(&address, block->address, 16);
		json_object(json, NULL);
		json_sentence(json, "address", &address);
		json_u64(json, "size", block->size_bytes);
		json_u64(json, "step", block->step);
		json_u64(json, "kernel", block->kernel);
		json_u64(json, "allocation_id", block->allocation_id);
		json_end(json);
	}
	json_end(json);
}

static void json_place(const struct report *report, const struct leaks_findings *findings,
		       const struct leaks_place *place, struct json *json)
{
	struct replay *replay = report->replay;
	struct strbuf sentence = {0};

	json_object(json, NULL);
	json_string(json, "verdict", verdicts[place->verdict]);
	json_pool(json, place->device, place->pool);
	json_string(json, "owner",
		    place->owner == 0 ? "" : replay_owner_text(replay, place->owner));
	json_u64(json, "blocks", place->blocks);
	json_u64(json, "bytes", place->bytes);
	json_u64(json, "leaked_blocks", place->verdict == GROWTH_LEAK ? place->list_count : 0);
	json_f64(json, "bytes_per_step", place->bytes_per_step, 1);
	json_f64(json, "bytes_per_step_low", place->bytes_low, 1);
	json_f64(json, "bytes_per_step_high", place->bytes_high, 1);
	json_f64(json, "blocks_per_step", place->blocks_per_step, 4);
	json_u64(json, "first_step", place->first_step);
	json_u64(json, "last_step", place->last_step);
	json_f64(json, "share", place->share, 4);
	if (place->full_steps > 0)
		json_u64(json, "steps_until_full", place->full_steps);
	leaks_place_sentence(findings, place, &sentence);
	json_sentence(json, "sentence", &sentence);
	site_json(replay, place->stack, "frames", json);
	json_examples(place, json);
	json_end(json);
}

static void json_judgement(const struct leaks_findings *findings, struct json *json)
{
	size_t i;

	json_object(json, "judgement");
	json_bool(json, "judged", findings->judged);
	json_bool(json, "clean", findings->clean);
	json_bool(json, "by_time", findings->by_time);
	json_u64(json, "last_step", findings->last_step);
	json_u64(json, "leaks", findings->leaks);
	json_u64(json, "suspects", findings->suspects);
	json_u64(json, "kept", findings->kept);
	json_array(json, "unjudged");
	for (i = 0; i < findings->unjudged_count; i++) {
		json_object(json, NULL);
		json_string(json, "reason", unjudged[findings->unjudged[i].reason]);
		json_pool(json, findings->unjudged[i].device, findings->unjudged[i].pool);
		json_u64(json, "blocks", findings->unjudged[i].blocks);
		json_u64(json, "bytes", findings->unjudged[i].bytes);
		json_end(json);
	}
	json_end(json);
	json_end(json);
}

static void json_places(const struct report *report, struct json *json)
{
	const struct leaks_findings *findings =
		report->analyses == NULL ? NULL : leaks_findings(report->analyses, report->replay);
	size_t i, most = report->shown.all ? SIZE_MAX : REPORT_PLACES_JSON, count = 0;

	if (findings == NULL)
		json_null(json, "judgement");
	else
		json_judgement(findings, json);
	json_array(json, "places");
	for (i = 0; findings != NULL && i < findings->place_count && count < most; i++) {
		json_place(report, findings, &findings->places[i], json);
		count++;
	}
	json_end(json);
}

/* ---- peaks ---- */

static void json_peak(const struct report *report, const char *key, const struct peak *peak,
		      struct json *json)
{
	struct replay *replay = report->replay;
	size_t i, most = report->shown.all ? SIZE_MAX : REPORT_PLACES_JSON;

	json_object(json, key);
	json_u64(json, "time_ns", run_wall_ns(replay_run(replay), peak->time_ns));
	json_pool(json, peak->device, peak->pool);
	json_u64(json, "bytes", peak->bytes);
	json_u64(json, "blocks", peak->blocks);
	json_u64(json, "step", peak->step);
	json_array(json, "places");
	for (i = 0; i < peak->place_count && i < most; i++) {
		const struct peak_place *place = &peak->places[i];
		struct strbuf text = {0};

		json_object(json, NULL);
		json_u64(json, "bytes", place->bytes);
		json_u64(json, "blocks", place->blocks);
		json_string(json, "owner",
			    place->owner == 0 ? "" : replay_owner_text(replay, place->owner));
		peak_place_text(replay, place, &text);
		json_sentence(json, "place", &text);
		site_json(replay, place->site, "frames", json);
		json_end(json);
	}
	json_end(json);
	json_end(json);
}

static void json_peaks(const struct report *report, struct json *json)
{
	struct peaks peaks = {0};

	if (report->analyses != NULL)
		(void)peaks_find(report->analyses, report->replay, &peaks);
	if (peaks.count == 0)
		json_null(json, "peak");
	else
		json_peak(report, "peak", &peaks.all[0], json);
	peaks_fini(&peaks);
}

/* ---- out of memory ---- */

static void json_ooms(const struct report *report, struct json *json)
{
	size_t count = 0, i;
	const struct oom_verdict *ooms =
		report->analyses == NULL ? NULL : analyses_ooms(report->analyses, &count);

	json_array(json, "oom");
	for (i = 0; ooms != NULL && i < count; i++)
		oom_json(report->replay, &ooms[i], json);
	json_end(json);
}

void report_findings_json(const struct report *report, struct json *json)
{
	json_places(report, json);
	json_peaks(report, json);
	json_ooms(report, json);
}
