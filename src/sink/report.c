/* SPDX-License-Identifier: Apache-2.0 */
#include "sink/report.h"

#include <string.h>

#include "analysis/leaks.h"
#include "base/shown.h"
#include "sink/project.h"
#include "sink/report_watch.h"
#include "trace/session.h"

struct loss {
	const char *name;
	const char *sentence;
};

static const struct loss losses[LOSS_END] = {
#define LOSS(number, name_, sentence_) [number] = {.name = #name_, .sentence = sentence_},
#include "trace/losses.def"
#undef LOSS
};

static uint64_t loss_count(const struct run *run, int cause)
{
	return atomic_load(&((struct trace_header *)(uintptr_t)run_header(run))->loss[cause]);
}

static uint32_t header_word(const _Atomic uint32_t *word)
{
	return atomic_load((_Atomic uint32_t *)(uintptr_t)word);
}

static uint64_t header_long(const _Atomic uint64_t *word)
{
	return atomic_load((_Atomic uint64_t *)(uintptr_t)word);
}

void report_size(struct strbuf *out, uint64_t bytes)
{
	strbuf_add_size(out, bytes);
}

static void add_count(struct strbuf *out, uint64_t count, const char *one, const char *many)
{
	strbuf_add_u64(out, count);
	strbuf_add_char(out, ' ');
	strbuf_add_str(out, count == 1 ? one : many);
}

static const char *stop_sentence(uint32_t stop)
{
	switch (stop) {
	case TRACE_STOP_NO_SPACE:
		return "the disk was full or the trace directory gone";
	case TRACE_STOP_FULL:
		return "the trace reached its largest size";
	case TRACE_STOP_LIMIT:
		return "the trace reached --max-disk and the engine that drops the oldest events "
		       "was gone";
	default:
		return NULL;
	}
}

bool report_is_closed(const struct report *report)
{
	return header_word(&run_header(replay_run(report->replay))->state) == TRACE_CLOSED;
}

bool report_is_damaged(const struct report *report)
{
	const struct run_damage *damage = run_damage(replay_run(report->replay));

	return report->input_damaged || damage->cut || damage->overwritten || damage->truncated ||
	       damage->bad_chunks + damage->missing_chunks + damage->bad_records +
			       damage->skipped_bytes +
			       replay_totals(report->replay)->oddities.bad_definitions >
		       0;
}

/* ---- text ---- */

static void text_usage(const struct replay *replay, struct strbuf *out)
{
	size_t count, i;
	const struct usage *usages = replay_usages(replay, &count);

	for (i = 0; i < count; i++) {
		const struct usage *usage = &usages[i];
		char device[16];

		project_device_text(usage->device, device);
		if (usage->device == DEVICE_HOST || usage->device == DEVICE_UNKNOWN)
			strbuf_addf(out, "  %-9s", device);
		else
			strbuf_addf(out, "  device %-2s", device);
		strbuf_addf(out, "  %-13s  peak ", pool_event_type(usage->pool));
		report_size(out, usage->peak_bytes);
		strbuf_add_str(out, ", at the end ");
		report_size(out, usage->live_bytes);
		strbuf_add_str(out, " in ");
		add_count(out, usage->live_blocks, "block", "blocks");
		strbuf_add_str(out, "; ");
		add_count(out, usage->allocations, "allocation", "allocations");
		strbuf_add_str(out, ", ");
		add_count(out, usage->frees, "free", "frees");
		strbuf_add_char(out, '\n');
	}
}

static void text_stack(struct replay *replay, uint32_t stack, uint32_t shown, struct strbuf *out)
{
	uint32_t count, i;
	const struct python_place *places = replay_places(replay, stack, &count);
	const struct frame *frames;

	for (i = 0; i < count && i < shown; i++) {
		const char *text = replay_place_text(replay, &places[i]);

		strbuf_add_str(out, "        ");
		strbuf_add_shown(out, text, strlen(text));
		strbuf_add_char(out, '\n');
	}
	if (count > shown)
		strbuf_addf(out, "        ... %u more\n", count - shown);
	frames = replay_frames(replay, stack, &count);
	for (i = 0; i < count && i < shown; i++)
		strbuf_addf(out, "        %s\n", replay_frame_text(replay, &frames[i]));
	if (count > shown)
		strbuf_addf(out, "        ... %u more\n", count - shown);
}

