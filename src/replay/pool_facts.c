/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/pool_facts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/text.h"
#include "replay/checkpoint.h"
#include "replay/state.h"

void pool_facts_fini(struct replay *replay)
{
	free(replay->pool_facts.shares);
}

const struct pool_facts *replay_pool_facts(const struct replay *replay)
{
	return &replay->pool_facts;
}

const struct pool_share *replay_pool_share(const struct replay *replay, uint32_t device)
{
	const struct pool_facts *facts = &replay->pool_facts;

	for (size_t i = 0; i < facts->share_count; i++)
		if (facts->shares[i].device == device)
			return &facts->shares[i];
	return NULL;
}

static struct pool_share *share_of(struct pool_facts *facts, uint32_t device)
{
	for (size_t i = 0; i < facts->share_count; i++)
		if (facts->shares[i].device == device)
			return &facts->shares[i];
	if (ARRAY_RESERVE(facts->shares, facts->share_room, facts->share_count + 1) < 0)
		return NULL;
	facts->shares[facts->share_count] = (struct pool_share){.device = device, .fraction = -1};
	return &facts->shares[facts->share_count++];
}

/* The settings in a text `NAME=settings`. */
static const char *settings_in(const char *text)
{
	return text != NULL && text_starts_with(text, POOL_SETTINGS_START)
		       ? text + strlen(POOL_SETTINGS_START)
		       : "";
}

/* Settings of a call are added to those of before; where both name an option, the last one counts. */
static void add_settings(struct pool_facts *facts, const char *more)
{
	size_t length = strlen(facts->settings);

	if (length > 0 && strcmp(facts->settings, more) == 0)
		return;
	if (length + strlen(more) + 2 > sizeof(facts->settings)) {
		facts->changed = true; /* more than is kept: as unknown as a change */
		return;
	}
	snprintf(facts->settings + length, sizeof(facts->settings) - length, "%s%s",
		 length > 0 && more[0] != '\0' ? "," : "", more);
}

static int take_share(struct replay *replay, const struct trace_event *event,
		      const struct event_pool_fact *said)
{
	const struct context *context = replay_event_context(replay, event);
	struct pool_share *share =
		context == NULL ? NULL : share_of(&replay->pool_facts, context->device);
	double fraction;

	if (share == NULL)
		return context == NULL ? 0 : -ENOMEM;
	if (said->device_bytes != 0)
		share->device_bytes = said->device_bytes;
	if (said->kind != POOL_FACT_FRACTION)
		return 0;
	memcpy(&fraction, &said->value, sizeof(fraction));
	if (!(fraction >= 0 && fraction <= 1))
		return 0;
	/* One that comes when there is memory already holds for a part of the run only. */
	share->late = share->late || (share->fraction >= 0 && share->fraction != fraction) ||
		      (share->fraction < 0 && replay->pool_details.segment_count > 0);
	share->fraction = fraction;
	return 0;
}

int pool_facts_take_pool_fact(struct replay *replay, const struct trace_event *event)
{
	struct pool_facts *facts = &replay->pool_facts;
	struct event_pool_fact said;
	const char *text;

	event_pool_fact_decode(event->words, &said);
	text = settings_in(replay_event_text(replay, event, (uint32_t)said.text));
	switch (said.kind) {
	case POOL_FACT_RELEASE:
		facts->release = said.value;
		return 0;
	case POOL_FACT_SETTINGS:
		facts->settings_known = true;
		/* Told again by each window; the first word counts, and calls add to it. */
		if (facts->settings[0] == '\0')
			add_settings(facts, text);
		return 0;
	case POOL_FACT_CHANGED:
		/* A later window tells again what the trace knows. */
		if (strstr(facts->settings, text) != NULL)
			return 0;
		facts->settings_known = true;
		facts->changed = facts->changed || replay->pool_details.segment_count > 0;
		add_settings(facts, text);
		return 0;
	case POOL_FACT_FRACTION:
	case POOL_FACT_CAPACITY:
		return take_share(replay, event, &said);
	case POOL_FACT_WATCHED:
		facts->watched = true;
		return 0;
	default:
		return 0;
	}
}

/* In a checkpoint, settings that changed are all of them, and a fraction below 0 is one that came late. */
int pool_facts_load_pool_fact(struct replay *replay, const struct trace_event *event)
{
	struct pool_facts *facts = &replay->pool_facts;
	const struct context *context = replay_event_context(replay, event);
	struct event_pool_fact said;
	struct pool_share *share;
	double fraction;

	event_pool_fact_decode(event->words, &said);
	if (said.kind == POOL_FACT_CHANGED) {
		facts->changed = true;
		return 0;
	}
	if (said.kind != POOL_FACT_FRACTION || context == NULL)
		return pool_facts_take_pool_fact(replay, event);
	share = share_of(facts, context->device);
	if (share == NULL)
		return -ENOMEM;
	memcpy(&fraction, &said.value, sizeof(fraction));
	share->late = fraction < 0;
	share->fraction = fraction < 0 ? -fraction : fraction;
	share->device_bytes = said.device_bytes;
	return 0;
}

static void put_text_fact(struct checkpoint *cp, enum pool_fact kind, const char *settings)
{
	char text[sizeof(((struct pool_facts *)0)->settings) + sizeof(POOL_SETTINGS_START)];

	snprintf(text, sizeof(text), "%s%s", POOL_SETTINGS_START, settings);
	BUILDER_PUT(&cp->builder, pool_fact, 0, .kind = kind, .text = checkpoint_text(cp, text));
}

static uint32_t context_on(const struct replay *replay, uint32_t device)
{
	for (size_t i = 1; i < replay->definitions.context_count; i++) {
		const struct context *context = replay_context(replay, (uint32_t)i);

		if (context->device == device && context->pool == POOL_pta)
			return (uint32_t)i;
	}
	return 0;
}

void pool_facts_save(const struct replay *replay, struct checkpoint *cp)
{
	const struct pool_facts *facts = &replay->pool_facts;

	if (facts->release != 0)
		BUILDER_PUT(&cp->builder, pool_fact, 0, .kind = POOL_FACT_RELEASE,
			    .value = facts->release);
	if (facts->settings_known)
		put_text_fact(cp, POOL_FACT_SETTINGS, facts->settings);
	if (facts->changed)
		BUILDER_PUT(&cp->builder, pool_fact, 0, .kind = POOL_FACT_CHANGED);
	for (size_t i = 0; i < facts->share_count; i++) {
		const struct pool_share *share = &facts->shares[i];
		uint32_t context = context_on(replay, share->device);
		double fraction = share->late ? -share->fraction : share->fraction;
		uint64_t bits;

		memcpy(&bits, &fraction, sizeof(bits));
		if (context != 0)
			BUILDER_PUT(&cp->builder, pool_fact, context,
				    .kind = share->fraction < 0 ? POOL_FACT_CAPACITY
								: POOL_FACT_FRACTION,
				    .value = bits, .device_bytes = share->device_bytes);
	}
	if (facts->watched)
		BUILDER_PUT(&cp->builder, pool_fact, 0, .kind = POOL_FACT_WATCHED);
}
