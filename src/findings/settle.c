/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What people see as one line is one finding. Analyses add a finding per call site; here call sites get their names, and those with
 * the same name, verdict, pool and device are joined: their bytes, blocks and rates add up, and their spans of steps become one.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/vendors.h"
#include "findings/findings.h"
#include "findings/say.h"

/* Memory of a device that does not say how much it has, and of the host, which traces do not have. */
#define USUAL_BYTES 0x1p37

/* Blocks that a finding has as examples. */
#define EXAMPLES 100u

/* Call sites of an out-of-memory that have their stack, as many as JSON shows. */
#define OOM_FRAMES_SHOWN 10u

/* ---- names ---- */

static void add_size_span(uint64_t least, uint64_t most, struct strbuf *out)
{
	strbuf_add_size(out, least);
	if (most != least) {
		strbuf_add_str(out, " to ");
		strbuf_add_size(out, most);
	}
}

/* Blocks of a pool, where no stack was recorded. */
static void add_place_kind(const struct finding_place *place, struct strbuf *out)
{
	strbuf_add_str(out, pool_event_type(place->pool));
	if (place->by_handles) {
		strbuf_add_str(out, " by handles");
	} else if (place->size_max > 0) {
		strbuf_add_str(out, " blocks of ");
		add_size_span(place->size_min, place->size_max, out);
	}
}

static int add_names(struct findings *found, struct replay *replay)
{
	size_t i;
	int r = 0;

	for (i = 0; i < FINDINGS_COUNT(found, place) && r == 0; i++)
		r = site_names_add(&found->names, replay, FINDINGS(found, place)[i].stack);
	for (i = 0; i < FINDINGS_COUNT(found, holder) && r == 0; i++)
		r = site_names_add(&found->names, replay, FINDINGS(found, holder)[i].stack);
	for (i = 0; i < FINDINGS_COUNT(found, oom_place) && r == 0; i++)
		r = site_names_add(&found->names, replay, FINDINGS(found, oom_place)[i].stack);
	for (i = 0; i < FINDINGS_COUNT(found, oom) && r == 0; i++)
		r = site_names_add(&found->names, replay, FINDINGS(found, oom)[i].stack);
	if (r == 0)
		r = site_names_settle(&found->names, replay);
	/* Limits of waste, and whether it is looked for at all, are no reason for other names of the call sites above. */
	for (i = 0; i < FINDINGS_COUNT(found, waste_site) && r == 0; i++)
		r = site_names_add(&found->names, replay, FINDINGS(found, waste_site)[i].stack);
	return r < 0 ? r : site_names_settle(&found->names, replay);
}

static void name_places(struct findings *found, struct replay *replay)
{
	struct strbuf text = {0};
	size_t i;

	for (i = 0; i < FINDINGS_COUNT(found, place); i++) {
		struct finding_place *place = &FINDINGS(found, place)[i];
		const char *name = site_name(&found->names, replay, place->stack);

		if (place->rest) {
			strbuf_reset(&text);
			say_count(&text, place->call_sites, "other call site");
			name = strbuf_str(&text);
		} else if (name == NULL) {
			strbuf_reset(&text);
			add_place_kind(place, &text);
			name = strbuf_str(&text);
		}
		place->name = findings_text(found, name);
	}
	strbuf_fini(&text);
}

/* The call site, and its owner where that is known. */
static void name_holders(struct findings *found, struct replay *replay)
{
	struct strbuf text = {0};
	size_t i;

	for (i = 0; i < FINDINGS_COUNT(found, holder); i++) {
		struct finding_holder *holder = &FINDINGS(found, holder)[i];
		const char *name =
			holder->recorded ? site_name(&found->names, replay, holder->stack) : NULL;

		strbuf_reset(&text);
		if (holder->rest)
			say_count(&text, holder->call_sites, "other call site");
		else if (name != NULL)
			strbuf_add_str(&text, name);
		else
			size_class_words(holder->size_class, holder->recorded, &text);
		holder->site = findings_text(found, strbuf_str(&text));
		if (holder->owner[0] != '\0')
			strbuf_addf(&text, "  (%s)", holder->owner);
		holder->place = findings_text(found, strbuf_str(&text));
	}
	strbuf_fini(&text);
}

