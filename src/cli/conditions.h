/* SPDX-License-Identifier: Apache-2.0 */
/* --fail-on: which of its conditions the processes meet. */
#ifndef MSCOPE_CLI_CONDITIONS_H
#define MSCOPE_CLI_CONDITIONS_H

#include "options/options.h"
#include "sink/digest.h"

/* Appends a sentence without a newline for the first condition that a process meets, the worst kind first; false: none. */
bool conditions_met(const struct option_conditions *conditions, const struct digest *digests,
		    size_t count, struct strbuf *out);

#endif
