/* SPDX-License-Identifier: Apache-2.0 */
/*
 * import_dump TRACE FILE...: the dump files of one process as a packed trace, which otherwise is temporary: so that a test can
 * export it again and see whether the rows come out as they went in. No program to trace.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "import/dump.h"

static int give_up(const char *what)
{
	(void)fprintf(stderr, "import_dump: %s\n", what);
	return EXIT_FAILURE;
}

int main(int argc, char **argv)
{
	struct mscope_error err = {0};
	struct dump_reading reading = {0};
	struct importer importer;
	char buffer[65536];
	ssize_t got;
	int i, in, out, r = 0;

	if (argc < 3)
		return give_up("TRACE FILE...");
	importer_init(&importer);
	for (i = 2; i < argc && r == 0; i++) {
		importer.file = (uint32_t)i;
		r = dump_read_csv(argv[i], &importer, &reading, &err);
	}
	out = open(argv[1], O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (r == 0 && out >= 0)
		r = importer_write(&importer, argv[1], &in, &err);
	if (r < 0 || out < 0)
		return give_up(r < 0 ? err.message : "the trace is there already");
	if (reading.bad_rows > 0)
		return give_up(reading.first_bad);
	/* The name is gone by now; the file has to come back under it. */
	(void)close(out);
	out = open(argv[1], O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	(void)lseek(in, 0, SEEK_SET);
	while ((got = read(in, buffer, sizeof(buffer))) > 0) {
		if (write(out, buffer, (size_t)got) != got)
			return give_up("cannot write the trace");
	}
	importer_fini(&importer);
	return got == 0 && close(out) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
