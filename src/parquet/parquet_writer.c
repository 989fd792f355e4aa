/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows come in, value by value; a page of a column is encoded and compressed when it has PARQUET_PAGE_ROWS rows. Pages of a column must
 * lie side by side in the file, after a dictionary that is complete only at the end of the row group, so compressed pages wait in memory
 * until then.
 */
#include "parquet/parquet.h"

#include <errno.h>
#include <stdlib.h>

#include <zstd.h>

#include "base/array.h"
#include "base/shown.h"
#include "base/utf8.h"
#include "parquet/parquet_dictionary.h"
#include "parquet/parquet_encode.h"
#include "parquet/parquet_thrift.h"

#define MAGIC	   "PAR1"
#define ZSTD_LEVEL 1
#define FIRST_ROWS 256u

/* A dictionary that is larger is full. */
#define TEXT_BYTES   (4u << 20)
#define TEXT_ENTRIES (1u << 16)
#define NUMBERS	     (1u << 15)

/* A dictionary of texts pays off when each is there so often. */
#define TEXT_USES 4u

#define PLAIN_BYTES	(1u << 20) /* of texts without a dictionary: a page of them is full */
#define SHORT_TEXT	64u	   /* bytes of a text in statistics at most */
#define CREATED_BY	"msmemscope"
#define ZSTD_CODEC	6
#define DATA_PAGE	0
#define DICTIONARY_PAGE 2
#define TYPE_INT64	2
#define TYPE_BYTES	6
#define CONVERTED_UTF8	0

enum encoding { PLAIN = 0, RLE = 3, DELTA_BINARY_PACKED = 5, RLE_DICTIONARY = 8, ENCODINGS };

enum coding {
	UNDECIDED,
	BY_DICTIONARY,
	WITHOUT, /* numbers: delta, texts: plain */
};

struct column {
	const struct parquet_column *is;
	/* The page in progress. */
	uint8_t *present;    /* of each row, 0: NULL */
	int64_t *numbers;    /* values that are there */
	uint32_t *entries;   /* or their numbers in the dictionary */
	struct strbuf plain; /* or, of texts without a dictionary, they themselves */
	uint32_t rows, count;
	/* The row group in progress. */
	enum coding coding;
	struct parquet_dictionary dictionary;
	struct strbuf pages; /* compressed, with their headers */
	uint64_t raw_bytes;  /* of the same before compression */
	uint64_t group_rows, nulls;
	uint32_t encodings; /* bit for each that is used */
	bool bounded;	    /* `least` and `largest` count */
	int64_t least, largest;
};

struct parquet_writer {
	struct column *columns;
	size_t count;
	size_t room; /* rows that the page buffers have room for */
	parquet_write *write;
	void *arg;
	uint64_t at;			   /* bytes written */
	uint64_t total;			   /* rows in finished row groups */
	uint32_t rows;			   /* of the row group in progress */
	uint32_t groups;		   /* finished */
	struct strbuf metadata;		   /* RowGroup of each */
	struct strbuf body, other, packed; /* a page, the other way to write it, compressed */
	ZSTD_CCtx *zstd;		   /* while pages are made */
	int failed;
};

/* ---- making and freeing ---- */

int parquet_new(const struct parquet_column *columns, size_t count, parquet_write *write, void *arg,
		struct parquet_writer **out)
{
	struct parquet_writer *w = calloc(1, sizeof(*w));
	size_t i;

	if (w == NULL || (w->columns = calloc(count, sizeof(*w->columns))) == NULL) {
		free(w);
		return -ENOMEM;
	}
	w->count = count;
	w->write = write;
	w->arg = arg;
	for (i = 0; i < count; i++)
		w->columns[i].is = &columns[i];
	*out = w;
	return 0;
}

void parquet_free(struct parquet_writer *w)
{
	size_t i;

	if (w == NULL)
		return;
	for (i = 0; i < w->count; i++) {
		struct column *c = &w->columns[i];

		free(c->present);
		free(c->numbers);
		free(c->entries);
		strbuf_fini(&c->plain);
		strbuf_fini(&c->pages);
		dictionary_fini(&c->dictionary);
	}
	strbuf_fini(&w->metadata);
	strbuf_fini(&w->body);
	strbuf_fini(&w->other);
	strbuf_fini(&w->packed);
	ZSTD_freeCCtx(w->zstd);
	free(w->columns);
	free(w);
}

