/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Call stacks of the calling thread, C and Python as one.
 */
#ifndef MSCOPE_COLLECTOR_RECORD_CAPTURE_H
#define MSCOPE_COLLECTOR_RECORD_CAPTURE_H

#include "collector/record/writer.h"

/* Of a function of ours that calls the program's code: no stack shows its frame. */
#define CAPTURE_LEFT_OUT __attribute__((section("mscope_left_out"), noinline))

/* Sets how deep stacks are from now on: as deep as the settings ask for, or none. */
void stack_switch(bool on);

/* For slow paths: an interpreter may have been loaded since stack_switch(). */
void stack_check_interpreter(void);

/*
 * Id of the present call stack: C frames from `caller` outwards and Python frames, at most so many of each; defined when new.
 * 0: none.
 */
uint32_t stack_capture(struct writer *w, const void *caller, uint32_t c_depth,
		       uint32_t python_depth);

/*
 * As `caller` of an event that a driver tells us of by calling us: the stack begins where the program called the driver. Its objects are
 * made known before, one caller at a time.
 */
#define STACK_PAST_DRIVER ((const void *)1)
void stack_add_driver(uintptr_t start, size_t bytes);

/* The same as deep as an allocation's, for a caller many frames below the program's code: from the first frame on that is not ours. */
uint32_t stack_capture_deep(struct writer *w);

#endif
