/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of the driver and of the host that the engine asks for, as records of the run. */
#include <string.h>

#include "base/vendors.h"
#include "engine/host_memory.h"
#include "engine/pipeline.h"

bool pipeline_uses_device(const struct pipeline *pipeline)
{
	size_t count, i;
	const struct context *contexts = replay_contexts(pipeline->pass.replay, &count);

	for (i = 1; i < count; i++) {
		if (vendor_row(contexts[i].vendor)->sampled && contexts[i].device < DEVICE_HOST)
			return true;
	}
	return false;
}

/* True when the run has pinned host memory, whose rows show the process's resident memory. */
static bool pipeline_uses_host(const struct pipeline *pipeline)
{
	size_t count, i;
	const struct context *contexts = replay_contexts(pipeline->pass.replay, &count);

	for (i = 1; i < count; i++) {
		if (contexts[i].pool == POOL_host_pinned)
			return true;
	}
	return false;
}

bool pipeline_has_grown(struct pipeline *pipeline)
{
	size_t count, i;
	const struct usage *usages = replay_usages(pipeline->pass.replay, &count);
	uint64_t held = 0, context_ns = pipeline->context_ns;
	bool grown;

	for (i = 0; i < count; i++) {
		if (usages[i].device < DEVICE_HOST)
			held += usages[i].peak_reserved_bytes +
				(usages[i].pool == POOL_hal ? usages[i].peak_bytes : 0);
	}
	for (i = 0; i < PIPELINE_DEVICES; i++) {
		const struct driver_usage *driver =
			replay_driver_usage(pipeline->pass.replay, (uint32_t)i);

		if (driver != NULL && driver->cost_ns[COST_CONTEXT] > context_ns)
			context_ns = driver->cost_ns[COST_CONTEXT];
	}
	grown = held > pipeline->held_bytes || context_ns > pipeline->context_ns;
	pipeline->held_bytes = held;
	pipeline->context_ns = context_ns;
	return grown;
}

/* A trace has samples of one vendor. Before a device is used these are of the first. */
static bool uses_vendor(const struct pipeline *pipeline, const struct sampler_record *record)
{
	size_t count, i;
	const struct context *contexts = replay_contexts(pipeline->pass.replay, &count);

	for (i = 1; i < count && record->vendor != VENDOR_UNKNOWN; i++) {
		if (vendor_row(contexts[i].vendor)->sampled && contexts[i].device < DEVICE_HOST)
			return contexts[i].vendor == record->vendor;
	}
	return record->vendor == VENDOR_UNKNOWN || record->vendor == VENDOR_FIRST;
}

void pipeline_sample_others(struct pipeline *pipeline, const struct sampler_record *device,
			    uint32_t processes, uint64_t bytes, uint64_t now_ns)
{
	uint64_t words[EVENT_BYTES_usage_others / 8];
	struct event_usage_others event = {
		.device = device->device, .processes = processes, .bytes = bytes};
	struct driver_usage *last;

	if (pipeline->finished || device->device >= PIPELINE_DEVICES ||
	    !uses_vendor(pipeline, device))
		return;
	last = &pipeline->sampled[device->device];
	if (last->others_bytes == bytes && last->others == processes)
		return;
	pipeline->sampled_new[device->device] = true;
	last->others_bytes = bytes;
	last->others = processes;
	event_usage_others_encode(words, &event);
	(void)run_inject(pipeline->run, EVENT_usage_others, now_ns, words, MSCOPE_COUNT(words));
}

/* Once for each device: before its first figures, so that whoever shows these has the name. */
static void inject_name(struct pipeline *pipeline, const struct sampler_record *record,
			uint64_t now_ns)
{
	struct event_device_name event = {.device = record->device};
	uint64_t words[EVENT_BYTES_device_name / 8], name[SAMPLER_NAME_BYTES / 8];

	if (pipeline->named[record->device] || record->name[0] == '\0')
		return;
	pipeline->named[record->device] = true;
	memcpy(name, record->name, sizeof(name));
	event.name_1 = name[0];
	event.name_2 = name[1];
	event.name_3 = name[2];
	event.name_4 = name[3];
	event_device_name_encode(words, &event);
	(void)run_inject(pipeline->run, EVENT_device_name, now_ns, words, MSCOPE_COUNT(words));
}

void pipeline_sample(struct pipeline *pipeline, const struct sampler_record *record,
		     uint64_t now_ns)
{
	uint64_t words[EVENT_BYTES_usage_sample / 8];
	struct event_usage_sample event;
	struct driver_usage *last;
	uint32_t slot;
	bool changed;

	slot = record->device == DEVICE_HOST ? PIPELINE_DEVICES : record->device;
	if (pipeline->finished || slot > PIPELINE_DEVICES || !uses_vendor(pipeline, record) ||
	    (record->pid != 0 && record->pid != run_header(pipeline->run)->pid))
		return;
	last = &pipeline->sampled[slot];
	if (record->pid != 0) {
		changed = last->process_bytes != record->bytes;
		/* Rows of pinned memory show it, and then to the byte. */
		if (slot == PIPELINE_DEVICES && last->process_bytes != UINT64_MAX &&
		    !host_has_changed(last->process_bytes, record->bytes) &&
		    !pipeline_uses_host(pipeline))
			return;
		last->process_bytes = record->bytes;
		pipeline->sampled_new[slot] = pipeline->sampled_new[slot] || changed;
		/* The figure of the device follows, and both are of one moment. */
		if (slot < PIPELINE_DEVICES)
			return;
	} else {
		changed = pipeline->sampled_new[slot] || last->device_bytes != record->bytes ||
			  last->total_bytes != record->total_bytes;
		if (last->total_bytes != record->total_bytes)
			pipeline->injected_ns = 0; /* readers beside us need it at once */
		last->device_bytes = record->bytes;
		last->total_bytes = record->total_bytes;
	}
	if (!changed)
		return;
	if (slot < PIPELINE_DEVICES)
		inject_name(pipeline, record, now_ns);
	pipeline->sampled_new[slot] = false;
	event = (struct event_usage_sample){.device = record->device,
					    .total_mib = last->total_bytes >> 20,
					    .process_bytes = last->process_bytes,
					    .device_bytes = last->device_bytes};
	event_usage_sample_encode(words, &event);
	(void)run_inject(pipeline->run, EVENT_usage_sample, now_ns, words, MSCOPE_COUNT(words));
}
