/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A screen is made of parts, in the order in which a person asks. Each part is rendered in full; where the screen is too long,
 * the least important parts shrink first, down to their `least` rows, and say how much is missing.
 */
#include "sink/screen.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/analyses.h"
#include "base/text.h"
#include "base/whole.h"
#include "sink/project.h"

#define MIB		1048576.0
#define TABLE_ROWS	8 /* processes of a table */
#define TABLE_LEAST	3
#define PLACES		3 /* of each device */
#define SUSPECTS	5
#define SENTENCE_ROWS	3	   /* of what is known of a leak */
#define WHOLE		UINT32_MAX /* least rows of a part that never shrinks */
#define SUSPECTS_DIRECT 2	   /* that have the compatible line of their first block too */
#define SHARED		4	   /* places that several processes have */
#define PEAK_LEAST	3	   /* rows: a title, the largest place, how many more */
#define GAP_LEAST	4	   /* rows of the compatible table of one pool */
#define HOLDER_COLUMNS	21	   /* size and share before a place */
#define POOLS		4
#define DEVICES		2
#define PARTS		24
#define RANKS		16

struct part {
	struct strbuf text;    /* whole lines */
	unsigned int least;    /* rows that it keeps at any rate */
	unsigned int rank;     /* parts with a higher one shrink first */
	const char *rest;      /* where the rest is, for the line that counts it */
	unsigned int shortest; /* rows below which it is of no use and goes */
};

struct page {
	struct part parts[PARTS];
	size_t count;
};

/* ---- columns ---- */

/* The code point at `at` and its length in bytes; a byte that is no UTF-8 is one of its own. */
static uint32_t code_point(const char *at, size_t *out_bytes)
{
	const unsigned char *byte = (const unsigned char *)at;
	size_t length = byte[0] < 0xc2 ? 1 : byte[0] < 0xe0 ? 2 : byte[0] < 0xf0 ? 3 : 4;
	uint32_t code = length == 1 ? byte[0] : byte[0] & (0x7fu >> length);
	size_t i;

	for (i = 1; i < length; i++) {
		if ((byte[i] & 0xc0) != 0x80) {
			*out_bytes = 1;
			return byte[0];
		}
		code = code << 6 | (byte[i] & 0x3f);
	}
	*out_bytes = length;
	return code;
}

/* East Asian wide characters and emoji, roughly as wcwidth() of a UTF-8 locale has them; combining marks take nothing. */
static size_t width_of(uint32_t code)
{
	if ((code >= 0x300 && code <= 0x36f) || (code >= 0x200b && code <= 0x200f) ||
	    code == 0xfeff)
		return 0;
	return (code >= 0x1100 && code <= 0x115f) || (code >= 0x2e80 && code <= 0xa4cf) ||
			       (code >= 0xac00 && code <= 0xd7a3) ||
			       (code >= 0xf900 && code <= 0xfaff) ||
			       (code >= 0xfe30 && code <= 0xfe6f) ||
			       (code >= 0xff00 && code <= 0xff60) ||
			       (code >= 0xffe0 && code <= 0xffe6) ||
			       (code >= 0x1f300 && code <= 0x1faff) ||
			       (code >= 0x20000 && code <= 0x3fffd)
		       ? 2
		       : 1;
}

static size_t advance(const char **at, size_t column)
{
	size_t bytes;
	uint32_t code = code_point(*at, &bytes);

	*at += bytes;
	return code == '\t' ? (column / 8 + 1) * 8 : column + width_of(code);
}

size_t screen_columns(const char *text)
{
	size_t column = 0;

	while (*text != '\0' && *text != '\n')
		column = advance(&text, column);
	return column;
}

void screen_cut(const char *line, size_t columns, struct strbuf *out)
{
	const char *at = line, *fits = line;
	size_t column = 0;

	if (screen_columns(line) <= columns) {
		strbuf_add(out, line, strcspn(line, "\n"));
		return;
	}
	while (column + 3 <= columns) {
		fits = at;
		column = advance(&at, column);
	}
	strbuf_add(out, line, (size_t)(fits - line));
	strbuf_add_str(out, "...");
}

