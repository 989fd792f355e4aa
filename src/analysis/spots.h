/* SPDX-License-Identifier: Apache-2.0 */
/* Places of two runs that are the same one, and what they hold. Part of differences.h. */
#ifndef MSCOPE_ANALYSIS_SPOTS_H
#define MSCOPE_ANALYSIS_SPOTS_H

#include "analysis/differences.h"
#include "findings/differ.h"

struct spots {
	uint32_t *of[2];      /* of each place of the ledgers: its number in differences.places */
	uint32_t *pool_of[2]; /* of each pool of the ledgers: its number in differences.pools */
	/* Of each place of the ledgers: it held something at the peak of its own run or at its end, so that findings name it. */
	bool *named[2];
};

/* Fills pools and places of `out`, in no order. 0 or -ENOMEM; needs spots_fini() in either case. */
int spots_find(const struct compare *compare, struct differences *out, struct spots *spots);
void spots_fini(struct spots *spots);

/* ---- differences_names.c ---- */

/* The owner that people see of a place's blocks, and their layer; "": none. What only one of the runs recorded does not count. */
const char *differences_owner(const struct compare *compare, int side,
			      const struct ledger_place *place);
const char *differences_layer(const struct compare *compare, int side,
			      const struct ledger_place *place);

/* Names the places, each of which is a line of `differ`, and joins those that read the same. 0 or -ENOMEM. */
int differences_name(const struct compare *compare, struct differences *out,
		     const struct spots *spots, struct differ *differ);

/* ---- differences_layers.c ---- */

/* Fills the layers of `out` from its places. 0 or -ENOMEM. */
int differences_find_layers(const struct compare *compare, struct differences *out);

#endif
