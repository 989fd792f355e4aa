/* SPDX-License-Identifier: Apache-2.0 */
#include "twin/pool_history.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/map.h"

void pool_history_fini(struct pool_history *history)
{
	free(history->events);
	free(history->segments);
	free(history->blocks);
	for (size_t i = 0; i < history->site_count; i++)
		free(history->sites[i].name);
	free(history->sites);
	*history = (struct pool_history){0};
}

int pool_history_add(struct pool_history *history, const struct history_event *event)
{
	if (ARRAY_RESERVE(history->events, history->event_room, history->event_count + 1) != 0)
		return -ENOMEM;
	history->events[history->event_count++] = *event;
	return 0;
}

int pool_history_add_segment(struct pool_history *history, const struct history_segment *segment)
{
	if (ARRAY_RESERVE(history->segments, history->segment_room, history->segment_count + 1) !=
	    0)
		return -ENOMEM;
	history->segments[history->segment_count++] = *segment;
	return 0;
}

int pool_history_add_block(struct pool_history *history, const struct history_block *block)
{
	if (ARRAY_RESERVE(history->blocks, history->block_room, history->block_count + 1) != 0)
		return -ENOMEM;
	history->blocks[history->block_count++] = *block;
	return 0;
}

void pool_history_assume_settings(struct pool_history *history)
{
	bool older = false, maps = false, allocates = false;

	for (size_t i = 0; i < history->segment_count; i++)
		older = older || history->segments[i].expandable;
	for (size_t i = 0; i < history->event_count; i++) {
		maps = maps || history->events[i].kind == HISTORY_MAP;
		allocates = allocates || history->events[i].kind == HISTORY_SEGMENT;
	}
	if (history->settings[0] != '\0' ||
	    !(history->settings_known ? maps && !allocates : maps || older))
		return;
	snprintf(history->settings, sizeof(history->settings), "expandable_segments:True");
	history->settings_known = false;
}

uint32_t pool_history_add_site(struct pool_history *history, uint64_t hash, const char *name)
{
	char *copy = strdup(name);

	if (copy == NULL ||
	    ARRAY_RESERVE(history->sites, history->site_room, history->site_count + 1) != 0) {
		free(copy);
		return 0;
	}
	history->sites[history->site_count++] =
		(struct history_site){.hash = hash == 0 ? 1 : hash, .name = copy};
	return (uint32_t)history->site_count;
}

/* ---- going back ---- */

/* Rows by address; a row whose `bytes` is UINT64_MAX is gone. */
struct rewind {
	struct map segments, blocks;
};

static struct map_key at(uint64_t address)
{
	return (struct map_key){address, 0};
}

static int put_segment(struct pool_history *h, struct rewind *r, const struct history_event *e)
{
	struct history_segment segment = {.address = e->address,
					  .bytes = e->bytes,
					  .stream = e->stream,
					  .private_pool = e->private_pool,
					  .small = e->bytes == (uint64_t)2 << 20};
	int status = pool_history_add_segment(h, &segment);

	return status != 0 ? status : map_put(&r->segments, at(e->address), h->segment_count - 1);
}

static int put_block(struct pool_history *h, struct rewind *r, const struct history_event *e)
{
	struct history_block block = {.address = e->address,
				      .requested = e->bytes,
				      .stream = e->stream,
				      .private_pool = e->private_pool};
	int status;

	if (map_get(&r->blocks, at(e->address)) != NULL)
		return 0; /* its free was asked for and is complete: one block */
	status = pool_history_add_block(h, &block);
	return status != 0 ? status : map_put(&r->blocks, at(e->address), h->block_count - 1);
}

static int step_back(struct pool_history *h, struct rewind *r, const struct history_event *e)
{
	uint64_t row;

	switch ((enum history_kind)e->kind) {
	case HISTORY_ALLOC:
		if (map_remove(&r->blocks, at(e->address), &row))
			h->blocks[row].requested = UINT64_MAX;
		return 0;
	case HISTORY_FREE_ASKED:
	case HISTORY_FREE_DONE:
		return put_block(h, r, e);
	case HISTORY_SEGMENT:
		if (map_remove(&r->segments, at(e->address), &row))
			h->segments[row].bytes = UINT64_MAX;
		return 0;
	case HISTORY_SEGMENT_GONE:
		return put_segment(h, r, e);
	case HISTORY_MAP:
	case HISTORY_UNMAP:
	case HISTORY_REFUSED:
	case HISTORY_EMPTY_CACHE:
		break;
	}
	return 0;
}

static void drop_gone(struct pool_history *h)
{
	size_t to = 0;

	for (size_t i = 0; i < h->segment_count; i++)
		if (h->segments[i].bytes != UINT64_MAX)
			h->segments[to++] = h->segments[i];
	h->segment_count = to;
	to = 0;
	for (size_t i = 0; i < h->block_count; i++)
		if (h->blocks[i].requested != UINT64_MAX)
			h->blocks[to++] = h->blocks[i];
	h->block_count = to;
}

int pool_history_rewind(struct pool_history *h)
{
	struct rewind r = {0};
	int status = 0;

	for (size_t i = 0; i < h->segment_count && status == 0; i++)
		if (!h->segments[i].expandable)
			status = map_put(&r.segments, at(h->segments[i].address), i);
	for (size_t i = 0; i < h->block_count && status == 0; i++)
		status = map_put(&r.blocks, at(h->blocks[i].address), i);
	for (size_t i = h->event_count; i > 0 && status == 0; i--)
		status = step_back(h, &r, &h->events[i - 1]);
	map_fini(&r.segments);
	map_fini(&r.blocks);
	drop_gone(h);
	return status != 0 ? status : pool_history_rewind_maps(h);
}
