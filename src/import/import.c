/* SPDX-License-Identifier: Apache-2.0 */
#include "import/import.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/vendors.h"
#include "import/torch_snapshot.h"
#include "trace/pack.h"

/*
 * An empty file of ours without a name, where there is room for more than memory holds; nothing is left behind, however we end. The
 * path stands for the descriptor, which is returned.
 */
static int make_temporary(char path[PATH_MAX], struct mscope_error *err)
{
	const char *places[] = {getenv("TMPDIR"), "/var/tmp", "/tmp"};
	size_t i;
	int fd = -1;

	for (i = 0; i < MSCOPE_COUNT(places) && fd < 0; i++) {
		if (places[i] == NULL || places[i][0] != '/')
			continue;
		(void)snprintf(path, PATH_MAX, "%s/msmemscope-import-XXXXXX", places[i]);
		fd = open(places[i], O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
		if (fd >= 0)
			break;
		/* File systems without such files. */
		fd = mkostemp(path, O_CLOEXEC);
		if (fd >= 0)
			(void)unlink(path);
	}
	if (fd < 0)
		return error_set(err, -errno, "cannot make a temporary file %s: %s", path,
				 strerror(errno));
	(void)snprintf(path, PATH_MAX, PACK_UNNAMED "%d", fd);
	return fd;
}

static bool is_db(const char *path)
{
	static const char magic[] = "SQLite format 3";
	char start[sizeof(magic)];
	int fd = io_open_file(path, O_RDONLY, NULL);
	bool db;

	if (fd < 0)
		return false;
	db = read(fd, start, sizeof(start)) == (ssize_t)sizeof(start) &&
	     memcmp(start, magic, sizeof(magic)) == 0;
	(void)close(fd);
	return db;
}

/* Rows do not say whose device they are of; the name of their project does. Files of the original are of NPUs. */
static uint8_t vendor_of(const char *path)
{
	const char *at = strstr(path, "_cuda");

	return at != NULL && (at[5] == '/' || at[5] == '_') ? VENDOR_CUDA : VENDOR_ASCEND;
}

int import_dumps(const char *const *paths, size_t count, const char *name, struct import *import,
		 int *out_fd, struct mscope_error *err)
{
	struct importer importer;
	char path[PATH_MAX];
	size_t i;
	int fd = -1, r = 0;

	if (count == 1 && snapshot_probe(paths[0])) {
		fd = make_temporary(path, err);
		r = fd < 0 ? fd : snapshot_import(paths[0], path, import, out_fd, err);
		io_close(&fd);
		return r;
	}
	importer_init(&importer);
	importer.one_process = import->one_process;
	importer.only_pid = import->pid;
	importer.vendor = vendor_of(count == 0 ? "" : paths[0]);
	for (i = 0; i < count && r == 0; i++) {
		importer.file = (uint32_t)i;
		r = is_db(paths[i]) ? dump_read_db(paths[i], &importer, &import->reading, err)
				    : dump_read_csv(paths[i], &importer, &import->reading, err);
	}
	if (r == 0 && importer.pid_count > 1 && !import->processes && !import->one_process)
		r = error_set(
			err, MSCOPE_E_LIMIT,
			"%s has rows of several processes (%u, %u, ...); give the files of one",
			name, importer.pids[0], importer.pids[1]);
	if (r == 0 && importer.row_count == 0)
		r = error_set(err,
			      import->reading.bad_rows > 0 ? MSCOPE_E_DAMAGED : MSCOPE_E_ABSENT,
			      "%s has no rows%s%s", name,
			      import->reading.bad_rows > 0 ? " that can be read; " : "",
			      import->reading.first_bad);
	if (r == 0) {
		fd = make_temporary(path, err);
		r = fd < 0 ? fd : importer_write(&importer, path, out_fd, err);
		io_close(&fd);
	}
	import->unknown = importer.unknown; /* also rows that no record was made of */
	memcpy(import->pids, importer.pids, sizeof(import->pids));
	import->pid_count = importer.pid_count;
	import->row_ids = importer.row_ids;
	import->row_id_count = importer.row_id_count;
	importer.row_ids = NULL;
	importer_fini(&importer);
	return r;
}

void import_fini(struct import *import)
{
	free(import->row_ids);
	import->row_ids = NULL;
	import->row_id_count = 0;
}

bool import_is_damaged(const struct import *import)
{
	return import->reading.bad_rows > 0 || import->reading.cut;
}
