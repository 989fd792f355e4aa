/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the runtime tells the profiler: each task, when it takes it, on the calling thread.
 */
#ifndef SIMNPU_RUNTIME_TRACK_H
#define SIMNPU_RUNTIME_TRACK_H

#include "stream.h"

/* `kernel` is NULL for what is no kernel. Its name is always turned into a number; a record follows if someone asked. */
void track_task(const struct simnpu_task *task, enum task_type type, const char *kernel);

#endif
