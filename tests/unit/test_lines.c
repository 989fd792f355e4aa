/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared objects in C++ that know their own lines (lines_sample.cpp), built in each version of DWARF, are asked for them; and
 * addr2line of binutils is asked about many other addresses of theirs. Then the same with copies: stripped, with a debug file in
 * each place where one may lie, damaged in many ways. Allocations and fork() go through wrappers that can fail on demand.
 */
#include "unit.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/status.h"
#include "base/strbuf.h"
#include "failing.h"
#include "lines_sample.h"
#include "symbols/demangle.h"
#include "symbols/elf.h"
#include "symbols/elf_cache.h"
#include "symbols/lines.h"
#include "symbols/lines_work.h"
#include "symbols/modules.h"

#define FRAMES_MAX 64
#define SOURCE	   "lines_sample.cpp"

static unsigned int fork_count;
static bool fork_fails;

char *__real_strdup(const char *text);
pid_t __real_fork(void);
char *__wrap_strdup(const char *text);
pid_t __wrap_fork(void);

char *__wrap_strdup(const char *text)
{
	return fails_now() ? NULL : __real_strdup(text);
}

pid_t __wrap_fork(void)
{
	fork_count++;
	if (fork_fails) {
		errno = EAGAIN;
		return -1;
	}
	return __real_fork();
}

/* A sample that was loaded and run, and where its code lies in the file. */
struct loaded {
	const char *path;
	void *handle;
	struct samples sample;
	uint64_t bias;
	uint64_t code, code_end;
};

static int find_code(struct dl_phdr_info *info, size_t bytes, void *context)
{
	struct loaded *loaded = context;
	unsigned int i;

	(void)bytes;
	if (strcmp(info->dlpi_name, loaded->path) != 0)
		return 0;
	loaded->bias = info->dlpi_addr;
	for (i = 0; i < info->dlpi_phnum; i++) {
		if (info->dlpi_phdr[i].p_type == PT_LOAD && (info->dlpi_phdr[i].p_flags & PF_X)) {
			loaded->code = info->dlpi_phdr[i].p_vaddr;
			loaded->code_end = loaded->code + info->dlpi_phdr[i].p_memsz;
		}
	}
	return 1;
}

/* A sample stays loaded: the C++ library inside it keeps memory that nothing would lead to any more. */
static void load(struct loaded *loaded, const char *path)
{
	sample_run_fn *run;
	void *found;

	*loaded = (struct loaded){.path = path,
				  .handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)};
	assert_non_null(loaded->handle);
	assert_int_equal(dl_iterate_phdr(find_code, loaded), 1);
	found = dlsym(loaded->handle, "sample_run");
	assert_non_null(found);
	memcpy(&run, &found, sizeof(run));
	run(&loaded->sample);
	assert_int_equal(loaded->sample.count, 7);
}

static uint64_t place_vaddr(const struct loaded *loaded, size_t place)
{
	return (uint64_t)(uintptr_t)loaded->sample.places[place].address - 1 - loaded->bias;
}

static uint64_t symbol_vaddr(const struct loaded *loaded, const char *name)
{
	void *found = dlsym(loaded->handle, name);

	assert_non_null(found);
	return (uint64_t)(uintptr_t)found - loaded->bias;
}

/* A file of which lines are asked, as a module without bias. */
struct subject {
	struct elf_cache cache;
	struct modules modules;
	struct module *module;
	const char *root;
	struct lines *lines;
};

static const struct lines_limits plenty = {
	.module_ms = 60000, .total_ms = 120000, .memory_bytes = UINT64_C(2) << 30};

static struct module *add_module(struct subject *subject, uint64_t id, const char *path)
{
	struct module_info info = {
		.id = id, .base = id << 40, .end = (id + 1) << 40, .bias = id << 40, .path = path};
	struct strbuf whole = {0};
	struct elf *elf = NULL;
	struct module *module;
	int fd;

	strbuf_add_str(&whole, subject->root);
	strbuf_add_str(&whole, path);
	fd = open(whole.data, O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && elf_open(fd, &elf, NULL) == 0)
		info.build_id = elf_build_id(elf, &info.build_id_length);
	else if (fd >= 0)
		close(fd);
	assert_int_equal(modules_load(&subject->modules, &info, 0, &module), 0);
	elf_close(elf);
	strbuf_fini(&whole);
	return module;
}

