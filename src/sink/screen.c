/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The screen as a whole: one process, or a table of many and the worst of them; then files, and the lines of the original.
 */
#include "sink/screen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/whole.h"
#include "findings/say.h"
#include "sink/screen_names.h"
#include "sink/screen_page.h"

#define SHARED	 2 /* call sites that several processes have */
#define ROW_NAME 28
#define ROW_HOST 12 /* of it, a column for memory of the host */

/* ---- words ---- */

/* The growth of resident memory that a process itself has, or that those have which it started; NULL: none. */
static const struct finding_host_growth *host_growth(const struct digest *digest, bool own)
{
	const struct findings *found = digest->found;
	size_t i;

	for (i = 0; found != NULL && i < FINDINGS_COUNT(found, host_growth); i++) {
		if (FINDINGS(found, host_growth)[i].own == own)
			return &FINDINGS(found, host_growth)[i];
	}
	return NULL;
}

/* What is suspected is memory of the host, and nothing of what was recorded. */
static bool is_host_alone(const struct digest *digest)
{
	const struct findings *found = digest->found;
	size_t i;

	if (digest->verdict != VERDICT_SUSPECT || found == NULL || found->judgement.suspects > 0)
		return false;
	for (i = 0; i < FINDINGS_COUNT(found, trend); i++) {
		if (FINDINGS(found, trend)[i].trend != GROWTH_KEPT)
			return false;
	}
	return FINDINGS_COUNT(found, host_growth) > 0;
}

/* Only processes that it started grow. */
static bool is_childs_alone(const struct digest *digest)
{
	return is_host_alone(digest) && host_growth(digest, true) == NULL;
}

static const char *process_verdict(const struct digest *digest)
{
	static const char *const words[VERDICTS] = {[VERDICT_NOTHING] = "not judged",
						    [VERDICT_FINE] = "no leak",
						    [VERDICT_SUSPECT] = "suspect",
						    [VERDICT_LEAK] = "LEAK",
						    [VERDICT_OOM] = "OUT OF MEMORY"};

	if (is_childs_alone(digest))
		return "its child processes grow";
	if (is_host_alone(digest))
		return "HOST MEMORY GROWS";
	return words[digest->verdict];
}

/* Of its own: call sites and resident memory. */
static double growth_of(const struct digest *digest)
{
	const struct finding_host_growth *host = host_growth(digest, true);

	return findings_growth(digest->found) + (host == NULL ? 0
						 : host->bytes_per_step > 0
							 ? host->bytes_per_step
							 : host->bytes_per_second);
}

/* Resident at most; 0: it was not sampled. */
static uint64_t resident_of(const struct digest *digest)
{
	const struct findings *found = digest->found;
	size_t i;

	for (i = 0; found != NULL && i < FINDINGS_COUNT(found, host_process); i++) {
		if (FINDINGS(found, host_process)[i].own)
			return FINDINGS(found, host_process)[i].peak_bytes;
	}
	return 0;
}

/* Processes whose memory of the host grows, or rose by much in a run too short to judge that. */
static size_t host_rising(const struct digest **sorted, size_t count)
{
	const struct finding_host_process *largest;
	size_t i, most = 0;

	for (i = 0; i < count; i++) {
		const struct findings *found = sorted[i]->found;
		size_t rose = found == NULL ? 0 : host_risen(found, &largest);

		if (found != NULL && rose == 0 && FINDINGS_COUNT(found, host_growth) > 0)
			rose = 1;
		most = rose > most ? rose : most;
	}
	return most;
}

static uint64_t peak_of(const struct digest *digest)
{
	return digest->pool_count == 0 ? 0 : digest->pools[0].peak_bytes;
}

int screen_worst_first(const void *a, const void *b)
{
	const struct digest *x = *(const struct digest *const *)a,
			    *y = *(const struct digest *const *)b;

	if (x->verdict != y->verdict)
		return x->verdict > y->verdict ? -1 : 1;
	if (growth_of(x) != growth_of(y)) /* same figures, same sums */
		return growth_of(x) > growth_of(y) ? -1 : 1;
	if (peak_of(x) != peak_of(y))
		return peak_of(x) > peak_of(y) ? -1 : 1;
	if (x->rank != y->rank)
		return x->rank < y->rank ? -1 : 1;
	return x->pid < y->pid ? -1 : x->pid > y->pid;
}

