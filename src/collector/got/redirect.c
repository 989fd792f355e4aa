/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Redirecting calls of a program that was started without us.
 *
 *     rows      what is redirected: all that this library exports but its API, which is what the hooks.def list, and the slots.def
 *     objects   what the loader has loaded and we have looked at; each has a range of
 *     slots     places that hold the address of a row's function, with what was there before
 *
 * A look walks the loader's list, reads the relocations of objects that are new, finds the originals of the functions that they call,
 * and walks once more to change the slots: inside a walk no object can go away. A slot is changed only if it holds the address that
 * our hook passes the call on to, or, not called yet, points into the object's own PLT. So the program calls the same function as
 * before, by way of us. All changes are one compare-and-swap of a word: a thread that calls meanwhile calls one or the other, and both
 * are right. We stay loaded for ever (-z nodelete), for threads that have read a slot before it was given back.
 *
 * Another thread may be in the loader: an object on the list need not be relocated yet, and the loader may write a slot after us, also
 * when it binds a lazy one. A slot with a value that is not expected, and one that has lost ours, is looked at again, at the next look.
 * A page is made writable only when it is read-only and RELRO says that the loader has made it so, for then it is done with the
 * object; and it is made read-only again at once. Whether a page can be written, the kernel tells by an addition of 0 (futex).
 *
 * Slots of functions that give memory back are changed first, and restored last: a free of a block that is not known does no harm, but
 * a block whose free was not seen would live for ever.
 *
 * All is guarded by one lock. Looks happen when the program asks for them (mscope_redirect()), and before its dlopen(), dlsym() and
 * dlvsym() run (stubs.c).
 */
#include "collector/got/redirect.h"

#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#include "collector/api.h"
#include "collector/collector.h"
#include "collector/got/relocations.h"
#include "collector/loader/lookup.h"
#include "collector/loader/walk.h"
#include "collector/process/process.h"
#include "collector/record/hot.h"
#include "collector/sys.h"
#include "collector/torch/torch.h"

#define ROWS_MAX     128u
#define INDEX_SLOTS  512u /* of the index of names, a power of two */
#define OBJECTS_MAX  4096u
#define SLOTS_MAX    32768u
#define LOOKS_MAX    16u /* in vain at one slot */
#define LOOK_WAIT_NS UINT64_C(100000000)

struct row {
	const char *name;
	uintptr_t ours;
	uintptr_t original; /* as of the latest look that needed it; 0: there is none */
	bool needed;	    /* by a slot that is not ours yet */
	bool gives;	    /* it gives memory back */
};

enum slot_state {
	SLOT_THEIRS = 0, /* not ours yet */
	SLOT_OURS = 1,
};

struct slot {
	struct got_place place;
	uintptr_t before;
	uint16_t row;
	uint8_t state;
	uint8_t looks; /* in vain */
};

struct object {
	uintptr_t bias;
	uintptr_t dynamic;
	uint64_t identity;
	uint32_t first; /* of its slots */
	uint32_t count;
	bool seen; /* in this look */
};

static struct lock lock; /* guards what follows */
static struct row rows[ROWS_MAX];
static uint8_t index_of_names[INDEX_SLOTS]; /* row + 1 */
static uint32_t row_count, reporter;	    /* row of the CPU allocator's reporter */
static struct object *objects; /* OBJECTS_MAX of them, NULL: nothing was ever redirected */
static struct slot *slots;     /* SLOTS_MAX of them */
static uint32_t object_count, slot_count;
static uint32_t ours_count,
	refused_count; /* slots that are ours; those that could not be written */
static uintptr_t page_bytes;

static _Atomic bool active;
static _Atomic bool unsettled; /* some slots must be looked at again */
/* The loader's counts of loads and unloads at the latest look. */
static _Atomic uint64_t known_adds, known_subs;

/* ---- rows ---- */

static uint32_t hash_name(const char *name)
{
	uint32_t hash = 5381;

	for (; *name != '\0'; name++)
		hash = hash * 33 + (uint8_t)*name;
	return hash;
}

/* By the words that drivers and frameworks have for it. */
static bool gives_back(const char *name)
{
	static const char *const words[] = {"Free", "Release", "Delete", "Unregister"};
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(words); i++) {
		if (strstr(name, words[i]) != NULL)
			return true;
	}
	return false;
}

