/* SPDX-License-Identifier: Apache-2.0 */
#include "sink/digest.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/analyses.h"
#include "findings/site.h"
#include "base/text.h"
#include "sink/digest_findings.h"
#include "sink/report_watch.h"
#include "sink/run_facts.h"
#include "trace/session.h"

/* ---- who it is ---- */

/*
 * A command: words with a blank between them, as the trace has them. `lengths` says how long the first words are, if one of them has
 * blanks; NULL: none has.
 */
struct command {
	const char *at, *lengths;
};

static size_t word_bytes(const struct command *command)
{
	size_t blank = strcspn(command->at, " "), length;
	char *end;

	if (command->lengths == NULL || !isdigit((unsigned char)command->lengths[0]))
		return blank;
	length = strtoul(command->lengths, &end, 10);
	return strnlen(command->at, length);
}

static void next_word(struct command *command)
{
	command->at += word_bytes(command);
	command->at += command->lengths == NULL ? strspn(command->at, " ") : *command->at == ' ';
	if (command->lengths != NULL)
		command->lengths += strcspn(command->lengths, " ") + (*command->lengths != '\0');
}

/* As a text to be freed. */
static char *word(const struct command *command)
{
	return strndup(command->at, word_bytes(command));
}

/* The script, module or "-c" that an interpreter runs; NULL: none is named. */
static char *script_name(const char *command, const char *lengths)
{
	static const char with_value[] = "WXQ"; /* options of Python that take the next word */
	struct command words = {command, lengths};

	for (next_word(&words); *words.at != '\0'; next_word(&words)) {
		size_t bytes = word_bytes(&words);
		const char *at = words.at;

		if (*at != '-') {
			char *path = word(&words);
			char *name = path == NULL ? NULL : strdup(text_base_name(path));

			free(path);
			return name;
		}
		if (at[1] == 'c')
			return strdup("python -c");
		if (at[1] == 'm' && bytes > 2)
			return strndup(at + 2, bytes - 2);
		if (at[1] == 'm') {
			next_word(&words);
			return word(&words);
		}
		if (bytes == 2 && strchr(with_value, at[1]) != NULL)
			next_word(&words);
	}
	return NULL;
}

char *digest_name(const char *exe, const char *command, const char *lengths)
{
	const char *program = exe == NULL ? "?" : text_base_name(exe);
	char *name = NULL;

	if (text_starts_with(program, "python") && command != NULL)
		name = script_name(command, lengths);
	return name != NULL ? name : strdup(program);
}

char *digest_run_name(const struct run *run)
{
	const char *exe = run_identity(run, "exe"), *command = run_identity(run, "parent_command");

	if (command != NULL)
		return digest_name(exe, command, run_identity(run, "parent_command_words"));
	return digest_name(exe, run_identity(run, "command"), run_identity(run, "command_words"));
}

int64_t digest_rank(const struct run *run, bool local)
{
	static const char *const global_names[] = {"RANK",     "OMPI_COMM_WORLD_RANK", "PMIX_RANK",
						   "PMI_RANK", "SLURM_PROCID",	       "RANK_ID",
						   NULL};
	static const char *const local_names[] = {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK",
						  "MPI_LOCALRANKID", "SLURM_LOCALID", NULL};
	const char *const *names = local ? local_names : global_names;

	for (; *names != NULL; names++) {
		const char *text = run_identity(run, *names);
		char *end;
		long value;

		if (text == NULL || !isdigit((unsigned char)text[0]))
			continue;
		value = strtol(text, &end, 10);
		if (*end == '\0')
			return value;
	}
	return -1;
}

/* ---- pools ---- */

static int largest_peak(const void *a, const void *b)
{
	const struct digest_pool *x = a, *y = b;

	return ORDER_DOWN(x->peak_bytes, y->peak_bytes) ?:
	       ORDER_UP(x->device, y->device) ?:
	       ORDER_UP(x->pool, y->pool);
}

static void take_pools(struct digest *out, const struct replay *replay)
{
	size_t count, i;
	const struct usage *usages = replay_usages(replay, &count);

	out->pools = calloc(count + 1, sizeof(*out->pools));
	for (i = 0; out->pools != NULL && i < count; i++) {
		uint64_t end_bytes, end_blocks;

		if (usages[i].hidden || (usages[i].allocations == 0 && usages[i].peak_bytes == 0))
			continue;
		replay_usage_at_end(replay, &usages[i], &end_bytes, &end_blocks);
		out->pools[out->pool_count++] = (struct digest_pool){
			.pool = usages[i].pool,
			.device = usages[i].device,
			.peak_bytes = usages[i].peak_bytes,
			.requested_peak_bytes = usage_requested_peak(&usages[i]),
			.end_bytes = end_bytes,
			.end_blocks = end_blocks,
		};
	}
	if (out->pool_count > 0)
		qsort(out->pools, out->pool_count, sizeof(*out->pools), largest_peak);
}

