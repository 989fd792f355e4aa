/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each place has what it holds now, and what it held at the last peak of its pool. The second is copied on write: a new peak only
 * counts up the pool's epoch, and a place saves what it holds before its first change in a new epoch.
 *
 *     place.epoch == pool.epoch    it has changed since the peak: `at_peak` is what it held then
 *     else                         it has not: what it holds now is what it held then
 *
 * So an event costs the same however many places there are, and there is one small struct per place.
 */
#include "analysis/peak.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/word_list.h"
#include "findings/site.h"
#include "base/array.h"
#include "base/index.h"

#define SIZE_CLASSES 65u

/* Lines on a screen, for all pools. Places of a pool in a text with all detail, and how many of them have all their frames. JSON has everything. */
#define SCREEN_LINES  5u
#define DETAIL_PLACES 1000u
#define DETAIL_STACKS 20u

/* The rest of a peak, by owner. */
#define RESTS_MAX 64u

/* Memory in a place. Two of them and the rest of a place are 48 bytes. */
struct hold {
	uint64_t bytes;
	uint32_t blocks;
} __attribute__((packed, aligned(4)));

/* What tells places apart. */
struct place_key {
	uint32_t stack;
	uint32_t owner;
	uint32_t pool : 24; /* index in peak_state.pools, which is that of its usage */
	uint32_t size_class : 7;
	uint32_t outside : 1; /* allocated while recording was off */
};

#define POOLS_MAX (1u << 24)

struct place {
	struct place_key key;
	uint32_t next; /* in the list of its head, index + 1 */
	struct hold now;
	struct hold at_peak; /* counts while `epoch` is the pool's */
	uint64_t epoch;
};

struct pool_peak {
	uint64_t live_bytes;
	uint64_t peak_bytes;
	uint64_t epoch; /* peaks so far */
	uint64_t time_ns;
	uint64_t allocations;	 /* allocation ids handed out until then */
	uint64_t reserved_bytes; /* what the pool had from the driver then; 0: unknown */
	uint32_t step;
	bool fresh; /* nothing has changed since the peak: a pool reports what it reserved after the block */
};

struct peak_state {
	struct pool_peak *pools;
	size_t pool_count, pool_room;
	struct place *places;
	size_t place_count, place_room;
	/* First place, index + 1, of each stack; those without a stack have heads by size class. */
	uint32_t *heads;
	size_t head_count, head_room;
	uint32_t stackless[SIZE_CLASSES];
};

/* ---- places ---- */

static uint16_t size_class(uint64_t bytes)
{
	return bytes == 0 ? 0 : (uint16_t)(64 - __builtin_clzll(bytes));
}

static int reserve_head(struct peak_state *state, uint32_t stack)
{
	size_t wanted = (size_t)stack + 1;

	if (ARRAY_RESERVE(state->heads, state->head_room, wanted) < 0)
		return -ENOMEM;
	memset(state->heads + state->head_count, 0,
	       (wanted - state->head_count) * sizeof(*state->heads));
	state->head_count = wanted;
	return 0;
}

/* The list that a place is in, by its stack or its class; NULL: no memory. */
static inline uint32_t *head_of(struct peak_state *state, uint32_t stack, uint16_t size_class)
{
	if (stack == 0)
		return &state->stackless[size_class];
	if (MSCOPE_UNLIKELY(stack >= state->head_count) && reserve_head(state, stack) < 0)
		return NULL;
	return &state->heads[stack];
}

static MSCOPE_COLD struct place *add_place(struct peak_state *state, struct place_key key)
{
	uint32_t *head = head_of(state, key.stack, key.size_class);

	if (state->place_count >= UINT32_MAX - 1 ||
	    ARRAY_RESERVE(state->places, state->place_room, state->place_count + 1) < 0)
		return NULL;
	state->places[state->place_count] = (struct place){.key = key, .next = *head};
	*head = (uint32_t)++state->place_count;
	return &state->places[state->place_count - 1];
}

/* The place with this key, new or known; NULL: no memory. Valid until the next call. */
static inline struct place *place_at(struct peak_state *state, uint32_t stack, uint16_t size_class,
				     uint32_t owner, uint32_t pool, bool outside)
{
	const uint32_t *head = head_of(state, stack, size_class);
	uint32_t at;

	if (MSCOPE_UNLIKELY(head == NULL))
		return NULL;
	for (at = *head; at != 0; at = state->places[at - 1].next) {
		struct place *place = &state->places[at - 1];

		if (place->key.owner == owner && place->key.pool == pool &&
		    place->key.outside == outside)
			return place;
	}
	return add_place(state, (struct place_key){.stack = stack,
						   .owner = owner,
						   .pool = pool & (POOLS_MAX - 1),
						   .size_class = (uint32_t)size_class & 0x7f,
						   .outside = outside});
}

