/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cards.h"

#include <stdio.h>
#include <string.h>

#include "trace/chunk.h"
#include "trace/record.h"

#define NOTE_BYTES 256u

static const uint8_t unknown[16];

static bool has_seen(const struct cards *cards, const uint8_t *uuid)
{
	uint32_t i;

	for (i = 0; i < cards->count; i++) {
		if (memcmp(cards->seen[i], uuid, sizeof(unknown)) == 0)
			return true;
	}
	return false;
}

void cards_take(struct cards *cards, const struct sampler_record *record)
{
	if (!record->by_uuid || record->pid != 0)
		return;
	cards->came = true;
	if (cards->count < CARDS_SEEN && memcmp(record->uuid, unknown, sizeof(unknown)) != 0 &&
	    !has_seen(cards, record->uuid))
		memcpy(cards->seen[cards->count++], record->uuid, sizeof(unknown));
}

void cards_round_ends(struct cards *cards)
{
	cards->complete = cards->came;
}

/* The process writes them, and a stray store of it may. */
static uint32_t told(struct run *run, const struct trace_cards **out)
{
	const struct trace_cards *cards = &run_header_live(run)->cards;
	/* Pairs with the release in collector/cuda/cuda.c. */
	uint32_t count = atomic_load_explicit(&cards->count, memory_order_acquire);

	*out = cards;
	return count < TRACE_CARDS ? count : TRACE_CARDS;
}

bool cards_number(struct run *run, const struct sampler_record *record, struct sampler_record *out)
{
	const struct trace_cards *cards;
	uint32_t count, i;

	*out = *record;
	if (!record->by_uuid)
		return true;
	count = told(run, &cards);
	for (i = 0; i < count && memcmp(record->uuid, unknown, sizeof(unknown)) != 0; i++) {
		if (memcmp(cards->card[i].uuid, record->uuid, sizeof(unknown)) == 0) {
			out->device = cards->card[i].device;
			return true;
		}
	}
	return false;
}

void cards_end(const struct cards *cards, struct run *run, uint64_t now_ns)
{
	uint64_t words[EVENT_BYTES_note / 8 + NOTE_BYTES / 8] = {0};
	char numbers[64] = "", text[NOTE_BYTES];
	struct event_note note = {0};
	const struct trace_cards *own;
	uint32_t count = told(run, &own), payload, i;
	size_t length = 0;

	for (i = 0; cards->complete && i < count && length < sizeof(numbers) - 16; i++) {
		if (!has_seen(cards, own->card[i].uuid))
			length +=
				(size_t)snprintf(numbers + length, sizeof(numbers) - length, "%s%u",
						 length == 0 ? "" : ", ", own->card[i].device);
	}
	if (length == 0)
		return;
	note.text_bytes = (uint32_t)snprintf(
		text, sizeof(text),
		"what GPU %s has in all is not known: the driver's management library (NVML) does not say which of its devices that is",
		numbers);
	payload = (uint32_t)(note.text_bytes + 7) / 8;
	note.bytes = EVENT_BYTES_note + payload * 8;
	event_note_encode(words, &note);
	memcpy(words + EVENT_BYTES_note / 8, text, note.text_bytes);
	(void)run_inject(run, EVENT_note, now_ns, words, EVENT_BYTES_note / 8 + payload);
}