static void text_alive(const struct report *report, struct strbuf *out)
{
	/* Where steps were judged, the analysis of leaks has shown the places. */
	bool judged = last_ended_step(report->replay) >= LEAKS_FIRST_STEP;
	uint32_t groups = report->detail ? REPORT_GROUPS : judged ? 0 : report->groups;
	uint32_t frames = report->detail ? REPORT_FRAMES : report->frames;
	struct replay *replay = report->replay;
	struct alive alive;
	bool stacks = false;
	size_t i;

	if (alive_find(replay, &alive) < 0)
		return;
	if (alive.block_count == 0) {
		if (replay_totals(replay)->allocations > 0)
			strbuf_add_str(out, "No block was alive at the end.\n");
		alive_fini(&alive);
		return;
	}
	strbuf_add_str(out, "Alive at the end: ");
	report_size(out, alive.bytes);
	strbuf_add_str(out, " in ");
	add_count(out, alive.block_count, "block", "blocks");
	strbuf_add_str(out, groups > 0 ? ", largest first\n" : "\n");
	for (i = 0; i < alive.group_count && i < groups; i++) {
		const struct alive_group *group = &alive.groups[i];
		const struct context *context = replay_context(replay, group->first->context);
		char device[16];

		project_device_text(context->device, device);
		strbuf_add_str(out, "  ");
		if (group->blocks > 1) {
			report_size(out, group->bytes);
			strbuf_add_str(out, " = ");
			strbuf_add_u64(out, group->blocks);
			strbuf_add_str(out, " blocks of ");
		}
		report_size(out, group->first->size_bytes);
		strbuf_addf(out, "  %s on %s%s, %sat ", pool_event_type(context->pool),
			    context->device == DEVICE_HOST || context->device == DEVICE_UNKNOWN
				    ? ""
				    : "device ",
			    device, group->blocks > 1 ? "first " : "");
		strbuf_add_hex(out, group->first->address, 16);
		strbuf_addf(out, " by thread %u\n", group->first->tid);
		stacks = stacks || group->first->stack != 0;
		text_stack(replay, group->first->stack, frames, out);
	}
	if (alive.group_count > groups && groups > 0)
		strbuf_addf(out, "  ... %zu more %s%s\n", alive.group_count - groups,
			    alive.group_count - groups == 1 ? "place" : "places",
			    report->detail ? "" : " (report.txt has more of them)");
	if (!stacks && groups > 0)
		strbuf_add_str(out,
			       "  (run again with --call-stack=c to see where they come from)\n");
	alive_fini(&alive);
}

/* What of the trace could not be read, in one sentence. */
static void text_damage(const struct run_damage *damage, struct strbuf *out)
{
	bool counted = damage->bad_chunks + damage->missing_chunks + damage->bad_records +
			       damage->skipped_bytes >
		       0;
	const char *what = damage->truncated && damage->overwritten ? "cut and wrote over"
			   : damage->truncated			    ? "cut"
								    : "wrote over parts of";

	if (!counted && !damage->overwritten && !damage->truncated)
		return;
	strbuf_add_str(out, "Damaged: ");
	if (damage->overwritten || damage->truncated)
		strbuf_addf(out, "the program %s its trace while it ran%s", what,
			    counted ? "; " : "");
	if (counted)
		strbuf_addf(out,
			    "%llu chunks unreadable, %llu missing, %llu cut short, %llu bytes "
			    "skipped",
			    (unsigned long long)damage->bad_chunks,
			    (unsigned long long)damage->missing_chunks,
			    (unsigned long long)damage->bad_records,
			    (unsigned long long)damage->skipped_bytes);
	strbuf_add_str(out, ". Everything else is here.\n");
}

void report_losses(const struct report *report, struct strbuf *out)
{
	const struct run *run = replay_run(report->replay);
	const struct trace_header *h = run_header(run);
	const struct run_damage *damage = run_damage(run);
	const char *stop = stop_sentence(header_word(&h->stop));
	int cause;

	if (stop != NULL) {
		strbuf_addf(out, "Recording ended early: %s", stop);
		if (header_word(&h->stop_errno) != 0)
			strbuf_addf(out, " (%s)", strerror((int)header_word(&h->stop_errno)));
		strbuf_add_str(out, ".\n");
	}
	for (cause = 0; cause < LOSS_END; cause++) {
		if (loss_count(run, cause) == 0)
			continue;
		strbuf_add_str(out, "Not recorded: ");
		add_count(out, loss_count(run, cause), "event", "events");
		strbuf_addf(out, ", %s.\n", losses[cause].sentence);
	}
	if (replay_totals(report->replay)->dropped_events > 0) {
		strbuf_add_str(out, "Dropped to stay within --max-disk: the oldest ");
		add_count(out, replay_totals(report->replay)->dropped_events, "event", "events");
		strbuf_add_str(out, "; blocks that lived on are kept.\n");
	}
	text_damage(damage, out);
	if (damage->cut)
		strbuf_add_str(
			out,
			"Cut: the trace does not reach its end; what is left of it is here.\n");
	if (damage->late_events > 0)
		strbuf_addf(out, "Out of order: %llu events came after later ones.\n",
			    (unsigned long long)damage->late_events);
}

