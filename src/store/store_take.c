/* SPDX-License-Identifier: Apache-2.0 */
#include "store/store_take.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/alive.h"
#include "analysis/leaks.h"
#include "analysis/peak.h"
#include "base/text.h"
#include "findings/site.h"
#include "analysis/timeline.h"
#include "base/map.h"
#include "sink/digest.h"
#include "sink/report_held.h"
#include "sink/run_facts.h"

#define PLACES_MOST 1000u /* of a pool; the rest is one place */

struct taking {
	struct store_rows *out;
	const struct report *report;
	struct replay *replay;
	struct digest digest;
	int64_t run, process;
	/* Of places: (stack, device and pool) to row; of stacks and frames: key to 1; of sites: site to the key of its stack. */
	struct map places, stacks, frames, sites;
};

/* What is known of a place. */
struct taken_place {
	uint32_t site;	   /* 0: no stack */
	const char *label; /* without a stack */
	uint8_t pool;
	uint32_t device;
};

char *store_run_name(const struct run *run)
{
	const char *elastic = run_identity(run, "TORCHELASTIC_RUN_ID");
	const char *job = run_identity(run, "SLURM_JOB_ID");
	const char *step = run_identity(run, "SLURM_STEP_ID");
	struct strbuf name = {0};
	char *taken;

	/* torchrun calls itself "none" where no name was given. */
	if (elastic != NULL && strcmp(elastic, "none") != 0)
		strbuf_add_str(&name, elastic);
	else if (job != NULL && step != NULL)
		strbuf_addf(&name, "slurm-%s.%s", job, step);
	else if (job != NULL)
		strbuf_addf(&name, "slurm-%s", job);
	taken = name.length == 0 ? NULL : strdup(strbuf_str(&name));
	strbuf_fini(&name);
	return taken;
}

static void add_row(struct taking *taking, enum store_table table, const struct store_value *values)
{
	store_rows_add(taking->out, table, values);
}

/* ---- stacks ---- */

static void add_part(struct strbuf *content, const char *text)
{
	strbuf_add_str(content, text == NULL ? "" : text);
	strbuf_add_char(content, '\0');
}

/* What a frame is, wherever its files lie: ranks of several machines have the same places. */
static void add_content(const struct stack_line *line, bool with_line, struct strbuf *content)
{
	add_part(content, line->function);
	add_part(content, line->file == NULL ? NULL : text_file_name(line->file));
	add_part(content, line->module == NULL ? NULL : text_file_name(line->module));
	if (line->function == NULL)
		strbuf_addf(content, "+%llx", (unsigned long long)line->offset);
	else if (with_line)
		strbuf_addf(content, ":%u", line->line);
	strbuf_add_char(content, '\n');
}

static int64_t key_of(const struct strbuf *content)
{
	return store_key(strbuf_str(content), content->length);
}

/* True when the key was not in the map. */
static bool is_new(struct taking *taking, struct map *map, int64_t key)
{
	struct map_key at = {(uint64_t)key, 0};

	if (map_get(map, at) != NULL)
		return false;
	if (map_put(map, at, 1) < 0)
		taking->out->failed = true;
	return true;
}

static void add_frame(struct taking *taking, int64_t stack, uint32_t depth,
		      const struct stack_line *line)
{
	struct strbuf content = {0}, function = {0};
	int64_t frame;

	add_content(line, true, &content);
	frame = key_of(&content);
	if (line->function == NULL)
		strbuf_addf(&function, "+0x%llx", (unsigned long long)line->offset);
	if (is_new(taking, &taking->frames, frame))
		add_row(taking, STORE_frames,
			(struct store_value[]){store_int(frame),
					       store_str(line->function == NULL
								 ? strbuf_str(&function)
								 : line->function),
					       store_str(line->file), store_int(line->line),
					       store_str(line->module)});
	add_row(taking, STORE_stack_frames,
		(struct store_value[]){store_int(stack), store_int(depth), store_int(frame)});
	strbuf_fini(&content);
	strbuf_fini(&function);
}

