/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/ooms.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "replay/state.h"
#include "trace/session.h"

/* Blocks are listed at most so often. */
#define DETAILS_NS UINT64_C(2000000000)

#define HAL_HUGE (UINT64_C(1) << 17)

void ooms_fini(struct replay *replay)
{
	free(replay->ooms.open);
}

const char *oom_call_text(uint8_t call)
{
	static const char *const texts[] = {
		[OOM_HAL_ALLOC] = "halMemAlloc",	   [OOM_HAL_CREATE] = "halMemCreate",
		[OOM_TORCH_CUDA] = "CUDACachingAllocator", [OOM_TORCH_CPU] = "DefaultCPUAllocator",
		[OOM_CUDA_DRIVER] = "CUDA driver",	   [OOM_TORCH_NPU] = "NPUCachingAllocator",
	};

	return call < MSCOPE_COUNT(texts) && texts[call] != NULL ? texts[call] : "unknown";
}

/* ---- figures ---- */

/* What the pool itself says at the refusal, after it gave back its cache. */
static void figures_after(struct oom *oom, const struct event_oom *event)
{
	struct figures *after = &oom->after;

	if (event->reserved_bytes != UINT64_MAX) {
		after->reserved_bytes = event->reserved_bytes;
		after->allocated_bytes = event->allocated_bytes;
	} else if (oom->given_back_bytes < after->reserved_bytes) {
		after->reserved_bytes -= oom->given_back_bytes;
	}
	after->max_allocated_bytes =
		figure_larger(after->max_allocated_bytes, after->allocated_bytes);
	after->max_reserved_bytes = figure_larger(after->max_reserved_bytes, after->reserved_bytes);
}

/* ---- rows ---- */

static struct trace_event event_of(const struct oom *oom, uint64_t time_ns)
{
	return (struct trace_event){
		.type = EVENT_oom, .writer = oom->writer, .tid = oom->tid, .time_ns = time_ns};
}

static int publish_snapshot(struct replay *replay, struct oom *oom, bool after)
{
	struct trace_event event = event_of(oom, after ? oom->last_ns : oom->time_ns);
	struct row row = {.kind = ROW_SNAPSHOT,
			  .name = after ? OOM_SNAPSHOT_AFTER : OOM_SNAPSHOT_BEFORE,
			  .stack = oom->stack,
			  .step = oom->step,
			  .late = after,
			  .oom = oom,
			  .figures = after ? &oom->after : &oom->before};

	if (!replay_wants_row(replay, row.kind))
		return 0;
	oom->context = row.context = replay_context(replay, oom->context_number);
	return replay_publish(replay, &event, &row);
}

static int publish_trigger(struct replay *replay, struct oom *oom)
{
	struct trace_event event = event_of(oom, oom->time_ns);
	struct row row = {.kind = ROW_OOM_TRIGGER,
			  .name = "OOM_Trigger",
			  .stack = oom->stack,
			  .context = replay_context(replay, oom->context_number),
			  .oom = oom};

	return replay_wants_row(replay, row.kind) ? replay_publish(replay, &event, &row) : 0;
}

static int publish_block(struct replay *replay, const struct oom *oom, enum row_kind kind,
			 const struct block *block)
{
	struct trace_event event = event_of(oom, oom->time_ns);
	struct row row = {.kind = kind,
			  .name = kind == ROW_OOM_RECENT ? "OOM_RecentAlloc" : "OOM_TopAlloc",
			  .stack = block->stack,
			  .context = replay_context(replay, oom->context_number),
			  .block = block,
			  .block_pool =
				  pool_event_type(replay_context(replay, block->context)->pool),
			  .block_ns = block->time_ns + replay->wall_ns};

	return replay_wants_row(replay, kind) ? replay_publish(replay, &event, &row) : 0;
}

static int newest_first(const void *a, const void *b)
{
	const struct block *x = *(const struct block *const *)a;
	const struct block *y = *(const struct block *const *)b;

	return ORDER_DOWN(x->allocation_id, y->allocation_id);
}

