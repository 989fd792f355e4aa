/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recursive descent over the grammar of RFC 2603, one function for each of its rules, that prints as it goes. A back reference
 * reads from an earlier place and returns, so that a short name can stand for a very long one: steps are counted.
 */
#include "symbols/rust.h"

#include <stdio.h>
#include <string.h>

#include "base/strbuf.h"

#define DEPTH_MAX 128
#define STEPS_MAX 20000

struct parser {
	const char *text; /* behind _R; back references count from here */
	size_t length;
	size_t at;
	struct strbuf *out;
	size_t end; /* of the output */
	unsigned int depth;
	unsigned int steps;
	unsigned int quiet; /* > 0: nothing is printed */
	bool full;
	bool failed;
};

static void path(struct parser *p, bool in_type);
static void type(struct parser *p);

static char peek(const struct parser *p)
{
	return p->at < p->length ? p->text[p->at] : '\0';
}

static bool take(struct parser *p, char c)
{
	if (p->failed || peek(p) != c)
		return false;
	p->at++;
	return true;
}

static char next(struct parser *p)
{
	if (p->at < p->length)
		return p->text[p->at++];
	p->failed = true;
	return '\0';
}

static void print_bytes(struct parser *p, const char *text, size_t bytes)
{
	if (p->quiet > 0 || p->failed || p->full)
		return;
	if (bytes > p->end - p->out->length) {
		bytes = p->end - p->out->length;
		p->full = true;
	}
	strbuf_add(p->out, text, bytes);
}

static void print(struct parser *p, const char *text)
{
	print_bytes(p, text, strlen(text));
}

/* Whether the parser may go one level down; pairs with leave(). */
static bool enter(struct parser *p)
{
	if (p->failed || p->full || p->depth >= DEPTH_MAX || p->steps >= STEPS_MAX) {
		p->failed = !p->full;
		return false;
	}
	p->depth++;
	p->steps++;
	return true;
}

static void leave(struct parser *p)
{
	p->depth--;
}

static uint64_t decimal(struct parser *p)
{
	uint64_t value = 0;

	if (peek(p) < '0' || peek(p) > '9')
		p->failed = true;
	if (take(p, '0'))
		return 0;
	while (!p->failed && peek(p) >= '0' && peek(p) <= '9' && value < UINT32_MAX)
		value = value * 10 + (uint64_t)(next(p) - '0');
	return value;
}

/* "_" is 0, and digits stand for one more than they say. Hashes of crates are large; what is too large to count is cut. */
static uint64_t base62(struct parser *p)
{
	uint64_t value = 0;

	if (take(p, '_'))
		return 0;
	while (!p->failed) {
		char c = next(p);
		uint64_t digit = 0;

		if (c == '_')
			return value + 1;
		if (c >= '0' && c <= '9')
			digit = (uint64_t)(c - '0');
		else if (c >= 'a' && c <= 'z')
			digit = (uint64_t)(c - 'a') + 10;
		else if (c >= 'A' && c <= 'Z')
			digit = (uint64_t)(c - 'A') + 36;
		else
			p->failed = true;
		value = value > UINT32_MAX ? UINT32_MAX : value * 62 + digit;
	}
	return 0;
}

static uint64_t optional62(struct parser *p, char tag)
{
	return take(p, tag) ? base62(p) + 1 : 0;
}

/* Goes back for one rule. */
static void back(struct parser *p, void (*rule)(struct parser *p))
{
	size_t here = p->at, to = (size_t)base62(p), behind = p->at;

	if (p->failed || to >= here - 1) {
		p->failed = true;
		return;
	}
	/* What is not printed was already read once. */
	if (p->quiet == 0) {
		p->at = to;
		rule(p);
	}
	p->at = behind;
}

/* A name without its disambiguator. Names beyond ASCII are left in punycode. */
static void identifier(struct parser *p)
{
	uint64_t bytes;

	(void)take(p, 'u');
	bytes = decimal(p);
	(void)take(p, '_');
	if (p->failed || bytes > p->length - p->at) {
		p->failed = true;
		return;
	}
	print_bytes(p, p->text + p->at, (size_t)bytes);
	p->at += (size_t)bytes;
}

static void lifetime(struct parser *p)
{
	(void)base62(p);
	print(p, "'_");
}

