/* SPDX-License-Identifier: Apache-2.0 */
#include "viewer/model.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/leaks.h"
#include "engine/what_if_finding.h"
#include "findings/site.h"
#include "base/array.h"
#include "base/hash.h"
#include "symbols/elf_cache.h"
#include "trace/launch.h"
#include "trace/pack.h"
#include "trace/settings.h"

#define MARKERS_MAX    10000u
#define ONE_REFUSAL_NS 1000000u

struct model_pool *model_pool_at(struct model *model, size_t index)
{
	while (index >= model->pool_count) {
		struct model_pool *pool;
		int figure;

		if (ARRAY_RESERVE(model->pools, model->pool_room, model->pool_count + 1) < 0)
			return NULL;
		pool = &model->pools[model->pool_count++];
		*pool = (struct model_pool){0};
		for (figure = 0; figure < MODEL_FIGURES; figure++) {
			if (spool_init(&pool->lines[figure].points, model->directory,
				       sizeof(struct line_point), &model->error) < 0)
				return NULL;
		}
	}
	return &model->pools[index];
}

static int add_marker(struct model *model, uint64_t time_ns, const char *kind, const char *text)
{
	const struct model_marker *last =
		model->marker_count == 0 ? NULL : &model->markers[model->marker_count - 1];
	char *copy;

	/* A refused request has a row before and one after the pool was emptied. */
	if (model->marker_count >= MARKERS_MAX ||
	    (last != NULL && strcmp(kind, "oom") == 0 && strcmp(last->kind, kind) == 0 &&
	     time_ns - last->time_ns < ONE_REFUSAL_NS))
		return 0;
	copy = strdup(text == NULL ? "" : text);
	if (copy == NULL ||
	    ARRAY_RESERVE(model->markers, model->marker_room, model->marker_count + 1) < 0) {
		free(copy);
		return -ENOMEM;
	}
	model->markers[model->marker_count++] =
		(struct model_marker){.time_ns = time_ns, .kind = kind, .text = copy};
	return 0;
}

static int add_steps(struct model *model, const struct replay *replay, uint64_t time_ns)
{
	/* With step() of the package the one in progress has not been counted yet. */
	uint32_t open = replay_open_step(replay, 0), begun = replay_steps(replay);
	uint32_t steps = open > begun ? open : begun;

	/* The program marked a step after others were counted: those have never been. */
	if (model->step_count > 0 && model->steps[model->step_count - 1].number > steps)
		model->step_count = 0;
	if (steps == 0 ||
	    (model->step_count > 0 && model->steps[model->step_count - 1].number == steps))
		return 0;
	if (ARRAY_RESERVE(model->steps, model->step_room, model->step_count + 1) < 0)
		return -ENOMEM;
	model->steps[model->step_count++] =
		(struct model_step){.time_ns = time_ns, .number = steps};
	return 0;
}

struct model_block *model_block_of(struct model *model, struct replay *replay,
				   const struct block *block, uint64_t start_ns)
{
	struct model_block *to;
	struct model_pool *pool;
	size_t usages, index;

	index = (size_t)(replay_usage(replay, block) - replay_usages(replay, &usages));
	pool = model_pool_at(model, index);
	to = pool == NULL ? NULL : spool_at(&model->blocks, block->allocation_id);
	if (to == NULL || to->pool != 0)
		return to;
	*to = (struct model_block){.start_ns = start_ns,
				   .end_ns = MODEL_ALIVE,
				   .address = block->address,
				   .size_bytes = block->size_bytes,
				   .requested_bytes = block->requested_bytes,
				   .pool_place = run_is_snapshot(model->input.run) ? block->context
										   : block->place,
				   .stack = block->stack,
				   .owner = block->owner,
				   .tid = block->tid,
				   .step = block->latest_step,
				   .outside = block->outside_window,
				   .pool = (uint32_t)index + 1};
	pool->blocks++;
	if (block->allocation_id >= model->block_count)
		model->block_count = block->allocation_id + 1;
	return to;
}

