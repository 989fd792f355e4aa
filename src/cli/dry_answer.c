/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/dry_answer.h"

#include <string.h>

#include "base/json.h"
#include "base/shown.h"
#include "base/text.h"
#include "findings/say.h"
#include "sink/report.h"
#include "sink/screen.h"

#define SITES	      8u
#define SITE_COLUMNS  32u /* size and class before a call site */
#define VALUES	      5u
#define VALUE_COLUMNS 2u
#define LINES_WRAPPED 3u /* of the screen, that one line of ours takes at most */

bool dry_fits(const struct dry_answer *answer)
{
	size_t i;

	for (i = 0; i < answer->count; i++) {
		if (dry_ran_out(&answer->runs[i]))
			return false;
	}
	return true;
}

/* The program went the whole way that was asked for: what it needs is known. */
static bool is_whole(const struct dry_answer *answer)
{
	return dry_is_whole(answer->figures);
}

/* The figures may be wrong, and the answer says why. */
static bool is_unsure(const struct dry_answer *answer)
{
	return answer->figures->missing_count > 0 || answer->other != NULL;
}

/* How sure the figures are: "", "at least " or "at most ". */
static const char *sure(const struct dry_answer *answer)
{
	return !is_whole(answer) ? "at least " : answer->figures->at_most ? "at most " : "";
}

/* ---- text ---- */

static void add_head(const struct dry_answer *answer, struct strbuf *out)
{
	const struct dry_result *run = answer->figures;

	strbuf_add_str(out, "Dry run");
	if (answer->count == 1) {
		if (run->device.card != NULL)
			strbuf_addf(out, " on %s (", answer->runs[0].device.name);
		else
			strbuf_addf(out, " on NPU %u (", run->number);
		strbuf_add_size(out, answer->runs[0].device.bytes);
		strbuf_add_char(out, ')');
	}
	strbuf_add_str(out, "; no device was used: ");
	if (run->steps > 0)
		say_count(out, run->steps, "step");
	else
		strbuf_add_str(out, "no step");
	strbuf_add_str(out, " in ");
	say_seconds(out, run->seconds);
	strbuf_add_str(out, ".\n");
}

static void add_death(const struct dry_result *run, struct strbuf *out)
{
	const char *where = run->died_at != NULL ? run->died_at : run->oom_place;

	/* A step that no optimizer has ended yet has no number in the trace. */
	strbuf_addf(out, "ies in step %llu",
		    (unsigned long long)(run->oom_step > 0 ? run->oom_step : run->steps + 1));
	if (where != NULL && where[0] != '\0') {
		strbuf_add_str(out, " at ");
		strbuf_add_shown(out, where, strlen(where));
	}
}

static void add_fit(const struct dry_result *run, struct strbuf *out)
{
	uint64_t used = run->orders.reserves_high + run->outside;

	if (dry_ran_out(run)) {
		strbuf_add_str(out, "does not fit");
		return;
	}
	strbuf_add_str(out, dry_is_whole(run) ? "fits" : "fits so far");
	if (run->orders.refused) {
		strbuf_add_str(out, ", but not with all addresses that the driver may hand out");
	} else if (run->device.bytes > used) {
		strbuf_add_str(out, ", ");
		strbuf_add_size(out, run->device.bytes - used);
		strbuf_add_str(out, " left");
	}
	if (run->refusals > 0) {
		strbuf_add_str(out, " (");
		say_count(out, run->refusals, "request");
		strbuf_add_str(out, " refused; the program went on)");
	}
}

/* What the program needs: the least and the most, with and without workspaces of convolutions, whatever addresses the driver hands out. */
static struct dry_orders range_of(const struct dry_answer *answer)
{
	struct dry_orders range = answer->figures->orders;

	if (answer->lean != NULL) {
		const struct dry_orders *lean = &answer->lean->orders;

		range.needs_low = min_u64(range.needs_low, lean->needs_low);
		range.reserves_low = min_u64(range.reserves_low, lean->reserves_low);
		if (lean->reserves_high > range.reserves_high)
			range.reserves_high = lean->reserves_high;
	}
	return range;
}

/* As texts the two may be one. */
static bool reads_as_range(uint64_t from, uint64_t to)
{
	struct strbuf low = {0}, high = {0};
	bool differ;

	strbuf_add_size(&low, from);
	strbuf_add_size(&high, to);
	differ = strcmp(strbuf_str(&low), strbuf_str(&high)) != 0;
	strbuf_fini(&low);
	strbuf_fini(&high);
	return differ;
}