/* A place without a stack is named by its label. */
static int64_t add_label(struct taking *taking, const char *label)
{
	struct strbuf content = {0};
	int64_t key;

	strbuf_addf(&content, "label %s", label);
	key = key_of(&content);
	strbuf_fini(&content);
	if (is_new(taking, &taking->stacks, key))
		add_row(taking, STORE_stacks,
			(struct store_value[]){store_int(key), store_int(key), store_str(label)});
	return key;
}

/* As the process's own document calls it, where that shows the frame which tells two call sites apart. */
static void add_site_name(struct taking *taking, uint32_t site, struct strbuf *out)
{
	const struct findings *found = taking->digest.found;
	const char *name = found == NULL ? NULL : site_name(&found->names, taking->replay, site);

	if (name != NULL)
		strbuf_add_str(out, name);
	else
		(void)site_line(taking->replay, site, out);
}

static int64_t add_stack(struct taking *taking, uint32_t site)
{
	const uint64_t *known = map_get(&taking->sites, (struct map_key){site, 0});
	struct strbuf content = {0}, loose = {0}, label = {0};
	const struct stack_line *lines;
	uint32_t count, i;
	int64_t key;

	if (known != NULL)
		return (int64_t)*known;
	add_site_name(taking, site, &label);
	lines = replay_stack_lines(taking->replay, site, &count);
	for (i = 0; lines != NULL && i < count; i++) {
		add_content(&lines[i], true, &content);
		add_content(&lines[i], false, &loose);
	}
	key = key_of(&content);
	if (is_new(taking, &taking->stacks, key)) {
		add_row(taking, STORE_stacks,
			(struct store_value[]){store_int(key), store_int(key_of(&loose)),
					       store_text(strbuf_str(&label), label.length)});
		for (i = 0; lines != NULL && i < count; i++)
			add_frame(taking, key, i, &lines[i]);
	}
	if (map_put(&taking->sites, (struct map_key){site, 0}, (uint64_t)key) < 0)
		taking->out->failed = true;
	strbuf_fini(&content);
	strbuf_fini(&loose);
	strbuf_fini(&label);
	return key;
}

/* ---- places ---- */

enum place_column {
	PLACE_VERDICT = 5,
	PLACE_PEAK_BYTES,
	PLACE_PEAK_BLOCKS,
	PLACE_END_BYTES,
	PLACE_END_BLOCKS,
	PLACE_RATE,
};

/* The row of a place; the row is made if there is none. SIZE_MAX without memory. */
static size_t place_row(struct taking *taking, const struct taken_place *place)
{
	int64_t stack =
		place->site != 0 ? add_stack(taking, place->site) : add_label(taking, place->label);
	struct map_key key = {(uint64_t)stack, (uint64_t)place->device << 8 | place->pool};
	const uint64_t *known = map_get(&taking->places, key);
	size_t row = taking->out->tables[STORE_places].count;
	char device[16];

	if (known != NULL)
		return (size_t)*known;
	project_device_text(place->device, device);
	add_row(taking, STORE_places,
		(struct store_value[]){store_int(taking->run), store_int(taking->process),
				       store_str(device), store_str(pool_event_type(place->pool)),
				       store_int(stack), store_str(""), store_int(0), store_int(0),
				       store_int(0), store_int(0), store_real(0)});
	if (taking->out->failed || map_put(&taking->places, key, row) < 0) {
		taking->out->failed = true;
		return SIZE_MAX;
	}
	return row;
}

static void add_to(struct taking *taking, size_t row, enum place_column column, uint64_t number)
{
	if (row != SIZE_MAX)
		store_rows_at(taking->out, STORE_places, row, column)->number += (int64_t)number;
}

/* What blocks of this size are called where no stack was recorded. */
static void add_size_label(uint8_t size_class, bool outside, struct strbuf *out)
{
	size_class_words(size_class, !outside, out);
}

static uint8_t class_of(uint64_t bytes)
{
	uint8_t class = 0;

	for (; bytes > 0; bytes >>= 1)
		class ++;
	return class;
}