static int largest_first(const void *a, const void *b)
{
	const struct block *x = *(const struct block *const *)a;
	const struct block *y = *(const struct block *const *)b;

	return ORDER_DOWN(x->size_bytes, y->size_bytes) ?: newest_first(b, a);
}

/* How many blocks analysis oom lists; 0: it is not asked for. The program's own choice counts. */
static uint32_t details_wanted(const struct replay *replay)
{
	const struct event_settings *settings = replay_settings(replay);

	if (replay_settings_count(replay) == 0)
		return replay->setup.oom_top;
	return settings->analysis & SESSION_OOM ? (uint32_t)settings->oom_top : 0;
}

/* The newest and the largest blocks of the device. */
static int publish_details(struct replay *replay, const struct oom *oom, uint32_t most)
{
	uint32_t device = replay_context(replay, oom->context_number)->device;
	const struct block **blocks = NULL;
	const struct block *block;
	size_t room = 0, count = 0, cursor = 0, i;
	int r = 0;

	while (r == 0 && (block = replay_next_block(replay, &cursor)) != NULL) {
		if (replay_context(replay, block->context)->device != device)
			continue;
		r = ARRAY_RESERVE(blocks, room, count + 1);
		if (r == 0)
			blocks[count++] = block;
	}
	if (r == 0 && count > 0)
		qsort(blocks, count, sizeof(*blocks), newest_first);
	for (i = 0; i < count && i < most && r == 0; i++)
		r = publish_block(replay, oom, ROW_OOM_RECENT, blocks[i]);
	if (r == 0 && count > 0)
		qsort(blocks, count, sizeof(*blocks), largest_first);
	for (i = 0; i < count && i < most && r == 0; i++)
		r = publish_block(replay, oom, ROW_OOM_TOP, blocks[i]);
	free(blocks);
	return r;
}

static int publish_begin(struct replay *replay, struct oom *oom)
{
	uint32_t most = details_wanted(replay);
	int r = publish_snapshot(replay, oom, false);

	if (r < 0 || most == 0)
		return r;
	r = publish_trigger(replay, oom);
	if (r == 0 && (replay->ooms.details_ns == 0 ||
		       oom->time_ns - replay->ooms.details_ns >= DETAILS_NS)) {
		replay->ooms.details_ns = oom->time_ns;
		r = publish_details(replay, oom, most);
	}
	return r;
}

/* ---- which refusals are one ---- */

static struct oom *open_of(struct ooms *ooms, uint32_t writer)
{
	size_t i;

	for (i = 0; i < ooms->count; i++) {
		if (ooms->open[i].writer == writer)
			return &ooms->open[i];
	}
	return NULL;
}

static int end_open(struct replay *replay, struct oom *open, bool recovered)
{
	struct ooms *ooms = &replay->ooms;
	struct oom oom = *open;

	*open = ooms->open[--ooms->count];
	if (oom.told)
		return 0;
	oom.ended = true;
	oom.recovered = recovered;
	return publish_snapshot(replay, &oom, true);
}

/* The CANN runtime, which asks for huge pages first and then for normal ones. */
static bool is_runtime(const struct replay *replay, const struct frame *frame)
{
	const struct module *module = replay_module(replay, frame->module);
	const char *name = module == NULL ? "" : module->info.path;

	name = strrchr(name, '/') == NULL ? name : strrchr(name, '/') + 1;
	return strncmp(name, "libruntime", 10) == 0 || strncmp(name, "libacl", 6) == 0 ||
	       strncmp(name, "libascendcl", 11) == 0;
}

