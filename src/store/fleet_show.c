/* SPDX-License-Identifier: Apache-2.0 */
/* fleet show: one run on a screen. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/shown.h"
#include "base/text.h"
#include "base/whole.h"
#include "store/fleet.h"

#define SHOWN_GROUPS 4u
#define SHOWN_PLACES 2u /* of a group */
#define SHOWN_ALL    3u /* of all ranks */
#define SHOWN_LINES  25u

/* ---- words ---- */

void fleet_add_delta(double bytes, struct strbuf *out)
{
	strbuf_add_char(out, bytes < 0 ? '-' : '+');
	strbuf_add_size(out, whole(fabs(bytes)));
}

void fleet_add_ranks(const struct fleet *fleet, const uint32_t *ranks, size_t count, size_t most,
		     struct strbuf *out)
{
	uint32_t *sorted = calloc(count + 1, sizeof(*sorted));
	size_t i, k, parts = 0;

	if (sorted == NULL)
		return;
	memcpy(sorted, ranks, count * sizeof(*sorted));
	qsort(sorted, count, sizeof(*sorted), order_u32);
	for (i = 0; i < count; i = k) {
		for (k = i + 1; k < count && fleet->ranks[sorted[k]].rank ==
						     fleet->ranks[sorted[k - 1]].rank + 1;
		     k++)
			;
		if (parts++ == most) {
			strbuf_addf(out, " and %zu more", count - i);
			break;
		}
		strbuf_addf(out, "%s%lld", i == 0 ? "" : ", ",
			    (long long)fleet->ranks[sorted[i]].rank);
		if (k - i > 1)
			strbuf_addf(out, "%s%lld", k - i > 2 ? "-" : ", ",
				    (long long)fleet->ranks[sorted[k - 1]].rank);
	}
	free(sorted);
}

static void add_label(struct fleet *fleet, int64_t stack, struct strbuf *out)
{
	char *label = fleet_label(fleet, stack);

	if (label != NULL)
		strbuf_add_shown(out, label, strnlen(label, 200));
	free(label);
}

/* ---- order of ranks ---- */

static int severity(const char *verdict)
{
	static const char *const words[] = {"none", "ok", "suspect", "leak", "oom"};
	int i;

	for (i = 4; i > 1 && strcmp(verdict, words[i]) != 0; i--)
		;
	return i;
}

struct shown_rank {
	const struct fleet_rank *rank;
	uint64_t peak_bytes;
	bool out; /* it stands out */
};

static int worst_first(const void *a, const void *b)
{
	const struct shown_rank *x = a, *y = b;
	int order = severity(y->rank->verdict) - severity(x->rank->verdict);

	if (order != 0)
		return order;
	if (x->out != y->out)
		return x->out ? -1 : 1;
	if (x->peak_bytes != y->peak_bytes)
		return x->peak_bytes > y->peak_bytes ? -1 : 1;
	return x->rank->rank < y->rank->rank ? -1 : x->rank->rank > y->rank->rank;
}

static struct shown_rank *order_ranks(const struct fleet *fleet, const struct fleet_groups *groups)
{
	struct shown_rank *list = calloc(fleet->rank_count + 1, sizeof(*list));
	size_t i, k;

	for (i = 0; list != NULL && i < fleet->rank_count; i++) {
		list[i].rank = &fleet->ranks[i];
		list[i].peak_bytes = fleet->ranks[i].pools[fleet->main_pool].peak_bytes;
	}
	for (i = 0; list != NULL && i < groups->count; i++) {
		for (k = 0; k < groups->all[i].count; k++)
			list[groups->all[i].ranks[k]].out = true;
	}
	if (list != NULL && fleet->rank_count > 0)
		qsort(list, fleet->rank_count, sizeof(*list), worst_first);
	return list;
}

/* ---- dimensions ---- */

enum dimension { BY_HOST, BY_DEVICE };

static const char *dimension_of(const struct fleet_rank *rank, enum dimension by)
{
	return by == BY_HOST ? rank->host : rank->device;
}