static bool has_pool(const struct taking *taking, uint8_t pool, uint32_t device)
{
	size_t i;

	for (i = 0; i < taking->digest.pool_count; i++) {
		if (taking->digest.pools[i].pool == pool &&
		    taking->digest.pools[i].device == device)
			return true;
	}
	return false;
}

/* What each owner held at the peak of a pool. */
static void take_owners(struct taking *taking, const struct peak *peak)
{
	struct map sums = {0};
	const struct map_slot *slot;
	size_t i, cursor = 0;
	char device[16];

	for (i = 0; i < peak->place_count; i++) {
		const struct peak_place *place = &peak->places[i];
		uint64_t *sum;

		if (place->owner == 0)
			continue;
		sum = map_get(&sums, (struct map_key){place->owner, 0});
		if (sum != NULL)
			*sum += place->bytes;
		else if (map_put(&sums, (struct map_key){place->owner, 0}, place->bytes) < 0)
			taking->out->failed = true;
	}
	project_device_text(peak->device, device);
	while ((slot = map_next(&sums, &cursor)) != NULL)
		add_row(taking, STORE_owners,
			(struct store_value[]){
				store_int(taking->run), store_int(taking->process),
				store_str(device), store_str(pool_event_type(peak->pool)),
				store_str(replay_owner_text(taking->replay, (uint32_t)slot->key.a)),
				store_u64(slot->value)});
	map_fini(&sums);
}

static void take_peaks(struct taking *taking)
{
	struct peaks peaks = {0};
	size_t i, k;

	if (peaks_find(taking->report->analyses, taking->replay, PEAK_PLACES, &peaks) < 0)
		taking->out->failed = true;
	for (i = 0; i < peaks.count; i++) {
		const struct peak *peak = &peaks.all[i];

		if (!has_pool(taking, peak->pool, peak->device))
			continue;
		take_owners(taking, peak);
		for (k = 0; k < peak->place_count; k++) {
			const struct peak_place *place = &peak->places[k];
			struct strbuf label = {0};
			struct taken_place taken = {.pool = peak->pool, .device = peak->device};
			size_t row;

			if (k >= PLACES_MOST)
				strbuf_add_str(&label, "further places");
			else if (place->site == 0 || place->outside)
				add_size_label(place->size_class, place->outside, &label);
			else
				taken.site = place->site;
			taken.label = strbuf_str(&label);
			row = place_row(taking, &taken);
			add_to(taking, row, PLACE_PEAK_BYTES, place->bytes);
			add_to(taking, row, PLACE_PEAK_BLOCKS, place->blocks);
			strbuf_fini(&label);
		}
	}
	peaks_fini(&peaks);
}

static void take_ends(struct taking *taking)
{
	struct alive_choice choice = report_held_choice(&taking->report->shown);
	struct alive alive = {0};
	size_t i, row;

	if (alive_find(taking->replay, &choice, &alive) < 0)
		taking->out->failed = true;
	for (i = 0; i < alive.group_count; i++) {
		const struct block *block = alive.groups[i].first;
		const struct context *context = replay_context(taking->replay, block->context);
		struct taken_place taken = {.pool = context->pool, .device = context->device};
		struct strbuf label = {0};

		if (!has_pool(taking, taken.pool, taken.device))
			continue;
		if (i >= PLACES_MOST)
			strbuf_add_str(&label, "further places");
		else if (!block->outside_window)
			taken.site = site_of(taking->replay, block->stack);
		if (taken.site == 0 && label.length == 0)
			add_size_label(class_of(block->size_bytes), block->outside_window, &label);
		taken.label = strbuf_str(&label);
		row = place_row(taking, &taken);
		add_to(taking, row, PLACE_END_BYTES, alive.groups[i].bytes);
		add_to(taking, row, PLACE_END_BLOCKS, alive.groups[i].blocks);
		strbuf_fini(&label);
	}
	alive_fini(&alive);
}

