/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When is a record final for a live reader? A writer says busy before it reads the clock and idle after the commit, with plain
 * stores. The engine reads the clock, then makes every writing thread pass a memory barrier (membarrier(2)), then reads what is committed: a
 * record older than the clock reading is either committed, or its writer is seen busy. Processes that could not register for
 * the barrier are read when they have ended; their trace is whole all the same.
 */
#include "engine/follow.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "base/bus.h"
#include "base/clock.h"
#include "base/vendors.h"
#include "engine/barrier.h"
#include "engine/cards.h"
#include "engine/host_question.h"
#include "engine/keeper_question.h"
#include "engine/oom_watch.h"
#include "engine/sampler_process.h"

/* Between two rounds: short while events come, longer while nothing happens. */
#define PAUSE_BUSY_MS 10
#define PAUSE_IDLE_MS 50

/* Processes on one device, for what others use of it. */
#define LISTED_MAX 256u

struct follow {
	const struct follow_ops *ops;
	struct runs runs;
	struct sampler sampler;
	bool sampler_tried;
	/* Of devices of the first vendor; total_bytes 0: none yet. */
	struct sampler_record latest[PIPELINE_DEVICES];
	/* The processes that `latest` counts, of all its devices. */
	struct sampler_record counted[LISTED_MAX];
	size_t counted_count;
	/* Processes on the device whose record comes next. */
	struct sampler_record listed[LISTED_MAX];
	size_t listed_count;
	struct cards cards;
	uint64_t hosts_sampled_ns;
	struct host_table table;
	struct host_question question;
};

/* What all processes but this one use of a device. */
static void sample_others(const struct follow *follow, struct pipeline *pipeline,
			  const struct sampler_record *device, uint64_t now)
{
	uint32_t own = run_header(pipeline->run)->pid;
	uint64_t bytes = 0;
	uint32_t processes = 0;
	size_t i;

	for (i = 0; i < follow->listed_count; i++) {
		if (follow->listed[i].pid == own)
			continue;
		bytes += follow->listed[i].bytes;
		processes++;
	}
	pipeline_sample_others(pipeline, device, processes, bytes, now);
}

/* Keeps the figures of a device, and of the processes on it, for processes that come later. */
static void keep_latest(struct follow *follow, const struct sampler_record *device)
{
	size_t i, kept = 0;

	if (device->device >= PIPELINE_DEVICES || device->vendor != VENDOR_FIRST)
		return;
	follow->latest[device->device] = *device;
	for (i = 0; i < follow->counted_count; i++) {
		if (follow->counted[i].device != device->device)
			follow->counted[kept++] = follow->counted[i];
	}
	for (i = 0; i < follow->listed_count && kept < LISTED_MAX; i++)
		follow->counted[kept++] = follow->listed[i];
	follow->counted_count = kept;
}

static void take_sample(void *arg, const struct sampler_record *record)
{
	struct follow *follow = arg;
	uint64_t now = clock_monotonic_ns();
	size_t i;

	if (record->pid == 0)
		keep_latest(follow, record);
	cards_take(&follow->cards, record);
	for (i = 0; i < follow->runs.count; i++) {
		struct pipeline *pipeline = &follow->runs.items[i]->pipeline;
		struct sampler_record own;

		if (follow->runs.items[i]->done || pipeline->finished ||
		    !cards_number(pipeline->run, record, &own))
			continue;
		if (own.pid == 0 && own.listed)
			sample_others(follow, pipeline, &own, now);
		pipeline_sample(pipeline, &own, now);
	}
	if (record->pid == 0)
		follow->listed_count = 0;
	else if (follow->listed_count < LISTED_MAX)
		follow->listed[follow->listed_count++] = *record;
}

/* A device without what the latest round says that this process has on it. */
static struct sampler_record without(const struct follow *follow, uint32_t device, uint32_t pid)
{
	struct sampler_record record = follow->latest[device];
	size_t i;

	for (i = 0; i < follow->counted_count; i++) {
		const struct sampler_record *own = &follow->counted[i];

		if (own->pid == pid && own->device == device)
			record.bytes -= own->bytes < record.bytes ? own->bytes : record.bytes;
	}
	return record;
}

/*
 * What a new process starts with: the devices as they were, and nothing of them its own. The process may have blocks already: some
 * are older than its trace, some came since. They are records of the trace and count there, so the device comes without them.
 */
static void sample_new(struct follow *follow)
{
	size_t i, k;

	for (i = 0; i < follow->runs.count; i++) {
		struct session_run *item = follow->runs.items[i];
		struct sampler_record own = {0};
		uint64_t start;

		if (item->done || item->sampled)
			continue;
		item->sampled = true;
		own.pid = run_header(item->pipeline.run)->pid;
		start = run_header(item->pipeline.run)->monotonic_ns;
		for (k = 0; k < PIPELINE_DEVICES; k++) {
			struct sampler_record device = without(follow, (uint32_t)k, own.pid);

			if (device.total_bytes == 0)
				continue;
			own.device = (uint32_t)k;
			pipeline_sample(&item->pipeline, &own, start);
			pipeline_sample(&item->pipeline, &device, start);
		}
		own.device = DEVICE_HOST;
		own.bytes = process_resident_bytes(item->process.pid);
		if (own.bytes != UINT64_MAX && own.bytes != 0)
			pipeline_sample(&item->pipeline, &own, start);
	}
}