/* The different values of a dimension, sorted; to be freed. */
static const char **values_of(const struct fleet *fleet, enum dimension by, size_t *out_count)
{
	const char **values = calloc(fleet->rank_count + 1, sizeof(*values));
	size_t i, kept = 0;

	for (i = 0; values != NULL && i < fleet->rank_count; i++)
		values[i] = dimension_of(&fleet->ranks[i], by);
	if (values != NULL && fleet->rank_count > 0)
		qsort(values, fleet->rank_count, sizeof(*values), text_order);
	for (i = 0; values != NULL && i < fleet->rank_count; i++) {
		if (kept == 0 || strcmp(values[kept - 1], values[i]) != 0)
			values[kept++] = values[i];
	}
	*out_count = kept;
	return values;
}

static void json_dimension(const struct fleet *fleet, enum dimension by, struct json *json)
{
	double *peaks = calloc(fleet->rank_count + 1, sizeof(*peaks));
	size_t count, i, k;
	const char **values = values_of(fleet, by, &count);

	json_array(json, by == BY_HOST ? "hosts" : "devices");
	for (i = 0; values != NULL && peaks != NULL && i < count; i++) {
		struct fleet_spread spread;
		size_t ranks = 0;

		for (k = 0; k < fleet->rank_count; k++) {
			if (strcmp(dimension_of(&fleet->ranks[k], by), values[i]) == 0)
				peaks[ranks++] =
					(double)fleet->ranks[k].pools[fleet->main_pool].peak_bytes;
		}
		spread = fleet_spread(peaks, ranks);
		json_object(json, NULL);
		json_string(json, by == BY_HOST ? "host" : "device", values[i]);
		json_u64(json, "ranks", ranks);
		json_u64(json, "peak_median_bytes", whole(spread.median));
		json_u64(json, "peak_most_bytes", whole(spread.most));
		json_end(json);
	}
	json_end(json);
	free(values);
	free(peaks);
}

/* What the ranks of a group have in common beyond the places, where others have not: "all on host a". */
static void add_common(const struct fleet *fleet, const struct fleet_group *group,
		       struct strbuf *out)
{
	int by;

	for (by = BY_HOST; by <= BY_DEVICE; by++) {
		const char *first =
			dimension_of(&fleet->ranks[group->ranks[0]], (enum dimension)by);
		bool same = group->count > 1;
		size_t i, all = 0;

		for (i = 0; i < group->count; i++)
			same = same && strcmp(first, dimension_of(&fleet->ranks[group->ranks[i]],
								  (enum dimension)by)) == 0;
		for (i = 0; i < fleet->rank_count; i++)
			all += strcmp(first, dimension_of(&fleet->ranks[i], (enum dimension)by)) ==
			       0;
		if (!same || all == fleet->rank_count)
			continue;
		strbuf_addf(out, ", all on %s ", by == BY_HOST ? "host" : "device");
		strbuf_add_shown(out, first, strnlen(first, 64));
	}
}

/* ---- text ---- */

static struct fleet_spread spread_in(const struct fleet *fleet, uint8_t pool, bool growth)
{
	double *values = calloc(fleet->rank_count + 1, sizeof(*values));
	struct fleet_spread spread = {0};
	size_t i, count = 0;

	for (i = 0; values != NULL && i < fleet->rank_count; i++) {
		const struct fleet_pool *of = &fleet->ranks[i].pools[pool];

		if (!growth)
			values[count++] = (double)of->peak_bytes;
		else if (of->judged)
			values[count++] = of->trend_bytes;
	}
	if (values != NULL)
		spread = fleet_spread(values, count);
	free(values);
	return spread;
}

static void text_distribution(const struct fleet *fleet, struct strbuf *out)
{
	struct fleet_spread peak = spread_in(fleet, fleet->main_pool, false);
	struct fleet_spread growth = spread_in(fleet, fleet->main_pool, true);
	const char *pool = fleet->pools[fleet->main_pool];

	strbuf_addf(out, "Peak of %s: median ", pool);
	strbuf_add_size(out, whole(peak.median));
	strbuf_add_str(out, ", nine of ten ranks up to ");
	strbuf_add_size(out, whole(peak.high));
	strbuf_add_str(out, ", least ");
	strbuf_add_size(out, whole(peak.least));
	strbuf_add_str(out, ", most ");
	strbuf_add_size(out, whole(peak.most));
	strbuf_addf(out, "\nGrowth of %s per step: median ", pool);
	fleet_add_delta(growth.median, out);
	strbuf_add_str(out, ", most ");
	fleet_add_delta(growth.most, out);
	strbuf_add_char(out, '\n');
}