static inline struct place *place_of(struct peak_state *state, const struct block *block,
				     uint32_t owner, uint32_t pool)
{
	if (MSCOPE_UNLIKELY(block->outside_window))
		return place_at(state, 0, 0, owner, pool, true);
	return place_at(state, block->stack, block->stack != 0 ? 0 : size_class(block->size_bytes),
			owner, pool, false);
}

/* The pool of a usage, new or known; NULL: no memory. */
static struct pool_peak *pool_at(struct peak_state *state, size_t index)
{
	if (MSCOPE_UNLIKELY(index >= state->pool_count)) {
		if (index >= POOLS_MAX ||
		    ARRAY_RESERVE(state->pools, state->pool_room, index + 1) < 0)
			return NULL;
		memset(state->pools + state->pool_count, 0,
		       (index + 1 - state->pool_count) * sizeof(*state->pools));
		state->pool_count = index + 1;
	}
	return &state->pools[index];
}

/* Before a place changes. */
static inline void keep_peak(const struct pool_peak *pool, struct place *place)
{
	if (place->epoch != pool->epoch) {
		place->at_peak = place->now;
		place->epoch = pool->epoch;
	}
}

static inline void add_block(struct pool_peak *pool, struct place *place,
			     const struct replay *replay, uint64_t bytes)
{
	keep_peak(pool, place);
	place->now.bytes += bytes;
	place->now.blocks++;
	pool->live_bytes += bytes;
	if (pool->live_bytes <= pool->peak_bytes)
		return;
	pool->peak_bytes = pool->live_bytes;
	pool->epoch++;
	pool->time_ns = replay_totals(replay)->last_ns;
	pool->allocations = replay_totals(replay)->allocations;
	pool->step = replay_open_step(replay, 0);
	pool->fresh = true;
}

static inline void take_from(struct hold *hold, uint64_t bytes)
{
	hold->bytes -= bytes < hold->bytes ? bytes : hold->bytes;
	hold->blocks -= hold->blocks > 0;
}

static inline void remove_block(struct pool_peak *pool, struct place *place, uint64_t bytes)
{
	keep_peak(pool, place);
	take_from(&place->now, bytes);
	pool->live_bytes -= bytes < pool->live_bytes ? bytes : pool->live_bytes;
}

/* A block gets another owner, also at the peak if it lived then: what it is was known later. */
static MSCOPE_COLD int relabel(struct peak_state *state, const struct block *block, uint32_t before,
			       uint32_t after, uint32_t index)
{
	struct place *from, *to = place_of(state, block, after, index);
	const struct pool_peak *pool = &state->pools[index];
	uint64_t bytes = block->size_bytes;

	from = to == NULL ? NULL : place_of(state, block, before, index);
	/* The second call may have moved the first answer. */
	to = from == NULL ? NULL : place_of(state, block, after, index);
	if (to == NULL)
		return -ENOMEM;
	keep_peak(pool, from);
	keep_peak(pool, to);
	take_from(&from->now, bytes);
	to->now.bytes += bytes;
	to->now.blocks++;
	if (block->allocation_id <= pool->allocations && from->at_peak.bytes >= bytes &&
	    from->at_peak.blocks > 0) {
		take_from(&from->at_peak, bytes);
		to->at_peak.bytes += bytes;
		to->at_peak.blocks++;
	}
	return 0;
}

static uint64_t reserved_by(const struct usage *usage)
{
	return usage->reserved_bytes == UINT64_MAX ? 0 : usage_reserved(usage);
}

