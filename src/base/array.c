/* SPDX-License-Identifier: Apache-2.0 */
#include "base/array.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int array_reserve(void *pointer, size_t *room, size_t wanted, size_t element_bytes)
{
	size_t more = *room < 8 ? 8 : *room * 2;
	void *old, *grown;

	if (wanted <= *room)
		return 0;
	if (more < wanted)
		more = wanted;
	if (more > SIZE_MAX / element_bytes)
		return -ENOMEM;
	memcpy(&old, pointer, sizeof(old));
	grown = realloc(old, more * element_bytes);
	if (grown == NULL)
		return -ENOMEM;
	memcpy(pointer, &grown, sizeof(grown));
	*room = more;
	return 0;
}
