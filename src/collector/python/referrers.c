/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who refers to an object of the interpreter: what the package (_keeper.py) needs of C to follow references backwards.
 *
 *     mscope_instances()    the objects of a type and of its subtypes, among all that the garbage collector knows
 *     mscope_referrers()    the objects that refer to one of some others: one walk over all objects, whatever the number of others
 *     mscope_saved()        which memory the node of an autograd graph has saved; PyTorch itself would unpack it, which runs hooks of
 *                           the program (checkpointing computes a whole forward again)
 *     mscope_containers()   the lists, dicts, sets and deques that have many items, by identity and length
 *     mscope_frame_slots()  the variables of a frame that are one of some objects; the interpreter itself would copy all of
 *                           them into a dictionary, which keeps them alive
 *
 * The interpreter's lock is held from the beginning to the end of each. References are asked for as the garbage collector asks for
 * them (tp_traverse), so that no code of the program runs: no comparison, no attribute, no method. The objects come from
 * PyUnstable_GC_VisitObjects(); before 3.12 from a list that the caller has from gc.get_objects().
 */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "collector/api.h"
#include "collector/interp/interpreter.h"
#include "collector/loader/lookup.h"
#include "collector/memory.h"
#include "collector/python/boot.h"

/* PyTypeObject, in objects whose head has 16 bytes; it has been the same since 3.8. */
#define TYPE_FLAGS    168u
#define TYPE_TRAVERSE 184u
#define FLAG_GC	      (UINT64_C(1) << 14) /* Py_TPFLAGS_HAVE_GC */

/* PyFrameObject: before 3.11 the variables lie in it, since then in what it points to. */
#define FRAME_LOCALS_3_9  360u
#define FRAME_LOCALS_3_10 352u
#define FRAME_INNER	  24u

#define FRAME_SLOTS_MAX 4096u
#define IDS_MAX		4096u
#define TABLE_SLOTS	(4u * IDS_MAX)
#define TYPE_SLOTS	1024u

typedef int visit_function(struct py_object *object, void *arg);
typedef int traverse_function(struct py_object *self, visit_function *visit, void *arg);

#define FUNCTIONS(X)                                                                               \
	X(PyList_Append, int, (struct py_object *, struct py_object *))                            \
	X(PyList_Size, intptr_t, (struct py_object *))                                             \
	X(PyList_GetItem, struct py_object *, (struct py_object *, intptr_t))                      \
	X(PyType_IsSubtype, int, (struct py_object *, struct py_object *))                         \
	X(PyErr_Clear, void, (void))

static struct {
	bool tried, usable;
	uint32_t shift; /* what the head of an object has more than 16 bytes */
#define X(name, return_type, parameters) return_type(*name) parameters;
	FUNCTIONS(X)
#undef X
	/* NULL before 3.12. */
	void (*visit_objects)(visit_function *callback, void *arg);
} python;

/* What a walk looks for. One walk at a time: the interpreter's lock is held. */
static struct {
	uint64_t keys[TABLE_SLOTS];
	uint16_t index[TABLE_SLOTS]; /* of the id, or SKIPPED */
	uint64_t bits[1024];	     /* which addresses it may be, to leave most visits at once */
} table;

#define SKIPPED UINT16_MAX

static uint64_t hash_of(uint64_t id)
{
	return (id >> 4) * UINT64_C(0x9e3779b97f4a7c15);
}

static void table_put(uint64_t id, uint16_t index)
{
	uint64_t hash = hash_of(id);
	uint32_t slot = (uint32_t)(hash >> 40) & (TABLE_SLOTS - 1);

	while (table.keys[slot] != 0 && table.keys[slot] != id)
		slot = (slot + 1) & (TABLE_SLOTS - 1);
	table.keys[slot] = id;
	table.index[slot] = index;
	table.bits[hash >> 54] |= UINT64_C(1) << (hash >> 48 & 63);
}

MSCOPE_INLINE const uint16_t *table_get(uint64_t id)
{
	uint64_t hash = hash_of(id);
	uint32_t slot = (uint32_t)(hash >> 40) & (TABLE_SLOTS - 1);

	if (MSCOPE_LIKELY((table.bits[hash >> 54] >> (hash >> 48 & 63) & 1) == 0))
		return NULL;
	while (table.keys[slot] != 0 && table.keys[slot] != id)
		slot = (slot + 1) & (TABLE_SLOTS - 1);
	return table.keys[slot] == id ? &table.index[slot] : NULL;
}

