/* SPDX-License-Identifier: Apache-2.0 */
#include "collector/watch/watch_plan.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

#include "base/hash.h"

/* How often a thread that frees memory yields to those that read it: for half a second at least. */
#define YIELDS_MAX 500000u

/* Bytes around a block of the host in which its allocator keeps what it must know. */
#define ALLOCATOR_BEFORE 8u
#define ALLOCATOR_BEHIND 32u

static void note_active(struct watch *watch)
{
	atomic_store_explicit(&watch->active,
			      watch->settings.start[0] != '\0' ||
				      atomic_load(&watch->range_count) > 0,
			      memory_order_release);
}

void watch_init(struct watch *watch, const struct session_watch *settings, uint32_t level)
{
	watch_forget(watch);
	if (settings != NULL && settings->on) {
		watch->settings = *settings;
		watch->settings.start[SESSION_WATCH_MAX - 1] = '\0';
		watch->settings.end[SESSION_WATCH_MAX - 1] = '\0';
	}
	watch->level = level;
	watch->by_path = strchr(watch->settings.start, '/') != NULL ||
			 strchr(watch->settings.end, '/') != NULL;
	note_active(watch);
}

void watch_forget(struct watch *watch)
{
	/* Only if used: to clear untouched tables would cost the process half a megabyte. */
	if (watch->counter_count > 0)
		memset(watch->counters, 0, sizeof(watch->counters));
	if (atomic_load(&watch->range_count) > 0)
		memset(watch->ranges, 0, sizeof(watch->ranges));
	watch->settings = (struct session_watch){.output = UINT32_MAX};
	watch->counter_count = 0;
	watch->open = watch->full = watch->by_path = watch->start_ran = watch->end_ran = false;
	atomic_store(&watch->range_count, 0);
	atomic_store(&watch->active, 0);
}

/* ---- names ---- */

/* ATB puts "DEVICE_PID/" in front of its paths, which the user cannot know before the program runs. */
static const char *without_place(const char *path)
{
	static const char digits[] = "0123456789";
	size_t device = strspn(path, digits), pid;

	if (device == 0 || path[device] != '_')
		return path;
	pid = strspn(path + device + 1, digits);
	return pid > 0 && path[device + 1 + pid] == '/' ? path + device + pid + 2 : path;
}

/* "mul" means aten::mul, and the same operator of any other library. */
static bool is_bare(const char *wanted, const char *name)
{
	const char *colons = name == NULL ? NULL : strstr(name, "::");

	return colons != NULL && strcmp(wanted, colons + 2) == 0;
}

static bool is(const char *wanted, const char *name, const char *path)
{
	if (wanted[0] == '\0')
		return false;
	return (name != NULL && strcmp(wanted, name) == 0) ||
	       (path != NULL &&
		(strcmp(wanted, path) == 0 || strcmp(wanted, without_place(path)) == 0)) ||
	       is_bare(wanted, name) || is_bare(wanted, path);
}

const char *watch_shown(const struct watch *watch, const struct watch_call *call)
{
	return watch->by_path && call->path != NULL ? without_place(call->path) : call->name;
}

bool watch_wants_outputs(const struct watch *watch, const char *name, const char *path)
{
	return is(watch->settings.start, name, path);
}

static uint64_t hash_of(const char *text)
{
	uint64_t hash = hash_text(text);

	return hash == 0 ? 1 : hash;
}

/*
 * Ordinal of this call of the operator. Counted at its begin; at its end, if only then its name is known or its begin was not
 * seen.
 */
static uint64_t count_call(struct watch *watch, const struct watch_call *call, bool *is_new)
{
	const char *shown = watch_shown(watch, call);
	struct watch_counter *counter;
	uint64_t hash;
	uint32_t at;

	if (shown == NULL)
		return 0;
	hash = hash_of(shown);
	for (at = (uint32_t)(hash >> 32) & (WATCH_COUNTERS - 1);;
	     at = (at + 1) & (WATCH_COUNTERS - 1)) {
		counter = &watch->counters[at];
		if (counter->hash == hash)
			break;
		if (counter->hash == 0) {
			if (watch->counter_count >= WATCH_COUNTERS / 2) {
				watch->full = true;
				return 0;
			}
			watch->counter_count++;
			counter->hash = hash;
			*is_new = true;
			break;
		}
	}
	if (call->kind == OPERATION_BEGINS || call->late_name || counter->count == 0)
		counter->count++;
	return counter->count;
}