static int peak_block(void *arg, struct replay *replay, enum block_change change,
		      const struct block *block, const struct usage *usage, uint32_t owner)
{
	struct peak_state *state = arg;
	size_t count, index = (size_t)(usage - replay_usages(replay, &count));
	struct pool_peak *pool = pool_at(state, index);
	struct place *place;

	if (pool == NULL)
		return -ENOMEM;
	if (pool->fresh) {
		pool->reserved_bytes = reserved_by(usage);
		pool->fresh = false;
	}
	if (MSCOPE_UNLIKELY(owner != 0))
		owner = replay_owner_plain(replay, owner);
	if (change == BLOCK_RELABELLED)
		return relabel(state, block, owner, replay_owner_plain(replay, block->owner),
			       (uint32_t)index);
	place = place_of(state, block, owner, (uint32_t)index);
	if (place == NULL)
		return -ENOMEM;
	if (change == BLOCK_REMOVED)
		remove_block(pool, place, block->size_bytes);
	else
		add_block(pool, place, replay, block->size_bytes);
	return 0;
}

static void peak_end(void *arg)
{
	struct peak_state *state = arg;

	free(state->heads);
	state->heads = NULL;
	state->head_count = state->head_room = 0;
}

static void peak_fini(void *arg)
{
	struct peak_state *state = arg;

	free(state->pools);
	free(state->places);
	free(state->heads);
	*state = (struct peak_state){0};
}

/* ---- in a checkpoint ---- */

static int keep_place(struct peak_state *state, size_t index, const struct replay *replay,
		      struct words *words)
{
	struct place kept = {0}, *place;

	if (!words_load(words)) {
		words_memory(words, &state->places[index], sizeof(kept));
		return 0;
	}
	words_memory(words, &kept, sizeof(kept));
	if (words->failed || kept.key.pool >= state->pool_count ||
	    kept.key.size_class >= SIZE_CLASSES || kept.key.stack >= replay_stack_count(replay))
		return MSCOPE_E_DAMAGED;
	place = place_at(state, kept.key.stack, kept.key.size_class, kept.key.owner, kept.key.pool,
			 kept.key.outside != 0);
	if (place == NULL)
		return -ENOMEM;
	kept.next = place->next;
	*place = kept;
	return 0;
}

static int peak_keep(void *arg, const struct replay *replay, struct words *words)
{
	struct peak_state *state = arg;
	size_t count, i, usages;
	int r = 0;

	if (words_load(words))
		peak_fini(state);
	(void)replay_usages(replay, &usages);
	count = words_count(words, state->pool_count);
	if (count > usages)
		return MSCOPE_E_DAMAGED;
	for (i = 0; i < count; i++) {
		struct pool_peak *pool = pool_at(state, i);

		if (pool == NULL)
			return -ENOMEM;
		KEEP(words, pool->live_bytes);
		KEEP(words, pool->peak_bytes);
		KEEP(words, pool->epoch);
		KEEP(words, pool->time_ns);
		KEEP(words, pool->allocations);
		KEEP(words, pool->step);
		KEEP(words, pool->reserved_bytes);
		KEEP(words, pool->fresh);
	}
	count = words_count(words, state->place_count);
	for (i = 0; i < count && r == 0; i++)
		r = keep_place(state, i, replay, words);
	return r;
}

/* ---- the answer ---- */

static struct hold hold_at_peak(const struct peak_state *state, const struct place *place)
{
	return place->epoch == state->pools[place->key.pool].epoch ? place->at_peak : place->now;
}

static uint64_t hash_key(uint32_t site, const struct place_key *key)
{
	uint64_t hash = ((uint64_t)site << 32 | key->owner) * UINT64_C(0x9e3779b97f4a7c15);

	return (hash ^ hash >> 29 ^
		((uint64_t)key->pool << 32 | (uint64_t)key->outside << 16 | key->size_class)) *
	       UINT64_C(0xd6e8feb86659fd93);
}

static bool is_same(struct replay *replay, const struct place_key *x, const struct place_key *y)
{
	return x->owner == y->owner && x->pool == y->pool && x->outside == y->outside &&
	       x->size_class == y->size_class &&
	       (x->stack == y->stack || site_of(replay, x->stack) == site_of(replay, y->stack));
}

/* Adds what each place held to the first place that is the same by functions and lines. */
static int merge_holds(const struct peak_state *state, struct replay *replay, struct hold *holds)
{
	struct index index = {0};
	size_t i;
	int r = 0;

	for (i = 0; i < state->place_count && r == 0; i++) {
		const struct place *place = &state->places[i];
		struct hold hold = hold_at_peak(state, place);
		uint64_t hash = hash_key(site_of(replay, place->key.stack), &place->key);
		struct index_search search = index_search(hash);
		uint32_t at;
		bool found;

		if (hold.blocks == 0)
			continue;
		do {
			found = index_next(&index, &search, &at);
		} while (found && !is_same(replay, &state->places[at].key, &place->key));
		if (!found) {
			r = index_add(&index, hash, i);
			at = (uint32_t)i;
		}
		holds[at].bytes += hold.bytes;
		holds[at].blocks += hold.blocks;
	}
	index_fini(&index);
	return r;
}

