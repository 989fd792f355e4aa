/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verdicts on a screen: leaks by device, growth that no call site explains, suspects, or what was checked and is in order.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/leaks.h"
#include "base/whole.h"
#include "findings/say.h"
#include "sink/project.h"
#include "sink/screen_names.h"
#include "sink/screen_page.h"

#define MIB	    1048576.0
#define DEVICE_ROWS 16u
#define NAME_LEAST  24u /* columns */
#define SHORT_STEPS 20u /* below this a rate is "about" */
#define FEW_STEPS   10u
#define EXPLAINED   0.9 /* of a pool's growth: enough to say nothing of the rest */

/* The leaks of one device. */
struct leaking {
	uint32_t device;
	double bytes_per_step;
	uint64_t bytes, blocks, first_step;
	size_t sites;
	const struct finding_place *worst;
};

struct leaks_by_device {
	struct leaking *all; /* worst first */
	size_t count, sites;
	double bytes_per_step;
	uint64_t bytes, first_step;
};

static int worst_first(const void *a, const void *b)
{
	const struct leaking *x = a, *y = b;

	if (x->bytes_per_step != y->bytes_per_step) /* same figures, same sums */
		return x->bytes_per_step > y->bytes_per_step ? -1 : 1;
	return x->device < y->device ? -1 : 1;
}

static void add_leak(struct leaks_by_device *leaks, const struct finding_place *place)
{
	struct leaking *to;
	size_t i;

	for (i = 0; i < leaks->count && leaks->all[i].device != place->device; i++)
		;
	to = &leaks->all[i];
	if (i == leaks->count) {
		leaks->count++;
		*to = (struct leaking){
			.device = place->device, .first_step = place->first_step, .worst = place};
	}
	to->bytes_per_step += place->bytes_per_step;
	to->bytes += place->leaked_bytes;
	to->blocks += place->leaked_blocks;
	to->sites += place_count(place);
	if (place->first_step < to->first_step)
		to->first_step = place->first_step;
	leaks->sites += place_count(place);
	leaks->bytes_per_step += place->bytes_per_step;
	leaks->bytes += place->leaked_bytes;
	if (leaks->first_step == 0 || place->first_step < leaks->first_step)
		leaks->first_step = place->first_step;
}

/* The same variable keeps the blocks of both. */
static bool same_keeper(const struct findings *found, const struct finding_place *a,
			const struct finding_place *b)
{
	const struct finding_keeper *x, *y;

	if (a->keepers.count == 0 || b->keepers.count == 0)
		return a->keepers.count == b->keepers.count;
	x = &FINDINGS(found, keeper)[a->keepers.first];
	y = &FINDINGS(found, keeper)[b->keepers.first];
	return strcmp(x->name, y->name) == 0 && strcmp(x->root, y->root) == 0;
}

/* A leak that is not small has the same keeper, which is shown with it. */
static bool kept_as_leak(const struct findings *found, const struct finding_place *place)
{
	size_t i;

	for (i = 0; place != NULL && place->keepers.count > 0 && i < FINDINGS_COUNT(found, place);
	     i++) {
		const struct finding_place *leak = &FINDINGS(found, place)[i];

		if (leak->verdict == GROWTH_LEAK && !leak->small && leak != place &&
		    same_keeper(found, leak, place))
			return true;
	}
	return false;
}

/* A small one that goes with a larger leak is only summed up: the same cure serves both. */
static bool is_listed(const struct findings *found, const struct finding_place *place, bool small)
{
	return place->verdict == GROWTH_LEAK && place->small == small &&
	       !(small && kept_as_leak(found, place));
}

static void find_leaks(const struct findings *found, bool small, struct leaks_by_device *out)
{
	size_t i, count = FINDINGS_COUNT(found, place);

	*out = (struct leaks_by_device){.all = calloc(count + 1, sizeof(*out->all))};
	for (i = 0; out->all != NULL && i < count; i++) {
		const struct finding_place *place = &FINDINGS(found, place)[i];

		if (is_listed(found, place, small))
			add_leak(out, place);
	}
	if (out->count > 1)
		qsort(out->all, out->count, sizeof(*out->all), worst_first);
}

/* ---- lists of call sites ---- */

struct site_row {
	struct strbuf left, name, on, right; /* `on`: which belongs to the name, and stays whole */
	struct strbuf brief; /* the name where it has no room; empty: it is a row of frames */
	struct strbuf shown; /* name and `on` as they fit */
	struct strbuf below; /* lines on what keeps the blocks of this row and of those before it */
	const struct finding_place *known; /* `right` is about it; NULL: about several */
};

struct site_rows {
	struct site_row all[DEVICE_ROWS];
	size_t count;
};

