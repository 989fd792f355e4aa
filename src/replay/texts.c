/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/texts.h"

#include <errno.h>
#include <string.h>

#include "base/hash.h"
#include "base/shown.h"
#include "base/utf8.h"
#include "replay/state.h"

#define SWEEP_BYTES_MIN (1u << 20)

static void store_fini(struct texts *texts)
{
	strbuf_fini(&texts->bytes);
	map_fini(&texts->by_content);
}

void texts_fini(struct replay *replay)
{
	store_fini(&replay->texts);
}

int texts_intern(struct texts *texts, const void *text, size_t bytes, uint32_t *out_offset)
{
	struct map_key key = {HASH_BEGIN, 0};
	const uint8_t *at = text;
	const uint64_t *known;
	size_t i;

	for (i = 0; i < bytes; i++) {
		key.a = hash_add_byte(key.a, at[i]);
		key.b = key.b * 31 + at[i];
	}
	key.b ^= (uint64_t)bytes << 32;
	known = map_get(&texts->by_content, key);
	if (known != NULL) {
		*out_offset = (uint32_t)*known;
		return 0;
	}
	if (texts->bytes.length + bytes >= UINT32_MAX - 1)
		return -ENOMEM;
	*out_offset = (uint32_t)texts->bytes.length;
	/* Readers stop at the first NUL: messages are C strings. */
	strbuf_add(&texts->bytes, text, bytes);
	strbuf_add_char(&texts->bytes, '\0');
	return strbuf_failed(&texts->bytes) ? -ENOMEM
					    : map_put(&texts->by_content, key, *out_offset);
}

/* ---- sweeping ---- */

/* What the store takes. Map slots take 32 bytes, more than most texts. */
static size_t store_bytes(const struct texts *texts)
{
	return texts->bytes.length + texts->by_content.count * sizeof(struct map_slot);
}

uint32_t texts_keep(struct texts_sweep *sweep, uint32_t offset)
{
	const uint64_t *known;
	const char *text;
	uint32_t to = 0;

	if (offset == 0)
		return 0;
	known = map_get(&sweep->moved, (struct map_key){offset, 0});
	if (known != NULL)
		return (uint32_t)*known;
	text = texts_at(sweep->texts, offset);
	if (sweep->error == 0)
		sweep->error = texts_intern(&sweep->kept, text, strlen(text), &to);
	if (sweep->error == 0)
		sweep->error = map_put(&sweep->moved, (struct map_key){offset, 0}, to + 1);
	return to + 1;
}

static void keep_numbers(struct texts_sweep *sweep, struct numbers *numbers)
{
	uint32_t number, offset;
	size_t cursor = 0;

	while (numbers_next(numbers, &cursor, &number, &offset)) {
		int r = numbers_put(numbers, number, texts_keep(sweep, offset + 1) - 1);

		if (sweep->error == 0)
			sweep->error = r;
	}
}

/* Keeps the texts that later events may refer to: by a writer's number, or by the end of what has begun. */
static int sweep(struct replay *replay)
{
	struct texts_sweep sweep = {.texts = &replay->texts};
	size_t i;

	for (i = 0; i < replay->writers.room; i++) {
		struct writer *writer = replay->writers.all[i];

		if (writer == NULL)
			continue;
		keep_numbers(&sweep, &writer->texts);
		operations_keep_texts(&writer->operations, &sweep);
	}
	keep_numbers(&sweep, &replay->writers.checkpoint->texts);
	kernels_keep_texts(&replay->kernels, &sweep);
	python_calls_keep_texts(&replay->calls, &sweep);
	store_fini(&replay->texts);
	replay->texts = sweep.kept;
	/* What is kept may be all there ever is: the next sweep comes when there is twice as much. */
	replay->texts.sweep_at = 2 * store_bytes(&replay->texts);
	map_fini(&sweep.moved);
	return sweep.error;
}

/* A text as the trace has it. What leaves the replay is UTF-8. */
static int intern_valid(struct replay *replay, const void *text, size_t bytes, uint32_t *out_offset)
{
	struct strbuf valid = {0};
	int r;

	if (utf8_is_valid(text, bytes))
		return texts_intern(&replay->texts, text, bytes, out_offset);
	strbuf_add_valid(&valid, text, bytes);
	r = strbuf_failed(&valid)
		    ? -ENOMEM
		    : texts_intern(&replay->texts, valid.data, valid.length, out_offset);
	strbuf_fini(&valid);
	return r;
}

/* ---- numbers ---- */

/* The slot of a text that is not stored; NULL if the number is none of these. */
static struct strbuf *once_slot(struct writer *writer, uint64_t id)
{
	uint64_t slot = id & ~(uint64_t)TEXT_ONCE;

	return writer != NULL && (id & TEXT_ONCE) && slot < TEXT_ONCE_SLOTS ? &writer->once[slot]
									    : NULL;
}

/* The latest text with a number that has the bit TEXT_ONCE; NULL if there is none. */
static const char *replay_text_once(const struct replay *replay, uint32_t writer, uint64_t id)
{
	const struct strbuf *slot = once_slot(writers_get(&replay->writers, writer), id);

	return slot == NULL ? NULL : slot->data;
}

int texts_take_text_def(struct replay *replay, const struct trace_event *event)
{
	struct writer *writer =
		writers_at(&replay->writers, writers_definer(&replay->writers, event));
	struct event_text_def def;
	struct strbuf *once;
	uint32_t offset;
	int r = 0;

	event_text_def_decode(event->words, &def);
	once = once_slot(writer, def.id);
	if (writer == NULL || def.text_bytes > event->payload_bytes ||
	    ((def.id & TEXT_ONCE) && once == NULL)) {
		replay->totals.oddities.bad_definitions++;
		return 0;
	}
	if (once != NULL) {
		strbuf_reset(once);
		strbuf_add_valid(once, (const char *)event->payload, def.text_bytes);
		return strbuf_failed(once) ? -ENOMEM : 0;
	}
	if (store_bytes(&replay->texts) > SWEEP_BYTES_MIN &&
	    store_bytes(&replay->texts) > replay->texts.sweep_at)
		r = sweep(replay);
	if (r == 0)
		r = intern_valid(replay, event->payload, def.text_bytes, &offset);
	return r < 0 ? r : numbers_put(&writer->texts, (uint32_t)def.id, offset);
}

uint32_t texts_offset(const struct replay *replay, const struct trace_event *event, uint64_t id)
{
	const struct writer *writer = id == 0 ? NULL : writers_get(&replay->writers, event->writer);

	return writer == NULL ? 0 : numbers_get(&writer->texts, id);
}

const char *texts_find(const struct replay *replay, const struct trace_event *event, uint64_t id)
{
	return id & TEXT_ONCE ? replay_text_once(replay, event->writer, id)
			      : texts_at(&replay->texts, texts_offset(replay, event, id));
}

const char *replay_event_text(const struct replay *replay, const struct trace_event *event,
			      uint64_t id)
{
	return texts_find(replay, event, id);
}

int texts_load_kept_text(struct replay *replay, const struct trace_event *event)
{
	struct event_kept_text kept;
	uint32_t offset;
	int r;

	event_kept_text_decode(event->words, &kept);
	if (kept.text_bytes > event->payload_bytes) {
		replay->totals.oddities.bad_definitions++;
		return 0;
	}
	r = intern_valid(replay, event->payload, kept.text_bytes, &offset);
	return r < 0 ? r
		     : numbers_put(&replay->writers.checkpoint->texts, (uint32_t)kept.id, offset);
}
