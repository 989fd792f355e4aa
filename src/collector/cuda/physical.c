/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Physical memory: cuMemCreate() makes it, and it lives until the program has released all handles and unmapped all addresses of it,
 * in any order. PyTorch's expandable segments unmap first, other programs release a handle once it is mapped. So both are counted
 * here, and the free of the block is recorded before the call that takes the last of them.
 *
 *     handles    handle  -> handles and mappings of it that are left
 *     mappings   address -> bytes and handle
 *     others     address -> what it is, though it is freed as device memory: of nodes of graphs, of pools of host memory, imported
 *
 * Handles that are not known (older than we are, or of another process) are left alone. These calls take the driver tens of
 * microseconds, so one lock guards the tables.
 */
#include "collector/cuda/cuda.h"

#include <string.h>
#include <sys/mman.h>

#include "collector/lock.h"

#define FIRST_SLOTS 1024u

struct entry {
	uint64_t key; /* 0: free */
	/* Of a handle: how many are left. Of a mapping: its bytes, and the handle. Of others: enum cuda_memory. */
	uint64_t count;
	uint64_t mappings;
	bool ending; /* a mapping whose cuMemUnmap() has not come back */
};

struct table {
	struct entry *entries;
	uint32_t slots; /* a power of two, 0: none */
	uint32_t used;
};

static struct lock lock; /* guards all three */
static struct table handles, mappings, others;
static _Atomic uint32_t any_other;

static uint32_t home_of(const struct table *table, uint64_t key)
{
	return (uint32_t)((key >> 9 ^ key) * UINT64_C(0x9e3779b97f4a7c15) >> 32) &
	       (table->slots - 1);
}

static struct entry *find(const struct table *table, uint64_t key)
{
	uint32_t at;

	if (table->slots == 0 || key == 0)
		return NULL;
	for (at = home_of(table, key); table->entries[at].key != 0;
	     at = (at + 1) & (table->slots - 1)) {
		if (table->entries[at].key == key)
			return &table->entries[at];
	}
	return NULL;
}

static bool grow(struct table *table)
{
	struct table larger = {.slots = table->slots == 0 ? FIRST_SLOTS : table->slots * 2};
	size_t bytes = (size_t)larger.slots * sizeof(struct entry);
	void *room = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint32_t i, at;

	if (room == MAP_FAILED)
		return false;
	larger.entries = room;
	for (i = 0; i < table->slots; i++) {
		if (table->entries[i].key == 0)
			continue;
		at = home_of(&larger, table->entries[i].key);
		while (larger.entries[at].key != 0)
			at = (at + 1) & (larger.slots - 1);
		larger.entries[at] = table->entries[i];
		larger.used++;
	}
	if (table->slots != 0)
		(void)munmap(table->entries, (size_t)table->slots * sizeof(struct entry));
	*table = larger;
	return true;
}

/* A known key gets its entry again, empty. NULL: no memory. */
static struct entry *put(struct table *table, uint64_t key)
{
	struct entry *entry = find(table, key);
	uint32_t at;

	if (entry == NULL) {
		if (table->used * 2 >= table->slots && !grow(table))
			return NULL;
		at = home_of(table, key);
		while (table->entries[at].key != 0)
			at = (at + 1) & (table->slots - 1);
		entry = &table->entries[at];
		table->used++;
	}
	*entry = (struct entry){.key = key};
	return entry;
}

/* Entries behind the free one move up, so that they are still found. */
static void drop(struct table *table, struct entry *entry)
{
	uint32_t hole = (uint32_t)(entry - table->entries), at = hole;

	for (;;) {
		at = (at + 1) & (table->slots - 1);
		if (table->entries[at].key == 0)
			break;
		/* It stays if its home lies behind the hole. */
		if (((at - home_of(table, table->entries[at].key)) & (table->slots - 1)) >=
		    ((at - hole) & (table->slots - 1))) {
			table->entries[hole] = table->entries[at];
			hole = at;
		}
	}
	table->entries[hole] = (struct entry){0};
	table->used--;
}

static uint64_t free_key(void)
{
	return cuda_key(CUDA_MEMORY_PHYSICAL, DEVICE_UNKNOWN, 0);
}

static bool is_last(const struct entry *handle)
{
	return handle->count == 0 && handle->mappings == 0;
}

void physical_created(uint64_t handle, uint64_t bytes, uint64_t key)
{
	struct entry *entry;

	event_alloc_traced_slow(SOURCE_CUDA_BLOCK, key, cuda_decode, handle, bytes,
				STACK_PAST_DRIVER);
	if (handle == 0 || !lock_take(&lock))
		return;
	entry = put(&handles, handle);
	if (entry != NULL)
		entry->count = 1;
	lock_release(&lock);
}

