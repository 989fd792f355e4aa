/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/numbers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

/* The array always takes numbers below this; beyond, at least one in EMPTY_MAX of its entries must be in use. */
#define DENSE_MIN 1024u
#define EMPTY_MAX 4u

void numbers_fini(struct numbers *numbers)
{
	free(numbers->dense);
	map_fini(&numbers->sparse);
	*numbers = (struct numbers){0};
}

int numbers_put(struct numbers *numbers, uint32_t number, uint32_t value)
{
	size_t before = numbers->room;

	if (number >= before && (number < DENSE_MIN || number / EMPTY_MAX <= numbers->count)) {
		if (array_reserve(&numbers->dense, &numbers->room, (size_t)number + 1,
				  sizeof(*numbers->dense)) < 0)
			return -ENOMEM;
		memset(numbers->dense + before, 0,
		       (numbers->room - before) * sizeof(*numbers->dense));
	}
	if (number >= numbers->room)
		return map_put(&numbers->sparse, (struct map_key){number, 0}, value);
	numbers->count += numbers->dense[number] == 0;
	numbers->dense[number] = value + 1;
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
	const struct map_slot *slot;
	size_t rest;

	for (; *cursor < numbers->room; (*cursor)++) {
		if (numbers->dense[*cursor] == 0)
			continue;
		*out_number = (uint32_t)*cursor;
		*out_value = numbers->dense[(*cursor)++] - 1;
		return true;
	}
	rest = *cursor - numbers->room;
	while ((slot = map_next(&numbers->sparse, &rest)) != NULL) {
		*cursor = numbers->room + rest;
		/* The array has grown over it since, and has a newer value. */
		if (slot->key.a < numbers->room && numbers->dense[slot->key.a] != 0)
			continue;
		*out_number = (uint32_t)slot->key.a;
		*out_value = (uint32_t)slot->value;
		return true;
	}
	*cursor = numbers->room + rest;
	return false;
}
