/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fleet check: limits of a file, each against every rank of a run. A line is
 *
 *     pool NAME|*  peak|requested|end|growth  LIMIT
 *     place TEXT|*  peak|end|growth|leaks  LIMIT     places whose line has TEXT in it, together
 *     owner TEXT|*  peak  LIMIT                      owners whose name has TEXT in it, together
 *
 * A text with blanks stands in quotes; # begins a comment; a limit is a number with K, M, G or T. Growth is bytes per step.
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/io.h"
#include "base/map.h"
#include "base/shown.h"
#include "base/whole.h"
#include "store/fleet.h"

#define BUDGET_BYTES 1048576u

enum subject { OF_POOL, OF_PLACE, OF_OWNER, SUBJECTS };
enum figure { PEAK, REQUESTED, END, GROWTH, LEAKS, FIGURES };

static const char *const subjects[SUBJECTS] = {"pool", "place", "owner"};
static const char *const figures[FIGURES] = {"peak", "requested", "end", "growth", "leaks"};

struct limit {
	enum subject subject;
	enum figure figure;
	char *text;
	double most;
};

struct checking {
	struct fleet *fleet;
	const struct limit *limit;
	double *values;	    /* of each rank */
	struct map indexes; /* of processes */
	bool found;
};

/* ---- the file ---- */

/* The next word of a line, without quotes, ended by a NUL; NULL: there is none. */
static char *next_word(char **line)
{
	char *at = *line + strspn(*line, " \t"), *end;
	bool quoted = *at == '"';

	if (*at == '\0' || *at == '#')
		return NULL;
	at += quoted;
	end = at + strcspn(at, quoted ? "\"" : " \t");
	*line = *end == '\0' ? end : end + 1;
	*end = '\0';
	return at;
}

static int word_of(const char *word, const char *const *words, int count)
{
	int i;

	for (i = 0; i < count && (word == NULL || strcmp(words[i], word) != 0); i++)
		;
	return i;
}

static bool parse_size(const char *text, double *out)
{
	static const char units[] = "KMGT";
	char *end;
	const char *unit;

	if (text == NULL || !isdigit((unsigned char)text[0]))
		return false;
	*out = strtod(text, &end);
	unit = *end == '\0' ? NULL : strchr(units, toupper((unsigned char)*end));
	if (unit != NULL) {
		for (; unit >= units; unit--)
			*out *= 1024;
		end++;
		if (*end == 'i')
			end++;
	}
	if (*end == 'B')
		end++;
	return *end == '\0';
}

/* One line. 0, 1 for a line without a limit, or a code. */
static int parse_line(char *line, unsigned int number, struct limit *out, struct mscope_error *err)
{
	char *subject = next_word(&line), *text, *figure, *size;

	if (subject == NULL)
		return 1;
	text = next_word(&line);
	figure = next_word(&line);
	size = next_word(&line);
	*out = (struct limit){.subject = (enum subject)word_of(subject, subjects, SUBJECTS),
			      .figure = (enum figure)word_of(figure, figures, FIGURES)};
	if (out->subject == SUBJECTS)
		return error_set(err, MSCOPE_E_USAGE,
				 "--budget, line %u: '%.40s' is not pool, place or owner", number,
				 subject);
	if (out->figure == FIGURES || (out->subject == OF_POOL && out->figure == LEAKS) ||
	    (out->subject != OF_POOL && out->figure == REQUESTED) ||
	    (out->subject == OF_OWNER && out->figure != PEAK))
		return error_set(err, MSCOPE_E_USAGE, "--budget, line %u: %s has no figure '%.40s'",
				 number, subject, figure == NULL ? "" : figure);
	if (!parse_size(size, &out->most) || next_word(&line) != NULL)
		return error_set(err, MSCOPE_E_USAGE,
				 "--budget, line %u: '%.40s' is not a limit; write 512M or 40G",
				 number, size == NULL ? "" : size);
	out->text = strdup(text);
	return out->text == NULL ? -ENOMEM : 0;
}

static int read_budget(const char *path, struct limit **out, size_t *out_count,
		       struct mscope_error *err)
{
	char *text = calloc(1, BUDGET_BYTES), *line, *rest = text, *end;
	size_t room = 0;
	unsigned int number = 0;
	int r = 0;

