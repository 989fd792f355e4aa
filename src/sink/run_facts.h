/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of a trace's header that reports show: what was lost and why, why recording ended early, what it cost. */
#ifndef MSCOPE_SINK_RUN_FACTS_H
#define MSCOPE_SINK_RUN_FACTS_H

#include "trace/run.h"

/* Events lost by this cause (trace/losses.def), its key and its sentence. */
uint64_t run_loss(const struct run *run, int cause);
const char *loss_name(int cause);
const char *loss_sentence(int cause);

/* Why recording ended early, NULL if it did not; and the errno of it, 0: none. */
const char *run_stop_sentence(const struct run *run);
int run_stop_errno(const struct run *run);

/* True when the process ended by itself, as far as the trace knows. */
bool run_is_closed(const struct run *run);

/* "SIGSEGV" and the like, of the signal that killed the process; NULL: none, or unknown. */
const char *run_signal(const struct run *run);

struct run_stalls {
	uint64_t longest_ns, total_ns, count;
};

struct run_stalls run_stalls(const struct run *run);

#endif