/* Page buffers grow with the rows, so that a writer of few rows is small. */
static bool make_room(struct parquet_writer *w)
{
	size_t room = w->room == 0 ? FIRST_ROWS : w->room * 2, i;

	for (i = 0; i < w->count; i++) {
		struct column *c = &w->columns[i];
		void *present = c->is->optional ? realloc(c->present, room) : NULL;
		void *numbers = NULL, *entries = NULL;

		c->present = present != NULL ? present : c->present;
		if (c->is->type == PARQUET_NUMBER)
			numbers = realloc(c->numbers, room * sizeof(*c->numbers));
		c->numbers = numbers != NULL ? numbers : c->numbers;
		entries = realloc(c->entries, room * sizeof(*c->entries));
		c->entries = entries != NULL ? entries : c->entries;
		if (entries == NULL || (c->is->optional && present == NULL) ||
		    (c->is->type == PARQUET_NUMBER && numbers == NULL))
			return false;
	}
	w->room = room;
	return true;
}

/* ---- pages ---- */

static void fail(struct parquet_writer *w, int code)
{
	if (w->failed == 0)
		w->failed = code;
}

/* Compressed size of a body, which is in `packed` then; 0: no memory. */
static size_t pack(struct parquet_writer *w, const struct strbuf *body)
{
	size_t bound = ZSTD_compressBound(body->length), got;
	char *to;

	if (w->zstd == NULL)
		w->zstd = ZSTD_createCCtx();
	strbuf_reset(&w->packed);
	to = strbuf_room(&w->packed, bound);
	if (w->zstd == NULL || to == NULL || strbuf_failed(body))
		return 0;
	got = ZSTD_compressCCtx(w->zstd, to, bound, strbuf_str(body), body->length, ZSTD_LEVEL);
	if (ZSTD_isError(got))
		return 0;
	strbuf_end(&w->packed, to + got);
	return got;
}

/* Compresses a body and adds it with its header; `rows` includes NULLs. */
static void add_page(struct parquet_writer *w, struct strbuf *out, const struct strbuf *body,
		     int type, uint32_t rows, enum encoding encoding, uint64_t *raw_bytes)
{
	struct thrift page = {.out = out}, header;
	size_t packed = pack(w, body), before = out->length;

	if (packed == 0) {
		fail(w, -ENOMEM);
		return;
	}
	thrift_i32(&page, 1, type);
	thrift_i32(&page, 2, (int32_t)body->length);
	thrift_i32(&page, 3, (int32_t)packed);
	header = thrift_struct(&page, type == DATA_PAGE ? 5 : 7);
	thrift_i32(&header, 1, (int32_t)rows);
	thrift_i32(&header, 2, (int32_t)encoding);
	if (type == DATA_PAGE) {
		thrift_i32(&header, 3, RLE);
		thrift_i32(&header, 4, RLE);
	}
	thrift_end(&header);
	thrift_end(&page);
	*raw_bytes += out->length - before + body->length;
	strbuf_add(out, strbuf_str(&w->packed), packed);
	if (strbuf_failed(out))
		fail(w, -ENOMEM);
}

static void begin_body(const struct column *c, struct strbuf *body)
{
	strbuf_reset(body);
	if (c->is->optional)
		encode_levels(body, c->present, c->rows);
}

static void add_entries(const struct column *c, struct strbuf *body)
{
	uint32_t largest = 0, i;
	unsigned int width;

	for (i = 0; i < c->count; i++)
		largest = c->entries[i] > largest ? c->entries[i] : largest;
	width = encode_width(largest);
	strbuf_add_char(body, (char)width);
	encode_hybrid(body, c->entries, c->count, width);
}

static void note_bounds(struct column *c)
{
	int64_t least = c->numbers[0], largest = least;
	uint32_t i;

	for (i = 1; i < c->count; i++) {
		least = c->numbers[i] < least ? c->numbers[i] : least;
		largest = c->numbers[i] > largest ? c->numbers[i] : largest;
	}
	if (!c->bounded || least < c->least)
		c->least = least;
	if (!c->bounded || largest > c->largest)
		c->largest = largest;
	c->bounded = true;
}

/* Looks all numbers of a page up; false: the dictionary is too large for it. */
static bool find_entries(struct parquet_writer *w, struct column *c)
{
	uint32_t i;

	for (i = 0; i < c->count; i++) {
		c->entries[i] = dictionary_number(&c->dictionary, c->numbers[i]);
		if (c->entries[i] == DICTIONARY_NONE)
			fail(w, -ENOMEM);
		if (c->dictionary.count > NUMBERS || w->failed != 0)
			return false;
	}
	return true;
}

