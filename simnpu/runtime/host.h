/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions of the program in streams. They are those of runtime/rt.h; here is what a fork needs.
 */
#ifndef SIMNPU_RUNTIME_HOST_H
#define SIMNPU_RUNTIME_HOST_H

/* Keep callbacks still over a fork. */
void host_lock(void);
void host_unlock(void);

/* In a forked child, with the lock: the tasks that left callbacks are gone, and so are these. */
void host_forget_tasks(void);

#endif
