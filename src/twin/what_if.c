/* SPDX-License-Identifier: Apache-2.0 */
#include "twin/what_if.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEVICE_BYTES_UNKNOWN ((uint64_t)256 << 30) /* arenas are as large as any card */
/* Events of all plays: below the first all orders are tried, below the second some, else the least. */
#define EVENTS_FEW	6000000u
#define EVENTS_MANY	20000000u
#define ORDERS_SOME	8u
#define ORDERS_LEAST	3u
#define WORKSPACE_LEAST ((uint64_t)1 << 20)
#define WAITING_MOST	0.002 /* of what is in use: above, timing decides */
#define WAITING_REFUSED 0.20  /* of what is in use or waits */
#define THREADS_MOST	8
#define SLACK_ORDERS	3u
#define SLACK_PLAYS	8u /* with other sizes, where the record does not tell them */

const char *const WHAT_IF_USUAL[] = {
	"",
	"expandable_segments:True",
	"max_split_size_mb:64",
	"max_split_size_mb:128",
	"max_split_size_mb:256",
	"max_split_size_mb:512",
	"garbage_collection_threshold:0.6",
	"garbage_collection_threshold:0.8",
	"roundup_power2_divisions:4",
	"roundup_power2_divisions:8",
	"expandable_segments:True,roundup_power2_divisions:8",
};
const size_t WHAT_IF_USUAL_COUNT = MSCOPE_COUNT(WHAT_IF_USUAL);

void what_if_fini(struct what_if *out)
{
	program_fini(&out->program);
	free(out->settings);
	*out = (struct what_if){0};
}

struct twin_conditions what_if_conditions(const struct what_if *w)
{
	struct twin_conditions c = {.release = w->release,
				    .device_bytes = w->history->device_bytes,
				    .capacity_bytes = UINT64_MAX,
				    .limit_bytes = UINT64_MAX,
				    .order = TWIN_LIKE_DRIVER};

	if (c.device_bytes == 0)
		c.device_bytes = DEVICE_BYTES_UNKNOWN;
	else if (w->history->fraction > 0)
		c.limit_bytes =
			twin_limit_of_fraction(&w->release, w->history->fraction, c.device_bytes);
	return c;
}

/* ---- the record itself ---- */

/* Whether the record agrees with `release`. MSCOPE_E_USAGE: the release does not know its settings. */
static int try_release(struct what_if *w, struct twin_release release, struct mscope_error *err)
{
	struct twin_conditions c;
	int status;

	w->release = release;
	c = what_if_conditions(w);
	if (w->history->fraction_late)
		c.limit_bytes = UINT64_MAX; /* a part of the run had another one */
	status = twin_settings_parse(w->history->settings, &release, &c.settings, err);
	return status != 0 ? status : program_replay(&w->program, &c, &w->agreement);
}

/* The newest release that agrees; else the agreement of the one that came furthest. */
static int find_release(struct what_if *w, struct mscope_error *err)
{
	struct program_agreement best = {.left_at = SIZE_MAX};
	bool npu = w->history->npu;
	struct twin_release best_release = twin_release_of(twin_release_last(npu), npu);
	uint32_t tried = UINT32_MAX;
	bool any = false;
	int status;

	for (uint32_t minor = twin_release_last(npu); minor >= twin_release_first(npu); minor--) {
		struct twin_release release = twin_release_of(minor, npu);
		struct mscope_error older = {0};

		if (release.rules == tried)
			continue;
		tried = release.rules;
		/* What the newest release says of settings that none knows is said. */
		status = try_release(w, release, err->message[0] == '\0' ? err : &older);
		if (status == MSCOPE_E_USAGE)
			continue;
		if (status != 0 || w->agreement.agrees) {
			w->release_found = true;
			return status;
		}
		if (!any || w->agreement.addresses > best.addresses) {
			best = w->agreement;
			best_release = release;
		}
		any = true;
	}
	w->agreement = best;
	w->release = best_release;
	w->release_found = true;
	return any ? 0 : MSCOPE_E_USAGE;
}

/* The run's own settings may be those of a release that is not known, or of another allocator. */
static int refuse_own(struct what_if *w, int status, const struct mscope_error *err)
{
	if (status != MSCOPE_E_USAGE)
		return status;
	snprintf(w->refusal, sizeof(w->refusal),
		 "The settings that the run had cannot be replayed: %.300s.", err->message);
	return 0;
}