/* Verdicts; of several judged places that are one here the worst counts, and rates of those that grow add up. */
static void take_verdicts(struct taking *taking)
{
	struct leaks_findings *findings = leaks_findings(taking->report->analyses, taking->replay);
	size_t i, row;

	for (i = 0; findings != NULL && i < findings->place_count; i++) {
		const struct leaks_place *place = &findings->places[i];
		struct taken_place taken = {.pool = place->pool, .device = place->device};
		struct strbuf label = {0};
		struct store_value *values;

		if (!has_pool(taking, taken.pool, taken.device) ||
		    (i >= PLACES_MOST && place->verdict == GROWTH_KEPT))
			continue;
		taken.site = site_of(taking->replay, place->stack);
		if (place->by_handles)
			strbuf_add_str(&label, "memory by handles");
		else if (place->call_sites != 0)
			strbuf_add_str(&label, "further places");
		else if (taken.site == 0)
			add_size_label(class_of(place->size_max), false, &label);
		taken.label = strbuf_str(&label);
		row = place_row(taking, &taken);
		strbuf_fini(&label);
		if (row == SIZE_MAX)
			break;
		values = store_rows_at(taking->out, STORE_places, row, 0);
		/* Leaks come first, then suspects. */
		if (values[PLACE_VERDICT].bytes == 0)
			values[PLACE_VERDICT] = store_str(verdict_word(place->verdict));
		if (place->verdict != GROWTH_KEPT)
			values[PLACE_RATE].real += place->bytes_per_step;
	}
	leaks_findings_free(findings);
}

/* ---- the rest ---- */

static void take_run(struct taking *taking, const struct store_label *label)
{
	const struct trace_header *h = run_header(replay_run(taking->replay));
	const char *at = label->tags == NULL ? "" : label->tags;

	add_row(taking, STORE_runs,
		(struct store_value[]){store_int(taking->run), store_str(label->run),
				       store_str(label->job), store_str(label->code),
				       store_u64(h->realtime_ns)});
	while (*at != '\0') {
		size_t length = strcspn(at, ",");

		if (length > 0)
			add_row(taking, STORE_tags,
				(struct store_value[]){store_int(taking->run),
						       store_text(at, length)});
		at += length + (at[length] == ',');
	}
}

static struct store_value rank_value(int64_t rank)
{
	return rank < 0 ? (struct store_value){.type = STORE_NULL} : store_int(rank);
}

static void take_process(struct taking *taking, bool running)
{
	const struct run *run = replay_run(taking->replay);
	const struct digest *digest = &taking->digest;
	const char *signal = run_signal(run);
	char device[16] = "";
	size_t i;

	for (i = 0; i < digest->pool_count && device[0] == '\0'; i++) {
		if (digest->pools[i].device < DEVICE_HOST)
			project_device_text(digest->pools[i].device, device);
	}
	add_row(taking, STORE_processes,
		(struct store_value[]){
			store_int(taking->run), store_int(taking->process),
			rank_value(digest->rank), store_str(run_identity(run, "host")),
			store_int(digest->pid), store_str(device), store_str(digest->name),
			store_str(run_identity(run, "command")),
			store_str(taking->report->trace_path),
			store_u64(run_header(run)->realtime_ns), store_real(digest->seconds),
			store_u64(digest->steps), store_u64(digest->events),
			store_str(running	   ? STORE_RUNNING
				  : signal != NULL ? signal
						   : "ended"),
			store_str(process_verdict_word(digest->verdict)),
			store_int(digest->damaged), rank_value(digest->local_rank),
			store_str(digest->dry)});
}

static void take_pools(struct taking *taking)
{
	size_t i;

	for (i = 0; i < taking->digest.pool_count; i++) {
		const struct digest_pool *pool = &taking->digest.pools[i];
		char device[16];

		project_device_text(pool->device, device);
		add_row(taking, STORE_pools,
			(struct store_value[]){
				store_int(taking->run), store_int(taking->process),
				store_str(device), store_str(pool_event_type(pool->pool)),
				store_u64(pool->peak_bytes), store_u64(pool->end_bytes),
				store_u64(pool->end_blocks),
				pool->judged ? store_real(pool->growth_bytes)
					     : (struct store_value){.type = STORE_NULL},
				store_str(pool->judged ? pool->trend : ""),
				store_u64(pool->requested_peak_bytes)});
	}
}

