/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a launch was asked to write, as a text of the trace's identity: "events:3 level:1 ... format:0 steps:1,2". The command writes
 * it into the session, each process copies it into its trace, and readers write and compare what the launch wrote. Names are those of
 * members of struct session; unknown ones are skipped, so names never change their meaning.
 */
#ifndef MSCOPE_TRACE_LAUNCH_H
#define MSCOPE_TRACE_LAUNCH_H

#include <stdbool.h>

#include "trace/session.h"

/* Puts the text into `session->launch`. */
void launch_write(struct session *session);

/* Sets the members that the text names. False: `text` is NULL, as in older traces; nothing was set. */
bool launch_read(const char *text, struct session *session);

#endif