/* ---- the table, under the lock ---- */

static void release(struct watch *watch, struct watch_range *range)
{
	if (range->used && !range->watched && range->pins == 0) {
		range->used = false;
		atomic_fetch_sub(&watch->range_count, 1);
		note_active(watch);
	}
}

static void unwatch(struct watch *watch, struct watch_range *range)
{
	range->watched = false;
	release(watch, range);
}

static struct watch_range *insert(struct watch *watch, const struct watch_range *wanted,
				  int64_t limit)
{
	uint32_t i;

	for (i = 0; i < WATCH_RANGES; i++) {
		struct watch_range *range = &watch->ranges[i];

		if (range->used)
			continue;
		range->address = wanted->address;
		range->bytes = wanted->bytes;
		range->device = wanted->device;
		range->vendor = wanted->vendor;
		range->output = wanted->output;
		range->from_api = wanted->from_api;
		memcpy(range->name, wanted->name, sizeof(range->name));
		range->name[sizeof(range->name) - 1] = '\0';
		range->used = range->watched = true;
		range->pins = 0;
		range->left = limit;
		range->ignored_count = 0;
		atomic_store(&range->readable, wanted->bytes);
		atomic_store(&range->begun, 0);
		atomic_store(&range->compared, 0);
		atomic_store(&range->gone, 0);
		atomic_store(&range->readers, 0);
		atomic_fetch_add(&watch->range_count, 1);
		note_active(watch);
		return range;
	}
	return NULL;
}

static void put(struct watch *watch, struct watch_plan *plan, struct watch_range *range)
{
	bool limited = range->left != WATCH_UNLIMITED;

	plan->ranges[plan->count] = (uint8_t)(range - watch->ranges);
	plan->taken[plan->count] = limited;
	plan->count++;
	range->pins++;
	/* The last one of a limited number: no further plan gets it. */
	if (limited && --range->left == 0)
		range->watched = false;
}

static void add_outputs(struct watch *watch, const struct watch_call *call, struct watch_plan *plan)
{
	const struct session_watch *settings = &watch->settings;
	struct watch_range range = {.device = call->device, .vendor = call->vendor};
	uint32_t i, only = settings->output;

	memcpy(range.name, settings->start, sizeof(range.name));
	if (only >= call->output_count)
		only = UINT32_MAX; /* there is no such output: watch all of them */
	for (i = 0; i < call->output_count; i++) {
		struct watch_range *added;

		if ((only != UINT32_MAX && i != only) || call->outputs[i].bytes == 0 ||
		    call->outputs[i].address == 0)
			continue;
		range.output = i;
		range.address = call->outputs[i].address;
		range.bytes = call->outputs[i].bytes;
		added = insert(watch, &range, WATCH_UNLIMITED);
		if (added == NULL) {
			plan->dropped++;
			continue;
		}
		put(watch, plan, added);
		watch->open = true;
	}
}

/* END has ended: the outputs of START are no longer watched; without a START, neither is what the API named. */
static void close_watch(struct watch *watch)
{
	uint32_t i;

	for (i = 0; i < WATCH_RANGES; i++) {
		struct watch_range *range = &watch->ranges[i];

		if (range->watched && (!range->from_api || watch->settings.start[0] == '\0'))
			unwatch(watch, range);
	}
	watch->open = false;
}

void watch_off(struct watch *watch)
{
	uint32_t i;

	if (!lock_take(&watch->lock))
		return;
	for (i = 0; i < WATCH_RANGES; i++) {
		if (watch->ranges[i].watched && !watch->ranges[i].from_api)
			unwatch(watch, &watch->ranges[i]);
	}
	watch->open = false;
	watch->settings.start[0] = watch->settings.end[0] = '\0';
	note_active(watch);
	lock_release(&watch->lock);
}