/* Entries from `count` on belong to no page. Nothing is looked up any more, so slots need no mending. */
static void give_up_dictionary(struct column *c, uint32_t count)
{
	c->coding = WITHOUT;
	if (count == 0) {
		dictionary_fini(&c->dictionary);
		return;
	}
	c->dictionary.count = count;
	c->dictionary.body.length = (size_t)count * sizeof(int64_t);
	c->dictionary.last = 0;
}

/*
 * Whether the numbers of the first page of a row group take less by a dictionary. `body` has the page by differences; `other` gets
 * it by entries.
 */
static bool pays_off(struct parquet_writer *w, struct column *c)
{
	size_t by_difference = pack(w, &w->body), by_entry;

	/* A few bits each: it cannot be beaten by much, and is cheaper to make and to read. */
	if (by_difference < c->count / 16 || !find_entries(w, c))
		return false;
	by_entry = pack(w, &c->dictionary.body);
	begin_body(c, &w->other);
	add_entries(c, &w->other);
	return by_entry + pack(w, &w->other) < by_difference;
}

static void end_numbers(struct parquet_writer *w, struct column *c)
{
	uint32_t before = c->dictionary.count;
	enum encoding encoding = DELTA_BINARY_PACKED;
	const struct strbuf *body = &w->body;

	note_bounds(c);
	begin_body(c, &w->body);
	if (c->coding == BY_DICTIONARY) {
		if (find_entries(w, c)) {
			add_entries(c, &w->body);
			encoding = RLE_DICTIONARY;
		} else {
			give_up_dictionary(c, before);
		}
	}
	if (c->coding != BY_DICTIONARY)
		encode_delta(&w->body, c->numbers, c->count);
	if (c->coding == UNDECIDED) {
		if (pays_off(w, c)) {
			c->coding = BY_DICTIONARY;
			encoding = RLE_DICTIONARY;
			body = &w->other;
		} else {
			give_up_dictionary(c, 0);
		}
	}
	add_page(w, &c->pages, body, DATA_PAGE, c->rows, encoding, &c->raw_bytes);
	c->encodings |= 1u << encoding;
}

static void end_texts(struct parquet_writer *w, struct column *c)
{
	enum encoding encoding = c->coding == WITHOUT ? PLAIN : RLE_DICTIONARY;

	begin_body(c, &w->body);
	if (encoding == PLAIN)
		strbuf_add(&w->body, strbuf_str(&c->plain), c->plain.length);
	else
		add_entries(c, &w->body);
	if (strbuf_failed(&c->plain))
		fail(w, -ENOMEM);
	add_page(w, &c->pages, &w->body, DATA_PAGE, c->rows, encoding, &c->raw_bytes);
	c->encodings |= 1u << encoding;
	strbuf_reset(&c->plain);
}

static void end_page(struct parquet_writer *w, struct column *c)
{
	if (c->rows == 0 || w->failed != 0)
		return;
	if (c->count == 0) {
		/* NULLs alone: no encoding has anything to write. */
		begin_body(c, &w->body);
		add_page(w, &c->pages, &w->body, DATA_PAGE, c->rows, PLAIN, &c->raw_bytes);
		c->encodings |= 1u << PLAIN;
	} else if (c->is->type == PARQUET_NUMBER) {
		end_numbers(w, c);
	} else {
		end_texts(w, c);
	}
	c->group_rows += c->rows;
	c->nulls += c->rows - c->count;
	c->rows = c->count = 0;
}

/* ---- rows ---- */

void parquet_put_number(struct parquet_writer *w, size_t column, int64_t value)
{
	struct column *c = &w->columns[column];

	if (MSCOPE_UNLIKELY(w->failed != 0 || (c->rows == w->room && !make_room(w)))) {
		fail(w, -ENOMEM);
		return;
	}
	if (c->is->optional)
		c->present[c->rows] = 1;
	c->numbers[c->count++] = value;
	c->rows++;
}

void parquet_put_null(struct parquet_writer *w, size_t column)
{
	struct column *c = &w->columns[column];

	if (MSCOPE_UNLIKELY(w->failed != 0 || (c->rows == w->room && !make_room(w)))) {
		fail(w, -ENOMEM);
		return;
	}
	c->present[c->rows++] = 0;
}

