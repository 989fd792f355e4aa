/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks and events as tables, searched by text and size; and all about one block. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/leaks.h"
#include "findings/site.h"
#include "base/map.h"
#include "viewer/groups.h"

#define ACCESSES_SHOWN 500u
#define AROUND	       6u /* events of the pool before a block's allocation, and after it */

/* ---- search ---- */

/* What a text is looked for in; each is asked once for each value. */
enum search_in {
	IN_PLACE,
	IN_OWNER,
	IN_NAME, /* of operators and other events */
	IN_STACK,
};

struct search {
	struct model *model;
	const char *text; /* NULL: everything fits */
	struct map known;
};

static void add_stack(struct replay *replay, uint32_t stack, struct strbuf *out)
{
	uint32_t count = 0, i;
	const struct stack_line *lines = replay_stack_lines(replay, stack, &count);

	for (i = 0; lines != NULL && i < count; i++) {
		strbuf_addf(out, "%s %s:%u\n", lines[i].function == NULL ? "" : lines[i].function,
			    lines[i].file != NULL     ? lines[i].file
			    : lines[i].module != NULL ? lines[i].module
						      : "",
			    lines[i].line);
	}
}

static bool has_text(struct search *search, enum search_in in, uint64_t value)
{
	struct map_key key = {value, in};
	const uint64_t *seen = map_get(&search->known, key);
	struct strbuf text = {0};
	bool found;

	if (seen != NULL)
		return *seen != 0;
	if (in == IN_NAME)
		strbuf_add_str(&text, history_name(&search->model->history, (uint32_t)value));
	else if (in == IN_STACK)
		add_stack(search->model->pass.replay, (uint32_t)value, &text);
	else
		group_name(search->model, value, in == IN_OWNER ? BY_OWNER : BY_STACK, &text);
	found = strcasestr(strbuf_str(&text), search->text) != NULL;
	strbuf_fini(&text);
	(void)map_put(&search->known, key, found);
	return found;
}

static bool block_has(struct search *search, const struct model_block *block)
{
	struct model *model = search->model;

	return search->text == NULL ||
	       has_text(search, IN_PLACE, group_key(model, block, BY_STACK)) ||
	       has_text(search, IN_OWNER, group_key(model, block, BY_OWNER)) ||
	       (block->operation != 0 && has_text(search, IN_NAME, block->operation)) ||
	       (block->stack != 0 && has_text(search, IN_STACK, model_site(model, block->stack)));
}

static bool size_fits(const struct question *question, const struct model_block *block)
{
	return block->size_bytes >= question->least_bytes &&
	       block->size_bytes <= question->most_bytes &&
	       (question->address == 0 ||
		(question->address >= block->address &&
		 question->address - block->address <
			 (block->size_bytes == 0 ? 1 : block->size_bytes))) &&
	       (!question->never_freed || block->end_ns == MODEL_ALIVE);
}

/* ---- blocks ---- */

struct entry {
	uint64_t block;
	uint64_t order; /* the higher, the earlier it comes */
};

static int in_order(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	return ORDER_DOWN(x->order, y->order) ?: ORDER_UP(x->block, y->block);
}

/* Keeps the first `most` of all that come, in twice the room. */
static void keep(struct entry *entries, size_t *count, size_t most, struct entry entry)
{
	entries[(*count)++] = entry;
	if (*count == 2 * most) {
		qsort(entries, *count, sizeof(*entries), in_order);
		*count = most;
	}
}

static void say_group(struct model *model, const struct model_block *block, enum answer_by by,
		      const char *key, struct json *json)
{
	struct strbuf text = {0};

	group_name(model, group_key(model, block, by), by, &text);
	json_string(json, key, strbuf_str(&text));
	strbuf_fini(&text);
}

static void say_row(struct model *model, uint64_t id, struct json *json)
{
	const struct model_block *block = model_block(model, id);
	char address[24];

	json_object(json, NULL);
	json_u64(json, "id", id);
	json_u64(json, "start_ns", model_since(model, block->start_ns));
	if (block->end_ns == MODEL_ALIVE)
		json_null(json, "end_ns");
	else
		json_u64(json, "end_ns", model_since(model, block->end_ns));
	(void)snprintf(address, sizeof(address), "0x%llx", (unsigned long long)block->address);
	json_string(json, "address", address);
	json_u64(json, "bytes", block->size_bytes);
	json_u64(json, "step", block->step);
	json_u64(json, "thread", block->tid);
	json_u64(json, "accesses", block->accesses);
	json_string(json, "operator", history_name(&model->history, block->operation));
	say_group(model, block, BY_OWNER, "owner", json);
	say_group(model, block, BY_STACK, "place", json);
}