/* `flag` the first time, else 0. */
static uint32_t note_ran(bool *ran, bool runs, uint32_t flag)
{
	uint32_t seen = runs && !*ran ? flag : 0;

	*ran = *ran || runs;
	return seen;
}

bool watch_plan(struct watch *watch, const struct watch_call *call, struct watch_plan *plan)
{
	bool is_start = is(watch->settings.start, call->name, call->path);
	bool is_end = is(watch->settings.end, call->name, call->path);
	bool ended = call->kind == OPERATION_ENDED, ends;
	uint32_t i;

	plan->count = plan->dropped = plan->seen = 0;
	plan->number = 0;
	plan->is_new = false;
	if (!lock_take(&watch->lock))
		return false;
	/* A path contains the number of the execution, so a counter is kept only for those that may be shown, and some. */
	if (call->number != 0)
		plan->number = call->number;
	else if (!watch->by_path || is_start || is_end || atomic_load(&watch->range_count) > 0 ||
		 watch->counter_count < WATCH_PATHS)
		plan->number = count_call(watch, call, &plan->is_new);
	plan->seen = note_ran(&watch->start_ran, is_start, SEEN_START) |
		     note_ran(&watch->end_ran, is_end, SEEN_END);
	ends = ended && is_end && (watch->open || watch->settings.start[0] == '\0');
	if ((watch->level & call->level) || is_start || is_end) {
		for (i = 0; i < WATCH_RANGES && atomic_load(&watch->range_count) > 0; i++) {
			if (watch->ranges[i].watched)
				put(watch, plan, &watch->ranges[i]);
		}
	}
	if (ends)
		close_watch(watch);
	else if (ended && is_start && !watch->open)
		add_outputs(watch, call, plan);
	lock_release(&watch->lock);
	return plan->count > 0;
}

/* All outputs of START are gone: the next START begins again. */
static void close_if_empty(struct watch *watch)
{
	uint32_t i;

	for (i = 0; i < WATCH_RANGES && watch->open; i++) {
		if (watch->ranges[i].watched && !watch->ranges[i].from_api)
			return;
	}
	watch->open = false;
}

void watch_finish(struct watch *watch, const struct watch_plan *plan, bool made)
{
	uint32_t i;

	if (!lock_take(&watch->lock))
		return; /* the entries stay in use */
	for (i = 0; i < plan->count; i++) {
		struct watch_range *range = &watch->ranges[plan->ranges[i]];

		if (!made && plan->taken[i] && !atomic_load(&range->gone)) {
			range->left++;
			range->watched = true;
		}
		range->pins--;
		release(watch, range);
	}
	lock_release(&watch->lock);
}

/* ---- ranges of the API, and memory that is freed ---- */

int watch_add(struct watch *watch, const struct watch_range *range, int64_t limit)
{
	struct watch_range *added;
	uint32_t i;

	if (limit == 0)
		return 0;
	if (!lock_take(&watch->lock))
		return -EBUSY;
	for (i = 0; i < WATCH_RANGES; i++) {
		struct watch_range *old = &watch->ranges[i];

		if (old->watched && old->from_api && old->address == range->address &&
		    old->bytes == range->bytes)
			unwatch(watch, old);
	}
	added = insert(watch, range, limit);
	if (added != NULL)
		added->from_api = true;
	lock_release(&watch->lock);
	return added == NULL ? -ENOSPC : 0;
}

int watch_remove(struct watch *watch, uint64_t address, uint64_t bytes)
{
	uint32_t i, found = 0;

	if (!lock_take(&watch->lock))
		return -EBUSY;
	for (i = 0; i < WATCH_RANGES; i++) {
		struct watch_range *range = &watch->ranges[i];

		if (range->watched && range->from_api && range->address == address &&
		    (bytes == 0 || range->bytes == bytes)) {
			unwatch(watch, range);
			found++;
		}
	}
	lock_release(&watch->lock);
	return found > 0 ? 0 : -ENOENT;
}

