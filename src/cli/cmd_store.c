/* SPDX-License-Identifier: Apache-2.0 */
/*
 * msmemscope store add DIR... --to URL: puts what processes held into a store. DIR is what info takes, a directory of results with
 * any number of projects in it, or files that --to rows:DIRECTORY wrote. The traces stay where they are; adding again changes
 * nothing. With --events=DIR their events are written, too (store_events.h).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/io.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/reading.h"
#include "cli/store_events.h"
#include "cli/store_place.h"
#include "engine/pass.h"
#include "engine/projects.h"
#include "symbols/elf_cache.h"

struct adding {
	const struct options *options;
	struct store_place place;
	struct store *store; /* open once there was something to store */
	char **items;	     /* what is added */
	size_t count, room;
	char stamp[SESSION_ID_MAX]; /* of the run where nothing names it */
	bool named;		    /* the first process has said how its launch is called */
	char *run;		    /* of the last process */
	uint32_t stored;
	int worst;
	/* What is wrong with the store, and would be for the next process too: no more is tried. */
	struct mscope_error failure;
};

/* ---- what is added ---- */

static int add_item(struct adding *adding, const char *path)
{
	if (ARRAY_RESERVE(adding->items, adding->room, adding->count + 1) < 0)
		return -ENOMEM;
	adding->items[adding->count] = strdup(path);
	if (adding->items[adding->count] == NULL)
		return -ENOMEM;
	adding->count++;
	return 0;
}

static int add_paths(struct adding *adding, const struct paths *paths)
{
	size_t i;
	int r = 0;

	for (i = 0; i < paths->count && r == 0; i++)
		r = add_item(adding, paths->all[i]);
	return r;
}

/* A directory of results is what is in it; anything else is itself. */
static int add_word(struct adding *adding, const char *word)
{
	struct paths rows = {0}, projects = {0}, unreadable = {0};
	size_t i;
	int r = paths_list(word, "*.rows", false, &rows);

	if (r == 0)
		r = projects_list(word, &projects, &unreadable);
	if (r == 0)
		r = add_paths(adding, &rows);
	if (r == 0)
		r = add_paths(adding, &projects);
	for (i = 0; i < unreadable.count; i++)
		cli_say("left out %s, which has no trace and no rows", unreadable.all[i]);
	if (r != -ENOMEM && rows.count + projects.count == 0)
		r = add_item(adding, word);
	paths_fini(&rows);
	paths_fini(&projects);
	paths_fini(&unreadable);
	return r;
}

/* Names of projects carry the time at which their process began: msmemscope_PID_STAMP_VENDOR. */
static void find_stamp(struct adding *adding)
{
	size_t i;

	for (i = 0; i < adding->count; i++) {
		const char *at = strchr(text_base_name(adding->items[i]), '_');

		at = at == NULL ? NULL : strchr(at + 1, '_');
		if (at == NULL || strspn(at + 1, "0123456789") != 14)
			continue;
		if (adding->stamp[0] == '\0' || strncmp(at + 1, adding->stamp + 4, 14) < 0)
			(void)snprintf(adding->stamp, sizeof(adding->stamp), "run-%.14s", at + 1);
	}
}

/* ---- one of them ---- */

static int put(struct adding *adding, const struct store_rows *rows)
{
	if (store_write(&adding->place.choice, &adding->store, rows, adding->options->store_wait,
			&adding->failure) < 0)
		return MSCOPE_EXIT_FAILED;
	adding->failure = (struct mscope_error){0}; /* of a try before the one that succeeded */
	adding->stored++;
	return MSCOPE_EXIT_OK;
}

static void keep_run(struct adding *adding, const char *name)
{
	free(adding->run);
	adding->run = strdup(name);
}

