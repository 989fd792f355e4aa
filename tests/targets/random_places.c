/* SPDX-License-Identifier: Apache-2.0 */
/*
 * random_places --seed=N --steps=N [--healthy] [--clean]: a random program made of the shapes of tests/judge, on the simulated NPU.
 *
 * Up to six different shapes; each takes its blocks from PyTorch's pool on device 0, from the driver beside that pool, from the driver
 * on device 1, which no pool uses, or as pinned host memory. --healthy leaves out leaks and what no history can tell. --clean frees
 * everything behind the last step. Prints one line of JSON per place: shape, truth, where, blocks that it will never free, in how many
 * steps they were taken, and the addresses of all that live when the last step has ended.
 */
#include "target.h"

#include <stdio.h>

#include "../judge/shapes.h"
#include "acl/acl.h"
#include "mstx/ms_tools_ext.h"
#include "pool.h"

#define PLACES 6u

#define DO(call) target_check((call) == 0, #call " failed")

enum where { POOL, BESIDE, DRIVER, PINNED, WHERES };

static const char *const where_names[] = {"pool", "beside", "driver", "pinned"};

struct piece {
	void *address;
	uint32_t place;
	bool lives;
};

static struct piece *pieces;
static uint32_t piece_count, piece_room;
static struct spot places[PLACES];
static enum where where[PLACES];
static uint64_t random_state;

static uint64_t next_random(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state * UINT64_C(0x2545F4914F6CDD1D);
}

uint32_t below(uint32_t end)
{
	return end == 0 ? 0 : (uint32_t)((next_random() >> 33) % end);
}

uint32_t between(uint32_t first, uint32_t last)
{
	return first + below(last - first + 1);
}

double unit(void)
{
	return (double)(next_random() >> 11) / 9007199254740992.0;
}

bool chance(double probability)
{
	return unit() < probability;
}

uint32_t poisson(double mean)
{
	double left = mean;
	uint32_t count = 0;

	for (; left > 0; left -= 0.05)
		count += chance(0.05);
	return count;
}

uint32_t spot_take(struct spot *spot, uint64_t bytes)
{
	void *address = NULL;

	switch (where[spot->number]) {
	case POOL:
		address = pool_take(bytes);
		break;
	case BESIDE:
	case DRIVER:
		DO(halMemAlloc(&address, bytes, POOL_FLAG | (where[spot->number] == DRIVER)));
		break;
	default:
		DO(aclrtMallocHost(&address, bytes));
	}
	if (piece_count == piece_room) {
		piece_room = 2 * piece_room + 1024;
		pieces = realloc(pieces, piece_room * sizeof(*pieces));
		target_check(pieces != NULL, "no memory");
	}
	pieces[piece_count] = (struct piece){address, spot->number, true};
	return piece_count++;
}

void spot_leak(struct spot *spot, uint64_t bytes)
{
	(void)spot_take(spot, bytes);
	spot->leaked_steps += spot->step > 1 && spot->last_leak != spot->step;
	spot->last_leak = spot->step;
}

void spot_give(struct spot *spot, uint32_t block)
{
	void *address = pieces[block].address;

	pieces[block].lives = false;
	if (where[spot->number] == POOL)
		pool_give(address);
	else if (where[spot->number] == PINNED)
		DO(aclrtFreeHost(address));
	else
		DO(halMemFree(address));
}

/* Different shapes, so that each has a call stack of its own. */
static uint32_t choose(uint32_t steps, bool healthy)
{
	bool taken[128] = {false};
	uint32_t count = 0, wanted = between(2, PLACES);

	while (count < wanted) {
		uint32_t s = below(shape_count);

		if (s >= sizeof(taken) || taken[s] ||
		    (healthy && (shapes[s].truth != HEALTHY || shapes[s].still_fills)))
			continue;
		taken[s] = true;
		where[count] = (enum where)below(WHERES);
		places[count] = (struct spot){.number = count,
					      .shape = &shapes[s],
					      .steps = steps,
					      .size = between(1, 16) * 512};
		count++;
	}
	return count;
}

static void tell(uint32_t count)
{
	static const char *const truths[] = {"leaking", "healthy", "open"};
	uint32_t i, k;

	for (i = 0; i < count; i++) {
		const char *comma = "";

		printf("{\"shape\": \"%s\", \"truth\": \"%s\", \"where\": \"%s\", "
		       "\"leaked_steps\": %u, "
		       "\"still_fills\": %s, \"varies\": %s, \"addresses\": [",
		       places[i].shape->name, truths[places[i].shape->truth], where_names[where[i]],
		       places[i].leaked_steps, places[i].shape->still_fills ? "true" : "false",
		       places[i].shape->varies ? "true" : "false");
		for (k = 0; k < piece_count; k++) {
			if (!pieces[k].lives || pieces[k].place != i)
				continue;
			printf("%s%llu", comma, (unsigned long long)(uintptr_t)pieces[k].address);
			comma = ", ";
		}
		printf("]}\n");
	}
}

static unsigned long long option(int argc, char **argv, const char *name,
				 unsigned long long standard)
{
	size_t length = strlen(name);

	for (int i = 1; i < argc; i++) {
		if (strncmp(argv[i], name, length) != 0)
			continue;
		return argv[i][length] == '=' ? strtoull(argv[i] + length + 1, NULL, 10) : 1;
	}
	return standard;
}

int main(int argc, char **argv)
{
	uint32_t steps = (uint32_t)option(argc, argv, "--steps", 20), step, count, i;

	random_state = UINT64_C(88172645463325252) ^
		       option(argc, argv, "--seed", 1) * UINT64_C(0x9e3779b97f4a7c15);
	for (i = 0; i < 16; i++)
		(void)next_random();
	DO(aclInit(NULL));
	DO(aclrtSetDevice(0));
	pool_open();
	count = choose(steps, option(argc, argv, "--healthy", 0) != 0);
	for (step = 1; step <= steps; step++) {
		uint64_t range = mstxRangeStartA("step start", NULL);

		for (i = 0; i < count; i++) {
			places[i].step = step;
			places[i].shape->step(&places[i]);
		}
		mstxRangeEnd(range);
	}
	tell(count);
	for (i = 0; i < piece_count && option(argc, argv, "--clean", 0) != 0; i++) {
		if (pieces[i].lives)
			spot_give(&places[pieces[i].place], i);
	}
	return 0;
}
