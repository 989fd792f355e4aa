/* SPDX-License-Identifier: Apache-2.0 */
#include "import/pickle.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/io.h"

enum opcode {
	OP_MARK = '(',
	OP_STOP = '.',
	OP_POP = '0',
	OP_POP_MARK = '1',
	OP_DUP = '2',
	OP_BINBYTES = 'B',
	OP_SHORT_BINBYTES = 'C',
	OP_BINFLOAT = 'G',
	OP_BININT = 'J',
	OP_BININT1 = 'K',
	OP_BININT2 = 'M',
	OP_NONE = 'N',
	OP_BINSTRING = 'T',
	OP_SHORT_BINSTRING = 'U',
	OP_BINUNICODE = 'X',
	OP_EMPTY_TUPLE = ')',
	OP_EMPTY_LIST = ']',
	OP_APPEND = 'a',
	OP_DICT = 'd',
	OP_APPENDS = 'e',
	OP_BINGET = 'h',
	OP_LONG_BINGET = 'j',
	OP_LIST = 'l',
	OP_BINPUT = 'q',
	OP_LONG_BINPUT = 'r',
	OP_SETITEM = 's',
	OP_TUPLE = 't',
	OP_SETITEMS = 'u',
	OP_EMPTY_DICT = '}',
	OP_PROTO = 0x80,
	OP_TUPLE1 = 0x85,
	OP_TUPLE2 = 0x86,
	OP_TUPLE3 = 0x87,
	OP_NEWTRUE = 0x88,
	OP_NEWFALSE = 0x89,
	OP_LONG1 = 0x8a,
	OP_LONG4 = 0x8b,
	OP_SHORT_BINUNICODE = 0x8c,
	OP_BINUNICODE8 = 0x8d,
	OP_BINBYTES8 = 0x8e,
	OP_MEMOIZE = 0x94,
	OP_FRAME = 0x95,
	OP_BYTEARRAY8 = 0x96,
};

/* What would run code of the file's choice; named in the refusal. */
static const struct {
	uint8_t opcode;
	const char *name;
} code_opcodes[] = {
	{'c', "GLOBAL"},	{'R', "REDUCE"},       {'b', "BUILD"},
	{'i', "INST"},		{'o', "OBJ"},	       {'P', "PERSID"},
	{'Q', "BINPERSID"},	{0x81, "NEWOBJ"},      {0x82, "EXT1"},
	{0x83, "EXT2"},		{0x84, "EXT4"},	       {0x92, "NEWOBJ_EX"},
	{0x93, "STACK_GLOBAL"}, {0x97, "NEXT_BUFFER"}, {0x98, "READONLY_BUFFER"},
};

/*
 * Items of the stack, marks among them. Python writes lists and dictionaries in parts of 1,000 items, so a snapshot has a few thousand;
 * without a bound, a byte of nesting would take 50 bytes of memory.
 */
#define DEPTH_MAX (1u << 17)

/* Containers inside each other: Python itself writes fewer. And how many there may be: a dictionary takes more bytes than this each. */
#define NESTED_MAX	1000u
#define CONTAINERS_MIN	4096u
#define CONTAINER_BYTES 4u

struct machine {
	struct pickle *pickle;
	const uint8_t *data;
	size_t bytes, at;
	uint32_t *stack;
	size_t depth, stack_room;
	size_t *marks;
	size_t mark_count, mark_room;
	uint32_t *memo; /* value + 1, 0: none */
	size_t memo_count, memo_room;
	uint32_t memoized; /* by OP_MEMOIZE */
};

int pickle_load(int fd, uint8_t **out_data, size_t *out_bytes)
{
	struct stat st;
	off_t hole;
	int r;

	if (fstat(fd, &st) < 0)
		return -errno;
	/* A pickle has no holes; one of gigabytes would take memory that its file does not have. */
	hole = lseek(fd, 0, SEEK_HOLE);
	*out_bytes = (size_t)(hole >= 0 && hole < st.st_size ? hole : st.st_size);
	*out_data = malloc(*out_bytes + 1);
	if (*out_data == NULL)
		return -ENOMEM;
	r = io_read_at(fd, *out_data, *out_bytes, 0);
	if (r < 0) {
		free(*out_data);
		*out_data = NULL;
	}
	return r;
}

bool pickle_probe(const void *data, size_t bytes)
{
	const uint8_t *at = data;

	return bytes > 2 && at[0] == OP_PROTO && at[1] >= 2 && at[1] <= 5;
}

