/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libms_tools_ext.so and the mstx header, seen from both sides: the program that calls (mstx_object.c, or the library) and the
 * tool that is injected (mstx_tool.c, under two file names). An object looks for a tool once, so every test runs in a child of
 * its own; the parent loads nothing.
 */
#include <stdlib.h>

#include "unit.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mstx_tool.h"

/* In the child: says where it failed and ends. cmocka's assertions would go on with the parent's list of tests. */
#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			(void)fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);      \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

static void in_child(void (*body)(void))
{
	int status = -1;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		(void)unsetenv("MSTX_INJECTION_PATH");
		(void)unsetenv("MSTX_TOOL");
		(void)alarm(UNIT_HANGS_S);
		body();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void *must_open(const char *path, int flags)
{
	void *library = dlopen(path, RTLD_NOW | flags);

	if (!library)
		(void)fprintf(stderr, "%s\n", dlerror());
	CHECK(library);
	return library;
}

static void *must_find(void *library, const char *name)
{
	void *symbol = dlsym(library, name);

	if (!symbol)
		(void)fprintf(stderr, "no %s\n", name);
	CHECK(symbol);
	return symbol;
}

/* Puts a tool where a preloaded one would be, and gives what it sees. */
static struct mstx_tool_seen *load_tool(const char *path)
{
	return must_find(must_open(path, RTLD_GLOBAL), "mstx_tool_seen");
}

/* The functions of libms_tools_ext.so. */
static struct {
	void (*mark)(const char *, aclrtStream);
	mstxRangeId (*range_start)(const char *, aclrtStream);
	void (*range_end)(mstxRangeId);
	void (*get_tool_id)(uint64_t *);
	mstxDomainHandle_t (*domain_create)(const char *);
	void (*domain_destroy)(mstxDomainHandle_t);
	void (*domain_mark)(mstxDomainHandle_t, const char *, aclrtStream);
	mstxRangeId (*domain_range_start)(mstxDomainHandle_t, const char *, aclrtStream);
	void (*domain_range_end)(mstxDomainHandle_t, mstxRangeId);
	mstxMemHeapHandle_t (*heap_register)(mstxDomainHandle_t, const mstxMemHeapDesc_t *);
	void (*heap_unregister)(mstxDomainHandle_t, mstxMemHeapHandle_t);
	void (*regions_register)(mstxDomainHandle_t, const mstxMemRegionsRegisterBatch_t *);
	void (*regions_unregister)(mstxDomainHandle_t, const mstxMemRegionsUnregisterBatch_t *);
} mstx;

static const char *const names[] = {
	"mstxMarkA",
	"mstxRangeStartA",
	"mstxRangeEnd",
	"mstxGetToolId",
	"mstxDomainCreateA",
	"mstxDomainDestroy",
	"mstxDomainMarkA",
	"mstxDomainRangeStartA",
	"mstxDomainRangeEnd",
	"mstxMemHeapRegister",
	"mstxMemHeapUnregister",
	"mstxMemRegionsRegister",
	"mstxMemRegionsUnregister",
};

enum { NAME_COUNT = sizeof(names) / sizeof(names[0]) };

_Static_assert(sizeof(mstx) == NAME_COUNT * sizeof(void *), "a pointer for each name");

static void load_library(void)
{
	void *library = must_open(LIBRARY, RTLD_LOCAL);

	for (unsigned i = 0; i < NAME_COUNT; i++)
		((void **)(void *)&mstx)[i] = must_find(library, names[i]);
}

static void check_silence(void)
{
	mstxMemHeapDesc_t heap = {0};
	mstxMemRegionsRegisterBatch_t batch = {0};
	mstxMemRegionsUnregisterBatch_t back = {0};
	uint64_t tool = 4711;

	mstx.mark("m", NULL);
	CHECK(mstx.range_start("r", NULL) == 0);
	mstx.range_end(1);
	mstx.get_tool_id(&tool);
	CHECK(tool == 4711);
	CHECK(mstx.domain_create("d") == NULL);
	mstx.domain_destroy(NULL);
	mstx.domain_mark(NULL, "m", NULL);
	CHECK(mstx.domain_range_start(NULL, "r", NULL) == 0);
	mstx.domain_range_end(NULL, 1);
	CHECK(mstx.heap_register(NULL, &heap) == NULL);
	mstx.heap_unregister(NULL, NULL);
	mstx.regions_register(NULL, &batch);
	mstx.regions_unregister(NULL, &back);
}

static void check_no_tool(void)
{
	load_library();
	check_silence();
}

static void without_a_tool_every_call_does_nothing(void **state)
{
	(void)state;
	in_child(check_no_tool);
}

static void check_every_call(void)
{
	struct mstx_tool_seen *seen = load_tool(TOOL_A);
	mstxDomainHandle_t domain = (mstxDomainHandle_t)(uintptr_t)0x11;
	mstxMemRegionsUnregisterBatch_t back = {0};
	mstxMemRegionsRegisterBatch_t batch = {0};
	mstxMemHeapDesc_t heap = {0};
	void *stream = &batch;
	char text[] = "text";
	uint64_t tool = 0;

/* The call reached the function of that name, as the only one. */
#define REACHED(function) (strcmp(seen->name, function) == 0 && seen->calls == ++calls)
	unsigned calls = 0;

	load_library();
	mstx.mark(text, stream);
	CHECK(REACHED("mark") && seen->text == text && seen->stream == stream);
	mstx.mark(NULL, NULL);
	CHECK(REACHED("mark") && !seen->text && !seen->stream);
	CHECK(mstx.range_start(text, stream) == 0x123456789abcdef0);
	CHECK(REACHED("range_start") && seen->text == text && seen->stream == stream);
	mstx.range_end(0xfedcba9876543210);
	CHECK(REACHED("range_end") && seen->id == 0xfedcba9876543210);
	mstx.get_tool_id(&tool);
	CHECK(REACHED("get_tool_id") && tool == MSTX_TOOL_MSLEAKS_ID);
	CHECK(mstx.domain_create(text) == (mstxDomainHandle_t)(uintptr_t)0xd0);
	CHECK(REACHED("domain_create") && seen->text == text);
	mstx.domain_destroy(domain);
	CHECK(REACHED("domain_destroy") && seen->domain == domain);
	mstx.domain_mark(domain, "m", stream);
	CHECK(REACHED("domain_mark") && seen->domain == domain && seen->stream == stream);
	CHECK(mstx.domain_range_start(domain, text, stream) == 77);
	CHECK(REACHED("domain_range_start") && seen->domain == domain && seen->text == text);
	mstx.domain_range_end(domain, 78);
	CHECK(REACHED("domain_range_end") && seen->domain == domain && seen->id == 78);
	CHECK(mstx.heap_register(domain, &heap) == (mstxMemHeapHandle_t)(uintptr_t)0x4ea9);
	CHECK(REACHED("heap_register") && seen->domain == domain && seen->desc == &heap);
	mstx.heap_unregister(domain, (mstxMemHeapHandle_t)(uintptr_t)0x99);
	CHECK(REACHED("heap_unregister") && seen->domain == domain && seen->id == 0x99);
	mstx.regions_register(domain, &batch);
	CHECK(REACHED("regions_register") && seen->domain == domain && seen->desc == &batch);
	mstx.regions_unregister(domain, &back);
	CHECK(REACHED("regions_unregister") && seen->domain == domain && seen->desc == &back);
	CHECK(seen->starts == 1);
#undef REACHED
}

static void every_call_reaches_the_tool_in_the_process(void **state)
{
	(void)state;
	in_child(check_every_call);
}

static void check_tables(void)
{
	struct mstx_tool_seen *seen = load_tool(TOOL_A);

	load_library();
	CHECK(seen->starts == 0);
	mstx.range_end(0);
	CHECK(seen->starts == 1);
	CHECK(seen->sizes[1] == 5 && seen->sizes[2] == 6 && seen->sizes[3] == 5);
	CHECK(seen->ends_are_null);
	CHECK(seen->unknown_module_fails);
}

static void tables_are_as_the_protocol_says(void **state)
{
	(void)state;
	in_child(check_tables);
}

static void check_name_wins(void)
{
	struct mstx_tool_seen *global = load_tool(TOOL_A);
	struct mstx_tool_seen *named = must_find(must_open(TOOL_B, RTLD_LOCAL), "mstx_tool_seen");

	(void)setenv("MSTX_INJECTION_PATH", TOOL_B, 1);
	load_library();
	mstx.mark("m", NULL);
	CHECK(global->starts == 0 && global->calls == 0);
	CHECK(named->starts == 1 && named->calls == 1);
}

static void named_tool_wins_over_the_one_in_the_process(void **state)
{
	(void)state;
	in_child(check_name_wins);
}

static void check_bad_name(void)
{
	struct mstx_tool_seen *seen = load_tool(TOOL_A);

	(void)setenv("MSTX_INJECTION_PATH", "/nonexistent/tool.so", 1);
	load_library();
	mstx.mark("m", NULL);
	CHECK(seen->starts == 1 && seen->calls == 1);
}

static void name_that_cannot_be_opened_counts_as_none(void **state)
{
	(void)state;
	in_child(check_bad_name);
}

static void check_other_library(void)
{
	struct mstx_tool_seen *seen = load_tool(TOOL_A);

	(void)setenv("MSTX_INJECTION_PATH", OBJECT_C, 1);
	load_library();
	check_silence();
	CHECK(seen->starts == 0);
}

static void named_library_that_is_no_tool_means_no_tool(void **state)
{
	(void)state;
	in_child(check_other_library);
}

static void check_refusal(void)
{
	struct mstx_tool_seen *seen = load_tool(TOOL_A);

	(void)setenv("MSTX_TOOL", "refuse", 1);
	load_library();
	check_silence();
	check_silence();
	CHECK(seen->starts == 1 && seen->calls == 0);
}

static void tool_that_fails_is_never_called_again(void **state)
{
	(void)state;
	in_child(check_refusal);
}

static void check_core_only(void)
{
	struct mstx_tool_seen *seen = load_tool(TOOL_A);

	(void)setenv("MSTX_TOOL", "core", 1);
	load_library();
	mstx.mark("m", NULL);
	CHECK(mstx.domain_create("d") == NULL);
	CHECK(mstx.heap_register(NULL, NULL) == NULL);
	CHECK(seen->calls == 1);
}

static void slot_left_alone_does_nothing(void **state)
{
	(void)state;
	in_child(check_core_only);
}

static unsigned late_marks;

static void mark_late(const char *message, aclrtStream stream)
{
	(void)message;
	(void)stream;
	late_marks++;
}

static void check_late_slot(void)
{
	struct mstx_tool_seen *seen = load_tool(TOOL_A);

	(void)setenv("MSTX_TOOL", "none", 1);
	load_library();
	check_silence();
	*seen->tables[MSTX_API_MODULE_CORE][MSTX_FUNC_MARKA] = (mstxFuncPointer)mark_late;
	mstx.mark("m", NULL);
	CHECK(late_marks == 1 && seen->calls == 0);
}

static void slot_filled_later_takes_effect(void **state)
{
	(void)state;
	in_child(check_late_slot);
}

static void *mark_once(void *barrier)
{
	(void)pthread_barrier_wait(barrier);
	mstx.mark("m", NULL);
	return NULL;
}

static void check_threads(void)
{
	enum { THREADS = 16 };
	struct mstx_tool_seen *seen = load_tool(TOOL_A);
	pthread_barrier_t barrier;
	pthread_t threads[THREADS];

	(void)setenv("MSTX_TOOL", "slow", 1);
	load_library();
	(void)pthread_barrier_init(&barrier, NULL, THREADS);
	for (unsigned i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, mark_once, &barrier) == 0);
	for (unsigned i = 0; i < THREADS; i++)
		(void)pthread_join(threads[i], NULL);
	CHECK(seen->starts == 1 && seen->at_once == 1);
	CHECK(seen->calls == THREADS);
}

