/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The words of options.def as numbers: OPT_FORMAT_DB is the value of a word, OPT_EVENTS_ALLOC the bit of one in a list. Needs
 * nothing but the table, so that the session and the injected library use it as well as the command.
 */
#ifndef MSCOPE_OPTIONS_WORDS_H
#define MSCOPE_OPTIONS_WORDS_H

enum {
#define WORD(field, symbol, value, text)				OPT_##symbol = (value),
#define NUMBERED(field, symbol, value, text, number_min, number_max, d) OPT_##symbol = (value),
#define EACH(field, symbol, value, text, number_min, number_max)	OPT_##symbol = (value),
#include "options/options.def"
};

#endif
