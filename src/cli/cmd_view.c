/* SPDX-License-Identifier: Apache-2.0 */
/*
 * msmemscope view RUN...: a page over recorded runs in the browser, until it is interrupted.
 */
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "cli/cli.h"
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
	char address[128];
	int exit_code = open_runs(options, &viewed), r;

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
		(void)snprintf(address, sizeof(address), "http://127.0.0.1:%u/?token=%s",
			       server.port, server.token);
		cli_say("open %s (Ctrl-C ends it)", address);
		if (!options->no_browser)
			open_browser(address);
		if (server_run(&server, &stopped) < 0)
			exit_code = MSCOPE_EXIT_FAILED;
		server_close(&server);
	}
	viewed_fini(&viewed);
	return exit_code;
}