static void row_add(const char *name, void *ours, size_t bytes, void *arg)
{
	uint32_t at = hash_name(name);

	(void)bytes;
	(void)arg;
	if (row_count == ROWS_MAX || strncmp(name, "mscope_", 7) == 0)
		return;
	while (index_of_names[at % INDEX_SLOTS] != 0)
		at++;
	rows[row_count] =
		(struct row){.name = name, .ours = (uintptr_t)ours, .gives = gives_back(name)};
	index_of_names[at % INDEX_SLOTS] = (uint8_t)++row_count;
}

static uint32_t row_find(const char *name, void *arg)
{
	uint32_t at = hash_name(name), row;

	(void)arg;
	for (; (row = index_of_names[at % INDEX_SLOTS]) != 0; at++) {
		if (strcmp(rows[row - 1].name, name) == 0)
			return row - 1;
	}
	return GOT_NO_ROW;
}

static void rows_make(void)
{
#define SLOT(library, name, return_type, parameters) row_add(#name, (void *)slot_##name, 0, NULL);
#include "collector/got/slots.def"
	reporter = row_count;
#include "collector/torch/slots.def"
#undef SLOT
	lookup_own_functions(row_add, NULL);
}

/* ---- objects ---- */

static struct object *object_find(const struct got_object *got)
{
	uint64_t identity = got_identity(got);
	uint32_t i;

	for (i = 0; i < object_count; i++) {
		if (objects[i].bias == got->bias && objects[i].dynamic == got->dynamic &&
		    objects[i].identity == identity)
			return &objects[i];
	}
	return NULL;
}

static void slot_add(const struct got_place *place, uint32_t row, void *arg)
{
	struct object *object = arg;
	uint32_t i;

	for (i = object->first; i < slot_count; i++) {
		if (slots[i].place.slot == place->slot)
			return;
	}
	if (slot_count < SLOTS_MAX)
		slots[slot_count++] = (struct slot){.place = *place, .row = (uint16_t)row};
}

/* Where the allocator's calls of its reporter are seen, what the reporter tells the profiler would be the same once more. */
static void drop_reports(const struct object *object)
{
	static const char *const reports[] = {
#define HOOK(library, name, return_type, parameters) #name,
#include "collector/torch/hooks.def"
#undef HOOK
	};
	bool direct = false;
	uint32_t i, k;

	for (i = object->first; i < slot_count; i++)
		direct = direct || slots[i].row == reporter;
	for (i = object->first; direct && i < slot_count; i++) {
		for (k = 0; k < MSCOPE_COUNT(reports); k++) {
			if (strcmp(rows[slots[i].row].name, reports[k]) == 0) {
				slots[i--] = slots[--slot_count];
				break;
			}
		}
	}
}

struct look {
	uint64_t adds, subs;
};

static int read_counts(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct look *look = arg;

	if (size >= offsetof(struct dl_phdr_info, dlpi_subs) + sizeof(info->dlpi_subs)) {
		look->adds = info->dlpi_adds;
		look->subs = info->dlpi_subs;
	}
	return 1;
}

static bool is_collector(const struct dl_phdr_info *info)
{
	size_t bytes;

	return lookup_in_object(info, "mscope_collector_v1", &bytes) != NULL;
}

/* First walk: finds the slots of objects that are new, and those that have lost our address. */
static int visit_collect(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct got_object got;
	struct object *object;
	uint32_t i;

	(void)read_counts(info, size, arg);
	if (!got_open(info, page_bytes, &got))
		return 0;
	object = object_find(&got);
	if (object == NULL) {
		if (object_count == OBJECTS_MAX || is_collector(info))
			return 0;
		object = &objects[object_count++];
		*object = (struct object){.bias = got.bias,
					  .dynamic = got.dynamic,
					  .identity = got_identity(&got),
					  .first = slot_count};
		got_each(&got, row_find, slot_add, object);
		drop_reports(object);
		object->count = slot_count - object->first;
	}
	object->seen = true;
	for (i = object->first; i < object->first + object->count; i++) {
		struct slot *slot = &slots[i];

		if (slot->state == SLOT_OURS &&
		    atomic_load(slot->place.slot) != rows[slot->row].ours) {
			slot->state = SLOT_THEIRS;
			ours_count--;
		}
		if (slot->state == SLOT_THEIRS && slot->looks < LOOKS_MAX)
			rows[slot->row].needed = true;
	}
	return 0;
}

