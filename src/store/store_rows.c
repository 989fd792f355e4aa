/* SPDX-License-Identifier: Apache-2.0 */
#include "store/store_rows.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/array.h"
#include "base/utf8.h"

#define PIECE_BYTES 65536u

/* Texts are cut from pieces; a long one gets a piece of its own. */
struct store_piece {
	struct store_piece *next;
	size_t used, room;
	char bytes[];
};

void store_rows_fini(struct store_rows *rows)
{
	int i;

	for (i = 0; i < STORE_TABLES; i++)
		free(rows->tables[i].values);
	while (rows->pieces != NULL) {
		struct store_piece *next = rows->pieces->next;

		free(rows->pieces);
		rows->pieces = next;
	}
	*rows = (struct store_rows){0};
}

/* A copy of a text that lives as long as the rows; NULL without memory. */
static char *store_rows_keep(struct store_rows *rows, const char *text, size_t bytes)
{
	struct store_piece *piece = rows->pieces;
	char *kept;

	if (piece == NULL || piece->room - piece->used <= bytes) {
		size_t room = bytes >= PIECE_BYTES / 4 ? bytes + 1 : PIECE_BYTES;

		piece = malloc(sizeof(*piece) + room);
		if (piece == NULL) {
			rows->failed = true;
			return NULL;
		}
		*piece = (struct store_piece){.next = rows->pieces, .room = room};
		rows->pieces = piece;
	}
	kept = piece->bytes + piece->used;
	if (bytes > 0)
		memcpy(kept, text, bytes);
	kept[bytes] = '\0';
	piece->used += bytes + 1;
	return kept;
}

void store_rows_add(struct store_rows *rows, enum store_table table,
		    const struct store_value *values)
{
	struct store_table_rows *of = &rows->tables[table];
	size_t columns = store_schema(table)->column_count, i;
	struct store_value *to;

	if (ARRAY_RESERVE(of->values, of->room, (of->count + 1) * columns) < 0) {
		rows->failed = true;
		return;
	}
	to = &of->values[of->count * columns];
	for (i = 0; i < columns; i++) {
		to[i] = values[i];
		if (values[i].type == STORE_TEXT) {
			to[i].text = store_rows_keep(rows, values[i].text, values[i].bytes);
			if (to[i].text == NULL)
				return;
		}
	}
	of->count++;
}

int64_t store_key(const void *content, size_t bytes)
{
	return (int64_t)XXH3_64bits(content, bytes);
}

void store_rows_rename(struct store_rows *rows, const char *name)
{
	int64_t key = store_key(name, strlen(name));
	char *kept = store_rows_keep(rows, name, strlen(name));
	size_t row;
	int i;

	for (i = 0; i < STORE_stacks; i++) {
		for (row = 0; row < rows->tables[i].count; row++)
			*store_rows_at(rows, (enum store_table)i, row, 0) = store_int(key);
	}
	for (row = 0; row < rows->tables[STORE_runs].count && kept != NULL; row++)
		*store_rows_at(rows, STORE_runs, row, 1) = store_str(kept);
}

/* ---- texts ---- */

void store_text_encode(const char *text, size_t bytes, struct strbuf *out)
{
	const unsigned char *at = (const unsigned char *)text, *end = at + bytes;

	while (at < end) {
		size_t length = utf8_length(at, (size_t)(end - at));

		if (length == 0)
			strbuf_addf(out, "\\x%02x", *at++);
		else if (*at == '\\' || *at == '\0')
			strbuf_add_str(out, *at++ == '\0' ? "\\0" : "\\\\");
		else
			strbuf_add(out, at, length), at += length;
	}
}