static int table_fill(const uint64_t *ids, uint32_t count, const uint64_t *skipped,
		      uint32_t skipped_count)
{
	uint32_t i;

	if (count > IDS_MAX || skipped_count > IDS_MAX)
		return -E2BIG;
	memset(&table, 0, sizeof(table));
	for (i = 0; i < count; i++)
		table_put(ids[i], (uint16_t)i);
	for (i = 0; i < skipped_count; i++)
		table_put(skipped[i], SKIPPED);
	return 0;
}

/* ---- the interpreter ---- */

static uint64_t type_word(const void *type, uint32_t offset)
{
	return interp_u64(type, offset + python.shift);
}

/* Whether types are laid out as they should be, by three that are known. */
static bool types_hold(void)
{
	const void *list = lookup_symbol("PyList_Type"), *dict = lookup_symbol("PyDict_Type");
	const void *number = lookup_symbol("PyLong_Type");
	const void *(*slot)(const void *, int) =
		(const void *(*)(const void *, int))lookup_symbol("PyType_GetSlot");

	if (list == NULL || dict == NULL || number == NULL)
		return false;
	/* Py_tp_traverse; before 3.10 static types are not told. */
	if (interp.at.minor >= 10 && slot != NULL &&
	    (uint64_t)(uintptr_t)slot(dict, 71) != type_word(dict, TYPE_TRAVERSE))
		return false;
	return (type_word(list, TYPE_FLAGS) & FLAG_GC) && (type_word(dict, TYPE_FLAGS) & FLAG_GC) &&
	       !(type_word(number, TYPE_FLAGS) & FLAG_GC) && type_word(list, TYPE_TRAVERSE) != 0 &&
	       type_word(number, TYPE_TRAVERSE) == 0;
}

