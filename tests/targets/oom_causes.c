/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oom_causes CAUSE SEED [wait]: a program that runs out of device memory for a reason that it knows. CAUSE is growth, spike,
 * fragmentation, outside, others, full, or filling, which is growth in steps of 50 ms; SEED chooses everything else: sizes, with a pool or without, steps marked or not, what it
 * does afterwards. With `wait` it does nothing afterwards until its stdin ends. The device is as large as SIMNPU_HBM says;
 * for `others`, SIMNPU_TAKEN says how much of it is gone. POOL_LIMIT, in MiB, is all that the pool may have of a larger device, as
 * torch.cuda.set_per_process_memory_fraction() says it.
 *
 * The pool caches as torch_npu's does: segments from the runtime, regions cut from them, neighbours merged; a request that does not
 * fit gives back segments that are empty and asks once more. oom_causes_cuda is the same on a GPU (oom_device.h).
 *
 * One JSON line on stdout says what happened:  {"cause":..., "refused":N, "requested":BYTES, "goes_on":0|1}
 */
#include "oom_device.h"

#define SEGMENTS 4096
#define REGIONS	 65536
#define HELD	 65536

struct region {
	uint64_t address, size;
	unsigned segment;
	bool used;
};

static struct {
	struct {
		uint64_t address, size, used;
	} segments[SEGMENTS];
	unsigned segment_count;
	struct region
		regions[REGIONS]; /* of a segment in the order of addresses, not side by side */
	unsigned region_count;
	uint64_t reserved, allocated;
} pool;

static uint64_t seed, capacity, limit;
static unsigned refused, recovered; /* recovered: when the pool had given back its cache */
static uint64_t requested;	    /* by the last request that was refused */
static bool pooled, marked;
static uint64_t segment_bytes;

static uint64_t random_from(uint64_t low, uint64_t high)
{
	return low + target_random(&seed) % (high - low + 1);
}

/* So many hundredths of the device, a little more or less. */
static uint64_t share(unsigned low, unsigned high)
{
	return capacity / 10000 * random_from(low * 100, high * 100);
}

/* ---- the pool ---- */

static bool region_take(uint64_t size, uint64_t *out)
{
	struct region *best = NULL;

	for (unsigned i = 0; i < pool.region_count; i++) {
		struct region *region = &pool.regions[i];

		if (region->size != 0 && !region->used && region->size >= size &&
		    (best == NULL || region->size < best->size))
			best = region;
	}
	if (best == NULL)
		return false;
	if (best->size > size) {
		target_check(pool.region_count < REGIONS, "too many regions");
		pool.regions[pool.region_count++] = (struct region){.address = best->address + size,
								    .size = best->size - size,
								    .segment = best->segment};
	}
	best->size = size;
	best->used = true;
	pool.segments[best->segment].used += size;
	*out = best->address;
	return true;
}

static bool segment_take(uint64_t size)
{
	/* Large ones get a segment of their own. */
	uint64_t bytes = size > segment_bytes / 2
				 ? (size + DEVICE_PADDING + 2 * MIB - 1) / (2 * MIB) * 2 * MIB -
					   DEVICE_PADDING
				 : segment_bytes;
	uint64_t address = limit != 0 && pool.reserved + bytes > limit ? 0 : device_take(bytes);

	if (address == 0)
		return false;
	target_check(pool.segment_count < SEGMENTS && pool.region_count < REGIONS, "pool is full");
	pool.segments[pool.segment_count].address = address;
	pool.segments[pool.segment_count].size = bytes;
	pool.segments[pool.segment_count].used = 0;
	pool.regions[pool.region_count++] =
		(struct region){.address = address, .size = bytes, .segment = pool.segment_count};
	pool.segment_count++;
	pool.reserved += bytes;
	return true;
}

static void pool_empty_cache(void)
{
	for (unsigned i = 0; i < pool.segment_count; i++) {
		if (pool.segments[i].address == 0 || pool.segments[i].used != 0)
			continue;
		device_give(pool.segments[i].address);
		pool.reserved -= pool.segments[i].size;
		pool.segments[i].address = 0;
		for (unsigned k = 0; k < pool.region_count; k++) {
			if (pool.regions[k].segment == i)
				pool.regions[k].size = 0;
		}
	}
}

