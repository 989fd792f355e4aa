/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/pool_histories.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/text.h"
#include "trace/context.h"
#include "trace/record.h"
#include "twin/block_sizes.h"

void pool_histories_fini(struct pool_histories *histories)
{
	for (size_t i = 0; i < histories->count; i++) {
		pool_history_fini(&histories->pools[i].history);
		map_fini(&histories->pools[i].live);
		npu_history_fini(&histories->pools[i].npu);
	}
	free(histories->pools);
	*histories = (struct pool_histories){0};
}

/* The pool of PyTorch on the device of a context; NULL: no memory, which `out_status` says. */
static struct pool_recorder *pool_of(struct pool_histories *all, const struct context *context,
				     int *out_status)
{
	for (size_t i = 0; i < all->count; i++)
		if (all->pools[i].history.device == context->device)
			return &all->pools[i];
	if (ARRAY_RESERVE(all->pools, all->room, all->count + 1) != 0) {
		*out_status = -ENOMEM;
		return NULL;
	}
	all->pools[all->count] = (struct pool_recorder){
		.history = {.device = context->device, .npu = context->vendor == VENDOR_ASCEND}};
	return &all->pools[all->count++];
}

static uint64_t private_pool(uint32_t first, uint32_t second)
{
	return first == POOL_PRIVATE_UNKNOWN ? 0 : (uint64_t)first << 32 | second;
}

static struct history_event now(const struct replay *replay)
{
	return (struct history_event){
		.step = replay_open_step(replay, 0),
		.time_ns = run_wall_ns(replay_run(replay), replay_totals(replay)->last_ns)};
}

static int add(struct pool_recorder *pool, const struct replay *replay, struct history_event event)
{
	event.step = now(replay).step;
	event.time_ns = now(replay).time_ns;
	return pool_history_add(&pool->history, &event);
}

/* The number of the stack of a block that has just come, until the end names its call site. */
static uint32_t stack_at(const struct pool_recorder *pool, struct replay *replay, uint64_t address,
			 bool sites)
{
	const struct block *block =
		sites ? replay_block_at(replay, pool->history.device, address) : NULL;

	return block == NULL ? 0 : block->stack;
}

static int take_alloc(struct pool_recorder *pool, struct replay *replay,
		      const struct trace_event *event, bool sites)
{
	struct event_block_alloc_pool said;
	int status;

	event_block_alloc_pool_decode(event->words, &said);
	if (said.requested_bytes == 0)
		pool->untold = true;
	status = map_put(&pool->live, (struct map_key){said.address, 0}, 1);
	return status != 0
		       ? status
		       : add(pool, replay,
			     (struct history_event){
				     .kind = HISTORY_ALLOC,
				     .address = said.address,
				     .bytes = said.requested_bytes,
				     .stream = said.stream,
				     .site = stack_at(pool, replay, said.address, sites),
				     .private_pool = private_pool((uint32_t)said.private_first,
								  (uint32_t)said.private_second)});
}

/*
 * A block of torch_npu's pool, whose size is known as the pool rounded it: a request that gets a block of this size. What the pool
 * had left behind it and did not split off is in it too.
 */
static int take_npu_alloc(struct pool_recorder *pool, struct replay *replay, uint64_t address,
			  uint64_t bytes, bool sites)
{
	int status = map_put(&pool->live, (struct map_key){address, 0}, 1);

	if (status == 0)
		status = npu_history_block(&pool->npu, &pool->history, address, now(replay));
	return status != 0 ? status
			   : add(pool, replay,
				 (struct history_event){
					 .kind = HISTORY_ALLOC,
					 .address = address,
					 .bytes = less_u64(bytes, TWIN_PADDING_BYTES),
					 .site = stack_at(pool, replay, address, sites)});
}

/* A free is complete at once, unless the pool says next that it waits. */
static int take_free(struct pool_recorder *pool, const struct replay *replay, uint64_t address)
{
	struct history_event free_event = {.kind = HISTORY_FREE_ASKED, .address = address};
	int status;

	if (!map_remove(&pool->live, (struct map_key){address, 0}, NULL))
		return 0;
	status = add(pool, replay, free_event);
	free_event.kind = HISTORY_FREE_DONE;
	return status != 0 ? status : add(pool, replay, free_event);
}

/* A block that is older than the trace. One that came while the older ones were listed is known already. */
static int take_older_block(struct pool_recorder *pool, const struct event_pool_block *said)
{
	struct history_block block = {.address = said->address,
				      .bytes = said->size_bytes,
				      .requested = said->requested_bytes,
				      .stream = said->stream,
				      .private_pool = private_pool((uint32_t)said->private_first,
								   (uint32_t)said->private_second)};

	if (map_get(&pool->live, (struct map_key){said->address, 0}) != NULL)
		return 0;
	if (map_put(&pool->live, (struct map_key){said->address, 0}, 1) != 0)
		return -ENOMEM;
	return pool_history_add_block(&pool->history, &block);
}

