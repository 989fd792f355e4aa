/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fleet history: the peak of a pool, or what a place held at it, over the runs of a store, and where it changed. A run's figure is the
 * median of its ranks. The runs are cut where that explains most: medians on both sides must differ by many times the noise between
 * neighbouring runs, and by a share that matters. A single run that is off is no change, unless it is the last.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/shown.h"
#include "base/whole.h"
#include "store/fleet.h"

#define SURE  5.0  /* times the noise */
#define SHARE 0.02 /* of the figure before */

struct past_run {
	int64_t run, start_ns;
	char *name, *code;
	double bytes;
	uint32_t ranks;
	bool known;	      /* it has the place or the pool */
	bool changed;	      /* the first of a new level */
	double before, after; /* medians of the levels */
};

struct history {
	struct store *store;
	const struct fleet_ask *ask;
	struct past_run *runs; /* oldest first */
	size_t count, room;
	char *pool;
	int64_t *stacks; /* that the place's text names */
	size_t stack_count, stack_room;
	char *label;	/* of the first */
	double *values; /* of one run's ranks */
	int64_t *ranks;
	size_t value_count, value_room, rank_room;
};

/* ---- which runs, which places ---- */

static int take_run(void *arg, const struct store_value *values, size_t count)
{
	struct history *history = arg;
	struct past_run *run;

	if (count < 4 || ARRAY_RESERVE(history->runs, history->room, history->count + 1) < 0)
		return -ENOMEM;
	run = &history->runs[history->count++];
	*run = (struct past_run){.run = values[0].number,
				 .name = strndup(values[1].text, values[1].bytes),
				 .code = strndup(values[2].text, values[2].bytes),
				 .start_ns = values[3].number};
	return run->name == NULL || run->code == NULL ? -ENOMEM : 0;
}

static int by_time(const void *a, const void *b)
{
	const struct past_run *x = a, *y = b;

	return ORDER_UP(x->start_ns, y->start_ns) ?: strcmp(x->name, y->name);
}

static int find_runs(struct history *history, struct mscope_error *err)
{
	struct store_value tag = store_str(history->ask->tag);
	int r;

	if (history->ask->tag != NULL)
		r = store_query(
			history->store,
			"SELECT r.run, r.name, r.code, r.start_ns FROM runs r JOIN tags t ON t.run = r.run WHERE t.tag = $1 ORDER BY r.start_ns DESC LIMIT 2000",
			&tag, 1, take_run, history, err);
	else
		r = store_query(
			history->store,
			"SELECT run, name, code, start_ns FROM runs ORDER BY start_ns DESC LIMIT 2000",
			NULL, 0, take_run, history, err);
	if (r == 0 && history->count > 0)
		qsort(history->runs, history->count, sizeof(*history->runs), by_time);
	if (r == 0 && history->count == 0)
		r = error_set(err, MSCOPE_E_ABSENT, "%s has no run%s%s", history->store->name,
			      history->ask->tag == NULL ? "" : " with the tag ",
			      history->ask->tag == NULL ? "" : history->ask->tag);
	return r;
}

static int take_stack(void *arg, const struct store_value *values, size_t count)
{
	struct history *history = arg;

	if (count < 2 || memmem(values[1].text, values[1].bytes, history->ask->place,
				strlen(history->ask->place)) == NULL)
		return 0;
	if (array_reserve(&history->stacks, &history->stack_room, history->stack_count + 1,
			  sizeof(int64_t)) < 0)
		return -ENOMEM;
	if (history->stack_count == 0)
		history->label = strndup(values[1].text, values[1].bytes);
	history->stacks[history->stack_count++] = values[0].number;
	return 0;
}

static int find_stacks(struct history *history, struct mscope_error *err)
{
	int r = store_query(history->store, "SELECT stack, label FROM stacks", NULL, 0, take_stack,
			    history, err);

	if (r == 0 && history->stack_count == 0)
		r = error_set(err, MSCOPE_E_ABSENT, "%s has no call site with '%s' in its line",
			      history->store->name, history->ask->place);
	return r;
}

static int take_pool(void *arg, const struct store_value *values, size_t count)
{
	struct history *history = arg;

	if (count > 0 && history->pool == NULL)
		history->pool = strndup(values[0].text, values[0].bytes);
	return 0;
}

static int find_pool(struct history *history, struct mscope_error *err)
{
	struct store_value run = store_int(history->runs[history->count - 1].run);
	int r;

	if (history->ask->pool != NULL)
		return (history->pool = strdup(history->ask->pool)) == NULL ? -ENOMEM : 0;
	r = store_query(
		history->store,
		"SELECT pool, MAX(peak_bytes) FROM pools WHERE run = $1 GROUP BY pool ORDER BY 2 DESC LIMIT 1",
		&run, 1, take_pool, history, err);
	if (r == 0 && history->pool == NULL)
		r = error_set(err, MSCOPE_E_ABSENT, "the latest run has no pool");
	return r;
}

/* ---- figures ---- */