static void text_group(struct fleet *fleet, const struct fleet_group *group, struct strbuf *out)
{
	const char *many = group->count == 1 ? "" : "s";
	const char *verb = group->count == 1 ? "s" : "";
	size_t i;

	strbuf_addf(out, "  rank%s ", many);
	fleet_add_ranks(fleet, group->ranks, group->count, 8, out);
	switch (group->why) {
	case FLEET_WHY_LEAK:
		strbuf_addf(out, " leak%s ", verb);
		strbuf_add_size(out, (uint64_t)group->delta_bytes);
		strbuf_add_str(out, " per step at ");
		add_label(fleet, group->reasons[0].stack, out);
		strbuf_addf(out, ", of %zu ranks", fleet->rank_count);
		break;
	case FLEET_WHY_GROWTH:
		strbuf_addf(out, ": %s grows by ", fleet->pools[group->pool]);
		strbuf_add_size(out, (uint64_t)group->delta_bytes);
		strbuf_addf(out, " per step more than elsewhere (z %.0f)", group->z);
		break;
	case FLEET_WHY_DIFFERENT:
		strbuf_addf(out, " use%s other call sites in %s (z %.0f)", verb,
			    fleet->pools[group->pool], group->z);
		break;
	default:
		strbuf_addf(out, " hold%s %.0f %% %s in %s (", verb, fabs(group->share) * 100,
			    group->why == FLEET_WHY_MORE ? "more" : "less",
			    fleet->pools[group->pool]);
		fleet_add_delta((double)group->delta_bytes, out);
		strbuf_addf(out, ", z %.0f)", fabs(group->z));
		break;
	}
	add_common(fleet, group, out);
	strbuf_add_char(out, '\n');
	for (i = 0; i < group->reason_count && i < SHOWN_PLACES && group->why != FLEET_WHY_LEAK;
	     i++) {
		struct strbuf delta = {0};

		fleet_add_delta((double)group->reasons[i].delta_bytes, &delta);
		strbuf_addf(out, "    %11s  ", strbuf_str(&delta));
		add_label(fleet, group->reasons[i].stack, out);
		strbuf_addf(out, "  (in %u of %zu ranks)\n", group->reasons[i].ranks,
			    fleet->rank_count);
		strbuf_fini(&delta);
	}
}

static void text_groups(struct fleet *fleet, const struct fleet_groups *groups, struct strbuf *out)
{
	size_t i;

	if (groups->few)
		strbuf_addf(out, "Ranks are compared with each other from %u ranks on.\n",
			    FLEET_FEW);
	else if (groups->count == 0)
		strbuf_addf(
			out,
			"No rank stands out: peaks, growth and call sites of %zu ranks were compared.\n",
			fleet->rank_count);
	else
		strbuf_add_str(out, "Ranks that stand out:\n");
	for (i = 0; i < groups->count && i < SHOWN_GROUPS; i++)
		text_group(fleet, &groups->all[i], out);
	if (i < groups->count)
		strbuf_addf(out, "  and %zu more reasons (--json has them)\n", groups->count - i);
}

static int most_leaks(const void *a, const void *b)
{
	const struct fleet_place *x = *(const struct fleet_place *const *)a,
				 *y = *(const struct fleet_place *const *)b;

	if ((x->leaks > 0) != (y->leaks > 0))
		return x->leaks > 0 ? -1 : 1;
	if (x->leaks > 0 && x->rate_bytes != y->rate_bytes)
		return x->rate_bytes > y->rate_bytes ? -1 : 1;
	if (x->median_bytes != y->median_bytes)
		return x->median_bytes > y->median_bytes ? -1 : 1;
	return x->stack < y->stack ? -1 : x->stack > y->stack;
}

/* Leaks first, then what most ranks hold. To be freed. */
static const struct fleet_place **order_places(const struct fleet *fleet)
{
	const struct fleet_place **list = calloc(fleet->place_count + 1, sizeof(*list));
	size_t i;

	for (i = 0; list != NULL && i < fleet->place_count; i++)
		list[i] = &fleet->places[i];
	if (list != NULL && fleet->place_count > 0)
		qsort(list, fleet->place_count, sizeof(*list), most_leaks);
	return list;
}

