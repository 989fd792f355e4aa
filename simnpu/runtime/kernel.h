/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels, argument lists and launches. The functions are those of simnpu.h and runtime/rt.h; here is what a fork needs.
 */
#ifndef SIMNPU_RUNTIME_KERNEL_H
#define SIMNPU_RUNTIME_KERNEL_H

/* Keep the tables still over a fork. */
void kernel_lock(void);
void kernel_unlock(void);

#endif
