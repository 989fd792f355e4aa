/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks before there is a session: the table, its growth, and the moment when the trace begins while threads go on. The threads are
 * a driver that never gives an address twice at one time, and hand blocks to one another; the trace must be exactly theirs.
 */
#include "unit.h"

#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "collector/record/hot.h"
#include "engine/session_place.h"
#include "trace/run.h"

#define THREADS	  4
#define ADDRESSES 8192
#define SLOTS	  2048
#define OLD	  30000 /* blocks that nobody frees: the table has to grow for them */
#define BEFORE	  20000 /* events of each thread before the trace */

static char output[128];
static struct session_place place;

/* What a thread passes here that is to wait on its way into the table, until the trace has begun. */
#define LATE 0x40

static atomic_uint late_waiting;
static atomic_bool late_goes_on;

static void decode(uint64_t key, struct context *out)
{
	if ((key & LATE) && !atomic_load(&late_goes_on)) {
		atomic_fetch_add(&late_waiting, 1);
		while (!atomic_load(&late_goes_on))
			(void)sched_yield();
	}
	out->pool = POOL_hal;
	out->vendor = VENDOR_CPU;
	out->kind = (uint8_t)(key >> 8);
	out->device = (uint32_t)key & 0xff;
	out->flags = key;
}

static int begin(void **state)
{
	const char *parent = getenv("TMPDIR");
	struct session *wanted = calloc(1, sizeof(*wanted));
	int r;

	(void)state;
	(void)snprintf(output, sizeof(output), "%s/mscope-early-XXXXXX",
		       parent != NULL && strlen(parent) < 100 ? parent : "/tmp");
	if (wanted == NULL || mkdtemp(output) == NULL || unsetenv(SESSION_ENV) != 0)
		return -1;
	memcpy(wanted->magic, SESSION_MAGIC, sizeof(wanted->magic));
	wanted->bytes = sizeof(*wanted);
	wanted->state = RECORDING_SHADOW;
	wanted->launch_pid = (uint32_t)getpid();
	memcpy(wanted->output, output, strlen(output));
	r = session_create(wanted, output, &place, NULL);
	free(wanted);
	return r;
}

static const char *find_raw(void)
{
	static char path[SESSION_PATH_MAX + 300];
	const struct dirent *entry;
	DIR *dir = opendir(place.directory);

	path[0] = '\0';
	while ((entry = readdir(dir)) != NULL) {
		if (entry->d_name[0] != '.' && strstr(entry->d_name, SESSION_RAW) != NULL)
			(void)snprintf(path, sizeof(path), "%s/%s", place.directory, entry->d_name);
	}
	(void)closedir(dir);
	return path[0] != '\0' ? path : NULL;
}

static int end(void **state)
{
	const char *raw = find_raw();

	(void)state;
	if (raw != NULL)
		(void)unlink(raw);
	(void)session_remove(&place);
	session_close(&place);
	return rmdir(output);
}

/* ---- the driver ---- */

static atomic_uint taken[ADDRESSES];  /* by a block that lives */
static uint64_t size_of[ADDRESSES];   /* of that block; its owner writes it */
static _Atomic uint32_t slots[SLOTS]; /* number of a block + 1 */
static atomic_ulong events_done[THREADS];
static atomic_bool over;

static uint64_t address_of(uint32_t number)
{
	return UINT64_C(0x12c0000000) + (uint64_t)number * 512;
}

static void give_back(uint32_t number)
{
	event_free(7, 0, decode, address_of(number), NULL);
	atomic_store(&taken[number], 0);
}

static void *work(void *arg)
{
	uint32_t thread = (uint32_t)(uintptr_t)arg, number, old;
	uint64_t random = thread + 1, count = 0;

	while (!atomic_load(&over)) {
		random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
		number = (uint32_t)(random >> 33) % ADDRESSES;
		if (atomic_exchange(&taken[number], 1) != 0)
			continue;
		size_of[number] = (random >> 20 & 0xffff) + 1;
		event_alloc(7, thread, decode, address_of(number), size_of[number], NULL);
		old = atomic_exchange(&slots[(random >> 48) % SLOTS], number + 1);
		if (old != 0)
			give_back(old - 1);
		atomic_store(&events_done[thread], ++count);
	}
	return NULL;
}

#define LATE_ALLOC 500
#define LATE_FREE  501

static void *late_alloc(void *arg)
{
	event_alloc(7, LATE, decode, LATE_ALLOC, 5000, NULL);
	return arg;
}

static void *late_free(void *arg)
{
	event_free(7, LATE, decode, LATE_FREE, NULL);
	return arg;
}

static void wait_for_events(uint64_t count)
{
	uint32_t i;

	for (i = 0; i < THREADS; i++) {
		uint64_t from = atomic_load(&events_done[i]);

		while (atomic_load(&events_done[i]) < from + count)
			(void)sched_yield();
	}
}

/* ---- what the trace says ---- */

struct checker {
	struct map live; /* kind << 32 and key -> size */
	struct map contexts;
	uint64_t before; /* blocks that are older than the trace */
	uint64_t events;
};

static struct map_key live_key(struct checker *c, const struct trace_event *event, uint64_t name)
{
	uint64_t *flags = map_get(&c->contexts, (struct map_key){event->writer, event->context});

	assert_non_null(flags);
	return (struct map_key){*flags >> 8, name};
}