/* The same of one that waits for other streams. */
static int take_older_waiting(struct pool_recorder *pool, const struct replay *replay,
			      const struct event_pool_block *said)
{
	int status = take_older_block(pool, said);

	if (status != 0 || !map_remove(&pool->live, (struct map_key){said->address, 0}, NULL))
		return status;
	return add(pool, replay,
		   (struct history_event){.kind = HISTORY_FREE_ASKED, .address = said->address});
}

static int take_block(struct pool_recorder *pool, const struct replay *replay,
		      const struct trace_event *event)
{
	struct pool_history *h = &pool->history;
	struct event_pool_block said;

	event_pool_block_decode(event->words, &said);
	if (said.kind == POOL_BLOCK_EXISTS)
		return take_older_block(pool, &said);
	if (said.kind == POOL_BLOCK_WAITS) {
		const struct history_event *last =
			h->event_count > 0 ? &h->events[h->event_count - 1] : NULL;

		if (last == NULL || last->kind != HISTORY_FREE_DONE ||
		    last->address != said.address)
			return take_older_waiting(pool, replay, &said);
		h->event_count--;
	} else if (said.kind == POOL_BLOCK_DONE) {
		return add(
			pool, replay,
			(struct history_event){.kind = HISTORY_FREE_DONE, .address = said.address});
	}
	return 0;
}

/* A segment that is older than the trace; it is of the small pool if it has the size of its segments. */
static int take_older_segment(struct pool_recorder *pool, const struct event_pool_segment *said)
{
	struct history_segment segment = {
		.address = said->address,
		.bytes = said->size_bytes,
		.stream = said->stream,
		.private_pool =
			private_pool((uint32_t)said->private_first, (uint32_t)said->private_second),
		.small = said->size_bytes == TWIN_SMALL_SEGMENT};
	const struct pool_history *h = &pool->history;

	for (size_t i = 0; i < h->segment_count; i++)
		if (h->segments[i].address == said->address)
			return 0;
	/* It came while the older ones were listed. */
	for (size_t i = 0; i < h->event_count; i++)
		if (h->events[i].kind == HISTORY_SEGMENT && h->events[i].address == said->address)
			return 0;
	pool->reserved += said->size_bytes;
	return pool_history_add_segment(&pool->history, &segment);
}

static int take_segment(struct pool_recorder *pool, const struct replay *replay,
			const struct trace_event *event)
{
	static const uint8_t kinds[] = {[SEGMENT_ALLOC] = HISTORY_SEGMENT,
					[SEGMENT_FREE] = HISTORY_SEGMENT_GONE,
					[SEGMENT_MAP] = HISTORY_MAP,
					[SEGMENT_UNMAP] = HISTORY_UNMAP};
	struct event_pool_segment said;

	event_pool_segment_decode(event->words, &said);
	if (said.kind == SEGMENT_EXISTS)
		return take_older_segment(pool, &said);
	if (said.kind < SEGMENT_ALLOC || said.kind > SEGMENT_UNMAP)
		return 0;
	if (said.kind == SEGMENT_ALLOC || said.kind == SEGMENT_MAP)
		pool->reserved += said.size_bytes;
	else
		pool->reserved = less_u64(pool->reserved, said.size_bytes);
	return add(pool, replay,
		   (struct history_event){.kind = kinds[said.kind],
					  .address = said.address,
					  .bytes = said.size_bytes,
					  .stream = said.stream,
					  .private_pool =
						  private_pool((uint32_t)said.private_first,
							       (uint32_t)said.private_second)});
}

static int take_refusal(struct pool_recorder *pool, const struct replay *replay,
			const struct trace_event *event)
{
	struct event_oom said;

	event_oom_decode(event->words, &said);
	return add(pool, replay,
		   (struct history_event){.kind = HISTORY_REFUSED, .bytes = said.requested_bytes});
}

/* empty_cache() is about all devices. */
static int take_fact(struct pool_histories *all, const struct replay *replay,
		     const struct trace_event *event)
{
	struct event_pool_fact said;
	int status = 0;

	event_pool_fact_decode(event->words, &said);
	for (size_t i = 0; i < all->count && status == 0; i++) {
		struct npu_history *npu = &all->pools[i].npu;

		if (said.kind == POOL_FACT_EMPTY_CACHE)
			status = add(&all->pools[i], replay,
				     (struct history_event){.kind = HISTORY_EMPTY_CACHE});
		npu->told_late =
			npu->told_late || (npu->has_pool && said.kind == POOL_FACT_FRACTION);
		npu->changed_late =
			npu->changed_late || (npu->has_pool && said.kind == POOL_FACT_CHANGED);
	}
	return status;
}

