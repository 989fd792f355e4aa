/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where PyTorch's objects have what we record. A place is searched for among the first words of an object: each told fact rules out
 * the places that have another value, until one is left.
 */
#include "collector/torch/objects.h"

#include <errno.h>
#include <string.h>

#include "collector/memory.h"

#define TENSOR_WORDS  32u /* of a tensor that are searched */
#define STORAGE_WORDS 16u
#define RECORD_WORDS  64u
#define LIST_WORDS    12u
#define INLINE_DIMS   5u /* dimensions that a tensor has room for itself */
#define ALL	      UINT64_MAX
/* Flags that must be seen: their neighbour TORCH_NUMBER is then where it is known to be. */
#define FLAGS_TOLD                                                                                 \
	(TORCH_CONTIGUOUS | TORCH_CHANNELS_LAST | TORCH_CHANNELS_LAST_CONTIGUOUS |                 \
	 TORCH_CHANNELS_LAST_3D | TORCH_CHANNELS_LAST_3D_CONTIGUOUS | TORCH_DENSE)

struct dtype {
	char name[32]; /* empty: unknown */
	uint32_t item_bytes;
};

/* Of the first group, bits of places that all facts so far allow; a bit is a word. */
static struct {
	uint64_t storage, offset, numel, keys, sizes, data;
	uint64_t dtype_low, dtype_high; /* a bit is two bytes */
	bool other_place;		/* a device does not stand behind the type */
	bool has_outline;		/* a tensor with more than INLINE_DIMS was told */
	bool has_other_device;
	bool other_flags;		/* flags do not stand behind the device */
	uint64_t told_flags;		/* that were seen set where they should be */
	uint32_t inputs, outputs, list; /* words; 0: not found */
	uint32_t list_tag, optional_tag, device_tag;
} search;

/* What was found: byte offsets. */
static struct {
	uint32_t storage, offset, numel, keys, sizes, dtype, device, data, inputs, outputs, list;
} at;

static struct dtype dtypes[TORCH_DTYPES];

/* Types that PyTorch warns of when one makes a tensor of them. Numbers of types are part of its files, and do not change. */
static const struct {
	uint32_t number;
	struct dtype dtype;
} untold[] = {
	{8, {"torch.complex32", 4}}, {12, {"torch.qint8", 1}},	  {13, {"torch.quint8", 1}},
	{14, {"torch.qint32", 4}},   {16, {"torch.quint4x2", 1}}, {17, {"torch.quint2x4", 1}},
};

static uint64_t word_at(const void *object, uint32_t bytes)
{
	uint64_t value;

	__builtin_memcpy(&value, (const char *)object + bytes, sizeof(value));
	return value;
}

static uint16_t half_at(const void *object, uint32_t bytes)
{
	uint16_t value;

	__builtin_memcpy(&value, (const char *)object + bytes, sizeof(value));
	return value;
}

static const void *pointer(uint64_t address)
{
	return (const void *)(uintptr_t)address;
}

static bool one_bit(uint64_t bits)
{
	return bits != 0 && (bits & (bits - 1)) == 0;
}

static uint32_t only_bit(uint64_t bits)
{
	return (uint32_t)__builtin_ctzll(bits);
}

void torch_layout_reset(void)
{
	memset(&search, 0, sizeof(search));
	memset(&at, 0, sizeof(at));
	memset(dtypes, 0, sizeof(dtypes));
	search.storage = search.offset = search.numel = search.keys = search.sizes = search.data =
		ALL;
	search.dtype_low = search.dtype_high = ALL;
}

/* ---- tensors ---- */

/* Words of an object that have a value in the bits of a mask. */
static uint64_t words_masked(const uint64_t *words, uint32_t count, uint64_t value, uint64_t mask)
{
	uint64_t found = 0;
	uint32_t i;

	for (i = 0; i < count; i++)
		found |= (uint64_t)((words[i] & mask) == value) << i;
	return found;
}

static uint64_t words_with(const uint64_t *words, uint32_t count, uint64_t value)
{
	return words_masked(words, count, value, ALL);
}

/* Words of a tensor where the number of dimensions stands, and behind it what belongs to it. */
static uint64_t words_with_sizes(const uint64_t *words, const uint64_t *facts)
{
	uint64_t dims = facts[TORCH_FACT_DIMS], found = 0;
	const uint64_t *sizes = facts + TORCH_FACTS;
	uint32_t i;

	for (i = 0; i + 1 + 2 * INLINE_DIMS <= TENSOR_WORDS; i++) {
		const uint64_t *room = words + i + 1;
		bool same;

		if (words[i] != dims)
			continue;
		if (dims <= INLINE_DIMS)
			same = memcmp(room, sizes, dims * 8) == 0 &&
			       memcmp(room + INLINE_DIMS, sizes + dims, dims * 8) == 0;
		else
			same = memory_readable(pointer(room[0]), 2 * dims * 8) &&
			       memcmp(pointer(room[0]), sizes, 2 * dims * 8) == 0;
		found |= (uint64_t)same << i;
	}
	return found;
}