static void constant(struct parser *p)
{
	if (!enter(p))
		return;
	if (take(p, 'p')) {
		print(p, "_");
	} else if (take(p, 'B')) {
		back(p, constant);
	} else {
		size_t from;

		p->quiet++;
		type(p);
		p->quiet--;
		print(p, take(p, 'n') ? "-0x" : "0x");
		from = p->at;
		while (!p->failed && strchr("0123456789abcdef", peek(p)) != NULL && peek(p) != '\0')
			p->at++;
		print_bytes(p, p->text + from, p->at - from);
		p->failed |= !take(p, '_');
	}
	leave(p);
}

static void argument(struct parser *p)
{
	if (take(p, 'L'))
		lifetime(p);
	else if (take(p, 'K'))
		constant(p);
	else
		type(p);
}

/* Rules up to "E", with commas. Returns how many there were. */
static size_t list(struct parser *p, void (*rule)(struct parser *p))
{
	size_t count = 0;

	while (!p->failed && !p->full && !take(p, 'E')) {
		if (count++ > 0)
			print(p, ", ");
		rule(p);
	}
	return count;
}

static void function_type(struct parser *p)
{
	(void)optional62(p, 'G');
	if (take(p, 'U'))
		print(p, "unsafe ");
	if (take(p, 'K') && !take(p, 'C')) {
		p->quiet++;
		identifier(p);
		p->quiet--;
	}
	print(p, "fn(");
	(void)list(p, type);
	print(p, ")");
	if (!take(p, 'u')) {
		print(p, " -> ");
		type(p);
	}
}

static void dyn_trait(struct parser *p)
{
	path(p, true);
	while (take(p, 'p')) {
		print(p, "<");
		identifier(p);
		print(p, " = ");
		type(p);
		print(p, ">");
	}
}

static void dyn_traits(struct parser *p)
{
	size_t count = 0;

	print(p, "dyn ");
	(void)optional62(p, 'G');
	while (!p->failed && !p->full && !take(p, 'E')) {
		if (count++ > 0)
			print(p, " + ");
		dyn_trait(p);
	}
	if (take(p, 'L'))
		(void)base62(p);
	else
		p->failed = true;
}

static const char *basic_type(char c)
{
	static const char *const names[26] = {
		['a' - 'a'] = "i8",   ['b' - 'a'] = "bool",  ['c' - 'a'] = "char",
		['d' - 'a'] = "f64",  ['e' - 'a'] = "str",   ['f' - 'a'] = "f32",
		['h' - 'a'] = "u8",   ['i' - 'a'] = "isize", ['j' - 'a'] = "usize",
		['l' - 'a'] = "i32",  ['m' - 'a'] = "u32",   ['n' - 'a'] = "i128",
		['o' - 'a'] = "u128", ['p' - 'a'] = "_",     ['s' - 'a'] = "i16",
		['t' - 'a'] = "u16",  ['u' - 'a'] = "()",    ['v' - 'a'] = "...",
		['x' - 'a'] = "i64",  ['y' - 'a'] = "u64",   ['z' - 'a'] = "!",
	};

	return c >= 'a' && c <= 'z' ? names[c - 'a'] : NULL;
}

static void reference(struct parser *p, const char *text)
{
	print(p, text);
	if (take(p, 'L'))
		(void)base62(p);
	type(p);
}

static void type(struct parser *p)
{
	if (!enter(p))
		return;
	if (basic_type(peek(p)) != NULL) {
		print(p, basic_type(next(p)));
	} else if (take(p, 'A') || take(p, 'S')) {
		bool array = p->text[p->at - 1] == 'A';

		print(p, "[");
		type(p);
		if (array) {
			print(p, "; ");
			constant(p);
		}
		print(p, "]");
	} else if (take(p, 'T')) {
		print(p, "(");
		print(p, list(p, type) == 1 ? ",)" : ")");
	} else if (take(p, 'R')) {
		reference(p, "&");
	} else if (take(p, 'Q')) {
		reference(p, "&mut ");
	} else if (take(p, 'P')) {
		print(p, "*const ");
		type(p);
	} else if (take(p, 'O')) {
		print(p, "*mut ");
		type(p);
	} else if (take(p, 'F')) {
		function_type(p);
	} else if (take(p, 'D')) {
		dyn_traits(p);
	} else if (take(p, 'B')) {
		back(p, type);
	} else {
		path(p, true);
	}
	leave(p);
}

static void value_path(struct parser *p)
{
	path(p, false);
}

static void type_path(struct parser *p)
{
	path(p, true);
}

/* <Type> or <Type as Trait>, after the path of the impl block, which tells nothing. */
static void impl_path(struct parser *p, char kind)
{
	if (kind != 'Y') {
		(void)optional62(p, 's');
		p->quiet++;
		path(p, false);
		p->quiet--;
	}
	print(p, "<");
	type(p);
	if (kind != 'M') {
		print(p, " as ");
		path(p, true);
	}
	print(p, ">");
}

