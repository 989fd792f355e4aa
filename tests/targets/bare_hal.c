/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in driver with nothing inside but a bitmap: no locks, no allocation, no system calls. So it can be called in signal
 * handlers and in children of raw clone, where the simulated NPU could not be. It has the public names only, as an old
 * driver without the Inner ones; built with WITHOUT_CREATE it lacks create and release as well.
 *
 * Addresses are numbers that nobody may touch. The lowest free slot is handed out, so addresses come back at once.
 * BARE_SLOTS limits the slots of a device (4096).
 */
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#include "ascend_hal.h"

#define DEVICES	 8
#define WORDS	 64
#define BASE	 0x120000000000ull
#define HANDLES	 0x130000000000ull
#define SLOT	 ((uint64_t)2 << 20)
#define LARGEST	 ((uint64_t)1 << 40)
#define NO_SLOT	 UINT64_MAX
#define EVERYONE UINT64_MAX

/* A set bit is a slot in use. One table for addresses, one for handles. */
static _Atomic uint64_t slots[2][DEVICES][WORDS];
static uint64_t slots_count = (uint64_t)WORDS * 64;

__attribute__((constructor)) static void read_settings(void)
{
	const char *text = getenv("BARE_SLOTS");

	if (text != NULL)
		slots_count = strtoull(text, NULL, 10);
}

static uint64_t take(_Atomic uint64_t *words)
{
	for (uint64_t i = 0; i < slots_count; i = (i | 63) + 1) {
		uint64_t used = atomic_load(&words[i / 64]);

		while (used != EVERYONE) {
			uint64_t bit = (uint64_t)__builtin_ctzll(~used);

			if (i + bit >= slots_count)
				return NO_SLOT;
			if (atomic_compare_exchange_weak(&words[i / 64], &used,
							 used | (uint64_t)1 << bit))
				return i + bit;
		}
	}
	return NO_SLOT;
}

/* 0 or invalid value; the base's region holds all devices one after the other. */
static drvError_t give_back(_Atomic uint64_t (*table)[WORDS], uint64_t base, uint64_t address)
{
	uint64_t slot = (address - base) / SLOT;
	uint64_t bit = (uint64_t)1 << slot % 64;

	if (address < base || (address - base) % SLOT != 0 ||
	    slot >= (uint64_t)DEVICES * WORDS * 64)
		return DRV_ERROR_INVALID_VALUE;
	return atomic_fetch_and(&table[slot / 64 / WORDS][slot / 64 % WORDS], ~bit) & bit
		       ? DRV_ERROR_NONE
		       : DRV_ERROR_INVALID_VALUE;
}

static drvError_t hand_out(unsigned table, uint64_t base, unsigned device, uint64_t size,
			   uint64_t *out_address)
{
	uint64_t slot;

	if (device >= DEVICES)
		return DRV_ERROR_INVALID_DEVICE;
	if (size > LARGEST)
		return DRV_ERROR_OUT_OF_MEMORY;
	slot = take(slots[table][device]);
	if (slot == NO_SLOT)
		return DRV_ERROR_OUT_OF_MEMORY;
	*out_address = base + ((uint64_t)device * WORDS * 64 + slot) * SLOT;
	return DRV_ERROR_NONE;
}

drvError_t halMemAlloc(void **pp, unsigned long long size, unsigned long long flag)
{
	uint64_t address;
	drvError_t code = hand_out(0, BASE, (unsigned)(flag & 0x3ff), size, &address);

	if (code == 0)
		*pp = (void *)(uintptr_t)address;
	return code;
}

/* A program sets it to 1: the next free waits inside (2) until another one is done (3). */
_Atomic int bare_free_waits;

drvError_t halMemFree(void *pp)
{
	int state = 1;
	drvError_t code;

	if (atomic_compare_exchange_strong(&bare_free_waits, &state, 2)) {
		while (atomic_load(&bare_free_waits) == 2)
			;
		return give_back(slots[0], BASE, (uint64_t)(uintptr_t)pp);
	}
	code = give_back(slots[0], BASE, (uint64_t)(uintptr_t)pp);
	if (state == 2)
		atomic_store(&bare_free_waits, 3);
	return code;
}

#ifndef WITHOUT_CREATE
drvError_t halMemCreate(struct drv_mem_handle **handle, size_t size,
			const struct drv_mem_prop *prop, uint64_t flag)
{
	uint64_t address;
	drvError_t code = hand_out(1, HANDLES, prop->devid, size, &address);
	(void)flag;

	if (code == 0)
		*handle = (struct drv_mem_handle *)(uintptr_t)address;
	return code;
}

drvError_t halMemRelease(struct drv_mem_handle *handle)
{
	return give_back(slots[1], HANDLES, (uint64_t)(uintptr_t)handle);
}
#endif
