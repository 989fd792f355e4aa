/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a Python line table: reading stays inside it, ends, and gives a line for every offset.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "replay/python.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct code code = {.first_line = 1000};
	struct codes codes = {0};
	uint32_t index, offset;
	uint8_t *table;

	if (size == 0)
		return 0;
	/* A block of its own size, so that a read behind it is seen. */
	table = malloc(size - 1 + (size == 1));
	if (table == NULL)
		abort();
	memcpy(table, data + 1, size - 1);
	code.minor = 9 + data[0] % 6;
	code.table = table;
	code.table_bytes = (uint32_t)(size - 1);
	for (offset = 0; offset < 4096; offset += 2)
		(void)code_line(&code, offset);
	(void)code_line(&code, CODE_NOT_BEGUN);
	(void)code_line(&code, CODE_NOT_BEGUN - 1);
	if (codes_intern(&codes, &code, &index) == 0 && codes_text(&codes, index, 2)[0] != '(')
		abort();
	codes_fini(&codes);
	free(table);
	return 0;
}