/* A closure or shim has a number, anything else a name. */
static void nested_path(struct parser *p, bool in_type)
{
	char space = next(p), text[24];
	uint64_t number;

	path(p, in_type);
	number = optional62(p, 's');
	if (space < 'A' || space > 'Z') {
		print(p, "::");
		identifier(p);
		return;
	}
	print(p, space == 'C' ? "::{closure" : space == 'S' ? "::{shim" : "::{special");
	if (peek(p) != '0')
		print(p, ":");
	identifier(p);
	(void)snprintf(text, sizeof(text), "#%u}", (unsigned int)number);
	print(p, text);
}

static void path(struct parser *p, bool in_type)
{
	char kind;

	if (!enter(p))
		return;
	kind = next(p);
	switch (kind) {
	case 'C':
		(void)optional62(p, 's');
		identifier(p);
		break;
	case 'M':
	case 'X':
	case 'Y':
		impl_path(p, kind);
		break;
	case 'N':
		nested_path(p, in_type);
		break;
	case 'I':
		path(p, in_type);
		print(p, in_type ? "<" : "::<");
		(void)list(p, argument);
		print(p, ">");
		break;
	case 'B':
		back(p, in_type ? type_path : value_path);
		break;
	default:
		p->failed = true;
	}
	leave(p);
}

bool rust_demangle(const char *name, size_t limit, struct strbuf *out)
{
	size_t from = out->length;
	struct parser p = {
		.text = name + 2,
		.length = strcspn(name + 2, ".$"), /* what follows was added by a tool */
		.out = out,
		.end = from + limit,
	};

	path(&p, false);
	if (!p.failed && !p.full && p.at < p.length) {
		/* The crate that made the instance. */
		p.quiet++;
		path(&p, false);
		p.failed |= p.at < p.length;
	}
	if (p.full) {
		strbuf_add_str(out, "...");
		return true;
	}
	if (p.failed && !strbuf_failed(out) && out->length > from) {
		out->length = from;
		out->data[from] = '\0';
	}
	return !p.failed;
}

/* The hash of the older form: "::h" and 16 hexadecimal digits. */
static bool has_hash(const char *text, size_t length)
{
	size_t i;

	if (length < 20 || memcmp(text + length - 19, "::h", 3) != 0)
		return false;
	for (i = length - 16; i < length; i++) {
		if (strchr("0123456789abcdef", text[i]) == NULL)
			return false;
	}
	return true;
}

/* What a piece between dollar signs stands for; '\0' for none. */
static char unescape(const char *piece, size_t length)
{
	static const struct {
		const char *spelled;
		char meant;
	} known[] = {
		{"SP", '@'},  {"BP", '*'},  {"RF", '&'},  {"LT", '<'},	 {"GT", '>'},  {"LP", '('},
		{"RP", ')'},  {"C", ','},   {"u20", ' '}, {"u27", '\''}, {"u5b", '['}, {"u5d", ']'},
		{"u7b", '{'}, {"u7d", '}'}, {"u3b", ';'}, {"u2b", '+'},	 {"u22", '"'}, {"u7e", '~'},
	};
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(known); i++) {
		if (strlen(known[i].spelled) == length &&
		    memcmp(known[i].spelled, piece, length) == 0)
			return known[i].meant;
	}
	return '\0';
}

void rust_tidy(struct strbuf *name, size_t at)
{
	size_t length = name->length - at, from, to = 0;
	char *text = name->data + at;

	if (strbuf_failed(name) || !has_hash(text, length))
		return;
	length -= 19;
	for (from = 0; from < length; from++) {
		const char *dollar =
			text[from] == '$' ? memchr(text + from + 1, '$', length - from - 1) : NULL;
		char meant = dollar == NULL ? '\0'
					    : unescape(text + from + 1,
						       (size_t)(dollar - text) - from - 1);

		if (meant != '\0') {
			text[to++] = meant;
			from = (size_t)(dollar - text);
		} else if (text[from] == '.' && from + 1 < length && text[from + 1] == '.') {
			text[to++] = ':';
			text[to++] = ':';
			from++;
		} else if (text[from] == '_' && from + 1 < length && text[from + 1] == '$' &&
			   (from == 0 || text[from - 1] == ':')) {
			continue; /* an underscore stands before what is no letter */
		} else {
			text[to++] = text[from];
		}
	}
	name->length = at + to;
	text[to] = '\0';
}
