/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A finished run as the file of another viewer: the two passes that views/view.h tells of. The view is of the whole trace, whatever
 * its launch was asked to write. The same input gives the same bytes.
 */
#ifndef MSCOPE_ENGINE_EXPORT_VIEW_H
#define MSCOPE_ENGINE_EXPORT_VIEW_H

#include "engine/input.h"
#include "engine/pass.h"
#include "views/view.h"

/* The caller fills all but `pass` and `view`; pointers are borrowed until view_export_close(). */
struct view_job {
	const struct input *input; /* open */
	const struct view_form *form;
	const char *output; /* directory, absolute */
	struct elf_cache *elves;
	bool (*progress)(void *arg, uint64_t events); /* as in struct pass_setup */
	void *progress_arg;
	struct pass pass; /* the first one; after view_export() at the end of the run */
	struct view view; /* has the paths of the files */
};

/* Writes the files; after a failure none of them is left. Needs view_export_close() in either case. -EINTR: stopped. */
int view_export(struct view_job *job, struct mscope_error *err);
void view_export_close(struct view_job *job);

#endif
