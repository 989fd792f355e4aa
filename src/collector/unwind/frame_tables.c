/* SPDX-License-Identifier: Apache-2.0 */
#include "collector/unwind/frame_tables.h"

#include <elf.h>
#include <string.h>

#include "collector/memory.h"
#include "collector/quiet.h"
#include "collector/sys.h"

#define TABLES_MAX 4096u

/* How a value in a table is written (DW_EH_PE_*). */
enum {
	ENCODING_FORM = 0x0f,
	ENCODING_ABSOLUTE = 0x00,
	ENCODING_ULEB = 0x01,
	ENCODING_U2 = 0x02,
	ENCODING_U4 = 0x03,
	ENCODING_U8 = 0x04,
	ENCODING_SLEB = 0x09,
	ENCODING_S2 = 0x0a,
	ENCODING_S4 = 0x0b,
	ENCODING_S8 = 0x0c,
	ENCODING_BASE = 0x70,
	ENCODING_FROM_HERE = 0x10,
	ENCODING_FROM_INDEX = 0x30,
	ENCODING_INDEX_S4 = ENCODING_FROM_INDEX | ENCODING_S4,
	ENCODING_INDIRECT = 0x80,
	ENCODING_OMITTED = 0xff,
};

/* ---- who reads, and what goes ---- */

#define UNLOAD_WAIT_NS UINT64_C(2000000)

static _Atomic uint32_t readers; /* threads that read tables */
static _Atomic uint32_t unloads; /* dlclose() under way */

/* For counts that a forked child, or a thread that gave up waiting, has set to 0 meanwhile. */
static void count_down(_Atomic uint32_t *count)
{
	uint32_t now = atomic_load(count);

	while (now > 0 && !atomic_compare_exchange_weak(count, &now, now - 1))
		;
}

/* Counts first and looks at `unloads` then; tables_unload_begin() does it the other way round. So one of the two sees the other. */
void tables_enter(void)
{
	atomic_fetch_add(&readers, 1);
}

void tables_leave(void)
{
	count_down(&readers);
}

bool tables_unloading(void)
{
	return atomic_load(&unloads) != 0;
}

void tables_unload_begin(void)
{
	uint64_t start = 0;
	uint32_t now;

	atomic_fetch_add(&unloads, 1);
	while (now = atomic_load(&readers), now != 0) {
		if (start == 0)
			start = clock_ns();
		/* Left by siglongjmp(), or this thread itself in a signal handler: nobody waits for it again. */
		if (clock_ns() - start > UNLOAD_WAIT_NS) {
			(void)atomic_compare_exchange_strong(&readers, &now, 0);
			break;
		}
		sys_yield();
	}
}

void tables_unload_end(void)
{
	count_down(&unloads);
}

void tables_reset(void)
{
	atomic_store(&readers, 0);
	atomic_store(&unloads, 0);
}

/* ---- the list ---- */

struct unwind_now unwind_now = {.version = 1};

/* The words of struct frame_table, by start. Read while they change, so each is atomic. List `version & 1` is the present one. */
#define TABLE_WORDS (offsetof(struct frame_table, in_place) / 8)
struct table_list {
	_Atomic uint32_t count;
	_Atomic uint64_t words[TABLES_MAX][TABLE_WORDS];
};
static struct table_list lists[2];

static struct table_list *list_next(void)
{
	return &lists[~atomic_load_explicit(&unwind_now.version, memory_order_relaxed) & 1];
}

static void words_copy(_Atomic uint64_t *to, const _Atomic uint64_t *from)
{
	uint32_t i;

	for (i = 0; i < TABLE_WORDS; i++)
		atomic_store_explicit(&to[i], atomic_load_explicit(&from[i], memory_order_relaxed),
				      memory_order_relaxed);
}

void tables_begin(void)
{
	/* What follows is not seen before the present version: pairs with the fence in list_find(). */
	atomic_thread_fence(memory_order_seq_cst);
	atomic_store_explicit(&list_next()->count, 0, memory_order_relaxed);
}

void tables_end(void)
{
	uint32_t version = atomic_load_explicit(&unwind_now.version, memory_order_relaxed) + 1;

	/* 0 is left out; the lists keep taking turns. */
	atomic_store_explicit(&unwind_now.version, version != 0 ? version : 2,
			      memory_order_release);
}

