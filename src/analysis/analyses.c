/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/analyses.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/word_list.h"
#include "findings/site.h"
#include "trace/session.h"
#include "trace/settings.h"

#define ANALYSIS(name) extern const struct analysis analysis_##name;
#include "analysis/analyses.def"
#undef ANALYSIS

static const struct analysis *const table[ANALYSES] = {
#define ANALYSIS(name) [ANALYSIS_ID_##name] = &analysis_##name,
#include "analysis/analyses.def"
#undef ANALYSIS
};

static bool is_wanted(int id, uint32_t bits)
{
	return table[id]->always || (table[id]->bits & bits) != 0;
}

/* ---- observing ---- */

static void on_row(void *arg, struct replay *replay, const struct row *row)
{
	struct analyses *analyses = arg;
	const struct analysis_list *list = &analyses->by_row[row->kind];
	int i;

	for (i = 0; i < list->count; i++) {
		uint8_t id = list->ids[i];

		if (!analyses->failed[id])
			analyses->failed[id] = table[id]->row(analyses->state[id], replay, row) < 0;
	}
}

static void on_block(void *arg, struct replay *replay, enum block_change change,
		     const struct block *block, const struct usage *usage, uint32_t owner)
{
	struct analyses *analyses = arg;
	const struct block_listener *at = analyses->by_change[analyses->in_step][change];

	for (; at->block != NULL; at++) {
		if (!*at->failed && at->block(at->state, replay, change, block, usage, owner) < 0)
			*at->failed = true;
	}
}

/* Changes that are wanted in steps alone are not told outside of them. */
static void want_changes(struct analyses *analyses, const struct replay *replay)
{
	analyses->in_step = replay_open_step(replay, 0) != 0;
	analyses->observer.blocks = analyses->changes[analyses->in_step];
}

static void on_step(void *arg, struct replay *replay, uint32_t step, bool begins)
{
	struct analyses *analyses = arg;
	int i;

	for (i = 0; i < ANALYSES; i++) {
		if (analyses->state[i] != NULL && table[i]->step != NULL && !analyses->failed[i])
			analyses->failed[i] =
				table[i]->step(analyses->state[i], replay, step, begins) < 0;
	}
	want_changes(analyses, replay);
}

static void on_sample(void *arg, struct replay *replay, const struct driver_usage *driver)
{
	struct analyses *analyses = arg;
	int i;

	for (i = 0; i < ANALYSES; i++) {
		if (analyses->state[i] != NULL && table[i]->sample != NULL && !analyses->failed[i])
			analyses->failed[i] =
				table[i]->sample(analyses->state[i], replay, driver) < 0;
	}
}

static void on_host(void *arg, struct replay *replay, const struct trace_event *event)
{
	struct analyses *analyses = arg;
	int i;

	for (i = 0; i < ANALYSES; i++) {
		if (analyses->state[i] != NULL && table[i]->host != NULL && !analyses->failed[i])
			analyses->failed[i] = table[i]->host(analyses->state[i], replay, event) < 0;
	}
}

static void add_to(struct analysis_list *list, int id)
{
	list->ids[list->count++] = (uint8_t)id;
}

static void add_changes(struct analyses *analyses, int id, bool in_step)
{
	uint32_t changes = table[id]->blocks | (in_step ? table[id]->blocks_in_step : 0);
	int i;

	for (i = 0; i < BLOCK_CHANGES; i++) {
		struct block_listener *at = analyses->by_change[in_step][i];

		if (!(changes >> i & 1))
			continue;
		while (at->block != NULL)
			at++;
		*at = (struct block_listener){.block = table[id]->block,
					      .state = analyses->state[id],
					      .failed = &analyses->failed[id]};
	}
	analyses->changes[in_step] |= changes;
}

/* Enters an analysis into the lists of what it wants. */
static void enlist(struct analyses *analyses, int id)
{
	int i;

	for (i = 0; i < ROW_END; i++) {
		if (table[id]->rows >> i & 1)
			add_to(&analyses->by_row[i], id);
	}
	add_changes(analyses, id, false);
	add_changes(analyses, id, true);
	analyses->observer.rows |= table[id]->rows;
}

