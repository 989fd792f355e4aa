/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hook table as C: types and numbers of the originals, and the way to them. Adapters include this.
 */
#ifndef MSCOPE_COLLECTOR_HOOK_H
#define MSCOPE_COLLECTOR_HOOK_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/compiler.h"

struct drv_mem_handle;
struct drv_mem_prop;
struct c10_device;

/* What an mstx client hands to InitInjectionMstx(): gives the table of function slots of a module. */
typedef int mstx_get_table(int module, void (****out_table)(void), unsigned int *out_size);

/* The type of each original, and the prototype of our own function of that name. */
#define HOOK(library, name, return_type, parameters)                                               \
	typedef return_type hook_##name parameters;                                                \
	hook_##name name;
#include "collector/hooks.def"
#undef HOOK

enum hook {
#define HOOK(library, name, return_type, parameters) HOOK_##name,
#include "collector/hooks.def"
#undef HOOK
	HOOK_END
};

/* The originals, NULL until looked up. */
extern _Atomic(void *) hook_originals[HOOK_END];

/* Finds the original of a hook among the loaded objects. NULL when there is none; not searched again until more is loaded. */
void *hook_lookup_slow(unsigned int hook);

MSCOPE_INLINE void *hook_original(enum hook hook)
{
	void *original = atomic_load_explicit(&hook_originals[hook], memory_order_acquire);

	return MSCOPE_LIKELY(original != NULL) ? original : hook_lookup_slow(hook);
}

/* HOOK_ORIGINAL(halMemFree)(pp): may be NULL, callers check. */
#define HOOK_ORIGINAL(name) ((hook_##name *)hook_original(HOOK_##name))

#endif