static bool begins_in(const struct watch_range *range, uint64_t address, uint64_t bytes)
{
	return bytes == 0 ? range->address == address : range->address - address < bytes;
}

static bool reaches_into(const struct watch_range *range, uint64_t address, uint64_t bytes)
{
	return range->address - address < bytes || address - range->address < range->bytes;
}

/* A block behind the one that the range begins in goes. */
static void lose_neighbour(struct watch_range *range, uint64_t address, uint64_t bytes,
			   bool unmapped)
{
	uint64_t before = address - range->address;

	/* What the allocator keeps in front of a block and behind it changes with it. */
	range->ignored_count =
		watch_span_add(range->ignored, range->ignored_count, WATCH_IGNORED,
			       (struct watch_span){address - ALLOCATOR_BEFORE,
						   address + bytes + ALLOCATOR_BEHIND});
	if (unmapped && before < atomic_load(&range->readable))
		atomic_store(&range->readable, before);
}

uint32_t watch_free(struct watch *watch, uint64_t address, uint64_t bytes, bool unmapped,
		    char out_name[SESSION_WATCH_MAX])
{
	struct watch_plan plan = {0};
	uint32_t i, yields = 0, found = 0;

	if (!lock_take(&watch->lock))
		return 0;
	for (i = 0; i < WATCH_RANGES; i++) {
		struct watch_range *range = &watch->ranges[i];

		if (!range->used)
			continue;
		if (begins_in(range, address, bytes)) {
			/* Before the readers are counted: a thread that begins to read after this store sees it. */
			atomic_store(&range->gone, 1);
		} else if (bytes > 0 && reaches_into(range, address, bytes)) {
			lose_neighbour(range, address, bytes, unmapped);
			if (!unmapped)
				continue;
		} else {
			continue;
		}
		plan.ranges[plan.count++] = (uint8_t)i;
		range->pins++;
		if (range->watched && atomic_load(&range->gone)) {
			memcpy(out_name, range->name, sizeof(range->name));
			range->watched = false;
			found++;
		}
	}
	if (found > 0)
		close_if_empty(watch);
	lock_release(&watch->lock);
	/* Not under the lock, which a reader may need before it is done. */
	for (i = 0; i < plan.count; i++) {
		while (atomic_load(&watch->ranges[plan.ranges[i]].readers) != 0 &&
		       yields++ < YIELDS_MAX)
			(void)sched_yield();
	}
	if (plan.count > 0)
		watch_finish(watch, &plan, true);
	return found;
}

uint32_t watch_touching(struct watch *watch, const struct watch_output *outputs, uint32_t count,
			struct watch_span *out, uint32_t room)
{
	uint32_t i, k, found = 0;

	if (count == 0 || atomic_load(&watch->range_count) == 0 || !lock_take(&watch->lock))
		return 0;
	for (i = 0; i < count && found < room; i++) {
		const struct watch_output *output = &outputs[i];

		for (k = 0; k < WATCH_RANGES; k++) {
			if (!watch->ranges[k].used || output->bytes == 0 ||
			    !reaches_into(&watch->ranges[k], output->address, output->bytes))
				continue;
			out[found++] = (struct watch_span){output->address,
							   output->address + output->bytes};
			break;
		}
	}
	lock_release(&watch->lock);
	return found;
}

uint32_t watch_ignored(struct watch *watch, uint32_t entry, struct watch_span out[WATCH_IGNORED])
{
	const struct watch_range *range = &watch->ranges[entry];
	uint32_t count;

	if (!lock_take(&watch->lock))
		return 0;
	count = range->ignored_count;
	memcpy(out, range->ignored, count * sizeof(*out));
	lock_release(&watch->lock);
	return count;
}

bool watch_read_begin(struct watch_range *range)
{
	atomic_fetch_add(&range->readers, 1);
	if (atomic_load(&range->gone) == 0)
		return true;
	atomic_fetch_sub(&range->readers, 1);
	return false;
}

void watch_read_end(struct watch_range *range)
{
	atomic_fetch_sub(&range->readers, 1);
}
