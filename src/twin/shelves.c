/* SPDX-License-Identifier: Apache-2.0 */
#include "twin/shelves.h"

#include "base/array.h"

/* ---- rows of the table ---- */

static uint32_t priority_of(uint64_t number)
{
	number *= 0x9e3779b97f4a7c15u;
	number ^= number >> 29;
	number *= 0xbf58476d1ce4e5b9u;
	return (uint32_t)(number >> 32);
}

uint32_t block_make(struct twin *twin, uint32_t shelf, uint64_t address, uint64_t size)
{
	uint32_t row = twin->spare;

	if (row != 0) {
		twin->spare = twin->blocks[row].next;
	} else {
		size_t count = twin->block_count == 0 ? 1 : twin->block_count;

		if (count >= UINT32_MAX - 1 ||
		    ARRAY_RESERVE(twin->blocks, twin->block_room, count + 1) != 0)
			return 0;
		if (twin->block_count == 0)
			twin->blocks[0] = (struct block){0};
		row = (uint32_t)count;
		twin->block_count = count + 1;
	}
	twin->blocks[row] = (struct block){.shelf = shelf,
					   .address = address,
					   .size = size,
					   .object = ++twin->objects,
					   .priority = priority_of(twin->objects),
					   .mapped = true};
	return row;
}

void block_drop(struct twin *twin, uint32_t block)
{
	struct block *b = block_at(twin, block);

	if (b->prev != 0)
		block_at(twin, b->prev)->next = b->next;
	if (b->next != 0)
		block_at(twin, b->next)->prev = b->prev;
	b->next = twin->spare;
	twin->spare = block;
}

void block_link_before(struct twin *twin, uint32_t block, uint32_t where)
{
	struct block *b = block_at(twin, block), *w = block_at(twin, where);

	b->prev = w->prev;
	b->next = where;
	if (w->prev != 0)
		block_at(twin, w->prev)->next = block;
	w->prev = block;
}

void block_link_after(struct twin *twin, uint32_t block, uint32_t where)
{
	struct block *b = block_at(twin, block), *w = block_at(twin, where);

	b->next = w->next;
	b->prev = where;
	if (w->next != 0)
		block_at(twin, w->next)->prev = block;
	w->next = block;
}

/* ---- trees ---- */

static inline bool less(const struct block *a, uint64_t key, uint64_t tie)
{
	return a->key != key ? a->key < key : a->tie < tie;
}

static void tree_put(struct twin *twin, uint32_t *root, uint32_t block)
{
	struct block *blocks = twin->blocks, *b = &blocks[block];
	uint32_t *link = root, *left = &b->left, *right = &b->right, rest;

	while (*link != 0 && blocks[*link].priority >= b->priority)
		link = less(&blocks[*link], b->key, b->tie) ? &blocks[*link].right
							    : &blocks[*link].left;
	/* What was here is torn along the new key: smaller ones to the left, larger ones to the right. */
	for (rest = *link; rest != 0;) {
		struct block *r = &blocks[rest];

		if (less(r, b->key, b->tie)) {
			*left = rest;
			left = &r->right;
			rest = r->right;
		} else {
			*right = rest;
			right = &r->left;
			rest = r->left;
		}
	}
	*left = 0;
	*right = 0;
	*link = block;
}

static void tree_take(struct twin *twin, uint32_t *root, uint32_t block)
{
	struct block *blocks = twin->blocks, *b = &blocks[block];
	uint32_t *link = root, left = b->left, right = b->right;

	while (*link != block)
		link = less(&blocks[*link], b->key, b->tie) ? &blocks[*link].right
							    : &blocks[*link].left;
	while (left != 0 && right != 0) {
		if (blocks[left].priority >= blocks[right].priority) {
			*link = left;
			link = &blocks[left].right;
			left = *link;
		} else {
			*link = right;
			link = &blocks[right].left;
			right = *link;
		}
	}
	*link = left != 0 ? left : right;
}

/* First block at or above (key, tie). */
static uint32_t tree_find(const struct twin *twin, uint32_t root, uint64_t key, uint64_t tie)
{
	uint32_t found = 0;

	while (root != 0) {
		const struct block *b = &twin->blocks[root];

		if (less(b, key, tie)) {
			root = b->right;
		} else {
			found = root;
			root = b->left;
		}
	}
	return found;
}

/* Last block below (key, tie). */
static uint32_t tree_below(const struct twin *twin, uint32_t root, uint64_t key, uint64_t tie)
{
	uint32_t found = 0;

	while (root != 0) {
		const struct block *b = &twin->blocks[root];

		if (less(b, key, tie)) {
			found = root;
			root = b->right;
		} else {
			root = b->left;
		}
	}
	return found;
}

/* ---- shelves ---- */

void shelf_put(struct twin *twin, uint32_t block)
{
	struct block *b = block_at(twin, block);
	struct shelf *shelf = &twin->shelves[b->shelf];

	if (!b->mapped) {
		b->key = 0;
		b->tie = b->address;
		tree_put(twin, &shelf->unmapped, block);
		return;
	}
	b->key = b->size;
	b->tie = (twin->conditions.release.rules & TWIN_OBJECT_ORDER) != 0 ? b->object : b->address;
	b->searches = twin->searches;
	tree_put(twin, &shelf->free, block);
}

void shelf_take(struct twin *twin, uint32_t block)
{
	struct block *b = block_at(twin, block);
	struct shelf *shelf = &twin->shelves[b->shelf];

	tree_take(twin, b->mapped ? &shelf->free : &shelf->unmapped, block);
}

uint32_t shelf_find(const struct twin *twin, uint32_t shelf, uint64_t size)
{
	return tree_find(twin, twin->shelves[shelf].free, size, 0);
}

uint32_t shelf_after(const struct twin *twin, uint32_t block)
{
	const struct block *b = block_at(twin, block);

	return tree_find(twin, twin->shelves[b->shelf].free, b->key, b->tie + 1);
}

uint32_t shelf_below(const struct twin *twin, uint32_t shelf, uint64_t size)
{
	return tree_below(twin, twin->shelves[shelf].free, size, 0);
}

uint32_t shelf_before(const struct twin *twin, uint32_t block)
{
	const struct block *b = block_at(twin, block);

	return tree_below(twin, twin->shelves[b->shelf].free, b->key, b->tie);
}

uint32_t shelf_first(const struct twin *twin, uint32_t shelf)
{
	return shelf_find(twin, shelf, 0);
}

uint32_t shelf_unmapped(const struct twin *twin, uint32_t shelf, uint64_t address)
{
	return tree_find(twin, twin->shelves[shelf].unmapped, 0, address);
}

static bool can_join(const struct twin *twin, uint32_t block, uint32_t other)
{
	return other != 0 && !block_at(twin, other)->used &&
	       block_at(twin, other)->mapped == block_at(twin, block)->mapped;
}

void block_join(struct twin *twin, uint32_t block)
{
	struct block *b = block_at(twin, block);
	uint32_t other = b->prev;

	if (can_join(twin, block, other)) {
		shelf_take(twin, other);
		b->address = block_at(twin, other)->address;
		b->size += block_at(twin, other)->size;
		block_drop(twin, other);
	}
	other = b->next;
	if (can_join(twin, block, other)) {
		shelf_take(twin, other);
		b->size += block_at(twin, other)->size;
		block_drop(twin, other);
	}
}
