/* SPDX-License-Identifier: Apache-2.0 */
/*
 * msmemscope report RUN...: what was found in recorded runs, to mail or to attach: the page as one file that needs no server, or with
 * --text and --markdown one screen on the standard output. With --anonymize from traces without names.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/io.h"
#include "base/shown.h"
#include "cli/cli.h"
#include "cli/launch_report.h"
#include "cli/reading.h"
#include "engine/anonymize.h"
#include "engine/pass.h"
#include "engine/what_if_finding.h"
#include "sink/screen.h"
#include "sink/ticket.h"
#include "symbols/elf_cache.h"
#include "viewer/html_report.h"

#define WORDS_SHOWN 4
#define LONG_AGO_NS UINT64_C(1000000000000000000) /* 2001 */

struct reporting {
	const struct options *options;
	struct viewed viewed; /* the runs; read by it for a page alone */
	struct input *inputs; /* of an anonymous report, one for each run */
	size_t input_count, input_room;
	struct digest *digests;		     /* of a text */
	struct strbuf system, command, date; /* of the worst run */
	size_t count, room;
	bool damaged; /* not all of a run could be read */
	struct mscope_error err;
};

/* Opens one run, without its names if that was asked for. */
static int open_run(struct reporting *reporting, size_t index, struct anonymous *names,
		    struct input *input)
{
	const struct viewed_run *run = &reporting->viewed.runs[index];
	struct reading reading = {.word = run->word, .log_level = reporting->options->log_level};
	struct reading_processes all;
	int r = reading_open_process(&reading, run->pid, input, &all, &reporting->err);

	if (r == 0) {
		viewed_split(&reporting->viewed, index, &input->import);
		(void)reading_warn_rows(&reading, input);
	}
	return r == 0 && names != NULL ? input_anonymize(input, names, &reporting->err) : r;
}

/* ---- a page ---- */

/* Traces without names take the places of all runs; they are files without names too. */
static int hide_names(struct reporting *reporting)
{
	struct viewed *viewed = &reporting->viewed;
	struct anonymous names = {0};
	size_t i;
	int r = 0;

	for (i = 0; i < viewed->count && r == 0; i++) {
		struct viewed_run *run;

		r = ARRAY_RESERVE(reporting->inputs, reporting->input_room, i + 1);
		if (r < 0)
			break;
		r = open_run(reporting, i, &names, &reporting->inputs[i]);
		reporting->input_count = i + 1;
		run = &viewed->runs[i];
		if (r == 0 && run->name != NULL && strcmp(run->word, run->name) == 0) {
			free(run->name);
			run->name = NULL;
			(void)!asprintf(&run->name, "run %zu", i + 1);
		}
	}
	for (i = 0; i < viewed->count && r == 0; i++) {
		struct viewed_run *run = &viewed->runs[i];

		free(run->word);
		run->word = strdup(reporting->inputs[i].pack);
		run->pid = 0;
		r = run->word == NULL ? -ENOMEM : 0;
	}
	anonymous_fini(&names);
	return r;
}

static void add_command(const struct options *options, struct strbuf *out)
{
	int i;

	strbuf_add_str(out, "msmemscope view");
	for (i = 1; i < options->argc && i <= WORDS_SHOWN && !options->anonymize; i++) {
		strbuf_add_char(out, ' ');
		strbuf_add_shown(out, options->argv[i], strlen(options->argv[i]));
	}
	if (options->argc - 1 > WORDS_SHOWN)
		strbuf_add_str(out, " ...");
}

