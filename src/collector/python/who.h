/* SPDX-License-Identifier: Apache-2.0 */
/* Asks our package, from outside of Python code, to look for what keeps memory (python/msmemscope/_who.py). */
#ifndef MSCOPE_COLLECTOR_PYTHON_WHO_H
#define MSCOPE_COLLECTOR_PYTHON_WHO_H

#include "collector/collector.h"

/*
 * Any thread, in any hook. The interpreter's main thread does it when it next runs Python code; then control_block.looked is `number`.
 * 0, -ENOSYS: the process has no interpreter that runs; -EBUSY: the interpreter takes no more calls now.
 */
int python_ask_who(uint32_t number);

#endif
