/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who owns which pages of one reserved address range: a binary buddy system over a power of two of 4 KiB pages.
 *
 * A block of order n is 2^n pages, aligned to its own size. All that is known of it stands in the struct block of its
 * first page; nothing is ever written into the pages themselves, so a program that writes through a stale address spoils
 * only its own data. Free blocks are of two kinds, on lists of their own:
 *
 *     clean   no page holds memory of the kernel
 *     dirty   some page may; handed out first, and given back to the kernel when too many wait
 *
 * Below PURGE_ORDER the two kinds merge (into a dirty block), above it only blocks of one kind do, so that giving back
 * never walks over ranges that were not used. The pages of a range become accessible in large steps when first handed out.
 *
 * The caller serialises all calls. The states of blocks that are out (IDLE, LIVE) may change meanwhile.
 */
#ifndef SIMNPU_HAL_BUDDY_H
#define SIMNPU_HAL_BUDDY_H

#include <stdatomic.h>
#include <stdint.h>

enum {
	PAGE_SHIFT = 12,
	ORDER_MAX = 30,	 /* 4 TiB */
	OPEN_ORDER = 16, /* 256 MiB: the step in which pages become accessible */
	PURGE_ORDER = 6, /* 256 KiB: the smallest block worth a system call */
};

#define BLOCK_INDEX_NONE UINT32_MAX

enum block_kind {
	BLOCK_NONE = 0, /* not the first page of a block; also the state of pages never seen */
	BLOCK_CLEAN,	/* on a clean list of the buddy system */
	BLOCK_DIRTY,	/* on a dirty list of the buddy system */
	BLOCK_IDLE,	/* taken from the buddy system, not handed out */
	BLOCK_LIVE,	/* handed out */
};

/*
 * One per page. `state` of the first page rules the block; the other fields mean something only with the state that names
 * them, and belong to whoever holds the block: a list's or stack's lock, or the one thread that takes or frees it.
 */
struct block {
	_Atomic uint32_t state; /* enum block_kind, and the order above bit 8 */
	uint32_t pages;		/* LIVE: pages charged */
	uint32_t next; /* CLEAN, DIRTY: list; IDLE on a stack: index + 1 of the block below */
	uint32_t prev; /* CLEAN, DIRTY: list; of the first block: the last */
};

static inline uint32_t block_state(enum block_kind kind, unsigned order)
{
	return (uint32_t)kind | order << 8;
}

static inline enum block_kind block_kind(uint32_t state)
{
	return (enum block_kind)(state & 0xff);
}

static inline unsigned block_order(uint32_t state)
{
	return state >> 8;
}

struct buddy {
	char *base;	      /* first byte of the range, as aligned as any block may have to be */
	struct block *blocks; /* one per page, zero at first */
	unsigned top;	      /* order of the whole range, at least OPEN_ORDER */
	uint64_t dirty_bytes; /* in dirty blocks of PURGE_ORDER and above */
	uint32_t heads[2][ORDER_MAX + 1]; /* first block of each list: clean, dirty */
	uint32_t filled[2];		  /* bit n: heads[][n] holds a block */
	uint64_t open[(1u << (ORDER_MAX - OPEN_ORDER)) / 64]; /* bit n: step n is accessible */
};

/* `base` is reserved and inaccessible, `blocks` is zero; the caller never takes them away. */
void buddy_init(struct buddy *b, char *base, struct block *blocks, unsigned top);

/* The range and the table are twice as long as before; the new half is as the first was at buddy_init(). */
void buddy_double(struct buddy *b);

/* An accessible block in state IDLE, or BLOCK_INDEX_NONE when no address is left or the kernel refuses. */
uint32_t buddy_take(struct buddy *b, unsigned order);

/* Takes an IDLE block back, in any part that buddy_take()'s block was cut into. */
void buddy_give(struct buddy *b, uint32_t index, unsigned order);

/* Returns dirty blocks to the kernel until at most `target_bytes` of them are left. */
void buddy_purge(struct buddy *b, uint64_t target_bytes);

#endif