/* "3.1 GiB", or "2.9 GiB to 3.1 GiB". */
static void add_range(uint64_t from, uint64_t to, struct strbuf *out)
{
	if (reads_as_range(from, to)) {
		strbuf_add_size(out, from);
		strbuf_add_str(out, " to ");
	}
	strbuf_add_size(out, to);
}

static void add_figures(const struct dry_answer *answer, struct strbuf *out)
{
	const struct dry_result *run = answer->figures;
	const struct dry_orders range = range_of(answer);
	struct strbuf text = {0};
	size_t i;

	strbuf_addf(&text, "Needs %s", sure(answer));
	add_range(range.needs_low, range.needs_high, &text);
	strbuf_addf(&text, "; PyTorch would reserve %s", sure(answer));
	add_range(range.reserves_low, range.reserves_high, &text);
	if (answer->count == 1) {
		strbuf_add_str(&text, ": ");
		add_fit(&answer->runs[0], &text);
		if (dry_ran_out(&answer->runs[0])) {
			strbuf_add_str(&text, ".\nD");
			add_death(&answer->runs[0], &text);
		}
	}
	strbuf_add_str(&text, ".\n");
	if (run->outside > 0) {
		strbuf_add_str(&text, run->device.card != NULL ? "About " : "");
		strbuf_add_size(&text, run->outside);
		strbuf_add_str(&text, " more are taken outside of its pool.\n");
	}
	for (i = 0; answer->count > 1 && i < answer->count; i++) {
		strbuf_addf(&text, "  %-10s  ", answer->runs[i].device.name);
		add_fit(&answer->runs[i], &text);
		if (dry_ran_out(&answer->runs[i])) {
			strbuf_add_str(&text, ": d");
			add_death(&answer->runs[i], &text);
		}
		strbuf_add_char(&text, '\n');
	}
	screen_wrap(strbuf_str(&text), LINES_WRAPPED, out);
	strbuf_fini(&text);
}

static void add_sites(const struct dry_result *run, struct strbuf *out)
{
	size_t i;

	for (i = 0; i < run->site_count && i < SITES; i++) {
		const struct dry_site *site = &run->sites[i];
		struct strbuf size = {0}, name = {0};

		strbuf_add_size(&size, site->bytes);
		strbuf_add_shown(&name, site->site, strlen(site->site));
		strbuf_addf(out, "%10s  %-18s  ", strbuf_str(&size), site->class);
		screen_cut_middle(strbuf_str(&name), SCREEN_COLUMNS - SITE_COLUMNS, out);
		strbuf_add_char(out, '\n');
		strbuf_fini(&size);
		strbuf_fini(&name);
	}
	if (run->site_count > i) {
		strbuf_add_str(out, "  ... ");
		say_count(out, run->site_count - i, "more call site");
		strbuf_add_str(out, " in report.txt\n");
	}
}

/* Where the words about a value begin after its place: "train.py:52 loss.item()" and " read as 0". */
static size_t place_length(const char *value)
{
	static const char *const words[] = {" read as ", " read without ", " taken as "};
	const char *found, *last = NULL, *at;
	size_t i;

	for (i = 0; i < sizeof(words) / sizeof(*words); i++) {
		for (at = value; (found = strstr(at, words[i])) != NULL; at = found + 1) {
			if (last == NULL || found > last)
				last = found;
		}
	}
	return last == NULL ? strlen(value) : (size_t)(last - value);
}

static bool same_place(const char *a, const char *b)
{
	size_t length = place_length(a);

	return length == place_length(b) && memcmp(a, b, length) == 0;
}

/* A line of the program and what is said of it, of which the first is cut. */
static void add_place(const char *place, size_t length, const struct strbuf *said,
		      struct strbuf *out)
{
	const size_t columns = SCREEN_COLUMNS - VALUE_COLUMNS,
		     room = screen_columns(strbuf_str(said));
	struct strbuf name = {0};

	strbuf_add_shown(&name, place, length);
	strbuf_add_str(out, "  ");
	screen_cut(strbuf_str(&name), columns > room ? columns - room : 0, out);
	strbuf_addf(out, "%s\n", strbuf_str(said));
	strbuf_fini(&name);
}

