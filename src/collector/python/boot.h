/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How our Python package gets into a script, what a session wants of it, and the interpreter's objects for C code that calls it.
 *
 * Nothing is compiled or linked against Python: the same library serves every interpreter from 3.8 on, and programs that have
 * none. Functions of the interpreter are found by name among the loaded objects; each of them has had the same signature in
 * all these versions. Objects are opaque.
 */
#ifndef MSCOPE_COLLECTOR_PYTHON_BOOT_H
#define MSCOPE_COLLECTOR_PYTHON_BOOT_H

#include "collector/collector.h"

struct py_object; /* PyObject */

/*
 * True in a process that has an interpreter which has not started yet: then python_boot() makes our package run before the user's
 * script. Both are called by the constructor of this library, before any code of the program.
 */
bool python_is_starting(void);

/*
 * `wants`: enum python_wants, 0 without a session. Also where nothing is wanted: a script may import the package, to record a window.
 */
void python_boot(bool in_session, uint32_t wants);

#endif
