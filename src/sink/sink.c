/* SPDX-License-Identifier: Apache-2.0 */
#include "sink/sink.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/shown.h"
#include "replay/ooms.h"
#include "replay/watches.h"
#include "sink/call_files.h"
#include "sink/kept.h"
#include "sink/watch_sink.h"
#include "trace/settings.h"

#define DUMP_NAME DUMP_TABLE "_"

struct device_file {
	uint32_t device;
	char device_text[16];
	char path[PROJECT_PATH_MAX + 128]; /* where it is written now */
	struct form_file *file;		   /* NULL: suspended */
};

/* Texts of stacks that are kept: the same ones come again and again, and making them was a third of the cost of a csv with C stacks. */
#define SHOWN_STACKS 256u
#define DEEP_FRAMES  128u

struct shown_stack {
	uint32_t stack; /* 0: none */
	uint32_t c_depth, python_depth;
	struct strbuf c, python;
};

struct sink {
	struct sink_config config;
	struct device_file **files;
	size_t file_count, file_room;
	struct kept_rows common;
	char *spool;  /* directory for files without a name */
	char dry[64]; /* "": a device was used */
	struct watch_sink watch;
	struct call_files *calls;   /* NULL until the first call */
	struct strbuf call;	    /* text of the present one */
	uint32_t settings_seen;	    /* changes of settings that are in the config */
	struct shown_stack *stacks; /* SHOWN_STACKS of them, NULL until the first */
};

const struct sink_form *form_get(uint32_t number)
{
	static const struct sink_form *const forms[] = {
#define FORM(number_, symbol, word, table) [number_] = &(table),
#include "base/forms.def"
#undef FORM
	};

	return number < MSCOPE_COUNT(forms) ? forms[number] : NULL;
}

int sink_open(const struct sink_config *config, struct sink **out, struct mscope_error *err)
{
	const struct sink_form *form = config->form;
	struct sink *sink;

	if (form->calls == CALLS_UNDECIDED ||
	    (form->calls == CALLS_IN_FILE) != (form->call != NULL))
		return error_set(err, -EINVAL,
				 "the form %s does not say where the Python trace goes",
				 form->extension);
	sink = calloc(1, sizeof(*sink));
	if (sink == NULL)
		return error_set(err, -ENOMEM, "no memory");
	sink->config = *config;
	sink->spool = strdup(config->spool != NULL ? config->spool : config->project->output);
	if (sink->spool == NULL) {
		free(sink);
		return error_set(err, -ENOMEM, "no memory");
	}
	sink->config.spool = sink->spool;
	if (config->dry != NULL)
		(void)snprintf(sink->dry, sizeof(sink->dry), "%s", config->dry);
	sink->watch = (struct watch_sink){.project = config->project, .fresh = config->resume};
	*out = sink;
	return 0;
}

/* ---- which rows ---- */

static bool is_listed(const struct row_filter *filter, uint32_t step)
{
	size_t i;

	for (i = 0; i < filter->step_count; i++) {
		if (filter->steps[i] == step)
			return true;
	}
	return false;
}

/* Steps may overlap, as when several threads mark theirs: what lies in any of the listed ones is written. */
static bool is_in_listed(const struct row_filter *filter, const struct replay *replay)
{
	uint32_t step;
	size_t i;

	for (i = 0; (step = replay_marked_step(replay, i)) != 0; i++) {
		if (is_listed(filter, step))
			return true;
	}
	return false;
}

static bool step_wanted(const struct row_filter *filter, const struct replay *replay,
			const struct row *row)
{
	if (filter->steps == NULL || is_listed(filter, row->step))
		return true;
	if (!row->late && is_in_listed(filter, replay))
		return true;
	/* What is about the whole process belongs to every choice of steps. */
	return row->kind == ROW_ACL_INIT || row->kind == ROW_ACL_FINI ||
	       row->kind == ROW_START_TRACE || row->kind == ROW_STOP_TRACE;
}

