/* SPDX-License-Identifier: Apache-2.0 */
#include "sink/ticket.h"

#include <stdlib.h>
#include <string.h>

#include "base/shown.h"
#include "sink/screen.h"
#include "sink/screen_names.h"

#define PLACES	      5u
#define POOLS	      6u
#define PROCESSES     8u
#define HOLDERS	      5u
#define NAME_COLUMNS  160u
#define DETAIL_LINES  12u
#define LINES_COLUMNS 200u

/* What may be markup, or make a link. */
#define SPECIAL "!\"#$&'()*+-./:;<=>@[\\]^_`{|}~"

/* ---- Markdown ---- */

static size_t longest_ticks(const char *text)
{
	size_t longest = 0, ticks = 0;

	for (; *text != '\0'; text++) {
		ticks = *text == '`' ? ticks + 1 : 0;
		if (ticks > longest)
			longest = ticks;
	}
	return longest;
}

static void add_ticks(struct strbuf *out, size_t count)
{
	while (count-- > 0)
		strbuf_add_char(out, '`');
}

/* Text in which these characters mean nothing. */
static void add_escaped(struct strbuf *out, const char *text, const char *special)
{
	for (; *text != '\0'; text++) {
		if (strchr(special, *text) != NULL)
			strbuf_addf(out, "&#%d;", *text);
		else
			strbuf_add_char(out, *text);
	}
}

/* A name as code in a table's cell. Backticks would end a code span and bars a cell, whatever stands before them. */
static void add_name(struct strbuf *out, const char *name, bool frames)
{
	struct strbuf shown = {0}, cut = {0};

	strbuf_add_shown(&shown, name, strlen(name));
	screen_name(shown.length == 0 ? "?" : strbuf_str(&shown), frames, NULL, 0, NAME_COLUMNS,
		    &cut);
	if (strpbrk(strbuf_str(&cut), "`|") == NULL) {
		strbuf_addf(out, "`%s`", strbuf_str(&cut));
	} else {
		strbuf_add_str(out, "<code>");
		add_escaped(out, strbuf_str(&cut), SPECIAL);
		strbuf_add_str(out, "</code>");
	}
	strbuf_fini(&shown);
	strbuf_fini(&cut);
}

/* Whole lines as a code block with a fence that no line in it is. */
static void add_lines(struct strbuf *out, const char *lines)
{
	size_t ticks = longest_ticks(lines) + 1, shown = 0;
	struct strbuf text = {0}, line = {0};
	const char *at, *end;

	strbuf_add_lines(&text, lines, strlen(lines));
	ticks = ticks < 3 ? 3 : ticks;
	add_ticks(out, ticks);
	strbuf_add_str(out, "text\n");
	for (at = strbuf_str(&text); *at != '\0' && shown < DETAIL_LINES; at = end, shown++) {
		end = strchrnul(at, '\n');
		strbuf_reset(&line);
		strbuf_add(&line, at, (size_t)(end - at));
		screen_cut(strbuf_str(&line), LINES_COLUMNS, out);
		strbuf_add_char(out, '\n');
		end += *end == '\n';
	}
	if (*at != '\0')
		strbuf_add_str(out, "...\n");
	add_ticks(out, ticks);
	strbuf_add_char(out, '\n');
	strbuf_fini(&text);
	strbuf_fini(&line);
}

static void add_pool(struct strbuf *out, uint8_t pool, uint32_t device)
{
	char text[16];

	project_device_text(device, text);
	strbuf_addf(out, "%s on %s%s", pool_event_type(pool),
		    text[0] >= '0' && text[0] <= '9' ? "device " : "", text);
}

/* ---- parts ---- */

static void part_head(const struct ticket *ticket, const struct digest *const *sorted,
		      struct strbuf *out)
{
	static const char *const verdicts[VERDICTS] = {
		[VERDICT_NOTHING] = "nothing was judged",
		[VERDICT_FINE] = "no problem found",
		[VERDICT_SUSPECT] = "suspect",
		[VERDICT_LEAK] = "memory leak",
		[VERDICT_OOM] = "out of memory",
	};
	const struct ticket_line *line;
	size_t bad = 0, i;