void screen_cut_middle(const char *line, size_t columns, struct strbuf *out)
{
	size_t all = screen_columns(line), column = 0, front = columns * 2 / 3;
	const char *at = line;

	if (all <= columns) {
		strbuf_add_str(out, line);
		return;
	}
	while (column + 2 <= front)
		column = advance(&at, column);
	strbuf_add(out, line, (size_t)(at - line));
	strbuf_add_str(out, "...");
	while (*at != '\0' && column + 3 + screen_columns(at) > columns)
		(void)advance(&at, 0);
	strbuf_add_str(out, at);
}

/* Appends a sentence as at most `rows` lines, broken between words; what is longer is cut. */
static void add_sentence(struct strbuf *out, const char *text, unsigned int rows)
{
	const char *indent = "";

	for (; rows > 1 && strlen(indent) + screen_columns(text) > SCREEN_COLUMNS; rows--) {
		const char *at = text, *fits = NULL;
		size_t column = strlen(indent);

		while (column <= SCREEN_COLUMNS) {
			if (*at == ' ')
				fits = at;
			column = advance(&at, column);
		}
		strbuf_add_str(out, indent);
		if (fits == NULL || fits == text) {
			/* A word longer than the line, as paths are: what follows it counts more than its end. */
			screen_cut(text, SCREEN_COLUMNS - strlen(indent), out);
			text += strcspn(text, " ");
		} else {
			strbuf_add(out, text, (size_t)(fits - text));
			text = fits;
		}
		strbuf_add_char(out, '\n');
		text += strspn(text, " ");
		indent = "      ";
	}
	if (*text == '\0')
		return;
	strbuf_add_str(out, indent);
	screen_cut(text, SCREEN_COLUMNS - strlen(indent), out);
	strbuf_add_char(out, '\n');
}

void screen_wrap(const char *lines, unsigned int rows, struct strbuf *out)
{
	struct strbuf one = {0};

	while (*lines != '\0') {
		size_t length = strcspn(lines, "\n");

		strbuf_reset(&one);
		strbuf_add(&one, lines, length);
		add_sentence(out, strbuf_str(&one), rows);
		lines += length + (lines[length] == '\n');
	}
	strbuf_fini(&one);
}

static void add_sentences(struct strbuf *out, const struct strbuf *lines, unsigned int rows)
{
	screen_wrap(strbuf_str(lines), rows, out);
}

/* Lines with a path that a person copies are never cut. */
static bool is_whole(const char *line)
{
	static const char *const prefixes[] = {
		"Files: ", "Dumps: ", "Report: ", "Next: ", "msmemscope: "};
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(prefixes); i++) {
		if (text_starts_with(line, prefixes[i]))
			return true;
	}
	return false;
}

static unsigned int rows_of(const char *line)
{
	size_t columns = screen_columns(line);

	return !is_whole(line) || columns == 0
		       ? 1
		       : (unsigned int)((columns + SCREEN_COLUMNS - 1) / SCREEN_COLUMNS);
}

static const char *next_line(const char *line)
{
	line += strcspn(line, "\n");
	return *line == '\n' ? line + 1 : line;
}

static unsigned int part_rows(const struct part *part)
{
	const char *line;
	unsigned int rows = 0;

	for (line = strbuf_str(&part->text); *line != '\0'; line = next_line(line))
		rows += rows_of(line);
	return rows;
}

/* ---- parts ---- */

static struct strbuf *add_part(struct page *page, unsigned int rank, unsigned int least,
			       const char *rest)
{
	struct part *part = &page->parts[page->count++];

	assert(page->count <= PARTS);
	*part = (struct part){.least = least, .rank = rank, .rest = rest};
	return &part->text;
}

