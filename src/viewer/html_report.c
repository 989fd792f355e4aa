/* SPDX-License-Identifier: Apache-2.0 */
#include "viewer/html_report.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "viewer/page.h"

#define RUNS_MAX 8u
#define WIDTH	 1200
#define BYTES_FULL                                                                                 \
	((size_t)8                                                                                 \
	 << 20) /* from here on only summaries: a report is to be mailed, and one answer has at most a MiB */

/* One answer, under the key by which the page looks for it (web/data.js). */
static void add(struct viewed *viewed, struct strbuf *out, const char *what, const char *key,
		char *query)
{
	if (out->length > BYTES_FULL && strcmp(what, "summary") != 0)
		return; /* the page says that it is not in the report */
	if (out->length > 1)
		strbuf_add_str(out, ",\n");
	strbuf_addf(out, "\"%s/%s\":", what, key);
	(void)viewed_answer(viewed, what, query, out);
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

static void add_pool(struct viewed *viewed, const struct model *model, size_t run, size_t pool,
		     struct strbuf *out)
{
	static const char *const groups[] = {"owner", "place"};
	const uint64_t peak = model->pools[pool].peak_ns - model->from_ns,
		       end = model->to_ns - model->from_ns;
	const struct {
		const char *of;
		uint64_t at;
	} trees[] = {{"peak", peak}, {"end", end}, {"leaks", 0}, {"all", 0}};
	char query[256], key[64];
	uint64_t moments[2];
	size_t i;

	for (i = 0; i < 2; i++) {
		(void)snprintf(key, sizeof(key), "%zu/%zu/%s/", run, pool, groups[i]);
		(void)snprintf(query, sizeof(query), "process=%zu&pool=%zu&by=%s&width=%d", run,
			       pool, groups[i], WIDTH);
		add(viewed, out, "series", key, query);
		add(viewed, out, "blocks", key, query);
		(void)snprintf(key, sizeof(key), "%zu/%zu/%s/peak", run, pool, groups[i]);
		(void)snprintf(query, sizeof(query), "process=%zu&pool=%zu&by=%s&at=%llu", run,
			       pool, groups[i], (unsigned long long)peak);
		add(viewed, out, "moment", key, query);
		add(viewed, out, "segments", key, query);
		usual_moments(model, moments);
		(void)snprintf(key, sizeof(key), "%zu/%zu/%s/usual", run, pool, groups[i]);
		(void)snprintf(query, sizeof(query), "process=%zu&pool=%zu&by=%s&at=%llu&and=%llu",
			       run, pool, groups[i], (unsigned long long)moments[0],
			       (unsigned long long)moments[1]);
		add(viewed, out, "difference", key, query);
	}
	for (i = 0; i < sizeof(trees) / sizeof(trees[0]); i++) {
		(void)snprintf(key, sizeof(key), "%zu/%zu//%s", run, pool, trees[i].of);
		(void)snprintf(query, sizeof(query), "process=%zu&pool=%zu&of=%s&at=%llu", run,
			       pool, trees[i].of, (unsigned long long)trees[i].at);
		add(viewed, out, "tree", key, query);
	}
	(void)snprintf(key, sizeof(key), "%zu/%zu//", run, pool);
	(void)snprintf(query, sizeof(query), "process=%zu&pool=%zu&count=300", run, pool);
	add(viewed, out, "table", key, query);
}

int html_report(struct viewed *viewed, struct strbuf *out, struct mscope_error *err)
{
	struct strbuf answers = {0};
	char query[64], key[64];
	size_t run, pool;
	int r = 0;

	strbuf_add_str(&answers, "{");
	(void)snprintf(query, sizeof(query), "%s", "");
	add(viewed, &answers, "processes", "///", query);
	for (run = 0; run < viewed->count && run < RUNS_MAX && r == 0; run++) {
		const struct model *model = viewed_model(viewed, run, UINT64_MAX, err);

		if (model == NULL) {
			r = err->code;
			break;
		}
		(void)snprintf(key, sizeof(key), "%zu///", run);
		(void)snprintf(query, sizeof(query), "process=%zu", run);
		add(viewed, &answers, "summary", key, query);
		add(viewed, &answers, "waste", key, query);
		for (pool = 0; pool < model->pool_count; pool++) {
			if (model->pools[pool].blocks > 0)
				add_pool(viewed, model, run, pool, &answers);
		}
	}
	strbuf_add_str(&answers, "}");
	if (r == 0 && strbuf_failed(&answers))
		r = error_set(err, -ENOMEM, "no memory");
	if (r == 0)
		page_write(out, strbuf_str(&answers), NULL);
	strbuf_fini(&answers);
	return r;
}