uint32_t row_filter_groups(uint32_t events, uint32_t level)
{
	uint32_t groups = 0;

	if (events & SESSION_ALLOC)
		groups |= 1u << ROW_GROUP_ALLOC;
	if (events & SESSION_FREE)
		groups |= 1u << ROW_GROUP_FREE;
	if ((events & SESSION_LAUNCH) && (level & SESSION_LEVEL_KERNEL))
		groups |= 1u << ROW_GROUP_KERNEL;
	if ((events & SESSION_LAUNCH) && (level & SESSION_LEVEL_OP))
		groups |= 1u << ROW_GROUP_OP;
	if (events & SESSION_ACCESS)
		groups |= 1u << ROW_GROUP_ACCESS;
	return groups;
}

static void follow_all(struct row_filter *filter, const struct event_settings *settings)
{
	filter->groups = row_filter_groups((uint32_t)settings->events, (uint32_t)settings->level);
	filter->npus = SETTINGS_NPUS(settings);
	filter->gpus = SETTINGS_GPUS(settings);
	filter->host = settings->host;
}

/* From one window to the next the program may choose other rows. */
static void follow_settings(struct sink *sink, const struct replay *replay)
{
	const struct event_settings *settings = replay_settings(replay);

	sink->settings_seen = replay_settings_count(replay);
	if (sink->config.follow_rows)
		follow_all(&sink->config.filter, settings);
	if (sink->config.follow_stacks)
		sink->config.c_depth = (uint32_t)settings->c_depth;
	if (sink->config.follow_stacks)
		sink->config.python_depth = (uint32_t)settings->python_depth;
}

static bool device_wanted(const struct row_filter *filter, const struct context *context)
{
	uint32_t device = context->device;

	if (device == DEVICE_HOST && context->pool == POOL_host_pinned)
		return settings_take_pinned(filter->npus, filter->gpus, filter->host != 0);
	if (device == DEVICE_HOST)
		return context->pool != POOL_host || filter->host;
	return device == DEVICE_UNKNOWN ||
	       settings_take_device(filter->npus, filter->gpus, context->vendor, device);
}

/* Marks and steps are those of all devices of their process, whatever device their thread has. */
static bool is_of_process(const struct row *row)
{
	return row->kind == ROW_MARK || row->kind == ROW_RANGE_START ||
	       row->kind == ROW_RANGE_END || row->kind == ROW_STEP;
}

static bool row_wanted(const struct row_filter *filter, const struct replay *replay,
		       const struct row *row)
{
	enum row_group group = row_group(row->kind);

	/* The program named the device and the moment itself. */
	if (row->kind == ROW_SNAPSHOT && row->oom == NULL)
		return true;
	if (group != ROW_GROUP_ALWAYS && !(filter->groups >> group & 1))
		return false;
	return (is_of_process(row) || device_wanted(filter, row->context)) &&
	       step_wanted(filter, replay, row);
}

static struct row_filter chosen_by(const struct row_filter *filter, const struct replay *replay)
{
	struct row_filter chosen = *filter;

	if (replay_settings_count(replay) > 0)
		follow_all(&chosen, replay_settings(replay));
	return chosen;
}

bool row_filter_takes_row(const struct row_filter *filter, const struct replay *replay,
			  const struct row *row)
{
	struct row_filter chosen = chosen_by(filter, replay);

	return row_wanted(&chosen, replay, row);
}

bool row_filter_takes(const struct row_filter *filter, const struct replay *replay,
		      const struct context *context)
{
	struct row_filter chosen = chosen_by(filter, replay);

	return device_wanted(&chosen, context) &&
	       (chosen.steps == NULL || is_in_listed(&chosen, replay));
}

/* ---- files ---- */

/* The file that a killed engine wrote for a device, if there is one; of several the first by name, which other parts follow. */
static bool find_old(const char *directory, const char *extension, char *out, size_t bytes)
{
	const struct dirent *entry;
	DIR *dir = opendir(directory);
	char found[100] = "";

	while (dir != NULL && (entry = readdir(dir)) != NULL) {
		size_t length = strlen(entry->d_name), tail = strlen(extension);

		if (length < sizeof(found) && length > tail &&
		    strncmp(entry->d_name, DUMP_NAME, strlen(DUMP_NAME)) == 0 &&
		    strcmp(entry->d_name + length - tail, extension) == 0 &&
		    (found[0] == '\0' || strcmp(entry->d_name, found) < 0))
			(void)snprintf(found, sizeof(found), "%s", entry->d_name);
	}
	if (dir != NULL)
		(void)closedir(dir);
	(void)snprintf(out, bytes, "%s/%s", directory, found);
	return found[0] != '\0';
}

