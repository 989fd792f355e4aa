/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/keeper_question.h"

#include "analysis/leaks.h"

/* Pools whose blocks are memory of tensors. */
static bool has_tensors(uint8_t pool)
{
	return pool == POOL_pta || pool == POOL_host || pool == POOL_mindspore;
}

/* Some of the blocks that live, evenly, and the newest of all. Returns how many. */
static uint32_t choose(const struct leaks_place *place, uint64_t *out)
{
	size_t live = 0, i, passed = 0;
	uint32_t count = 0;

	for (i = 0; i < place->list_count; i++)
		live += !place->list[i].freed_late;
	for (i = 0; i < place->list_count && count < QUESTION_BLOCKS; i++) {
		if (place->list[i].freed_late)
			continue;
		passed++;
		if (passed * QUESTION_BLOCKS / live > count || live <= QUESTION_BLOCKS)
			out[count++] = place->list[i].address;
	}
	return count;
}

void keeper_question(struct pipeline *pipeline)
{
	struct leaks_findings *found =
		leaks_findings(&pipeline->pass.analyses, pipeline->pass.replay);
	struct trace_question *question = &run_header_live(pipeline->run)->question;
	uint32_t number = atomic_load(&question->number);
	uint32_t sites = 0;
	size_t i;

	/* Odd: a reader in the process takes nothing. Pairs with its loads in mscope_question(). */
	number |= 1;
	atomic_store(&question->number, number);
	atomic_thread_fence(memory_order_release);
	for (i = 0; found != NULL && i < found->place_count && sites < QUESTION_SITES; i++) {
		const struct leaks_place *place = &found->places[i];

		if (place->verdict == GROWTH_KEPT || !has_tensors(place->pool))
			continue;
		question->site[sites].count = choose(place, question->site[sites].addresses);
		sites += question->site[sites].count > 0;
	}
	question->sites = sites;
	atomic_store_explicit(&question->number, number + 1, memory_order_release);
	leaks_findings_free(found);
	log_debug(&pipeline->log, "asks what keeps the blocks of %u call sites", sites);
}
