/* SPDX-License-Identifier: Apache-2.0 */
/* msmemscope fleet WHAT [RUN...]: questions to a store about all ranks of a run, or about several runs. store/fleet.h answers. */
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/pager.h"
#include "cli/store_place.h"
#include "store/fleet.h"

struct asking {
	const struct options *options;
	struct store *store;
	struct fleet_ask ask;
	struct strbuf out;
	bool met; /* a limit of the budget */
};

static const char *run_at(const struct asking *asking, int at)
{
	return at < asking->options->argc ? asking->options->argv[at] : "";
}

static int show(struct asking *asking, struct mscope_error *err)
{
	struct fleet fleet = {0};
	int r = fleet_load(&fleet, asking->store, run_at(asking, 2), err);

	if (r == 0)
		r = fleet_show(&fleet, &asking->ask, &asking->out);
	fleet_fini(&fleet);
	return r;
}

static int compare(struct asking *asking, struct mscope_error *err)
{
	struct fleet base = {0}, other = {0};
	int r = fleet_load(&base, asking->store, run_at(asking, 2), err);

	if (r == 0)
		r = fleet_load(&other, asking->store, run_at(asking, 3), err);
	if (r == 0)
		r = fleet_compare(&base, &other, &asking->ask, &asking->out);
	fleet_fini(&base);
	fleet_fini(&other);
	return r;
}

static int history(struct asking *asking, struct mscope_error *err)
{
	return fleet_history(asking->store, &asking->ask, &asking->out, err);
}

static int check(struct asking *asking, struct mscope_error *err)
{
	struct fleet fleet = {0};
	uint32_t over = 0;
	int r = fleet_load(&fleet, asking->store, run_at(asking, 2), err);

	if (r == 0)
		r = fleet_check(&fleet, &asking->ask, &asking->out, &over, err);
	fleet_fini(&fleet);
	asking->met = over > 0;
	return r;
}

struct question {
	const char *word;
	int fewest, most; /* runs */
	int (*answer)(struct asking *asking, struct mscope_error *err);
};

static const struct question questions[] = {
	{"show", 0, 1, show},
	{"compare", 2, 2, compare},
	{"history", 0, 0, history},
	{"check", 0, 1, check},
};

static const struct question *question_of(const char *word)
{
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(questions); i++) {
		if (strcmp(questions[i].word, word) == 0)
			return &questions[i];
	}
	return NULL;
}

int cmd_fleet(const struct options *options)
{
	const struct question *question = question_of(options->argv[1]);
	struct asking asking = {.options = options};
	struct mscope_error err = {0};
	struct store_place place;
	int r;

	if (question == NULL) {
		cli_say("unknown: fleet %s; use show, compare, history or check", options->argv[1]);
		return MSCOPE_EXIT_USAGE;
	}
	if (options->argc - 2 < question->fewest || options->argc - 2 > question->most) {
		cli_say("fleet %s takes %s", question->word,
			question->most == 0   ? "no name of a run"
			: question->most == 1 ? "the name of a run"
					      : "the names of two runs");
		return MSCOPE_EXIT_USAGE;
	}
	r = store_place_find(options, false, &place, &err);
	place.choice.helper = place.helper;
	if (place.choice.url == NULL)
		place.choice.url = STORE_DEFAULT;
	if (r == 0)
		r = store_open(&place.choice, &asking.store, &err);
	asking.ask = (struct fleet_ask){
		.place = options->place,
		.tag = options->tag,
		.pool = options->pool,
		.budget = options->budget,
		.top = options_given(options, OPTION_ID_top) ? options->top : 0,
		.json = options->json,
	};
	if (r == 0)
		r = question->answer(&asking, &err);
	if (r < 0)
		cli_say("%s", err.code != 0 ? err.message : mscope_status_str(r));
	else if (options->json)
		cli_write(STDOUT_FILENO, strbuf_str(&asking.out), asking.out.length);
	else
		pager_write(&asking.out);
	store_close(asking.store);
	strbuf_fini(&asking.out);
	return r == MSCOPE_E_USAGE ? MSCOPE_EXIT_USAGE
	       : r < 0		   ? MSCOPE_EXIT_FAILED
	       : asking.met	   ? MSCOPE_EXIT_CONDITION
				   : MSCOPE_EXIT_OK;
}
