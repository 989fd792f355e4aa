/* SPDX-License-Identifier: Apache-2.0 */
#include "viewer/answers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/leaks.h"
#include "analysis/oom.h"
#include "findings/say.h"
#include "findings/site.h"
#include "base/array.h"
#include "base/map.h"
#include "engine/advise_curves.h"
#include "engine/what_if_curves.h"
#include "sink/report_watch.h"
#include "viewer/groups.h"

#define OOMS_SHOWN    100u
#define OOMS_BRIEF    10u
#define CHANGES_SHOWN 100u /* of watched memory */
#define CHANGES_BRIEF 3u
#define SECTION_LINES 6u
#define STEPS_SHOWN   10000u /* that a summary has */
#define LEAKS_BRIEF   3u

/* ---- the summary ---- */

void answer_pool_name(const struct model *model, const struct model_pool *pool, const char *key,
		      struct json *json)
{
	const uint8_t vendor = replay_likely_vendor(model->pass.replay);
	struct strbuf name = {0};

	strbuf_add_str(&name, say_pool(vendor, pool->pool));
	if (pool->device != DEVICE_HOST) {
		strbuf_add_str(&name, " on ");
		say_device(&name, vendor, pool->device);
	}
	json_string(json, key, strbuf_str(&name));
	strbuf_fini(&name);
}

static void say_pools(const struct model *model, struct json *json)
{
	static const char *const figures[MODEL_FIGURES] = {"used", "reserved", "device"};
	char device[16];
	size_t i;
	int figure;

	json_array(json, "pools");
	for (i = 0; i < model->pool_count; i++) {
		const struct model_pool *pool = &model->pools[i];

		if ((pool->blocks == 0 && !pool->dropped_peak) || pool->hidden)
			continue;
		device_text(pool->device, device);
		json_object(json, NULL);
		json_u64(json, "index", i);
		json_string(json, "pool", pool_event_type(pool->pool));
		json_string(json, "device", device);
		answer_pool_name(model, pool, "name", json);
		json_string(json, "vendor",
			    vendor_row(replay_likely_vendor(model->pass.replay))->suffix);
		json_u64(json, "peak_bytes", pool->peak_bytes);
		json_u64(json, "peak_ns", model_since(model, pool->peak_ns));
		if (pool->dropped_peak)
			json_bool(json, "dropped_peak", true);
		json_u64(json, "blocks", pool->blocks);
		json_u64(json, "total_bytes", pool->total_bytes);
		json_bool(json, "driver", pool_is_driver(pool->pool));
		json_array(json, "figures");
		for (figure = 0; figure < MODEL_FIGURES; figure++) {
			if (pool->lines[figure].count > 0)
				json_string(json, NULL, figures[figure]);
		}
		if (model_resident(model, pool) != NULL)
			json_string(json, NULL, "resident");
		json_end(json);
		json_end(json);
	}
	json_end(json);
}

/* Index of the pool that a finding is about; the first if it has none of its own. */
static size_t pool_index(const struct model *model, uint8_t pool, uint32_t device)
{
	size_t i;

	for (i = 0; i < model->pool_count; i++) {
		if (model->pools[i].pool == pool && model->pools[i].device == device)
			return i;
	}
	return 0;
}

static void say_leak(struct model *model, const struct findings *findings,
		     const struct finding_place *place, struct json *json)
{
	struct strbuf text = {0};

	json_object(json, NULL);
	json_string(json, "verdict", verdict_word(place->verdict));
	json_string(json, "severity", severity_word(place->severity));
	json_string(json, "place", place->name);
	place_sentence(findings, place, &text);
	json_string(json, "sentence", strbuf_str(&text));
	strbuf_reset(&text);
	keeper_lines(findings, place, "", &text);
	if (text.length > 0)
		json_string(json, "keeper", strbuf_str(&text));
	json_u64(json, "pool", pool_index(model, place->pool, place->device));
	json_u64(json, "bytes", place->bytes);
	json_u64(json, "blocks", place->blocks);
	json_f64(json, "bytes_per_step", place->bytes_per_step, 1);
	if (place->examples.count > 0)
		json_u64(json, "block",
			 FINDINGS(findings, block)[place->examples.first].allocation_id);
	site_json(model->pass.replay, place->stack, "frames", json);
	json_end(json);
	strbuf_fini(&text);
}

