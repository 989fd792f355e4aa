/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owners of memory: for each device and pool the bytes of each owner at the peak of the pool, and at the end. The sum is what
 * struct usage counts. When the analysis begins in the middle of a run, the peak is that of the time from then on.
 *
 * A label may come long after the allocation of its block, even after the peak. The block was alive at the peak, so its share of
 * the peak moves to the new owner. So shares of the peak are kept by owner, with the last allocation_id that they include.
 */
#include <errno.h>
#include <stdlib.h>

#include "analysis/analyses.h"
#include "base/shown.h"
#include "base/array.h"
#include "base/map.h"
#include "trace/session.h"

struct share {
	uint32_t usage; /* index in replay_usages() */
	uint32_t owner;
	uint64_t live_bytes;
	uint64_t live_blocks;
	uint64_t peak_bytes;
	uint64_t end_bytes; /* at the end of the program's own code; set when it is reported */
};

/* What is known of the peak of a usage. */
struct peak {
	uint64_t live_bytes;
	uint64_t most_bytes;
	uint64_t bytes;	     /* most_bytes when shares were kept */
	uint64_t allocation; /* the last one handed out then */
};

struct decompose {
	struct share *shares;
	size_t share_count, share_room;
	struct map index; /* usage, owner -> share */
	struct peak *peaks;
	size_t peak_count, peak_room;
};

static struct share *share_at(struct decompose *d, uint32_t usage, uint32_t owner)
{
	struct map_key key = {usage, owner};
	const uint64_t *known = map_get(&d->index, key);

	if (known != NULL)
		return &d->shares[*known];
	if (array_reserve(&d->shares, &d->share_room, d->share_count + 1, sizeof(*d->shares)) < 0 ||
	    map_put(&d->index, key, d->share_count) < 0)
		return NULL;
	d->shares[d->share_count] = (struct share){.usage = usage, .owner = owner};
	return &d->shares[d->share_count++];
}

static struct peak *peak_at(struct decompose *d, uint32_t usage)
{
	if (array_reserve(&d->peaks, &d->peak_room, (size_t)usage + 1, sizeof(*d->peaks)) < 0)
		return NULL;
	while (d->peak_count <= usage)
		d->peaks[d->peak_count++] = (struct peak){0};
	return &d->peaks[usage];
}

/* Allocations after a new peak make newer peaks, so the shares of a peak are kept at the next free. */
static int keep_peak(struct decompose *d, const struct replay *replay, uint32_t usage)
{
	struct peak *peak = peak_at(d, usage);
	size_t i;

	if (peak == NULL)
		return -ENOMEM;
	if (peak->bytes == peak->most_bytes)
		return 0;
	peak->bytes = peak->most_bytes;
	peak->allocation = replay_totals(replay)->allocations;
	for (i = 0; i < d->share_count; i++) {
		if (d->shares[i].usage == usage)
			d->shares[i].peak_bytes = d->shares[i].live_bytes;
	}
	return 0;
}

static int decompose_block(void *state, struct replay *replay, enum block_change change,
			   const struct block *block, const struct usage *usage, uint32_t owner)
{
	struct decompose *d = state;
	size_t count;
	uint32_t number = (uint32_t)(usage - replay_usages(replay, &count));
	uint64_t bytes = block->size_bytes, peak_bytes;
	struct share *share;
	struct peak *peak;

	/* An allocation may be the new peak itself, and a block is counted before its label comes. */
	if (change == BLOCK_REMOVED && keep_peak(d, replay, number) < 0)
		return -ENOMEM;
	share = share_at(d, number, owner);
	peak = peak_at(d, number);
	if (share == NULL || peak == NULL)
		return -ENOMEM;
	if (change == BLOCK_ADDED || change == BLOCK_RESTORED) {
		share->live_bytes += bytes;
		share->live_blocks++;
		peak->live_bytes += bytes;
		if (peak->live_bytes > peak->most_bytes)
			peak->most_bytes = peak->live_bytes;
		return 0;
	}
	share->live_bytes -= bytes;
	share->live_blocks--;
	if (change == BLOCK_REMOVED) {
		peak->live_bytes -= bytes;
		return 0;
	}
	/* Shares that are not kept yet are those of now. */
	peak_bytes = peak->bytes != 0 && block->allocation_id <= peak->allocation ? bytes : 0;
	share->peak_bytes -= peak_bytes;
	share = share_at(d, number, block->owner);
	if (share == NULL)
		return -ENOMEM;
	share->live_bytes += bytes;
	share->live_blocks++;
	share->peak_bytes += peak_bytes;
	return 0;
}