	if (text == NULL)
		return -ENOMEM;
	if (!io_read_text(path, text, BUDGET_BYTES))
		r = error_set(err, -ENOENT, "--budget: cannot read %s, or there is nothing in it",
			      path);
	while (r >= 0 && rest != NULL && *rest != '\0') {
		struct limit limit;

		line = rest;
		end = strchr(rest, '\n');
		rest = end == NULL ? NULL : end + 1;
		if (end != NULL)
			*end = '\0';
		r = parse_line(line, ++number, &limit, err);
		if (r != 0)
			continue;
		r = ARRAY_RESERVE(*out, room, *out_count + 1);
		if (r == 0)
			(*out)[(*out_count)++] = limit;
	}
	free(text);
	if (r >= 0 && *out_count == 0)
		return error_set(err, MSCOPE_E_USAGE, "--budget: %s has no limit", path);
	return r < 0 ? r : 0;
}

/* ---- figures ---- */

static bool has_text(const struct limit *limit, const char *text, size_t bytes)
{
	return strcmp(limit->text, "*") == 0 ||
	       memmem(text, bytes, limit->text, strlen(limit->text)) != NULL;
}

static void measure_pools(struct checking *c)
{
	size_t i, k;

	for (k = 0; k < c->fleet->pool_count; k++) {
		if (strcmp(c->limit->text, "*") != 0 &&
		    strcmp(c->limit->text, c->fleet->pools[k]) != 0)
			continue;
		c->found = true;
		for (i = 0; i < c->fleet->rank_count; i++) {
			const struct fleet_pool *pool = &c->fleet->ranks[i].pools[k];
			double value = c->limit->figure == PEAK	 ? (double)pool->peak_bytes
				       : c->limit->figure == END ? (double)pool->end_bytes
				       : c->limit->figure == REQUESTED
					       ? (double)pool->requested_bytes
					       : pool->trend_bytes;

			/* Of all pools each is checked: the worst counts. */
			if (value > c->values[i])
				c->values[i] = value;
		}
	}
}

static void measure_places(struct checking *c)
{
	size_t i, k;

	for (i = 0; i < c->fleet->place_count; i++) {
		const struct fleet_place *place = &c->fleet->places[i];
		char *label;

		if (c->limit->figure == LEAKS && place->leaks == 0)
			continue;
		label = fleet_label(c->fleet, place->stack);
		if (label == NULL || !has_text(c->limit, label, strlen(label))) {
			free(label);
			continue;
		}
		free(label);
		c->found = true;
		for (k = 0; k < place->count; k++) {
			const struct fleet_entry *entry = &c->fleet->entries[place->from + k];

			c->values[entry->rank] +=
				c->limit->figure == PEAK  ? (double)entry->peak_bytes
				: c->limit->figure == END ? (double)entry->end_bytes
				: c->limit->figure == GROWTH
					? entry->rate_bytes
					: (double)(entry->verdict == FLEET_LEAK);
		}
	}
}

static int take_owner(void *arg, const struct store_value *values, size_t count)
{
	struct checking *c = arg;
	const uint64_t *index =
		count < 3 ? NULL
			  : map_get(&c->indexes, (struct map_key){(uint64_t)values[0].number, 0});

	if (index == NULL || !has_text(c->limit, values[1].text, values[1].bytes))
		return 0;
	c->found = true;
	c->values[*index] += values[2].real;
	return 0;
}

static int measure(struct checking *c, struct mscope_error *err)
{
	struct store_value run = store_int(c->fleet->run);

	memset(c->values, 0, c->fleet->rank_count * sizeof(*c->values));
	c->found = false;
	if (c->limit->subject == OF_POOL)
		measure_pools(c);
	else if (c->limit->subject == OF_PLACE)
		measure_places(c);
	else
		return store_query(c->fleet->store,
				   "SELECT process, owner, peak_bytes FROM owners WHERE run = $1",
				   &run, 1, take_owner, c, err);
	return 0;
}

/* ---- answers ---- */

struct verdict {
	uint32_t *ranks; /* over the limit */
	size_t count;
	double worst; /* of all ranks */
};

static void add_figure(const struct limit *limit, double value, struct strbuf *out)
{
	if (limit->figure == LEAKS)
		strbuf_addf(out, "%.0f", value);
	else
		strbuf_add_size(out, whole(value));
	if (limit->figure == GROWTH)
		strbuf_add_str(out, " per step");
}