/* Where one window is shown: a call site that last grew before it is of another. */
static bool is_of_window(const struct model *model, const struct finding_place *place)
{
	return !model->last_window ||
	       (model->step_count > 0 && place->last_step >= model->steps[0].number);
}

size_t answer_leaks(struct model *model, const struct findings *findings, const char *key,
		    size_t most, struct json *json)
{
	size_t i, told = 0, left = 0;

	json_array(json, key);
	for (i = 0; findings != NULL && i < FINDINGS_COUNT(findings, place); i++) {
		if (FINDINGS(findings, place)[i].verdict == GROWTH_KEPT ||
		    !is_of_window(model, &FINDINGS(findings, place)[i]))
			continue;
		if (told < most) {
			say_leak(model, findings, &FINDINGS(findings, place)[i], json);
			told++;
		} else {
			left++;
		}
	}
	json_end(json);
	return left;
}

static bool is_out_of_memory(const struct findings *findings, uint32_t device)
{
	size_t i;

	for (i = 0; i < FINDINGS_COUNT(findings, oom); i++) {
		if (FINDINGS(findings, oom)[i].device == device)
			return true;
	}
	return false;
}

void answer_forecasts(const struct findings *findings, const char *key, struct json *json)
{
	struct strbuf text = {0};
	size_t i;

	json_array(json, key);
	for (i = 0; findings != NULL && i < FINDINGS_COUNT(findings, forecast); i++) {
		const struct finding_forecast *forecast = &FINDINGS(findings, forecast)[i];

		/* Memory has run out already: there is nothing left to forecast. */
		if (!forecast_is_told(findings, forecast) ||
		    is_out_of_memory(findings, forecast->device))
			continue;
		json_object(json, NULL);
		json_string(json, "severity", severity_word(forecast->severity));
		strbuf_reset(&text);
		forecast_title(forecast, &text);
		json_string(json, "title", strbuf_str(&text));
		strbuf_reset(&text);
		forecast_sentence(findings, forecast, &text);
		json_string(json, "sentence", strbuf_str(&text));
		strbuf_reset(&text);
		forecast_steps(forecast, &text);
		json_string(json, "steps", strbuf_str(&text));
		json_u64(json, "full_step_low", forecast->full_step_low);
		json_u64(json, "full_step_high", forecast->full_step_high);
		json_end(json);
	}
	json_end(json);
	strbuf_fini(&text);
}

static void say_findings(struct model *model, bool brief, struct json *json)
{
	const struct findings *findings = model_findings(model);
	/* A window within one step shows nothing of growth. */
	bool has_steps = !model->last_window || model->step_count > 1;
	size_t left;

	if (model_live_findings(model, json))
		return;
	if (findings != NULL)
		json_string(json, "verdict", process_verdict_word(findings->verdict));
	left = answer_leaks(model, findings, "leaks", brief ? LEAKS_BRIEF : ANSWER_LEAKS, json);
	json_u64(json, "more_leaks", left);
	if (!brief)
		answer_forecasts(model->last_window ? NULL : findings, "forecasts", json);
	json_bool(json, "asked", findings == NULL || findings->judgement.asked);
	json_bool(json, "judged", has_steps && findings != NULL && findings->judgement.judged);
	json_bool(json, "clean", has_steps && findings != NULL && findings->judgement.clean);
}

static void say_markers(const struct model *model, bool brief, struct json *json)
{
	size_t i, told = 0;

	json_array(json, "markers");
	for (i = 0; i < model->marker_count; i++) {
		const struct model_marker *marker = &model->markers[i];

		if (brief && (strcmp(marker->kind, "oom") != 0 || told++ >= OOMS_BRIEF))
			continue;
		json_object(json, NULL);
		json_string(json, "kind", marker->kind);
		json_u64(json, "time_ns", model_since(model, marker->time_ns));
		json_string(json, "text", marker->text);
		json_end(json);
	}
	json_end(json);
}