void sink_add_partition(struct strbuf *out, const char *key, const char *value)
{
	struct strbuf valid = {0};
	size_t i;

	strbuf_add_valid(&valid, value, strlen(value));
	strbuf_addf(out, "%s=", key);
	for (i = 0; i < valid.length; i++) {
		unsigned char c = (unsigned char)valid.data[i];

		if (c < 0x20 || c == 0x7f || strchr("\"#%'*/:=?\\{}[]^<>|", c) != NULL)
			strbuf_addf(out, "%%%02X", c);
		else
			strbuf_add_char(out, (char)c);
	}
	out->failed = out->failed || strbuf_failed(&valid);
	strbuf_fini(&valid);
}

static int put_row(struct sink *sink, struct device_file *f, struct replay *replay,
		   const struct row *row, struct mscope_error *err);

/* Goes on with a file that was suspended; rows from this number on are not in it. */
static int file_open(const struct sink *sink, struct device_file *f, uint64_t first_id,
		     struct mscope_error *err)
{
	return f->file != NULL ? 0
			       : sink->config.form->open(f->path, true, first_id, &f->file, err);
}

struct common_visit {
	struct sink *sink;
	struct replay *replay;
	struct device_file *file;
};

static int put_common(void *arg, const struct row *row, struct mscope_error *err)
{
	const struct common_visit *visit = arg;

	return put_row(visit->sink, visit->file, visit->replay, row, err);
}

/* PROJECT/device_D/dump, or PARTITION/device=D. */
static void name_directory(const struct sink *sink, const struct device_file *f, char *out,
			   size_t bytes)
{
	const struct sink_config *config = &sink->config;
	struct strbuf device = {0};

	if (config->partition == NULL) {
		(void)snprintf(out, bytes, "%s/device_%s/dump", config->project->path,
			       f->device_text);
		return;
	}
	sink_add_partition(&device, "device", f->device_text);
	(void)snprintf(out, bytes, "%s/%s", config->partition, strbuf_str(&device));
	strbuf_fini(&device);
}

/* `directory` and the name of a new file. */
static void name_file(const struct sink *sink, struct device_file *f, const char *directory,
		      uint64_t time_ns)
{
	const struct project *project = sink->config.project;
	const struct sink_form *form = sink->config.form;
	char stamp[16];

	if (sink->config.partition != NULL) {
		(void)snprintf(f->path, sizeof(f->path), "%s/%s%s", directory, sink->config.part,
			       form->extension);
		return;
	}
	project_stamp(form->one_stamp ? project->start_ns : time_ns, project->utc_offset_s, stamp);
	(void)snprintf(f->path, sizeof(f->path), "%s/" DUMP_NAME "%s%s%s", directory, stamp,
		       form->extension, sink->config.replace ? ".new" : "");
}

static int file_make(struct sink *sink, struct replay *replay, const struct row *row,
		     uint32_t device, struct device_file **out, struct mscope_error *err)
{
	const struct sink_form *form = sink->config.form;
	struct project *project = sink->config.project;
	char directory[PROJECT_PATH_MAX + 64];
	struct device_file *f;
	bool old = false;
	int r = 0;

	if (sink->config.partition == NULL)
		r = project_make(
			project,
			replay == NULL ? row->context->vendor : replay_likely_vendor(replay), err);
	if (r < 0)
		return r;
	r = ARRAY_RESERVE(sink->files, sink->file_room, sink->file_count + 1);
	f = r < 0 ? NULL : calloc(1, sizeof(*f));
	if (f == NULL)
		return error_set(err, -ENOMEM, "no memory");
	f->device = device;
	project_device_text(device, f->device_text);
	name_directory(sink, f, directory, sizeof(directory));
	r = project_mkdirs(directory);
	if (r < 0) {
		free(f);
		return error_set(err, r, "cannot create %s: %s", directory, strerror(-r));
	}
	if (sink->config.resume)
		old = find_old(directory, form->extension, f->path, sizeof(f->path));
	if (!old)
		name_file(sink, f, directory, row->time_ns);
	r = form->open(f->path, old, row->id, &f->file, err);
	if (r < 0) {
		free(f);
		return r;
	}
	sink->files[sink->file_count++] = f;
	project->dumps++;
	*out = f;
	return old ? 0
		   : kept_each(&sink->common, put_common,
			       &(struct common_visit){.sink = sink, .replay = replay, .file = f},
			       err);
}

