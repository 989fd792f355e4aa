/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that were refused, while the program still runs: the machine may kill everything a second later. Their verdicts go to
 * the caller at once, into the log, and into report.txt, which the end of the run replaces.
 */
#ifndef MSCOPE_ENGINE_OOM_WATCH_H
#define MSCOPE_ENGINE_OOM_WATCH_H

#include "engine/pipeline.h"

/* A refused request that nothing followed for so long is not tried again by itself. */
#define OOM_SETTLED_NS UINT64_C(50000000)

/* After a step at `now_ns`: ends refused requests that nothing follows. True: there is something to read in the next step. */
bool oom_watch_settle(struct pipeline *pipeline, uint64_t now_ns);

/*
 * The verdicts that are new, in words for the screen: whole lines, or nothing. Reads no symbols; oom_watch_write() does and may
 * take longer.
 */
void oom_watch_say(struct pipeline *pipeline, struct strbuf *out);
void oom_watch_write(struct pipeline *pipeline);

#endif