static void threads_wait_for_the_one_that_starts_the_tool(void **state)
{
	(void)state;
	in_child(check_threads);
}

static void call_mark(void *object, const char *name)
{
	void (*mark)(const char *);

	*(void **)&mark = must_find(object, name);
	mark("m");
}

static void check_contexts(void)
{
	struct mstx_tool_seen *seen = load_tool(TOOL_A);
	void *object = must_open(OBJECT_C, RTLD_LOCAL);
	void *old = must_open(OBJECT_OLD, RTLD_LOCAL);

	load_library();
	mstx.mark("m", NULL);
	CHECK(seen->starts == 1);
	call_mark(object, "object_mark");
	CHECK(seen->starts == 2);
	call_mark(object, "object_mark_second");
	call_mark(object, "object_mark");
	CHECK(seen->starts == 2);
	CHECK(seen->sizes[1] == 5);
	call_mark(old, "object_mark");
	CHECK(seen->starts == 3);
	CHECK(seen->sizes[1] == 4 && seen->sizes[2] == 6 && seen->sizes[3] == 5);
	CHECK(seen->ends_are_null);
	CHECK(seen->calls == 5);
	/* Nobody can get at the functions of an object from outside, nor do they get in the way of others. */
	CHECK(!dlsym(object, "mstxMarkA"));
	CHECK(!dlsym(old, "mstxMarkA"));
}

