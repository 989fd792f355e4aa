/* SPDX-License-Identifier: Apache-2.0 */
#include "viewer/questions.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "engine/running.h"
#include "viewer/ranks.h"

#define OPEN_MAX_RUNS 4u
#define WIDTH	      1000u
#define ROWS	      100u
#define SLICE_EVENTS  100000u /* some 20 ms */

/* ---- the runs ---- */

int viewed_add_run(struct viewed *viewed, const char *word, const char *name)
{
	struct viewed_run run = {
		.word = strdup(word), .name = strdup(name), .input = viewed->inputs};

	if (run.word == NULL || run.name == NULL ||
	    ARRAY_RESERVE(viewed->runs, viewed->room, viewed->count + 1) < 0) {
		free(run.word);
		free(run.name);
		return -ENOMEM;
	}
	viewed->runs[viewed->count++] = run;
	return 0;
}

int viewed_add(struct viewed *viewed, const char *word, struct mscope_error *err)
{
	struct input_rank *ranks = NULL;
	struct running traces = {0};
	size_t count = 0, i;
	char name[32];
	bool by_pid = false;
	bool live;
	int r;

	/* Several processes that are being recorded: each by its trace. */
	running_traces(word, &traces);
	for (i = 0, r = 0; traces.count > 1 && i < traces.count && r == 0; i++) {
		(void)snprintf(name, sizeof(name), "process %u",
			       (unsigned)atoi(strrchr(traces.all[i], '/') + 1));
		r = viewed_add_run(viewed, traces.all[i], name);
	}
	live = traces.count > 0;
	if (r == 0 && traces.count == 1)
		r = viewed_add_run(viewed, word, word);
	running_fini(&traces);
	if (r == 0 && !live)
		r = input_ranks(word, &ranks, &count);
	if (r == 0 && !live && count == 0) {
		by_pid = true;
		r = input_processes(word, &ranks, &count);
	}
	for (i = 0; i < count; i++) {
		(void)snprintf(name, sizeof(name), by_pid ? "pid %u" : "rank %u", ranks[i].rank);
		if (r == 0)
			r = viewed_add_run(viewed, ranks[i].path, name);
		free(ranks[i].path);
	}
	free(ranks);
	if (r == 0 && !live && count == 0)
		r = viewed_add_run(viewed, word, word);
	viewed->inputs++;
	return r < 0 ? error_set(err, r, "no memory") : 0;
}

static void close_run(struct viewed_run *run)
{
	if (run->model != NULL)
		model_close(run->model);
	free(run->model);
	run->model = NULL;
}

void viewed_fini(struct viewed *viewed)
{
	size_t i;

	for (i = 0; i < viewed->count; i++) {
		close_run(&viewed->runs[i]);
		free(viewed->runs[i].word);
		free(viewed->runs[i].name);
		free(viewed->runs[i].rank);
	}
	free(viewed->runs);
	*viewed = (struct viewed){0};
}

void viewed_close(struct viewed *viewed, size_t index)
{
	close_run(&viewed->runs[index]);
}

static void make_room(struct viewed *viewed)
{
	struct viewed_run *oldest = NULL;
	size_t i, open = 0;

	for (i = 0; i < viewed->count; i++) {
		struct viewed_run *run = &viewed->runs[i];

		if (run->model == NULL)
			continue;
		open++;
		if (oldest == NULL || run->used < oldest->used)
			oldest = run;
	}
	if (open >= OPEN_MAX_RUNS)
		close_run(oldest);
}

void viewed_split(struct viewed *viewed, size_t index, const struct import *import)
{
	char name[32];
	size_t i;

	if (viewed->runs[index].pid != 0 || import->pid_count < 2)
		return;
	for (i = 1; i < import->pid_count; i++) {
		(void)snprintf(name, sizeof(name), "process %u", import->pids[i]);
		if (viewed_add_run(viewed, viewed->runs[index].word, name) < 0)
			return;
		viewed->runs[viewed->count - 1].pid = import->pids[i];
		viewed->runs[viewed->count - 1].input = viewed->runs[index].input;
	}
	viewed->runs[index].pid = import->pids[0];
	free(viewed->runs[index].name);
	viewed->runs[index].name = NULL;
	(void)!asprintf(&viewed->runs[index].name, "process %u", import->pids[0]);
}