/* ---- many processes ---- */

static void table_row(const struct digest *digest, bool host, struct strbuf *out)
{
	struct strbuf name = {0}, peak = {0}, end = {0}, resident = {0};
	int room = host ? ROW_NAME - ROW_HOST : ROW_NAME;
	char rank[24] = "-";
	size_t i;
	uint64_t end_bytes = 0;

	if (digest->rank >= 0)
		(void)snprintf(rank, sizeof(rank), "%lld", (long long)digest->rank);
	screen_cut(digest->name == NULL ? "?" : digest->name, (size_t)room, &name);
	for (i = 0; i < digest->pool_count; i++) {
		if (digest->pools[i].pool == digest->pools[0].pool)
			end_bytes += digest->pools[i].end_bytes;
	}
	strbuf_add_size(&peak, peak_of(digest));
	strbuf_add_size(&end, end_bytes);
	strbuf_addf(out, "  %4s  %8u  %s%*s  %10s  %10s  ", rank, digest->pid, strbuf_str(&name),
		    room - (int)screen_columns(strbuf_str(&name)), "", strbuf_str(&peak),
		    strbuf_str(&end));
	if (host) {
		strbuf_add_size(&resident, resident_of(digest));
		strbuf_addf(out, "%10s  ", resident_of(digest) == 0 ? "-" : strbuf_str(&resident));
	}
	strbuf_add_str(out, process_verdict(digest));
	if (digest->damaged)
		strbuf_add_str(out, ", damaged");
	else if (digest->lossy)
		strbuf_add_str(out, ", events lost");
	if (digest->signal != NULL)
		strbuf_addf(out, ", %s", digest->signal);
	strbuf_add_char(out, '\n');
	strbuf_fini(&name);
	strbuf_fini(&peak);
	strbuf_fini(&end);
	strbuf_fini(&resident);
}

static void page_table(struct page *page, const struct digest **sorted, size_t count, size_t rows)
{
	struct strbuf *out = &page_add(page, PAGE_STAYS, NULL)->text;
	size_t i, more[VERDICTS] = {0};
	bool host = host_rising(sorted, count) > 0;
	const char *between = "";
	int v;

	strbuf_addf(out, "  %4s  %8s  %-*s  %10s  %10s  %s%s\n", "rank", "pid",
		    host ? ROW_NAME - ROW_HOST : ROW_NAME, "program", host ? "pool peak" : "peak",
		    "at the end", host ? "  host RSS  " : "", "verdict");
	for (i = 0; i < count; i++) {
		if (i < rows)
			table_row(sorted[i], host, out);
		else
			more[sorted[i]->verdict]++;
	}
	if (count <= rows)
		return;
	strbuf_addf(out, "  ... %zu more: ", count - rows);
	for (v = VERDICTS - 1; v >= 0; v--) {
		struct digest word = {.verdict = (enum process_verdict)v};

		if (more[v] == 0)
			continue;
		strbuf_addf(out, "%s%zu %s", between, more[v], process_verdict(&word));
		between = ", ";
	}
	strbuf_add_char(out, '\n');
}

static const struct finding_place *find_place(const struct digest *digest,
					      const struct finding_place *place)
{
	const struct findings *found = digest->found;
	size_t i;

	for (i = 0; found != NULL && i < FINDINGS_COUNT(found, place); i++) {
		const struct finding_place *other = &FINDINGS(found, place)[i];

		if (other->verdict == place->verdict && other->pool == place->pool &&
		    strcmp(other->name, place->name) == 0)
			return other;
	}
	return NULL;
}

/* "+1.0 MiB to +1.4 MiB", and once what reads the same. */
static void add_rates(const struct findings *found, double least, double most, struct strbuf *out)
{
	struct strbuf low = {0}, high = {0};

	rate_words(found, least, &low);
	rate_words(found, most, &high);
	strbuf_add_str(out, strbuf_str(&low));
	if (strcmp(strbuf_str(&low), strbuf_str(&high)) != 0)
		strbuf_addf(out, " to %s", strbuf_str(&high));
	strbuf_fini(&low);
	strbuf_fini(&high);
}

