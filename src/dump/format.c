/* SPDX-License-Identifier: Apache-2.0 */
#include "dump/format.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* ---- columns ---- */

static const struct column row_columns[COLUMN_COUNT] = {
#define COLUMN(symbol, name_, type, use_)                                                          \
	[COLUMN_##symbol] = {.name = name_, .sql_type = #type, .use = COLUMN_##use_},
#include "dump/columns.def"
#undef COLUMN
};

static const struct column call_columns[] = {
#define CALL_COLUMN(name_, type) {.name = name_, .sql_type = #type},
#include "dump/columns.def"
#undef CALL_COLUMN
};

const struct dump_table dump_rows = {row_columns, MSCOPE_COUNT(row_columns)};
const struct dump_table dump_calls = {call_columns, MSCOPE_COUNT(call_columns)};

void dump_csv_header(const struct dump_table *table, struct strbuf *out)
{
	size_t i;

	for (i = 0; i < table->count; i++) {
		strbuf_add_str(out, table->columns[i].name);
		strbuf_add_char(out, i + 1 < table->count ? ',' : '\n');
	}
}

/* Quoted where SQL asks for it. */
static void add_sql_name(struct strbuf *out, const char *name)
{
	bool plain = true;
	const char *c;

	for (c = name; *c != '\0'; c++)
		plain = plain && isalpha((unsigned char)*c);
	strbuf_addf(out, plain ? "%s" : "\"%s\"", name);
}

void dump_sql_create(const struct dump_table *table, const char *name, struct strbuf *out)
{
	size_t i;

	strbuf_addf(out, "CREATE TABLE IF NOT EXISTS %s (", name);
	for (i = 0; i < table->count; i++) {
		add_sql_name(out, table->columns[i].name);
		strbuf_addf(out, " %s%s", table->columns[i].sql_type,
			    i + 1 < table->count ? ", " : ")");
	}
}

void dump_sql_insert(const struct dump_table *table, const char *name, struct strbuf *out)
{
	size_t i;

	strbuf_addf(out, "INSERT INTO %s VALUES (", name);
	for (i = 0; i < table->count; i++)
		strbuf_add_str(out, i + 1 < table->count ? "?," : "?)");
}

/* ---- rows ---- */

static const struct {
	const char *event;
	const char *event_type; /* NULL: of the pool */
	enum row_group group;
} rows[ROW_END] = {
#define ROW(symbol, event_, event_type_, group_, attrs, record)                                    \
	[ROW_##symbol] = {.event = event_, .event_type = event_type_, .group = ROW_GROUP_##group_},
#include "dump/rows.def"
#undef ROW
};

const char *row_event(enum row_kind kind)
{
	return rows[kind].event;
}

const char *row_event_type(enum row_kind kind, uint8_t pool)
{
	return rows[kind].event_type != NULL ? rows[kind].event_type : pool_event_type(pool);
}

enum row_group row_group(enum row_kind kind)
{
	return rows[kind].group;
}

bool row_has_address(enum row_kind kind)
{
	enum row_group group = row_group(kind);

	return group == ROW_GROUP_ALLOC || group == ROW_GROUP_FREE || group == ROW_GROUP_ACCESS;
}

bool row_is_mark(enum row_kind kind)
{
	return kind == ROW_MARK || kind == ROW_RANGE_START || kind == ROW_RANGE_END;
}

static char fold(char c)
{
	if (c >= 'a' && c <= 'z')
		return (char)(c - 'a' + 'A');
	return c == ' ' ? '_' : c;
}

/* Old files have blanks and small letters ("acl init") where later ones have "ACL_INIT". */
static bool same_word(const char *text, const char *word)
{
	for (; *text != '\0' && *word != '\0'; text++, word++) {
		if (fold(*text) != fold(*word))
			return false;
	}
	return *text == *word;
}

enum row_kind row_parse(const char *event, const char *event_type, uint8_t *out_pool)
{
	enum row_kind kind;
	uint8_t pool;

	*out_pool = POOL_UNKNOWN;
	for (kind = ROW_NONE + 1; kind < ROW_END; kind++) {
		if (fold(*event) != fold(*rows[kind].event) || !same_word(event, rows[kind].event))
			continue;
		if (rows[kind].event_type == NULL)
			break;
		if (same_word(event_type, rows[kind].event_type))
			return kind;
	}
	if (kind == ROW_END)
		return ROW_NONE;
	for (pool = POOL_UNKNOWN + 1; pool < POOL_END; pool++) {
		if (same_word(event_type, pool_event_type(pool)))
			*out_pool = pool;
	}
	return kind;
}

/* ---- words ---- */

const char *const attr_keys[ATTR_KEY_COUNT] = {
#define KEY(name) [ATTR_##name] = #name,
#include "dump/rows.def"
#undef KEY
};

const char *pool_event_type(uint8_t pool)
{
	static const char *const names[POOL_END] = {
		[POOL_UNKNOWN] = "UNKNOWN",
#define POOL(number, name, event_type, meaning) [number] = event_type,
#include "trace/pools.def"
#undef POOL
	};

	return pool < POOL_END && names[pool] != NULL ? names[pool] : names[POOL_UNKNOWN];
}

void device_text(uint32_t device, char out[16])
{
	if (device == DEVICE_HOST)
		(void)snprintf(out, 16, "cpu");
	else if (device == DEVICE_UNKNOWN)
		(void)snprintf(out, 16, WORD_NONE);
	else
		(void)snprintf(out, 16, "%u", device);
}

/* More than any machine has; the original writes numbers from 9999 on for none and for the host in places. */
#define DEVICE_MAX 4095

bool device_parse(const char *text, uint32_t *out)
{
	uint64_t number;

	if (strcmp(text, "cpu") == 0 || strcmp(text, "host") == 0) {
		*out = DEVICE_HOST;
	} else if (*text == '\0' || strcmp(text, WORD_NONE) == 0) {
		*out = DEVICE_UNKNOWN;
	} else {
		if (!number_parse(text, &number) || number > DEVICE_MAX)
			return false;
		*out = (uint32_t)number;
	}
	return true;
}

static const char *const pages[] = {[PAGE_UNKNOWN] = "unknown",
				    [PAGE_NORMAL] = "normal",
				    [PAGE_HUGE] = "huge",
				    [PAGE_GIANT] = "giant"};
static const char *const block_kinds[] = {[BLOCK_ALLOC] = "alloc", [BLOCK_CREATE] = "create"};
static const char *const layers[] = {[LAYER_ATEN] = "PTA", [LAYER_ATB] = "ATB"};

/* The index of a word, or `other`. */
static uint8_t find_word(const char *text, const char *const *words, uint8_t count, uint8_t other)
{
	uint8_t i;

	for (i = 0; text != NULL && i < count; i++) {
		if (words[i] != NULL && strcmp(words[i], text) == 0)
			return i;
	}
	return other;
}

const char *page_text(uint8_t page)
{
	return pages[page < MSCOPE_COUNT(pages) ? page : PAGE_UNKNOWN];
}

uint8_t page_parse(const char *text)
{
	return find_word(text, pages, MSCOPE_COUNT(pages), PAGE_UNKNOWN);
}

const char *block_kind_text(uint8_t kind)
{
	return block_kinds[kind == BLOCK_CREATE ? BLOCK_CREATE : BLOCK_ALLOC];
}

uint8_t block_kind_parse(const char *text)
{
	return find_word(text, block_kinds, MSCOPE_COUNT(block_kinds), BLOCK_ALLOC);
}

const char *layer_text(uint8_t layer)
{
	return layers[layer == LAYER_ATEN ? LAYER_ATEN : LAYER_ATB];
}

uint8_t layer_parse(const char *text)
{
	return find_word(text, layers, MSCOPE_COUNT(layers), LAYER_ATEN);
}

char *inefficiency_put(char *to, uint32_t bits)
{
	static const char *const words[] = {"early_allocation", "late_deallocation",
					    "temporary_idleness"};
	const char *before = "";
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(words); i++) {
		if (!(bits >> i & 1))
			continue;
		to = stpcpy(stpcpy(to, before), words[i]);
		before = ",";
	}
	return to;
}

/* The value of a digit of either case; 16 or more for anything else. */
static inline unsigned digit_of(char c)
{
	unsigned digit = (unsigned)(unsigned char)c - '0', letter;

	if (digit <= 9)
		return digit;
	letter = ((unsigned)(unsigned char)c | 0x20) - 'a';
	return letter <= 5 ? letter + 10 : 16;
}

bool number_parse(const char *text, uint64_t *out)
{
	uint64_t number = 0, most = UINT64_MAX / 10;
	unsigned base = 10;

	if (*text == '-')
		text++;
	if (*text < '0' || *text > '9')
		return false;
	if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) {
		base = 16;
		most = UINT64_MAX / 16;
		text += 2;
	}
	do {
		unsigned digit = digit_of(*text);

		if (digit >= base || number > most || number * base > UINT64_MAX - digit)
			return false;
		number = number * base + digit;
	} while (*++text != '\0');
	*out = number;
	return true;
}
