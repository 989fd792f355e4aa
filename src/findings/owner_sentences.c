/* SPDX-License-Identifier: Apache-2.0 */
/* Whose memory a pool has, as a table: a column for each moment, a line for each owner. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/shown.h"
#include "findings/findings.h"

/* The figures of one line, in the order of the columns. */
struct owned_line {
	uint64_t *all;
	size_t count;
};

/* Of a pool, which has room for all that it adds up. */
static const struct finding_owner_step *steps_of(const struct findings *found,
						 const struct finding_owned_pool *pool)
{
	return pool->steps.count == 0 ? NULL : FINDINGS(found, owner_step) + pool->steps.first;
}

static void take_figures(const struct findings *found, uint64_t peak_bytes, uint64_t end_bytes,
			 uint64_t oom_bytes, const struct finding_range *steps,
			 struct owned_line *to)
{
	size_t i;

	to->count = 0;
	to->all[to->count++] = peak_bytes;
	to->all[to->count++] = end_bytes;
	if (oom_bytes != UINT64_MAX)
		to->all[to->count++] = oom_bytes;
	for (i = 0; i < steps->count; i++) {
		const struct finding_owner_step *step =
			&FINDINGS(found, owner_step)[steps->first + i];

		to->all[to->count++] = step->peak_bytes;
		if (step->end_bytes != UINT64_MAX)
			to->all[to->count++] = step->end_bytes;
	}
}

#define FIGURES_OF(found, x, to)                                                                   \
	take_figures(found, (x)->peak_bytes, (x)->end_bytes, (x)->oom_bytes, &(x)->steps, to)

static void add_figures(const struct owned_line *figures, struct strbuf *out)
{
	struct strbuf size = {0};
	size_t i;

	strbuf_add_char(out, ' ');
	for (i = 0; i < figures->count; i++) {
		strbuf_reset(&size);
		strbuf_add_size(&size, figures->all[i]);
		strbuf_addf(out, " %*s", i < 2 ? 12 : 14, strbuf_str(&size));
	}
	strbuf_add_str(out, "  ");
	strbuf_fini(&size);
}

static bool is_empty(const struct owned_line *figures)
{
	size_t i;

	for (i = 0; i < figures->count; i++) {
		if (figures->all[i] != 0)
			return false;
	}
	return true;
}

static void add_titles(const struct findings *found, const struct finding_owned_pool *pool,
		       struct strbuf *out)
{
	const struct finding_owner_step *steps = steps_of(found, pool);
	char title[32];
	size_t i;

	strbuf_addf(out, "  %12s %12s", "at its peak", "at the end");
	if (pool->oom_bytes != UINT64_MAX)
		strbuf_addf(out, " %14s", "out of memory");
	for (i = 0; i < pool->steps.count; i++) {
		(void)snprintf(title, sizeof(title), "step %llu most",
			       (unsigned long long)steps[i].step);
		strbuf_addf(out, " %14s", title);
		(void)snprintf(title, sizeof(title), "step %llu end",
			       (unsigned long long)steps[i].step);
		if (steps[i].end_bytes != UINT64_MAX)
			strbuf_addf(out, " %14s", title);
	}
	strbuf_add_char(out, '\n');
}

/* The next node in reading order: child, sibling, sibling of what contains it; UINT64_MAX: none. */
static uint64_t node_after(const struct findings *found, const struct finding_range *roots,
			   uint64_t at)
{
	const struct finding_owner_node *all = FINDINGS(found, owner_node);

	if (all[at].children.count > 0)
		return all[at].children.first;
	for (; at != UINT64_MAX; at = all[at].parent) {
		const struct finding_range *range =
			all[at].parent == UINT64_MAX ? roots : &all[all[at].parent].children;

		if (at + 1 < range->first + range->count)
			return at + 1;
	}
	return at;
}

static void add_pool(const struct findings *found, const struct finding_owned_pool *pool,
		     uint32_t lines, struct owned_line *figures, struct owned_line *rest,
		     struct strbuf *out)
{
	uint32_t shown = 0, hidden = 0;
	uint64_t at = pool->tree.count == 0 ? UINT64_MAX : pool->tree.first;
	char device[16];
	size_t i;

	device_text(pool->device, device);
	strbuf_addf(out, "%s memory of %s%s by owner\n", pool_event_type(pool->event_type),
		    pool->device == DEVICE_HOST ? "" : "device ", device);
	add_titles(found, pool, out);
	for (; at != UINT64_MAX; at = node_after(found, &pool->tree, at)) {
		const struct finding_owner_node *node = &FINDINGS(found, owner_node)[at];

		FIGURES_OF(found, node, figures);
		if (node->repeats || is_empty(figures))
			continue;
		if (shown >= lines) {
			/* What contains others is their sum. */
			hidden += node->children.count == 0;
			for (i = 0; node->children.count == 0 && i < figures->count; i++)
				rest->all[i] += figures->all[i];
			continue;
		}
		shown++;
		add_figures(figures, out);
		strbuf_addf(out, "%*s", (int)(2 * node->depth), "");
		strbuf_add_shown(out, node->owner, strlen(node->owner));
		strbuf_add_str(out, node->itself ? " itself\n" : "\n");
	}
	FIGURES_OF(found, pool, figures);
	if (hidden > 0) {
		rest->count = figures->count;
		add_figures(rest, out);
		strbuf_addf(out, "%u further %s; report.txt has all of them\n", hidden,
			    hidden == 1 ? "owner" : "owners");
	}
	add_figures(figures, out);
	strbuf_add_str(out, "total\n");
}

void owned_text(const struct findings *found, uint32_t lines, struct strbuf *out)
{
	FINDINGS_EACH (found, owned_pool, pool) {
		size_t columns = 3 + 2 * pool->steps.count;
		struct owned_line figures = {.all = calloc(columns, sizeof(uint64_t))};
		struct owned_line rest = {.all = calloc(columns, sizeof(uint64_t))};

		if (figures.all != NULL && rest.all != NULL)
			add_pool(found, pool, lines, &figures, &rest, out);
		else
			out->failed = true;
		free(figures.all);
		free(rest.all);
	}
}