static int places_by_bytes(const void *a, const void *b)
{
	const struct peak_place *x = a, *y = b;

	if ((x->call_sites != 0) != (y->call_sites != 0))
		return x->call_sites != 0 ? 1 : -1;
	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	if (x->site != y->site)
		return x->site < y->site ? -1 : 1;
	if (x->owner != y->owner)
		return x->owner < y->owner ? -1 : 1;
	return (x->outside << 8 | x->size_class) - (y->outside << 8 | y->size_class);
}

/* Sorts the places of a peak. Where there are too many, the least become the rest: one for each owner. */
static void cut(struct peak *peak, size_t most)
{
	size_t i, from = 0, rests = 0;

	qsort(peak->places, peak->place_count, sizeof(*peak->places), places_by_bytes);
	while (from < peak->place_count && from < most && peak->places[from].call_sites == 0)
		from++;
	for (i = from; i < peak->place_count; i++) {
		struct peak_place place = peak->places[i], *rest = &peak->places[from];

		while (rest < &peak->places[from + rests] && rest->owner != place.owner)
			rest++;
		if (rests == RESTS_MAX && rest == &peak->places[from + rests])
			rest--; /* of several owners then */
		else if (rest == &peak->places[from + rests])
			peak->places[from + rests++] = (struct peak_place){.owner = place.owner};
		rest->bytes += place.bytes;
		rest->blocks += place.blocks;
		rest->call_sites += place.call_sites == 0 ? 1 : place.call_sites;
		if (rests == RESTS_MAX && rest->owner != place.owner)
			rest->owner = 0;
	}
	peak->place_count = from + rests;
	if (rests > 1)
		qsort(peak->places, peak->place_count, sizeof(*peak->places), places_by_bytes);
}

static int add_to_peak(struct replay *replay, struct peak *peak, size_t *room, size_t most,
		       const struct place_key *key, const struct hold *hold)
{
	if (peak->place_count / 2 >= most)
		cut(peak, most);
	if (ARRAY_RESERVE(peak->places, *room, peak->place_count + 1) < 0)
		return -ENOMEM;
	peak->places[peak->place_count++] =
		(struct peak_place){.site = site_of(replay, key->stack),
				    .owner = key->owner,
				    .size_class = (uint8_t)key->size_class,
				    .outside = key->outside != 0,
				    .bytes = hold->bytes,
				    .blocks = hold->blocks};
	peak->bytes += hold->bytes;
	peak->blocks += hold->blocks;
	return 0;
}

static int peaks_by_bytes(const void *a, const void *b)
{
	const struct peak *x = a, *y = b;

	return ORDER_DOWN(x->bytes, y->bytes) ?:
	       ORDER_UP(x->device, y->device) ?:
	       ORDER_UP(x->pool, y->pool);
}

void peaks_fini(struct peaks *peaks)
{
	size_t i;

	for (i = 0; i < peaks->count; i++)
		free(peaks->all[i].places);
	free(peaks->all);
	*peaks = (struct peaks){0};
}

/* One peak for each pool, in the order of usages. */
static int begin_peaks(const struct peak_state *state, const struct replay *replay,
		       struct peaks *out)
{
	size_t usage_count, i;
	const struct usage *usages = replay_usages(replay, &usage_count);

	out->all = calloc(state->pool_count + 1, sizeof(*out->all));
	if (out->all == NULL)
		return -ENOMEM;
	for (i = 0; i < state->pool_count && i < usage_count; i++) {
		const struct pool_peak *pool = &state->pools[i];

		out->all[i] = (struct peak){
			.pool = usages[i].pool,
			.device = usages[i].device,
			.highest = usages[i].hidden ? 0 : usages[i].peak_bytes,
			.time_ns = pool->time_ns,
			.reserved_bytes =
				pool->fresh ? reserved_by(&usages[i]) : pool->reserved_bytes,
			/* A window opens a first step, also where nothing marks any. */
			.step = replay_steps(replay) == 0 ? 0 : pool->step,
		};
		out->count = i + 1;
	}
	return 0;
}