static void text_limit(const struct checking *c, const struct verdict *verdict, struct strbuf *out)
{
	const struct limit *limit = c->limit;

	strbuf_addf(out, "%s  %s ", verdict->count > 0 ? "over" : "ok  ", subjects[limit->subject]);
	strbuf_add_shown(out, limit->text, strnlen(limit->text, 80));
	strbuf_addf(out, " %s: ", figures[limit->figure]);
	if (!c->found) {
		strbuf_add_str(out, "there is none in this run\n");
		return;
	}
	add_figure(limit, verdict->worst, out);
	strbuf_add_str(out, verdict->count > 0 ? " > " : " <= ");
	add_figure(limit, limit->most, out);
	if (verdict->count > 0) {
		strbuf_addf(out, " in %zu of %zu ranks: ", verdict->count, c->fleet->rank_count);
		fleet_add_ranks(c->fleet, verdict->ranks, verdict->count, 8, out);
	}
	strbuf_add_char(out, '\n');
}

static void json_limit(const struct checking *c, const struct verdict *verdict, struct json *json)
{
	size_t i;

	json_object(json, NULL);
	json_string(json, "subject", subjects[c->limit->subject]);
	json_string(json, "text", c->limit->text);
	json_string(json, "figure", figures[c->limit->figure]);
	json_f64(json, "limit", c->limit->most, 1);
	json_f64(json, "worst", verdict->worst, 1);
	json_bool(json, "found", c->found);
	json_bool(json, "over", verdict->count > 0);
	json_array(json, "ranks");
	for (i = 0; i < verdict->count; i++)
		json_i64(json, NULL, c->fleet->ranks[verdict->ranks[i]].rank);
	json_end(json);
	json_end(json);
}

static struct verdict judge(const struct checking *c, uint32_t *ranks)
{
	struct verdict verdict = {.ranks = ranks};
	size_t i;

	for (i = 0; i < c->fleet->rank_count; i++) {
		if (c->values[i] > verdict.worst)
			verdict.worst = c->values[i];
		if (c->values[i] > c->limit->most)
			ranks[verdict.count++] = (uint32_t)i;
	}
	return verdict;
}

static int check_all(struct checking *c, const struct limit *limits, size_t count, bool as_json,
		     struct strbuf *out, uint32_t *out_over, struct mscope_error *err)
{
	uint32_t *ranks = calloc(c->fleet->rank_count + 1, sizeof(*ranks));
	struct json json;
	size_t i;
	int r = ranks == NULL ? -ENOMEM : 0;

	if (as_json) {
		json_begin(&json, out);
		json_object(&json, NULL);
		json_u64(&json, "schema", 1);
		json_string(&json, "run", c->fleet->name);
		json_array(&json, "limits");
	}
	for (i = 0; r == 0 && i < count; i++) {
		struct verdict verdict;

		c->limit = &limits[i];
		r = measure(c, err);
		if (r < 0)
			break;
		verdict = judge(c, ranks);
		*out_over += verdict.count > 0;
		if (as_json)
			json_limit(c, &verdict, &json);
		else
			text_limit(c, &verdict, out);
	}
	if (as_json) {
		json_end(&json);
		json_u64(&json, "over", *out_over);
		json_end(&json);
		strbuf_add_char(out, '\n');
	}
	free(ranks);
	return r;
}

int fleet_check(struct fleet *fleet, const struct fleet_ask *ask, struct strbuf *out,
		uint32_t *out_over, struct mscope_error *err)
{
	struct checking c = {.fleet = fleet};
	struct limit *limits = NULL;
	size_t count = 0, i;
	int r;

	*out_over = 0;
	if (ask->budget == NULL)
		return error_set(err, MSCOPE_E_USAGE, "fleet check needs --budget=FILE");
	r = read_budget(ask->budget, &limits, &count, err);
	c.values = calloc(fleet->rank_count + 1, sizeof(*c.values));
	if (r == 0 && c.values == NULL)
		r = -ENOMEM;
	for (i = 0; r == 0 && i < fleet->rank_count; i++)
		r = map_put(&c.indexes, (struct map_key){(uint64_t)fleet->ranks[i].process, 0}, i);
	if (r == 0)
		r = check_all(&c, limits, count, ask->json, out, out_over, err);
	for (i = 0; i < count; i++)
		free(limits[i].text);
	free(limits);
	free(c.values);
	map_fini(&c.indexes);
	return r;
}