/* ---- values ---- */

static int new_value(struct pickle *pickle, struct pickle_value value, uint32_t *out)
{
	if (pickle->value_count >= UINT32_MAX - 1)
		return MSCOPE_E_LIMIT;
	if (ARRAY_RESERVE(pickle->values, pickle->value_room, pickle->value_count + 1) < 0)
		return -ENOMEM;
	pickle->values[pickle->value_count] = value;
	*out = (uint32_t)pickle->value_count++;
	return 0;
}

static int push_index(struct machine *m, uint32_t value)
{
	if (m->depth >= DEPTH_MAX)
		return MSCOPE_E_LIMIT;
	if (ARRAY_RESERVE(m->stack, m->stack_room, m->depth + 1) < 0)
		return -ENOMEM;
	m->stack[m->depth++] = value;
	return 0;
}

static int push(struct machine *m, struct pickle_value value)
{
	uint32_t index;
	int r = new_value(m->pickle, value, &index);

	return r < 0 ? r : push_index(m, index);
}

static int push_container(struct machine *m, enum pickle_type type)
{
	struct pickle *pickle = m->pickle;

	if (pickle->container_count >= CONTAINERS_MIN + m->bytes / CONTAINER_BYTES)
		return MSCOPE_E_LIMIT;
	if (ARRAY_RESERVE(pickle->containers, pickle->container_room, pickle->container_count + 1) <
	    0)
		return -ENOMEM;
	pickle->containers[pickle->container_count] = (struct pickle_items){0};
	return push(m, (struct pickle_value){.type = (uint8_t)type,
					     .items = (uint32_t)pickle->container_count++});
}

/* Items of the stack that no mark keeps. */
static size_t free_depth(const struct machine *m)
{
	return m->mark_count == 0 ? m->depth : m->depth - m->marks[m->mark_count - 1];
}

/* How many containers lie inside each other in a value; 0: it is none. */
static uint32_t nested(const struct pickle *pickle, uint32_t at)
{
	const struct pickle_value *value = &pickle->values[at];

	return value->type == PICKLE_LIST || value->type == PICKLE_DICT
		       ? pickle->containers[value->items].nested + 1
		       : 0;
}

/* Moves what lies on the stack from `from` on into the container at `at`, which must be of this type. */
static int move_items(struct machine *m, size_t from, uint32_t at, enum pickle_type type)
{
	size_t count = m->depth - from, i;
	struct pickle_items *items;

	if (m->pickle->values[at].type != type || (type == PICKLE_DICT && count % 2 != 0))
		return MSCOPE_E_DAMAGED;
	items = &m->pickle->containers[m->pickle->values[at].items];
	if (count == 0)
		return 0;
	if (ARRAY_RESERVE(items->values, items->room, items->count + count) < 0)
		return -ENOMEM;
	for (i = from; i < m->depth; i++) {
		uint32_t inside = m->stack[i] == at ? 0 : nested(m->pickle, m->stack[i]);

		items->nested = inside > items->nested ? inside : items->nested;
	}
	if (items->nested > NESTED_MAX)
		return MSCOPE_E_LIMIT;
	memcpy(items->values + items->count, m->stack + from, count * sizeof(*items->values));
	items->count += count;
	m->depth = from;
	return 0;
}

/* The place of the newest mark, which goes. */
static bool pop_mark(struct machine *m, size_t *out)
{
	if (m->mark_count == 0)
		return false;
	*out = m->marks[--m->mark_count];
	return true;
}

/* Adds what stands behind the newest mark to the container before it. */
static int add_marked(struct machine *m, enum pickle_type type)
{
	size_t from;

	if (!pop_mark(m, &from) || from == 0 ||
	    (m->mark_count > 0 && m->marks[m->mark_count - 1] >= from))
		return MSCOPE_E_DAMAGED;
	return move_items(m, from, m->stack[from - 1], type);
}

/* Makes a container of the items from `from` on. */
static int make_from(struct machine *m, size_t from, enum pickle_type type)
{
	uint32_t made;
	int r = push_container(m, type);

	if (r < 0)
		return r;
	made = m->stack[--m->depth];
	r = move_items(m, from, made, type);
	return r < 0 ? r : push_index(m, made);
}

static int make_marked(struct machine *m, enum pickle_type type)
{
	size_t from;

	return pop_mark(m, &from) ? make_from(m, from, type) : MSCOPE_E_DAMAGED;
}