/* ---- in a checkpoint ---- */

static void decompose_save(void *state, struct strbuf *out)
{
	const struct decompose *d = state;
	size_t i;

	words_add(out, d->share_count);
	for (i = 0; i < d->share_count; i++) {
		words_add(out, (uint64_t)d->shares[i].owner << 32 | d->shares[i].usage);
		words_add(out, d->shares[i].live_bytes);
		words_add(out, d->shares[i].live_blocks);
		words_add(out, d->shares[i].peak_bytes);
	}
	words_add(out, d->peak_count);
	for (i = 0; i < d->peak_count; i++) {
		words_add(out, d->peaks[i].live_bytes);
		words_add(out, d->peaks[i].most_bytes);
		words_add(out, d->peaks[i].bytes);
		words_add(out, d->peaks[i].allocation);
	}
}

static int decompose_load(void *state, const struct replay *replay, struct words *words)
{
	struct decompose *d = state;
	size_t count = words_count(words), usages, i;

	(void)replay_usages(replay, &usages);
	d->share_count = d->peak_count = 0;
	map_fini(&d->index);
	for (i = 0; i < count && !words->failed; i++) {
		uint64_t word = words_next(words);
		struct share *share;

		if ((uint32_t)word >= usages) {
			words->failed = true;
			break;
		}
		share = share_at(d, (uint32_t)word, (uint32_t)(word >> 32));
		if (share == NULL || peak_at(d, (uint32_t)word) == NULL)
			return -ENOMEM;
		share->live_bytes = words_next(words);
		share->live_blocks = words_next(words);
		share->peak_bytes = words_next(words);
	}
	count = words_count(words);
	for (i = 0; i < count && i < usages; i++) {
		struct peak *peak = peak_at(d, (uint32_t)i);

		if (peak == NULL)
			return -ENOMEM;
		peak->live_bytes = words_next(words);
		peak->most_bytes = words_next(words);
		peak->bytes = words_next(words);
		peak->allocation = words_next(words);
	}
	return 0;
}

/* ---- reporting ---- */

struct order {
	const struct share *share;
	const char *text;
};

static int by_usage(const void *a, const void *b)
{
	const struct order *x = a, *y = b;

	if (x->share->usage != y->share->usage)
		return x->share->usage < y->share->usage ? -1 : 1;
	if (x->share->peak_bytes != y->share->peak_bytes)
		return x->share->peak_bytes > y->share->peak_bytes ? -1 : 1;
	if (x->share->end_bytes != y->share->end_bytes)
		return x->share->end_bytes > y->share->end_bytes ? -1 : 1;
	return x->share->owner < y->share->owner ? -1 : 1;
}

static const struct usage *usage_of(const struct replay *replay, uint32_t index)
{
	size_t count;

	return &replay_usages(replay, &count)[index];
}

static const char *share_text(const struct replay *replay, const struct share *share)
{
	const char *text = replay_owner_text(replay, share->owner);

	return text[0] != '\0' ? text : pool_event_type(usage_of(replay, share->usage)->pool);
}

/* What each owner had at the end. 0 or -ENOMEM. */
static int find_end(struct decompose *d, const struct replay *replay)
{
	const struct block *block;
	size_t cursor = 0, count, i;
	const struct usage *usages = replay_usages(replay, &count);

	for (i = 0; i < d->share_count; i++)
		d->shares[i].end_bytes = 0;
	while ((block = replay_next_at_end(replay, &cursor)) != NULL) {
		const struct usage *usage = replay_usage(replay, block);
		struct share *share =
			usage == NULL ? NULL
				      : share_at(d, (uint32_t)(usage - usages), block->owner);

		if (share == NULL)
			return -ENOMEM;
		share->end_bytes += block->size_bytes;
	}
	return 0;
}

/* All shares, those of one usage together, the largest first. NULL: no memory. */
static struct order *ordered(struct decompose *d, const struct replay *replay)
{
	struct order *order;
	size_t count, i;

	if (find_end(d, replay) < 0)
		return NULL;
	order = calloc(d->share_count + 1, sizeof(*order));
	(void)replay_usages(replay, &count);
	for (i = 0; i < count; i++) {
		if (keep_peak(d, replay, (uint32_t)i) < 0) {
			free(order);
			return NULL;
		}
	}
	for (i = 0; order != NULL && i < d->share_count; i++)
		order[i] = (struct order){.share = &d->shares[i],
					  .text = share_text(replay, &d->shares[i])};
	if (order != NULL)
		qsort(order, d->share_count, sizeof(*order), by_usage);
	return order;
}

