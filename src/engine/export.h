/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of a finished run once more, into a project directory of their own: dump files, report and settings. One pass is
 * enough unless a fact comes that rows already written do not show (replay/facts.h); a second one then writes beside the first
 * and replaces it. The same input and session produce the same bytes.
 */
#ifndef MSCOPE_ENGINE_EXPORT_H
#define MSCOPE_ENGINE_EXPORT_H

#include "engine/input.h"
#include "engine/pass.h"

/* The caller fills all but `pass`; pointers are borrowed until export_close(). */
struct export_job {
	const struct input *input;     /* open */
	const struct session *session; /* what is written */
	struct project *project;       /* where */
	struct elf_cache *elves;
	bool follow_rows, follow_stacks; /* as in struct sink_config */
	bool fixed_settings;		 /* as in struct pass_setup */
	bool follow_analysis;		 /* as in struct pass_setup, like what follows */
	bool (*progress)(void *arg, uint64_t events);
	void *progress_arg;
	struct pass pass; /* after export_all() at the end of the run */
};

/*
 * Writes everything; nothing of it is left after a failure, or where rows were asked for and there are none (the project is not made
 * then). Needs export_close() in either case. -EINTR: stopped.
 */
int export_all(struct export_job *job, struct mscope_error *err);
void export_close(struct export_job *job);

#endif
