/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plain_calls COLLECTOR ENGINE OUT CALLER PLUGIN: opens the collector by itself, in a process that runs already, and has it redirect its
 * calls and give them back, three times, while four threads call through the same slots.
 *
 * In each round it takes memory on device 0: by its own calls, by those of PLUGIN, which is loaded in the round and unloaded, and in the
 * second round in a forked child. The threads use device 1. CALLER has a RUNPATH by which alone it finds libinner.so. Prints a line of
 * JSON for each process and round: what it took and freed on device 0 while it was recorded.
 *
 * With ENGINE `-` it records in the session of its environment, for one round.
 *
 * Every slot of every object is read before the first round and after each; with LD_BIND_NOW they must be the same words.
 */
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>

#include "target.h"

#define ROUNDS	  3u
#define THREADS	  4u
#define WORDS_MAX 400000u

#if defined(__x86_64__)
#define TYPE_CALL    R_X86_64_JUMP_SLOT
#define TYPE_ADDRESS R_X86_64_GLOB_DAT
#else
#define TYPE_CALL    R_AARCH64_JUMP_SLOT
#define TYPE_ADDRESS R_AARCH64_GLOB_DAT
#endif

static struct {
	void *library;
	int32_t (*open)(const char *engine, const char *const *argv);
	int32_t (*redirect)(void);
	int32_t (*restore)(void);
	int32_t (*leave)(void);
	int32_t (*start)(const uint32_t *settings, uint32_t named);
	int32_t (*stop)(void);
	int32_t (*flush)(void);
} collector;

static atomic_bool ended;
static atomic_uint calls;

/* ---- slots ---- */

struct word {
	uintptr_t at;
	uintptr_t value;
};

struct words {
	struct word *all;
	size_t count;
	uintptr_t first, end; /* of the collector */
	unsigned into;	      /* slots of others that point into it */
};

static uintptr_t absolute(uintptr_t bias, uintptr_t value)
{
	return value < bias ? value + bias : value;
}

static void read_table(struct words *words, uintptr_t bias, const ElfW(Rela) * r, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		uintptr_t at = bias + r[i].r_offset, value;

		if (ELF64_R_TYPE(r[i].r_info) != TYPE_CALL &&
		    ELF64_R_TYPE(r[i].r_info) != TYPE_ADDRESS)
			continue;
		target_check(words->count < WORDS_MAX, "too many slots");
		value = *(volatile uintptr_t *)at;
		words->all[words->count++] = (struct word){at, value};
		if (value >= words->first && value < words->end &&
		    (at < words->first || at >= words->end))
			words->into++;
	}
}

static int read_object(struct dl_phdr_info *info, size_t size, void *arg)
{
	const ElfW(Rela) *calls_at = NULL, *others_at = NULL;
	size_t call_bytes = 0, other_bytes = 0;
	const ElfW(Dyn) *d = NULL;

	(void)size;
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			d = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	}
	for (; d != NULL && d->d_tag != DT_NULL; d++) {
		uintptr_t at = absolute(info->dlpi_addr, d->d_un.d_ptr);

		if (d->d_tag == DT_JMPREL)
			calls_at = (const ElfW(Rela) *)at;
		else if (d->d_tag == DT_RELA)
			others_at = (const ElfW(Rela) *)at;
		else if (d->d_tag == DT_PLTRELSZ)
			call_bytes = d->d_un.d_val;
		else if (d->d_tag == DT_RELASZ)
			other_bytes = d->d_un.d_val;
	}
	read_table(arg, info->dlpi_addr, calls_at, calls_at ? call_bytes / sizeof(*calls_at) : 0);
	read_table(arg, info->dlpi_addr, others_at,
		   others_at ? other_bytes / sizeof(*others_at) : 0);
	return 0;
}

static int find_collector(struct dl_phdr_info *info, size_t size, void *arg)
{
	uintptr_t inside = (uintptr_t)collector.open;
	struct words *words = arg;
	uintptr_t first = UINTPTR_MAX, end = 0;

	(void)size;
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		uintptr_t start = info->dlpi_addr + p->p_vaddr;

		if (p->p_type != PT_LOAD)
			continue;
		first = start < first ? start : first;
		end = start + p->p_memsz > end ? start + p->p_memsz : end;
	}
	if (inside < first || inside >= end)
		return 0;
	words->first = first;
	words->end = end;
	return 1;
}

static void read_slots(struct words *words)
{
	if (words->all == NULL)
		words->all = target_map(WORDS_MAX * sizeof(*words->all));
	words->count = words->into = 0;
	target_check(dl_iterate_phdr(find_collector, words) == 1, "where is the collector?");
	dl_iterate_phdr(read_object, words);
}

static void check_restored(const struct words *before, const struct words *after)
{
	bool bound = getenv("LD_BIND_NOW") != NULL;
	size_t k = 0;

	target_check(after->into == 0, "a slot still points into the collector");
	/* The collector may have loaded an unwinder: its slots are new. */
	for (size_t i = 0; bound && i < before->count; i++) {
		while (k < after->count && after->all[k].at != before->all[i].at)
			k++;
		target_check(k < after->count, "a slot is gone");
		target_check(before->all[i].value == after->all[k].value,
			     "a slot is not as it was");
	}
}

