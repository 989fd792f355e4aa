/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/keeper_question.h"

#include <string.h>

#include "analysis/leaks.h"

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

/* The call sites that leak or may leak, the worst first. Returns how many. */
static uint32_t choose_sites(const struct leaks_findings *found, struct trace_question *out)
{
	uint32_t sites = 0;
	size_t i;

	for (i = 0; found != NULL && i < found->place_count && sites < QUESTION_SITES; i++) {
		const struct leaks_place *place = &found->places[i];

		if (place->verdict == GROWTH_KEPT || !pool_has_tensors(place->pool))
			continue;
		out->site[sites].count = choose(place, out->site[sites].addresses);
		sites += out->site[sites].count > 0;
	}
	return sites;
}

static void put(struct pipeline *pipeline, const struct trace_question *chosen)
{
	struct trace_question *question = &run_header_live(pipeline->run)->question;
	uint32_t number = atomic_load(&question->number);

	/* Odd: a reader in the process takes nothing. Pairs with its loads in mscope_question(). */
	number |= 1;
	atomic_store(&question->number, number);
	atomic_thread_fence(memory_order_release);
	memcpy(question->site, chosen->site, sizeof(question->site));
	question->sites = chosen->sites;
	atomic_store_explicit(&question->number, number + 1, memory_order_release);
	log_debug(&pipeline->log, "what keeps blocks is asked of %u call sites", chosen->sites);
}

void keeper_question(struct pipeline *pipeline)
{
	struct leaks_findings *found =
		leaks_findings(&pipeline->pass.analyses, pipeline->pass.replay);
	struct trace_question chosen = {0};

	chosen.sites = choose_sites(found, &chosen);
	put(pipeline, &chosen);
	leaks_findings_free(found);
}

/* ---- without steps ---- */

/* Since the trace began; from then on after twice the time each. What a shorter run says is not worth a pause of the program. */
#define FIRST_NS UINT64_C(4000000000)

/* Whether frameworks have blocks: others are not asked about, and judging takes a walk over all blocks. */
static bool uses_tensors(const struct replay *replay)
{
	const struct usage *usages;
	size_t count, i;

	usages = replay_usages(replay, &count);
	for (i = 0; i < count; i++) {
		if (pool_has_tensors(usages[i].pool) && usages[i].live_blocks > 0)
			return true;
	}
	return false;
}

static void log_told(struct pipeline *pipeline)
{
	size_t count = 0;

	if (pipeline->pass.replay != NULL)
		(void)replay_keepers(pipeline->pass.replay, &count);
	if (count != pipeline->keepers_told)
		log_debug(&pipeline->log, "what keeps blocks is known of %zu call stacks", count);
	pipeline->keepers_told = count;
}

void keeper_watch(struct pipeline *pipeline, uint64_t now_ns)
{
	uint64_t began = run_header(pipeline->run)->monotonic_ns;
	struct trace_question chosen = {0};
	struct leaks_findings *found;

	log_told(pipeline);
	if (pipeline->keepers_next_ns == 0)
		pipeline->keepers_next_ns = FIRST_NS;
	if (!pipeline->live || pipeline->ending || pipeline->finished ||
	    pipeline->pass.replay == NULL || now_ns < began ||
	    now_ns - began < pipeline->keepers_next_ns)
		return;
	while (now_ns - began >= pipeline->keepers_next_ns)
		pipeline->keepers_next_ns *= 2;
	/* Where steps end, the process asks. */
	if (replay_steps(pipeline->pass.replay) != 0 || !uses_tensors(pipeline->pass.replay))
		return;
	found = leaks_findings(&pipeline->pass.analyses, pipeline->pass.replay);
	chosen.sites = found != NULL && found->by_time ? choose_sites(found, &chosen) : 0;
	log_debug(&pipeline->log, "without steps: %u call sites leak or may leak", chosen.sites);
	if (chosen.sites > 0)
		put(pipeline, &chosen);
	leaks_findings_free(found);
}
