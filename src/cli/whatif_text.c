/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/whatif_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define BAND_SHOWN    0.01 /* narrower bands are one figure */
#define SAVING_LEAST  0.01 /* of the record: what is worth a recommendation */
#define RUINOUS_LEAST 0.10 /* more than the record by this share */

static const char *name_of(const char *settings)
{
	return settings[0] == '\0' ? "(default)" : settings;
}

static bool is_band(const struct what_if *w, const struct what_if_setting *s)
{
	return (double)(s->high - s->low) > BAND_SHOWN * (double)s->low ||
	       (w->waits && s->high > s->low);
}

static void add_peak(struct strbuf *out, const struct what_if *w, const struct what_if_setting *s)
{
	if (is_band(w, s)) {
		bool large = s->low >= (uint64_t)1 << 30;
		double unit = large ? 1 << 30 : 1 << 20;

		strbuf_addf(out, large ? "%.2f to %.2f GiB" : "%.0f to %.0f MiB",
			    (double)s->low / unit, (double)s->high / unit);
		return;
	}
	strbuf_add_size(out, s->reserved_peak);
}

/* Nothing of a range that has the figure in it that it is compared with. */
static void add_difference(struct strbuf *out, const struct what_if *w,
			   const struct what_if_setting *s)
{
	uint64_t peak = s->reserved_peak, base = w->base_peak;

	if (peak == base || s->own || (!s->fits && peak < base) ||
	    (is_band(w, s) && s->low <= base && base <= s->high))
		return;
	strbuf_add_char(out, peak > base ? '+' : '-');
	strbuf_add_size(out, peak > base ? peak - base : base - peak);
}

static void pad(struct strbuf *out, size_t from, size_t width)
{
	while (out->length - from < width)
		strbuf_add_char(out, ' ');
}

/* The setting that the run had; NULL: it is not among those that were tried. */
static const struct what_if_setting *own_setting(const struct what_if *w)
{
	for (size_t i = 0; i < w->setting_count; i++)
		if (w->settings[i].own)
			return &w->settings[i];
	return NULL;
}

/* Worth a recommendation: it saves, or it fits where the run's own settings do not. */
static bool is_best(const struct what_if *w, const struct what_if_setting *s)
{
	const struct what_if_setting *own = own_setting(w);

	if (s != &w->settings[0] || s->own || !s->fits)
		return false;
	return (own != NULL && own->refused[0] == '\0' && !own->fits) ||
	       (double)s->high < (1 - SAVING_LEAST) * (double)w->base_peak;
}

/* As a shell takes it. */
static void add_command(struct strbuf *out, const struct what_if *w, const char *settings)
{
	const char *quote = settings[strcspn(settings, " ><[]'\"$&;|()*?\\")] == '\0' ? "" : "'";
	const char *name = w->history->npu ? "PYTORCH_NPU_ALLOC_CONF" : "PYTORCH_CUDA_ALLOC_CONF";

	if (settings[0] == '\0')
		strbuf_addf(out, "unset %s", name);
	else
		strbuf_addf(out, "export %s=%s%s%s", name, quote, settings, quote);
}

static void add_setting(struct strbuf *out, const struct what_if *w,
			const struct what_if_setting *s, size_t width, size_t peak_width)
{
	size_t from = out->length;

	strbuf_addf(out, "  %s", name_of(s->text));
	pad(out, from, width + 4);
	if (s->refused[0] != '\0') {
		strbuf_addf(out, "%s\n", s->refused);
		return;
	}
	from = out->length;
	add_peak(out, w, s);
	pad(out, from, peak_width);
	strbuf_add_str(out, "  ");
	from = out->length;
	add_difference(out, w, s);
	if (!s->fits) {
		pad(out, from, 12);
		strbuf_add_str(out, "out of memory");
	} else if (is_best(w, s)) {
		pad(out, from, 12);
		strbuf_add_str(out, "recommended: ");
		add_command(out, w, s->text);
	} else if ((double)s->low > (1 + RUINOUS_LEAST) * (double)w->base_peak) {
		pad(out, from, 12);
		strbuf_add_str(out, "do not set this");
	}
	while (out->length > 0 && out->data[out->length - 1] == ' ')
		out->length--;
	strbuf_add_char(out, '\n');
}

static void add_moment(struct strbuf *out, const struct what_if_setting *s)
{
	if (s->oom_step != 0)
		strbuf_addf(out, "out of memory in step %" PRIu32, s->oom_step);
	else if (s->oom_at == 0)
		strbuf_add_str(out, "out of memory before the first event");
	else
		strbuf_addf(out, "out of memory at event %zu", s->oom_at);
}