static int replay_record(struct what_if *w, const char *torch, struct mscope_error *err)
{
	struct mscope_error ignored = {0}, own = {0};
	struct twin_release release;
	int status;

	if (torch == NULL && w->history->torch[0] == '\0')
		return refuse_own(w, find_release(w, &own), &own);
	/* A release that is newer than all that are known may still be played by the rules of one of them. */
	if (w->history->torch[0] != '\0') {
		status = twin_release_parse(w->history->torch, w->history->npu, &release, &ignored);
		status = status != 0 ? find_release(w, &own) : try_release(w, release, &own);
		return refuse_own(w, status, &own);
	}
	status = twin_release_parse(torch, w->history->npu, &release, err);
	return status != 0 ? status : refuse_own(w, try_release(w, release, &own), &own);
}

static void refuse_record(struct what_if *w)
{
	const struct program_agreement *a = &w->agreement;

	if (a->left_at == SIZE_MAX) {
		snprintf(w->refusal, sizeof(w->refusal), "The record cannot be replayed: %s.",
			 a->why == NULL ? "it has no requests" : a->why);
		return;
	}
	snprintf(w->refusal, sizeof(w->refusal),
		 "The replay leaves the record at event %zu of %zu: %s (%" PRIu64
		 " address%s), so nothing can be said about other settings.",
		 a->left_at + 1, w->history->event_count, a->why, a->addresses,
		 a->addresses == 1 ? " before it agrees" : "es before it agree");
}

/* ---- plays ---- */

struct play {
	struct twin_conditions conditions;
	enum program_waits waits;
	bool stop;
	struct program_result result;
	int status;
};

struct plays {
	const struct program *program;
	struct play *all;
	size_t count;
	atomic_size_t next;
};

static void *play_some(void *arg)
{
	struct plays *plays = arg;

	for (;;) {
		size_t i = atomic_fetch_add(&plays->next, 1);
		struct play *play = &plays->all[i];

		if (i >= plays->count)
			return NULL;
		play->status = program_play(plays->program, &play->conditions, play->waits,
					    play->stop, &play->result);
	}
}

