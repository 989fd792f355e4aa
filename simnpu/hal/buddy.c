/* SPDX-License-Identifier: Apache-2.0 */
#include "buddy.h"

#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

/* Free memory that a device may keep from the kernel before the oldest of it goes back. */
#define DIRTY_BYTES_MAX (256ULL << 20)

enum list {
	LIST_CLEAN,
	LIST_DIRTY,
};

static enum block_kind kind_of_list(enum list list)
{
	return list == LIST_DIRTY ? BLOCK_DIRTY : BLOCK_CLEAN;
}

static uint64_t bytes_of_order(unsigned order)
{
	return 1ULL << (order + PAGE_SHIFT);
}

static uint32_t state_of(const struct buddy *b, uint32_t index)
{
	return atomic_load_explicit(&b->blocks[index].state, memory_order_relaxed);
}

static void set_state(struct buddy *b, uint32_t index, enum block_kind kind, unsigned order)
{
	atomic_store_explicit(&b->blocks[index].state, block_state(kind, order),
			      memory_order_relaxed);
}

/* The last block of the list: the first one's `prev` leads there. */
static uint32_t tail_of(const struct buddy *b, enum list list, unsigned order)
{
	return b->blocks[b->heads[list][order]].prev;
}

static void link_block(struct buddy *b, uint32_t index, unsigned order, enum list list)
{
	uint32_t head = b->heads[list][order];

	if (head == BLOCK_INDEX_NONE) {
		b->blocks[index].prev = index;
		b->filled[list] |= 1u << order;
	} else {
		b->blocks[index].prev = b->blocks[head].prev;
		b->blocks[head].prev = index;
	}
	b->blocks[index].next = head;
	b->heads[list][order] = index;
	set_state(b, index, kind_of_list(list), order);
	if (list == LIST_DIRTY && order >= PURGE_ORDER)
		b->dirty_bytes += bytes_of_order(order);
}

static void unlink_block(struct buddy *b, uint32_t index, unsigned order, enum list list)
{
	uint32_t *head = &b->heads[list][order];
	uint32_t next = b->blocks[index].next;
	uint32_t prev = b->blocks[index].prev;

	if (next != BLOCK_INDEX_NONE)
		b->blocks[next].prev = prev;
	else if (*head != index)
		b->blocks[*head].prev = prev;
	if (*head == index) {
		*head = next;
		if (next == BLOCK_INDEX_NONE)
			b->filled[list] &= ~(1u << order);
	} else {
		b->blocks[prev].next = next;
	}
	set_state(b, index, BLOCK_NONE, 0);
	if (list == LIST_DIRTY && order >= PURGE_ORDER)
		b->dirty_bytes -= bytes_of_order(order);
}

/* Puts a free block on its list, as part of the largest block that its free neighbours allow. */
static void insert(struct buddy *b, uint32_t index, unsigned order, enum list list)
{
	set_state(b, index, BLOCK_NONE, 0);
	for (; order < b->top; order++) {
		uint32_t peer = index ^ (1u << order);
		uint32_t state = state_of(b, peer);
		enum list peer_list;

		if (state == block_state(BLOCK_DIRTY, order))
			peer_list = LIST_DIRTY;
		else if (state == block_state(BLOCK_CLEAN, order))
			peer_list = LIST_CLEAN;
		else
			break;
		if (peer_list != list && order >= PURGE_ORDER)
			break;
		unlink_block(b, peer, order, peer_list);
		if (peer_list == LIST_DIRTY)
			list = LIST_DIRTY;
		if (peer < index)
			index = peer;
	}
	link_block(b, index, order, list);
}

/* Makes the steps that hold the block accessible. They stay so: the range is the device's, not the block's. */
static bool open_steps(struct buddy *b, uint32_t index, unsigned order)
{
	uint32_t step = index >> OPEN_ORDER;
	uint32_t end = (uint32_t)((index + (1ULL << order) - 1) >> OPEN_ORDER) + 1;

	for (; step < end; step++) {
		char *address = b->base + step * bytes_of_order(OPEN_ORDER);

		if (b->open[step / 64] & 1ULL << step % 64)
			continue;
		if (mprotect(address, bytes_of_order(OPEN_ORDER), PROT_READ | PROT_WRITE))
			return false;
		b->open[step / 64] |= 1ULL << step % 64;
	}
	return true;
}

void buddy_init(struct buddy *b, char *base, struct block *blocks, unsigned top)
{
	*b = (struct buddy){.base = base, .blocks = blocks, .top = top};
	memset(b->heads, 0xff, sizeof(b->heads));
	link_block(b, 0, top, LIST_CLEAN);
}

void buddy_double(struct buddy *b)
{
	uint32_t half = 1u << b->top;

	b->top++;
	insert(b, half, b->top - 1, LIST_CLEAN);
}

uint32_t buddy_take(struct buddy *b, unsigned order)
{
	uint32_t fitting = (b->filled[LIST_CLEAN] | b->filled[LIST_DIRTY]) & ~0u << order;
	unsigned found;
	enum list list;
	uint32_t index;

	if (order > b->top || !fitting)
		return BLOCK_INDEX_NONE;
	found = (unsigned)__builtin_ctz(fitting);
	list = b->filled[LIST_DIRTY] & 1u << found ? LIST_DIRTY : LIST_CLEAN;
	index = b->heads[list][found];
	unlink_block(b, index, found, list);
	while (found > order) {
		found--;
		link_block(b, index + (1u << found), found, list);
	}
	if (!open_steps(b, index, order)) {
		insert(b, index, order, list);
		return BLOCK_INDEX_NONE;
	}
	set_state(b, index, BLOCK_IDLE, order);
	return index;
}

void buddy_give(struct buddy *b, uint32_t index, unsigned order)
{
	insert(b, index, order, LIST_DIRTY);
	if (b->dirty_bytes > DIRTY_BYTES_MAX)
		buddy_purge(b, DIRTY_BYTES_MAX / 2);
}

void buddy_purge(struct buddy *b, uint64_t target_bytes)
{
	unsigned order;

	/* The largest first: fewest calls for the bytes. In a list the oldest first: the youngest is likeliest to be reused. */
	for (order = b->top; order >= PURGE_ORDER; order--) {
		while (b->dirty_bytes > target_bytes && b->filled[LIST_DIRTY] & 1u << order) {
			uint32_t index = tail_of(b, LIST_DIRTY, order);
			char *address = b->base + ((uint64_t)index << PAGE_SHIFT);

			unlink_block(b, index, order, LIST_DIRTY);
			/* A refusal (locked memory) costs memory of the host and nothing else. */
			(void)madvise(address, bytes_of_order(order), MADV_DONTNEED);
			insert(b, index, order, LIST_CLEAN);
		}
	}
}