/* A type has one number, and no other type has it: which pairs of bytes may be that. */
static void search_dtype(const uint64_t *words, const char *name, uint32_t item_bytes)
{
	static uint16_t numbers[TORCH_DTYPES][TENSOR_WORDS * 4];
	static char names[TORCH_DTYPES][sizeof(dtypes[0].name)];
	static uint32_t items[TORCH_DTYPES];
	static uint32_t count;
	uint32_t i, half;

	if (search.dtype_low == ALL && search.dtype_high == ALL)
		count = 0;
	for (i = 0; i < count && strcmp(names[i], name) != 0; i++)
		;
	if (i == TORCH_DTYPES || strlen(name) >= sizeof(names[0]))
		return;
	for (half = 0; half < TENSOR_WORDS * 4; half++) {
		uint64_t *bits = half < 64 ? &search.dtype_low : &search.dtype_high;
		uint64_t bit = UINT64_C(1) << (half & 63);
		uint16_t number = half_at(words, half * 2);
		uint32_t other;

		if (number >= TORCH_DTYPES || (i < count && numbers[i][half] != number))
			*bits &= ~bit;
		for (other = 0; i == count && other < count; other++) {
			if (numbers[other][half] == number)
				*bits &= ~bit;
		}
		numbers[i][half] = number;
	}
	memcpy(names[i], name, strlen(name) + 1);
	items[i] = item_bytes;
	count += i == count;
	if (one_bit(search.dtype_low) == one_bit(search.dtype_high) ||
	    (search.dtype_low != 0 && search.dtype_high != 0))
		return;
	/* One place is left: the table of all types so far. */
	half = search.dtype_low != 0 ? only_bit(search.dtype_low)
				     : 64 + only_bit(search.dtype_high);
	at.dtype = half * 2;
	for (i = 0; i < count; i++) {
		struct dtype *dtype = &dtypes[numbers[i][half]];

		memcpy(dtype->name, names[i], sizeof(dtype->name));
		dtype->item_bytes = items[i];
	}
	for (i = 0; i < MSCOPE_COUNT(untold); i++) {
		if (dtypes[untold[i].number].name[0] == '\0')
			dtypes[untold[i].number] = untold[i].dtype;
	}
}

int torch_layout_tensor(const uint64_t *facts, uint32_t count, const char *dtype)
{
	uint64_t words[TENSOR_WORDS], storage[STORAGE_WORDS], dims;

	if (count < TORCH_FACTS || facts[TORCH_FACT_DIMS] > TORCH_DIMS_MAX ||
	    count != TORCH_FACTS + 2 * facts[TORCH_FACT_DIMS])
		return -EINVAL;
	dims = facts[TORCH_FACT_DIMS];
	/* The objects are shorter, and memory may end behind them. */
	memset(words, 0, sizeof(words));
	memset(storage, 0, sizeof(storage));
	(void)memory_read(words, facts[TORCH_FACT_TENSOR], sizeof(words));
	(void)memory_read(storage, facts[TORCH_FACT_STORAGE], sizeof(storage));
	search.keys &=
		words_masked(words, TENSOR_WORDS, facts[TORCH_FACT_KEYS], facts[TORCH_FACT_MASK]);
	if (facts[TORCH_FACT_STORAGE] == 0)
		return 0;
	search.storage &= words_with(words, TENSOR_WORDS, facts[TORCH_FACT_STORAGE]);
	search.offset &= words_with(words, TENSOR_WORDS, facts[TORCH_FACT_OFFSET]);
	search.numel &= words_with(words, TENSOR_WORDS, facts[TORCH_FACT_NUMEL]);
	search.sizes &= words_with_sizes(words, facts);
	search.data &= words_with(storage, STORAGE_WORDS, facts[TORCH_FACT_DATA]);
	search.has_outline |= dims > INLINE_DIMS;
	search_dtype(words, dtype, (uint32_t)facts[TORCH_FACT_ITEM]);
	/* The device stands behind the type. */
	if (at.dtype != 0 && ((const uint8_t *)words)[at.dtype + 2] != facts[TORCH_FACT_DEVICE])
		search.other_place = true;
	if (at.dtype != 0) {
		uint64_t flags = ((const uint8_t *)words)[at.dtype + 5];

		search.other_flags |=
			(flags & facts[TORCH_FACT_FLAGS_TOLD]) != facts[TORCH_FACT_FLAGS];
		search.told_flags |= facts[TORCH_FACT_FLAGS];
	}
	search.has_other_device |= at.dtype != 0 && facts[TORCH_FACT_DEVICE] != 0;
	return 0;
}

