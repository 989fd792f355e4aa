/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/usages.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/word_list.h"
#include "replay/facts.h"
#include "replay/state.h"
#include "trace/settings.h"

void usages_fini(struct replay *replay)
{
	size_t i;

	for (i = 0; i < replay->usages.count; i++)
		driver_pages_fini(&replay->usages.all[i].pages);
	free(replay->usages.all);
	free(replay->usages.drivers);
}

bool pool_is_driver(uint8_t pool)
{
	return pool == POOL_hal || pool == POOL_host_pinned || pool == POOL_host ||
	       pool == POOL_UNKNOWN;
}

bool replay_choice_takes(const struct replay_choice *choice, uint8_t vendor, uint32_t device,
			 uint8_t pool)
{
	if (!choice->some || device == DEVICE_UNKNOWN)
		return true;
	if (device == DEVICE_HOST && pool == POOL_host_pinned)
		return settings_take_pinned(choice->npus, choice->gpus, choice->host);
	if (device == DEVICE_HOST)
		return pool != POOL_host || choice->host;
	return settings_take_device(choice->npus, choice->gpus, vendor, device);
}

/* Each usage knows the figures of its device, and these know the usage of what the driver gave. */
static void join_drivers(struct usages *usages)
{
	size_t i, k;

	for (i = 0; i < usages->count; i++) {
		struct usage *usage = &usages->all[i];

		for (k = 0; k < usages->driver_count; k++) {
			if (usages->drivers[k].device != usage->device)
				continue;
			usage->driver = (uint32_t)k + 1;
			if (usage->pool == POOL_hal)
				usages->drivers[k].hal = (uint32_t)i + 1;
		}
	}
}

void usages_figures(const struct usages *usages, const struct usage *usage, uint64_t *out_process,
		    uint64_t *out_device)
{
	const struct driver_usage *driver;
	uint64_t held, more;

	*out_process = *out_device = UINT64_MAX;
	if (usage->driver == 0)
		return;
	driver = &usages->drivers[usage->driver - 1];
	*out_process = driver->process_bytes;
	*out_device = driver->device_bytes;
	if (driver->device == DEVICE_HOST || driver->process_bytes == UINT64_MAX)
		return;
	held = driver->hal == 0 ? 0 : usages->all[driver->hal - 1].live_bytes;
	if (usage->reserved_bytes != UINT64_MAX && usage->reserved_bytes > held)
		held = usage->reserved_bytes;
	more = held > driver->process_bytes ? held - driver->process_bytes : 0;
	*out_process += more;
	if (driver->device_bytes != UINT64_MAX)
		*out_device += more;
}

void usages_take_gpu(struct replay *replay, uint32_t device)
{
	struct usages *usages = &replay->usages;
	size_t i, kept = 0, count;
	const struct context *contexts = replay_contexts(replay, &count);

	if (device >= DEVICE_HOST || usages->gpus)
		return;
	usages->gpus = true;
	for (i = 0; i < count; i++) {
		if (contexts[i].vendor == VENDOR_ASCEND && contexts[i].device < DEVICE_HOST)
			return;
	}
	if (replay->loaded.time_ns != 0)
		return; /* they are behind a checkpoint, and of GPUs */
	for (i = 0; i < usages->driver_count; i++) {
		if (usages->drivers[i].device >= DEVICE_HOST)
			usages->drivers[kept++] = usages->drivers[i];
	}
	usages->driver_count = kept;
	for (i = 0; i < usages->count; i++)
		usages->all[i].driver = 0;
	join_drivers(usages);
}

/* Nothing was told of the usage yet, or not whose it is. */
static void choose_usage(struct replay *replay, struct usage *usage, uint8_t vendor)
{
	usage->vendor = vendor;
	usage->hidden =
		!replay_choice_takes(&replay->setup.choice, vendor, usage->device, usage->pool);
	replay->usages.any_hidden = replay->usages.any_hidden || usage->hidden;
}

/* The entry of a pool and device, new or known; NULL: no memory. A vendor that is unknown may be told later. */
static struct usage *entry_at(struct replay *replay, uint8_t vendor, uint8_t pool, uint32_t device)
{
	struct usages *usages = &replay->usages;
	size_t i;

