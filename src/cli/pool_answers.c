/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/pool_answers.h"

#include <stdlib.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/pager.h"
#include "engine/input.h"

/* Answers about several runs say which. */
static int answer_named(struct pool_answers *answers, const char *path, bool named, bool alone)
{
	int code;

	if (named && !answers->options->json)
		strbuf_addf(&answers->text, "%s%s:\n", answers->text.length == 0 ? "" : "\n", path);
	answers->run = alone ? NULL : path;
	code = answers->answer(answers, path);
	answers->run = NULL;
	return code;
}

/* A directory of ranks has one run for each. */
static int answer_word(struct pool_answers *answers, const char *word)
{
	struct input_rank *ranks = NULL;
	bool several = answers->options->argc > 2;
	size_t count = 0;
	int worst = MSCOPE_EXIT_OK;

	if ((answers->is_one != NULL && answers->is_one(word)) ||
	    input_processes(word, &ranks, &count) != 0 || count == 0)
		return answer_named(answers, word, several, !several);
	for (size_t i = 0; i < count; i++) {
		int code;

		code = answer_named(answers, ranks[i].path,
				    several || count > 1 || answers->names_one,
				    !several && count == 1);
		worst = code > worst ? code : worst;
		free(ranks[i].path);
	}
	free(ranks);
	return worst;
}

int pool_answers_write(struct pool_answers *answers)
{
	const struct options *options = answers->options;
	int worst = MSCOPE_EXIT_OK;

	if (options->json) {
		json_begin(&answers->json, &answers->text);
		json_object(&answers->json, NULL);
		json_u64(&answers->json, "schema", 1);
		json_array(&answers->json, "pools");
	}
	for (int i = 1; i < options->argc; i++) {
		int code = answer_word(answers, options->argv[i]);

		worst = code > worst ? code : worst;
	}
	if (options->json) {
		json_end(&answers->json);
		json_end(&answers->json);
		strbuf_add_char(&answers->text, '\n');
	}
	if (options->json && answers->answered > 0)
		cli_write(STDOUT_FILENO, strbuf_str(&answers->text), answers->text.length);
	else if (!options->json)
		pager_write(&answers->text);
	strbuf_fini(&answers->text);
	return worst;
}
