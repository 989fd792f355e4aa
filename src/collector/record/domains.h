/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Domains and ranges of the interfaces for marks (mstx, NVTX): names that a client asks for, each with one handle for ever, and numbers
 * of ranges that no two interfaces share.
 */
#ifndef MSCOPE_COLLECTOR_RECORD_DOMAINS_H
#define MSCOPE_COLLECTOR_RECORD_DOMAINS_H

#include <stdatomic.h>
#include <stdint.h>

#include "collector/lock.h"

#define DOMAINS_MAX 256u
#define DOMAIN_NAME 128u

/* Its address is the handle. Entries are never removed: clients ask for them again at every call. */
struct domain {
	char name[DOMAIN_NAME];
	uint8_t pool; /* as the interface takes the name, else 0 */
};

/* Zeroed: none. */
struct domains {
	struct domain all[DOMAINS_MAX];
	_Atomic uint32_t count;
	struct lock lock; /* held by a thread that adds one */
};

/* NULL, the default domain, for a handle that is not of this table: the program may have it from another tool. */
const struct domain *domains_of(const struct domains *domains, const void *handle);

/* The domain of a name, new or known; NULL: without a name, or no room. `pool_of` may be NULL. */
struct domain *domains_get(struct domains *domains, const char *name,
			   uint8_t (*pool_of)(const char *name));

/* Number of a new range. It fits 32 bits, because mstx's Python module cuts it, and is not 0, which means failure. */
uint32_t range_new(void);

#endif