static int digit_of(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

void store_text_decode(const char *text, size_t bytes, struct strbuf *out)
{
	const char *end = text + bytes;

	for (;;) {
		const char *stop = memchr(text, '\\', (size_t)(end - text));

		if (stop == NULL || stop + 1 == end) {
			strbuf_add(out, text, (size_t)(end - text));
			return;
		}
		strbuf_add(out, text, (size_t)(stop - text));
		text = stop + 2;
		if (stop[1] == '0') {
			strbuf_add_char(out, '\0');
		} else if (stop[1] == 'x' && end - text >= 2 && digit_of(text[0]) >= 0 &&
			   digit_of(text[1]) >= 0) {
			strbuf_add_char(out, (char)(digit_of(text[0]) << 4 | digit_of(text[1])));
			text += 2;
		} else {
			strbuf_add_char(out, stop[1]);
		}
	}
}

/* ---- as COPY has them ---- */

static void copy_text(const struct store_value *value, struct strbuf *encoded, struct strbuf *out)
{
	size_t i, from = 0;

	strbuf_reset(encoded);
	store_text_encode(value->text, value->bytes, encoded);
	for (i = 0; i < encoded->length; i++) {
		char c = encoded->data[i];

		if (c != '\\' && c != '\n' && c != '\t' && c != '\r')
			continue;
		strbuf_add(out, encoded->data + from, i - from);
		strbuf_add_char(out, '\\');
		strbuf_add_char(out, c == '\n' ? 'n' : c == '\t' ? 't' : c == '\r' ? 'r' : c);
		from = i + 1;
	}
	if (encoded->length > from)
		strbuf_add(out, encoded->data + from, encoded->length - from);
}

void store_rows_copy(const struct store_rows *rows, enum store_table table, struct strbuf *out)
{
	size_t columns = store_schema(table)->column_count, row, i;
	struct strbuf encoded = {0};

	for (row = 0; row < rows->tables[table].count; row++) {
		for (i = 0; i < columns; i++) {
			const struct store_value *value = store_rows_at(rows, table, row, i);

			if (i > 0)
				strbuf_add_char(out, '\t');
			if (value->type == STORE_INT)
				strbuf_add_i64(out, value->number);
			else if (value->type == STORE_REAL)
				strbuf_addf(out, "%.17g", value->real);
			else if (value->type == STORE_TEXT)
				copy_text(value, &encoded, out);
			else
				strbuf_add_str(out, "\\N");
		}
		strbuf_add_char(out, '\n');
	}
	out->failed = out->failed || encoded.failed;
	strbuf_fini(&encoded);
}

void store_rows_write(const struct store_rows *rows, struct strbuf *out)
{
	int i;

	strbuf_add_str(out, STORE_ROWS_MAGIC);
	for (i = 0; i < STORE_TABLES; i++) {
		if (rows->tables[i].count == 0)
			continue;
		strbuf_addf(out, "%s (", store_schema((enum store_table)i)->name);
		store_sql_columns((enum store_table)i, out);
		strbuf_add_str(out, ")\n");
		store_rows_copy(rows, (enum store_table)i, out);
		strbuf_add_str(out, "\\.\n");
	}
}

/* A value of a line, up to a tab; COPY's own escapes are undone, then ours. False: it is none of its type. */
static bool read_value(struct store_rows *rows, enum store_type type, const char *at, size_t bytes,
		       struct store_value *out)
{
	struct strbuf once = {0}, twice = {0};
	char number[64], *end = number;
	size_t i;

	*out = (struct store_value){.type = STORE_NULL};
	if (bytes == 2 && at[0] == '\\' && at[1] == 'N')
		return true;
	if (type != STORE_TEXT) {
		if (bytes == 0 || bytes >= sizeof(number))
			return false;
		memcpy(number, at, bytes);
		number[bytes] = '\0';
		*out = type == STORE_INT ? store_int(strtoll(number, &end, 10))
					 : store_real(strtod(number, &end));
		return end == number + bytes;
	}
	for (i = 0; i < bytes; i++) {
		char c = at[i];

		if (c == '\\' && i + 1 < bytes) {
			c = at[++i];
			c = c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c;
		}
		strbuf_add_char(&once, c);
	}
	store_text_decode(strbuf_str(&once), once.length, &twice);
	*out = store_text(store_rows_keep(rows, strbuf_str(&twice), twice.length), twice.length);
	rows->failed = rows->failed || once.failed || twice.failed;
	strbuf_fini(&once);
	strbuf_fini(&twice);
	return out->text != NULL;
}

static bool read_row(struct store_rows *rows, enum store_table table, const char *at,
		     const char *end)
{
	const struct store_schema *schema = store_schema(table);
	struct store_value values[STORE_COLUMNS_MAX];
	size_t i;

	for (i = 0; i < schema->column_count; i++) {
		const char *stop = memchr(at, '\t', (size_t)(end - at));

		if ((stop == NULL) != (i + 1 == schema->column_count))
			return false;
		if (!read_value(rows, schema->columns[i].type, at,
				(size_t)((stop == NULL ? end : stop) - at), &values[i]))
			return false;
		at = stop == NULL ? end : stop + 1;
	}
	store_rows_add(rows, table, values);
	return true;
}

int store_rows_read(struct store_rows *rows, const char *text, size_t bytes,
		    struct mscope_error *err)
{
	const char *at = text, *end = text + bytes, *stop;
	enum store_table table = STORE_TABLES;
	size_t line = 1;

	if (bytes < strlen(STORE_ROWS_MAGIC) ||
	    memcmp(text, STORE_ROWS_MAGIC, strlen(STORE_ROWS_MAGIC)) != 0)
		return error_set(err, MSCOPE_E_FOREIGN, "not a file of rows");
	for (at += strlen(STORE_ROWS_MAGIC); at < end; at = stop + 1) {
		line++;
		stop = memchr(at, '\n', (size_t)(end - at));
		if (stop == NULL)
			return error_set(err, MSCOPE_E_TRUNCATED, "the file ends in line %zu",
					 line);
		if (table == STORE_TABLES) {
			const char *blank = memchr(at, ' ', (size_t)(stop - at));

			table = store_table_of(at, (size_t)((blank == NULL ? stop : blank) - at));
			if (table == STORE_TABLES)
				return error_set(err, MSCOPE_E_DAMAGED,
						 "line %zu does not name a table of the store",
						 line);
		} else if (stop - at == 2 && at[0] == '\\' && at[1] == '.') {
			table = STORE_TABLES;
		} else if (!read_row(rows, table, at, stop)) {
			return error_set(err, MSCOPE_E_DAMAGED, "line %zu is not a row of %s", line,
					 store_schema(table)->name);
		}
	}
	if (table != STORE_TABLES || rows->tables[STORE_processes].count != 1 ||
	    rows->tables[STORE_runs].count != 1)
		return error_set(err, MSCOPE_E_TRUNCATED, "its rows are not all of one process");
	return rows->failed ? -ENOMEM : 0;
}