	for (i = 0; i < usages->count; i++) {
		if (usages->all[i].pool == pool && usages->all[i].device == device) {
			if (usages->all[i].vendor == VENDOR_UNKNOWN)
				choose_usage(replay, &usages->all[i], vendor);
			return &usages->all[i];
		}
	}
	if (ARRAY_RESERVE(usages->all, usages->room, i + 1) < 0)
		return NULL;
	/* The driver's memory is a total itself; a framework's pool has one, which is 0 until it says more. */
	usages->all[i] = (struct usage){.pool = pool,
					.device = device,
					.reserved_bytes = pool_is_driver(pool) ? UINT64_MAX : 0};
	choose_usage(replay, &usages->all[i], vendor);
	usages->count++;
	join_drivers(usages);
	return &usages->all[i];
}

struct usage *usages_at(struct replay *replay, uint32_t context)
{
	struct context_use *use = &replay->definitions.uses[context];
	struct usages *usages = &replay->usages;
	const struct context *of = &replay->definitions.contexts[context];
	struct usage *usage = entry_at(replay, of->vendor, of->pool, of->device);

	if (usage != NULL)
		use->usage = (uint32_t)(usage - usages->all) + 1;
	return usage;
}

bool usages_hide_row(const struct replay *replay, const struct row *row)
{
	return replay->usages.any_hidden && (row->block != NULL || row->oom != NULL) &&
	       !replay_choice_takes(&replay->setup.choice, row->context->vendor,
				    row->context->device, row->context->pool);
}

void usages_choose(struct replay *replay, const struct event_settings *settings)
{
	struct replay_choice *all = &replay->setup.choice;
	const struct block *block;
	size_t cursor = 0, i;

	/* The first choice takes the place of the session's; of several windows each has its devices. */
	if (replay->windows.settings_count == 1)
		*all = (struct replay_choice){.some = true};
	all->host = all->host || settings->host != 0;
	all->npus |= SETTINGS_NPUS(settings);
	all->gpus |= SETTINGS_GPUS(settings);
	for (i = 0; i < replay->usages.count; i++) {
		struct usage *usage = &replay->usages.all[i];

		if (!usage->hidden ||
		    !replay_choice_takes(all, usage->vendor, usage->device, usage->pool))
			continue;
		usage->hidden = false;
		for (cursor = 0; (block = replay_next_observed(replay, &cursor)) != NULL;) {
			if (replay_usage(replay, block) == usage)
				replay_notify_block(replay, BLOCK_ADDED, block, usage,
						    block->owner);
		}
	}
}

const struct driver_usage *usages_driver(const struct usages *usages, uint32_t device)
{
	size_t i;

	for (i = 0; i < usages->driver_count; i++) {
		if (usages->drivers[i].device == device)
			return &usages->drivers[i];
	}
	return NULL;
}

/* The pool had grown before the writer's latest allocation: later passes over the trace show it there. */
static void correct_latest(struct replay *replay, const struct trace_event *event,
			   uint64_t reserved_bytes)
{
	const struct writer *writer = writers_get(&replay->writers, event->writer);
	struct facts *facts = replay->setup.facts;
	struct fact *fact = writer == NULL || writer->latest == 0 || facts == NULL
				    ? NULL
				    : facts_at(facts, writer->latest);

	if (fact != NULL) {
		fact->reserved_bytes = reserved_bytes;
		facts->changed = true;
	}
}

/* The pool told what it has reserved. */
static void take_reserved(struct replay *replay, struct usage *usage, uint64_t reserved_bytes)
{
	uint64_t left = usage->reserved_bytes - usage->returned_bytes;

	if (reserved_bytes > left)
		holdings_take_growth(replay, usage, reserved_bytes - left);
	usage->returned_bytes = 0;
	usage->reserved_bytes = reserved_bytes;
	if (reserved_bytes > usage->peak_reserved_bytes && replay->ending.kind != END_STOP)
		usage->peak_reserved_bytes = reserved_bytes;
	/* A total may be told after the block that the pool grew for. */
	if (usage->live_bytes == usage->peak_bytes)
		usage->at_peak.reserved_bytes = usage_reserved(usage);
	holdings_note_pools(replay, usage);
}

int usages_take_pool_total(struct replay *replay, const struct trace_event *event)
{
	struct usage *usage = usages_of(replay, definitions_context(replay, event));
	struct event_pool_total total;

	if (usage == NULL)
		return -ENOMEM;
	event_pool_total_decode(event->words, &total);
	take_reserved(replay, usage, total.reserved_bytes);
	return 0;
}