static uint64_t pool_take(uint64_t size)
{
	uint64_t address;

	if (!region_take(size, &address)) {
		if (!segment_take(size)) {
			pool_empty_cache();
			if (!segment_take(size)) {
				pool_refused(size, pool.allocated, pool.reserved);
				return 0;
			}
			recovered++;
		}
		target_check(region_take(size, &address), "a new segment is too small");
	}
	pool.allocated += size;
	pool_took(address, size, pool.allocated, pool.reserved);
	return address;
}

static void pool_give(uint64_t address)
{
	struct region *region = NULL;

	for (unsigned i = 0; i < pool.region_count && region == NULL; i++) {
		if (pool.regions[i].used && pool.regions[i].address == address)
			region = &pool.regions[i];
	}
	target_check(region != NULL, "not a region");
	region->used = false;
	pool.segments[region->segment].used -= region->size;
	pool.allocated -= region->size;
	pool_gave(address, region->size, pool.allocated, pool.reserved);
	for (unsigned i = 0; i < pool.region_count; i++) {
		struct region *next = &pool.regions[i];

		if (next->size == 0 || next->used || next == region ||
		    next->segment != region->segment)
			continue;
		if (next->address == region->address + region->size) {
			region->size += next->size;
			next->size = 0;
		} else if (next->address + next->size == region->address) {
			next->size += region->size;
			region->size = 0;
			region = next;
		}
	}
}

/* ---- what a program does with it ---- */

struct list {
	uint64_t items[HELD];
	unsigned count;
};

static uint64_t take(uint64_t size)
{
	size = (size + 511) / 512 * 512;
	return pooled ? pool_take(size) : device_take(size);
}

static void give(uint64_t address)
{
	if (pooled)
		pool_give(address);
	else
		device_give(address);
}

/* False: memory ran out. */
static bool keep(struct list *list, uint64_t size)
{
	uint64_t address = take(size);

	if (address == 0) {
		refused++;
		requested = size;
		return false;
	}
	target_check(list->count < HELD, "too many blocks");
	list->items[list->count++] = address;
	return true;
}

static void drop_all(struct list *list)
{
	while (list->count > 0)
		give(list->items[--list->count]);
}

static bool keep_weights(struct list *list, uint64_t bytes, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		if (!keep(list, bytes / count + random_from(0, bytes / count / 8)))
			return false;
	}
	return true;
}

static struct list *list_new(void)
{
	return target_map(sizeof(struct list));
}

static struct list *weights, *activations, *kept, *direct;
static uint64_t activation_bytes;
static unsigned activation_count;

static bool forward(void)
{
	return keep_weights(activations, activation_bytes, activation_count);
}

static mstxRangeId (*range_start)(const char *, aclrtStream);
static void (*range_end)(mstxRangeId);

static mstxRangeId step_begin(void)
{
	return marked ? range_start("step start", NULL) : 0;
}

static void step_end(mstxRangeId range)
{
	drop_all(activations);
	if (marked)
		range_end(range);
}

static void steps(unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		mstxRangeId range = step_begin();

		target_check(forward(), "memory ran out too early");
		step_end(range);
	}
}

static uint64_t usual_bytes;
static unsigned usual_count;

static void set_up(unsigned low, unsigned high, unsigned activation_low, unsigned activation_high)
{
	usual_count = activation_count = (unsigned)random_from(3, 11);
	usual_bytes = activation_bytes = share(activation_low, activation_high);
	target_check(keep_weights(weights, share(low, high), (unsigned)random_from(2, 24)),
		     "memory ran out too early");
}

/* ---- growth ---- */

static bool leak_list(uint64_t size, unsigned step, unsigned every)
{
	return step % every != 0 || keep(kept, size);
}

