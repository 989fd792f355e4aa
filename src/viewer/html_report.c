/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a file has room for, in the order of its worth: a summary of each run, and what its main pool held over time; then for the
 * worst runs all views, each run within its share of what is left. An answer that does not fit is left out and counted.
 *
 * Answers are deflated one by one, so that it is known what each of them takes, and the page unpacks only what it shows.
 */
#include "viewer/html_report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef MSCOPE_HAVE_ZLIB
#include <zlib.h>
#endif

#include "analysis/leaks.h"
#include "base/array.h"
#include "sink/report.h"
#include "viewer/answers.h"
#include "viewer/directories.h"
#include "viewer/page.h"
#include "viewer/ranks.h"

#define ABOUT_BYTES	16384u	 /* of what is not an answer */
#define PROCESSES_BYTES 262144u	 /* of the list of processes */
#define RANKS_BYTES	1500000u /* of several processes side by side */
#define RUNS_OPEN	4u	 /* that can be opened without another being closed */
#define RUNS_FULL	8u	 /* that are carried with all views */
#define WIDTH		1200u
#define WIDTH_BRIEF	120u
#define BLOCKS_TOLD	50u /* leaks whose first block has its stack in the file */
#define TABLE_ROWS	300u

struct carried {
	char key[96];
	struct strbuf text; /* JSON */
};

struct file {
	struct viewed *viewed;
	struct carried *list;
	size_t count, room;
	size_t bytes; /* that all of them take in the file */
	size_t limit; /* that they may take by now */
	size_t most;  /* of the whole file */
	uint64_t left_out;
	size_t damaged; /* runs */
	bool failed;	/* no memory */
};

/* How bad a run is, as the screen has it (screen_worst_first()). */
struct standing {
	size_t run;
	enum process_verdict verdict;
	double growth;
	uint64_t peak;
};

/* ---- one answer ---- */

#ifdef MSCOPE_HAVE_ZLIB
static void add_base64(struct strbuf *out, const uint8_t *data, size_t bytes)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	char *to = strbuf_room(out, (bytes + 2) / 3 * 4);
	size_t i;

	for (i = 0; to != NULL && i < bytes; i += 3) {
		size_t left = bytes - i;
		uint32_t bits = (uint32_t)data[i] << 16 |
				(left > 1 ? (uint32_t)data[i + 1] << 8 : 0) |
				(left > 2 ? data[i + 2] : 0);

		*to++ = digits[bits >> 18];
		*to++ = digits[bits >> 12 & 63];
		*to++ = left > 1 ? digits[bits >> 6 & 63] : '=';
		*to++ = left > 2 ? digits[bits & 63] : '=';
	}
	if (to != NULL)
		strbuf_end(out, to);
}

/* The answer as a string of JSON: base64 of what zlib made of it. */
static void pack(struct strbuf *out, const struct strbuf *answer)
{
	uLongf bytes = compressBound(answer->length);
	uint8_t *packed = malloc(bytes);

	if (packed == NULL ||
	    compress(packed, &bytes, (const Bytef *)strbuf_str(answer), answer->length) != Z_OK) {
		out->failed = true;
	} else {
		strbuf_add_char(out, '"');
		add_base64(out, packed, bytes);
		strbuf_add_char(out, '"');
	}
	free(packed);
}
#else
static void pack(struct strbuf *out, const struct strbuf *answer)
{
	strbuf_add(out, strbuf_str(answer), answer->length);
}
#endif

/* What it takes: the key with quotes and colon, the text, comma and newline; a "<" of text that is not packed takes five more. */
static size_t cost(const struct carried *one)
{
	const char *at = strbuf_str(&one->text);
	size_t bytes = strlen(one->key) + one->text.length + 5;

	while ((at = strchr(at, '<')) != NULL) {
		bytes += 5;
		at++;
	}
	return bytes;
}

/* The place of a key: the one it has, or a new one; NULL without memory. */
static struct carried *place_of(struct file *file, const char *key)
{
	size_t i;