	for (i = 0; i < ticket->count; i++)
		bad += sorted[i]->verdict >= VERDICT_SUSPECT;
	strbuf_addf(out, "### msmemscope: %s\n\n", verdicts[sorted[0]->verdict]);
	if (ticket->count > 1) {
		strbuf_addf(out, "%zu processes, %zu with a finding; the worst is ", ticket->count,
			    bad);
		add_name(out, sorted[0]->name == NULL ? "?" : sorted[0]->name, false);
		strbuf_addf(out, " (pid %u", sorted[0]->pid);
		if (sorted[0]->rank >= 0)
			strbuf_addf(out, ", rank %lld", (long long)sorted[0]->rank);
		strbuf_add_str(out, ").\n\n");
	}
	strbuf_add_str(out, "| | |\n|---|---|\n");
	strbuf_add_str(out, "| Program | ");
	add_name(out, sorted[0]->name == NULL ? "?" : sorted[0]->name, false);
	strbuf_add_str(out, ", ");
	strbuf_add_count(out, sorted[0]->events, "event", "events");
	strbuf_addf(out, " in %.3f s, ", sorted[0]->seconds);
	strbuf_add_count(out, sorted[0]->steps, "step", "steps");
	if (sorted[0]->signal != NULL)
		strbuf_addf(out, ", killed by %s", sorted[0]->signal);
	strbuf_add_str(out, " |\n");
	if (sorted[0]->dry != NULL)
		strbuf_addf(out, "| Dry run | %s; no device was used. %s |\n", sorted[0]->dry,
			    report_dry_not_counted(sorted[0]->dry));
	for (line = ticket->environment; line != NULL && line->name != NULL; line++) {
		if (line->text == NULL || line->text[0] == '\0')
			continue;
		strbuf_addf(out, "| %s | ", line->name);
		add_name(out, line->text, false);
		strbuf_add_str(out, " |\n");
	}
}

static uint64_t peak_of(const struct digest *digest)
{
	return digest->pool_count == 0 ? 0 : digest->pools[0].peak_bytes;
}

static void part_processes(const struct ticket *ticket, const struct digest *const *sorted,
			   struct strbuf *out)
{
	size_t i;

	if (ticket->count < 2)
		return;
	strbuf_add_str(out,
		       "\n| Process | Verdict | Highest peak | Leaks |\n|---|---|---:|---:|\n");
	for (i = 0; i < ticket->count && i < PROCESSES; i++) {
		struct strbuf who = {0};

		screen_who(sorted[i], &who);
		strbuf_add_str(out, "| ");
		add_name(out, strbuf_str(&who), false);
		strbuf_addf(out, " | %s | ", process_verdict_word(sorted[i]->verdict));
		strbuf_add_size(out, peak_of(sorted[i]));
		strbuf_addf(out, " | %llu |\n",
			    sorted[i]->found == NULL
				    ? 0ULL
				    : (unsigned long long)sorted[i]->found->judgement.leaks);
		strbuf_fini(&who);
	}
	if (ticket->count > PROCESSES)
		strbuf_addf(out, "\n... and %zu more.\n", ticket->count - PROCESSES);
}

static void part_places(const struct digest *digest, struct strbuf *out)
{
	const struct findings *found = digest->found;
	size_t i, count = 0, shown = 0;

	for (i = 0; found != NULL && i < FINDINGS_COUNT(found, place); i++) {
		const struct finding_place *place = &FINDINGS(found, place)[i];
		struct strbuf known = {0};

		if (place->verdict == GROWTH_KEPT)
			continue;
		if (count == 0)
			strbuf_add_str(out,
				       "\n| Verdict | Call site | Pool | |\n|---|---|---|---|\n");
		count += place_count(place);
		if (shown >= PLACES)
			continue;
		strbuf_addf(out, "| %s | ", place->verdict == GROWTH_LEAK ? "**leak**" : "suspect");
		add_name(out, place->name, place->stack != 0);
		strbuf_add_str(out, " | ");
		add_pool(out, place->pool, place->device);
		strbuf_add_str(out, " | ");
		place_sentence(found, place, &known);
		add_escaped(out, strbuf_str(&known), "*<>[\\]_`|~");
		strbuf_add_str(out, " |\n");
		strbuf_fini(&known);
		shown += place_count(place);
	}
	if (count > shown) {
		strbuf_add_str(out, "\n... and ");
		strbuf_add_count(out, count - shown, "more call site", "more call sites");
		strbuf_add_str(out, ".\n");
	}
}

