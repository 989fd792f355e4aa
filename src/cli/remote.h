/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that has the collector, from the outside: asking it to do something (trace/control.h), and asking the engine that follows it.
 * Only who may debug the process can do this: the same user or root, if the machine allows it.
 */
#ifndef MSCOPE_CLI_REMOTE_H
#define MSCOPE_CLI_REMOTE_H

#include <limits.h>
#include <stdbool.h>

#include "base/status.h"
#include "trace/control.h"

struct remote {
	uint32_t pid;
	uint64_t block_at;	/* address of its struct control_block */
	uint64_t generation_at; /* of the two words that the block names */
	uint64_t recording_at;	/* enum recording */
	char raw[PATH_MAX];	/* the trace that it writes, "": none */
};

/* Finds the collector in the process. MSCOPE_E_USAGE: no such process; -ENOENT: it has none; -EPERM. */
int remote_find(uint32_t pid, struct remote *out, struct mscope_error *err);

/* Address of a function that a library or the program itself exports, 0: none does, or it cannot be looked at. */
uint64_t remote_symbol(uint32_t pid, const char *name);

/*
 * Asks and waits until it was done, for as long as the process has no event, but at most `limit_ms`. 0 with its result; -ETIMEDOUT: it
 * has no event, and will do it at the next one.
 */
int remote_ask(const struct remote *remote, enum control_kind kind, const char *session,
	       uint32_t limit_ms, int32_t *out_result, struct mscope_error *err);

/*
 * After CONTROL_WHO was accepted: waits until the process has looked, at most `limit_ms`. -ETIMEDOUT: its main thread has not come back
 * to Python code, and will look when it does.
 */
int remote_wait_looked(const struct remote *remote, uint32_t limit_ms, struct mscope_error *err);

/* Waits until the files have what was recorded so far. -ESRCH: no engine follows the process. */
int remote_flush(const struct remote *remote, struct mscope_error *err);

/* The same after CONTROL_STOP, as stop() does: report and trace are there too. */
int remote_complete(const struct remote *remote, struct mscope_error *err);

#endif
