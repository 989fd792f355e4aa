/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A name is a row of frames (findings/site.h), and a frame is one of
 *
 *     train.py:41 evaluate              a script of the user
 *     serve::run (serve.cpp:19)         C of the user, with its line, or with its module
 *     torch.nn.functional.relu          code of others
 *
 * Where a name has no room, its frames are shown shorter and shorter, in the order of `steps`: qualifiers go first, then frames in the
 * middle that other names of the list have too, then functions. The file and line of the user's frames stay to the end, those of the innermost
 * one longest; before one is left out, a file is named once (":31 evaluate" is of the same file as the frame before).
 */
#include "sink/screen_names.h"

#include <ctype.h>
#include <string.h>

#include "sink/screen.h"

#define FRAMES_MAX 32u
#define ALIKE_MAX  16u
#define ARROW	   " -> "

/* How short a frame is shown. */
enum size_of {
	SIZE_WHOLE,
	SIZE_PARTS, /* of a qualified name the last two parts */
	SIZE_PART,  /* of the user's the last part; a long one loses its middle */
	SIZE_LITTLE,
	SIZE_LINE, /* of the user's the line alone, of others nothing */
	SIZE_NONE, /* "..." */
};

/* What is left of a function that loses its middle, by size. */
static const size_t function_columns[] = {
	[SIZE_PARTS] = 64,
	[SIZE_PART] = 32,
	[SIZE_LITTLE] = 20,
};

struct piece {
	const char *text;
	size_t bytes;
	bool user;
	bool common;   /* another name of the list has it, and this one has others */
	bool repeated; /* an earlier frame is the same */
	enum size_of size;
};

struct pieces {
	struct piece all[FRAMES_MAX];
	size_t count;
	bool one_file; /* a file is named once */
};

/* Frames that a step makes shorter. */
enum which {
	OF_OTHERS = 1,
	OF_USER = 2,
	COMMON = 4,   /* only those */
	MIDDLE = 8,   /* neither the first nor the last frame */
	CALLERS = 16, /* not the innermost frame of the user */
	REPEATED = 32,
	LATER = 64, /* not the first frame */
};

static const struct step {
	unsigned int which;
	enum size_of size;
} steps[] = {
	{OF_OTHERS, SIZE_PARTS},
	{OF_OTHERS | OF_USER | MIDDLE | REPEATED, SIZE_NONE},
	{OF_USER, SIZE_PARTS},
	{OF_OTHERS, SIZE_PART},
	{OF_USER | COMMON, SIZE_PART},
	{OF_OTHERS | COMMON | MIDDLE, SIZE_NONE},
	{OF_USER | COMMON, SIZE_LITTLE},
	{OF_USER | COMMON, SIZE_LINE},
	{OF_USER | COMMON | MIDDLE, SIZE_NONE},
	{OF_USER | CALLERS, SIZE_PART},
	{OF_OTHERS | MIDDLE, SIZE_NONE},
	{OF_USER, SIZE_PART},
	{OF_USER | CALLERS, SIZE_LITTLE},
	{OF_USER | CALLERS, SIZE_LINE},
	{OF_OTHERS, SIZE_NONE},
	{OF_USER | COMMON | LATER, SIZE_NONE},
	{OF_USER | MIDDLE | CALLERS, SIZE_NONE},
	{OF_USER, SIZE_LITTLE},
	{OF_USER, SIZE_LINE},
	{OF_USER | MIDDLE, SIZE_NONE},
};

/* ---- the parts of a frame ---- */

/* Bytes of "train.py:41" at the start of a frame; 0: it starts with something else. */
static size_t line_bytes(const struct piece *piece)
{
	size_t i, colon = 0;

	for (i = 0; i < piece->bytes && piece->text[i] != ' ' && piece->text[i] != '('; i++) {
		if (piece->text[i] == ':')
			colon = i;
		else if (colon != 0 && !isdigit((unsigned char)piece->text[i]))
			colon = 0;
	}
	return colon > 0 && colon + 1 < i && (i == piece->bytes || piece->text[i] == ' ') ? i : 0;
}

/* Where " (serve.cpp:19)" starts, which ends a frame; its length if it ends otherwise. */
static size_t place_at(const struct piece *piece)
{
	size_t i = piece->bytes;

	if (i == 0 || piece->text[i - 1] != ')')
		return piece->bytes;
	while (i > 0 && piece->text[i - 1] != '(')
		i--;
	/* "f(int)" has no space before it. */
	return i > 1 && piece->text[i - 2] == ' ' ? i - 2 : piece->bytes;
}

