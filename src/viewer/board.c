/* SPDX-License-Identifier: Apache-2.0 */
#include "viewer/board.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/text.h"
#include "engine/barrier.h"

#define SLICE_EVENTS 50000u /* some 10 ms */

int board_open(struct board *board, const char *directory, struct mscope_error *err)
{
	*board = (struct board){0};
	return session_open(directory, &board->place, err);
}

void board_close(struct board *board)
{
	size_t i;

	for (i = 0; i < board->count; i++) {
		gauge_close(board->gauges[i]);
		free(board->gauges[i]);
	}
	for (i = 0; i < board->refused_count; i++)
		free(board->refused[i]);
	free(board->gauges);
	free(board->refused);
	if (board->place.dir_fd > 0)
		session_close(&board->place);
	*board = (struct board){0};
}

static bool is_known(const struct board *board, const char *name)
{
	size_t i;

	for (i = 0; i < board->count; i++) {
		if (strcmp(strrchr(board->gauges[i]->live.raw, '/') + 1, name) == 0)
			return true;
	}
	for (i = 0; i < board->refused_count; i++) {
		if (strcmp(board->refused[i], name) == 0)
			return true;
	}
	return false;
}

static void add(struct board *board, const char *name)
{
	struct gauge *gauge = calloc(1, sizeof(*gauge));
	struct mscope_error err = {0};
	char *copy;

	if (gauge == NULL || ARRAY_RESERVE(board->gauges, board->room, board->count + 1) < 0) {
		free(gauge);
		return;
	}
	if (gauge_open(gauge, board->place.files, name, board->place.session, &err) == 0) {
		board->gauges[board->count++] = gauge;
		return;
	}
	gauge_close(gauge);
	free(gauge);
	/* One that is being made is there completely or not at all; this one is foreign or damaged. */
	if (ARRAY_RESERVE(board->refused, board->refused_room, board->refused_count + 1) == 0 &&
	    (copy = strdup(name)) != NULL)
		board->refused[board->refused_count++] = copy;
}

/* Opens traces that are new. False: the directory is gone, or holds no trace any more. */
static bool scan(struct board *board)
{
	DIR *dir = opendir(board->place.files);
	const struct dirent *entry;
	bool some = false;

	while (dir != NULL && (entry = readdir(dir)) != NULL) {
		if (entry->d_name[0] == '.' || !text_ends_with(entry->d_name, SESSION_RAW))
			continue;
		some = true;
		if (!is_known(board, entry->d_name))
			add(board, entry->d_name);
	}
	if (dir != NULL)
		(void)closedir(dir);
	return some;
}

/* The directory goes when the launch has ended. */
static bool is_gone(const struct board *board)
{
	return access(board->place.directory, F_OK) < 0;
}

bool board_poll(struct board *board, uint64_t most_ms)
{
	uint64_t until = clock_monotonic_ns() + most_ms * 1000000u, now;
	bool gone = is_gone(board), more, barrier;
	size_t i;

	(void)scan(board);
	do {
		more = false;
		now = clock_monotonic_ns();
		barrier = barrier_all();
		for (i = 0; i < board->count; i++)
			more |= gauge_poll(board->gauges[i], barrier ? now : 0, SLICE_EVENTS);
	} while (more && clock_monotonic_ns() < until);
	board->ended = gone && !more;
	for (i = 0; i < board->count; i++)
		board->ended &= board->gauges[i]->state == GAUGE_ENDED ||
				board->gauges[i]->state == GAUGE_LOST;
	return more;
}

void board_mark(struct board *board, bool wait)
{
	uint64_t now = clock_monotonic_ns();
	size_t i;

	for (i = 0; i < board->count; i++) {
		gauge_mark(board->gauges[i], now);
		if (board->gauges[i]->caught_up)
			gauge_judge(board->gauges[i], wait);
	}
}

const char *board_name(const struct board *board)
{
	return board->count > 0 && board->gauges[0]->name != NULL ? board->gauges[0]->name
								  : "(nothing recorded yet)";
}

const char *gauge_state_word(enum gauge_state state)
{
	static const char *const words[] = {"runs", "waits", "blind", "ended", "lost"};

	return words[state];
}