/* Call sites of the worst process that others have too, once. */
static void page_shared(struct page *page, const struct digest **sorted, size_t count)
{
	struct part *part = page_add(page, PAGE_STAYS, NULL);
	const struct findings *found = sorted[0]->found;
	struct strbuf *out = &part->text;
	size_t i, k, shown = 0;

	for (i = 0; found != NULL && i < FINDINGS_COUNT(found, place) && shown < SHARED; i++) {
		const struct finding_place *place = &FINDINGS(found, place)[i], *other;
		double least = place->bytes_per_step, most = least;
		size_t with = 0, columns;
		const char *line;

		for (k = 0; k < count && place->verdict != GROWTH_KEPT; k++) {
			other = find_place(sorted[k], place);
			if (other == NULL)
				continue;
			with++;
			least = other->bytes_per_step < least ? other->bytes_per_step : least;
			most = other->bytes_per_step > most ? other->bytes_per_step : most;
		}
		if (with < 2)
			continue;
		if (place->severity > part->severity)
			part->severity = place->severity;
		strbuf_addf(out, "%s in %zu of %zu processes: ",
			    place->small		    ? "SMALL LEAK"
			    : place->verdict == GROWTH_LEAK ? "LEAK"
							    : "SUSPECT",
			    with, count);
		if (most > 0) {
			add_rates(found, least, most, out);
			strbuf_addf(out, " per %s, ", rate_unit(found));
		}
		line = strrchr(strbuf_str(out), '\n');
		columns = screen_columns(line == NULL ? strbuf_str(out) : line + 1);
		screen_name(place->name, place->stack != 0, NULL, 0,
			    columns < SCREEN_COLUMNS ? SCREEN_COLUMNS - columns : 0, out);
		strbuf_add_char(out, '\n');
		shown++;
	}
}

/* Growth of processes that others have started is said once, with all of them; NULL: there is none. */
static const struct finding_host_growth *shared_host(const struct digest **sorted, size_t count)
{
	const struct finding_host_growth *most = NULL;
	size_t i;

	for (i = 0; i < count; i++) {
		const struct finding_host_growth *one = host_growth(sorted[i], false);

		if (one != NULL && (most == NULL || one->bytes > most->bytes))
			most = one;
	}
	return most;
}

/* Whether it is among the processes of a group; only the first four have their numbers there. */
static bool has_pid(const struct finding_host_growth *group, uint32_t pid)
{
	const char *at = group->pids;

	while (*at != '\0') {
		char *end;
		unsigned long number = strtoul(at, &end, 10);

		if (end == at)
			return true; /* "... 3 more" */
		if (number == pid)
			return true;
		at = end + strspn(end, ", ");
	}
	return false;
}

/* Returns whether the growth of the worst process is among it. */
static bool page_shared_host(struct page *page, const struct digest **sorted, size_t count)
{
	struct part *part = page_add(page, 88, "growth of host memory");
	const struct finding_host_growth *group = shared_host(sorted, count);

	if (group == NULL)
		return false;
	part->severity = group->severity;
	page_host_growth(group, &part->text);
	return host_growth(sorted[0], true) == NULL || has_pid(group, sorted[0]->pid);
}

static bool is_unjudged(const struct digest *digest)
{
	return digest->verdict == VERDICT_NOTHING && digest->found != NULL &&
	       digest->found->judgement.asked && !digest->found->judgement.judged;
}

static void page_head_many(struct page *page, const struct digest **sorted, size_t count)
{
	struct part *part = page_add(page, PAGE_STAYS, NULL);
	size_t bad = 0, unjudged = 0, childs = 0, rising = host_rising(sorted, count), i;
	bool grows = false; /* one of those that were recorded, for itself */

	part->severity = SEVERITY_TITLE;
	for (i = 0; i < count; i++) {
		bad += sorted[i]->verdict >= VERDICT_SUSPECT;
		childs += is_childs_alone(sorted[i]);
		grows = grows || host_growth(sorted[i], true) != NULL;
		unjudged += is_unjudged(sorted[i]);
	}
	bad -= grows ? childs : 0;
	strbuf_addf(&part->text, "%zu processes", count);
	if (bad > 0)
		strbuf_addf(&part->text, ", %zu with a finding; worst first", bad);
	else if (unjudged < count)
		strbuf_add_str(&part->text, rising > 0	    ? ": no leak found"
					    : unjudged == 0 ? ": no problem found in any of them"
							    : ": no problem found");
	if (bad == 0 && rising > 0)
		strbuf_addf(&part->text, "; host memory of %zu %s rose", rising,
			    rising == 1 ? "process" : "processes");
	if (unjudged > 0)
		strbuf_addf(&part->text, "; %zu of %zu %s too short to judge", unjudged, count,
			    unjudged == 1 ? "was" : "were");
	strbuf_add_char(&part->text, '\n');
}