struct model *viewed_model(struct viewed *viewed, size_t index, uint64_t least,
			   struct mscope_error *err)
{
	struct viewed_run *run;

	if (index >= viewed->count) {
		(void)error_set(err, -EINVAL, "no such process");
		return NULL;
	}
	run = &viewed->runs[index];
	run->used = ++viewed->questions;
	if (run->model == NULL) {
		make_room(viewed);
		run->model = calloc(1, sizeof(*run->model));
		if (run->model == NULL)
			(void)error_set(err, -ENOMEM, "no memory");
		else if (model_open(run->model, run->word, run->pid, viewed->directory, err) < 0)
			close_run(run);
		if (run->model != NULL) {
			run->model->last_window = viewed->last_window;
			run->model->ends_now = viewed->ends_now;
			viewed_split(viewed, index, &run->model->input.import);
		}
		run = &viewed->runs[index];
	}
	/* Of a run that goes on, all of it is what has come by now. */
	if (run->model != NULL && least == UINT64_MAX)
		run->model->caught_up = false;
	while (run->model != NULL && !run->model->complete && run->model->events < least &&
	       !(run->model->is_live && run->model->caught_up)) {
		if (model_read(run->model, SLICE_EVENTS) < 0) {
			*err = run->model->error;
			close_run(run);
		}
	}
	return run->model;
}

bool viewed_work(struct viewed *viewed)
{
	size_t i;

	for (i = 0; i < viewed->count; i++) {
		struct model *model = viewed->runs[i].model;

		if (model == NULL || model->complete || model->error.code != 0 ||
		    (model->is_live && model->caught_up && !model_live_is_due(model)))
			continue;
		(void)model_read(model, SLICE_EVENTS);
		/* The engine has dropped the begin of the run: what is left is read when it is asked about. */
		if (model->is_live && model->error.code == -ESTALE)
			close_run(&viewed->runs[i]);
		else if (!model->is_live || !model->caught_up)
			return true;
	}
	return false;
}

/* ---- questions ---- */

static int hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)(c | 0x20);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decodes a value in place: "%41" and "+". */
static void decode(char *text)
{
	char *to = text;

	for (; *text != '\0'; text++) {
		if (*text == '+') {
			*to++ = ' ';
		} else if (*text == '%' && hex(text[1]) >= 0 && hex(text[2]) >= 0) {
			*to++ = (char)(hex(text[1]) << 4 | hex(text[2]));
			text += 2;
		} else {
			*to++ = *text;
		}
	}
	*to = '\0';
}

/* The value of a pair, cut out of a copy of the query; NULL if it is not there. */
static char *value_of(char *query, const char *name)
{
	size_t length = strlen(name);
	char *at = query, *end;

	while (at != NULL && *at != '\0') {
		if (strncmp(at, name, length) == 0 && at[length] == '=')
			break;
		at = strchr(at, '&');
		at = at == NULL ? NULL : at + 1;
	}
	if (at == NULL || *at == '\0')
		return NULL;
	at += length + 1;
	end = strchr(at, '&');
	return end == NULL ? strdup(at) : strndup(at, (size_t)(end - at));
}

static uint64_t number_of(char *query, const char *name, uint64_t otherwise)
{
	char *value = value_of(query, name), *end;
	uint64_t number = otherwise;

	if (value != NULL && value[0] >= '0' && value[0] <= '9') {
		errno = 0;
		number = strtoull(value, &end, 10);
		if (errno != 0 || *end != '\0')
			number = otherwise;
	}
	free(value);
	return number;
}

static bool is_value(char *query, const char *name, const char *wanted)
{
	char *value = value_of(query, name);
	bool same = value != NULL && strcmp(value, wanted) == 0;

	free(value);
	return same;
}

/* A time of the question, from the begin of the run on; 0: not given. */
static uint64_t time_of(const struct model *model, char *query, const char *name,
			uint64_t otherwise)
{
	uint64_t since = number_of(query, name, UINT64_MAX);

	return since > UINT64_MAX - model->from_ns - 1 ? otherwise : model->from_ns + since;
}

