/* SPDX-License-Identifier: Apache-2.0 */
/*
 * msmemscope whatif RUN...: what PyTorch's pool would have reserved under other settings, limits or cards. RUN is a memory snapshot of
 * PyTorch, or anything that engine/input.h opens. twin/what_if.h has the rules.
 */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/pool_answers.h"
#include "cli/whatif_batch.h"
#include "cli/whatif_input.h"
#include "cli/whatif_text.h"
#include "import/torch_snapshot.h"

struct whatif {
	struct pool_answers answers; /* first: its functions get this one */
	struct what_if_choice choice;
};

/* Whether the release refuses all settings that were asked about. */
static bool knows_none(const struct what_if *w)
{
	for (size_t i = 0; i < w->setting_count; i++)
		if (w->settings[i].refused[0] == '\0')
			return false;
	return true;
}

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
		if (whatif->answers.options->json)
			whatif_json(&w, whatif->answers.run, &whatif->answers.json);
		else
			whatif_text(&w, &whatif->choice, &whatif->answers.text);
		whatif->answers.answered++;
		if (w.refusal[0] != '\0' || knows_none(&w))
			code = MSCOPE_EXIT_FAILED;
	}
	what_if_fini(&w);
	return code;
}

/* A pool whose record cannot be played at all. */
static void refuse(struct whatif *whatif, const struct pool_history *history, const char *why,
		   const char *word)
{
	struct what_if w = {.history = history, .agreement = {.left_at = SIZE_MAX}};

	cli_say("%s: the record of PyTorch's pool cannot be replayed: %s", word, why);
	if (!whatif->answers.options->json)
		return;
	snprintf(w.refusal, sizeof(w.refusal), "The record cannot be replayed: %s.", why);
	whatif_json(&w, whatif->answers.run, &whatif->answers.json);
	whatif->answers.answered++;
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
			refuse(whatif, &histories->pools[i].history, why, word);
		else
			code = answer(whatif, &histories->pools[i].history, word);
		worst = code > worst ? code : worst;
	}
	if (tried > 0)
		return worst;
	cli_say("%s has no memory of PyTorch's pool on a GPU or an NPU", word);
	return MSCOPE_EXIT_FAILED;
}

static int answer_run(struct pool_answers *answers, const char *word)
{
	struct whatif *whatif = (struct whatif *)answers;
	struct whatif_input input;
	int worst = whatif_input_read(&input, word, whatif->answers.options, false);

	if (worst == MSCOPE_EXIT_OK && input.read == NULL)
		worst = answer_pools(whatif, &input.traced, word);
	for (size_t i = 0; i < input.read_count && worst != MSCOPE_EXIT_USAGE; i++) {
		int code = answer(whatif, &input.read[i], word);

		worst = code > worst ? code : worst;
	}
	/* What cannot be replayed may be what is missing. */
	if (worst != MSCOPE_EXIT_USAGE && input.damaged)
		worst = MSCOPE_EXIT_DAMAGED;
	whatif_input_fini(&input);
	return worst;
}

/* Whether PyTorch, or torch_npu, knows a release and these settings. What the run is of shows only when it is read. */
static bool knows(const struct options *options, bool npu, const char **out_word,
		  struct mscope_error *err)
{
	struct twin_release release = twin_release_of(twin_release_last(npu), npu);
	struct twin_settings settings;

	*out_word = "--torch";
	if (options->torch != NULL && twin_release_parse(options->torch, npu, &release, err) != 0)
		return false;
	*out_word = "--set";
	for (uint32_t i = 0; i < options->set.count; i++)
		if (twin_settings_parse(options->set.value[i], &release, &settings, err) != 0)
			return false;
	return true;
}

/* Whether what was asked can be read; says why not. */
static bool is_sensible(const struct options *options)
{
	struct mscope_error err = {0}, npu_err = {0};
	const char *word, *npu_word;

	if (options->limit.percent != 0 || options->card.percent != 0) {
		cli_say("--limit and --card are sizes, such as 8G");
		return false;
	}
	if (knows(options, false, &word, &err) || knows(options, true, &npu_word, &npu_err))
		return true;
	/* Where one of them knows the release, what it says of the settings is of interest. */
	if (strcmp(word, npu_word) != 0 && strcmp(npu_word, "--set") == 0)
		cli_say("%s: %s", npu_word, npu_err.message);
	else if (strcmp(word, npu_word) != 0 || strcmp(err.message, npu_err.message) == 0)
		cli_say("%s: %s", word, err.message);
	else
		cli_say("%s: %s; on an NPU: %s", word, err.message, npu_err.message);
	return false;
}

int cmd_whatif(const struct options *options)
{
	struct whatif whatif = {.answers = {.options = options,
					    .answer = answer_run,
					    .is_one = snapshot_probe,
					    .names_one = true}};

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
	return pool_answers_write(&whatif.answers);
}
