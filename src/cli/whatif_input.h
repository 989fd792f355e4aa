/* SPDX-License-Identifier: Apache-2.0 */
/* What whatif reads: a memory snapshot of PyTorch, or a recorded run. */
#ifndef MSCOPE_CLI_WHATIF_INPUT_H
#define MSCOPE_CLI_WHATIF_INPUT_H

#include "engine/pool_histories.h"
#include "options/options.h"

struct whatif_input {
	struct pool_histories traced; /* of a run */
	struct pool_history *read;    /* of a snapshot */
	size_t read_count;
	char command[4096]; /* of a run: its words, separated by spaces; "": unknown */
	bool damaged;
};

/* Reads a word; says what is wrong with it. An exit code; 0 also if there are no pools. Needs whatif_input_fini() in any case. */
int whatif_input_read(struct whatif_input *input, const char *word, const struct options *options,
		      bool sites);
void whatif_input_fini(struct whatif_input *input);

/* Why a pool of a trace has no history, or NULL. */
const char *whatif_lacking(const struct pool_recorder *pool);

/* The pool on a device that has a history; NULL: none. `device` UINT32_MAX: the first one. */
const struct pool_history *whatif_pool(const struct whatif_input *input, uint32_t device);

#endif