/* Call sites that held memory when it ran out, and those that asked for more. */
static void name_ooms(struct findings *found, struct replay *replay)
{
	struct strbuf text = {0};
	const char *name;
	size_t i;

	for (i = 0; i < FINDINGS_COUNT(found, oom_place); i++) {
		struct finding_oom_place *place = &FINDINGS(found, oom_place)[i];

		name = site_name(&found->names, replay, place->stack);
		if (name == NULL) {
			strbuf_reset(&text);
			strbuf_add_str(&text, "blocks of ");
			strbuf_add_size(&text, place->largest_block_bytes);
			name = strbuf_str(&text);
		}
		place->place = findings_text(found, name);
	}
	for (i = 0; i < FINDINGS_COUNT(found, oom); i++) {
		struct finding_oom *oom = &FINDINGS(found, oom)[i];

		name = site_name(&found->names, replay, oom->stack);
		oom->place = name == NULL ? "" : findings_text(found, name);
	}
	strbuf_fini(&text);
}

static void name_wastes(struct findings *found, struct replay *replay)
{
	struct strbuf text = {0};
	size_t i;

	for (i = 0; i < FINDINGS_COUNT(found, waste_site); i++) {
		struct finding_waste_site *site = &FINDINGS(found, waste_site)[i];
		const char *name = site_name(&found->names, replay, site->stack);

		strbuf_reset(&text);
		if (site->rest)
			say_count(&text, site->call_sites, "other call site");
		else if (name == NULL)
			size_class_words(site->size_class, true, &text);
		else
			strbuf_add_str(&text, name);
		site->text = findings_text(found, strbuf_str(&text));
	}
	strbuf_fini(&text);
}

/* ---- joining ---- */

static void widen(uint64_t *least, uint64_t value)
{
	if (value != 0 && (*least == 0 || value < *least))
		*least = value;
}

static void raise_to(uint64_t *most, uint64_t value)
{
	if (value > *most)
		*most = value;
}

static int by_age(const void *a, const void *b)
{
	const struct finding_block *x = a, *y = b;

	return ORDER_UP(x->allocation_id, y->allocation_id);
}

static size_t copy_examples(const struct findings *found, const struct finding_range *range,
			    struct finding_block *to)
{
	size_t count = range->count < EXAMPLES ? range->count : EXAMPLES;

	if (count > 0)
		memcpy(to, FINDINGS(found, block) + range->first, count * sizeof(*to));
	return count;
}

/* The oldest of both. They stay where they are while no more of them are kept than before, else they go to the end of the list. */
static int join_examples(struct findings *found, struct finding_place *to,
			 const struct finding_place *from)
{
	struct finding_block all[2 * EXAMPLES];
	size_t count = copy_examples(found, &to->examples, all), i;

	count += copy_examples(found, &from->examples, all + count);
	if (count > 0)
		qsort(all, count, sizeof(all[0]), by_age);
	count = count < EXAMPLES ? count : EXAMPLES;
	if (count > to->examples.count) {
		to->examples.first = FINDINGS_COUNT(found, block);
		for (i = 0; i < count; i++) {
			if (FINDINGS_ADD(found, block) == NULL)
				return -ENOMEM;
		}
	}
	to->examples.count = count;
	if (count > 0)
		memcpy(FINDINGS(found, block) + to->examples.first, all, count * sizeof(all[0]));
	return 0;
}