static void subject_init(struct subject *subject, const char *root, const char *path,
			 const struct lines_limits *limits)
{
	*subject = (struct subject){.root = root};
	modules_init(&subject->modules, &subject->cache);
	subject->lines = lines_new(&subject->cache, limits);
	assert_non_null(subject->lines);
	subject->module = add_module(subject, 0, path);
}

/* No process, descriptor or memory is left behind. */
static void subject_fini(struct subject *subject)
{
	lines_free(subject->lines);
	modules_fini(&subject->modules);
	elf_cache_fini(&subject->cache);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	assert_int_equal(errno, ECHILD);
}

static size_t ask(struct subject *subject, uint64_t vaddr, struct lines_frame *frames)
{
	assert_int_equal(lines_want(subject->lines, subject->module, subject->root, vaddr), 0);
	assert_int_equal(lines_read(subject->lines), 0);
	return lines_get(subject->lines, subject->module, vaddr, frames, FRAMES_MAX);
}

static void expect_note(const struct subject *subject, const char *part)
{
	struct strbuf note = {0};

	lines_note(subject->lines, &note);
	if (part == NULL)
		assert_string_equal(strbuf_str(&note), "");
	else
		assert_non_null(strstr(strbuf_str(&note), part));
	strbuf_fini(&note);
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash == NULL ? path : slash + 1;
}

static void expect_function(const char *function, const char *expected, bool exact)
{
	struct strbuf a = {0}, b = {0};

	demangle_shorten(function, &a);
	demangle_shorten(expected, &b);
	assert_string_equal(a.data, b.data);
	if (exact)
		assert_string_equal(function, expected);
	strbuf_fini(&a);
	strbuf_fini(&b);
}

/* All places of the sample have their lines. Without symbols functions that are not exported may lack their parameters. */
static void expect_lines(struct subject *subject, const struct loaded *loaded, bool exact)
{
	size_t i, k;

	for (i = 0; i < loaded->sample.count; i++)
		assert_int_equal(lines_want(subject->lines, subject->module, subject->root,
					    place_vaddr(loaded, i)),
				 0);
	assert_int_equal(lines_read(subject->lines), 0);
	for (i = 0; i < loaded->sample.count; i++) {
		const struct sample_place *place = &loaded->sample.places[i];
		struct lines_frame frames[FRAMES_MAX];
		size_t count = lines_get(subject->lines, subject->module, place_vaddr(loaded, i),
					 frames, FRAMES_MAX);

		assert_int_equal(count, place->depth);
		expect_function(frames[0].function, place->function, exact);
		for (k = 0; k < count; k++) {
			assert_string_equal(base_name(frames[k].file), SOURCE);
			assert_int_equal(frames[k].line, place->lines[k]);
		}
	}
	expect_note(subject, NULL);
}

/* The same places without lines: functions, as the symbol table names them. */
static void expect_functions(struct subject *subject, const struct loaded *loaded)
{
	struct lines_frame frames[FRAMES_MAX];

	assert_int_equal(ask(subject, place_vaddr(loaded, 2), frames), 1);
	assert_string_equal(frames[0].function, "sample::Pool<long, 3>::take(long)");
	assert_null(frames[0].file);
	assert_int_equal(frames[0].line, 0);
}

static void code_knows_its_own_lines(void **state)
{
	static const char *const paths[] = {SAMPLE_DWARF2, SAMPLE_DWARF3, SAMPLE_DWARF4,
					    SAMPLE_DWARF5, SAMPLE_COMPRESSED};
	size_t i;

	(void)state;
	for (i = 0; i < MSCOPE_COUNT(paths); i++) {
		struct subject subject;
		struct loaded loaded;

		load(&loaded, paths[i]);
		subject_init(&subject, "", paths[i], &plenty);
		expect_lines(&subject, &loaded, true);
		subject_fini(&subject);
		dlclose(loaded.handle);
	}
}

/* Without the .dwo file there are lines but no inlined functions; with few debug information the same or better. */
static void partial_dwarf_gives_what_it_has(void **state)
{
	static const char *const paths[] = {SAMPLE_SPLIT, SAMPLE_LINES_ONLY};
	struct lines_frame frames[FRAMES_MAX];
	size_t i, k;

	(void)state;
	for (i = 0; i < MSCOPE_COUNT(paths); i++) {
		struct subject subject;
		struct loaded loaded;

		load(&loaded, paths[i]);
		subject_init(&subject, "", paths[i], &plenty);
		for (k = 0; k < loaded.sample.count; k++) {
			assert_true(ask(&subject, place_vaddr(&loaded, k), frames) >= 1);
			assert_non_null(frames[0].function);
			assert_string_equal(base_name(frames[0].file), SOURCE);
			assert_int_equal(frames[0].line, loaded.sample.places[k].lines[0]);
		}
		expect_note(&subject, NULL);
		subject_fini(&subject);
		dlclose(loaded.handle);
	}
}

