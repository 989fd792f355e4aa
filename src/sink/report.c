/* SPDX-License-Identifier: Apache-2.0 */
#include "sink/report.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "findings/site.h"
#include "base/shown.h"
#include "replay/watches.h"
#include "sink/digest.h"
#include "sink/project.h"
#include "sink/report_held.h"
#include "sink/report_json.h"
#include "sink/report_watch.h"
#include "sink/run_facts.h"
#include "trace/session.h"

bool report_is_closed(const struct report *report)
{
	return run_is_closed(replay_run(report->replay));
}

bool report_is_damaged(const struct report *report)
{
	const struct run_damage *damage = run_damage(replay_run(report->replay));

	return report->input_damaged || damage->cut || damage->overwritten || damage->truncated ||
	       damage->bad_chunks + damage->missing_chunks + damage->bad_records +
			       damage->skipped_bytes + damage->lost_records +
			       replay_totals(report->replay)->oddities.bad_definitions >
		       0;
}

/* ---- text ---- */

static int by_number(const void *a, const void *b)
{
	const struct usage *x = *(const struct usage *const *)a,
			   *y = *(const struct usage *const *)b;

	return ORDER_UP(x->device, y->device) ?: ORDER_UP(x->pool, y->pool);
}

const struct usage **report_pools(const struct replay *replay, size_t *out_count)
{
	size_t count, i, shown = 0;
	const struct usage *usages = replay_usages(replay, &count);
	const struct usage **pools = calloc(count + 1, sizeof(*pools));

	for (i = 0; pools != NULL && i < count; i++) {
		if (!usages[i].hidden)
			pools[shown++] = &usages[i];
	}
	if (shown > 1)
		qsort(pools, shown, sizeof(*pools), by_number);
	*out_count = shown;
	return pools;
}

static void text_usage(const struct report *report, struct strbuf *out)
{
	size_t count, i;
	const struct usage **pools = report_pools(report->replay, &count);

	for (i = 0; pools != NULL && i < count; i++) {
		const struct usage *usage = pools[i];
		uint64_t end_bytes, end_blocks;
		char device[16];

		replay_usage_at_end(report->replay, usage, &end_bytes, &end_blocks);
		project_device_text(usage->device, device);
		if (usage->device == DEVICE_HOST || usage->device == DEVICE_UNKNOWN)
			strbuf_addf(out, "  %-9s", device);
		else
			strbuf_addf(out, "  device %-2s", device);
		strbuf_addf(out, "  %-13s  peak ", pool_event_type(usage->pool));
		strbuf_add_size(out, usage->peak_bytes);
		strbuf_add_str(out, ", at the end ");
		strbuf_add_size(out, end_bytes);
		strbuf_add_str(out, " in ");
		strbuf_add_count(out, end_blocks, "block", "blocks");
		strbuf_add_str(out, "; ");
		strbuf_add_count(out, usage->allocations, "allocation", "allocations");
		strbuf_add_str(out, ", ");
		strbuf_add_count(out, usage->frees, "free", "frees");
		strbuf_add_char(out, '\n');
	}
	free(pools);
}

/* Which moment the end is, where it matters, and who told the steps: a line each. */
static void report_moments(const struct replay *replay, struct strbuf *out)
{
	static const char *const who[] = {
		[END_MAIN] = "exit handlers and destructors",
		[END_EXIT] = "exit handlers and destructors",
		[END_INTERPRETER] = "the interpreter, which frees its globals,",
	};
	uint64_t blocks = 0, bytes = 0;
	const struct block *block;
	size_t cursor = 0;

	while (replay_ended(replay) != END_NONE &&
	       (block = replay_next_at_end(replay, &cursor)) != NULL) {
		/* Memory that a pool took from the driver counts as blocks of the pool. */
		if (!block->after_end || block->segment_of != 0)
			continue;
		blocks++;
		bytes += block->size_bytes;
	}
	if (replay_ended(replay) == END_STOP) {
		strbuf_add_str(out, "The end is the stop() of the last window.\n");
	} else if (blocks > 0 && (size_t)replay_ended(replay) < MSCOPE_COUNT(who)) {
		strbuf_add_str(out, "The end is that of the program's own code; ");
		strbuf_add_str(out, who[replay_ended(replay)]);
		strbuf_add_str(out, " freed ");
		strbuf_add_count(out, blocks, "block", "blocks");
		strbuf_add_str(out, " (");
		strbuf_add_size(out, bytes);
		strbuf_add_str(out, ") after it.\n");
	}
	if (replay_steps_are_automatic(replay)) {
		strbuf_add_count(out, replay_steps(replay), "step", "steps");
		if (replay_marked_steps(replay) > 0)
			strbuf_addf(
				out,
				" counted by the optimizer's step(): the program marked %u, too "
				"late and too few to count.\n",
				replay_marked_steps(replay));
		else
			strbuf_add_str(out,
				       run_is_snapshot(replay_run(replay))
					       ? " counted where the same call sites repeat: the "
						 "snapshot marks none.\n"
					       : " counted by the optimizer's step(): the program "
						 "marks none.\n");
	}
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

	if (!counted && !damage->overwritten && !damage->truncated && damage->lost_records == 0)
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
	if (damage->lost_records > 0) {
		strbuf_add_str(out,
			       counted || damage->overwritten || damage->truncated ? "; " : "");
		strbuf_add_count(out, damage->lost_records, "event is", "events are");
		strbuf_add_str(out, " missing");
	}
	strbuf_add_str(out, ". Everything else is here.\n");
}