/* Whether two stacks are of one call of the runtime: below its own frames they are the same. */
static bool one_call(const struct replay *replay, uint32_t a, uint32_t b)
{
	const uint32_t *x, *y;
	uint32_t n, m, i = 0, k = 0;

	x = replay_frames(replay, a, &n);
	y = replay_frames(replay, b, &m);
	if (n == 0 || m == 0)
		return n == m; /* no stacks: pages and size have to do */
	while (i < n && is_runtime(replay, replay_frame(replay, x[i])))
		i++;
	while (k < m && is_runtime(replay, replay_frame(replay, y[k])))
		k++;
	if (i == 0 || k == 0 || n - i != m - k)
		return false;
	for (; i < n; i++, k++) {
		if (replay_frame(replay, x[i])->address != replay_frame(replay, y[k])->address)
			return false;
	}
	return true;
}

/* Whether a refusal is another try of the same request. */
static bool is_retry(const struct replay *replay, const struct oom *oom,
		     const struct event_oom *event, uint32_t context, uint32_t stack)
{
	const struct context *old = replay_context(replay, oom->context_number);
	const struct context *now = replay_context(replay, context);

	if (oom->requested_bytes != event->requested_bytes || old->device != now->device ||
	    old->pool != now->pool)
		return false;
	if (oom->given_back_bytes == 0 && oom->call == OOM_HAL_ALLOC &&
	    event->call == OOM_HAL_ALLOC && (oom->flag & HAL_HUGE) && !(event->flag & HAL_HUGE) &&
	    oom->tries == 1)
		return one_call(replay, oom->stack, stack);
	/* A pool tries again from another line, or after it gave something back. */
	return pool_is_driver(now->pool) && !pool_is_driver(oom->pool) &&
	       (stack != oom->stack || event->flag != oom->flag || oom->given_back_bytes != 0 ||
		stack == 0);
}

/*
 * Whether a framework's pool reports that it gave up on what the driver has just refused to it: one request, which the pool had
 * rounded up for the driver.
 */
static bool is_given_up(const struct replay *replay, const struct oom *oom,
			const struct event_oom *event, uint32_t context)
{
	const struct context *old = replay_context(replay, oom->context_number);
	const struct context *now = replay_context(replay, context);

	return pool_is_driver(old->pool) && !pool_is_driver(now->pool) &&
	       old->device == now->device && event->requested_bytes <= oom->requested_bytes;
}

int ooms_take_oom(struct replay *replay, const struct trace_event *event)
{
	struct ooms *ooms = &replay->ooms;
	struct oom *oom = open_of(ooms, event->writer);
	struct writer *writer = writers_get(&replay->writers, event->writer);
	uint32_t context = definitions_context(replay, event), stack;
	const struct usage *usage = usages_of(replay, context), *pool;
	struct event_oom refused;
	int r = 0;

	if (usage == NULL)
		return -ENOMEM;
	event_oom_decode(event->words, &refused);
	stack = definitions_stack(replay, writer, refused.stack);
	pool = pool_is_driver(usage->pool) ? figures_pool(replay, usage->device) : usage;
	if (oom != NULL && oom->told &&
	    (is_given_up(replay, oom, &refused, context) ||
	     is_retry(replay, oom, &refused, context, stack))) {
		oom->tries++;
		return 0;
	}
	if (oom != NULL && !oom->told && is_given_up(replay, oom, &refused, context)) {
		oom->call = (uint8_t)refused.call;
		oom->requested_bytes = refused.requested_bytes;
		oom->context_number = context;
		oom->pool = usage->pool;
		oom->stack = stack != 0 ? stack : oom->stack;
	} else if (oom != NULL && !is_retry(replay, oom, &refused, context, stack)) {
		r = end_open(replay, oom, false);
		oom = NULL;
	}
	if (r == 0 && oom == NULL) {
		r = ARRAY_RESERVE(ooms->open, ooms->room, ooms->count + 1);
		if (r < 0)
			return r;
		oom = &ooms->open[ooms->count++];
		*oom = (struct oom){.time_ns = event->time_ns,
				    .context_number = context,
				    .pool = pool == NULL ? usage->pool : pool->pool,
				    .call = (uint8_t)refused.call,
				    .requested_bytes = refused.requested_bytes,
				    .flag = refused.flag,
				    .stack = stack,
				    .step = steps_current(&replay->steps),
				    .seen_step = steps_in_progress(&replay->steps),
				    .tid = event->tid,
				    .writer = event->writer};
		oom->before = figures_at(replay, pool == NULL ? usage : pool,
					 replay_context(replay, context), refused.total_bytes,
					 refused.free_bytes);
		/* What the pool gave back before it reported was not free when it was asked. */
		if (refused.reserved_bytes < oom->before.reserved_bytes &&
		    oom->before.free_bytes != UINT64_MAX) {
			uint64_t given = oom->before.reserved_bytes - refused.reserved_bytes;

			oom->given_back_bytes = given;
			oom->before.free_bytes -=
				given < oom->before.free_bytes ? given : oom->before.free_bytes;
		}
	}
	if (r < 0)
		return r;
	oom->tries++;
	oom->last_ns = event->time_ns;
	oom->after =
		figures_at(replay, pool == NULL ? usage : pool, replay_context(replay, context),
			   refused.total_bytes, refused.free_bytes);
	figures_after(oom, &refused);
	return oom->tries > 1 ? 0 : publish_begin(replay, oom);
}

