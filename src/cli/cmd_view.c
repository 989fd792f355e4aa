/* SPDX-License-Identifier: Apache-2.0 */
/*
 * msmemscope view RUN...: a page over recorded runs in the browser, until it is interrupted; view STORE [--run=NAME]: over a run of
 * a store.
 */
#include <fcntl.h>
#include <limits.h>
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

/*
 * A file for this user alone that leads to the page: every user of the machine can read the arguments of a browser, and the address has
 * the token. Its path goes to `out`; false: there is none.
 */
static bool write_redirect(const char *address, char *out, size_t bytes)
{
	const char *place = getenv("XDG_RUNTIME_DIR");
	struct strbuf text = {0};
	int fd, r;

	(void)snprintf(out, bytes, "%s/msmemscope-XXXXXX.html",
		       place != NULL && place[0] == '/' ? place : io_scratch());
	fd = mkostemps(out, (int)strlen(".html"), O_CLOEXEC);
	if (fd < 0)
		return false;
	strbuf_addf(
		&text,
		"<!doctype html><title>msmemscope</title><meta http-equiv=\"refresh\" content=\"0; url=%s\">\n",
		address);
	r = io_flush(fd, &text);
	strbuf_fini(&text);
	if (close(fd) == 0 && r == 0)
		return true;
	(void)unlink(out);
	return false;
}

/*
 * Asks the desktop to show the page; where there is none, the address on the screen is enough. `redirect` is the path of a file that is
 * to be removed at the end, empty if there is none.
 */
static void open_browser(const char *address, char *redirect, size_t bytes)
{
	const char *browser = getenv("BROWSER");
	char opener[] = "xdg-open", *words[] = {opener, redirect, NULL};
	pid_t pid;

	if (getenv("DISPLAY") == NULL && getenv("WAYLAND_DISPLAY") == NULL && browser == NULL)
		return;
	if (!write_redirect(address, redirect, bytes)) {
		redirect[0] = '\0';
		return;
	}
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
	char address[128], redirect[PATH_MAX] = "";
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
		cli_say("open %s (Ctrl-C stops)", address);
		if (!options->no_browser)
			open_browser(address, redirect, sizeof(redirect));
		if (server_run(&server, &stopped) < 0)
			exit_code = MSCOPE_EXIT_FAILED;
		server_close(&server);
		if (redirect[0] != '\0')
			(void)unlink(redirect);
	}
	store_page_close(page);
	viewed_fini(&viewed);
	return exit_code;
}