static void each_object_starts_the_tool_once_for_all_its_sources(void **state)
{
	(void)state;
	in_child(check_contexts);
}

static void check_object(const char *path, unsigned functions)
{
	struct mstx_tool_seen *seen = load_tool(TOOL_A);
	void *object = must_open(path, RTLD_LOCAL);
	uint64_t (*range)(const char *);
	int (*all)(void);

	*(void **)&all = must_find(object, "object_all");
	*(void **)&range = must_find(object, "object_range");
	CHECK(all() == (int)functions);
	CHECK(seen->calls == functions);
	CHECK(range("r") == 0x123456789abcdef0 && seen->id == 0x123456789abcdef0);
	CHECK(seen->starts == 1);
}

static void check_object_c(void)
{
	check_object(OBJECT_C, 13);
}

static void check_object_old(void)
{
	check_object(OBJECT_OLD, 12);
}

#ifdef OBJECT_CXX
static void check_object_cxx(void)
{
	check_object(OBJECT_CXX, 13);
}
#endif

static void header_works_in_c_and_cxx_and_as_it_was(void **state)
{
	(void)state;
	in_child(check_object_c);
	in_child(check_object_old);
#ifdef OBJECT_CXX
	in_child(check_object_cxx);
#endif
}

/* The names that a shared object defines for others, one per line in the order of the file. */
static unsigned count_exports(const char *path, bool *out_all_known)
{
	int fd = open(path, O_RDONLY);
	unsigned count = 0;
	struct stat stat;
	const char *file;

	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &stat), 0);
	file = mmap(NULL, (size_t)stat.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	assert_true(file != MAP_FAILED);
	(void)close(fd);

	const Elf64_Ehdr *header = (const Elf64_Ehdr *)(const void *)file;
	const Elf64_Shdr *sections = (const Elf64_Shdr *)(const void *)(file + header->e_shoff);

	*out_all_known = true;
	for (unsigned i = 0; i < header->e_shnum; i++) {
		const Elf64_Sym *symbol =
			(const Elf64_Sym *)(const void *)(file + sections[i].sh_offset);
		const Elf64_Sym *end = symbol + sections[i].sh_size / sizeof(*symbol);

		if (sections[i].sh_type != SHT_DYNSYM)
			continue;
		for (; symbol < end; symbol++) {
			const char *name =
				file + sections[sections[i].sh_link].sh_offset + symbol->st_name;
			unsigned n = 0;

			if (symbol->st_shndx == SHN_UNDEF ||
			    ELF64_ST_BIND(symbol->st_info) == STB_LOCAL)
				continue;
			count++;
			while (n < NAME_COUNT && strcmp(names[n], name) != 0)
				n++;
			if (n == NAME_COUNT) {
				print_error("exports %s\n", name);
				*out_all_known = false;
			}
		}
	}
	(void)munmap((void *)(uintptr_t)file, (size_t)stat.st_size);
	return count;
}

static void library_exports_the_13_functions_and_nothing_else(void **state)
{
	bool all_known;

	(void)state;
	assert_int_equal(count_exports(LIBRARY, &all_known), 13);
	assert_true(all_known);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(library_exports_the_13_functions_and_nothing_else),
		cmocka_unit_test(without_a_tool_every_call_does_nothing),
		cmocka_unit_test(every_call_reaches_the_tool_in_the_process),
		cmocka_unit_test(tables_are_as_the_protocol_says),
		cmocka_unit_test(named_tool_wins_over_the_one_in_the_process),
		cmocka_unit_test(name_that_cannot_be_opened_counts_as_none),
		cmocka_unit_test(named_library_that_is_no_tool_means_no_tool),
		cmocka_unit_test(tool_that_fails_is_never_called_again),
		cmocka_unit_test(slot_left_alone_does_nothing),
		cmocka_unit_test(slot_filled_later_takes_effect),
		cmocka_unit_test(threads_wait_for_the_one_that_starts_the_tool),
		cmocka_unit_test(each_object_starts_the_tool_once_for_all_its_sources),
		cmocka_unit_test(header_works_in_c_and_cxx_and_as_it_was),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