/* (rank or process, bytes): of several processes of a rank the largest counts, of several places their sum. */
static int take_value(void *arg, const struct store_value *values, size_t count)
{
	struct history *history = arg;

	if (count < 3 ||
	    array_reserve(&history->values, &history->value_room, history->value_count + 1,
			  sizeof(double)) < 0 ||
	    array_reserve(&history->ranks, &history->rank_room, history->value_count + 1,
			  sizeof(int64_t)) < 0)
		return -ENOMEM;
	history->ranks[history->value_count] =
		values[0].type == STORE_NULL ? values[1].number : values[0].number;
	history->values[history->value_count++] = values[2].real;
	return 0;
}

static void join_values(struct history *history, bool add)
{
	size_t i, k, kept = 0;

	for (i = 0; i < history->value_count; i++) {
		for (k = 0; k < kept && history->ranks[k] != history->ranks[i]; k++)
			;
		if (k == kept) {
			history->ranks[kept] = history->ranks[i];
			history->values[kept++] = history->values[i];
		} else if (add) {
			history->values[k] += history->values[i];
		} else if (history->values[i] > history->values[k]) {
			history->values[k] = history->values[i];
		}
	}
	history->value_count = kept;
}

static int measure(struct history *history, struct past_run *run, struct mscope_error *err)
{
	struct store_value values[2] = {store_int(run->run)};
	size_t i;
	int r = 0;

	history->value_count = 0;
	for (i = 0; r == 0 && i < history->stack_count; i++) {
		values[1] = store_int(history->stacks[i]);
		r = store_query(
			history->store,
			"SELECT p.rank, p.process, s.peak_bytes FROM places s JOIN processes p ON p.run = s.run AND p.process = s.process WHERE s.run = $1 AND s.stack = $2",
			values, 2, take_value, history, err);
	}
	if (r == 0 && history->pool != NULL) {
		values[1] = store_str(history->pool);
		r = store_query(
			history->store,
			"SELECT p.rank, p.process, s.peak_bytes FROM pools s JOIN processes p ON p.run = s.run AND p.process = s.process WHERE s.run = $1 AND s.pool = $2",
			values, 2, take_value, history, err);
	}
	if (r < 0)
		return r;
	join_values(history, history->pool == NULL);
	run->ranks = (uint32_t)history->value_count;
	run->known = history->value_count > 0;
	run->bytes = fleet_spread(history->values, history->value_count).median;
	return 0;
}

/* ---- where it changed ---- */

/* Sum of distances from the median of figures [from, to), and the median. */
static double cost(const struct history *history, size_t from, size_t to, double *scratch,
		   double *out_median)
{
	double sum = 0;
	size_t i;

	for (i = from; i < to; i++)
		scratch[i - from] = history->runs[i].bytes;
	*out_median = fleet_spread(scratch, to - from).median;
	for (i = from; i < to; i++)
		sum += fabs(history->runs[i].bytes - *out_median);
	return sum;
}

static double noise_of(const struct history *history, double *scratch)
{
	double sum = 0;
	size_t i;

	for (i = 1; i < history->count; i++)
		scratch[i - 1] = history->runs[i].bytes - history->runs[i - 1].bytes;
	sum = history->count < 2 ? 0 : fleet_spread(scratch, history->count - 1).spread / sqrt(2);
	for (i = 0; i < history->count; i++)
		scratch[i] = history->runs[i].bytes;
	return fmax(sum, 0.002 * fleet_spread(scratch, history->count).median);
}

/* Cuts [from, to) where two levels explain it best, and each part again. */
static void cut(struct history *history, size_t from, size_t to, double noise, double *scratch)
{
	double best = INFINITY, before = 0, after = 0, left, right, gain, sure;
	size_t i, at = 0;

	for (i = from + 1; i < to; i++) {
		double sum;

		/* A level of one run is only seen at the very end, or the very beginning. */
		if ((i - from < 2 && from > 0) || (to - i < 2 && to < history->count))
			continue;
		sum = cost(history, from, i, scratch, &left) +
		      cost(history, i, to, scratch, &right);
		if (sum < best) {
			best = sum;
			at = i;
			before = left;
			after = right;
		}
	}
	if (at == 0)
		return;
	gain = fabs(after - before);
	sure = gain * sqrt((double)(at - from) * (double)(to - at) / (double)(to - from));
	if (sure < SURE * noise || gain < SHARE * before || gain == 0)
		return;
	history->runs[at].changed = true;
	history->runs[at].before = before;
	history->runs[at].after = after;
	cut(history, from, at, noise, scratch);
	cut(history, at, to, noise, scratch);
}

/* Levels as they are once all cuts are known. */
static void settle_levels(struct history *history, double *scratch)
{
	size_t i, last = 0, next;
	double median;

	for (i = 1; i < history->count; i++) {
		if (!history->runs[i].changed)
			continue;
		for (next = i + 1; next < history->count && !history->runs[next].changed; next++)
			;
		(void)cost(history, last, i, scratch, &median);
		history->runs[i].before = median;
		(void)cost(history, i, next, scratch, &median);
		history->runs[i].after = median;
		last = i;
	}
}

