/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/reading.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/shown.h"
#include "base/text.h"
#include "cli/cli.h"
#include "engine/pass.h"
#include "sink/report.h"
#include "trace/launch.h"
#include "trace/session.h"
#include "trace/settings.h"

int reading_open(struct reading *reading, struct input *input, struct mscope_error *err)
{
	int r;

	reading->unit = "rows";
	r = (reading->processes ? input_open_processes
				: input_open)(input, reading->word, reading_progress, reading, err);
	reading->unit = "events";
	reading_end(reading);
	return r;
}

int reading_open_process(struct reading *reading, uint32_t pid, struct input *input,
			 struct reading_processes *out, struct mscope_error *err)
{
	int r;

	reading->unit = "rows";
	r = input_open_process(input, reading->word, pid, reading_progress, reading, err);
	reading->unit = "events";
	reading_end(reading);
	memcpy(out->pids, input->import.pids, sizeof(out->pids));
	out->count = input->import.pid_count;
	return r;
}

int reading_each(const char *word,
		 int (*one)(void *arg, const char *word, uint32_t pid,
			    struct reading_processes *out),
		 void *arg)
{
	struct reading_processes all = {0}, again;
	int worst = one(arg, word, 0, &all), r;
	size_t i;

	for (i = 1; i < all.count; i++) {
		r = one(arg, word, all.pids[i], &again);
		worst = r > worst ? r : worst;
	}
	return worst;
}

struct answering {
	reading_answer *answer;
	void *arg;
	int log_level;
};

static int answer_one(void *arg, const char *word, uint32_t pid, struct reading_processes *out)
{
	const struct answering *answering = arg;
	struct reading reading = {.word = word, .log_level = answering->log_level};
	struct mscope_error err = {0};
	struct input input;
	int exit_code, r = reading_open_process(&reading, pid, &input, out, &err);

	if (r < 0) {
		cli_say("%s", err.message);
		exit_code = input_exit_code(r);
	} else {
		exit_code = answering->answer(answering->arg, word, &input);
		(void)reading_warn_rows(&reading, &input);
		if (input.unfinished)
			cli_say("%s is incomplete; run: msmemscope recover", word);
	}
	input_close(&input);
	return exit_code;
}

int reading_answers(const struct options *options, int first, reading_answer *answer, void *arg)
{
	struct answering answering = {
		.answer = answer, .arg = arg, .log_level = options->log_level};
	int i, worst = MSCOPE_EXIT_OK;

	for (i = first; i < options->argc; i++) {
		int r = reading_each(options->argv[i], answer_one, &answering);

		worst = r > worst ? r : worst;
	}
	return worst;
}

void reading_progress(void *arg, uint64_t count)
{
	struct reading *reading = arg;
	const char *name = text_base_name(reading->word);
	struct strbuf line = {0};

	if (reading->log_level > OPT_LOG_WARN || !isatty(STDERR_FILENO))
		return;
	strbuf_add_str(&line, "\r\033[Kmsmemscope: reading ");
	strbuf_add_shown(&line, name, strnlen(name, 100));
	strbuf_addf(&line, ", %llu.%llu million %s", (unsigned long long)(count / 1000000),
		    (unsigned long long)(count / 100000 % 10), reading->unit);
	cli_write(STDERR_FILENO, strbuf_str(&line), line.length);
	strbuf_fini(&line);
	reading->shown = true;
}

void reading_end(struct reading *reading)
{
	if (reading->shown)
		cli_write(STDERR_FILENO, "\r\033[K", 4);
	reading->shown = false;
}

void reading_choose_devices(const struct options *options, const struct session *launch,
			    struct pass_setup *setup)
{
	struct event_settings asked = launch_choices(options);

	setup->follow_choice = !options_given(options, OPTION_ID_device);
	if (!setup->follow_choice)
		setup->choice = (struct replay_choice){.some = true,
						       .host = asked.host != 0,
						       .npus = SETTINGS_NPUS(&asked),
						       .gpus = SETTINGS_GPUS(&asked)};
	else if (launch != NULL)
		setup->choice = pass_choice(launch);
}

void reading_choose(const struct options *options, struct pass_setup *setup)
{
	const char *launch = run_identity(setup->run, SESSION_LAUNCH_KEY);
	struct session *session = launch == NULL ? NULL : calloc(1, sizeof(*session));
	bool known = session != NULL && launch_read(launch, session);

	setup->analysis = options->analysis.mask;
	setup->settings = launch_choices(options);
	setup->follow_analysis = !options_given(options, OPTION_ID_analysis);
	setup->fixed_settings = options_given(options, OPTION_ID_inefficient);
	if (known && setup->follow_analysis)
		setup->analysis = session->analysis;
	if (known && !setup->fixed_settings)
		setup->settings = settings_of_session(session);
	reading_choose_devices(options, known ? session : NULL, setup);
	free(session);
}

bool reading_is_damaged(const struct reading *reading, const struct input *input,
			struct replay *replay, const char *what)
{
	struct report report = {.replay = replay};
	bool damaged = report_is_damaged(&report) || input->unfinished;

	if (damaged)
		cli_say("%s is damaged; %s", reading->word, what);
	return damaged || input_is_damaged(input);
}

bool reading_warn_rows(const struct reading *reading, const struct input *input)
{
	const struct dump_reading *rows = &input->import.reading;

	if (rows->bad_rows > 0)
		cli_say("%s is damaged: %llu rows were left out, the first in %s", reading->word,
			(unsigned long long)rows->bad_rows, rows->first_bad);
	if (input->import.unknown > 0 && reading->log_level <= OPT_LOG_INFO)
		cli_say("%s: skipped %llu rows of other types", reading->word,
			(unsigned long long)input->import.unknown);
	return rows->bad_rows > 0;
}