/* "train.py:52 if isnan(x) or isnan(y): read as False, True". */
static void add_value(const struct dry_result *run, size_t first, struct strbuf *out)
{
	static const char read_as[] = " read as";
	const char *value = run->values[first], *words;
	size_t length = place_length(value), i;
	struct strbuf said = {0};

	strbuf_add_str(&said, value + length);
	for (i = first + 1; i < run->value_count; i++) {
		words = run->values[i] + length;
		if (!same_place(value, run->values[i]))
			continue;
		if (text_starts_with(words, read_as) && text_starts_with(value + length, read_as))
			words += strlen(read_as);
		strbuf_addf(&said, ",%s", words);
	}
	add_place(value, length, &said, out);
	strbuf_fini(&said);
}

/* A place has one line, whatever it reads how often. */
static void add_values(const struct dry_answer *answer, struct strbuf *out)
{
	const struct dry_result *run = answer->figures;
	size_t i, j, places = 0;

	if (run->value_count == 0)
		return;
	say_count(out, run->value_count, "value");
	strbuf_add_str(out, " came from data that was not computed:\n");
	for (i = 0; i < run->value_count; i++) {
		for (j = 0; j < i && !same_place(run->values[i], run->values[j]); j++)
			;
		if (j == i && places++ < VALUES)
			add_value(run, i, out);
	}
	if (places > VALUES) {
		strbuf_add_str(out, "  ... ");
		say_count(out, places - VALUES, "more call site");
		strbuf_add_str(out, " in report.txt\n");
	}
	if (answer->other == NULL)
		return;
	strbuf_add_str(
		out,
		"They decide what it needs, so the figures may be wrong: with other values it needs ");
	strbuf_add_size(out, answer->other->needs);
	strbuf_add_str(out, ".\n");
}

/* Functions that the program called and the simulated CUDA does not have. */
static void add_missing(const struct dry_answer *answer, struct strbuf *out)
{
	const struct dry_result *run = answer->figures;
	size_t i;

	if (run->missing_count == 0)
		return;
	strbuf_add_str(out,
		       dry_is_fine(run)
			       ? "The program went on without these, so its figures may be wrong:\n"
			       : "Not simulated:\n");
	for (i = 0; i < run->missing_count && i < VALUES; i++) {
		const char *what = strrchr(run->missing[i], ':');
		size_t length = what == NULL ? 0 : (size_t)(what - run->missing[i]);
		struct strbuf said = {0};

		strbuf_add_shown(&said, run->missing[i] + length, strlen(run->missing[i] + length));
		add_place(run->missing[i], length, &said, out);
		strbuf_fini(&said);
	}
	if (run->missing_count > i)
		strbuf_addf(out, "  ... %zu more in report.txt\n", run->missing_count - i);
}

/* The program did not go the whole way, and not because of its memory. */
static void add_failure(const struct dry_answer *answer, struct strbuf *out)
{
	const struct dry_result *run = answer->figures;

	if (run->stuck != NULL) {
		strbuf_add_str(out, "The dry run ended at ");
		strbuf_add_shown(out, run->stuck, strlen(run->stuck));
		strbuf_add_str(out, ".\n");
	} else if (dry_ran_out(run)) {
		strbuf_add_str(out, "Even ");
		strbuf_add_size(out, run->device.bytes);
		strbuf_add_str(out, " were not enough.\n");
	} else if (!is_whole(answer)) {
		strbuf_add_str(out, "The program failed");
		if (run->died_at != NULL) {
			strbuf_add_str(out, " at ");
			strbuf_add_shown(out, run->died_at, strlen(run->died_at));
		}
		if (run->because != NULL) {
			strbuf_add_str(out, ": ");
			strbuf_add_shown(out, run->because, strlen(run->because));
		}
		strbuf_add_str(out, "\nThe figures are those up to then.\n");
	}
}

