/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Python code that runs before the first line of a script, and the interpreter's objects for those who call it.
 *
 * Nothing is compiled or linked against Python: the same library serves every interpreter from 3.8 on, and programs that have
 * none. Functions of the interpreter are found by name among the loaded objects; each of them has had the same signature in
 * all these versions. Objects are opaque.
 */
#ifndef MSCOPE_COLLECTOR_PYTHON_BOOT_H
#define MSCOPE_COLLECTOR_PYTHON_BOOT_H

#include "collector/collector.h"

struct py_object; /* PyObject */

/* Called by the constructor, before any code of the program. */
void python_boot(void);

#endif