/* `to` is the larger one: what cannot be added up is its own. */
static int join_place(struct findings *found, struct finding_place *to,
		      const struct finding_place *from)
{
	if (strcmp(to->owner, from->owner) != 0)
		to->owner = "";
	to->call_sites += from->call_sites;
	to->leaked_blocks += from->leaked_blocks;
	to->leaked_bytes += from->leaked_bytes;
	to->listed_bytes += from->listed_bytes;
#include "findings/place_sums.def"
	if (from->every != to->every)
		to->every = 0;
	/* Each of them has to be decided. */
	to->more_steps =
		to->more_steps == 0 || from->more_steps == 0 || to->by_quiet != from->by_quiet ? 0
		: from->more_steps > to->more_steps ? from->more_steps
						    : to->more_steps;
	to->beside_pool = to->beside_pool || from->beside_pool;
	if (to->keepers.count == 0)
		to->keepers = from->keepers;
	return join_examples(found, to, from);
}

static struct map_key place_key(const struct finding_place *place)
{
	return (struct map_key){hash_text(place->name), (uint64_t)place->verdict << 48 |
								(uint64_t)place->pool << 32 |
								place->device};
}

/* Less than a thousand-millionth of the device in each step: it takes a thousand million of them to fill it. */
static bool is_small(const struct finding_place *place)
{
	double capacity = place->capacity_bytes != 0 ? (double)place->capacity_bytes : USUAL_BYTES;

	return place->verdict == GROWTH_LEAK && place->bytes_per_step < capacity / 1e9;
}

/* A suspect of one block may be a buffer that is made once. */
static bool is_single(const struct finding_place *place)
{
	return place->verdict == GROWTH_SUSPECT && place->listed_blocks == 1;
}

/* Leaks by rate, suspects by what they kept, kept ones by bytes; the largest first, small leaks and suspects of one block last. */
static int by_weight(const void *a, const void *b)
{
	const struct finding_place *x = a, *y = b;

	if (x->verdict != y->verdict)
		return x->verdict > y->verdict ? -1 : 1;
	if (x->rest != y->rest)
		return x->rest ? 1 : -1;
	if (x->small != y->small)
		return x->small ? 1 : -1;
	if (is_single(x) != is_single(y))
		return is_single(x) ? 1 : -1;
	if (x->verdict == GROWTH_LEAK && x->bytes_per_step != y->bytes_per_step)
		return x->bytes_per_step > y->bytes_per_step ? -1 : 1;
	if (x->kept_bytes != y->kept_bytes)
		return x->kept_bytes > y->kept_bytes ? -1 : 1;
	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	if (x->device != y->device)
		return x->device < y->device ? -1 : 1;
	if (x->pool != y->pool)
		return x->pool < y->pool ? -1 : 1;
	return strcmp(x->name, y->name);
}

/* Call sites come largest first, so that the first of a group stands for it. */
static int join_places(struct findings *found)
{
	struct finding_place *places = FINDINGS(found, place);
	size_t count = FINDINGS_COUNT(found, place), i, kept = 0;
	struct map index = {0};
	int r = 0;

	for (i = 0; i < count && r == 0; i++) {
		const uint64_t *known = map_get(&index, place_key(&places[i]));

		if (known != NULL) {
			r = join_place(found, &places[*known], &places[i]);
			continue;
		}
		r = map_put(&index, place_key(&places[i]), kept);
		places[kept++] = places[i];
	}
	map_fini(&index);
	found->lists[FINDING_place].count = kept;
	for (i = 0; i < kept; i++) {
		struct finding_place *place = &places[i];

		place->small = is_small(place);
		place->kept_bytes = place->verdict == GROWTH_SUSPECT && place->examples.count > 0
					    ? place->overdue_bytes + place->young_bytes
					    : place->bytes;
	}
	if (kept > 1)
		qsort(places, kept, sizeof(*places), by_weight);
	return r;
}

static int by_bytes(const void *a, const void *b)
{
	const struct finding_holder *x = a, *y = b;

	return ORDER_UP(x->rest, y->rest) ?:
	       ORDER_DOWN(x->bytes, y->bytes) ?:
	       strcmp(x->place, y->place);
}

