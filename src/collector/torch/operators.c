/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A record has the operator's name, at one place per overload. So the place finds what is known of the operator, and the text is
 * compared as well, because an operator may be removed and its place be used again. An operator that is met first is asked for its
 * overload and for its kernels; the texts that PyTorch makes for it then, once, are not given back.
 */
#include "collector/torch/operators.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "collector/loader/lookup.h"
#include "collector/lock.h"
#include "collector/memory.h"
#include "collector/quiet.h"
#include "collector/torch/filter.h"

#define SLOTS	  8192u /* operators that are known at most, twice; a power of two */
#define ROOM	  (256u * 1024)
#define NAME_MAX_ 200u /* longer names of operators are cut */
#define PREFIX	  "torch._ops."

struct known_schema {
	uint64_t hash; /* of the name with overload; 0: empty */
	struct torch_schema schema;
};

struct known_schemas {
	uint64_t slots; /* a power of two */
	struct known_schema at[];
};

static _Atomic(struct torch_operator *) slots[SLOTS];
static _Atomic(struct known_schemas *) schemas;
static struct lock making;
/* Where operators and their texts lie; under `making`. */
static char *room;
static size_t room_left;
static uint32_t composite_key;

typedef const char *record_name(const void *record);
typedef void *dispatcher_singleton(void);
typedef bool entry_has_kernel(const void *entry, uint16_t key);

static struct {
	record_name *name;
	void *operator_name;
	dispatcher_singleton *dispatcher;
	void *find_schema;
	entry_has_kernel *has_kernel;
} torch;

#if defined(__x86_64__)
void torch_call_into(void *function, void *result, const void *object, const void *argument)
{
	void *(*call)(void *, const void *, const void *) =
		(void *(*)(void *, const void *, const void *))function;

	(void)call(result, object, argument);
}
#else
void torch_call_into(void *function, void *result, const void *object, const void *argument)
{
	register void *x8 __asm__("x8") = result;
	register const void *x0 __asm__("x0") = object;
	register const void *x1 __asm__("x1") = argument;
	register void *x9 __asm__("x9") = function;

	__asm__ volatile("blr x9"
			 : "+r"(x0), "+r"(x1), "+r"(x8), "+r"(x9)
			 :
			 : "x2", "x3", "x4", "x5", "x6", "x7", "x10", "x11", "x12", "x13", "x14",
			   "x15", "x16", "x17", "x30", "v0", "v1", "v2", "v3", "v4", "v5", "v6",
			   "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16", "v17",
			   "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27",
			   "v28", "v29", "v30", "v31", "cc", "memory");
}
#endif

static void *function(const char *name, bool *missing)
{
	void *found = lookup_symbol(name);

	*missing |= found == NULL;
	return found;
}

int torch_operators_open(uint32_t composite)
{
	bool missing = false;

	torch.name = (record_name *)function("_ZNK2at14RecordFunction4nameEv", &missing);
	torch.operator_name = function("_ZNK2at14RecordFunction13operator_nameEv", &missing);
	torch.dispatcher =
		(dispatcher_singleton *)function("_ZN3c1010Dispatcher13realSingletonEv", &missing);
	torch.find_schema =
		function("_ZN3c1010Dispatcher10findSchemaERKNS_12OperatorNameE", &missing);
	torch.has_kernel = (entry_has_kernel *)function(
		"_ZNK3c104impl13OperatorEntry23hasKernelForDispatchKeyENS_11DispatchKeyE",
		&missing);
	composite_key = composite;
	return missing ? -ENOSYS : 0;
}

/* ---- schemas ---- */

int torch_operators_schemas(const char *text)
{
	struct known_schemas *made;
	uint64_t lines = 1, count = 1024, i;
	const char *at;

	for (at = text; (at = strchr(at, '\n')) != NULL; at++)
		lines++;
	while (count < lines * 2)
		count *= 2;
	made = quiet_map(sizeof(*made) + count * sizeof(made->at[0]));
	if (made == NULL)
		return -ENOMEM;
	made->slots = count;
	for (at = text; *at != '\0';) {
		size_t bytes = strcspn(at, "\n"), name;
		bool nothing = *at == '-';
		const char *line = at + nothing;
		struct torch_schema schema;
		uint64_t hash;

		at += bytes + (at[bytes] == '\n');
		name = torch_schema_parse(line, bytes - nothing, &schema);
		if (name == 0)
			continue;
		if (nothing)
			schema.reads = schema.changes = schema.writes = 0;
		hash = hash_add(HASH_BEGIN, line, name) | 1;
		for (i = hash; made->at[i & (count - 1)].hash != 0; i++)
			;
		made->at[i & (count - 1)] = (struct known_schema){hash, schema};
	}
	/* Readers may still have the table before it: it stays. Operators are looked up again. */
	atomic_store(&schemas, made);
	for (i = 0; i < SLOTS; i++)
		atomic_store(&slots[i], NULL);
	torch_filter_forget();
	return 0;
}

static void find_schema_of(const char *name, struct torch_schema *out)
{
	const struct known_schemas *known = atomic_load(&schemas);
	uint64_t hash = hash_text(name) | 1, i;

	for (i = hash; known != NULL && known->at[i & (known->slots - 1)].hash != 0; i++) {
		const struct known_schema *one = &known->at[i & (known->slots - 1)];

		if (one->hash == hash) {
			*out = one->schema;
			return;
		}
	}
	torch_schema_guess(name, out);
}

