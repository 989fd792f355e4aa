/* SPDX-License-Identifier: Apache-2.0 */
/* Rows as files, one for each process: for machines that reach no database. `store add FILE.rows` takes them from there. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "store/store.h"

static void close_store(struct store *store)
{
	free(store);
}

static const struct store_ops ops = {.close = close_store};

bool store_is_files(const struct store *store)
{
	return store->ops == &ops;
}

int store_files_open(const struct store_choice *choice, struct store **out,
		     struct mscope_error *err)
{
	const char *path = choice->url + strlen("rows:");
	struct store *store;

	if (!choice->write)
		return error_set(err, MSCOPE_E_USAGE,
				 "files of rows cannot be asked: put them into a store with "
				 "msmemscope store add");
	if (mkdir(path, 0750) < 0 && errno != EEXIST)
		return error_set(err, -errno, "cannot make %s: %s", path, strerror(errno));
	store = calloc(1, sizeof(*store));
	if (store == NULL)
		return error_set(err, -ENOMEM, "no memory");
	store->ops = &ops;
	(void)snprintf(store->name, sizeof(store->name), "%s", choice->url);
	*out = store;
	return 0;
}

/* Appears when it is complete. */
int store_files_put(struct store *store, const struct store_rows *rows, struct mscope_error *err)
{
	char path[512], temporary[520];
	struct strbuf text = {0};
	int fd, r;

	(void)snprintf(path, sizeof(path), "%s/%016llx.rows", store->name + strlen("rows:"),
		       (unsigned long long)store_rows_at(rows, STORE_processes, 0, 1)->number);
	(void)snprintf(temporary, sizeof(temporary), "%s.new", path);
	store_rows_write(rows, &text);
	fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	r = fd < 0 ? -errno : io_flush(fd, &text);
	if (fd >= 0 && close(fd) < 0 && r == 0)
		r = -errno;
	if (r == 0 && rename(temporary, path) < 0)
		r = -errno;
	strbuf_fini(&text);
	return r < 0 ? error_set(err, r, "cannot write %s: %s", path, mscope_status_str(r)) : 0;
}
