/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process in the document that --summary-json and info --json write. docs/summary.schema.json describes it; keys are only
 * added.
 */
#include "sink/report_json.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "sink/digest.h"
#include "sink/report_findings.h"
#include "sink/report_held.h"
#include "sink/report_watch.h"
#include "sink/run_facts.h"
#include "symbols/modules.h"
#include "trace/session.h"

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

static const char *end_name(enum end_kind kind)
{
	switch (kind) {
	case END_MAIN:
		return "main";
	case END_EXIT:
		return "exit";
	case END_INTERPRETER:
		return "interpreter";
	case END_STOP:
		return "stop";
	default:
		return "last event";
	}
}

/* The trend of a pool, null where it was not judged. */
static void json_trend(const struct findings *found, const struct usage *usage, struct json *json)
{
	size_t i;

	for (i = 0; i < FINDINGS_COUNT(found, trend) && found->judgement.judged; i++) {
		const struct finding_trend *trend = &FINDINGS(found, trend)[i];

		if (trend->pool != usage->pool || trend->device != usage->device)
			continue;
		json_f64(json, "trend_bytes_per_step", trend->bytes_per_step, 1);
		json_string(json, "trend", trend_word(trend->trend));
		return;
	}
	json_null(json, "trend_bytes_per_step");
}

static void json_pools(const struct replay *replay, const struct findings *found, struct json *json)
{
	size_t count, i;
	const struct usage **pools = report_pools(replay, &count);

	json_array(json, "pools");
	for (i = 0; pools != NULL && i < count; i++) {
		const struct usage *usage = pools[i];
		uint64_t end_bytes, end_blocks;
		char device[16];

		replay_usage_at_end(replay, usage, &end_bytes, &end_blocks);
		project_device_text(usage->device, device);
		json_object(json, NULL);
		json_string(json, "device", device);
		json_string(json, "pool", pool_event_type(usage->pool));
		json_u64(json, "peak_bytes", usage->peak_bytes);
		json_u64(json, "peak_time_ns",
			 usage->peak_bytes == 0
				 ? 0
				 : run_wall_ns(replay_run(replay), usage->peak_time_ns));
		json_u64(json, "end_bytes", end_bytes);
		json_u64(json, "end_blocks", end_blocks);
		json_u64(json, "live_bytes", usage->live_bytes);
		json_u64(json, "live_blocks", usage->live_blocks);
		json_trend(found, usage, json);
		json_u64(json, "allocations", usage->allocations);
		json_u64(json, "allocated_bytes", usage->allocated_bytes);
		json_u64(json, "frees", usage->frees);
		if (usage->detailed) {
			json_u64(json, "requested_bytes", usage->requested_bytes);
			json_u64(json, "requested_peak_bytes", usage->requested_peak_bytes);
			json_u64(json, "waiting_bytes", usage->waiting_bytes);
			json_u64(json, "segment_bytes", usage->segment_bytes);
			json_u64(json, "private_pools_bytes", usage->private_bytes);
		}
		json_end(json);
	}
	json_end(json);
	free(pools);
}

