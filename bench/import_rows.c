/* SPDX-License-Identifier: Apache-2.0 */
/* import_rows FILE...: imports each dump file as the command does, and nothing else. Says as JSON how many rows there were. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "import/import.h"

int main(int argc, char **argv)
{
	unsigned long long rows = 0;
	int i, fd;

	for (i = 1; i < argc; i++) {
		const char *path = argv[i];
		struct mscope_error err = {0};
		struct import import = {0};

		if (import_dumps(&path, 1, path, &import, &fd, &err) < 0) {
			(void)fprintf(stderr, "import_rows: %s\n", err.message);
			return EXIT_FAILURE;
		}
		rows += import.reading.rows;
		(void)close(fd);
	}
	(void)printf("{\"rows\": %llu}\n", rows);
	return EXIT_SUCCESS;
}
