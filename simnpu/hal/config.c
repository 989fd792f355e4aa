/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HBM_MIN (1ULL << 12)
#define HBM_MAX (1ULL << 40)

static struct config config = {
	.device_count = 8,
	.card_devices = 1,
	.hbm_bytes = 64ULL << 30,
};

/* A whole number with an optional K, M, G or T (powers of 1024). 0 for anything else: no variable here may be 0. */
static uint64_t parse_size(const char *text)
{
	static const char units[] = "kmgt";
	unsigned shift = 0;
	const char *unit;
	uint64_t value;
	char *end;

	/* strtoull() would take a sign or blanks. */
	if (*text < '0' || *text > '9')
		return 0;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno)
		return 0;
	if (*end) {
		unit = strchr(units, *end | 0x20);
		if (!unit || end[1])
			return 0;
		shift = 10 * (unsigned)(unit - units + 1);
	}
	if (value > UINT64_MAX >> shift)
		return 0;
	return value << shift;
}

static uint64_t read_variable(const char *name, uint64_t min, uint64_t max, uint64_t standard,
			      const char *range)
{
	const char *text = getenv(name);
	uint64_t value;

	if (!text || !*text)
		return standard;
	value = parse_size(text);
	if (value >= min && value <= max)
		return value;
	(void)fprintf(stderr, "simnpu: %s=%s is not %s, the default is used\n", name, text, range);
	return standard;
}

static void read_environment(void)
{
	config.device_count = (uint32_t)read_variable("SIMNPU_DEVICES", 1, CONFIG_DEVICES_MAX,
						      config.device_count, "from 1 to 32");
	config.card_devices = (uint32_t)read_variable("SIMNPU_CARD_DEVICES", 1, CONFIG_DEVICES_MAX,
						      config.card_devices, "from 1 to 32");
	config.hbm_bytes = read_variable("SIMNPU_HBM", HBM_MIN, HBM_MAX, config.hbm_bytes,
					 "a size from 4K to 1T such as 64G");
	config.taken_bytes =
		read_variable("SIMNPU_TAKEN", 1, config.hbm_bytes, 0, "a size up to SIMNPU_HBM");
}

const struct config *config_get(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	(void)pthread_once(&once, read_environment);
	return &config;
}
