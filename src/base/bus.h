/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mapped files that another process may cut short. Touching a page that the file no longer has raises SIGBUS, which ends the process;
 * with the guard, the page becomes one of zeros, once and for all, and is counted.
 */
#ifndef MSCOPE_BASE_BUS_H
#define MSCOPE_BASE_BUS_H

#include "base/compiler.h"

/* Sets the guard up. For processes of our own that run no other code: it is a handler of the whole process. */
void bus_guard(void);

/* Pages that were replaced so far. */
uint32_t bus_faults(void);

#endif