static void file_without_dwarf_gives_functions(void **state)
{
	struct lines_frame frames[FRAMES_MAX];
	struct subject subject;
	struct loaded loaded;

	(void)state;
	load(&loaded, SAMPLE_BARE);
	subject_init(&subject, "", SAMPLE_BARE, &plenty);
	expect_functions(&subject, &loaded);
	assert_int_equal(ask(&subject, symbol_vaddr(&loaded, "sample_run"), frames), 1);
	assert_string_equal(frames[0].function, "sample_run");
	/* No function there. */
	assert_int_equal(ask(&subject, 8, frames), 0);
	expect_note(&subject, NULL);
	subject_fini(&subject);
	dlclose(loaded.handle);
}

/* A frame of addr2line: function, then file and line. False when the next address or the end comes instead. */
static bool read_frame(FILE *in, char *function, char *file, size_t bytes, unsigned int *out_line)
{
	char *colon;

	if (fgets(function, (int)bytes, in) == NULL || strncmp(function, "0x", 2) == 0)
		return false;
	function[strcspn(function, "\n")] = '\0';
	assert_non_null(fgets(file, (int)bytes, in));
	colon = strrchr(file, ':');
	assert_non_null(colon);
	*colon = '\0';
	*out_line = (unsigned int)strtoul(colon + 1, NULL, 10);
	return true;
}

static void run_shell(const char *format, ...) MSCOPE_PRINTF(1, 2);

static void run_shell(const char *format, ...)
{
	char command[4096];
	va_list args;

	va_start(args, format);
	assert_true((size_t)vsnprintf(command, sizeof(command), format, args) < sizeof(command));
	va_end(args);
	assert_int_equal(system(command), 0);
}

enum { ADDRESSES = 3000, TEXT_BYTES = 65536 };

/* What was compared with addr2line. */
struct agreement {
	unsigned int with_lines, inlined, other_file;
};

/* Asks for pseudo-random addresses, and writes them to a file. */
static void ask_many(struct subject *subject, const struct loaded *loaded, uint64_t *addresses,
		     const char *path)
{
	FILE *out = fopen(path, "w");
	uint64_t seed = 1;
	unsigned int i;

	assert_non_null(out);
	for (i = 0; i < ADDRESSES; i++) {
		/* Around the sample's own places; most of the rest is libstdc++, which has no lines. */
		uint64_t near = place_vaddr(loaded, i % loaded->sample.count) - 2048;

		addresses[i] = i % 8 == 0 ? loaded->code + unit_random(&seed) %
								   (loaded->code_end - loaded->code)
					  : near + unit_random(&seed) % 4096;
		addresses[i] &= ~UINT64_C(3);
		fprintf(out, "%#llx\n", (unsigned long long)addresses[i]);
		assert_int_equal(lines_want(subject->lines, subject->module, "", addresses[i]), 0);
	}
	assert_int_equal(fclose(out), 0);
	assert_int_equal(lines_read(subject->lines), 0);
}

/*
 * Compares one address. addr2line names inlined functions that have no mangled name by the symbol around them, and between
 * functions it names the one before: functions are compared where there is one frame only.
 */
static void compare_address(FILE *in, const struct lines_frame *frames, size_t count,
			    struct agreement *agreement)
{
	static char function[TEXT_BYTES], file[TEXT_BYTES];
	unsigned int line;
	size_t k;

	for (k = 0; read_frame(in, function, file, TEXT_BYTES, &line); k++) {
		if (line == 0) {
			assert_true(k >= count || frames[k].line == 0);
			continue;
		}
		assert_true(k < count);
		assert_int_equal(frames[k].line, line);
		agreement->other_file += strcmp(base_name(frames[k].file), base_name(file)) != 0;
		agreement->with_lines += k == 0;
		agreement->inlined += k > 0;
		if (k == 0 && count == 1 && frames[k].function != NULL)
			assert_string_equal(frames[k].function, function);
	}
}