static int file_for(struct sink *sink, struct replay *replay, const struct row *row,
		    struct device_file **out, struct mscope_error *err)
{
	size_t i;

	for (i = 0; i < sink->file_count; i++) {
		if (sink->files[i]->device == row->context->device) {
			*out = sink->files[i];
			return 0;
		}
	}
	return file_make(sink, replay, row, row->context->device, out, err);
}

int sink_file(struct sink *sink, uint32_t device, uint8_t vendor, uint64_t time_ns,
	      struct form_file **out, struct mscope_error *err)
{
	struct context context = {.vendor = vendor, .device = device};
	/* No row: in a file that is gone on with, none is dropped for it. */
	struct row row = {.id = INT64_MAX, .time_ns = time_ns, .context = &context};
	struct device_file *f;
	int r = file_for(sink, NULL, &row, &f, err);

	if (r == 0)
		r = file_open(sink, f, row.id, err);
	if (r == 0)
		*out = f->file;
	return r;
}

int sink_call(struct sink *sink, const struct replay *replay, const struct call_row *row,
	      struct mscope_error *err)
{
	struct sink_call call = {
		.start_ns = row->start_ns == 0 ? 0 : run_wall_ns(replay_run(replay), row->start_ns),
		.end_ns = row->end_ns == 0 ? 0 : run_wall_ns(replay_run(replay), row->end_ns),
		.pid = run_header(replay_run(replay))->pid,
		.tid = row->tid,
	};
	int r = 0;

	if (sink->config.partition != NULL)
		return 0;
	if (sink->calls == NULL)
		r = call_files_open(&sink->config, sink, &sink->calls, err);
	if (r < 0)
		return r;
	strbuf_reset(&sink->call);
	strbuf_add_str(&sink->call, row->prefix);
	strbuf_add_str(&sink->call, row->text);
	if (strbuf_failed(&sink->call))
		return error_set(err, -ENOMEM, "no memory");
	call.text = strbuf_str(&sink->call);
	return call_files_put(sink->calls, &call, replay_writer_device(replay, row->writer),
			      replay_likely_vendor(replay), err);
}

/* ---- rows ---- */

/* The text of a stack, one frame per line, innermost first; NULL: no memory. Deep ones share a slot, so that few texts are long. */
static const struct shown_stack *show_stack(struct sink *sink, struct replay *replay,
					    uint32_t stack, uint32_t c_depth, uint32_t python_depth)
{
	const struct python_place *places;
	const uint32_t *frames;
	struct shown_stack *shown;
	uint32_t count, place_count, i;

	frames = replay_frames(replay, stack, &count);
	places = replay_places(replay, stack, &place_count);
	if (sink->stacks == NULL)
		sink->stacks = calloc(SHOWN_STACKS, sizeof(*sink->stacks));
	if (sink->stacks == NULL)
		return NULL;
	shown = &sink->stacks[count + place_count > DEEP_FRAMES ? 0
								: 1 + stack % (SHOWN_STACKS - 1)];
	if (shown->stack == stack && shown->c_depth == c_depth &&
	    shown->python_depth == python_depth)
		return shown;
	strbuf_reset(&shown->c);
	for (i = 0; i < count && i < c_depth; i++) {
		strbuf_add_str(&shown->c, replay_frame_text(replay, frames[i]));
		strbuf_add_char(&shown->c, '\n');
	}
	strbuf_reset(&shown->python);
	for (i = 0; i < place_count && i < python_depth; i++) {
		const char *text = replay_place_text(replay, &places[i]);

		/* A frame is one line, whatever its names hold. */
		strbuf_add_shown(&shown->python, text, strlen(text));
		strbuf_add_char(&shown->python, '\n');
	}
	shown->stack = stack;
	shown->c_depth = c_depth;
	shown->python_depth = python_depth;
	return shown;
}

