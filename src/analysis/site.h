/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Places as a person reads them. A place is a call stack by functions and lines, whatever instructions it went through; on a
 * screen it begins at the user's own code, and frames of runtimes, frameworks and the standard library are folded. Files have
 * all frames.
 *
 * The first call in a run reads lines of C frames (replay_stack_lines()), which may take seconds; so these are for the end of a
 * run, or for a moment that is worth it.
 */
#ifndef MSCOPE_ANALYSIS_SITE_H
#define MSCOPE_ANALYSIS_SITE_H

#include "base/json.h"
#include "base/strbuf.h"
#include "replay/replay.h"

/* More frames than any stack has: site_text() then folds nothing. */
#define SITE_ALL UINT32_MAX

/*
 * The place of a stack: the lowest stack number with the same functions and lines, so that it can be shown like a stack. 0 for
 * stack 0. A function of the trace.
 */
uint32_t site_of(struct replay *replay, uint32_t stack);

/*
 * Appends one line without a newline: the user's own frame, before it what it called if that is a framework's, behind it the
 * user's caller where there is room:
 *
 *     torch.nn.functional.relu <- model.py:41 Net.forward
 *     grow (leaky.c:41) <- main (leaky.c:70)
 *
 * A stack of C frames without one of the user names PyTorch's operator, and the node of autograd that called it:
 *
 *     aten::mm <- AddmmBackward0
 *
 * False, and nothing is appended, when no stack was recorded.
 */
bool site_line(struct replay *replay, uint32_t stack, struct strbuf *out);

/*
 * Appends the frames of a stack from the user's own on: indented, a line each, at most `frames`; those of others are left out.
 * With SITE_ALL every frame but those of a recorder. Nothing if no stack was recorded.
 */
void site_text(struct replay *replay, uint32_t stack, uint32_t frames, struct strbuf *out);

/*
 * All frames as a value, innermost first: an array of objects with "function", "file", "line", "module", each where it is known,
 * and "user", true for the user's own code.
 */
void site_json(struct replay *replay, uint32_t stack, const char *key, struct json *json);

/* Appends what kept lines from being shown, a line that begins with "Note: " each; nothing where all were found. */
void site_notes(struct replay *replay, struct strbuf *out);

#endif