/* Adds the topmost `count` items to the container below them. */
static int add_top(struct machine *m, size_t count, enum pickle_type type)
{
	if (free_depth(m) < count + 1)
		return MSCOPE_E_DAMAGED;
	return move_items(m, m->depth - count, m->stack[m->depth - count - 1], type);
}

/* ---- arguments ---- */

static bool take(struct machine *m, size_t bytes, const uint8_t **out)
{
	if (m->bytes - m->at < bytes)
		return false;
	*out = m->data + m->at;
	m->at += bytes;
	return true;
}

/* A number of `bytes` bytes, the lowest first. */
static bool take_number(struct machine *m, size_t bytes, uint64_t *out)
{
	const uint8_t *at;
	size_t i;

	if (!take(m, bytes, &at))
		return false;
	*out = 0;
	for (i = bytes; i > 0; i--)
		*out = *out << 8 | at[i - 1];
	return true;
}

static int push_int(struct machine *m, int64_t number)
{
	return push(m, (struct pickle_value){.type = PICKLE_INT, .number = number});
}

static int push_u(struct machine *m, size_t bytes)
{
	uint64_t number;

	return take_number(m, bytes, &number) ? push_int(m, (int64_t)number) : MSCOPE_E_TRUNCATED;
}

/* A number of any length, the lowest byte first, in two's complement. */
static int push_long(struct machine *m, size_t length_bytes)
{
	const uint8_t *at;
	uint64_t length, number;
	size_t i;
	bool below;

	if (!take_number(m, length_bytes, &length) || !take(m, length, &at))
		return MSCOPE_E_TRUNCATED;
	if (length == 0)
		return push_int(m, 0);
	below = (at[length - 1] & 0x80) != 0;
	number = below ? UINT64_MAX : 0;
	for (i = length < 8 ? length : 8; i > 0; i--)
		number = number << 8 | at[i - 1];
	for (i = 8; i < length; i++) {
		if (at[i] != (below ? 0xff : 0))
			return push_int(m, below ? INT64_MIN : INT64_MAX);
	}
	if (length > 8 && ((int64_t)number < 0) != below)
		return push_int(m, below ? INT64_MIN : INT64_MAX);
	return push_int(m, (int64_t)number);
}

static int push_text(struct machine *m, size_t length_bytes)
{
	const uint8_t *at;
	uint64_t length;

	if (!take_number(m, length_bytes, &length) || !take(m, length, &at))
		return MSCOPE_E_TRUNCATED;
	if (length > UINT32_MAX)
		return MSCOPE_E_LIMIT;
	return push(m, (struct pickle_value){.type = PICKLE_TEXT,
					     .text = (const char *)at,
					     .length = (uint32_t)length});
}

static int push_float(struct machine *m)
{
	const uint8_t *at;
	uint64_t bits = 0;
	double real;
	size_t i;

	if (!take(m, 8, &at))
		return MSCOPE_E_TRUNCATED;
	for (i = 0; i < 8; i++)
		bits = bits << 8 | at[i];
	memcpy(&real, &bits, sizeof(real));
	return push(m, (struct pickle_value){.type = PICKLE_FLOAT, .real = real});
}

/* ---- memory of the machine ---- */

static int memo_put(struct machine *m, uint64_t index)
{
	/* An instruction each, so that a number beyond the bytes of the file is none. */
	if (free_depth(m) == 0 || index >= m->bytes)
		return MSCOPE_E_DAMAGED;
	if (index >= m->memo_count) {
		if (ARRAY_RESERVE(m->memo, m->memo_room, index + 1) < 0)
			return -ENOMEM;
		memset(m->memo + m->memo_count, 0, (index + 1 - m->memo_count) * sizeof(*m->memo));
		m->memo_count = index + 1;
	}
	m->memo[index] = m->stack[m->depth - 1] + 1;
	return 0;
}

static int memo_take(struct machine *m, size_t bytes, bool put)
{
	uint64_t index;

	if (!take_number(m, bytes, &index))
		return MSCOPE_E_TRUNCATED;
	if (put)
		return memo_put(m, index);
	if (index >= m->memo_count || m->memo[index] == 0)
		return MSCOPE_E_DAMAGED;
	return push_index(m, m->memo[index] - 1);
}

static int put_mark(struct machine *m)
{
	if (m->mark_count >= DEPTH_MAX)
		return MSCOPE_E_LIMIT;
	if (ARRAY_RESERVE(m->marks, m->mark_room, m->mark_count + 1) < 0)
		return -ENOMEM;
	m->marks[m->mark_count++] = m->depth;
	return 0;
}