/* Cuts a part to at most `rows` rows, the last of which counts what is missing. */
static void part_shrink(struct part *part, unsigned int rows)
{
	const char *text = strbuf_str(&part->text), *line = text, *end = text;
	unsigned int kept = 0, left = 0;

	while (*line != '\0' && kept + rows_of(line) < rows) {
		kept += rows_of(line);
		end = line = next_line(line);
	}
	for (; *line != '\0'; line = next_line(line))
		left++;
	if (left == 0)
		return;
	part->text.length = (size_t)(end - text);
	part->text.data[part->text.length] = '\0';
	if (rows > 0)
		strbuf_addf(&part->text, "  ... %u more %s%s\n", left, left == 1 ? "line" : "lines",
			    part->rest);
}

/* Shrinks the parts of one rank until the page has no more than `budget` rows; with `force` below what they want to keep. */
static unsigned int shrink_rank(struct page *page, unsigned int rank, bool force,
				unsigned int total, unsigned int budget)
{
	size_t i;

	for (i = page->count; i-- > 0 && total > budget;) {
		struct part *part = &page->parts[i];
		unsigned int rows = part_rows(part), least = force ? 1 : part->least, wanted;

		if (part->rank != rank || rows <= least)
			continue;
		wanted = rows > total - budget ? rows - (total - budget) : 0;
		wanted = wanted < least ? least : wanted;
		total -= rows;
		part_shrink(part, wanted < part->shortest ? 0 : wanted);
		total += part_rows(part);
	}
	return total;
}

/* Makes the page fit, least important parts first. */
static void page_fit(struct page *page, unsigned int budget)
{
	unsigned int total = 0, rank;
	size_t i;

	for (i = 0; i < page->count; i++)
		total += part_rows(&page->parts[i]);
	for (rank = RANKS; rank > 0 && total > budget; rank--)
		total = shrink_rank(page, rank, false, total, budget);
	for (rank = RANKS; rank > 0 && total > budget; rank--)
		total = shrink_rank(page, rank, true, total, budget);
	for (i = page->count; i-- > 0 && total > budget;) {
		if (page->parts[i].rank == 0)
			continue;
		total -= part_rows(&page->parts[i]);
		part_shrink(&page->parts[i], 0);
	}
}

/* Rows of a page whose less important parts keep what they want to keep. */
static unsigned int page_least(const struct page *page)
{
	unsigned int total = 0;
	size_t i;

	for (i = 0; i < page->count; i++) {
		const struct part *part = &page->parts[i];
		unsigned int rows = part_rows(part);

		total += part->rank > 3 && rows > part->least ? part->least : rows;
	}
	return total;
}

static void page_fini(struct page *page)
{
	while (page->count > 0)
		strbuf_fini(&page->parts[--page->count].text);
}

static void page_write(struct page *page, struct strbuf *out)
{
	size_t i;

	for (i = 0; i < page->count; i++) {
		const char *line = strbuf_str(&page->parts[i].text);

		for (; *line != '\0'; line = next_line(line)) {
			if (is_whole(line))
				strbuf_add(out, line, strcspn(line, "\n"));
			else
				screen_cut(line, SCREEN_COLUMNS, out);
			strbuf_add_char(out, '\n');
		}
		strbuf_fini(&page->parts[i].text);
	}
}

/* ---- words ---- */

static void add_device(struct strbuf *out, uint32_t device)
{
	char text[16];

	project_device_text(device, text);
	strbuf_addf(out, "%s%s", device == DEVICE_HOST || device == DEVICE_UNKNOWN ? "" : "device ",
		    text);
}

static const char *process_verdict(const struct digest *digest)
{
	static const char *const words[DIGEST_VERDICTS] = {[DIGEST_NOTHING] = "not judged",
							   [DIGEST_FINE] = "no leak",
							   [DIGEST_SUSPECT] = "suspect",
							   [DIGEST_LEAK] = "LEAK",
							   [DIGEST_OOM] = "OUT OF MEMORY"};

	return words[digest->verdict];
}

static uint64_t peak_of(const struct digest *digest)
{
	return digest->pool_count == 0 ? 0 : digest->pools[0].peak_bytes;
}

