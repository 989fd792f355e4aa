/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Findings in plain English: every sentence that screen, report.txt, `info`, JSON, the page and the store show is made here.
 */
#include <ctype.h>
#include <string.h>

#include "base/shown.h"
#include "base/whole.h"
#include "findings/findings.h"
#include "findings/say.h"

/* Below this many steps a rate is "about". */
#define SHORT_STEPS 20u
/* Below this the headline says how many are needed. */
#define FEW_STEPS 10u

#define SHORT_STEP_S 0.001
#define YEAR_S	     (365.0 * 86400)

/* ---- words ---- */

void pool_words(const struct findings *found, uint8_t pool, uint32_t device, struct strbuf *out)
{
	say_the_pool(out, found->vendor, pool);
	if (device != DEVICE_HOST) {
		strbuf_add_str(out, " on ");
		say_device(out, found->vendor, device);
	}
}

const char *step_word(const struct findings *f)
{
	return f->judgement.by_time ? "part" : "step";
}

/* "about 1.0 MiB per step (0.9 to 1.1)"; by time per second. */
static void add_rate(struct strbuf *out, const struct findings *f, const char *sign, double rate,
		     double low, double high)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	double scale = f->judgement.by_time && f->judgement.step_seconds > 0
			       ? 1 / f->judgement.step_seconds
			       : 1;
	size_t unit = 0;

	while (rate * scale >= 1000 && unit + 1 < MSCOPE_COUNT(units)) {
		scale /= 1024;
		unit++;
	}
	strbuf_addf(out, "%s%s%.1f %s per %s", f->judgement.last_step < SHORT_STEPS ? "about " : "",
		    sign, rate * scale, units[unit], f->judgement.by_time ? "second" : "step");
	if (high > low)
		strbuf_addf(out, " (%.1f to %.1f)", low * scale, high * scale);
}

static void add_blocks(struct strbuf *out, uint64_t blocks, uint64_t bytes)
{
	say_count(out, blocks, "block");
	strbuf_add_str(out, ", ");
	strbuf_add_size(out, bytes);
}

/* ---- sentences ---- */

/* The forecast is one of the device: the first of its leaks has it. */
static bool is_first_of_device(const struct findings *f, const struct finding_place *p)
{
	const struct finding_place *places = FINDINGS(f, place);
	size_t i;

	for (i = 0; i < FINDINGS_COUNT(f, place) && &places[i] != p; i++) {
		if (places[i].verdict == GROWTH_LEAK && places[i].device == p->device)
			return false;
	}
	return true;
}

/* Nothing beyond a year; of steps shorter than a millisecond, which are no training's, without the time. */
bool full_words(const struct findings *f, const struct finding_place *p, struct strbuf *out)
{
	bool by_time = f->judgement.by_time;
	bool timed =
		p->seconds_until_full > 0 && (by_time || f->judgement.step_seconds >= SHORT_STEP_S);

	if (p->steps_until_full == 0 || p->seconds_until_full > YEAR_S || (by_time && !timed))
		return false;
	strbuf_add_str(out, "full in about ");
	if (!by_time) {
		say_about(out, p->steps_until_full);
		strbuf_add_str(out, p->steps_until_full == 1 ? " step" : " steps");
	}
	if (timed) {
		strbuf_add_str(out, by_time ? "" : " (about ");
		say_duration(out, p->seconds_until_full);
		strbuf_add_str(out, by_time ? "" : ")");
	}
	return true;
}

/* ", at step 1,900 to 2,050" */
static void add_full_range(struct strbuf *out, const struct findings *f, uint32_t device)
{
	const struct finding_forecast *forecasts = FINDINGS(f, forecast);
	size_t i;

	for (i = 0; i < FINDINGS_COUNT(f, forecast); i++) {
		if (forecasts[i].device == device) {
			strbuf_add_str(out, ", at step ");
			forecast_steps(&forecasts[i], out);
			return;
		}
	}
}

