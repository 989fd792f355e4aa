/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claims about who has what of a whole device (analysis/whole_device.c). A random program is played on a device whose driver counts
 * everything, so that the truth of each part is known; the trace has what the collector and the sampler would have seen of it.
 */
#include "symbols/elf_cache.h"
#include "unit.h"

#include "analysis/whole_device.h"
#include "base/vendors.h"
#include "replay/state.h"
#include "trace/session.h"
#include "trace_maker.h"

#define HAL   1u
#define PTA   2u
#define ASYNC 3u
#define MIB   (UINT64_C(1) << 20)
#define MS    UINT64_C(1000000)

#define SEGMENTS 64
#define DIRECTS	 64

static uint64_t random_state = 14;

static uint64_t random_below(uint64_t bound)
{
	return unit_random(&random_state) % bound;
}

struct play {
	struct maker maker;
	struct maker_writer w;
	uint64_t now;
	struct elf_cache elves;
	struct run *run;
	struct replay *replay;
	struct analyses analyses;
};

static int begin(void **state)
{
	struct play *p = calloc(1, sizeof(*p));
	char path[300];

	(void)snprintf(path, sizeof(path), "%s/raw", unit_directory);
	maker_make(&p->maker, path, 65536, 256);
	p->now = 2000;
	p->w = (struct maker_writer){.maker = &p->maker, .number = 1};
	maker_thread(&p->w, p->now++, 70);
	MAKER_EVENT(&p->w, p->now++, 0, context_def, .id = HAL, .pool = POOL_hal,
		    .kind = BLOCK_ALLOC, .vendor = VENDOR_CUDA, .device = 3);
	MAKER_EVENT(&p->w, p->now++, 0, context_def, .id = PTA, .pool = POOL_pta,
		    .kind = BLOCK_ALLOC, .vendor = VENDOR_CUDA, .device = 3);
	MAKER_EVENT(&p->w, p->now++, 0, context_def, .id = ASYNC, .pool = POOL_hal,
		    .kind = BLOCK_ALLOC, .vendor = VENDOR_CUDA, .device = 3,
		    .flags = (uint64_t)CUDA_MEMORY_ASYNC << 56);
	*state = p;
	return 0;
}

static int end(void **state)
{
	struct play *p = *state;

	analyses_fini(&p->analyses);
	replay_free(p->replay);
	run_close(p->run);
	elf_cache_fini(&p->elves);
	maker_fini(&p->maker);
	free(p);
	return 0;
}

static const struct device_account *play(struct play *p)
{
	struct replay_setup setup;
	struct trace_event event;
	const struct device_account *accounts;
	size_t count;

	assert_int_equal(run_open(p->maker.path, NULL, false, &p->run, NULL), 0);
	setup = (struct replay_setup){.run = p->run, .elves = &p->elves, .root = "/nowhere"};
	assert_int_equal(replay_new(&setup, &p->replay), 0);
	analyses_init(&p->analyses, 0, false, p->replay);
	assert_int_equal(run_poll(p->run, 0, true), 0);
	while (run_next(p->run, &event))
		assert_int_equal(replay_event(p->replay, &event), 0);
	assert_int_equal(replay_end(p->replay), 0);
	accounts = analyses_devices(&p->analyses, &count);
	assert_int_equal(count, accounts == NULL ? 0 : 1);
	return accounts;
}

/* ---- the device ---- */

struct device {
	struct play *play;
	uint64_t reserved, direct, live, context, code, others;
	uint64_t segments[SEGMENTS], directs[DIRECTS]; /* sizes; 0: none */
	/* Of pools of the driver, and of memory nodes. */
	uint64_t asyncs[DIRECTS], async, held, graphs;
	uint64_t unknown; /* what the driver takes and nothing tells */
	uint64_t told;	  /* the total that the pool told last */
};

static uint64_t own(const struct device *d)
{
	return d->reserved + d->direct + d->held + d->graphs + d->context + d->code + d->unknown;
}

/* What the sampler would send: the processes, then the device. */
static void sample(struct device *d)
{
	struct play *p = d->play;

	p->now += MS;
	MAKER_EVENT(&p->w, p->now, 0, usage_others, .device = 3, .processes = d->others != 0,
		    .bytes = d->others);
	MAKER_EVENT(&p->w, p->now, 0, usage_sample, .device = 3, .total_mib = 81920,
		    .process_bytes = own(d), .device_bytes = own(d) + d->others);
}

static uint64_t address_of(bool direct, uint32_t slot)
{
	return (direct ? UINT64_C(0x800000000000) : UINT64_C(0x700000000000)) +
	       (uint64_t)slot * 0x1000000000;
}

/* With each block that the pool hands out or takes back, as the collector writes it. */
static void tell_total(struct device *d)
{
	if (d->told != d->reserved)
		MAKER_EVENT(&d->play->w, d->play->now++, PTA, pool_total,
			    .reserved_bytes = d->reserved);
	d->told = d->reserved;
}

/* The pool takes a segment and hands out a block of it, which it tells with its new total. */
static void grow_pool(struct device *d, uint32_t slot)
{
	struct play *p = d->play;
	uint64_t bytes = (1 + random_below(200)) * 2 * MIB;

	if (d->segments[slot] != 0)
		return;
	d->segments[slot] = bytes;
	d->reserved += bytes;
	maker_alloc(&p->w, p->now++, HAL, address_of(false, slot), bytes, 0);
	tell_total(d);
	maker_alloc(&p->w, p->now++, PTA, address_of(false, slot), bytes / 2, 0);
	d->live += bytes / 2;
}