static void text_places(struct fleet *fleet, uint32_t top, struct strbuf *out)
{
	const struct fleet_place **list = order_places(fleet);
	size_t i;

	if (list != NULL && fleet->place_count > 0)
		strbuf_add_str(out, "Call sites of all ranks:\n");
	for (i = 0; list != NULL && i < fleet->place_count && i < top; i++) {
		struct strbuf size = {0};

		strbuf_add_size(&size, list[i]->leaks > 0 ? whole(list[i]->rate_bytes)
							  : list[i]->median_bytes);
		strbuf_addf(out, "  %10s %s ", strbuf_str(&size),
			    list[i]->leaks > 0 ? "per step, leak in" : "at the peak, in");
		strbuf_addf(out, "%u of %zu ranks  ",
			    list[i]->leaks > 0 ? list[i]->leaks : list[i]->count,
			    fleet->rank_count);
		add_label(fleet, list[i]->stack, out);
		strbuf_add_char(out, '\n');
		strbuf_fini(&size);
	}
	free(list);
}

static void text_ranks(const struct fleet *fleet, const struct fleet_groups *groups, uint32_t top,
		       struct strbuf *out)
{
	struct shown_rank *list = order_ranks(fleet, groups);
	size_t i;

	strbuf_addf(out, "%6s  %-16s %-6s %10s %10s %14s  %5s  %s\n", "rank", "host", "device",
		    "peak", "end", "growth/step", "steps", "verdict");
	for (i = 0; list != NULL && i < fleet->rank_count && i < top; i++) {
		const struct fleet_rank *rank = list[i].rank;
		const struct fleet_pool *pool = &rank->pools[fleet->main_pool];
		struct strbuf peak = {0}, end = {0}, growth = {0}, host = {0};

		strbuf_add_size(&peak, pool->peak_bytes);
		strbuf_add_size(&end, pool->end_bytes);
		strbuf_add_shown(&host, rank->host, strnlen(rank->host, 16));
		if (pool->judged)
			fleet_add_delta(pool->trend_bytes, &growth);
		strbuf_addf(out, "%6lld  %-16s %-6s %10s %10s %14s  %5lld  %s%s%s\n",
			    (long long)rank->rank, strbuf_str(&host), rank->device,
			    strbuf_str(&peak), strbuf_str(&end), strbuf_str(&growth),
			    (long long)rank->steps, rank->verdict,
			    strcmp(rank->outcome, "ended") == 0 ? "" : ", ",
			    strcmp(rank->outcome, "ended") == 0 ? "" : rank->outcome);
		strbuf_fini(&peak);
		strbuf_fini(&end);
		strbuf_fini(&growth);
		strbuf_fini(&host);
	}
	if (i < fleet->rank_count)
		strbuf_addf(out, "  and %zu more (--top=N)\n", fleet->rank_count - i);
	free(list);
}

static void text_head(const struct fleet *fleet, struct strbuf *out)
{
	time_t start = (time_t)(fleet->start_ns / 1000000000);
	char stamp[32] = "";
	struct tm local;
	size_t hosts, running = 0, dry = 0, i;

	free(values_of(fleet, BY_HOST, &hosts));
	if (localtime_r(&start, &local) != NULL)
		(void)strftime(stamp, sizeof(stamp), "%Y-%m-%d %H:%M", &local);
	strbuf_add_str(out, "Run ");
	strbuf_add_shown(out, fleet->name, strnlen(fleet->name, 80));
	strbuf_add_str(out, ": ");
	strbuf_add_count(out, fleet->rank_count, "rank", "ranks");
	strbuf_add_str(out, " on ");
	strbuf_add_count(out, hosts, "host", "hosts");
	if (fleet->others > 0)
		strbuf_addf(out, " (and %u other processes)", fleet->others);
	for (i = 0; i < fleet->rank_count; i++) {
		running += strcmp(fleet->ranks[i].outcome, STORE_RUNNING) == 0;
		dry += fleet->ranks[i].dry[0] != '\0';
	}
	if (dry > 0 && dry == fleet->rank_count) {
		strbuf_add_str(out, ", dry run on ");
		strbuf_add_shown(out, fleet->ranks[0].dry, strnlen(fleet->ranks[0].dry, 40));
	} else if (dry > 0) {
		strbuf_addf(out, ", %zu of them dry runs", dry);
	}
	if (running > 0)
		strbuf_addf(out, ", %zu still running", running);
	strbuf_addf(out, ", %s", stamp);
	if (fleet->code[0] != '\0') {
		strbuf_add_str(out, ", commit ");
		strbuf_add_shown(out, fleet->code, strnlen(fleet->code, 12));
	}
	strbuf_add_char(out, '\n');
}

