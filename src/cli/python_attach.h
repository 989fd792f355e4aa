/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attach for a Python program that runs without the collector. gdb, where it is installed, makes the program do one thing: its
 * interpreter is asked to run a line of Python at its next safe point (Py_AddPendingCall()), in its main thread. That line imports the
 * package and calls start(), which loads the collector as any script may. The program stands still while gdb is in it, for about a
 * second: gdb reads no symbols of libraries, since all addresses come from here.
 */
#ifndef MSCOPE_CLI_PYTHON_ATTACH_H
#define MSCOPE_CLI_PYTHON_ATTACH_H

#include "base/status.h"
#include "options/options.h"

/*
 * Records the process with the options of attach that config() knows. 0; -ENOENT: it is not a Python program; -ENOEXEC: gdb is
 * missing; other negative codes are said in `err`. -ETIMEDOUT: it will be recorded once its main thread runs Python code again.
 */
int python_attach(uint32_t pid, const struct options *options, struct mscope_error *err);

/*
 * The engine's own stderr, attach_PID.log in the results directory: it lives as long as the process that it records, whose stderr stays
 * its own, and a caller of `attach` that reads our stderr to the end must not wait for that. A descriptor, or -errno.
 */
int attach_open_log(const char *output, uint32_t pid, char *out_path, size_t bytes);

#endif