/*
 * An analysis that begins in the middle of a run first hears of the blocks that later changes are about, in the order of their
 * allocation: of those that live, after stop() of those that lived then.
 */
static int observe_live(const struct analysis *analysis, void *state, struct replay *replay)
{
	const struct block **blocks, *block;
	size_t cursor = 0, count = 0, i;
	int r = 0;

	if (!(analysis->blocks >> BLOCK_ADDED & 1))
		return 0;
	blocks = calloc(replay_count_observed(replay) + 1, sizeof(*blocks));
	if (blocks == NULL)
		return -ENOMEM;
	while ((block = replay_next_observed(replay, &cursor)) != NULL)
		blocks[count++] = block;
	qsort(blocks, count, sizeof(*blocks), block_order);
	for (i = 0; i < count && r == 0; i++)
		r = analysis->block(state, replay, BLOCK_ADDED, blocks[i],
				    replay_usage(replay, blocks[i]), blocks[i]->owner);
	free(blocks);
	return r;
}

static void tell(struct analyses *analyses, int id)
{
	if (analyses->state[id] != NULL && table[id]->settings != NULL)
		table[id]->settings(analyses->state[id], &analyses->settings);
}

static void begin(struct analyses *analyses, int id, struct replay *replay)
{
	analyses->state[id] = calloc(1, table[id]->state_bytes + 1);
	if (analyses->state[id] != NULL)
		enlist(analyses, id);
	tell(analyses, id);
	want_changes(analyses, replay);
	analyses->failed[id] = analyses->state[id] == NULL ||
			       observe_live(table[id], analyses->state[id], replay) < 0;
}

/* What was found by automatic steps does not count: analyses of steps begin again, with the blocks that live. */
static void on_restart(void *arg, struct replay *replay)
{
	struct analyses *analyses = arg;
	int i;

	for (i = 0; i < ANALYSES; i++) {
		if (analyses->state[i] == NULL || table[i]->step == NULL)
			continue;
		if (table[i]->fini != NULL)
			table[i]->fini(analyses->state[i]);
		memset(analyses->state[i], 0, table[i]->state_bytes);
		tell(analyses, i);
		analyses->failed[i] = observe_live(table[i], analyses->state[i], replay) < 0;
	}
	want_changes(analyses, replay);
}

static void choose(struct analyses *analyses, struct replay *replay, uint32_t bits)
{
	bool owners = (bits & SESSION_DECOMPOSE) != 0;
	bool good = !owners || replay_decompose(replay) == 0;
	int i;

	analyses->bits = bits;
	replay_show_owners(replay, owners);
	for (i = 0; i < ANALYSES && !analyses->owners_only; i++) {
		if (!is_wanted(i, bits) || analyses->state[i] != NULL)
			continue;
		begin(analyses, i, replay);
		analyses->failed[i] |= !good;
	}
}

static void on_settings(void *arg, struct replay *replay)
{
	struct analyses *analyses = arg;
	const struct event_settings *settings = replay_settings(replay);

	if (!analyses->fixed)
		analyses_settings(analyses, settings, false);
	if (analyses->follow)
		choose(analyses, replay,
		       settings_analysis_of((uint32_t)settings->analysis,
					    (uint32_t)settings->events));
}

void analyses_settings(struct analyses *analyses, const struct event_settings *settings, bool fixed)
{
	int i;

	analyses->settings = *settings;
	analyses->fixed = fixed;
	for (i = 0; i < ANALYSES; i++)
		tell(analyses, i);
}

/* ---- in a checkpoint ---- */

static void on_save(void *arg, const struct replay *replay, struct checkpoint *cp)
{
	struct analyses *analyses = arg;
	struct strbuf state = {0};
	int i;

	for (i = 0; i < ANALYSES; i++) {
		if (analyses->state[i] == NULL || analyses->failed[i] || table[i]->keep == NULL)
			continue;
		strbuf_reset(&state);
		/* What is cut short is refused when it is loaded. */
		(void)table[i]->keep(analyses->state[i], replay, &(struct words){.out = &state});
		if (!strbuf_failed(&state))
			checkpoint_put_kept(cp, table[i]->name, table[i]->version, &state);
	}
	strbuf_fini(&state);
}