int ooms_take_oom_end(struct replay *replay, const struct trace_event *event)
{
	struct event_oom_end end;
	struct oom *oom;

	event_oom_end_decode(event->words, &end);
	oom = open_of(&replay->ooms, (uint32_t)end.writer);
	if (oom == NULL || oom->told)
		return 0;
	oom->told = oom->ended = true;
	return publish_snapshot(replay, oom, true);
}

/* ---- how they end ---- */

/* Bytes of the driver's block that a record gives back; 0: none is known. */
static uint64_t freed_bytes(const struct replay *replay, const struct context *context,
			    uint64_t address)
{
	const struct live_entry *entry = live_get(&replay->blocks, context_space(context), address);

	return entry == NULL ? 0 : replay->blocks.all[entry->slot].size_bytes;
}

int ooms_before_event(struct replay *replay, const struct trace_event *event)
{
	struct oom *oom = open_of(&replay->ooms, event->writer);
	const struct context *context;

	if (oom == NULL)
		return 0;
	switch (event->type) {
	case EVENT_time_base:
	case EVENT_context_def:
	case EVENT_stack_def:
	case EVENT_code_def:
	case EVENT_text_def:
	case EVENT_module_load:
	case EVENT_module_unload:
	case EVENT_note:
	case EVENT_pool_total:
	case EVENT_pool_segment:
	case EVENT_pool_block:
	case EVENT_block_free_undo:
	case EVENT_oom:
	case EVENT_oom_end:
		return 0;
	case EVENT_block_free:
	case EVENT_block_free_traced:
		context = replay_event_context(replay, event);
		/* A pool gives back its cache; anything else is the program, which has noticed. */
		if (!pool_is_driver(context->pool) || pool_is_driver(oom->pool))
			break;
		oom->given_back_bytes += freed_bytes(replay, context, event->words[1]);
		return 0;
	case EVENT_block_alloc:
	case EVENT_block_alloc_wide:
		context = replay_event_context(replay, event);
		return end_open(replay, oom,
				pool_is_driver(context->pool) &&
					(event->type == EVENT_block_alloc
						 ? event->words[2] & SIZE_NARROW_MAX
						 : event->words[2]) == oom->requested_bytes);
	default:
		break;
	}
	return end_open(replay, oom, false);
}

int ooms_end(struct replay *replay)
{
	int r = 0;

	while (r == 0 && replay->ooms.count > 0)
		r = end_open(replay, &replay->ooms.open[0], false);
	return r;
}

uint64_t replay_open_oom(const struct replay *replay, uint64_t before_ns, uint32_t *out_writer)
{
	size_t i;

	for (i = 0; i < replay->ooms.count; i++) {
		if (!replay->ooms.open[i].told && replay->ooms.open[i].last_ns <= before_ns) {
			*out_writer = replay->ooms.open[i].writer;
			return replay->ooms.open[i].last_ns;
		}
	}
	return 0;
}