/* ---- the whole ---- */

static void page_files(struct page *page, const struct screen *screen, const struct digest *worst)
{
	struct part *part = page_add(page, PAGE_STAYS, NULL);
	struct strbuf files = {0}, more = {0};
	bool fits;

	part->whole = true;
	if (screen->after != NULL)
		strbuf_add_str(&part->text, screen->after);
	if (worst == NULL)
		return;
	if (worst->dumps != NULL)
		strbuf_addf(&part->text, "Dumps: %s\n", worst->dumps);
	if (worst->project == NULL)
		return;
	part->apart = true;
	strbuf_addf(&files, "Files: %s",
		    screen->count > 1 && screen->files != NULL ? screen->files : worst->project);
	if (screen->report != NULL)
		strbuf_addf(&files, " (%s", screen->report);
	if (screen->more != NULL)
		strbuf_addf(&more, "msmemscope info %s",
			    screen->count > 1 ? worst->project : screen->more);
	fits = screen_columns(strbuf_str(&files)) + screen_columns(strbuf_str(&more)) +
		       strlen("; more: )") <=
	       SCREEN_COLUMNS;
	strbuf_add_str(&part->text, strbuf_str(&files));
	if (screen->more == NULL)
		strbuf_add_str(&part->text, screen->report != NULL ? ")\n" : "\n");
	else if (fits)
		strbuf_addf(&part->text, "%smore: %s)\n", screen->report != NULL ? "; " : " (",
			    strbuf_str(&more));
	else
		strbuf_addf(&part->text, "%s\nMore:  %s\n", screen->report != NULL ? ")" : "",
			    strbuf_str(&more));
	strbuf_fini(&files);
	strbuf_fini(&more);
}

/* The table of the original; it has all that it says or nothing. */
static void page_gaps(struct page *page, const struct digest *digest)
{
	screen_wrap(strbuf_str(&digest->gaps), 2, &page_add(page, 10, "gap analysis")->text);
}

static bool has_finding(const struct digest *digest)
{
	const struct findings *found = digest->found;

	return (found != NULL && found->judgement.leaks + found->judgement.suspects +
						 FINDINGS_COUNT(found, host_growth) +
						 FINDINGS_COUNT(found, host_kill) >
					 0) ||
	       (digest->oom_count > 0 && digest->oom_asked) || digest->watched.length > 0 ||
	       digest_has_section(digest) || digest->decomposed;
}

/* All parts, with lists of this length. */
static void page_make(struct page *page, const struct screen *screen, const struct digest **sorted,
		      bool shown, const struct room *lists)
{
	struct room room_of_page = *lists, *room = &room_of_page;

	*page = (struct page){.spaced = true};
	if (screen->before != NULL && screen->before[0] != '\0') {
		struct part *part = page_add(page, PAGE_STAYS, NULL);

		part->whole = true;
		strbuf_add_str(&part->text, screen->before);
	}
	if (shown && screen->count == 1) {
		page_head(page, sorted[0], "");
	} else if (shown) {
		page_head_many(page, sorted, screen->count);
		page_table(page, sorted, screen->count, room->processes);
		page_shared(page, sorted, screen->count);
		room->host_said = page_shared_host(page, sorted, screen->count);
		page_head(page, sorted[0],
			  sorted[0]->verdict >= VERDICT_SUSPECT ? "Worst: " : "Largest: ");
		page->parts[page->count - 1].worth = 52;
		page->parts[page->count - 1].apart = true;
	}
	if (shown)
		page_process(page, screen, sorted[0], room, screen->count == 1);
	if (shown || !screen->findings_only || screen->after != NULL)
		page_files(page, screen, shown ? sorted[0] : NULL);
	if (shown)
		page_compatible(page, sorted[0], room->brief, screen->terminal);
	if (shown && !screen->findings_only && !screen->terminal)
		page_gaps(page, sorted[0]);
}

