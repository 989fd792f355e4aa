/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coroutines BYTES: takes and gives back memory in coroutines whose stacks have BYTES bytes each, with a page behind them that nobody may
 * touch. Among them are the process's first event, a thread's first event, call sites that were never seen, call sites in a library that
 * came just before, many events, and frees that fail. Prints for each how deep its stack was used at most.
 *
 * BYTES 0: 64 KiB, for measuring.
 */
#include <alloca.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <ucontext.h>

#include "target.h"

#define PAGE   ((size_t)4096)
#define PAINT  UINT64_C(0x5ca1ab1e0ddba11)
#define EVENTS 40000u /* more than two chunks hold */

struct coroutine {
	ucontext_t context, back;
	void (*body)(struct coroutine *);
	struct truth *truth;
};

static size_t stack_bytes;

/* ---- what runs in coroutines ---- */

static void take(struct truth *truth, uint64_t size)
{
	truth_free(truth, truth_alloc(truth, size, FLAG_NORMAL));
}

static void first(struct coroutine *c)
{
	take(c->truth, 100);
}

/* Call sites that nobody has seen yet: each function is another one. */
#define SITE(number)                                                                               \
	static __attribute__((noinline)) void site_##number(struct truth *truth)                   \
	{                                                                                          \
		take(truth, 1000 + (number));                                                      \
	}
#define SITES(number) SITE(number##0) SITE(number##1) SITE(number##2) SITE(number##3)
SITES(1)
SITES(2)
SITES(3)

static void sites(struct coroutine *c)
{
	static void (*const all[])(struct truth *) = {
		site_10, site_11, site_12, site_13, site_20, site_21,
		site_22, site_23, site_30, site_31, site_32, site_33,
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		all[i](c->truth);
}

/* Frames that are found by their frame pointer, and by what lies beside it. */
static void in_array(struct truth *truth, size_t bytes)
{
	volatile char *array = alloca(bytes);

	array[0] = 1;
	take(truth, 2000 + (size_t)array[0]);
}

static void in_aligned(struct truth *truth)
{
	volatile char line[64] __attribute__((aligned(64)));

	line[0] = 2;
	take(truth, 2000 + (size_t)line[0]);
}

static void shapes(struct coroutine *c)
{
	for (size_t bytes = 16; bytes < 400; bytes += 100)
		in_array(c->truth, bytes);
	in_aligned(c->truth);
}

static void many(struct coroutine *c)
{
	for (unsigned i = 0; i < EVENTS / 2; i++)
		take(c->truth, 64 + i % 32);
}

static void failing(struct coroutine *c)
{
	struct block *block = truth_alloc(c->truth, 300, FLAG_NORMAL);

	truth_free(c->truth, block);
	target_check(halMemFree((void *)(uintptr_t)block->address) != 0, "a second free succeeds");
}

/* The plug-in was opened outside, since the loader itself needs more than a coroutine has. */
static void *(*plugin)(unsigned long long size, unsigned long long flag);

static void in_library(struct coroutine *c)
{
	void *address = plugin(400, FLAG_NORMAL);

	target_check(address != NULL, "the plug-in got no memory");
	truth_free(c->truth, truth_add_flag(c->truth, address, 400, FLAG_NORMAL));
}

/* ---- running them ---- */

static void enter(unsigned high, unsigned low)
{
	struct coroutine *c = (struct coroutine *)(void *)(uintptr_t)((uint64_t)high << 32 | low);

	c->body(c);
}

/* Bytes at the far end that nobody has used. */
static size_t painted(const uint64_t *stack, size_t bytes)
{
	size_t i = 0;

	while (i < bytes / 8 && stack[i] == PAINT)
		i++;
	return i * 8;
}

static void run(const char *name, struct truth *truth, void (*body)(struct coroutine *))
{
	const size_t bytes = stack_bytes != 0 ? stack_bytes : 16 * PAGE;
	const size_t mapped = (bytes + PAGE - 1) / PAGE * PAGE;
	char *memory = target_map(PAGE + mapped);
	uint64_t *stack = (uint64_t *)(void *)(memory + PAGE + mapped - bytes);
	static struct coroutine c; /* one at a time */

	target_check(mprotect(memory, PAGE, PROT_NONE) == 0, "mprotect failed");
	for (size_t i = 0; i < bytes / 8; i++)
		stack[i] = PAINT;
	c = (struct coroutine){.body = body, .truth = truth};
	target_check(getcontext(&c.context) == 0, "getcontext failed");
	c.context.uc_stack.ss_sp = stack;
	c.context.uc_stack.ss_size = bytes;
	c.context.uc_link = &c.back;
	makecontext(&c.context, (void (*)(void))enter, 2, (unsigned)((uint64_t)(uintptr_t)&c >> 32),
		    (unsigned)(uintptr_t)&c);
	target_check(swapcontext(&c.back, &c.context) == 0, "swapcontext failed");
	printf("%s %zu\n", name, bytes - painted(stack, bytes));
	munmap(memory, PAGE + mapped);
}

static void *thread(void *argument)
{
	struct truth *truth = argument; /* made by main, which has the room for it */

	truth->tid = target_tid();
	run("thread", truth, first);
	run("thread-again", truth, first);
	return NULL;
}

int main(int argc, char **argv)
{
	struct truth *own = truth_new(2 * EVENTS), *other = truth_new(64);
	void *library;
	pthread_t other_thread;

	target_check(argc == 3, "coroutines BYTES PLUGIN");
	stack_bytes = strtoul(argv[1], NULL, 10) & ~(size_t)15;
	run("process", own, first);
	run("again", own, first);
	run("sites", own, sites);
	run("sites-again", own, sites);
	run("shapes", own, shapes);
	run("failing", own, failing);
	pthread_create(&other_thread, NULL, thread, other);
	pthread_join(other_thread, NULL);
	library = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
	target_check(library != NULL, "dlopen failed");
	*(void **)&plugin = dlsym(library, "plugin_a");
	target_check(plugin != NULL, "dlsym failed");
	run("library", own, in_library);
	dlclose(library);
	run("unloaded", own, sites);
	run("many", own, many);
	truth_write();
	return 0;
}