/* As hist = torch.cat([hist, x]) does. */
static bool leak_cat(uint64_t *block, uint64_t *size, uint64_t more)
{
	uint64_t larger = take(*size + more);

	if (larger == 0) {
		refused++;
		requested = *size + more;
		return false;
	}
	if (*block != 0)
		give(*block);
	*block = larger;
	*size += more;
	return true;
}

/* Beside the pool, from the driver. */
static bool leak_direct(uint64_t size)
{
	uint64_t address = device_take(size);

	if (address == 0) {
		refused++;
		requested = size;
		return false;
	}
	direct->items[direct->count++] = address;
	return true;
}

/* What the pool, or the program without one, can still have. */
static uint64_t room_left(void)
{
	return limit != 0 ? limit - pool.reserved : device_left();
}

static void run_growth(void)
{
	unsigned form = (unsigned)random_from(0, 3), every = (unsigned)random_from(1, 2);
	uint64_t block = 0, block_size = 0;
	bool good = true;

	if (form == 1)
		pooled = pooled && random_from(0, 1) == 0;
	set_up(8, 30, 4, 12);
	for (unsigned step = 1; good; step++) {
		uint64_t size = share(1, 3) / (form == 0 ? random_from(1, 2) : 1);
		mstxRangeId range = step_begin();

		target_check(step < 4000, "nothing grows");
		good = forward();
		if (good && form == 1)
			good = leak_cat(&block, &block_size, size);
		else if (good && form == 2 && pooled)
			good = leak_direct(size);
		else if (good)
			good = leak_list(size, step, every);
		step_end(range);
	}
}

/* ---- filling: growth that leaves time to say so ---- */

#define STEP_MS 50

static unsigned filled_steps; /* that ended before memory ran out */

static void run_filling(void)
{
	unsigned form = (unsigned)random_from(0, 3), every = (unsigned)random_from(0, 3) / 3 + 1;
	unsigned planned = (unsigned)random_from(45, 110);
	uint64_t block = 0, block_size = 0, size;
	bool good = true;

	marked = true;
	set_up(8, 30, 4, 12);
	/* What torch.cat grows is there twice when memory runs out. */
	size = device_left() / planned / (form == 1 ? 2 : 1) * every;
	while (good) {
		uint64_t jitter = random_from(size - size / 5, size + size / 5);
		mstxRangeId range = step_begin();

		target_check(filled_steps < 4000, "nothing grows");
		good = forward();
		(void)usleep(STEP_MS * 1000);
		if (good && form == 1)
			good = leak_cat(&block, &block_size, jitter);
		else if (good && form == 2 && pooled)
			good = leak_direct(jitter);
		else if (good)
			good = leak_list(jitter, filled_steps, every);
		step_end(range);
		filled_steps += good;
	}
}

/* ---- the others ---- */

static void run_spike(void)
{
	unsigned form = (unsigned)random_from(0, 2);
	mstxRangeId range;

	set_up(10, 35, 5, 15);
	steps((unsigned)random_from(4, 60));
	range = step_begin();
	if (form == 0) {
		target_check(!keep(kept, share(92, 99)), "the spike fits");
	} else if (form == 1) {
		target_check(!keep(kept, capacity + share(10, 400)), "the spike fits");
	} else {
		/* One batch is much longer than all others. */
		unsigned more = activation_count * (unsigned)random_from(18, 50);

		activation_bytes = activation_bytes / activation_count * more;
		activation_count = more;
		target_check(!forward(), "the spike fits");
	}
	step_end(range);
}

static void run_fragmentation(void)
{
	uint64_t most = share(88, 96), unit = segment_bytes / random_from(6, 14);
	mstxRangeId range;

	usual_count = activation_count = 4;
	usual_bytes = activation_bytes = unit * 2;
	/* Long-lived blocks among short-lived ones, until the device is nearly full. */
	while (pool.reserved + segment_bytes <= most)
		target_check(
			keep(random_from(0, 99) < 22 ? weights : kept, random_from(unit / 2, unit)),
			"memory ran out too early");
	drop_all(kept);
	steps((unsigned)random_from(3, 20));
	pool_empty_cache();
	range = step_begin();
	target_check(
		!keep(activations, room_left() + random_from(segment_bytes / 4, segment_bytes * 2)),
		"the pool is not in pieces");
	step_end(range);
}