void tables_add(const struct dl_phdr_info *info)
{
	struct frame_table table = {.start = UINT64_MAX};
	uint64_t words[TABLE_WORDS];
	struct table_list *list = list_next();
	uint32_t count = atomic_load_explicit(&list->count, memory_order_relaxed), at, i;

	for (i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		uint64_t start = info->dlpi_addr + p->p_vaddr;

		if (p->p_type == PT_LOAD && start < table.start)
			table.start = start;
		if (p->p_type == PT_LOAD && start + p->p_memsz > table.end)
			table.end = start + p->p_memsz;
		if (p->p_type == PT_GNU_EH_FRAME) {
			table.index = start;
			table.index_bytes = p->p_memsz;
		}
	}
	for (i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		uint64_t start = info->dlpi_addr + p->p_vaddr;

		if (p->p_type == PT_LOAD && table.index - start < p->p_memsz) {
			table.part_start = start;
			table.part_end = start + p->p_memsz;
		}
	}
	if (table.part_end == 0 || table.index_bytes > table.part_end - table.index)
		table.index = 0;
	if (table.end == 0 || count == TABLES_MAX)
		return;
	for (at = count; at > 0 && atomic_load_explicit(&list->words[at - 1][0],
							memory_order_relaxed) > table.start;
	     at--)
		words_copy(list->words[at], list->words[at - 1]);
	memcpy(words, &table, sizeof(words));
	for (i = 0; i < TABLE_WORDS; i++)
		atomic_store_explicit(&list->words[at][i], words[i], memory_order_relaxed);
	atomic_store_explicit(&list->count, count + 1, memory_order_relaxed);
}

/* One try. False: two new lists were made meanwhile. */
static bool list_try(uint64_t pc, uint64_t *words, bool *out_found)
{
	uint32_t version = atomic_load_explicit(&unwind_now.version, memory_order_acquire);
	struct table_list *list = &lists[version & 1];
	uint32_t low = 0, high = atomic_load_explicit(&list->count, memory_order_relaxed), i;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (atomic_load_explicit(&list->words[middle][0], memory_order_relaxed) <= pc)
			low = middle + 1;
		else
			high = middle;
	}
	for (i = 0; low > 0 && i < TABLE_WORDS; i++)
		words[i] = atomic_load_explicit(&list->words[low - 1][i], memory_order_relaxed);
	*out_found = low > 0;
	/* Pairs with the fence in tables_begin(). */
	atomic_thread_fence(memory_order_seq_cst);
	return atomic_load_explicit(&unwind_now.version, memory_order_relaxed) == version;
}

static bool list_find(uint64_t pc, struct frame_table *out)
{
	uint64_t words[TABLE_WORDS];
	uint32_t tries;
	bool found;

	/* A list takes much longer to make than to read. */
	for (tries = 0; tries < 100; tries++) {
		if (!list_try(pc, words, &found))
			continue;
		if (!found)
			return false;
		memcpy(out, words, sizeof(words));
		out->in_place = !tables_unloading();
		memset(out->pages, 0, sizeof(out->pages));
		return pc < out->end;
	}
	return false;
}

/* ---- bytes ---- */

bool tables_peek(uint64_t at, void *out, uint32_t bytes)
{
	const void *from = (const void *)(uintptr_t)at;

	if (!quiet_is_on() && memory_read(out, at, bytes) == bytes)
		return true;
	/* Where the kernel does not copy for us. */
	if (!memory_readable(from, bytes))
		return false;
	memcpy(out, from, bytes);
	return true;
}

static bool page_is_there(struct frame_table *table, uint64_t page)
{
	uint32_t i;

	for (i = 0; i < MSCOPE_COUNT(table->pages); i++) {
		if (table->pages[i] == page)
			return true;
	}
	if (!memory_readable((const void *)(uintptr_t)page, 1))
		return false;
	memmove(&table->pages[1], &table->pages[0], sizeof(table->pages) - sizeof(table->pages[0]));
	table->pages[0] = page;
	return true;
}