static int join_holders(struct findings *found, struct finding_range *range, uint64_t all_bytes)
{
	struct finding_holder *holders;
	struct map index = {0};
	size_t i, kept = 0;
	int r = 0;

	if (range->count == 0)
		return 0;
	holders = FINDINGS(found, holder) + range->first;
	for (i = 0; i < range->count && r == 0; i++) {
		struct map_key key = {hash_text(holders[i].place), 0};
		const uint64_t *known = map_get(&index, key);

		if (known != NULL) {
			holders[*known].bytes += holders[i].bytes;
			holders[*known].blocks += holders[i].blocks;
			holders[*known].call_sites += holders[i].call_sites;
			continue;
		}
		r = map_put(&index, key, kept);
		holders[kept++] = holders[i];
	}
	map_fini(&index);
	range->count = kept;
	if (kept > 1)
		qsort(holders, kept, sizeof(*holders), by_bytes);
	for (i = 0; i < kept; i++)
		holders[i].percent =
			all_bytes == 0 ? 0 : 100 * (double)holders[i].bytes / (double)all_bytes;
	return r;
}

static int most_oom_bytes(const void *a, const void *b)
{
	const struct finding_oom_place *x = a, *y = b;

	return ORDER_DOWN(x->bytes, y->bytes) ?:
	       ORDER_UP(x->pool, y->pool) ?:
	       strcmp(x->place, y->place);
}

static int join_oom_places(struct findings *found, struct finding_range *range)
{
	struct finding_oom_place *places;
	struct map index = {0};
	size_t i, kept = 0;
	int r = 0;

	if (range->count == 0)
		return 0;
	places = FINDINGS(found, oom_place) + range->first;
	for (i = 0; i < range->count && r == 0; i++) {
		struct map_key key = {hash_text(places[i].place), places[i].pool};
		const uint64_t *known = map_get(&index, key);

		if (known != NULL) {
			struct finding_oom_place *to = &places[*known];

			to->bytes += places[i].bytes;
			to->blocks += places[i].blocks;
			to->call_sites += places[i].call_sites;
			raise_to(&to->largest_block_bytes, places[i].largest_block_bytes);
			continue;
		}
		r = map_put(&index, key, kept);
		places[kept++] = places[i];
	}
	map_fini(&index);
	range->count = kept;
	if (kept > 1)
		qsort(places, kept, sizeof(*places), most_oom_bytes);
	return r;
}

void waste_join(struct finding_waste_site *to, const struct finding_waste_site *from)
{
	to->inefficient_type |= from->inefficient_type;
	to->several = to->several || from->saved_bytes > 0;
	to->call_sites += from->call_sites;
	to->blocks += from->blocks;
	to->bytes += from->bytes;
	to->early_blocks += from->early_blocks;
	to->late_blocks += from->late_blocks;
	to->idle_blocks += from->idle_blocks;
	widen(&to->first_allocation_id, from->first_allocation_id);
}

/* They come by price: what one of them saves is the least that all of them do. */
static int join_wastes(struct findings *found, struct finding_range *range)
{
	struct finding_waste_site *sites = FINDINGS(found, waste_site) + range->first;
	struct map index = {0};
	size_t i, kept = 0;
	int r = 0;

	for (i = 0; i < range->count && r == 0; i++) {
		struct map_key key = {hash_text(sites[i].text), 0};
		const uint64_t *known = map_get(&index, key);

		if (known == NULL) {
			r = map_put(&index, key, kept);
			sites[kept++] = sites[i];
			continue;
		}
		waste_join(&sites[*known], &sites[i]);
	}
	map_fini(&index);
	range->count = kept;
	return r;
}

static void take_waste_frames(struct findings *found, struct replay *replay, size_t most)
{
	size_t i, k;

	for (i = 0; i < FINDINGS_COUNT(found, waste); i++) {
		const struct finding_range *range = &FINDINGS(found, waste)[i].places;

		for (k = 0; k < range->count && k < most; k++) {
			struct finding_waste_site *site =
				&FINDINGS(found, waste_site)[range->first + k];

			site->frames = findings_frames(found, replay, site->stack);
		}
	}
}