	for (i = 0; i < file->count; i++) {
		if (strcmp(file->list[i].key, key) == 0)
			return &file->list[i];
	}
	if (ARRAY_RESERVE(file->list, file->room, file->count + 1) < 0)
		return NULL;
	file->list[file->count] = (struct carried){0};
	(void)snprintf(file->list[file->count].key, sizeof(file->list[0].key), "%s", key);
	return &file->list[file->count++];
}

/* Carries an answer under the key by which the page looks for it (web/data.js). False: there is no room for it. */
static bool add(struct file *file, const char *what, const char *key, char *query)
{
	struct strbuf answer = {0}, mailed = {0};
	struct carried one = {0}, *place;
	size_t before;
	bool fits;

	(void)snprintf(one.key, sizeof(one.key), "%s/%s", what, key);
	(void)viewed_answer(file->viewed, what, query, &answer);
	directories_leave_out(&answer, &mailed);
	pack(&one.text, &mailed);
	file->failed = file->failed || strbuf_failed(&answer) || strbuf_failed(&mailed) ||
		       strbuf_failed(&one.text);
	strbuf_fini(&answer);
	strbuf_fini(&mailed);
	place = file->failed ? NULL : place_of(file, one.key);
	before = place == NULL || place->text.length == 0 ? 0 : cost(place);
	fits = place != NULL && file->bytes - before + cost(&one) <= file->limit;
	if (fits) {
		file->bytes += cost(&one) - before;
		strbuf_fini(&place->text);
		place->text = one.text;
	} else {
		strbuf_fini(&one.text);
		file->failed = file->failed || place == NULL;
	}
	return fits;
}

/* ---- a run ---- */

static bool add_summary(struct file *file, size_t run, bool brief)
{
	char query[64], key[64];

	(void)snprintf(key, sizeof(key), "%zu///", run);
	(void)snprintf(query, sizeof(query), "process=%zu&brief=%d", run, brief);
	return add(file, "summary", key, query);
}

static void add_series(struct file *file, size_t run, size_t pool, const char *by, unsigned width)
{
	char query[128], key[64];

	(void)snprintf(key, sizeof(key), "%zu/%zu/%s/", run, pool, by);
	(void)snprintf(query, sizeof(query), "process=%zu&pool=%zu&by=%s&width=%u", run, pool, by,
		       width);
	file->left_out += !add(file, "series", key, query);
}

/* What the page compares if no moment was chosen (web/format.js, usualMoments). */
static void usual_moments(const struct model *model, uint64_t out[2])
{
	uint64_t length = model->to_ns - model->from_ns;

	out[0] = length / 10;
	out[1] = length;
	if (model->step_count > 2) {
		out[0] = model->steps[1].time_ns - 1 - model->from_ns;
		out[1] = model->steps[model->step_count - 1].time_ns - 1 - model->from_ns;
	}
}

static void add_stacks(struct file *file, const struct model *model, size_t run, size_t pool)
{
	const struct {
		const char *of;
		uint64_t at;
	} trees[] = {{"peak", model_since(model, model->pools[pool].peak_ns)},
		     {"leaks", 0},
		     {"end", model->to_ns - model->from_ns},
		     {"all", 0}};
	char query[128], key[64];
	size_t i;

	for (i = 0; i < sizeof(trees) / sizeof(trees[0]); i++) {
		(void)snprintf(key, sizeof(key), "%zu/%zu//%s", run, pool, trees[i].of);
		(void)snprintf(query, sizeof(query), "process=%zu&pool=%zu&of=%s&at=%llu", run,
			       pool, trees[i].of, (unsigned long long)trees[i].at);
		file->left_out += !add(file, "tree", key, query);
	}
}

/* Blocks and events, as many as the page shows at first. */
static void add_tables(struct file *file, size_t run, size_t pool)
{
	static const char *const tables[] = {"table", "events"};
	char query[128], key[64];
	size_t i;

	for (i = 0; i < 2; i++) {
		(void)snprintf(key, sizeof(key), "%zu/%zu//", run, pool);
		(void)snprintf(query, sizeof(query), "process=%zu&pool=%zu&count=%u", run, pool,
			       TABLE_ROWS);
		file->left_out += !add(file, tables[i], key, query);
	}
}