void dry_text(const struct dry_answer *answer, struct strbuf *out)
{
	const struct dry_result *run = answer->figures;
	const struct dry_orders range = range_of(answer);

	add_head(answer, out);
	add_figures(answer, out);
	add_sites(run, out);
	if (run->devices > 1)
		strbuf_addf(
			out,
			"%u %s were used; the figures are those of number %u, which holds most.\n",
			run->devices, run->device.card != NULL ? "cards" : "NPUs", run->number);
	if (answer->lean != NULL)
		strbuf_add_str(
			out,
			"The lower figure has the least workspaces; cuDNN chooses them by rules that are not public.\n");
	else if (reads_as_range(range.needs_low, range.needs_high) ||
		 reads_as_range(range.reserves_low, range.reserves_high))
		strbuf_add_str(
			out,
			"The figures depend on the addresses that the driver hands out, which differ from run to run.\n");
	strbuf_addf(out, "%s\n", report_dry_not_counted(answer->runs[0].device.name));
	add_values(answer, out);
	add_missing(answer, out);
	add_failure(answer, out);
	if (run->project != NULL) {
		strbuf_add_str(out, "Files: ");
		strbuf_add_shown(out, run->project, strlen(run->project));
		strbuf_add_str(out, " (report.html)\n");
	}
}

/* ---- JSON ---- */

static void json_device(const struct dry_result *run, struct json *json)
{
	json_object(json, NULL);
	json_string(json, "device", run->device.name);
	json_u64(json, "bytes", run->device.bytes);
	if (dry_is_whole(run) || dry_ran_out(run))
		json_bool(json, "fits", !dry_ran_out(run));
	else
		json_null(json, "fits");
	json_u64(json, "refused_requests", run->refusals);
	if (run->orders.refused)
		json_bool(json, "fits_with_all_addresses", false);
	if (dry_ran_out(run)) {
		json_u64(json, "dies_in_step", run->oom_step > 0 ? run->oom_step : run->steps + 1);
		json_string(json, "dies_at",
			    run->died_at != NULL     ? run->died_at
			    : run->oom_place != NULL ? run->oom_place
						     : "");
	}
	json_string(json, "project", run->project == NULL ? "" : run->project);
	json_end(json);
}

void dry_json(const struct dry_answer *answer, struct strbuf *out)
{
	const struct dry_result *run = answer->figures;
	const struct dry_orders range = range_of(answer);
	bool is_range =
		range.needs_low < range.needs_high || range.reserves_low < range.reserves_high;
	struct json json;
	size_t i;

	json_begin(&json, out);
	json_object(&json, NULL);
	json_bool(&json, "dry", true);
	json_u64(&json, "needs_bytes", range.needs_high);
	if (is_range) {
		json_u64(&json, "needs_from_bytes", range.needs_low);
		json_u64(&json, "reserves_from_bytes", range.reserves_low);
	}
	json_u64(&json, "reserves_bytes", range.reserves_high);
	if (range.requested > 0 && answer->lean == NULL)
		json_u64(&json, "requested_bytes", range.requested);
	json_u64(&json, "outside_pool_bytes", run->outside);
	json_string(&json, "figures",
		    is_unsure(answer)	? "unsure"
		    : !is_whole(answer) ? "at least"
		    : run->at_most	? "at most"
		    : is_range		? "from to"
					: "exact");
	json_u64(&json, "steps", run->steps);
	json_f64(&json, "seconds", run->seconds, 3);
	json_array(&json, "devices");
	for (i = 0; i < answer->count; i++)
		json_device(&answer->runs[i], &json);
	json_end(&json);
	json_array(&json, "places");
	for (i = 0; i < run->site_count; i++) {
		json_object(&json, NULL);
		json_u64(&json, "bytes", run->sites[i].bytes);
		json_string(&json, "class", run->sites[i].class);
		json_string(&json, "place", run->sites[i].site);
		json_end(&json);
	}
	json_end(&json);
	json_array(&json, "values_not_computed");
	for (i = 0; i < run->value_count; i++)
		json_string(&json, NULL, run->values[i]);
	json_end(&json);
	if (answer->other != NULL)
		json_u64(&json, "needs_with_other_values_bytes", answer->other->needs);
	json_array(&json, "not_simulated");
	for (i = 0; i < run->missing_count; i++)
		json_string(&json, NULL, run->missing[i]);
	json_end(&json);
	json_bool(&json, "failed", !is_whole(answer) && !dry_ran_out(run) && run->stuck == NULL);
	if (run->died_at != NULL && !dry_ran_out(run))
		json_string(&json, "failed_at", run->died_at);
	if (run->because != NULL && !dry_ran_out(run))
		json_string(&json, "failed_because", run->because);
	if (run->stuck != NULL)
		json_string(&json, "ended_at", run->stuck);
	json_string(&json, "not_counted", report_dry_not_counted(answer->runs[0].device.name));
	json_end(&json);
	strbuf_add_char(out, '\n');
}
