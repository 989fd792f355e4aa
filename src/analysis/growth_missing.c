/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/growth_missing.h"

#include <stdlib.h>
#include <string.h>

#define AHEAD	  512u	/* steps that are played at most */
#define RISES	  24u	/* of these, steps in which it grows */
#define SURVIVORS 4096u /* of places with more, nothing is said */

/* A place that goes on. */
struct future {
	struct growth growth;
	struct growth_survivor *survivors;
	struct growth_facts facts;
};

static void future_fini(struct future *future)
{
	growth_fini(&future->growth);
	free(future->survivors);
}

static bool future_init(struct future *to, const struct growth *g, const struct growth_facts *facts)
{
	size_t rises = sizeof(*g->rises) + g->rises->room * sizeof(g->rises->rise[0]);
	size_t ages =
		g->ages == NULL ? 0 : sizeof(*g->ages) + g->ages->room * sizeof(g->ages->frees[0]);

	*to = (struct future){.growth = *g, .facts = *facts};
	to->growth.ages = NULL;
	to->growth.rises = malloc(rises);
	to->survivors = calloc(facts->survivor_count + AHEAD, sizeof(*to->survivors));
	if (g->ages != NULL)
		to->growth.ages = malloc(ages);
	if (to->growth.rises == NULL || to->survivors == NULL ||
	    (g->ages != NULL && to->growth.ages == NULL)) {
		future_fini(to);
		return false;
	}
	memcpy(to->growth.rises, g->rises, rises);
	if (g->ages != NULL)
		memcpy(to->growth.ages, g->ages, ages);
	memcpy(to->survivors, facts->survivors, facts->survivor_count * sizeof(*to->survivors));
	to->facts.survivors = to->survivors;
	return true;
}

static enum growth_verdict verdict_after(struct future *future, uint32_t step)
{
	struct growth_judgement judged;

	future->facts.steps = step;
	growth_judge(&future->growth, &future->facts, &judged);
	return judged.verdict;
}

/* Steps of growth as before after which it is a leak; 0: not within AHEAD steps and RISES of them. */
static uint32_t until_leak(struct future *future, uint32_t now, uint32_t next, uint32_t every,
			   uint64_t bytes)
{
	uint32_t step = next > now ? next : now + 1, rises;

	for (rises = 0; rises < RISES && step <= now + AHEAD; rises++, step += every) {
		growth_alloc(&future->growth, bytes);
		if (growth_step(&future->growth, step) < 0)
			return 0;
		future->survivors[future->facts.survivor_count++] =
			(struct growth_survivor){.step = step, .bytes = bytes};
		if (verdict_after(future, step) == GROWTH_LEAK)
			return step - now;
	}
	return 0;
}

/* Steps without growth after which it is kept; 0: not within AHEAD. */
static uint32_t until_kept(struct future *future, uint32_t now)
{
	uint32_t low = 0, high = AHEAD;

	if (verdict_after(future, now + high) != GROWTH_KEPT)
		return 0;
	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (verdict_after(future, now + middle) == GROWTH_KEPT)
			high = middle;
		else
			low = middle;
	}
	return high;
}

/* Steps between rises, if these are equal; 0: they are not, or are not known one by one. */
static uint32_t distance(const struct growth *g, const struct growth_judgement *judged)
{
	const struct growth_rises *r = g->rises;
	uint32_t every = 0, i;

	for (i = r->count - judged->rises; i < r->count; i++) {
		if (r->rise[i].first != r->rise[i].last)
			return 0;
		if (r->rise[i].last == judged->first)
			continue;
		if (every != 0 && r->rise[i].wait != every)
			return 0;
		every = r->rise[i].wait;
	}
	return every;
}

struct growth_missing growth_missing(const struct growth *g, const struct growth_facts *facts,
				     const struct growth_judgement *judged)
{
	uint32_t span = judged->last - judged->first, pause, every;
	struct growth_missing missing = {0};
	struct future future;

	if (judged->verdict != GROWTH_SUSPECT || judged->usual_age >= 0 || judged->rises == 0 ||
	    g->rises == NULL || facts->survivor_count == 0 || facts->survivor_count > SURVIVORS ||
	    !future_init(&future, g, facts))
		return missing;
	every = judged->rises < 2 ? 0 : distance(g, judged);
	pause = every != 0			 ? every
		: judged->rises >= 2 && span > 0 ? (span + judged->rises - 2) / (judged->rises - 1)
						 : 0;
	missing.by_quiet = pause == 0 || judged->quiet >= judged->longest_pause;
	if (missing.by_quiet) {
		/* It may as well grow in each step. */
		missing.steps = judged->quiet == 0 ? 0 : until_kept(&future, facts->steps);
	} else {
		missing.every = every;
		missing.steps = until_leak(&future, facts->steps, judged->last + pause, pause,
					   judged->grown_bytes / judged->rises);
	}
	future_fini(&future);
	return missing;
}
