/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trace without names: files, functions, modules, hosts, commands, messages and labels of the user's own are replaced, each by the
 * same word wherever it stands; so whatever is made from the trace has none of them. What everybody has stays: PyTorch's own code, the
 * standard library, operators, dtypes and shapes, and all numbers.
 */
#ifndef MSCOPE_ENGINE_ANONYMIZE_H
#define MSCOPE_ENGINE_ANONYMIZE_H

#include "engine/input.h"
#include "views/interned.h"

/* Zeroed it is an empty one. The same names get the same words in all traces that it is used for. */
struct anonymous {
	struct interned names;
};

void anonymous_fini(struct anonymous *names);

/* Puts a trace without names in the place of an open input; it is open afterwards. A raw trace is refused. */
int input_anonymize(struct input *input, struct anonymous *names, struct mscope_error *err);

#endif