static int add_rows_file(struct adding *adding, const char *word)
{
	struct store_rows rows = {0};
	struct mscope_error err = {0};
	struct strbuf text = {0};
	struct stat st;
	int fd = io_open_file(word, O_RDONLY, &err), code = MSCOPE_EXIT_FAILED, r;
	char *room;

	if (fd < 0) {
		cli_say("%s", err.message);
		return MSCOPE_EXIT_FAILED;
	}
	r = fstat(fd, &st) < 0 ? -errno : 0;
	room = r < 0 ? NULL : strbuf_room(&text, (size_t)st.st_size);
	if (r == 0)
		r = room == NULL ? -ENOMEM : io_read_at(fd, room, (size_t)st.st_size, 0);
	if (r == 0)
		strbuf_end(&text, room + st.st_size);
	(void)close(fd);
	if (r == 0)
		r = store_rows_read(&rows, strbuf_str(&text), text.length, &err);
	if (r < 0) {
		cli_say("cannot read %s: %s", word,
			err.code != 0 ? err.message : mscope_status_str(r));
		code = MSCOPE_EXIT_DAMAGED;
	} else {
		const struct store_value *name = store_rows_at(&rows, STORE_runs, 0, 1);

		keep_run(adding,
			 adding->place.label.run != NULL ? adding->place.label.run : name->text);
		store_rows_rename(&rows, adding->run == NULL ? "" : adding->run);
		code = put(adding, &rows);
	}
	strbuf_fini(&text);
	store_rows_fini(&rows);
	return code;
}

/* The run of a process: as it was asked for, else as its launcher names it, else by the time. */
static void name_run(struct adding *adding, const struct run *run)
{
	char *launcher = adding->place.label.run == NULL ? store_run_name(run) : NULL;
	const char *id = run_identity(run, SESSION_ID_KEY);

	/* What is added together is one run: the first says which. */
	if (id != NULL && !adding->named)
		(void)snprintf(adding->stamp, sizeof(adding->stamp), "%s", id);
	adding->named = true;
	if (adding->stamp[0] == '\0') {
		(void)snprintf(adding->stamp, sizeof(adding->stamp), "run-");
		project_stamp(run_header(run)->realtime_ns, 0, adding->stamp + 4);
	}
	keep_run(adding, adding->place.label.run != NULL ? adding->place.label.run
			 : launcher != NULL		 ? launcher
							 : adding->stamp);
	free(launcher);
}

/* What was read goes to the store. */
static int add_report(struct adding *adding, const struct reading *reading,
		      const struct input *input, struct pass *pass, const char *path)
{
	struct report report = {
		.replay = pass->replay,
		.analyses = &pass->analyses,
		.trace_path = path,
		.from_dump = input->imported,
		.input_damaged = import_is_damaged(&input->import),
	};
	struct store_label label = adding->place.label;
	struct store_rows rows = {0};
	int code;

	label.run = adding->run == NULL ? adding->stamp : adding->run;
	store_take(&rows, &report, &label);
	code = put(adding, &rows);
	if (reading_is_damaged(reading, input, pass->replay, "what can be read is stored") &&
	    code == MSCOPE_EXIT_OK)
		code = MSCOPE_EXIT_DAMAGED;
	store_rows_fini(&rows);
	return code;
}

static int add_input(struct adding *adding, const struct reading *reading,
		     const struct input *input)
{
	const char *word = reading->word;
	const char *directory = adding->options->events_directory;
	struct elf_cache elves = {0};
	struct pass_setup setup = {.run = input->run, .elves = &elves};
	struct store_events events = {0};
	struct mscope_error err = {0};
	struct pass pass = {0};
	char real[PATH_MAX];
	const char *path = realpath(input->found, real) != NULL ? real : input->found;
	int r = 0, code = MSCOPE_EXIT_FAILED;

	name_run(adding, input->run);
	reading_choose(adding->options, &setup);
	if (run_identity(input->run, SESSION_LAUNCH_KEY) == NULL)
		setup.analysis |= SESSION_LEAKS;
	setup.analysis |= SESSION_TIMELINE;
	setup.follow_analysis = false;
	if (directory != NULL)
		r = store_events_choose(
			&events, directory, adding->run == NULL ? adding->stamp : adding->run,
			store_process_key(input->run, input->imported ? path : NULL), input,
			&setup);
	if (r == 0)
		r = pass_open(&pass, &setup, &err);
	if (r == 0)
		r = pass_all(&pass, &err);
	if (r == 0 && directory != NULL)
		r = store_events_end(&pass, input, &err);
	if (r == 0)
		code = add_report(adding, reading, input, &pass, path);
	else if (directory !=
		 NULL) /* a full disk, most likely, which the next one would meet, too */
		(void)error_set(&adding->failure, r, "%s: %s", word,
				err.code != 0 ? err.message : mscope_status_str(r));
	else
		cli_say("cannot read %s: %s", word, mscope_status_str(r));
	pass_close(&pass);
	store_events_fini(&events);
	elf_cache_fini(&elves);
	return code;
}