static bool is_full(const struct column *c)
{
	return c->dictionary.count >= TEXT_ENTRIES || c->dictionary.body.length >= TEXT_BYTES;
}

/* Rows of the row group so far that have a value. */
static uint64_t values(const struct column *c)
{
	return c->group_rows - c->nulls + c->count;
}

static void put_plain(struct parquet_writer *w, struct column *c, const char *text, size_t bytes)
{
	size_t at = c->plain.length;
	uint32_t length = 0;

	strbuf_add(&c->plain, &length, sizeof(length));
	if (utf8_is_valid(text, bytes))
		strbuf_add(&c->plain, text, bytes);
	else
		strbuf_add_valid(&c->plain, text, bytes);
	if (strbuf_failed(&c->plain)) {
		fail(w, -ENOMEM);
		return;
	}
	length = (uint32_t)(c->plain.length - at - sizeof(length));
	memcpy(c->plain.data + at, &length, sizeof(length));
}

void parquet_put_text(struct parquet_writer *w, size_t column, const char *text, size_t bytes)
{
	struct column *c = &w->columns[column];

	if (MSCOPE_UNLIKELY(w->failed != 0 || (c->rows == w->room && !make_room(w)))) {
		fail(w, -ENOMEM);
		return;
	}
	if (MSCOPE_UNLIKELY(c->coding != WITHOUT && is_full(c) &&
			    values(c) < (uint64_t)c->dictionary.count * TEXT_USES)) {
		end_page(w, c);
		c->coding = WITHOUT;
	}
	if (c->is->optional)
		c->present[c->rows] = 1;
	if (c->coding == WITHOUT) {
		put_plain(w, c, text, bytes);
	} else {
		c->entries[c->count] = dictionary_text(&c->dictionary, text, bytes);
		if (c->entries[c->count] == DICTIONARY_NONE)
			fail(w, -ENOMEM);
	}
	c->rows++;
	c->count++;
	if (MSCOPE_UNLIKELY(c->plain.length >= PLAIN_BYTES))
		end_page(w, c);
}

uint32_t parquet_last_entry(const struct parquet_writer *w, size_t column)
{
	const struct column *c = &w->columns[column];

	return c->coding == WITHOUT || w->failed != 0 ? PARQUET_NO_ENTRY : c->dictionary.last;
}

void parquet_put_entry(struct parquet_writer *w, size_t column, uint32_t entry)
{
	struct column *c = &w->columns[column];
	const char *text;
	size_t bytes;

	if (MSCOPE_UNLIKELY(w->failed != 0 || (c->rows == w->room && !make_room(w)))) {
		fail(w, -ENOMEM);
		return;
	}
	if (MSCOPE_UNLIKELY(c->coding == WITHOUT)) {
		text = dictionary_get(&c->dictionary, entry, &bytes);
		parquet_put_text(w, column, text, bytes);
		return;
	}
	if (c->is->optional)
		c->present[c->rows] = 1;
	c->entries[c->count++] = entry;
	c->rows++;
}

/* Pages of all columns that have rows, and the memory that only making them needs goes back. */
static void end_pages(struct parquet_writer *w)
{
	size_t i;

	for (i = 0; i < w->count; i++)
		end_page(w, &w->columns[i]);
	ZSTD_freeCCtx(w->zstd);
	w->zstd = NULL;
}

int parquet_end_row(struct parquet_writer *w)
{
	if (w->failed == 0 && ++w->rows % PARQUET_PAGE_ROWS == 0)
		end_pages(w);
	return w->failed;
}

uint32_t parquet_groups(const struct parquet_writer *w)
{
	return w->groups;
}

uint32_t parquet_rows(const struct parquet_writer *w)
{
	return w->rows;
}

size_t parquet_held(const struct parquet_writer *w)
{
	size_t held = w->metadata.length, i;

	for (i = 0; i < w->count; i++) {
		const struct column *c = &w->columns[i];

		held += c->pages.length + c->plain.length + dictionary_bytes(&c->dictionary) +
			c->rows * (sizeof(*c->entries) + 1) + c->count * sizeof(*c->numbers);
	}
	return held;
}

bool parquet_wants_group(const struct parquet_writer *w)
{
	size_t i;

	for (i = 0; i < w->count; i++) {
		const struct column *c = &w->columns[i];

		if (c->is->type == PARQUET_TEXT && c->coding != WITHOUT && is_full(c))
			return true;
	}
	return false;
}

/* ---- row groups ---- */