static void random_addresses_agree_with_addr2line(void **state)
{
	uint64_t *addresses = calloc(ADDRESSES, sizeof(*addresses));
	const char *path = unit_path("addresses"), *answers = unit_path("answers");
	struct agreement agreement = {0};
	struct subject subject;
	struct loaded loaded;
	unsigned int i;
	FILE *in;

	(void)state;
	load(&loaded, SAMPLE_DWARF4);
	subject_init(&subject, "", SAMPLE_DWARF4, &plenty);
	ask_many(&subject, &loaded, addresses, path);
	run_shell("'%s' -a -i -f -C -e '%s' < '%s' > '%s'", ADDR2LINE_TOOL, SAMPLE_DWARF4, path,
		  answers);
	in = fopen(answers, "r");
	assert_non_null(in);
	assert_int_equal(fscanf(in, "%*[^\n]\n"), 0); /* the first address */
	for (i = 0; i < ADDRESSES; i++) {
		struct lines_frame frames[FRAMES_MAX];
		size_t count =
			lines_get(subject.lines, subject.module, addresses[i], frames, FRAMES_MAX);

		compare_address(in, frames, count, &agreement);
	}
	fclose(in);
	/* It has compared something; and addr2line does not always know the file of a function's cold part. */
	assert_true(agreement.with_lines > ADDRESSES / 8);
	assert_true(agreement.inlined > ADDRESSES / 8);
	assert_true(agreement.other_file <= agreement.with_lines / 50);

	subject_fini(&subject);
	dlclose(loaded.handle);
	free(addresses);
}

/* A copy of a sample that is stripped, and its debug information in a file of its own. */
struct split {
	char module[256];
	char debug[256];
};

static void split_init(struct split *split, const char *options)
{
	(void)snprintf(split->module, sizeof(split->module), "%s/lib/sample.so", unit_directory);
	(void)snprintf(split->debug, sizeof(split->debug), "%s/sample.debug", unit_directory);
	run_shell("mkdir '%s/lib'", unit_directory);
	run_shell("'%s' --only-keep-debug %s '%s' '%s'", OBJCOPY_TOOL, options, SAMPLE_DWARF5,
		  split->debug);
	/* The symbols that functions need are in .dynsym only. */
	run_shell("'%s' -s %s -o '%s' '%s'", STRIP_TOOL, options, split->module, SAMPLE_DWARF5);
	run_shell("cd '%s' && '%s' --add-gnu-debuglink=sample.debug lib/sample.so", unit_directory,
		  OBJCOPY_TOOL);
}

/* Moves the debug file into a directory below that of the split, and asks. `root`: whether the module lies below a root. */
static void expect_split(const struct split *split, const struct loaded *loaded, const char *place,
			 bool root, bool found)
{
	struct subject subject;

	run_shell("mkdir -p $(dirname '%s%s') && mv '%s' '%s%s'", unit_directory, place,
		  split->debug, unit_directory, place);
	subject_init(&subject, root ? unit_directory : "", root ? "/lib/sample.so" : split->module,
		     &plenty);
	if (found) {
		expect_lines(&subject, loaded, false);
	} else {
		struct lines_frame frames[FRAMES_MAX];

		assert_int_equal(ask(&subject, symbol_vaddr(loaded, "sample_run"), frames), 1);
		assert_string_equal(frames[0].function, "sample_run");
		assert_null(frames[0].file);
		expect_note(&subject, NULL);
	}
	subject_fini(&subject);
	run_shell("mv '%s%s' '%s'", unit_directory, place, split->debug);
}