static int add_one(struct adding *adding, const char *word)
{
	struct reading reading = {.word = word, .log_level = adding->options->log_level};
	struct mscope_error err = {0};
	struct input input;
	int code, r;

	if (text_ends_with(word, ".rows")) {
		if (adding->options->events_directory != NULL)
			cli_say("%s has no events; add the results that it was made of", word);
		return add_rows_file(adding, word);
	}
	r = reading_open(&reading, &input, &err);
	if (r < 0) {
		cli_say("%s", err.message);
		code = input_exit_code(r);
	} else {
		code = add_input(adding, &reading, &input);
		(void)reading_warn_rows(&reading, &input);
	}
	input_close(&input);
	return code;
}

static void say_end(const struct adding *adding)
{
	struct strbuf text = {0};
	struct json json;

	if (adding->options->json) {
		json_begin(&json, &text);
		json_object(&json, NULL);
		json_string(&json, "store", adding->place.choice.url);
		json_string(&json, "run", adding->run == NULL ? "" : adding->run);
		json_u64(&json, "stored", adding->stored);
		json_u64(&json, "left", adding->count - adding->stored);
		json_string(&json, "error", adding->failure.message);
		json_end(&json);
		strbuf_add_char(&text, '\n');
		cli_write(STDOUT_FILENO, strbuf_str(&text), text.length);
		strbuf_fini(&text);
	}
	if (adding->failure.code != 0) {
		cli_say("%s; %u of %zu processes %s stored, nothing is lost: fix the cause and run the same command again",
			adding->failure.message, adding->stored, adding->count,
			adding->stored == 1 ? "is" : "are");
	} else if (!adding->options->json && adding->stored > 0 &&
		   adding->options->log_level <= OPT_LOG_WARN) {
		cli_say("%u process%s stored in %s, run %s", adding->stored,
			adding->stored == 1 ? " is" : "es are", adding->place.choice.url,
			adding->run == NULL ? "" : adding->run);
	}
}

int cmd_store(const struct options *options)
{
	struct adding adding = {.options = options};
	struct mscope_error err = {0};
	size_t i;
	int k, r;

	if (strcmp(options->argv[1], "add") != 0) {
		cli_say("unknown: store %s; use store add", options->argv[1]);
		return MSCOPE_EXIT_USAGE;
	}
	r = store_place_find(options, true, &adding.place, &err);
	if (r < 0) {
		cli_say("%s", err.message);
		return MSCOPE_EXIT_USAGE;
	}
	adding.place.choice.helper = adding.place.helper;
	if (adding.place.choice.url == NULL)
		adding.place.choice.url = STORE_DEFAULT;
	for (k = 2; r == 0 && k < options->argc; k++)
		r = add_word(&adding, options->argv[k]);
	if (r < 0) {
		cli_say("no memory");
		adding.worst = MSCOPE_EXIT_FAILED;
	} else {
		qsort(adding.items, adding.count, sizeof(char *), text_order);
		find_stamp(&adding);
	}
	for (i = 0; r == 0 && i < adding.count && adding.failure.code == 0; i++) {
		int code = add_one(&adding, adding.items[i]);

		if (code > adding.worst && adding.worst != MSCOPE_EXIT_FAILED)
			adding.worst = code;
		if (code == MSCOPE_EXIT_FAILED)
			adding.worst = code;
	}
	say_end(&adding);
	for (i = 0; i < adding.count; i++)
		free(adding.items[i]);
	free(adding.items);
	free(adding.run);
	store_close(adding.store);
	return adding.worst;
}