void answer_table(struct model *model, const struct question *question, struct json *json)
{
	size_t most = (size_t)question->offset + question->count, count = 0, i;
	struct entry *entries = calloc(2 * most + 1, sizeof(*entries));
	struct search search = {.model = model, .text = question->text};
	uint64_t found = 0, bytes = 0, id;

	for (id = 0; entries != NULL && most > 0 && id < model->block_count; id++) {
		const struct model_block *block = model_block(model, id);

		if (block == NULL || block->pool != question->pool + 1 ||
		    !size_fits(question, block) ||
		    !(question->at_ns != 0
			      ? model_lives(block, question->at_ns)
			      : block_within(block, question->from_ns, question->to_ns) > 0) ||
		    !block_has(&search, block))
			continue;
		found++;
		bytes += block->size_bytes;
		keep(entries, &count, most,
		     (struct entry){id, question->by_time ? UINT64_MAX - id : block->size_bytes});
	}
	if (count > 0)
		qsort(entries, count, sizeof(*entries), in_order);
	json_u64(json, "found", found);
	json_u64(json, "bytes", bytes);
	json_array(json, "blocks");
	for (i = question->offset; i < count && i < most; i++) {
		say_row(model, entries[i].block, json);
		json_end(json);
	}
	json_end(json);
	map_fini(&search.known);
	free(entries);
}

/* ---- events ---- */

static bool is_access(unsigned kind)
{
	return kind == ROW_READ || kind == ROW_WRITE || kind == ROW_ACCESS;
}

static bool kind_fits(const struct question *question, const struct history_event *event)
{
	return question->event == NULL ||
	       strcmp(row_event((enum row_kind)event->kind), question->event) == 0;
}

static bool event_fits(struct search *search, const struct question *question,
		       const struct history_event *event)
{
	struct model *model = search->model;
	const struct model_block *block =
		event->block < model->block_count ? model_block(model, event->block) : NULL;

	if (event->time_ns < question->from_ns || event->time_ns > question->to_ns ||
	    !kind_fits(question, event))
		return false;
	/* What is about memory must be of the pool; what is not belongs to every pool. */
	if (block != NULL && (block->pool != question->pool + 1 || !size_fits(question, block)))
		return false;
	if (block == NULL && (question->least_bytes > 0 || question->most_bytes != UINT64_MAX ||
			      question->never_freed || question->address != 0))
		return false;
	return search->text == NULL ||
	       (event->name != 0 && has_text(search, IN_NAME, event->name)) ||
	       (block != NULL && block_has(search, block));
}

static void say_event(struct model *model, const struct history_event *event, struct json *json)
{
	const struct model_block *block =
		event->block < model->block_count ? model_block(model, event->block) : NULL;
	uint8_t pool = block == NULL ? 0 : model->pools[block->pool - 1].pool;
	const char *type = row_event_type((enum row_kind)event->kind, pool);

	json_object(json, NULL);
	json_u64(json, "time_ns", model_since(model, event->time_ns));
	json_string(json, "event", row_event((enum row_kind)event->kind));
	json_string(json, "type", type == NULL ? "" : type);
	json_string(json, "name", history_name(&model->history, event->name));
	json_u64(json, "thread", event->tid);
	if (block != NULL) {
		json_u64(json, "block", event->block);
		json_u64(json, "bytes", block->size_bytes);
		say_group(model, block, BY_STACK, "place", json);
	}
	json_end(json);
}

void answer_events(struct model *model, const struct question *question, struct json *json)
{
	struct search search = {.model = model, .text = question->text};
	uint64_t found = 0, i, kinds[ROW_END] = {0};
	size_t kind, other;

	json_array(json, "events");
	for (i = 0; i < model->history.count; i++) {
		const struct history_event *event = history_at(&model->history, i);

		kinds[event->kind < ROW_END ? event->kind : 0]++;
		if (!event_fits(&search, question, event))
			continue;
		if (found >= question->offset &&
		    found < (uint64_t)question->offset + question->count)
			say_event(model, event, json);
		found++;
	}
	json_end(json);
	json_u64(json, "found", found);
	/* What kinds there are, for a filter: an event may have several types. */
	json_object(json, "kinds");
	for (kind = ROW_NONE + 1; kind < ROW_END; kind++) {
		const char *name = row_event((enum row_kind)kind);
		uint64_t sum = 0;

		for (other = ROW_NONE + 1;
		     other < kind && strcmp(row_event((enum row_kind)other), name) != 0; other++)
			;
		for (i = kind; other == kind && i < ROW_END; i++)
			sum += strcmp(row_event((enum row_kind)i), name) == 0 ? kinds[i] : 0;
		if (sum > 0)
			json_u64(json, name, sum);
	}
	json_end(json);
	map_fini(&search.known);
}

/* ---- one block ---- */

