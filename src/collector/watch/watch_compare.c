/* SPDX-License-Identifier: Apache-2.0 */
#include "collector/watch/watch_compare.h"

#include <string.h>
#include <sys/mman.h>

#include "collector/watch/checksum.h"

struct copy {
	uint8_t *bytes; /* NULL: none */
	uint64_t room;
	uint64_t held; /* bytes of the last dump */
	uint64_t checksum;
	uint64_t *sums; /* of chunks; NULL: none */
	uint64_t sum_room;
	uint64_t summed; /* chunks whose sums the last dump made */
};

/* Around a copy, so that a range that is too long never reads on into it. As large as any page. */
#define GUARD 65536u

static struct copy copies[WATCH_RANGES];
static uint64_t total;

void compare_forget(uint32_t entry)
{
	struct copy *copy = &copies[entry];

	if (copy->bytes != NULL) {
		(void)munmap(copy->bytes - GUARD, copy->room + 2ull * GUARD);
		total -= copy->room;
	}
	if (copy->sums != NULL)
		(void)munmap(copy->sums, copy->sum_room * sizeof(*copy->sums));
	*copy = (struct copy){0};
}

void compare_reset(void)
{
	uint32_t i;

	for (i = 0; i < WATCH_RANGES; i++)
		compare_forget(i);
}

static void make_copy(struct copy *copy, uint64_t bytes)
{
	uint8_t *map;

	if (bytes > COPIES_MAX - total)
		return;
	map = mmap(NULL, bytes + 2ull * GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (map == MAP_FAILED)
		return;
	if (mprotect(map + GUARD, bytes, PROT_READ | PROT_WRITE) != 0) {
		(void)munmap(map, bytes + 2ull * GUARD);
		return;
	}
	copy->bytes = map + GUARD;
	copy->room = bytes;
	total += bytes;
}

void compare_begin(struct comparison *comparison, uint32_t entry, uint64_t bytes, bool fresh)
{
	struct copy *copy = &copies[entry];

	if (fresh && copy->room != bytes) {
		compare_forget(entry);
		make_copy(copy, bytes);
	}
	comparison->entry = entry;
	comparison->bytes = bytes;
	comparison->copy = copy->bytes;
	comparison->compared = fresh ? 0 : copy->held;
	comparison->change = (struct watch_change){.compared = !fresh};
	comparison->sums = NULL;
	comparison->summed = fresh ? 0 : copy->summed;
	copy->summed = 0; /* until sums are made again */
}

bool compare_sums_begin(struct comparison *comparison, uint64_t chunks)
{
	struct copy *copy = &copies[comparison->entry];
	void *map;

	if (copy->sums == NULL) {
		map = mmap(NULL, chunks * sizeof(*copy->sums), PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (map == MAP_FAILED)
			return false;
		copy->sums = map;
		copy->sum_room = chunks;
		comparison->summed = 0;
	}
	if (copy->sum_room != chunks)
		return false;
	comparison->sums = copy->sums;
	return true;
}

/* A chunk of a range that there is no copy of has changed: some of its bytes have, and nobody knows which. */
static void note_chunk(struct comparison *comparison, uint64_t chunk)
{
	uint64_t first = chunk * CHECKSUM_CHUNK, end = first + CHECKSUM_CHUNK;
	struct watch_change *change = &comparison->change;
	uint32_t i;

	change->bytes = BYTES_UNKNOWN;
	for (i = 0; i < comparison->allowed_count; i++) {
		if (comparison->allowed[i].first < end && comparison->allowed[i].end > first)
			return;
	}
	if (change->stray_bytes == 0)
		change->first = first;
	change->stray_bytes = BYTES_UNKNOWN;
	change->last = (end < comparison->bytes ? end : comparison->bytes) - 1;
}

bool compare_next(struct comparison *comparison, uint64_t at, const uint64_t *sums, uint64_t count,
		  uint64_t from, struct chunk_run *out)
{
	const uint64_t *before = comparison->sums + at;
	uint64_t known = comparison->summed > at ? comparison->summed - at : 0;
	uint64_t i;

	for (i = from - at; i < count; i++) {
		if (i < known && before[i] == sums[i])
			continue;
		if (comparison->copy != NULL)
			break;
		if (i < known)
			note_chunk(comparison, at + i);
	}
	out->first = at + i;
	while (i < count && (i >= known || before[i] != sums[i]))
		i++;
	out->end = at + i;
	return out->first < out->end;
}

void compare_sums_keep(struct comparison *comparison, uint64_t at, const uint64_t *sums,
		       uint64_t count)
{
	memcpy(comparison->sums + at, sums, count * sizeof(*sums));
}

/* Compares bytes that are all allowed to change, or all not. */
static void compare_span(struct watch_change *change, const uint8_t *was, const uint8_t *is,
			 uint64_t at, uint64_t bytes, bool allowed)
{
	uint64_t i, changed = 0, first = 0, last = 0;

	if (bytes == 0 || memcmp(was, is, bytes) == 0)
		return;
	for (i = 0; i < bytes; i++) {
		if (was[i] == is[i])
			continue;
		if (changed++ == 0)
			first = at + i;
		last = at + i;
	}
	change->bytes += changed;
	if (allowed)
		return;
	if (change->stray_bytes == 0)
		change->first = first;
	change->stray_bytes += changed;
	change->last = last;
}

/* Goes over the bytes [at, end), alternating between what may change and what may not. */
static void compare_spans(struct comparison *comparison, uint64_t at, uint64_t end,
			  const uint8_t *data)
{
	uint64_t start = at;
	uint32_t i = 0;

	while (at < end) {
		const struct watch_span *span = NULL;
		uint64_t stop = end;
		bool allowed;

		while (i < comparison->allowed_count && comparison->allowed[i].end <= at)
			i++;
		if (i < comparison->allowed_count)
			span = &comparison->allowed[i];
		allowed = span != NULL && span->first <= at;
		if (allowed && span->end < stop)
			stop = span->end;
		else if (!allowed && span != NULL && span->first < stop)
			stop = span->first;
		compare_span(&comparison->change, comparison->copy + at, data + (at - start), at,
			     stop - at, allowed);
		at = stop;
	}
}

void compare_piece(struct comparison *comparison, uint64_t at, const uint8_t *data, size_t bytes)
{
	uint64_t end = at + bytes;

	if (comparison->copy == NULL)
		return;
	if (comparison->compared > at)
		compare_spans(comparison, at,
			      end < comparison->compared ? end : comparison->compared, data);
	memcpy(comparison->copy + at, data, bytes);
}

void compare_end(struct comparison *comparison, uint64_t bytes, uint64_t checksum)
{
	struct copy *copy = &copies[comparison->entry];
	struct watch_change *change = &comparison->change;

	/* Without a copy and sums all that is known is whether the checksum of as many bytes is another one. */
	if (change->compared && copy->bytes == NULL && copy->held == bytes &&
	    copy->checksum != checksum && (comparison->sums == NULL || comparison->summed == 0)) {
		change->bytes = BYTES_UNKNOWN;
		change->stray_bytes = comparison->allowed_count > 0 ? 0 : BYTES_UNKNOWN;
	}
	copy->held = bytes;
	copy->checksum = checksum;
	if (comparison->sums != NULL && bytes > (copy->sum_room - 1) * CHECKSUM_CHUNK)
		copy->summed = copy->sum_room;
}
