/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the engine asks a living process: which of its objects keep the blocks of call sites that leak or may leak. Only the process
 * can tell (python/msmemscope/_keeper.py), and only the engine can judge; they meet in trace_header.question.
 */
#ifndef MSCOPE_ENGINE_KEEPER_QUESTION_H
#define MSCOPE_ENGINE_KEEPER_QUESTION_H

#include "engine/pipeline.h"

/* Judges what was read so far, and writes the call sites with some of their blocks into the header of the trace. */
void keeper_question(struct pipeline *pipeline);

/*
 * To be called now and then. Of a program that marks no steps nobody asks for a verdict while it runs, and its end is too late: the
 * variables of its functions are gone, or it is killed. So it is judged about 4, 8, 16, ... seconds after the trace began, and asked only if
 * a call site leaks or may leak.
 */
void keeper_watch(struct pipeline *pipeline, uint64_t now_ns);

#endif
