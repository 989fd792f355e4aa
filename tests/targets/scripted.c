/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scripted FILE: does what the lines of a file say, so that a test can make programs at random and know what they do.
 *
 *     a SLOT SIZE DEVICE     takes memory of the driver
 *     p SLOT SIZE DEVICE     a block of torch_npu's pool, at an address of its own
 *     q SLOT FROM            the same, at the beginning of the driver's memory in another slot, as large as that
 *     f SLOT                 gives back what the slot has
 *     m NAME                 a mark
 *     s                      ends a step, if one is open, and begins another
 *
 * It prints {"slot":S,"address":A} for each allocation.
 */
#include "client_torch.h"

#define SLOTS 100000

static struct slot {
	void *address;
	uint64_t size;
	unsigned device;
	bool is_pool;
} slots[SLOTS];

static void (*mark)(const char *, void *);
static uint64_t (*range_start)(const char *, void *);
static void (*range_end)(uint64_t);

static void take(struct slot *slot, size_t number, bool is_pool)
{
	static uint64_t next = UINT64_C(0x700000000000);

	slot->is_pool = is_pool;
	if (is_pool) {
		if (slot->address == NULL)
			slot->address = (void *)(uintptr_t)(next += UINT64_C(1) << 30);
		torch_register(slot->device, (uint64_t)(uintptr_t)slot->address, slot->size);
	} else {
		target_check(halMemAlloc(&slot->address, slot->size, FLAG_NORMAL | slot->device) ==
				     0,
			     "halMemAlloc failed");
	}
	printf("{\"slot\":%zu,\"address\":%llu}\n", number,
	       (unsigned long long)(uintptr_t)slot->address);
}

static void give_back(struct slot *slot)
{
	if (slot->is_pool)
		torch_unregister((uint64_t)(uintptr_t)slot->address);
	else
		target_check(halMemFree(slot->address) == 0, "halMemFree failed");
	slot->address = NULL;
}

int main(int argc, char **argv)
{
	FILE *file = argc > 1 ? fopen(argv[1], "re") : NULL;
	char line[4096], name[4096];
	uint64_t range = 0;

	target_check(file != NULL, "no such file");
	torch_open("ptaCaching", false);
	*(void **)&mark = torch_find("mstxMarkA", false);
	*(void **)&range_start = torch_find("mstxRangeStartA", false);
	*(void **)&range_end = torch_find("mstxRangeEnd", false);
	while (fgets(line, sizeof(line), file) != NULL) {
		unsigned long long size = 0;
		unsigned device = 0, from = 0;
		size_t number = 0;

		if (sscanf(line, "m %[^\n]", name) == 1) {
			mark(name, NULL);
		} else if (line[0] == 's') {
			if (range != 0)
				range_end(range);
			range = range_start("step start", NULL);
		} else if (sscanf(line, "f %zu", &number) == 1) {
			give_back(&slots[number % SLOTS]);
		} else if (sscanf(line, "q %zu %u", &number, &from) == 2) {
			slots[number % SLOTS] = slots[from % SLOTS];
			take(&slots[number % SLOTS], number, true);
		} else if (sscanf(line + 1, "%zu %llu %u", &number, &size, &device) == 3) {
			slots[number % SLOTS] = (struct slot){.size = size, .device = device};
			take(&slots[number % SLOTS], number, line[0] == 'p');
		}
	}
	(void)fclose(file);
	return 0;
}
