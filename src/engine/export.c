/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/export.h"

#include <string.h>

#include "base/files.h"
#include "engine/what_if_finding.h"
#include "sink/config.h"
#include "sink/report.h"
#include "trace/settings.h"

/* These two learn of blocks whose rows have passed, in nearly every run that they are asked about. */
#define LATE_ANALYSES (SESSION_DECOMPOSE | SESSION_INEFFICIENT)

/* Writes rows with what became known after them; those that were written before are written again. */
static int write_again(const struct export_job *job, struct mscope_error *err)
{
	bool written = job->project->made;
	struct run *run = NULL;
	int r = input_reopen(job->input, &run, err);

	if (r == 0)
		r = pass_again(&job->pass, run, written, err);
	run_close(run);
	return r;
}

static int write_all(struct export_job *job, struct mscope_error *err)
{
	struct pass_setup setup = {
		.run = job->input->run,
		.elves = job->elves,
		.analysis = job->session->analysis,
		.settings = settings_of_session(job->session),
		.fixed_settings = job->fixed_settings,
		.follow_analysis = job->follow_analysis,
		.sink = pass_sink(job->session, job->project),
		.choice = pass_choice(job->session),
		.follow_choice = job->follow_rows,
		.oom_top = job->session->analysis & SESSION_OOM ? job->session->oom_top : 0,
		.close_live = job->session->insight_close_live,
		.facts_directory = job->project->output,
		.progress = job->progress,
		.progress_arg = job->progress_arg,
	};
	struct report report = {.from_dump = job->input->imported, .analyses = &job->pass.analyses};
	struct what_if_asker what_if;
	bool learns = (job->session->analysis & LATE_ANALYSES) != 0;
	int r;

	setup.sink.follow_rows = job->follow_rows;
	setup.sink.follow_stacks = job->follow_stacks;
	if (learns)
		setup.sink.project = NULL; /* nothing is written twice */
	r = pass_open(&job->pass, &setup, err);
	if (r == 0)
		r = pass_all(&job->pass, err);
	job->pass.setup.sink.project = job->project;
	if (r == 0 && (learns || (job->pass.facts.changed && job->project->made)))
		r = write_again(job, err);
	report.replay = job->pass.replay;
	what_if_of_input(&report, &what_if, job->input);
	if (r == 0)
		r = report_write(&report, job->project, err);
	if (r == 0)
		r = config_write(job->session, job->project, err);
	if (r == 0)
		project_settle(job->project, replay_vendor(job->pass.replay));
	return r;
}

int export_all(struct export_job *job, struct mscope_error *err)
{
	struct project *project = job->project;
	int r = project_mkdirs(project->output);

	if (r < 0)
		return error_set(err, r, "cannot create the output directory %s: %s",
				 project->output, strerror(-r));
	project->exclusive = true;
	input_stem(job->input, project->exported_from);
	r = write_all(job, err);
	/* Rows were asked for and there are none: what is left says nothing that the run itself does not. */
	if (project->made && (r < 0 || (project->dumps == 0 && job->session->events != 0))) {
		(void)files_remove(project->path);
		project->made = false;
	}
	return r;
}

void export_close(struct export_job *job)
{
	pass_close(&job->pass);
}
