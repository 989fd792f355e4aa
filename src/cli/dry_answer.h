/* SPDX-License-Identifier: Apache-2.0 */
/* What `msmemscope dryrun` says: as text and as JSON. */
#ifndef MSCOPE_CLI_DRY_ANSWER_H
#define MSCOPE_CLI_DRY_ANSWER_H

#include "cli/dry_run.h"

struct dry_answer {
	const struct dry_result *runs; /* one for each device that was asked for */
	size_t count;
	/* The run whose figures are those of the program: one that ran out of nothing, if there is one. */
	const struct dry_result *figures;
	/* The same without workspaces of convolutions; NULL: it has none. */
	const struct dry_result *lean;
	/* The same with other numbers in the place of those that were not computed, if that changes what it needs; NULL: it does not. */
	const struct dry_result *other;
};

/* Whether the program fits into every device. */
bool dry_fits(const struct dry_answer *answer);

void dry_text(const struct dry_answer *answer, struct strbuf *out);
void dry_json(const struct dry_answer *answer, struct strbuf *out);

#endif