static int take_block(struct model *model, struct replay *replay, const struct row *row)
{
	const struct block *block = row->block;
	/* The first event after a checkpoint may free a block of before. */
	bool before = row->kind == ROW_FREE && model->cut_ns == 0 &&
		      run_is_checkpointed(model->input.run);
	struct model_block *to = model_block_of(
		model, replay, block,
		before ? run_wall_ns(model->input.run, block->time_ns) : row->time_ns);
	struct model_pool *pool;
	int r = 0;

	if (to == NULL)
		return -ENOSPC;
	pool = &model->pools[to->pool - 1];
	if (to->start_ns == row->time_ns && row->kind == ROW_MALLOC)
		to->operation = history_operator(&model->history, row->writer);
	to->owner = block->owner;
	if (row->kind == ROW_FREE) {
		to->end_ns = row->time_ns;
		to->free_stack = row->stack;
	}
	/* Blocks that were there before are told when recording begins, with what the pool holds by then. */
	if (!row->shadow || row->kind == ROW_MALLOC) {
		r = line_add(&pool->lines[MODEL_USED], row->time_ns, row->used_bytes);
		if (r == 0 && row->reserved_bytes != UINT64_MAX)
			r = line_add(&pool->lines[MODEL_RESERVED], row->time_ns,
				     row->reserved_bytes);
		if (r == 0 && row->device_bytes != UINT64_MAX && row->device_bytes != 0)
			r = line_add(&pool->lines[MODEL_DEVICE], row->time_ns, row->device_bytes);
	}
	return r;
}

static void count_access(struct model *model, const struct row *row)
{
	struct model_block *block = spool_at(&model->blocks, row->block->allocation_id);

	if (block != NULL && block->pool != 0 && block->accesses < UINT32_MAX)
		block->accesses++;
}

static int take_resident(struct model *model, const struct replay *replay,
			 const struct trace_event *event)
{
	const struct driver_usage *host = replay_driver_usage(replay, DEVICE_HOST);
	struct event_usage_sample sample;

	event_usage_sample_decode(event->words, &sample);
	if (sample.device != DEVICE_HOST || host == NULL || host->process_bytes == UINT64_MAX)
		return 0;
	return line_add(&model->resident, run_wall_ns(model->input.run, event->time_ns),
			host->process_bytes);
}

static int on_event(void *arg, struct replay *replay, const struct trace_event *event)
{
	struct model *model = arg;
	int r = 0;

	if (model->cut_ns == 0 && event->writer != CHECKPOINT_WRITER &&
	    run_is_checkpointed(model->input.run))
		r = model_take_checkpoint(model, replay);
	if (r == 0 && event->type == EVENT_usage_sample)
		r = take_resident(model, replay, event);
	return r;
}

/* A program has called start(): what was before it is not shown, but for blocks that still live. */
static void begin_window(struct model *model, uint64_t time_ns)
{
	size_t i;

	for (i = 0; i < model->marker_count; i++)
		free(model->markers[i].text);
	model->marker_count = model->step_count = 0;
	model->from_ns = model->to_ns = time_ns;
}

static void take_time(struct model *model, uint64_t time_ns)
{
	if (model->from_ns == 0 || (time_ns < model->from_ns && !model->last_window))
		model->from_ns = time_ns;
	if (time_ns > model->to_ns)
		model->to_ns = time_ns;
}

static int on_row(void *arg, struct replay *replay, const struct row *row)
{
	struct model *model = arg;
	int r = history_row(&model->history, row);

	if (row->kind == ROW_START_TRACE && model->last_window)
		begin_window(model, row->time_ns);
	if (!row->late)
		take_time(model, row->time_ns);
	if (!row->late && r == 0)
		r = add_steps(model, replay, row->time_ns);
	if ((row->kind == ROW_READ || row->kind == ROW_WRITE || row->kind == ROW_ACCESS) &&
	    row->block != NULL)
		count_access(model, row);
	if (r == 0 && (row->kind == ROW_MALLOC || row->kind == ROW_FREE) && row->block != NULL)
		r = take_block(model, replay, row);
	else if (r == 0 && row->kind == ROW_MARK && row->name != NULL)
		r = add_marker(model, row->time_ns, "mark", row->name);
	else if (r == 0 && row->kind == ROW_SNAPSHOT)
		r = add_marker(model, row->time_ns, row->oom == NULL ? "snapshot" : "oom",
			       row->oom == NULL ? row->name : "a request for memory was refused");
	if (r == -ENOSPC && model->error.code == 0)
		(void)error_set(&model->error, r, "no space for the page's own files in %s",
				model->directory);
	return r;
}

/* What the replay knows of pools. */
static void update_pools(struct model *model)
{
	const struct usage *usages;
	size_t count, i;

	usages = replay_usages(model->pass.replay, &count);
	for (i = 0; i < model->pool_count && i < count; i++) {
		struct model_pool *pool = &model->pools[i];
		const struct driver_usage *driver =
			replay_driver_usage(model->pass.replay, usages[i].device);

		pool->total_bytes = driver == NULL ? 0 : driver->total_bytes;
		pool->pool = usages[i].pool;
		pool->device = usages[i].device;
		pool->hidden = usages[i].hidden;
		pool->peak_bytes = usages[i].peak_bytes;
		pool->peak_ns = run_wall_ns(model->input.run, usages[i].peak_time_ns);
		if (model->last_window)
			(void)line_highest(&pool->lines[MODEL_USED], model->from_ns, model->to_ns,
					   &pool->peak_ns, &pool->peak_bytes);
		pool->dropped_peak = pool->peak_bytes > 0 && pool->peak_ns < model->cut_ns;
	}
	model->events = replay_totals(model->pass.replay)->events;
}