/* Each core takes the next play that nobody has. */
static int play_all(const struct program *program, struct play *all, size_t count)
{
	struct plays plays = {.program = program, .all = all, .count = count};
	pthread_t threads[THREADS_MOST];
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	size_t started = 0, wanted = cores < 1 ? 1 : (size_t)cores;

	if (wanted > THREADS_MOST)
		wanted = THREADS_MOST;
	if (wanted > count)
		wanted = count;
	while (started + 1 < wanted &&
	       pthread_create(&threads[started], NULL, play_some, &plays) == 0)
		started++;
	(void)play_some(&plays);
	for (size_t i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	for (size_t i = 0; i < count; i++)
		if (all[i].status != 0)
			return all[i].status;
	return 0;
}

void what_if_order(struct twin_conditions *c, uint32_t number)
{
	static const enum twin_order orders[] = {TWIN_LIKE_DRIVER, TWIN_ASCENDING, TWIN_DESCENDING};

	c->order = number < MSCOPE_COUNT(orders) ? orders[number] : TWIN_RANDOM;
	c->seed = number;
}

static void widen(struct what_if_setting *s, const struct program_result *result)
{
	uint64_t peak = result->figures.reserved_peak;

	if (peak < s->low)
		s->low = peak;
	if (peak > s->high)
		s->high = peak;
}

/*
 * The next order may be outside of those that were tried: of eight, one in five is. On an H200 a training under max_split_size_mb:64
 * had what 223 of 1,000 orders give, and none of eight did.
 */
static void add_margin(const struct what_if *w, struct what_if_setting *s)
{
	uint64_t margin = (s->high - s->low) / 2;

	s->low = less_u64(s->low, margin);
	if (s->low < w->requested_peak && s->fits)
		s->low = w->requested_peak; /* no setting holds less than what is in use */
	s->high += margin;
}

uint32_t what_if_orders(size_t events, size_t plays)
{
	uint64_t each = ((uint64_t)events + 1) * (plays + 1);
	uint64_t all = min_u64(EVENTS_FEW / each, WHAT_IF_ORDERS);
	uint64_t some = min_u64(EVENTS_MANY / each, ORDERS_SOME);
	uint64_t most = all > some ? all : some;

	return most < ORDERS_LEAST ? ORDERS_LEAST : (uint32_t)most;
}

/* Plays with the setting that each belongs to. */
struct setting_plays {
	struct play *all;
	struct what_if_setting **owners;
	size_t count;
};

static int setting_plays_make(struct setting_plays *plays, size_t room)
{
	plays->all = calloc(room + 1, sizeof(*plays->all));
	plays->owners = calloc(room + 1, sizeof(struct what_if_setting *));
	return plays->all == NULL || plays->owners == NULL ? -ENOMEM : 0;
}

static void setting_plays_free(struct setting_plays *plays)
{
	free(plays->all);
	free(plays->owners);
}

/* One play for each setting that is not refused. */
static void add_each(struct setting_plays *plays, struct what_if *w,
		     const struct twin_conditions *conditions)
{
	for (size_t i = 0; i < w->setting_count; i++)
		if (w->settings[i].refused[0] == '\0') {
			plays->owners[plays->count] = &w->settings[i];
			plays->all[plays->count++].conditions = conditions[i];
		}
}

/* More of the first `first` plays: other orders where the order of addresses decided, other times where frees waited. */
static void add_others(struct setting_plays *plays, size_t first, uint32_t orders,
		       uint32_t variants)
{
	for (size_t i = 0; i < first; i++)
		for (uint32_t k = 1; k < orders * variants; k++) {
			struct play *play = &plays->all[plays->count];

			if (k < orders && !plays->all[i].result.ties)
				continue;
			play->conditions = plays->all[i].conditions;
			play->waits = (enum program_waits)(k / orders);
			what_if_order(&play->conditions, k % orders);
			plays->owners[plays->count++] = plays->owners[i];
		}
}

/* The run's own settings: what was recorded is one of the possible orders, and the best answer. */
static void take_record(struct what_if *w)
{
	for (size_t i = 0; i < w->setting_count && !w->other_release; i++) {
		struct what_if_setting *s = &w->settings[i];

		if (!s->own || s->refused[0] != '\0')
			continue;
		s->reserved_peak = w->reserved_peak;
		s->low = s->low < w->reserved_peak ? s->low : w->reserved_peak;
		s->high = s->high > w->reserved_peak ? s->high : w->reserved_peak;
	}
}

/* The first plays with requests of other sizes that get the blocks of the record as well. */
static int play_varied(struct what_if *w, struct play *all, struct what_if_setting **owners,
		       size_t count, uint32_t number)
{
	struct program varied;
	int status = program_vary(&w->program, number, &varied);

	if (status != 0)
		return status;
	for (size_t i = 0; i < count; i++)
		what_if_order(&all[i].conditions, number % SLACK_ORDERS);
	status = play_all(&varied, all, count);
	for (size_t i = 0; i < count && status == 0; i++)
		widen(owners[i], &all[i].result);
	free(varied.events);
	return status;
}

/* A figure of a setting of a record that starts in the middle. `begun`: what it reserves from the recorded segments on; 0: not known. */
static void add_doubt(struct what_if *w, struct what_if_setting *s, uint64_t begun, uint64_t doubt)
{
	if (begun != 0) {
		s->low = min_u64(s->low, begun);
		s->high = begun > s->high ? begun : s->high;
		s->reserved_peak = s->low + (s->high - s->low) / 2;
	}
	s->low = less_u64(s->low, doubt);
	if (s->low < w->requested_peak && s->fits)
		s->low = w->requested_peak;
	s->high += doubt;
}

/*
 * A record that starts in the middle has older blocks, which a play allocates one after the other. How far that is off is known of the
 * run's own settings. Where segments are of the same kind, the recorded ones are the start of a second play, as if the settings changed
 * there.
 */
static int play_middle(struct what_if *w, struct play *all, struct what_if_setting **owners,
		       size_t count)
{
	struct twin_conditions own = what_if_conditions(w);
	struct program begun = w->program;
	struct mscope_error ignored = {0};
	struct program_result result;
	uint64_t played, doubt;
	int status =
		twin_settings_parse(w->history->settings, &w->release, &own.settings, &ignored);

	if (status != 0)
		return 0;
	status = program_play(&w->program, &own, PROGRAM_AS_RECORDED, false, &result);
	if (status != 0)
		return status;
	played = result.figures.reserved_peak;
	doubt = played > w->reserved_peak ? played - w->reserved_peak : w->reserved_peak - played;
	begun.older_as = &own;
	for (size_t i = 0; i < count; i++)
		what_if_order(&all[i].conditions, 0);
	status = play_all(&begun, all, count);
	for (size_t i = 0; i < count && status == 0; i++) {
		bool alike = all[i].conditions.settings.expandable == own.settings.expandable;

		if (owners[i]->own) /* that is known */
			owners[i]->reserved_peak = owners[i]->low = owners[i]->high =
				w->reserved_peak;
		else
			add_doubt(w, owners[i], alike ? all[i].result.figures.reserved_peak : 0,
				  doubt);
	}
	return status;
}

/* A play in which a request is refused has a peak that says nothing. */
static void take_end(struct what_if_setting *s, const struct program_result *result)
{
	s->fits = result->refused_at == SIZE_MAX;
	s->oom_at = result->refused_at;
	s->oom_step = result->refused_step;
}

static int play_settings(struct what_if *w, const struct twin_conditions *conditions)
{
	uint32_t orders = what_if_orders(w->program.event_count, w->setting_count);
	uint32_t variants = w->waits ? 3 : 1;
	struct setting_plays plays = {0};
	size_t first;
	int status = setting_plays_make(&plays, w->setting_count * orders * variants);

	if (status == 0) {
		add_each(&plays, w, conditions);
		status = play_all(&w->program, plays.all, plays.count);
	}
	first = plays.count;
	for (size_t i = 0; i < first && status == 0; i++) {
		struct what_if_setting *s = plays.owners[i];

		s->reserved_peak = s->low = s->high = plays.all[i].result.figures.reserved_peak;
		s->retries = plays.all[i].result.figures.retries;
		take_end(s, &plays.all[i].result);
	}
	if (status == 0) {
		add_others(&plays, first, orders, variants);
		status = play_all(&w->program, plays.all + first, plays.count - first);
	}
	for (size_t i = first; i < plays.count && status == 0; i++)
		widen(plays.owners[i], &plays.all[i].result);
	for (uint32_t k = 0; k < SLACK_PLAYS && status == 0 && w->program.slack != NULL; k++)
		status = play_varied(w, plays.all, plays.owners, first, k);
	for (size_t i = 0; i < w->setting_count && status == 0; i++)
		add_margin(w, &w->settings[i]);
	if (status == 0 && w->program.older_count > 0)
		status = play_middle(w, plays.all, plays.owners, first);
	take_record(w);
	/* Blocks that wait longer than in the record may each cost a segment. */
	for (size_t i = 0; i < w->setting_count && w->waits; i++)
		w->settings[i].high += w->program.waiting_segments;
	setting_plays_free(&plays);
	return status;
}

/* Whether what the pool had when the record began is within the limits. */
static bool begins_within(const struct what_if *w, const struct twin_conditions *conditions)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < w->history->segment_count; i++)
		bytes += w->history->segments[i].bytes;
	return bytes <= conditions->limit_bytes && bytes <= conditions->capacity_bytes;
}