static void check_event(struct checker *c, const struct trace_event *event)
{
	struct event_block_before before;
	struct event_context_def def;

	switch (event->type) {
	case EVENT_context_def:
		event_context_def_decode(event->words, &def);
		assert_int_equal(
			map_put(&c->contexts, (struct map_key){event->writer, def.id}, def.flags),
			0);
		return;
	case EVENT_block_before:
		event_block_before_decode(event->words, &before);
		assert_int_equal(c->events, 0); /* before everything else */
		assert_int_not_equal(before.tid, 0);
		assert_null(map_get(&c->live, live_key(c, event, before.key)));
		assert_int_equal(
			map_put(&c->live, live_key(c, event, before.key), before.size_bytes), 0);
		c->before++;
		return;
	case EVENT_block_alloc:
		assert_null(map_get(&c->live, live_key(c, event, event->words[1])));
		assert_int_equal(map_put(&c->live, live_key(c, event, event->words[1]),
					 event->words[2] & SIZE_NARROW_MAX),
				 0);
		break;
	case EVENT_block_free:
		assert_true(map_remove(&c->live, live_key(c, event, event->words[1]), NULL));
		break;
	default:
		return;
	}
	c->events++;
}

static void check_live(struct checker *c, uint64_t kind, uint64_t name, uint64_t size)
{
	uint64_t *found = map_get(&c->live, (struct map_key){kind, name});

	assert_non_null(found);
	assert_int_equal(*found, size);
}

/* As mscope_open() does it, when the engine has made the session. */
static void session_comes(void)
{
	uint32_t early = RECORDING_EARLY;

	(void)snprintf(collector.session, sizeof(collector.session), "%s", place.directory);
	assert_true(atomic_compare_exchange_strong(&collector_switch.recording, &early,
						   RECORDING_DETACHED));
	assert_int_equal(collector_attach_slow(), RECORDING_SHADOW);
}

static void blocks_that_live_when_the_trace_begins_are_in_it_once(void **state)
{
	struct checker c = {.before = 0};
	struct trace_event event;
	pthread_t threads[THREADS], late[2];
	struct run *run = NULL;
	uint64_t i, blocks = 0;

	(void)state;
	for (i = 0; i < OLD; i++)
		event_alloc(7, 0, decode, 0x500000000 + i * 64, i, NULL);
	assert_int_equal(recording_now(), RECORDING_EARLY);
	assert_null(find_raw());
	/* The same number as an address and as a handle; a free that failed; a block handed out again without a free. */
	event_region_slow(7, BLOCK_HANDLE << 8, decode, 77, 0x9000, 70, NULL);
	event_alloc(7, 0, decode, 77, 71, NULL);
	event_free(7, 0, decode, 77, NULL);
	event_alloc(7, 0, decode, 78, 72, NULL);
	event_free(7, 0, decode, 78, NULL);
	event_free_undo_slow(7, 0, decode, 78);
	event_alloc(7, 0, decode, 79, 1, NULL);
	event_alloc(7, 0, decode, 79, 73, NULL);
	event_free(7, 0, decode, 0xdead, NULL);
	event_free_undo_slow(7, 0, decode, 0xdead);
	event_alloc(7, 0, decode, LATE_FREE, 5001, NULL);
	assert_int_equal(pthread_create(&late[0], NULL, late_alloc, NULL), 0);
	assert_int_equal(pthread_create(&late[1], NULL, late_free, NULL), 0);
	while (atomic_load(&late_waiting) < 2)
		(void)sched_yield();
	for (i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)i), 0);
	wait_for_events(BEFORE);
	session_comes();
	atomic_store(&late_goes_on, true);
	for (i = 0; i < 2; i++)
		(void)pthread_join(late[i], NULL);
	wait_for_events(1000);
	atomic_store(&over, true);
	for (i = 0; i < THREADS; i++)
		(void)pthread_join(threads[i], NULL);

	assert_int_equal(run_open(find_raw(), NULL, true, &run, NULL), 0);
	assert_int_equal(run_poll(run, 0, true), 0);
	while (run_next(run, &event))
		check_event(&c, &event);
	assert_true(c.before >= OLD + 4 && c.events >= THREADS * 1000);
	for (i = 0; i < OLD; i++)
		check_live(&c, BLOCK_ALLOC, 0x500000000 + i * 64, i);
	check_live(&c, BLOCK_HANDLE, 77, 70);
	check_live(&c, BLOCK_ALLOC, 78, 72);
	check_live(&c, BLOCK_ALLOC, 79, 73);
	check_live(&c, BLOCK_ALLOC, LATE_ALLOC, 5000);
	for (i = 0; i < SLOTS; i++) {
		uint32_t number = atomic_load(&slots[i]);

		if (number != 0)
			check_live(&c, BLOCK_ALLOC, address_of(number - 1), size_of[number - 1]);
		blocks += number != 0;
	}
	assert_int_equal(c.live.count, OLD + 4 + blocks);
	for (i = 0; i < LOSS_END; i++)
		assert_int_equal(atomic_load(&run_header_live(run)->loss[i]), 0);
	run_close(run);
	map_fini(&c.live);
	map_fini(&c.contexts);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(blocks_that_live_when_the_trace_begins_are_in_it_once),
	};

	return cmocka_run_group_tests_name("early", tests, begin, end);
}