static void widen(size_t *width, size_t columns)
{
	if (columns > *width)
		*width = columns;
}

static size_t columns_of(const struct strbuf *text)
{
	return screen_columns(strbuf_str(text));
}

static void fit_name(struct site_row *row, const char *const *names, size_t count, size_t columns)
{
	size_t room = columns - columns_of(&row->on);
	bool brief = row->brief.length > 0 && columns_of(&row->name) > room;

	screen_name(strbuf_str(brief ? &row->brief : &row->name), row->brief.length == 0, names,
		    count, room, &row->shown);
	strbuf_add_str(&row->shown, strbuf_str(&row->on));
}

static void add_row(const struct site_row *row, size_t left, size_t name, struct strbuf *out)
{
	strbuf_addf(out, "  %*s%s  %s", (int)(left - columns_of(&row->left)), "",
		    strbuf_str(&row->left), strbuf_str(&row->shown));
	if (row->right.length > 0)
		strbuf_addf(out, "%*s   %s", (int)(name - columns_of(&row->shown)), "",
			    strbuf_str(&row->right));
	strbuf_add_char(out, '\n');
}

/* Three columns; a name that has no room is shown shorter. */
static void add_rows(const struct findings *found, struct site_rows *rows, struct strbuf *out)
{
	size_t left = 0, name = 0, right = 0, room, i;
	const char *names[DEVICE_ROWS];

	for (i = 0; i < rows->count; i++) {
		widen(&left, columns_of(&rows->all[i].left));
		widen(&name, columns_of(&rows->all[i].name) + columns_of(&rows->all[i].on));
		widen(&right, columns_of(&rows->all[i].right));
		names[i] = strbuf_str(&rows->all[i].name);
	}
	/* Names are worth more than what is known of them. */
	if (left + name + right + 7 > SCREEN_COLUMNS) {
		for (i = 0, right = 0; i < rows->count; i++) {
			struct site_row *row = &rows->all[i];

			if (row->known != NULL) {
				strbuf_reset(&row->right);
				place_brief(found, row->known, false, &row->right);
			}
			widen(&right, columns_of(&row->right));
		}
	}
	room = SCREEN_COLUMNS - 7 > left + right ? SCREEN_COLUMNS - 7 - left - right : 0;
	room = room < NAME_LEAST ? NAME_LEAST : room;
	room = name < room ? name : room;
	for (i = 0, name = 0; i < rows->count; i++) {
		fit_name(&rows->all[i], names, rows->count, room);
		widen(&name, columns_of(&rows->all[i].shown));
	}
	for (i = 0; i < rows->count; i++) {
		struct site_row *row = &rows->all[i];

		add_row(row, left, name, out);
		screen_wrap(strbuf_str(&row->below), 3, out);
		strbuf_fini(&row->below);
		strbuf_fini(&row->shown);
		strbuf_fini(&row->left);
		strbuf_fini(&row->name);
		strbuf_fini(&row->brief);
		strbuf_fini(&row->on);
		strbuf_fini(&row->right);
	}
	rows->count = 0;
}

/* Without a stack the blocks of a pool have one name. */
static void add_name(const struct findings *found, const struct finding_place *place,
		     struct site_row *row)
{
	struct strbuf *sizes = &row->brief;

	if (place->stack != 0 || place->by_handles || place->size_max == 0) {
		strbuf_add_str(&row->name, place->name);
		if (place->stack == 0)
			strbuf_add_str(&row->brief, place->name);
		return;
	}
	strbuf_add_str(sizes, "blocks of ");
	strbuf_add_size(sizes, place->size_min);
	if (place->size_max != place->size_min) {
		strbuf_add_str(sizes, " to ");
		strbuf_add_size(sizes, place->size_max);
	}
	strbuf_addf(&row->name, "%s in ", strbuf_str(sizes));
	say_the_pool(&row->name, found->vendor, place->pool);
	strbuf_addf(sizes, " (%s)",
		    found->vendor == VENDOR_CUDA ? say_pool(found->vendor, place->pool)
						 : pool_event_type(place->pool));
}

static void leak_row(const struct findings *found, const struct finding_place *place,
		     struct site_rows *rows)
{
	struct site_row *row = &rows->all[rows->count++];

	*row = (struct site_row){.known = place};
	rate_words(found, place->bytes_per_step, &row->left);
	strbuf_addf(&row->left, "/%s", found->judgement.by_time ? "s" : "step");
	add_name(found, place, row);
	place_brief(found, place, true, &row->right);
}

