/* SPDX-License-Identifier: Apache-2.0 */
/* What a report says about watched memory. */
#include "sink/report_watch.h"

#include "base/shown.h"
#include "sink/project.h"

static void add_moment(struct strbuf *out, const struct moment *moment)
{
	strbuf_addf(out, "%s call %llu of ", moment->after ? "the end of" : "the start of",
		    (unsigned long long)moment->number);
	strbuf_add_shown(out, moment->operation, strlen(moment->operation));
}

static void text_change(const struct watched *watched, struct strbuf *out)
{
	if (watched->changes == 0) {
		strbuf_add_str(out, "no change");
		return;
	}
	if (watched_changed_during(watched)) {
		strbuf_addf(out, "changed during call %llu of ",
			    (unsigned long long)watched->to.number);
		strbuf_add_shown(out, watched->to.operation, strlen(watched->to.operation));
	} else {
		strbuf_add_str(out, "changed between ");
		add_moment(out, &watched->from);
		strbuf_add_str(out, " and ");
		add_moment(out, &watched->to);
	}
	if (watched->changes > 1)
		strbuf_addf(out, ", and %llu more %s", (unsigned long long)watched->changes - 1,
			    watched->changes == 2 ? "time" : "times");
}

void report_watch_text(const struct watches *watches, size_t shown, struct strbuf *out)
{
	size_t i;

	for (i = 0; i < watches->count && i < shown; i++) {
		const struct watched *watched = &watches->items[i];
		char device[16];

		project_device_text(watched->device, device);
		strbuf_add_str(out, "Watched: ");
		strbuf_add_shown(out, watched->name, strlen(watched->name));
		strbuf_addf(out, " output %u on %s%s, %llu bytes, %llu dumps: ", watched->output,
			    watched->device >= DEVICE_HOST ? "" : "device ", device,
			    (unsigned long long)watched->size_bytes,
			    (unsigned long long)watched->dumps);
		text_change(watched, out);
		strbuf_add_str(out, ".\n");
	}
	if (watches->count > shown)
		strbuf_addf(out, "Watched: %zu more blocks.\n", watches->count - shown);
	if (watches->more > 0)
		strbuf_addf(out, "Watched: %llu dumps of further blocks were not compared.\n",
			    (unsigned long long)watches->more);
}

static void json_moment(const char *key, const struct moment *moment, struct json *json)
{
	json_object(json, key);
	json_string(json, "operator", moment->operation);
	json_u64(json, "call", moment->number);
	json_string(json, "moment", moment->after ? "end" : "start");
	json_u64(json, "thread", moment->tid);
	json_end(json);
}

void report_watch_json(const struct watches *watches, struct json *json)
{
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
			json_object(json, "first_change");
			json_bool(json, "during_one_call", watched_changed_during(watched));
			json_moment("from", &watched->from, json);
			json_moment("to", &watched->to, json);
			json_end(json);
		}
		json_end(json);
	}
	json_end(json);
}
