/* SPDX-License-Identifier: Apache-2.0 */
/*
 * planted --seed=N --plant=KIND: a random program on the simulated NPU, and the same with one difference planted into it. Steps have
 * the same items: blocks are taken, a kernel is launched, blocks are given back before it, behind it, at the end of the step, one
 * step later, or never. Memory is PyTorch's pool or the driver's, by the seed.
 *
 * Kinds: none; kept (one block is given back at the end of the program only); forgotten (never); larger (one block is larger); added
 * (an item more); removed (one less); order (two items that follow each other are swapped). The random numbers that make the program
 * are the same for each of them.
 *
 * Prints one line of JSON: the function that takes the planted block, "" if there is none; the kernel of the planted item, and for
 * `order` of both; the kernel before which the block is given back otherwise, "" for none; sizes.
 */
#include "target.h"

#include <stdio.h>

#include "acl/acl.h"
#include "mstx/ms_tools_ext.h"
#include "pool.h"
#include "simnpu.h"

#define PLACES	  8u
#define KERNELS	  8u
#define ITEMS_MAX 16u

#define DO(call) target_check((call) == 0, #call " failed")

enum lifetime { BEFORE, BEHIND, STEP, NEXT, ALWAYS, LIFETIMES, NO_BLOCK };

enum plant { NONE, KEPT, FORGOTTEN, LARGER, ADDED, REMOVED, ORDER, PLANTS };

static const char *const plant_names[] = {"none",  "kept",    "forgotten", "larger",
					  "added", "removed", "order"};

/* A block, a kernel, and when the block goes. */
struct item {
	uint32_t place;
	uint32_t kernel;
	uint64_t bytes;
	enum lifetime lifetime;
	bool planted;
	void *held; /* by ALWAYS and NEXT */
};

static struct item items[ITEMS_MAX];
static uint32_t item_count;
static uint64_t random_state;
static bool uses_pool;
static void *kernels[KERNELS];
static char kernel_names[KERNELS + 1][32];

/* What is planted, and what came of it. */
static enum plant plant;
static uint32_t plant_step, plant_item;
static uint32_t freed_before = KERNELS, order_kernel = KERNELS;
static bool wait_for_launch;
static void *kept;

static uint32_t below(uint32_t end)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (uint32_t)((random_state * UINT64_C(0x2545F4914F6CDD1D) >> 33) % end);
}

static __attribute__((noinline)) void *driver_take(uint64_t bytes)
{
	void *address = NULL;

	DO(halMemAlloc(&address, bytes, POOL_FLAG));
	return address;
}

static void give(void *address)
{
	if (uses_pool)
		pool_give(address);
	else
		DO(halMemFree(address));
}

/* Functions that differ in their names alone; the store keeps each from ending with a jump. */
#define PLACE(number)                                                                              \
	static __attribute__((noinline)) void *place_##number(uint64_t bytes)                      \
	{                                                                                          \
		void *volatile address = uses_pool ? pool_take(bytes) : driver_take(bytes);        \
                                                                                                   \
		return address;                                                                    \
	}
PLACE(0)
PLACE(1)
PLACE(2)
PLACE(3)
PLACE(4)
PLACE(5)
PLACE(6)
PLACE(7)

static void *(*const places[PLACES])(uint64_t) = {place_0, place_1, place_2, place_3,
						  place_4, place_5, place_6, place_7};

static void nothing(void *arguments, size_t size, uint32_t blocks)
{
	(void)arguments;
	(void)size;
	(void)blocks;
}

static void launch(uint32_t kernel)
{
	uint32_t argument = 0;

	if (wait_for_launch)
		freed_before = kernel;
	wait_for_launch = false;
	DO(aclrtLaunchKernel(kernels[kernel], 1, &argument, sizeof(argument), NULL));
}

/* The planted block goes at another time than the others. */
static void give_item(const struct item *item, bool planted, void *address)
{
	(void)item;
	if (planted)
		wait_for_launch = true;
	if (planted && plant == KEPT)
		kept = address;
	else if (!(planted && plant == FORGOTTEN))
		give(address);
}

static void run_item(struct item *item, uint32_t step, bool planted, void **at_end,
		     bool *at_end_planted)
{
	void *address = NULL, *before = item->held;
	bool before_planted = item->planted;
	uint64_t bytes = planted && plant == LARGER ? item->bytes * 3 : item->bytes;

	if (item->lifetime != NO_BLOCK && !(item->lifetime == ALWAYS && step > 0))
		address = places[item->place](bytes);
	if (item->lifetime == BEFORE)
		give_item(item, planted, address);
	launch(item->kernel);
	if (item->lifetime == BEHIND)
		give_item(item, planted, address);
	if (item->lifetime == STEP) {
		*at_end = address;
		*at_end_planted = planted;
	}
	if (item->lifetime == NEXT) {
		item->held = address;
		item->planted = planted;
		if (before != NULL)
			give_item(item, before_planted, before);
	}
}

