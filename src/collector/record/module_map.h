/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The map of loaded objects in the trace.
 */
#ifndef MSCOPE_COLLECTOR_RECORD_MODULE_MAP_H
#define MSCOPE_COLLECTOR_RECORD_MODULE_MAP_H

#include "collector/record/writer.h"

/*
 * Writes what has been loaded and unloaded since the last call, and lets the unwinder know. Before any stack that may point into it;
 * a stack that was walked with older tables (struct unwind_now) is then walked again.
 */
void modules_refresh(struct writer *w);

#endif
