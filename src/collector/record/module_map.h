/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The map of loaded objects in the trace.
 */
#ifndef MSCOPE_COLLECTOR_RECORD_MODULE_MAP_H
#define MSCOPE_COLLECTOR_RECORD_MODULE_MAP_H

#include "collector/record/writer.h"

/* Grows with each dlclose(): what an address meant before may not be what it means now. */
extern MSCOPE_HIDDEN _Atomic uint32_t modules_epoch;

/* Writes what has been loaded and unloaded since the last call. Before any stack that may point into it. */
void modules_refresh(struct writer *w);

#endif
