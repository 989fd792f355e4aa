/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model of a run that goes on: read beside its engine, as long as that works on it. A child works out what is found so far, with the
 * state of that moment: to read names of code may take seconds, and the page asks for other things meanwhile.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "analysis/leaks.h"
#include "base/clock.h"
#include "engine/barrier.h"
#include "engine/running.h"
#include "viewer/answers.h"

#define POLL_NS	       UINT64_C(300000000)
#define JUDGE_NS       UINT64_C(2000000000)
#define JUDGE_SHARE    4u /* the child may work a fifth of the time */
#define FOUND_BYTES    (1u << 20)
#define FORECAST_BYTES (1u << 16)

/* In memory that a child shares with us. */
struct model_found {
	bool judged, clean;
	char leaks[FOUND_BYTES]; /* a JSON array; "": too long */
	char forecasts[FORECAST_BYTES];
};

int model_live_open(struct model *model, const char *word, struct mscope_error *err)
{
	struct running traces = {0};
	int r = 0;

	running_traces(word, &traces);
	if (traces.count == 1) {
		r = live_run_open(&model->live, traces.all[0], err);
		model->is_live = r == 0;
		model->input.run = model->live.run;
		r = r == 0 ? 1 : r;
	}
	running_fini(&traces);
	return r;
}

void model_live_close(struct model *model)
{
	if (model->judge > 0) {
		(void)kill(model->judge, SIGKILL);
		(void)waitpid(model->judge, NULL, 0);
	}
	if (model->asked != NULL)
		(void)munmap(model->asked, sizeof(*model->asked));
	free(model->found);
	if (model->is_live) {
		model->input.run = NULL; /* it is live.run */
		live_run_close(&model->live);
	}
}

int model_live_poll(struct model *model)
{
	uint64_t now = clock_monotonic_ns();
	bool barrier = barrier_all();

	model->polled_ns = now;
	return live_run_poll(&model->live, barrier && run_has_barrier(model->live.run) ? now : 0);
}

bool model_live_is_due(const struct model *model)
{
	return clock_monotonic_ns() - model->polled_ns > POLL_NS;
}

/* ---- findings ---- */

/* A text that fits; else it is empty. */
static void copy_text(char *to, size_t bytes, const struct strbuf *text)
{
	if (!strbuf_failed(text) && text->length < bytes)
		memcpy(to, strbuf_str(text), text->length + 1);
}

/* In the child. */
static void judge(struct model *model, struct model_found *to)
{
	struct findings findings = {0};
	struct strbuf text = {0};
	struct json json;

	analyses_judge(&model->pass.analyses, model->pass.replay, ANSWER_LEAKS, &findings);
	json_begin(&json, &text);
	(void)answer_leaks(model, &findings, NULL, ANSWER_LEAKS, &json);
	to->judged = findings.judgement.judged;
	to->clean = findings.judgement.clean;
	copy_text(to->leaks, sizeof(to->leaks), &text);
	strbuf_reset(&text);
	json_begin(&json, &text);
	answer_forecasts(&findings, NULL, &json);
	copy_text(to->forecasts, sizeof(to->forecasts), &text);
}

static void take_answer(struct model *model)
{
	int status = 0;

	if (model->judge <= 0 || waitpid(model->judge, &status, WNOHANG) != model->judge)
		return;
	model->judge = 0;
	model->judge_ended_ns = clock_monotonic_ns();
	if (status != 0)
		return;
	if (model->found == NULL)
		model->found = calloc(1, sizeof(*model->found));
	if (model->found != NULL)
		memcpy(model->found, model->asked, sizeof(*model->found));
}

static void start_judge(struct model *model)
{
	uint64_t pause = (model->judge_ended_ns - model->judge_began_ns) * JUDGE_SHARE;

	if (model->judge > 0 || model->judged_events == model->events ||
	    (model->judge_ended_ns != 0 &&
	     clock_monotonic_ns() - model->judge_ended_ns < (pause < JUDGE_NS ? JUDGE_NS : pause)))
		return;
	if (model->asked == NULL) {
		void *p = mmap(NULL, sizeof(*model->asked), PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

		if (p == MAP_FAILED)
			return;
		model->asked = p;
	}
	memset(model->asked, 0, sizeof(*model->asked));
	model->judge_began_ns = clock_monotonic_ns();
	model->judged_events = model->events;
	model->judge = fork();
	if (model->judge == 0) {
		judge(model, model->asked);
		_exit(0);
	}
}

bool model_live_findings(struct model *model, struct json *json)
{
	if (!model->is_live || model->complete)
		return false;
	take_answer(model);
	start_judge(model);
	if (model->found == NULL || model->found->leaks[0] == '\0')
		return false;
	json_raw(json, "leaks", model->found->leaks);
	if (model->found->forecasts[0] != '\0')
		json_raw(json, "forecasts", model->found->forecasts);
	json_bool(json, "judged", model->found->judged);
	json_bool(json, "clean", false); /* only the end tells */
	return true;
}
