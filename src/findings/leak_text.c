/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text about call sites and pools that were judged, for report.txt and `info`. Below each sentence are the lines that other tools
 * read ("Direct ... leak of ..."): one for a screen, at most DIRECT_LINES in a file.
 */
#include "findings/findings.h"
#include "findings/say.h"
#include "findings/site.h"

#define MIB	 (1024.0 * 1024.0)
#define SUSPECTS 5u /* on a screen */
#define KEPT	 3u

struct leaks_view {
	const struct findings *found;
	struct replay *replay;
	uint32_t lines, frames;
};

static const char *pool_name(uint8_t pool)
{
	const char *name = pool_long_name(pool);

	if (name != NULL)
		return name;
	return pool == POOL_hal		    ? "Hal memory"
	       : pool == POOL_pta_workspace ? "Pytorch workspace memory pool"
	       : pool == POOL_host_pinned   ? "Pinned host memory"
					    : "memory";
}

void direct_line(const struct findings *found, const struct finding_place *place,
		 const struct finding_block *block, struct strbuf *out)
{
	strbuf_addf(out, "Direct %s leak of %f Mb(s) at 0x%llx", pool_name(place->pool),
		    (double)block->size / MIB, (unsigned long long)block->address);
	kernel_words(place, block->kernel, out);
	/* A run without steps has none to name. */
	if (!found->judgement.by_time)
		strbuf_addf(out, " at step %llu", (unsigned long long)block->step);
	strbuf_add_char(out, '.');
}

static void text_block(const struct findings *found, const struct finding_place *place,
		       const struct finding_block *block, struct strbuf *out)
{
	if (place->verdict != GROWTH_KEPT) {
		direct_line(found, place, block, out);
		strbuf_add_char(out, '\n');
		return;
	}
	strbuf_add_str(out, "  ");
	strbuf_add_size(out, block->size);
	strbuf_addf(out, " at 0x%llx", (unsigned long long)block->address);
	kernel_words(place, block->kernel, out);
	if (!found->judgement.by_time)
		strbuf_addf(out, " at step %llu", (unsigned long long)block->step);
	strbuf_add_char(out, '\n');
}

static void text_place(const struct leaks_view *view, const struct finding_place *place,
		       struct strbuf *out)
{
	const struct findings *f = view->found;
	bool whole = view->lines == UINT32_MAX;
	size_t i, lines = whole ? DIRECT_LINES : place->verdict != GROWTH_KEPT;
	uint64_t all = place->verdict == GROWTH_KEPT ? place->blocks : place->listed_blocks;

	strbuf_addf(out, "%s: ", verdict_word(place->verdict));
	place_line(f, place, out);
	strbuf_add_char(out, '\n');
	keeper_lines(f, place, "  ", out);
	for (i = 0; i < place->examples.count && i < lines; i++) {
		text_block(f, place, &FINDINGS(f, block)[place->examples.first + i], out);
		/* The stack is shown once. */
		if (i == 0)
			site_text(view->replay, place->stack, view->frames, out);
	}
	if (whole && all > i)
		strbuf_addf(out, "... %llu more of this place\n", (unsigned long long)(all - i));
}

/* All call sites of a device with one verdict, under the header that other tools look for. */
static void text_device(const struct leaks_view *view, uint32_t device, enum growth_verdict verdict,
			struct strbuf *out)
{
	const struct findings *f = view->found;
	bool leak = verdict == GROWTH_LEAK;
	size_t shown = 0, count = 0,
	       lines = view->lines == UINT32_MAX ? SIZE_MAX
		       : leak			 ? view->lines
						 : SUSPECTS;
	uint64_t bytes = 0, blocks = 0, late = 0;
	char text[16];

	device_text(device, text);
	FINDINGS_EACH (f, place, place) {
		if (place->device != device || place->verdict != verdict)
			continue;
		if (count == 0)
			strbuf_addf(out, "====== %s memory leaks on device %s ======\n",
				    leak ? "ERROR: Detected" : "WARNING: Suspected", text);
		count += place_count(place);
		bytes += place->listed_bytes;
		blocks += place->listed_blocks;
		late += place->late_blocks;
		if (shown >= lines)
			continue;
		text_place(view, place, out);
		shown += place_count(place);
	}
	if (count == 0)
		return;
	if (count > shown)
		strbuf_addf(out, "... %zu more %s; report.txt has all of them\n", count - shown,
			    count - shown == 1 ? "call site" : "call sites");
	strbuf_addf(out, "====== SUMMARY: %g Mb(s) %s in %llu allocation(s) ======\n",
		    (double)bytes / MIB, leak ? "leaked" : "may have leaked",
		    (unsigned long long)blocks);
	if (late > 0)
		strbuf_addf(out,
			    "%llu of them %s freed only after the last %s, as a program does that "
			    "ends.\n",
			    (unsigned long long)late, late == 1 ? "was" : "were", step_word(f));
}