static bool is_same(const struct piece *a, const struct piece *b)
{
	return a->bytes == b->bytes && memcmp(a->text, b->text, a->bytes) == 0;
}

static void split(const char *name, struct pieces *out)
{
	const char *at = name, *next;
	size_t i;

	*out = (struct pieces){.count = 0};
	do {
		struct piece *piece = &out->all[out->count++];

		next = strstr(at, ARROW);
		if (out->count == FRAMES_MAX)
			next = NULL;
		*piece = (struct piece){.text = at,
					.bytes = next == NULL ? strlen(at) : (size_t)(next - at)};
		piece->user = line_bytes(piece) != 0 || place_at(piece) != piece->bytes;
		at = next == NULL ? NULL : next + strlen(ARROW);
		for (i = 0; i + 1 < out->count && !piece->repeated; i++)
			piece->repeated = is_same(&out->all[i], piece);
	} while (at != NULL);
}

static bool has_piece(const char *name, const struct piece *piece)
{
	struct pieces pieces;
	size_t i;

	split(name, &pieces);
	for (i = 0; i < pieces.count; i++) {
		if (is_same(&pieces.all[i], piece))
			return true;
	}
	return false;
}

/* What only this name has tells it from the others. */
static void find_common(const char *name, const char *const *others, size_t count,
			struct pieces *pieces)
{
	size_t i, k, common = 0;

	for (i = 0; i < pieces->count; i++) {
		for (k = 0; k < count && !pieces->all[i].common; k++)
			pieces->all[i].common = strcmp(others[k], name) != 0 &&
						has_piece(others[k], &pieces->all[i]);
		common += pieces->all[i].common;
	}
	for (i = 0; i < pieces->count && common == pieces->count; i++)
		pieces->all[i].common = false;
}

/* ---- one frame ---- */

/* Where the last `keep` parts of a qualified name start: parts of C++ have "::" between them, those of Python a dot. */
static const char *last_parts(const char *text, size_t bytes, size_t keep)
{
	const char *at = text + bytes;
	bool cxx = memmem(text, bytes, "::", 2) != NULL;
	size_t angle = 0;

	while (at > text) {
		at--;
		if (*at == '>' && at > text && at[-1] != '-')
			angle++;
		else if (*at == '<' && angle > 0)
			angle--;
		if (angle > 0)
			continue;
		if ((cxx ? at > text && at[0] == ':' && at[-1] == ':' : *at == '.') && --keep == 0)
			return at + 1;
	}
	return text;
}

/* `two`: the last two parts, as in Linear.forward. */
static void add_function(const char *text, size_t bytes, enum size_of size, bool two,
			 struct strbuf *out)
{
	static const char call[] = "::operator()";
	struct strbuf part = {0};
	const char *from;
	size_t end = strlen(call);

	if (size == SIZE_WHOLE) {
		strbuf_add(out, text, bytes);
		return;
	}
	/* A lambda has no other function. */
	if (bytes > end + 1 && memcmp(text + bytes - end, call, end) == 0 &&
	    text[bytes - end - 1] == '}')
		bytes -= end;
	two = two || size == SIZE_PARTS || (bytes > 0 && text[bytes - 1] == '}');
	from = last_parts(text, bytes, two ? 2 : 1);
	strbuf_add(&part, from, bytes - (size_t)(from - text));
	screen_cut_middle(strbuf_str(&part), function_columns[size], out);
	strbuf_fini(&part);
}

/* Bytes of "train.py" in "train.py:41 evaluate", 0 in others. */
static size_t file_bytes(const struct piece *piece)
{
	size_t line = line_bytes(piece);

	while (line > 0 && piece->text[line - 1] != ':')
		line--;
	return line == 0 ? 0 : line - 1;
}

/* `file`: its file was named just before. */
static void add_piece(const struct piece *piece, bool file, struct strbuf *out)
{
	size_t line = line_bytes(piece), place = place_at(piece);
	bool brief = piece->size == SIZE_LINE;

	if (line != 0) {
		size_t from = file ? file_bytes(piece) : 0;

		strbuf_add(out, piece->text + from, line - from);
		if (line < piece->bytes && !brief) {
			strbuf_add_char(out, ' ');
			add_function(piece->text + line + 1, piece->bytes - line - 1, piece->size,
				     false, out);
		}
	} else if (brief && memchr(piece->text + place, ':', piece->bytes - place) != NULL) {
		strbuf_add(out, piece->text + place + 2, piece->bytes - place - 3);
	} else {
		add_function(piece->text, place, brief ? SIZE_LITTLE : piece->size, !piece->user,
			     out);
		/* A module names less than the function. */
		if (!brief)
			strbuf_add(out, piece->text + place, piece->bytes - place);
	}
}