static MSCOPE_COLD bool python_find(void)
{
	void *function;

	if (python.tried)
		return python.usable;
	python.tried = true;
	if (!interp_verify_slow(NULL))
		return false;
	python.shift = interp.at.object_type - 8u;
#define X(name, return_type, parameters)                                                           \
	python.name = (return_type(*) parameters)lookup_symbol(#name);                             \
	if (python.name == NULL)                                                                   \
		return false;
	FUNCTIONS(X)
#undef X
	function = lookup_symbol("PyUnstable_GC_VisitObjects");
	memcpy(&python.visit_objects, &function, sizeof(function));
	python.usable = types_hold();
	return python.usable;
}

/* Calls `visit` for each object: of the list, or of the garbage collector where the list is none. */
static int each_object(struct py_object *objects, visit_function *visit, void *arg)
{
	intptr_t count = python.PyList_Size(objects), i;

	if (count < 0) {
		python.PyErr_Clear();
		if (python.visit_objects == NULL)
			return -ENOSYS;
		python.visit_objects(visit, arg);
		return 0;
	}
	for (i = 0; i < count; i++) {
		if (visit(python.PyList_GetItem(objects, i), arg) == 0)
			break;
	}
	return 0;
}

MSCOPE_INLINE const void *type_of(const void *object)
{
	return interp_pointer(object, interp.at.object_type);
}

/* ---- objects of a type ---- */

struct instances {
	struct py_object *base, *out;
	uint32_t left;
	int error;
	/* Types that were asked about; the lowest bit: it is one. */
	uintptr_t known[TYPE_SLOTS];
};

static int take_instance(struct py_object *object, void *arg)
{
	struct instances *all = arg;
	uintptr_t type = (uintptr_t)type_of(object);
	uintptr_t *known = &all->known[(type >> 5) * UINT64_C(0x9e3779b97f4a7c15) >> 54];

	if (MSCOPE_UNLIKELY((*known & ~(uintptr_t)1) != type))
		*known = type | (uintptr_t)(python.PyType_IsSubtype((struct py_object *)type,
								    all->base) != 0);
	if (MSCOPE_LIKELY((*known & 1) == 0))
		return 1;
	if (all->left == 0 || python.PyList_Append(all->out, object) < 0) {
		all->error = all->left == 0 ? -E2BIG : -ENOMEM;
		return 0;
	}
	all->left--;
	return 1;
}

MSCOPE_EXPORT int32_t mscope_instances(void *objects, void *base, void *out, uint32_t most)
{
	static struct instances all;
	int r;

	if (!python_find())
		return -ENOSYS;
	all = (struct instances){.base = base, .out = out, .left = most};
	r = each_object(objects, take_instance, &all);
	if (all.error == -ENOMEM)
		python.PyErr_Clear();
	return r < 0 ? r : all.error;
}

/* ---- referrers ---- */

struct referrers {
	struct py_object *object; /* whose references are visited */
	struct py_object *out;
	uint32_t *edges; /* pairs: ordinal in `out`, index of the id */
	uint32_t room, count;
	uint32_t objects; /* in `out` */
	bool added;
	int error;
};

/* Not 0 ends the visits of this object. */
static int take_reference(struct py_object *referred, void *arg)
{
	struct referrers *all = arg;
	const uint16_t *index = table_get((uint64_t)(uintptr_t)referred);

	if (MSCOPE_LIKELY(index == NULL) || *index == SKIPPED)
		return 0;
	if (all->count == all->room) {
		all->error = -E2BIG;
		return 1;
	}
	if (!all->added) {
		if (python.PyList_Append(all->out, all->object) < 0) {
			all->error = -ENOMEM;
			return 1;
		}
		all->added = true;
		all->objects++;
	}
	all->edges[2 * all->count] = all->objects - 1;
	all->edges[2 * all->count + 1] = *index;
	all->count++;
	return 0;
}

static int take_referrer(struct py_object *object, void *arg)
{
	struct referrers *all = arg;
	uint64_t function = type_word(type_of(object), TYPE_TRAVERSE);
	traverse_function *traverse;
	const uint16_t *own;

	if (function == 0)
		return 1;
	own = table_get((uint64_t)(uintptr_t)object);
	if (own != NULL && *own == SKIPPED)
		return 1;
	memcpy(&traverse, &function, sizeof(traverse));
	all->object = object;
	all->added = false;
	(void)traverse(object, take_reference, all);
	return all->error == 0;
}

MSCOPE_EXPORT int32_t mscope_referrers(void *objects, const uint64_t *ids, uint32_t count,
				       const uint64_t *skipped, uint32_t skipped_count, void *out,
				       uint32_t *edges, uint32_t room)
{
	struct referrers all = {.out = out, .edges = edges, .room = room};
	int r;

	if (!python_find())
		return -ENOSYS;
	r = table_fill(ids, count, skipped, skipped_count);
	if (r == 0)
		r = each_object(objects, take_referrer, &all);
	if (all.error == -ENOMEM) {
		python.PyErr_Clear();
		return -ENOMEM;
	}
	return r < 0 ? r : (int32_t)all.count;
}

/* ---- containers ---- */

#define FLAG_LIST (UINT64_C(1) << 25) /* Py_TPFLAGS_LIST_SUBCLASS */
#define FLAG_DICT (UINT64_C(1) << 29) /* Py_TPFLAGS_DICT_SUBCLASS */

/* Objects between two readings of the clock. */
#define CLOCK_OBJECTS 16384u

#define SIZES(X)                                                                                   \
	X(PyObject_Size, intptr_t, (struct py_object *))                                           \
	X(PyDict_Size, intptr_t, (struct py_object *))                                             \
	X(PySet_Size, intptr_t, (struct py_object *))                                              \
	X(PyObject_GC_IsTracked, int, (struct py_object *))

static struct {
	bool tried, usable;
	const void *dict_type, *set_type;
#define X(name, return_type, parameters) return_type(*name) parameters;
	SIZES(X)
#undef X
} sizes;

static MSCOPE_COLD bool sizes_find(void)
{
	if (sizes.tried)
		return sizes.usable;
	sizes.tried = true;
	sizes.dict_type = lookup_symbol("PyDict_Type");
	sizes.set_type = lookup_symbol("PySet_Type");
#define X(name, return_type, parameters)                                                           \
	sizes.name = (return_type(*) parameters)lookup_symbol(#name);                              \
	if (sizes.name == NULL)                                                                    \
		return false;
	SIZES(X)
#undef X
	sizes.usable = sizes.dict_type != NULL && sizes.set_type != NULL;
	return sizes.usable;
}

struct containers {
	const void *deque_type;
	struct py_object *out; /* not NULL: objects that the table has are put there */
	uint64_t *pairs;
	uint32_t least, room, count;
	uint32_t passed; /* objects since the clock was read */
	uint64_t ends_ns;
	int error;
};

static uint64_t thread_ns(void)
{
	struct timespec time;

	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* Items, without code of the program; negative: it is not a container. Of deques only those whose type is exactly that. */
static intptr_t items_of(const struct containers *all, struct py_object *object)
{
	const void *type = type_of(object);
	uint64_t flags = type_word(type, TYPE_FLAGS);

	if (flags & FLAG_LIST)
		return python.PyList_Size(object);
	if (flags & FLAG_DICT)
		return sizes.PyDict_Size(object);
	if (type == sizes.set_type)
		return sizes.PySet_Size(object);
	return type == all->deque_type ? sizes.PyObject_Size(object) : -1;
}

static void take_container(struct containers *all, struct py_object *object)
{
	intptr_t items = items_of(all, object);
	const uint16_t *index;

	if (items < (intptr_t)all->least || all->error != 0)
		return;
	if (all->out != NULL) {
		index = table_get((uint64_t)(uintptr_t)object);
		if (index != NULL && python.PyList_Append(all->out, object) < 0)
			all->error = -ENOMEM;
		return;
	}
	if (all->count == all->room) {
		all->error = -E2BIG;
		return;
	}
	all->pairs[2 * all->count] = (uint64_t)(uintptr_t)object;
	all->pairs[2 * all->count++ + 1] = (uint64_t)items;
}

/* The garbage collector does not know dicts that have nothing but texts, numbers and arrays: they are met where they are referred to. */
static int take_untracked(struct py_object *referred, void *arg)
{
	struct containers *all = arg;

	if (referred != NULL && type_of(referred) == sizes.dict_type &&
	    !sizes.PyObject_GC_IsTracked(referred))
		take_container(all, referred);
	return 0;
}

static int visit_containers(struct py_object *object, void *arg)
{
	struct containers *all = arg;
	uint64_t function = type_word(type_of(object), TYPE_TRAVERSE);
	traverse_function *traverse;

	take_container(all, object);
	if (function != 0) {
		memcpy(&traverse, &function, sizeof(traverse));
		(void)traverse(object, take_untracked, all);
	}
	if (++all->passed >= CLOCK_OBJECTS) {
		all->passed = 0;
		if (thread_ns() >= all->ends_ns)
			all->error = all->error == 0 ? -ETIME : all->error;
	}
	return all->error == 0;
}

/* ---- frames ---- */

/* Where the variables of a frame lie; NULL: not known. */
static const char *locals_of(const void *frame)
{
	const char *inner;

	switch (interp.at.minor) {
	case 9:
		return (const char *)frame + FRAME_LOCALS_3_9;
	case 10:
		return (const char *)frame + FRAME_LOCALS_3_10;
	default:
		inner = interp_pointer(frame, FRAME_INNER + python.shift);
		/* Behind the byte that says who owns it. */
		return inner == NULL ? NULL
				     : inner + (((uint32_t)interp.at.frame_owner + 8u) & ~7u);
	}
}

MSCOPE_EXPORT int32_t mscope_frame_slots(void *frame, uint32_t slots, const uint64_t *ids,
					 uint32_t count, uint32_t *out, uint32_t room)
{
	uintptr_t tag = interp.at.minor > 13 ? 3 : 0;
	const char *locals;
	uint32_t i, found = 0;
	int r;

	if (!python_find())
		return -ENOSYS;
	locals = locals_of(frame);
	if (locals == NULL || !memory_readable(locals, (size_t)slots * 8 + 8))
		return -ENOSYS;
	r = table_fill(ids, count, NULL, 0);
	for (i = 0; i < slots && r == 0 && found < room; i++) {
		uint64_t value = interp_u64(locals, i * 8) & ~(uint64_t)tag;
		const uint16_t *index = value == 0 ? NULL : table_get(value);

		if (index != NULL) {
			out[2 * found] = i;
			out[2 * found++ + 1] = *index;
		}
	}
	return r < 0 ? r : (int32_t)found;
}

/* By identity, in place: nothing of the program's memory is taken. */
static void sort_pairs(uint64_t (*pairs)[2], uint32_t count)
{
	uint32_t start = count / 2, end = count;

	while (end > 1) {
		uint32_t at, child;
		uint64_t moved[2];

		if (start > 0) {
			memcpy(moved, pairs[--start], sizeof(moved));
		} else {
			memcpy(moved, pairs[--end], sizeof(moved));
			memcpy(pairs[end], pairs[0], sizeof(moved));
		}
		for (at = start; (child = 2 * at + 1) < end; at = child) {
			child += child + 1 < end && pairs[child + 1][0] > pairs[child][0];
			if (pairs[child][0] <= moved[0])
				break;
			memcpy(pairs[at], pairs[child], sizeof(moved));
		}
		memcpy(pairs[at], moved, sizeof(moved));
	}
}

MSCOPE_EXPORT int32_t mscope_gains(const uint64_t *before, uint32_t before_count,
				   const uint64_t *now, uint32_t now_count, uint64_t out,
				   uint32_t room)
{
	uint64_t(*gains)[3] = (uint64_t(*)[3])(uintptr_t)out;
	uint32_t i, k = 0, found = 0;

	for (i = 0; i < now_count; i++) {
		const uint64_t *one = now + 2 * (size_t)i;
		uint64_t known;
		uint32_t at;

		while (k < before_count && before[2 * (size_t)k] < one[0])
			k++;
		known = k < before_count && before[2 * (size_t)k] == one[0]
				? before[2 * (size_t)k + 1]
				: UINT64_MAX;
		/* A dict that several objects refer to was met several times. */
		if (one[1] <= known || known == UINT64_MAX || (i > 0 && one[0] == one[-2]))
			continue;
		/* By what it gained, the most first; the least of too many is left out. */
		if (found == room && gains[room - 1][2] >= one[1] - known)
			continue;
		at = found < room ? found++ : room - 1;
		for (; at > 0 && gains[at - 1][2] < one[1] - known; at--)
			memcpy(gains[at], gains[at - 1], sizeof(gains[at]));
		gains[at][0] = one[0];
		gains[at][1] = one[1];
		gains[at][2] = one[1] - known;
	}
	return (int32_t)found;
}

static void visit_frame(struct containers *all, void *frame, uint64_t slots)
{
	uintptr_t tag = interp.at.minor > 13 ? 3 : 0;
	const char *locals = locals_of(frame);
	uint64_t i;

	if (locals == NULL || slots > FRAME_SLOTS_MAX ||
	    !memory_readable(locals, (size_t)slots * 8 + 8))
		return;
	for (i = 0; i < slots; i++) {
		uint64_t value = interp_u64(locals, (uint32_t)i * 8);

		/* Numbers may stand in the slot itself. */
		if (value != 0 && (value & tag) != tag)
			(void)take_untracked(
				(struct py_object *)(uintptr_t)(value & ~(uint64_t)tag), all);
	}
}

MSCOPE_EXPORT int32_t mscope_containers(void *objects, void *frames, const uint64_t *slots,
					void *deque, uint32_t least, uint32_t most_ms,
					uint64_t pairs, uint32_t room, void *out)
{
	struct containers all = {.deque_type = deque,
				 .pairs = (uint64_t *)(uintptr_t)pairs,
				 .least = least,
				 .room = room,
				 .ends_ns = thread_ns() + (uint64_t)most_ms * 1000000};
	intptr_t count, i;
	int r = 0;

	if (!python_find() || !sizes_find())
		return -ENOSYS;
	if (python.PyList_Size(out) >= 0) {
		all.out = out;
		r = table_fill(all.pairs, room, NULL, 0);
	}
	python.PyErr_Clear();
	count = python.PyList_Size(frames);
	for (i = 0; i < count && r == 0; i++)
		visit_frame(&all, python.PyList_GetItem(frames, i), slots[i]);
	if (r == 0)
		r = each_object(objects, visit_containers, &all);
	if (all.error == -ENOMEM)
		python.PyErr_Clear();
	if (r == 0)
		r = all.error;
	if (all.out == NULL)
		sort_pairs((uint64_t(*)[2])(uintptr_t)pairs, all.count);
	return r < 0 && (r != -ETIME || all.out != NULL) ? r : (int32_t)all.count;
}

/* ---- nodes of PyTorch's graph ---- */

#define NODE_BYTES_MAX	 4096u
#define VECTOR_BYTES_MAX 8192u
#define VECTORS_MAX	 4u

/* Of a node whose size is not known: all that is common to nodes, and what small ones save. */
#define NODE_BYTES 512u

/* Where a tensor has its storage, and a storage its memory. */
struct saved_layout {
	uint32_t tensor_storage, storage_data;
};

/* The word of `object` that is `value`; 0: there is none, for the first word is a table of functions. */
static uint32_t word_of(uint64_t object, uint64_t value)
{
	uint64_t words[32];
	size_t count = memory_read(words, object, sizeof(words)) / 8, i;

	for (i = 1; i < count; i++) {
		if (words[i] == value)
			return (uint32_t)i * 8;
	}
	return 0;
}

static bool may_be_pointer(uint64_t word)
{
	return word % 8 == 0 && word >= 65536 && word < UINT64_C(1) << 56;
}

/* The memory of what may be a tensor; 0: it is none. */
static uint64_t memory_of(const struct saved_layout *at, uint64_t tensor)
{
	uint64_t storage = 0, address = 0;

	if (!may_be_pointer(tensor) || memory_read(&storage, tensor + at->tensor_storage, 8) != 8 ||
	    !may_be_pointer(storage) || memory_read(&address, storage + at->storage_data, 8) != 8)
		return 0;
	return address;
}

/*
 * How much of a node is read. The word before it is the size of its chunk where glibc has made one for it alone. Some nodes share theirs
 * with their reference counts, which are that word then (AccumulateGrad before 2.13), and other allocators have anything there: so
 * malloc_usable_size() must not be asked, it believes that word.
 */
static size_t node_bytes(uint64_t at)
{
	uint64_t chunk = 0;

	if (memory_read(&chunk, at - 8, 8) != 8)
		return NODE_BYTES;
	chunk &= ~(uint64_t)7;
	return chunk % 16 == 0 && chunk >= 64 && chunk <= NODE_BYTES_MAX ? chunk - 8 : NODE_BYTES;
}

struct saved {
	struct saved_layout at;
	uint32_t *out;
	uint32_t room, found;
	uint32_t vectors; /* that were followed */
};

static void scan_words(struct saved *saved, const uint64_t *words, size_t count, bool follow)
{
	static uint64_t inner[VECTOR_BYTES_MAX / 8];
	size_t i;

	for (i = 0; i < count && saved->found < saved->room; i++) {
		uint64_t address = memory_of(&saved->at, words[i]);
		const uint16_t *index = address == 0 ? NULL : table_get(address);

		if (index != NULL)
			saved->out[saved->found++] = *index;
		/* A vector of saved tensors: its beginning and its end. */
		if (follow && index == NULL && i + 1 < count && may_be_pointer(words[i]) &&
		    words[i + 1] > words[i] && words[i + 1] - words[i] <= VECTOR_BYTES_MAX &&
		    words[i + 1] % 8 == 0 && saved->vectors < VECTORS_MAX) {
			size_t bytes = memory_read(inner, words[i], words[i + 1] - words[i]);

			saved->vectors++;
			scan_words(saved, inner, bytes / 8, false);
		}
	}
}

MSCOPE_EXPORT int32_t mscope_saved(void *node, uint32_t in_object, uint64_t tensor,
				   uint64_t storage, uint64_t memory, const uint64_t *addresses,
				   uint32_t count, uint32_t *out, uint32_t room)
{
	static uint64_t words[NODE_BYTES_MAX / 8];
	struct saved saved = {.out = out, .room = room};
	uint64_t at;
	size_t bytes;
	int r;

	if (!python_find())
		return -ENOSYS;
	saved.at.tensor_storage = word_of(tensor, storage);
	saved.at.storage_data = word_of(storage, memory);
	if (saved.at.tensor_storage == 0 || saved.at.storage_data == 0)
		return -ENOSYS;
	r = table_fill(addresses, count, NULL, 0);
	if (r < 0)
		return r;
	/* An object of the interpreter starts with its count and type; the C++ object follows. */
	at = in_object ? (uint64_t)(uintptr_t)node : interp_u64(node, 16 + python.shift);
	if (!may_be_pointer(at))
		return -ENOSYS;
	bytes = memory_read(words, at, in_object ? NODE_BYTES : node_bytes(at));
	scan_words(&saved, words, bytes / 8, true);
	return (int32_t)saved.found;
}
