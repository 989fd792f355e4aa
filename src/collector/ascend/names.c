/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of kernels. The runtime asks for a number for each name and later reports the kernel by that number. Entries are only
 * added: a reader needs no lock, a writer takes one. The table is mapped with the first name; what is not used takes no memory. When it is full,
 * further kernels share one name, so that their launches have rows all the same.
 */
#include "collector/ascend/ascend.h"

#include <string.h>
#include <sys/mman.h>

#include "collector/lock.h"

#define NAMES	    131072u /* a power of two, twice as many as names */
#define NAMES_BYTES (8u << 20)
#define NAME_MAX_   1024u
#define UNNAMED	    "(one of too many kernels to be named)"

struct name {
	_Atomic uint64_t number; /* 0: free */
	const char *text;
};

static struct name *_Atomic names; /* NULL: there was no name yet, or no memory */
static _Atomic bool full;
static uint32_t name_count;
static char *text_pool;
static uint32_t text_used;
static struct lock lock;

/* Two 32-bit sums side by side: the number that other tools compute for the same name. */
static uint64_t number_of(const char *text)
{
	uint32_t high = 0, low = 0;

	for (; *text != '\0'; text++) {
		int32_t c = (signed char)*text;

		high = high * 29 + (uint32_t)c;
		low = low * 131 + (uint32_t)c;
	}
	return (uint64_t)high << 32 | low;
}

/* The name of a number; NULL if it has no entry. */
static const char *find(uint64_t number)
{
	/* Pairs with the release in map_names(). */
	struct name *all = atomic_load_explicit(&names, memory_order_acquire);
	uint32_t at;

	for (at = (uint32_t)(number ^ number >> 32) & (NAMES - 1); all != NULL;
	     at = (at + 1) & (NAMES - 1)) {
		/* Pairs with the release in add(): the text is there when the number is. */
		uint64_t there = atomic_load_explicit(&all[at].number, memory_order_acquire);

		if (there == number)
			return all[at].text;
		if (there == 0)
			break;
	}
	return NULL;
}

const char *name_get(uint64_t number)
{
	const char *text = number == 0 ? NULL : find(number);

	if (text == NULL && number != 0 && atomic_load_explicit(&full, memory_order_relaxed))
		return UNNAMED;
	return text;
}

/* Returns the table; NULL without memory. The caller holds the lock. */
static struct name *map_names(void)
{
	struct name *all = atomic_load_explicit(&names, memory_order_relaxed);

	if (text_pool == NULL)
		text_pool = quiet_map(NAMES_BYTES);
	if (all == NULL && text_pool != NULL) {
		all = quiet_map(NAMES * sizeof(*all));
		/* Pairs with the acquire in name_get(). */
		atomic_store_explicit(&names, all, memory_order_release);
	}
	return all;
}

static void add(struct name *all, uint64_t number, const char *text, size_t bytes)
{
	char *copy = text_pool + text_used;
	uint32_t at = (uint32_t)(number ^ number >> 32) & (NAMES - 1);

	memcpy(copy, text, bytes);
	copy[bytes] = '\0';
	text_used += (uint32_t)bytes + 1;
	while (atomic_load_explicit(&all[at].number, memory_order_relaxed) != 0)
		at = (at + 1) & (NAMES - 1);
	all[at].text = copy;
	atomic_store_explicit(&all[at].number, number, memory_order_release);
	name_count++;
}

uint64_t name_put(const char *text, size_t bytes)
{
	struct name *all;
	uint64_t number;

	if (text == NULL || bytes == 0)
		return 0;
	number = number_of(text);
	if (number == 0 || find(number) != NULL || !lock_take(&lock))
		return number;
	bytes = strnlen(text, bytes < NAME_MAX_ ? bytes : NAME_MAX_);
	all = map_names();
	if (all == NULL || name_count >= NAMES / 2 || text_used + bytes + 1 > NAMES_BYTES)
		atomic_store_explicit(&full, true, memory_order_relaxed);
	else if (find(number) == NULL)
		add(all, number, text, bytes);
	lock_release(&lock);
	return number;
}