int usages_take_pool_total_late(struct replay *replay, const struct trace_event *event)
{
	struct usage *usage = usages_of(replay, definitions_context(replay, event));
	struct event_pool_total_late total;

	if (usage == NULL)
		return -ENOMEM;
	event_pool_total_late_decode(event->words, &total);
	correct_latest(replay, event, total.reserved_bytes);
	take_reserved(replay, usage, total.reserved_bytes);
	return 0;
}

/* The figures of a device, new or known; NULL: no memory. */
static struct driver_usage *driver_at(struct usages *usages, uint32_t device)
{
	size_t i;

	for (i = 0; i < usages->driver_count; i++) {
		if (usages->drivers[i].device == device)
			return &usages->drivers[i];
	}
	if (ARRAY_RESERVE(usages->drivers, usages->driver_room, i + 1) < 0)
		return NULL;
	usages->drivers[i] = (struct driver_usage){.device = device,
						   .process_bytes = UINT64_MAX,
						   .device_bytes = UINT64_MAX,
						   .others_bytes = UINT64_MAX};
	usages->driver_count++;
	join_drivers(usages);
	return &usages->drivers[i];
}

int usages_take_usage_sample(struct replay *replay, const struct trace_event *event)
{
	struct event_usage_sample sample;
	struct driver_usage *driver;

	event_usage_sample_decode(event->words, &sample);
	driver = driver_at(&replay->usages, (uint32_t)sample.device);
	if (driver == NULL)
		return -ENOMEM;
	driver->process_bytes = sample.process_bytes;
	driver->device_bytes = sample.device_bytes;
	driver->total_bytes = sample.total_mib << 20;
	/* Behind stop() nothing counts. */
	if (replay->observer->sample != NULL && replay->ending.kind != END_STOP)
		replay->observer->sample(replay->observer_arg, replay, driver);
	return 0;
}

int usages_take_device_name(struct replay *replay, const struct trace_event *event)
{
	struct event_device_name said;
	struct driver_usage *driver;

	event_device_name_decode(event->words, &said);
	driver = driver_at(&replay->usages, (uint32_t)said.device);
	if (driver == NULL)
		return -ENOMEM;
	memcpy(driver->name, (uint64_t[]){said.name_1, said.name_2, said.name_3, said.name_4},
	       sizeof(driver->name) - 1);
	return 0;
}

int usages_take_host(struct replay *replay, const struct trace_event *event)
{
	struct event_host_process process = {.share_bytes = UINT64_MAX};

	if (event->type == EVENT_host_process)
		event_host_process_decode(event->words, &process);
	/* Behind stop() nothing counts, but what stop() asked for. */
	if (replay->observer->host != NULL &&
	    (replay->ending.kind != END_STOP || process.share_bytes != UINT64_MAX))
		replay->observer->host(replay->observer_arg, replay, event);
	return 0;
}

int usages_take_usage_others(struct replay *replay, const struct trace_event *event)
{
	struct event_usage_others others;
	struct driver_usage *driver;

	event_usage_others_decode(event->words, &others);
	driver = driver_at(&replay->usages, (uint32_t)others.device);
	if (driver == NULL)
		return -ENOMEM;
	/* The sample of the device follows. */
	driver->others_bytes = others.bytes;
	driver->others = others.processes;
	return 0;
}

int usages_take_driver_kept(struct replay *replay, const struct trace_event *event)
{
	struct event_driver_kept kept;
	struct driver_usage *driver;

	event_driver_kept_decode(event->words, &kept);
	usages_take_gpu(replay, (uint32_t)kept.device);
	driver = driver_at(&replay->usages, (uint32_t)kept.device);
	if (driver == NULL)
		return -ENOMEM;
	driver->pools_bytes = kept.pools_bytes;
	driver->graphs_bytes = kept.graphs_bytes;
	if (driver->hal != 0)
		holdings_note_level(replay, &replay->usages.all[driver->hal - 1]);
	return 0;
}

int usages_take_driver_cost(struct replay *replay, const struct trace_event *event)
{
	struct event_driver_cost cost;
	struct driver_usage *driver;

	event_driver_cost_decode(event->words, &cost);
	if (cost.kind == 0 || cost.kind >= COSTS)
		return 0;
	usages_take_gpu(replay, (uint32_t)cost.device);
	driver = driver_at(&replay->usages, (uint32_t)cost.device);
	if (driver == NULL)
		return -ENOMEM;
	driver->cost_bytes[cost.kind] += cost.bytes;
	driver->cost_ns[cost.kind] = event->time_ns;
	return 0;
}

