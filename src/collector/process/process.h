/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process as a whole: which session it belongs to, the file that it writes, what was chosen for it while it runs.
 *
 *     life.c          begins, forks and ends         session_file.c  what the session says
 *     raw_file.c      makes the raw trace            control.c       windows, steps, requests
 *     identity.c      who this process is            spawn.c         an engine of its own
 *     confine.c       rights that are given up       sandbox.c       the same by prctl()
 *     program_end.c   the end of the program's own code    serve.c     commands of another process
 */
#ifndef MSCOPE_COLLECTOR_PROCESS_PROCESS_H
#define MSCOPE_COLLECTOR_PROCESS_PROCESS_H

#include "collector/collector.h"
#include "trace/context.h"

/* session_file.c */

/* True when the user has switched us off. */
bool session_is_disabled(void);

/*
 * The session of a directory, mapped for reading and writing; NULL with errno when there is none. The caller unmaps it, and gives room for the
 * path, which is left in it.
 */
struct session *session_map(char *path, size_t path_bytes, const char *directory);

/* Maps what the engine asks of the processes of that session (trace/asked.h); without it nothing is asked. */
void session_map_asked(char *path, size_t path_bytes, const char *directory);

/* What the session in `directory` wants of Python code; false when there is none or we are switched off. */
bool session_wants(const char *directory, uint32_t *out_wants);

/*
 * Whether the session of the environment wants tensors in host memory. Does not attach, and thus leaves no trace of this process.
 */
bool session_wants_host(void);

/* raw_file.c */

/*
 * Makes the raw trace of this process in the session's directory, maps it and makes it collector.header. `parent_run`: the run that
 * this process was forked from, or zeros. -errno on failure.
 */
int raw_open(const struct session *session, const uint8_t *parent_run);

/* life.c */

/* The program's own code has ended: makes a record of it, once. errno stays as it was. */
void program_end(enum end_kind kind);

/* spawn.c */

/*
 * Records from now on in the session of that directory, which an engine follows; waits up to `wait_ms` for a thread that attaches
 * already. 0 or -EIO.
 */
int session_join(const char *directory, uint32_t wait_ms);

/* snapshot.c */

/* As mscope_snapshot(), of a device_key(). */
int snapshot_take(uint64_t key, bool named, const char *name, const uint64_t *figures);

/* identity.c */

/* Fills the identity text; returns its length. */
uint32_t identity_write(const struct session *session, char *out, uint32_t bytes);

/* Start time of the process collector.pid as in its stat file, 0 when unknown. */
uint64_t identity_start_ticks(void);

/* control.c */

/* Remembers what the session says; it counts until the API says otherwise. */
void control_read(const struct session *session);

/* What a session wants of Python code, enum python_wants. */
uint32_t control_wants(const struct session *session);

/* Makes the settings of the API, else those of the session, the collector's. Returns how deep C stacks are to be. */
uint32_t control_apply(void);

/*
 * Asks the engine and waits for it, at most 10 s without a sign of life. 0, -ESRCH: there is no engine, -ETIMEDOUT, or why it
 * could not be asked.
 */
int control_request(enum trace_request kind);

/* The same, at most that long: -EAGAIN then, and the engine answers later. 0 ns: only asks. */
int control_request_within(enum trace_request kind, uint64_t most_ns);

/* Tells the engine of a session of this process' own that nothing more comes. */
void control_leave(struct session *session);

/* Whether the return of main() is the end of the program's own code. */
extern MSCOPE_HIDDEN bool main_is_awaited;

#endif
