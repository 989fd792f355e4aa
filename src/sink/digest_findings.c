/* SPDX-License-Identifier: Apache-2.0 */
#include "sink/digest_findings.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/whole_device.h"
#include "analysis/leaks.h"
#include "analysis/oom.h"
#include "sink/project.h"
#include "trace/session.h"

#define TRENDS	 3 /* pools whose growth is told */
#define UNJUDGED 2 /* sentences about memory that was not judged */
#define TABLE	 6 /* lines of another analysis' list */

/* ---- leaks ---- */

static char *take_text(struct strbuf *text)
{
	char *taken = strdup(strbuf_str(text));

	strbuf_fini(text);
	return taken;
}

static struct digest_place take_place(const struct findings *found,
				      const struct finding_place *place)
{
	struct strbuf sentence = {0}, direct = {0};
	struct digest_place taken = {
		.verdict = place->verdict == GROWTH_LEAK ? DIGEST_LEAK : DIGEST_SUSPECT,
		.pool = place->pool,
		.device = place->device,
		.bytes = place->bytes,
		.blocks = place->blocks,
		.growth_bytes = place->bytes_per_step,
		.where = strdup(place->name),
	};

	place_line(found, place, &sentence);
	taken.sentence = take_text(&sentence);
	place_sentence(found, place, &sentence);
	taken.known = take_text(&sentence);
	keeper_lines(found, place, "  ", &sentence);
	taken.kept_by = take_text(&sentence);
	if (place->examples.count > 0) {
		leaks_direct_line(place, &FINDINGS(found, block)[place->examples.first], &direct);
		taken.direct = take_text(&direct);
	}
	return taken;
}

static struct digest_device *device_of(struct digest *out, uint32_t device)
{
	size_t i;

	for (i = 0; i < out->device_count && out->devices[i].device != device; i++)
		;
	if (i == out->device_count)
		out->devices[out->device_count++].device = device;
	return &out->devices[i];
}

static int most_bytes(const void *a, const void *b)
{
	const struct digest_device *x = a, *y = b;

	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	return x->device < y->device ? -1 : 1;
}

/* What the SUMMARY line of each device counts: the blocks that leak. */
static void take_devices(struct digest *out, const struct findings *found)
{
	size_t i;

	out->devices = calloc(FINDINGS_COUNT(found, place) + 1, sizeof(*out->devices));
	for (i = 0; out->devices != NULL && i < FINDINGS_COUNT(found, place); i++) {
		const struct finding_place *place = &FINDINGS(found, place)[i];
		struct digest_device *device;

		if (place->verdict != GROWTH_LEAK)
			break;
		device = device_of(out, place->device);
		device->places++;
		device->blocks += place->leaked_blocks;
		device->bytes += place->leaked_bytes;
	}
	if (out->device_count > 1)
		qsort(out->devices, out->device_count, sizeof(*out->devices), most_bytes);
}

static void take_places(struct digest *out, const struct findings *found)
{
	size_t i, suspects = 0, leaks = 0;

	out->places = calloc(2 * DIGEST_PLACES, sizeof(*out->places));
	for (i = 0; out->places != NULL && i < FINDINGS_COUNT(found, place); i++) {
		const struct finding_place *place = &FINDINGS(found, place)[i];
		size_t *count = place->verdict == GROWTH_LEAK ? &leaks : &suspects;

		if (place->verdict == GROWTH_KEPT || (*count)++ >= DIGEST_PLACES)
			continue;
		out->places[out->place_count++] = take_place(found, place);
	}
	out->leak_places = leaks;
	out->suspect_places = suspects;
	out->has_stacks = found->judgement.has_stacks;
}