static void add_forecast(struct strbuf *out, const struct findings *f,
			 const struct finding_place *p)
{
	struct strbuf when = {0};

	if (is_first_of_device(f, p) && full_words(f, p, &when)) {
		strbuf_add_char(out, ' ');
		say_device(out, f->vendor, p->device);
		strbuf_addf(out, " is %s", strbuf_str(&when));
		add_full_range(out, f, p->device);
		strbuf_add_char(out, '.');
	}
	strbuf_fini(&when);
}

/* PyTorch gives pinned memory that was freed to the next caller without asking the driver, whose blocks are what is known. */
static bool is_reused(const struct findings *f, const struct finding_place *p)
{
	size_t i;

	if (p->pool != POOL_host_pinned)
		return false;
	for (i = 0; i < FINDINGS_COUNT(f, trend); i++) {
		if (FINDINGS(f, trend)[i].pool == POOL_pta)
			return true;
	}
	return false;
}

/* How often a leak came that comes in a rhythm. */
static uint64_t times_of(const struct finding_place *p)
{
	return (p->last_step - p->first_step) / p->every + 1;
}

/* "; 4.0 MiB every 12 steps" */
static void add_rhythm(struct strbuf *out, const struct findings *f, const struct finding_place *p)
{
	if (p->every == 0)
		return;
	strbuf_add_str(out, "; ");
	strbuf_add_size(out, p->overdue_bytes / times_of(p));
	strbuf_add_str(out, " every ");
	say_count(out, p->every, step_word(f));
}

static void leak_sentence(const struct findings *f, const struct finding_place *p,
			  struct strbuf *out)
{
	if (p->by_handles)
		strbuf_add_str(out, "driver memory beside the pools grows: ");
	else if (p->reason == GROWTH_CLIMBS)
		strbuf_add_str(out,
			       p->blocks <= 2 ? "grows by reallocation: " : "its level climbs: ");
	add_rate(out, f, "", p->bytes_per_step, p->bytes_per_step_low, p->bytes_per_step_high);
	if (p->reason == GROWTH_CLIMBS) {
		strbuf_addf(out, " in %llu of %llu %ss", (unsigned long long)p->rises,
			    (unsigned long long)p->rise_steps, step_word(f));
		strbuf_add_str(out, p->by_handles    ? "."
				    : p->blocks <= 2 ? "; each block replaces a smaller one."
						     : ", although it frees blocks.");
	} else if (p->usual_age < 0 || p->reason == GROWTH_SIZES) {
		strbuf_add_str(out, ", ");
		add_blocks(out, p->overdue_blocks, p->overdue_bytes);
		strbuf_addf(out, " since %s %llu", step_word(f), (unsigned long long)p->first_step);
		add_rhythm(out, f, p);
		strbuf_add_str(out, p->freed == 0 ? ". Nothing of it was freed." : ".");
	} else {
		strbuf_add_str(out, ": ");
		say_count(out, p->overdue_blocks, "block");
		strbuf_add_str(out, " older than ");
		say_count(out, 2 * (uint64_t)p->usual_age + 1, step_word(f));
		strbuf_add_str(out, "; it usually frees within ");
		if (p->usual_age == 0)
			strbuf_addf(out, "the %s", step_word(f));
		else
			say_count(out, (uint64_t)p->usual_age, step_word(f));
		strbuf_add_str(out, " (");
		say_number(out, p->freed_usual);
		strbuf_add_str(out, " of ");
		say_count(out, p->freed + p->overdue_blocks, "block");
		strbuf_add_str(out, ").");
	}
	if (p->reason == GROWTH_SIZES)
		strbuf_add_str(out, " Its blocks have many sizes: run again with --call-stack=c to "
				    "see where they come from.");
	if (p->reason != GROWTH_CLIMBS && p->reason != GROWTH_SIZES && p->young_blocks > 0) {
		strbuf_add_char(out, ' ');
		say_count(out, p->young_blocks, "newer block");
		strbuf_add_str(out, p->young_blocks == 1 ? " is not judged yet."
							 : " are not judged yet.");
	}
	if (is_reused(f, p))
		strbuf_add_str(out,
			       " PyTorch reuses pinned memory: these blocks were first taken here, "
			       "and another line may keep them.");
	add_forecast(out, f, p);
}