static double growth_of(const struct digest *digest)
{
	double growth = 0;
	size_t i;

	for (i = 0; i < digest->place_count; i++)
		growth += digest->places[i].growth_bytes;
	return growth;
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

static void table_row(const struct digest *digest, struct strbuf *out)
{
	struct strbuf name = {0}, peak = {0}, end = {0};
	char rank[24] = "-";
	size_t i;
	uint64_t end_bytes = 0;

	if (digest->rank >= 0)
		(void)snprintf(rank, sizeof(rank), "%lld", (long long)digest->rank);
	screen_cut(digest->name == NULL ? "?" : digest->name, 28, &name);
	for (i = 0; i < digest->pool_count; i++) {
		if (digest->pools[i].pool == digest->pools[0].pool)
			end_bytes += digest->pools[i].end_bytes;
	}
	strbuf_add_size(&peak, peak_of(digest));
	strbuf_add_size(&end, end_bytes);
	strbuf_addf(out, "  %4s  %8u  %s%*s  %10s  %10s  %s", rank, digest->pid, strbuf_str(&name),
		    (int)(28 - screen_columns(strbuf_str(&name))), "", strbuf_str(&peak),
		    strbuf_str(&end), process_verdict(digest));
	if (digest->damaged)
		strbuf_add_str(out, ", damaged");
	else if (digest->lossy)
		strbuf_add_str(out, ", events lost");
	if (digest->signal != NULL)
		strbuf_addf(out, ", %s", digest->signal);
	else if (digest->killed)
		strbuf_add_str(out, ", killed");
	strbuf_add_char(out, '\n');
	strbuf_fini(&name);
	strbuf_fini(&peak);
	strbuf_fini(&end);
}

static void part_table(struct page *page, const struct digest **sorted, size_t count, size_t rows)
{
	struct strbuf *out = add_part(page, 3, WHOLE, "");
	size_t i, more[DIGEST_VERDICTS] = {0};
	const char *between = "";
	int v;

	strbuf_addf(out, "  %4s  %8s  %-28s  %10s  %10s  %s\n", "rank", "pid", "program", "peak",
		    "at the end", "verdict");
	for (i = 0; i < count; i++) {
		if (i < rows)
			table_row(sorted[i], out);
		else
			more[sorted[i]->verdict]++;
	}
	if (count <= rows)
		return;
	strbuf_addf(out, "  ... %zu more: ", count - rows);
	for (v = DIGEST_VERDICTS - 1; v >= 0; v--) {
		struct digest word = {.verdict = (enum digest_verdict)v};

		if (more[v] == 0)
			continue;
		strbuf_addf(out, "%s%zu %s", between, more[v], process_verdict(&word));
		between = ", ";
	}
	strbuf_add_char(out, '\n');
}

static bool same_place(const struct digest_place *a, const struct digest_place *b)
{
	return a->verdict == b->verdict && a->pool == b->pool && a->where != NULL &&
	       b->where != NULL && strcmp(a->where, b->where) == 0;
}

static const struct digest_place *find_place(const struct digest *digest,
					     const struct digest_place *place)
{
	size_t i;

	for (i = 0; i < digest->place_count; i++) {
		if (same_place(&digest->places[i], place))
			return &digest->places[i];
	}
	return NULL;
}

/* Places of the worst process that others have too, told once. */
static void part_shared(struct page *page, const struct digest **sorted, size_t count)
{
	struct strbuf *out = add_part(page, 4, 1, "");
	const struct digest *worst = sorted[0];
	size_t i, k, shown = 0;

	for (i = 0; i < worst->place_count && shown < SHARED; i++) {
		const struct digest_place *place = &worst->places[i], *other;
		double least = place->growth_bytes, most = least;
		size_t with = 0;

		for (k = 0; k < count; k++) {
			other = find_place(sorted[k], place);
			if (other == NULL)
				continue;
			with++;
			least = other->growth_bytes < least ? other->growth_bytes : least;
			most = other->growth_bytes > most ? other->growth_bytes : most;
		}
		if (with < 2)
			continue;
		strbuf_addf(out, "%s in %zu of %zu processes: ",
			    place->verdict == DIGEST_LEAK ? "leak" : "suspect", with, count);
		if (most > 0) {
			strbuf_add_size(out, whole(least));
			if (whole(most) != whole(least)) {
				strbuf_add_str(out, " to ");
				strbuf_add_size(out, whole(most));
			}
			strbuf_add_str(out, " per step, ");
		}
		strbuf_addf(out, "%s\n", place->where);
		shown++;
	}
}

/* ---- one process ---- */

void screen_who(const struct digest *digest, struct strbuf *out)
{
	screen_cut(digest->name == NULL ? "?" : digest->name, 40, out);
	strbuf_addf(out, " (pid %u", digest->pid);
	if (digest->rank >= 0)
		strbuf_addf(out, ", rank %lld", (long long)digest->rank);
	strbuf_add_char(out, ')');
}

static void part_head(struct page *page, const struct digest *digest)
{
	struct strbuf *out = add_part(page, 0, 1, "");

	strbuf_add_str(out, "msmemscope: ");
	screen_who(digest, out);
	strbuf_add_str(out, ": ");
	strbuf_add_count(out, digest->events, "event", "events");
	strbuf_addf(out, " in %.3f s", digest->seconds);
	if (digest->steps > 0) {
		strbuf_add_str(out, ", ");
		strbuf_add_count(out, digest->steps, "step", "steps");
		strbuf_add_str(out, digest->automatic ? " of the optimizer" : "");
	}
	if (digest->deferred)
		strbuf_add_str(out, ", deferred: collection was never started");
	if (digest->signal != NULL)
		strbuf_addf(out, ", killed by %s", digest->signal);
	strbuf_add_char(out, '\n');
}

/* What keeps a call site, once for several that are kept alike. */
static void add_kept_by(struct strbuf *out, const char **before, const char *lines)
{
	const char *line, *end;

	if (lines == NULL || (*before != NULL && strcmp(*before, lines) == 0))
		return;
	*before = lines;
	for (line = lines; (end = strchr(line, '\n')) != NULL; line = end + 1) {
		struct strbuf one = {0};

		strbuf_add(&one, line, (size_t)(end - line));
		add_sentence(out, strbuf_str(&one), SENTENCE_ROWS);
		strbuf_fini(&one);
	}
}

/* The compatible lines (F101, F102) of one device with our own line before each. */
static void add_leaks(const struct digest *digest, const struct digest_device *device,
		      size_t places, struct strbuf *out)
{
	struct strbuf line = {0};
	const char *kept_by = NULL;
	size_t i, shown = 0;
	char text[16];

	project_device_text(device->device, text);
	strbuf_addf(out, "====== ERROR: Detected memory leaks on device %s ======\n", text);
	for (i = 0; i < digest->place_count && shown < places; i++) {
		const struct digest_place *place = &digest->places[i];

		if (place->verdict != DIGEST_LEAK || place->device != device->device)
			continue;
		strbuf_reset(&line);
		strbuf_addf(&line, "leak: %s", place->sentence);
		add_sentence(out, strbuf_str(&line), SENTENCE_ROWS);
		add_kept_by(out, &kept_by, place->kept_by);
		if (place->direct != NULL)
			strbuf_addf(out, "%s\n", place->direct);
		shown++;
	}
	if (device->places > shown) {
		strbuf_add_str(out, "  ... ");
		strbuf_add_count(out, device->places - shown, "more place", "more places");
		strbuf_add_str(out, "; report.txt has all of them\n");
	}
	strbuf_addf(out, "====== SUMMARY: %g Mb(s) leaked in %llu allocation(s) ======\n",
		    (double)device->bytes / MIB, (unsigned long long)device->blocks);
	strbuf_fini(&line);
}

static void part_leaks(struct page *page, const struct digest *digest, size_t devices)
{
	struct strbuf *out;
	size_t i;

	for (i = 0; i < digest->device_count && i < devices; i++) {
		out = add_part(page, 2, WHOLE, "");
		add_leaks(digest, &digest->devices[i], digest->device_count > 1 ? 1 : PLACES, out);
	}
	if (digest->device_count <= devices)
		return;
	out = add_part(page, 2, 1, "");
	strbuf_addf(out, "leaks on %zu more devices: ", digest->device_count - devices);
	for (i = devices; i < digest->device_count; i++) {
		strbuf_add_str(out, i == devices ? "" : ", ");
		add_device(out, digest->devices[i].device);
		strbuf_add_char(out, ' ');
		strbuf_add_size(out, digest->devices[i].bytes);
	}
	strbuf_add_char(out, '\n');
}

static void part_suspects(struct page *page, const struct digest *digest)
{
	struct strbuf *out = add_part(page, 6, 2, "");
	/* Without a leak, suspects are the answer. */
	unsigned int rows = digest->leak_places == 0 && digest->suspect_places <= SUSPECTS ? 2 : 1;
	const char *kept_by = NULL;
	struct strbuf line = {0};
	size_t i, shown = 0;

	for (i = 0; i < digest->place_count && shown < SUSPECTS; i++) {
		if (digest->places[i].verdict != DIGEST_SUSPECT)
			continue;
		strbuf_reset(&line);
		strbuf_addf(&line, "suspect: %s", digest->places[i].sentence);
		add_sentence(out, strbuf_str(&line), rows);
		if (rows > 1)
			add_kept_by(out, &kept_by, digest->places[i].kept_by);
		if (digest->places[i].direct != NULL && digest->leak_places == 0 &&
		    digest->suspect_places <= SUSPECTS_DIRECT)
			strbuf_addf(out, "%s\n", digest->places[i].direct);
		shown++;
	}
	strbuf_fini(&line);
	if (digest->suspect_places > shown) {
		strbuf_add_str(out, "  ... ");
		strbuf_add_count(out, digest->suspect_places - shown, "more suspect",
				 "more suspects");
		strbuf_add_str(out, "; report.txt has all of them\n");
	}
}

static int by_number(const void *a, const void *b)
{
	const struct digest_pool *x = *(const struct digest_pool *const *)a,
				 *y = *(const struct digest_pool *const *)b;

	if (x->device != y->device)
		return x->device < y->device ? -1 : 1;
	return (int)x->pool - (int)y->pool;
}

/* The largest ones, by number of device. */
static void part_pools(struct page *page, const struct digest *digest, unsigned int least)
{
	struct strbuf *out = add_part(page, 8, least, " in report.txt");
	const struct digest_pool *pools[POOLS];
	size_t i, count = digest->pool_count < POOLS ? digest->pool_count : POOLS;

	for (i = 0; i < count; i++)
		pools[i] = &digest->pools[i];
	qsort(pools, count, sizeof(*pools), by_number);
	for (i = 0; i < count; i++) {
		const struct digest_pool *pool = pools[i];
		struct strbuf device = {0};

		add_device(&device, pool->device);
		strbuf_addf(out, "  %-9s  %-13s  peak ", strbuf_str(&device),
			    pool_event_type(pool->pool));
		strbuf_fini(&device);
		strbuf_add_size(out, pool->peak_bytes);
		strbuf_add_str(out, ", at the end ");
		strbuf_add_size(out, pool->end_bytes);
		strbuf_add_str(out, " in ");
		strbuf_add_count(out, pool->end_blocks, "block", "blocks");
		strbuf_add_char(out, '\n');
	}
	if (digest->pool_count > POOLS) {
		strbuf_add_str(out, "  ... ");
		strbuf_add_count(out, digest->pool_count - POOLS, "more pool", "more pools");
		strbuf_add_str(out, " in report.txt\n");
	}
}

static void part_peak(struct page *page, const struct digest *digest, unsigned int least)
{
	const struct digest_peak *peak = &digest->peak;
	struct strbuf *out = add_part(page, 9, least, " in report.txt");
	size_t i;

	page->parts[page->count - 1].shortest = PEAK_LEAST;
	if (peak->bytes == 0 || peak->holder_count == 0)
		return;
	strbuf_addf(out, "Held at the peak of %s on ", pool_event_type(peak->pool));
	add_device(out, peak->device);
	strbuf_add_str(out, " (");
	strbuf_add_size(out, peak->bytes);
	if (peak->step > 0)
		strbuf_addf(out, ", step %u", peak->step);
	strbuf_add_str(out, "):\n");
	for (i = 0; i < peak->holder_count; i++) {
		struct strbuf size = {0};

		strbuf_add_size(&size, peak->holders[i].bytes);
		strbuf_addf(out, "  %10s  %3.0f %%  ", strbuf_str(&size),
			    100.0 * (double)peak->holders[i].bytes / (double)peak->bytes);
		screen_cut_middle(peak->holders[i].where, SCREEN_COLUMNS - HOLDER_COLUMNS, out);
		strbuf_add_char(out, '\n');
		strbuf_fini(&size);
	}
	if (peak->more > 0) {
		strbuf_add_str(out, "  ... ");
		strbuf_add_count(out, peak->more, "more place", "more places");
		strbuf_add_str(out, " in report.txt\n");
	}
}

static void add_text(struct page *page, unsigned int rank, unsigned int least, const char *rest,
		     const struct strbuf *text)
{
	if (text->length > 0)
		strbuf_add(add_part(page, rank, least, rest), text->data, text->length);
}

static void part_watched(struct page *page, const struct digest *digest)
{
	add_sentences(add_part(page, digest->overwritten ? 2 : 7, digest->overwritten ? 4 : 1,
			       " in report.txt"),
		      &digest->watched, digest->overwritten ? 4 : 2);
}

static void page_process(struct page *page, const struct digest *digest, bool findings_only,
			 bool alone)
{
	if (digest->oom_asked || !findings_only)
		add_sentences(add_part(page, 1, 8, " in report.txt"), &digest->oom, 2);
	/* Memory that was overwritten is what the user looks for. */
	if (digest->overwritten)
		part_watched(page, digest);
	part_leaks(page, digest, alone ? DEVICES : 1);
	part_suspects(page, digest);
	add_sentences(add_part(page, 5, 1, " in report.txt"), &digest->judged, 2);
	add_sentences(add_part(page, 6, 1, " in report.txt"), &digest->trends, 2);
	add_text(page, 11, 2, " in report.txt", &digest->tables);
	if (!digest->overwritten)
		part_watched(page, digest);
	if (findings_only)
		return;
	/* Where memory ran out, what was held then has been told. */
	if (digest->oom_count == 0)
		part_peak(page, digest, alone ? PEAK_LEAST : 0);
	part_pools(page, digest, alone ? 1 : 0);
	add_sentences(add_part(page, 7, 1, " in report.txt"), &digest->devices_held, SENTENCE_ROWS);
	add_sentences(add_part(page, 10, 0, " in report.txt"), &digest->moments, 2);
	add_sentences(add_part(page, 12, 0, " in report.txt"), &digest->gaps, 2);
	page->parts[page->count - 1].shortest = GAP_LEAST;
	add_sentences(add_part(page, 5, 1, " in report.txt"), &digest->losses, SENTENCE_ROWS);
}

/* ---- the whole ---- */

static void part_files(struct page *page, const struct screen *screen, const struct digest *worst)
{
	struct strbuf *out = add_part(page, 0, 1, "");

	if (screen->after != NULL)
		strbuf_add_str(out, screen->after);
	if (worst != NULL && worst->project != NULL)
		strbuf_addf(out, "Files: %s\n",
			    screen->count > 1 && screen->files != NULL ? screen->files
								       : worst->project);
	if (worst != NULL && worst->dumps != NULL)
		strbuf_addf(out, "Dumps: %s\n", worst->dumps);
	if (screen->report != NULL && worst != NULL)
		strbuf_addf(out, "Report: %s\n", screen->report);
	if (screen->offers_info && worst != NULL && worst->project != NULL)
		strbuf_addf(out, "Next: msmemscope info %s\n", worst->project);
}

static void part_head_many(struct page *page, const struct digest **sorted, size_t count)
{
	struct strbuf *out = add_part(page, 0, 1, "");
	size_t bad = 0, i;

	for (i = 0; i < count; i++)
		bad += sorted[i]->verdict >= DIGEST_SUSPECT;
	strbuf_addf(out, "msmemscope: %zu processes, ", count);
	if (bad == 0)
		strbuf_add_str(out, "no problem found in any of them\n");
	else
		strbuf_addf(out, "%zu with a finding; worst first\n", bad);
}

static bool has_finding(const struct digest *digest)
{
	return digest->leak_places + digest->suspect_places > 0 ||
	       (digest->oom_count > 0 && digest->oom_asked) || digest->watched.length > 0 ||
	       digest->tables.length > 0;
}

static void page_many(struct page *page, const struct screen *screen, const struct digest **sorted,
		      size_t rows)
{
	struct strbuf *out;

	part_head_many(page, sorted, screen->count);
	part_table(page, sorted, screen->count, rows);
	part_shared(page, sorted, screen->count);
	out = add_part(page, 0, 1, "");
	strbuf_add_str(out, "Worst: ");
	screen_who(sorted[0], out);
	strbuf_addf(out, ", %.3f s, ", sorted[0]->seconds);
	strbuf_add_count(out, sorted[0]->steps, "step", "steps");
	strbuf_add_char(out, '\n');
	page_process(page, sorted[0], screen->findings_only, false);
}

/* All parts, with so many rows in the table of processes. */
static void page_make(struct page *page, const struct screen *screen, const struct digest **sorted,
		      bool shown, size_t rows)
{
	if (screen->before != NULL && screen->before[0] != '\0')
		strbuf_add_str(add_part(page, 1, 4, ""), screen->before);
	if (shown && screen->count == 1) {
		part_head(page, sorted[0]);
		page_process(page, sorted[0], screen->findings_only, true);
	} else if (shown) {
		page_many(page, screen, sorted, rows);
	}
	if (shown || !screen->findings_only || screen->after != NULL)
		part_files(page, screen, shown ? sorted[0] : NULL);
}

void screen_text(const struct screen *screen, struct strbuf *out)
{
	const struct digest **sorted = calloc(screen->count + 1, sizeof(*sorted));
	struct page page = {0};
	bool found = false;
	unsigned int budget =
		screen->above > SCREEN_ROWS / 2 ? SCREEN_ROWS / 2 : SCREEN_ROWS - screen->above;
	size_t i, rows = TABLE_ROWS;

	if (sorted == NULL)
		return;
	for (i = 0; i < screen->count; i++) {
		sorted[i] = &screen->digests[i];
		found = found || has_finding(sorted[i]);
	}
	qsort(sorted, screen->count, sizeof(*sorted), screen_worst_first);
	found = screen->count > 0 && (found || !screen->findings_only);
	page_make(&page, screen, sorted, found, rows);
	while (page_least(&page) > budget && rows > TABLE_LEAST) {
		page_fini(&page);
		page_make(&page, screen, sorted, found, --rows);
	}
	page_fit(&page, budget);
	page_write(&page, out);
	free(sorted);
}

/* ---- colour ---- */

static const char *colour_of(const char *line)
{
	static const struct {
		const char *prefix;
		const char *code;
	} colours[] = {
		{"====== ERROR", "\033[1;31m"},
		{"leak", "\033[31m"},
		{"Out of memory", "\033[1;31m"},
		{"suspect", "\033[33m"},
		{"No leak was found", "\033[32m"},
		{"Not recorded", "\033[33m"},
		{"Damaged", "\033[33m"},
		{"msmemscope: ", "\033[1m"},
		{"Next: ", "\033[1m"},
	};
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(colours); i++) {
		if (text_starts_with(line, colours[i].prefix))
			return colours[i].code;
	}
	return NULL;
}

void screen_colour(const char *text, struct strbuf *out)
{
	const char *line;

	for (line = text; *line != '\0'; line = next_line(line)) {
		const char *code = colour_of(line);

		if (code != NULL)
			strbuf_add_str(out, code);
		strbuf_add(out, line, strcspn(line, "\n"));
		if (code != NULL)
			strbuf_add_str(out, "\033[0m");
		strbuf_add_char(out, '\n');
	}
}
