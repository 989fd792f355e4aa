/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the environment says about the simulated machine. Read once, at the first call that needs it.
 */
#ifndef SIMNPU_HAL_CONFIG_H
#define SIMNPU_HAL_CONFIG_H

#include <stdint.h>

enum {
	CONFIG_DEVICES_MAX = 32,
};

struct config {
	uint32_t device_count; /* SIMNPU_DEVICES, 1 to CONFIG_DEVICES_MAX */
	uint32_t card_devices; /* SIMNPU_CARD_DEVICES, how many of them one card carries */
	uint64_t hbm_bytes;    /* SIMNPU_HBM, memory of each device */
	uint64_t
		taken_bytes; /* SIMNPU_TAKEN, how much of it processes hold that are not simulated */
};

/* Never NULL. A variable that cannot be understood is reported in one line on stderr and its default holds. */
const struct config *config_get(void);

#endif
