/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/export.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/files.h"
#include "sink/config.h"
#include "sink/report.h"

#define REPORT_NAME "report.txt"

/* Events between two calls of `progress`. */
#define PROGRESS_EVENTS (UINT64_C(1) << 20)

struct sink_config export_settings(const struct session *session, struct project *project)
{
	struct row_filter filter = {
		.devices = session->devices,
		.all_devices = session->all_devices,
		.host = session->host,
		.steps = session->step_count > 0 ? session->steps : NULL,
		.step_count = session->step_count,
	};
	const struct sink_form *form = form_get(session->format);

	filter.groups = row_filter_groups(session->events, session->level);
	return (struct sink_config){
		.project = project,
		.form = form != NULL ? form : form_get(0),
		.filter = filter,
		.c_depth = session->c_depth,
		.python_depth = session->python_depth,
	};
}

static int on_row(void *arg, struct replay *replay, const struct row *row)
{
	struct export_pass *pass = arg;

	if (row->kind == ROW_KERNEL_LAUNCH)
		pass->kernel_rows++;
	return sink_row(pass->sink, replay, row, &pass->sink_error);
}

static int on_dump(void *arg, struct replay *replay, const struct dump *dump)
{
	struct export_pass *pass = arg;

	(void)replay;
	return sink_dump(pass->sink, dump, &pass->sink_error);
}

static int on_call(void *arg, const struct call_row *row)
{
	struct export_pass *pass = arg;

	return sink_call(pass->sink, &pass->replay, row, &pass->sink_error);
}

int export_open(struct export_pass *pass, const char *raw_path, const char *pack_path,
		struct mscope_error *err)
{
	int r;

	pass->raw_path = raw_path;
	pass->pack_path = pack_path;
	r = run_open(raw_path, pack_path, false, &pass->run, err);
	if (r < 0)
		return r;
	replay_init(&pass->replay, pass->run, pass->elves, "");
	pass->replay.row = on_row;
	pass->replay.dump = on_dump;
	pass->replay.row_arg = pass;
	pass->replay.calls.row = on_call;
	pass->replay.calls.row_arg = pass;
	pass->replay.facts = pass->facts;
	pass->replay.known = pass->known;
	analyses_init(&pass->analyses, pass->session->analysis, pass->follow_analysis,
		      &pass->replay);
	return 0;
}

static int read_all(struct export_pass *pass)
{
	struct trace_event event;
	uint64_t count = 0;
	int r = run_poll(pass->run, 0, true);

	while (r == 0 && run_next(pass->run, &event)) {
		r = replay_event(&pass->replay, &event);
		if (++count % PROGRESS_EVENTS == 0 && pass->progress != NULL &&
		    pass->progress(pass->progress_arg, count))
			return -EINTR;
	}
	/* --insight-close-live: a viewer that loses blocks without a free gets one, marked as ours. */
	if (r == 0 && pass->session->insight_close_live)
		r = replay_close_live(&pass->replay);
	return r == 0 ? replay_end(&pass->replay) : r;
}

int export_write(struct export_pass *pass, struct mscope_error *err)
{
	struct sink_config config = export_settings(pass->session, pass->project);
	int closed, r;

	config.replace = pass->replace;
	config.follow_rows = pass->follow_rows;
	config.follow_stacks = pass->follow_stacks;
	pass->replay.steps_matter = pass->session->step_count > 0;
	r = sink_open(&config, &pass->sink, err);
	if (r < 0)
		return r;
	r = read_all(pass);
	closed = sink_close(pass->sink, r == 0, r == 0 ? err : NULL);
	pass->sink = NULL;
	if (pass->sink_error.code != 0)
		return error_set(err, r, "%s", pass->sink_error.message);
	if (r < 0)
		return error_set(err, r, "cannot go on reading the trace: %s",
				 mscope_status_str(r));
	return closed;
}

void export_close(struct export_pass *pass)
{
	if (pass->run != NULL) {
		analyses_fini(&pass->analyses);
		replay_fini(&pass->replay);
	}
	run_close(pass->run);
	pass->run = NULL;
}

int export_report(struct project *project, struct replay *replay, struct analyses *analyses,
		  const struct run *run, struct mscope_error *err)
{
	struct report report = {.replay = replay, .run = run, .detail = true, .analyses = analyses};
	struct strbuf text = {0};
	int r;

	r = project_make(project, replay_vendor(replay), err);
	if (r < 0)
		return r;
	report_text(&report, &text);
	r = project_write(project, REPORT_NAME, &text, 0600, err);
	strbuf_fini(&text);
	return r;
}

/* Rows that were written before a fact about them was known are written again, with it. */
static int write_again(const struct export_pass *first, const struct facts *facts,
		       struct mscope_error *err)
{
	struct export_pass second = {
		.session = first->session,
		.project = first->project,
		.elves = first->elves,
		.known = facts,
		.replace = true,
		.follow_rows = first->follow_rows,
		.follow_analysis = first->follow_analysis,
		.follow_stacks = first->follow_stacks,
		.progress = first->progress,
		.progress_arg = first->progress_arg,
	};
	int r = export_open(&second, first->raw_path, first->pack_path, err);

	if (r == 0)
		r = export_write(&second, err);
	export_close(&second);
	return r;
}

int export_all(struct export_pass *pass, struct mscope_error *err)
{
	struct project *project = pass->project;
	struct facts facts = {.fd = -1};
	int r = project_mkdirs(project->output);

	if (r < 0)
		return error_set(err, r, "cannot create the output directory %s: %s",
				 project->output, strerror(-r));
	project->exclusive = true;
	r = facts_init(&facts, project->output, err);
	pass->replay.facts = &facts;
	if (r == 0)
		r = export_write(pass, err);
	if (r == 0 && facts.changed && project->made)
		r = write_again(pass, &facts, err);
	if (r == 0)
		r = export_report(project, &pass->replay, &pass->analyses, pass->run, err);
	if (r == 0)
		r = config_write(pass->session, project, err);
	if (r < 0 && project->made) {
		(void)files_remove(project->path);
		project->made = false;
	}
	pass->replay.facts = NULL;
	facts_fini(&facts);
	return r;
}