/* The first one that fits, or that does not. */
static const struct what_if_setting *first_setting(const struct what_if *w, bool fits)
{
	for (size_t i = 0; i < w->setting_count; i++)
		if (w->settings[i].fits == fits && w->settings[i].refused[0] == '\0')
			return &w->settings[i];
	return NULL;
}

/* The record ends with a refused request. */
static void add_refused(struct strbuf *out, const struct what_if *w,
			const struct what_if_setting *other)
{
	strbuf_add_str(out, "The record ends with a request of ");
	strbuf_add_size(out, w->program.events[w->program.event_count - 1].bytes);
	strbuf_add_str(out, " that was refused. ");
	if (other == NULL) {
		strbuf_add_str(out, "No setting that was tried serves it from the ");
		strbuf_add_size(out, w->had_bytes);
		strbuf_add_str(out, " that the pool had.\n");
		return;
	}
	strbuf_addf(out, "With %s the pool would hold ", name_of(other->text));
	strbuf_add_size(out, other->reserved_peak);
	strbuf_add_str(out, " here, and this request fits.\n");
}

/* What the answer is limited by. */
static void add_limit(struct strbuf *out, const struct what_if *w,
		      const struct what_if_choice *choice)
{
	if (choice->card_bytes != 0) {
		strbuf_add_str(out, "On a card of ");
		strbuf_add_size(out, choice->card_bytes);
		strbuf_add_str(out, " (");
		strbuf_add_size(out, w->available_bytes);
		strbuf_add_str(out, w->history->outside_bytes == 0
					    ? " for the pool, if nothing else is there)"
					    : " for the pool)");
		if (choice->limit_bytes == 0)
			return;
	}
	strbuf_add_str(out, choice->card_bytes != 0 ? " with at most " : "With at most ");
	strbuf_add_size(out, choice->limit_bytes != 0 ? choice->limit_bytes : w->own_limit_bytes);
	strbuf_add_str(out, choice->limit_bytes != 0
				    ? " for the pool"
				    : " for the pool, the program's memory fraction");
}

static void add_fits(struct strbuf *out, const struct what_if *w,
		     const struct what_if_choice *choice)
{
	const struct what_if_setting *own = own_setting(w), *fits = first_setting(w, true);

	if (w->had_bytes != 0) {
		add_refused(out, w, w->settings[0].fits ? &w->settings[0] : NULL);
		return;
	}
	if (choice->card_bytes != 0 && w->available_bytes == 0) {
		strbuf_add_str(out, "On a card of ");
		strbuf_add_size(out, choice->card_bytes);
		strbuf_add_str(out, " nothing is left for the pool: ");
		strbuf_add_size(out, w->history->outside_bytes);
		strbuf_add_str(out, " are in use outside of it.\n");
		return;
	}
	if (own == NULL || own->refused[0] != '\0')
		own = fits != NULL ? fits : first_setting(w, false);
	if (own == NULL)
		return;
	add_limit(out, w, choice);
	strbuf_add_str(out, ": ");
	if (own->fits) {
		strbuf_addf(out, "it fits with %s.\n", name_of(own->text));
		return;
	}
	add_moment(out, own);
	if (!own->own)
		strbuf_addf(out, " with %s", name_of(own->text));
	if (fits != NULL)
		strbuf_addf(out, "; with %s it fits", name_of(fits->text));
	else if (w->setting_count > 1)
		strbuf_add_str(out, "; no setting that was tried helps");
	strbuf_add_str(out, ".\n");
}

static void add_notes(struct strbuf *out, const struct what_if *w)
{
	if (w->history->blocks_only && w->history->fraction > 0)
		strbuf_add_str(
			out,
			"torch_npu does not report requests that the memory fraction refused, so the recording may lack some.\n");
	if (w->history->blocks_only)
		strbuf_add_str(
			out,
			"torch_npu reports blocks, not requests: a block may be up to 1 MiB larger than what was asked for, which these figures allow for.\n");
	if (w->program.older_count > 0)
		strbuf_addf(
			out,
			"%zu blocks are older than the recording, and what the pool would have had by then is unknown: figures of other settings are uncertain by some percent, also beyond these ranges.\n",
			w->program.older_count);
	if (w->waits)
		strbuf_add_str(
			out,
			"Frees waited for other streams (record_stream); timing moves the figures within these ranges and beyond.\n");
	if (w->limited && w->workspace_bytes != 0) {
		strbuf_add_str(out, "Requests of up to ");
		strbuf_add_size(out, w->workspace_bytes);
		strbuf_add_str(
			out,
			" look like workspaces of cuDNN, which takes less when memory is short: the program may fit although this says that it does not.\n");
	}
	if (w->history->fraction <= 0 && w->program.ends_refused && w->had_bytes == 0)
		strbuf_add_str(out, "The record ends with a request that was refused.\n");
}

