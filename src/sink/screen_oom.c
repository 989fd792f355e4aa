/* SPDX-License-Identifier: Apache-2.0 */
#include "sink/screen_oom.h"

#include <ctype.h>
#include <string.h>

#include "base/shown.h"
#include "findings/say.h"
#include "sink/screen.h"
#include "sink/screen_names.h"

#define HOLDERS 5u
#define IN_TEXT 72u /* columns of a name inside a sentence */

/* ---- out of memory ---- */

/* "0.4 of 140 GiB", "0.4 GiB" of a device of unknown size; what reads as what was asked for, and is not, a unit finer. */
static void add_free(const struct finding_oom *oom, struct strbuf *out)
{
	struct strbuf free_text = {0}, plain = {0};

	say_apart(&free_text, oom->free_bytes, oom->requested_bytes);
	strbuf_add_size(&plain, oom->free_bytes);
	if (oom->total_bytes == UINT64_MAX) {
		strbuf_add_str(out, strbuf_str(&free_text));
	} else if (strcmp(strbuf_str(&free_text), strbuf_str(&plain)) != 0) {
		strbuf_addf(out, "%s of ", strbuf_str(&free_text));
		strbuf_add_size(out, oom->total_bytes);
	} else {
		say_part(out, oom->free_bytes, oom->total_bytes);
	}
	strbuf_fini(&free_text);
	strbuf_fini(&plain);
}

static void add_head(const struct findings *found, const struct finding_oom *oom,
		     struct strbuf *out)
{
	strbuf_add_str(out, "OUT OF MEMORY on ");
	say_device(out, found->vendor, oom->device);
	if (oom->step != 0)
		strbuf_addf(out, ", step %llu", (unsigned long long)oom->step);
	strbuf_add_str(out, ": ");
	say_apart(out, oom->requested_bytes, oom->free_bytes);
	strbuf_add_str(out, " asked for");
	if (oom->free_bytes != UINT64_MAX) {
		strbuf_add_str(out, ", ");
		add_free(oom, out);
		strbuf_add_str(out, " free");
	}
	strbuf_add_char(out, '\n');
	if (oom->place[0] != '\0') {
		strbuf_add_str(out, "  at ");
		screen_name(oom->place, true, NULL, 0, SCREEN_COLUMNS - 5, out);
		strbuf_add_char(out, '\n');
	}
}

/* Appends a sentence that starts in lower case. */
static void add_sentence(const char *sentence, struct strbuf *out)
{
	if (sentence[0] != '\0')
		strbuf_addf(out, "%c%s", toupper((unsigned char)sentence[0]), sentence + 1);
}

/* What keeps the blocks of a call site; NULL: it is not known, or has no cure. */
static const struct finding_keeper *keeper_of(const struct findings *found,
					      const struct finding_oom_place *growing)
{
	FINDINGS_EACH (found, place, place) {
		const struct finding_keeper *keeper;

		if (place->stack != growing->stack || place->pool != growing->pool ||
		    place->keepers.count == 0)
			continue;
		keeper = &FINDINGS(found, keeper)[place->keepers.first];
		return keeper->cure[0] == '\0' || keeper->name[0] == '\0' ? NULL : keeper;
	}
	return NULL;
}

static void add_try(const struct findings *found, const struct finding_oom *oom,
		    const struct finding_oom_place *growing, struct strbuf *out)
{
	const struct finding_keeper *keeper = NULL;
	struct strbuf what = {0};

	strbuf_add_str(out, "Try: ");
	if (growing != NULL && growing->stack != 0)
		keeper = keeper_of(found, growing);
	if (keeper != NULL) {
		strbuf_addf(&what, "bound what %s `%s` keeps: %s.", keeper->type, keeper->name,
			    keeper->cure);
		strbuf_add_shown(out, strbuf_str(&what), what.length);
		strbuf_add_char(out, '\n');
		strbuf_fini(&what);
	} else if (growing != NULL && growing->stack != 0) {
		strbuf_add_str(out, "free, detach or bound what ");
		screen_name(growing->place, true, NULL, 0, IN_TEXT, out);
		strbuf_add_str(out, " keeps.\n");
	} else {
		oom_try(found, oom, out);
		strbuf_add_str(out, ".\n");
	}
}

/* A call site that is called a leak has its rate there: one figure for one thing. */
static void add_more(const struct findings *found, const struct finding_oom *oom,
		     const struct finding_oom_place *growing, struct strbuf *out)
{
	size_t i;

	for (i = 0; i < FINDINGS_COUNT(found, place) && !found->judgement.by_time; i++) {
		const struct finding_place *place = &FINDINGS(found, place)[i];

		if (growing->stack != 0 && place->stack == growing->stack &&
		    place->pool == growing->pool && place->device == oom->device &&
		    place->verdict == GROWTH_LEAK) {
			say_size(out, place->bytes_per_step);
			return;
		}
	}
	strbuf_add_size(out, oom->bytes_per_step);
}

