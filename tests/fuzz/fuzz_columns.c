/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as records to be split into columns, and as columns to be joined. What is split must come back the same, and what
 * is joined must not reach beyond its buffers.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "trace/columns.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void split(const uint8_t *records, size_t bytes)
{
	uint8_t *columns = malloc(columns_room(bytes)), *back = malloc(bytes + 1);
	size_t length;

	if (columns == NULL || back == NULL)
		abort();
	length = columns_split(records, bytes, columns);
	if (length > columns_room(bytes))
		abort();
	if (length > 0 &&
	    (!columns_join(columns, length, back, bytes) || memcmp(records, back, bytes) != 0))
		abort();
	free(back);
	free(columns);
}

/* The first two bytes say how many bytes are to come out. */
static void join(const uint8_t *columns, size_t bytes)
{
	size_t wanted = bytes < 2 ? 0 : (size_t)(columns[0] | columns[1] << 8);
	uint8_t *out = malloc(wanted + !wanted);

	if (out == NULL)
		abort();
	if (bytes >= 2)
		(void)columns_join(columns + 2, bytes - 2, out, wanted);
	free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	if (data[0] & 1)
		split(data + 1, size - 1);
	else
		join(data + 1, size - 1);
	return 0;
}