static struct question question_of(const struct model *model, struct model *other, char *query)
{
	struct question question = {
		.pool = (uint32_t)number_of(query, "pool", 0),
		.from_ns = time_of(model, query, "from", model->from_ns),
		.to_ns = time_of(model, query, "to", model->to_ns),
		.width = (uint32_t)number_of(query, "width", WIDTH),
		.by = is_value(query, "by", "place")   ? BY_PLACE
		      : is_value(query, "by", "layer") ? BY_LAYER
						       : BY_OWNER,
		.what = is_value(query, "of", "leaks")	? OF_LEAKS
			: is_value(query, "of", "all")	? OF_ALL
			: is_value(query, "of", "peak") ? OF_PEAK
							: OF_MOMENT,
		.at_ns = time_of(model, query, "at", 0),
		.and_ns = time_of(other == NULL ? model : other, query, "and", 0),
		.other = other,
		.block = number_of(query, "id", UINT64_MAX),
		.least_bytes = number_of(query, "least", 0),
		.most_bytes = number_of(query, "most", UINT64_MAX),
		.address = number_of(query, "address", 0),
		.never_freed = number_of(query, "alive", 0) != 0,
		.offset = (uint32_t)number_of(query, "offset", 0),
		.count = (uint32_t)number_of(query, "count", ROWS),
		.by_time = is_value(query, "sort", "time"),
		.brief = number_of(query, "brief", 0) != 0,
	};

	question.other_pool = (uint32_t)number_of(query, "with_pool", question.pool);
	if (question.width == 0 || question.width > ANSWER_WIDTH_MAX)
		question.width = WIDTH;
	if (question.to_ns <= question.from_ns)
		question.to_ns = question.from_ns + 1;
	if (question.count > ANSWER_ROWS_MAX)
		question.count = ANSWER_ROWS_MAX;
	if (question.offset > 1000 * ANSWER_ROWS_MAX)
		question.offset = 1000 * ANSWER_ROWS_MAX;
	return question;
}

static const struct {
	const char *word;
	void (*answer)(struct model *model, const struct question *question, struct json *json);
} answers[] = {
	{"summary", answer_summary}, {"series", answer_series},
	{"blocks", answer_blocks},   {"tree", answer_tree},
	{"table", answer_table},     {"block", answer_block},
	{"moment", answer_moment},   {"events", answer_events},
	{"waste", answer_waste},     {"difference", answer_difference},
	{"highest", answer_highest}, {"segments", answer_segments},
	{"whatif", answer_what_if},  {"advise", answer_advise},
};

static void say_processes(const struct viewed *viewed, struct json *json)
{
	size_t i;

	json_array(json, "processes");
	for (i = 0; i < viewed->count; i++) {
		json_object(json, NULL);
		json_string(json, "name",
			    viewed->runs[i].name == NULL ? "?" : viewed->runs[i].name);
		json_u64(json, "input", viewed->runs[i].input);
		json_end(json);
	}
	json_end(json);
}

/* Answers what is about one run, or about two of them. */
static void answer_run(struct viewed *viewed, size_t which, char *query, struct json *json)
{
	uint64_t with = number_of(query, "with", UINT64_MAX),
		 least = number_of(query, "now", 0) == 0 ? UINT64_MAX : 1;
	struct mscope_error err = {0};
	struct model *model = viewed_model(viewed, number_of(query, "process", 0), least, &err),
		     *other = NULL;
	char *text = value_of(query, "text"), *event = value_of(query, "event");
	struct question question;

	/* The first was used last: opening the second does not close it. */
	if (model != NULL && with != UINT64_MAX)
		other = viewed_model(viewed, with, least, &err);
	if (model == NULL || (with != UINT64_MAX && other == NULL)) {
		json_string(json, "error", err.message);
	} else {
		if (text != NULL)
			decode(text);
		if (event != NULL)
			decode(event);
		question = question_of(model, other, query);
		question.text = text;
		question.event = event;
		answers[which].answer(model, &question, json);
	}
	free(text);
	free(event);
}

bool viewed_answer(struct viewed *viewed, const char *what, char *query, struct strbuf *out)
{
	size_t count = sizeof(answers) / sizeof(answers[0]), i;
	struct json json;

	for (i = 0; i < count && strcmp(answers[i].word, what) != 0; i++)
		;
	if (i == count && strcmp(what, "processes") != 0 && strcmp(what, "ranks") != 0)
		return false;
	json_begin(&json, out);
	json_object(&json, NULL);
	if (i < count)
		answer_run(viewed, i, query, &json);
	else if (strcmp(what, "ranks") == 0)
		answer_ranks(viewed, number_of(query, "from", 0), &json);
	else
		say_processes(viewed, &json);
	json_end(&json);
	return true;
}
