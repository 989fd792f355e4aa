/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/numbers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

/* The pages always take numbers below this; beyond, at least one in EMPTY_MAX of their entries must be in use. */
#define DENSE_MIN 1024u
#define EMPTY_MAX 4u

void numbers_fini(struct numbers *numbers)
{
	size_t i;

	for (i = 0; i < numbers->page_count; i++)
		free(numbers->pages[i].values);
	free(numbers->pages);
	map_fini(&numbers->sparse);
	*numbers = (struct numbers){0};
}

/* Value + 1 that the pages have of a number below their end. */
static uint32_t value_at(const struct numbers *numbers, size_t number)
{
	const struct numbers_page *page = &numbers->pages[number / NUMBERS_PAGE];

	if (page->values != NULL)
		return page->values[number % NUMBERS_PAGE];
	return page->first == 0 ? 0 : page->first + (uint32_t)(number % NUMBERS_PAGE);
}

static int reserve_pages(struct numbers *numbers, size_t count)
{
	if (ARRAY_RESERVE(numbers->pages, numbers->page_room, count) < 0)
		return -ENOMEM;
	while (numbers->page_count < count)
		numbers->pages[numbers->page_count++] = (struct numbers_page){0};
	return 0;
}

/* Gives a page its own values. */
static int open_page(struct numbers_page *page)
{
	uint32_t *values = calloc(NUMBERS_PAGE, sizeof(*values)), i;

	if (values == NULL)
		return -ENOMEM;
	for (i = 0; i < NUMBERS_PAGE && page->first != 0; i++)
		values[i] = page->first + i;
	page->values = values;
	page->first = 0;
	return 0;
}

/* A full page whose values follow each other needs none. */
static void close_page(struct numbers_page *page)
{
	uint32_t i;

	for (i = 0; i < NUMBERS_PAGE; i++) {
		if (page->values[0] == 0 || page->values[i] != page->values[0] + i)
			return;
	}
	page->first = page->values[0];
	free(page->values);
	page->values = NULL;
}

int numbers_put(struct numbers *numbers, uint32_t number, uint32_t value)
{
	size_t at = number / NUMBERS_PAGE;
	struct numbers_page *page;
	uint32_t *entry;

	if (at >= numbers->page_count &&
	    (number < DENSE_MIN || number / EMPTY_MAX <= numbers->count) &&
	    reserve_pages(numbers, at + 1) < 0)
		return -ENOMEM;
	if (at >= numbers->page_count)
		return map_put(&numbers->sparse, (struct map_key){number, 0}, value);
	if (value_at(numbers, number) == value + 1)
		return 0;
	page = &numbers->pages[at];
	if (page->values == NULL && open_page(page) < 0)
		return -ENOMEM;
	entry = &page->values[number % NUMBERS_PAGE];
	numbers->count += *entry == 0;
	*entry = value + 1;
	if (number % NUMBERS_PAGE == NUMBERS_PAGE - 1)
		close_page(page);
	return 0;
}

uint32_t numbers_get_sparse(const struct numbers *numbers, uint32_t number)
{
	const uint64_t *value = map_get(&numbers->sparse, (struct map_key){number, 0});

	return value == NULL ? 0 : (uint32_t)*value + 1;
}

bool numbers_next(const struct numbers *numbers, size_t *cursor, uint32_t *out_number,
		  uint32_t *out_value)
{
	size_t rest, end = numbers->page_count * NUMBERS_PAGE;
	const struct map_slot *slot;

	for (; *cursor < end; (*cursor)++) {
		uint32_t value = value_at(numbers, *cursor);

		if (value == 0)
			continue;
		*out_number = (uint32_t)(*cursor)++;
		*out_value = value - 1;
		return true;
	}
	rest = *cursor - end;
	while ((slot = map_next(&numbers->sparse, &rest)) != NULL) {
		*cursor = end + rest;
		/* The pages have grown over it since, and have a newer value. */
		if (slot->key.a < end && value_at(numbers, slot->key.a) != 0)
			continue;
		*out_number = (uint32_t)slot->key.a;
		*out_value = (uint32_t)slot->value;
		return true;
	}
	*cursor = end + rest;
	return false;
}
