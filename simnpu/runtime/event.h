/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events: places in streams, to wait for and to measure between. Their functions are those of runtime/rt.h; here is what a
 * fork needs.
 */
#ifndef SIMNPU_RUNTIME_EVENT_H
#define SIMNPU_RUNTIME_EVENT_H

/* Keep events still over a fork. */
void event_lock(void);
void event_unlock(void);

/* In a forked child, with the lock: no task will reach an event any more, so all of them count as reached. */
void event_forget_tasks(void);

#endif