/* Each refused request with its verdict. */
static void say_ooms(struct model *model, bool brief, struct json *json)
{
	/* Naming call sites may take seconds. */
	const struct findings *found =
		model->complete && analyses_oom_count(&model->pass.analyses) > 0
			? model_findings(model)
			: NULL;
	size_t count = found == NULL ? 0 : FINDINGS_COUNT(found, oom), i;
	struct strbuf text = {0};

	json_array(json, "ooms");
	for (i = 0; i < count && i < (brief ? OOMS_BRIEF : OOMS_SHOWN); i++) {
		const struct finding_oom *oom = &FINDINGS(found, oom)[i];

		if (model->last_window && oom->time_ns < model->from_ns)
			continue;
		json_object(json, NULL);
		json_u64(json, "time_ns", model_since(model, oom->time_ns));
		json_u64(json, "step", oom->step);
		json_u64(json, "pool", pool_index(model, oom->pool, oom->device));
		json_string(json, "severity", severity_word(oom->severity));
		json_string(json, "cause", oom_cause_text(oom->cause));
		strbuf_reset(&text);
		oom_headline(oom, &text);
		json_string(json, "headline", strbuf_str(&text));
		strbuf_reset(&text);
		oom_why(found, oom, &text);
		json_string(json, "text", strbuf_str(&text));
		strbuf_reset(&text);
		oom_try(found, oom, &text);
		json_string(json, "advice", strbuf_str(&text));
		json_end(json);
	}
	json_end(json);
	strbuf_fini(&text);
}

/* Ranges that the program marked: begin, end, name. */
static void say_ranges(const struct model *model, bool brief, struct json *json)
{
	size_t i;

	json_array(json, "ranges");
	for (i = 0; !brief && i < model->history.range_count; i++) {
		const struct history_range *range = &model->history.ranges[i];

		json_array(json, NULL);
		json_u64(json, NULL, model_since(model, range->from_ns));
		json_u64(json, NULL,
			 model_since(model,
				     range->to_ns < model->to_ns ? range->to_ns : model->to_ns));
		json_string(json, NULL, history_name(&model->history, range->name));
		json_end(json);
	}
	json_end(json);
}

/* Analyses that have a part of the page, as they say it in texts. */
static void say_sections(struct model *model, struct json *json)
{
	const struct analysis_view view = {.replay = model->pass.replay,
					   .lines = SECTION_LINES,
					   .frames = 1,
					   .found = model_findings(model)};
	struct strbuf text = {0};
	size_t i;

	json_array(json, "sections");
	for (i = 0; i < ANALYSES && view.found != NULL; i++) {
		const struct analysis *analysis = analysis_of((enum analysis_id)i);

		strbuf_reset(&text);
		if (analysis->section != NULL && !analysis->own_view)
			analyses_text_of(&model->pass.analyses, (enum analysis_id)i, &view, &text);
		if (text.length == 0)
			continue;
		json_object(json, NULL);
		json_string(json, "name", analysis->name);
		json_string(json, "title", analysis->section);
		json_string(json, "text", strbuf_str(&text));
		json_end(json);
	}
	strbuf_reset(&text);
	if (view.found != NULL)
		what_if_lines(view.found, &text);
	if (text.length > 0) {
		json_object(json, NULL);
		json_string(json, "name", "what_if");
		json_string(json, "title", "Other settings of PyTorch's pool");
		json_string(json, "text", strbuf_str(&text));
		json_end(json);
	}
	json_end(json);
	strbuf_fini(&text);
}

static void say_host_finding(enum severity severity, const char *title, struct strbuf *text,
			     struct json *json)
{
	json_object(json, NULL);
	json_string(json, "severity", severity_word(severity));
	json_string(json, "title", title);
	json_string(json, "text", strbuf_str(text));
	json_end(json);
	strbuf_reset(text);
}

/* Growth of resident memory, and kills because memory of the host ran out. */
static void say_host(struct model *model, struct json *json)
{
	const struct findings *found = model_findings(model);
	struct strbuf text = {0};
	size_t i;

	json_array(json, "host_findings");
	for (i = 0; found != NULL && i < FINDINGS_COUNT(found, host_kill); i++) {
		const struct finding_host_kill *kill = &FINDINGS(found, host_kill)[i];

		host_kill_sentence(found, kill, &text);
		say_host_finding(kill->severity, "Out of host memory", &text, json);
	}
	for (i = 0; found != NULL && i < FINDINGS_COUNT(found, host_growth); i++) {
		const struct finding_host_growth *growth = &FINDINGS(found, host_growth)[i];

		host_growth_sentence(found, growth, &text);
		say_host_finding(growth->severity, "Growth of host memory", &text, json);
	}
	json_end(json);
	strbuf_fini(&text);
}

