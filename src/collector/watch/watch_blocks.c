/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sizes of the blocks that may be freed while something is watched: a free has only the address of a block, and a watched tensor
 * may lie anywhere in it. Kept only while watch is active. A block that is older, or that the table has no room for, is taken to
 * be as large as the range that begins at its address.
 *
 * A block's key is its address with the pool in the lowest bits, because a segment of the driver and the first block of a pool
 * in it begin at the same place.
 */
#include <errno.h>
#include <sys/mman.h>

#include "collector/watch/watch_dump.h"

#define SLOTS (1u << 18) /* a power of two */
#define ROOM  (SLOTS / 4 * 3)

struct slot {
	uint64_t key; /* 0: empty */
	uint64_t bytes;
};

static struct slot *slots;
static uint32_t used;
static struct lock lock;

static uint32_t home_of(uint64_t key)
{
	return (uint32_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 46);
}

/* The slot of the key, or the empty one where it would be. */
static uint32_t find(uint64_t key)
{
	uint32_t at = home_of(key);

	while (slots[at].key != 0 && slots[at].key != key)
		at = (at + 1) & (SLOTS - 1);
	return at;
}

static void take_out(uint32_t at)
{
	uint32_t next = at;

	used--;
	/* What came to lie behind it because the place was taken moves up. */
	for (;;) {
		uint32_t home;

		next = (next + 1) & (SLOTS - 1);
		if (slots[next].key == 0)
			break;
		home = home_of(slots[next].key);
		if (((next - home) & (SLOTS - 1)) >= ((next - at) & (SLOTS - 1))) {
			slots[at] = slots[next];
			at = next;
		}
	}
	slots[at] = (struct slot){0};
}

MSCOPE_COLD void watch_allocated_slow(uint8_t pool, uint64_t address, uint64_t bytes)
{
	uint64_t key = address | pool;
	int saved_errno = errno;
	uint32_t at;

	if (!lock_take(&lock))
		return;
	if (slots == NULL) {
		void *map = mmap(NULL, SLOTS * sizeof(*slots), PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		slots = map == MAP_FAILED ? NULL : map;
	}
	if (slots != NULL) {
		at = find(key);
		if (slots[at].key == 0 && used < ROOM) {
			slots[at].key = key;
			used++;
		}
		if (slots[at].key == key)
			slots[at].bytes = bytes;
	}
	lock_release(&lock);
	errno = saved_errno;
}

uint64_t watch_block_take(uint8_t pool, uint64_t address)
{
	uint64_t bytes = 0;
	uint32_t at;

	if (!lock_take(&lock))
		return 0;
	if (slots != NULL) {
		at = find(address | pool);
		if (slots[at].key != 0) {
			bytes = slots[at].bytes;
			take_out(at);
		}
	}
	lock_release(&lock);
	return bytes;
}

void watch_blocks_reset(void)
{
	if (slots != NULL)
		(void)munmap(slots, SLOTS * sizeof(*slots));
	slots = NULL;
	used = 0;
}
