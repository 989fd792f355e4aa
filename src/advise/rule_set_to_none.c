/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients that zero_grad(set_to_none=False) keeps, dropped: each is gone from there until the backward pass adds to it again. What it adds,
 * which is freed right after, stays in its place.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "advise/advise.h"

#define NEAR 64 /* moments in which what was added is freed */

/* When the block that was added to a gradient goes. */
static size_t added_goes(const struct advise_record *record, uint32_t gradient, size_t at)
{
	for (size_t i = at; i < record->moment_count && i < at + NEAR; i++) {
		const struct advise_moment *moment = &record->moments[i];

		if (moment->block != ADVISE_NONE && !moment->comes &&
		    record->blocks[moment->block].bytes == record->blocks[gradient].bytes &&
		    record->blocks[moment->block].pool == record->blocks[gradient].pool)
			return i;
	}
	return at;
}

/* The first time after a moment that gradients were set to zero, before another moment; ADVISE_NEVER: they were not. */
static size_t zeroed_between(const struct advise_record *record, size_t after, size_t before)
{
	size_t zeroed = advise_moment_after(record->zeroed, record->zeroed_count, after);

	return zeroed < before ? zeroed : ADVISE_NEVER;
}

/* A gradient is gone from where it was set to zero until a moment. Returns how many edits that is. */
static size_t drop(struct advising *advising, uint32_t block, size_t after, size_t until)
{
	const struct advise_record *record = advising->record;
	const struct advise_block *one = &record->blocks[block];
	size_t zeroed = zeroed_between(record, after > one->born ? after : one->born, until);

	if (one->pool != advising->editor.pool || one->kind != CLASS_gradient ||
	    zeroed == ADVISE_NEVER)
		return 0;
	editor_absent(&advising->editor, block, zeroed,
		      until == one->died ? until : added_goes(record, block, until));
	return 1;
}

int rule_set_to_none(struct advising *advising)
{
	const struct advise_record *record = advising->record;
	struct advise_offer offer = {.rule = ADVISE_RULE_set_to_none, .cost = "no cost"};
	size_t *last = calloc(record->block_count + 1, sizeof(*last)), edits = 0;

	if (last == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < record->adds_count; i++) {
		uint32_t block = record->adds[i].block;

		edits += drop(advising, block, last[block], record->adds[i].at);
		last[block] = record->adds[i].at;
	}
	for (size_t i = 0; i < record->block_count; i++)
		if (last[i] != 0)
			edits += drop(advising, (uint32_t)i, last[i], record->blocks[i].died);
	free(last);
	if (edits == 0)
		return 0;
	snprintf(offer.what, sizeof(offer.what), "zero_grad(set_to_none=True)");
	if (record->zeroed_line != NULL)
		snprintf(offer.line, sizeof(offer.line), "%s", record->zeroed_line);
	return advising_offer(advising, &offer);
}
