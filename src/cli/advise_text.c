/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/advise_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "findings/say.h"
#include "sink/project.h"

#define RESERVED_WIDTH 24 /* "reserves 100.5-108.1 MiB" */

static void pad(struct strbuf *out, size_t from, size_t width)
{
	do
		strbuf_add_char(out, ' ');
	while (out->length - from < width);
}

static void add_cost(struct strbuf *out, const struct advising *advising,
		     const struct advise_offer *offer)
{
	if (offer->cost != NULL) {
		strbuf_add_str(out, offer->cost);
		return;
	}
	if (offer->seconds < 0 && offer->moved != 0) {
		strbuf_add_size(out, offer->moved);
		strbuf_add_str(out, " there and back per step");
		return;
	}
	if (offer->seconds < 0) {
		strbuf_add_str(out, offer->rule == ADVISE_RULE_offload
					    ? "copies to the host and back"
					    : "one more forward pass of it");
		return;
	}
	strbuf_add_char(out, '+');
	say_seconds(out, offer->seconds);
	strbuf_add_str(out, " per step");
	if (offer->moved != 0) {
		strbuf_add_str(out, " at ");
		strbuf_add_size(out, advising->bandwidth);
		strbuf_add_str(out, "/s");
	}
	if (offer->share >= 0)
		strbuf_addf(out, " (+%.0f %%)", 100 * offer->share);
}

/* The whole step is as much slower, so that the share of it holds. */
static bool has_seconds(const struct advise_offer *const *shown, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (shown[i]->cost == NULL && shown[i]->seconds >= 0)
			return true;
	return false;
}

static const char *short_line(const struct advise_offer *offer)
{
	const char *slash = strrchr(offer->line, '/');

	return slash == NULL ? offer->line : slash + 1;
}

/* Of the column of costs. */
static size_t cost_width(const struct advising *advising, const struct advise_offer *const *shown,
			 size_t count)
{
	size_t width = advising->reserves ? 0 : 26;

	for (size_t i = 0; i < count; i++) {
		struct strbuf cost = {0};

		add_cost(&cost, advising, shown[i]);
		if (cost.length > width)
			width = cost.length;
		strbuf_fini(&cost);
	}
	return width;
}

/* "reserves 6.9-7.1 GiB"; nothing where it is not known. */
static void add_reserved(struct strbuf *out, const struct advise_offer *offer)
{
	struct strbuf low = {0}, high = {0};
	const char *unit;

	if (offer->reserved.high == 0)
		return;
	strbuf_add_size(&low, offer->reserved.low);
	strbuf_add_size(&high, offer->reserved.high);
	unit = strchr(strbuf_str(&high), ' ');
	strbuf_add_str(out, "reserves ");
	if (strcmp(strbuf_str(&low), strbuf_str(&high)) != 0) {
		if (unit != NULL && strstr(strbuf_str(&low), unit) != NULL)
			strbuf_addf(out, "%.*s-", (int)strcspn(strbuf_str(&low), " "),
				    strbuf_str(&low));
		else
			strbuf_addf(out, "%s-", strbuf_str(&low));
	}
	strbuf_add_str(out, strbuf_str(&high));
	strbuf_fini(&low);
	strbuf_fini(&high);
}

static void add_offer(const struct advising *advising, const struct advise_offer *offer,
		      size_t width, size_t cost, struct strbuf *out)
{
	size_t from = out->length;

	strbuf_add_str(out, "  -");
	strbuf_add_size(out, advising->peak - offer->peak);
	pad(out, from, 13);
	from = out->length;
	strbuf_add_str(out, offer->what);
	pad(out, from, width + 2);
	from = out->length;
	add_cost(out, advising, offer);
	if (advising->reserves && (offer->reserved.high != 0 || offer->line[0] != '\0')) {
		pad(out, from, cost + 2);
		from = out->length;
		add_reserved(out, offer);
		cost = RESERVED_WIDTH;
	}
	if (offer->line[0] != '\0') {
		pad(out, from, cost + 2);
		strbuf_add_str(out, short_line(offer));
		if (offer->more_lines)
			strbuf_add_str(out, " and others");
	}
	strbuf_add_char(out, '\n');
}

static void add_limit(const struct advising *advising, struct strbuf *out)
{
	const struct advise_offer *offer = advise_under_limit(advising);

	if (advising->peak <= advising->limit) {
		strbuf_add_str(out, "The peak is below ");
		strbuf_add_size(out, advising->limit);
		strbuf_add_str(out, " without a change.\n");
		return;
	}
	if (offer == NULL) {
		strbuf_add_str(out, "No change that was tried brings the peak below ");
		strbuf_add_size(out, advising->limit);
		strbuf_add_str(out, " by itself.\n");
		return;
	}
	strbuf_add_str(out, "Cheapest below ");
	strbuf_add_size(out, advising->limit);
	strbuf_addf(out, ": %s, ", offer->what);
	add_cost(out, advising, offer);
	strbuf_add_str(out, "; the peak is then ");
	strbuf_add_size(out, offer->peak);
	if (offer->reserved.high != 0) {
		strbuf_add_str(out, ", and the pool ");
		add_reserved(out, offer);
	}
	strbuf_add_str(out, ".\n");
}

