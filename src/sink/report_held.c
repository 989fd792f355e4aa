/* SPDX-License-Identifier: Apache-2.0 */
#include "sink/report_held.h"

#include "base/vendors.h"
#include "findings/site.h"
#include "sink/project.h"

static bool wants(const void *arg, const struct replay *replay, const struct block *block)
{
	const struct report_shown *shown = arg;
	uint32_t i;

	(void)replay;
	for (i = 0; i < shown->step_count; i++) {
		if (shown->steps[i] == block->latest_step)
			return true;
	}
	return shown->step_count == 0;
}

static int by_blocks(const struct alive_group *a, const struct alive_group *b)
{
	return a->blocks > b->blocks ? -1 : a->blocks < b->blocks;
}

static int by_step(const struct alive_group *a, const struct alive_group *b)
{
	return a->first->latest_step < b->first->latest_step
		       ? -1
		       : a->first->latest_step > b->first->latest_step;
}

struct alive_choice report_held_choice(const struct report_shown *shown)
{
	return (struct alive_choice){.wants = wants,
				     .order = shown->order == REPORT_BY_BLOCKS ? by_blocks
					      : shown->order == REPORT_BY_STEP ? by_step
									       : NULL,
				     .arg = shown};
}

static void add_size(struct strbuf *out, uint64_t bytes, uint64_t blocks)
{
	strbuf_add_size(out, bytes);
	strbuf_addf(out, " in %llu block%s", (unsigned long long)blocks, blocks == 1 ? "" : "s");
}

/* A snapshot of PyTorch has the C frames of an operator as well, which say no more than its line of Python. */
static bool is_shown(const struct stack_line *line, bool scripts, bool snapshot)
{
	if (line->origin == ORIGIN_TOOL)
		return false;
	return !scripts || line->script || (!snapshot && line->origin != ORIGIN_INTERPRETER);
}

/* The innermost frames, the outermost of them first, as in the name of a call site. */
static void text_stack(struct replay *replay, uint32_t stack, struct strbuf *out)
{
	bool snapshot = run_is_snapshot(replay_run(replay)), scripts = false;
	bool cut = replay_stack_is_cut(replay, stack);
	uint32_t count, i, from, all = 0, shown = 0;
	const struct stack_line *lines = replay_stack_lines(replay, stack, &count);

	count = site_own_frames(lines, count);
	for (i = 0; i < count; i++)
		scripts |= lines[i].script;
	for (i = 0; i < count; i++)
		all += is_shown(&lines[i], scripts, snapshot);
	for (from = 0; from < count && shown < REPORT_FRAMES; from++)
		shown += is_shown(&lines[from], scripts, snapshot);
	if (all > shown)
		strbuf_addf(out, "        ... %s%u more\n", cut ? "at least " : "", all - shown);
	else if (cut)
		strbuf_add_str(out, "        ...\n");
	for (i = from; i > 0; i--) {
		if (!is_shown(&lines[i - 1], scripts, snapshot))
			continue;
		strbuf_add_str(out, "        ");
		site_frame_long(&lines[i - 1], out);
		strbuf_add_char(out, '\n');
	}
}

static void text_group(struct replay *replay, const struct alive_group *group, struct strbuf *out)
{
	const struct context *context = replay_context(replay, group->first->context);
	char device[16];

	project_device_text(context->device, device);
	strbuf_add_str(out, "  ");
	if (group->blocks > 1) {
		strbuf_add_size(out, group->bytes);
		strbuf_add_str(out, " = ");
		strbuf_add_u64(out, group->blocks);
		strbuf_add_str(out, " blocks of ");
	}
	strbuf_add_size(out, group->first->size_bytes);
	strbuf_addf(out, "  %s on %s%s, %sat ", pool_event_type(context->pool),
		    context->device == DEVICE_HOST || context->device == DEVICE_UNKNOWN ? ""
											: "device ",
		    device, group->blocks > 1 ? "first " : "");
	strbuf_add_hex(out, group->first->address, 1);
	strbuf_addf(out, " by thread %u\n", group->first->tid);
	text_stack(replay, group->first->stack, out);
}

static void text_blocks(const struct replay *replay, const struct alive *alive,
			const struct alive_group *group, uint64_t most, struct strbuf *out)
{
	bool on_gpu = replay_context(replay, group->first->context)->vendor == VENDOR_CUDA;
	uint64_t i;

	for (i = 0; i < group->blocks && i < most; i++) {
		const struct block *block = alive->grouped[group->at + i];

		strbuf_add_str(out, "      ");
		strbuf_add_hex(out, block->address, 1);
		strbuf_add_str(out, "  ");
		strbuf_add_size(out, block->size_bytes);
		strbuf_addf(out, "  step %u, ", block->latest_step);
		if (!on_gpu || block->launches != 0)
			strbuf_addf(out, "kernel_%llu, ", (unsigned long long)block->launches);
		strbuf_addf(out, "thread %u\n", block->tid);
	}
	if (group->blocks > most && most > 0)
		strbuf_addf(out, "      ... %llu more\n",
			    (unsigned long long)(group->blocks - most));
}

/* Blocks of the driver that are not listed, because the blocks of a pool stand for them. */
static void text_taken(const struct alive *alive, struct strbuf *out)
{
	if (alive->taken_blocks == 0)
		return;
	strbuf_add_str(out, "  Not listed: ");
	add_size(out, alive->taken_bytes, alive->taken_blocks);
	strbuf_add_str(out, " of the driver that the pools hold.\n");
}

void report_held_text(const struct report *report, struct strbuf *out)
{
	const struct report_shown *shown = &report->shown;
	struct alive_choice choice = report_held_choice(shown);
	uint64_t top = shown->all ? UINT64_MAX : shown->top != 0 ? shown->top : REPORT_PLACES;
	uint64_t most = shown->all ? UINT64_MAX : shown->top != 0 ? shown->blocks : REPORT_BLOCKS;
	struct alive alive;
	size_t i;

	choice.each_byte_once = true;
	if (alive_find(report->replay, &choice, &alive) < 0)
		return;
	if (alive.block_count == 0) {
		if (replay_has_allocated(report->replay))
			strbuf_add_str(out, shown->by_device || shown->step_count > 0
						    ? "No such block was held at the end.\n"
						    : "No block was alive at the end.\n");
		text_taken(&alive, out);
		alive_fini(&alive);
		return;
	}
	strbuf_add_str(out, "Alive at the end: ");
	add_size(out, alive.bytes, alive.block_count);
	strbuf_add_str(out, shown->order == REPORT_BY_BLOCKS ? ", most blocks first\n"
			    : shown->order == REPORT_BY_STEP ? ", earliest step first\n"
							     : ", largest first\n");
	for (i = 0; i < alive.group_count && i < top; i++) {
		text_group(report->replay, &alive.groups[i], out);
		text_blocks(report->replay, &alive, &alive.groups[i], most, out);
	}
	if (alive.group_count > top)
		strbuf_addf(out, "  ... %llu more; msmemscope info --all shows everything\n",
			    (unsigned long long)(alive.group_count - top));
	text_taken(&alive, out);
	alive_fini(&alive);
}