static void text_verdicts(const struct leaks_view *view, enum growth_verdict verdict,
			  struct strbuf *out)
{
	const struct findings *f = view->found;
	uint32_t device = 0, next;
	bool more = true, any = false;
	size_t i;

	while (more) {
		more = false;
		next = UINT32_MAX;
		for (i = 0; i < FINDINGS_COUNT(f, place); i++) {
			uint32_t d = FINDINGS(f, place)[i].device;

			if (FINDINGS(f, place)[i].verdict == verdict && (!any || d > device) &&
			    (!more || d < next)) {
				next = d;
				more = true;
			}
		}
		if (more)
			text_device(view, next, verdict, out);
		device = next;
		any = true;
	}
}

static void text_kept(const struct leaks_view *view, struct strbuf *out)
{
	const struct findings *f = view->found;
	size_t i, shown = 0, kept = 0, lines = view->lines == UINT32_MAX ? SIZE_MAX : KEPT;

	for (i = 0; i < FINDINGS_COUNT(f, place); i++) {
		if (FINDINGS(f, place)[i].verdict != GROWTH_KEPT)
			continue;
		if (kept < lines) {
			text_place(view, &FINDINGS(f, place)[i], out);
			shown += place_count(&FINDINGS(f, place)[i]);
		}
		kept += place_count(&FINDINGS(f, place)[i]);
	}
	if (kept > shown)
		strbuf_addf(out, "kept: %zu more %s; report.txt has all of them\n", kept - shown,
			    kept - shown == 1 ? "call site" : "call sites");
}

static void text_pools(const struct findings *f, struct strbuf *out)
{
	size_t i;

	for (i = 0; i < FINDINGS_COUNT(f, trend); i++) {
		trend_sentence(f, &FINDINGS(f, trend)[i], out);
		strbuf_add_char(out, '\n');
	}
	/* Where a call site leaks, its sentence has the steps. */
	FINDINGS_EACH (f, forecast, forecast) {
		if (forecast_has_place(f, forecast) || !forecast_is_told(f, forecast))
			continue;
		forecast_sentence(f, forecast, out);
		strbuf_add_str(out, ".\n");
	}
	for (i = 0; i < FINDINGS_COUNT(f, unjudged); i++) {
		unjudged_sentence(f, &FINDINGS(f, unjudged)[i], out);
		strbuf_add_char(out, '\n');
	}
}

void leaks_text(const struct findings *f, struct replay *replay, uint32_t lines, uint32_t frames,
		struct strbuf *out)
{
	const struct leaks_view all = {f, replay, lines, frames}, *view = &all;
	const struct findings_judgement *judgement = &f->judgement;

	if (!judgement->judged) {
		strbuf_add_str(out, judgement->not_judged);
		return;
	}
	if (judgement->by_time)
		strbuf_addf(out,
			    "No step was marked: growth is judged over %u equal parts of the run, "
			    "%.2f s each.\n",
			    judgement->last_step, judgement->step_seconds);
	text_verdicts(view, GROWTH_LEAK, out);
	text_verdicts(view, GROWTH_SUSPECT, out);
	if (judgement->leaks + judgement->suspects > 0 && !judgement->has_stacks)
		strbuf_add_str(out,
			       "(run again with --call-stack=c to see where they come from)\n");
	text_pools(f, out);
	text_kept(view, out);
	strbuf_add_str(out, judgement->clean ? "No leak was found in " : "Judged: ");
	if (judgement->last_step == judgement->first_step && judgement->clean)
		strbuf_addf(out, "%s %u", step_word(f), judgement->last_step);
	else
		strbuf_addf(out, "%ss %u to %u", step_word(f), judgement->first_step,
			    judgement->last_step);
	strbuf_addf(out, ". The first %s is never judged.\n", step_word(f));
}
