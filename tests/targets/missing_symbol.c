/* SPDX-License-Identifier: Apache-2.0 */
/*
 * missing_symbol: runs on a driver without halMemCreate, as old ones are. A collector that exports that name is called in its
 * place and must say "not there" each time, without looking again: a lookup that fails makes the C library allocate, so this
 * program counts the calls of malloc. Exits 0 also without a collector, where the weak name is simply absent.
 */
#include "target.h"

#pragma weak halMemCreate

extern void *__libc_malloc(size_t size);

static atomic_uint mallocs;

void *malloc(size_t size)
{
	atomic_fetch_add(&mallocs, 1);
	return __libc_malloc(size);
}

int main(void)
{
	struct truth *truth = truth_new(2000);
	struct drv_mem_prop prop = {.side = 1, .module_id = 33};
	struct drv_mem_handle *handle = NULL;
	unsigned before;
	drvError_t code = DRV_ERROR_NONE;

	truth_alloc(truth, 100, FLAG_NORMAL);
	if (halMemCreate != NULL) {
		code = halMemCreate(&handle, CREATE_UNIT, &prop, 0);
		target_check(code != 0 && handle == NULL, "memory from nowhere");
		before = atomic_load(&mallocs);
		for (unsigned i = 0; i < 10000; i++)
			target_check(halMemCreate(&handle, CREATE_UNIT, &prop, 0) == code &&
					     handle == NULL,
				     "the answer changed");
		target_check(atomic_load(&mallocs) == before, "the name was looked up again");
	}
	for (unsigned i = 0; i < 500; i++)
		truth_alloc(truth, 100 + i, FLAG_NORMAL);
	truth_write();
	return 0;
}