static int write_page(struct reporting *reporting)
{
	const struct options *options = reporting->options;
	const char *path = options_given(options, OPTION_ID_output_path) ? options->output_path
									 : LAUNCH_REPORT_FILE;
	struct strbuf text = {0}, command = {0};
	int r = 0;

	if (options->max_size.bytes == 0)
		return error_set(&reporting->err, MSCOPE_E_USAGE,
				 "--max-size takes bytes, such as 5M, not a percentage");
	add_command(options, &command);
	reporting->viewed.last_window = options->last_window;
	reporting->viewed.ends_now = true;
	if (options->anonymize)
		r = hide_names(reporting);
	if (r == 0)
		r = html_report(&reporting->viewed, options->max_size.bytes, strbuf_str(&command),
				&text, &reporting->err);
	if (r == 0) {
		r = io_replace(path, &text);
		if (r < 0)
			(void)error_set(&reporting->err, r, "cannot write %s: %s", path,
					mscope_status_str(r));
	}
	if (r == 0)
		cli_say("wrote %s (%zu KiB): open it in a browser", path, text.length / 1024);
	reporting->damaged = reporting->viewed.damaged > 0;
	if (r == 0 && reporting->damaged)
		cli_say("%zu of %zu runs %s damaged; the page has what can be read",
			reporting->viewed.damaged, reporting->viewed.count,
			reporting->viewed.damaged == 1 ? "is" : "are");
	strbuf_fini(&text);
	strbuf_fini(&command);
	return r;
}

/* ---- a text ---- */

static void keep_environment(struct reporting *reporting, const struct run *run)
{
	const char *kernel = run_identity(run, "kernel"), *machine = run_identity(run, "machine"),
		   *command = run_identity(run, "command");
	const struct trace_header *header = run_header(run);
	char stamp[16];

	strbuf_reset(&reporting->system);
	strbuf_reset(&reporting->command);
	strbuf_reset(&reporting->date);
	if (kernel != NULL && machine != NULL)
		strbuf_addf(&reporting->system, "Linux %s, %s", kernel, machine);
	if (command != NULL)
		strbuf_add_str(&reporting->command, command);
	project_stamp(header->realtime_ns, header->utc_offset_s, stamp);
	/* A snapshot of PyTorch need not say when it was. */
	if (header->realtime_ns > LONG_AGO_NS)
		strbuf_addf(&reporting->date, "%.4s-%.2s-%.2s %.2s:%.2s:%.2s", stamp, stamp + 4,
			    stamp + 6, stamp + 8, stamp + 10, stamp + 12);
}

/* Whether the newest run is the worst so far: its surroundings are told. */
static bool is_worst(const struct reporting *reporting)
{
	const struct digest *last = &reporting->digests[reporting->count - 1];
	size_t i;

	for (i = 0; i + 1 < reporting->count; i++) {
		const struct digest *one = &reporting->digests[i];

		if (screen_worst_first(&one, &last) < 0)
			return false;
	}
	return true;
}

/* A dump does not say what ran: it is called by its own name. */
static void name_dump(struct digest *digest, const struct run *run, const char *word)
{
	if (word == NULL || run_identity(run, "exe") != NULL ||
	    run_identity(run, "command") != NULL)
		return;
	free(digest->name);
	digest->name = strdup(strrchr(word, '/') == NULL ? word : strrchr(word, '/') + 1);
}

static int take_run(struct reporting *reporting, size_t index, struct anonymous *names)
{
	struct elf_cache elves = {0};
	struct pass_setup setup = {.elves = &elves, .oom_top = 0, .facts_directory = io_scratch()};
	struct pass pass = {0};
	struct input input = {0};
	struct report report = {0};
	struct what_if_asker what_if;
	struct digest *digest;
	int r = open_run(reporting, index, names, &input);
	const char *word = reporting->viewed.runs[index].word;

	if (r == 0) {
		setup.run = input.run;
		reading_choose(reporting->options, &setup);
		setup.analysis |= SESSION_LEAKS | SESSION_OOM;
		r = pass_open(&pass, &setup, &reporting->err);
	}
	if (r == 0)
		r = pass_all(&pass, &reporting->err);
	if (r == 0)
		r = ARRAY_RESERVE(reporting->digests, reporting->room, reporting->count + 1);
	if (r == 0) {
		report = (struct report){.replay = pass.replay,
					 .analyses = &pass.analyses,
					 .from_dump = input.imported,
					 .input_damaged = import_is_damaged(&input.import)};
		digest = &reporting->digests[reporting->count++];
		*digest = (struct digest){0};
		what_if_of_input(&report, &what_if, &input);
		digest_take(digest, &report);
		reporting->damaged =
			reporting->damaged || report_is_damaged(&report) || input.unfinished;
		name_dump(digest, input.run, names == NULL ? word : NULL);
		if (is_worst(reporting))
			keep_environment(reporting, input.run);
	} else if (reporting->err.code == 0) {
		(void)error_set(&reporting->err, r, "cannot read %s: %s", word,
				mscope_status_str(r));
	}
	pass_close(&pass);
	elf_cache_fini(&elves);
	input_close(&input);
	return r;
}