/* "every fourth step" */
static void add_every(struct strbuf *out, const struct findings *f, uint64_t every)
{
	static const char *const ordinals[] = {"",	  "",	    "second ", "third ",
					       "fourth ", "fifth ", "sixth ",  "seventh ",
					       "eighth ", "ninth ", "tenth "};

	if (every < MSCOPE_COUNT(ordinals)) {
		strbuf_addf(out, "every %s%s", ordinals[every], step_word(f));
		return;
	}
	strbuf_add_str(out, "every ");
	say_count(out, every, step_word(f));
}

/* A pause says something only if it is longer than all before. */
static bool is_quiet(const struct finding_place *p)
{
	return p->quiet > 0 && p->quiet >= p->pause;
}

/* What a suspect lacks. */
static void add_missing(struct strbuf *out, const struct findings *f, const struct finding_place *p)
{
	bool quiet = is_quiet(p);

	if (quiet) {
		strbuf_add_str(out, "It did not grow in the last ");
		if (p->quiet == 1)
			strbuf_add_str(out, step_word(f));
		else
			say_count(out, p->quiet, step_word(f));
	} else if (p->every != 0) {
		strbuf_add_str(out, "It grew ");
		add_every(out, f, p->every);
	}
	if (p->more_steps == 0 || quiet != p->by_quiet) {
		strbuf_add_str(out, quiet || p->every != 0 ? ": run" : "Run");
		strbuf_add_str(out, quiet ? " longer to tell a leak from a cache that has filled."
					  : " longer to tell a leak from a cache that fills.");
		return;
	}
	strbuf_add_str(out, quiet ? "; " : p->every != 0 ? "; " : "About ");
	say_number(out, p->more_steps);
	strbuf_addf(out, " more %s%s", step_word(f), p->more_steps == 1 ? "" : "s");
	strbuf_add_str(out, quiet ? " without growth would show that it has stopped."
				  : " would decide it.");
}

/* "about 1,000 KiB when full", of what is kept by a container that is still filling. */
static void add_when_full(struct strbuf *out, const struct findings *f,
			  const struct finding_place *p)
{
	const struct finding_keeper *k =
		p->keepers.count == 0 ? NULL : &FINDINGS(f, keeper)[p->keepers.first];

	if (k == NULL || k->most == 0 || p->blocks == 0)
		return;
	strbuf_add_str(out, "about ");
	strbuf_add_size(out, whole((double)p->bytes / (double)p->blocks * (double)k->most));
	strbuf_add_str(out, " when full");
}

static void suspect_sentence(const struct findings *f, const struct finding_place *p,
			     struct strbuf *out)
{
	uint64_t blocks = p->overdue_blocks + p->young_blocks;

	if (p->reason == GROWTH_ONCE) {
		add_blocks(out, p->overdue_blocks, p->overdue_bytes);
		strbuf_addf(out, " stayed; its other ");
		say_count(out, p->freed, "block");
		strbuf_addf(out,
			    " %s freed within their %s. Forgotten, or made once to be kept: that "
			    "cannot be told.",
			    p->freed == 1 ? "was" : "were", step_word(f));
		return;
	}
	if (p->reason == GROWTH_RENEWED) {
		strbuf_addf(out,
			    "%s: the current value of a variable, whose values grow; none is made "
			    "from the one before.",
			    p->blocks == 2 ? "two blocks" : "one block");
		return;
	}
	strbuf_addf(out, "grew in %llu of %llu %ss, ", (unsigned long long)p->rises,
		    (unsigned long long)p->rise_steps, step_word(f));
	if (p->by_handles)
		strbuf_add_size(out, p->bytes);
	else
		add_blocks(out, blocks, p->kept_bytes);
	strbuf_add_str(out, ". ");
	if (p->reason == GROWTH_FILLS) {
		strbuf_add_str(out, "What keeps them has a limit: ");
		add_when_full(out, f, p);
		strbuf_add_char(out, '.');
		return;
	}
	if (p->reason == GROWTH_SIZES)
		strbuf_add_str(
			out,
			"Blocks of many sizes grow together: run again with --call-stack=c to see "
			"which call site they come from.");
	else if (f->judgement.by_time)
		strbuf_add_str(
			out,
			"No step was marked, so a leak cannot be told from a program that starts: "
			"mark steps.");
	else if (f->judgement.last_step < 10 && (p->more_steps == 0 || is_quiet(p)))
		strbuf_add_str(
			out,
			"Too short to tell a leak from a cache that fills: run 10 steps or more.");
	else if (p->usual_age >= 0 && p->overdue_blocks == 0)
		strbuf_add_str(out, "All of it may still be in use: run longer to tell.");
	else if (is_quiet(p) || p->more_steps > 0)
		add_missing(out, f, p);
	else
		strbuf_add_str(out, "It may be a cache that fills: run longer to tell.");
}

