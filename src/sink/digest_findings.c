/* SPDX-License-Identifier: Apache-2.0 */
#include "sink/digest_findings.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/whole_device.h"
#include "analysis/leaks.h"
#include "analysis/oom.h"
#include "analysis/peak.h"
#include "analysis/site.h"
#include "sink/project.h"
#include "trace/session.h"

#define MIB	 1048576.0
#define TRENDS	 3 /* pools whose growth is told */
#define UNJUDGED 2 /* sentences about memory that was not judged */
#define TABLE	 6 /* lines of another analysis' list */

/* ---- leaks ---- */

/* What a place is where no stack was recorded. */
static void add_kind(const struct leaks_place *place, struct strbuf *out)
{
	if (place->by_handles) {
		strbuf_addf(out, "%s by handles", pool_event_type(place->pool));
		return;
	}
	strbuf_addf(out, "%s blocks of ", pool_event_type(place->pool));
	strbuf_add_size(out, place->size_min);
	if (place->size_max != place->size_min) {
		strbuf_add_str(out, " to ");
		strbuf_add_size(out, place->size_max);
	}
}

static char *take_text(struct strbuf *text)
{
	char *taken = strdup(strbuf_str(text));

	strbuf_fini(text);
	return taken;
}

static const char *direct_name(uint8_t pool)
{
	const char *name = pool == POOL_hal ? "Hal memory" : pool_long_name(pool);

	return name != NULL ? name : pool_event_type(pool);
}

/* The compatible line (F101) of the place's first block. */
static char *direct_line(const struct leaks_place *place)
{
	const struct leaks_block *block = place->list;
	struct strbuf text = {0};

	if (place->list_count == 0)
		return NULL;
	strbuf_addf(&text, "Direct %s leak of %f Mb(s) at 0x%llx", direct_name(place->pool),
		    (double)block->size_bytes / MIB, (unsigned long long)block->address);
	leaks_kernel_text(place, block, &text);
	strbuf_addf(&text, " at step %u.", block->step);
	return take_text(&text);
}