static void debug_file_is_found_where_it_may_lie(void **state)
{
	const char *const no_id = "--remove-section=.note.gnu.build-id";
	char by_id[128] = "/usr/lib/debug/.build-id/";
	size_t i, length, at = strlen(by_id);
	struct loaded loaded;
	struct split split;
	const uint8_t *id;
	struct elf *elf;

	(void)state;
	load(&loaded, SAMPLE_DWARF5);
	assert_int_equal(elf_open(open(SAMPLE_DWARF5, O_RDONLY | O_CLOEXEC), &elf, NULL), 0);
	id = elf_build_id(elf, &length);
	assert_int_equal(length, 20);
	for (i = 0; i < length; i++)
		at += (size_t)snprintf(by_id + at, sizeof(by_id) - at, i == 1 ? "/%02x" : "%02x",
				       id[i]);
	(void)snprintf(by_id + at, sizeof(by_id) - at, ".debug");
	elf_close(elf);

	split_init(&split, "");
	expect_split(&split, &loaded, "/lib/sample.debug", false, true);
	expect_split(&split, &loaded, "/lib/.debug/sample.debug", false, true);
	expect_split(&split, &loaded, "/lib/sample.debug", true, true);
	expect_split(&split, &loaded, "/lib/.debug/sample.debug", true, true);
	expect_split(&split, &loaded, "/usr/lib/debug/lib/sample.debug", true, true);
	expect_split(&split, &loaded, by_id, true, true);
	expect_split(&split, &loaded, "/elsewhere/sample.debug", true, false);

	/* A FIFO or a directory in its place keeps nobody waiting. */
	run_shell("mkfifo '%s/lib/sample.debug'", unit_directory);
	expect_split(&split, &loaded, "/lib/.debug/sample.debug", false, true);
	run_shell("cd '%s/lib' && rm sample.debug && mkdir sample.debug", unit_directory);
	expect_split(&split, &loaded, "/lib/.debug/sample.debug", false, true);
	run_shell("rmdir '%s/lib/sample.debug'", unit_directory);

	/* Not of this build. */
	run_shell("'%s' --only-keep-debug '%s' '%s'", OBJCOPY_TOOL, SAMPLE_DWARF4, split.debug);
	expect_split(&split, &loaded, "/lib/sample.debug", false, false);
	expect_split(&split, &loaded, by_id, true, false);
	run_shell("rm -r '%s'/*", unit_directory);

	/* Without a build id the checksum decides. */
	split_init(&split, no_id);
	expect_split(&split, &loaded, "/lib/sample.debug", false, true);
	run_shell("printf x >> '%s'", split.debug);
	expect_split(&split, &loaded, "/lib/sample.debug", false, false);
	dlclose(loaded.handle);
}

/* Two files may share DWARF that lies in a third one (dwz). */
static void shared_dwarf_is_found(void **state)
{
	struct lines_frame frames[FRAMES_MAX];
	struct subject subject;
	struct loaded loaded;

	(void)state;
	if (DWZ_TOOL[0] == '\0') {
		print_message("no dwz\n");
		skip();
	}
	load(&loaded, SAMPLE_DWARF4);
	run_shell("cd '%s' && mkdir -p lib usr/lib/debug/.dwz && cp '%s' lib/sample.so && cp '%s' "
		  "lib/other.so && "
		  "'%s' -m usr/lib/debug/.dwz/common -M /usr/lib/debug/.dwz/common lib/sample.so "
		  "lib/other.so",
		  unit_directory, SAMPLE_DWARF4, SAMPLE_DWARF3, DWZ_TOOL);
	subject_init(&subject, unit_directory, "/lib/sample.so", &plenty);
	expect_lines(&subject, &loaded, true);
	subject_fini(&subject);

	/* Another one in its place, or none: fewer names, the same lines. */
	run_shell("cd '%s' && cp lib/other.so usr/lib/debug/.dwz/common", unit_directory);
	subject_init(&subject, unit_directory, "/lib/sample.so", &plenty);
	assert_true(ask(&subject, place_vaddr(&loaded, 0), frames) >= 1);
	assert_int_equal(frames[0].line, loaded.sample.places[0].lines[0]);
	subject_fini(&subject);
	dlclose(loaded.handle);
}

/* The file is kept open, because it may be gone when lines are asked for; so may its debug file, unless it is in the file. */
static void vanished_file_still_has_lines(void **state)
{
	const char *path = unit_path("sample.so");
	struct lines_frame frames[FRAMES_MAX];
	struct subject subject;
	struct loaded loaded;

	(void)state;
	load(&loaded, SAMPLE_DWARF5);
	run_shell("cp '%s' '%s'", SAMPLE_DWARF5, path);
	subject_init(&subject, "", path, &plenty);
	assert_int_equal(module_pin(subject.module, ""), 0);
	assert_int_equal(unlink(path), 0);
	expect_lines(&subject, &loaded, true);
	/* Once more, with new addresses: symbols were read before. */
	assert_true(ask(&subject, symbol_vaddr(&loaded, "sample_run"), frames) >= 1);
	assert_non_null(frames[0].file);
	assert_int_equal(subject.cache.pinned_count, 1);
	subject_fini(&subject);

	/* Never there. */
	subject_init(&subject, "", path, &plenty);
	assert_int_equal(ask(&subject, place_vaddr(&loaded, 0), frames), 0);
	expect_note(&subject, NULL);
	subject_fini(&subject);
	dlclose(loaded.handle);
}

