/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An array in a file without a name, mapped: it may be larger than memory, and vanishes with the process. The file is sparse; records
 * that were never written are zero. Not thread-safe. A zeroed struct holds nothing and takes nothing.
 *
 * On a full disk, pages that have no room become memory of the process (base/bus.h), and the spool grows no further: what it holds
 * stays right, and at most one step of 16 MiB is in memory. Steps begin at 1 MiB where address space is limited.
 */
#ifndef MSCOPE_BASE_SPOOL_H
#define MSCOPE_BASE_SPOOL_H

#include <stdbool.h>

#include "base/status.h"

struct spool {
	unsigned char *data; /* a mapping that grows, without a descriptor; moves when it does */
	uint64_t room;	     /* records that are mapped */
	uint64_t room_max;   /* records that the file has room for */
	uint32_t bytes;	     /* of a record */
	bool full;	     /* a record found no room */
};

/* `directory` is where the file is made. 0, or a negative code said in `err`. */
int spool_init(struct spool *spool, const char *directory, uint32_t record_bytes,
	       struct mscope_error *err);
void spool_fini(struct spool *spool);

/* Maps the record too; NULL if there is no room. The way of spool_at() when the mapping has to grow. */
void *spool_grow(struct spool *spool, uint64_t index);

/* The record with this number, for the caller to change; NULL if there is no room. Valid until the next call. */
static inline void *spool_at(struct spool *spool, uint64_t index)
{
	return MSCOPE_LIKELY(index < spool->room) ? spool->data + index * spool->bytes
						  : spool_grow(spool, index);
}

#endif
