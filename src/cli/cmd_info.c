/* SPDX-License-Identifier: Apache-2.0 */
/*
 * msmemscope info RUN...: what a recorded run holds. engine/input.h tells what RUN may be. As text the lists are short unless
 * --top or --all asks for more; as JSON it is the document of --summary-json.
 */
#include <unistd.h>

#include "base/json.h"
#include "cli/cli.h"
#include "cli/conditions.h"
#include "cli/pager.h"
#include "cli/reading.h"
#include "engine/pass.h"
#include "engine/what_if_finding.h"
#include "sink/report_json.h"
#include "symbols/elf_cache.h"

struct info {
	const struct options *options;
	struct report_shown shown;
	struct json json;
	struct strbuf text;
	uint32_t reported;
	bool met; /* a condition of --fail-on */
};

static struct report_shown shown_of(const struct options *options)
{
	struct report_shown shown = {
		.top = options_given(options, OPTION_ID_top) ? options->top : REPORT_TOP,
		.all = options->all,
		.order = options->sort == OPT_SORT_BLOCKS ? REPORT_BY_BLOCKS
			 : options->sort == OPT_SORT_STEP ? REPORT_BY_STEP
							  : REPORT_BY_BYTES,
		.steps = options->steps.value,
		.step_count = options->steps.count,
		.by_device = options_given(options, OPTION_ID_device),
	};

	return shown;
}

static void check_conditions(struct info *info, const struct report *report)
{
	struct digest digest = {0};
	struct strbuf why = {0};

	if (!options_given(info->options, OPTION_ID_fail_on))
		return;
	digest_take(&digest, report);
	if (conditions_met(&info->options->fail_on, &digest, 1, &why)) {
		info->met = true;
		cli_say("--fail-on: %s", strbuf_str(&why));
	}
	strbuf_fini(&why);
	digest_fini(&digest);
}

/* Replays the run and reports it. Returns the exit code. */
static int report_input(void *arg, const char *word, struct input *input)
{
	struct info *info = arg;
	const struct options *options = info->options;
	struct elf_cache elves = {0};
	struct pass_setup setup = {
		.run = input->run,
		.elves = &elves,
		.oom_top = options->analysis.number[OPT_ANALYSIS_OOM],
		.steps = options->steps.value,
		.step_count = options->steps.count,
	};
	struct report report = {
		.trace_path = word, .shown = info->shown, .from_dump = input->imported};
	struct mscope_error err = {0};
	struct what_if_asker what_if;
	struct pass pass = {0};
	int r, exit_code = MSCOPE_EXIT_OK;

	reading_choose(options, &setup);
	r = pass_open(&pass, &setup, &err);
	if (r == 0)
		r = pass_all(&pass, &err);
	if (r < 0) {
		cli_say("cannot read %s: %s", word, mscope_status_str(r));
		exit_code = MSCOPE_EXIT_FAILED;
	} else {
		report.replay = pass.replay;
		report.analyses = &pass.analyses;
		report.input_damaged = import_is_damaged(&input->import);
		what_if_of_input(&report, &what_if, input);
		if (options->json)
			report_json(&report, &info->json);
		else
			report_text(&report, &info->text);
		info->reported++;
		check_conditions(info, &report);
		if (report_is_damaged(&report) || input->unfinished)
			exit_code = MSCOPE_EXIT_DAMAGED;
	}
	pass_close(&pass);
	elf_cache_fini(&elves);
	return exit_code;
}

int cmd_info(const struct options *options)
{
	struct info info = {.options = options, .shown = shown_of(options)};
	int worst;

	if (options->json)
		report_json_begin(&info.json, &info.text);
	worst = reading_answers(options, 1, report_input, &info);
	if (options->json)
		report_json_end(&info.json);
	if (options->json && info.reported > 0)
		cli_write(STDOUT_FILENO, strbuf_str(&info.text), info.text.length);
	else if (!options->json)
		pager_write(&info.text);
	strbuf_fini(&info.text);
	return worst == MSCOPE_EXIT_OK && info.met ? MSCOPE_EXIT_CONDITION : worst;
}
