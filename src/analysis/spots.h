/* SPDX-License-Identifier: Apache-2.0 */
/* Places of two runs that are the same one, and what they hold. Part of differences.h. */
#ifndef MSCOPE_ANALYSIS_SPOTS_H
#define MSCOPE_ANALYSIS_SPOTS_H

#include "analysis/differences.h"

struct spots {
	uint32_t *of[2];      /* of each place of the ledgers: its number in differences.places */
	uint32_t *pool_of[2]; /* of each pool of the ledgers: its number in differences.pools */
};

/* Fills pools and places of `out`, in no order. 0 or -ENOMEM; needs spots_fini() in either case. */
int spots_find(const struct compare *compare, struct differences *out, struct spots *spots);
void spots_fini(struct spots *spots);

#endif
