/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What keeps the memory of a process that runs. The process has looked and its answers are records of its trace; they are read beside
 * its engine, as `top` reads it, with the verdicts of this moment.
 */
#include "cli/ctl_who.h"

#include <stdio.h>
#include <unistd.h>

#include "base/json.h"
#include "cli/cli.h"
#include "engine/running.h"
#include "viewer/board.h"

/* The engine judges at most 3 s; then there is the scan, and what the main thread does before. */
#define LOOK_MS 30000u
#define READ_MS 1000u

static struct gauge *gauge_of(struct board *board, uint32_t pid)
{
	struct gauge *found = NULL;
	size_t i;

	/* A process that has replaced itself by exec has several traces; the latest is its own. */
	for (i = 0; i < board->count; i++) {
		if (board->gauges[i]->pid == pid && board->gauges[i]->state != GAUGE_ENDED)
			found = board->gauges[i];
	}
	return found;
}

static void show_text(const struct findings *found, uint32_t pid, struct strbuf *out)
{
	const struct finding_place *places = FINDINGS(found, place);
	size_t i, shown = 0;

	for (i = 0; i < FINDINGS_COUNT(found, place); i++) {
		if (places[i].verdict == GROWTH_KEPT)
			continue;
		shown++;
		strbuf_addf(out, "%s  ", places[i].verdict == GROWTH_LEAK ? "LEAK" : "SUSPECT");
		place_line(found, &places[i], out);
		strbuf_add_char(out, '\n');
		if (places[i].keepers.count == 0)
			strbuf_add_str(out, "  kept by: unknown\n");
		keeper_lines(found, &places[i], "  ", out);
	}
	if (shown == 0)
		strbuf_addf(out, "No call site of process %u leaks or may leak so far.\n", pid);
}

static void show_json(const struct findings *found, uint32_t pid, struct strbuf *out)
{
	struct json json;

	json_begin(&json, out);
	json_object(&json, NULL);
	json_u64(&json, "pid", pid);
	findings_json(found, FINDING_place, "places", SIZE_MAX, &json);
	json_end(&json);
	strbuf_add_char(out, '\n');
}

static int show(struct gauge *gauge, const struct options *options)
{
	struct findings found = {0};
	struct strbuf text = {0};
	int exit_code = MSCOPE_EXIT_OK;

	gauge_findings(gauge, options->json ? SIZE_MAX : 0, &found);
	if (options->json)
		show_json(&found, gauge->pid, &text);
	else
		show_text(&found, gauge->pid, &text);
	if (found.failed || strbuf_failed(&text)) {
		cli_say("no memory");
		exit_code = MSCOPE_EXIT_FAILED;
	} else if (options->json) {
		cli_write(STDOUT_FILENO, strbuf_str(&text), text.length);
	} else {
		cli_show(STDOUT_FILENO, &text);
	}
	strbuf_fini(&text);
	findings_fini(&found);
	return exit_code;
}

int ctl_who(const struct remote *remote, const struct options *options)
{
	struct mscope_error err = {0};
	struct running running = {0};
	struct board board = {0};
	struct gauge *gauge = NULL;
	int exit_code = MSCOPE_EXIT_FAILED;
	char word[16];

	(void)snprintf(word, sizeof(word), "%u", remote->pid);
	if (remote_wait_looked(remote, LOOK_MS, &err) < 0 ||
	    running_find(word, &running, &err) < 0) {
		cli_say("%s", err.message);
	} else if (running.count == 0) {
		cli_say("no engine follows process %u", remote->pid);
	} else if (board_open(&board, running.all[0], &err) < 0) {
		cli_say("%s", err.message);
	} else {
		while (board_poll(&board, READ_MS))
			;
		gauge = gauge_of(&board, remote->pid);
		if (gauge == NULL || gauge->pass.replay == NULL || !gauge->caught_up)
			cli_say("the trace of process %u cannot be read before it ends",
				remote->pid);
		else
			exit_code = show(gauge, options);
	}
	board_close(&board);
	running_fini(&running);
	return exit_code;
}
