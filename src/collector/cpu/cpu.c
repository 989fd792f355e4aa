/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host as a vendor: there is nothing to wait for, its memory is read directly, and the kernel says how much is left.
 */
#include <string.h>

#include "collector/memory.h"
#include "collector/sys.h"
#include "collector/vendor.h"

static int wait_for(void *stream, bool has_stream)
{
	(void)stream;
	(void)has_stream;
	return 0;
}

static int64_t copy(void *out, uint64_t address, size_t bytes)
{
	return (int64_t)memory_read(out, address, bytes);
}

/* The number behind a key of /proc/meminfo, in bytes; 0: it is not there. */
static uint64_t value_of(const char *text, const char *key)
{
	const char *at = strstr(text, key);
	uint64_t kib = 0;

	if (at == NULL)
		return 0;
	for (at += strlen(key); *at == ' '; at++)
		;
	for (; *at >= '0' && *at <= '9'; at++)
		kib = kib * 10 + (uint64_t)(*at - '0');
	return kib << 10;
}

static bool memory(uint32_t device, uint64_t *out_free, uint64_t *out_total)
{
	int fd = sys_open("/proc/meminfo", O_RDONLY | O_CLOEXEC, 0);
	char text[512]; /* the figures that matter come first */
	ssize_t got;

	(void)device;
	if (fd < 0)
		return false;
	got = sys_read(fd, text, sizeof(text) - 1);
	sys_close(fd);
	text[got > 0 ? got : 0] = '\0';
	*out_total = value_of(text, "MemTotal:");
	*out_free = value_of(text, "MemAvailable:");
	return *out_total != 0 && *out_free != 0;
}

const struct vendor_ops cpu_vendor = {
	.wait = wait_for,
	.copy = copy,
	.memory = memory,
};
