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
 * Makes the `count` frames in w->python_frames, of at most `walked`, the words of a stack_def, at most `depth`, in *out, which is the
 * writer's own room; defines the functions that are new. Fewer words than were walked are a site: frames of PyTorch that only call on
 * are left out. *cut: the stack has other frames that are not among them. Returns how many words there are.
 */
uint32_t writer_code_frames(struct writer *w, uint32_t count, uint32_t walked, uint32_t depth,
			    bool *cut, const void **out);

/*
 * Functions of `file` that are defined from now on have `name` for their file, or are left out as those of our own package are when
 * it is empty. 0; -ENAMETOOLONG, -ENOSPC, -ENOMEM, -EBUSY: the file keeps its name.
 */
int codes_name_file(const char *file, const char *name);

#endif