static void forget_stacks(struct sink *sink)
{
	uint32_t i;

	for (i = 0; sink->stacks != NULL && i < SHOWN_STACKS; i++) {
		strbuf_fini(&sink->stacks[i].c);
		strbuf_fini(&sink->stacks[i].python);
	}
	free(sink->stacks);
	sink->stacks = NULL;
}

/* Whether the event is one that stacks are recorded with. */
static bool has_stack(const struct row *row)
{
	return row->stack != 0 || row->kind == ROW_MALLOC || row->kind == ROW_FREE ||
	       row->oom != NULL;
}

static int put_row(struct sink *sink, struct device_file *f, struct replay *replay,
		   const struct row *row, struct mscope_error *err)
{
	const struct sink_form *form = sink->config.form;
	char text[16]; /* of a mark in the file of another device than its thread's */
	const char *device = text;
	struct stack_text python = {"", 0}, c = {"", 0};
	const struct shown_stack *shown;
	/* A request that was refused always shows where. */
	uint32_t c_depth = row->oom != NULL ? OOM_FRAMES : sink->config.c_depth;
	uint32_t python_depth = row->oom != NULL ? OOM_FRAMES : sink->config.python_depth;
	struct row dry;
	int r = file_open(sink, f, row->id, err);

	if (r < 0)
		return r;
	if (sink->dry[0] != '\0') {
		dry = *row;
		dry.dry = sink->dry;
		row = &dry;
	}
	if (row->context->device == f->device)
		device = f->device_text;
	else
		project_device_text(row->context->device, text);
	if (row->stack != 0 && (c_depth | python_depth) != 0) {
		if (form->knows_stack != NULL &&
		    form->knows_stack(f->file, row->stack, c_depth, python_depth))
			return form->row(f->file, row, device, python, c, err);
		shown = show_stack(sink, replay, row->stack, c_depth, python_depth);
		if (shown == NULL)
			return error_set(err, -ENOMEM, "no memory");
		c = (struct stack_text){strbuf_str(&shown->c), shown->c.length};
		python = (struct stack_text){strbuf_str(&shown->python), shown->python.length};
	}
	/* Asked for, and no Python ran there. */
	if (python_depth != 0 && python.bytes == 0 && has_stack(row))
		python = (struct stack_text){"NA", 2};
	return form->row(f->file, row, device, python, c, err);
}

int sink_row(struct sink *sink, struct replay *replay, const struct row *row,
	     struct mscope_error *err)
{
	struct device_file *f;
	size_t i;
	int r;

	if (replay_settings_count(replay) != sink->settings_seen)
		follow_settings(sink, replay);
	if (!row_wanted(&sink->config.filter, replay, row))
		return 0;
	/* Operators of no device are too many to be kept for files that come later: they have one of their own. */
	if (is_of_process(row) || (row->context->device == DEVICE_UNKNOWN && row->block == NULL &&
				   row->layer == 0 && row->oom == NULL)) {
		if (row->context->device != DEVICE_UNKNOWN &&
		    device_wanted(&sink->config.filter, row->context)) {
			r = file_for(sink, replay, row, &f, err);
			if (r < 0)
				return r;
		}
		r = kept_add(&sink->common, row, sink->spool, err);
		for (i = 0; i < sink->file_count && r == 0; i++)
			r = put_row(sink, sink->files[i], replay, row, err);
		return r;
	}
	r = file_for(sink, replay, row, &f, err);
	return r < 0 ? r : put_row(sink, f, replay, row, err);
}

int sink_dump(struct sink *sink, const struct dump *dump, struct mscope_error *err)
{
	/* Nothing that is learned later changes a dump: an earlier pass has written it. */
	return sink->config.replace || sink->config.partition != NULL
		       ? 0
		       : watch_sink_dump(&sink->watch, dump, err);
}

