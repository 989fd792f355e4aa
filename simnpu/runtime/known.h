/* SPDX-License-Identifier: Apache-2.0 */
/*
 * With SIMNPU_SHAPES=1: which bytes of devices hold values that were computed, and who hears when the program reads others. Ranges are known
 * after small copies from the host and after operators that computed with known ones; everything else is unknown. rtSimKnow() and its
 * neighbours in runtime/rt.h are the rest of it. Any thread may call; one lock.
 */
#ifndef SIMNPU_RUNTIME_KNOWN_H
#define SIMNPU_RUNTIME_KNOWN_H

#include <stdint.h>

#include "shapes.h"

/* A copy was made in this way; `kind` is aclrtMemcpyKind. */
void known_copied(void *dst, const void *src, uint64_t bytes, int32_t kind, enum copy_way way);

/* On the thread of the program, after it has waited: says to the listener what was read since. */
void known_tell(void);

#endif