/* Forgets objects that were unloaded, and moves the slots of the others together. */
static void drop_unloaded(void)
{
	uint32_t kept_objects = 0, kept_slots = 0, i, k;

	for (i = 0; i < object_count; i++) {
		struct object object = objects[i];
		uint32_t first = kept_slots;

		if (!object.seen) {
			for (k = object.first; k < object.first + object.count; k++)
				ours_count -= slots[k].state == SLOT_OURS;
			continue;
		}
		for (k = object.first; k < object.first + object.count; k++)
			slots[kept_slots++] = slots[k];
		object.first = first;
		object.seen = false;
		objects[kept_objects++] = object;
	}
	object_count = kept_objects;
	slot_count = kept_slots;
}

/* ---- slots ---- */

/* Adds 0 to a half of the slot: the kernel answers EFAULT where it cannot be written. */
static bool is_writable(_Atomic uintptr_t *slot)
{
	uint32_t own = 0;

	return syscall(SYS_futex, &own, FUTEX_WAKE_OP | FUTEX_PRIVATE_FLAG, 0, NULL, slot,
		       FUTEX_OP(FUTEX_OP_ADD, 0, FUTEX_OP_CMP_LT, 0)) >= 0;
}

/* Changes the slot if it holds `from`. False: it does not, or cannot be written. */
static bool slot_change(const struct got_object *got, _Atomic uintptr_t *slot, uintptr_t from,
			uintptr_t to)
{
	char *page = (char *)((uintptr_t)slot & ~(page_bytes - 1));
	bool open = is_writable(slot), changed;

	if (!open && (!got_is_relro(got, (uintptr_t)slot) ||
		      mprotect(page, page_bytes, PROT_READ | PROT_WRITE) < 0)) {
		refused_count++;
		return false;
	}
	changed = atomic_compare_exchange_strong(slot, &from, to);
	if (!open)
		(void)mprotect(page, page_bytes, PROT_READ);
	return changed;
}

/* What is known of a loaded object, and where its slots are; NULL: it is new. */
static struct object *object_known(const struct dl_phdr_info *info, struct got_object *out_got)
{
	return got_open(info, page_bytes, out_got) ? object_find(out_got) : NULL;
}

/* Second walk: makes the slots ours that give memory back, or those that do not. */
static int visit_redirect(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct got_object got;
	const bool *gives = arg;
	struct object *object;
	uint32_t i;

	(void)size;
	if ((object = object_known(info, &got)) == NULL)
		return 0;
	for (i = object->first; i < object->first + object->count; i++) {
		struct slot *slot = &slots[i];
		const struct row *row = &rows[slot->row];
		uintptr_t value;

		if (slot->state != SLOT_THEIRS || slot->looks >= LOOKS_MAX || row->gives != *gives)
			continue;
		/* Without an original it may come yet, and a slot that is lazy will find it. */
		if (row->original == 0 || !got_is_data(&got, (uintptr_t)slot->place.slot))
			continue;
		slot->looks++;
		value = atomic_load(slot->place.slot);
		if ((value == row->original || got_is_lazy(&got, &slot->place, value)) &&
		    slot_change(&got, slot->place.slot, value, row->ours)) {
			slot->before = value;
			slot->state = SLOT_OURS;
			/* The loader may be about to bind a slot that was lazy. */
			slot->looks = 0;
			ours_count++;
			atomic_store(&unsettled, atomic_load(&unsettled) || value != row->original);
		} else if (slot->looks < LOOKS_MAX) {
			atomic_store(&unsettled, true);
		}
	}
	return 0;
}

/* Gives back what is ours. */
static int visit_restore(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct got_object got;
	const bool *gives = arg;
	struct object *object;
	uint32_t i;

	(void)size;
	if ((object = object_known(info, &got)) == NULL)
		return 0;
	for (i = object->first; i < object->first + object->count; i++) {
		struct slot *slot = &slots[i];

		if (slot->state == SLOT_OURS && rows[slot->row].gives == *gives &&
		    slot_change(&got, slot->place.slot, rows[slot->row].ours, slot->before)) {
			slot->state = SLOT_THEIRS;
			ours_count--;
		}
	}
	return 0;
}

/* ---- looks ---- */