/* ---- records ---- */

static bool is_tensor(const struct torch_value *value, uint64_t tensor)
{
	return value->tag == TORCH_TAG_TENSOR && value->payload == tensor;
}

bool torch_layout_inputs(const void *record, uint64_t first, uint64_t second)
{
	uint64_t words[RECORD_WORDS];
	uint32_t i, found = 0;

	if (memory_read(words, (uint64_t)(uintptr_t)record, sizeof(words)) != sizeof(words))
		return false;
	for (i = 1; i + 1 < RECORD_WORDS; i++) {
		struct torch_value values[2];

		if (words[i + 1] < 2 || words[i + 1] > 8 ||
		    memory_read(values, words[i], sizeof(values)) != sizeof(values) ||
		    !is_tensor(&values[0], first) || !is_tensor(&values[1], second))
			continue;
		if (found != 0)
			return false;
		found = i;
	}
	search.inputs = found;
	at.inputs = found * 8;
	return found != 0;
}

/* The one place among `count` words where a vector of `length` values begins, and these values; 0: none or several. */
static uint32_t find_vector(const uint64_t *words, uint32_t count, uint64_t length,
			    struct torch_value *values)
{
	uint32_t i, found = 0;

	for (i = 1; i + 2 < count; i++) {
		struct torch_value read[2];

		if (words[i] == 0 || words[i + 1] - words[i] != length * sizeof(*values) ||
		    words[i + 2] < words[i + 1] ||
		    memory_read(read, words[i], length * sizeof(*values)) !=
			    length * sizeof(*values))
			continue;
		if (found != 0)
			return 0;
		found = i;
		memcpy(values, read, length * sizeof(*values));
	}
	return found;
}

bool torch_layout_outputs(const void *record, uint64_t first)
{
	uint64_t words[RECORD_WORDS];
	struct torch_value value[2];
	uint32_t i, found = 0;

	if (memory_read(words, (uint64_t)(uintptr_t)record, sizeof(words)) != sizeof(words))
		return false;
	for (i = 1; i + 2 < RECORD_WORDS; i++) {
		if (words[i] == 0 || words[i + 1] - words[i] != sizeof(value[0]) ||
		    words[i + 2] < words[i + 1] ||
		    memory_read(value, words[i], sizeof(value[0])) != sizeof(value[0]) ||
		    !is_tensor(&value[0], first))
			continue;
		if (found != 0)
			return false;
		found = i;
	}
	search.outputs = found;
	at.outputs = found * 8;
	return found != 0;
}

/* Input `place` of a record, copied. False: there is none. */
static bool read_input(const void *record, uint32_t place, struct torch_value *out)
{
	uint64_t words[2];

	if (search.inputs == 0 ||
	    memory_read(words, (uint64_t)(uintptr_t)record + search.inputs * 8, sizeof(words)) !=
		    sizeof(words) ||
	    words[1] <= place)
		return false;
	return memory_read(out, words[0] + place * sizeof(*out), sizeof(*out)) == sizeof(*out);
}

static bool search_list(const struct torch_value *list, struct torch_value *values)
{
	uint64_t words[LIST_WORDS];
	uint32_t found;

	memset(words, 0, sizeof(words));
	(void)memory_read(words, list->payload, sizeof(words));
	found = find_vector(words, LIST_WORDS, 2, values);
	if (found == 0 || (search.list != 0 && search.list != found))
		return false;
	search.list = found;
	at.list = found * 8;
	return true;
}

bool torch_layout_list(const void *record, uint64_t first, uint64_t second)
{
	struct torch_value list, values[2];

	if (!read_input(record, 0, &list) || !search_list(&list, values) ||
	    !is_tensor(&values[0], first) || !is_tensor(&values[1], second))
		return false;
	search.list_tag = list.tag;
	return true;
}

bool torch_layout_optional_list(const void *record, uint64_t second)
{
	struct torch_value list, values[2];

	if (!read_input(record, 1, &list) || !search_list(&list, values) ||
	    !is_tensor(&values[1], second))
		return false;
	search.optional_tag = list.tag;
	return true;
}

bool torch_layout_device(const void *record, uint32_t place, uint32_t type)
{
	struct torch_value value;

	if (!read_input(record, place, &value) || (value.payload & 0xff) != type ||
	    ((value.payload >> 8 & 0xff) != 0xff && (value.payload >> 8 & 0xff) != 0))
		return false;
	search.device_tag = value.tag;
	return true;
}

