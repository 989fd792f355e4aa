/* SPDX-License-Identifier: Apache-2.0 */
/* What a report says about watched memory. */
#include "sink/report_watch.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "findings/site.h"
#include "base/nearest.h"
#include "base/shown.h"
#include "replay/watches.h"
#include "sink/project.h"

#define NEAREST 3u

/* ---- who changed it ---- */

struct stray {
	const struct watched *watched;
	const struct change *change;
};

/* The surest first: a kernel that was handed the memory may have been meant to write it. Then by time. */
static int by_rank(const void *a, const void *b)
{
	const struct change *x = ((const struct stray *)a)->change;
	const struct change *y = ((const struct stray *)b)->change;

	return ORDER_UP(x->handed, y->handed) ?: ORDER_UP(x->at, y->at);
}

/* All changes that nobody declared, best first. NULL: none, or no memory. */
static struct stray *find_strays(const struct watches *watches, size_t *out_count)
{
	struct stray *strays;
	size_t i, k, count = 0;

	*out_count = 0;
	for (i = 0; i < watches->count; i++)
		count += watches->items[i].stray_count;
	strays = count == 0 ? NULL : calloc(count, sizeof(*strays));
	if (strays == NULL)
		return NULL;
	for (i = 0; i < watches->count; i++) {
		for (k = 0; k < watches->items[i].stray_count; k++)
			strays[(*out_count)++] =
				(struct stray){&watches->items[i], &watches->items[i].strays[k]};
	}
	qsort(strays, count, sizeof(*strays), by_rank);
	return strays;
}

/* ---- text ---- */

static void add_watched(struct strbuf *out, const struct watched *watched)
{
	char device[16];

	project_device_text(watched->device, device);
	strbuf_add_str(out, "Watched: ");
	strbuf_add_shown(out, watched->name, strlen(watched->name));
	strbuf_addf(out, " output %u on %s%s, %llu bytes, %llu dumps: ", watched->output,
		    watched->device >= DEVICE_HOST ? "" : "device ", device,
		    (unsigned long long)watched->size_bytes, (unsigned long long)watched->dumps);
}

static void add_moment(struct strbuf *out, const struct moment *moment)
{
	strbuf_addf(out, "%s call %llu of ", moment->after ? "the end of" : "the start of",
		    (unsigned long long)moment->number);
	strbuf_add_shown(out, moment->operation, strlen(moment->operation));
}

static void add_bytes(struct strbuf *out, const struct change *change)
{
	/* Of a large block the device says which chunks changed, and not how many of their bytes. */
	if (change->bytes == BYTES_SOME) {
		if (change->last != 0)
			strbuf_addf(out, ": some of offsets %llu to %llu",
				    (unsigned long long)change->first,
				    (unsigned long long)change->last);
		return;
	}
	strbuf_add_str(out, ": ");
	strbuf_add_count(out, change->bytes, "byte", "bytes");
	if (change->first == change->last)
		strbuf_addf(out, " (offset %llu)", (unsigned long long)change->first);
	else
		strbuf_addf(out, " (offsets %llu to %llu)", (unsigned long long)change->first,
			    (unsigned long long)change->last);
}

static void add_place(struct replay *replay, const char *word, uint32_t stack, struct strbuf *out)
{
	struct strbuf line = {0};

	if (site_line(replay, stack, &line))
		strbuf_addf(out, ", %s %s", word, strbuf_str(&line));
	strbuf_fini(&line);
}

/* The step in progress, as the run turned out to count them; 0: none. */
static uint32_t step_of(const struct replay *replay, const struct change *change)
{
	if (replay_steps(replay) == 0)
		return 0;
	return replay_steps_are_automatic(replay) ? change->automatic : change->step;
}

static uint32_t last_step_of(const struct replay *replay, const struct change *change)
{
	if (replay_steps(replay) == 0)
		return 0;
	return replay_steps_are_automatic(replay) ? change->last_automatic : change->last_step;
}