/* As many bytes of the object as there are, `most` at most; 256 or fewer. */
static uint32_t copy(struct frame_table *table, void *out, uint64_t at, uint32_t most)
{
	uint64_t low = table->start, high = table->end;
	/* Behind this page the segment may end, with nothing up to the next. */
	uint32_t here = 4096u - (uint32_t)(at & 4095);

	/* No call that a filter might forbid; the object is as it was when the list was made. */
	if (quiet_is_on()) {
		low = table->part_start;
		high = table->part_end;
	}
	if (at < low || at >= high)
		return 0;
	if (most > high - at)
		most = (uint32_t)(high - at);
	if (!quiet_is_on() && !table->in_place) {
		if (tables_peek(at, out, most))
			return most;
		return most > here && tables_peek(at, out, here) ? here : 0;
	}
	if (!quiet_is_on()) {
		if (!page_is_there(table, at & ~UINT64_C(4095)))
			return 0;
		if (most > here && !page_is_there(table, at + here))
			most = here;
	}
	memcpy(out, (const void *)(uintptr_t)at, most);
	return most;
}

void reader_begin(struct frame_reader *r, struct frame_table *table, uint64_t at, uint64_t end)
{
	r->table = table;
	r->at = at;
	r->end = end;
	r->have = 0;
	r->from = 0;
	r->failed = false;
}

static MSCOPE_COLD bool reader_fill(struct frame_reader *r)
{
	uint64_t left = r->end - r->at;

	if (r->failed || r->at >= r->end) {
		r->failed = true;
		return false;
	}
	r->from = r->at;
	r->have = copy(r->table, r->bytes, r->at,
		       left < sizeof(r->bytes) ? (uint32_t)left : (uint32_t)sizeof(r->bytes));
	r->failed = r->have == 0;
	return !r->failed;
}

uint8_t reader_u8(struct frame_reader *r)
{
	if (r->at >= r->end || r->at - r->from >= r->have) {
		if (!reader_fill(r))
			return 0;
	}
	return r->bytes[r->at++ - r->from];
}

uint64_t reader_fixed(struct frame_reader *r, uint32_t bytes)
{
	uint64_t value = 0;
	uint32_t i;

	for (i = 0; i < bytes; i++)
		value |= (uint64_t)reader_u8(r) << (8 * i);
	return value;
}

/* Groups of seven bits, the lowest first. `out_shift`: how many bits there are, the highest of which is a sign in signed numbers. */
static uint64_t reader_leb(struct frame_reader *r, uint32_t *out_shift)
{
	uint64_t value = 0;
	uint32_t shift = 0;
	uint8_t byte;

	do {
		byte = reader_u8(r);
		if (shift < 64)
			value |= (uint64_t)(byte & 0x7f) << shift;
		shift += 7;
	} while ((byte & 0x80) != 0 && shift < 140);
	*out_shift = shift;
	return value;
}

uint64_t reader_uleb(struct frame_reader *r)
{
	uint32_t shift;

	return reader_leb(r, &shift);
}

int64_t reader_sleb(struct frame_reader *r)
{
	uint32_t shift;
	uint64_t value = reader_leb(r, &shift);

	if (shift < 64 && (value >> (shift - 1) & 1) != 0)
		value |= UINT64_MAX << shift;
	return (int64_t)value;
}

void reader_skip(struct frame_reader *r, uint64_t bytes)
{
	if (r->at > r->end || bytes > r->end - r->at)
		r->failed = true;
	else
		r->at += bytes;
}

/* A value by its encoding. `address` false: a length, which has a form and no base. */
static uint64_t reader_encoded(struct frame_reader *r, uint8_t encoding, bool address)
{
	uint64_t here = r->at, value;

	switch (encoding & ENCODING_FORM) {
	case ENCODING_ULEB:
		value = reader_uleb(r);
		break;
	case ENCODING_SLEB:
		value = (uint64_t)reader_sleb(r);
		break;
	case ENCODING_U2:
		value = reader_fixed(r, 2);
		break;
	case ENCODING_S2:
		value = (uint64_t)(int64_t)(int16_t)reader_fixed(r, 2);
		break;
	case ENCODING_U4:
		value = reader_fixed(r, 4);
		break;
	case ENCODING_S4:
		value = (uint64_t)(int64_t)(int32_t)reader_fixed(r, 4);
		break;
	case ENCODING_ABSOLUTE:
	case ENCODING_U8:
	case ENCODING_S8:
		value = reader_fixed(r, 8);
		break;
	default:
		r->failed = true;
		return 0;
	}
	if (!address)
		return value;
	switch (encoding & ENCODING_BASE) {
	case 0:
		return value;
	case ENCODING_FROM_HERE:
		return value + here;
	case ENCODING_FROM_INDEX:
		return value + r->table->index;
	default:
		r->failed = true;
		return 0;
	}
}