/* Trends of pools: figures of all, sentences of those that grow most. */
static void take_trends(struct digest *out, const struct findings *found)
{
	const struct finding_trend *trends = FINDINGS(found, trend);
	bool told[64] = {false};
	size_t i, k, shown, count = FINDINGS_COUNT(found, trend);

	for (i = 0; i < count; i++) {
		for (k = 0; k < out->pool_count; k++) {
			struct digest_pool *pool = &out->pools[k];

			if (pool->pool != trends[i].pool || pool->device != trends[i].device)
				continue;
			pool->judged = found->judgement.judged;
			pool->growth_bytes = trends[i].bytes_per_step;
			pool->trend = trend_word(trends[i].trend);
		}
	}
	for (shown = 0; shown < TRENDS && found->judgement.judged; shown++) {
		const struct finding_trend *most = NULL;

		for (i = 0; i < count && i < MSCOPE_COUNT(told); i++) {
			if (!told[i] && trends[i].trend != GROWTH_KEPT &&
			    (most == NULL || trends[i].bytes_per_step > most->bytes_per_step))
				most = &trends[i];
		}
		if (most == NULL)
			break;
		told[most - trends] = true;
		trend_sentence(found, most, &out->trends);
		strbuf_add_char(&out->trends, '\n');
	}
}

static bool any_pool_grows(const struct findings *found)
{
	size_t i;

	for (i = 0; i < FINDINGS_COUNT(found, trend); i++) {
		if (FINDINGS(found, trend)[i].trend != GROWTH_KEPT)
			return true;
	}
	return false;
}

/* What was looked at, and what was not. */
static void take_judged(struct digest *out, const struct findings *found)
{
	const struct findings_judgement *judgement = &found->judgement;
	uint64_t sites = judgement->leaks + judgement->suspects + judgement->kept;
	const char *step = step_word(found);
	bool clean = judgement->clean && out->oom_count == 0;
	struct strbuf *text = &out->judged;
	size_t i, shown = 0;

	/* Where memory ran out, growth ended because of that. */
	if (clean && judgement->last_step == judgement->first_step)
		strbuf_addf(text, "No leak was found in %s %u.", step, judgement->last_step);
	else if (clean)
		strbuf_addf(text, "No leak was found in %ss %u to %u%s.", step,
			    judgement->first_step, judgement->last_step,
			    judgement->by_time ? " of the run" : "");
	else if (judgement->leaks + judgement->suspects == 0 && !judgement->clean)
		strbuf_add_str(text, "No call site leaks, but not all memory is steady or judged.");
	else
		strbuf_addf(text, "Judged: %ss %u to %u.", step, judgement->first_step,
			    judgement->last_step);
	strbuf_addf(text, " %llu call %s checked; %s 1 counts as warm-up.\n",
		    (unsigned long long)sites, sites == 1 ? "site" : "sites", step);
	for (i = 0; i < FINDINGS_COUNT(found, unjudged) && shown < UNJUDGED; i++) {
		if (FINDINGS(found, unjudged)[i].reason == LEAKS_POOL_CACHE)
			continue;
		unjudged_sentence(&FINDINGS(found, unjudged)[i], text);
		strbuf_add_char(text, '\n');
		shown++;
	}
	if (judgement->leaks + judgement->suspects > 0 && !out->has_stacks)
		strbuf_add_str(text,
			       "(run again with --call-stack=c to see where they come from)\n");
}

static void take_leaks(struct digest *out, const struct report *report,
		       const struct findings *found)
{
	const struct findings_judgement *judgement = &found->judgement;
	struct analysis_view view = {
		.replay = report->replay, .found = found, .lines = TABLE, .frames = 1};
	enum digest_verdict verdict;
	size_t i;

	out->full_steps = UINT64_MAX;
	if (!judgement->asked || replay_totals(report->replay)->allocations == 0)
		return;
	take_devices(out, found);
	take_places(out, found);
	for (i = 0; i < FINDINGS_COUNT(found, forecast); i++) {
		const struct finding_forecast *forecast = &FINDINGS(found, forecast)[i];

		if (forecast->full_step_low - forecast->step < out->full_steps)
			out->full_steps = forecast->full_step_low - forecast->step;
	}
	take_trends(out, found);
	if (judgement->judged)
		take_judged(out, found);
	else
		analyses_text_of(report->analyses, ANALYSIS_ID_leaks, &view, &out->judged);
	verdict = judgement->leaks > 0 ? DIGEST_LEAK
		  : judgement->suspects > 0 || (judgement->judged && any_pool_grows(found))
			  ? DIGEST_SUSPECT
		  : judgement->clean ? DIGEST_FINE
				     : DIGEST_NOTHING;
	if (verdict > out->verdict)
		out->verdict = verdict;
}

/* ---- the peak ---- */