/* ---- instructions ---- */

static int run_stack(struct machine *m, uint8_t opcode)
{
	size_t from;

	switch (opcode) {
	case OP_MARK:
		return put_mark(m);
	case OP_POP:
		if (free_depth(m) == 0)
			return pop_mark(m, &from) ? 0 : MSCOPE_E_DAMAGED;
		m->depth--;
		return 0;
	case OP_POP_MARK:
		if (!pop_mark(m, &from))
			return MSCOPE_E_DAMAGED;
		m->depth = from;
		return 0;
	case OP_DUP:
		return free_depth(m) == 0 ? MSCOPE_E_DAMAGED
					  : push_index(m, m->stack[m->depth - 1]);
	case OP_BINPUT:
	case OP_LONG_BINPUT:
		return memo_take(m, opcode == OP_BINPUT ? 1 : 4, true);
	case OP_MEMOIZE:
		return memo_put(m, m->memoized++);
	case OP_BINGET:
	case OP_LONG_BINGET:
		return memo_take(m, opcode == OP_BINGET ? 1 : 4, false);
	default:
		return MSCOPE_E_FOREIGN;
	}
}

static int run_container(struct machine *m, uint8_t opcode)
{
	size_t count;

	switch (opcode) {
	case OP_EMPTY_LIST:
	case OP_EMPTY_TUPLE:
		return push_container(m, PICKLE_LIST);
	case OP_EMPTY_DICT:
		return push_container(m, PICKLE_DICT);
	case OP_APPEND:
		return add_top(m, 1, PICKLE_LIST);
	case OP_APPENDS:
		return add_marked(m, PICKLE_LIST);
	case OP_SETITEM:
		return add_top(m, 2, PICKLE_DICT);
	case OP_SETITEMS:
		return add_marked(m, PICKLE_DICT);
	case OP_LIST:
	case OP_TUPLE:
		return make_marked(m, PICKLE_LIST);
	case OP_DICT:
		return make_marked(m, PICKLE_DICT);
	case OP_TUPLE1:
	case OP_TUPLE2:
	case OP_TUPLE3:
		count = (size_t)(opcode - OP_TUPLE1) + 1;
		return free_depth(m) < count ? MSCOPE_E_DAMAGED
					     : make_from(m, m->depth - count, PICKLE_LIST);
	default:
		return run_stack(m, opcode);
	}
}

static int take_protocol(struct machine *m)
{
	const uint8_t *at;

	if (!take(m, 1, &at))
		return MSCOPE_E_TRUNCATED;
	return at[0] < 2 || at[0] > 5 ? MSCOPE_E_VERSION : 0;
}

static int run(struct machine *m, uint8_t opcode)
{
	const uint8_t *at;
	uint64_t number;

	switch (opcode) {
	case OP_PROTO:
		return take_protocol(m);
	case OP_FRAME:
		return take(m, 8, &at) ? 0 : MSCOPE_E_TRUNCATED;
	case OP_NONE:
		return push(m, (struct pickle_value){.type = PICKLE_NONE});
	case OP_NEWTRUE:
	case OP_NEWFALSE:
		return push(m, (struct pickle_value){.type = PICKLE_BOOL,
						     .number = opcode == OP_NEWTRUE});
	case OP_BININT:
		return take_number(m, 4, &number) ? push_int(m, (int32_t)number)
						  : MSCOPE_E_TRUNCATED;
	case OP_BININT1:
		return push_u(m, 1);
	case OP_BININT2:
		return push_u(m, 2);
	case OP_LONG1:
		return push_long(m, 1);
	case OP_LONG4:
		return push_long(m, 4);
	case OP_BINFLOAT:
		return push_float(m);
	case OP_SHORT_BINSTRING:
	case OP_SHORT_BINBYTES:
	case OP_SHORT_BINUNICODE:
		return push_text(m, 1);
	case OP_BINSTRING:
	case OP_BINBYTES:
	case OP_BINUNICODE:
		return push_text(m, 4);
	case OP_BINUNICODE8:
	case OP_BINBYTES8:
	case OP_BYTEARRAY8:
		return push_text(m, 8);
	default:
		return run_container(m, opcode);
	}
}