/* What blocks are grouped by. */
static const char *const groups[] = {"place", "owner", "layer"};

static size_t groups_of(const struct model *model)
{
	return replay_has_layers(model->pass.replay) ? 3 : 2;
}

/* What a pool held, by each of these. */
static void add_pool(struct file *file, const struct model *model, size_t run, size_t pool)
{
	const uint64_t peak = model_since(model, model->pools[pool].peak_ns);
	char query[160], key[64];
	uint64_t moments[2];
	size_t i;

	usual_moments(model, moments);
	for (i = 0; i < groups_of(model); i++) {
		add_series(file, run, pool, groups[i], WIDTH);
		(void)snprintf(key, sizeof(key), "%zu/%zu/%s/peak", run, pool, groups[i]);
		(void)snprintf(query, sizeof(query), "process=%zu&pool=%zu&by=%s&at=%llu&of=peak",
			       run, pool, groups[i], (unsigned long long)peak);
		file->left_out += !add(file, "moment", key, query);
		(void)snprintf(key, sizeof(key), "%zu/%zu/%s/usual", run, pool, groups[i]);
		(void)snprintf(query, sizeof(query), "process=%zu&pool=%zu&by=%s&at=%llu&and=%llu",
			       run, pool, groups[i], (unsigned long long)moments[0],
			       (unsigned long long)moments[1]);
		file->left_out += !add(file, "difference", key, query);
	}
	add_stacks(file, model, run, pool);
	add_tables(file, run, pool);
	if (answer_has_advice(model, pool)) {
		(void)snprintf(key, sizeof(key), "%zu/%zu//", run, pool);
		(void)snprintf(query, sizeof(query), "process=%zu&pool=%zu&width=%u", run, pool,
			       WIDTH);
		file->left_out += !add(file, "advise", key, query);
	}
}

/* Where blocks lie: at the peak, and over time. */
static void add_rectangles(struct file *file, const struct model *model, size_t run, size_t pool)
{
	const uint64_t peak = model_since(model, model->pools[pool].peak_ns);
	char query[128], key[64];
	size_t i;

	for (i = 0; i < groups_of(model); i++) {
		(void)snprintf(key, sizeof(key), "%zu/%zu/%s/peak", run, pool, groups[i]);
		(void)snprintf(query, sizeof(query), "process=%zu&pool=%zu&by=%s&at=%llu&of=peak",
			       run, pool, groups[i], (unsigned long long)peak);
		if (model->pools[pool].device != DEVICE_HOST) /* no pool: it has no segments */
			file->left_out += !add(file, "segments", key, query);
		(void)snprintf(key, sizeof(key), "%zu/%zu/%s/", run, pool, groups[i]);
		(void)snprintf(query, sizeof(query), "process=%zu&pool=%zu&by=%s", run, pool,
			       groups[i]);
		file->left_out += !add(file, "blocks", key, query);
	}
}

/* The block that a finding leads to. */
static void add_leaks(struct file *file, struct model *model, size_t run)
{
	const struct leaks_findings *findings = model_leaks(model);
	char query[96], key[64];
	size_t i;

	for (i = 0; findings != NULL && i < findings->place_count && i < BLOCKS_TOLD; i++) {
		const struct leaks_place *place = &findings->places[i];

		if (place->verdict == GROWTH_KEPT || place->list_count == 0)
			continue;
		(void)snprintf(key, sizeof(key), "%zu///%llu", run,
			       (unsigned long long)place->list[0].allocation_id);
		(void)snprintf(query, sizeof(query), "process=%zu&id=%llu", run,
			       (unsigned long long)place->list[0].allocation_id);
		file->left_out += !add(file, "block", key, query);
	}
}

/* Pools of frameworks before those of drivers, then the highest peak, as the page chooses (web/main.js). */
static bool is_before(const struct model_pool *a, const struct model_pool *b)
{
	bool driver = pool_is_driver(a->pool), other = pool_is_driver(b->pool);

	return driver != other ? other : a->peak_bytes > b->peak_bytes;
}