static void take_peak(struct digest *out, const struct findings *found)
{
	const struct finding_peak *peak = FINDINGS(found, peak);
	size_t i;

	if (FINDINGS_COUNT(found, peak) == 0 || peak->bytes == 0)
		return;
	out->peak = (struct digest_peak){.pool = peak->pool,
					 .device = peak->device,
					 .bytes = peak->bytes,
					 .step = (uint32_t)peak->step};
	for (i = 0; i < peak->places.count && i < DIGEST_PEAK; i++) {
		const struct finding_holder *holder =
			&FINDINGS(found, holder)[peak->places.first + i];

		out->peak.holders[i] = (struct digest_holder){.where = strdup(holder->place),
							      .bytes = holder->bytes};
		out->peak.holder_count++;
	}
	out->peak.more = peak->places.count - out->peak.holder_count;
}

/* ---- out of memory ---- */

/* The last verdict is told in full: earlier ones were survived. */
static void take_ooms(struct digest *out, const struct report *report, const struct findings *found)
{
	size_t count, i;
	const struct oom_verdict *verdicts = analyses_ooms(report->analyses, &count), *last;
	const struct finding_oom *oom;

	out->oom_count = (uint32_t)count;
	out->oom_asked = (report->analyses->bits & SESSION_OOM) != 0;
	if (verdicts == NULL || count == 0 || FINDINGS_COUNT(found, oom) != count)
		return;
	last = &verdicts[count - 1];
	oom = &FINDINGS(found, oom)[count - 1];
	out->verdict = DIGEST_OOM;
	oom_headline(last, &out->oom);
	strbuf_addf(&out->oom, "\nWhy: %s.\n", oom->why);
	oom_limit_line(last, &out->oom);
	if (oom->place[0] != '\0')
		strbuf_addf(&out->oom, "Asked for at: %s\n", oom->place);
	strbuf_addf(&out->oom, "Try: %s.\n%s", oom->try,
		    oom->places.count > 0 ? "Held at that moment:\n" : "");
	for (i = 0; i < oom->places.count && i < DIGEST_PEAK; i++) {
		const struct finding_oom_place *holder =
			&FINDINGS(found, oom_place)[oom->places.first + i];
		struct strbuf size = {0};

		strbuf_add_size(&size, holder->bytes);
		strbuf_addf(&out->oom, "  %10s  %s%s%s\n", strbuf_str(&size),
			    holder->stack == 0 ? pool_event_type(holder->pool) : "",
			    holder->stack == 0 ? " " : "", holder->place);
		strbuf_fini(&size);
	}
	if (count == 2)
		strbuf_add_str(&out->oom, "Memory ran out once before; report.txt has it\n");
	else if (count > 2)
		strbuf_addf(&out->oom, "Memory ran out %zu times before; report.txt has them\n",
			    count - 1);
}

/* ---- the whole device ---- */

/* Of GPUs, where people ask why the driver's figure and the framework's differ; report.txt has all devices. */
static void take_held(struct digest *out, const struct report *report)
{
	size_t count, i;
	const struct device_account *accounts = analyses_devices(report->analyses, &count);

	for (i = 0; i < count; i++) {
		struct device_view then;

		if (accounts[i].vendor != VENDOR_CUDA || accounts[i].fullest.moment.time_ns == 0)
			continue;
		device_then(&accounts[i], report->replay, &then);
		device_line(&accounts[i], &then, &out->devices_held);
	}
}

void digest_take_findings(struct digest *out, const struct report *report)
{
	struct findings own = {0};
	const struct findings *found = report_judged(report, &own);
	struct analysis_view view = {
		.replay = report->replay, .found = found, .lines = TABLE, .frames = 1};

	if (report->analyses == NULL)
		return;
	take_ooms(out, report, found);
	take_leaks(out, report, found);
	take_peak(out, found);
	take_held(out, report);
	if (report->analyses->bits & SESSION_LEAKS)
		analyses_text_of(report->analyses, ANALYSIS_ID_fluctuation, &view, &out->gaps);
	analyses_text_of(report->analyses, ANALYSIS_ID_decompose, &view, &out->tables);
	analyses_text_of(report->analyses, ANALYSIS_ID_inefficient, &view, &out->tables);
	findings_fini(&own);
}