int torch_layout_check(const char **out_missing)
{
	const char *missing = NULL;

	if (!one_bit(search.storage) || !one_bit(search.data))
		missing = "memory of tensors";
	else if (!one_bit(search.offset) || !one_bit(search.numel) || !one_bit(search.sizes) ||
		 !search.has_outline)
		missing = "shapes of tensors";
	else if (!one_bit(search.keys))
		missing = "keys of tensors";
	else if (at.dtype == 0)
		missing = "types of tensors";
	else if (search.other_place || !search.has_other_device || search.device_tag == 0)
		missing = search.device_tag == 0 ? "devices" : "devices of tensors";
	else if (search.other_flags || search.told_flags != FLAGS_TOLD)
		missing = "flags of tensors";
	else if (search.inputs == 0 || search.outputs == 0)
		missing = "inputs and outputs";
	else if (search.list_tag == 0 || search.optional_tag == 0)
		missing = "lists";
	if (missing != NULL) {
		*out_missing = missing;
		return -ENOSYS;
	}
	at.storage = only_bit(search.storage) * 8;
	at.offset = only_bit(search.offset) * 8;
	at.numel = only_bit(search.numel) * 8;
	at.keys = only_bit(search.keys) * 8;
	at.sizes = only_bit(search.sizes) * 8;
	at.data = only_bit(search.data) * 8;
	at.device = at.dtype + 2;
	return 0;
}

/* ---- after the check ---- */

struct torch_values torch_record_inputs(const void *record)
{
	struct torch_values values = {pointer(word_at(record, at.inputs)),
				      word_at(record, at.inputs + 8)};

	if (values.first == NULL)
		values.count = 0;
	return values;
}

static struct torch_values vector_at(const void *object, uint32_t bytes)
{
	uint64_t begin = word_at(object, bytes), end = word_at(object, bytes + 8);

	return (struct torch_values){pointer(begin), (end - begin) / sizeof(struct torch_value)};
}

struct torch_values torch_record_outputs(const void *record)
{
	return vector_at(record, at.outputs);
}

struct torch_values torch_value_list(const struct torch_value *value)
{
	struct torch_values none = {NULL, 0};

	if ((value->tag != search.list_tag && value->tag != search.optional_tag) ||
	    value->payload == 0)
		return none;
	return vector_at(pointer(value->payload), at.list);
}

bool torch_value_device(const struct torch_value *value, int *out_type, int *out_index)
{
	if (value->tag != search.device_tag)
		return false;
	*out_type = (int8_t)(value->payload & 0xff);
	*out_index = (int8_t)(value->payload >> 8 & 0xff);
	return true;
}

void torch_tensor_device(const struct torch_value *value, int *out_type, int *out_index)
{
	const int8_t *device = (const int8_t *)pointer(value->payload) + at.device;

	/* A tensor that is undefined has none: the byte behind says so. */
	*out_type = device[2] ? device[0] : -1;
	*out_index = device[1];
}

uint64_t torch_tensor_keys(const struct torch_value *value)
{
	return word_at(pointer(value->payload), at.keys);
}

bool torch_tensor_read(const struct torch_value *value, struct torch_tensor *out)
{
	const void *tensor = pointer(value->payload);
	uint64_t storage = word_at(tensor, at.storage), data, last = 0, i;
	const int64_t *room = pointer((uint64_t)(uintptr_t)tensor + at.sizes + 8), *strides;
	const struct dtype *dtype;
	uint16_t number = half_at(tensor, at.dtype);

	if ((((const uint8_t *)tensor)[at.dtype + 5] & TORCH_NUMBER) != 0)
		return false;
	if (storage == 0 || number >= TORCH_DTYPES || dtypes[number].name[0] == '\0')
		return false;
	data = word_at(pointer(storage), at.data);
	out->dims = word_at(tensor, at.sizes);
	if (data == 0 || out->dims > TORCH_DIMS_MAX)
		return false;
	if (out->dims <= INLINE_DIMS) {
		out->sizes = room;
		strides = room + INLINE_DIMS;
	} else {
		out->sizes = pointer(word_at(room, 0));
		strides = out->sizes + out->dims;
	}
	dtype = &dtypes[number];
	out->dtype = dtype->name;
	out->address = data + word_at(tensor, at.offset) * dtype->item_bytes;
	out->size_bytes = 0;
	if (word_at(tensor, at.numel) == 0)
		return true;
	for (i = 0; i < out->dims; i++)
		last += (uint64_t)(out->sizes[i] - 1) * (uint64_t)strides[i];
	out->size_bytes = (last + 1) * dtype->item_bytes;
	return true;
}
