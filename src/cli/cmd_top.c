/* SPDX-License-Identifier: Apache-2.0 */
/*
 * msmemscope top [PID|DIR]: what a launch that runs holds now. On a terminal a frame every second until q, Ctrl-C or the end of the
 * launch; else one frame. With --prometheus it serves the same figures and shows nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/io.h"
#include "cli/cli.h"
#include "engine/running.h"
#include "sink/project.h"
#include "viewer/board.h"
#include "viewer/server.h"

#define FRAME_NS     UINT64_C(1000000000)
#define READ_MS	     200u /* at a time, so that keys are answered meanwhile */
#define COLUMNS	     80
#define ROWS	     24
#define TOKEN_FILE   "prometheus_token"
#define LAUNCHES_MAX 64u

static volatile int stopped, resized, suspended;

static void on_stop(int signal_number)
{
	(void)signal_number;
	stopped = 1;
}

static void on_resize(int signal_number)
{
	(void)signal_number;
	resized = 1;
}

static void on_suspend(int signal_number)
{
	(void)signal_number;
	suspended = 1;
}

static void catch_signals(void)
{
	static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
	struct sigaction action = {.sa_handler = on_stop};
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(ends); i++)
		(void)sigaction(ends[i], &action, NULL);
	(void)signal(SIGPIPE, SIG_IGN);
}

/* ---- one frame ---- */

static void read_all(struct board *board)
{
	while (stopped == 0 && board_poll(board, READ_MS))
		;
}

static int show_once(const struct options *options, struct board *board)
{
	struct board_look look = {.columns = COLUMNS};
	struct strbuf text = {0};
	struct winsize size;
	const char *columns = getenv("COLUMNS");

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
		look.columns = size.ws_col;
	else if (columns != NULL && atoi(columns) > 0)
		look.columns = (size_t)atoi(columns);
	read_all(board);
	board_mark(board, true);
	if (options->json)
		board_json(board, &text);
	else
		board_text(board, &look, &text);
	cli_write(STDOUT_FILENO, strbuf_str(&text), text.length);
	strbuf_fini(&text);
	return MSCOPE_EXIT_OK;
}

/* ---- a terminal ---- */

struct terminal {
	struct termios before;
	bool keys; /* stdin is one: its settings are ours for a while */
};

static void enter(struct terminal *terminal)
{
	static const char begin[] = "\033[?1049h\033[?25l";
	struct termios quiet;

	terminal->keys = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &terminal->before) == 0;
	if (terminal->keys) {
		quiet = terminal->before;
		quiet.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
		quiet.c_cc[VMIN] = 0;
		quiet.c_cc[VTIME] = 0;
		(void)tcsetattr(STDIN_FILENO, TCSANOW, &quiet);
	}
	cli_write(STDOUT_FILENO, begin, sizeof(begin) - 1);
}

static void leave(const struct terminal *terminal)
{
	static const char end[] = "\033[?25h\033[?1049l";

	cli_write(STDOUT_FILENO, end, sizeof(end) - 1);
	if (terminal->keys)
		(void)tcsetattr(STDIN_FILENO, TCSADRAIN, &terminal->before);
}

/* Ctrl-Z: the shell has its terminal until we are continued. */
static void suspend(struct terminal *terminal)
{
	suspended = 0;
	leave(terminal);
	(void)raise(SIGSTOP);
	enter(terminal);
	resized = 1;
}

static bool has_colours(void)
{
	const char *none = getenv("NO_COLOR");

	return none == NULL || none[0] == '\0';
}

static void draw(const struct board *board)
{
	struct board_look look = {
		.columns = COLUMNS, .rows = ROWS, .colours = has_colours(), .keys = true};
	struct strbuf text = {0}, out = {0};
	struct winsize size;
	const char *at, *end;
	int row = 0;

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
		look.columns = size.ws_col;
		look.rows = size.ws_row;
	}
	board_text(board, &look, &text);
	for (at = strbuf_str(&text); *at != '\0'; at = end + 1) {
		end = strchr(at, '\n');
		/* Each line goes to its row: a line feed on a terminal that has just shrunk would scroll. */
		strbuf_addf(&out, "\033[%d;1H", ++row);
		strbuf_add(&out, at, (size_t)(end - at));
		strbuf_add_str(&out, "\033[K");
	}
	strbuf_add_str(&out, "\033[J");
	cli_write(STDOUT_FILENO, strbuf_str(&out), out.length);
	strbuf_fini(&text);
	strbuf_fini(&out);
}

/* Waits for a key, a signal or the time. True: the user wants to leave. */
static bool wait_for_key(const struct terminal *terminal, int timeout_ms)
{
	struct pollfd poll_in = {.fd = terminal->keys ? STDIN_FILENO : -1, .events = POLLIN};
	char key;
	ssize_t got;

	if (poll(&poll_in, 1, timeout_ms) <= 0 || poll_in.revents == 0)
		return false;
	got = read(STDIN_FILENO, &key, 1);
	/* 3: Ctrl-C of a terminal that makes no signal of it. */
	return got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN) ||
	       (got == 1 && (key == 'q' || key == 'Q' || key == 3));
}