/* ---- JSON ---- */

static void json_label(struct fleet *fleet, int64_t stack, struct json *json)
{
	char *label = fleet_label(fleet, stack);
	struct strbuf number = {0};

	json_string(json, "place", label == NULL ? "" : label);
	strbuf_addf(&number, "%016llx", (unsigned long long)stack);
	json_string(json, "stack", strbuf_str(&number));
	strbuf_fini(&number);
	free(label);
}

static void json_spread(const struct fleet_spread *spread, const char *key, struct json *json)
{
	json_object(json, key);
	json_f64(json, "median", spread->median, 1);
	json_f64(json, "spread", spread->spread, 1);
	json_f64(json, "least", spread->least, 1);
	json_f64(json, "p10", spread->low, 1);
	json_f64(json, "p90", spread->high, 1);
	json_f64(json, "most", spread->most, 1);
	json_end(json);
}

static void json_groups(struct fleet *fleet, const struct fleet_groups *groups, struct json *json)
{
	size_t i, k;

	json_bool(json, "too_few_ranks", groups->few);
	json_array(json, "outliers");
	for (i = 0; i < groups->count; i++) {
		const struct fleet_group *group = &groups->all[i];

		json_object(json, NULL);
		json_string(json, "why", fleet_why_word(group->why));
		json_string(json, "pool", fleet->pools[group->pool]);
		json_array(json, "ranks");
		for (k = 0; k < group->count; k++)
			json_i64(json, NULL, fleet->ranks[group->ranks[k]].rank);
		json_end(json);
		json_i64(json,
			 group->why == FLEET_WHY_LEAK || group->why == FLEET_WHY_GROWTH
				 ? "bytes_per_step"
				 : "delta_bytes",
			 group->delta_bytes);
		json_f64(json, "share", group->share, 4);
		json_f64(json, "z", group->z, 1);
		json_array(json, "places");
		for (k = 0; k < group->reason_count; k++) {
			json_object(json, NULL);
			json_label(fleet, group->reasons[k].stack, json);
			json_i64(json, "delta_bytes", group->reasons[k].delta_bytes);
			json_u64(json, "ranks", group->reasons[k].ranks);
			json_end(json);
		}
		json_end(json);
		json_u64(json, "more_places", group->more);
		json_end(json);
	}
	json_end(json);
}

static void json_ranks(const struct fleet *fleet, const struct fleet_groups *groups,
		       struct json *json)
{
	struct shown_rank *list = order_ranks(fleet, groups);
	size_t i, k;

	json_array(json, "ranks");
	for (i = 0; list != NULL && i < fleet->rank_count; i++) {
		const struct fleet_rank *rank = list[i].rank;

		json_object(json, NULL);
		json_i64(json, "rank", rank->rank);
		json_string(json, "host", rank->host);
		json_string(json, "device", rank->device);
		json_string(json, "name", rank->name);
		json_string(json, "trace", rank->trace);
		json_string(json, "outcome", rank->outcome);
		json_string(json, "verdict", rank->verdict);
		if (rank->dry[0] != '\0')
			json_string(json, "dry", rank->dry);
		json_i64(json, "steps", rank->steps);
		json_f64(json, "seconds", rank->seconds, 3);
		json_array(json, "pools");
		for (k = 0; k < fleet->pool_count; k++) {
			const struct fleet_pool *pool = &rank->pools[k];

			if (pool->peak_bytes == 0)
				continue;
			json_object(json, NULL);
			json_string(json, "pool", fleet->pools[k]);
			json_u64(json, "peak_bytes", pool->peak_bytes);
			json_u64(json, "end_bytes", pool->end_bytes);
			if (pool->judged)
				json_f64(json, "trend_bytes_per_step", pool->trend_bytes, 1);
			else
				json_null(json, "trend_bytes_per_step");
			json_end(json);
		}
		json_end(json);
		json_end(json);
	}
	json_end(json);
	free(list);
}