static void file_is_read_once_for_all_modules(void **state)
{
	struct lines_frame frames[FRAMES_MAX];
	struct subject subject;
	struct module *second;
	struct loaded loaded;
	uint64_t vaddr;

	(void)state;
	load(&loaded, SAMPLE_DWARF5);
	vaddr = place_vaddr(&loaded, 1);
	subject_init(&subject, "", SAMPLE_DWARF5, &plenty);
	second = add_module(&subject, 1, SAMPLE_DWARF5);
	fork_count = 0;
	assert_int_equal(ask(&subject, vaddr, frames), 3);
	assert_int_equal(fork_count, 1);
	assert_int_equal(ask(&subject, vaddr, frames), 3);
	assert_int_equal(lines_want(subject.lines, second, "", second->info.bias + vaddr), 0);
	assert_int_equal(lines_read(subject.lines), 0);
	assert_int_equal(fork_count, 1);
	assert_int_equal(
		lines_get(subject.lines, second, second->info.bias + vaddr, frames, FRAMES_MAX), 3);
	/* Fewer than there are; what was never asked for; nothing to read. */
	assert_int_equal(lines_get(subject.lines, second, second->info.bias + vaddr, frames, 2), 2);
	assert_int_equal(lines_get(subject.lines, second, second->info.bias + vaddr, frames, 0), 0);
	assert_int_equal(
		lines_get(subject.lines, second, second->info.bias + 1, frames, FRAMES_MAX), 0);
	assert_int_equal(lines_read(subject.lines), 0);
	assert_int_equal(fork_count, 1);
	subject_fini(&subject);
	dlclose(loaded.handle);
}

