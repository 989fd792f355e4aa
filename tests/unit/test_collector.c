/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claims about the record path of collector/, linked into a program of its own so that the sanitizers see it: what several
 * threads record at a time, and threads that follow one another in the same writer, is read back while it happens, every event
 * once, in each thread's order, none late, nothing lost; a context is defined once, and a stack before it is referred to.
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

#define THREADS	    8u
#define GENERATIONS 3u
#define EVENTS	    20000u /* of each thread */
#define SOURCE	    0x42u

static struct session_place place;
static char output[200];

static void decode(uint64_t key, struct context *out)
{
	out->pool = POOL_hal;
	out->vendor = VENDOR_CPU;
	out->device = (uint32_t)key;
	out->flags = key;
}

static int begin(void **state)
{
	const char *parent = getenv("TMPDIR");
	struct session *wanted = calloc(1, sizeof(*wanted));
	int r;

	(void)state;
	(void)snprintf(output, sizeof(output), "%s/mscope-collector-XXXXXX",
		       parent != NULL && strlen(parent) < 100 ? parent : "/tmp");
	if (wanted == NULL || mkdtemp(output) == NULL)
		return -1;
	memcpy(wanted->magic, SESSION_MAGIC, sizeof(wanted->magic));
	wanted->bytes = sizeof(*wanted);
	wanted->state = RECORDING_ON;
	wanted->launch_pid = (uint32_t)getpid();
	memcpy(wanted->output, output, strlen(output));
	r = session_create(wanted, output, &place, NULL);
	free(wanted);
	if (r == 0)
		r = setenv(SESSION_ENV, place.directory, 1);
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

/* Thread `number` writes addresses number << 32 | i, an allocation and a free in turn, sizes and contexts by i. */
static uint64_t size_of(uint64_t i)
{
	return i % 1000 == 0 ? SIZE_NARROW_MAX + 1 + i : i + 1;
}

static uint64_t key_of(uint64_t i)
{
	return i / 2 % 11 << 17 | 3;
}

static atomic_uint running;

static void *record(void *arg)
{
	uint64_t number = (uint64_t)(uintptr_t)arg, i;

	for (i = 0; i < EVENTS; i++) {
		if (i % 2 == 0)
			event_alloc(SOURCE, key_of(i), decode, number << 32 | i, size_of(i), NULL);
		else
			event_free(SOURCE, key_of(i), decode, number << 32 | (i - 1), NULL);
	}
	atomic_fetch_sub(&running, 1);
	return NULL;
}

struct checker {
	uint64_t next[THREADS * GENERATIONS];
	uint32_t tids[THREADS * GENERATIONS];
	struct map contexts; /* writer, id -> flags */
	struct map stacks;   /* writer, id -> 1 */
	uint64_t modules, with_stack;
	uint64_t definitions;
	uint32_t writers;
};

static void check_event(struct checker *c, const struct trace_event *event)
{
	struct event_context_def def;
	struct event_block_alloc_wide wide;
	struct event_block_alloc alloc;
	uint64_t number, i, stack = 0, *flags;

	if (event->writer > c->writers)
		c->writers = event->writer;
	if (event->type == EVENT_context_def) {
		event_context_def_decode(event->words, &def);
		assert_int_equal(
			map_put(&c->contexts, (struct map_key){event->writer, def.id}, def.flags),
			0);
		c->definitions++;
		return;
	}
	if (event->type == EVENT_stack_def) {
		assert_true(c->modules > 0);
		assert_int_equal(map_put(&c->stacks,
					 (struct map_key){event->writer, event->words[1] >> 32}, 1),
				 0);
		return;
	}
	c->modules += event->type == EVENT_module_load;
	if (event->type == EVENT_thread || event->type == EVENT_module_load ||
	    event->type == EVENT_note)
		return;
	number = event->words[1] >> 32;
	assert_in_range(number, 0, THREADS * GENERATIONS - 1);
	i = c->next[number]++;
	assert_int_equal(event->words[1] & UINT32_MAX, i - i % 2);
	if (c->tids[number] == 0)
		c->tids[number] = event->tid;
	assert_int_equal(event->tid, c->tids[number]);
	flags = map_get(&c->contexts, (struct map_key){event->writer, event->context});
	assert_non_null(flags);
	assert_int_equal(*flags, key_of(i));
	if (i % 2 == 1) {
		assert_true(event->type == EVENT_block_free ||
			    event->type == EVENT_block_free_traced);
		if (event->type == EVENT_block_free_traced)
			stack = event->words[2];
	} else if (size_of(i) > SIZE_NARROW_MAX) {
		assert_int_equal(event->type, EVENT_block_alloc_wide);
		event_block_alloc_wide_decode(event->words, &wide);
		assert_int_equal(wide.size_bytes, size_of(i));
		stack = wide.stack;
	} else {
		assert_int_equal(event->type, EVENT_block_alloc);
		event_block_alloc_decode(event->words, &alloc);
		assert_int_equal(alloc.size_bytes, size_of(i));
		stack = alloc.stack;
	}
	if (stack != 0) {
		assert_non_null(map_get(&c->stacks, (struct map_key){event->writer, stack}));
		c->with_stack++;
	}
}

static void follow(struct run *run, struct checker *c, bool final)
{
	uint64_t now = clock_ns();
	struct trace_event event;

	if (syscall(SYS_NR_membarrier, 2 /* GLOBAL_EXPEDITED */, 0) != 0)
		now = 0;
	assert_int_equal(run_poll(run, now, final), 0);
	while (run_next(run, &event))
		check_event(c, &event);
}

static void every_event_of_every_thread_is_read_once_and_in_order(void **state)
{
	pthread_t threads[THREADS];
	struct checker c = {.writers = 0};
	struct run *run = NULL;
	uint32_t generation, i;

	(void)state;
	for (generation = 0; generation < GENERATIONS; generation++) {
		atomic_store(&running, THREADS);
		if (generation == GENERATIONS - 1) {
			/* The last ones with stacks. */
			collector.c_depth = 4;
			stack_switch(true);
		}
		for (i = 0; i < THREADS; i++)
			assert_int_equal(
				pthread_create(&threads[i], NULL, record,
					       (void *)(uintptr_t)(generation * THREADS + i)),
				0);
		/* Only then has the file its name; and descriptors that come and go unseen confuse a thread sanitizer. */
		while (atomic_load(&collector_switch.recording) != RECORDING_ON)
			(void)sched_yield();
		if (run == NULL)
			assert_int_equal(run_open(find_raw(), NULL, true, &run, NULL), 0);
		while (atomic_load(&running) > 0)
			follow(run, &c, false);
		for (i = 0; i < THREADS; i++)
			(void)pthread_join(threads[i], NULL);
	}
	follow(run, &c, true);
	for (i = 0; i < THREADS * GENERATIONS; i++)
		assert_int_equal(c.next[i], EVENTS);
	assert_int_equal(run_damage(run)->late_events, 0);
	assert_int_equal(run_damage(run)->bad_chunks + run_damage(run)->bad_records, 0);
	assert_int_equal(run_damage(run)->missing_chunks, 0);
	for (i = 0; i < LOSS_END; i++)
		assert_int_equal(atomic_load(&run_header_live(run)->loss[i]), 0);
	/* Threads of a later generation took over the writers of the first. */
	assert_in_range(c.writers, 1, THREADS);
	assert_int_equal(c.definitions, 11 * c.writers);
	assert_int_equal(c.with_stack, THREADS * EVENTS);
	map_fini(&c.contexts);
	map_fini(&c.stacks);
	run_close(run);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_event_of_every_thread_is_read_once_and_in_order),
	};

	return cmocka_run_group_tests_name("collector", tests, begin, end);
}