static void kept_sentence(const struct findings *f, const struct finding_place *p,
			  struct strbuf *out)
{
	add_blocks(out, p->blocks, p->bytes);
	switch (p->reason) {
	case GROWTH_OWNED:
		strbuf_add_str(out,
			       ", held for the whole run, as weights and optimizer state are.");
		break;
	case GROWTH_BOUNDED:
		strbuf_add_str(out, ", in a container that is full and drops its oldest items.");
		break;
	case GROWTH_IN_USE:
		strbuf_add_str(out, ", in use: it frees its blocks within ");
		say_count(out, (uint64_t)p->usual_age, step_word(f));
		strbuf_add_char(out, '.');
		break;
	case GROWTH_STOPPED:
		if (p->first_step == p->last_step)
			strbuf_addf(out, ", made in %s %llu", step_word(f),
				    (unsigned long long)p->first_step);
		else
			strbuf_addf(out, ", made in %ss %llu to %llu", step_word(f),
				    (unsigned long long)p->first_step,
				    (unsigned long long)p->last_step);
		strbuf_add_str(out, "; nothing in the ");
		if (p->quiet == 1)
			strbuf_add_str(out, step_word(f));
		else
			say_count(out, p->quiet, step_word(f));
		strbuf_add_str(out, " since");
		if (p->bound_per_step > 0) {
			strbuf_add_str(out, " (if it grows again, then by less than ");
			strbuf_add_size(out, whole(p->bound_per_step) + 1);
			strbuf_addf(out, " per %s)", step_word(f));
		}
		strbuf_add_char(out, '.');
		break;
	default:
		strbuf_addf(out, ", and does not grow after the first %s.", step_word(f));
	}
}

void place_sentence(const struct findings *findings, const struct finding_place *place,
		    struct strbuf *out)
{
	if (place->verdict == GROWTH_LEAK)
		leak_sentence(findings, place, out);
	else if (place->verdict == GROWTH_SUSPECT)
		suspect_sentence(findings, place, out);
	else
		kept_sentence(findings, place, out);
}

/* Kinds that have no name in Python. */
static bool add_unnamed(const struct finding_keeper *k, struct strbuf *out)
{
	if (strcmp(k->kind, "cpp") == 0)
		strbuf_add_str(out, "C++ only: no Python object and no autograd graph holds it");
	else if (strcmp(k->kind, "cycle") == 0)
		strbuf_addf(out, "a reference cycle of %s objects; gc.collect() would free it",
			    k->type);
	else if (strcmp(k->kind, "unnamed") == 0)
		strbuf_addf(out, "%s that no variable of Python leads to", k->type);
	else
		return false;
	return true;
}

static void say_keeper(const struct findings *found, const struct finding_keeper *k,
		       struct strbuf *out)
{
	bool one = k->items == 0;
	/* A hook that is known has its name among the rest. */
	const char *of_hook = strcmp(k->kind, "hook") == 0 && strstr(k->root, "hook ") == NULL
				      ? " of a hook"
				      : "";
	/* Found while the program went on: what it keeps has grown since. */
	bool earlier = k->step != 0 && k->step + 1 < found->judgement.last_step;