void answer_summary(struct model *model, const struct question *question, struct json *json)
{
	const struct run *run = model->input.run;
	const char *command = run_identity(run, "command"), *host = run_identity(run, "host");
	size_t i;

	json_string(json, "input", model->word);
	json_string(json, "command", command == NULL ? "" : command);
	json_string(json, "host", host == NULL ? "" : host);
	if (run_dry(run) != NULL)
		json_string(json, "dry", run_dry(run));
	json_u64(json, "events", model->events);
	json_bool(json, "complete", model->complete);
	json_bool(json, "live", model->is_live);
	json_bool(json, "snapshot", run_is_snapshot(run));
	json_u64(json, "from_ns", 0);
	json_u64(json, "to_ns", model_since(model, model->to_ns));
	json_bool(json, "owners", replay_is_decomposed(model->pass.replay));
	json_bool(json, "layers", replay_has_layers(model->pass.replay));
	say_pools(model, json);
	say_classes(json, "classes");
	json_bool(json, "automatic_steps", replay_steps_are_automatic(model->pass.replay));
	json_array(json, "steps");
	/* Of very many only each so-many-th: more than pixels help nobody. */
	for (i = 0; !question->brief && i < model->step_count;
	     i += model->step_count / STEPS_SHOWN + 1) {
		json_array(json, NULL);
		json_u64(json, NULL, model->steps[i].number);
		json_u64(json, NULL, model_since(model, model->steps[i].time_ns));
		json_end(json);
	}
	json_end(json);
	say_markers(model, question->brief, json);
	say_ranges(model, question->brief, json);
	say_findings(model, question->brief, json);
	say_ooms(model, question->brief, json);
	say_host(model, json);
	say_sections(model, json);
	if (model->complete)
		report_watch_findings(model->pass.replay,
				      question->brief ? CHANGES_BRIEF : CHANGES_SHOWN, json);
}

void answer_waste(struct model *model, const struct question *question, struct json *json)
{
	const struct findings *found = model_findings(model);

	(void)question;
	if (found != NULL && found->unused_asked)
		findings_json(found, FINDING_waste, "inefficient", MODEL_STACKS, json);
}

void answer_what_if(struct model *model, const struct question *question, struct json *json)
{
	const struct what_if_span span = {question->from_ns, question->to_ns, question->width};

	if (question->pool < model->pool_count && model->complete &&
	    model->pools[question->pool].pool == POOL_pta)
		what_if_curves(model->word, model->pools[question->pool].device, &span, json);
}

void answer_advise(struct model *model, const struct question *question, struct json *json)
{
	if (question->pool < model->pool_count && model->complete &&
	    answer_has_advice(model, question->pool))
		advise_curves(model->word,
			      &(struct advise_question){
				      model->pools[question->pool].pool,
				      model->pools[question->pool].device,
				      {question->from_ns, question->to_ns, question->width}},
			      json);
}

bool answer_has_advice(const struct model *model, size_t pool)
{
	return !model->is_live && replay_has_layers(model->pass.replay) &&
	       (model->pools[pool].pool == POOL_pta || model->pools[pool].pool == POOL_host);
}

/* ---- series ---- */

/* Begin of span `i` of the question. */
static uint64_t span_at(const struct question *question, uint32_t i)
{
	uint64_t time = question->to_ns - question->from_ns;

	return question->from_ns + (uint64_t)((__uint128_t)time * i / question->width);
}

static uint32_t span_of(const struct question *question, uint64_t time_ns)
{
	uint64_t time = question->to_ns - question->from_ns;

	if (time_ns <= question->from_ns)
		return 0;
	if (time_ns >= question->to_ns)
		return question->width;
	return (uint32_t)((__uint128_t)(time_ns - question->from_ns) * question->width / time);
}

static void say_line(const struct line *line, const struct question *question, const char *least,
		     const char *most, struct json *json)
{
	struct line_range range;
	uint32_t i;
	int turn;

	if (line->count == 0)
		return;
	for (turn = 0; turn < 2; turn++) {
		if ((turn == 0 ? least : most) == NULL)
			continue;
		json_array(json, turn == 0 ? least : most);
		for (i = 0; i < question->width; i++) {
			if (line_range(line, span_at(question, i), span_at(question, i + 1),
				       &range))
				json_u64(json, NULL, turn == 0 ? range.least : range.most);
			else
				json_null(json, NULL);
		}
		json_end(json);
	}
}