static void run_outside(void)
{
	uint64_t bytes = share(42, 62);
	unsigned count = (unsigned)random_from(1, 12);

	for (unsigned i = 0; i < count; i++)
		target_check(leak_direct(bytes / count), "memory ran out too early");
	set_up(4, 12, 3, 8);
	steps((unsigned)random_from(3, 40));
	while (keep(kept, share(3, 7)) && kept->count < 3)
		;
	if (refused == 0)
		target_check(!keep(kept, share(36, 44)), "all fits");
}

static void run_others(void)
{
	set_up(3, 8, 1, 4);
	steps((unsigned)random_from(3, 40));
	target_check(!keep(kept, share(40, 55)), "all fits");
}

static void run_full(void)
{
	uint64_t room = share(13, 17),
		 size = segment_bytes / random_from(1, 4) / 512 * 512; /* no waste */

	usual_count = activation_count = (unsigned)random_from(2, 5);
	usual_bytes = activation_bytes = share(6, 9);
	while (room_left() > room + size)
		target_check(keep(weights, size), "memory ran out too early");
	steps((unsigned)random_from(4, 50));
	if (random_from(0, 1) == 0) {
		/* A step that needs a little more of everything. */
		activation_bytes += share(9, 12);
		while (forward() && keep(activations, share(6, 9)))
			activation_bytes = share(2, 3);
	} else {
		while (forward() && keep(activations, share(9, 12)))
			activation_bytes = share(2, 3);
	}
	drop_all(activations);
}

static void set_range_functions(void)
{
	void *library = dlopen("libms_tools_ext.so", RTLD_LAZY);

	target_check(library != NULL, "no libms_tools_ext.so");
	*(void **)&range_start = dlsym(library, "mstxRangeStartA");
	*(void **)&range_end = dlsym(library, "mstxRangeEnd");
	target_check(range_start != NULL && range_end != NULL, "no ranges");
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} causes[] = {
		{"growth", run_growth},
		{"spike", run_spike},
		{"fragmentation", run_fragmentation},
		{"outside", run_outside},
		{"others", run_others},
		{"full", run_full},
		{"filling", run_filling},
	};
	bool goes_on;

	target_check(argc == 3 || argc == 4, "oom_causes CAUSE SEED [wait]");
	seed = (strtoull(argv[2], NULL, 10) + 1) * 0x9e3779b97f4a7c15ull;
	weights = list_new();
	activations = list_new();
	kept = list_new();
	direct = list_new();
	capacity = device_open();
	if (getenv("POOL_LIMIT") != NULL)
		capacity = limit = strtoull(getenv("POOL_LIMIT"), NULL, 10) * MIB;
	set_range_functions();
	pooled = random_from(0, 2) != 0 || limit != 0 || strcmp(argv[1], "fragmentation") == 0 ||
		 strcmp(argv[1], "outside") == 0;
	marked = random_from(0, 3) != 0;
	segment_bytes = capacity / random_from(24, 45) / (2 * MIB) * 2 * MIB -
			DEVICE_PADDING; /* whole pages */
	goes_on = random_from(0, 1) == 0;
	for (size_t i = 0; i < sizeof(causes) / sizeof(causes[0]); i++) {
		if (strcmp(causes[i].name, argv[1]) == 0)
			causes[i].run();
	}
	printf("{\"cause\":\"%s\",\"refused\":%u,\"requested\":%llu,\"recovered\":%u,\"pooled\":%d,"
	       "\"marked\":%d,\"goes_on\":%d,\"filled_steps\":%u}\n",
	       argv[1], refused, (unsigned long long)requested, recovered, pooled, marked, goes_on,
	       filled_steps);
	(void)fflush(stdout);
	if (argc == 4) {
		char byte;

		while (read(STDIN_FILENO, &byte, 1) > 0)
			;
	}
	if (!goes_on)
		abort();
	drop_all(activations);
	drop_all(kept);
	activation_count = usual_count;
	activation_bytes = usual_bytes;
	steps(2);
	return 0;
}