static void text_detail(const struct report *report, struct strbuf *out)
{
	const struct trace_header *h = run_header(replay_run(report->replay));
	const struct replay *replay = report->replay;
	const struct replay_totals *totals = replay_totals(replay);
	const struct replay_oddities *odd = &totals->oddities;
	static const char *const keys[] = {"host",    "boot_id", "exe",
					   "command", "RANK",	 "SLURM_JOB_ID"};
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(keys); i++) {
		const char *value = run_identity(replay_run(report->replay), keys[i]);

		if (value != NULL) {
			strbuf_addf(out, "  %-13s ", keys[i]);
			strbuf_add_shown(out, value, strlen(value));
			strbuf_add_char(out, '\n');
		}
	}
	if (!report->from_dump)
		strbuf_addf(out, "  %-13s %s\n", "process",
			    report_is_closed(report) ? "ended by itself"
						     : "was killed, or still runs");
	strbuf_addf(out, "  %-13s %llu by %llu threads\n", "events",
		    (unsigned long long)totals->events, (unsigned long long)totals->threads);
	if (!report->from_dump)
		strbuf_addf(out,
			    "  %-13s about %llu ns per event; slow paths %llu us in all, longest "
			    "%llu us\n",
			    "cost", (unsigned long long)h->clock_cost_ns * 2,
			    (unsigned long long)header_long(&h->stall_total_ns) / 1000,
			    (unsigned long long)header_long(&h->stall_max_ns) / 1000);
	if (odd->frees_unknown + odd->allocs_over + odd->undone_frees > 0)
		strbuf_addf(out,
			    "  %-13s %llu frees of unknown addresses, %llu frees not seen, %llu "
			    "frees that failed\n",
			    "oddities", (unsigned long long)odd->frees_unknown,
			    (unsigned long long)odd->allocs_over,
			    (unsigned long long)odd->undone_frees);
}

static struct analysis_view view_of(const struct report *report)
{
	return (struct analysis_view){.replay = report->replay,
				      .lines = report->detail ? UINT32_MAX : REPORT_LINES,
				      .frames = report->detail ? REPORT_FRAMES : REPORT_SITE};
}

/* Nothing was asked for: neither a window nor what needs none, a trace of calls or a watch. */
static bool is_empty_handed(const struct replay *replay)
{
	return replay_state(replay) == RECORDING_SHADOW && replay_totals(replay)->windows == 0 &&
	       replay_totals(replay)->events_by_type[EVENT_call] == 0 &&
	       replay_watches(replay)->dumps == 0;
}

void report_text(const struct report *report, struct strbuf *out)
{
	const struct trace_header *h = run_header(replay_run(report->replay));
	const struct replay *replay = report->replay;
	const struct replay_totals *totals = replay_totals(replay);
	const char *note;
	const char *exe = run_identity(replay_run(report->replay), "exe");
	const char *name = exe == NULL		       ? "?"
			   : strrchr(exe, '/') != NULL ? strrchr(exe, '/') + 1
						       : exe;
	size_t i;

	strbuf_add_shown(out, name, strlen(name));
	strbuf_addf(out, " (pid %u): ", h->pid);
	add_count(out, totals->events, "event", "events");
	strbuf_addf(out, " in %.3f s%s\n", (double)(totals->last_ns - totals->first_ns) / 1e9,
		    is_empty_handed(replay) ? ", deferred: collection was never started" : "");
	if (report->detail)
		text_detail(report, out);
	text_usage(replay, out);
	if (report->analyses != NULL) {
		struct analysis_view view = view_of(report);

		analyses_text(report->analyses, &view, out);
		/* What was alive is part of the question of leaks: who does not ask it gets no answer. */
		if (report->analyses->bits & SESSION_LEAKS)
			text_alive(report, out);
	}
	report_watch_text(replay_watches(replay), report->detail ? SIZE_MAX : REPORT_GROUPS, out);
	report_losses(report, out);
	for (i = 0; (note = replay_note(replay, i)) != NULL; i++) {
		strbuf_add_str(out, "Note: ");
		strbuf_add_shown(out, note, strlen(note));
		strbuf_add_str(out, ".\n");
	}
}