/* Not under qemu-user. */
static bool memory_is_bounded(void)
{
	const struct rlimit none = {0};
	int status;
	pid_t pid = __real_fork();

	if (pid == 0) {
		bool set = setrlimit(RLIMIT_DATA, &none) == 0;

		_exit(set && mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) && WEXITSTATUS(status) == 1;
}

static void time_and_memory_are_bounded(void **state)
{
	static const struct {
		struct lines_limits limits;
		const char *note;
	} cases[] = {
		{{.module_ms = 0, .total_ms = 60000, .memory_bytes = UINT64_C(1) << 30},
		 "took longer than 0 ms to read"},
		{{.module_ms = 60000, .total_ms = 0, .memory_bytes = UINT64_C(1) << 30},
		 "1 C frames have no lines"},
		{{.module_ms = 60000, .total_ms = 60000, .memory_bytes = 0},
		 "is damaged or too large"},
	};
	struct loaded loaded;
	size_t i;

	(void)state;
	load(&loaded, SAMPLE_COMPRESSED);
	for (i = 0; i < MSCOPE_COUNT(cases); i++) {
		struct lines_frame frames[FRAMES_MAX];
		struct subject subject;

		if (cases[i].limits.memory_bytes == 0 && !memory_is_bounded())
			continue;
		subject_init(&subject, "", SAMPLE_COMPRESSED, &cases[i].limits);
		assert_int_equal(ask(&subject, symbol_vaddr(&loaded, "sample_run"), frames), 1);
		assert_string_equal(frames[0].function, "sample_run");
		assert_null(frames[0].file);
		expect_note(&subject, cases[i].note);
		/* What there was no time for may be read another time. */
		assert_int_equal(lines_is_cut(subject.lines, subject.module,
					      symbol_vaddr(&loaded, "sample_run")),
				 cases[i].limits.memory_bytes != 0);
		subject_fini(&subject);
	}
	dlclose(loaded.handle);
}

/* A name that the demangler never ends with is left as it is; the others are not. */
static void endless_name_is_left_mangled(void **state)
{
	static const char *const paths[] = {SAMPLE_ENDLESS_BARE, SAMPLE_ENDLESS};
	struct lines_frame frames[FRAMES_MAX];
	size_t i;

	(void)state;
	for (i = 0; i < MSCOPE_COUNT(paths); i++) {
		struct subject subject;
		struct loaded loaded;

		load(&loaded, paths[i]);
		subject_init(&subject, "", paths[i], &plenty);
		assert_int_equal(lines_want(subject.lines, subject.module, "",
					    symbol_vaddr(&loaded, SAMPLE_ENDLESS_NAME)),
				 0);
		if (i == 0)
			expect_functions(&subject, &loaded);
		else
			expect_lines(&subject, &loaded, true);
		assert_int_equal(ask(&subject, symbol_vaddr(&loaded, SAMPLE_ENDLESS_NAME), frames),
				 1);
		assert_string_equal(frames[0].function, SAMPLE_ENDLESS_NAME);
		assert_int_equal(frames[0].line > 0, i == 1);
		expect_note(&subject, NULL);
		subject_fini(&subject);
		dlclose(loaded.handle);
	}
}

static void control_characters_reach_nobody(void **state)
{
	struct lines_frame frames[FRAMES_MAX];
	struct subject subject;
	struct loaded loaded;

	(void)state;
	load(&loaded, SAMPLE_DWARF5);
	subject_init(&subject, "", SAMPLE_DWARF5, &plenty);
	assert_int_equal(ask(&subject, symbol_vaddr(&loaded, SAMPLE_ESCAPES_NAME), frames), 1);
	assert_string_equal(frames[0].function, SAMPLE_ESCAPES_NAME);
	assert_string_equal(base_name(frames[0].file), "red?[31m?file.c");
	subject_fini(&subject);
	dlclose(loaded.handle);
}

static void without_a_process_there_are_symbols(void **state)
{
	struct lines_frame frames[FRAMES_MAX];
	struct subject subject;
	struct loaded loaded;
	uint64_t vaddr;

	(void)state;
	load(&loaded, SAMPLE_DWARF5);
	vaddr = place_vaddr(&loaded, 2);
	subject_init(&subject, "", SAMPLE_DWARF5, &plenty);
	assert_int_equal(lines_want(subject.lines, subject.module, "", vaddr), 0);
	fork_fails = true;
	assert_int_equal(lines_read(subject.lines), -EAGAIN);
	fork_fails = false;
	assert_int_equal(lines_get(subject.lines, subject.module, vaddr, frames, FRAMES_MAX), 1);
	assert_string_equal(frames[0].function, "_ZN6sample4PoolIlLi3EE4takeEl");
	expect_note(&subject, "could not be read");
	subject_fini(&subject);
	dlclose(loaded.handle);
}

/* Allocations fail, in this process or in the one that reads: less is known then. Steps grow, since libdw allocates much. */
static void lack_of_memory_is_survived(void **state)
{
	struct loaded loaded;
	unsigned long n;

	(void)state;
	load(&loaded, SAMPLE_DWARF5);
	for (n = 1; n < 4000; n += 1 + n / 6) {
		struct lines_frame frames[FRAMES_MAX];
		struct subject subject;
		size_t i;

		subject_init(&subject, "", SAMPLE_DWARF5, &plenty);
		fail_at = n;
		for (i = 0; i < loaded.sample.count; i++)
			(void)lines_want(subject.lines, subject.module, "",
					 place_vaddr(&loaded, i));
		(void)lines_read(subject.lines);
		fail_at = 0;
		for (i = 0; i < loaded.sample.count; i++)
			(void)lines_get(subject.lines, subject.module, place_vaddr(&loaded, i),
					frames, FRAMES_MAX);
		subject_fini(&subject);
	}
	dlclose(loaded.handle);
}

/* Where the debug sections of a 64-bit ELF file lie. */
static void find_debug(const uint8_t *data, size_t *out_first, size_t *out_end)
{
	Elf64_Ehdr header;
	Elf64_Shdr names, section;
	unsigned int i;

	memcpy(&header, data, sizeof(header));
	memcpy(&names, data + header.e_shoff + header.e_shstrndx * sizeof(names), sizeof(names));
	*out_first = SIZE_MAX;
	*out_end = 0;
	for (i = 0; i < header.e_shnum; i++) {
		memcpy(&section, data + header.e_shoff + i * sizeof(section), sizeof(section));
		if (strncmp((const char *)data + names.sh_offset + section.sh_name, ".debug_", 7) !=
		    0)
			continue;
		if (section.sh_offset < *out_first)
			*out_first = section.sh_offset;
		if (section.sh_offset + section.sh_size > *out_end)
			*out_end = section.sh_offset + section.sh_size;
	}
	assert_true(*out_first < *out_end);
}

/* Whatever is in the file, there is an answer, and soon. */
static void damaged_files_are_survived(void **state)
{
	static const struct lines_limits limits = {
		.module_ms = 2000, .total_ms = 4000, .memory_bytes = UINT64_C(256) << 20};
	enum { ROUNDS = 24, CUTS = 6 };
	size_t bytes, first, end, i, k;
	struct loaded loaded;
	uint64_t seed = 7;
	uint8_t *data;
	int fd;

	(void)state;
	load(&loaded, SAMPLE_DWARF5);
	data = unit_read_file(SAMPLE_DWARF5, &bytes);
	find_debug(data, &first, &end);
	for (i = 0; i < ROUNDS + CUTS; i++) {
		struct lines_frame frames[FRAMES_MAX];
		size_t changes = i < ROUNDS ? 1u << i % 10 : 0, kept = bytes;
		char path[64];
		struct subject subject;
		uint8_t *copy = malloc(bytes);

		memcpy(copy, data, bytes);
		for (k = 0; k < changes; k++)
			copy[first + unit_random(&seed) % (end - first)] =
				(uint8_t)unit_random(&seed);
		if (i >= ROUNDS)
			kept = first + unit_random(&seed) % (bytes - first);
		fd = unit_memory_file(copy, kept);
		(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		subject_init(&subject, "", path, &limits);
		for (k = 0; k < loaded.sample.count; k++)
			assert_int_equal(lines_want(subject.lines, subject.module, "",
						    place_vaddr(&loaded, k)),
					 0);
		assert_int_equal(lines_read(subject.lines), 0);
		for (k = 0; k < loaded.sample.count; k++)
			(void)lines_get(subject.lines, subject.module, place_vaddr(&loaded, k),
					frames, FRAMES_MAX);
		subject_fini(&subject);
		close(fd);
		free(copy);
	}
	free(data);
	dlclose(loaded.handle);
}

/* A process that was taken over says anything. */
static void records_are_not_trusted(void **state)
{
	static const char text[LINES_RECORD_BYTES_MAX];
	struct lines_sent_frame sent = {.line = 7, .function_bytes = 3, .file_bytes = 3};
	char content[sizeof(sent) + 6];
	struct lines_frame frames[FRAMES_MAX];
	struct subject subject;
	struct loaded loaded;
	uint64_t vaddr;

	(void)state;
	load(&loaded, SAMPLE_BARE);
	vaddr = place_vaddr(&loaded, 2);
	subject_init(&subject, "", SAMPLE_BARE, &plenty);
	assert_int_equal(lines_want(subject.lines, subject.module, "", vaddr), 0);
#define TAKE(kind, index, bytes, data)                                                             \
	lines_take_record(subject.lines, &(struct lines_record){kind, index, bytes}, data)
	assert_false(TAKE(0, 0, 0, ""));
	assert_false(TAKE(RECORD_END + 1, 0, 0, ""));
	assert_false(TAKE(RECORD_NAME, 1, 3, "abc"));
	assert_false(TAKE(RECORD_MODULE, 1, 0, ""));
	assert_false(TAKE(RECORD_DWARF, UINT32_MAX, 0, ""));
	assert_false(TAKE(RECORD_FRAMES, 1, 0, ""));
	assert_false(TAKE(RECORD_FRAMES, 0, 1, ""));
	/* Texts beyond the record, and more frames than there may be. */
	memcpy(content, &sent, sizeof(sent));
	memcpy(content + sizeof(sent), "abcd\033f", 6);
	assert_false(TAKE(RECORD_FRAMES, 0, sizeof(content) - 1, content));
	assert_false(TAKE(RECORD_FRAMES, 0, sizeof(sent) * (FRAMES_MAX + 1), text));
	assert_true(TAKE(RECORD_FRAMES, 0, sizeof(content), content));
	/* Twice. */
	assert_false(TAKE(RECORD_FRAMES, 0, sizeof(content), content));
	assert_int_equal(lines_get(subject.lines, subject.module, vaddr, frames, FRAMES_MAX), 1);
	assert_string_equal(frames[0].function, "abc");
	assert_string_equal(frames[0].file, "d?f");
	assert_int_equal(frames[0].line, 7);
#undef TAKE
	subject_fini(&subject);
	dlclose(loaded.handle);
}

#define in_directory(test)                                                                         \
	cmocka_unit_test_setup_teardown(test, unit_make_directory, unit_remove_directory)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(code_knows_its_own_lines),
		cmocka_unit_test(partial_dwarf_gives_what_it_has),
		cmocka_unit_test(file_without_dwarf_gives_functions),
		in_directory(random_addresses_agree_with_addr2line),
		in_directory(debug_file_is_found_where_it_may_lie),
		in_directory(shared_dwarf_is_found),
		in_directory(vanished_file_still_has_lines),
		cmocka_unit_test(file_is_read_once_for_all_modules),
		cmocka_unit_test(time_and_memory_are_bounded),
		cmocka_unit_test(endless_name_is_left_mangled),
		cmocka_unit_test(control_characters_reach_nobody),
		cmocka_unit_test(without_a_process_there_are_symbols),
		cmocka_unit_test(lack_of_memory_is_survived),
		cmocka_unit_test(damaged_files_are_survived),
		cmocka_unit_test(records_are_not_trusted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
