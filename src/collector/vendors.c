/* SPDX-License-Identifier: Apache-2.0 */
#include "collector/vendor.h"

struct row {
	const struct vendor_ops *ops;
	int c10; /* c10::DeviceType, -1: none */
};

static const struct row rows[VENDOR_END] = {
#define VENDOR(number, symbol, name, suffix, owner, sampled, c10, word)                            \
	[number] = {&name##_vendor, c10},
#include "base/vendors.def"
#undef VENDOR
};

const struct vendor_ops *vendor_ops(uint32_t vendor)
{
	static const struct vendor_ops none;

	return vendor < VENDOR_END && rows[vendor].ops != NULL ? rows[vendor].ops : &none;
}

uint64_t vendor_current_device(void)
{
	uint32_t vendor;

	for (vendor = VENDOR_FIRST; vendor < VENDOR_END; vendor++) {
		const struct vendor_ops *ops = vendor_ops(vendor);
		uint32_t device =
			ops->current_device == NULL ? DEVICE_UNKNOWN : ops->current_device();

		if (device != DEVICE_UNKNOWN)
			return device_key(vendor, device);
	}
	return DEVICE_KEY_NONE;
}

uint64_t vendor_of_address(uint64_t address)
{
	uint32_t vendor;

	for (vendor = VENDOR_FIRST; vendor < VENDOR_END; vendor++) {
		const struct vendor_ops *ops = vendor_ops(vendor);
		uint32_t device = ops->device_of == NULL ? DEVICE_UNKNOWN : ops->device_of(address);

		if (device != DEVICE_UNKNOWN)
			return vendor_device(vendor, device);
	}
	return DEVICE_KEY_NONE;
}

uint64_t vendor_device(uint32_t vendor, uint32_t logical)
{
	const struct vendor_ops *ops = vendor_ops(vendor);

	return device_key(vendor,
			  ops->physical_device == NULL ? logical : ops->physical_device(logical));
}

uint64_t vendor_torch_device(uint32_t device)
{
	uint32_t vendor;

	for (vendor = VENDOR_FIRST; vendor < VENDOR_END; vendor++) {
		if (vendor != VENDOR_CPU && rows[vendor].c10 == (int)(device >> 8))
			return vendor_device(vendor, device & 0xff);
	}
	return device_key(VENDOR_CPU, DEVICE_HOST);
}

void vendors_reset(void)
{
	uint32_t vendor;

	for (vendor = VENDOR_FIRST; vendor < VENDOR_END; vendor++) {
		if (vendor_ops(vendor)->reset != NULL)
			vendor_ops(vendor)->reset();
	}
}

void vendors_begin(struct writer *w)
{
	uint32_t vendor;

	for (vendor = VENDOR_FIRST; vendor < VENDOR_END; vendor++) {
		if (vendor_ops(vendor)->begin != NULL)
			vendor_ops(vendor)->begin(w);
	}
}

void vendors_collect(void)
{
	uint32_t vendor;

	for (vendor = VENDOR_FIRST; vendor < VENDOR_END; vendor++) {
		if (vendor_ops(vendor)->collect != NULL)
			vendor_ops(vendor)->collect();
	}
}

void vendors_exit(void)
{
	uint32_t vendor;

	for (vendor = VENDOR_FIRST; vendor < VENDOR_END; vendor++) {
		if (vendor_ops(vendor)->exit != NULL)
			vendor_ops(vendor)->exit();
	}
}
