/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/pass.h"

#include <errno.h>

#include "replay/facts.h"
#include "replay/watches.h"
#include "trace/settings.h"

/* Events between two calls of `progress`. */
#define PROGRESS_EVENTS (UINT64_C(1) << 20)

struct row_filter pass_filter(const struct session *session)
{
	return (struct row_filter){
		.groups = row_filter_groups(session->events, session->level),
		.npus = SETTINGS_NPUS(session),
		.gpus = SETTINGS_GPUS(session),
		.host = session->host,
		.steps = session->step_count > 0 ? session->steps : NULL,
		.step_count = session->step_count,
	};
}

struct replay_choice pass_choice(const struct session *session)
{
	return (struct replay_choice){.some = SETTINGS_NPUS(session) != UINT32_MAX ||
					      SETTINGS_GPUS(session) != UINT32_MAX ||
					      !session->host,
				      .host = session->host != 0,
				      .npus = SETTINGS_NPUS(session),
				      .gpus = SETTINGS_GPUS(session)};
}

struct sink_config pass_sink(const struct session *session, struct project *project)
{
	const struct sink_form *form = form_get(session->format);

	return (struct sink_config){
		.project = project,
		.form = form != NULL ? form : form_get(0),
		.filter = pass_filter(session),
		.c_depth = session->c_depth,
		.python_depth = session->python_depth,
	};
}

/* ---- from the replay to the sink ---- */

/* Whether the files still take something. */
static bool is_writing(const struct pass *pass)
{
	return pass->sink != NULL && pass->sink_error.code == 0;
}

/* What a consumer returns to the replay: no failure of the files when reading goes on without them. */
static int sink_result(struct pass *pass, int r)
{
	if (r < 0 && pass->sink_error.code == 0)
		(void)error_set(&pass->sink_error, r, "%s", mscope_status_str(r));
	return pass->setup.survive_sink ? 0 : r;
}

static int on_row(void *arg, struct replay *replay, const struct row *row)
{
	struct pass *pass = arg;

	int r = pass->setup.row == NULL ? 0 : pass->setup.row(pass->setup.event_arg, replay, row);

	if (r < 0)
		return r;
	if (row->kind == ROW_KERNEL_LAUNCH)
		pass->kernel_rows++;
	if (!is_writing(pass))
		return 0;
	return sink_result(pass, sink_row(pass->sink, replay, row, &pass->sink_error));
}

static int on_dump(void *arg, struct replay *replay, const struct dump *dump)
{
	struct pass *pass = arg;

	(void)replay;
	if (!is_writing(pass))
		return 0;
	return sink_result(pass, sink_dump(pass->sink, dump, &pass->sink_error));
}

static int on_call(void *arg, struct replay *replay, const struct call_row *row)
{
	struct pass *pass = arg;

	if (!is_writing(pass))
		return 0;
	return sink_result(pass, sink_call(pass->sink, replay, row, &pass->sink_error));
}

/* ---- one pass ---- */

int pass_open(struct pass *pass, const struct pass_setup *setup, struct mscope_error *err)
{
	bool formless = setup->sink.form != NULL && setup->sink.form->open == NULL;
	bool writes = setup->sink.project != NULL && !formless;
	struct replay_setup replay = {
		.run = setup->run,
		.elves = setup->elves,
		.root = setup->root != NULL ? setup->root : "",
		.row = writes || setup->row != NULL ? on_row : NULL,
		.dump = writes ? on_dump : NULL,
		.call = writes && !setup->unended ? on_call : NULL,
		.arg = pass,
		.known = setup->known,
		.steps_matter = setup->steps_matter || setup->sink.filter.step_count > 0,
		.oom_top = setup->oom_top,
		.choice = setup->choice,
		.follow_choice = setup->follow_choice,
		.steps = setup->steps,
		.step_count = setup->step_count,
	};
	struct sink_config sink = setup->sink;
	int r = 0;

	*pass = (struct pass){.setup = *setup};
	pass->setup.facts_directory = pass->setup.sink.spool = NULL;
	/* Facts are for rows. */
	if (setup->facts_directory != NULL && !formless) {
		r = facts_init(&pass->facts, setup->facts_directory, err);
		if (r == 0)
			replay.facts = &pass->facts;
		else if (setup->survive_sink)
			r = 0; /* rows then lack what came late */
	}
	if (r == 0) {
		r = replay_new(&replay, &pass->replay);
		if (r < 0)
			(void)error_set(err, r, "no memory");
	}
	if (r == 0) {
		(setup->only_writes ? analyses_init_owners : analyses_init)(
			&pass->analyses, setup->analysis, setup->follow_analysis, pass->replay);
		analyses_settings(&pass->analyses, &setup->settings, setup->fixed_settings);
		sink.dry = run_dry(setup->run);
		if (writes)
			r = sink_open(&sink, &pass->sink, err);
	}
	if (r < 0)
		pass_close(pass);
	return r;
}

