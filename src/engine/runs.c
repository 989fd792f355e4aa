/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/runs.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/text.h"
#include "engine/dump_bound.h"
#include "symbols/elf_cache.h"

void runs_init(struct runs *runs, struct session_place *place, bool live,
	       const struct runs_ops *ops)
{
	*runs = (struct runs){.place = place, .live = live, .ops = *ops};
}

void runs_fini(struct runs *runs)
{
	size_t i;

	for (i = 0; i < runs->count; i++) {
		if (!runs->items[i]->done) {
			process_unwatch(&runs->items[i]->process);
			pipeline_close(&runs->items[i]->pipeline);
		}
		host_family_fini(&runs->items[i]->host);
		free(runs->items[i]);
	}
	for (i = 0; i < runs->refused_count; i++)
		free(runs->refused[i]);
	free(runs->refused);
	free(runs->items);
	elf_cache_fini(&runs->elves);
}

static bool is_known(const struct runs *runs, const char *name)
{
	size_t i;

	for (i = 0; i < runs->count; i++) {
		if (strcmp(runs->items[i]->name, name) == 0)
			return true;
	}
	for (i = 0; i < runs->refused_count; i++) {
		if (strcmp(runs->refused[i], name) == 0)
			return true;
	}
	return false;
}

static void refuse(struct runs *runs, const char *name, const char *path,
		   const struct mscope_error *err)
{
	if (array_reserve(&runs->refused, &runs->refused_room, runs->refused_count + 1,
			  sizeof(char *)) == 0) {
		char *copy = strdup(name);

		if (copy != NULL)
			runs->refused[runs->refused_count++] = copy;
	}
	runs->result.failed++;
	if (runs->ops.unreadable != NULL)
		runs->ops.unreadable(runs->ops.arg, path, err);
}

static int add(struct runs *runs, const char *name)
{
	char path[SESSION_PATH_MAX + 310];
	struct mscope_error err = {0};
	struct session_run *item;
	int r;

	r = ARRAY_RESERVE(runs->items, runs->room, runs->count + 1);
	item = r < 0 ? NULL : calloc(1, sizeof(*item));
	if (item == NULL)
		return -ENOMEM;
	(void)snprintf(item->name, sizeof(item->name), "%s", name);
	(void)snprintf(path, sizeof(path), "%s/%s", runs->place->directory, name);
	r = pipeline_open(&item->pipeline, runs->place, &runs->elves, name, runs->live, &err);
	if (r < 0) {
		free(item);
		session_show(runs->place, &err);
		refuse(runs, name, path, &err);
		return 0;
	}
	process_watch(&item->process, run_header(item->pipeline.run),
		      run_identity(item->pipeline.run, "pid_namespace"));
	if (runs->live)
		pipeline_find_root(&item->pipeline, item->process.pid);
	if (runs->live && !run_has_barrier(item->pipeline.run))
		log_warn(
			&item->pipeline.log,
			"membarrier(2) is not available: the trace is read when the process has ended");
	if (runs->live)
		atomic_store(&run_header_live(item->pipeline.run)->engine_pid, (uint32_t)getpid());
	runs->items[runs->count++] = item;
	return 0;
}

int runs_scan(struct runs *runs)
{
	DIR *dir = opendir(runs->place->files);
	const struct dirent *entry;
	int r = 0;

	if (dir == NULL)
		return 0; /* it was removed; what is open stays readable */
	while (r == 0 && (entry = readdir(dir)) != NULL) {
		char name[300];

		if (entry->d_name[0] == '.' || strlen(entry->d_name) > 255)
			continue;
		(void)snprintf(name, sizeof(name), "%s", entry->d_name);
		/* An engine that was killed may leave a packed part whose raw file is gone. */
		if (!runs->live && text_ends_with(name, SESSION_PART))
			memcpy(name + strlen(name) - strlen(SESSION_PART), SESSION_RAW,
			       sizeof(SESSION_RAW));
		if (text_ends_with(name, SESSION_RAW) && !is_known(runs, name))
			r = add(runs, name);
	}
	(void)closedir(dir);
	return r;
}

