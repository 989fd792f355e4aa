/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expandable segments at the start of a record. Parts of them are mapped and unmapped in pieces of any size, so the first event that
 * touches an address says what it was before: mapped if the event unmaps it, not mapped if it maps it. Addresses without an
 * event are as they are at the end.
 */
#include <errno.h>
#include <stdlib.h>

#include "twin/pool_history.h"

/* Addresses from one edge to the next. */
struct piece {
	struct history_segment was; /* `expandable`: it was mapped */
	uint32_t next;		    /* the first piece from here on that is not decided */
};

struct pieces {
	uint64_t *edges;
	size_t edge_count;
	struct piece *all; /* piece i is from edge i to edge i + 1 */
};

static bool is_part(const struct history_event *e)
{
	return (e->kind == HISTORY_MAP || e->kind == HISTORY_UNMAP) && e->bytes > 0;
}

static int make_edges(struct pieces *p, const struct pool_history *h)
{
	size_t count = 0, kept = 0;

	for (size_t i = 0; i < h->event_count; i++)
		count += is_part(&h->events[i]);
	p->edges = calloc(2 * (count + h->segment_count) + 1, sizeof(*p->edges));
	if (p->edges == NULL)
		return -ENOMEM;
	count = 0;
	for (size_t i = 0; i < h->event_count; i++)
		if (is_part(&h->events[i])) {
			p->edges[count++] = h->events[i].address;
			p->edges[count++] = h->events[i].address + h->events[i].bytes;
		}
	for (size_t i = 0; i < h->segment_count; i++)
		if (h->segments[i].expandable) {
			p->edges[count++] = h->segments[i].address;
			p->edges[count++] = h->segments[i].address + h->segments[i].bytes;
		}
	qsort(p->edges, count, sizeof(*p->edges), order_u64);
	for (size_t i = 0; i < count; i++)
		if (i == 0 || p->edges[i] != p->edges[i - 1])
			p->edges[kept++] = p->edges[i];
	p->edge_count = kept;
	p->all = calloc(kept + 1, sizeof(*p->all));
	for (size_t i = 0; p->all != NULL && i <= kept; i++)
		p->all[i].next = (uint32_t)i;
	return p->all == NULL ? -ENOMEM : 0;
}

static size_t edge_of(const struct pieces *p, uint64_t address)
{
	const uint64_t *found =
		bsearch(&address, p->edges, p->edge_count, sizeof(*p->edges), order_u64);

	return (size_t)(found - p->edges);
}

/* The first piece from `i` on that is not decided. */
static size_t undecided(struct pieces *p, size_t i)
{
	size_t found = i;

	while (p->all[found].next != found)
		found = p->all[found].next;
	while (p->all[i].next != found) {
		size_t next = p->all[i].next;

		p->all[i].next = (uint32_t)found;
		i = next;
	}
	return found;
}

/* Decides all pieces of a range that no earlier event has decided. */
static void decide(struct pieces *p, const struct history_segment *was)
{
	size_t end = edge_of(p, was->address + was->bytes);

	for (size_t i = undecided(p, edge_of(p, was->address)); i < end; i = undecided(p, i)) {
		p->all[i].was = *was;
		p->all[i].next = (uint32_t)i + 1;
	}
}

static void decide_all(struct pieces *p, const struct pool_history *h)
{
	for (size_t i = 0; i < h->event_count; i++) {
		const struct history_event *e = &h->events[i];

		if (is_part(e))
			decide(p,
			       &(struct history_segment){.address = e->address,
							 .bytes = e->bytes,
							 .stream = e->stream,
							 .private_pool = e->private_pool,
							 .kind_unknown = true,
							 .expandable = e->kind == HISTORY_UNMAP});
	}
	for (size_t i = 0; i < h->segment_count; i++)
		if (h->segments[i].expandable)
			decide(p, &h->segments[i]);
}

static bool same_arena(const struct history_segment *a, const struct history_segment *b)
{
	return a->stream == b->stream && a->private_pool == b->private_pool &&
	       (a->kind_unknown || b->kind_unknown || a->small == b->small);
}

/* Adds what was mapped as segments. */
static int add_mapped(struct pool_history *h, const struct pieces *p)
{
	struct history_segment *last = NULL;

	for (size_t i = 0; i + 1 < p->edge_count; i++) {
		struct history_segment was = p->all[i].was;
		int status;

		was.address = p->edges[i];
		was.bytes = p->edges[i + 1] - p->edges[i];
		if (!was.expandable)
			continue;
		if (last != NULL && last->address + last->bytes == was.address &&
		    same_arena(last, &was)) {
			last->bytes += was.bytes;
			if (last->kind_unknown) {
				last->kind_unknown = was.kind_unknown;
				last->small = was.small;
			}
			continue;
		}
		if ((status = pool_history_add_segment(h, &was)) != 0)
			return status;
		last = &h->segments[h->segment_count - 1];
	}
	return 0;
}

int pool_history_rewind_maps(struct pool_history *h)
{
	struct pieces p = {0};
	size_t to = 0;
	int status;

	for (size_t i = 0; i < h->event_count; i++)
		if (is_part(&h->events[i]) && h->events[i].address > UINT64_MAX / 2)
			return 0; /* no addresses of a device */
	status = make_edges(&p, h);
	if (status == 0 && p.edge_count > 0) {
		decide_all(&p, h);
		for (size_t i = 0; i < h->segment_count; i++)
			if (!h->segments[i].expandable)
				h->segments[to++] = h->segments[i];
		h->segment_count = to;
		status = add_mapped(h, &p);
	}
	free(p.edges);
	free(p.all);
	return status;
}