static void take_oom_frames(struct findings *found, struct replay *replay,
			    const struct finding_range *range, size_t most)
{
	size_t i;

	for (i = 0; i < range->count && i < most; i++) {
		struct finding_oom_place *place = &FINDINGS(found, oom_place)[range->first + i];

		place->frames = findings_frames(found, replay, place->stack);
	}
}

/* All of them, since a question about them shows as many as are asked for. Few are of different stacks. */
static int take_mark_frames(struct findings *found, struct replay *replay)
{
	struct map known = {0};
	size_t i;
	int r = 0;

	for (i = 0; i < FINDINGS_COUNT(found, mark_leak) && r == 0; i++) {
		struct finding_mark_leak *leak = &FINDINGS(found, mark_leak)[i];
		struct map_key key = {leak->stack, 0};
		const uint64_t *at = map_get(&known, key);

		if (at == NULL) {
			leak->site = findings_frames(found, replay, leak->stack);
			r = map_put(&known, key, leak->site);
		} else {
			leak->site = (finding_frames)*at;
		}
	}
	map_fini(&known);
	return r;
}

static void take_frames(struct findings *found, struct replay *replay, size_t frames)
{
	size_t i, k;

	for (i = 0; i < FINDINGS_COUNT(found, place) && i < frames; i++)
		FINDINGS(found, place)
	[i].frames = findings_frames(found, replay, FINDINGS(found, place)[i].stack);
	for (i = 0; i < FINDINGS_COUNT(found, peak); i++) {
		const struct finding_range *range = &FINDINGS(found, peak)[i].places;

		for (k = 0; k < range->count && k < frames; k++) {
			struct finding_holder *holder = &FINDINGS(found, holder)[range->first + k];

			holder->frames = findings_frames(found, replay, holder->stack);
		}
	}
	for (i = 0; i < FINDINGS_COUNT(found, oom) && frames > 0; i++) {
		struct finding_oom *oom = &FINDINGS(found, oom)[i];

		oom->frames = findings_frames(found, replay, oom->stack);
		take_oom_frames(found, replay, &oom->growing, 1);
		take_oom_frames(found, replay, &oom->places, OOM_FRAMES_SHOWN);
	}
}

static uint8_t vendor_of(const struct replay *replay)
{
	size_t count, i;
	const struct usage *usages = replay_usages(replay, &count);

	uint8_t vendor = VENDOR_CPU;

	for (i = 0; i < count && vendor != VENDOR_CUDA && vendor != VENDOR_ASCEND; i++) {
		if (usages[i].device < DEVICE_HOST)
			vendor = usages[i].vendor;
	}
	return vendor;
}

static int settle(struct findings *found, struct replay *replay, size_t frames)
{
	size_t i;
	int r = add_names(found, replay);

	found->vendor = vendor_of(replay);

	if (r < 0)
		return r;
	name_places(found, replay);
	name_holders(found, replay);
	name_ooms(found, replay);
	name_wastes(found, replay);
	r = join_places(found);
	for (i = 0; i < FINDINGS_COUNT(found, oom) && r == 0; i++)
		r = join_oom_places(found, &FINDINGS(found, oom)[i].places);
	for (i = 0; i < FINDINGS_COUNT(found, peak) && r == 0; i++) {
		struct finding_peak *peak = &FINDINGS(found, peak)[i];

		r = join_holders(found, &peak->places, peak->bytes);
	}
	for (i = 0; i < FINDINGS_COUNT(found, waste) && r == 0; i++) {
		if (FINDINGS(found, waste)[i].places.count > 0)
			r = join_wastes(found, &FINDINGS(found, waste)[i].places);
	}
	take_frames(found, replay, frames);
	take_waste_frames(found, replay, frames);
	if (r == 0)
		r = take_mark_frames(found, replay);
	return found->failed ? -ENOMEM : r;
}

int findings_settle(struct findings *found, struct replay *replay, size_t frames)
{
	int r = settle(found, replay, frames);

	findings_weigh(found, replay_has_allocated(replay));
	return r;
}
