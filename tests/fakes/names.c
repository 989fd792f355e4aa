/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which function a name means: "cuMemAlloc" is cuMemAlloc_v2, and with the per-thread default stream cuMemAllocAsync is
 * cuMemAllocAsync_ptsz. The addresses are the driver's own: a program that asks here gets past whatever is preloaded.
 */
#include "driver.h"

struct function {
	uint32_t cbid;
	const char *name;
	void *address;
};

#define FUNCTION(cbid, name) extern char name[];
#include "functions.def"
#undef FUNCTION

static const struct function functions[] = {
#define FUNCTION(cbid, name) {cbid, #name, name},
#include "functions.def"
#undef FUNCTION
};

static const struct function *find(const char *name, const char *suffix)
{
	char whole[128];
	size_t i;

	(void)snprintf(whole, sizeof(whole), "%s%s", name, suffix);
	for (i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		if (strcmp(functions[i].name, whole) == 0)
			return &functions[i];
	}
	return NULL;
}

void *driver_function(const char *name, bool per_thread)
{
	static const char *const suffixes[] = {"_ptsz", "_v4", "_v3", "_v2", ""};
	size_t i;

	for (i = per_thread ? 0 : 1; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
		const struct function *function = find(name, suffixes[i]);

		if (function != NULL)
			return function->address;
	}
	return NULL;
}

FAKE_EXPORT const char *fake_cuda_name(uint32_t cbid)
{
	size_t i;

	for (i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		if (cbid != 0 && functions[i].cbid == cbid)
			return functions[i].name;
	}
	return NULL;
}
