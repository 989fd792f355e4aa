/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/map.h"

static void map_finds_what_was_put(void **state)
{
	struct map map = {0};
	(void)state;

	assert_null(map_get(&map, (struct map_key){1, 2}));
	assert_int_equal(map_put(&map, (struct map_key){1, 2}, 42), 0);
	assert_int_equal(*map_get(&map, (struct map_key){1, 2}), 42);
	map_fini(&map);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(map_finds_what_was_put),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