static int on_load(void *arg, struct replay *replay, const char *name, uint32_t version,
		   struct words *words)
{
	struct analyses *analyses = arg;
	int i;

	for (i = 0; i < ANALYSES; i++) {
		if (strcmp(table[i]->name, name) != 0 || table[i]->keep == NULL ||
		    table[i]->version != version)
			continue;
		/* The program may ask for it again later. */
		if (analyses->state[i] == NULL && analyses->follow && !analyses->owners_only)
			begin(analyses, i, replay);
		if (analyses->state[i] != NULL && !analyses->failed[i])
			analyses->failed[i] =
				table[i]->keep(analyses->state[i], replay, words) < 0 ||
				words->failed;
		tell(analyses, i);
	}
	return 0;
}

/* ---- all of them ---- */

static void init(struct analyses *analyses, uint32_t bits, bool follow, bool owners_only,
		 struct replay *replay)
{
	*analyses = (struct analyses){.follow = follow,
				      .owners_only = owners_only,
				      .observer = {.row = on_row,
						   .step = on_step,
						   .sample = on_sample,
						   .host = on_host,
						   .block = on_block,
						   .restart = on_restart,
						   .settings = on_settings,
						   .save = on_save,
						   .load = on_load}};
	choose(analyses, replay, bits);
	replay_observe(replay, &analyses->observer, analyses);
}

void analyses_init(struct analyses *analyses, uint32_t bits, bool follow, struct replay *replay)
{
	init(analyses, bits, follow, false, replay);
}

void analyses_init_owners(struct analyses *analyses, uint32_t bits, bool follow,
			  struct replay *replay)
{
	init(analyses, bits, follow, true, replay);
}

void analyses_fini(struct analyses *analyses)
{
	int i;

	for (i = 0; i < ANALYSES; i++) {
		if (analyses->state[i] != NULL && table[i]->fini != NULL)
			table[i]->fini(analyses->state[i]);
		free(analyses->state[i]);
	}
	*analyses = (struct analyses){0};
}

/* ---- reporting ---- */

void analyses_end(struct analyses *analyses)
{
	int i;

	for (i = 0; i < ANALYSES; i++) {
		if (analyses->state[i] != NULL && table[i]->end != NULL)
			table[i]->end(analyses->state[i]);
	}
}

void analyses_judge(const struct analyses *analyses, struct replay *replay, size_t frames,
		    struct findings *out)
{
	int i;

	for (i = 0; i < ANALYSES; i++) {
		if (is_wanted(i, analyses->bits) && !analyses->failed[i] &&
		    analyses->state[i] != NULL && table[i]->judge != NULL &&
		    table[i]->judge(analyses->state[i], replay, out) < 0)
			out->failed = true;
	}
	if (findings_settle(out, replay, frames) < 0)
		out->failed = true;
}

void analyses_text_of(struct analyses *analyses, enum analysis_id id,
		      const struct analysis_view *view, struct strbuf *out)
{
	if (!is_wanted((int)id, analyses->bits))
		return;
	if (analyses->failed[id] ||
	    (table[id]->text != NULL && table[id]->text(analyses->state[id], view, out) < 0))
		strbuf_addf(out, "Not enough memory for the analysis of %s.\n", table[id]->name);
}

void analyses_text(struct analyses *analyses, const struct analysis_view *view, struct strbuf *out)
{
	int i;

	for (i = 0; i < ANALYSES; i++)
		analyses_text_of(analyses, (enum analysis_id)i, view, out);
}

const struct analysis *analysis_of(enum analysis_id id)
{
	return table[id];
}

void analyses_json_of(struct analyses *analyses, enum analysis_id id,
		      const struct analysis_view *view, struct json *json)
{
	if (is_wanted((int)id, analyses->bits) && !analyses->failed[id] && table[id]->json != NULL)
		(void)table[id]->json(analyses->state[id], view, json);
}

/* ---- what several of them need ---- */

bool step_has_ended(const struct replay *replay, uint32_t step)
{
	return step > 0 && step <= replay_steps(replay) && !replay_step_is_open(replay, step);
}