static bool setup(void)
{
	if (objects != NULL)
		return true;
	page_bytes = (uintptr_t)getauxval(AT_PAGESZ);
	slots = mmap(NULL, SLOTS_MAX * sizeof(*slots), PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if ((void *)slots == MAP_FAILED)
		return false;
	objects = mmap(NULL, OBJECTS_MAX * sizeof(*objects), PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if ((void *)objects == MAP_FAILED) {
		objects = NULL;
		(void)munmap(slots, SLOTS_MAX * sizeof(*slots));
		return false;
	}
	lookup_come_last();
	rows_make();
	return true;
}

/* The caller has the lock. */
static void look(void)
{
	struct look counts = {0};
	uint32_t i;

	for (i = 0; i < row_count; i++)
		rows[i].needed = false;
	atomic_store(&unsettled, false);
	(void)loader_walk(visit_collect, &counts);
	drop_unloaded();
	for (i = 0; i < row_count; i++) {
		if (rows[i].needed)
			rows[i].original = (uintptr_t)lookup_symbol(rows[i].name);
	}
	(void)loader_walk(visit_redirect, &(bool){true});
	(void)loader_walk(visit_redirect, &(bool){false});
	/* What came since the first walk has changed the counts, and is found by the next look. */
	atomic_store(&known_adds, counts.adds);
	atomic_store(&known_subs, counts.subs);
}

MSCOPE_COLD void redirect_more(void)
{
	struct look counts = {0};
	int saved_errno = errno;

	if (!atomic_load(&active) || quiet_is_on())
		return;
	/* Without the gate of loader_walk(): the program is about to take the loader's locks itself. */
	(void)dl_iterate_phdr(read_counts, &counts);
	if ((counts.adds != atomic_load(&known_adds) || counts.subs != atomic_load(&known_subs) ||
	     atomic_load(&unsettled)) &&
	    lock_take_within(&lock, LOOK_WAIT_NS)) {
		if (atomic_load(&active))
			look();
		lock_release(&lock);
	}
	errno = saved_errno;
}

/* Frees of blocks that the trace does not know are to be expected. False: there is no trace. */
static bool tell(uint32_t count)
{
	struct writer *w = writer_enter();

	if (w == NULL)
		return false;
	if (refused_count != 0)
		collector_note(
			"%u calls could not be redirected: their addresses are in read-only memory",
			refused_count);
	writer_put_notes(w);
	WRITER_PUT(w, late_hooks, 0, &(struct event_late_hooks){.slots = count});
	writer_leave(w);
	return true;
}

MSCOPE_EXPORT void mscope_pool_unseen(void)
{
	struct writer *w = writer_enter();

	if (w == NULL)
		return;
	WRITER_PUT(w, pool_source, 0, &(struct event_pool_source){.state = POOL_SOURCE_UNSEEN});
	writer_leave(w);
}

MSCOPE_EXPORT int32_t mscope_redirect(void)
{
	static _Atomic uint32_t told; /* generation of the trace that tells it */
	int saved_errno = errno, r;
	bool first, were_there;

	/* One collector at a time: another copy that was there before us sees the calls already. */
	if (quiet_is_on() || lookup_is_passive_quiet())
		return -EPERM;
	/* Before the first free is seen; and once more with the number, when all calls are redirected. */
	(void)mscope_recording();
	first = collector_generation() != atomic_load(&told) && tell(0);
	if (!lock_take(&lock))
		return -EBUSY;
	were_there = atomic_load(&active);
	if (!setup()) {
		r = -ENOMEM;
	} else {
		look();
		atomic_store(&active, true);
		r = (int)ours_count;
	}
	lock_release(&lock);
	if (first && r >= 0 && tell(were_there ? 0 : (uint32_t)r))
		atomic_store(&told, collector_generation());
	errno = saved_errno;
	return r;
}

MSCOPE_EXPORT int32_t mscope_restore(void)
{
	int saved_errno = errno, r = 0;

	if (!lock_take(&lock))
		return -EBUSY;
	if (objects != NULL) {
		atomic_store(&active, false);
		(void)loader_walk(visit_restore, &(bool){false});
		(void)loader_walk(visit_restore, &(bool){true});
		r = (int)ours_count;
		/* What another tool has put in our place since leads to us by way of that tool; it is left alone. */
		object_count = slot_count = ours_count = refused_count = 0;
	}
	lock_release(&lock);
	errno = saved_errno;
	return r;
}