void physical_retained(uint64_t handle)
{
	struct entry *entry;

	if (!lock_take(&lock))
		return;
	entry = find(&handles, handle);
	if (entry != NULL)
		entry->count++;
	lock_release(&lock);
}

void physical_mapped(uint64_t address, uint64_t bytes, uint64_t handle)
{
	struct entry *entry, *mapping;

	if (address == 0 || !lock_take(&lock))
		return;
	entry = find(&handles, handle);
	mapping = entry == NULL ? NULL : put(&mappings, address);
	if (mapping != NULL) {
		mapping->count = bytes;
		mapping->mappings = handle;
		entry->mappings++;
	}
	lock_release(&lock);
}

/* Bits of the word that lasts from before a call to behind it. */
#define KEPT_COUNTED 1u
#define KEPT_FREED   2u

void physical_released(const struct driver_call *call, uint64_t handle)
{
	uint64_t *kept = call->data->kept;
	struct entry *entry;
	bool last = false;

	if (!lock_take(&lock))
		return;
	entry = find(&handles, handle);
	if (entry == NULL) {
		/* released behind the last mapping already, or not ours */
	} else if (call->before && entry->count != 0) {
		entry->count--;
		last = is_last(entry);
		*kept = KEPT_COUNTED | (last ? KEPT_FREED : 0);
	} else if (!call->before && (*kept & KEPT_COUNTED) && call->result != 0) {
		entry->count++;
	} else if (!call->before && is_last(entry)) {
		drop(&handles, entry);
	}
	lock_release(&lock);
	if (last)
		event_free(SOURCE_CUDA_BLOCK, free_key(), cuda_decode, handle, STACK_PAST_DRIVER);
	else if (!call->before && call->result != 0 && (*kept & KEPT_FREED))
		event_free_undo_slow(SOURCE_CUDA_BLOCK, free_key(), cuda_decode, handle);
}

/* One mapping, before or behind the call that ends it. */
static void end_mapping(const struct driver_call *call, struct entry *mapping)
{
	uint64_t handle = mapping->mappings;
	struct entry *entry = find(&handles, handle);
	bool failed = call->result != 0;

	if (entry == NULL) {
		if (!call->before)
			drop(&mappings, mapping);
	} else if (call->before) {
		mapping->ending = true;
		entry->mappings--;
		if (is_last(entry))
			event_free(SOURCE_CUDA_BLOCK, free_key(), cuda_decode, handle,
				   STACK_PAST_DRIVER);
	} else if (failed && mapping->ending) {
		if (is_last(entry))
			event_free_undo_slow(SOURCE_CUDA_BLOCK, free_key(), cuda_decode, handle);
		entry->mappings++;
		mapping->ending = false;
	} else if (!failed) {
		drop(&mappings, mapping);
		if (is_last(entry))
			drop(&handles, entry);
	}
}

/* A range is one mapping or several side by side: the driver unmaps whole ones only. */
void physical_unmapped(const struct driver_call *call, uint64_t address, uint64_t bytes)
{
	uint64_t end = address + bytes, at = address;

	if (!lock_take(&lock))
		return;
	while (at < end) {
		struct entry *mapping = find(&mappings, at);

		if (mapping == NULL || mapping->count == 0)
			break;
		at += mapping->count;
		end_mapping(call, mapping);
	}
	lock_release(&lock);
}

void physical_add_other(uint64_t address, enum cuda_memory memory)
{
	struct entry *entry;

	if (address == 0 || !lock_take(&lock))
		return;
	entry = put(&others, address);
	if (entry != NULL)
		entry->count = memory;
	atomic_store(&any_other, others.used);
	lock_release(&lock);
}

enum cuda_memory physical_other(uint64_t address, enum cuda_memory otherwise)
{
	const struct entry *entry;
	enum cuda_memory memory = otherwise;

	if (MSCOPE_LIKELY(atomic_load_explicit(&any_other, memory_order_relaxed) == 0) ||
	    !lock_take(&lock))
		return otherwise;
	entry = find(&others, address);
	if (entry != NULL)
		memory = (enum cuda_memory)entry->count;
	lock_release(&lock);
	return memory;
}

void physical_drop_other(uint64_t address)
{
	struct entry *entry;

	if (MSCOPE_LIKELY(atomic_load_explicit(&any_other, memory_order_relaxed) == 0) ||
	    !lock_take(&lock))
		return;
	entry = find(&others, address);
	if (entry != NULL)
		drop(&others, entry);
	atomic_store(&any_other, others.used);
	lock_release(&lock);
}

void physical_reset(void)
{
	/* In a forked child the parent's tables are left alone. */
	handles = (struct table){0};
	mappings = (struct table){0};
	others = (struct table){0};
	atomic_store(&any_other, 0);
}