int report_write(const struct report *report, struct project *project, struct mscope_error *err)
{
	struct strbuf text = {0}, lines = {0};
	int r = project_make(project, replay_vendor(report->replay), err);

	if (r < 0)
		return r;
	report_text(report, &text);
	strbuf_add_lines(&lines, strbuf_str(&text), text.length);
	lines.failed = lines.failed || text.failed;
	r = project_write(project, PROJECT_REPORT, &lines, 0600, err);
	strbuf_fini(&text);
	strbuf_fini(&lines);
	return r;
}

/* ---- JSON ---- */

static void json_hex(struct json *json, const char *key, uint64_t value)
{
	struct strbuf sb = {0};

	strbuf_add_hex(&sb, value, 16);
	json_string(json, key, strbuf_str(&sb));
	strbuf_fini(&sb);
}

static void json_bytes(struct json *json, const char *key, const uint8_t *bytes, size_t count)
{
	struct strbuf sb = {0};
	size_t i;

	for (i = 0; i < count; i++)
		strbuf_addf(&sb, "%02x", bytes[i]);
	json_string(json, key, strbuf_str(&sb));
	strbuf_fini(&sb);
}

static void json_identity(const struct run *run, struct json *json)
{
	const struct trace_header *h = run_header(run);
	const char *at = (const char *)h + TRACE_IDENTITY_AT, *end = at + h->identity_bytes;

	json_object(json, "identity");
	while (at < end) {
		const char *stop = memchr(at, '\0', (size_t)(end - at));
		const char *equals = stop == NULL ? NULL : memchr(at, '=', (size_t)(stop - at));
		char key[64];

		if (equals == NULL)
			break;
		if ((size_t)(equals - at) < sizeof(key)) {
			memcpy(key, at, (size_t)(equals - at));
			key[equals - at] = '\0';
			json_string(json, key, equals + 1);
		}
		at = stop + 1;
	}
	json_end(json);
}

static void json_usage(const struct replay *replay, struct json *json)
{
	size_t count, i;
	const struct usage *usages = replay_usages(replay, &count);

	json_array(json, "usage");
	for (i = 0; i < count; i++) {
		const struct usage *usage = &usages[i];
		char device[16];

		project_device_text(usage->device, device);
		json_object(json, NULL);
		json_string(json, "event_type", pool_event_type(usage->pool));
		json_string(json, "device", device);
		json_u64(json, "peak_bytes", usage->peak_bytes);
		json_u64(json, "live_bytes", usage->live_bytes);
		json_u64(json, "live_blocks", usage->live_blocks);
		json_u64(json, "allocations", usage->allocations);
		json_u64(json, "allocated_bytes", usage->allocated_bytes);
		json_u64(json, "frees", usage->frees);
		json_end(json);
	}
	json_end(json);
}

static void json_alive(struct replay *replay, struct json *json)
{
	struct alive alive = {0};
	size_t i;

	json_array(json, "live_blocks");
	if (alive_find(replay, &alive) == 0) {
		for (i = 0; i < alive.block_count; i++) {
			const struct block *block = alive.blocks[i];
			const struct context *context = replay_context(replay, block->context);
			const struct python_place *places;
			const struct frame *frames;
			uint32_t count, f;
			char device[16];

			project_device_text(context->device, device);
			json_object(json, NULL);
			json_u64(json, "allocation_id", block->allocation_id);
			json_hex(json, "address", block->address);
			json_u64(json, "size", block->size_bytes);
			json_string(json, "event_type", pool_event_type(context->pool));
			json_string(json, "device", device);
			json_u64(json, "thread", block->tid);
			json_u64(json, "step", replay_steps(replay) == 0 ? 0 : block->latest_step);
			json_u64(json, "kernel", block->launches);
			if (replay_is_decomposed(replay))
				json_string(json, "owner", replay_owner_text(replay, block->owner));
			json_u64(json, "time_ns", run_wall_ns(replay_run(replay), block->time_ns));
			json_array(json, "stack");
			frames = replay_frames(replay, block->stack, &count);
			for (f = 0; f < count; f++)
				json_string(json, NULL, replay_frame_text(replay, &frames[f]));
			json_end(json);
			json_array(json, "python_stack");
			places = replay_places(replay, block->stack, &count);
			for (f = 0; f < count; f++)
				json_string(json, NULL, replay_place_text(replay, &places[f]));
			json_end(json);
			json_end(json);
		}
	}
	json_end(json);
	alive_fini(&alive);
}