static void json_alive(const struct report *report, struct json *json)
{
	struct alive_choice choice = report_held_choice(&report->shown);
	struct replay *replay = report->replay;
	struct alive alive = {0};
	size_t i;

	if (!report->shown.all)
		return;
	json_array(json, "live_blocks");
	if (alive_find(replay, &choice, &alive) == 0) {
		for (i = 0; i < alive.block_count; i++) {
			const struct block *block = alive.blocks[i];
			const struct context *context = replay_context(replay, block->context);
			const struct python_place *places;
			const uint32_t *frames;
			uint32_t count, f;
			char device[16];

			project_device_text(context->device, device);
			json_object(json, NULL);
			json_u64(json, "allocation_id", block->allocation_id);
			json_hex(json, "address", block->address);
			json_u64(json, "size", block->size_bytes);
			json_string(json, "event_type", pool_event_type(context->pool));
			json_string(json, "device", device);
			if (block->segment_of != 0)
				json_string(json, "taken_by", pool_event_type(block->segment_of));
			json_bool(json, "freed_after_end", block->after_end);
			json_u64(json, "thread", block->tid);
			json_u64(json, "step", replay_steps(replay) == 0 ? 0 : block->latest_step);
			json_u64(json, "kernel", block->launches);
			if (replay_is_decomposed(replay))
				json_string(json, "owner", replay_owner_text(replay, block->owner));
			json_u64(json, "time_ns", run_wall_ns(replay_run(replay), block->time_ns));
			json_array(json, "stack");
			frames = replay_frames(replay, block->stack, &count);
			for (f = 0; f < count; f++)
				json_string(json, NULL, replay_frame_text(replay, frames[f]));
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

void report_json_begin(struct json *json, struct strbuf *out)
{
	json_begin(json, out);
	json_object(json, NULL);
	json_u64(json, "schema", REPORT_SCHEMA);
	json_array(json, "processes");
}

void report_json_end(struct json *json)
{
	json_end(json);
	json_end(json);
	strbuf_add_char(json->out, '\n');
}

static void json_rank(struct json *json, const char *key, int64_t rank)
{
	if (rank < 0)
		json_null(json, key);
	else
		json_i64(json, key, rank);
}

/* Who it was and how it ended. */
static void json_who(const struct report *report, const struct digest *digest, struct json *json)
{
	const struct run *run = replay_run(report->replay);
	const struct trace_header *h = run_header(run);
	const char *command = run_identity(run, "command");

	json_rank(json, "rank", digest->rank);
	json_rank(json, "local_rank", digest->local_rank);
	json_u64(json, "pid", h->pid);
	json_string(json, "command", command == NULL ? "" : command);
	json_string(json, "name", digest->name == NULL ? "" : digest->name);
	if (digest->dry != NULL)
		json_string(json, "dry", digest->dry);
	if (report->trace_path != NULL)
		json_string(json, "trace", report->trace_path);
	json_u64(json, "format", h->version);
	json_bytes(json, "run", h->run_id, sizeof(h->run_id));
	json_bytes(json, "parent_run", h->parent_run_id, sizeof(h->parent_run_id));
	json_u64(json, "start_ns", h->realtime_ns);
	json_bool(json, "closed", report_is_closed(report));
	if (run_signal(run) != NULL)
		json_string(json, "killed_by", run_signal(run));
	json_bool(json, "damaged", report_is_damaged(report));
	json_identity(run, json);
}

static void json_events(const struct replay *replay, struct json *json)
{
	const struct replay_totals *totals = replay_totals(replay);

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
	json_u64(json, "dropped_events", totals->dropped_events);
	json_object(json, "oddities");
	json_u64(json, "frees_unknown", totals->oddities.frees_unknown);
	json_u64(json, "allocs_over", totals->oddities.allocs_over);
	json_u64(json, "undone_frees", totals->oddities.undone_frees);
	json_u64(json, "undone_unknown", totals->oddities.undone_unknown);
	json_u64(json, "contexts_unknown", totals->oddities.contexts_unknown);
	json_u64(json, "stacks_unknown", totals->oddities.stacks_unknown);
	json_u64(json, "operations_unpaired", totals->oddities.operations_unpaired);
	json_end(json);
}

/* What was lost or is damaged, why recording ended early, what it cost. */
static void json_losses(const struct replay *replay, struct json *json)
{
	const struct run *run = replay_run(replay);
	const struct run_damage *damage = run_damage(run);
	const struct run_stalls stalls = run_stalls(run);
	const char *stop = run_stop_sentence(run);
	int cause;

	json_object(json, "losses");
	for (cause = 0; cause < LOSS_END; cause++)
		json_u64(json, loss_name(cause), run_loss(run, cause));
	json_end(json);
	json_object(json, "damage");
	json_u64(json, "bad_chunks", damage->bad_chunks);
	json_u64(json, "missing_chunks", damage->missing_chunks);
	json_u64(json, "bad_records", damage->bad_records);
	json_u64(json, "skipped_bytes", damage->skipped_bytes);
	json_u64(json, "missing_events", damage->lost_records);
	json_bool(json, "cut", damage->cut);
	json_bool(json, "overwritten", damage->overwritten);
	json_bool(json, "truncated", damage->truncated);
	json_u64(json, "late_events", damage->late_events);
	json_u64(json, "bad_definitions", replay_totals(replay)->oddities.bad_definitions);
	json_end(json);
	json_string(json, "stopped", stop == NULL ? "" : stop);
	json_u64(json, "clock_cost_ns", run_header(run)->clock_cost_ns);
	json_u64(json, "max_stall_ns", stalls.longest_ns);
	json_u64(json, "total_stall_ns", stalls.total_ns);
	json_u64(json, "stalls", stalls.count);
}

/* Tables of the analyses. Those with an entry for each block or place are for who asks for all. */
static void json_analyses(const struct report *report, const struct findings *found,
			  struct json *json)
{
	struct analysis_view view = report_view(report, found);
	int i;

	for (i = 0; i < ANALYSES && report->analyses != NULL; i++) {
		if (report->shown.all || !analysis_of((enum analysis_id)i)->long_json)
			analyses_json_of(report->analyses, (enum analysis_id)i, &view, json);
	}
}

void report_json_process(const struct report *report, struct json *json)
{
	struct digest digest = {0};

	digest_identify(&digest, report);
	json_object(json, NULL);
	json_who(report, &digest, json);
	json_u64(json, "steps", replay_steps(report->replay));
	json_bool(json, "automatic_steps", replay_steps_are_automatic(report->replay));
	digest_fini(&digest);
}

void report_json(const struct report *report, struct json *json)
{
	struct replay *replay = report->replay;
	struct findings own = {0};
	struct report judged = *report;
	struct digest digest = {0};
	const char *note;
	size_t i;

	judged.found = report_judged(report, &own);
	report = &judged;
	digest_take(&digest, report);
	json_object(json, NULL);
	json_who(report, &digest, json);
	json_events(replay, json);
	json_u64(json, "steps", replay_steps(replay));
	json_bool(json, "automatic_steps", replay_steps_are_automatic(replay));
	json_string(json, "end", end_name(replay_ended(replay)));
	json_string(json, "verdict", process_verdict_word(digest.verdict));
	json_pools(replay, judged.found, json);
	report_findings_json(report, json);
	json_losses(replay, json);
	json_array(json, "notes");
	for (i = 0; (note = replay_note(replay, i)) != NULL; i++)
		json_string(json, NULL, note);
	json_end(json);
	json_alive(report, json);
	report_watch_json(report->replay, json);
	json_analyses(report, judged.found, json);
	json_modules(replay, json);
	json_end(json);
	digest_fini(&digest);
	findings_fini(&own);
}
