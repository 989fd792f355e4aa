/* SPDX-License-Identifier: Apache-2.0 */
/* Asks our package, from outside of Python code, to look for what keeps memory (python/msmemscope/_who.py). */
#ifndef MSCOPE_COLLECTOR_PYTHON_WHO_H
#define MSCOPE_COLLECTOR_PYTHON_WHO_H

#include "collector/collector.h"

/*
 * Any thread, in any hook. The interpreter's main thread does it when it next runs Python code; then control_block.looked is `number`.
 * 0, -ENOSYS: the process has no interpreter that runs; -EBUSY: the interpreter takes no more calls now.
 */
int python_ask_who(uint32_t number);

/* Functions of the package that answer the engine. */
enum answer_to {
	/* Its question in the header of the trace. */
	ANSWER_KEEPERS = 0,
	/* That in the session, trace/asked.h: also to a process without a trace. */
	ANSWER_CONTAINERS = 1,
};

/*
 * The same for a question of the engine, which is answered once. python_answer_turn() says who is at it. -EBUSY also while another
 * question is being answered.
 */
int python_ask_answer(enum answer_to to);

enum answer_turn {
	TURN_NOBODY = 0,
	TURN_MAIN = 1,	/* the main thread, when it next runs Python code */
	TURN_TAKEN = 2, /* somebody answers now */
};
enum answer_turn python_answer_turn(void);

/*
 * The main thread has not come: it sleeps in C, or waits for its threads. From one of those a thread of our own is started, which
 * answers and ends. Does nothing on the main thread.
 */
void python_answer_aside(void);

#endif