bool runs_is_alive(struct session_run *item, bool otherwise)
{
	enum process_life life = process_life(&item->process);
	int mapped;

	if (life != PROCESS_UNKNOWN)
		return life == PROCESS_ALIVE;
	mapped = run_is_mapped(item->pipeline.run);
	if (mapped >= 0)
		return mapped > 0;
	return item->process.pid != 0 || otherwise;
}

/* The largest that has something to lose, or NULL. */
static struct session_run *largest(struct runs *runs)
{
	struct session_run *found = NULL;
	uint64_t most = 0;
	size_t i;

	for (i = 0; i < runs->count; i++) {
		struct session_run *item = runs->items[i];
		uint64_t bytes = item->done ? 0 : pipeline_disk_bytes(&item->pipeline);

		if (bytes > most && bytes > item->pipeline.shrink_at &&
		    item->pipeline.pack_error.code == 0) {
			found = item;
			most = bytes;
		}
	}
	return found;
}

void runs_keep_limit(struct runs *runs)
{
	uint64_t total = runs->finished_bytes, dumps = runs->finished_dump_bytes, limit;
	struct session_run *item;
	size_t i;

	for (i = 0; i < runs->count; i++) {
		if (runs->items[i]->done)
			continue;
		total += pipeline_disk_bytes(&runs->items[i]->pipeline);
		dumps += runs->items[i]->pipeline.dump_bytes;
	}
	for (i = 0; i < runs->count; i++)
		runs->items[i]->pipeline.other_dump_bytes =
			dumps - runs->items[i]->pipeline.dump_bytes;
	limit = dump_bound_trace_beside(runs->place->session, dumps);
	while (limit != 0 && total > limit && (item = largest(runs)) != NULL) {
		total -= pipeline_disk_bytes(&item->pipeline);
		(void)pipeline_shrink(&item->pipeline);
		total += pipeline_disk_bytes(&item->pipeline);
	}
}

struct stopper {
	struct runs *runs;
	bool stopped;
};

static bool on_left(void *arg, uint64_t events)
{
	struct stopper *stopper = arg;
	const struct runs_ops *ops = &stopper->runs->ops;

	if (ops->progress != NULL && ops->progress(ops->arg, events))
		stopper->stopped = true;
	return stopper->stopped;
}

bool runs_finish(struct runs *runs, struct session_run *item)
{
	struct stopper stopper = {.runs = runs};
	int r;

	if (runs->ops.killed_by != NULL)
		run_killed_by(
			item->pipeline.run,
			runs->ops.killed_by(runs->ops.arg, run_header(item->pipeline.run)->pid));
	r = pipeline_finish(&item->pipeline, on_left, &stopper);

	if (stopper.stopped) {
		runs->result.interrupted = true;
		return false;
	}
	item->done = true;
	if (item->pipeline.empty) {
		process_unwatch(&item->process);
		pipeline_close(&item->pipeline);
		return true;
	}
	if (item->request != 0)
		pipeline_answer(&item->pipeline, item->request);
	runs->result.runs++;
	session_show(runs->place, &item->pipeline.read_error);
	session_show(runs->place, &item->pipeline.pack_error);
	session_show(runs->place, &item->pipeline.pass.sink_error);
	if (r < 0)
		runs->result.failed++;
	dump_bound_measure(&item->pipeline);
	if (runs->ops.finished != NULL)
		runs->ops.finished(runs->ops.arg, &item->pipeline);
	if (!runs->place->session->no_keep_trace)
		runs->finished_bytes += pipeline_disk_bytes(&item->pipeline);
	runs->finished_dump_bytes += item->pipeline.dump_bytes;
	process_unwatch(&item->process);
	pipeline_close(&item->pipeline);
	return true;
}
