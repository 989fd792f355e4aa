/* SPDX-License-Identifier: Apache-2.0 */
/* msmemscope advise RUN...: what to change in a program so that its peak is lower, and what each change costs. src/advise has the rules. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "advise/advise.h"
#include "cli/advise_text.h"
#include "cli/cli.h"
#include "cli/pager.h"
#include "cli/reading.h"
#include "engine/input.h"
#include "engine/pass.h"
#include "options/options.h"
#include "trace/session.h"

struct advise {
	const struct options *options;
	struct json json;
	struct strbuf text;
	bool answered;
};

/* Why a record has no advice; NULL: it has all that is needed. */
static const char *lacking(const struct advise_record *record, const struct replay *replay)
{
	if (replay_totals(replay)->dropped_events > 0)
		return "its oldest part was dropped to stay within --max-disk";
	if (record->call_count == 0)
		return "it has no calls of modules; record it with --call-stack=python --analysis=decompose";
	if (record->node_count == 0)
		return "nothing is trained in it, or PyTorch is older than 2.1";
	return NULL;
}

/* Pools on devices; where there are none, CPU tensors. */
static bool is_asked_for(const struct advise_record *record, uint32_t pool)
{
	bool devices = false;

	for (size_t i = 0; i < record->pool_count; i++)
		devices |= record->pools[i].device != DEVICE_HOST && record->pools[i].peak > 0;
	return record->pools[pool].peak > 0 &&
	       (record->pools[pool].device != DEVICE_HOST) == devices;
}

static int answer_pools(struct advise *advise, const struct advise_record *record,
			struct replay *replay)
{
	int status = 0;

	for (size_t i = 0; i < record->pool_count && status == 0; i++) {
		struct advising advising;

		if (!is_asked_for(record, (uint32_t)i))
			continue;
		status = advise_pool_init(&advising, record, replay, (uint32_t)i,
					  advise->options->limit.bytes);
		if (status == 0 && advise->options->json)
			advise_json(&advising, &advise->json);
		else if (status == 0)
			advise_text(&advising, &advise->text);
		advise->answered |= status == 0;
		advise_pool_fini(&advising);
	}
	return status;
}

/* Of a run that is open. An exit code. */
static int answer_opened(struct advise *advise, struct input *opened, const char *word)
{
	struct elf_cache elves = {0};
	struct advise_record record = {0};
	struct mscope_error err = {0};
	struct pass pass = {0};
	struct pass_setup setup = {.elves = &elves,
				   .run = opened->run,
				   .analysis = SESSION_DECOMPOSE,
				   .row = advise_record_row,
				   .event = advise_record_event,
				   .event_arg = &record};
	const char *why = NULL;
	int r = pass_open(&pass, &setup, &err);

	if (r == 0)
		r = pass_all(&pass, &err);
	if (r == 0)
		r = advise_record_end(&record, pass.replay);
	if (r == 0)
		why = lacking(&record, pass.replay);
	if (r == 0 && why == NULL)
		r = answer_pools(advise, &record, pass.replay);
	pass_close(&pass);
	elf_cache_fini(&elves);
	advise_record_fini(&record);
	if (r < 0)
		cli_say("cannot read %s: %s", word,
			err.message[0] != '\0' ? err.message : mscope_status_str(r));
	else if (why != NULL)
		cli_say("%s has no advice: %s", word, why);
	if (r < 0 || why != NULL)
		return MSCOPE_EXIT_FAILED;
	return input_is_damaged(opened) ? MSCOPE_EXIT_DAMAGED : MSCOPE_EXIT_OK;
}

static int answer_run(struct advise *advise, const char *word)
{
	struct reading reading = {.word = word, .log_level = advise->options->log_level};
	struct mscope_error err = {0};
	struct input opened;
	int code, r = reading_open(&reading, &opened, &err);

	if (r < 0) {
		cli_say("%s", err.message);
		code = input_exit_code(r);
	} else {
		code = answer_opened(advise, &opened, word);
	}
	input_close(&opened);
	return code;
}

/* A directory of ranks has one run for each. */
static int answer_word(struct advise *advise, const char *word)
{
	struct input_rank *ranks = NULL;
	size_t count = 0;
	int worst = MSCOPE_EXIT_OK;

	if (input_processes(word, &ranks, &count) != 0 || count == 0)
		return answer_run(advise, word);
	for (size_t i = 0; i < count; i++) {
		int code;

		if (!advise->options->json && count > 1)
			strbuf_addf(&advise->text, "%s%s:\n", i == 0 ? "" : "\n", ranks[i].path);
		code = answer_run(advise, ranks[i].path);
		worst = code > worst ? code : worst;
		free(ranks[i].path);
	}
	free(ranks);
	return worst;
}

int cmd_advise(const struct options *options)
{
	struct advise advise = {.options = options};
	int worst = MSCOPE_EXIT_OK;

	if (options->limit.percent != 0) {
		cli_say("--limit is a size, such as 8G");
		return MSCOPE_EXIT_USAGE;
	}
	if (options->json) {
		json_begin(&advise.json, &advise.text);
		json_object(&advise.json, NULL);
		json_u64(&advise.json, "schema", 1);
		json_array(&advise.json, "pools");
	}
	for (int i = 1; i < options->argc; i++) {
		int code = answer_word(&advise, options->argv[i]);

		worst = code > worst ? code : worst;
	}
	if (options->json) {
		json_end(&advise.json);
		json_end(&advise.json);
		strbuf_add_char(&advise.text, '\n');
	}
	if (options->json && advise.answered)
		cli_write(STDOUT_FILENO, strbuf_str(&advise.text), advise.text.length);
	else if (!options->json)
		pager_write(&advise.text);
	strbuf_fini(&advise.text);
	return worst;
}