/* What keeps the blocks of a call site, and the cure. */
static void add_keeper(const struct findings *found, const struct finding_place *place, bool cure,
		       struct strbuf *out)
{
	(cure ? keeper_lines : keeper_line)(found, place, "  ", out);
	/* Variables of functions are seen while these run: at the end of a step. */
	if (place->keepers.count == 0 && found->judgement.by_time &&
	    strstr(place->name, ".py:") != NULL &&
	    (place->pool == POOL_host || !pool_is_driver(place->pool)))
		strbuf_add_str(out, "  kept by: unknown; mark steps with msmemscope.step() or run "
				    "`msmemscope ctl PID who` meanwhile\n");
}

/* Below the rows that it is about. The cure of the first comes with it; `cures`: of all. */
static void add_keepers(const struct findings *found, struct site_rows *rows, bool cures)
{
	size_t i, first = 0;

	for (i = 0; i < rows->count; i++) {
		if (i + 1 < rows->count &&
		    same_keeper(found, rows->all[first].known, rows->all[i + 1].known))
			continue;
		add_keeper(found, rows->all[first].known, cures || first == 0, &rows->all[i].below);
		first = i + 1;
	}
}

/* ---- leaks ---- */

/* What was judged one by one: without stacks blocks of one size are. */
static const char *site_noun(const struct findings *found)
{
	size_t i, count = FINDINGS_COUNT(found, place);

	for (i = 0; i < count; i++) {
		const struct finding_place *place = &FINDINGS(found, place)[i];

		if (place->stack != 0 || place->by_handles || place->size_max == 0)
			return "call site";
	}
	return count == 0 ? "call site" : "block size";
}

static void add_checked(const struct findings *found, struct strbuf *out)
{
	const struct findings_judgement *judgement = &found->judgement;

	say_count(out, judgement->leaks + judgement->suspects + judgement->kept, site_noun(found));
	if (!judgement->by_time) {
		strbuf_add_str(out, " checked; step 1 counts as warm-up.");
		return;
	}
	strbuf_add_str(out, " checked over ");
	span_words(found, judgement->last_step, out);
	strbuf_add_str(out, "; no steps were marked.");
}

/* A last line of a list, which may take two. */
static void add_last(const struct strbuf *line, struct strbuf *out)
{
	struct strbuf whole_line = {0};

	strbuf_addf(&whole_line, "  %s\n", strbuf_str(line));
	screen_wrap(strbuf_str(&whole_line), 2, out);
	strbuf_fini(&whole_line);
}

/* "+3.6 MiB per step, 136 MiB since step 2". */
static void add_growth(const struct findings *found, double rate, uint64_t bytes, uint64_t since,
		       struct strbuf *out)
{
	strbuf_add_str(out, found->judgement.last_step < SHORT_STEPS ? "about " : "");
	rate_words(found, rate, out);
	strbuf_addf(out, " per %s", rate_unit(found));
	if (bytes == 0)
		return;
	strbuf_add_str(out, ", ");
	strbuf_add_size(out, bytes);
	if (found->judgement.by_time)
		strbuf_add_str(out, " in all");
	else
		strbuf_addf(out, " since step %llu", (unsigned long long)since);
}

/* Of a pool's growth, what call sites have that are listed as suspects. */
static double suspected_share(const struct findings *found, const struct finding_trend *trend)
{
	double rate = 0;

	FINDINGS_EACH (found, place, place) {
		if (place->verdict == GROWTH_SUSPECT && place->pool == trend->pool &&
		    place->device == trend->device)
			rate += place->bytes_per_step;
	}
	return trend->bytes_per_step > 0 ? rate / trend->bytes_per_step : 0;
}

/* Growth that neither leaks nor suspects account for; where call sites are suspected, a pool that may be growing says no more. */
static bool is_unexplained(const struct findings *found, const struct finding_trend *trend)
{
	const struct findings_judgement *judgement = &found->judgement;

	return trend->trend != GROWTH_KEPT &&
	       trend->explained + suspected_share(found, trend) < EXPLAINED &&
	       (trend->trend == GROWTH_LEAK || judgement->leaks + judgement->suspects == 0);
}

/* The rows above already add up. The pool is measured on its own and differs a little, so a second percentage would only confuse. */
static void explained_words(const struct finding_trend *trend, uint8_t pool, struct strbuf *out)
{
	strbuf_addf(out, "These account for %s of %s growth. ",
		    trend->explained >= 0.995 ? "100 %" : "nearly all",
		    pool == POOL_host || pool_is_driver(pool) ? "the" : "the pool's");
}

static void add_explained(const struct findings *found, const struct finding_place *worst,
			  struct strbuf *out)
{
	FINDINGS_EACH (found, trend, trend) {
		if (trend->pool == worst->pool && trend->device == worst->device &&
		    trend->trend != GROWTH_KEPT && trend->explained >= EXPLAINED &&
		    !is_unexplained(found, trend))
			explained_words(trend, worst->pool, out);
	}
}