/* The run's own settings from the segments that the record begins with, until the first request that is refused. */
static int play_own(const struct what_if *w, const struct twin_conditions *conditions,
		    struct program_result *out)
{
	struct program begun = w->program;

	begun.older_as = conditions;
	return program_play(&begun, conditions, PROGRAM_AS_RECORDED, true, out);
}

/* The same with a limit, until the first request that is refused. */
static int play_limited(struct what_if *w, const struct twin_conditions *conditions,
			const struct what_if_choice *choice)
{
	struct setting_plays plays = {0};
	int status = setting_plays_make(&plays, w->setting_count);

	if (status == 0)
		add_each(&plays, w, conditions);
	for (size_t i = 0; i < plays.count; i++) {
		plays.all[i].stop = true;
		if (choice->limit_bytes != 0)
			plays.all[i].conditions.limit_bytes = choice->limit_bytes;
		else if (choice->card_bytes != 0 && w->history->fraction > 0)
			plays.all[i].conditions.limit_bytes = twin_limit_of_fraction(
				&w->release, w->history->fraction, choice->card_bytes);
		if (choice->card_bytes != 0)
			plays.all[i].conditions.capacity_bytes = w->available_bytes;
		else if (w->had_bytes != 0)
			plays.all[i].conditions.capacity_bytes = w->had_bytes;
	}
	if (status == 0)
		status = play_all(&w->program, plays.all, plays.count);
	for (size_t i = 0; i < plays.count && status == 0; i++) {
		struct program_result *result = &plays.all[i].result;

		if (w->program.older_count > 0 && plays.owners[i]->own &&
		    begins_within(w, &plays.all[i].conditions))
			status = play_own(w, &plays.all[i].conditions, result);
		take_end(plays.owners[i], result);
		/* Each reserved less when its request was refused than if that had been served. */
		plays.owners[i]->at_refusal = w->had_bytes != 0 && !plays.owners[i]->fits;
		if (w->had_bytes != 0 && (plays.owners[i]->own || !plays.owners[i]->fits))
			plays.owners[i]->reserved_peak = plays.owners[i]->low =
				plays.owners[i]->high =
					plays.owners[i]->own ? w->had_bytes
							     : result->figures.reserved_peak;
	}
	setting_plays_free(&plays);
	return status;
}

