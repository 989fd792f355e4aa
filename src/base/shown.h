/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts of the program's own, as they may leave the tool. All of it passes here: what goes to a terminal or into a text for people
 * by strbuf_add_shown(), names in csv and db by strbuf_add_valid(). JSON has its own quoting, to the same end.
 */
#ifndef MSCOPE_BASE_SHOWN_H
#define MSCOPE_BASE_SHOWN_H

#include "base/strbuf.h"

/* Adds a text with U+FFFD for each byte that is no UTF-8. */
void strbuf_add_valid(struct strbuf *sb, const char *text, size_t bytes);

/* The same, and control characters are spelled: \x1b, \u202e. */
void strbuf_add_shown(struct strbuf *sb, const char *text, size_t bytes);

/* The same of lines that are our own, with names in them: line feeds and tabs stay. */
void strbuf_add_lines(struct strbuf *sb, const char *text, size_t bytes);

#endif
