/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What blocks of a driver take of its device, which may be more than what was asked for. CUDA's driver counts whole pages of 2 MiB; small
 * blocks share pages, also those in which larger ones end. Their addresses say which. Managed memory counts nothing here: it is on the
 * device as far as it is used there. CANN's driver gives each block whole pages, of the size that the request names.
 */
#ifndef MSCOPE_REPLAY_DRIVER_PAGES_H
#define MSCOPE_REPLAY_DRIVER_PAGES_H

#include "base/map.h"
#include "trace/context.h"

#define DRIVER_PAGE (UINT64_C(2) << 20)

struct driver_pages {
	/* Of pages that one block has, and of blocks that count as they are. */
	uint64_t whole_bytes;
	struct map edges; /* how many blocks have a part of a page, by its number */
};

void driver_pages_fini(struct driver_pages *pages);

void driver_pages_add(struct driver_pages *pages, const struct context *context, uint64_t address,
		      uint64_t bytes);
void driver_pages_remove(struct driver_pages *pages, const struct context *context,
			 uint64_t address, uint64_t bytes);

/* What all of them take. */
uint64_t driver_pages_taken(const struct driver_pages *pages);

#endif