static int refuse(const struct machine *m, uint8_t opcode, int code, const char *name,
		  struct mscope_error *err)
{
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(code_opcodes) && code == MSCOPE_E_FOREIGN; i++) {
		if (code_opcodes[i].opcode == opcode)
			return error_set(
				err, code,
				"%s contains code to run (%s at byte %zu), which a snapshot of PyTorch never does; nothing was executed",
				name, code_opcodes[i].name, m->at - 1);
	}
	if (code == MSCOPE_E_FOREIGN)
		return error_set(
			err, code,
			"%s has an instruction that snapshots of PyTorch do not have: 0x%02x at byte %zu",
			name, opcode, m->at - 1);
	if (code == MSCOPE_E_TRUNCATED)
		return error_set(err, code, "%s ends too early, at byte %zu", name, m->bytes);
	if (code == MSCOPE_E_VERSION)
		return error_set(err, code, "%s is a pickle of an unknown protocol", name);
	if (code == MSCOPE_E_DAMAGED)
		return error_set(err, code, "%s is not a valid pickle: unexpected byte at %zu",
				 name, m->at - 1);
	return error_set(err, code, "cannot read %s: %s", name, mscope_status_str(code));
}

int pickle_read(struct pickle *pickle, const void *data, size_t bytes, const char *name,
		struct mscope_error *err)
{
	struct machine m = {.pickle = pickle, .data = data, .bytes = bytes};
	uint8_t opcode = 0;
	int r = 0;

	*pickle = (struct pickle){.root = PICKLE_ABSENT};
	while (r == 0 && m.at < bytes) {
		opcode = m.data[m.at++];
		if (opcode == OP_STOP)
			break;
		r = run(&m, opcode);
	}
	if (r == 0 && opcode != OP_STOP)
		r = MSCOPE_E_TRUNCATED;
	else if (r == 0 && (m.depth != 1 || m.mark_count > 0))
		r = MSCOPE_E_DAMAGED;
	if (r == 0)
		pickle->root = m.stack[0];
	else
		r = refuse(&m, opcode, r, name, err);
	free(m.stack);
	free(m.marks);
	free(m.memo);
	return r;
}

void pickle_fini(struct pickle *pickle)
{
	size_t i;

	for (i = 0; i < pickle->container_count; i++)
		free(pickle->containers[i].values);
	free(pickle->containers);
	free(pickle->values);
	*pickle = (struct pickle){.root = PICKLE_ABSENT};
}

/* ---- walking ---- */

/* Keys and values that are looked at; what this is for has fewer, and a file must not make it slow. */
#define KEYS_MAX 256u

static const struct pickle_value *get(const struct pickle *pickle, uint32_t value,
				      enum pickle_type type)
{
	return value < pickle->value_count && pickle->values[value].type == type
		       ? &pickle->values[value]
		       : NULL;
}

const uint32_t *pickle_list(const struct pickle *pickle, uint32_t value, size_t *out_count)
{
	const struct pickle_value *list = get(pickle, value, PICKLE_LIST);

	*out_count = list == NULL ? 0 : pickle->containers[list->items].count;
	return list == NULL ? NULL : pickle->containers[list->items].values;
}

uint32_t pickle_at(const struct pickle *pickle, uint32_t value, const char *key)
{
	const struct pickle_value *dict = get(pickle, value, PICKLE_DICT);
	const struct pickle_items *items;
	size_t i;

	if (dict == NULL)
		return PICKLE_ABSENT;
	items = &pickle->containers[dict->items];
	for (i = items->count; i >= 2 && items->count - i < KEYS_MAX; i -= 2) {
		if (pickle_is(pickle, items->values[i - 2], key))
			return items->values[i - 1];
	}
	return PICKLE_ABSENT;
}

uint64_t pickle_u64(const struct pickle *pickle, uint32_t value, uint64_t otherwise)
{
	const struct pickle_value *number = get(pickle, value, PICKLE_INT);

	return number == NULL || number->number < 0 ? otherwise : (uint64_t)number->number;
}

bool pickle_is_beyond(const struct pickle *pickle, uint32_t value, const char *key, uint64_t most)
{
	uint32_t number = pickle_at(pickle, value, key);

	return number != PICKLE_ABSENT && pickle_u64(pickle, number, UINT64_MAX) > most;
}

const char *pickle_text(const struct pickle *pickle, uint32_t value, size_t *out_length)
{
	const struct pickle_value *text = get(pickle, value, PICKLE_TEXT);

	*out_length = text == NULL ? 0 : text->length;
	return text == NULL ? "" : text->text;
}

bool pickle_is(const struct pickle *pickle, uint32_t value, const char *text)
{
	size_t length;
	const char *at = pickle_text(pickle, value, &length);

	return length == strlen(text) && memcmp(at, text, length) == 0;
}