/* ---- the index ---- */

#define BLOCK 32u /* entries that are read at a time */

struct index_entry {
	int32_t code; /* both from the index's own address */
	int32_t function;
};

/* Entries [low, high) remain; the codes at both ends are known, or the object's ends. */
struct search {
	uint64_t low, high;
	int64_t low_code, high_code;
};

/* Where to read next: in proportion, and every other time in the middle, for functions of very different sizes. */
static uint64_t search_guess(const struct search *s, int64_t code, uint32_t round)
{
	uint64_t span = s->high - s->low, at = span / 2;
	uint64_t codes = (uint64_t)(s->high_code - s->low_code),
		 before = (uint64_t)(code - s->low_code);

	if (round % 2 == 0 && before < codes && codes >> 33 == 0 && span >> 30 == 0)
		at = span * before / codes;
	at = at > BLOCK / 2 ? at - BLOCK / 2 : 0;
	return s->low + (at > span - BLOCK ? span - BLOCK : at);
}

/* The description of the last function at or before `pc`, 0: none. */
static uint64_t index_search(struct frame_table *table, uint64_t entries, uint64_t count,
			     uint64_t pc)
{
	int64_t code = (int64_t)(pc - table->index);
	struct search s = {.high = count,
			   .low_code = (int64_t)(table->start - table->index),
			   .high_code = (int64_t)(table->end - table->index)};
	struct index_entry block[BLOCK];
	uint32_t round;

	for (round = 0; s.low < s.high && round < 128; round++) {
		uint64_t left = s.high - s.low;
		uint64_t from = left <= BLOCK ? s.low : search_guess(&s, code, round);
		uint32_t n = left <= BLOCK ? (uint32_t)left : BLOCK, i = 0;

		if (copy(table, block, entries + from * sizeof(block[0]),
			 n * (uint32_t)sizeof(block[0])) != n * sizeof(block[0]))
			return 0;
		while (i < n && block[i].code <= code)
			i++;
		if (i == 0) {
			s.high = from;
			s.high_code = block[0].code;
		} else if (i < n || from + n == s.high) {
			return table->index + (uint64_t)(int64_t)block[i - 1].function;
		} else {
			s.low = from + n - 1;
			s.low_code = block[n - 1].code;
		}
	}
	return 0;
}

static enum frame_result index_find(struct frame_table *table, uint64_t pc, uint64_t *out_function)
{
	struct frame_reader r;
	uint8_t version, frame_form, count_form, entry_form;
	uint64_t count;

	if (table->index == 0)
		return FRAME_NONE;
	reader_begin(&r, table, table->index, table->index + table->index_bytes);
	version = reader_u8(&r);
	frame_form = reader_u8(&r);
	count_form = reader_u8(&r);
	entry_form = reader_u8(&r);
	if (r.failed || version != 1)
		return FRAME_BAD;
	if (frame_form != ENCODING_OMITTED)
		(void)reader_encoded(&r, frame_form, false);
	if (count_form == ENCODING_OMITTED || entry_form != ENCODING_INDEX_S4)
		return FRAME_NONE;
	count = reader_encoded(&r, count_form, false);
	if (r.failed)
		return FRAME_BAD;
	if (count > (r.end - r.at) / sizeof(struct index_entry))
		count = (r.end - r.at) / sizeof(struct index_entry);
	*out_function = index_search(table, r.at, count, pc);
	return *out_function != 0 ? FRAME_FOUND : FRAME_NONE;
}

/* ---- descriptions ---- */