	if (add_unnamed(k, out))
		return;
	if (strcmp(k->kind, "graph") == 0)
		strbuf_add_str(out, "autograd's graph of ");
	if (strcmp(k->kind, "gradient") == 0)
		strbuf_add_str(out, k->name[0] == '\0' || strcmp(k->type, "tensor") == 0
					    ? "gradient of "
					    : "gradients of tensors in ");
	if (k->name[0] != '\0')
		strbuf_addf(out, "%s `%s`%s (%s)", k->type, k->name, of_hook, k->root);
	else
		strbuf_add_str(out, k->root);
	if (!one) {
		strbuf_add_str(out, ", ");
		if (k->most > k->items) {
			say_number(out, k->items);
			strbuf_add_str(out, " of at most ");
		}
		say_count(out, k->most > k->items ? k->most : k->items,
			  k->name[0] != '\0' && strcmp(k->type, "linked list") == 0 ? "node"
										    : "item");
	}
	if (found->judgement.by_time) {
		if (k->earlier)
			strbuf_addf(out, "%s %.1f s", one ? ", seen at" : " at", k->seconds);
	} else if (earlier)
		strbuf_addf(out, "%s step %llu", one ? ", seen in" : " in",
			    (unsigned long long)k->step);
	else if (k->newest_step != 0 && k->newest_step >= found->judgement.last_step)
		/* Blocks that are too young to be judged were not looked for. */
		strbuf_addf(out, ", newest from step %llu", (unsigned long long)k->newest_step);
	if (k->holds[0] != '\0')
		strbuf_addf(out, "; %s %s", one ? "it holds" : "each holds", k->holds);
}

/* Names of the program are in nearly all of it. */
void keeper_sentence(const struct findings *found, const struct finding_keeper *keeper,
		     struct strbuf *out)
{
	struct strbuf text = {0};

	say_keeper(found, keeper, &text);
	strbuf_add_shown(out, strbuf_str(&text), text.length);
	strbuf_fini(&text);
}

void keeper_line(const struct findings *found, const struct finding_place *place,
		 const char *indent, struct strbuf *out)
{
	if (place->keepers.count == 0)
		return;
	strbuf_addf(out, "%skept by: ", indent);
	keeper_sentence(found, &FINDINGS(found, keeper)[place->keepers.first], out);
	strbuf_add_char(out, '\n');
}

void keeper_lines(const struct findings *found, const struct finding_place *place,
		  const char *indent, struct strbuf *out)
{
	const struct finding_keeper *keeper;

	if (place->keepers.count == 0)
		return;
	keeper = &FINDINGS(found, keeper)[place->keepers.first];
	keeper_line(found, place, indent, out);
	if (keeper->cure[0] == '\0')
		return;
	strbuf_addf(out, "%scure: ", indent);
	strbuf_add_shown(out, keeper->cure, strlen(keeper->cure));
	strbuf_add_char(out, '\n');
}

void place_line(const struct findings *found, const struct finding_place *place, struct strbuf *out)
{
	strbuf_add_str(out, place->name);
	if (place->stack == 0 && place->device != DEVICE_HOST) {
		strbuf_add_str(out, " on ");
		say_device(out, found->vendor, place->device);
	}
	strbuf_add_str(out, "  ");
	place_sentence(found, place, out);
}

void late_stop_words(const struct findings *findings, const struct finding_trend *pool,
		     struct strbuf *out)
{
	strbuf_add_str(out, "grew by ");
	strbuf_add_size(out, pool->grown_bytes);
	if (findings->judgement.by_time)
		strbuf_add_str(out, ", and not in the last ");
	else
		strbuf_addf(out, " up to step %llu, and not in the last ",
			    (unsigned long long)pool->last_rise);
	if (findings->judgement.last_step - pool->last_rise == 1)
		strbuf_add_str(out, step_word(findings));
	else
		span_words(findings, findings->judgement.last_step - pool->last_rise, out);
}

void trend_sentence(const struct findings *findings, const struct finding_trend *pool,
		    struct strbuf *out)
{
	struct strbuf name = {0};

