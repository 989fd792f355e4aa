/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All bytes of a run have a bound: --max-disk counts traces, dumps and reports, and dumps leave --min-free of the disk. Dumps give way
 * first, since `export` makes them from the trace: they stop at three quarters of --max-disk, so that a quarter is the trace's in any
 * case. A dump that stopped is a whole file with its first rows; INCOMPLETE.txt beside it says so.
 */
#ifndef MSCOPE_ENGINE_DUMP_BOUND_H
#define MSCOPE_ENGINE_DUMP_BOUND_H

#include "engine/pipeline.h"

#define DUMP_BOUND_NOTE "INCOMPLETE.txt"

/* Bytes that all traces may take, beside these bytes of dumps and reports; and those of a process alone. 0: no limit. */
uint64_t dump_bound_trace_beside(const struct session *session, uint64_t dump_bytes);
uint64_t dump_bound_trace(const struct pipeline *pipeline);

/* Sets dump_bytes. */
void dump_bound_measure(struct pipeline *pipeline);

/* Measures the files of a living process, and ends its dump where it has to. */
void dump_bound_look(struct pipeline *pipeline);

/* Whether the dump may be written a second time beside the first. Where not, that is said as for one that stopped. */
bool dump_bound_has_room(struct pipeline *pipeline);

#endif
