/* SPDX-License-Identifier: Apache-2.0 */
/* Many processes at a glance: of each the peak, what leaks, and its memory over time, kept when its run is closed again. */
#include "viewer/ranks.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/leaks.h"
#include "base/clock.h"

#define RANK_WIDTH   240u
#define RANK_TURN_NS UINT64_C(150000000) /* that one answer may take, beyond one run */

/* The pool that matters most: of a framework, then the one with the highest peak. NULL: there is none. */
static const struct model_pool *main_pool(const struct model *model)
{
	const struct model_pool *best = NULL;
	size_t i;

	for (i = 0; i < model->pool_count; i++) {
		const struct model_pool *pool = &model->pools[i];
		bool driver = pool_is_driver(pool->pool);

		if (pool->blocks > 0 &&
		    (best == NULL || driver < pool_is_driver(best->pool) ||
		     (driver == pool_is_driver(best->pool) && pool->peak_bytes > best->peak_bytes)))
			best = pool;
	}
	return best;
}

static void say_values(const struct model *model, const struct line *line, struct json *json)
{
	uint64_t length = model->to_ns - model->from_ns;
	uint32_t i;

	json_array(json, "values");
	for (i = 0; i < RANK_WIDTH; i++) {
		struct line_range range = {0};

		if (!line_range(
			    line, model->from_ns + (uint64_t)((__uint128_t)length * i / RANK_WIDTH),
			    model->from_ns + (uint64_t)((__uint128_t)length * (i + 1) / RANK_WIDTH),
			    &range))
			range.most = 0;
		json_u64(json, NULL, range.most);
	}
	json_end(json);
}

/* What is kept of a run: one JSON object. */
static void say_rank(struct model *model, const char *name, size_t number, struct strbuf *out)
{
	const struct findings *found = model_findings(model);
	const struct model_pool *pool = main_pool(model);
	struct json json;
	char device[16];

	json_begin(&json, out);
	json_object(&json, NULL);
	json_u64(&json, "process", number);
	json_string(&json, "name", name);
	json_u64(&json, "length_ns", model->to_ns - model->from_ns);
	if (found != NULL)
		json_string(&json, "verdict", process_verdict_word(found->verdict));
	json_f64(&json, "growth", findings_growth(found), 1);
	json_u64(&json, "highest_bytes", model_highest(model));
	if (pool != NULL) {
		device_text(pool->device, device);
		json_string(&json, "pool", pool_event_type(pool->pool));
		json_string(&json, "device", device);
		answer_pool_name(model, pool, "pool_name", &json);
		json_u64(&json, "peak_bytes", pool->peak_bytes);
		json_u64(&json, "total_bytes", pool->total_bytes);
		say_values(model, &pool->lines[MODEL_USED], &json);
	}
	json_end(&json);
}

void viewed_rank(struct viewed *viewed, size_t index)
{
	struct mscope_error err = {0};
	bool was_open = viewed->runs[index].model != NULL;
	struct model *model;
	struct viewed_run *run;
	struct strbuf text = {0};
	const char *name;

	if (viewed->runs[index].rank != NULL && !viewed->runs[index].goes_on)
		return;
	/* Opening it may add runs. */
	model = viewed_model(viewed, index, UINT64_MAX, &err);
	run = &viewed->runs[index];
	name = run->name == NULL ? "?" : run->name;
	if (model != NULL) {
		say_rank(model, name, index, &text);
	} else {
		struct json json;

		json_begin(&json, &text);
		json_object(&json, NULL);
		json_u64(&json, "process", index);
		json_string(&json, "name", name);
		json_string(&json, "error", err.message);
		json_end(&json);
	}
	run->goes_on = model != NULL && !model->complete;
	free(run->rank);
	run->rank = strdup(strbuf_str(&text));
	strbuf_fini(&text);
	/* Whoever looks at another run shall not find it closed. */
	if (!was_open)
		viewed_close(viewed, index);
}

void answer_ranks(struct viewed *viewed, size_t from, struct json *json)
{
	uint64_t until = clock_monotonic_ns() + RANK_TURN_NS;
	size_t i;

	json_array(json, "ranks");
	for (i = from; i < viewed->count; i++) {
		if (viewed->runs[i].rank == NULL && i > from && clock_monotonic_ns() > until)
			break;
		viewed_rank(viewed, i);
		if (viewed->runs[i].rank != NULL)
			json_raw(json, NULL, viewed->runs[i].rank);
	}
	json_end(json);
	json_u64(json, "next", i);
	json_u64(json, "count", viewed->count);
}