/* "Small blocks of 1 more call site (+4.0 B per step) are kept there too. " */
static void add_along(const struct findings *found, const struct leaking *leaking,
		      struct strbuf *out)
{
	uint64_t count = 0;
	double rate = 0;
	size_t i;

	for (i = 0; !leaking->worst->small && i < FINDINGS_COUNT(found, place); i++) {
		const struct finding_place *place = &FINDINGS(found, place)[i];

		if (place->device != leaking->device || !place->small ||
		    place->verdict != GROWTH_LEAK || !kept_as_leak(found, place))
			continue;
		count += place_count(place);
		rate += place->bytes_per_step;
	}
	if (count == 0)
		return;
	strbuf_add_str(out, "Small blocks of ");
	say_count(out, count, "more call site");
	strbuf_add_str(out, " (");
	rate_words(found, rate, out);
	strbuf_addf(out, " per %s) are kept there too. ", rate_unit(found));
}

static void one_device(const struct digest *digest, const struct leaking *leaking, size_t sites,
		       const struct room *room, struct strbuf *out)
{
	const struct findings *found = digest->found;
	struct site_rows rows = {.count = 0};
	struct strbuf line = {0}, when = {0};
	double rest = leaking->bytes_per_step;
	size_t i, shown = 0;

	/* A line that says "1 more" has room for it, but not for what keeps its blocks. */
	if (!room->brief && (room->cures || sites < 2) && leaking->sites == sites + 1 &&
	    sites + 1 < DEVICE_ROWS)
		sites++;
	strbuf_add_str(&line, leaking->worst->small ? "SMALL LEAK on " : "LEAK on ");
	say_device(&line, found->vendor, leaking->device);
	strbuf_add_str(&line, ": ");
	add_growth(found, leaking->bytes_per_step, leaking->bytes, leaking->first_step, &line);
	/* Where memory ran out, the device was full. A small leak never fills it. */
	if (digest->oom_count == 0 && !leaking->worst->small &&
	    full_words(found, leaking->worst, &when))
		strbuf_addf(&line, "; %s", strbuf_str(&when));
	strbuf_addf(out, "%s\n", strbuf_str(&line));
	for (i = 0; i < FINDINGS_COUNT(found, place) && shown < sites; i++) {
		const struct finding_place *place = &FINDINGS(found, place)[i];

		if (place->device != leaking->device ||
		    !is_listed(found, place, leaking->worst->small))
			continue;
		leak_row(found, place, &rows);
		rest -= place->bytes_per_step;
		shown += place_count(place);
	}
	if (room->keepers)
		add_keepers(found, &rows, room->cures);
	add_rows(found, &rows, out);
	if (leaking->sites > shown && !room->brief) {
		strbuf_add_str(out, "  ... ");
		say_number(out, leaking->sites - shown);
		strbuf_addf(out, " more %s%s, ", site_noun(found),
			    leaking->sites - shown == 1 ? "" : "s");
		rate_words(found, rest > 0 ? rest : 0, out);
		strbuf_addf(out, " per %s; see report.txt\n", rate_unit(found));
	}
	strbuf_reset(&line);
	add_explained(found, leaking->worst, &line);
	add_along(found, leaking, &line);
	add_checked(found, &line);
	if (!room->brief)
		add_last(&line, out);
	strbuf_fini(&line);
	strbuf_fini(&when);
}

/* "NPU 15  +256 KiB/step": columns of the names and of the rates. */
static void device_columns(const struct findings *found, const struct leaks_by_device *leaks,
			   size_t *out_names, size_t *out_rates)
{
	size_t i;

	for (i = 0; i < leaks->count && i < DEVICE_ROWS; i++) {
		struct strbuf device = {0}, rate = {0};

		say_device(&device, found->vendor, leaks->all[i].device);
		rate_words(found, leaks->all[i].bytes_per_step, &rate);
		widen(out_names, columns_of(&device));
		widen(out_rates, columns_of(&rate));
		strbuf_fini(&device);
		strbuf_fini(&rate);
	}
}

/* One line for each device. */
static void many_devices(const struct findings *found, const struct leaks_by_device *leaks,
			 struct strbuf *out)
{
	struct site_rows rows = {.count = 0};
	struct strbuf line = {0};
	size_t i, names = 0, rates = 0;

