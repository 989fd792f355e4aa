/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Call sites as a person reads them. A call site is a call stack by functions and lines, whatever instructions it went through; on a
 * screen it starts at the user's own code, and frames of runtimes, frameworks and the standard library are folded. Files have
 * all frames.
 *
 * The first call in a run reads lines of C frames (replay_stack_lines()), which may take seconds; so these are for the end of a
 * run, or for a moment that is worth it.
 */
#ifndef MSCOPE_FINDINGS_SITE_H
#define MSCOPE_FINDINGS_SITE_H

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
 * Appends one line without a newline: the user's caller, the user's own frame, then what it called if that is a framework's:
 *
 *     train.py:60 main -> model.py:41 Net.forward -> torch.nn.functional.relu
 *     main (leaky.c:70) -> grow (leaky.c:41)
 *
 * A stack of C frames without one of the user names PyTorch's operator, and the node of autograd that called it:
 *
 *     AddmmBackward0 -> aten::mm
 *
 * False, and nothing is appended, when no stack was recorded. Several call sites in one document have names (site_names.h), which
 * also show the frame that tells two of them apart.
 */
bool site_line(struct replay *replay, uint32_t stack, struct strbuf *out);

/* ---- what names are made of; `lines` are those of replay_stack_lines() ---- */

#define SITE_FRAMES 64u /* innermost ones, of which a name may show any */

/* The frames that a name shows at least, as bits. */
uint64_t site_frames_shown(const struct stack_line *lines, uint32_t count);

/* Whether a person could tell call sites apart by this frame: the user's own, or what a framework calls by a name. */
bool site_frame_tells(const struct stack_line *lines, uint32_t count, uint32_t at);

/* Appends one frame as a name shows it. */
void site_frame(const struct stack_line *line, struct strbuf *out);

/* Appends one frame for a line of its own, with the whole path of its file. */
void site_frame_long(const struct stack_line *line, struct strbuf *out);

/* Appends these frames, the outermost first, with " -> " between them; "..." if the user's own are beyond what was recorded. */
void site_add_name(struct replay *replay, uint32_t stack, const struct stack_line *lines,
		   uint32_t count, uint64_t shown, struct strbuf *out);

/* How many of the frames a list for people has: those outside of main(), and what starts a thread, are the same in every stack. */
uint32_t site_own_frames(const struct stack_line *lines, uint32_t count);

/*
 * Appends the frames of a stack that are the user's own: indented, a line each, the outermost first as in a name, at most `frames`,
 * the innermost ones; those of others are left out. With SITE_ALL every frame but those of a recorder and those outside of main().
 * A stack that was cut starts with "...". Nothing if no stack was recorded.
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
