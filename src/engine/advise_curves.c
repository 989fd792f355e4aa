/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/advise_curves.h"

#include <errno.h>

#include "advise/advise.h"
#include "base/json.h"
#include "engine/advise_run.h"
#include "engine/input.h"
#include "symbols/elf_cache.h"
#include "trace/session.h"

#define MOMENTS_MOST 1000000u
#define PLAYED_MOST  30000u /* events of a pool: played in a second or two */
#define TOO_LONG     "This run is too long for the page: msmemscope advise reads it."
#define NOTHING	     "None of the changes that were tried lowers the peak."
#define UNREAD	     "The run cannot be read again."

static void say_curve(const uint64_t *curve, const struct editor_span *span, struct json *json)
{
	json_array(json, "used");
	for (uint32_t i = 0; i < span->width; i++)
		json_u64(json, NULL, curve[i]);
	json_end(json);
}

static void say_offers(const struct advising *advising, struct json *json)
{
	const struct advise_offer *best[ADVISE_SHOWN];
	size_t count = advise_best(advising, best);

	if (count == 0) {
		json_string(json, "refusal", NOTHING);
		return;
	}
	json_u64(json, "peak_bytes", advising->peak);
	say_curve(advising->curve, advising->span, json);
	json_array(json, "advice");
	for (size_t i = 0; i < count; i++) {
		json_object(json, NULL);
		json_string(json, "what", best[i]->what);
		json_u64(json, "saved_bytes", advising->peak - best[i]->peak);
		json_u64(json, "peak_bytes", best[i]->peak);
		json_string(json, "line", best[i]->line);
		if (best[i]->reserved.high != 0) {
			json_u64(json, "reserved_low", best[i]->reserved.low);
			json_u64(json, "reserved_high", best[i]->reserved.high);
		}
		say_curve(best[i]->curve, advising->span, json);
		json_end(json);
	}
	json_end(json);
}

static int take_event(void *arg, struct replay *replay, const struct trace_event *event)
{
	const struct advise_run *run = arg;

	return run->record.moment_count > MOMENTS_MOST ? -E2BIG
						       : advise_run_event(arg, replay, event);
}

static int answer(struct advise_run *run, struct replay *replay,
		  const struct advise_question *question, struct json *json)
{
	struct advise_history history;
	struct advise_wish wish = {.span = &question->span};
	struct advising advising;
	int status;

	for (size_t i = 0; i < run->record.pool_count; i++) {
		const struct advise_pool *pool = &run->record.pools[i];

		if (pool->device != question->device || pool->pool != question->pool ||
		    pool->peak == 0)
			continue;
		if (advise_run_history(run, i, &history) &&
		    history.history->event_count <= PLAYED_MOST)
			wish.history = &history;
		status = advise_pool_init(&advising, &run->record, replay, (uint32_t)i, &wish);
		if (status == 0)
			say_offers(&advising, json);
		advise_pool_fini(&advising);
		return status;
	}
	json_string(json, "refusal", NOTHING);
	return 0;
}

/* Reads the run and answers. 0 or a negative code. */
static int answer_run(struct run *opened, const struct advise_question *question, struct json *json)
{
	struct elf_cache elves = {0};
	struct advise_run run = {0};
	struct mscope_error ignored = {0};
	struct pass pass = {0};
	struct pass_setup setup = {.elves = &elves,
				   .run = opened,
				   .analysis = SESSION_DECOMPOSE,
				   .row = advise_run_row,
				   .event = take_event,
				   .event_arg = &run};
	int r = pass_open(&pass, &setup, &ignored);

	if (r == 0)
		r = pass_all(&pass, &ignored);
	if (r == 0)
		r = advise_run_end(&run, pass.replay);
	if (r == 0 && advise_run_lacks(&run, pass.replay) != NULL)
		json_string(json, "refusal", advise_run_lacks(&run, pass.replay));
	else if (r == 0)
		r = answer(&run, pass.replay, question, json);
	pass_close(&pass);
	elf_cache_fini(&elves);
	advise_run_fini(&run);
	return r;
}

void advise_curves(const char *word, const struct advise_question *question, struct json *json)
{
	struct mscope_error ignored = {0};
	struct input input = {0};
	int r = input_open(&input, word, NULL, NULL, &ignored);

	if (r == 0)
		r = input.imported ? -ENOENT : answer_run(input.run, question, json);
	if (r < 0)
		json_string(json, "refusal", r == -E2BIG ? TOO_LONG : UNREAD);
	input_close(&input);
}