/* The pool that comes after `last` in this order; SIZE_MAX: none. */
static size_t next_pool(const struct model *model, size_t last)
{
	size_t i, best = SIZE_MAX;

	for (i = 0; i < model->pool_count; i++) {
		const struct model_pool *pool = &model->pools[i];

		if (pool->blocks == 0 || i == last)
			continue;
		if (last != SIZE_MAX && (is_before(pool, &model->pools[last]) ||
					 (!is_before(&model->pools[last], pool) && i < last)))
			continue;
		if (best == SIZE_MAX || is_before(pool, &model->pools[best]))
			best = i;
	}
	return best;
}

static void add_full(struct file *file, struct model *model, size_t run)
{
	const struct report report = {.replay = model->pass.replay,
				      .input_damaged = input_is_damaged(&model->input)};
	char query[64], key[64];
	size_t pool;

	file->damaged += report_is_damaged(&report);
	if (!add_summary(file, run, false))
		file->left_out += !add_summary(file, run, true);
	add_leaks(file, model, run);
	(void)snprintf(key, sizeof(key), "%zu///", run);
	(void)snprintf(query, sizeof(query), "process=%zu", run);
	file->left_out += !add(file, "waste", key, query);
	for (pool = next_pool(model, SIZE_MAX); pool != SIZE_MAX; pool = next_pool(model, pool))
		add_pool(file, model, run, pool);
	/* The largest answers come last. */
	for (pool = next_pool(model, SIZE_MAX); pool != SIZE_MAX; pool = next_pool(model, pool))
		add_rectangles(file, model, run, pool);
}

/* The pool that the page opens: that of the first leak, else the one that matters most; SIZE_MAX: there is none. */
static size_t opened_pool(struct model *model)
{
	const struct leaks_findings *findings = model_leaks(model);
	size_t i, k;

	for (i = 0; findings != NULL && i < findings->place_count; i++) {
		const struct leaks_place *place = &findings->places[i];

		for (k = 0; place->verdict == GROWTH_LEAK && k < model->pool_count; k++) {
			if (model->pools[k].pool == place->pool &&
			    model->pools[k].device == place->device)
				return k;
		}
	}
	return next_pool(model, SIZE_MAX);
}

static void add_brief(struct file *file, struct model *model, size_t run)
{
	size_t pool = opened_pool(model);

	file->left_out += !add_summary(file, run, true);
	if (pool != SIZE_MAX) {
		add_series(file, run, pool, "owner", WIDTH_BRIEF);
		add_series(file, run, pool, "place", WIDTH_BRIEF);
	}
}

/* ---- all runs ---- */

static struct standing standing_of(struct model *model, size_t run)
{
	const struct findings *found = model_findings(model);

	return (struct standing){.run = run,
				 .verdict = found == NULL ? VERDICT_NOTHING : found->verdict,
				 .growth = findings_growth(found),
				 .peak = model_highest(model)};
}

static int worst_first(const void *a, const void *b)
{
	const struct standing *x = a, *y = b;

	return ORDER_DOWN(x->verdict, y->verdict) ?:
	       ORDER_DOWN(x->growth, y->growth) ?:
	       ORDER_DOWN(x->peak, y->peak) ?:
	       ORDER_UP(x->run, y->run);
}

/* A summary of each run, and all views of the worst ones. Returns how many those are, or a code said in `err`. */
static int add_runs(struct file *file, size_t most, struct mscope_error *err)
{
	size_t count = file->viewed->count, full = count < RUNS_FULL ? count : RUNS_FULL, i;
	struct standing *order = calloc(count + 1, sizeof(*order));
	int r = order == NULL ? error_set(err, -ENOMEM, "no memory") : 0;

	/* Few runs are read once; of many it must be known first which are the worst. */
	for (i = 0; i < count && r == 0; i++) {
		struct model *model =
			full == count ? NULL : viewed_model(file->viewed, i, UINT64_MAX, err);

		order[i].run = i;
		if (full == count)
			continue;
		file->limit = most / 2;
		if (model == NULL)
			r = err->code;
		else
			add_brief(file, model, i);
		if (model != NULL) {
			viewed_rank(file->viewed, i);
			order[i] = standing_of(model, i);
		}
	}
	if (r == 0 && full < count)
		qsort(order, count, sizeof(*order), worst_first);
	for (i = 0; i < full && r == 0; i++) {
		struct model *model = viewed_model(file->viewed, order[i].run, UINT64_MAX, err);

		file->limit = file->bytes + (most - file->bytes) / (full - i);
		if (model == NULL)
			r = err->code;
		else
			add_full(file, model, order[i].run);
		viewed_rank(file->viewed, order[i].run);
	}
	free(order);
	return r < 0 ? r : (int)full;
}

