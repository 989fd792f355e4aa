/* SPDX-License-Identifier: Apache-2.0 */
/* Rows as files, one for each process: for machines that reach no database. `store add FILE.rows` takes them from there. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "store/store.h"

struct files_store {
	struct store base;
	char *directory;
};

static void close_store(struct store *base)
{
	struct files_store *store = (struct files_store *)base;

	free(store->directory);
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
	struct files_store *store;

	if (!choice->write)
		return error_set(
			err, MSCOPE_E_USAGE,
			"files of rows cannot be queried: add them to a store with msmemscope store add");
	if (mkdir(path, 0750) < 0 && errno != EEXIST)
		return error_set(err, -errno, "cannot make %s: %s", path, strerror(errno));
	store = calloc(1, sizeof(*store));
	if (store == NULL)
		return error_set(err, -ENOMEM, "no memory");
	store->base.ops = &ops;
	(void)snprintf(store->base.name, sizeof(store->base.name), "%s", choice->url);
	store->directory = strdup(path);
	if (store->directory == NULL) {
		close_store(&store->base);
		return error_set(err, -ENOMEM, "no memory");
	}
	*out = &store->base;
	return 0;
}

int store_files_put(struct store *base, const struct store_rows *rows, struct mscope_error *err)
{
	const struct files_store *store = (const struct files_store *)base;
	struct strbuf path = {0}, text = {0};
	int r;

	strbuf_addf(&path, "%s/%016llx.rows", store->directory,
		    (unsigned long long)store_rows_at(rows, STORE_processes, 0, 1)->number);
	store_rows_write(rows, &text);
	r = strbuf_failed(&path) ? -ENOMEM : io_replace(strbuf_str(&path), &text);
	if (r < 0)
		(void)error_set(err, r, "cannot write %s: %s", strbuf_str(&path),
				mscope_status_str(r));
	strbuf_fini(&path);
	strbuf_fini(&text);
	return r;
}