/* ---- all of it ---- */

static bool is_lossy(const struct run *run)
{
	const struct trace_header *h = run_header(run);
	int cause;

	for (cause = 0; cause < LOSS_END; cause++) {
		if (atomic_load(&((struct trace_header *)(uintptr_t)h)->loss[cause]) != 0)
			return true;
	}
	return false;
}

static int by_device(const void *a, const void *b)
{
	const struct digest_device *x = a, *y = b;

	return ORDER_UP(x->device, y->device);
}

static void take_devices(struct digest *out, const struct replay *replay)
{
	size_t i, k;

	out->devices = calloc(out->pool_count + 1, sizeof(*out->devices));
	for (i = 0; out->devices != NULL && i < out->pool_count; i++) {
		uint32_t device = out->pools[i].device;
		const struct driver_usage *driver = replay_driver_usage(replay, device);

		for (k = 0; k < out->device_count && out->devices[k].device != device; k++)
			;
		if (device >= DEVICE_HOST || k < out->device_count)
			continue;
		out->devices[out->device_count] = (struct digest_device){
			.device = device, .total_bytes = driver == NULL ? 0 : driver->total_bytes};
		if (driver != NULL)
			memcpy(out->devices[out->device_count].name, driver->name,
			       sizeof(driver->name));
		out->device_count++;
	}
	if (out->device_count > 1)
		qsort(out->devices, out->device_count, sizeof(*out->devices), by_device);
}

/* Memory of the machine, as the process saw it. */
static uint64_t memory_of(const struct run *run)
{
	const char *text = run_identity(run, "memory_kib");
	uint64_t kib = text == NULL ? 0 : strtoull(text, NULL, 10);

	return kib > UINT64_MAX >> 10 ? 0 : kib << 10;
}

void digest_identify(struct digest *out, const struct report *report)
{
	struct replay *replay = report->replay;
	const struct run *run = replay_run(replay);
	const struct replay_totals *totals = replay_totals(replay);

	out->pid = run_header(run)->pid;
	out->rank = digest_rank(run, false);
	out->local_rank = digest_rank(run, true);
	out->name = digest_run_name(run);
	out->memory_bytes = memory_of(run);
	out->dry = run_dry(run) == NULL ? NULL : strdup(run_dry(run));
	out->events = totals->events;
	out->steps = replay_steps(replay);
	out->automatic = replay_steps_are_automatic(replay);
	out->marked = replay_marked_steps(replay);
	out->snapshot = run_is_snapshot(run);
	out->windowed = replay_ended(replay) == END_STOP;
	out->seconds = (double)(totals->last_ns - totals->first_ns) / 1e9;
	out->signal = run_signal(run);
	out->damaged = report_is_damaged(report);
	out->lossy = is_lossy(run);
	out->deferred = report_is_empty_handed(replay);
}

void digest_take(struct digest *out, const struct report *report)
{
	struct replay *replay = report->replay;
	const char *note;
	size_t i;

	digest_identify(out, report);
	take_pools(out, replay);
	take_devices(out, replay);
	digest_take_findings(out, report);
	out->overwritten = report_watch_text(replay, REPORT_WATCHED, &out->watched);
	report_losses(report, &out->losses);
	for (i = 0; (note = replay_note(replay, i)) != NULL; i++)
		strbuf_addf(&out->losses, "Note: %s.\n", note);
	site_notes(replay, &out->losses);
}

bool digest_has_section(const struct digest *digest)
{
	size_t i;

	for (i = 0; i < ANALYSES && digest->sections[i].length == 0; i++)
		;
	return i < ANALYSES;
}

void digest_fini(struct digest *digest)
{
	struct strbuf *texts[] = {&digest->not_judged, &digest->oom,	      &digest->oom_held,
				  &digest->gaps,       &digest->watched,      &digest->losses,
				  &digest->json,       &digest->devices_held, &digest->what_if};
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(texts); i++)
		strbuf_fini(texts[i]);
	for (i = 0; i < ANALYSES; i++)
		strbuf_fini(&digest->sections[i]);
	if (digest->own != NULL)
		findings_fini(digest->own);
	free(digest->own);
	free(digest->pools);
	free(digest->devices);
	free(digest->name);
	free(digest->dry);
	free(digest->project);
	free(digest->dumps);
	*digest = (struct digest){0};
}