	device_columns(found, leaks, &names, &rates);
	strbuf_addf(out, "%s on %zu devices: ", leaks->all[0].worst->small ? "SMALL LEAK" : "LEAK",
		    leaks->count);
	add_growth(found, leaks->bytes_per_step, leaks->bytes, leaks->first_step, out);
	strbuf_add_char(out, '\n');
	for (i = 0; i < leaks->count && i < DEVICE_ROWS; i++) {
		const struct leaking *leaking = &leaks->all[i];
		struct site_row *row = &rows.all[rows.count++];
		struct strbuf device = {0}, rate = {0};

		*row = (struct site_row){0};
		say_device(&device, found->vendor, leaking->device);
		rate_words(found, leaking->bytes_per_step, &rate);
		strbuf_addf(&row->left, "%-*s  %*s/%s", (int)names, strbuf_str(&device), (int)rates,
			    strbuf_str(&rate), found->judgement.by_time ? "s" : "step");
		strbuf_fini(&device);
		strbuf_fini(&rate);
		add_name(found, leaking->worst, row);
		if (leaking->sites > 1)
			strbuf_addf(&row->right, "and %zu more", leaking->sites - 1);
		else
			row->known = leaking->worst;
		if (row->known != NULL)
			place_brief(found, row->known, true, &row->right);
	}
	add_rows(found, &rows, out);
	if (leaks->count > i)
		strbuf_addf(out, "  ... %zu more devices in report.txt\n", leaks->count - i);
	add_checked(found, &line);
	/* A row for each device is worth more. */
	if (leaks->count <= DEVICE_ROWS / 2)
		add_last(&line, out);
	strbuf_fini(&line);
}

/* Small ones take a device a thousand million steps to fill. Returns whether there are leaks of that kind. */
static bool page_leaks(struct page *page, const struct digest *digest, bool small, size_t sites,
		       const struct room *room)
{
	const struct findings *found = digest->found;
	struct leaks_by_device leaks;
	struct part *part;
	bool any;

	find_leaks(found, small, &leaks);
	if (leaks.count > 0) {
		part = page_add(page, small ? 65 : PAGE_STAYS, small ? "small leaks" : NULL);
		part->apart = true;
		part->severity = leaks.all[0].worst->severity;
		if (leaks.count == 1)
			one_device(digest, &leaks.all[0], sites, room, &part->text);
		else
			many_devices(found, &leaks, &part->text);
	}
	any = leaks.count > 0;
	free(leaks.all);
	return any;
}

/* ---- growth that no call site explains ---- */

static void page_growth(struct page *page, const struct findings *found)
{
	const struct findings_judgement *judgement = &found->judgement;
	struct part *part = page_add(page, 90, "growth of pools");
	struct strbuf lines = {0};

	part->apart = judgement->leaks == 0;
	part->severity = SEVERITY_WARNING;
	FINDINGS_EACH (found, trend, trend) {
		bool grows = trend->trend == GROWTH_LEAK;

		if (!is_unexplained(found, trend))
			continue;
		strbuf_add_str(&lines, grows ? "GROWTH of " : "No call site leaks, but ");
		pool_words(found, trend->pool, trend->device, &lines);
		strbuf_add_str(&lines, grows ? ": " : " may be growing: ");
		add_growth(found, trend->bytes_per_step, 0, 0, &lines);
		strbuf_add_str(&lines, ", ");
		rises_words(found, "rose", trend->rises, trend->steps, &lines);
		if (!grows)
			strbuf_add_str(&lines, ".\n");
		else if (trend->explained > 0)
			strbuf_addf(&lines, "; the leaks account for %.0f %% of it.\n",
				    100 * trend->explained);
		else
			strbuf_add_str(&lines, judgement->suspects > 0
						       ? "; no call site is known to leak.\n"
						       : "; no call site explains it.\n");
	}
	screen_wrap(strbuf_str(&lines), 2, &part->text);
	strbuf_fini(&lines);
}

/* ---- suspects ---- */

/* How long a run has to be for its suspects to be told from caches, of one that is too short. */
static uint64_t steps_needed(const struct findings *found)
{
	uint64_t most = 0;

	FINDINGS_EACH (found, place, place) {
		uint64_t needed = place->more_steps == 0 || place->by_quiet
					  ? FEW_STEPS
					  : found->judgement.last_step + place->more_steps;

		if (place->verdict == GROWTH_SUSPECT && needed > most)
			most = needed;
	}
	return most;
}