static void add_change(struct replay *replay, const struct change *change, struct strbuf *out)
{
	bool during = moments_are_one_call(&change->from, &change->to);
	uint32_t step = step_of(replay, change), last_step = last_step_of(replay, change);

	if (during) {
		strbuf_addf(out, "changed during call %llu of ",
			    (unsigned long long)change->to.number);
		strbuf_add_shown(out, change->to.operation, strlen(change->to.operation));
		strbuf_add_str(out, change->handed ? ", a kernel that was handed it"
						   : ", which did not declare to write it");
	} else {
		strbuf_add_str(out, "changed between ");
		add_moment(out, &change->from);
		strbuf_add_str(out, " and ");
		add_moment(out, &change->to);
	}
	if (change->inside != NULL) {
		/* Of a call behind the change only that call is known to be inside. */
		strbuf_add_str(out, during ? ", inside of " : " in ");
		strbuf_add_shown(out, change->inside, strlen(change->inside));
	}
	add_bytes(out, change);
	if (step != 0)
		strbuf_addf(out, ", step %u", step);
	if (change->from.tid == change->to.tid)
		strbuf_addf(out, ", thread %u", change->to.tid);
	else
		strbuf_addf(out, ", threads %u and %u", change->from.tid, change->to.tid);
	if (!during && change->from.stack != change->to.stack)
		add_place(replay, "after", change->from.stack, out);
	add_place(replay, during ? "at" : "before", change->to.stack, out);
	if (change->times > 1)
		strbuf_addf(out, "; and %llu more %s", (unsigned long long)change->times - 1,
			    change->times == 2 ? "time" : "times");
	if (change->times > 1 && last_step > step)
		strbuf_addf(out, ", until step %u", last_step);
}

static void add_declared(const struct watched *watched, struct strbuf *out)
{
	uint64_t declared = watched->changes - watched->unexpected;
	size_t i;

	if (watched->changes == 0) {
		strbuf_add_str(out, "no change");
		return;
	}
	if (watched->unexpected == 0)
		strbuf_add_str(out, "no unexpected change; ");
	strbuf_add_count(out, declared, "change", "changes");
	strbuf_add_str(out, " by operators that declare to write it: ");
	for (i = 0; i < watched->expected_count; i++) {
		strbuf_add_str(out, i > 0 ? ", " : "");
		strbuf_add_shown(out, watched->expected[i].operation,
				 strlen(watched->expected[i].operation));
		strbuf_addf(out, " (%llu)", (unsigned long long)watched->expected[i].times);
	}
}

/* A name that --watch asked for and that did not run, with those that are like it. */
static void add_missing(const struct watches *watches, const char *name, const char *role,
			struct strbuf *out)
{
	const char *near[NEAREST];
	size_t count, i;

	strbuf_add_str(out, "Watch: no operator named ");
	strbuf_add_shown(out, name, strlen(name));
	strbuf_addf(out, " ran (%s of --watch); ", role);
	if (watches->seen_count == 0) {
		strbuf_add_str(out, "none was seen at all.\n");
		return;
	}
	count = nearest_names(name, (const char *const *)watches->seen, watches->seen_count, near,
			      NEAREST);
	if (count == 0) {
		count = watches->seen_count < NEAREST ? watches->seen_count : NEAREST;
		for (i = 0; i < count; i++)
			near[i] = watches->seen[i];
		strbuf_add_str(out, "none of those that did is like it, as ");
	} else {
		strbuf_add_str(out, "the nearest that did: ");
	}
	for (i = 0; i < count; i++) {
		strbuf_add_str(out, i > 0 ? ", " : "");
		strbuf_add_shown(out, near[i], strlen(near[i]));
	}
	strbuf_add_str(out, ".\n");
}

static void add_asked(const struct replay *replay, struct strbuf *out)
{
	const struct watches *watches = replay_watches(replay);
	const char *start = run_identity(replay_run(replay), "watch_start");
	const char *end = run_identity(replay_run(replay), "watch_end");
	bool asked = end != NULL && end[0] != '\0';

	if (!asked)
		return;
	if (start == NULL || start[0] == '\0') {
		if (watches->dumps == 0)
			strbuf_add_str(out,
				       "Watch: nothing was watched: --watch=END watches what the "
				       "program names by watcher.watch().\n");
		else if (!watches->end_ran)
			add_missing(watches, end, "END", out);
		return;
	}
	if (!watches->start_ran)
		add_missing(watches, start, "START", out);
	else if (watches->dumps == 0)
		strbuf_addf(out, "Watch: START of --watch ran, but nothing that it gives could be "
				 "watched.\n");
	if (!watches->end_ran && strcmp(start, end) != 0)
		add_missing(watches, end, "END", out);
}

