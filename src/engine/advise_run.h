/* SPDX-License-Identifier: Apache-2.0 */
/* A run as advise needs it: its record (advise/advise_record.h) and the histories of its pools, read in one pass. */
#ifndef MSCOPE_ENGINE_ADVISE_RUN_H
#define MSCOPE_ENGINE_ADVISE_RUN_H

#include "advise/reserving.h"
#include "engine/pool_histories.h"

/* Of a pool: of each event of its history, how many moments of the record there were after it. */
struct advise_moments {
	size_t *moments;
	size_t count, room;
};

struct advise_run {
	struct advise_record record;
	struct pool_histories histories;
	struct advise_moments *moments; /* as histories.pools */
	size_t count, room;
};

/* Both are for struct pass_setup; arg: the run. 0 or -ENOMEM. */
int advise_run_row(void *arg, struct replay *replay, const struct row *row);
int advise_run_event(void *arg, struct replay *replay, const struct trace_event *event);

/* After the last event. 0 or -ENOMEM. */
int advise_run_end(struct advise_run *run, struct replay *replay);
void advise_run_fini(struct advise_run *run);

/* Why a run has no advice; NULL: it has all that is needed. */
const char *advise_run_lacks(const struct advise_run *run, const struct replay *replay);

/* Whether advice is for this pool of the record: those of devices, or CPU tensors where there are none. */
bool advise_run_is_for(const struct advise_run *run, size_t pool);

/* What is recorded of the requests to a pool of the record; false: not enough. */
bool advise_run_history(const struct advise_run *run, size_t pool, struct advise_history *out);

#endif
