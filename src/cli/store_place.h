/* SPDX-License-Identifier: Apache-2.0 */
/* Which store and which run the options and the environment name. */
#ifndef MSCOPE_CLI_STORE_PLACE_H
#define MSCOPE_CLI_STORE_PLACE_H

#include <limits.h>

#include "options/options.h"
#include "store/store.h"
#include "store/store_take.h"

#define STORE_DEFAULT "sqlite:memscopeStore.db"

struct store_place {
	struct store_choice choice;
	struct store_label label; /* `run` is NULL where neither names one */
	char helper[PATH_MAX];
};

/* Fills it; `choice.url` is NULL where no store is named. A code with a sentence when the URL is wrong. */
int store_place_find(const struct options *options, bool write, struct store_place *out,
		     struct mscope_error *err);

#endif