static int find_changes(struct history *history)
{
	double *scratch = calloc(history->count + 1, sizeof(*scratch));

	if (scratch == NULL)
		return -ENOMEM;
	cut(history, 0, history->count, noise_of(history, scratch), scratch);
	settle_levels(history, scratch);
	free(scratch);
	return 0;
}

/* ---- answers ---- */

static void write_json(const struct history *history, struct strbuf *out)
{
	struct json json;
	size_t i;

	json_begin(&json, out);
	json_object(&json, NULL);
	json_u64(&json, "schema", 1);
	if (history->pool != NULL)
		json_string(&json, "pool", history->pool);
	else
		json_string(&json, "place", history->label == NULL ? "" : history->label);
	json_array(&json, "runs");
	for (i = 0; i < history->count; i++) {
		const struct past_run *run = &history->runs[i];

		json_object(&json, NULL);
		json_string(&json, "run", run->name);
		json_string(&json, "commit", run->code);
		json_i64(&json, "start_ns", run->start_ns);
		json_u64(&json, "ranks", run->ranks);
		json_f64(&json, "bytes", run->bytes, 0);
		json_end(&json);
	}
	json_end(&json);
	json_array(&json, "changes");
	for (i = 0; i < history->count; i++) {
		const struct past_run *run = &history->runs[i];

		if (!run->changed)
			continue;
		json_object(&json, NULL);
		json_string(&json, "run", run->name);
		json_string(&json, "commit", run->code);
		json_string(&json, "last_run_before", history->runs[i - 1].name);
		json_string(&json, "last_commit_before", history->runs[i - 1].code);
		json_f64(&json, "before_bytes", run->before, 0);
		json_f64(&json, "after_bytes", run->after, 0);
		json_end(&json);
	}
	json_end(&json);
	json_end(&json);
	strbuf_add_char(out, '\n');
}

static void add_run(const struct past_run *run, struct strbuf *out)
{
	strbuf_add_shown(out, run->name, strnlen(run->name, 40));
	if (run->code[0] != '\0') {
		strbuf_add_str(out, " (commit ");
		strbuf_add_shown(out, run->code, strnlen(run->code, 12));
		strbuf_add_char(out, ')');
	}
}

static void write_text(const struct history *history, uint32_t top, struct strbuf *out)
{
	size_t i, changes = 0, from = history->count > top ? history->count - top : 0;

	strbuf_add_str(out, history->pool != NULL ? "Peak of " : "At the peak: ");
	strbuf_add_shown(out, history->pool != NULL ? history->pool : history->label,
			 strnlen(history->pool != NULL ? history->pool : history->label, 120));
	strbuf_add_str(out, ", median of the ranks, over ");
	strbuf_add_count(out, history->count, "run", "runs");
	strbuf_add_char(out, '\n');
	for (i = 0; i < history->count; i++) {
		const struct past_run *run = &history->runs[i];

		if (!run->changed)
			continue;
		changes++;
		strbuf_add_str(out, "Changed with ");
		add_run(run, out);
		strbuf_add_str(out, ": ");
		strbuf_add_size(out, whole(run->before));
		strbuf_add_str(out, " -> ");
		strbuf_add_size(out, whole(run->after));
		strbuf_add_str(out, "; the last run before was ");
		add_run(&history->runs[i - 1], out);
		strbuf_add_char(out, '\n');
	}
	if (changes == 0)
		strbuf_add_str(out, history->count < 2 ? "No other run to compare it with yet.\n"
						       : "It did not change.\n");
	for (i = from; i < history->count; i++) {
		const struct past_run *run = &history->runs[i];
		struct strbuf size = {0};

		strbuf_add_size(&size, whole(run->bytes));
		strbuf_addf(out, "  %10s %s ", strbuf_str(&size), run->changed ? "<-" : "  ");
		add_run(run, out);
		strbuf_add_char(out, '\n');
		strbuf_fini(&size);
	}
	if (from > 0)
		strbuf_addf(out, "  and %zu earlier runs (--top=N)\n", from);
}

int fleet_history(struct store *store, const struct fleet_ask *ask, struct strbuf *out,
		  struct mscope_error *err)
{
	struct history history = {.store = store, .ask = ask};
	size_t i;
	int r = find_runs(&history, err);

	if (r == 0)
		r = ask->place != NULL ? find_stacks(&history, err) : find_pool(&history, err);
	for (i = 0; r == 0 && i < history.count; i++)
		r = measure(&history, &history.runs[i], err);
	if (r == 0)
		r = find_changes(&history);
	if (r == 0 && ask->json)
		write_json(&history, out);
	else if (r == 0)
		write_text(&history, ask->top > 0 ? ask->top : 15, out);
	for (i = 0; i < history.count; i++) {
		free(history.runs[i].name);
		free(history.runs[i].code);
	}
	free(history.runs);
	free(history.pool);
	free(history.stacks);
	free(history.label);
	free(history.values);
	free(history.ranks);
	return r;
}
