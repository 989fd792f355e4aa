/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/advise_run.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"

int advise_run_row(void *arg, struct replay *replay, const struct row *row)
{
	struct advise_run *run = arg;

	return advise_record_row(&run->record, replay, row);
}

/* Events that came last are of the last moment. One that was put may be taken back by the next. */
static int note_moments(struct advise_run *run, size_t pool)
{
	struct advise_moments *of = &run->moments[pool];
	size_t events = run->histories.pools[pool].history.event_count;

	if (of->count > events)
		of->count = events;
	if (ARRAY_RESERVE(of->moments, of->room, events) != 0)
		return -ENOMEM;
	while (of->count < events)
		of->moments[of->count++] = run->record.moment_count;
	return 0;
}

int advise_run_event(void *arg, struct replay *replay, const struct trace_event *event)
{
	struct advise_run *run = arg;
	int status = advise_record_event(&run->record, replay, event);

	if (status == 0)
		status = pool_histories_take(&run->histories, replay, event);
	if (status == 0)
		status = ARRAY_RESERVE(run->moments, run->room, run->histories.count);
	while (status == 0 && run->count < run->histories.count)
		run->moments[run->count++] = (struct advise_moments){0};
	for (size_t i = 0; i < run->count && status == 0; i++)
		status = note_moments(run, i);
	return status;
}

int advise_run_end(struct advise_run *run, struct replay *replay)
{
	int status = advise_record_end(&run->record, replay);

	return status != 0 ? status : pool_histories_end(&run->histories, replay);
}

void advise_run_fini(struct advise_run *run)
{
	for (size_t i = 0; i < run->count; i++)
		free(run->moments[i].moments);
	free(run->moments);
	pool_histories_fini(&run->histories);
	advise_record_fini(&run->record);
	*run = (struct advise_run){0};
}

const char *advise_run_lacks(const struct advise_run *run, const struct replay *replay)
{
	if (replay_totals(replay)->dropped_events > 0)
		return "its oldest part was dropped to stay within --max-disk";
	if (run->record.call_count == 0)
		return "it has no calls of modules; record it with --call-stack=python --analysis=decompose";
	if (run->record.node_count == 0)
		return "nothing is trained in it, or PyTorch is older than 2.1";
	return NULL;
}

bool advise_run_is_for(const struct advise_run *run, size_t pool)
{
	const struct advise_record *record = &run->record;
	bool devices = false;

	for (size_t i = 0; i < record->pool_count; i++)
		devices |= record->pools[i].device != DEVICE_HOST && record->pools[i].peak > 0;
	return record->pools[pool].peak > 0 &&
	       (record->pools[pool].device != DEVICE_HOST) == devices;
}

bool advise_run_history(const struct advise_run *run, size_t pool, struct advise_history *out)
{
	const struct advise_pool *of = &run->record.pools[pool];
	const struct pool_history *history =
		of->device == DEVICE_HOST ? NULL : pool_histories_of(&run->histories, of->device);

	if (history == NULL)
		return false;
	for (size_t i = 0; i < run->histories.count; i++)
		if (&run->histories.pools[i].history == history)
			*out = (struct advise_history){history, run->moments[i].moments};
	return true;
}