static int out(struct parquet_writer *w, const void *data, size_t bytes)
{
	int r = w->failed != 0 ? w->failed : w->write(w->arg, data, bytes);

	if (r < 0)
		fail(w, r);
	w->at += bytes;
	return r;
}

static int by_bytes(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
	int r = memcmp(a, b, a_bytes < b_bytes ? a_bytes : b_bytes);

	return r != 0 ? r : (a_bytes > b_bytes) - (a_bytes < b_bytes);
}

/* The least and the largest text; false where that is not worth its bytes. */
static bool text_bounds(const struct column *c, uint32_t *least, uint32_t *largest)
{
	size_t bytes, least_bytes, largest_bytes;
	uint32_t i;

	if (c->is->long_text || c->coding == WITHOUT || c->dictionary.count == 0)
		return false;
	*least = *largest = 0;
	for (i = 0; i < c->dictionary.count; i++) {
		const char *text = dictionary_get(&c->dictionary, i, &bytes);
		const char *low = dictionary_get(&c->dictionary, *least, &least_bytes);
		const char *high = dictionary_get(&c->dictionary, *largest, &largest_bytes);

		if (bytes > SHORT_TEXT)
			return false;
		if (by_bytes(text, bytes, low, least_bytes) < 0)
			*least = i;
		if (by_bytes(text, bytes, high, largest_bytes) > 0)
			*largest = i;
	}
	return true;
}

static void add_statistics(struct thrift *chunk, const struct column *c)
{
	struct thrift at = thrift_struct(chunk, 12);
	uint32_t least, largest;
	size_t bytes;
	const char *text;

	thrift_i64(&at, 3, c->nulls);
	if (c->is->type == PARQUET_NUMBER && c->bounded) {
		thrift_binary(&at, 5, &c->largest, sizeof(c->largest));
		thrift_binary(&at, 6, &c->least, sizeof(c->least));
	} else if (c->is->type == PARQUET_TEXT && text_bounds(c, &least, &largest)) {
		text = dictionary_get(&c->dictionary, largest, &bytes);
		thrift_binary(&at, 5, text, bytes);
		text = dictionary_get(&c->dictionary, least, &bytes);
		thrift_binary(&at, 6, text, bytes);
	}
	thrift_end(&at);
}

static void add_chunk(struct strbuf *metadata, const struct column *c, uint64_t start,
		      uint64_t dictionary, uint64_t bytes)
{
	struct thrift chunk = {.out = metadata}, at;
	unsigned int i;

	thrift_i64(&chunk, 2, start);
	at = thrift_struct(&chunk, 3);
	thrift_i32(&at, 1, c->is->type == PARQUET_NUMBER ? TYPE_INT64 : TYPE_BYTES);
	thrift_list(&at, 2, THRIFT_I32, (size_t)__builtin_popcount(c->encodings));
	for (i = 0; i < ENCODINGS; i++) {
		if (c->encodings >> i & 1)
			thrift_varint(metadata, thrift_zigzag(i));
	}
	thrift_list(&at, 3, THRIFT_BINARY, 1);
	thrift_bytes(metadata, c->is->name, strlen(c->is->name));
	thrift_i32(&at, 4, ZSTD_CODEC);
	thrift_i64(&at, 5, c->group_rows);
	thrift_i64(&at, 6, c->raw_bytes);
	thrift_i64(&at, 7, bytes);
	thrift_i64(&at, 9, start + dictionary);
	if (dictionary > 0)
		thrift_i64(&at, 11, start);
	add_statistics(&at, c);
	thrift_end(&at);
	thrift_end(&chunk);
}

static void reset(struct column *c)
{
	strbuf_reset(&c->pages);
	dictionary_reset(&c->dictionary);
	c->coding = UNDECIDED;
	c->raw_bytes = c->group_rows = c->nulls = 0;
	c->encodings = 0;
	c->bounded = false;
}

/* Writes the chunk of a column, and adds what is to be known of it. */
static void end_chunk(struct parquet_writer *w, struct column *c, struct strbuf *page)
{
	uint64_t start = w->at;
	bool used = (c->encodings >> RLE_DICTIONARY & 1) != 0;

	strbuf_reset(page);
	if (used) {
		add_page(w, page, &c->dictionary.body, DICTIONARY_PAGE, c->dictionary.count, PLAIN,
			 &c->raw_bytes);
		c->encodings |= 1u << PLAIN;
	}
	c->encodings |= 1u << RLE; /* of levels, also where there are none */
	(void)out(w, strbuf_str(page), page->length);
	(void)out(w, strbuf_str(&c->pages), c->pages.length);
	add_chunk(&w->metadata, c, start, page->length, w->at - start);
}