/* ---- operators ---- */

/*
 * c10::OperatorName, two texts of C++. Either kind has a pointer to its characters first; the newer one has 32 bytes, the older one
 * is the pointer alone.
 */
#define NAME_WORDS 12u

/* Under a filter nothing is asked of the system: by then the layout is known. */
static bool is_readable(const void *at, size_t bytes)
{
	return quiet_is_on() || memory_readable(at, bytes);
}

static const char *overload_of(const uint64_t *words, const char *name)
{
	const char *first = (const char *)(uintptr_t)words[0], *overload;
	size_t length = strlen(name);

	if (first == NULL || !is_readable(first, length + 1) ||
	    memcmp(first, name, length + 1) != 0)
		return NULL;
	overload = (const char *)(uintptr_t)words[words[1] == length ? 4 : 1];
	return is_readable(overload, 1) ? overload : NULL;
}

/* The entry of an operator in the dispatcher's list: two pointers to its neighbours lie before it. */
static const void *entry_of(const uint64_t *operator_name)
{
	uint64_t handle[4] = {0};

	torch_call_into(torch.find_schema, handle, torch.dispatcher(), operator_name);
	return handle[0] != 0 && handle[0] == handle[1] + 16 ? (const void *)(uintptr_t)handle[0]
							     : NULL;
}

static void *take_room(size_t bytes)
{
	void *taken;

	bytes = (bytes + 15) & ~(size_t)15;
	if (room_left < bytes) {
		room = quiet_map(ROOM);
		room_left = room == NULL ? 0 : ROOM;
		if (room == NULL)
			return NULL;
	}
	taken = room;
	room += bytes;
	room_left -= bytes;
	return taken;
}

/* "aten::mul", "Tensor" -> "torch._ops.aten.mul.Tensor"; `whole` becomes "aten::mul.Tensor". */
static void compose(char *full, char *whole, const char *name, const char *overload)
{
	const char *colons = strstr(name, "::");

	memcpy(full, PREFIX, sizeof(PREFIX));
	if (colons != NULL) {
		strncat(full, name, (size_t)(colons - name));
		strcat(full, ".");
		strcat(full, colons + 2);
	} else {
		strcat(full, name);
	}
	strcat(full, ".");
	strcat(full, *overload == '\0' ? "default" : overload);
	strcpy(whole, name);
	if (*overload != '\0') {
		strcat(whole, ".");
		strcat(whole, overload);
	}
}

static struct torch_operator *make(const void *record, const char *name)
{
	/* Two texts of C++, which are not given back. */
	uint64_t words[NAME_WORDS] = {0};
	char whole[2 * NAME_MAX_ + 8], full[2 * NAME_MAX_ + 32];
	struct torch_operator *made;
	const char *overload;
	const void *entry;
	char *texts;

	if (strlen(name) > NAME_MAX_)
		return NULL;
	torch_call_into(torch.operator_name, words, record, NULL);
	overload = overload_of(words, name);
	if (overload == NULL || strlen(overload) > NAME_MAX_)
		return NULL;
	compose(full, whole, name, overload);
	entry = entry_of(words);
	made = entry == NULL ? NULL : take_room(sizeof(*made));
	if (made == NULL)
		return NULL;
	made->full_bytes = (uint32_t)strlen(full);
	texts = take_room(made->full_bytes + 1 + strlen(name) + 1);
	if (texts == NULL)
		return NULL;
	made->full = memcpy(texts, full, made->full_bytes + 1);
	made->name = strcpy(texts + made->full_bytes + 1, name);
	made->key = name;
	made->transparent = strncmp(name, "profiler::", 10) == 0 ||
			    torch.has_kernel(entry, (uint16_t)composite_key);
	find_schema_of(whole, &made->schema);
	return made;
}

/* A record of something else than an operator has a name of its own; it has no overload, and is asked each time. */
static MSCOPE_COLD const struct torch_operator *operator_slow(const void *record, const char *name,
							      uint32_t slot)
{
	struct torch_operator *made;
	uint32_t i;

	if (strstr(name, "::") == NULL || !lock_take(&making))
		return NULL;
	made = make(record, name);
	for (i = 0; made != NULL && i < 64; i++) {
		struct torch_operator *there = atomic_load(&slots[(slot + i) & (SLOTS - 1)]);

		if (there != NULL && there->key != name)
			continue;
		atomic_store(&slots[(slot + i) & (SLOTS - 1)], made);
		break;
	}
	lock_release(&making);
	return made;
}

const struct torch_operator *torch_operator_of(const void *record)
{
	const char *name = torch.name(record);
	uint32_t slot = (uint32_t)((uint64_t)(uintptr_t)name * UINT64_C(0x9e3779b97f4a7c15) >> 40);
	uint32_t i;

	for (i = 0; i < 64; i++) {
		const struct torch_operator *there = atomic_load_explicit(
			&slots[(slot + i) & (SLOTS - 1)], memory_order_acquire);

		if (there == NULL)
			break;
		if (there->key == name) {
			if (strcmp(there->name, name) == 0)
				return there;
			break;
		}
	}
	return operator_slow(record, name, slot);
}
