/* SPDX-License-Identifier: Apache-2.0 */
#include "views/view.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/text.h"

#define FLUSH_BYTES (256u << 10)

/* Exports of one run into one directory; no person makes as many. */
#define CLASHES_MAX 100000u

#define PART ".part" /* behind the name of a file that is not complete */

const struct view_form *view_get(uint32_t number)
{
	switch (number) {
#define VIEW(number_, symbol, word, table)                                                         \
	case number_:                                                                              \
		return &table;
#include "base/views.def"
#undef VIEW
	default:
		return NULL;
	}
}

/* ---- files ---- */

static void part_path(const struct view_file *file, char out[PROJECT_PATH_MAX + sizeof(PART)])
{
	(void)snprintf(out, PROJECT_PATH_MAX + sizeof(PART), "%s" PART, file->path);
}

static void remove_parts(struct view *view)
{
	char part[PROJECT_PATH_MAX + sizeof(PART)];
	size_t i;

	for (i = 0; i < view->file_count; i++) {
		part_path(&view->files[i], part);
		(void)unlink(part);
		io_close(&view->files[i].fd);
	}
	view->file_count = 0;
}

/* Makes one set of files. -EEXIST: one of them is there. */
static int make_files(struct view *view, const char *directory, const char *stem, uint32_t number)
{
	char part[PROJECT_PATH_MAX + sizeof(PART)], behind[16] = "";
	size_t i;

	if (number > 1)
		(void)snprintf(behind, sizeof(behind), "_%u", number);
	for (i = 0; i < VIEW_FILES_MAX && view->form->suffixes[i] != NULL; i++) {
		struct view_file *file = &view->files[i];

		if (snprintf(file->path, sizeof(file->path), "%s/%s%s%s", directory, stem, behind,
			     view->form->suffixes[i]) >= (int)sizeof(file->path))
			return -ENAMETOOLONG;
		if (access(file->path, F_OK) == 0)
			return -EEXIST;
		part_path(file, part);
		file->fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (file->fd < 0)
			return -errno;
		view->file_count = i + 1;
	}
	return 0;
}

int view_prepare(struct view *view)
{
	size_t i;

	for (i = 0; i < VIEW_FILES_MAX; i++)
		view->files[i].fd = -1;
	view->state = calloc(1, view->form->state_bytes + 1);
	return view->state == NULL ? -ENOMEM : 0;
}

int view_open(struct view *view, const char *directory, const char *stem, struct mscope_error *err)
{
	uint32_t number;
	int r = -EEXIST;

	for (number = 1; r == -EEXIST && number <= CLASHES_MAX; number++) {
		r = make_files(view, directory, stem, number);
		if (r < 0)
			remove_parts(view);
	}
	if (r < 0)
		return error_set(err, r, "cannot write to %s: %s", directory, mscope_status_str(r));
	view->opened = true;
	r = view->form->begin == NULL ? 0 : view->form->begin(view);
	if (r == -ENODATA)
		return error_set(
			err, r, "nothing to export: this format can show none of the run's memory");
	return r < 0 ? error_set(err, r, "cannot write %s: %s", view->files[0].path,
				 mscope_status_str(r))
		     : 0;
}

static int flush_now(struct view_file *file)
{
	return strbuf_failed(&file->text) ? -ENOMEM : io_flush(file->fd, &file->text);
}

int view_flush(struct view_file *file)
{
	if (MSCOPE_UNLIKELY(strbuf_failed(&file->text)))
		return -ENOMEM;
	return file->text.length < FLUSH_BYTES ? 0 : flush_now(file);
}

int view_row(struct view *view, const struct row *row)
{
	return view->form->row == NULL ? 0 : view->form->row(view, row);
}

int view_event(struct view *view, const struct trace_event *event)
{
	return view->form->event == NULL ? 0 : view->form->event(view, event);
}

/* A file with its own name; one of that name that came meanwhile stays. */
static int complete(struct view_file *file)
{
	char part[PROJECT_PATH_MAX + sizeof(PART)];
	int r = flush_now(file);

	if (r == 0 && close(file->fd) < 0)
		r = -errno;
	file->fd = -1;
	part_path(file, part);
	if (r == 0 && renameat2(AT_FDCWD, part, AT_FDCWD, file->path, RENAME_NOREPLACE) < 0 &&
	    (errno == EEXIST || rename(part, file->path) < 0))
		r = -errno;
	return r;
}

int view_end(struct view *view, struct mscope_error *err)
{
	size_t i;
	int r = view->form->end == NULL ? 0 : view->form->end(view);

	for (i = 0; i < view->file_count && r == 0; i++)
		r = complete(&view->files[i]);
	if (r < 0) {
		i = i > 0 ? i - 1 : 0;
		return error_set(err, r, "cannot write %s: %s", view->files[i].path,
				 mscope_status_str(r));
	}
	view->opened = false;
	return 0;
}

void view_close(struct view *view)
{
	size_t i;

	if (view->state != NULL && view->form->fini != NULL)
		view->form->fini(view);
	free(view->state);
	view->state = NULL;
	for (i = 0; i < VIEW_FILES_MAX; i++)
		strbuf_fini(&view->files[i].text);
	if (view->opened)
		remove_parts(view);
	view->opened = false;
}

/* ---- for views ---- */

const struct stack_line *view_lines(const struct view *view, uint32_t stack, uint32_t *out_count)
{
	const struct stack_line *lines;

	if (stack == 0) {
		*out_count = 0;
		return NULL;
	}
	lines = replay_stack_lines(view->first, stack, out_count);
	while (*out_count > 0 && lines->origin == ORIGIN_TOOL) {
		lines++;
		(*out_count)--;
	}
	return *out_count == 0 ? NULL : lines;
}

void view_frame_name(const struct stack_line *line, struct strbuf *out)
{

	if (line->function != NULL) {
		/* An empty name is no frame to some readers. */
		strbuf_add_str(out, line->function[0] == '\0' ? "?" : line->function);
		return;
	}
	if (line->module != NULL) {
		strbuf_add_str(out, text_base_name(line->module));
	} else {
		strbuf_add_char(out, '?');
	}
	strbuf_add_char(out, '+');
	strbuf_add_hex(out, line->offset, 1);
}

void view_pool_name(uint8_t pool, uint32_t device, struct strbuf *out)
{
	char text[16];

	strbuf_add_str(out, pool_event_type(pool));
	if (device == DEVICE_HOST || device == DEVICE_UNKNOWN)
		return;
	device_text(device, text);
	strbuf_addf(out, " device %s", text);
}

const char *view_program(const struct view *view)
{
	const char *exe = run_identity(replay_run(view->first), "exe");

	return exe == NULL ? "" : text_base_name(exe);
}
