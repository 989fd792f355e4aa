/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/whatif_line.h"

#include <string.h>

#include "cli/whatif_input.h"
#include "sink/screen.h"
#include "twin/what_if.h"

#define EVENTS_MOST   300000u
#define BEYOND_LEAST  ((uint64_t)1 << 30) /* reserved and not in use at the peak */
#define BEYOND_SHARE  0.10		  /* of what is reserved */
#define SAVING_LEAST  0.05		  /* of what is reserved: worth a line */
#define EXPORT_PREFIX "export PYTORCH_CUDA_ALLOC_CONF="
#define NOTHING_HELPS "No allocator setting that was tried on the record serves this request.\n"

/* The last request that was refused, if settings of the pool can matter to it. */
static const struct finding_oom *refused(const struct digest *digest)
{
	const struct findings *found = digest->found;
	size_t count = found == NULL ? 0 : FINDINGS_COUNT(found, oom);
	const struct finding_oom *oom = count == 0 ? NULL : &FINDINGS(found, oom)[count - 1];

	return oom != NULL && oom->pool == POOL_pta &&
			       (oom->cause == OOM_CAUSE_FRAGMENTATION ||
				oom->cause == OOM_CAUSE_FULL || oom->limited)
		       ? oom
		       : NULL;
}

/* A peak at which the pool had far more than was in use. */
static const struct finding_peak *wasteful(const struct digest *digest)
{
	const struct finding_peak *peak = screen_peak(digest->found);
	uint64_t beyond;

	if (digest->oom_count > 0 || peak == NULL || peak->pool != POOL_pta ||
	    peak->reserved_bytes < peak->bytes)
		return NULL;
	beyond = peak->reserved_bytes - peak->bytes;
	return beyond >= BEYOND_LEAST &&
			       (double)beyond >= BEYOND_SHARE * (double)peak->reserved_bytes
		       ? peak
		       : NULL;
}

static bool is_own(const struct what_if *w, const struct what_if_setting *s)
{
	return strcmp(s->text, w->history->settings) == 0;
}

static void say_refused(const struct what_if *w, struct strbuf *out)
{
	const struct what_if_setting *helps = NULL;

	if (!w->limited || !w->program.ends_refused)
		return;
	for (size_t i = 0; i < w->setting_count && helps == NULL; i++)
		if (w->settings[i].refused[0] == '\0' && w->settings[i].fits &&
		    !is_own(w, &w->settings[i]))
			helps = &w->settings[i];
	if (helps == NULL) {
		strbuf_add_str(out, NOTHING_HELPS);
		return;
	}
	strbuf_addf(out, "With %s the pool would hold ", helps->text);
	strbuf_add_size(out, helps->reserved_peak);
	strbuf_addf(out, " here, and this request fits.\n  " EXPORT_PREFIX "%s\n", helps->text);
}

static void say_saving(const struct what_if *w, struct strbuf *out)
{
	const struct what_if_setting *best = &w->settings[0];

	if (w->setting_count == 0 || best->refused[0] != '\0' || is_own(w, best) ||
	    (double)best->high > (1 - SAVING_LEAST) * (double)w->reserved_peak)
		return;
	strbuf_addf(out, "With %s the pool would hold at most ", best->text);
	strbuf_add_size(out, best->high);
	strbuf_add_str(out, " instead of ");
	strbuf_add_size(out, w->reserved_peak);
	strbuf_addf(out, ".\n  " EXPORT_PREFIX "%s\n", best->text);
}

void whatif_line(struct digest *digest, const char *word)
{
	const struct finding_oom *oom = refused(digest);
	const struct finding_peak *peak = oom == NULL ? wasteful(digest) : NULL;
	const struct pool_history *history;
	struct what_if_choice choice = {0};
	struct mscope_error ignored = {0};
	struct whatif_input input;
	struct what_if w;

	if ((oom == NULL && peak == NULL) || word == NULL || digest->events > EVENTS_MOST)
		return;
	if (whatif_input_read_trace(&input, word) == 0) {
		history = whatif_pool(&input, oom != NULL ? oom->device : peak->device);
		if (history != NULL) {
			if (what_if_answer(&w, history, &choice, &ignored) == 0 &&
			    w.refusal[0] == '\0' && !w.waits) {
				if (oom != NULL)
					say_refused(&w, &digest->what_if);
				else
					say_saving(&w, &digest->what_if);
			}
			what_if_fini(&w);
		}
	}
	whatif_input_fini(&input);
}

void whatif_line_of_worst(struct digest *digests, size_t count)
{
	struct digest *worst = digests;

	for (size_t i = 1; i < count; i++) {
		const struct digest *one = &digests[i], *other = worst;

		if (screen_worst_first(&one, &other) < 0)
			worst = &digests[i];
	}
	if (count > 0)
		whatif_line(worst, worst->project);
}
