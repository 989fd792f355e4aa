/* SPDX-License-Identifier: Apache-2.0 */
/* States of optimizers that have four bytes an element, in two. Scalars, such as the number of steps, stay as they are. */
#include <stdio.h>

#include "advise/advise.h"

#define FULL 4 /* bytes of an element */

int rule_optimizer_state(struct advising *advising)
{
	const struct advise_record *record = advising->record;
	struct advise_offer offer = {.rule = ADVISE_RULE_optimizer_state, .cost = "less precision"};
	uint32_t stack = 0;
	uint64_t largest = 0;

	for (size_t i = 0; i < record->block_count; i++) {
		const struct advise_block *block = &record->blocks[i];

		if (block->pool != advising->editor.pool || block->element_bytes != FULL ||
		    block->kind != CLASS_optimizer_state)
			continue;
		editor_resize(&advising->editor, (uint32_t)i, block->bytes / 2);
		if (block->bytes > largest) {
			largest = block->bytes;
			stack = block->stack;
		}
	}
	if (largest == 0)
		return 0;
	snprintf(offer.what, sizeof(offer.what), "keep optimizer state in bfloat16");
	advising_line(advising, stack, offer.line, sizeof(offer.line));
	return advising_offer(advising, &offer);
}
