/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/driver_pages.h"

void driver_pages_fini(struct driver_pages *pages)
{
	map_fini(&pages->edges);
}

static uint32_t memory_of(const struct context *context)
{
	return context->vendor == VENDOR_CUDA ? CUDA_FLAGS_MEMORY(context->flags) : 0;
}

/* Of drivers whose blocks share no pages. */
static uint64_t in_pages(const struct context *context, uint64_t bytes)
{
	static const uint64_t pages[] = {[PAGE_UNKNOWN] = 1,
					 [PAGE_NORMAL] = 4096,
					 [PAGE_HUGE] = 2u << 20,
					 [PAGE_GIANT] = 1u << 30};

	return context->page < MSCOPE_COUNT(pages) ? round_up_u64(bytes, pages[context->page])
						   : bytes;
}

static void add_edge(struct driver_pages *pages, uint64_t page)
{
	uint64_t *blocks = map_get(&pages->edges, (struct map_key){page, 0});

	/* Without memory a page is not counted: the figures are less exact. */
	if (blocks != NULL)
		++*blocks;
	else
		(void)map_put(&pages->edges, (struct map_key){page, 0}, 1);
}

static void remove_edge(struct driver_pages *pages, uint64_t page)
{
	uint64_t *blocks = map_get(&pages->edges, (struct map_key){page, 0});

	if (blocks != NULL && --*blocks == 0)
		(void)map_remove(&pages->edges, (struct map_key){page, 0}, NULL);
}

/* Calls `edge` for the pages of which the block has a part, two at most. Returns what it has in whole pages. */
static uint64_t split(struct driver_pages *pages, uint64_t address, uint64_t bytes,
		      void (*edge)(struct driver_pages *pages, uint64_t page))
{
	uint64_t end = address + bytes, first = address / DRIVER_PAGE,
		 last = (end - 1) / DRIVER_PAGE;
	bool begins = address % DRIVER_PAGE != 0, ends = end % DRIVER_PAGE != 0;

	if (bytes == 0)
		return 0;
	if (first == last && (begins || ends)) {
		edge(pages, first);
		return 0;
	}
	if (begins)
		edge(pages, first);
	if (ends)
		edge(pages, last);
	return (last - first + 1 - begins - ends) * DRIVER_PAGE;
}

void driver_pages_add(struct driver_pages *pages, const struct context *context, uint64_t address,
		      uint64_t bytes)
{
	uint32_t memory = memory_of(context);

	if (memory == CUDA_MEMORY_DEVICE || memory == CUDA_MEMORY_PITCH)
		pages->whole_bytes += split(pages, address, bytes, add_edge);
	else if (memory != CUDA_MEMORY_MANAGED)
		pages->whole_bytes += in_pages(context, bytes);
}

void driver_pages_remove(struct driver_pages *pages, const struct context *context,
			 uint64_t address, uint64_t bytes)
{
	uint32_t memory = memory_of(context);

	if (memory == CUDA_MEMORY_DEVICE || memory == CUDA_MEMORY_PITCH)
		bytes = split(pages, address, bytes, remove_edge);
	else if (memory == CUDA_MEMORY_MANAGED)
		bytes = 0;
	else
		bytes = in_pages(context, bytes);
	pages->whole_bytes -= bytes < pages->whole_bytes ? bytes : pages->whole_bytes;
}

uint64_t driver_pages_taken(const struct driver_pages *pages)
{
	return pages->whole_bytes + pages->edges.count * DRIVER_PAGE;
}