/* Memory of the host, sampled as often as the driver's figures. */
static void sample_hosts(struct follow *follow)
{
	uint64_t now = clock_monotonic_ns();
	size_t i;

	if (now - follow->hosts_sampled_ns < SAMPLER_INTERVAL_MS * UINT64_C(1000000))
		return;
	follow->hosts_sampled_ns = now;
	host_table_look(&follow->table, now);
	for (i = 0; i < follow->runs.count; i++) {
		struct session_run *item = follow->runs.items[i];
		struct sampler_record record = {.device = DEVICE_HOST};

		if (item->done || item->pipeline.finished)
			continue;
		record.pid = run_header(item->pipeline.run)->pid;
		record.bytes = process_resident_bytes(item->process.pid);
		if (record.bytes != UINT64_MAX && record.bytes != 0)
			pipeline_sample(&item->pipeline, &record, now);
		host_family_look(&item->host, &follow->table, item->pipeline.run, item->process.pid,
				 now);
	}
	host_question_look(&follow->question, &follow->runs, now);
}

/* The driver is asked once a process uses a device. */
static void sample(struct follow *follow)
{
	size_t i;

	sample_hosts(follow);

	for (i = 0;
	     i < follow->runs.count && !follow->sampler_tried && follow->ops->sampler != NULL;
	     i++) {
		if (!follow->runs.items[i]->done &&
		    pipeline_uses_device(&follow->runs.items[i]->pipeline)) {
			follow->sampler_tried = true;
			sampler_start(&follow->sampler, follow->ops->sampler);
			log_debug(&follow->runs.items[i]->pipeline.log,
				  "asks the driver for its figures, by %s", follow->ops->sampler);
		}
	}
	if (sampler_read(&follow->sampler, take_sample, follow))
		cards_round_ends(&follow->cards);
}

/* What ran out of memory is told at once. Returns true when there is more to come soon. */
static bool watch_ooms(struct follow *follow, struct pipeline *pipeline, uint64_t now)
{
	const struct runs_ops *ops = &follow->runs.ops;
	struct strbuf text = {0};
	bool more = oom_watch_settle(pipeline, now);

	oom_watch_say(pipeline, &text);
	if (text.length > 0 && ops->out_of_memory != NULL)
		ops->out_of_memory(ops->arg, pipeline, strbuf_str(&text));
	strbuf_fini(&text);
	oom_watch_write(pipeline);
	return more;
}

/* A device that will be full soon is announced while there is time to do something. */
static void watch_forecast(struct follow *follow, struct pipeline *pipeline, uint64_t now)
{
	const struct runs_ops *ops = &follow->runs.ops;
	struct finding_forecast forecast;
	struct strbuf text = {0};

	if (ops->forecast == NULL || !pipeline->live || pipeline->finished ||
	    pipeline->pass.replay == NULL)
		return;
	if (forecast_watch(&pipeline->forecast, &pipeline->pass.analyses, pipeline->pass.replay,
			   now, &forecast, &text)) {
		log_warn(&pipeline->log, "%s", strbuf_str(&text));
		ops->forecast(ops->arg, pipeline, &forecast, strbuf_str(&text));
	}
	strbuf_fini(&text);
}

/* False: a writer is in the middle of a record, so not everything that is asked for has been read. */
static bool answer(struct follow *follow, struct session_run *item)
{
	const struct runs_ops *ops = &follow->runs.ops;
	struct pipeline_teller teller = {.tell = ops->tell,
					 .told = ops->told,
					 .incomplete = ops->incomplete,
					 .arg = ops->arg};

	if (!pipeline_sync(&item->pipeline))
		return false;
	if (item->request_kind == TRACE_REQUEST_END || item->request_kind == TRACE_REQUEST_COMPLETE)
		host_family_shares(&item->host, item->pipeline.run, item->process.pid,
				   clock_monotonic_ns());
	teller.ends = item->request_kind == TRACE_REQUEST_END;
	if (teller.ends || item->request_kind == TRACE_REQUEST_COMPLETE)
		pipeline_complete(&item->pipeline, &teller);
	if (item->request_kind == TRACE_REQUEST_JUDGE)
		keeper_question(&item->pipeline);
	pipeline_answer(&item->pipeline, item->request);
	return true;
}