void report_losses(const struct report *report, struct strbuf *out)
{
	const struct run *run = replay_run(report->replay);
	const struct run_damage *damage = run_damage(run);
	const char *stop = run_stop_sentence(run);
	int cause;

	if (stop != NULL) {
		strbuf_addf(out, "Recording ended early: %s", stop);
		if (run_stop_errno(run) != 0)
			strbuf_addf(out, " (%s)", strerror(run_stop_errno(run)));
		strbuf_add_str(out, ".\n");
	}
	for (cause = 0; cause < LOSS_END; cause++) {
		if (run_loss(run, cause) == 0)
			continue;
		strbuf_add_str(out, "Not recorded: ");
		strbuf_add_count(out, run_loss(run, cause), "event", "events");
		strbuf_addf(out, ", %s.\n", loss_sentence(cause));
	}
	if (replay_totals(report->replay)->dropped_events > 0) {
		strbuf_add_str(out, "Dropped to stay within --max-disk: the oldest ");
		strbuf_add_count(out, replay_totals(report->replay)->dropped_events, "event",
				 "events");
		strbuf_add_str(out, "; blocks that lived on are kept.\n");
	}
	if (!report->runs && !report->from_dump && !report_is_closed(report) &&
	    replay_kernels_untimed(report->replay) > 0) {
		strbuf_add_str(out, "Not recorded: when up to ");
		strbuf_add_count(out, replay_kernels_untimed(report->replay), "kernel", "kernels");
		strbuf_add_str(out, " ran, because the process was killed before CUPTI told.\n");
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

static void text_process(const struct report *report, struct strbuf *out)
{
	const char *signal = run_signal(replay_run(report->replay));

	strbuf_addf(out, "  %-13s ", "process");
	if (signal != NULL)
		strbuf_addf(out, "was killed by %s\n", signal);
	else
		strbuf_add_str(out, report->runs	       ? "runs on\n"
				    : report_is_closed(report) ? "ended by itself\n"
							       : "ended without an end record\n");
}

static void text_detail(const struct report *report, struct strbuf *out)
{
	const struct trace_header *h = run_header(replay_run(report->replay));
	const struct replay *replay = report->replay;
	const struct replay_totals *totals = replay_totals(replay);
	const struct replay_oddities *odd = &totals->oddities;
	const struct run_stalls stalls = run_stalls(replay_run(replay));
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
		text_process(report, out);
	strbuf_addf(out, "  %-13s %llu by %llu threads\n", "events",
		    (unsigned long long)totals->events, (unsigned long long)totals->threads);
	if (!report->from_dump)
		strbuf_addf(out,
			    "  %-13s about %llu ns per event; slow paths %llu us in all, longest "
			    "%llu us\n",
			    "cost", (unsigned long long)h->clock_cost_ns * 2,
			    (unsigned long long)stalls.total_ns / 1000,
			    (unsigned long long)stalls.longest_ns / 1000);
	if (odd->frees_unknown + odd->allocs_over + odd->undone_frees > 0)
		strbuf_addf(out,
			    "  %-13s %llu frees of unknown addresses, %llu frees not seen, %llu "
			    "frees that failed\n",
			    "oddities", (unsigned long long)odd->frees_unknown,
			    (unsigned long long)odd->allocs_over,
			    (unsigned long long)odd->undone_frees);
}

const struct findings *report_judged(const struct report *report, struct findings *own)
{
	if (report->found != NULL)
		return report->found;
	if (report->analyses != NULL)
		analyses_judge(report->analyses, report->replay,
			       report->shown.all ? SIZE_MAX : REPORT_STACKS, own);
	if (report->late != NULL)
		report->late(report->late_arg, report->replay, own);
	return own;
}

struct analysis_view report_view(const struct report *report, const struct findings *found)
{
	return (struct analysis_view){.replay = report->replay,
				      .found = found,
				      .lines = report->shown.all || report->shown.top == 0
						       ? UINT32_MAX
						       : report->shown.top,
				      .frames = REPORT_FRAMES};
}

bool report_is_empty_handed(const struct replay *replay)
{
	return replay_state(replay) == RECORDING_SHADOW && replay_totals(replay)->windows == 0 &&
	       replay_ended(replay) != END_STOP &&
	       replay_totals(replay)->events_by_type[EVENT_call] == 0 &&
	       replay_totals(replay)->events_by_type[EVENT_snapshot] == 0 &&
	       replay_watches(replay)->dumps == 0;
}

const char *report_dry_not_counted(const char *device)
{
	if (strncmp(device, "npu", 3) == 0)
		return "Operator workspaces and HCCL buffers are not counted.";
	return "Buffers of NCCL and what kernels of Triton take are not counted.";
}

void report_text(const struct report *report, struct strbuf *out)
{
	const struct trace_header *h = run_header(replay_run(report->replay));
	const struct replay *replay = report->replay;
	const struct replay_totals *totals = replay_totals(replay);
	const char *note;
	const struct run *run = replay_run(replay);
	const char *exe = run_identity(run, "exe");
	/* A dump does not say what ran: it is called by its own name. */
	char *name = exe == NULL && report->from_dump ? digest_name(report->trace_path, NULL, NULL)
						      : digest_run_name(run);
	size_t i;

	if (name != NULL)
		strbuf_add_shown(out, name, strlen(name));
	else
		strbuf_add_char(out, '?');
	strbuf_addf(out, " (pid %u): ", h->pid);
	free(name);
	strbuf_add_count(out, totals->events, "event", "events");
	strbuf_addf(out, " in %.3f s%s\n", (double)(totals->last_ns - totals->first_ns) / 1e9,
		    report_is_empty_handed(replay) ? ", deferred: collection was never started"
						   : "");
	if (run_dry(run) != NULL)
		strbuf_addf(out, "Dry run on %s; no device was used. %s\n", run_dry(run),
			    report_dry_not_counted(run_dry(run)));
	text_detail(report, out);
	text_usage(report, out);
	report_moments(replay, out);
	if (report->analyses != NULL) {
		struct findings own = {0};
		struct analysis_view view = report_view(report, report_judged(report, &own));

		analyses_text(report->analyses, &view, out);
		what_if_lines(view.found, out);
		findings_fini(&own);
		/* What was alive is part of the question of leaks: who does not ask it gets no answer. */
		if (report->analyses->bits & SESSION_LEAKS)
			report_held_text(report, out);
	}
	(void)report_watch_text(report->replay, SIZE_MAX, out);
	report_losses(report, out);
	for (i = 0; (note = replay_note(replay, i)) != NULL; i++) {
		strbuf_add_str(out, "Note: ");
		strbuf_add_shown(out, note, strlen(note));
		strbuf_add_str(out, ".\n");
	}
	site_notes(report->replay, out);
}

/* Of the lists of a report that is too large otherwise. */
#define LONG_LIST  4096u
#define SHORT_LIST 16u

/* report.txt. Of what is still too large with short lists the last lines are left out. */
static void add_file(struct report *report, struct strbuf *out)
{
	static const char note[] =
		"Note: lists are cut to keep this file small; msmemscope info --all shows all.\n";
	struct strbuf text = {0};
	uint32_t top = 0;

	do {
		strbuf_reset(&text);
		strbuf_reset(out);
		report->shown.top = report->shown.blocks = top;
		report_text(report, &text);
		strbuf_add_lines(out, strbuf_str(&text), text.length);
		top = top == 0 ? LONG_LIST : top / 4;
	} while (out->length > REPORT_BYTES - sizeof(note) && top >= SHORT_LIST);
	if (report->shown.top != 0) {
		while (out->length > REPORT_BYTES - sizeof(note) ||
		       (out->length > 0 && out->data[out->length - 1] != '\n'))
			out->length--;
		strbuf_add_str(out, note);
	}
	out->failed = out->failed || text.failed;
	strbuf_fini(&text);
}

int report_write(const struct report *report, struct project *project, struct mscope_error *err)
{
	struct strbuf lines = {0}, document = {0};
	int r = project_make(project, replay_likely_vendor(report->replay), err);
	struct report judged = *report;
	struct findings found = {0};
	struct json json;

	if (r < 0)
		return r;
	judged.found = report_judged(report, &found);
	add_file(&judged, &lines);
	judged.shown = report->shown;
	r = project_write(project, PROJECT_REPORT, &lines, 0600, err);
	report_json_begin(&json, &document);
	report_json(&judged, &json);
	report_json_end(&json);
	if (r == 0)
		r = project_write(project, PROJECT_FINDINGS, &document, 0600, err);
	findings_fini(&found);
	strbuf_fini(&document);
	strbuf_fini(&lines);
	return r;
}