/* ---- what is recorded ---- */

static void *hammer(void *argument)
{
	(void)argument;
	while (!ended) {
		void *p = NULL;

		target_check(halMemAlloc(&p, 512, FLAG_NORMAL | 1) == 0, "no memory");
		target_check(halMemFree(p) == 0, "free failed");
		calls++;
		usleep(20);
	}
	return NULL;
}

static void wait_for_calls(void)
{
	unsigned seen = calls;

	while (calls < seen + 100)
		usleep(100);
}

static void use_device(unsigned round, unsigned base, const char *plugin)
{
	void *(*take)(unsigned long long size, unsigned long long flag) = NULL;
	int (*give)(void *) = NULL;
	void *library, *p[20], *more;

	for (unsigned i = 0; i < 20; i++)
		target_check(halMemAlloc(&p[i], base + i, FLAG_NORMAL) == 0, "no memory");
	for (unsigned i = 0; i < 20; i += 2)
		target_check(halMemFree(p[i]) == 0, "free failed");
	library = dlopen(plugin, RTLD_LAZY | RTLD_LOCAL);
	target_check(library != NULL, "the plug-in was not found");
	*(void **)&take = dlsym(library, "plugin_a");
	*(void **)&give = dlsym(library, "plugin_free");
	more = take(base + 20, FLAG_NORMAL);
	target_check(more != NULL && give(more) == 0, "the plug-in failed");
	dlclose(library);
	printf("{\"pid\": %d, \"round\": %u, \"base\": %u}\n", (int)getpid(), round, base);
	fflush(stdout);
}

static void in_a_child(unsigned round, unsigned base, const char *plugin)
{
	pid_t child = fork();
	int status = 0;

	if (child == 0) {
		use_device(round, base, plugin);
		_exit(0);
	}
	target_check(waitpid(child, &status, 0) == child && status == 0, "the child failed");
}

static void find_api(const char *file)
{
	collector.library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	target_check(collector.library != NULL, "the collector was not loaded");
	*(void **)&collector.open = dlsym(collector.library, "mscope_open");
	*(void **)&collector.redirect = dlsym(collector.library, "mscope_redirect");
	*(void **)&collector.restore = dlsym(collector.library, "mscope_restore");
	*(void **)&collector.leave = dlsym(collector.library, "mscope_leave");
	*(void **)&collector.start = dlsym(collector.library, "mscope_start");
	*(void **)&collector.stop = dlsym(collector.library, "mscope_stop");
	*(void **)&collector.flush = dlsym(collector.library, "mscope_flush");
}

int main(int argc, char **argv)
{
	char pid[16], output[4096];
	const char *words[] = {"msmemscope", "api-engine", pid, output, NULL};
	struct words before = {0}, between = {0}, after = {0};
	void *(*open_inner)(void), *caller, *next, *old[5];
	pthread_t threads[THREADS];
	bool own = argc == 6 && strcmp(argv[2], "-") != 0;
	unsigned i, round;

	target_check(argc == 6, "usage: plain_calls COLLECTOR ENGINE OUT CALLER PLUGIN");
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	snprintf(output, sizeof(output), "--output=%s", argv[3]);
	for (i = 0; i < 5; i++)
		target_check(halMemAlloc(&old[i], 4096, FLAG_NORMAL) == 0, "no memory");
	find_api(argv[1]);
	caller = dlopen(argv[4], RTLD_NOW);
	target_check(caller != NULL, "the caller was not found");
	*(void **)&open_inner = dlsym(caller, "open_inner");
	next = dlsym(RTLD_NEXT, "halMemAlloc");
	for (i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, hammer, NULL);
	wait_for_calls();
	read_slots(&before);
	for (round = 0; round < (own ? ROUNDS : 1); round++) {
		target_check(!own || collector.open(argv[2], words) == 0, "no engine");
		target_check(collector.redirect() > 0 && collector.redirect() > 0,
			     "nothing was redirected");
		target_check(collector.start(NULL, 0) == 0, "start failed");
		read_slots(&between);
		target_check(between.into > 0, "no slot points into the collector");
		wait_for_calls();
		use_device(round, 100000 * (round + 1), argv[5]);
		if (round < 5)
			target_check(halMemFree(old[round]) == 0, "free failed");
		if (round == 1)
			in_a_child(round, 150000 + 100000 * round, argv[5]);
		target_check(open_inner() != NULL, "libinner.so was not found by the RUNPATH");
		target_check(dlsym(RTLD_NEXT, "halMemAlloc") == next, "RTLD_NEXT differs");
		target_check(collector.stop() == 1 && collector.flush() == 0, "stop failed");
		target_check(collector.restore() == 0, "not all was given back");
		read_slots(&after);
		target_check(collector.leave() == 0, "the trace was not finished");
		wait_for_calls();
		target_check(halMemAlloc(&old[0], 77, FLAG_NORMAL) == 0, "no memory");
		check_restored(&before, &after);
	}
	ended = true;
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
