/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a finished trace to files: run -> replay -> sink, without a program and without anybody writing. `msmemscope export`
 * makes a project directory of its own this way; a pipeline goes the same way when files that it wrote while the program ran
 * have to be written again.
 *
 * One pass is enough unless a fact comes that rows already written do not show (replay/facts.h); a second one then writes
 * beside the first and replaces it. The same trace and session give the same bytes.
 */
#ifndef MSCOPE_ENGINE_EXPORT_H
#define MSCOPE_ENGINE_EXPORT_H

#include <stdbool.h>

#include "analysis/analyses.h"
#include "replay/replay.h"
#include "sink/project.h"
#include "sink/sink.h"
#include "trace/session.h"

/* What a session asks to be written, and how, into `project`. Both are borrowed. */
struct sink_config export_settings(const struct session *session, struct project *project);

/* One pass over a trace. The caller fills the first part, export_open() and export_write() the rest. */
struct export_pass {
	const struct session *session; /* what is written; borrowed */
	struct project *project;       /* where; borrowed */
	struct elf_cache *elves;       /* borrowed */
	struct facts *facts;	       /* facts found are put here, NULL: nowhere; borrowed */
	const struct facts *known; /* facts of an earlier pass, NULL: there was none; borrowed */
	bool replace;		   /* the files of an earlier pass are replaced */
	bool follow_rows, follow_stacks; /* as in struct sink_config */
	bool follow_analysis; /* the program's own choice of analyses takes the place of the session's; set it before export_open() */
	/* Called now and then with the number of events done; true: stop. May be NULL. */
	bool (*progress)(void *arg, uint64_t events);
	void *progress_arg;

	const char *raw_path, *pack_path; /* as given to export_open() */
	struct run *run;
	struct replay *replay; /* after export_write() at the end of the run */
	struct analyses analyses;
	struct sink *sink;
	struct mscope_error sink_error;
	uint64_t kernel_rows; /* launches that the trace has names for */
};

/* Opens what there is of the run; paths as of run_open(), borrowed. Needs export_close() also after a failure. */
int export_open(struct export_pass *pass, const char *raw_path, const char *pack_path,
		struct mscope_error *err);

/* Reads it to its end and writes the files; without success, those of a replacing pass are removed. -EINTR: stopped. */
int export_write(struct export_pass *pass, struct mscope_error *err);
void export_close(struct export_pass *pass);

/*
 * After export_open(): everything. One pass or two into a directory of its own, the report and the settings; after a failure
 * nothing of it is left. `facts` and `known` are looked after here.
 */
int export_all(struct export_pass *pass, struct mscope_error *err);

/* Makes the directory of a run that wrote no row, and puts the report into it. */
int export_report(struct project *project, struct replay *replay, struct analyses *analyses,
		  const struct run *run, struct mscope_error *err);

#endif
