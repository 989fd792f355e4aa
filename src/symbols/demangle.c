/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libstdc++ hands out the text of a name in pieces. The piece that would be too much is answered with a jump back: nothing is
 * on the heap then, so that nothing is lost. Rust's older names are mangled as those of C++, with a hash behind them and
 * characters spelled out: tidied up afterwards.
 */
#include "symbols/demangle.h"

#include <setjmp.h>
#include <string.h>

#include "base/strbuf.h"
#include "symbols/rust.h"

#ifdef MSCOPE_HAVE_DEMANGLER
/* Of libsupc++: what __cxa_demangle() does, without the heap. 0 on success. */
int __gcclibcxx_demangle_callback(const char *name,
				  void (*piece)(const char *text, size_t bytes, void *context),
				  void *context);

struct text {
	char data[DEMANGLE_OUT_BYTES_MAX];
	size_t length;
	jmp_buf full;
};

static void add_piece(const char *data, size_t bytes, void *context)
{
	struct text *text = context;
	size_t room = sizeof(text->data) - text->length;

	memcpy(text->data + text->length, data, bytes < room ? bytes : room);
	text->length += bytes < room ? bytes : room;
	if (bytes > room)
		longjmp(text->full, 1);
}

static bool add_cxx(const char *name, struct strbuf *out)
{
	struct text text;

	text.length = 0;
	if (setjmp(text.full) != 0) {
		strbuf_add(out, text.data, text.length);
		strbuf_add_str(out, "...");
		return true;
	}
	if (__gcclibcxx_demangle_callback(name, add_piece, &text) != 0)
		return false;
	strbuf_add(out, text.data, text.length);
	return true;
}
#else
static bool add_cxx(const char *name, struct strbuf *out)
{
	(void)name;
	(void)out;
	return false;
}
#endif

bool demangle_wanted(const char *name)
{
	return name[0] == '_' && (name[1] == 'Z' || name[1] == 'R');
}

void demangle(const char *name, struct strbuf *out)
{
	size_t length = strlen(name), at = out->length;

	if (demangle_wanted(name) && length <= DEMANGLE_IN_BYTES_MAX) {
		if (name[1] == 'R' && rust_demangle(name, DEMANGLE_OUT_BYTES_MAX, out))
			return;
		if (name[1] == 'Z' && add_cxx(name, out)) {
			rust_tidy(out, at);
			return;
		}
	}
	if (length <= DEMANGLE_OUT_BYTES_MAX) {
		strbuf_add(out, name, length);
		return;
	}
	strbuf_add(out, name, DEMANGLE_OUT_BYTES_MAX);
	strbuf_add_str(out, "...");
}

static bool starts_with(const char *text, const char *start)
{
	return strncmp(text, start, strlen(start)) == 0;
}

static bool is_word(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '_' || c == '$';
}

/* Behind the closing partner of the bracket at `at`, NULL when there is none. Angle brackets count outside of round ones only. */
static const char *skip_brackets(const char *at)
{
	size_t round = 0, angle = 0;

	do {
		switch (*at) {
		case '\0':
			return NULL;
		case '(':
			round++;
			break;
		case ')':
			if (round == 0)
				return NULL;
			round--;
			break;
		case '<':
			angle += round == 0;
			break;
		case '>':
			if (round == 0 && at[-1] != '-') {
				if (angle == 0)
					return NULL;
				angle--;
			}
			break;
		default:
			break;
		}
		at++;
	} while (round + angle > 0);
	return at;
}

/* Copies what stands behind the word "operator", which may look like brackets or end a word. */
static const char *copy_operator(const char *at, struct strbuf *out)
{
	const char *end = at;

	if (starts_with(at, "()") || starts_with(at, "[]")) {
		end += 2;
	} else if (*at == ' ' || *at == '"') {
		/* A conversion, new, delete or a literal's suffix: all up to the parameters. */
		while (*end != '\0' && *end != '(' && *end != '<')
			end++;
	} else {
		while (*end != '\0' && strchr("<>=!+-*/%^&|~,", *end) != NULL)
			end++;
	}
	strbuf_add(out, at, (size_t)(end - at));
	/* A space keeps operator< and its template arguments apart. */
	return starts_with(end, " <") ? end + 1 : end;
}

/* Copies a name in braces, {lambda(int)#1}, without parameters. NULL when it has no end. */
static const char *copy_braces(const char *at, struct strbuf *out)
{
	while (*at != '\0' && *at != '}') {
		if (*at == '(') {
			at = skip_brackets(at);
			if (at == NULL)
				return NULL;
			continue;
		}
		strbuf_add_char(out, *at++);
	}
	if (*at == '\0')
		return NULL;
	strbuf_add_char(out, '}');
	return at + 1;
}

static bool ends_with(const struct strbuf *out, size_t from, const char *end)
{
	size_t length = strlen(end);

	return out->length - from >= length &&
	       memcmp(out->data + out->length - length, end, length) == 0;
}