bool report_watch_text(struct replay *replay, size_t shown, struct strbuf *out)
{
	const struct watches *watches = replay_watches(replay);
	size_t i, count, lines = 0, more = 0;
	struct stray *strays = find_strays(watches, &count);

	for (i = 0; i < count && lines < shown; i++, lines++) {
		add_watched(out, strays[i].watched);
		add_change(replay, strays[i].change, out);
		strbuf_add_str(out, ".\n");
	}
	if (i < count)
		strbuf_addf(out, "Watched: %zu more unexpected %s.\n", count - i,
			    count - i == 1 ? "change" : "changes");
	for (i = 0; i < watches->count; i++) {
		const struct watched *watched = &watches->items[i];

		if (watched->unexpected > 0 && watched->unexpected == watched->changes)
			continue;
		if (lines++ >= shown) {
			more++;
			continue;
		}
		add_watched(out, watched);
		add_declared(watched, out);
		strbuf_add_str(out, ".\n");
	}
	if (more > 0)
		strbuf_addf(out, "Watched: %zu more blocks.\n", more);
	if (watches->more > 0)
		strbuf_addf(out, "Watched: %llu dumps of further blocks were not compared.\n",
			    (unsigned long long)watches->more);
	add_asked(replay, out);
	free(strays);
	return count > 0;
}

/* ---- JSON ---- */

static void json_moment(const char *key, const struct moment *moment, struct json *json)
{
	json_object(json, key);
	json_string(json, "operator", moment->operation);
	json_u64(json, "call", moment->number);
	json_string(json, "moment", moment->after ? "end" : "start");
	json_u64(json, "thread", moment->tid);
	json_end(json);
}

static void json_changes(struct replay *replay, const struct watched *watched, struct json *json)
{
	size_t i;

	json_array(json, "unexpected_changes");
	for (i = 0; i < watched->stray_count; i++) {
		const struct change *change = &watched->strays[i];

		json_object(json, NULL);
		json_bool(json, "during_one_call",
			  moments_are_one_call(&change->from, &change->to));
		json_moment("from", &change->from, json);
		json_moment("to", &change->to, json);
		if (change->inside != NULL)
			json_string(json, "inside", change->inside);
		if (change->bytes != BYTES_SOME)
			json_u64(json, "bytes", change->bytes);
		if (change->bytes != BYTES_SOME || change->last != 0) {
			json_u64(json, "first_offset", change->first);
			json_u64(json, "last_offset", change->last);
		}
		json_bool(json, "handed", change->handed);
		json_u64(json, "step", step_of(replay, change));
		json_u64(json, "times", change->times);
		json_u64(json, "last_step", last_step_of(replay, change));
		site_json(replay, change->to.stack, "frames", json);
		if (change->from.stack != change->to.stack)
			site_json(replay, change->from.stack, "frames_before", json);
		json_end(json);
	}
	json_end(json);
	json_array(json, "declared_writers");
	for (i = 0; i < watched->expected_count; i++) {
		json_object(json, NULL);
		json_string(json, "operator", watched->expected[i].operation);
		json_u64(json, "changes", watched->expected[i].times);
		json_end(json);
	}
	json_end(json);
}

void report_watch_findings(struct replay *replay, size_t most, struct json *json)
{
	size_t i, count;
	struct stray *strays = find_strays(replay_watches(replay), &count);
	struct strbuf text = {0};

	json_array(json, "overwritten");
	for (i = 0; i < count && i < most; i++) {
		json_object(json, NULL);
		json_string(json, "name", strays[i].watched->name);
		json_u64(json, "step", step_of(replay, strays[i].change));
		strbuf_reset(&text);
		add_watched(&text, strays[i].watched);
		add_change(replay, strays[i].change, &text);
		json_string(json, "text", strbuf_str(&text));
		json_end(json);
	}
	json_end(json);
	strbuf_fini(&text);
	free(strays);
}

void report_watch_json(struct replay *replay, struct json *json)
{
	const struct watches *watches = replay_watches(replay);
	size_t i;

	json_array(json, "watched");
	for (i = 0; i < watches->count; i++) {
		const struct watched *watched = &watches->items[i];
		char device[16];

		project_device_text(watched->device, device);
		json_object(json, NULL);
		json_string(json, "name", watched->name);
		json_u64(json, "output", watched->output);
		json_string(json, "device", device);
		json_u64(json, "bytes", watched->size_bytes);
		json_u64(json, "dumps", watched->dumps);
		json_u64(json, "changes", watched->changes);
		if (watched->changes > 0) {
			/* Of those that nobody declared, where there are any. */
			const struct change *stray =
				watched->stray_count > 0 ? watched->strays : NULL;
			const struct moment *from = stray != NULL ? &stray->from : &watched->from;
			const struct moment *to = stray != NULL ? &stray->to : &watched->to;

			json_object(json, "first_change");
			json_bool(json, "during_one_call", moments_are_one_call(from, to));
			json_moment("from", from, json);
			json_moment("to", to, json);
			json_end(json);
		}
		json_u64(json, "unexpected", watched->unexpected);
		json_changes(replay, watched, json);
		json_end(json);
	}
	json_end(json);
}