/* What places held, given to the peaks of their pools. */
static int fill_peaks(const struct peak_state *state, struct replay *replay, size_t most,
		      struct peaks *out)
{
	struct hold *holds = calloc(state->place_count + 1, sizeof(*holds));
	size_t *rooms = calloc(out->count + 1, sizeof(*rooms)), i;
	int r = holds == NULL || rooms == NULL ? -ENOMEM : merge_holds(state, replay, holds);

	for (i = 0; i < state->place_count && r == 0; i++) {
		const struct place_key *key = &state->places[i].key;

		if (holds[i].blocks > 0 && key->pool < out->count)
			r = add_to_peak(replay, &out->all[key->pool], &rooms[key->pool], most, key,
					&holds[i]);
	}
	free(holds);
	free(rooms);
	return r;
}

static int find_peaks(const struct peak_state *state, struct replay *replay, size_t most,
		      struct peaks *out)
{
	size_t i, kept = 0;
	int r;

	*out = (struct peaks){0};
	r = begin_peaks(state, replay, out);
	if (r == 0)
		r = fill_peaks(state, replay, most, out);
	if (r < 0) {
		peaks_fini(out);
		return r;
	}
	for (i = 0; i < out->count; i++) {
		struct peak *peak = &out->all[i];

		if (peak->place_count == 0) {
			free(peak->places);
			continue;
		}
		cut(peak, most);
		out->all[kept++] = *peak;
	}
	out->count = kept;
	if (kept > 0)
		qsort(out->all, kept, sizeof(*out->all), peaks_by_bytes);
	return 0;
}

int peaks_find(const struct analyses *analyses, struct replay *replay, size_t most,
	       struct peaks *out)
{
	const struct peak_state *state = analyses->state[ANALYSIS_ID_peak];

	*out = (struct peaks){0};
	return state == NULL || analyses->failed[ANALYSIS_ID_peak]
		       ? 0
		       : find_peaks(state, replay, most, out);
}

/* ---- findings ---- */

static void add_peak(struct findings *out, const struct replay *replay, const struct peak *peak)
{
	uint64_t first_ns = replay_totals(replay)->first_ns;
	struct finding_peak *to = FINDINGS_ADD(out, peak);
	size_t i;

	if (to == NULL)
		return;
	*to = (struct finding_peak){.time_ns = run_wall_ns(replay_run(replay), peak->time_ns),
				    .after_ns =
					    peak->time_ns > first_ns ? peak->time_ns - first_ns : 0,
				    .device = peak->device,
				    .pool = peak->pool,
				    .bytes = peak->bytes,
				    .highest_bytes = peak->highest,
				    .blocks = peak->blocks,
				    .reserved_bytes = peak->reserved_bytes,
				    .step = peak->step,
				    .places = {FINDINGS_COUNT(out, holder), peak->place_count}};
	for (i = 0; i < peak->place_count; i++) {
		const struct peak_place *place = &peak->places[i];
		struct finding_holder *holder = FINDINGS_ADD(out, holder);

		if (holder == NULL)
			return;
		*holder = (struct finding_holder){
			.bytes = place->bytes,
			.blocks = place->blocks,
			.owner = findings_text(out, replay_owner_text(replay, place->owner)),
			.call_sites = place->call_sites == 0 ? 1 : place->call_sites,
			.rest = place->call_sites != 0,
			.recorded = !place->outside,
			.owner_class = replay_owner_class(replay, place->owner),
			.stack = place->site,
			.size_class = place->size_class};
	}
}

static int peak_report(const void *arg, struct replay *replay, struct findings *out)
{
	struct peaks peaks;
	size_t i;
	int r = find_peaks(arg, replay, PEAK_PLACES, &peaks);

	for (i = 0; i < peaks.count; i++)
		add_peak(out, replay, &peaks.all[i]);
	peaks_fini(&peaks);
	return r;
}

/* ---- for people ---- */

static void add_device(uint32_t device, struct strbuf *out)
{
	char text[16];

	device_text(device, text);
	strbuf_addf(out, "%s%s", device == DEVICE_HOST || device == DEVICE_UNKNOWN ? "" : "device ",
		    text);
}

