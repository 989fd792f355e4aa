/* SPDX-License-Identifier: Apache-2.0 */
/* SIMNPU_SHAPES=1: which bytes of the simulated NPU are known, and who hears of reads of others. */
#include <stdlib.h>

#include "unit.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "acl/acl_rt.h"
#include "runtime/rt.h"

#define BYTES 512u
#define TURNS 20000

static uint32_t heard[8];
static size_t heard_count;

static void listen(uint32_t kind, const char *name)
{
	(void)name;
	if (heard_count < sizeof(heard) / sizeof(heard[0]))
		heard[heard_count] = kind;
	heard_count++;
}

/* Against a flag for each byte. */
static void ranges_are_known_byte_by_byte(void **state)
{
	static unsigned char memory[BYTES];
	bool model[BYTES] = {false};
	uint32_t seed = 1, turn, i;
	(void)state;

	for (turn = 0; turn < TURNS; turn++) {
		uint32_t begin, bytes;
		bool all = true, known;

		seed = seed * 1664525u + 1013904223u;
		begin = (seed >> 8) % BYTES;
		bytes = (seed >> 20) % (BYTES - begin);
		known = seed >> 31;
		for (i = begin; i < begin + bytes; i++)
			all = all && model[i];
		assert_int_equal(rtSimIsKnown(memory + begin, bytes), all);
		/* Short ones, so that there are many. */
		bytes = bytes % 24;
		rtSimKnow(memory + begin, bytes, known);
		for (i = begin; i < begin + bytes; i++)
			model[i] = known;
	}
}

static void copies_carry_what_is_known(void **state)
{
	static unsigned char device[256 << 10], other[64], host[256 << 10];
	(void)state;

	rtSimListen(listen);
	heard_count = 0;
	assert_int_equal(rtMemcpy(device, 64, host, 64, ACL_MEMCPY_HOST_TO_DEVICE), 0);
	assert_int_equal(rtMemcpy(other, 64, device, 64, ACL_MEMCPY_DEVICE_TO_DEVICE), 0);
	assert_int_equal(rtMemcpy(host, 64, other, 64, ACL_MEMCPY_DEVICE_TO_HOST), 0);
	assert_int_equal(heard_count, 0);
	/* Beyond what is known; and from a copy that is too large to be made. */
	assert_int_equal(rtMemcpy(host, 65, device, 65, ACL_MEMCPY_DEVICE_TO_HOST), 0);
	assert_int_equal(heard_count, 1);
	assert_int_equal(heard[0], RT_SIM_READ_ZERO);
	device[100] = 7;
	assert_int_equal(rtMemcpy(host, 8, device + 100, 8, ACL_MEMCPY_DEVICE_TO_HOST), 0);
	assert_int_equal(heard[1], RT_SIM_READ);
	assert_int_equal(
		rtMemcpy(device, sizeof(device), host, sizeof(device), ACL_MEMCPY_HOST_TO_DEVICE),
		0);
	assert_int_equal(rtMemcpy(host, 64, device, 64, ACL_MEMCPY_DEVICE_TO_HOST), 0);
	assert_int_equal(heard_count, 3);
	assert_int_equal(rtMemset(device, 64, 0, 64), 0);
	assert_int_equal(rtMemcpy(host, 64, device, 64, ACL_MEMCPY_DEVICE_TO_HOST), 0);
	assert_int_equal(heard_count, 3);
	rtSimListen(NULL);
	rtSimUnknown(RT_SIM_FULL, "aclnnNonzero");
	assert_int_equal(rtMemcpy(host, 64, device, 64, ACL_MEMCPY_DEVICE_TO_HOST), 0);
	assert_int_equal(heard_count, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranges_are_known_byte_by_byte),
		cmocka_unit_test(copies_carry_what_is_known),
	};

	(void)setenv("SIMNPU_SHAPES", "1", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
