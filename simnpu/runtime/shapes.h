/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SIMNPU_SHAPES=1: programs are run for their memory and not for their results. Only what is small is computed and copied, so that nobody
 * touches the rest of a device's memory and it costs no memory of the host (rtSimComputed() in runtime/rt.h).
 */
#ifndef SIMNPU_RUNTIME_SHAPES_H
#define SIMNPU_RUNTIME_SHAPES_H

#include <stdint.h>

enum copy_way {
	COPY_IS_DONE,
	COPY_IS_ZERO, /* to the host, which may read it: zeros instead of what the device does not have */
	COPY_IS_SKIPPED,
};

/* What is to be done with a copy of these bytes; `kind` is aclrtMemcpyKind. */
enum copy_way shapes_copy(uint64_t bytes, int32_t kind);

#endif
