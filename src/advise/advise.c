/* SPDX-License-Identifier: Apache-2.0 */
#include "advise/advise.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

const char *advise_rule_word(enum advise_rule rule)
{
	static const char *const words[] = {
#define RULE(name, word) [ADVISE_RULE_##name] = word,
#include "advise/rules.def"
#undef RULE
	};

	return words[rule];
}

static int make_curve(const struct advising *advising, uint64_t **out)
{
	if (advising->span == NULL)
		return 0;
	*out = malloc((advising->span->width + 1) * sizeof(**out));
	if (*out == NULL)
		return -ENOMEM;
	editor_curve(&advising->editor, advising->span, *out);
	return 0;
}

int advising_offer(struct advising *advising, struct advise_offer *offer)
{
	size_t at;

	offer->peak = editor_peak(&advising->editor, &at);
	if ((double)offer->peak > (1 - ADVISE_LEAST) * (double)advising->peak)
		return 0;
	if (ARRAY_RESERVE(advising->offers, advising->offer_room, advising->offer_count + 1) != 0)
		return -ENOMEM;
	/* When a program drops what it has offloaded is not recorded, and the pool's segments depend on it. */
	if (advising->reserves && offer->rule != ADVISE_RULE_offload) {
		int status =
			reserving_play(&advising->reserving, &advising->editor, &offer->reserved);

		if (status != 0)
			return status;
		if (offer->reserved.low < offer->peak)
			offer->reserved.low = min_u64(offer->peak, offer->reserved.high);
	}
	if (make_curve(advising, &offer->curve) != 0)
		return -ENOMEM;
	advising->offers[advising->offer_count++] = *offer;
	return 0;
}

void advising_refuse(struct advising *advising, const char *format, ...)
{
	char sentence[400];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(sentence, sizeof(sentence) - 1, format, arguments);
	va_end(arguments);
	strcat(sentence, "\n");
	if (strstr(strbuf_str(&advising->refused), sentence) == NULL)
		strbuf_add_str(&advising->refused, sentence);
}

void advising_line(struct advising *advising, uint32_t stack, char *out, size_t bytes)
{
	uint32_t count;
	const struct stack_line *lines = replay_stack_lines(advising->replay, stack, &count);

	out[0] = '\0';
	for (uint32_t i = 0; i < count && lines != NULL; i++)
		if (lines[i].script && lines[i].file != NULL && lines[i].origin == ORIGIN_USER) {
			snprintf(out, bytes, "%s:%" PRIu32, lines[i].file, lines[i].line);
			return;
		}
}

/* Steps that are complete: the first one warms up. */
static void find_steps(struct advising *advising)
{
	const struct advise_record *record = advising->record;

	for (size_t i = 0; i < record->step_count; i++)
		if (record->steps[i].at <= record->pools[advising->editor.pool].peak_at)
			advising->step = record->steps[i].open;
	if (record->step_count < 3)
		return;
	/* The last one is still open at the end of the record. */
	size_t first = record->step_count > 3 ? 2 : 1, last = record->step_count - 1;

	advising->timed_steps = record->steps[last].step - record->steps[first].step;
	if (advising->timed_steps == 0)
		return;
	advising->timed_from = record->steps[first].at;
	advising->timed_to = record->steps[last].at;
	advising->step_seconds = (double)(record->steps[last].ns - record->steps[first].ns) / 1e9 /
				 advising->timed_steps;
}

/* The lowest peak first; of equal ones the cheaper one. */
static int best_first(const void *a, const void *b)
{
	const struct advise_offer *x = a, *y = b;

	return ORDER_UP(x->peak, y->peak) ?: ORDER_UP(x->seconds, y->seconds);
}

/* What is known to take less; of those whose time is not known the one that changes least. */
static bool is_cheaper(const struct advise_offer *offer, const struct advise_offer *than)
{
	if ((offer->seconds >= 0) != (than->seconds >= 0))
		return offer->seconds >= 0;
	return offer->seconds >= 0 ? offer->seconds < than->seconds : offer->peak > than->peak;
}

const struct advise_offer *advise_under_limit(const struct advising *advising)
{
	const struct advise_offer *found = NULL;

	for (size_t i = 0; i < advising->offer_count; i++) {
		const struct advise_offer *offer = &advising->offers[i];

		if (offer->peak <= advising->limit && (found == NULL || is_cheaper(offer, found)))
			found = offer;
	}
	return found;
}

static bool is_same(const struct advise_offer *a, const struct advise_offer *b)
{
	/* Without a class each line is a change of its own. */
	return a->rule == b->rule && strcmp(a->kind, b->kind) == 0 &&
	       (a->kind[0] != '\0' || strcmp(a->line, b->line) == 0);
}

size_t advise_best(const struct advising *advising, const struct advise_offer *out[ADVISE_SHOWN])
{
	size_t count = 0;

	for (size_t i = 0; i < advising->offer_count && count < ADVISE_SHOWN; i++) {
		const struct advise_offer *offer = &advising->offers[i];
		bool known = false;

		for (size_t k = 0; k < count; k++)
			known |= is_same(out[k], offer);
		if (!known)
			out[count++] = offer;
	}
	return count;
}

static int prepare_pool(struct advising *advising, const struct advise_history *history)
{
	struct reserving *reserving = &advising->reserving;
	int status = reserving_init(reserving, advising->record, advising->editor.pool, history);

	advising->reserves = status == 0 && reserving->refusal[0] == '\0';
	advising->editor.lists = advising->reserves;
	if (reserving->refusal[0] != '\0')
		advising_refuse(advising, "Reserved bytes: %s", reserving->refusal);
	return status;
}

int advise_pool_init(struct advising *advising, const struct advise_record *record,
		     struct replay *replay, uint32_t pool, const struct advise_wish *wish)
{
	static int (*const rules[])(struct advising *) = {
#define RULE(name, word) rule_##name,
#include "advise/rules.def"
#undef RULE
	};
	int status;

	*advising = (struct advising){.record = record,
				      .replay = replay,
				      .limit = wish->limit,
				      .bandwidth = wish->bandwidth,
				      .span = wish->span,
				      .peak = record->pools[pool].peak};
	status = editor_init(&advising->editor, record, pool);
	if (status == 0)
		status = make_curve(advising, &advising->curve);
	if (status == 0 && wish->history != NULL)
		status = prepare_pool(advising, wish->history);
	if (status == 0)
		find_steps(advising);
	for (size_t i = 0; i < ADVISE_RULES && status == 0; i++) {
		editor_reset(&advising->editor);
		status = rules[i](advising);
	}
	if (advising->offer_count > 0)
		qsort(advising->offers, advising->offer_count, sizeof(*advising->offers),
		      best_first);
	return status;
}

void advise_pool_fini(struct advising *advising)
{
	editor_fini(&advising->editor);
	reserving_fini(&advising->reserving);
	for (size_t i = 0; i < advising->offer_count; i++)
		free(advising->offers[i].curve);
	free(advising->offers);
	free(advising->curve);
	strbuf_fini(&advising->refused);
	*advising = (struct advising){0};
}