static void take_timeline(struct taking *taking)
{
	const struct timeline *timeline = analyses_timeline(taking->report->analyses);
	const struct run *run = replay_run(taking->replay);
	size_t i, k;
	char device[16];

	for (i = 0; timeline != NULL && i < timeline->pool_count; i++) {
		const struct timeline_pool *pool = timeline->pools[i];

		if (!has_pool(taking, pool->pool, pool->device))
			continue;
		project_device_text(pool->device, device);
		for (k = 0; k < pool->count; k++)
			add_row(taking, STORE_timeline,
				(struct store_value[]){
					store_int(taking->run), store_int(taking->process),
					store_str(device), store_str(pool_event_type(pool->pool)),
					store_int((int64_t)k),
					store_u64(run_wall_ns(run, timeline->begin_ns +
									   k * timeline->span_ns)),
					store_u64(pool->most[k])});
	}
	for (i = 0; timeline != NULL && i < timeline->snapshot_count; i++) {
		const struct timeline_snapshot *shot = &timeline->snapshots[i];

		project_device_text(shot->device, device);
		add_row(taking, STORE_snapshots,
			(struct store_value[]){
				store_int(taking->run), store_int(taking->process),
				store_int((int64_t)i + 1), store_u64(shot->time_ns),
				store_str(device), store_str(shot->name),
				store_known(shot->bytes[0]), store_known(shot->bytes[1]),
				store_known(shot->bytes[2]), store_known(shot->bytes[3])});
	}
}

static void take_ooms(struct taking *taking)
{
	const struct findings *found = taking->digest.found;
	size_t count = found == NULL ? 0 : FINDINGS_COUNT(found, oom), i;
	char device[16];

	for (i = 0; i < count; i++) {
		const struct finding_oom *oom = &FINDINGS(found, oom)[i];
		struct strbuf sentence = {0};

		project_device_text(oom->device, device);
		oom_headline(oom, &sentence);
		strbuf_add_str(&sentence, ": ");
		oom_why(found, oom, &sentence);
		add_row(taking, STORE_ooms,
			(struct store_value[]){
				store_int(taking->run), store_int(taking->process),
				store_u64(oom->number), store_u64(oom->time_ns), store_str(device),
				store_str(pool_event_type(oom->pool)),
				store_u64(oom->requested_bytes), store_known(oom->free_bytes),
				store_str(oom_cause_text(oom->cause)),
				store_str(strbuf_str(&sentence))});
		strbuf_fini(&sentence);
	}
}

static void take_losses(struct taking *taking)
{
	const struct run *run = replay_run(taking->replay);
	int cause;

	for (cause = 0; cause < LOSS_END; cause++) {
		if (run_loss(run, cause) > 0)
			add_row(taking, STORE_losses,
				(struct store_value[]){store_int(taking->run),
						       store_int(taking->process),
						       store_str(loss_name(cause)),
						       store_u64(run_loss(run, cause))});
	}
}

int64_t store_process_key(const struct run *run, const char *dump_path)
{
	const struct trace_header *h = run_header(run);

	if (dump_path != NULL)
		return store_key(dump_path, strlen(dump_path)) ^ (int64_t)h->pid;
	return store_key(h->run_id, sizeof(h->run_id));
}

void store_take(struct store_rows *out, const struct report *report,
		const struct store_label *label)
{
	struct taking taking = {.out = out, .report = report, .replay = report->replay};

	taking.run = store_key(label->run, strlen(label->run));
	taking.process = store_process_key(replay_run(report->replay),
					   report->from_dump ? report->trace_path : NULL);
	digest_take(&taking.digest, report);
	take_run(&taking, label);
	take_process(&taking, label->running);
	take_pools(&taking);
	take_peaks(&taking);
	take_ends(&taking);
	take_verdicts(&taking);
	take_timeline(&taking);
	take_ooms(&taking);
	take_losses(&taking);
	digest_fini(&taking.digest);
	map_fini(&taking.places);
	map_fini(&taking.stacks);
	map_fini(&taking.frames);
	map_fini(&taking.sites);
}