static void text_sizes(uint64_t peak_bytes, uint64_t end_bytes, const char *text,
		       struct strbuf *out)
{
	struct strbuf peak = {0}, end = {0};

	strbuf_add_size(&peak, peak_bytes);
	strbuf_add_size(&end, end_bytes);
	strbuf_addf(out, "  %12s %12s  ", strbuf_str(&peak), strbuf_str(&end));
	strbuf_add_shown(out, text, strlen(text));
	strbuf_add_char(out, '\n');
	strbuf_fini(&peak);
	strbuf_fini(&end);
}

static int decompose_text(void *state, const struct analysis_view *view, struct strbuf *out)
{
	struct decompose *d = state;
	struct replay *replay = view->replay;
	struct order *order = ordered(d, replay);
	size_t i, end, at, shown;

	if (order == NULL)
		return -ENOMEM;
	for (i = 0; i < d->share_count; i = end) {
		const struct usage *usage = usage_of(replay, order[i].share->usage);
		const struct peak *total = &d->peaks[order[i].share->usage];
		uint64_t peak = 0, rest = 0, end_bytes, end_blocks;
		char device[16];

		for (end = i;
		     end < d->share_count && order[end].share->usage == order[i].share->usage;
		     end++)
			;
		device_text(usage->device, device);
		strbuf_addf(out, "%s memory of %s%s by owner\n", pool_event_type(usage->pool),
			    usage->device == DEVICE_HOST ? "" : "device ", device);
		strbuf_addf(out, "  %12s %12s\n", "at its peak", "at the end");
		for (at = i, shown = 0; at < end && shown < view->lines; at++, shown++)
			text_sizes(order[at].share->peak_bytes, order[at].share->end_bytes,
				   order[at].text, out);
		for (; at < end; at++) {
			peak += order[at].share->peak_bytes;
			rest += order[at].share->end_bytes;
		}
		if (end - i > shown)
			text_sizes(peak, rest, "further owners; report.txt has all of them", out);
		replay_usage_at_end(replay, usage, &end_bytes, &end_blocks);
		text_sizes(total->most_bytes, end_bytes, "total", out);
	}
	free(order);
	return 0;
}

static int decompose_json(void *state, const struct analysis_view *view, struct json *json)
{
	struct decompose *d = state;
	struct replay *replay = view->replay;
	struct order *order = ordered(d, replay);
	size_t i, end;

	if (order == NULL)
		return -ENOMEM;
	json_array(json, "decompose");
	for (i = 0; i < d->share_count; i = end) {
		const struct usage *usage = usage_of(replay, order[i].share->usage);
		char device[16];

		device_text(usage->device, device);
		json_object(json, NULL);
		json_string(json, "device", device);
		json_string(json, "event_type", pool_event_type(usage->pool));
		json_u64(json, "peak_bytes", d->peaks[order[i].share->usage].most_bytes);
		json_u64(json, "live_bytes", d->peaks[order[i].share->usage].live_bytes);
		json_array(json, "owners");
		for (end = i;
		     end < d->share_count && order[end].share->usage == order[i].share->usage;
		     end++) {
			json_object(json, NULL);
			json_string(json, "owner", order[end].text);
			json_u64(json, "peak_bytes", order[end].share->peak_bytes);
			json_u64(json, "live_bytes", order[end].share->live_bytes);
			json_u64(json, "live_blocks", order[end].share->live_blocks);
			json_u64(json, "end_bytes", order[end].share->end_bytes);
			json_end(json);
		}
		json_end(json);
		json_end(json);
	}
	json_end(json);
	free(order);
	return 0;
}

static void decompose_fini(void *state)
{
	struct decompose *d = state;

	free(d->shares);
	free(d->peaks);
	map_fini(&d->index);
}

const struct analysis analysis_decompose = {
	.name = "decompose",
	.bits = SESSION_DECOMPOSE,
	.state_bytes = sizeof(struct decompose),
	.blocks = BLOCK_CHANGES_ALL,
	.block = decompose_block,
	.version = 1,
	.save = decompose_save,
	.load = decompose_load,
	.text = decompose_text,
	.json = decompose_json,
	.fini = decompose_fini,
};
