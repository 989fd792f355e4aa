/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mapped files that another process may cut short, or that a full disk has no room for. Touching a page that the file does not have
 * raises SIGBUS, which ends the process; with the guard, the page becomes one of zeros in memory, and stays that.
 */
#ifndef MSCOPE_BASE_BUS_H
#define MSCOPE_BASE_BUS_H

#include "base/compiler.h"

/* Sets the guard up. For processes of our own that run no other code: it is a handler of the whole process. */
void bus_guard(void);

#endif
