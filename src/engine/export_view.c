/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/export_view.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "trace/session.h"

static int on_row(void *arg, struct replay *replay, const struct row *row)
{
	struct view_job *job = arg;

	job->view.replay = replay;
	return view_row(&job->view, row);
}

static int on_first_row(void *arg, struct replay *replay, const struct row *row)
{
	struct view_job *job = arg;

	job->view.first = replay;
	return job->form->first_row(&job->view, row);
}

static int on_event(void *arg, struct replay *replay, const struct trace_event *event)
{
	struct view_job *job = arg;

	(void)replay;
	return view_event(&job->view, event);
}

static int second_pass(struct view_job *job, struct mscope_error *err)
{
	struct pass_setup setup = {
		.analysis = SESSION_DECOMPOSE, /* rows name owners */
		.known = &job->pass.facts,
		.row = on_row,
		.event = on_event,
		.event_arg = job,
		.elves = job->elves,
		.progress = job->progress,
		.progress_arg = job->progress_arg,
	};
	struct pass second = {0};
	struct run *run = NULL;
	int r = input_reopen(job->input, &run, err);

	setup.run = run;
	if (r == 0)
		r = pass_open(&second, &setup, err);
	if (r == 0) {
		job->view.replay = second.replay;
		r = pass_all(&second, err);
		if (r == 0)
			r = view_end(&job->view, err);
		pass_close(&second);
		job->view.replay = NULL;
	}
	run_close(run);
	return r;
}

int view_export(struct view_job *job, struct mscope_error *err)
{
	const struct trace_header *header = run_header(job->input->run);
	struct pass_setup setup = {
		.run = job->input->run,
		.elves = job->elves,
		.analysis = SESSION_LEAKS | SESSION_DECOMPOSE,
		.facts_directory = job->output,
		.progress = job->progress,
		.progress_arg = job->progress_arg,
	};
	char stem[64], stamp[16];
	int r = project_mkdirs(job->output);

	if (r < 0)
		return error_set(err, r, "cannot create the output directory %s: %s", job->output,
				 strerror(-r));
	job->view = (struct view){.form = job->form};
	if (view_prepare(&job->view) < 0)
		return error_set(err, -ENOMEM, "no memory");
	if (job->form->first_row != NULL) {
		setup.row = on_first_row;
		setup.event_arg = job;
	}
	r = pass_open(&job->pass, &setup, err);
	if (r == 0)
		r = pass_all(&job->pass, err);
	if (r < 0)
		return r;
	project_stamp(header->realtime_ns, header->utc_offset_s, stamp);
	(void)snprintf(stem, sizeof(stem), "msmemscope_%u_%s", header->pid, stamp);
	job->view.replay = job->view.first = job->pass.replay;
	job->view.analyses = &job->pass.analyses;
	r = view_open(&job->view, job->output, stem, err);
	return r == 0 ? second_pass(job, err) : r;
}

void view_export_close(struct view_job *job)
{
	view_close(&job->view);
	pass_close(&job->pass);
}
