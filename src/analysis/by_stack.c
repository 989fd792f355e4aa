/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/by_stack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

void by_stack_fini(struct by_stack *found)
{
	free(found->first);
	index_fini(&found->others);
	*found = (struct by_stack){0};
}

int by_stack_add(struct by_stack *found, uint32_t stack, uint64_t hash, size_t element)
{
	size_t wanted = (size_t)stack + 1;

	if (element >= UINT32_MAX)
		return -ENOMEM;
	if (stack != 0 && wanted > found->count) {
		if (ARRAY_RESERVE(found->first, found->room, wanted) < 0)
			return -ENOMEM;
		memset(found->first + found->count, 0,
		       (wanted - found->count) * sizeof(*found->first));
		found->count = wanted;
	}
	if (stack == 0 || found->first[stack] != 0)
		return index_add(&found->others, hash, element);
	found->first[stack] = (uint32_t)element + 1;
	return 0;
}