/* empty_cache(): the pool tells its total only with its next block. */
static void shrink_pool(struct device *d, uint32_t slot)
{
	struct play *p = d->play;

	if (d->segments[slot] == 0)
		return;
	tell_total(d);
	maker_free(&p->w, p->now++, PTA, address_of(false, slot));
	maker_free(&p->w, p->now++, HAL, address_of(false, slot));
	d->reserved -= d->segments[slot];
	d->live -= d->segments[slot] / 2;
	d->segments[slot] = 0;
}

static void direct(struct device *d, uint32_t slot)
{
	struct play *p = d->play;

	if (d->directs[slot] == 0) {
		/* Odd sizes: no sum of them is a segment. */
		d->directs[slot] = (1 + random_below(100)) * MIB + 512 * (1 + slot);
		d->direct += d->directs[slot];
		maker_alloc(&p->w, p->now++, HAL, address_of(true, slot), d->directs[slot], 0);
	} else {
		maker_free(&p->w, p->now++, HAL, address_of(true, slot));
		d->direct -= d->directs[slot];
		d->directs[slot] = 0;
	}
}

static void tell_kept(struct device *d)
{
	MAKER_EVENT(&d->play->w, d->play->now++, HAL, driver_kept, .device = 3,
		    .pools_bytes = d->held, .graphs_bytes = d->graphs);
}

/* A pool of the driver gives a block, or keeps one that is freed. */
static void pooled(struct device *d, uint32_t slot)
{
	struct play *p = d->play;
	uint64_t address = UINT64_C(0x600000000000) + (uint64_t)slot * 0x1000000000;

	if (d->asyncs[slot] != 0) {
		maker_free(&p->w, p->now++, ASYNC, address);
		d->async -= d->asyncs[slot];
		d->asyncs[slot] = 0;
		return;
	}
	d->asyncs[slot] = (1 + random_below(100)) * MIB + 256 * (1 + slot);
	d->async += d->asyncs[slot];
	maker_alloc(&p->w, p->now++, ASYNC, address, d->asyncs[slot], 0);
	if (d->async > d->held) {
		d->held = (d->async + 32 * MIB - 1) / (32 * MIB) * (32 * MIB);
		tell_kept(d);
	}
}

