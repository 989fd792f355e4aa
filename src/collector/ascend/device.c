/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which device is meant, and Ascend as a vendor: what the rest of the collector calls.
 */
#include "collector/ascend/ascend.h"

#include <stdlib.h>

#define HOOK HOOK_DEFINE
#include "collector/ascend/hooks.def"
#undef HOOK

#define VISIBLE_MAX 64u

/* Logical to physical numbers, from the environment; read once. */
static uint32_t visible[VISIBLE_MAX];
static uint32_t visible_count;
static _Atomic uint32_t visible_read;

static _Atomic(void *) get_device; /* int (*)(int32_t *); NULL: not found yet */
static _Atomic uint32_t get_device_is_logical;

/* An item that is no number makes the whole list invalid, as in the runtime. */
static uint32_t read_visible(void)
{
	const char *at = getenv("ASCEND_RT_VISIBLE_DEVICES");
	uint32_t count = 0;

	if (at == NULL || *at == '\0')
		return 0;
	for (;;) {
		char *end;
		unsigned long value;

		while (*at == ' ' || *at == '\t')
			at++;
		if (*at < '0' || *at > '9')
			return 0;
		value = strtoul(at, &end, 10);
		while (*end == ' ' || *end == '\t')
			end++;
		if (value > 1023 || (*end != ',' && *end != '\0') || count == VISIBLE_MAX)
			return 0;
		visible[count++] = (uint32_t)value;
		if (*end == '\0')
			return count;
		at = end + 1;
	}
}

uint32_t ascend_physical_device(uint32_t logical)
{
	/* Threads that come at the same time read and store the same. */
	if (atomic_load_explicit(&visible_read, memory_order_acquire) == 0) {
		visible_count = read_visible();
		atomic_store_explicit(&visible_read, 1, memory_order_release);
	}
	return logical < visible_count ? visible[logical] : logical;
}

uint32_t ascend_current_device(void)
{
	void *function = atomic_load_explicit(&get_device, memory_order_acquire);
	int32_t device = -1;

	if (function == NULL) {
		function = lookup_symbol("aclrtGetDeviceImpl");
		atomic_store(&get_device_is_logical, function != NULL);
		if (function == NULL)
			function = lookup_symbol("rtGetDevice");
		if (function == NULL)
			return DEVICE_UNKNOWN;
		atomic_store_explicit(&get_device, function, memory_order_release);
	}
	if (((int (*)(int32_t *))function)(&device) != 0 || device < 0)
		return DEVICE_UNKNOWN;
	return atomic_load(&get_device_is_logical) ? ascend_physical_device((uint32_t)device)
						   : (uint32_t)device;
}

uint32_t ascend_context(struct writer *w, uint32_t device)
{
	return writer_device(w, device_key(VENDOR_ASCEND, device));
}

/* ---- as a vendor ---- */

static struct lookup_function runtime_count = {.name = "aclrtGetDeviceCount"};
static struct lookup_function driver_count = {.name = "drvGetDevNum"};

/* A program may use the driver alone, which shows all devices. */
static uint32_t count(void)
{
	int (*function)(uint32_t *) = (int (*)(uint32_t *))lookup_function(&runtime_count);
	uint32_t devices = 0;

	if (function == NULL)
		function = (int (*)(uint32_t *))lookup_function(&driver_count);
	(void)ascend_physical_device(0);
	if (function == NULL || function(&devices) != 0)
		return 0;
	return visible_count != 0 && visible_count < devices ? visible_count : devices;
}

static void reset(void)
{
	atomic_store(&visible_read, 0);
	pool_reset();
	stars_reset();
	launch_reset();
	device_memory_reset();
	lookup_forget(&runtime_count);
	lookup_forget(&driver_count);
}

const struct vendor_ops ascend_vendor = {
	.driver = "halMemAlloc",
	.current_device = ascend_current_device,
	.physical_device = ascend_physical_device,
	.count = count,
	.reset = reset,
	.begin = pools_begin,
	.collect = stars_collect,
	.exit = stars_stop,
	.wait = device_memory_wait,
	.device_of = device_memory_owner,
	.copy = device_memory_copy,
	.memory = device_memory_left,
};