static void suspect_head(const struct findings *found, uint64_t count, uint64_t bytes,
			 uint32_t device, bool several, struct strbuf *out)
{
	const struct findings_judgement *judgement = &found->judgement;

	strbuf_add_str(out, "SUSPECT on ");
	if (several)
		strbuf_add_str(out, "several devices");
	else
		say_device(out, found->vendor, device);
	strbuf_add_str(out, ": ");
	say_count(out, count, site_noun(found));
	strbuf_add_str(out, " kept ");
	strbuf_add_size(out, bytes);
	if (judgement->by_time)
		strbuf_add_str(out, "; mark steps with msmemscope.step() to be sure\n");
	else if (judgement->last_step < FEW_STEPS)
		strbuf_addf(out, "; %u steps are too few to tell: run %llu or more\n",
			    judgement->last_step, (unsigned long long)steps_needed(found));
	else
		strbuf_add_str(out, "; run longer to tell a leak from a cache\n");
}

/* Whether suspects are on more than one device. */
static bool several_devices(const struct findings *found)
{
	const struct finding_place *first = NULL;

	FINDINGS_EACH (found, place, place) {
		if (place->verdict != GROWTH_SUSPECT)
			continue;
		if (first != NULL && first->device != place->device)
			return true;
		first = place;
	}
	return false;
}

static void page_suspects(struct page *page, const struct findings *found, const struct room *room)
{
	struct part *part = page_add(page, 80, "suspects");
	struct site_rows rows = {.count = 0};
	const struct finding_place *first = NULL;
	struct strbuf line = {0};
	uint64_t count = 0, bytes = 0;
	bool several = several_devices(found);
	size_t shown = 0;

	part->apart = true;
	FINDINGS_EACH (found, place, place) {
		struct site_row *row = &rows.all[rows.count];

		if (place->verdict != GROWTH_SUSPECT)
			continue;
		first = first == NULL ? place : first;
		bytes += place->kept_bytes;
		count += place_count(place);
		if (count > room->suspects)
			continue;
		*row = (struct site_row){.known = place};
		strbuf_add_size(&row->left, place->kept_bytes);
		add_name(found, place, row);
		if (several) {
			strbuf_add_str(&row->on, " on ");
			say_device(&row->on, found->vendor, place->device);
		}
		place_brief(found, place, true, &row->right);
		rows.count++;
		shown += place_count(place);
	}
	if (count == 0)
		return;
	part->severity = first->severity;
	suspect_head(found, count, bytes, first->device, several, &part->text);
	if (!kept_as_leak(found, rows.all[0].known))
		add_keepers(found, &rows, room->cures);
	add_rows(found, &rows, &part->text);
	if (count > shown) {
		strbuf_add_str(&part->text, "  ... ");
		say_count(&part->text, count - shown, "more suspect");
		strbuf_add_str(&part->text, " in report.txt\n");
	}
	if (found->judgement.leaks > 0)
		return;
	add_checked(found, &line);
	add_last(&line, &part->text);
	strbuf_fini(&line);
}

/* ---- nothing was found ---- */

static const struct finding_unjudged *first_unjudged(const struct findings *found)
{
	FINDINGS_EACH (found, unjudged, unjudged) {
		if (unjudged->reason != LEAKS_POOL_CACHE && unjudged->reason != LEAKS_AFTER_LAST)
			return unjudged;
	}
	return NULL;
}

static bool any_grows(const struct findings *found)
{
	size_t i;

	for (i = 0; i < FINDINGS_COUNT(found, trend); i++) {
		if (FINDINGS(found, trend)[i].trend != GROWTH_KEPT)
			return true;
	}
	return false;
}

static void add_span(const struct findings *found, struct strbuf *out)
{
	const struct findings_judgement *judgement = &found->judgement;

	say_count(out, judgement->kept, site_noun(found));
	strbuf_add_str(out, " checked over ");
	if (judgement->by_time) {
		span_words(found, judgement->last_step, out);
		strbuf_add_str(out, " (no steps were marked)");
	} else if (judgement->first_step == judgement->last_step) {
		strbuf_addf(out, "step %u", judgement->last_step);
	} else {
		strbuf_addf(out, "steps %u to %u", judgement->first_step, judgement->last_step);
	}
}

/* Neither a driver nor the allocator of CPU tensors is called a pool. */
static const char *steady_words(const struct findings *found)
{
	size_t i;

	for (i = 0; i < FINDINGS_COUNT(found, trend); i++) {
		if (pool_is_driver(FINDINGS(found, trend)[i].pool))
			return "memory is steady";
	}
	return FINDINGS_COUNT(found, trend) == 1 ? "the pool is steady" : "the pools are steady";
}

/* The pool that grew most until shortly before the end. */
/* Growth that stopped late is worth a word from here on, and from this part of the peak on. */
#define STOPPED_LEAST	1048576u
#define STOPPED_OF_PEAK 100u

static bool stopped_late(const struct findings *found, const struct finding_trend *trend)
{
	return trend->last_rise != 0 && found->judgement.last_step > trend->last_rise &&
	       trend->grown_bytes >= STOPPED_LEAST &&
	       trend->grown_bytes >= trend->peak_bytes / STOPPED_OF_PEAK;
}