/* ---- queries ---- */

const struct usage *replay_usages(const struct replay *replay, size_t *out_count)
{
	*out_count = replay->usages.count;
	return replay->usages.all;
}

bool replay_has_allocated(const struct replay *replay)
{
	size_t count, i;
	const struct usage *usages = replay_usages(replay, &count);

	for (i = 0; i < count; i++) {
		if (!usages[i].hidden && usages[i].allocations > 0)
			return true;
	}
	return false;
}

const struct usage *replay_usage(const struct replay *replay, const struct block *block)
{
	uint32_t usage = replay->definitions.uses[block->context].usage;

	return usage == 0 ? NULL : &replay->usages.all[usage - 1];
}

const struct driver_usage *replay_driver_usage(const struct replay *replay, uint32_t device)
{
	return usages_driver(&replay->usages, device);
}

/* ---- in a checkpoint ---- */

static void save_name(struct checkpoint *cp, const struct driver_usage *driver)
{
	uint64_t name[4];

	memcpy(name, driver->name, sizeof(name));
	BUILDER_PUT(&cp->builder, device_name, 0, .device = driver->device, .name_1 = name[0],
		    .name_2 = name[1], .name_3 = name[2], .name_4 = name[3]);
}

/* What lives comes with the blocks. */
int usages_keep(struct replay *replay, struct keeping *k)
{
	struct usages *usages = &replay->usages;
	size_t count = words_count(&k->words, usages->count), i;

	for (i = 0; i < count; i++) {
		struct usage read = {0};
		struct usage *usage = words_load(&k->words) ? &read : &usages->all[i];

		KEEP(&k->words, usage->vendor);
		KEEP(&k->words, usage->pool);
		KEEP(&k->words, usage->device);
		if (words_load(&k->words))
			usage = entry_at(replay, read.vendor, read.pool, read.device);
		if (usage == NULL)
			return -ENOMEM;
		KEEP(&k->words, usage->peak_bytes);
		KEEP(&k->words, usage->highest_bytes);
		KEEP(&k->words, usage->peak_time_ns);
		KEEP(&k->words, usage->allocated_bytes);
		KEEP(&k->words, usage->allocations);
		KEEP(&k->words, usage->frees);
		KEEP(&k->words, usage->reserved_bytes);
		KEEP(&k->words, usage->returned_bytes);
		KEEP(&k->words, usage->peak_reserved_bytes);
		KEEP(&k->words, usage->requested_peak_bytes);
		words_memory(&k->words, &usage->at_peak, sizeof(usage->at_peak));
		if (words_load(&k->words) && usage->returned_bytes > usage->reserved_bytes)
			usage->returned_bytes = 0;
	}
	return 0;
}

void usages_save(const struct replay *replay, struct checkpoint *cp)
{
	const struct usages *usages = &replay->usages;
	size_t i;

	for (i = 0; i < usages->driver_count; i++) {
		const struct driver_usage *driver = &usages->drivers[i];

		BUILDER_PUT(&cp->builder, usage_sample, 0, .device = driver->device,
			    .total_mib = driver->total_bytes >> 20,
			    .process_bytes = driver->process_bytes,
			    .device_bytes = driver->device_bytes);
		if (driver->name[0] != '\0')
			save_name(cp, driver);
		if (driver->pools_bytes + driver->graphs_bytes != 0)
			BUILDER_PUT(&cp->builder, driver_kept, 0, .device = driver->device,
				    .pools_bytes = driver->pools_bytes,
				    .graphs_bytes = driver->graphs_bytes);
		if (driver->others_bytes != UINT64_MAX)
			BUILDER_PUT(&cp->builder, usage_others, 0, .device = driver->device,
				    .processes = driver->others, .bytes = driver->others_bytes);
	}
}

/* What the driver took for itself on each device. */
int costs_keep(struct replay *replay, struct keeping *k)
{
	struct usages *usages = &replay->usages;
	size_t count = words_count(&k->words, usages->driver_count), i;

	for (i = 0; i < count; i++) {
		uint32_t device = words_load(&k->words) ? 0 : usages->drivers[i].device;
		struct driver_usage *driver;

		KEEP(&k->words, device);
		driver = driver_at(usages, device);
		if (driver == NULL)
			return -ENOMEM;
		words_memory(&k->words, driver->cost_bytes, sizeof(driver->cost_bytes));
		words_memory(&k->words, driver->cost_ns, sizeof(driver->cost_ns));
	}
	return 0;
}