static int show_frames(struct board *board)
{
	struct sigaction action = {.sa_handler = on_resize}, stop = {.sa_handler = on_suspend};
	struct board_look last = {.columns = COLUMNS};
	struct terminal terminal;
	uint64_t next = 0, now;
	bool more, left = false;

	(void)sigaction(SIGWINCH, &action, NULL);
	(void)sigaction(SIGTSTP, &stop, NULL);
	enter(&terminal);
	while (stopped == 0 && !left && !board->ended) {
		more = board_poll(board, READ_MS);
		now = clock_monotonic_ns();
		if (now >= next) {
			board_mark(board, false);
			next = now + FRAME_NS;
			resized = 1;
		}
		if (resized) {
			resized = 0;
			draw(board);
		}
		left = wait_for_key(&terminal, more ? 0 : (int)((next - now) / 1000000u) + 1);
		if (suspended)
			suspend(&terminal);
	}
	leave(&terminal);
	if (board->ended) {
		struct strbuf text = {0};

		board_mark(board, true);
		board_text(board, &last, &text);
		cli_write(STDOUT_FILENO, strbuf_str(&text), text.length);
		strbuf_fini(&text);
	}
	return MSCOPE_EXIT_OK;
}

/* ---- Prometheus ---- */

struct exporter {
	const char *word; /* NULL: all launches, as they come and go */
	struct board boards[LAUNCHES_MAX];
	size_t count;
	uint64_t next_ns; /* when all of them are looked at again */
	bool over;	  /* the launch that was named has ended */
};

static void add_launches(struct exporter *exporter, const struct running *running)
{
	struct mscope_error err = {0};
	size_t i, k;

	for (i = 0; i < running->count && exporter->count < LAUNCHES_MAX; i++) {
		for (k = 0; k < exporter->count &&
			    strcmp(exporter->boards[k].place.directory, running->all[i]) != 0;
		     k++)
			;
		if (k == exporter->count &&
		    board_open(&exporter->boards[k], running->all[i], &err) == 0)
			exporter->count++;
	}
}

static bool read_launches(struct exporter *exporter)
{
	bool more = false;
	size_t i;

	for (i = 0; i < exporter->count; i++)
		more |= board_poll(&exporter->boards[i], READ_MS);
	return more;
}

/* Forgets launches that are over. */
static void drop_ended(struct exporter *exporter)
{
	size_t i, kept = 0;

	for (i = 0; i < exporter->count; i++) {
		if (exporter->boards[i].ended)
			board_close(&exporter->boards[i]);
		else
			exporter->boards[kept++] = exporter->boards[i];
	}
	exporter->count = kept;
}

static bool on_work(void *arg)
{
	struct exporter *exporter = arg;
	uint64_t now = clock_monotonic_ns();
	struct running running = {0};
	struct mscope_error err = {0};
	bool more;
	size_t i;

	if (now < exporter->next_ns)
		return false;
	exporter->next_ns = now + FRAME_NS;
	if (exporter->word == NULL && running_find(NULL, &running, &err) == 0)
		add_launches(exporter, &running);
	running_fini(&running);
	more = read_launches(exporter);
	for (i = 0; i < exporter->count; i++)
		board_mark(&exporter->boards[i], false);
	drop_ended(exporter);
	exporter->over = exporter->word != NULL && exporter->count == 0;
	if (exporter->over)
		stopped = 1;
	if (more)
		exporter->next_ns = now;
	return more;
}

/* Whoever asks gets the figures of this moment. */
static void on_metrics(void *arg, struct strbuf *out)
{
	struct exporter *exporter = arg;

	(void)read_launches(exporter);
	board_metrics(exporter->boards, exporter->count, out);
}

/* The token of an earlier one, so that a scrape configuration stays good; a file that others can read or have made is not used. */
static bool read_token(const char *path, char out[SERVER_TOKEN_BYTES])
{
	int fd = io_open_file(path, O_RDONLY | O_NOFOLLOW, NULL);
	struct stat st;
	bool good = fd >= 0 && fstat(fd, &st) == 0 && st.st_uid == geteuid() &&
		    (st.st_mode & 0777) == 0600 &&
		    io_read_at(fd, out, SERVER_TOKEN_BYTES - 1, 0) == 0;

	if (fd >= 0)
		(void)close(fd);
	out[SERVER_TOKEN_BYTES - 1] = '\0';
	return good && strspn(out, "0123456789abcdef") == SERVER_TOKEN_BYTES - 1;
}