static void json_places(struct fleet *fleet, uint32_t top, struct json *json)
{
	const struct fleet_place **list = order_places(fleet);
	size_t i;

	json_u64(json, "place_count", fleet->place_count);
	json_array(json, "places");
	for (i = 0; list != NULL && i < fleet->place_count && i < top; i++) {
		json_object(json, NULL);
		json_label(fleet, list[i]->stack, json);
		json_string(json, "pool", fleet->pools[list[i]->pool]);
		json_u64(json, "ranks", list[i]->count);
		json_u64(json, "leaks", list[i]->leaks);
		json_u64(json, "suspects", list[i]->suspects);
		json_u64(json, "peak_median_bytes", list[i]->median_bytes);
		json_u64(json, "peak_most_bytes", list[i]->most_bytes);
		json_f64(json, "bytes_per_step", list[i]->rate_bytes, 1);
		json_end(json);
	}
	json_end(json);
	free(list);
}

static void show_json(struct fleet *fleet, const struct fleet_groups *groups, uint32_t top,
		      struct strbuf *out)
{
	struct json json;
	size_t i;

	json_begin(&json, out);
	json_object(&json, NULL);
	json_u64(&json, "schema", 1);
	json_string(&json, "run", fleet->name);
	json_string(&json, "job", fleet->job);
	json_string(&json, "commit", fleet->code);
	json_i64(&json, "start_ns", fleet->start_ns);
	json_u64(&json, "rank_count", fleet->rank_count);
	json_u64(&json, "other_processes", fleet->others);
	json_array(&json, "pools");
	for (i = 0; i < fleet->pool_count; i++) {
		struct fleet_spread peak = spread_in(fleet, (uint8_t)i, false);
		struct fleet_spread growth = spread_in(fleet, (uint8_t)i, true);

		json_object(&json, NULL);
		json_string(&json, "pool", fleet->pools[i]);
		json_bool(&json, "main", i == fleet->main_pool);
		json_spread(&peak, "peak_bytes", &json);
		json_spread(&growth, "bytes_per_step", &json);
		json_end(&json);
	}
	json_end(&json);
	json_groups(fleet, groups, &json);
	json_places(fleet, top, &json);
	json_dimension(fleet, BY_HOST, &json);
	json_dimension(fleet, BY_DEVICE, &json);
	json_ranks(fleet, groups, &json);
	json_end(&json);
	strbuf_add_char(out, '\n');
}

/* Ranks that the screen has room for, besides a line above and one below them. */
static uint32_t lines_left(const struct strbuf *out)
{
	uint32_t lines = 2;
	size_t i;

	for (i = 0; i < out->length; i++)
		lines += out->data[i] == '\n';
	return lines + 2 < SHOWN_LINES ? SHOWN_LINES - lines : 2;
}

int fleet_show(struct fleet *fleet, const struct fleet_ask *ask, struct strbuf *out)
{
	struct fleet_groups groups;
	int r = fleet_groups_find(fleet, &groups);

	/* What ranks differ in is what is shown of them. */
	if (r == 0 && groups.count > 0)
		fleet->main_pool = groups.all[0].pool;
	if (r == 0 && ask->json) {
		show_json(fleet, &groups, ask->top > 0 ? ask->top : 100, out);
	} else if (r == 0) {
		text_head(fleet, out);
		if (fleet->pool_count > 0) {
			text_distribution(fleet, out);
			text_groups(fleet, &groups, out);
			text_places(fleet, ask->top > 0 ? ask->top : SHOWN_ALL, out);
			text_ranks(fleet, &groups, ask->top > 0 ? ask->top : lines_left(out), out);
		} else {
			strbuf_add_str(out, "No recorded memory in any of its processes.\n");
		}
	}
	fleet_groups_fini(&groups);
	return r < 0 ? r : strbuf_failed(out) ? -ENOMEM : 0;
}
