/* SPDX-License-Identifier: Apache-2.0 */
#include "viewer/store_page.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/text.h"
#include "store/fleet.h"
#include "viewer/page.h"

#define COLUMNS	 240u
#define FRESH_NS UINT64_C(3000000000) /* a run that goes on is not loaded more often */
#define NONCE	 "@NONCE@"

__asm__(".section .rodata\n"
	".balign 8\n"
	"mscope_store_page:\n"
	".incbin \"" MSCOPE_STORE_PAGE "\"\n"
	".byte 0\n"
	".previous\n");

extern const char mscope_store_page[];

struct store_page {
	const struct store_choice *choice;
	struct viewed *viewed;
	char *run; /* "": the latest when it was opened */
	struct store *store;
	struct fleet fleet;
	uint64_t loaded_ns;
};

bool store_page_is_url(const char *word)
{
	return text_starts_with(word, "sqlite:") || text_starts_with(word, "postgresql://") ||
	       text_starts_with(word, "postgres://") || text_starts_with(word, "rows:");
}

static int load(struct store_page *page, struct mscope_error *err)
{
	struct fleet fleet = {0};
	int r = page->store != NULL ? 0 : store_open(page->choice, &page->store, err);

	if (r == 0)
		r = fleet_load(&fleet, page->store, page->run, err);
	if (r < 0) {
		fleet_fini(&fleet);
		store_close(page->store); /* the next time it may answer again */
		page->store = NULL;
		return r;
	}
	fleet_fini(&page->fleet);
	page->fleet = fleet;
	page->loaded_ns = clock_monotonic_ns();
	return 0;
}

int store_page_open(const struct store_choice *choice, const char *run, struct viewed *viewed,
		    struct store_page **out, struct mscope_error *err)
{
	struct store_page *page = calloc(1, sizeof(*page));
	int r;

	*out = NULL;
	if (page == NULL)
		return error_set(err, -ENOMEM, "no memory");
	*page = (struct store_page){.choice = choice, .viewed = viewed, .run = strdup(run)};
	r = page->run == NULL ? error_set(err, -ENOMEM, "no memory") : load(page, err);
	if (r == 0 && run[0] == '\0') {
		/* The one that was shown stays the one that is shown. */
		free(page->run);
		page->run = strdup(page->fleet.name);
		if (page->run == NULL)
			r = error_set(err, -ENOMEM, "no memory");
	}
	if (r < 0) {
		store_page_close(page);
		return r;
	}
	*out = page;
	return 0;
}

void store_page_close(struct store_page *page)
{
	if (page == NULL)
		return;
	fleet_fini(&page->fleet);
	store_close(page->store);
	free(page->run);
	free(page);
}

/* ---- traces ---- */

/* The number of a rank's trace among the runs that are viewed; it is added if it is new. SIZE_MAX: no memory, or no trace. */
static size_t trace_of(struct store_page *page, const struct fleet_rank *rank)
{
	struct viewed *viewed = page->viewed;
	struct viewed_run run = {0};
	char name[96];
	size_t i;

	if (rank->trace[0] == '\0')
		return SIZE_MAX;
	for (i = 0; i < viewed->count; i++) {
		if (strcmp(viewed->runs[i].word, rank->trace) == 0)
			return i;
	}
	(void)snprintf(name, sizeof(name), "rank %lld, %.64s", (long long)rank->rank, rank->host);
	run.word = strdup(rank->trace);
	run.name = strdup(name);
	if (run.word == NULL || run.name == NULL ||
	    ARRAY_RESERVE(viewed->runs, viewed->room, viewed->count + 1) < 0) {
		free(run.word);
		free(run.name);
		return SIZE_MAX;
	}
	viewed->runs[viewed->count++] = run;
	return i;
}

/* ---- answers ---- */

static void say_error(const struct mscope_error *err, struct strbuf *out)
{
	struct json json;

	json_begin(&json, out);
	json_object(&json, NULL);
	json_string(&json, "error", err->message);
	json_end(&json);
}

static bool goes_on(const struct fleet *fleet)
{
	size_t i;

	for (i = 0; i < fleet->rank_count; i++) {
		if (strcmp(fleet->ranks[i].outcome, STORE_RUNNING) == 0)
			return true;
	}
	return false;
}

static int say_fleet(struct store_page *page, struct strbuf *out, struct mscope_error *err)
{
	struct fleet_ask ask = {.json = true};
	int r = 0;

	if (goes_on(&page->fleet) && clock_monotonic_ns() - page->loaded_ns > FRESH_NS)
		r = load(page, err);
	if (r == 0) {
		r = fleet_show(&page->fleet, &ask, out);
		if (r < 0)
			(void)error_set(err, r, "%s", mscope_status_str(r));
	}
	return r;
}

static void say_rank(struct store_page *page, size_t index, const struct fleet_timeline *line,
		     struct json *json)
{
	const struct fleet_rank *rank = &page->fleet.ranks[index];
	size_t trace = trace_of(page, rank), i;

	json_object(json, NULL);
	json_i64(json, "rank", rank->rank);
	/* Without one, its trace cannot be opened here. */
	if (trace != SIZE_MAX && access(rank->trace, R_OK) == 0)
		json_u64(json, "process", trace);
	json_array(json, "values");
	for (i = 0; i < line->width; i++)
		json_u64(json, NULL, line->values[index * line->width + i]);
	json_end(json);
	json_end(json);
}

static int say_timeline(struct store_page *page, const char *query, struct strbuf *out,
			struct mscope_error *err)
{
	const char *number = strstr(query, "pool=");
	size_t pool = number == NULL ? 0 : strtoul(number + 5, NULL, 10), i;
	struct fleet_timeline line = {0};
	struct json json;
	int r;

	if (pool >= page->fleet.pool_count)
		return error_set(err, -EINVAL, "no such pool");
	if (page->store == NULL)
		return error_set(err, -EAGAIN, "the store does not answer");
	r = fleet_timeline(&page->fleet, pool, COLUMNS, &line, err);
	if (r == 0) {
		json_begin(&json, out);
		json_object(&json, NULL);
		json_i64(&json, "from_ns", line.from_ns);
		json_i64(&json, "to_ns", line.to_ns);
		json_array(&json, "ranks");
		for (i = 0; i < page->fleet.rank_count; i++)
			say_rank(page, i, &line, &json);
		json_end(&json);
		json_end(&json);
	}
	fleet_timeline_fini(&line);
	return r;
}

static void write_page(const char *nonce, struct strbuf *out)
{
	const char *name = strstr(mscope_store_page, NONCE);

	if (name == NULL)
		return;
	strbuf_add(out, mscope_store_page, (size_t)(name - mscope_store_page));
	strbuf_addf(out, " nonce=\"%s\"", nonce);
	strbuf_add_str(out, name + strlen(NONCE));
}

bool store_page_reply(struct store_page *page, const char *path, const char *query,
		      const char *nonce, struct strbuf *out, const char **out_type)
{
	struct mscope_error err = {0};
	int r = 0;

	*out_type = "application/json";
	if (strcmp(path, "/") == 0 || strcmp(path, "/rank") == 0) {
		*out_type = "text/html";
		if (path[1] == '\0')
			write_page(nonce, out);
		else
			page_write(out, NULL, nonce);
	} else if (strcmp(path, "/api/fleet") == 0) {
		r = say_fleet(page, out, &err);
	} else if (strcmp(path, "/api/timeline") == 0) {
		r = say_timeline(page, query, out, &err);
	} else {
		return false;
	}
	if (r < 0) {
		strbuf_reset(out);
		say_error(&err, out);
	}
	return true;
}