void whatif_text(const struct what_if *w, const struct what_if_choice *choice, struct strbuf *out)
{
	size_t width = 0, peak_width = 10;

	strbuf_addf(out, "PyTorch pool on %s %" PRIu32 " (", w->history->npu ? "NPU" : "GPU",
		    w->history->device);
	if (w->release.major != 0) /* 0: refused before it was looked for */
		strbuf_addf(out, "%s 2.%" PRIu32 "%s, ", w->history->npu ? "torch_npu" : "torch",
			    w->release.minor,
			    w->release_found && w->agreement.agrees ? ", the newest that agrees"
								    : "");
	strbuf_addf(out, "%s%s): ",
		    w->history->settings[0] == '\0' ? "default settings" : w->history->settings,
		    w->history->settings_known ? "" : " assumed");
	strbuf_add_size(out, w->reserved_peak);
	strbuf_add_str(out, " reserved at the peak");
	if (w->in_use_peak != 0) {
		strbuf_add_str(out, ", ");
		strbuf_add_size(out, w->in_use_peak);
		strbuf_add_str(out, " in use");
	}
	strbuf_add_str(out, ".\n");
	if (w->agreement.agrees)
		strbuf_addf(out,
			    "The replay agrees with the record: %" PRIu64 " of %" PRIu64
			    " addresses.\n",
			    w->agreement.addresses, w->agreement.addresses);
	if (w->refusal[0] != '\0') {
		strbuf_addf(out, "%s\n", w->refusal);
		return;
	}
	for (size_t i = 0; i < w->setting_count; i++) {
		size_t from = out->length;

		if (strlen(name_of(w->settings[i].text)) > width)
			width = strlen(name_of(w->settings[i].text));
		if (w->settings[i].refused[0] != '\0')
			continue;
		add_peak(out, w, &w->settings[i]);
		peak_width = out->length - from > peak_width ? out->length - from : peak_width;
		out->length = from;
	}
	for (size_t i = 0; i < w->setting_count; i++)
		add_setting(out, w, &w->settings[i], width, peak_width);
	if (!w->history->blocks_only) {
		strbuf_add_str(out, "No allocator can need less than ");
		strbuf_add_size(out, w->requested_peak);
		strbuf_add_str(out, ".\n");
	}
	if (w->limited)
		add_fits(out, w, choice);
	add_notes(out, w);
}

static void json_setting(const struct what_if *w, const struct what_if_setting *s,
			 struct json *json)
{
	json_object(json, NULL);
	json_string(json, "set", s->text);
	if (s->refused[0] != '\0') {
		json_string(json, "refused", s->refused);
		json_end(json);
		return;
	}
	json_u64(json, "reserved_peak", s->reserved_peak);
	json_u64(json, "low", s->low);
	json_u64(json, "high", s->high);
	if (w->limited || !s->fits) {
		json_bool(json, "fits", s->fits);
		if (s->fits)
			json_null(json, "oom_at");
		else
			json_u64(json, "oom_at", s->oom_step != 0 ? s->oom_step : s->oom_at);
	}
	json_end(json);
}

void whatif_json(const struct what_if *w, const char *run, struct json *json)
{
	char device[16], played[16];

	snprintf(device, sizeof(device), "%" PRIu32, w->history->device);
	json_object(json, NULL);
	json_string(json, "device", device);
	json_string(json, "pool", "PTA");
	if (run != NULL)
		json_string(json, "run", run);
	if (w->history->torch[0] == '\0')
		json_null(json, "torch");
	else
		json_string(json, "torch", w->history->torch);
	snprintf(played, sizeof(played), "2.%" PRIu32, w->release.minor);
	if (w->release.major != 0)
		json_string(json, "torch_played", played);
	json_string(json, "set", w->history->settings);
	json_bool(json, "agrees", w->agreement.agrees);
	if (w->agreement.agrees || w->agreement.left_at == SIZE_MAX)
		json_null(json, "left_at");
	else
		json_u64(json, "left_at", w->agreement.left_at + 1);
	json_u64(json, "reserved_peak", w->reserved_peak);
	if (w->refusal[0] == '\0' && w->base_peak != w->reserved_peak)
		json_u64(json, "compared_with", w->base_peak);
	json_u64(json, "in_use_peak", w->in_use_peak);
	json_u64(json, "requested_peak", w->requested_peak);
	if (w->workspace_bytes != 0)
		json_u64(json, "workspaces", w->workspace_bytes);
	if (w->refusal[0] != '\0') {
		json_string(json, "refusal", w->refusal);
	} else {
		json_array(json, "settings");
		for (size_t i = 0; i < w->setting_count; i++)
			json_setting(w, &w->settings[i], json);
		json_end(json);
	}
	json_end(json);
}