	pool_words(findings, pool->pool, pool->device, &name);
	strbuf_addf(out, "%c%s", toupper((unsigned char)strbuf_str(&name)[0]),
		    strbuf_str(&name) + 1);
	strbuf_fini(&name);
	if (pool->last_rise != 0) {
		strbuf_add_str(out, ": ");
		late_stop_words(findings, pool, out);
	} else if (pool->trend == GROWTH_KEPT) {
		strbuf_add_str(out, ": steady");
	} else {
		strbuf_add_str(out, pool->trend == GROWTH_LEAK ? ": " : " may be growing: ");
		if (pool->bytes_per_step >= 1) {
			add_rate(out, findings, "+", pool->bytes_per_step, pool->bytes_per_step_low,
				 pool->bytes_per_step_high);
			strbuf_add_str(out, ", ");
		}
		strbuf_addf(out, "rose in %llu of %llu %ss", (unsigned long long)pool->rises,
			    (unsigned long long)pool->steps, step_word(findings));
	}
	strbuf_add_str(out, "; peak ");
	strbuf_add_size(out, pool->peak_bytes);
	strbuf_add_str(out, ", end ");
	strbuf_add_size(out, pool->end_bytes);
	strbuf_add_char(out, '.');
	if (pool->trend == GROWTH_LEAK)
		strbuf_addf(out, " The leaks account for %.0f %% of it.", 100 * pool->explained);
}

const char *unjudged_why(const struct finding_unjudged *unjudged)
{
	static const char *const why[LEAKS_UNJUDGED_END] = {
		[LEAKS_NO_STEP] = "no step after the first has ended",
		[LEAKS_OUTSIDE_WINDOW] = "recording was off when they were allocated",
		[LEAKS_POOL_CACHE] = "a framework's pool took it, and the pool is judged",
		[LEAKS_HANDLES] =
			"they were taken by handles, and no pool says how much of it it holds",
		[LEAKS_AFTER_LAST] = "they were allocated after the last step ended",
		[LEAKS_POOL_UNSEEN] =
			"it may be of a framework's pool, which is not recorded without a preload",
		[LEAKS_POOL_FOREIGN] =
			"a library took it in large pieces, and what it gives out of them is not recorded",
	};

	return why[unjudged->reason];
}

void unjudged_sentence(const struct findings *found, const struct finding_unjudged *unjudged,
		       struct strbuf *out)
{
	strbuf_add_str(out, "Not judged: ");
	add_blocks(out, unjudged->blocks, unjudged->bytes);
	strbuf_add_str(out, " of ");
	pool_words(found, unjudged->pool, unjudged->device, out);
	strbuf_addf(out, "; %s.", unjudged_why(unjudged));
}

void size_class_words(uint64_t size_class, bool recorded, struct strbuf *out)
{
	if (!recorded) {
		strbuf_add_str(out, "allocated while recording was off");
	} else if (size_class <= 10) {
		strbuf_add_str(out, "blocks of less than 1 KiB");
	} else {
		strbuf_add_str(out, "blocks of ");
		strbuf_add_size(out, UINT64_C(1) << (size_class - 1));
		strbuf_add_str(out, " or more");
	}
}

void kernel_words(const struct finding_place *place, uint64_t kernel, struct strbuf *out)
{
	if (!place->on_gpu || kernel != 0)
		strbuf_addf(out, " in kernel_%llu", (unsigned long long)kernel);
}

/* ---- in a few words, for a screen ---- */

const char *rate_unit(const struct findings *found)
{
	return found->judgement.by_time ? "second" : "step";
}

void rate_words(const struct findings *f, double bytes_per_step, struct strbuf *out)
{
	double scale = f->judgement.by_time && f->judgement.step_seconds > 0
			       ? 1 / f->judgement.step_seconds
			       : 1;

	strbuf_add_char(out, '+');
	say_size(out, bytes_per_step * scale);
}

void rises_words(const struct findings *f, const char *verb, uint64_t rises, uint64_t steps,
		 struct strbuf *out)
{
	if (f->judgement.by_time) {
		strbuf_addf(out, "%s ", verb);
		say_count(out, rises, "time");
		strbuf_add_str(out, " in ");
		say_seconds(out, (double)steps * f->judgement.step_seconds);
	} else {
		strbuf_addf(out, "%s in ", verb);
		say_number(out, rises);
		strbuf_add_str(out, " of ");
		say_count(out, steps, "step");
	}
}