/* What only the end of the run decides: what lives, and whose it is. */
static void finish(struct model *model)
{
	struct replay *replay = model->pass.replay;
	const struct block *block;
	size_t cursor = 0;

	/* A label may have come after the last row of a block: after the last stop() a free has none. */
	while ((block = replay_next_at_end(replay, &cursor)) != NULL) {
		struct model_block *to = spool_at(&model->blocks, block->allocation_id);

		if (to != NULL && to->pool != 0)
			to->owner = block->owner;
	}
	cursor = 0;
	while ((block = replay_next_block(replay, &cursor)) != NULL) {
		struct model_block *to = spool_at(&model->blocks, block->allocation_id);

		if (to != NULL && to->pool != 0) {
			to->end_ns = MODEL_ALIVE;
			to->owner = block->owner;
		}
	}
	model->complete = true;
}

int model_read(struct model *model, uint64_t most)
{
	uint64_t taken = 0;
	bool ends = false;
	int r = 0;

	if (model->complete || model->error.code != 0)
		return model->error.code;
	if (model->is_live)
		r = model_live_poll(model);
	if (r == 0)
		r = pass_read(&model->pass, most, &taken);
	model->caught_up = taken < most && !run_is_stale(model->input.run);
	ends = model->caught_up && (!model->is_live || model->live.ended || model->ends_now);
	if (r == 0 && ends)
		r = pass_end(&model->pass);
	if (r == 0 && ends && model->cut_ns == 0 && run_is_checkpointed(model->input.run))
		r = model_take_checkpoint(model, model->pass.replay);
	update_pools(model);
	if (r == 0 && ends)
		finish(model);
	if (r == -ENOMEM)
		(void)error_set(&model->error, r, "no memory");
	else if (r < 0 && model->error.code == 0)
		(void)error_set(&model->error, r, "cannot read more of the trace: %s",
				mscope_status_str(r));
	return model->error.code;
}

int model_open(struct model *model, const char *word, uint32_t pid, const char *directory,
	       struct mscope_error *err)
{
	struct pass_setup setup = {
		.elves = &model->elves,
		.analysis = SESSION_LEAKS,
		.follow_analysis = true,
		.follow_choice = true,
		.row = on_row,
		.event = on_event,
		.event_arg = model,
		.facts_directory = directory,
	};
	const char *launch;
	struct session *session;
	int r;

	*model = (struct model){.word = word, .directory = directory};
	r = model_live_open(model, word, err);
	if (r == 0)
		r = input_open_process(&model->input, word, pid, NULL, NULL, err);
	if (r >= 0)
		r = spool_init(&model->blocks, directory, sizeof(struct model_block), err);
	if (r == 0)
		r = spool_init(&model->resident.points, directory, sizeof(struct line_point), err);
	if (r == 0)
		r = history_init(&model->history, directory, err);
	if (r < 0)
		return r;
	setup.run = model->input.run;
	launch = run_identity(setup.run, SESSION_LAUNCH_KEY);
	session = launch == NULL ? NULL : calloc(1, sizeof(*session));
	if (session != NULL && launch_read(launch, session)) {
		setup.analysis = session->analysis;
		setup.settings = settings_of_session(session);
		setup.choice = pass_choice(session);
	}
	free(session);
	setup.root = model->is_live ? model->live.root : NULL;
	r = pass_open(&model->pass, &setup, err);
	/* Views by owner are there in any case; names show owners if these were asked for. */
	if (r == 0)
		r = replay_decompose(model->pass.replay);
	if (r == 0 && !model->is_live)
		r = run_poll(setup.run, 0, true);
	if (r < 0 && err->code == 0)
		(void)error_set(err, r, "cannot read the trace: %s", mscope_status_str(r));
	return r;
}

void model_close(struct model *model)
{
	size_t i;
	int figure;

	for (i = 0; i < model->pool_count; i++) {
		for (figure = 0; figure < MODEL_FIGURES; figure++)
			line_fini(&model->pools[i].lines[figure]);
	}
	line_fini(&model->resident);
	for (i = 0; i < model->marker_count; i++)
		free(model->markers[i].text);
	free(model->pools);
	free(model->steps);
	free(model->markers);
	free(model->sites);
	free(model->places);
	map_fini(&model->place_names);
	map_fini(&model->owners);
	map_fini(&model->owner_texts);
	leaks_findings_free(model->leaks);
	findings_fini(&model->findings);
	spool_fini(&model->blocks);
	history_fini(&model->history);
	pass_close(&model->pass);
	elf_cache_fini(&model->elves);
	model_live_close(model);
	input_close(&model->input);
	*model = (struct model){0};
}

