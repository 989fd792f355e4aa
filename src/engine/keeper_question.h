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

#endif
