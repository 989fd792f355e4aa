/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How segments go back to the driver: all of them (empty_cache, a retry), large ones until a request fits
 * (max_split_size_mb), and old ones (garbage collection).
 */
#include "twin/shelves.h"

static bool whole_segment(const struct block *b)
{
	return b->prev == 0 && b->next == 0;
}

static void give_back(struct twin *twin, uint32_t block)
{
	uint64_t bytes = block_at(twin, block)->size;

	shelf_take(twin, block);
	place_back(twin, block_at(twin, block)->address, bytes);
	block_drop(twin, block);
	reserved_subtract(twin, bytes);
}

static int release_shelf(struct twin *twin, uint32_t shelf)
{
	uint32_t block = shelf_first(twin, shelf), next;
	int status;

	for (; block != 0; block = next) {
		const struct block *b = block_at(twin, block);

		next = shelf_after(twin, block);
		if (b->arena == 0 && whole_segment(b))
			give_back(twin, block);
	}
	if (twin->arena_count == 0)
		return 0;
	/* Unmapping puts smaller blocks back onto the shelf; no part of them is a whole unit, so they are left alone. */
	for (block = shelf_first(twin, shelf); block != 0; block = next) {
		next = shelf_after(twin, block);
		if (block_at(twin, block)->arena != 0 && (status = arena_unmap(twin, block)) != 0)
			return status;
	}
	return 0;
}

int release_all(struct twin *twin)
{
	bool common =
		twin->captures == 0 || (twin->conditions.release.rules & TWIN_CAPTURE_RETRIES) != 0;
	int status = 0;

	/* Large shelves have even numbers. Between lanes the order does not matter: they share nothing but the driver. */
	for (uint32_t small = 0; small < 2; small++)
		for (uint32_t i = small; i < twin->shelf_count && status == 0; i += 2)
			if (twin->shelves[i].private_pool ? twin->shelves[i].unused : common)
				status = release_shelf(twin, i);
	return status;
}

int twin_give_back(struct twin *twin, uint64_t address, bool *out_done)
{
	for (uint32_t shelf = 0; shelf < twin->shelf_count; shelf++)
		for (uint32_t block = shelf_first(twin, shelf); block != 0;
		     block = shelf_after(twin, block)) {
			const struct block *b = block_at(twin, block);
			uint64_t before = twin->figures.reserved;
			int status = 0;

			if (address < b->address || address - b->address >= b->size)
				continue;
			if (b->arena != 0)
				status = arena_unmap(twin, block);
			else if (whole_segment(b) && b->address == address)
				give_back(twin, block);
			*out_done = twin->figures.reserved < before;
			return status;
		}
	*out_done = false;
	return 0;
}

bool release_available(struct twin *twin, uint32_t shelf, uint64_t size)
{
	uint64_t most = twin->conditions.settings.max_split_bytes;
	uint64_t wanted = size < most ? most : size, released = 0;
	uint32_t block, before;

	if (most == UINT64_MAX)
		return false;
	block = shelf_find(twin, shelf, wanted);
	if (block != 0 && block_at(twin, block)->arena == 0) {
		give_back(twin, block);
		return true;
	}
	block = block == 0 ? shelf_below(twin, shelf, wanted) : shelf_before(twin, block);
	for (; block != 0 && released < wanted && block_at(twin, block)->size >= most;
	     block = before) {
		before = shelf_before(twin, block);
		if (block_at(twin, block)->arena != 0)
			continue;
		released += block_at(twin, block)->size;
		give_back(twin, block);
	}
	return released >= wanted;
}

/* ---- garbage collection ---- */

struct ages {
	double sum;
	uint64_t count;
	uint64_t released;
};

static double age_of(const struct twin *twin, const struct block *b)
{
	return (double)(twin->searches - b->searches);
}

/* Of all lanes of the pool that is not private, the large shelf. */
static void add_ages(const struct twin *twin, uint32_t shelf, struct ages *ages)
{
	for (uint32_t block = shelf_first(twin, shelf); block != 0;
	     block = shelf_after(twin, block)) {
		const struct block *b = block_at(twin, block);

		if (!whole_segment(b))
			continue;
		ages->sum += age_of(twin, b);
		ages->count++;
	}
}

static bool release_old(struct twin *twin, uint32_t shelf, double oldest, struct ages *ages)
{
	uint32_t block = shelf_first(twin, shelf), next;
	bool any = false;

	for (; block != 0; block = next) {
		const struct block *b = block_at(twin, block);

		next = shelf_after(twin, block);
		if (!whole_segment(b) || b->arena != 0 || age_of(twin, b) < oldest)
			continue;
		any = true;
		ages->released += b->size;
		ages->sum -= age_of(twin, b);
		ages->count--;
		give_back(twin, block);
	}
	return any;
}

void collect_garbage(struct twin *twin)
{
	const struct twin_conditions *c = &twin->conditions;
	uint64_t threshold = (uint64_t)(c->settings.gc_threshold * (double)c->limit_bytes);
	struct ages ages = {0};
	uint64_t wanted;
	bool any = true;

	if (twin->figures.reserved <= threshold)
		return;
	wanted = twin->figures.reserved - threshold;
	for (uint32_t i = 0; i < twin->shelf_count; i += 2)
		if (!twin->shelves[i].private_pool)
			add_ages(twin, i, &ages);
	while (ages.released < wanted && any && ages.count > 0) {
		double oldest = ages.sum / (double)ages.count;

		any = false;
		for (uint32_t i = 0; i < twin->shelf_count; i += 2)
			if (!twin->shelves[i].private_pool && release_old(twin, i, oldest, &ages))
				any = true;
	}
}