static void part_pools(const struct digest *digest, struct strbuf *out)
{
	size_t i;

	if (digest->pool_count == 0)
		return;
	strbuf_add_str(out, "\n| Pool | Peak | At the end | Trend |\n|---|---:|---|---|\n");
	for (i = 0; i < digest->pool_count && i < POOLS; i++) {
		const struct digest_pool *pool = &digest->pools[i];

		strbuf_add_str(out, "| ");
		add_pool(out, pool->pool, pool->device);
		strbuf_add_str(out, " | ");
		strbuf_add_size(out, pool->peak_bytes);
		strbuf_add_str(out, " | ");
		strbuf_add_size(out, pool->end_bytes);
		strbuf_add_str(out, " in ");
		strbuf_add_count(out, pool->end_blocks, "block", "blocks");
		strbuf_addf(out, " | %s |\n", pool->judged ? pool->trend : "-");
	}
	if (digest->pool_count > POOLS)
		strbuf_addf(out, "\n... and %zu more.\n", digest->pool_count - POOLS);
}

static void part_peak(const struct digest *digest, struct strbuf *out)
{
	const struct finding_peak *peak = screen_peak(digest->found);
	size_t i;

	if (peak == NULL)
		return;
	strbuf_add_str(out, "\nHeld at the peak of ");
	add_pool(out, peak->pool, peak->device);
	strbuf_add_str(out, " (");
	strbuf_add_size(out, peak->bytes);
	if (peak->step > 0)
		strbuf_addf(out, ", step %llu", (unsigned long long)peak->step);
	strbuf_add_str(out, "):\n\n| Held | Share | Call site |\n|---:|---:|---|\n");
	for (i = 0; i < peak->places.count && i < HOLDERS; i++) {
		const struct finding_holder *holder =
			&FINDINGS(digest->found, holder)[peak->places.first + i];

		strbuf_add_str(out, "| ");
		strbuf_add_size(out, holder->bytes);
		strbuf_addf(out, " | %.0f %% | ", holder->percent);
		add_name(out, holder->place, holder->recorded && holder->stack != 0);
		strbuf_add_str(out, " |\n");
	}
	if (peak->places.count > i)
		strbuf_addf(out, "\n... and %llu more.\n",
			    (unsigned long long)(peak_places(digest->found, peak) - i));
}

/* What was checked, or why nothing was. */
static void add_judged(const struct digest *digest, struct strbuf *out)
{
	const struct findings_judgement *judgement =
		digest->found == NULL ? NULL : &digest->found->judgement;

	strbuf_add_str(out, strbuf_str(&digest->not_judged));
	if (judgement == NULL || !judgement->judged)
		return;
	strbuf_add_count(out, judgement->leaks + judgement->suspects + judgement->kept, "call site",
			 "call sites");
	strbuf_addf(out, " checked over %ss %u to %u; %s 1 counts as warm-up.\n",
		    step_word(digest->found), judgement->first_step, judgement->last_step,
		    step_word(digest->found));
}

void ticket_markdown(const struct ticket *ticket, struct strbuf *out)
{
	const struct digest **sorted = calloc(ticket->count + 1, sizeof(*sorted));
	struct strbuf lines = {0};
	size_t i;

	if (sorted == NULL || ticket->count == 0) {
		out->failed = out->failed || sorted == NULL;
		free(sorted);
		return;
	}
	for (i = 0; i < ticket->count; i++)
		sorted[i] = &ticket->digests[i];
	qsort(sorted, ticket->count, sizeof(*sorted), screen_worst_first);
	part_head(ticket, sorted, out);
	part_processes(ticket, sorted, out);
	part_places(sorted[0], out);
	part_pools(sorted[0], out);
	part_peak(sorted[0], out);
	strbuf_add_str(&lines, strbuf_str(&sorted[0]->oom));
	add_judged(sorted[0], &lines);
	strbuf_add_str(&lines, strbuf_str(&sorted[0]->losses));
	if (lines.length > 0) {
		strbuf_add_char(out, '\n');
		add_lines(out, strbuf_str(&lines));
	}
	strbuf_fini(&lines);
	free(sorted);
}