/* The length before a description; where it ends. */
static bool read_length(struct frame_reader *r)
{
	uint64_t length = reader_fixed(r, 4);

	if (length == UINT32_MAX)
		length = reader_fixed(r, 8);
	if (r->failed || length == 0 || length > r->end - r->at)
		return false;
	r->end = r->at + length;
	return true;
}

/* One more thing that functions may have in common, and what belongs to it. False: not known, so the rest cannot be read. */
static bool read_letter(struct frame_function *f, struct frame_reader *r, uint8_t letter,
			uint8_t *encoding)
{
	switch (letter) {
	case 'R':
		*encoding = reader_u8(r);
		return true;
	case 'P':
		(void)reader_encoded(r, reader_u8(r) & ENCODING_FORM, false);
		return true;
	case 'L':
		(void)reader_u8(r);
		return true;
	case 'S':
		f->signal = true;
		return true;
	case 'B': /* keys of signed addresses, and tagged stacks */
	case 'G':
		return true;
	default:
		return false;
	}
}

/* What functions have in common: the CIE at `at`. Returns how the addresses of its functions are encoded, OMITTED: bad. */
static uint8_t read_common(struct frame_function *f, uint64_t at, bool *out_sized)
{
	uint8_t version, encoding = ENCODING_ABSOLUTE, letters[8];
	uint32_t count = 0, i;
	uint64_t data_end = 0, bytes;
	struct frame_reader r;

	reader_begin(&r, &f->table, at, f->table.end);
	if (!read_length(&r) || reader_fixed(&r, 4) != 0)
		return ENCODING_OMITTED;
	version = reader_u8(&r);
	if (version != 1 && version != 3 && version != 4)
		return ENCODING_OMITTED;
	while (count < sizeof(letters) && (letters[count] = reader_u8(&r)) != 0)
		count++;
	if (count == sizeof(letters) || (count > 0 && letters[0] != 'z'))
		return ENCODING_OMITTED;
	if (version == 4 && (reader_u8(&r) != 8 || reader_u8(&r) != 0))
		return ENCODING_OMITTED;
	f->code_align = reader_uleb(&r);
	f->data_align = reader_sleb(&r);
	/* The return address has one place on each machine; the tables of other machines are not ours. */
	if ((version == 1 ? reader_u8(&r) : reader_uleb(&r)) !=
#if defined(__x86_64__)
	    16
#else
	    30
#endif
	)
		return ENCODING_OMITTED;
	*out_sized = count > 0;
	f->signal = false;
	if (count > 0) {
		bytes = reader_uleb(&r);
		if (r.failed || bytes > r.end - r.at)
			return ENCODING_OMITTED;
		data_end = r.at + bytes;
	}
	for (i = 1; i < count; i++) {
		if (!read_letter(f, &r, letters[i], &encoding))
			return ENCODING_OMITTED;
	}
	f->common = count > 0 ? data_end : r.at;
	f->common_end = r.end;
	return r.failed ? ENCODING_OMITTED : encoding;
}

enum frame_result tables_find(uint64_t pc, struct frame_function *out)
{
	uint64_t at, back, here, bytes;
	enum frame_result result;
	struct frame_reader r;
	uint8_t encoding;
	bool sized;

	if (!list_find(pc, &out->table))
		return FRAME_NONE;
	result = index_find(&out->table, pc, &at);
	if (result != FRAME_FOUND)
		return result;
	reader_begin(&r, &out->table, at, out->table.end);
	if (!read_length(&r))
		return FRAME_BAD;
	here = r.at;
	back = reader_fixed(&r, 4);
	if (r.failed || back == 0 || back > here)
		return FRAME_BAD;
	encoding = read_common(out, here - back, &sized);
	if (encoding == ENCODING_OMITTED || (encoding & ENCODING_INDIRECT) != 0)
		return FRAME_BAD;
	out->begin = reader_encoded(&r, encoding, true);
	bytes = reader_encoded(&r, encoding, false);
	if (sized)
		reader_skip(&r, reader_uleb(&r));
	if (r.failed)
		return FRAME_BAD;
	out->end = out->begin + bytes;
	out->program = r.at;
	out->program_end = r.end;
	return pc - out->begin < bytes ? FRAME_FOUND : FRAME_NONE;
}