int sink_flush(struct sink *sink, struct mscope_error *err)
{
	size_t i;
	int r, first = 0;

	for (i = 0; i < sink->file_count; i++) {
		if (sink->files[i]->file == NULL)
			continue;
		r = sink->config.form->flush(sink->files[i]->file, first == 0 ? err : NULL);
		if (first == 0)
			first = r;
	}
	r = watch_sink_flush(&sink->watch, first == 0 ? err : NULL);
	return first == 0 ? r : first;
}

int sink_publish(struct sink *sink, struct mscope_error *err)
{
	int r = call_files_publish(sink->calls, err);
	size_t i;

	if (r == 0)
		r = sink_flush(sink, err);
	for (i = 0; i < sink->file_count && r == 0 && sink->config.form->publish != NULL; i++)
		r = sink->files[i]->file == NULL
			    ? 0
			    : sink->config.form->publish(sink->files[i]->file, err);
	return r;
}

int sink_secure(struct sink *sink, struct mscope_error *err)
{
	int r = sink_flush(sink, err);
	size_t i;

	for (i = 0; i < sink->file_count && r == 0 && sink->config.form->secure != NULL; i++)
		r = sink->files[i]->file == NULL
			    ? 0
			    : sink->config.form->secure(sink->files[i]->file, err);
	return r;
}

/* A file of a replacing pass takes the place of the one before it. */
static int file_replace(const struct sink_form *form, const struct device_file *f, bool keep,
			struct mscope_error *err)
{
	char final[sizeof(f->path)];

	memcpy(final, f->path, sizeof(final));
	final[strlen(final) - strlen(".new")] = '\0';
	if (!keep) {
		(void)unlink(f->path);
		return 0;
	}
	if (rename(f->path, final) < 0)
		return error_set(err, -errno, "cannot replace %s: %s", final, strerror(errno));
	if (form->replaced != NULL)
		form->replaced(final);
	return 0;
}

bool sink_suspend(struct sink *sink, struct mscope_error *err)
{
	const struct sink_form *form = sink->config.form;
	size_t i;
	int r = 0;

	if (sink->calls != NULL && form->calls == CALLS_IN_FILE)
		return false;
	for (i = 0; i < sink->file_count && r == 0; i++) {
		if (sink->files[i]->file != NULL)
			r = form->close(sink->files[i]->file, true, err);
		sink->files[i]->file = NULL;
	}
	return r == 0;
}

/* Of the first row that is kept; 1: that is done. */
static int make_host_file(void *arg, const struct row *row, struct mscope_error *err)
{
	struct device_file *f;
	int r = file_make(arg, NULL, row, DEVICE_HOST, &f, err);

	return r < 0 ? r : 1;
}

int sink_close(struct sink *sink, bool keep, struct mscope_error *err)
{
	struct device_file *f;
	int r = 0, first = 0;
	size_t i;

	if (sink == NULL)
		return 0;
	first = call_files_close(sink->calls, keep, err);
	/* A process that marked moments and used no device: its rows go where those of the host go. */
	if (keep && first == 0 && sink->file_count == 0 && sink->common.count > 0) {
		first = kept_each(&sink->common, make_host_file, sink, err);
		if (first > 0)
			first = 0;
	}
	for (i = 0; i < sink->file_count; i++) {
		f = sink->files[i];
		r = f->file == NULL
			    ? 0
			    : sink->config.form->close(f->file, keep, first == 0 ? err : NULL);
		if (r == 0 && sink->config.replace && sink->config.partition == NULL)
			r = file_replace(sink->config.form, f, keep && first == 0, err);
		if (first == 0)
			first = r;
		free(f);
	}
	r = watch_sink_close(&sink->watch, keep, first == 0 ? err : NULL);
	if (first == 0)
		first = r;
	kept_fini(&sink->common);
	free(sink->spool);
	strbuf_fini(&sink->call);
	forget_stacks(sink);
	free(sink->files);
	free(sink);
	return first;
}
