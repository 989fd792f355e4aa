/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/operations.h"

#include <stdlib.h>

#include "base/array.h"

#define DEPTH_MAX 4096u /* memory does not grow with begins whose ends are missing */

void operations_fini(struct operations *operations)
{
	free(operations->open);
	*operations = (struct operations){0};
}

int operations_begin(struct operations *operations, const struct open_operation *operation)
{
	int r;

	if (operations->count == DEPTH_MAX)
		return 0;
	r = array_reserve(&operations->open, &operations->room, operations->count + 1,
			  sizeof(*operations->open));
	if (r == 0)
		operations->open[operations->count++] = *operation;
	return r;
}

size_t operations_end(struct operations *operations, uint8_t layer, uint64_t name)
{
	size_t i, ended;

	for (i = operations->count; i > 0; i--) {
		if (operations->open[i - 1].layer != layer || operations->open[i - 1].name != name)
			continue;
		ended = operations->count - (i - 1);
		operations->count = i - 1;
		return ended;
	}
	return 0;
}

const struct open_operation *operations_innermost(const struct operations *operations,
						  enum layer layer)
{
	size_t i;

	for (i = operations->count; i > 0; i--) {
		if (operations->open[i - 1].layer == layer)
			return &operations->open[i - 1];
	}
	return NULL;
}