static int keep_token(struct server *server, const char *directory, char path[PATH_MAX])
{
	char token[SERVER_TOKEN_BYTES];
	int fd, r = project_mkdirs(directory);

	if (r == 0 && snprintf(path, PATH_MAX, "%s/" TOKEN_FILE, directory) >= PATH_MAX)
		r = -ENAMETOOLONG;
	if (r == 0 && read_token(path, token)) {
		memcpy(server->token, token, sizeof(token));
		return 0;
	}
	if (r < 0)
		return r;
	(void)unlink(path);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	r = io_write(fd, server->token, SERVER_TOKEN_BYTES - 1);
	(void)close(fd);
	return r;
}

static int serve(const struct options *options, const char *word, const struct running *running)
{
	struct exporter *exporter = calloc(1, sizeof(*exporter));
	struct mscope_error err = {0};
	struct server server = {.fd = -1};
	const char *directory = options->output_path;
	char path[PATH_MAX];
	int exit_code = MSCOPE_EXIT_FAILED, r;

	if (exporter == NULL) {
		cli_say("no memory");
		return MSCOPE_EXIT_FAILED;
	}
	exporter->word = word;
	add_launches(exporter, running);
	if (word != NULL && exporter->count > 0 && !options_given(options, OPTION_ID_output_path))
		directory = exporter->boards[0].place.session->output;
	r = server_open(&server, NULL, (uint16_t)options->prometheus, &err);
	if (r == 0) {
		r = keep_token(&server, directory, path);
		if (r < 0)
			(void)error_set(&err, r, "cannot write the token to %s: %s", directory,
					strerror(-r));
	}
	if (r < 0) {
		cli_say("%s", err.message);
	} else {
		server.metrics = on_metrics;
		server.work = on_work;
		server.arg = exporter;
		cli_say("serving http://127.0.0.1:%u/metrics; the token is in %s (Ctrl-C stops)",
			server.port, path);
		if (server_run(&server, &stopped) == 0)
			exit_code = MSCOPE_EXIT_OK;
	}
	if (server.fd >= 0)
		server_close(&server);
	while (exporter->count > 0)
		board_close(&exporter->boards[--exporter->count]);
	free(exporter);
	return exit_code;
}

/* ---- which launch ---- */

/* Several run, and none was named. */
static int list_launches(const struct options *options, const struct running *running)
{
	struct strbuf text = {0};
	struct mscope_error err = {0};
	size_t i;

	if (!options->json)
		strbuf_add_str(&text, "    PID  PROGRAM               RESULTS\n");
	for (i = 0; i < running->count; i++) {
		struct board board = {0};

		if (board_open(&board, running->all[i], &err) == 0) {
			read_all(&board);
			if (options->json) {
				board_mark(&board, true);
				board_json(&board, &text);
			} else {
				strbuf_addf(&text, "%7u  %-20s  %s\n",
					    board.place.session->launch_pid, board_name(&board),
					    board.place.session->output);
			}
		}
		board_close(&board);
	}
	if (options->json)
		cli_write(STDOUT_FILENO, strbuf_str(&text), text.length);
	else
		cli_show(STDOUT_FILENO, &text);
	strbuf_fini(&text);
	if (!options->json)
		cli_say("%zu launches are running; choose one: msmemscope top PID", running->count);
	return MSCOPE_EXIT_OK;
}

static int show_launch(const struct options *options, const char *directory)
{
	const char *term = getenv("TERM");
	struct board board = {0};
	struct mscope_error err = {0};
	int exit_code;

	if (board_open(&board, directory, &err) < 0) {
		cli_say("%s", err.message);
		exit_code = MSCOPE_EXIT_FAILED;
	} else if (options->once || options->json || !isatty(STDOUT_FILENO) || term == NULL ||
		   strcmp(term, "dumb") == 0) {
		exit_code = show_once(options, &board);
	} else {
		exit_code = show_frames(&board);
	}
	board_close(&board);
	return exit_code;
}

/* Without a word: the launches of this user, and how many others there are. Root sees them, and may not open their sessions. */
static void keep_own(struct running *running, size_t *out_others)
{
	struct running own;

	running_own(&own);
	*out_others = running->count > own.count ? running->count - own.count : 0;
	running_fini(running);
	*running = own;
}

static void say_none(size_t others)
{
	if (others == 0)
		cli_say("no launch of this user is running");
	else
		cli_say("no launch of this user is running; other users run %zu", others);
}

int cmd_top(const struct options *options)
{
	const char *word = options->argc > 1 ? options->argv[1] : NULL;
	bool serves = options_given(options, OPTION_ID_prometheus);
	struct mscope_error err = {0};
	struct running running = {0};
	int exit_code = MSCOPE_EXIT_FAILED;
	size_t others = 0;
	int r;

	catch_signals();
	descriptors_raise();
	r = running_find(word, &running, &err);
	if (r == 0 && word == NULL && !serves)
		keep_own(&running, &others);
	if (r < 0)
		cli_say("%s", err.message);
	else if (serves)
		exit_code = serve(options, word, &running);
	else if (running.count == 0)
		say_none(others);
	else if (running.count > 1)
		exit_code = list_launches(options, &running);
	else
		exit_code = show_launch(options, running.all[0]);
	running_fini(&running);
	return exit_code;
}
