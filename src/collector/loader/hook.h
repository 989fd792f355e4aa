/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hooks: functions that we define in the place of those of other libraries, and the way to the originals.
 *
 * A folder lists its hooks in a hooks.def of its own, one per line. CMake makes the version script of the library from all of these
 * lists, and a test compares them with what the library exports.
 *
 *     HOOK(library, name, return, (parameters))       library: where the original is expected, for the reader
 *
 * The folder's header declares them, so that each wrapper is checked against its line, and one of its sources defines them:
 *
 *     #define HOOK HOOK_DECLARE                       #define HOOK HOOK_DEFINE
 *     #include "collector/ascend/hooks.def"           #include "collector/ascend/hooks.def"
 *     #undef HOOK                                     #undef HOOK
 *
 * A slots.def lists in the same form, as SLOT(...), what is redirected in programs that do not have us preloaded (collector/got) and
 * never exported: our function of that name is slot_<name>.
 */
#ifndef MSCOPE_COLLECTOR_LOADER_HOOK_H
#define MSCOPE_COLLECTOR_LOADER_HOOK_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/compiler.h"

struct hook {
	_Atomic(void *) original;    /* NULL until it is found */
	_Atomic uint64_t missing_at; /* loader's count of loads + 1 when it was last not found */
	const char *name;
};

/* The type of the original, and the prototype of our own function of that name. */
#define HOOK_DECLARE(library, name, return_type, parameters)                                       \
	typedef return_type hook_##name parameters;                                                \
	hook_##name name;                                                                          \
	extern MSCOPE_HIDDEN struct hook hook_of_##name;

#define SLOT_DECLARE(library, name, return_type, parameters)                                       \
	typedef return_type hook_##name parameters;                                                \
	MSCOPE_HIDDEN hook_##name slot_##name;                                                     \
	extern MSCOPE_HIDDEN struct hook hook_of_##name;

#define HOOK_DEFINE(library, name_, return_type, parameters)                                       \
	struct hook hook_of_##name_ = {.name = #name_};

/* Finds the original among the loaded objects. NULL when there is none; not searched again until more is loaded. */
void *hook_lookup_slow(struct hook *hook);

MSCOPE_INLINE void *hook_original(struct hook *hook)
{
	void *original = atomic_load_explicit(&hook->original, memory_order_acquire);

	return MSCOPE_LIKELY(original != NULL) ? original : hook_lookup_slow(hook);
}

/* HOOK_ORIGINAL(halMemFree)(pp): may be NULL, callers check. */
#define HOOK_ORIGINAL(name) ((hook_##name *)hook_original(&hook_of_##name))

#endif