static void say_accesses(const struct model *model, uint64_t id, uint32_t count, struct json *json)
{
	uint32_t found = 0;
	uint64_t i;

	json_array(json, "uses");
	for (i = 0; i < model->history.count && found < count && found < ACCESSES_SHOWN; i++) {
		const struct history_event *event = history_at(&model->history, i);

		if (event->block != id || !is_access(event->kind))
			continue;
		found++;
		json_array(json, NULL);
		json_u64(json, NULL, model_since(model, event->time_ns));
		json_string(json, NULL, row_event_type((enum row_kind)event->kind, 0));
		json_string(json, NULL, history_name(&model->history, event->name));
		json_end(json);
	}
	json_end(json);
}

/* Whether a finding is about the block's call site, which leaks_findings() judged by itself. */
static bool lists(const struct leaks_place *place, uint64_t id)
{
	size_t k;

	for (k = 0; k < place->list_count && place->list[k].allocation_id != id; k++)
		;
	return place->verdict != GROWTH_KEPT && k < place->list_count;
}

/* What was found about the block's call site. */
static void say_findings(struct model *model, uint64_t id, struct json *json)
{
	const struct leaks_findings *judged = model_leaks(model);
	const struct findings *findings = model_findings(model);
	struct strbuf name = {0}, text = {0};
	size_t i, k;

	json_array(json, "findings");
	for (i = 0; judged != NULL && i < judged->place_count; i++) {
		const struct leaks_place *place = &judged->places[i];

		if (!lists(place, id))
			continue;
		strbuf_reset(&name);
		(void)model_name(model, place->stack, &name);
		for (k = 0; k < FINDINGS_COUNT(findings, place); k++) {
			const struct finding_place *shown = &FINDINGS(findings, place)[k];

			if (shown->verdict != place->verdict || shown->pool != place->pool ||
			    shown->device != place->device ||
			    (place->stack == 0
				     ? shown->stack != 0 || shown->size_min != place->size_min
				     : strcmp(shown->name, strbuf_str(&name)) != 0))
				continue;
			strbuf_reset(&text);
			strbuf_addf(&text, "%s: ", verdict_word(shown->verdict));
			place_sentence(findings, shown, &text);
			json_string(json, NULL, strbuf_str(&text));
			break;
		}
	}
	json_end(json);
	strbuf_fini(&name);
	strbuf_fini(&text);
}

static bool is_of_pool(const struct model *model, const struct history_event *event, uint32_t pool)
{
	const struct model_block *block =
		event->block < model->block_count ? model_block(model, event->block) : NULL;

	return (event->kind == ROW_MALLOC || event->kind == ROW_FREE) && block != NULL &&
	       block->pool == pool;
}

/* What the pool did before and after it handed out the block: its history, event by event. */
static void say_around(struct model *model, uint64_t id, struct json *json)
{
	const struct model_block *block = model_block(model, id);
	uint64_t before[AROUND], i, seen = 0, k;
	uint32_t after = 0;

	for (i = 0; i < model->history.count; i++) {
		const struct history_event *event = history_at(&model->history, i);

		if (event->block == id && event->kind == ROW_MALLOC)
			break;
		if (is_of_pool(model, event, block->pool))
			before[seen++ % AROUND] = i;
	}
	json_array(json, "around");
	for (k = seen > AROUND ? seen - AROUND : 0; k < seen; k++)
		say_event(model, history_at(&model->history, before[k % AROUND]), json);
	for (; i < model->history.count && after <= AROUND; i++) {
		const struct history_event *event = history_at(&model->history, i);

		if (!is_of_pool(model, event, block->pool))
			continue;
		say_event(model, event, json);
		after++;
	}
	json_end(json);
}

static void say_request(struct model *model, const struct model_block *block, struct json *json)
{
	const struct pool_place *place = NULL;

	if (block->requested_bytes != 0)
		json_u64(json, "requested", block->requested_bytes);
	if (run_is_snapshot(model->input.run))
		json_u64(json, "stream",
			 replay_context(model->pass.replay, block->pool_place)->flags);
	else if (block->pool_place != 0)
		place = replay_place(model->pass.replay, block->pool_place);
	if (place != NULL && place->stream != POOL_STREAM_UNKNOWN)
		json_u64(json, "stream", place->stream);
}

void answer_block(struct model *model, const struct question *question, struct json *json)
{
	const struct model_block *block =
		question->block < model->block_count ? model_block(model, question->block) : NULL;

	if (block == NULL) {
		json_string(json, "error", "no such block");
		return;
	}
	json_array(json, "blocks");
	say_row(model, question->block, json);
	json_u64(json, "pool", block->pool - 1);
	if (block->end_ns != MODEL_ALIVE)
		json_u64(json, "free_step", model_step(model, block->end_ns));
	site_json(model->pass.replay, block->stack, "frames", json);
	site_json(model->pass.replay, block->free_stack, "free_frames", json);
	say_request(model, block, json);
	answer_neighbours(model, question->block, json);
	say_around(model, question->block, json);
	say_accesses(model, question->block, block->accesses, json);
	say_findings(model, question->block, json);
	json_end(json);
	json_end(json);
}