static struct digest_place take_place(struct replay *replay, const struct leaks_findings *findings,
				      const struct leaks_place *place)
{
	struct strbuf where = {0}, sentence = {0};
	struct digest_place taken = {
		.verdict = place->verdict == GROWTH_LEAK ? DIGEST_LEAK : DIGEST_SUSPECT,
		.pool = place->pool,
		.device = place->device,
		.bytes = place->bytes,
		.blocks = place->blocks,
		.growth_bytes = place->bytes_per_step,
	};
	char device[16];

	if (!site_line(replay, place->stack, &where)) {
		add_kind(place, &where);
		project_device_text(place->device, device);
		strbuf_addf(&sentence, "%s on %s%s  ", strbuf_str(&where),
			    place->device >= DEVICE_HOST ? "" : "device ", device);
	} else {
		strbuf_addf(&sentence, "%s  ", strbuf_str(&where));
	}
	leaks_place_sentence(findings, place, &sentence);
	taken.where = take_text(&where);
	taken.sentence = take_text(&sentence);
	taken.direct = direct_line(place);
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
static void take_devices(struct digest *out, const struct leaks_findings *findings)
{
	size_t i, k;

	out->devices = calloc(findings->leaks + 1, sizeof(*out->devices));
	for (i = 0; out->devices != NULL && i < findings->leaks; i++) {
		const struct leaks_place *place = &findings->places[i];
		struct digest_device *device = device_of(out, place->device);

		device->places++;
		device->blocks += place->list_count;
		for (k = 0; k < place->list_count; k++)
			device->bytes += place->list[k].size_bytes;
		if (place->list_count == 0)
			device->bytes += place->bytes;
	}
	if (out->device_count > 1)
		qsort(out->devices, out->device_count, sizeof(*out->devices), most_bytes);
}

static void take_places(struct digest *out, struct replay *replay,
			const struct leaks_findings *findings)
{
	size_t i, suspects = 0, leaks = 0;

	out->leak_places = findings->leaks;
	out->suspect_places = findings->suspects;
	out->places = calloc(2 * DIGEST_PLACES, sizeof(*out->places));
	for (i = 0; out->places != NULL && i < findings->place_count; i++) {
		const struct leaks_place *place = &findings->places[i];
		size_t *count = place->verdict == GROWTH_LEAK ? &leaks : &suspects;

		if (place->verdict == GROWTH_KEPT || (*count)++ >= DIGEST_PLACES)
			continue;
		out->places[out->place_count++] = take_place(replay, findings, place);
		out->has_stacks = out->has_stacks || place->stack != 0;
	}
}

static const char *trend_word(enum growth_verdict verdict)
{
	return verdict == GROWTH_LEAK	   ? "grows"
	       : verdict == GROWTH_SUSPECT ? "may be growing"
					   : "steady";
}

/* Trends of pools: figures of all, sentences of those that grow most. */
static void take_trends(struct digest *out, const struct leaks_findings *findings)
{
	bool told[64] = {false};
	size_t i, k, shown;

	for (i = 0; i < findings->pool_count; i++) {
		for (k = 0; k < out->pool_count; k++) {
			struct digest_pool *pool = &out->pools[k];

			if (pool->pool != findings->pools[i].pool ||
			    pool->device != findings->pools[i].device)
				continue;
			pool->judged = findings->judged;
			pool->growth_bytes = findings->pools[i].bytes_per_step;
			pool->trend = trend_word(findings->pools[i].verdict);
		}
	}
	for (shown = 0; shown < TRENDS && findings->judged; shown++) {
		const struct leaks_pool *most = NULL;
		size_t found = 0;

		for (i = 0; i < findings->pool_count && i < MSCOPE_COUNT(told); i++) {
			const struct leaks_pool *pool = &findings->pools[i];

			if (!told[i] && pool->verdict != GROWTH_KEPT &&
			    (most == NULL || pool->bytes_per_step > most->bytes_per_step)) {
				most = pool;
				found = i;
			}
		}
		if (most == NULL)
			break;
		told[found] = true;
		leaks_pool_sentence(findings, most, &out->trends);
		strbuf_add_char(&out->trends, '\n');
	}
}

static bool any_pool_grows(const struct leaks_findings *findings)
{
	size_t i;

	for (i = 0; i < findings->pool_count; i++) {
		if (findings->pools[i].verdict != GROWTH_KEPT)
			return true;
	}
	return false;
}

/* What was looked at, and what was not. */
static void take_judged(struct digest *out, const struct leaks_findings *findings)
{
	const char *step = findings->by_time ? "part" : "step";
	bool clean = findings->clean && out->oom_count == 0;
	struct strbuf *text = &out->judged;
	size_t i, shown = 0;

	/* Where memory ran out, growth ended because of that. */
	if (clean && findings->last_step == LEAKS_FIRST_STEP)
		strbuf_addf(text, "No leak was found in %s %u.", step, findings->last_step);
	else if (clean)
		strbuf_addf(text, "No leak was found in %ss %u to %u%s.", step, LEAKS_FIRST_STEP,
			    findings->last_step, findings->by_time ? " of the run" : "");
	else if (findings->leaks + findings->suspects == 0 && !findings->clean)
		strbuf_add_str(text, "No place leaks, but read on: not all is steady, or judged.");
	else
		strbuf_addf(text, "Judged: %ss %u to %u.", step, LEAKS_FIRST_STEP,
			    findings->last_step);
	strbuf_addf(text, " %zu %s looked at; the first %s is never judged.\n",
		    findings->place_count, findings->place_count == 1 ? "place was" : "places were",
		    step);
	for (i = 0; i < findings->unjudged_count && shown < UNJUDGED; i++) {
		if (findings->unjudged[i].reason == LEAKS_POOL_CACHE)
			continue;
		leaks_unjudged_sentence(&findings->unjudged[i], text);
		strbuf_add_char(text, '\n');
		shown++;
	}
	if (findings->leaks + findings->suspects > 0 && !out->has_stacks)
		strbuf_add_str(text,
			       "(run again with --call-stack=c to see where they come from)\n");
}

static void take_leaks(struct digest *out, const struct report *report)
{
	const struct leaks_findings *findings = leaks_findings(report->analyses, report->replay);
	struct analysis_view view = {.replay = report->replay, .lines = TABLE, .frames = 1};
	enum digest_verdict verdict;

	if (findings == NULL || replay_totals(report->replay)->allocations == 0)
		return;
	take_devices(out, findings);
	take_places(out, report->replay, findings);
	take_trends(out, findings);
	if (findings->judged)
		take_judged(out, findings);
	else
		analyses_text_of(report->analyses, ANALYSIS_ID_leaks, &view, &out->judged);
	verdict = findings->leaks > 0 ? DIGEST_LEAK
		  : findings->suspects > 0 || (findings->judged && any_pool_grows(findings))
			  ? DIGEST_SUSPECT
		  : findings->clean ? DIGEST_FINE
				    : DIGEST_NOTHING;
	if (verdict > out->verdict)
		out->verdict = verdict;
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

/* ---- out of memory ---- */

/* The last verdict is told in full: earlier ones were survived. */
static void take_ooms(struct digest *out, const struct report *report)
{
	size_t count, i;
	const struct oom_verdict *verdicts = analyses_ooms(report->analyses, &count), *last;
	struct strbuf place = {0};

	out->oom_count = (uint32_t)count;
	out->oom_asked = (report->analyses->bits & SESSION_OOM) != 0;
	if (verdicts == NULL || count == 0)
		return;
	last = &verdicts[count - 1];
	out->verdict = DIGEST_OOM;
	oom_headline(last, &out->oom);
	strbuf_add_str(&out->oom, "\nWhy: ");
	oom_cause_line(last, &out->oom);
	strbuf_add_str(&out->oom, ".\n");
	oom_limit_line(last, &out->oom);
	if (site_line(report->replay, last->stack, &place))
		strbuf_addf(&out->oom, "Asked for at: %s\n", strbuf_str(&place));
	strbuf_fini(&place);
	strbuf_add_str(&out->oom, "Try: ");
	oom_advice(report->replay, last, &out->oom);
	strbuf_add_str(&out->oom, last->place_count > 0 ? ".\nHeld at that moment:\n" : ".\n");
	for (i = 0; i < last->place_count && i < DIGEST_PEAK; i++) {
		const struct oom_place *holder = &last->places[i];
		struct strbuf size = {0};

		strbuf_add_size(&size, holder->bytes);
		strbuf_addf(&out->oom, "  %10s  ", strbuf_str(&size));
		if (!site_line(report->replay, holder->stack, &out->oom)) {
			strbuf_addf(&out->oom, "%s blocks of ", pool_event_type(holder->pool));
			strbuf_add_size(&out->oom, holder->size_bytes);
		}
		strbuf_add_char(&out->oom, '\n');
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
		if (accounts[i].vendor == VENDOR_CUDA && accounts[i].peak.time_ns != 0)
			device_line(&accounts[i], &out->devices_held);
	}
}

void digest_take_findings(struct digest *out, const struct report *report)
{
	struct analysis_view view = {.replay = report->replay, .lines = TABLE, .frames = 1};

	if (report->analyses == NULL)
		return;
	take_ooms(out, report);
	take_leaks(out, report);
	take_peak(out, report);
	take_held(out, report);
	if (report->analyses->bits & SESSION_LEAKS)
		analyses_text_of(report->analyses, ANALYSIS_ID_fluctuation, &view, &out->gaps);
	analyses_text_of(report->analyses, ANALYSIS_ID_decompose, &view, &out->tables);
	analyses_text_of(report->analyses, ANALYSIS_ID_inefficient, &view, &out->tables);
}
