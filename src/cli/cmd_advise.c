/* SPDX-License-Identifier: Apache-2.0 */
/* msmemscope advise RUN...: what to change in a program so that its peak is lower, and what each change costs. src/advise has the rules. */
#include "advise/advise.h"
#include "cli/advise_text.h"
#include "cli/cli.h"
#include "cli/pool_answers.h"
#include "cli/reading.h"
#include "engine/advise_run.h"
#include "engine/input.h"
#include "engine/pass.h"
#include "symbols/elf_cache.h"
#include "trace/session.h"

static int answer_pools(struct pool_answers *answers, const struct advise_run *run,
			struct replay *replay)
{
	int status = 0;

	for (size_t i = 0; i < run->record.pool_count && status == 0; i++) {
		struct advising advising;
		struct advise_history history;
		struct advise_wish wish = {.limit = answers->options->limit.bytes,
					   .bandwidth = answers->options->bandwidth.bytes};

		if (!advise_run_is_for(run, i))
			continue;
		if (advise_run_history(run, i, &history))
			wish.history = &history;
		status = advise_pool_init(&advising, &run->record, replay, (uint32_t)i, &wish);
		if (status == 0 && answers->options->json)
			advise_json(&advising, &answers->json);
		else if (status == 0)
			advise_text(&advising, &answers->text);
		answers->answered += status == 0;
		advise_pool_fini(&advising);
	}
	return status;
}

/* Of a run that is open. An exit code. */
static int answer_opened(struct pool_answers *answers, struct input *opened,
			 const struct reading *reading)
{
	struct elf_cache elves = {0};
	struct advise_run run = {0};
	struct mscope_error err = {0};
	struct pass pass = {0};
	struct pass_setup setup = {.elves = &elves,
				   .run = opened->run,
				   .analysis = SESSION_DECOMPOSE,
				   .row = advise_run_row,
				   .event = advise_run_event,
				   .event_arg = &run};
	const char *why = NULL, *word = reading->word;
	bool damaged = false;
	int r = pass_open(&pass, &setup, &err);

	if (r == 0)
		r = pass_all(&pass, &err);
	if (r == 0)
		r = advise_run_end(&run, pass.replay);
	if (r == 0)
		damaged = reading_is_damaged(reading, opened, pass.replay,
					     "what can be read is judged");
	if (r == 0)
		why = advise_run_lacks(&run, pass.replay);
	if (r == 0 && why == NULL)
		r = answer_pools(answers, &run, pass.replay);
	pass_close(&pass);
	elf_cache_fini(&elves);
	advise_run_fini(&run);
	if (r < 0)
		cli_say("cannot read %s: %s", word,
			err.message[0] != '\0' ? err.message : mscope_status_str(r));
	else if (why != NULL)
		cli_say("%s has no advice: %s", word, why);
	if (damaged && r == 0)
		return MSCOPE_EXIT_DAMAGED;
	return r < 0 || why != NULL ? MSCOPE_EXIT_FAILED : MSCOPE_EXIT_OK;
}

static int answer_run(struct pool_answers *answers, const char *word)
{
	struct reading reading = {.word = word, .log_level = answers->options->log_level};
	struct mscope_error err = {0};
	struct input opened;
	int code, r = reading_open(&reading, &opened, &err);

	if (r < 0) {
		cli_say("%s", err.message);
		code = input_exit_code(r);
	} else {
		code = answer_opened(answers, &opened, &reading);
	}
	input_close(&opened);
	return code;
}

int cmd_advise(const struct options *options)
{
	struct pool_answers answers = {.options = options, .answer = answer_run};

	if (options->limit.percent != 0) {
		cli_say("--limit is a size, such as 8G");
		return MSCOPE_EXIT_USAGE;
	}
	if (options->bandwidth.percent != 0) {
		cli_say("--bandwidth is bytes per second, such as 24G");
		return MSCOPE_EXIT_USAGE;
	}
	return pool_answers_write(&answers);
}