/* What each group holds at the end of each span: differences first, then their sums. */
static int say_groups(struct model *model, const struct question *question, struct json *json)
{
	size_t width = question->width + 1u;
	struct groups groups;
	int64_t *held, *changes;
	uint64_t i;
	uint32_t group;

	if (groups_find(model, question, &groups) < 0)
		return -ENOMEM;
	held = calloc((ANSWER_GROUPS + 2) * width, sizeof(*held));
	if (held == NULL)
		return -ENOMEM;
	changes = held + (ANSWER_GROUPS + 1) * width;
	for (i = 0; i < model->block_count; i++) {
		const struct model_block *block = model_block(model, i);
		int64_t *of;

		if (block == NULL || block->pool != question->pool + 1 ||
		    block->start_ns >= question->to_ns || block->end_ns <= question->from_ns)
			continue;
		of = held + groups_number(&groups, group_key(model, block, question->by)) * width;
		of[span_of(question, block->start_ns)] += (int64_t)block->size_bytes;
		of[span_of(question, block->end_ns)] -= (int64_t)block->size_bytes;
		changes[span_of(question, block->start_ns)] += block->start_ns > question->from_ns;
		changes[span_of(question,
				block->end_ns)]++; /* the last span is beyond the question */
	}
	groups_json(model, &groups, question->by, json);
	json_array(json, "held");
	for (group = 0; group < groups.count + groups.rest; group++) {
		int64_t sum = 0;

		json_array(json, NULL);
		for (i = 0; i < question->width; i++) {
			sum += held[group * width + i];
			json_i64(json, NULL, sum);
		}
		json_end(json);
	}
	json_end(json);
	/* Blocks that come and go in each span. */
	json_array(json, "changes");
	for (i = 0; i < question->width; i++)
		json_i64(json, NULL, changes[i]);
	json_end(json);
	free(held);
	return 0;
}

/* What blocks of places called leaks hold at the end of each span; nothing if there is no leak. 0 or -ENOMEM. */
static int say_leaked(struct model *model, const struct question *question, struct json *json)
{
	const struct leaks_findings *findings = model_leaks(model);
	int64_t *held, sum = 0;
	size_t i, k;

	if (findings == NULL || findings->leaks == 0)
		return 0;
	held = calloc(question->width + 1u, sizeof(*held));
	if (held == NULL)
		return -ENOMEM;
	for (i = 0; i < findings->place_count; i++) {
		const struct leaks_place *place = &findings->places[i];

		for (k = 0; place->verdict == GROWTH_LEAK && k < place->list_count; k++) {
			uint64_t id = place->list[k].allocation_id;
			const struct model_block *block =
				id < model->block_count ? model_block(model, id) : NULL;

			if (block == NULL || block->pool != question->pool + 1)
				continue;
			held[span_of(question, block->start_ns)] += (int64_t)block->size_bytes;
			held[span_of(question, block->end_ns)] -= (int64_t)block->size_bytes;
		}
	}
	json_array(json, "leaked");
	for (i = 0; i < question->width; i++) {
		sum += held[i];
		json_i64(json, NULL, sum);
	}
	json_end(json);
	free(held);
	return 0;
}

void answer_series(struct model *model, const struct question *question, struct json *json)
{
	const struct model_pool *pool = question_pool(model, question);

	json_u64(json, "from_ns", model_since(model, question->from_ns));
	json_u64(json, "to_ns", model_since(model, question->to_ns));
	json_u64(json, "width", question->width);
	if (pool == NULL)
		return;
	say_line(&pool->lines[MODEL_USED], question, "least", "most", json);
	say_line(&pool->lines[MODEL_RESERVED], question, NULL, "reserved", json);
	say_line(&pool->lines[MODEL_DEVICE], question, NULL, "device", json);
	if (model_resident(model, pool) != NULL)
		say_line(&model->resident, question, NULL, "resident", json);
	if (say_leaked(model, question, json) < 0 || say_groups(model, question, json) < 0)
		json_string(json, "error", "no memory");
}

/* ---- blocks ---- */

struct rectangle {
	uint64_t block;
	uint64_t address;
};