/*
 * A record that ends with a refused request has no peak to compare with: what matters is which settings serve that request from what the
 * pool had. That is known to have been there, so a setting that fits into it is sure to. The run's own settings must not.
 */
static int find_had(struct what_if *w)
{
	struct twin_conditions c = what_if_conditions(w);
	struct mscope_error ignored = {0};
	struct program_result result;
	int status;

	if (!w->program.ends_refused || w->other_release ||
	    twin_settings_parse(w->history->settings, &w->release, &c.settings, &ignored) != 0)
		return 0;
	c.capacity_bytes = w->reserved_peak;
	status = program_play(&w->program, &c, PROGRAM_AS_RECORDED, true, &result);
	if (status == 0 && result.refused_at == w->program.sources[w->program.event_count - 1])
		w->had_bytes = w->reserved_peak;
	return status;
}

static int best_first(const void *a, const void *b)
{
	const struct what_if_setting *x = a, *y = b;

	if ((x->refused[0] != '\0') != (y->refused[0] != '\0'))
		return x->refused[0] != '\0' ? 1 : -1;
	if (x->fits != y->fits)
		return x->fits ? -1 : 1;
	/* Of those that are refused a request, one that comes further is better. */
	if (x->at_refusal && y->at_refusal && x->oom_at != y->oom_at)
		return x->oom_at > y->oom_at ? -1 : 1;
	if (x->high != y->high)
		return x->high < y->high ? -1 : 1;
	return strlen(x->text) < strlen(y->text) ? -1 : strlen(x->text) > strlen(y->text);
}

/* Whether sizes of the record, as its own settings rounded them, are as good as requests: they were rounded to 512 bytes, or are again. */
static bool rounds_alike(const struct what_if *w, const struct twin_settings *other)
{
	struct mscope_error ignored = {0};
	struct twin_settings own;

	if (twin_settings_parse(w->history->settings, &w->release, &own, &ignored) != 0)
		return false;
	for (uint32_t i = 0; i < TWIN_DIVISIONS; i++)
		if (own.divisions[i] > 1 && own.divisions[i] != other->divisions[i])
			return false;
	return true;
}

static bool same_settings(const struct twin_settings *a, const struct twin_settings *b)
{
	return a->max_split_bytes == b->max_split_bytes &&
	       a->non_split_rounding_bytes == b->non_split_rounding_bytes &&
	       a->large_segment_bytes == b->large_segment_bytes && a->unit_bytes == b->unit_bytes &&
	       a->align_bytes == b->align_bytes &&
	       memcmp(a->divisions, b->divisions, sizeof(a->divisions)) == 0 &&
	       a->gc_threshold == b->gc_threshold && a->fraction == b->fraction &&
	       a->expandable == b->expandable;
}

/* Adds one to those that are tried, unless its text is among them. */
static void add_text(struct what_if *w, const char *text)
{
	for (size_t i = 0; i < w->setting_count; i++)
		if (strcmp(w->settings[i].text, text) == 0)
			return;
	w->settings[w->setting_count++] =
		(struct what_if_setting){.text = text, .oom_at = SIZE_MAX};
}

