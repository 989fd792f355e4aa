/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers that are the same in every run, for judge.c and forecast.c. */
#include <math.h>

#include "shapes.h"

uint64_t chance_state = 88172645463325252u;

uint64_t chance_next(void)
{
	chance_state ^= chance_state << 13;
	chance_state ^= chance_state >> 7;
	chance_state ^= chance_state << 17;
	return chance_state * UINT64_C(0x2545F4914F6CDD1D);
}

uint32_t below(uint32_t end)
{
	return end == 0 ? 0 : (uint32_t)((chance_next() >> 33) % end);
}

uint32_t between(uint32_t first, uint32_t last)
{
	return first + below(last - first + 1);
}

double unit(void)
{
	return (double)(chance_next() >> 11) / 9007199254740992.0;
}

bool chance(double probability)
{
	return unit() < probability;
}

uint32_t poisson(double mean)
{
	double end = exp(-mean), product = unit();
	uint32_t count = 0;

	while (product > end) {
		count++;
		product *= unit();
	}
	return count;
}
