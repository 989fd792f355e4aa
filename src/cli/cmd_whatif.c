/* SPDX-License-Identifier: Apache-2.0 */
/*
 * msmemscope whatif RUN...: what PyTorch's pool would have reserved under other settings, limits or cards. RUN is a memory snapshot of
 * PyTorch, or anything that engine/input.h opens. twin/what_if.h has the rules.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/pager.h"
#include "cli/whatif_batch.h"
#include "cli/whatif_input.h"
#include "cli/whatif_text.h"
#include "engine/input.h"
#include "import/torch_snapshot.h"
#include "options/options.h"

struct whatif {
	const struct options *options;
	struct what_if_choice choice;
	struct json json;
	struct strbuf text;
	size_t answered;
};

/* One pool. Returns the exit code. */
static int answer(struct whatif *whatif, const struct pool_history *history, const char *word)
{
	struct mscope_error err = {0};
	struct what_if w;
	int code = MSCOPE_EXIT_OK, r = what_if_answer(&w, history, &whatif->choice, &err);

	if (r != 0) {
		cli_say("%s: %s", word,
			err.message[0] != '\0' ? err.message : mscope_status_str(r));
		code = r == MSCOPE_E_USAGE ? MSCOPE_EXIT_USAGE : MSCOPE_EXIT_FAILED;
	} else {
		if (whatif->options->json)
			whatif_json(&w, &whatif->json);
		else
			whatif_text(&w, &whatif->choice, &whatif->text);
		whatif->answered++;
		if (w.refusal[0] != '\0')
			code = MSCOPE_EXIT_FAILED;
	}
	what_if_fini(&w);
	return code;
}

static int answer_pools(struct whatif *whatif, struct pool_histories *histories, const char *word)
{
	int worst = MSCOPE_EXIT_OK;
	size_t tried = 0;

	for (size_t i = 0; i < histories->count; i++) {
		const char *why = whatif_lacking(&histories->pools[i]);
		int code = MSCOPE_EXIT_FAILED;

		if (histories->pools[i].history.event_count == 0 && why == NULL)
			continue;
		tried++;
		if (why != NULL)
			cli_say("%s: the record of PyTorch's pool cannot be replayed: %s", word,
				why);
		else
			code = answer(whatif, &histories->pools[i].history, word);
		worst = code > worst ? code : worst;
	}
	if (tried > 0)
		return worst;
	cli_say("%s has no memory of PyTorch's pool on a GPU", word);
	return MSCOPE_EXIT_FAILED;
}

static int answer_run(struct whatif *whatif, const char *word)
{
	struct whatif_input input;
	int worst = whatif_input_read(&input, word, whatif->options, false);

	if (worst == MSCOPE_EXIT_OK && input.read == NULL)
		worst = answer_pools(whatif, &input.traced, word);
	for (size_t i = 0; i < input.read_count && worst != MSCOPE_EXIT_USAGE; i++) {
		int code = answer(whatif, &input.read[i], word);

		worst = code > worst ? code : worst;
	}
	if (worst == MSCOPE_EXIT_OK && input.damaged)
		worst = MSCOPE_EXIT_DAMAGED;
	whatif_input_fini(&input);
	return worst;
}

/* A directory of ranks has one run for each. */
static int answer_word(struct whatif *whatif, const char *word)
{
	struct input_rank *ranks = NULL;
	size_t count = 0;
	int worst = MSCOPE_EXIT_OK;

	if (snapshot_probe(word) || input_processes(word, &ranks, &count) != 0 || count == 0)
		return answer_run(whatif, word);
	for (size_t i = 0; i < count; i++) {
		int code;

		if (!whatif->options->json)
			strbuf_addf(&whatif->text, "%s%s:\n", i == 0 ? "" : "\n", ranks[i].path);
		code = answer_run(whatif, ranks[i].path);
		worst = code > worst ? code : worst;
		free(ranks[i].path);
	}
	free(ranks);
	return worst;
}

/* Whether what was asked can be read; says why not. */
static bool is_sensible(const struct options *options)
{
	struct mscope_error err = {0};
	struct twin_settings settings;
	struct twin_release release = twin_release_of(TWIN_MINOR_LAST);

	if (options->limit.percent != 0 || options->card.percent != 0) {
		cli_say("--limit and --card are sizes, such as 8G");
		return false;
	}
	if (options->torch != NULL && twin_release_parse(options->torch, &release, &err) != 0) {
		cli_say("--torch: %s", err.message);
		return false;
	}
	for (uint32_t i = 0; i < options->set.count; i++)
		if (twin_settings_parse(options->set.value[i], &release, &settings, &err) != 0) {
			cli_say("--set: %s", err.message);
			return false;
		}
	return true;
}

int cmd_whatif(const struct options *options)
{
	struct whatif whatif = {.options = options};
	int worst = MSCOPE_EXIT_OK;

	if (!is_sensible(options))
		return MSCOPE_EXIT_USAGE;
	if (options->batch.count > 0)
		return whatif_batch(options);
	if (options->batch_of.count > 0) {
		cli_say("--batch-of says the batches of the runs for --batch=LIST");
		return MSCOPE_EXIT_USAGE;
	}
	whatif.choice = (struct what_if_choice){
		.settings = options->set.count > 0 ? (const char *const *)options->set.value : NULL,
		.setting_count = options->set.count,
		.limit_bytes = options->limit.bytes,
		.card_bytes = options->card.bytes,
		.torch = options->torch,
	};
	if (options->json) {
		json_begin(&whatif.json, &whatif.text);
		json_object(&whatif.json, NULL);
		json_u64(&whatif.json, "schema", 1);
		json_array(&whatif.json, "pools");
	}
	for (int i = 1; i < options->argc; i++) {
		int code = answer_word(&whatif, options->argv[i]);

		worst = code > worst ? code : worst;
	}
	if (options->json) {
		json_end(&whatif.json);
		json_end(&whatif.json);
		strbuf_add_char(&whatif.text, '\n');
	}
	if (options->json && whatif.answered > 0)
		cli_write(STDOUT_FILENO, strbuf_str(&whatif.text), whatif.text.length);
	else if (!options->json)
		pager_write(&whatif.text);
	strbuf_fini(&whatif.text);
	return worst;
}