static void json_modules(const struct replay *replay, struct json *json)
{
	const struct module *module;
	size_t cursor = 0;

	json_array(json, "modules");
	while ((module = replay_next_module(replay, &cursor)) != NULL) {
		json_object(json, NULL);
		json_string(json, "path", module->info.path);
		json_bytes(json, "build_id", module->info.build_id, module->info.build_id_length);
		json_hex(json, "base", module->info.base);
		json_bool(json, "loaded", module->unloaded_ns == UINT64_MAX);
		json_end(json);
	}
	json_end(json);
}

void report_json(const struct report *report, struct json *json)
{
	const struct run *run = replay_run(report->replay);
	const struct trace_header *h = run_header(run);
	const struct run_damage *damage = run_damage(run);
	struct replay *replay = report->replay;
	const struct replay_totals *totals = replay_totals(replay);
	const char *note;
	const char *stop = stop_sentence(header_word(&h->stop));
	size_t i;

	json_object(json, NULL);
	if (report->trace_path != NULL)
		json_string(json, "trace", report->trace_path);
	json_u64(json, "format", h->version);
	json_u64(json, "pid", h->pid);
	json_bytes(json, "run", h->run_id, sizeof(h->run_id));
	json_bytes(json, "parent_run", h->parent_run_id, sizeof(h->parent_run_id));
	json_u64(json, "start_ns", h->realtime_ns);
	json_bool(json, "closed", report_is_closed(report));
	json_bool(json, "damaged", report_is_damaged(report));
	json_identity(run, json);
	json_u64(json, "events", totals->events);
	json_object(json, "events_by_type");
	/* Records of a checkpoint are no events of the run. */
#define EVENT(number, name, words, shape, fields, meaning)                                         \
	if (strncmp(#name, "kept_", 5) != 0)                                                       \
		json_u64(json, #name, totals->events_by_type[number]);
#include "trace/events.def"
#undef EVENT
	json_end(json);
	json_u64(json, "rows", totals->rows);
	json_u64(json, "threads", totals->threads);
	json_object(json, "losses");
	for (i = 0; i < LOSS_END; i++)
		json_u64(json, losses[i].name, loss_count(run, (int)i));
	json_end(json);
	json_u64(json, "dropped_events", totals->dropped_events);
	json_object(json, "damage");
	json_u64(json, "bad_chunks", damage->bad_chunks);
	json_u64(json, "missing_chunks", damage->missing_chunks);
	json_u64(json, "bad_records", damage->bad_records);
	json_u64(json, "skipped_bytes", damage->skipped_bytes);
	json_bool(json, "cut", damage->cut);
	json_bool(json, "overwritten", damage->overwritten);
	json_bool(json, "truncated", damage->truncated);
	json_u64(json, "late_events", damage->late_events);
	json_u64(json, "bad_definitions", totals->oddities.bad_definitions);
	json_end(json);
	json_object(json, "oddities");
	json_u64(json, "frees_unknown", totals->oddities.frees_unknown);
	json_u64(json, "allocs_over", totals->oddities.allocs_over);
	json_u64(json, "undone_frees", totals->oddities.undone_frees);
	json_u64(json, "undone_unknown", totals->oddities.undone_unknown);
	json_u64(json, "contexts_unknown", totals->oddities.contexts_unknown);
	json_u64(json, "stacks_unknown", totals->oddities.stacks_unknown);
	json_u64(json, "operations_unpaired", totals->oddities.operations_unpaired);
	json_end(json);
	json_string(json, "stopped", stop == NULL ? "" : stop);
	json_u64(json, "clock_cost_ns", h->clock_cost_ns);
	json_u64(json, "max_stall_ns", header_long(&h->stall_max_ns));
	json_u64(json, "total_stall_ns", header_long(&h->stall_total_ns));
	json_u64(json, "stalls", header_long(&h->stall_count));
	json_array(json, "notes");
	for (i = 0; (note = replay_note(replay, i)) != NULL; i++)
		json_string(json, NULL, note);
	json_end(json);
	json_u64(json, "steps", replay_steps(replay));
	json_usage(replay, json);
	json_alive(replay, json);
	report_watch_json(replay_watches(replay), json);
	if (report->analyses != NULL) {
		struct analysis_view view = view_of(report);

		analyses_json(report->analyses, &view, json);
	}
	json_modules(replay, json);
	json_end(json);
}