/* One round over all processes. Returns how many events came, and counts those that run on. */
static uint64_t follow_round(struct follow *follow)
{
	struct runs *runs = &follow->runs;
	uint64_t events = 0, now;
	uint32_t kind;
	bool barrier;
	size_t i;

	runs->result.still_alive = 0;
	/* Before anything of it is read, also if it is dead already. */
	sample_new(follow);
	/* Who is dead is asked before the clock is read: a dead one's trace is then read to its very end. */
	for (i = 0; i < runs->count; i++) {
		struct session_run *item = runs->items[i];

		if (item->done)
			continue;
		item->request = pipeline_request(&item->pipeline, &kind);
		item->request_kind = kind;
		if (kind != TRACE_REQUEST_FINISH && runs_is_alive(item, true))
			continue;
		host_family_end(&item->host, item->pipeline.run, clock_monotonic_ns());
		cards_end(&follow->cards, item->pipeline.run, clock_monotonic_ns());
		if (!runs_finish(runs, item))
			return events;
	}
	sample(follow);
	now = clock_monotonic_ns();
	barrier = barrier_all();
	for (i = 0; i < runs->count; i++) {
		struct session_run *item = runs->items[i];
		struct pipeline *pipeline = &item->pipeline;

		if (item->done)
			continue;
		runs->result.still_alive++;
		events += pipeline_step(pipeline,
					barrier && run_has_barrier(pipeline->run) ? now : 0);
		/* Figures of a device that is used from now on may have come before that was known. */
		if (pipeline_has_grown(pipeline) ||
		    (!item->uses_device && pipeline_uses_device(pipeline))) {
			item->uses_device = item->uses_device || pipeline_uses_device(pipeline);
			sampler_ask(&follow->sampler);
		}
		events += watch_ooms(follow, pipeline, now);
		watch_forecast(follow, pipeline, now);
		keeper_watch(pipeline, now);
		if (item->request != 0 && !answer(follow, item))
			events++; /* come again soon */
		if (runs->ops.living != NULL)
			runs->ops.living(runs->ops.arg, pipeline);
	}
	runs_keep_limit(runs);
	return events;
}

struct follow *follow_new(struct session_place *place, const struct follow_ops *ops,
			  struct mscope_error *err)
{
	struct follow *follow = calloc(1, sizeof(*follow));
	int r;

	if (follow == NULL) {
		(void)error_set(err, -ENOMEM, "no memory");
		return NULL;
	}
	r = session_lock(place);
	if (r < 0) {
		(void)error_set(err, r, "cannot lock %s: %s", place->directory,
				mscope_status_str(r));
		free(follow);
		return NULL;
	}
	*follow = (struct follow){.ops = ops, .sampler = {.fd = -1, .ask_fd = -1}};
	if (ops->sample_first && ops->sampler != NULL) {
		follow->sampler_tried = true;
		sampler_start(&follow->sampler, ops->sampler);
		(void)sampler_wait(&follow->sampler, FOLLOW_FIRST_SAMPLE_MS, take_sample, follow);
	}
	bus_guard(); /* a process can cut the trace that we have mapped */
	follow->question.place = place;
	runs_init(&follow->runs, place, true, &ops->runs);
	return follow;
}

void follow_free(struct follow *follow)
{
	if (follow == NULL)
		return;
	runs_fini(&follow->runs);
	sampler_stop(&follow->sampler);
	host_table_fini(&follow->table);
	host_question_fini(&follow->question);
	free(follow);
}

int follow_launch(struct follow *follow, struct runs_result *out, struct mscope_error *err)
{
	const struct follow_ops *ops = follow->ops;
	struct runs_result *result = &follow->runs.result;
	bool ended = false;
	int r;

	for (;;) {
		enum follow_news news;
		uint64_t events;

		r = runs_scan(&follow->runs);
		events = r < 0 ? 0 : follow_round(follow);
		if (r < 0 || result->interrupted || ended)
			break;
		news = ops->wait(ops->runs.arg, events > 0 ? PAUSE_BUSY_MS : PAUSE_IDLE_MS);
		if (news == FOLLOW_INTERRUPTED) {
			result->interrupted = true;
			break;
		}
		/* One more round after the end: its last events, and traces that appeared meanwhile. */
		ended = news == FOLLOW_ENDED;
	}
	*out = *result;
	if (r < 0)
		return error_set(err, r, "the engine stopped: %s", mscope_status_str(r));
	return 0;
}

void follow_orphans(struct follow *follow, struct runs_result *out)
{
	struct runs_result *result = &follow->runs.result;

	*result = (struct runs_result){.still_alive = 1};
	while (result->still_alive > 0 && runs_scan(&follow->runs) == 0) {
		uint64_t events = follow_round(follow);
		struct timespec pause = {.tv_nsec = (events > 0 ? PAUSE_BUSY_MS : PAUSE_IDLE_MS) *
						    1000000L};

		if (result->still_alive > 0)
			(void)nanosleep(&pause, NULL);
	}
	*out = *result;
}