uint32_t model_site(struct model *model, uint32_t stack)
{
	struct replay *replay = model->pass.replay;

	if (stack >= model->site_count) {
		size_t count = replay_stack_count(replay);

		if (ARRAY_RESERVE(model->sites, model->site_room, count) < 0)
			return stack;
		for (; model->site_count < count; model->site_count++)
			model->sites[model->site_count] =
				model->site_count == 0
					? 0
					: site_of(replay, (uint32_t)model->site_count);
	}
	return stack < model->site_count ? model->sites[stack] : stack;
}

/* Once the run is read, its findings do not change. */
static bool judge(struct model *model)
{
	struct report report = {0};
	struct what_if_asker what_if;

	if (!model->complete || model->judged)
		return model->complete;
	model->leaks = leaks_findings(&model->pass.analyses, model->pass.replay);
	analyses_judge(&model->pass.analyses, model->pass.replay, MODEL_STACKS, &model->findings);
	if (!model->is_live) {
		what_if_of_input(&report, &what_if, &model->input);
		if (report.late != NULL)
			report.late(report.late_arg, model->pass.replay, &model->findings);
	}
	model->judged = true;
	return true;
}

const struct leaks_findings *model_leaks(struct model *model)
{
	return judge(model) ? model->leaks : NULL;
}

const struct findings *model_findings(struct model *model)
{
	return judge(model) ? &model->findings : NULL;
}

bool model_name(struct model *model, uint32_t stack, struct strbuf *out)
{
	const char *name =
		judge(model) ? site_name(&model->findings.names, model->pass.replay, stack) : NULL;

	if (name == NULL)
		return site_line(model->pass.replay, stack, out);
	strbuf_add_str(out, name);
	return true;
}

uint32_t model_step(const struct model *model, uint64_t time_ns)
{
	size_t low = COUNT_FRONT(at, model->step_count, model->steps[at].time_ns <= time_ns);

	return low == 0 ? 0 : model->steps[low - 1].number;
}

uint32_t model_owner(struct model *model, uint32_t owner)
{
	struct map_key number = {owner, 0}, text = {0, 0};
	const uint64_t *known = map_get(&model->owners, number);
	uint64_t first = owner;

	if (owner == 0 || known != NULL)
		return owner == 0 ? 0 : (uint32_t)*known;
	text.a = hash_text(replay_owner_text(model->pass.replay, owner));
	known = map_get(&model->owner_texts, text);
	if (known != NULL)
		first = *known;
	else
		(void)map_put(&model->owner_texts, text, first);
	(void)map_put(&model->owners, number, first);
	return (uint32_t)first;
}

uint32_t model_layer(struct model *model, uint32_t owner)
{
	const struct replay *replay = model->pass.replay;
	struct map_key number = {owner, 1}, text = {0, 1};
	const uint64_t *known = map_get(&model->owners, number);
	uint8_t class = (uint8_t)replay_owner_class(replay, owner);
	uint64_t first = owner;

	if (known != NULL)
		return (uint32_t)*known;
	text.a = hash_add_byte(hash_text(replay_owner_layer(replay, owner)), class);
	known = map_get(&model->owner_texts, text);
	if (known != NULL)
		first = *known;
	else
		(void)map_put(&model->owner_texts, text, first);
	(void)map_put(&model->owners, number, first);
	return (uint32_t)first;
}

uint32_t model_place(struct model *model, uint32_t stack)
{
	uint32_t site = model_site(model, stack), place = site;
	size_t before = model->place_room, i;
	struct strbuf line = {0};
	const uint64_t *known;
	struct map_key key;

	if (site == 0 || site >= model->site_count)
		return site;
	if (ARRAY_RESERVE(model->places, model->place_room, model->site_count) < 0)
		return site;
	for (i = before; i < model->place_room; i++)
		model->places[i] = 0;
	if (model->places[site] != 0)
		return model->places[site];
	if (model_name(model, site, &line)) {
		key = (struct map_key){hash_text(strbuf_str(&line)), line.length};
		known = map_get(&model->place_names, key);
		if (known != NULL)
			place = (uint32_t)*known;
		else
			(void)map_put(&model->place_names, key, place);
	}
	strbuf_fini(&line);
	model->places[site] = place;
	return place;
}

uint64_t model_highest(const struct model *model)
{
	uint64_t highest = 0;
	size_t i;

	for (i = 0; i < model->pool_count; i++) {
		if (model->pools[i].peak_bytes > highest)
			highest = model->pools[i].peak_bytes;
	}
	return highest;
}
