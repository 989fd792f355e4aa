/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the runtimes of vendors have in common for watch: functions that wait, found by name among what the program has loaded.
 * Called outside the record path: they are foreign code and may call our hooks.
 */
#ifndef MSCOPE_COLLECTOR_WATCH_RUNTIME_H
#define MSCOPE_COLLECTOR_WATCH_RUNTIME_H

#include "collector/loader/lookup.h"

struct runtime {
	struct lookup_function sync_stream; /* int (*)(void *stream); 0: done */
	struct lookup_function sync_device; /* int (*)(void) */
	struct lookup_function capturing;   /* asked by is_capturing() */
	struct lookup_function copy;	    /* called by the vendor's copy() */
	/* True when waiting for the stream, or for the device with NULL, would break a graph that is being captured. */
	bool (*is_capturing)(struct runtime *runtime, void *stream);
};

/* wait() of struct vendor_ops. */
int runtime_wait(struct runtime *runtime, void *stream, bool has_stream);

/* In a forked child: its runtime may be loaded elsewhere. */
void runtime_reset(struct runtime *runtime);

#endif
