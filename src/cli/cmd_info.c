/* SPDX-License-Identifier: Apache-2.0 */
/*
 * msmemscope info TRACE...: what a trace holds. TRACE is a packed trace (trace.msc), a raw one, or a project directory.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "sink/report.h"
#include "trace/pack.h"
#include "trace/session.h"

struct found {
	char raw[PATH_MAX];  /* "" : none */
	char pack[PATH_MAX]; /* "" : none */
};

/* Which files a user's word means. */
static int find(const char *word, struct found *out, struct mscope_error *err)
{
	size_t length = strlen(word), suffix = strlen(SESSION_RAW);
	struct stat st;
	bool packed;
	int fd;

	*out = (struct found){0};
	if (length + 16 > sizeof(out->raw))
		return error_set(err, -ENAMETOOLONG, "%.64s... is too long a path", word);
	if (stat(word, &st) < 0)
		return error_set(err, -errno, "cannot open %s: %s", word, strerror(errno));
	if (S_ISDIR(st.st_mode)) {
		(void)snprintf(out->pack, sizeof(out->pack), "%s/trace.msc", word);
		if (access(out->pack, F_OK) < 0)
			return error_set(err, -ENOENT, "%s holds no trace.msc; name a trace or a project directory", word);
		return 0;
	}
	fd = open(word, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return error_set(err, -errno, "cannot open %s: %s", word, strerror(errno));
	packed = pack_probe(fd);
	(void)close(fd);
	if (packed) {
		(void)snprintf(out->pack, sizeof(out->pack), "%s", word);
		return 0;
	}
	(void)snprintf(out->raw, sizeof(out->raw), "%s", word);
	/* The engine's part of an unfinished trace lies beside it. */
	if (length > suffix && strcmp(word + length - suffix, SESSION_RAW) == 0) {
		(void)snprintf(out->pack, sizeof(out->pack), "%.*s%s", (int)(length - suffix), word, SESSION_PART);
		if (access(out->pack, F_OK) < 0)
			out->pack[0] = '\0';
	}
	return 0;
}

static int show(const struct options *options, const char *word, struct json *json, struct strbuf *text)
{
	struct elf_cache elves = {0};
	struct mscope_error err = {0};
	struct report report = {.trace_path = word, .detail = true};
	struct trace_event event;
	struct replay replay;
	struct found found;
	struct run *run = NULL;
	int r, exit_code = MSCOPE_EXIT_OK;

	r = find(word, &found, &err);
	if (r == 0)
		r = run_open(found.raw[0] != '\0' ? found.raw : NULL, found.pack[0] != '\0' ? found.pack : NULL, false, &run,
			     &err);
	if (r < 0) {
		cli_say("%s", err.message);
		return r == MSCOPE_E_DAMAGED || r == MSCOPE_E_TRUNCATED ? MSCOPE_EXIT_DAMAGED : MSCOPE_EXIT_FAILED;
	}
	replay_init(&replay, run, &elves, "");
	r = run_poll(run, 0, true);
	while (r == 0 && run_next(run, &event))
		r = replay_event(&replay, &event);
	if (r < 0) {
		cli_say("cannot read %s: %s", word, mscope_status_str(r));
		exit_code = MSCOPE_EXIT_FAILED;
	} else {
		report.replay = &replay;
		report.run = run;
		if (options->json)
			report_json(&report, json);
		else
			report_text(&report, text);
		if (report_is_damaged(&report) || found.raw[0] != '\0')
			exit_code = MSCOPE_EXIT_DAMAGED;
		if (found.raw[0] != '\0')
			cli_say("%s is unfinished; msmemscope recover makes its files", word);
	}
	replay_fini(&replay);
	elf_cache_fini(&elves);
	run_close(run);
	return exit_code;
}

int cmd_info(const struct options *options)
{
	struct strbuf text = {0};
	struct json json;
	int i, worst = MSCOPE_EXIT_OK;
	bool many = options->argc > 2;

	json_begin(&json, &text);
	if (options->json && many)
		json_array(&json, NULL);
	for (i = 1; i < options->argc; i++) {
		int r = show(options, options->argv[i], &json, &text);

		if (r > worst)
			worst = r;
	}
	if (options->json && many)
		json_end(&json);
	if (options->json && text.length > 0)
		strbuf_add_char(&text, '\n');
	cli_write(STDOUT_FILENO, strbuf_str(&text), text.length);
	strbuf_fini(&text);
	return worst;
}