/* The items of one step, in their order. */
static void run_step(uint32_t step, const struct item *extra)
{
	void *at_end[ITEMS_MAX + 1] = {NULL};
	bool at_end_planted[ITEMS_MAX + 1] = {false};
	struct item added = *extra;
	uint64_t range = mstxRangeStartA("step start", NULL);
	uint32_t i;

	for (i = 0; i < item_count; i++) {
		bool here = step == plant_step && i == plant_item && plant != NONE;
		uint32_t at = i;

		if (here && plant == REMOVED) {
			if (items[i].lifetime == NEXT && items[i].held != NULL) {
				give(items[i].held);
				items[i].held = NULL;
			}
			continue;
		}
		if (here && plant == ADDED)
			run_item(&added, 1, false, &at_end[ITEMS_MAX], &at_end_planted[ITEMS_MAX]);
		if (plant == ORDER && step == plant_step && i == plant_item)
			at = i + 1;
		else if (plant == ORDER && step == plant_step && i == plant_item + 1)
			at = i - 1;
		run_item(&items[at], step,
			 here && (plant == KEPT || plant == FORGOTTEN || plant == LARGER),
			 &at_end[at], &at_end_planted[at]);
	}
	for (i = 0; i < item_count; i++) {
		if (at_end[i] != NULL)
			give_item(&items[i], at_end_planted[i], at_end[i]);
	}
	mstxRangeEnd(range);
}

static enum plant find_plant(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (strncmp(argv[i], "--plant=", 8) != 0)
			continue;
		for (uint32_t k = 0; k < PLANTS; k++) {
			if (strcmp(argv[i] + 8, plant_names[k]) == 0)
				return (enum plant)k;
		}
		target_check(false, "no such plant");
	}
	return NONE;
}

static uint64_t find_seed(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (strncmp(argv[i], "--seed=", 7) == 0)
			return strtoull(argv[i] + 7, NULL, 10);
	}
	return 1;
}

/* Which item: one whose block goes in time, or whose neighbour is another. */
static void choose_plant(uint32_t steps)
{
	bool needs_block = plant == KEPT || plant == FORGOTTEN || plant == LARGER;
	uint32_t tries = 0;

	do {
		plant_item = below(item_count - 1);
	} while (++tries < 1000 &&
		 ((needs_block && items[plant_item].lifetime > NEXT) ||
		  (plant == ORDER && items[plant_item].kernel == items[plant_item + 1].kernel) ||
		  (plant == REMOVED && items[plant_item].lifetime == ALWAYS)));
	target_check(tries < 1000, "nothing to plant");
	plant_step = 1 + below(steps - 2);
}

static void make_items(void)
{
	uint32_t i;

	item_count = 6 + below(ITEMS_MAX - 6);
	for (i = 0; i < item_count; i++)
		items[i] = (struct item){
			.place = below(PLACES),
			.kernel = below(KERNELS - 1),
			.bytes = 512 * (uint64_t)(i + 1) * (1 + below(64)) + 512 * (i + 1),
			.lifetime = below(4) == 0 ? NO_BLOCK : (enum lifetime)below(LIFETIMES)};
	items[0].lifetime = BEHIND;
	/* Which of two kernels of one name, one behind the other, is missing could not be told. */
	for (i = 0; i < item_count; i++) {
		while (items[i].kernel == items[(i + item_count - 1) % item_count].kernel ||
		       items[i].kernel == items[(i + 1) % item_count].kernel)
			items[i].kernel = (items[i].kernel + 1) % (KERNELS - 1);
	}
}

int main(int argc, char **argv)
{
	struct item extra = {.kernel = KERNELS - 1, .lifetime = BEHIND, .place = PLACES - 1};
	const struct item *item;
	uint32_t i, steps;

	random_state =
		UINT64_C(88172645463325252) ^ find_seed(argc, argv) * UINT64_C(0x9e3779b97f4a7c15);
	for (i = 0; i < 16; i++)
		(void)below(2);
	plant = find_plant(argc, argv);
	steps = 4 + below(4);
	uses_pool = below(2) == 0;
	make_items();
	extra.bytes = 512 * (uint64_t)(1 + below(100));
	if (below(3) == 0)
		extra.lifetime = NO_BLOCK;
	choose_plant(steps);
	DO(aclInit(NULL));
	DO(aclrtSetDevice(0));
	for (i = 0; i < KERNELS; i++) {
		(void)snprintf(kernel_names[i], sizeof(kernel_names[i]), "kernel_%u_%c", i,
			       'a' + (char)i);
		DO(simnpuRegisterKernel(kernel_names[i], nothing, &kernels[i]));
	}
	pool_open();
	for (i = 0; i < steps; i++)
		run_step(i, &extra);
	DO(aclrtSynchronizeStream(NULL));
	if (kept != NULL)
		give(kept);
	item = plant == ADDED ? &extra : &items[plant_item];
	if (plant == ORDER)
		order_kernel = items[plant_item + 1].kernel;
	printf("{\"plant\": \"%s\", \"place\": \"", plant_names[plant]);
	if (item->lifetime != NO_BLOCK && plant != ORDER)
		printf("place_%u", item->place);
	printf("\", \"kernel\": \"%s\", \"other\": \"%s\", \"freed_before\": \"%s\", "
	       "\"bytes\": %llu}\n",
	       kernel_names[item->kernel], kernel_names[order_kernel], kernel_names[freed_before],
	       (unsigned long long)item->bytes);
	return 0;
}
