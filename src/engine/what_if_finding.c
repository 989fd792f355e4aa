/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/what_if_finding.h"

#include <stdio.h>
#include <string.h>

#include "engine/pass.h"
#include "engine/pool_histories.h"
#include "replay/ooms.h"
#include "sink/screen.h"
#include "symbols/elf_cache.h"
#include "trace/session.h"
#include "twin/what_if.h"

#define EVENTS_MOST  300000u		 /* of the run; played in about two seconds */
#define BEYOND_LEAST ((uint64_t)1 << 30) /* reserved and not in use at the peak */
#define BEYOND_SHARE 0.10		 /* of what is reserved */
#define SAVING_LEAST 0.05		 /* of what is reserved: worth a line */

/* The last request that was refused, if settings of the pool can matter to it. */
static const struct finding_oom *refused(const struct findings *found)
{
	size_t count = FINDINGS_COUNT(found, oom);
	const struct finding_oom *oom = count == 0 ? NULL : &FINDINGS(found, oom)[count - 1];

	return oom != NULL && oom->pool == POOL_pta &&
			       (oom->cause == OOM_CAUSE_FRAGMENTATION ||
				oom->cause == OOM_CAUSE_FULL || oom->limited)
		       ? oom
		       : NULL;
}

/* A peak at which the pool had far more than was in use; with `any`, whatever it had. */
static const struct finding_peak *wasteful(const struct findings *found, bool any)
{
	const struct finding_peak *peak = screen_peak(found);
	uint64_t beyond;

	if (FINDINGS_COUNT(found, oom) > 0 || peak == NULL || peak->pool != POOL_pta)
		return NULL;
	if (any || peak->reserved_bytes < peak->bytes)
		return any ? peak : NULL;
	beyond = peak->reserved_bytes - peak->bytes;
	return beyond >= BEYOND_LEAST &&
			       (double)beyond >= BEYOND_SHARE * (double)peak->reserved_bytes
		       ? peak
		       : NULL;
}

static void answer(struct what_if_asker *asker, const struct what_if *w,
		   const struct what_if_setting *s, bool refusal)
{
	asker->answered = true;
	(void)snprintf(asker->set, sizeof(asker->set), "%s", s == NULL ? "" : s->text);
	asker->answer =
		(struct finding_what_if){.device = w->history->device,
					 .vendor = w->history->npu ? VENDOR_ASCEND : VENDOR_CUDA,
					 .refused = refusal,
					 .helps = s != NULL,
					 .reserved_bytes = s == NULL ? 0
							   : refusal ? s->reserved_peak
								     : s->high,
					 .recorded_bytes = w->base_peak};
}

/* The first setting that serves the request. */
static void answer_refused(struct what_if_asker *asker, const struct what_if *w)
{
	const struct what_if_setting *helps = NULL;

	if (!w->limited || !w->program.ends_refused)
		return;
	for (size_t i = 0; i < w->setting_count && helps == NULL; i++)
		if (w->settings[i].refused[0] == '\0' && w->settings[i].fits && !w->settings[i].own)
			helps = &w->settings[i];
	answer(asker, w, helps, true);
}

static void answer_saving(struct what_if_asker *asker, const struct what_if *w)
{
	const struct what_if_setting *best = w->setting_count == 0 ? NULL : &w->settings[0];
	bool saves = best != NULL && best->refused[0] == '\0' && !best->own && best->fits &&
		     (double)best->high <= (1 - SAVING_LEAST) * (double)w->base_peak;

	if (saves || asker->when == SESSION_WHATIF_ALWAYS)
		answer(asker, w, saves ? best : NULL, false);
}

/* Reads the run for what was asked of the pool. 0 or a negative code. */
static int read_pools(struct what_if_asker *asker, struct pool_histories *histories)
{
	struct mscope_error ignored = {0};
	struct elf_cache elves = {0};
	struct pass pass = {0};
	struct pass_setup setup = {
		.elves = &elves, .event = pool_histories_take, .event_arg = histories};
	int r = asker->open(asker->arg, &setup.run, &ignored);

	if (r == 0)
		r = pass_open(&pass, &setup, &ignored);
	if (r == 0)
		r = pass_all(&pass, &ignored);
	if (r == 0)
		r = pool_histories_end(histories, pass.replay);
	pass_close(&pass);
	elf_cache_fini(&elves);
	run_close(setup.run);
	return r;
}

static void play(struct what_if_asker *asker, const struct pool_history *history, bool refusal)
{
	struct what_if_choice choice = {0};
	struct mscope_error ignored = {0};
	struct what_if w;

	if (what_if_answer(&w, history, &choice, &ignored) == 0 && w.refusal[0] == '\0' &&
	    !w.waits) {
		if (refusal)
			answer_refused(asker, &w);
		else
			answer_saving(asker, &w);
	}
	what_if_fini(&w);
}

static void ask(struct what_if_asker *asker, const struct replay *replay,
		const struct findings *found)
{
	const struct finding_oom *oom = refused(found);
	const struct finding_peak *peak =
		oom == NULL ? wasteful(found, asker->when == SESSION_WHATIF_ALWAYS) : NULL;
	struct pool_histories histories = {0};

	if ((oom == NULL && peak == NULL) || replay_totals(replay)->events > EVENTS_MOST)
		return;
	if (read_pools(asker, &histories) == 0) {
		const struct pool_history *history =
			pool_histories_of(&histories, oom != NULL ? oom->device : peak->device);

		if (history != NULL)
			play(asker, history, oom != NULL);
	}
	pool_histories_fini(&histories);
}

/* Adds it to a document without a report. */
static void what_if_find(void *arg, struct replay *replay, struct findings *found)
{
	struct what_if_asker *asker = arg;
	struct finding_what_if *finding;

	if (asker->when == SESSION_WHATIF_OFF)
		return;
	if (!asker->asked)
		ask(asker, replay, found);
	asker->asked = true;
	finding = asker->answered ? FINDINGS_ADD(found, what_if) : NULL;
	if (finding == NULL)
		return;
	*finding = asker->answer;
	finding->set = findings_text(found, asker->set);
}

void what_if_into(struct report *report, struct what_if_asker *asker)
{
	report->late = what_if_find;
	report->late_arg = asker;
}

static int open_input(void *arg, struct run **out, struct mscope_error *err)
{
	return input_reopen(arg, out, err);
}

void what_if_of_input(struct report *report, struct what_if_asker *asker, const struct input *input)
{
	/* Rows of a dump have no requested sizes. */
	if (input->imported)
		return;
	*asker = (struct what_if_asker){
		.open = open_input, .arg = (void *)input, .when = SESSION_WHATIF_AUTO};
	what_if_into(report, asker);
}