/* Of many processes the table comes first: it gets shorter where nothing else does. */
static void page_choose_many(struct page *page, const struct screen *screen,
			     const struct digest **sorted, bool shown, unsigned int budget)
{
	static const struct room many[] = {
		{.processes = 16, .sites = 3, .suspects = 3, .holders = 5, .keepers = true},
		{.processes = 16,
		 .sites = 1,
		 .suspects = 1,
		 .holders = 5,
		 .brief = true,
		 .keepers = true},
		{.processes = 16,
		 .sites = 1,
		 .suspects = 1,
		 .holders = 3,
		 .brief = true,
		 .keepers = true}};
	struct room least = {
		.processes = 16, .sites = 1, .suspects = 1, .holders = 5, .brief = true};
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(many); i++) {
		page_make(page, screen, sorted, shown, &many[i]);
		if (page_worth(page, many[i].brief ? WORTH_PEAK : PAGE_BLANKS) < budget)
			return;
		page_fini(page);
	}
	/* What keeps the blocks is worth more than who held memory at the peak. */
	least.keepers = true;
	page_make(page, screen, sorted, shown, &least);
	if (page_worth(page, PAGE_STAYS) >= budget) {
		least.keepers = false;
		page_fini(page);
		page_make(page, screen, sorted, shown, &least);
	}
	/* One line names what is left out. */
	while (page_worth(page, PAGE_STAYS) >= budget && least.processes > 3) {
		page_fini(page);
		least.processes--;
		page_make(page, screen, sorted, shown, &least);
	}
}

/* Lists as long as there is room for them. */
static void page_choose(struct page *page, const struct screen *screen,
			const struct digest **sorted, bool shown, unsigned int budget)
{
	static const struct room alone[] = {
		{.sites = 5,
		 .suspects = 5,
		 .holders = 8,
		 .pools = 16,
		 .keepers = true,
		 .cures = true},
		{.sites = 3,
		 .suspects = 5,
		 .holders = 5,
		 .pools = 16,
		 .keepers = true,
		 .cures = true},
		{.sites = 3,
		 .suspects = 3,
		 .holders = 5,
		 .pools = 4,
		 .keepers = true,
		 .cures = true},
		{.sites = 3, .suspects = 3, .holders = 5, .pools = 4, .keepers = true},
		{.sites = 3, .suspects = 3, .holders = 3, .pools = 4, .keepers = true},
		{.sites = 2, .suspects = 2, .holders = 5, .pools = 4, .keepers = true},
		{.sites = 2, .suspects = 2, .holders = 3, .pools = 4, .keepers = true},
		{.sites = 1, .suspects = 1, .holders = 5, .pools = 2, .keepers = true}};
	struct room least = {.sites = 1, .suspects = 1, .holders = 3, .pools = 2, .keepers = true};
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(alone); i++) {
		if (i > 0)
			page_fini(page);
		page_make(page, screen, sorted, shown, &alone[i]);
		if (page_worth(page, PAGE_BLANKS) <= budget)
			return;
	}
	/* The peak would be left out whole; one line names what is left out. */
	for (; page_worth(page, WORTH_PEAK) >= budget && least.holders > 0; least.holders--) {
		page_fini(page);
		page_make(page, screen, sorted, shown, &least);
	}
	/* Verdicts, and who held memory when it ran out, are worth more than what was checked and the blocks of the original's lines. */
	if (page_worth(page, screen->digests[0].oom_count > 0 ? WORTH_OOM_HELD : PAGE_STAYS) >
	    budget) {
		least.brief = true;
		page_fini(page);
		page_make(page, screen, sorted, shown, &least);
	}
}

void screen_text(const struct screen *screen, struct strbuf *out)
{
	const struct digest **sorted = calloc(screen->count + 1, sizeof(*sorted));
	struct page page = {0};
	bool found = false;
	unsigned int budget =
		screen->above > SCREEN_ROWS / 2 ? SCREEN_ROWS / 2 : SCREEN_ROWS - screen->above;
	size_t i;

	if (sorted == NULL)
		return;
	for (i = 0; i < screen->count; i++) {
		sorted[i] = &screen->digests[i];
		found = found || has_finding(sorted[i]);
	}
	qsort(sorted, screen->count, sizeof(*sorted), screen_worst_first);
	found = screen->count > 0 && (found || !screen->findings_only);
	if (screen->count > 1)
		page_choose_many(&page, screen, sorted, found, budget);
	else
		page_choose(&page, screen, sorted, found, budget);
	page_fit(&page, budget);
	page_print(&page, screen->colours, out);
	page_fini(&page);
	free(sorted);
}
