/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The vendors of devices, as the rest of the collector sees them. Each row of base/vendors.def has a folder here of that name, with
 *
 *     hooks.def            what it hooks, if anything (loader/hook.h)
 *     <name>_vendor        the operations below
 *
 * and nothing outside the folder names it but the row and the lists of CMakeLists.txt. Vendors do not include one another.
 */
#ifndef MSCOPE_COLLECTOR_VENDOR_H
#define MSCOPE_COLLECTOR_VENDOR_H

#include <stdbool.h>

#include "base/compiler.h"
#include "base/vendors.h"
#include "trace/context.h"

struct writer;

/* What a vendor can do; a member that is NULL it cannot. Any thread may call any of them, outside the record path. */
struct vendor_ops {
	/* A function that the driver defines: where there is one, the driver is loaded. */
	const char *driver;
	/* The device that the calling thread has set, as the driver numbers it; DEVICE_UNKNOWN: none. Asks the runtime. */
	uint32_t (*current_device)(void);
	/* The driver's number of a device that the program calls `logical`. NULL: the same number. */
	uint32_t (*physical_device)(uint32_t logical);
	/* How many devices the runtime shows to this process; 0: none, or no runtime is loaded. */
	uint32_t (*count)(void);
	/* In a forked child, before it records anything: forgets what was the parent's. */
	void (*reset)(void);
	/* Recording begins in a process whose live blocks were kept before: writes what else of that time matters. */
	void (*begin)(struct writer *w);
	/* A window begins or ends: takes what devices have finished until now, quickly. */
	void (*collect)(void);
	/* The process ends by itself: takes what is still to be had, quickly. */
	void (*exit)(void);
	/*
	 * Waits until what was handed to the stream is done; without one (`has_stream` false) for all of the present device.
	 * -EBUSY: it is being captured into a graph, and waiting would break that; -ENOSYS: no runtime is loaded; -EIO: it failed.
	 */
	int (*wait)(void *stream, bool has_stream);
	/*
	 * What the driver says that a device has left and has in all. Also called when the driver has just refused memory, on the
	 * thread that asked: takes no lock of a framework or an interpreter, and uses no device that the thread has not set. False:
	 * unknown.
	 */
	bool (*memory)(uint32_t device, uint64_t *out_free, uint64_t *out_total);
	/* The device, as the program numbers it, whose memory an address is in; DEVICE_UNKNOWN: of none, or nobody can tell. */
	uint32_t (*device_of)(uint64_t address);
	/* Copies from the device. Returns how many bytes, fewer when the rest cannot be read; -ENOSYS, -EIO: it failed. */
	int64_t (*copy)(void *out, uint64_t address, size_t bytes);
	/*
	 * checksum_add(0, chunk) of each CHECKSUM_CHUNK bytes from the address on, by the device itself; the last may be shorter. 0, or
	 * -ENOSYS, -EIO: it cannot, and the memory is to be copied.
	 */
	int (*sums)(uint64_t address, uint64_t bytes, uint64_t *out);
};

#define VENDOR(number, symbol, name, suffix, owner, sampled, c10, word)                            \
	extern const struct vendor_ops name##_vendor;
#include "base/vendors.def"
#undef VENDOR

/* The operations of a vendor. Of one without a row: none. */
const struct vendor_ops *vendor_ops(uint32_t vendor);

/* A device of any vendor, in one word: vendor:8 device:32. */
MSCOPE_INLINE uint64_t device_key(uint32_t vendor, uint32_t device)
{
	return (uint64_t)vendor << 32 | device;
}

MSCOPE_INLINE uint8_t device_key_vendor(uint64_t key)
{
	return (uint8_t)(key >> 32);
}

/* No device at all; traces name the first vendor for it. */
#define DEVICE_KEY_NONE device_key(VENDOR_FIRST, DEVICE_UNKNOWN)

/* The device that the calling thread has set, of the first vendor that knows one; else DEVICE_KEY_NONE. */
uint64_t vendor_current_device(void);

/* The device whose memory an address is in, as the runtimes that are loaded say; else DEVICE_KEY_NONE. */
uint64_t vendor_of_address(uint64_t address);

/* A device by the number that the program has for it. */
uint64_t vendor_device(uint32_t vendor, uint32_t logical);

/* A device as PyTorch has it: c10's number of its type above bit 8, its own number below. Of an unknown type: the host. */
uint64_t vendor_torch_device(uint32_t device);

/* For the process: reset(), begin(), collect() and exit() of each. */
void vendors_reset(void);
void vendors_begin(struct writer *w);
void vendors_collect(void);
void vendors_exit(void);

#endif