/* What the device has outside of the pool, as the driver counts it. */
static void take_samples(struct pool_histories *all, const struct replay *replay)
{
	for (size_t i = 0; i < all->count; i++) {
		struct pool_recorder *pool = &all->pools[i];
		const struct driver_usage *usage =
			replay_driver_usage(replay, pool->history.device);
		uint64_t outside;

		if (usage == NULL || usage->device_bytes == UINT64_MAX)
			continue;
		outside = less_u64(usage->device_bytes, pool->reserved);
		if (outside > pool->history.outside_bytes)
			pool->history.outside_bytes = outside;
	}
}

/* What comes back has no device with it: neither to the driver nor to the pool. */
static int take_npu_free(struct pool_histories *all, const struct replay *replay,
			 const struct context *context, uint64_t address)
{
	int status = 0;

	for (size_t i = 0; i < all->count && status == 0; i++) {
		struct pool_recorder *pool = &all->pools[i];

		if (!pool->history.npu)
			continue;
		status = context->pool == POOL_pta
				 ? take_free(pool, replay, address)
				 : npu_history_gone(&pool->npu, &pool->history, address,
						    context->kind == BLOCK_CREATE, now(replay));
	}
	return status;
}

static int take_npu_memory(struct pool_histories *all, struct replay *replay,
			   const struct context *context, uint64_t address, uint64_t bytes)
{
	int status = 0;
	struct pool_recorder *pool = pool_of(all, context, &status);

	if (pool == NULL)
		return status;
	return context->pool == POOL_pta ? take_npu_alloc(pool, replay, address, bytes, all->sites)
					 : npu_history_given(&pool->npu, address, bytes,
							     context->kind == BLOCK_CREATE);
}

/* An event of torch_npu's pool, or of the Ascend driver. */
static int take_npu(struct pool_histories *all, struct replay *replay,
		    const struct trace_event *event, const struct context *context)
{
	struct event_block_alloc alloc;
	struct event_block_alloc_wide wide;
	struct event_block_free gone;
	struct event_block_free_traced traced;
	struct event_pool_total total;
	struct pool_recorder *pool;
	int status = 0;

	switch (event->type) {
	case EVENT_block_alloc:
		event_block_alloc_decode(event->words, &alloc);
		return take_npu_memory(all, replay, context, alloc.address, alloc.size_bytes);
	case EVENT_block_alloc_wide:
		event_block_alloc_wide_decode(event->words, &wide);
		return take_npu_memory(all, replay, context, wide.address, wide.size_bytes);
	case EVENT_block_free:
		event_block_free_decode(event->words, &gone);
		return take_npu_free(all, replay, context, gone.address);
	case EVENT_block_free_traced:
		event_block_free_traced_decode(event->words, &traced);
		return take_npu_free(all, replay, context, traced.address);
	case EVENT_pool_total:
	case EVENT_oom:
		pool = context->pool == POOL_pta ? pool_of(all, context, &status) : NULL;
		if (pool == NULL)
			return status;
		if (event->type == EVENT_oom)
			return take_refusal(pool, replay, event);
		event_pool_total_decode(event->words, &total);
		pool->npu.told = total.reserved_bytes;
		return 0;
	default:
		return 0;
	}
}

int pool_histories_take(void *arg, struct replay *replay, const struct trace_event *event)
{
	struct pool_histories *all = arg;
	const struct context *context;
	struct event_block_free_traced traced;
	struct event_block_free said;
	struct pool_recorder *pool;
	int status = 0;

	if (event->type == EVENT_usage_sample) {
		take_samples(all, replay);
		return 0;
	}
	if (event->type == EVENT_pool_fact)
		return take_fact(all, replay, event);
	context = replay_event_context(replay, event);
	if (context != NULL && context->vendor == VENDOR_ASCEND &&
	    (context->pool == POOL_pta || context->pool == POOL_hal))
		return take_npu(all, replay, event, context);
	if (context == NULL || context->pool != POOL_pta)
		return 0;
	pool = pool_of(all, context, &status);
	if (pool == NULL)
		return status;
	switch (event->type) {
	case EVENT_block_alloc_pool:
		return take_alloc(pool, replay, event, all->sites);
	case EVENT_block_alloc:
	case EVENT_block_alloc_wide:
		pool->untold = true;
		return 0;
	case EVENT_block_free:
		event_block_free_decode(event->words, &said);
		return take_free(pool, replay, said.address);
	case EVENT_block_free_traced:
		event_block_free_traced_decode(event->words, &traced);
		return take_free(pool, replay, traced.address);
	case EVENT_pool_block:
		return take_block(pool, replay, event);
	case EVENT_pool_segment:
		return take_segment(pool, replay, event);
	case EVENT_oom:
		return take_refusal(pool, replay, event);
	default:
		return 0;
	}
}

