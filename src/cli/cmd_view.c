/* SPDX-License-Identifier: Apache-2.0 */
/*
 * msmemscope view RUN...: a page over recorded runs in the browser, until it is interrupted; view STORE [--run=NAME]: over a run of
 * a store.
 */
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "cli/cli.h"
#include "cli/store_place.h"
#include "viewer/server.h"

#define FIRST_EVENTS 300000u /* read before the page opens; the rest while it is looked at */

static volatile int stopped;

static void on_stop(int signal_number)
{
	(void)signal_number;
	stopped = 1;
}

/* Adds all runs and begins to read the first: what cannot be read is said before a page opens. 0 or the exit code. */
static int open_runs(const struct options *options, struct viewed *viewed)
{
	struct mscope_error err = {0};
	int i, r = 0;

	viewed->directory = io_scratch();
	for (i = 1; i < options->argc && r == 0; i++)
		r = viewed_add(viewed, options->argv[i], &err);
	if (r == 0 && viewed_model(viewed, 0, FIRST_EVENTS, &err) == NULL)
		r = err.code;
	if (r < 0) {
		cli_say("%s", err.message);
		return input_exit_code(r);
	}
	return MSCOPE_EXIT_OK;
}

/* The run of a store in place of traces. 0 or the exit code. */
static int open_store(const struct options *options, struct store_place *place,
		      struct viewed *viewed, struct store_page **out)
{
	struct mscope_error err = {0};
	int r = store_place_find(options, false, place, &err);

	viewed->directory = io_scratch();
	place->choice.url = options->argv[1];
	place->choice.helper = place->helper;
	if (r == 0 && options->argc > 2)
		r = error_set(&err, MSCOPE_E_USAGE, "view shows one store; --run names its run");
	if (r == 0)
		r = store_page_open(&place->choice, options->run != NULL ? options->run : "",
				    viewed, out, &err);
	if (r == 0)
		return MSCOPE_EXIT_OK;
	cli_say("%s", err.message);
	return r == MSCOPE_E_USAGE ? MSCOPE_EXIT_USAGE : MSCOPE_EXIT_FAILED;
}

/* Asks the desktop to show the page; where there is none, the address on the screen is enough. */
static void open_browser(char *address)
{
	const char *browser = getenv("BROWSER");
	char opener[] = "xdg-open", *words[] = {opener, address, NULL};
	pid_t pid;

	if (getenv("DISPLAY") == NULL && getenv("WAYLAND_DISPLAY") == NULL && browser == NULL)
		return;
	if (browser != NULL)
		words[0] = (char *)(uintptr_t)browser;
	(void)signal(SIGCHLD, SIG_IGN);
	(void)posix_spawnp(&pid, words[0], NULL, NULL, words, environ);
}

int cmd_view(const struct options *options)
{
	struct sigaction action = {.sa_handler = on_stop};
	struct viewed viewed = {0};
	struct mscope_error err = {0};
	struct server server;
	struct store_page *page = NULL;
	struct store_place place;
	char address[128];
	int exit_code = store_page_is_url(options->argv[1])
				? open_store(options, &place, &viewed, &page)
				: open_runs(options, &viewed);
	int r;

	if (exit_code != MSCOPE_EXIT_OK) {
		viewed_fini(&viewed);
		return exit_code;
	}
	(void)sigaction(SIGINT, &action, NULL);
	(void)sigaction(SIGTERM, &action, NULL);
	(void)signal(SIGPIPE, SIG_IGN);
	r = server_open(&server, &viewed, (uint16_t)options->port, &err);
	if (r < 0) {
		cli_say("%s", err.message);
		exit_code = MSCOPE_EXIT_FAILED;
	} else {
		server.store = page;
		(void)snprintf(address, sizeof(address), "http://127.0.0.1:%u/?token=%s",
			       server.port, server.token);
		cli_say("open %s (Ctrl-C ends it)", address);
		if (!options->no_browser)
			open_browser(address);
		if (server_run(&server, &stopped) < 0)
			exit_code = MSCOPE_EXIT_FAILED;
		server_close(&server);
	}
	store_page_close(page);
	viewed_fini(&viewed);
	return exit_code;
}