static void peak_line(const struct finding_peak *peak, struct strbuf *out)
{
	strbuf_addf(out, "Peak of %s on ", pool_event_type(peak->pool));
	add_device(peak->device, out);
	strbuf_add_str(out, ": ");
	strbuf_add_size(out, peak->bytes);
	strbuf_addf(out, " in %llu %s", (unsigned long long)peak->blocks,
		    peak->blocks == 1 ? "block" : "blocks");
	strbuf_addf(out, " at %.3f s", (double)peak->after_ns / 1e9);
	if (peak->step != 0)
		strbuf_addf(out, ", step %llu", (unsigned long long)peak->step);
	strbuf_add_str(out, ", held by\n");
	if (peak->highest_bytes > peak->bytes) {
		strbuf_addf(out, "  (%.0f %% of the highest use, ",
			    100.0 * (double)peak->bytes / (double)peak->highest_bytes);
		strbuf_add_size(out, peak->highest_bytes);
		strbuf_add_str(out, ", which was before this analysis began)\n");
	}
}

/* Who held one peak, at most `shown`; the first `stacks` of them with all their frames. */
static void holders_text(const struct analysis_view *view, const struct finding_peak *peak,
			 size_t shown, size_t stacks, struct strbuf *out)
{
	const struct finding_holder *holders = FINDINGS(view->found, holder) + peak->places.first;
	size_t i, count = peak->places.count;
	uint64_t rest = peak->bytes;

	for (i = 0; i < count && i < shown; i++) {
		strbuf_add_str(out, "  ");
		strbuf_add_size(out, holders[i].bytes);
		strbuf_addf(out, "  %.0f %%  %llu %s  %s\n", holders[i].percent,
			    (unsigned long long)holders[i].blocks,
			    holders[i].blocks == 1 ? "block" : "blocks", holders[i].place);
		if (i < stacks)
			site_text(view->replay, holders[i].stack, SITE_ALL, out);
		rest -= holders[i].bytes;
	}
	if (i < count) {
		size_t more = (size_t)peak_places(view->found, peak) - i;

		strbuf_addf(out, "  ... %zu more %s with ", more,
			    more == 1 ? "call site" : "call sites");
		strbuf_add_size(out, rest);
		strbuf_add_char(out, '\n');
	}
}

static int peak_text(void *arg, const struct analysis_view *view, struct strbuf *out)
{
	bool all = view->lines == UINT32_MAX;
	size_t i, left = all || view->lines < SCREEN_LINES ? view->lines : SCREEN_LINES;

	(void)arg;
	/* A pool has a line itself, at most one more that explains it, and one that counts the rest. */
	for (i = 0; i < FINDINGS_COUNT(view->found, peak) && left > 3; i++) {
		const struct finding_peak *peak = &FINDINGS(view->found, peak)[i];
		/* The largest pool gets what there is. */
		size_t shown = all ? DETAIL_PLACES : left - 3;

		peak_line(peak, out);
		holders_text(view, peak, shown, all ? DETAIL_STACKS : 0, out);
		if (!all)
			left -= (shown < peak->places.count ? shown : peak->places.count) + 3;
	}
	return 0;
}

static int peak_json(void *arg, const struct analysis_view *view, struct json *json)
{
	const struct findings *found = view->found;
	char device[16];
	size_t k;

	(void)arg;
	json_array(json, "peaks");
	FINDINGS_EACH (found, peak, peak) {
		device_text(peak->device, device);
		json_object(json, NULL);
		json_string(json, "device", device);
		json_string(json, "event_type", pool_event_type(peak->pool));
		json_u64(json, "bytes", peak->bytes);
		json_u64(json, "highest_bytes", peak->highest_bytes);
		json_u64(json, "blocks", peak->blocks);
		json_u64(json, "time_ns", peak->time_ns);
		json_u64(json, "step", peak->step);
		json_array(json, "places");
		for (k = 0; k < peak->places.count; k++)
			finding_json(found, FINDING_holder,
				     &FINDINGS(found, holder)[peak->places.first + k], NULL,
				     SIZE_MAX, json);
		json_end(json);
		json_end(json);
	}
	json_end(json);
	return 0;
}

const struct analysis analysis_peak = {
	.name = "peak",
	/* Whatever is asked for. */
	.bits = UINT32_MAX,
	.state_bytes = sizeof(struct peak_state),
	.blocks = BLOCK_CHANGES_ALL,
	.block = peak_block,
	.version = 3,
	.keep = peak_keep,
	.end = peak_end,
	.judge = peak_report,
	.text = peak_text,
	.json = peak_json,
	.fini = peak_fini,
};
