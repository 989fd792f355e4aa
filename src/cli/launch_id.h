/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The name of a run in a store that nobody named. A launch has an id of its own, so that two launches of the same second are two
 * runs. Ranks that are launched one by one belong together: they have the id of the launcher that started them all, the nearest
 * process above them that is not a rank itself. It is found on its own machine only; jobs of several machines are joined by the
 * names that torchrun and Slurm give, or by MSMEMSCOPE_RUN.
 */
#ifndef MSCOPE_CLI_LAUNCH_ID_H
#define MSCOPE_CLI_LAUNCH_ID_H

#include "trace/session.h"

/* Sets `session->launch_id`; launch_pid and realtime_ns are set. */
void launch_id_make(struct session *session);

#endif