/* Reads one of the texts as the release does; says why it refuses it, or why the record does not serve. */
static void make_setting(struct what_if *w, struct what_if_setting *s, struct twin_conditions *c)
{
	struct mscope_error err = {0}, ignored = {0};
	struct twin_settings own;

	*c = what_if_conditions(w);
	if (twin_settings_parse(s->text, &w->release, &c->settings, &err) != 0)
		snprintf(s->refused, sizeof(s->refused), "%.290s", err.message);
	else if (w->history->blocks_only && !rounds_alike(w, &c->settings))
		snprintf(s->refused, sizeof(s->refused),
			 "the record has no requests, only blocks whose sizes "
			 "roundup_power2_divisions has rounded");
	else if (c->settings.fraction >= 0)
		c->limit_bytes =
			twin_limit_of_fraction(&w->release, c->settings.fraction, c->device_bytes);
	s->own = strcmp(s->text, w->history->settings) == 0 ||
		 (s->refused[0] == '\0' &&
		  twin_settings_parse(w->history->settings, &w->release, &own, &ignored) == 0 &&
		  same_settings(&own, &c->settings));
}

/* Without a choice the usual ones, and the run's own if that is another. */
static int make_settings(struct what_if *w, const struct what_if_choice *choice,
			 struct twin_conditions **out)
{
	const char *const *texts = choice->settings != NULL ? choice->settings : WHAT_IF_USUAL;
	size_t count = choice->settings != NULL ? choice->setting_count : WHAT_IF_USUAL_COUNT;
	bool own = choice->settings != NULL;

	w->settings = calloc(count + 2, sizeof(*w->settings));
	*out = calloc(count + 2, sizeof(**out));
	if (w->settings == NULL || *out == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		add_text(w, texts[i]);
	for (size_t i = 0; i < w->setting_count; i++) {
		make_setting(w, &w->settings[i], &(*out)[i]);
		own = own || w->settings[i].own;
	}
	if (!own) {
		add_text(w, w->history->settings);
		make_setting(w, &w->settings[w->setting_count - 1], &(*out)[w->setting_count - 1]);
	}
	return 0;
}

/* Tensors have sizes in whole elements; a large request of an odd number of bytes is memory that a library wants for itself. */
static uint64_t largest_workspace(const struct program *program)
{
	uint64_t largest = 0;

	for (size_t i = 0; i < program->event_count && !program->history->npu; i++) {
		const struct program_event *e = &program->events[i];

		if (e->kind == PROGRAM_REQUEST && e->bytes >= WORKSPACE_LEAST &&
		    e->bytes % 4 != 0 && e->bytes > largest)
			largest = e->bytes;
	}
	return largest;
}

/* With another release than the record's, its own settings have another peak as well, which is what others save or cost. */
static int find_base(struct what_if *w)
{
	struct twin_conditions c = what_if_conditions(w);
	struct mscope_error ignored = {0};
	struct program_result result;
	int status;

	w->base_peak = w->reserved_peak;
	if (!w->other_release ||
	    twin_settings_parse(w->history->settings, &w->release, &c.settings, &ignored) != 0)
		return 0;
	if (c.settings.fraction >= 0)
		c.limit_bytes =
			twin_limit_of_fraction(&w->release, c.settings.fraction, c.device_bytes);
	status = program_play(&w->program, &c, PROGRAM_AS_RECORDED, false, &result);
	w->base_peak = result.figures.reserved_peak;
	return status;
}

static int answer_settings(struct what_if *w, const struct what_if_choice *choice)
{
	struct twin_conditions *conditions = NULL;
	int status = make_settings(w, choice, &conditions);

	if (status == 0)
		status = find_base(w);
	if (status == 0)
		status = play_settings(w, conditions);
	w->own_limit_bytes = what_if_conditions(w).limit_bytes;
	w->limited = choice->limit_bytes != 0 || choice->card_bytes != 0 ||
		     w->own_limit_bytes != UINT64_MAX;
	if (status == 0 && !w->limited)
		status = find_had(w);
	w->limited = w->limited || w->had_bytes != 0;
	w->available_bytes = less_u64(choice->card_bytes, w->history->outside_bytes);
	if (status == 0 && w->limited)
		status = play_limited(w, conditions, choice);
	free(conditions);
	if (status == 0)
		qsort(w->settings, w->setting_count, sizeof(*w->settings), best_first);
	return status;
}

int what_if_answer(struct what_if *out, const struct pool_history *history,
		   const struct what_if_choice *choice, struct mscope_error *err)
{
	struct twin_release other;
	int status;

	*out = (struct what_if){.history = history, .agreement = {.left_at = SIZE_MAX}};
	status = program_make(&out->program, history);
	if (status != 0)
		return status;
	out->reserved_peak = out->program.reserved_peak;
	if (history->settings_changed) {
		snprintf(out->refusal, sizeof(out->refusal),
			 "The program changed the allocator's settings while it ran; such a run "
			 "cannot be replayed.");
		return 0;
	}
	status = replay_record(out, choice->torch, err);
	if (status != 0 || out->refusal[0] != '\0')
		return status;
	out->in_use_peak = out->agreement.figures.in_use_peak;
	out->requested_peak = out->agreement.figures.requested_peak;
	out->workspace_bytes = largest_workspace(&out->program);
	if (!out->agreement.agrees || out->agreement.addresses == 0) {
		out->agreement.agrees = false;
		refuse_record(out);
		return 0;
	}
	if (choice->torch != NULL) {
		status = twin_release_parse(choice->torch, history->npu, &other, err);
		if (status != 0)
			return status;
		out->other_release = other.rules != out->release.rules;
		out->release = other;
	}
	out->waits = (double)out->program.waiting_peak > WAITING_MOST * (double)out->requested_peak;
	if ((double)out->program.waiting_peak > WAITING_REFUSED * (double)out->program.alive_peak) {
		snprintf(
			out->refusal, sizeof(out->refusal),
			"Of what the program had requested, up to %.0f %% was freed and waited for "
			"other streams (record_stream); timing decides how much, so nothing is said "
			"about other settings.",
			100.0 * (double)out->program.waiting_peak /
				(double)out->program.alive_peak);
		return 0;
	}
	return answer_settings(out, choice);
}

/* ---- a record that was edited ---- */

static void range_take(struct what_if_range *range, const struct play *play)
{
	uint64_t peak = play->result.figures.reserved_peak;

	if (peak < range->low)
		range->low = peak;
	if (peak > range->high)
		range->high = peak;
}

/* Each request may be as much smaller as the one that it is a copy of. */
static int copy_slack(const struct what_if *w, const uint32_t *like, struct program *program)
{
	uint32_t *of = calloc(w->history->event_count + 1, sizeof(*of));

	if (of == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < w->program.event_count; i++)
		if (w->program.events[i].kind == PROGRAM_REQUEST)
			of[w->program.sources[i]] = w->program.slack[w->program.events[i].id];
	for (size_t i = program->older_count; i < program->event_count; i++)
		if (program->events[i].kind == PROGRAM_REQUEST && program->sources[i] != 0 &&
		    like[program->sources[i] - 1] != 0)
			program->slack[program->events[i].id] = of[like[program->sources[i] - 1]];
	free(of);
	return 0;
}

static int play_orders(const struct program *program, struct play *plays, uint32_t count,
		       struct what_if_range *out)
{
	int status = play_all(program, plays, 1);