static void add_text(const struct reporting *reporting, const struct ticket_line *environment,
		     struct strbuf *out)
{
	struct strbuf lines = {0}, line = {0};
	struct screen screen = {.digests = reporting->digests, .count = reporting->count};

	for (; environment->name != NULL; environment++) {
		if (environment->text[0] == '\0')
			continue;
		strbuf_reset(&line);
		strbuf_addf(&line, "%s: ", environment->name);
		strbuf_add_shown(&line, environment->text, strlen(environment->text));
		screen_cut(strbuf_str(&line), SCREEN_COLUMNS, &lines);
		strbuf_add_char(&lines, '\n');
	}
	screen.after = strbuf_str(&lines);
	screen_text(&screen, out);
	strbuf_fini(&lines);
	strbuf_fini(&line);
}

static int write_text(struct reporting *reporting)
{
	const struct options *options = reporting->options;
	struct anonymous names = {0};
	struct strbuf text = {0};
	size_t i;
	int r = 0;

	for (i = 0; i < reporting->viewed.count && r == 0; i++)
		r = take_run(reporting, i, options->anonymize ? &names : NULL);
	anonymous_fini(&names);
	if (r == 0) {
		const struct ticket_line environment[] = {
			{"Command", strbuf_str(&reporting->command)},
			{"System", strbuf_str(&reporting->system)},
			{"Recorded", strbuf_str(&reporting->date)},
			{"Tool", "msmemscope " MSCOPE_VERSION},
			{NULL, NULL}};
		const struct ticket ticket = {.digests = reporting->digests,
					      .count = reporting->count,
					      .environment = environment};

		if (options->markdown)
			ticket_markdown(&ticket, &text);
		else
			add_text(reporting, environment, &text);
		if (!options_given(options, OPTION_ID_output_path))
			cli_write(STDOUT_FILENO, strbuf_str(&text), text.length);
		else
			r = io_replace(options->output_path, &text);
		if (r < 0)
			(void)error_set(&reporting->err, r, "cannot write %s: %s",
					options->output_path, mscope_status_str(r));
	}
	strbuf_fini(&text);
	return r;
}

int cmd_report(const struct options *options)
{
	struct reporting reporting = {.options = options, .viewed = {.directory = io_scratch()}};
	size_t i;
	int word, r = 0;

	for (word = 1; word < options->argc && r == 0; word++)
		r = viewed_add(&reporting.viewed, options->argv[word], &reporting.err);
	if (r == 0)
		r = options->text || options->markdown ? write_text(&reporting)
						       : write_page(&reporting);
	if (r < 0)
		cli_say("%s",
			reporting.err.code != 0 ? reporting.err.message : mscope_status_str(r));
	for (i = 0; i < reporting.count; i++)
		digest_fini(&reporting.digests[i]);
	for (i = 0; i < reporting.input_count; i++)
		input_close(&reporting.inputs[i]);
	free(reporting.inputs);
	free(reporting.digests);
	strbuf_fini(&reporting.system);
	strbuf_fini(&reporting.command);
	strbuf_fini(&reporting.date);
	viewed_fini(&reporting.viewed);
	return r < 0		   ? input_exit_code(r)
	       : reporting.damaged ? MSCOPE_EXIT_DAMAGED
				   : MSCOPE_EXIT_OK;
}
