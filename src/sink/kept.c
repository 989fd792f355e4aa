/* SPDX-License-Identifier: Apache-2.0 */
#include "sink/kept.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"

#define RECENT_BYTES (256u << 10)
#define NO_NAME	     UINT64_MAX

/* Followed by the name and its NUL, where there is one. Its pointers are set again when it is visited. */
struct kept_row {
	struct row row;
	struct context context;
	uint64_t name_bytes;
};

/* The file has what `recent` was each time that it was full, behind its length. */
static int spool(struct kept_rows *kept, const char *directory, struct mscope_error *err)
{
	uint64_t bytes = kept->recent.length;
	int r;

	if (kept->spooled == 0) {
		kept->fd = io_unnamed(directory);
		if (kept->fd < 0)
			return error_set(err, kept->fd, "cannot create a file in %s: %s", directory,
					 strerror(-kept->fd));
	}
	r = io_write(kept->fd, &bytes, sizeof(bytes));
	if (r == 0)
		r = io_write(kept->fd, kept->recent.data, bytes);
	if (r < 0) {
		if (kept->spooled == 0)
			(void)close(kept->fd);
		return error_set(err, r, "cannot keep rows in %s: %s", directory, strerror(-r));
	}
	kept->spooled += sizeof(bytes) + bytes;
	strbuf_reset(&kept->recent);
	return 0;
}

int kept_add(struct kept_rows *kept, const struct row *row, const char *directory,
	     struct mscope_error *err)
{
	struct kept_row record = {.row = *row,
				  .context = *row->context,
				  .name_bytes = row->name == NULL ? NO_NAME : strlen(row->name)};

	strbuf_add(&kept->recent, &record, sizeof(record));
	if (row->name != NULL)
		strbuf_add(&kept->recent, row->name, record.name_bytes + 1);
	if (strbuf_failed(&kept->recent))
		return error_set(err, -ENOMEM, "no memory");
	kept->count++;
	return kept->recent.length < RECENT_BYTES ? 0 : spool(kept, directory, err);
}

static int each(const char *at, size_t bytes, kept_visit *visit, void *arg,
		struct mscope_error *err)
{
	const char *end = at + bytes;
	int r = 0;

	while (r == 0 && at < end) {
		struct kept_row record;

		memcpy(&record, at, sizeof(record));
		at += sizeof(record);
		record.row.context = &record.context;
		record.row.name = record.name_bytes == NO_NAME ? NULL : at;
		if (record.name_bytes != NO_NAME)
			at += record.name_bytes + 1;
		r = visit(arg, &record.row, err);
	}
	return r;
}

int kept_each(const struct kept_rows *kept, kept_visit *visit, void *arg, struct mscope_error *err)
{
	struct strbuf block = {0};
	uint64_t at = 0, bytes;
	int r = 0;

	while (r == 0 && at < kept->spooled) {
		char *room;

		strbuf_reset(&block);
		r = io_read_at(kept->fd, &bytes, sizeof(bytes), at);
		room = r == 0 ? strbuf_room(&block, bytes) : NULL;
		if (r == 0)
			r = room == NULL ? -ENOMEM
					 : io_read_at(kept->fd, room, bytes, at + sizeof(bytes));
		if (r < 0)
			(void)error_set(err, r, "cannot read back rows: %s", mscope_status_str(r));
		else
			r = each(room, bytes, visit, arg, err);
		at += sizeof(bytes) + bytes;
	}
	strbuf_fini(&block);
	return r == 0 && kept->recent.length > 0
		       ? each(kept->recent.data, kept->recent.length, visit, arg, err)
		       : r;
}

void kept_fini(struct kept_rows *kept)
{
	if (kept->spooled > 0)
		(void)close(kept->fd);
	strbuf_fini(&kept->recent);
	*kept = (struct kept_rows){0};
}