static void cut_to(struct strbuf *out, size_t length)
{
	if (strbuf_failed(out) || length >= out->length)
		return;
	out->length = length;
	out->data[length] = '\0';
}

/* Passes what is in round brackets, and what qualifies a function behind its parameters. */
static const char *pass_round(const char *at, struct strbuf *out, size_t from)
{
	static const char *const words[] = {" const", " volatile", " &&", " &", " noexcept"};
	static const char hidden[] = "(anonymous namespace)";
	size_t i;

	if (starts_with(at, hidden)) {
		strbuf_add_str(out, hidden);
		return at + strlen(hidden);
	}
	if (out->length == from)
		return NULL; /* void (*name(int))(int) */
	at = skip_brackets(at);
	if (at == NULL || ends_with(out, from, "decltype"))
		return at;
	for (i = 0; i < MSCOPE_COUNT(words); i++) {
		if (starts_with(at, words[i])) {
			at += strlen(words[i]);
			i = (size_t)-1; /* once more from the first */
		}
	}
	/* A name may go on with what is inside the function; anything else ends it. */
	return starts_with(at, "::") ? at : at + strlen(at);
}

static const char *pass_angle(const char *at, struct strbuf *out, size_t from, bool mark)
{
	if (out->length == from)
		return NULL; /* <T as Trait>::name of Rust */
	/* Rust has name::<T>. */
	if (ends_with(out, from, "::"))
		cut_to(out, out->length - 2);
	if (mark)
		strbuf_add_str(out, "<...>");
	return skip_brackets(at);
}

/* Passes [abi:cxx11]; [clone .cold] and the .cold of C end the name. */
static const char *pass_suffix(const char *at)
{
	if (!starts_with(at, "[abi:"))
		return at + strlen(at);
	at = strchr(at, ']');
	return at == NULL ? NULL : at + 1;
}

/* A space follows the return type, mostly. */
static const char *pass_space(const char *at, struct strbuf *out, size_t from)
{
	if (starts_with(at, " [clone"))
		return at + strlen(at);
	if (at[1] != '(' || !ends_with(out, from, "decltype"))
		cut_to(out, from);
	return at + 1;
}

/* As demangle_shorten(); with `mark` as demangle_brief(). False when the name is not of that form. */
static bool shorten(const char *at, struct strbuf *out, size_t from, bool mark)
{
	const char *name = at;

	while (at != NULL && *at != '\0') {
		switch (*at) {
		case '(':
			at = pass_round(at, out, from);
			break;
		case '<':
			at = pass_angle(at, out, from, mark);
			break;
		case '{':
			at = copy_braces(at, out);
			break;
		case '[':
		case '.':
			at = pass_suffix(at);
			break;
		case ' ':
			at = pass_space(at, out, from);
			break;
		default:
			if (starts_with(at, "operator") && (at == name || !is_word(at[-1])) &&
			    !is_word(at[8])) {
				strbuf_add(out, at, 8);
				at = copy_operator(at + 8, out);
			} else {
				strbuf_add_char(out, *at++);
			}
		}
	}
	return at != NULL && out->length > from;
}

static void shorten_or_copy(const char *name, struct strbuf *out, bool mark)
{
	size_t from = out->length;

	if (shorten(name, out, from, mark))
		return;
	cut_to(out, from);
	strbuf_add_str(out, name);
}

void demangle_shorten(const char *name, struct strbuf *out)
{
	shorten_or_copy(name, out, false);
}

void demangle_brief(const char *name, struct strbuf *out)
{
	shorten_or_copy(name, out, true);
}

/* One name of a mangled one: its length, then so many characters. NULL: it is none. */
static const char *add_source_name(const char *at, struct strbuf *out, size_t from)
{
	static const char hidden[] = "_GLOBAL__N_";
	size_t length = 0;

	while (*at >= '0' && *at <= '9' && length < DEMANGLE_OUT_BYTES_MAX)
		length = length * 10 + (size_t)(*at++ - '0');
	if (length == 0 || strnlen(at, length) < length)
		return NULL;
	if (out->length > from)
		strbuf_add_str(out, "::");
	if (starts_with(at, hidden))
		strbuf_add_str(out, "(anonymous namespace)");
	else
		strbuf_add(out, at, length);
	return at + length;
}

void demangle_qualified(const char *name, struct strbuf *out)
{
	const char *at = name + 2;
	size_t from = out->length;
	bool nested;

	if (name[0] != '_' || name[1] != 'Z') {
		strbuf_add_str(out, name);
		return;
	}
	nested = *at == 'N';
	at += nested;
	while (nested && *at != '\0' && strchr("rVKRO", *at) != NULL)
		at++;
	if (starts_with(at, "St")) {
		strbuf_add_str(out, "std");
		at += 2;
	}
	do {
		at += *at == 'L'; /* of this file alone */
		at = add_source_name(at, out, from);
	} while (at != NULL && nested);
	if (out->length == from)
		strbuf_add_str(out, name);
}
