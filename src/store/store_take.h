/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of a process, from the same digest and findings that the screen and the JSON document show (sink/digest.h, sink/report.h).
 */
#ifndef MSCOPE_STORE_STORE_TAKE_H
#define MSCOPE_STORE_STORE_TAKE_H

#include "sink/report.h"
#include "store/store_rows.h"

/* Which run a process belongs to. */
struct store_label {
	const char *run; /* its name */
	const char *job, *code;
	const char *tags; /* separated by commas */
	bool running;	  /* the process still runs */
};

/* The run that the process's launcher named (a job of Slurm, torchrun or the like), to be freed; NULL: none did. */
char *store_run_name(const struct run *run);

/* Fills `out`, which is zeroed, from a run at its end, or as far as it is if it still runs. */
void store_take(struct store_rows *out, const struct report *report,
		const struct store_label *label);

/* The key of a process, the same whenever it is stored. Dump files have no id: their path and the pid make one. NULL: a trace. */
int64_t store_process_key(const struct run *run, const char *dump_path);

#endif