/* What the pool was told, as far as the trace has it; settings of the environment are in its identity too. */
static void take_facts(struct pool_history *h, const struct npu_history *npu,
		       const struct replay *replay)
{
	const struct pool_facts *facts = replay_pool_facts(replay);
	const struct pool_share *share = replay_pool_share(replay, h->device);

	snprintf(h->settings, sizeof(h->settings), "%s",
		 facts->settings_known || facts->settings[0] != '\0'
			 ? facts->settings
			 : run_torch_settings(replay_run(replay), h->npu));
	h->settings_known = facts->settings_known || h->settings[0] != '\0';
	h->settings_changed = facts->changed || npu->changed_late;
	h->empty_cache_known = facts->watched;
	h->blocks_only = h->npu;
	if (facts->release != 0)
		snprintf(h->torch, sizeof(h->torch), "%u.%u.%u", (unsigned)(facts->release >> 32),
			 (unsigned)(facts->release >> 16 & 0xffff),
			 (unsigned)(facts->release & 0xffff));
	if (share == NULL)
		return;
	if (share->device_bytes != 0)
		h->device_bytes = share->device_bytes;
	h->fraction = share->fraction > 0 ? share->fraction : 0;
	h->fraction_late = share->late || npu->told_late;
}

/* A call site by its Python frames, named by the innermost one that the user wrote; 0: it has none, or no memory. */
static uint32_t make_site(struct pool_history *h, struct replay *replay, uint32_t stack)
{
	uint32_t count, chosen = UINT32_MAX;
	const struct stack_line *lines = replay_stack_lines(replay, stack, &count);
	uint64_t hash = hash_text("");
	char text[300];

	for (uint32_t i = 0; i < count; i++) {
		const struct stack_line *line = &lines[i];

		if (!line->script || line->file == NULL)
			continue;
		hash = hash_add(hash_add(hash, line->file, strlen(line->file)), &line->line,
				sizeof(line->line));
		if (chosen == UINT32_MAX ||
		    (line->origin == ORIGIN_USER && lines[chosen].origin != ORIGIN_USER))
			chosen = i;
	}
	if (chosen == UINT32_MAX)
		return 0;
	snprintf(text, sizeof(text), "%.120s:%" PRIu32 " %.120s",
		 text_base_name(lines[chosen].file), lines[chosen].line,
		 lines[chosen].function == NULL ? "" : lines[chosen].function);
	return pool_history_add_site(h, hash, text);
}

/* Stacks become call sites. */
static int name_sites(struct pool_history *h, struct replay *replay)
{
	struct map known = {0};
	int status = 0;

	for (size_t i = 0; i < h->event_count && status == 0; i++) {
		struct history_event *e = &h->events[i];
		const uint64_t *site;

		if (e->site == 0)
			continue;
		site = map_get(&known, (struct map_key){e->site, 0});
		if (site != NULL) {
			e->site = (uint32_t)*site;
			continue;
		}
		uint32_t number = make_site(h, replay, e->site);

		status = map_put(&known, (struct map_key){e->site, 0}, number);
		e->site = number;
	}
	map_fini(&known);
	return status;
}

/* Segments that are older than the trace do not say what they are. */
static void tell_older(struct pool_history *h)
{
	struct twin_release release = twin_release_of(twin_release_last(h->npu), h->npu);
	struct mscope_error ignored = {0};
	struct twin_settings settings;

	pool_history_assume_settings(h);
	if (twin_settings_parse(h->settings, &release, &settings, &ignored) != 0)
		return;
	for (size_t i = 0; i < h->segment_count && settings.expandable; i++)
		h->segments[i].expandable = h->segments[i].kind_unknown = true;
}

int pool_histories_end(struct pool_histories *all, struct replay *replay)
{
	int status = 0;

	for (size_t i = 0; i < all->count && status == 0; i++) {
		struct pool_history *h = &all->pools[i].history;
		const struct driver_usage *usage = replay_driver_usage(replay, h->device);

		if (usage != NULL)
			h->device_bytes = usage->total_bytes;
		take_facts(h, &all->pools[i].npu, replay);
		tell_older(h);
		status = name_sites(h, replay);
	}
	return status;
}

const struct pool_history *pool_histories_of(const struct pool_histories *all, uint32_t device)
{
	for (size_t i = 0; i < all->count; i++) {
		const struct pool_recorder *pool = &all->pools[i];

		if (pool->history.device == device)
			return pool->untold || pool->npu.strange || pool->history.event_count == 0
				       ? NULL
				       : &pool->history;
	}
	return NULL;
}