int parquet_end_group(struct parquet_writer *w)
{
	struct thrift group = {.out = &w->metadata};
	struct strbuf page = {0};
	uint64_t raw = 0, start;
	size_t i;

	if (w->rows == 0 || w->failed != 0)
		return w->failed;
	end_pages(w);
	if (w->at == 0)
		(void)out(w, MAGIC, strlen(MAGIC));
	start = w->at;
	thrift_list(&group, 1, THRIFT_STRUCT, w->count);
	for (i = 0; i < w->count && w->failed == 0; i++) {
		end_chunk(w, &w->columns[i], &page);
		raw += w->columns[i].raw_bytes;
		reset(&w->columns[i]);
	}
	strbuf_fini(&page);
	ZSTD_freeCCtx(w->zstd);
	w->zstd = NULL;
	thrift_i64(&group, 2, raw);
	thrift_i64(&group, 3, w->rows);
	thrift_i64(&group, 5, start);
	thrift_i64(&group, 6, w->at - start);
	thrift_end(&group);
	w->total += w->rows;
	w->rows = 0;
	w->groups++;
	if (strbuf_failed(&w->metadata))
		fail(w, -ENOMEM);
	return w->failed;
}

/* ---- the footer ---- */

static void add_schema(struct thrift *file, const struct parquet_writer *w)
{
	struct thrift root = {.out = file->out};
	size_t i;

	thrift_list(file, 2, THRIFT_STRUCT, w->count + 1);
	thrift_text(&root, 4, "schema");
	thrift_i32(&root, 5, (int32_t)w->count);
	thrift_end(&root);
	for (i = 0; i < w->count; i++) {
		const struct parquet_column *is = w->columns[i].is;
		struct thrift at = {.out = file->out}, logical, string;

		thrift_i32(&at, 1, is->type == PARQUET_NUMBER ? TYPE_INT64 : TYPE_BYTES);
		thrift_i32(&at, 3, is->optional);
		thrift_text(&at, 4, is->name);
		if (is->type == PARQUET_TEXT) {
			thrift_i32(&at, 6, CONVERTED_UTF8);
			logical = thrift_struct(&at, 10);
			string = thrift_struct(&logical, 1);
			thrift_end(&string);
			thrift_end(&logical);
		}
		thrift_end(&at);
	}
}

static void add_footer(struct strbuf *footer, const struct parquet_writer *w,
		       const struct parquet_pair *pairs, size_t count)
{
	struct thrift file = {.out = footer};
	size_t i;

	thrift_i32(&file, 1, 2);
	add_schema(&file, w);
	thrift_i64(&file, 3, w->total);
	thrift_list(&file, 4, THRIFT_STRUCT, w->groups);
	strbuf_add(footer, strbuf_str(&w->metadata), w->metadata.length);
	if (count > 0)
		thrift_list(&file, 5, THRIFT_STRUCT, count);
	for (i = 0; i < count; i++) {
		struct thrift pair = {.out = footer};

		thrift_text(&pair, 1, pairs[i].key);
		thrift_text(&pair, 2, pairs[i].value);
		thrift_end(&pair);
	}
	thrift_text(&file, 6, CREATED_BY);
	/* Without orders, readers must not trust the statistics of texts. */
	thrift_list(&file, 7, THRIFT_STRUCT, w->count);
	for (i = 0; i < w->count; i++) {
		struct thrift order = {.out = footer}, by_type = thrift_struct(&order, 1);

		thrift_end(&by_type);
		thrift_end(&order);
	}
	thrift_end(&file);
}

int parquet_end_file(struct parquet_writer *w, const struct parquet_pair *pairs, size_t count)
{
	struct strbuf footer = {0};
	uint32_t bytes;
	int r = parquet_end_group(w);

	if (r == 0 && w->at == 0)
		r = out(w, MAGIC, strlen(MAGIC));
	if (r < 0)
		return r;
	add_footer(&footer, w, pairs, count);
	bytes = (uint32_t)footer.length;
	strbuf_add(&footer, &bytes, sizeof(bytes));
	strbuf_add_str(&footer, MAGIC);
	r = strbuf_failed(&footer) ? -ENOMEM : out(w, strbuf_str(&footer), footer.length);
	strbuf_fini(&footer);
	return r;
}
