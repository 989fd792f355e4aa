/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of kernels. The runtime asks for a number for each name and later reports the kernel by that number. Entries are only
 * added: a reader needs no lock, a writer takes one. When the table is full, further kernels stay without a name.
 */
#include "collector/ascend/ascend.h"

#include <string.h>
#include <sys/mman.h>

#include "collector/lock.h"

#define NAMES	    16384u /* a power of two */
#define NAMES_BYTES (4u << 20)
#define NAME_MAX_   1024u

struct name {
	_Atomic uint64_t number; /* 0: free */
	const char *text;
};

static struct name names[NAMES];
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

const char *name_get(uint64_t number)
{
	uint32_t at;

	for (at = (uint32_t)(number ^ number >> 32) & (NAMES - 1);; at = (at + 1) & (NAMES - 1)) {
		/* Pairs with the release in name_put(): the text is there when the number is. */
		uint64_t there = atomic_load_explicit(&names[at].number, memory_order_acquire);

		if (there == number && number != 0)
			return names[at].text;
		if (there == 0)
			return NULL;
	}
}

uint64_t name_put(const char *text, size_t bytes)
{
	uint64_t number;
	uint32_t at;

	if (text == NULL || bytes == 0)
		return 0;
	number = number_of(text);
	if (number == 0 || name_get(number) != NULL)
		return number;
	if (!lock_take(&lock))
		return number;
	bytes = strnlen(text, bytes < NAME_MAX_ ? bytes : NAME_MAX_);
	if (text_pool == NULL) {
		void *p = mmap(NULL, NAMES_BYTES, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		text_pool = p == MAP_FAILED ? NULL : p;
	}
	if (text_pool != NULL && name_get(number) == NULL && name_count < NAMES / 2 &&
	    text_used + bytes + 1 <= NAMES_BYTES) {
		char *copy = text_pool + text_used;

		memcpy(copy, text, bytes);
		copy[bytes] = '\0';
		text_used += (uint32_t)bytes + 1;
		at = (uint32_t)(number ^ number >> 32) & (NAMES - 1);
		while (atomic_load_explicit(&names[at].number, memory_order_relaxed) != 0)
			at = (at + 1) & (NAMES - 1);
		names[at].text = copy;
		atomic_store_explicit(&names[at].number, number, memory_order_release);
		name_count++;
	}
	lock_release(&lock);
	return number;
}