	if (status == 0 && plays[0].result.ties)
		status = play_all(program, plays + 1, count - 1);
	else
		count = 1;
	for (uint32_t i = 0; i < count && status == 0; i++)
		range_take(out, &plays[i]);
	return status;
}

int what_if_play_changed(const struct what_if *w, const struct pool_history *changed,
			 const uint32_t *like, uint32_t orders, struct what_if_range *out)
{
	struct twin_conditions conditions = what_if_conditions(w);
	struct play *plays = calloc(orders, sizeof(*plays));
	struct mscope_error ignored = {0};
	struct program program, varied;
	int status = program_make(&program, changed);

	if (plays == NULL)
		status = -ENOMEM;
	if (status == 0)
		status = twin_settings_parse(w->history->settings, &w->release,
					     &conditions.settings, &ignored);
	for (uint32_t i = 0; i < orders && status == 0; i++) {
		plays[i].conditions = conditions;
		what_if_order(&plays[i].conditions, i);
	}
	if (status == 0)
		status = play_orders(&program, plays, orders, out);
	if (status == 0 && program.slack != NULL && like != NULL)
		status = copy_slack(w, like, &program);
	for (uint32_t k = 0;
	     k < SLACK_PLAYS && status == 0 && program.slack != NULL && like != NULL; k++) {
		status = program_vary(&program, k, &varied);
		if (status != 0)
			break;
		what_if_order(&plays[0].conditions, k % SLACK_ORDERS);
		status = play_all(&varied, plays, 1);
		if (status == 0)
			range_take(out, &plays[0]);
		free(varied.events);
	}
	free(plays);
	program_fini(&program);
	return status;
}