static int by_address(const void *a, const void *b)
{
	const struct rectangle *x = a, *y = b;

	return ORDER_UP(x->address, y->address) ?: ORDER_UP(x->block, y->block);
}

/* Size times time, as a power of two: what is drawn first when not all can be. */
static unsigned area(const struct model_block *block, const struct question *question)
{
	uint64_t time = block_within(block, question->from_ns, question->to_ns);

	return time == 0 ? 0u
			 : 1u + 64u - (unsigned)__builtin_clzll(time) + 64u -
				   (unsigned)__builtin_clzll(block->size_bytes | 1);
}

/* The rectangles that are drawn; how many blocks are too small for that goes to *out_left. 0 or -ENOMEM. */
static int choose(const struct model *model, const struct question *question,
		  struct rectangle **out, size_t *out_count, uint64_t *out_left)
{
	uint64_t by_area[130] = {0}, sum = 0, i;
	unsigned least = 129;
	size_t room = 0, count = 0;

	for (i = 0; i < model->block_count; i++) {
		const struct model_block *block = model_block(model, i);

		if (block != NULL && block->pool == question->pool + 1)
			by_area[area(block, question)]++;
	}
	while (least > 1 && sum + by_area[least - 1] <= ANSWER_RECTANGLES)
		sum += by_area[--least];
	*out_left = 0;
	for (i = 1; i < least; i++)
		*out_left += by_area[i];
	*out = NULL;
	for (i = 0; i < model->block_count; i++) {
		const struct model_block *block = model_block(model, i);

		if (block == NULL || block->pool != question->pool + 1 ||
		    area(block, question) < least)
			continue;
		if (ARRAY_RESERVE(*out, room, count + 1) < 0) {
			free(*out);
			return -ENOMEM;
		}
		(*out)[count++] = (struct rectangle){i, block->address};
	}
	if (count > 0)
		qsort(*out, count, sizeof(**out), by_address);
	*out_count = count;
	return 0;
}

/* Spans of addresses in which blocks lie, so that the empty ones between them need no room. */
static void say_extents(const struct model *model, const struct rectangle *all, size_t count,
			struct json *json)
{
	uint64_t from = 0, to = 0, bytes = 0;
	size_t i;

	for (i = 0; i < count; i++)
		bytes += model_block(model, all[i].block)->size_bytes;
	json_array(json, "extents");
	for (i = 0; i <= count; i++) {
		const struct model_block *block =
			i < count ? model_block(model, all[i].block) : NULL;

		if (i > 0 && (block == NULL || block->address > to + bytes / 64)) {
			json_array(json, NULL);
			json_u64(json, NULL, from);
			json_u64(json, NULL, to - from);
			json_end(json);
		}
		if (block == NULL)
			break;
		if (i == 0 || block->address > to + bytes / 64)
			from = to = block->address;
		if (block->address + block->size_bytes > to)
			to = block->address + block->size_bytes;
	}
	json_end(json);
}

void answer_blocks(struct model *model, const struct question *question, struct json *json)
{
	struct rectangle *all = NULL;
	struct groups groups;
	uint64_t left = 0;
	size_t count = 0, i;

	json_u64(json, "from_ns", model_since(model, question->from_ns));
	json_u64(json, "to_ns", model_since(model, question->to_ns));
	if (groups_find(model, question, &groups) < 0 ||
	    choose(model, question, &all, &count, &left) < 0) {
		json_string(json, "error", "no memory");
		return;
	}
	groups_json(model, &groups, question->by, json);
	json_u64(json, "left_out", left);
	say_extents(model, all, count, json);
	/* id, begin, end, address, size, group; times from the question's begin on. */
	json_array(json, "blocks");
	for (i = 0; i < count; i++) {
		const struct model_block *block = model_block(model, all[i].block);
		uint64_t end = block->end_ns < question->to_ns ? block->end_ns : question->to_ns;

		json_u64(json, NULL, all[i].block);
		json_i64(json, NULL, (int64_t)(block->start_ns - question->from_ns));
		json_i64(json, NULL, (int64_t)(end - question->from_ns));
		json_u64(json, NULL, block->address);
		json_u64(json, NULL, block->size_bytes);
		json_u64(json, NULL, groups_number(&groups, group_key(model, block, question->by)));
	}
	json_end(json);
	free(all);
}