void span_words(const struct findings *f, uint64_t steps, struct strbuf *out)
{
	if (f->judgement.by_time)
		say_seconds(out, (double)steps * f->judgement.step_seconds);
	else
		say_count(out, steps, "step");
}

/* "57 blocks"; where the call site frees others, "57 of 463 blocks not freed". */
static void add_stayed(const struct finding_place *p, bool of_all, const char *what,
		       struct strbuf *out)
{
	if (!of_all || p->freed == 0) {
		say_count(out, p->overdue_blocks, "block");
		return;
	}
	say_number(out, p->overdue_blocks);
	strbuf_add_str(out, " of ");
	say_count(out, p->freed + p->overdue_blocks, "block");
	strbuf_addf(out, " %s", what);
}

/* ", 2 every 12 steps" */
static void add_each(const struct findings *f, const struct finding_place *p, struct strbuf *out)
{
	uint64_t times = times_of(p);

	strbuf_add_str(out, ", ");
	if (p->overdue_blocks == times)
		strbuf_add_str(out, "one ");
	else if (p->overdue_blocks % times == 0)
		strbuf_addf(out, "%llu ", (unsigned long long)(p->overdue_blocks / times));
	strbuf_add_str(out, "every ");
	say_count(out, p->every, step_word(f));
}

static void leak_brief(const struct findings *f, const struct finding_place *p, bool whole,
		       struct strbuf *out)
{
	if (p->reason == GROWTH_CLIMBS && p->by_handles) {
		strbuf_add_str(out, "driver memory beside the pools");
	} else if (p->reason == GROWTH_CLIMBS) {
		strbuf_add_str(out, p->blocks <= 2 ? "each block replaces a smaller one"
						   : "frees less than it allocates");
	} else if (p->reason == GROWTH_SIZES) {
		rises_words(f, "many sizes, grew", p->rises, p->rise_steps, out);
	} else {
		/* What keeps them is said below, with how many items it has. */
		add_stayed(p, whole && p->keepers.count == 0, "not freed", out);
		if (whole && p->every != 0)
			add_each(f, p, out);
		else if (whole && (is_reused(f, p) || p->freed == 0))
			strbuf_add_str(out,
				       is_reused(f, p) ? ", first taken here" : ", none freed");
	}
}

static void suspect_brief(const struct findings *f, const struct finding_place *p, bool whole,
			  struct strbuf *out)
{
	if (p->reason == GROWTH_ONCE) {
		add_stayed(p, whole, "stayed", out);
		strbuf_add_str(out, whole && p->freed > 0 ? "" : " stayed");
		return;
	}
	if (p->reason == GROWTH_RENEWED) {
		strbuf_add_str(out, "the current value of a variable, which grows");
		return;
	}
	rises_words(f, "grew", p->rises, p->rise_steps, out);
	if (!whole)
		return;
	if (p->reason == GROWTH_FILLS) {
		strbuf_add_str(out, "; ");
		add_when_full(out, f, p);
		return;
	}
	if (p->usual_age >= 0 && p->overdue_blocks == 0)
		strbuf_add_str(out, "; may be in use");
	else if (p->more_steps > 0 && !is_quiet(p) && f->judgement.last_step >= FEW_STEPS) {
		strbuf_add_str(out, "; ");
		if (f->judgement.by_time)
			span_words(f, p->more_steps, out);
		else
			say_number(out, p->more_steps);
		strbuf_add_str(out, " more would decide it");
	} else if (is_quiet(p) && f->judgement.last_step >= 10 && p->quiet == 1 &&
		   !f->judgement.by_time) {
		strbuf_add_str(out, ", not in the last one");
	} else if (is_quiet(p) && f->judgement.last_step >= 10) {
		strbuf_add_str(out, ", not in the last ");
		if (f->judgement.by_time)
			span_words(f, p->quiet, out);
		else
			say_number(out, p->quiet);
	}
}

void place_brief(const struct findings *found, const struct finding_place *place, bool whole,
		 struct strbuf *out)
{
	if (place->verdict == GROWTH_LEAK)
		leak_brief(found, place, whole, out);
	else
		suspect_brief(found, place, whole, out);
}
