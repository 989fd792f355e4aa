/* SPDX-License-Identifier: Apache-2.0 */
/* Finishes what a killed engine left behind. */
#ifndef MSCOPE_ENGINE_RECOVER_H
#define MSCOPE_ENGINE_RECOVER_H

#include "engine/runs.h"

/*
 * Finishes the runs of a session directory, and removes it when nothing is left in it. Processes that still run are left alone
 * and counted. -EBUSY when an engine is at work there.
 */
int recover_session(const char *directory, const struct runs_ops *ops, struct runs_result *out,
		    struct mscope_error *err);

#endif