static const struct finding_trend *late_stop(const struct findings *found)
{
	const struct finding_trend *most = NULL;

	FINDINGS_EACH (found, trend, trend) {
		if (stopped_late(found, trend) &&
		    (most == NULL || trend->grown_bytes > most->grown_bytes))
			most = trend;
	}
	return most;
}

/* "CPU tensors do not grow", "The PyTorch pool does not grow", below memory of the host that does. */
static void add_flat(const struct findings *found, struct strbuf *out)
{
	struct strbuf name = {0};
	uint8_t pool = FINDINGS(found, trend)[0].pool;
	bool one = FINDINGS_COUNT(found, trend) == 1;

	if (one)
		say_the_pool(&name, found->vendor, pool);
	else
		strbuf_add_str(&name, "recorded memory");
	strbuf_addf(out, "%c%s", toupper((unsigned char)strbuf_str(&name)[0]),
		    strbuf_str(&name) + 1);
	strbuf_add_str(out, one && pool == POOL_host ? " do not grow" : " does not grow");
	if (found->judgement.kept > 0) {
		strbuf_add_str(out, ": ");
		add_span(found, out);
	}
	strbuf_fini(&name);
}

static void page_clean(struct page *page, const struct findings *found)
{
	const struct finding_unjudged *unjudged = first_unjudged(found);
	const struct finding_trend *stopped = late_stop(found);
	bool host = FINDINGS_COUNT(found, host_growth) > 0;
	struct part *part = page_add(page, PAGE_STAYS, NULL);
	struct strbuf *out = &part->text, line = {0};

	part->apart = !host;
	part->severity = host ? SEVERITY_NONE : SEVERITY_GOOD;
	if (any_grows(found)) {
		part->apart = false;
		strbuf_add_str(&line, "  ");
		add_checked(found, &line);
	} else if (unjudged != NULL) {
		part->severity = SEVERITY_NONE;
		/* What hides a whole pool leaves nothing to say about leaks. */
		strbuf_add_str(&line, unjudged->reason == LEAKS_POOL_UNSEEN
					      ? "Leaks were not judged: "
				      : host ? "No leak in recorded memory, but "
					     : "No leak found, but ");
		say_count(&line, unjudged->blocks, "block");
		strbuf_add_str(&line, " (");
		strbuf_add_size(&line, unjudged->bytes);
		strbuf_addf(&line, ") %s not judged: %s. ", unjudged->blocks == 1 ? "was" : "were",
			    unjudged_why(unjudged));
		add_span(found, &line);
		strbuf_add_char(&line, '.');
	} else if (stopped != NULL) {
		part->severity = SEVERITY_WARNING;
		strbuf_add_str(&line,
			       host ? "No leak in recorded memory, but " : "No leak found, but ");
		say_the_pool(&line, found->vendor, stopped->pool);
		strbuf_add_char(&line, ' ');
		late_stop_words(found, stopped, &line);
		strbuf_add_str(&line, ": run longer to be sure. ");
		add_span(found, &line);
		strbuf_add_char(&line, '.');
	} else if (host) {
		add_flat(found, &line);
		strbuf_add_char(&line, '.');
	} else {
		strbuf_add_str(&line, "No leak found: ");
		add_span(found, &line);
		strbuf_addf(&line, "; %s.", steady_words(found));
	}
	strbuf_add_char(&line, '\n');
	screen_wrap(strbuf_str(&line), 3, out);
	strbuf_fini(&line);
}

/* ---- memory of the host ---- */

/* Growth that recorded blocks explain is shown with those blocks. */
static void page_host(struct page *page, const struct findings *found, bool growth_said)
{
	struct part *killed = page_add(page, PAGE_STAYS, NULL);
	struct part *grows = page_add(page, 88, "growth of host memory");
	struct strbuf line = {0};
	size_t i;

	killed->apart = grows->apart = true;
	for (i = 0; i < FINDINGS_COUNT(found, host_kill); i++) {
		strbuf_reset(&line);
		killed->severity = FINDINGS(found, host_kill)[i].severity;
		strbuf_add_str(&line, "OUT OF HOST MEMORY: ");
		host_kill_sentence(found, &FINDINGS(found, host_kill)[i], &line);
		strbuf_add_char(&line, '\n');
		screen_wrap(strbuf_str(&line), 4, &killed->text);
	}
	FINDINGS_EACH (found, host_growth, growth) {
		if (growth_said || (growth->explained >= 0.5 && found->judgement.leaks > 0))
			continue;
		grows->severity = growth->severity;
		page_host_growth(growth, &grows->text);
	}
	strbuf_reset(&line);
	host_rise_brief(found, &line);
	if (line.length > 0) {
		strbuf_add_char(&line, '\n');
		screen_wrap(strbuf_str(&line), 3, &page_add(page, WORTH_NOTES, NULL)->text);
	}
	strbuf_fini(&line);
}

