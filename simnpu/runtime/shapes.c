/* SPDX-License-Identifier: Apache-2.0 */
#include "shapes.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "acl/acl_rt.h"
#include "runtime/rt.h"

/* Elements of the largest tensor that is computed, unless SIMNPU_SHAPES_COMPUTED says another number. */
#define COMPUTED_DEFAULT 4096

/* Larger copies to the host leave it as it is: a copy of a whole model would cost as much memory as the model. */
#define ZEROS_MAX (UINT64_C(1) << 20)

int64_t rtSimComputed(void)
{
	static _Atomic int64_t known; /* + 1 */
	int64_t value = atomic_load_explicit(&known, memory_order_relaxed);
	const char *text;

	if (value)
		return value - 1;
	text = getenv("SIMNPU_SHAPES");
	if (text && *text && strcmp(text, "0") != 0) {
		text = getenv("SIMNPU_SHAPES_COMPUTED");
		value = text && *text >= '0' && *text <= '9' ? strtoll(text, NULL, 10)
							     : COMPUTED_DEFAULT;
	} else {
		value = RT_SIM_ALL;
	}
	if (value > RT_SIM_ALL)
		value = RT_SIM_ALL;
	atomic_store_explicit(&known, value + 1, memory_order_relaxed);
	return value;
}

enum copy_way shapes_copy(uint64_t bytes, int32_t kind)
{
	const uint64_t element_max = 8;

	if (bytes / element_max <= (uint64_t)rtSimComputed() || kind == ACL_MEMCPY_HOST_TO_HOST)
		return COPY_IS_DONE;
	if (bytes <= ZEROS_MAX && (kind == ACL_MEMCPY_DEVICE_TO_HOST || kind == ACL_MEMCPY_DEFAULT))
		return COPY_IS_ZERO;
	return COPY_IS_SKIPPED;
}
