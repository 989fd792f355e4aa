/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oom: asks for more than a small device has (SIMNPU_HBM), again and again, by both ways; what is refused leaves no row and
 * the address variable alone. Also asks for what no device has. The codes go to stderr.
 */
#include <stdio.h>

#include "target.h"

#define SIZE ((uint64_t)16 << 20)

int main(void)
{
	struct truth *truth = truth_new(4096);
	struct drv_mem_prop prop = {.side = 1, .module_id = 33, .pg_type = 1};
	unsigned refused = 0;

	for (unsigned round = 0; round < 4; round++) {
		struct block *blocks[64];
		unsigned count = 0;
		drvError_t code;

		for (;;) {
			void *address = &address;
			void *const before = address;

			code = halMemAlloc(&address, SIZE, FLAG_HUGE);
			if (code != 0) {
				target_check(address == before || address == NULL,
					     "a refused address");
				break;
			}
			target_check(count < 64, "SIMNPU_HBM must be set to less than 1 GiB");
			blocks[count++] = truth_add_flag(truth, address, SIZE, FLAG_HUGE);
		}
		fprintf(stderr, "%u\n", code);
		for (unsigned i = 0; i < 10; i++) {
			struct drv_mem_handle *handle = NULL;
			void *address = NULL;

			fprintf(stderr, "%u ", halMemAlloc(&address, SIZE, FLAG_NORMAL));
			fprintf(stderr, "%u ", halMemCreate(&handle, SIZE, &prop, 0));
			fprintf(stderr, "%u\n",
				halMemAlloc(&address, (uint64_t)1 << 41, FLAG_NORMAL));
			refused += 3;
		}
		for (unsigned i = 0; i < count; i++)
			if (round < 3 || i % 2 == 0)
				truth_free(truth, blocks[i]);
	}
	target_check(refused == 120, "the loop is wrong");
	truth_write();
	return 0;
}