void page_host_growth(const struct finding_host_growth *growth, struct strbuf *out)
{
	struct strbuf line = {0};

	strbuf_add_str(&line, "HOST MEMORY GROWS: ");
	host_growth_brief(growth, &line);
	strbuf_add_char(&line, '\n');
	screen_wrap(strbuf_str(&line), 3, out);
	strbuf_fini(&line);
}

void page_verdicts(struct page *page, const struct digest *digest, const struct room *room)
{
	const struct findings *found = digest->found;
	const struct findings_judgement *judgement;
	struct room below = *room;

	if (digest->not_judged.length > 0) {
		struct part *part = page_add(page, PAGE_STAYS, NULL);

		part->apart = true;
		screen_wrap(strbuf_str(&digest->not_judged), 3, &part->text);
	}
	if (found != NULL)
		page_host(page, found, room->host_said);
	if (found != NULL && !found->judgement.asked && digest->not_judged.length == 0)
		strbuf_add_str(&page_add(page, WORTH_NOTES, NULL)->text,
			       "Leaks were not looked for: --analysis leaves them out.\n");
	if (found == NULL || !found->judgement.judged)
		return;
	judgement = &found->judgement;
	if (judgement->leaks > 0 && page_leaks(page, digest, false, room->sites, room)) {
		below.brief = true;
	}
	page_growth(page, found);
	if (judgement->suspects > 0)
		page_suspects(page, found, room);
	/* Below larger ones the sums of small ones would only repeat what stands above. */
	if (judgement->leaks > 0)
		(void)page_leaks(page, digest, true, room->suspects, &below);
	/* Where memory ran out, growth ended because of that. */
	if (judgement->leaks + judgement->suspects == 0 && digest->oom_count == 0 &&
	    FINDINGS_COUNT(found, trend) > 0)
		page_clean(page, found);
	/* Where memory ran out, that part has said so. */
	if (judgement->leaks + judgement->suspects > 0 && !judgement->has_stacks &&
	    digest->oom_count == 0)
		strbuf_add_str(&page_add(page, 70, NULL)->text, SCREEN_NO_STACKS);
}

/* ---- the lines of the original ---- */

static void add_direct(const struct findings *found, const struct finding_place *place,
		       struct strbuf *out)
{
	if (place->examples.count == 0)
		return;
	direct_line(found, place, &FINDINGS(found, block)[place->examples.first], out);
	strbuf_add_char(out, '\n');
}

void page_compatible(struct page *page, const struct digest *digest, bool brief, bool terminal)
{
	const struct findings *found = digest->found;
	struct leaks_by_device leaks;
	struct part *part;
	char text[16];

	if (found == NULL || !found->judgement.judged)
		return;
	find_leaks(found, false, &leaks);
	part = page_add(page, PAGE_STAYS, NULL);
	if (leaks.count > 0) {
		const struct leaking *worst = &leaks.all[0];
		struct strbuf *out = &part->text;

		part->severity = worst->worst->severity;
		project_device_text(worst->device, text);
		strbuf_addf(out, "====== ERROR: Detected memory leaks on device %s ======\n", text);
		/* Of several devices the worst has these two lines. */
		brief = brief || terminal || leaks.count > 1;
		if (!brief)
			add_direct(found, worst->worst, out);
		if (worst->blocks > 1 && !brief) {
			strbuf_add_str(out, "... ");
			say_number(out, worst->blocks - 1);
			strbuf_add_str(out, " more in report.txt\n");
		}
		strbuf_addf(out, "====== SUMMARY: %g Mb(s) leaked in %llu allocation(s) ======\n",
			    (double)worst->bytes / MIB, (unsigned long long)worst->blocks);
		if (leaks.count > 1)
			strbuf_addf(out, "... %zu more %s in report.txt\n", leaks.count - 1,
				    leaks.count == 2 ? "device" : "devices");
	} else if (found->judgement.leaks + found->judgement.suspects > 0 && !terminal) {
		part->worth = 20;
		project_device_text(FINDINGS(found, place)[0].device, text);
		strbuf_addf(&part->text, "====== WARNING: %s memory leaks on device %s ======\n",
			    found->judgement.leaks > 0 ? "Small" : "Suspected", text);
		add_direct(found, FINDINGS(found, place), &part->text);
	}
	free(leaks.all);
}