/* What is not in it, and how to see that. */
static void tell(const struct file *file, size_t full, const char *command, struct strbuf *out)
{
	struct strbuf text = {0};

	strbuf_addf(
		&text,
		"A report: whole runs at screen resolution, with the largest %u blocks of each pool.",
		TABLE_ROWS);
	if (full < file->viewed->count)
		strbuf_addf(&text,
			    " %zu processes; the worst %zu are here in full, the others in short.",
			    file->viewed->count, full);
	if (file->damaged > 0) {
		strbuf_add_char(&text, ' ');
		strbuf_add_count(&text, file->damaged, "run is", "runs are");
		strbuf_add_str(&text, " damaged: this is all that could be read.");
	}
	if (file->left_out > 0) {
		strbuf_add_char(&text, ' ');
		strbuf_add_count(&text, file->left_out, "picture", "pictures");
		strbuf_add_str(&text, " did not fit into ");
		if (file->most % 1000000u == 0)
			strbuf_addf(&text, "%zu MB.", file->most / 1000000u);
		else
			strbuf_addf(&text, "%zu KB.", file->most / 1000u);
	}
	strbuf_add_str(&text, " Every detail: ");
	directories_leave_words(command, strnlen(command, 1000), &text);
	json_quote(out, strbuf_str(&text));
	strbuf_fini(&text);
}

int html_report(struct viewed *viewed, size_t limit, const char *command, struct strbuf *out,
		struct mscope_error *err)
{
	size_t fixed = ABOUT_BYTES + page_bytes(), least = limit > fixed ? limit - fixed : 0;
	size_t list = PROCESSES_BYTES < least / 8 ? PROCESSES_BYTES : least / 8;
	size_t ranks = RANKS_BYTES < least / 4 ? RANKS_BYTES : least / 4;
	size_t most = least - list;
	struct file file = {.viewed = viewed, .most = limit};
	struct strbuf answers = {0};
	char query[1] = "";
	size_t i;
	int r;

	/* Dump files of several processes tell so when they are opened. */
	for (i = 0; i < viewed->count && i < RUNS_OPEN; i++)
		(void)viewed_model(viewed, i, 1, err);
	*err = (struct mscope_error){0};
	for (i = 0; i < viewed->count; i++) {
		if (viewed->runs[i].name != NULL)
			directories_leave_name(viewed->runs[i].name);
	}
	if (viewed->count > 1)
		most -= ranks;
	r = add_runs(&file, most, err);
	if (r >= 0 && viewed->count > 1) {
		file.limit = most + ranks;
		file.left_out += !add(&file, "ranks", "///", query);
	}
	file.limit = least;
	(void)add(&file, "processes", "///", query);
	if (r >= 0 && file.failed)
		r = error_set(err, -ENOMEM, "no memory");
	if (r >= 0) {
		strbuf_add_str(&answers, "{\"about\":");
		tell(&file, (size_t)r, command, &answers);
		for (i = 0; i < file.count; i++) {
			if (file.list[i].text.length == 0)
				continue;
			strbuf_addf(&answers, ",\n\"%s\":", file.list[i].key);
			strbuf_add(&answers, file.list[i].text.data, file.list[i].text.length);
		}
		strbuf_add_str(&answers, "}");
		page_write(out, strbuf_str(&answers), NULL);
		r = strbuf_failed(&answers) || strbuf_failed(out)
			    ? error_set(err, -ENOMEM, "no memory")
			    : 0;
	}
	viewed->damaged = file.damaged;
	for (i = 0; i < file.count; i++)
		strbuf_fini(&file.list[i].text);
	free(file.list);
	strbuf_fini(&answers);
	return r;
}
