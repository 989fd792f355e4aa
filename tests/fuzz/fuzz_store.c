/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a file of rows. What can be read must come back the same from what is written of it. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "store/store_rows.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_and_read(const struct store_rows *rows)
{
	struct strbuf once = {0}, twice = {0};
	struct store_rows again = {0};

	store_rows_write(rows, &once);
	if (store_rows_read(&again, strbuf_str(&once), once.length, NULL) < 0)
		abort();
	store_rows_write(&again, &twice);
	if (once.length != twice.length || memcmp(once.data, twice.data, once.length) != 0)
		abort();
	store_rows_fini(&again);
	strbuf_fini(&once);
	strbuf_fini(&twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct store_rows rows = {0};

	if (store_rows_read(&rows, (const char *)data, size, NULL) == 0)
		write_and_read(&rows);
	store_rows_fini(&rows);
	return 0;
}