void pass_close(struct pass *pass)
{
	if (pass->setup.run == NULL)
		return; /* never opened */
	(void)sink_close(pass->sink, pass->setup.survive_sink, NULL);
	analyses_fini(&pass->analyses);
	replay_free(pass->replay);
	facts_fini(&pass->facts);
	*pass = (struct pass){0};
}

int pass_read(struct pass *pass, uint64_t most, uint64_t *out_count)
{
	struct trace_event event;
	uint64_t count = 0;
	int r = 0;

	while (r == 0 && count < most && run_next(pass->setup.run, &event)) {
		count++;
		r = replay_event(pass->replay, &event);
		if (r == 0 && pass->setup.event != NULL)
			r = pass->setup.event(pass->setup.event_arg, pass->replay, &event);
	}
	*out_count = count;
	return r;
}

int pass_end(struct pass *pass)
{
	int r = 0;

	/* --insight-close-live: a viewer that loses blocks without a free gets one, marked as ours. */
	if (pass->setup.close_live && !pass->setup.unended && is_writing(pass))
		r = replay_close_live(pass->replay);
	if (r == 0)
		r = replay_end(pass->replay);
	analyses_end(&pass->analyses);
	return r;
}

void pass_flush(struct pass *pass)
{
	if (is_writing(pass))
		(void)sink_result(pass, sink_flush(pass->sink, &pass->sink_error));
}

void pass_sync(struct pass *pass)
{
	if (is_writing(pass))
		(void)sink_result(pass, sink_publish(pass->sink, &pass->sink_error));
}

void pass_secure(struct pass *pass)
{
	if (is_writing(pass))
		(void)sink_result(pass, sink_secure(pass->sink, &pass->sink_error));
}

int pass_close_sink(struct pass *pass, bool keep, struct mscope_error *err)
{
	int r = sink_close(pass->sink, keep, err);

	pass->sink = NULL;
	return r;
}

/* Everything up to the end of the trace. */
static int read_all(struct pass *pass)
{
	uint64_t count = 0, taken = 0;
	int r = run_poll(pass->setup.run, 0, true);

	do {
		if (r == 0)
			r = pass_read(pass, PROGRESS_EVENTS, &taken);
		count += taken;
		if (r == 0 && taken == PROGRESS_EVENTS && pass->setup.progress != NULL &&
		    pass->setup.progress(pass->setup.progress_arg, count))
			return -EINTR;
	} while (r == 0 && taken == PROGRESS_EVENTS);
	return r == 0 ? pass_end(pass) : r;
}

int pass_all(struct pass *pass, struct mscope_error *err)
{
	int r = read_all(pass), closed;

	closed = pass_close_sink(pass, r == 0, r == 0 ? err : NULL);
	if (pass->sink_error.code != 0)
		return error_set(err, r, "%s", pass->sink_error.message);
	if (r < 0)
		return error_set(err, r, "cannot read more of the trace: %s", mscope_status_str(r));
	if (pass->facts.records.full)
		return error_set(err, -ENOSPC, "cannot keep later corrections of rows: %s",
				 mscope_status_str(-ENOSPC));
	return closed;
}

int pass_again(const struct pass *first, struct run *run, bool replace, struct mscope_error *err)
{
	struct pass_setup setup = first->setup;
	struct pass second;
	int r;

	setup.run = run;
	setup.root = NULL;
	setup.sink.replace = replace;
	setup.sink.resume = false;
	setup.survive_sink = false;
	setup.known = &first->facts;
	setup.only_writes = true;
	setup.event = NULL;
	setup.row = NULL;
	r = pass_open(&second, &setup, err);
	if (r == 0) {
		r = pass_all(&second, err);
		pass_close(&second);
	}
	return r;
}