static void add_pieces(const struct pieces *pieces, struct strbuf *out)
{
	const struct piece *last = NULL; /* that named a file */
	bool left_out = false;
	size_t i;

	for (i = 0; i < pieces->count; i++) {
		const struct piece *piece = &pieces->all[i];
		size_t file = file_bytes(piece);

		if (piece->size == SIZE_NONE && left_out)
			continue;
		left_out = piece->size == SIZE_NONE;
		if (i > 0)
			strbuf_add_str(out, ARROW);
		if (left_out) {
			strbuf_add_str(out, "...");
			continue;
		}
		add_piece(piece,
			  pieces->one_file && last != NULL && file != 0 &&
				  file == file_bytes(last) &&
				  memcmp(piece->text, last->text, file) == 0,
			  out);
		last = file != 0 ? piece : last;
	}
}

/* ---- all of them ---- */

static void take_step(const struct step *step, struct pieces *pieces)
{
	size_t innermost = pieces->count, i;

	for (i = 0; i < pieces->count; i++) {
		if (pieces->all[i].user)
			innermost = i;
	}
	for (i = 0; i < pieces->count; i++) {
		struct piece *piece = &pieces->all[i];

		if (!(step->which & (piece->user ? OF_USER : OF_OTHERS)) ||
		    ((step->which & COMMON) && !piece->common) ||
		    ((step->which & MIDDLE) && (i == 0 || i + 1 == pieces->count)) ||
		    ((step->which & LATER) && i == 0) ||
		    ((step->which & CALLERS) && i == innermost) ||
		    ((step->which & REPEATED) && !piece->repeated))
			continue;
		if (piece->size < step->size)
			piece->size = step->size;
	}
}

/* Whether a step leaves out lines of the user, other than those in the middle that other names have too. */
static bool drops_lines(const struct step *step)
{
	unsigned int between = step->which & (COMMON | MIDDLE);

	return (step->which & OF_USER) && step->size == SIZE_NONE && !(step->which & REPEATED) &&
	       between != (COMMON | MIDDLE);
}

/* Shortens a name until it fits. Returns whether it does. */
static bool shorten(const char *name, const char *const *others, size_t count, size_t columns,
		    bool one_file, struct strbuf *out)
{
	struct pieces pieces;
	size_t i;

	split(name, &pieces);
	find_common(name, others, count, &pieces);
	pieces.one_file = one_file;
	strbuf_reset(out);
	add_pieces(&pieces, out);
	for (i = 0; i < MSCOPE_COUNT(steps) && screen_columns(strbuf_str(out)) > columns; i++) {
		if (!one_file && drops_lines(&steps[i]))
			continue;
		take_step(&steps[i], &pieces);
		strbuf_reset(out);
		add_pieces(&pieces, out);
	}
	return screen_columns(strbuf_str(out)) <= columns;
}

/* A name in so many columns; what `others` have too goes first. A file is named once before a line of the user is left out. */
static void fit(const char *name, const char *const *others, size_t count, size_t columns,
		struct strbuf *out)
{
	if (!shorten(name, others, count, columns, false, out))
		(void)shorten(name, others, count, columns, true, out);
}

/* Those of `others` that would read the same: what tells a name from all the rest may be no single frame. */
static size_t find_alike(const char *name, const char *const *others, size_t count, size_t columns,
			 const char *shown, const char *alike[ALIKE_MAX])
{
	struct strbuf other = {0};
	size_t found = 0, i;

	for (i = 0; i < count && found < ALIKE_MAX; i++) {
		if (strcmp(others[i], name) == 0 || screen_columns(others[i]) <= columns)
			continue;
		fit(others[i], others, count, columns, &other);
		if (strcmp(strbuf_str(&other), shown) == 0)
			alike[found++] = others[i];
	}
	strbuf_fini(&other);
	return found;
}

void screen_name(const char *name, bool frames, const char *const *others, size_t count,
		 size_t columns, struct strbuf *out)
{
	const char *alike[ALIKE_MAX];
	struct strbuf shown = {0};
	size_t same;

	if (screen_columns(name) <= columns || !frames) {
		screen_cut_middle(name, columns, out);
		return;
	}
	fit(name, others, count, columns, &shown);
	same = find_alike(name, others, count, columns, strbuf_str(&shown), alike);
	if (same > 0)
		fit(name, alike, same, columns, &shown);
	screen_cut_middle(strbuf_str(&shown), columns, out);
	out->failed = out->failed || strbuf_failed(&shown);
	strbuf_fini(&shown);
}
