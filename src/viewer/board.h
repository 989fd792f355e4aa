/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processes of a launch that runs, as figures of now, and the forms in which they are shown: a frame for a terminal, JSON, and the
 * text format of Prometheus. Reads the files of the run beside its engine; the program and the engine do not notice.
 */
#ifndef MSCOPE_VIEWER_BOARD_H
#define MSCOPE_VIEWER_BOARD_H

#include "base/strbuf.h"
#include "engine/session_place.h"
#include "viewer/gauge.h"

struct board {
	struct session_place place;
	struct gauge **gauges; /* in the order in which their traces were found */
	size_t count, room;
	char **refused; /* names of traces that cannot be opened */
	size_t refused_count, refused_room;
	bool ended; /* the launch is over, and all of it has been read */
};

/* Opens the launch of a session directory. 0, or a negative code said in `err`; needs board_close() in either case. */
int board_open(struct board *board, const char *directory, struct mscope_error *err);
void board_close(struct board *board);

/* Reads on, for about this time at most. True: there is more to read. */
bool board_poll(struct board *board, uint64_t most_ms);

/* Ends a span of rates; asks for places and verdicts, and with `wait` has them on return. */
void board_mark(struct board *board, bool wait);

/* How a frame looks. */
struct board_look {
	size_t columns, rows; /* rows 0: as many as it takes */
	bool colours;
	bool keys; /* the last line names them */
};

/* Appends a frame: at most `rows` lines of at most `columns`. */
void board_text(const struct board *board, const struct board_look *look, struct strbuf *out);
void board_json(const struct board *board, struct strbuf *out);

/* The text exposition format 0.0.4 of Prometheus, of several launches. */
void board_metrics(const struct board *boards, size_t count, struct strbuf *out);

/* The name of the launch: that of its first process. */
const char *board_name(const struct board *board);

/* "runs", "waits", "blind", "ended" or "lost". */
const char *gauge_state_word(enum gauge_state state);

#endif