void advise_text(const struct advising *advising, struct strbuf *out)
{
	const struct advise_pool *pool = &advising->record->pools[advising->editor.pool];
	const struct advise_offer *shown[ADVISE_SHOWN];
	size_t count = advise_best(advising, shown), width = 0;

	strbuf_add_str(out, "Advice for ");
	say_device(out, pool->vendor, pool->device);
	strbuf_add_str(out, " (peak ");
	strbuf_add_size(out, advising->peak);
	if (advising->reserves) {
		strbuf_add_str(out, ", ");
		strbuf_add_size(out, advising->reserving.recorded.reserved_peak);
		strbuf_add_str(out, " reserved");
	}
	if (advising->step != 0)
		strbuf_addf(out, ", step %" PRIu32, advising->step);
	strbuf_add_str(out, ")\n");
	for (size_t i = 0; i < count; i++)
		if (strlen(shown[i]->what) > width)
			width = strlen(shown[i]->what);
	for (size_t i = 0; i < count; i++)
		add_offer(advising, shown[i], width, cost_width(advising, shown, count), out);
	if (count == 0)
		strbuf_add_str(out, "  None of the changes that were tried lowers the peak.\n");
	if (advising->limit != 0)
		add_limit(advising, out);
	if (advising->refused.length > 0) {
		strbuf_add_str(out, "Not tried:\n");
		for (const char *at = strbuf_str(&advising->refused), *end;
		     (end = strchr(at, '\n')) != NULL; at = end + 1)
			strbuf_addf(out, "  %.*s\n", (int)(end - at), at);
	}
	if (has_seconds(shown, count))
		strbuf_add_str(
			out,
			"Seconds are those of the recorded run, which is slower than one by itself.\n");
}

static void json_offer(const struct advising *advising, const struct advise_offer *offer,
		       const char *key, struct json *json)
{
	json_object(json, key);
	json_string(json, "rule", advise_rule_word(offer->rule));
	json_string(json, "what", offer->what);
	if (offer->kind[0] != '\0') {
		json_string(json, "class", offer->kind);
		json_string(json, "which", offer->which);
		json_u64(json, "modules", offer->modules);
	}
	json_u64(json, "saved_bytes", advising->peak - offer->peak);
	json_u64(json, "peak_bytes", offer->peak);
	if (offer->reserved.high != 0) {
		json_u64(json, "reserved_low", offer->reserved.low);
		json_u64(json, "reserved_high", offer->reserved.high);
	}
	if (offer->cost != NULL)
		json_string(json, "cost", offer->cost);
	if (offer->cost == NULL && offer->seconds >= 0)
		json_f64(json, "seconds_per_step", offer->seconds, 6);
	if (offer->moved != 0)
		json_u64(json, "moved_bytes_per_step", offer->moved);
	if (offer->line[0] != '\0')
		json_string(json, "line", offer->line);
	if (offer->more_lines)
		json_bool(json, "more_lines", true);
	json_end(json);
}

void advise_json(const struct advising *advising, struct json *json)
{
	const struct advise_pool *pool = &advising->record->pools[advising->editor.pool];
	const struct advise_offer *cheapest =
		advising->limit == 0 ? NULL : advise_under_limit(advising);
	char device[16];

	project_device_text(pool->device, device);
	json_object(json, NULL);
	json_string(json, "device", device);
	json_u64(json, "peak_bytes", advising->peak);
	if (advising->reserves)
		json_u64(json, "reserved_peak", advising->reserving.recorded.reserved_peak);
	if (advising->step != 0)
		json_u64(json, "step", advising->step);
	json_array(json, "advice");
	for (size_t i = 0; i < advising->offer_count; i++)
		json_offer(advising, &advising->offers[i], NULL, json);
	json_end(json);
	if (advising->limit != 0) {
		json_u64(json, "limit_bytes", advising->limit);
		if (cheapest == NULL)
			json_null(json, "cheapest");
		else
			json_offer(advising, cheapest, "cheapest", json);
	}
	json_array(json, "refused");
	for (const char *at = strbuf_str(&advising->refused), *end;
	     (end = strchr(at, '\n')) != NULL; at = end + 1) {
		struct strbuf sentence = {0};

		strbuf_add(&sentence, at, (size_t)(end - at));
		json_string(json, NULL, strbuf_str(&sentence));
		strbuf_fini(&sentence);
	}
	json_end(json);
	json_end(json);
}