static void add_cause(const struct findings *found, const struct finding_oom *oom,
		      struct strbuf *out)
{
	const struct finding_oom_place *growing =
		oom->growing.count == 0 ? NULL : &FINDINGS(found, oom_place)[oom->growing.first];
	struct strbuf text = {0};

	strbuf_addf(out, "Cause: %s. ", oom_cause_text(oom->cause));
	if (growing != NULL && growing->stack == 0 && oom->bytes_per_step != 0) {
		strbuf_addf(out, "Memory in %s grows by ", growing->place);
		strbuf_add_size(out, oom->bytes_per_step);
		strbuf_add_str(out, " with every step.\n");
	} else if (growing != NULL && oom->bytes_per_step != 0) {
		screen_name(growing->place, true, NULL, 0, IN_TEXT, out);
		strbuf_add_str(out, " keeps ");
		add_more(found, oom, growing, out);
		strbuf_add_str(out, " more with every step.\n");
	} else {
		oom_why(found, oom, &text);
		add_sentence(strbuf_str(&text), out);
		strbuf_add_str(out, ".\n");
	}
	oom_limit(oom, out);
	add_try(found, oom, growing, out);
	strbuf_fini(&text);
}

/* Memory of frameworks' pools was recorded: what these took from the driver is theirs. */
static bool is_pooled(const struct findings *found, const struct finding_oom *oom)
{
	size_t i;

	for (i = 0; i < oom->pools.count; i++) {
		if (!pool_is_driver(FINDINGS(found, oom_pool)[oom->pools.first + i].pool))
			return true;
	}
	return false;
}

/* What was held: pools, what lies beside them, other processes. */
static void add_moment(const struct findings *found, const struct finding_oom *oom,
		       struct strbuf *out)
{
	struct say_sum sum = {.out = out};
	bool pooled = is_pooled(found, oom);
	size_t i;

	strbuf_add_str(out, "At that moment: ");
	for (i = 0; i < oom->pools.count; i++) {
		const struct finding_oom_pool *pool =
			&FINDINGS(found, oom_pool)[oom->pools.first + i];

		if (pool_is_driver(pool->pool) && pooled)
			continue;
		say_sum_add(&sum, say_pool(found->vendor, pool->pool), pool->live_bytes);
		if (pool->live_bytes != 0 && pool->reserved_bytes > pool->live_bytes)
			say_sum_also(&sum, " in use, ", pool->reserved_bytes, " reserved");
	}
	if (pooled && oom->outside_pool_bytes != UINT64_MAX)
		say_sum_add(&sum, "outside the pool", oom->outside_pool_bytes);
	say_sum_add(&sum, "lost to pages", oom->lost_to_pages_bytes);
	if (oom->other_processes_bytes != UINT64_MAX)
		say_sum_add(&sum, "other processes and the driver", oom->other_processes_bytes);
	if (sum.unit == NULL)
		strbuf_add_str(out, "nothing that was recorded");
	say_sum_end(&sum);
	strbuf_add_char(out, '\n');
}

static void add_holders(const struct findings *found, const struct finding_oom *oom,
			struct strbuf *out)
{
	bool pooled = is_pooled(found, oom);
	const struct finding_oom_place *holders[HOLDERS];
	const char *names[HOLDERS];
	bool stacks = oom->growing.count > 0; /* else "Try:" asks for them */
	uint64_t all = 0;
	size_t i, shown = 0;

	for (i = 0; i < oom->pools.count; i++) {
		const struct finding_oom_pool *pool =
			&FINDINGS(found, oom_pool)[oom->pools.first + i];

		all += pool_is_driver(pool->pool) && pooled ? 0 : pool->live_bytes;
	}
	for (i = 0; i < oom->places.count && shown < HOLDERS; i++) {
		const struct finding_oom_place *holder =
			&FINDINGS(found, oom_place)[oom->places.first + i];

		if (pool_is_driver(holder->pool) && pooled)
			continue;
		stacks |= holder->stack != 0;
		names[shown] = holder->place;
		holders[shown++] = holder;
	}
	for (i = 0; i < shown; i++) {
		struct strbuf size = {0};

		strbuf_add_size(&size, holders[i]->bytes);
		strbuf_addf(out, "%10s %3.0f %%  ", strbuf_str(&size),
			    all == 0 ? 0 : 100.0 * (double)holders[i]->bytes / (double)all);
		screen_name(names[i], holders[i]->stack != 0, names, shown, SCREEN_COLUMNS - 18,
			    out);
		strbuf_add_char(out, '\n');
		strbuf_fini(&size);
	}
	if (shown > 0 && !stacks)
		strbuf_add_str(out, SCREEN_NO_STACKS);
}

void screen_oom(const struct findings *found, const struct finding_oom *oom, size_t earlier,
		struct strbuf *out, struct strbuf *held)
{
	add_head(found, oom, out);
	add_cause(found, oom, out);
	add_moment(found, oom, held);
	add_holders(found, oom, held);
	if (earlier == 1)
		strbuf_add_str(out, "One earlier out-of-memory error: see report.txt.\n");
	else if (earlier > 1)
		strbuf_addf(out, "%zu earlier out-of-memory errors: see report.txt.\n", earlier);
}
