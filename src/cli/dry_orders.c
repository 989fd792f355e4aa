/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/dry_orders.h"

#include <errno.h>

#include "twin/what_if.h"

/* At most: of 64, one of four runs of a transformer on an H200 was outside, of 1,024 none. */
#define ORDERS 1024u
#define EVENTS 4000000u /* of all plays */

static void widen(uint64_t value, uint64_t *low, uint64_t *high)
{
	*low = value < *low ? value : *low;
	*high = value > *high ? value : *high;
}

/* A request at the end that the run's own pool refused as well, and the program went on, says nothing. */
static bool is_refused(const struct what_if *w, const struct program_result *result)
{
	const struct program *program = &w->program;

	return result->refused_at != SIZE_MAX &&
	       !(program->ends_refused &&
		 result->refused_at == program->sources[program->event_count - 1]);
}

static int play(const struct what_if *w, uint64_t most_bytes, struct dry_orders *out)
{
	struct twin_conditions conditions = what_if_conditions(w);
	struct mscope_error ignored = {0};
	struct program_result result = {.ties = true};
	size_t most = EVENTS / (w->program.event_count + 1);
	uint32_t orders = most < 3 ? 3 : most < ORDERS ? (uint32_t)most : ORDERS, i;
	int r = twin_settings_parse(w->history->settings, &w->release, &conditions.settings,
				    &ignored);

	conditions.capacity_bytes = most_bytes;
	for (i = 0; r == 0 && i < orders && result.ties; i++) {
		what_if_order(&conditions, i);
		r = program_play(&w->program, &conditions, PROGRAM_AS_RECORDED, true, &result);
		if (r == 0 && is_refused(w, &result)) {
			out->refused |= result.ties;
		} else if (r == 0) {
			widen(result.figures.in_use_peak, &out->needs_low, &out->needs_high);
			widen(result.figures.reserved_peak, &out->reserves_low,
			      &out->reserves_high);
		}
	}
	return r;
}

int dry_orders_play(const struct pool_histories *histories, uint32_t device, uint64_t most,
		    struct dry_orders *out)
{
	static const char *const none[] = {""};
	const struct pool_history *history = pool_histories_of(histories, device);
	const struct what_if_choice choice = {.settings = none, .setting_count = 0};
	struct mscope_error ignored = {0};
	struct what_if w = {0};
	int r;

	if (history == NULL || history->blocks_only)
		return 0;
	r = what_if_answer(&w, history, &choice, &ignored);
	if (r == 0 && w.agreement.agrees) {
		out->requested = w.requested_peak;
		r = play(&w, most, out);
	}
	what_if_fini(&w);
	/* A release that is not known has figures all the same. */
	return r == -ENOMEM ? r : 0;
}