static void trim(struct device *d)
{
	d->held = (d->async + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
	tell_kept(d);
}

static void launch_graph(struct device *d)
{
	d->graphs = random_below(5) * 40 * MIB;
	tell_kept(d);
}

static void cost(struct device *d, enum driver_cost kind, uint64_t bytes)
{
	struct play *p = d->play;

	MAKER_EVENT(&p->w, p->now++, HAL, driver_cost, .device = 3, .kind = kind);
	if (kind == COST_CONTEXT)
		d->context += bytes;
	else
		d->code += bytes;
}

static void act(struct device *d)
{
	switch (random_below(13)) {
	case 0:
	case 1:
	case 2:
		grow_pool(d, (uint32_t)random_below(SEGMENTS));
		break;
	case 3:
		shrink_pool(d, (uint32_t)random_below(SEGMENTS));
		break;
	case 4:
	case 5:
		direct(d, (uint32_t)random_below(DIRECTS));
		break;
	case 6:
		cost(d, COST_CODE, random_below(3) * 2 * MIB);
		break;
	case 7:
	case 8:
	case 9:
		pooled(d, (uint32_t)random_below(DIRECTS));
		break;
	case 10:
		trim(d);
		break;
	case 11:
		launch_graph(d);
		break;
	default:
		d->others = random_below(4) * 512 * MIB;
	}
}

/* ---- claims ---- */

static void every_part_of_a_random_program_is_what_it_was_at_the_peak(void **state)
{
	struct play *p = *state;
	struct device d = {.play = p};
	uint64_t used = 0, parts[PARTS_OF_DEVICE] = {0};
	const struct device_account *account;
	int i, k;

	cost(&d, COST_CONTEXT, (100 + random_below(400)) * MIB);
	sample(&d);
	for (i = 0; i < 200; i++) {
		for (k = (int)random_below(4); k >= 0; k--)
			act(&d);
		sample(&d);
		if (own(&d) + d.others < used)
			continue;
		used = own(&d) + d.others;
		parts[PART_POOLS] = d.reserved;
		parts[PART_OUTSIDE] = d.direct + d.async;
		parts[PART_KEPT] = d.held - d.async;
		parts[PART_GRAPH] = d.graphs;
		parts[PART_CONTEXT] = d.context;
		parts[PART_CODE] = d.code;
		parts[PART_OTHERS] = d.others;
		/* Time passes: a later sample cannot be of these levels. */
		p->now += 400 * MS;
	}
	account = play(p);
	assert_non_null(account);
	assert_int_equal(account->device, 3);
	assert_int_equal(account->vendor, VENDOR_CUDA);
	assert_int_equal(account->fullest.moment.used_bytes, used);
	for (i = 0; i < PARTS_OF_DEVICE; i++) {
		if (account->fullest.moment.parts[i] != parts[i])
			fail_msg("part %d: %llu instead of %llu", i,
				 (unsigned long long)account->fullest.moment.parts[i],
				 (unsigned long long)parts[i]);
	}
	assert_int_equal(account->last.used_bytes, own(&d) + d.others);
	assert_int_equal(account->last.parts[PART_POOLS], d.reserved);
	assert_int_equal(account->last.parts[PART_UNKNOWN], 0);
}

static void what_nothing_tells_is_unknown_and_never_the_contexts(void **state)
{
	struct play *p = *state;
	struct device d = {.play = p};
	const struct device_account *account;

	cost(&d, COST_CONTEXT, 300 * MIB);
	sample(&d);
	grow_pool(&d, 1);
	p->now += 1000 * MS;
	sample(&d);
	p->now += 1000 * MS;
	d.unknown = 77 * MIB;
	sample(&d);
	account = play(p);
	assert_int_equal(account->fullest.moment.parts[PART_CONTEXT], 300 * MIB);
	assert_int_equal(account->fullest.moment.parts[PART_UNKNOWN], 77 * MIB);
	assert_int_equal(account->fullest.moment.parts[PART_POOLS], d.reserved);
}

/* A pool whose threshold is 0 gives back when the program waits; where no call tells, the driver's own figure does. */
static void pools_of_the_driver_hold_no_more_than_is_there(void **state)
{
	struct play *p = *state;
	struct device d = {.play = p};
	const struct device_account *account;

	cost(&d, COST_CONTEXT, 300 * MIB);
	sample(&d);
	p->now += 1000 * MS;
	pooled(&d, 1);
	pooled(&d, 1);
	sample(&d);
	p->now += 1000 * MS;
	d.held = 0;
	sample(&d);
	account = play(p);
	assert_int_equal(account->last.used_bytes, 300 * MIB);
	assert_int_equal(account->last.parts[PART_CONTEXT], 300 * MIB);
	assert_int_equal(account->last.parts[PART_KEPT], 0);
	assert_true(account->fullest.moment.parts[PART_KEPT] > 0);
	assert_int_equal(account->fullest.moment.parts[PART_UNKNOWN], 0);
}

/* The block was freed after the driver had been asked, and before the answer was read. */
static void a_sample_that_comes_late_is_of_what_was_there(void **state)
{
	struct play *p = *state;
	struct device d = {.play = p};
	const struct device_account *account;

	cost(&d, COST_CONTEXT, 300 * MIB);
	sample(&d);
	p->now += 1000 * MS;
	maker_alloc(&p->w, p->now++, HAL, 0x100000, 900 * MIB, 0);
	maker_free(&p->w, p->now++, HAL, 0x100000);
	d.direct = 900 * MIB;
	sample(&d);
	d.direct = 0;
	sample(&d);
	account = play(p);
	assert_int_equal(account->fullest.moment.used_bytes, 1200 * MIB);
	assert_int_equal(account->fullest.moment.parts[PART_OUTSIDE], 900 * MIB);
	assert_int_equal(account->fullest.moment.parts[PART_UNKNOWN], 0);
	assert_int_equal(account->last.used_bytes, 300 * MIB);
}

/* Networks load code while their pool grows, and every other sample is older than that. */
static void code_that_is_loaded_all_the_time_takes_nothing_of_the_pool(void **state)
{
	struct play *p = *state;
	struct device d = {.play = p}, before;
	const struct device_account *account;
	uint32_t i;

	cost(&d, COST_CONTEXT, 300 * MIB);
	sample(&d);
	for (i = 1; i < 30; i++) {
		p->now += 60 * MS;
		before = d;
		if (i % 3 != 0)
			grow_pool(&d, i);
		cost(&d, COST_CODE, 4 * MIB);
		sample(&before);
		p->now += 60 * MS;
		if (i % 3 == 0)
			grow_pool(&d, i);
		sample(&d);
	}
	account = play(p);
	assert_int_equal(account->last.parts[PART_POOLS], d.reserved);
	assert_int_equal(account->last.parts[PART_CONTEXT], 300 * MIB);
	assert_int_equal(account->last.parts[PART_CODE], 29 * 4 * MIB);
	assert_int_equal(account->last.parts[PART_UNKNOWN], 0);
	assert_int_equal(account->last.used_bytes, own(&d));
}

/*
 * Inference on an H200: code was loaded 0.25 s before, and has been measured; cuDNN tries algorithms in memory that the pool takes and
 * gives back before the sample of it is read.
 */
static void what_the_pool_took_and_gave_back_is_no_code(void **state)
{
	struct play *p = *state;
	struct device d = {.play = p}, tried;
	const struct device_account *account;

	cost(&d, COST_CONTEXT, 530 * MIB);
	direct(&d, 1);
	grow_pool(&d, 1);
	sample(&d);
	p->now += 1000 * MS;
	cost(&d, COST_CODE, 94 * MIB);
	sample(&d);
	p->now += 1000 * MS;
	cost(&d, COST_CODE, 0);
	grow_pool(&d, 2);
	sample(&d);
	p->now += 250 * MS;
	grow_pool(&d, 3);
	grow_pool(&d, 4);
	tried = d;
	shrink_pool(&d, 3);
	sample(&tried);
	p->now += 120 * MS;
	sample(&d);
	account = play(p);
	assert_int_equal(account->fullest.moment.used_bytes, own(&tried));
	assert_int_equal(account->fullest.moment.parts[PART_POOLS], tried.reserved);
	assert_int_equal(account->fullest.moment.parts[PART_OUTSIDE], tried.direct);
	assert_int_equal(account->fullest.moment.parts[PART_CODE], 94 * MIB);
	assert_int_equal(account->fullest.moment.parts[PART_UNKNOWN], 0);
	assert_int_equal(account->last.parts[PART_POOLS], d.reserved);
	assert_int_equal(account->last.parts[PART_OUTSIDE], d.direct);
	assert_int_equal(account->last.parts[PART_CODE], 94 * MIB);
	assert_int_equal(account->last.parts[PART_UNKNOWN], 0);
}

/* The pool gives back segment after segment while code is loaded; the sample is from the middle of it. */
static void what_the_pool_is_giving_back_is_no_code(void **state)
{
	struct play *p = *state;
	struct device d = {.play = p}, middle;
	const struct device_account *account;
	uint32_t i;

	cost(&d, COST_CONTEXT, 530 * MIB);
	for (i = 0; i < 8; i++)
		grow_pool(&d, i);
	sample(&d);
	p->now += 1000 * MS;
	for (i = 0; i < 4; i++)
		shrink_pool(&d, i);
	middle = d;
	for (; i < 7; i++)
		shrink_pool(&d, i);
	cost(&d, COST_CODE, 2 * MIB);
	middle.code = d.code;
	sample(&middle);
	account = play(p);
	assert_int_equal(account->last.used_bytes, own(&middle));
	assert_int_equal(account->last.parts[PART_CODE], 2 * MIB);
	assert_int_equal(account->last.parts[PART_POOLS], middle.reserved);
	assert_int_equal(account->last.parts[PART_UNKNOWN], 0);
}

static void what_other_processes_have_is_the_rest_where_they_are_not_listed(void **state)
{
	struct play *p = *state;
	const struct device_account *account;

	maker_alloc(&p->w, p->now++, HAL, 0x100000, 100 * MIB, 0);
	MAKER_EVENT(&p->w, p->now++, 0, usage_sample, .device = 3, .total_mib = 1024,
		    .process_bytes = 100 * MIB, .device_bytes = 160 * MIB);
	account = play(p);
	assert_int_equal(account->fullest.moment.parts[PART_OTHERS], 60 * MIB);
	assert_int_equal(account->fullest.moment.parts[PART_UNKNOWN], 0);
}

static void a_device_of_others_alone_has_no_account(void **state)
{
	struct play *p = *state;
	const struct device_account *account;

	MAKER_EVENT(&p->w, p->now++, 0, usage_sample, .device = 3, .total_mib = 1024,
		    .process_bytes = UINT64_MAX, .device_bytes = 160 * MIB);
	account = play(p);
	assert_true(account == NULL || account->fullest.moment.time_ns == 0);
}

/* The engine samples as soon as a context of the GPU is defined, and says what others have once: before the cost of the context. */
static void others_that_came_before_the_cost_of_the_context_stay(void **state)
{
	struct play *p = *state;
	const struct device_account *account;

	MAKER_EVENT(&p->w, p->now++, 0, usage_others, .device = 3, .processes = 2,
		    .bytes = 4096 * MIB);
	MAKER_EVENT(&p->w, p->now++, 0, usage_sample, .device = 3, .total_mib = 81920,
		    .process_bytes = 100 * MIB, .device_bytes = 4209 * MIB);
	MAKER_EVENT(&p->w, p->now++, 0, driver_cost, .device = 3, .kind = COST_CONTEXT);
	maker_alloc(&p->w, p->now++, HAL, 0x100000, 100 * MIB, 0);
	p->now += 500 * MS;
	MAKER_EVENT(&p->w, p->now++, 0, usage_sample, .device = 3, .total_mib = 81920,
		    .process_bytes = 600 * MIB, .device_bytes = 4705 * MIB);
	account = play(p);
	/* What the driver counts for no process comes with contexts: here with those of the others. */
	assert_int_equal(account->fullest.moment.parts[PART_OTHERS], 4105 * MIB);
	assert_int_equal(account->fullest.moment.parts[PART_UNKNOWN], 0);
	assert_int_equal(account->fullest.others, 2);
}

static void points_over_time_keep_the_peak_and_stay_few(void **state)
{
	struct play *p = *state;
	struct device d = {.play = p};
	const struct device_account *account;
	uint64_t most = 0, last = 0;
	size_t i;

	for (i = 0; i < 3000; i++) {
		d.unknown = random_below(1000) * MIB;
		p->now += random_below(100) * MS;
		if (i == 1700)
			d.unknown = 5000 * MIB;
		if (i == 0)
			direct(&d, 1);
		sample(&d);
	}
	account = play(p);
	assert_true(account->point_count <= DEVICE_POINTS &&
		    account->point_count >= DEVICE_POINTS / 3);
	for (i = 0; i < account->point_count; i++) {
		assert_true(account->points[i].time_ns > last);
		last = account->points[i].time_ns;
		if (account->points[i].used_bytes > most)
			most = account->points[i].used_bytes;
	}
	assert_int_equal(most, account->fullest.moment.used_bytes);
	assert_int_equal(most, 5000 * MIB + d.direct);
}

/* A context whose blocks the driver counts in its own way. */
static uint32_t kind_of_memory(struct play *p, uint32_t id, enum cuda_memory memory)
{
	MAKER_EVENT(&p->w, p->now++, 0, context_def, .id = id, .pool = POOL_hal,
		    .kind = BLOCK_ALLOC, .vendor = VENDOR_CUDA, .device = 3,
		    .flags = (uint64_t)memory << 56);
	return id;
}

/* All in one sample: what blocks take beyond their sizes must not be the context's. */
static void blocks_take_whole_pages_that_small_ones_share(void **state)
{
	struct play *p = *state;
	struct device d = {.play = p};
	const struct device_account *account;
	uint32_t device = kind_of_memory(p, 3, CUDA_MEMORY_DEVICE);
	bool pages[4096] = {false};
	uint64_t at, used = 0, k;
	int i;

	cost(&d, COST_CONTEXT, 300 * MIB + 4096);
	/* One behind the other, as far as they fit: large ones on a border of pages, small ones in pages that they do not cross. */
	for (i = 0, at = 0; i < 500; i++) {
		uint64_t bytes = 1 + random_below(i % 2 == 0 ? MIB : 9 * MIB);
		uint64_t address;

		if (bytes > MIB || at / (2 * MIB) != (at + bytes - 1) / (2 * MIB))
			at = (at + 2 * MIB - 1) / (2 * MIB) * 2 * MIB;
		address = 0x7f0000000000 + at;
		maker_alloc(&p->w, p->now++, device, address, bytes, 0);
		if (random_below(3) == 0)
			maker_free(&p->w, p->now++, device, address);
		else
			for (k = at / (2 * MIB); k <= (at + bytes - 1) / (2 * MIB); k++)
				pages[k] = true;
		at += (bytes + 511) / 512 * 512;
	}
	for (k = 0; k < 4096; k++)
		used += pages[k] ? 2 * MIB : 0;
	d.direct = used;
	sample(&d);
	account = play(p);
	assert_int_equal(account->fullest.moment.parts[PART_OUTSIDE], used);
	assert_int_equal(account->fullest.moment.parts[PART_CONTEXT], 300 * MIB + 4096);
	assert_int_equal(account->fullest.moment.parts[PART_UNKNOWN], 0);
}

static void managed_memory_counts_as_far_as_the_driver_counts_it(void **state)
{
	struct play *p = *state;
	struct device d = {.play = p};
	const struct device_account *account;

	cost(&d, COST_CONTEXT, 300 * MIB);
	sample(&d);
	p->now += 1000 * MS;
	maker_alloc(&p->w, p->now++, kind_of_memory(p, 3, CUDA_MEMORY_MANAGED), 0x10000000,
		    500 * MIB, 0);
	/* Another figure, so that there is a sample; nothing of it is on the device. */
	d.others = 10 * MIB;
	sample(&d);
	p->now += 1000 * MS;
	d.direct = 120 * MIB;
	d.unknown = 0;
	sample(&d);
	p->now += 1000 * MS;
	d.direct = 500 * MIB;
	d.unknown = 7 * MIB;
	sample(&d);
	account = play(p);
	assert_int_equal(account->point_count, 4);
	assert_int_equal(account->points[1].used_bytes, 310 * MIB);
	assert_int_equal(account->points[1].parts[PART_OUTSIDE], 0);
	assert_int_equal(account->points[2].parts[PART_OUTSIDE], 120 * MIB);
	assert_int_equal(account->points[2].parts[PART_UNKNOWN], 0);
	assert_int_equal(account->points[3].parts[PART_OUTSIDE], 500 * MIB);
	assert_int_equal(account->points[3].parts[PART_UNKNOWN], 7 * MIB);
}

/* Nothing is sampled while nothing changes. */
static void what_is_given_back_within_a_span_is_gone_over_time(void **state)
{
	struct play *p = *state;
	struct device d = {.play = p};
	const struct device_account *account;

	direct(&d, 1);
	d.unknown = 900 * MIB;
	sample(&d);
	d.unknown = 100 * MIB;
	sample(&d);
	p->now += 5000 * MS;
	d.unknown = 101 * MIB;
	sample(&d);
	d.unknown = 50 * MIB;
	sample(&d);
	account = play(p);
	assert_int_equal(account->point_count, 3);
	assert_int_equal(account->points[1].used_bytes, d.direct + 100 * MIB);
	assert_true(account->points[1].time_ns - account->points[0].time_ns < 10 * MS);
	assert_int_equal(account->points[2].used_bytes, d.direct + 101 * MIB);
	assert_true(account->ends_lower);
	assert_int_equal(account->last.used_bytes, d.direct + 50 * MIB);
}

/* Memory that is taken while the driver's answer comes is not missing in the context. */
static void a_first_sample_that_comes_late_leaves_the_context_whole(void **state)
{
	struct play *p = *state;
	struct device d = {.play = p};
	const struct device_account *account;

	cost(&d, COST_CONTEXT, 300 * MIB);
	direct(&d, 1);
	p->now += 1 * MS;
	MAKER_EVENT(&p->w, p->now, 0, usage_sample, .device = 3, .total_mib = 81920,
		    .process_bytes = 300 * MIB, .device_bytes = 300 * MIB);
	p->now += 900 * MS;
	sample(&d);
	p->now += 900 * MS;
	d.unknown = 5 * MIB;
	sample(&d);
	account = play(p);
	assert_int_equal(account->last.parts[PART_CONTEXT], 300 * MIB);
	assert_int_equal(account->last.parts[PART_OUTSIDE], d.direct);
	assert_int_equal(account->last.parts[PART_UNKNOWN], 5 * MIB);
}

/* What the driver counts for the device and for no process. */
static void stray_memory(struct play *p, uint64_t own, uint64_t others, uint64_t stray)
{
	p->now += 1000 * MS;
	MAKER_EVENT(&p->w, p->now, 0, usage_others, .device = 3, .processes = others != 0,
		    .bytes = others);
	MAKER_EVENT(&p->w, p->now, 0, usage_sample, .device = 3, .total_mib = 81920,
		    .process_bytes = own, .device_bytes = own + others + stray);
}

static void what_no_process_has_came_with_contexts(void **state)
{
	struct play *p = *state;
	struct device d = {.play = p};
	const struct device_account *account;

	cost(&d, COST_CONTEXT, 0);
	stray_memory(p, 530 * MIB, 0, 9 * MIB);
	cost(&d, COST_CONTEXT, 0);
	stray_memory(p, 1060 * MIB, 0, 14 * MIB);
	/* Another process begins, and then there is more than contexts take. */
	stray_memory(p, 1060 * MIB, 530 * MIB, 20 * MIB);
	stray_memory(p, 1060 * MIB, 530 * MIB, 60 * MIB);
	account = play(p);
	assert_int_equal(account->points[0].parts[PART_CONTEXT], 539 * MIB);
	assert_int_equal(account->points[1].parts[PART_CONTEXT], 1074 * MIB);
	assert_int_equal(account->points[1].parts[PART_UNKNOWN], 0);
	assert_int_equal(account->points[2].parts[PART_CONTEXT], 1074 * MIB);
	assert_int_equal(account->points[2].parts[PART_OTHERS], 536 * MIB);
	assert_int_equal(account->points[2].parts[PART_UNKNOWN], 0);
	assert_int_equal(account->points[3].parts[PART_OTHERS], 546 * MIB);
	assert_int_equal(account->points[3].parts[PART_UNKNOWN], 30 * MIB);
}

/* The driver is asked for the device and its processes one after the other, and something is freed in between. */
static void what_no_process_has_stays_the_contexts(void **state)
{
	struct play *p = *state;
	struct device d = {.play = p};
	const struct device_account *account;
	size_t i;

	cost(&d, COST_CONTEXT, 0);
	stray_memory(p, 530 * MIB, 0, 9 * MIB);
	stray_memory(p, 530 * MIB, 0, 0);
	stray_memory(p, 530 * MIB, 0, 9 * MIB);
	stray_memory(p, 530 * MIB, 0, 0);
	stray_memory(p, 530 * MIB, 0, 0);
	/* Nobody else is there whose it could be. */
	stray_memory(p, 530 * MIB, 0, 9 * MIB);
	account = play(p);
	for (i = 0; i < 6; i++) {
		assert_int_equal(account->points[i].parts[PART_UNKNOWN], 0);
		assert_int_equal(account->points[i].parts[PART_CONTEXT],
				 (i == 0 || i == 2 || i == 5 ? 539 : 530) * MIB);
	}
}

static void what_other_processes_had_before_is_not_of_this_context(void **state)
{
	struct play *p = *state;
	struct device d = {.play = p};
	const struct device_account *account;

	cost(&d, COST_CONTEXT, 0);
	stray_memory(p, 530 * MIB, 4000 * MIB, 14 * MIB);
	account = play(p);
	assert_int_equal(account->fullest.moment.parts[PART_CONTEXT], 530 * MIB);
	assert_int_equal(account->fullest.moment.parts[PART_OTHERS], 4014 * MIB);
}

static void libraries_have_the_names_that_people_know(void **state)
{
	(void)state;
	assert_string_equal(device_library_name("/x/nvidia/cublas/lib/libcublasLt.so.12"),
			    "cuBLAS");
	assert_string_equal(device_library_name("libnccl.so.2"), "NCCL");
	assert_string_equal(device_library_name("/a/libcudnn_engines.so.9"), "cuDNN");
	assert_null(device_library_name("/opt/libcudnn/app"));
	assert_null(device_library_name("/a/libcuda.so.1"));
}

/* ---- one moment ---- */

/* The pool hands out or takes back a block inside its segments: nothing changes for the driver. */
static void use_pool(struct device *d, uint64_t bytes, bool more)
{
	struct play *p = d->play;
	uint64_t address = UINT64_C(0x500000000000);

	if (more)
		maker_alloc(&p->w, p->now++, PTA, address, bytes, 0);
	else
		maker_free(&p->w, p->now++, PTA, address);
	d->live = more ? d->live + bytes : d->live - bytes;
}

static void a_ledger_is_of_the_moment_of_the_peak_of_its_pool(void **state)
{
	struct play *p = *state;
	struct device d = {.play = p}, then = {0};
	const struct device_account *account;
	struct device_view view;
	uint64_t sum = 0;
	int i, k;

	cost(&d, COST_CONTEXT, (100 + random_below(400)) * MIB);
	sample(&d);
	for (i = 0; i < 300; i++) {
		for (k = (int)random_below(4); k >= 0; k--) {
			act(&d);
			if (d.live > then.live)
				then = d;
		}
		/* Samples come late, and not after every change. */
		if (random_below(3) == 0)
			continue;
		sample(&d);
		p->now += 400 * MS;
	}
	account = play(p);
	assert_non_null(account);
	device_then(account, p->replay, &view);
	assert_int_equal(view.when, DEVICE_POOL_PEAK);
	assert_int_equal(view.pool, POOL_pta);
	assert_int_equal(view.pool_count, 1);
	assert_int_equal(view.pools[0].live_bytes, then.live);
	assert_int_equal(view.pools[0].reserved_bytes, then.reserved);
	assert_int_equal(view.moment.parts[PART_POOLS], then.reserved);
	assert_int_equal(view.moment.parts[PART_OUTSIDE], then.direct + then.async);
	assert_int_equal(view.moment.parts[PART_KEPT], then.held - then.async);
	for (i = 0; i < PARTS_OF_DEVICE; i++)
		sum += view.moment.parts[i];
	assert_int_equal(view.moment.used_bytes, sum);
}

/* A second framework has a little on the device, in a pool of its own. */
static void of_two_pools_the_one_that_had_most_has_the_ledger(void **state)
{
	struct play *p = *state;
	struct device d = {.play = p};
	const struct device_account *account;
	struct device_view view;

	cost(&d, COST_CONTEXT, 300 * MIB);
	sample(&d);
	grow_pool(&d, 0);
	MAKER_EVENT(&p->w, p->now++, 0, context_def, .id = 4, .pool = POOL_atb, .kind = BLOCK_ALLOC,
		    .vendor = VENDOR_CUDA, .device = 3);
	maker_alloc(&p->w, p->now++, 4, UINT64_C(0x400000000000), 512, 0);
	p->now += 400 * MS;
	sample(&d);
	account = play(p);
	device_then(account, p->replay, &view);
	assert_int_equal(view.when, DEVICE_POOL_PEAK);
	assert_int_equal(view.pool, POOL_pta);
}

/* The device is fuller later, while less of the pool is in use. */
static void what_comes_after_a_peak_is_not_in_its_ledger(void **state)
{
	struct play *p = *state;
	struct device d = {.play = p}, then;
	const struct device_account *account;
	struct device_view view;

	cost(&d, COST_CONTEXT, 300 * MIB);
	sample(&d);
	grow_pool(&d, 0);
	use_pool(&d, d.segments[0] / 4, true);
	then = d;
	use_pool(&d, d.segments[0] / 4, false);
	direct(&d, 0);
	p->now += 400 * MS;
	sample(&d);
	direct(&d, 1);
	p->now += 400 * MS;
	sample(&d);
	account = play(p);
	device_then(account, p->replay, &view);
	assert_int_equal(account->fullest.moment.parts[PART_OUTSIDE], d.direct);
	assert_int_equal(account->fullest.pools[0].live_bytes, d.live);
	assert_int_equal(view.pools[0].live_bytes, then.live);
	assert_int_equal(view.moment.parts[PART_OUTSIDE], 0);
	assert_int_equal(view.moment.parts[PART_CONTEXT], 300 * MIB);
	assert_int_equal(view.moment.used_bytes, own(&then));
	assert_int_equal(view.moment.parts[PART_UNKNOWN], 0);
}

/* The driver refuses a request of the pool and says what it has left; the thread goes on, or the trace ends. */
static void refuse(struct device *d, uint64_t total, bool goes_on)
{
	struct play *p = d->play;

	MAKER_EVENT(&p->w, p->now++, HAL, oom, .call = OOM_CUDA_DRIVER, .requested_bytes = total,
		    .total_bytes = total, .allocated_bytes = UINT64_MAX,
		    .reserved_bytes = UINT64_MAX, .free_bytes = total - own(d) - d->others);
	if (goes_on)
		use_pool(d, 4096, true);
}

static void check_refused(struct play *p, const struct device *then, uint64_t others,
			  uint64_t unknown)
{
	const struct device_account *account = play(p);
	struct device_view view;

	device_then(account, p->replay, &view);
	assert_int_equal(view.when, DEVICE_REFUSED);
	assert_int_equal(view.pools[0].live_bytes, then->live);
	assert_int_equal(view.pools[0].reserved_bytes, then->reserved);
	assert_int_equal(view.moment.parts[PART_POOLS], then->reserved);
	assert_int_equal(view.moment.parts[PART_OUTSIDE], then->direct);
	assert_int_equal(view.moment.parts[PART_OTHERS], others);
	assert_int_equal(view.moment.parts[PART_UNKNOWN], unknown);
	assert_int_equal(view.moment.used_bytes, own(then) + then->others);
}

static void a_device_that_ran_out(struct device *d, struct play *p)
{
	d->play = p;
	cost(d, COST_CONTEXT, 300 * MIB);
	sample(d);
	grow_pool(d, 0);
	use_pool(d, d->segments[0] / 2, true); /* all of it is in use */
	direct(d, 0);
	p->now += 400 * MS;
}

static void where_memory_ran_out_the_ledger_is_of_that_moment(void **state)
{
	struct play *p = *state;
	struct device d = {0}, then;

	a_device_that_ran_out(&d, p);
	d.others = 2048 * MIB;
	sample(&d);
	then = d;
	refuse(&d, 3000 * MIB, true);
	/* It goes on with less, and the other process ends. */
	shrink_pool(&d, 0);
	d.others = 0;
	p->now += 400 * MS;
	sample(&d);
	check_refused(p, &then, 2048 * MIB, 0);
}

static void others_that_grew_just_before_are_known_by_the_next_sample(void **state)
{
	struct play *p = *state;
	struct device d = {0}, then;

	a_device_that_ran_out(&d, p);
	sample(&d);
	d.others = 1024 * MIB;
	then = d;
	refuse(&d, 3000 * MIB, true);
	d.others = 1500 * MIB;
	p->now += 400 * MS;
	sample(&d);
	check_refused(p, &then, 1024 * MIB, 0);
}

static void what_nobody_saw_before_the_program_died_is_unknown(void **state)
{
	struct play *p = *state;
	struct device d = {0}, then;

	a_device_that_ran_out(&d, p);
	d.others = 100 * MIB;
	sample(&d);
	d.others = 1024 * MIB;
	then = d;
	refuse(&d, 3000 * MIB, false);
	check_refused(p, &then, 100 * MIB, 924 * MIB);
}

/* A document of one GPU at one moment. */
static struct finding_device_moment *gpu(struct findings *found, uint32_t number,
					 enum device_when when)
{
	struct finding_device_memory *device = FINDINGS_ADD(found, device_memory);
	struct finding_device_moment *moment =
		FINDINGS_ADD_TO(found, device_moment,
				when == DEVICE_FULLEST ? &device->peak : &device->at_pool_peak);

	device->device = number;
	device->platform = VENDOR_CUDA;
	device->total_bytes = 80 * 1024 * MIB;
	moment->when = when;
	return moment;
}

static void add_library(struct findings *found, struct finding_device_moment *moment,
			const char *name, uint64_t bytes)
{
	*FINDINGS_ADD_TO(found, device_library, &moment->outside) =
		(struct finding_device_library){.library = name, .bytes = bytes};
}

static void a_sentence_names_each_part_once(void **state)
{
	struct findings found = {0};
	struct finding_device_moment *moment = gpu(&found, 1, DEVICE_POOL_PEAK);
	struct strbuf out = {0};

	(void)state;
	moment->pool = POOL_pta;
	*FINDINGS_ADD_TO(&found, device_pool, &moment->pools) = (struct finding_device_pool){
		.pool = POOL_pta, .reserved_bytes = 40 * MIB, .live_bytes = 30 * MIB};
	add_library(&found, moment, "cuBLAS", 8 * MIB);
	add_library(&found, moment, "", 2 * MIB);
	moment->used_bytes = 60 * MIB;
	moment->pools_bytes = 40 * MIB;
	moment->outside_bytes = 10 * MIB;
	moment->kept_bytes = 3 * MIB;
	moment->context_bytes = 5 * MIB;
	moment->other_processes_bytes = 4 * MIB;
	moment->unknown_bytes = MIB;
	devices_text(&found, false, &out);
	assert_string_equal(
		strbuf_str(&out),
		"GPU 1 at the peak of PTA: 60.0 MiB of 80.0 GiB used = PTA 40.0 MiB (10.0 "
		"MiB unused) + cuBLAS 8.0 MiB + driver memory outside of pools 2.0 MiB "
		"+ kept by the driver's pools 3.0 MiB + context 5.0 MiB + other "
		"processes 4.0 MiB + unknown 1.0 MiB\n");
	strbuf_fini(&out);
	findings_fini(&found);
}

static void a_pool_that_tells_is_split_further(void **state)
{
	struct findings found = {0};
	struct finding_device_moment *moment = gpu(&found, 0, DEVICE_FULLEST);
	struct strbuf out = {0};

	(void)state;
	*FINDINGS_ADD_TO(&found, device_pool, &moment->pools) =
		(struct finding_device_pool){.pool = POOL_pta,
					     .reserved_bytes = 40 * MIB,
					     .live_bytes = 30 * MIB,
					     .requested_bytes = 29 * MIB,
					     .waiting_bytes = 4 * MIB,
					     .private_pools_bytes = 12 * MIB};
	moment->used_bytes = moment->pools_bytes = 40 * MIB;
	devices_text(&found, false, &out);
	assert_string_equal(
		strbuf_str(&out),
		"GPU 0 at its fullest: 40.0 MiB of 80.0 GiB used = PTA 40.0 MiB (30.0 MiB in use, "
		"29.0 MiB of it asked for, 4.0 MiB waiting for streams, 6.0 MiB unused; CUDA "
		"graphs and private pools 12.0 MiB) + unknown 0 B\n");
	strbuf_fini(&out);
	findings_fini(&found);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(every_part_of_a_random_program_is_what_it_was_at_the_peak),
		TEST(every_part_of_a_random_program_is_what_it_was_at_the_peak),
		TEST(every_part_of_a_random_program_is_what_it_was_at_the_peak),
		TEST(every_part_of_a_random_program_is_what_it_was_at_the_peak),
		TEST(what_nothing_tells_is_unknown_and_never_the_contexts),
		TEST(pools_of_the_driver_hold_no_more_than_is_there),
		TEST(a_sample_that_comes_late_is_of_what_was_there),
		TEST(code_that_is_loaded_all_the_time_takes_nothing_of_the_pool),
		TEST(what_the_pool_took_and_gave_back_is_no_code),
		TEST(what_the_pool_is_giving_back_is_no_code),
		TEST(what_other_processes_have_is_the_rest_where_they_are_not_listed),
		TEST(what_no_process_has_stays_the_contexts),
		TEST(a_device_of_others_alone_has_no_account),
		TEST(others_that_came_before_the_cost_of_the_context_stay),
		TEST(points_over_time_keep_the_peak_and_stay_few),
		TEST(blocks_take_whole_pages_that_small_ones_share),
		TEST(a_first_sample_that_comes_late_leaves_the_context_whole),
		TEST(what_no_process_has_came_with_contexts),
		TEST(what_other_processes_had_before_is_not_of_this_context),
		TEST(managed_memory_counts_as_far_as_the_driver_counts_it),
		TEST(what_is_given_back_within_a_span_is_gone_over_time),
		TEST(a_ledger_is_of_the_moment_of_the_peak_of_its_pool),
		TEST(a_ledger_is_of_the_moment_of_the_peak_of_its_pool),
		TEST(a_ledger_is_of_the_moment_of_the_peak_of_its_pool),
		TEST(of_two_pools_the_one_that_had_most_has_the_ledger),
		TEST(what_comes_after_a_peak_is_not_in_its_ledger),
		TEST(where_memory_ran_out_the_ledger_is_of_that_moment),
		TEST(others_that_grew_just_before_are_known_by_the_next_sample),
		TEST(what_nobody_saw_before_the_program_died_is_unknown),
		cmocka_unit_test(libraries_have_the_names_that_people_know),
		cmocka_unit_test(a_sentence_names_each_part_once),
		cmocka_unit_test(a_pool_that_tells_is_split_further),
	};

	return cmocka_run_group_tests_name("whole_device", tests, unit_make_directory,
					   unit_remove_empty_directory);
}
