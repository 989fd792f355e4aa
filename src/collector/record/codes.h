/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Python functions in the trace.
 */
#ifndef MSCOPE_COLLECTOR_RECORD_CODES_H
#define MSCOPE_COLLECTOR_RECORD_CODES_H

#include "collector/record/writer.h"

/*
 * Number of a code object for records of this writer, defined when it is new. 0: a function of our own package, or an object
 * that cannot be read; such a frame is left out. The caller's thread keeps the object alive.
 */
uint32_t writer_code(struct writer *w, const void *code);

/*
 * Makes the `count` frames in w->python_frames the words of a stack_def, at most `depth`, in *out, which is the writer's own
 * room; defines the functions that are new. Returns how many there are.
 */
uint32_t writer_code_frames(struct writer *w, uint32_t count, uint32_t depth, const void **out);

#endif
