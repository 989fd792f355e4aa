/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A screen is made of parts, in the order in which a person asks. Lists are made shorter first; then the parts that are worth least
 * are left out, whole, and the last line names them.
 */
#include "sink/screen_page.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/shown.h"

#define INDENT "      " /* of the second line of a sentence */

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

/* Whether a line may end at this space: a number keeps its unit, "256 MiB", and "step 40" is one. */
static bool may_break(const char *text, const char *space)
{
	static const char *const units[] = {"B",  "KiB", "MiB", "GiB", "TiB", "%",
					    "ns", "us",	 "ms",	"s",   "min", "h"};
	size_t length = strcspn(space + 1, " ,.;:)\n"), i;

	if (space - text >= 4 && strncmp(space - 4, "step", 4) == 0 && space[1] >= '0' &&
	    space[1] <= '9')
		return false;
	if (space == text || space[-1] < '0' || space[-1] > '9')
		return true;
	for (i = 0; i < MSCOPE_COUNT(units); i++) {
		if (length == strlen(units[i]) && strncmp(space + 1, units[i], length) == 0)
			return false;
	}
	return true;
}

/* Appends a sentence as at most `rows` lines, broken between words; what is longer is cut. */
static void add_sentence(struct strbuf *out, const char *text, unsigned int rows)
{
	const char *indent = "";

	for (; rows > 1 && strlen(indent) + screen_columns(text) > SCREEN_COLUMNS; rows--) {
		const char *at = text, *fits = NULL;
		size_t column = strlen(indent);

		while (column <= SCREEN_COLUMNS) {
			if (*at == ' ' && may_break(text, at))
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
		indent = INDENT;
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

static const char *next_line(const char *line)
{
	line += strcspn(line, "\n");
	return *line == '\n' ? line + 1 : line;
}

/* ---- parts ---- */

struct part *page_add(struct page *page, unsigned int worth, const char *name)
{
	struct part *part = &page->parts[page->count++];

	assert(page->count <= PAGE_PARTS);
	*part = (struct part){.worth = worth, .name = name};
	return part;
}

static unsigned int rows_of(const struct part *part, const char *line)
{
	size_t columns = screen_columns(line);

	return !part->whole || columns == 0
		       ? 1
		       : (unsigned int)((columns + SCREEN_COLUMNS - 1) / SCREEN_COLUMNS);
}

static unsigned int part_rows(const struct page *page, const struct part *part)
{
	const char *line;
	unsigned int rows = 0;

	for (line = strbuf_str(&part->text); *line != '\0'; line = next_line(line))
		rows += rows_of(part, line);
	return rows > 0 && part->apart && page->spaced ? rows + 1 : rows;
}

static unsigned int page_rows(const struct page *page)
{
	unsigned int rows = 0;
	size_t i;

	for (i = 0; i < page->count; i++)
		rows += part_rows(page, &page->parts[i]);
	return rows;
}

unsigned int page_worth(const struct page *page, unsigned int least)
{
	const struct page dense = {.spaced = false};
	unsigned int rows = 0;
	size_t i;

	for (i = 0; i < page->count; i++) {
		if (page->parts[i].worth >= least)
			rows += part_rows(least > PAGE_BLANKS ? &dense : page, &page->parts[i]);
	}
	return rows;
}

/* Names what was left out, as the last line. */
static void name_left(struct page *page)
{
	struct part *last = &page->parts[page->count - 1];
	const char *between = "Also in the report: ";
	size_t i;

	strbuf_reset(&last->text);
	for (i = 0; i + 1 < page->count; i++) {
		if (!page->parts[i].left_out || page->parts[i].name == NULL)
			continue;
		strbuf_addf(&last->text, "%s%s", between, page->parts[i].name);
		between = ", ";
	}
	if (last->text.length > 0)
		strbuf_add_char(&last->text, '\n');
}

/* The part that is worth least; of several the last. NULL: all others have to stay. */
static struct part *least(struct page *page)
{
	struct part *found = NULL;
	size_t i;

	for (i = 0; i < page->count; i++) {
		struct part *part = &page->parts[i];

		if (part->worth != PAGE_STAYS && part->text.length > 0 &&
		    (found == NULL || part->worth <= found->worth))
			found = part;
	}
	return found;
}

/* Where even what stays is too long: the longest part loses its end. */
static bool cut_longest(struct page *page)
{
	struct part *longest = NULL;
	const char *text, *line, *sentence;
	size_t i;

	for (i = 0; i < page->count; i++) {
		if (!page->parts[i].whole && (longest == NULL || part_rows(page, &page->parts[i]) >
									 part_rows(page, longest)))
			longest = &page->parts[i];
	}
	if (longest == NULL || part_rows(page, longest) < 2)
		return false;
	text = line = sentence = strbuf_str(&longest->text);
	while (*next_line(line) != '\0') {
		line = next_line(line);
		/* A sentence goes with all of its lines. */
		if (strncmp(line, INDENT, strlen(INDENT)) != 0)
			sentence = line;
	}
	line = sentence;
	longest->text.length = (size_t)(line - text);
	longest->text.data[longest->text.length] = '\0';
	return true;
}

void page_fit(struct page *page, unsigned int budget)
{
	struct part *part;

	(void)page_add(page, PAGE_STAYS, NULL);
	page->spaced = true;
	while (page_rows(page) > budget && (part = least(page)) != NULL) {
		/* Blank lines are worth more than what few read. */
		if (part->worth >= PAGE_BLANKS && page->spaced) {
			page->spaced = false;
			continue;
		}
		strbuf_reset(&part->text);
		part->left_out = true;
		name_left(page);
	}
	page->spaced = page->spaced && page_rows(page) <= budget;
	/* Before anything is cut, the line that names what was left out goes. */
	if (page_rows(page) > budget)
		strbuf_reset(&page->parts[page->count - 1].text);
	while (page_rows(page) > budget && cut_longest(page))
		;
}

void page_fini(struct page *page)
{
	while (page->count > 0)
		strbuf_fini(&page->parts[--page->count].text);
}

void page_print(struct page *page, bool colours, struct strbuf *out)
{
	static const char *const codes[] = {[SEVERITY_NONE] = "",
					    [SEVERITY_TITLE] = "\033[1m",
					    [SEVERITY_GOOD] = "\033[32m",
					    [SEVERITY_WARNING] = "\033[33m",
					    [SEVERITY_ERROR] = "\033[1;31m"};
	struct strbuf shown = {0};
	bool first = true;
	size_t i;

	for (i = 0; i < page->count; i++) {
		const struct part *part = &page->parts[i];
		const char *line = strbuf_str(&part->text),
			   *code = colours ? codes[part->severity] : "";

		if (part->apart && page->spaced && !first && *line != '\0')
			strbuf_add_char(out, '\n');
		for (; *line != '\0'; line = next_line(line), code = "") {
			first = false;
			strbuf_reset(&shown);
			if (part->whole)
				strbuf_add(&shown, line, strcspn(line, "\n"));
			else
				screen_cut(line, SCREEN_COLUMNS, &shown);
			/* The only escape sequences are our own colours. */
			strbuf_add_str(out, code);
			strbuf_add_lines(out, strbuf_str(&shown), shown.length);
			strbuf_add_str(out, code[0] == '\0' ? "\n" : "\033[0m\n");
		}
	}
	strbuf_fini(&shown);
}
