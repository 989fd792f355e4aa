/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/what_if_curves.h"

#include <errno.h>
#include <stdlib.h>

#include "base/json.h"
#include "engine/input.h"
#include "engine/pool_histories.h"
#include "import/torch_history.h"
#include "import/torch_snapshot.h"
#include "symbols/elf_cache.h"
#include "twin/what_if.h"

#define EVENTS_MOST  1000000u /* of the pool; played in some ten seconds at most */
#define TOO_LONG     "This run is too long for the page: msmemscope whatif plays it."
#define NOT_RECORDED "This recording has no requested sizes, which a replay needs."
#define WAITED	     "Frees waited for other streams: msmemscope whatif has ranges."

/* What was asked of the pool of one device. */
struct asked {
	struct pool_histories traced; /* of a trace */
	struct pool_history *read;    /* of a snapshot */
	size_t read_count;
	uint32_t device;
};

static const struct pool_history *history_of(const struct asked *asked)
{
	for (size_t i = 0; i < asked->read_count; i++)
		if (asked->read[i].device == asked->device)
			return &asked->read[i];
	return pool_histories_of(&asked->traced, asked->device);
}

static int take(void *arg, struct replay *replay, const struct trace_event *event)
{
	struct asked *asked = arg;
	int r = pool_histories_take(&asked->traced, replay, event);
	const struct pool_history *history = r == 0 ? history_of(asked) : NULL;

	return history != NULL && history->event_count > EVENTS_MOST ? -E2BIG : r;
}

/* Reads a trace for what was asked of the pool. 0 or a negative code. */
static int read_trace(const char *word, struct asked *asked)
{
	struct mscope_error ignored = {0};
	struct elf_cache elves = {0};
	struct input input = {0};
	struct pass pass = {0};
	struct pass_setup setup = {.elves = &elves, .event = take, .event_arg = asked};
	int r = input_open(&input, word, NULL, NULL, &ignored);

	if (r == 0 && input.imported)
		r = -ENOENT;
	if (r == 0) {
		setup.run = input.run;
		r = pass_open(&pass, &setup, &ignored);
		if (r == 0)
			r = pass_all(&pass, &ignored);
		if (r == 0)
			r = pool_histories_end(&asked->traced, pass.replay);
		pass_close(&pass);
	}
	elf_cache_fini(&elves);
	input_close(&input);
	return r;
}

/* The most of each part of the span; one without an event has what was reserved before it. */
static void say_curve(const struct pool_history *history, const uint64_t *reserved,
		      const struct what_if_span *span, struct json *json)
{
	uint64_t length = span->to_ns - span->from_ns, now = 0;
	size_t next = 0;
	uint32_t i;

	json_array(json, "reserved");
	for (i = 0; i < span->width; i++) {
		uint64_t end =
			span->from_ns + (uint64_t)((__uint128_t)length * (i + 1) / span->width);
		uint64_t most = now;

		for (; next < history->event_count &&
		       (history->events[next].time_ns < end || i + 1 == span->width);
		     next++) {
			now = reserved[next];
			most = now > most ? now : most;
		}
		json_u64(json, NULL, most);
	}
	json_end(json);
}

static int say_settings(const struct what_if *w, const struct what_if_span *span, struct json *json)
{
	uint64_t *reserved = malloc((w->history->event_count + 1) * sizeof(*reserved));
	struct mscope_error ignored = {0};
	int r = reserved == NULL ? -ENOMEM : 0;
	size_t i;

	json_array(json, "settings");
	for (i = 0; i < w->setting_count && r == 0; i++) {
		const struct what_if_setting *setting = &w->settings[i];
		struct twin_conditions conditions = what_if_conditions(w);
		struct program program = w->program;

		if (setting->refused[0] != '\0' ||
		    twin_settings_parse(setting->text, &w->release, &conditions.settings,
					&ignored) != 0)
			continue;
		/* What was there when the recording began is known of the run's own settings. */
		if (setting->own)
			program.older_as = &conditions;
		r = program_reserved(&program, &conditions, reserved);
		if (r != 0)
			break;
		json_object(json, NULL);
		json_string(json, "set", setting->text);
		json_u64(json, "reserved_peak", setting->reserved_peak);
		say_curve(w->history, reserved, span, json);
		json_end(json);
	}
	json_end(json);
	free(reserved);
	return r;
}

void what_if_curves(const char *word, uint32_t device, const struct what_if_span *span,
		    struct json *json)
{
	const struct what_if_choice choice = {0};
	struct asked asked = {.device = device};
	struct mscope_error err = {0};
	const struct pool_history *history;
	struct what_if w = {0};
	int r = snapshot_probe(word)
			? torch_history_read(word, &asked.read, &asked.read_count, &err)
			: read_trace(word, &asked);

	history = r == 0 ? history_of(&asked) : NULL;
	if (r == 0 && history != NULL && history->event_count > EVENTS_MOST)
		r = -E2BIG;
	if (r == -E2BIG || history == NULL || history->event_count == 0) {
		json_string(json, "refusal", r == -E2BIG ? TOO_LONG : NOT_RECORDED);
	} else if (what_if_answer(&w, history, &choice, &err) != 0) {
		json_string(json, "refusal", err.message);
	} else if (w.refusal[0] != '\0' || w.waits) {
		json_string(json, "refusal", w.refusal[0] != '\0' ? w.refusal : WAITED);
	} else {
		json_string(json, "set", history->settings);
		(void)say_settings(&w, span, json); /* no memory: fewer of them */
	}
	what_if_fini(&w);
	pool_histories_fini(&asked.traced);
	for (size_t i = 0; i < asked.read_count; i++)
		pool_history_fini(&asked.read[i]);
	free(asked.read);
}
