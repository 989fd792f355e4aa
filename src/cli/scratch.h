/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A directory for the files of one command, readable by this user alone. It is gone when the command ends. What a killed command left is removed by the
 * next one: a directory whose lock is free has no owner any more.
 */
#ifndef MSCOPE_CLI_SCRATCH_H
#define MSCOPE_CLI_SCRATCH_H

#include <limits.h>
#include <stdbool.h>

#include "base/status.h"

struct scratch {
	char path[PATH_MAX];
	int lock; /* of the directory; a forked child holds it, too */
};

/* In $TMPDIR, or another place of the system; `preloads`: one from which the loader takes libraries. */
int scratch_make(struct scratch *scratch, bool preloads, struct mscope_error *err);
void scratch_remove(struct scratch *scratch);

#endif
