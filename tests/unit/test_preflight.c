/* SPDX-License-Identifier: Apache-2.0 */
/* Files to inspect are made here byte by byte, so that each kind is at hand on every machine and can be damaged at will. */
#include "unit.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "cli/preflight.h"

#if defined(__x86_64__)
#define MACHINE EM_X86_64
#elif defined(__aarch64__)
#define MACHINE EM_AARCH64
#endif

static char folder[] = "/tmp/test_preflight.XXXXXX";

static const char *in_folder(const char *name)
{
	static char paths[4][256];
	static unsigned int next;
	char *path = paths[next++ % 4];

	snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
	return path;
}

static const char *make_file(const char *name, mode_t mode, const void *data, size_t bytes)
{
	const char *path = in_folder(name);
	int fd;

	(void)unlink(path);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, bytes), bytes);
	assert_int_equal(fchmod(fd, mode), 0);
	(void)close(fd);
	return path;
}

static const char *make_text(const char *name, mode_t mode, const char *text)
{
	return make_file(name, mode, text, strlen(text));
}

/* What the ELF file shall be; zero is a static program for this machine. */
struct recipe {
	uint16_t machine;
	const char *interp;
	const char *needed;
	const char *soname;
	const char *symbol; /* defined and exported */
	bool sysv_hash;	    /* instead of the GNU one */
	bool endless;	    /* the hash chain has no end */
};

struct image {
	Elf64_Ehdr ehdr;
	Elf64_Phdr phdr[3];
	Elf64_Dyn dyn[8];
	Elf64_Sym sym[2];
	uint32_t hash[16];
	char strings[256];
	char interp[64];
};

/* Offsets and addresses differ, so that nobody gets away with confusing them. */
#define BASE	 0x400000
#define AT(part) (BASE + offsetof(struct image, part))

static uint32_t add_string(struct image *image, uint32_t *at, const char *text)
{
	uint32_t start = *at;

	strcpy(image->strings + start, text);
	*at += (uint32_t)strlen(text) + 1;
	return start;
}

static void fill_gnu_hash(uint32_t *table, const char *symbol, bool endless)
{
	uint32_t hash = 5381;

	for (const char *c = symbol; *c != '\0'; c++)
		hash = hash * 33 + (unsigned char)*c;
	/* One bucket, symbols from 1 on, one bloom word (two halves) that lets all pass. */
	table[0] = 1;
	table[1] = 1;
	table[2] = 1;
	table[3] = 6;
	table[4] = table[5] = UINT32_MAX;
	table[6] = 1;
	table[7] = endless ? (hash ^ 2) & ~1u : hash | 1;
}

static void make_image(struct image *image, struct recipe recipe)
{
	uint32_t at = 1;
	size_t d = 0, h = 0;

	memset(image, 0, sizeof(*image));
	memcpy(image->ehdr.e_ident, ELFMAG, SELFMAG);
	image->ehdr.e_ident[EI_CLASS] = ELFCLASS64;
	image->ehdr.e_ident[EI_DATA] = ELFDATA2LSB;
	image->ehdr.e_type = ET_DYN;
	image->ehdr.e_machine = recipe.machine != 0 ? recipe.machine : MACHINE;
	image->ehdr.e_phoff = offsetof(struct image, phdr);
	image->ehdr.e_phentsize = sizeof(Elf64_Phdr);
	image->phdr[h++] = (Elf64_Phdr){.p_type = PT_LOAD,
					.p_vaddr = BASE,
					.p_filesz = sizeof(*image),
					.p_memsz = sizeof(*image)};
	image->phdr[h++] = (Elf64_Phdr){.p_type = PT_DYNAMIC,
					.p_offset = offsetof(struct image, dyn),
					.p_filesz = sizeof(image->dyn)};
	if (recipe.interp != NULL) {
		strcpy(image->interp, recipe.interp);
		image->phdr[h++] = (Elf64_Phdr){.p_type = PT_INTERP,
						.p_offset = offsetof(struct image, interp),
						.p_filesz = strlen(recipe.interp) + 1};
	}
	image->ehdr.e_phnum = (uint16_t)h;
	if (recipe.needed != NULL)
		image->dyn[d++] = (Elf64_Dyn){DT_NEEDED, {add_string(image, &at, recipe.needed)}};
	if (recipe.soname != NULL)
		image->dyn[d++] = (Elf64_Dyn){DT_SONAME, {add_string(image, &at, recipe.soname)}};
	image->dyn[d++] = (Elf64_Dyn){DT_STRTAB, {AT(strings)}};
	image->dyn[d++] = (Elf64_Dyn){DT_STRSZ, {sizeof(image->strings)}};
	image->dyn[d++] = (Elf64_Dyn){DT_SYMTAB, {AT(sym)}};
	image->dyn[d++] = (Elf64_Dyn){recipe.sysv_hash ? DT_HASH : DT_GNU_HASH, {AT(hash)}};
	if (recipe.symbol != NULL) {
		image->sym[1].st_name = add_string(image, &at, recipe.symbol);
		image->sym[1].st_shndx = 1;
		if (recipe.sysv_hash) {
			/* One bucket, two chain entries; entry 1 may lead to itself. */
			const uint32_t table[] = {1, 2, 1, 0, recipe.endless ? 1 : 0};

			memcpy(image->hash, table, sizeof(table));
		} else {
			fill_gnu_hash(image->hash, recipe.symbol, recipe.endless);
		}
	}
}

static const char *make_elf(const char *name, struct recipe recipe)
{
	struct image image;

	make_image(&image, recipe);
	return make_file(name, 0755, &image, sizeof(image));
}

static struct preflight_report inspect(const char *path)
{
	struct preflight_report report;

	assert_int_equal(preflight_inspect(path, &report), 0);
	return report;
}

/* The sentence of the only finding, which must be of this kind. */
static const char *only(const struct preflight_report *report, enum preflight_kind kind)
{
	assert_int_equal(report->finding_count, 1);
	assert_int_equal(report->findings[0].kind, kind);
	return report->findings[0].sentence;
}

#define assert_says(text, part) assert_non_null(strstr(text, part))

/* A loader that is certainly there. */
#define LOADER "/bin/sh"

static void ordinary_program_has_no_findings(void **state)
{
	struct preflight_report report = inspect(
		make_elf("program", (struct recipe){.interp = LOADER, .needed = "libc.so.6"}));
	(void)state;

	assert_int_equal(report.finding_count, 0);
	assert_string_equal(report.executed, in_folder("program"));
	report = inspect("/proc/self/exe");
	for (size_t i = 0; i < report.finding_count; i++) /* this test itself may be sanitized */
		assert_int_equal(report.findings[i].kind, PREFLIGHT_SANITIZED);
}

static void static_program_is_found(void **state)
{
	struct preflight_report report = inspect(make_elf("static", (struct recipe){0}));
	(void)state;

	assert_says(only(&report, PREFLIGHT_STATIC), in_folder("static"));
	assert_true(report.findings[0].fatal);
}

static void loader_itself_is_not_static(void **state)
{
	struct preflight_report report =
		inspect(make_elf("ld.so", (struct recipe){.soname = "ld-linux-x86-64.so.2"}));
	(void)state;

	assert_int_equal(report.finding_count, 0);
}

static void program_for_another_machine_is_found(void **state)
{
	struct preflight_report report;
	struct image image;
	(void)state;

	report = inspect(make_elf("riscv", (struct recipe){.machine = EM_RISCV, .interp = LOADER}));
	assert_says(only(&report, PREFLIGHT_FOREIGN), "RISC-V");
	make_image(&image, (struct recipe){.machine = EM_386});
	image.ehdr.e_ident[EI_CLASS] = ELFCLASS32;
	report = inspect(make_file("i386", 0755, &image, sizeof(image)));
	assert_says(only(&report, PREFLIGHT_FOREIGN), "32-bit x86");
	make_image(&image, (struct recipe){.machine = __builtin_bswap16(EM_PPC64)});
	image.ehdr.e_ident[EI_DATA] = ELFDATA2MSB;
	report = inspect(make_file("ppc64", 0755, &image, sizeof(image)));
	assert_says(only(&report, PREFLIGHT_FOREIGN), "PowerPC");
}

static void musl_is_found(void **state)
{
	const char *loader = make_text("ld-musl-x86_64.so.1", 0755, "");
	struct preflight_report report =
		inspect(make_elf("musl", (struct recipe){.interp = loader}));
	(void)state;

	assert_says(only(&report, PREFLIGHT_MUSL), "glibc");
}

static void missing_loader_is_found(void **state)
{
	struct preflight_report report =
		inspect(make_elf("alien", (struct recipe){.interp = "/nowhere/ld-linux.so.9"}));
	(void)state;

	assert_says(only(&report, PREFLIGHT_INTERPRETER), "/nowhere/ld-linux.so.9");
}

static void shared_sanitizer_is_found_with_the_cure(void **state)
{
	static const struct {
		const char *library, *name, *cure;
		bool fatal;
	} cases[] = {
		{"libasan.so.8", "AddressSanitizer", "LD_PRELOAD=libasan.so.8", true},
		{"libclang_rt.asan-x86_64.so", "AddressSanitizer", "verify_asan_link_order=0",
		 true},
		{"libtsan.so.2", "ThreadSanitizer", "LD_PRELOAD=libtsan.so.2", false},
		{"libubsan.so.1", "UndefinedBehaviorSanitizer", "LD_PRELOAD=libubsan.so.1", false},
		{"liblsan.so.0", "LeakSanitizer", "LD_PRELOAD=liblsan.so.0", false},
		{"libclang_rt.msan-x86_64.so", "MemorySanitizer", "LD_PRELOAD=libclang_rt.msan",
		 false},
	};
	(void)state;

	(void)unsetenv("LD_PRELOAD");
	(void)unsetenv("ASAN_OPTIONS");
	for (size_t i = 0; i < MSCOPE_COUNT(cases); i++) {
		struct preflight_report report =
			inspect(make_elf("sanitized", (struct recipe){.interp = LOADER,
								      .needed = cases[i].library}));

		assert_says(only(&report, PREFLIGHT_SANITIZED), cases[i].name);
		assert_says(report.findings[0].sentence, cases[i].cure);
		assert_int_equal(report.findings[0].fatal, cases[i].fatal);
		assert_string_equal(report.runtime, cases[i].library);
	}
}

static void cured_sanitizer_is_no_finding(void **state)
{
	const char *path =
		make_elf("sanitized", (struct recipe){.interp = LOADER, .needed = "libasan.so.8"});
	struct preflight_report report;
	(void)state;

	(void)setenv("LD_PRELOAD", "/usr/lib/libasan.so.8:other.so", 1);
	report = inspect(path);
	(void)unsetenv("LD_PRELOAD");
	assert_int_equal(report.finding_count, 0);
	assert_string_equal(report.runtime, "libasan.so.8");
	(void)setenv("ASAN_OPTIONS", "detect_leaks=0:verify_asan_link_order=0", 1);
	report = inspect(path);
	(void)unsetenv("ASAN_OPTIONS");
	assert_int_equal(report.finding_count, 0);
}

static void sanitizer_inside_the_program_is_found(void **state)
{
	struct preflight_report report;
	(void)state;

	for (int sysv = 0; sysv < 2; sysv++) {
		report = inspect(make_elf("inside", (struct recipe){.interp = LOADER,
								    .symbol = "__asan_init",
								    .sysv_hash = sysv != 0}));
		assert_says(only(&report, PREFLIGHT_SANITIZED), "AddressSanitizer");
		assert_false(report.findings[0].fatal);
		assert_string_equal(report.runtime, "");
		report = inspect(make_elf("inside", (struct recipe){.interp = LOADER,
								    .symbol = "__asan_initial",
								    .sysv_hash = sysv != 0}));
		assert_int_equal(report.finding_count, 0);
	}
}

static void undefined_symbol_is_not_a_sanitizer(void **state)
{
	struct preflight_report report;
	struct image image;
	(void)state;

	make_image(&image, (struct recipe){.interp = LOADER, .symbol = "__asan_init"});
	image.sym[1].st_shndx = SHN_UNDEF;
	report = inspect(make_file("undefined", 0755, &image, sizeof(image)));
	assert_int_equal(report.finding_count, 0);
}

static void script_leads_to_its_interpreter(void **state)
{
	char text[512];
	const char *expected;
	struct preflight_report report;
	(void)state;

	(void)make_elf("runs", (struct recipe){0});
	expected = in_folder("runs");
	snprintf(text, sizeof(text), "#!%s -x\nrest", expected);
	report = inspect(make_text("one", 0755, text));
	assert_string_equal(report.executed, in_folder("runs"));
	(void)only(&report, PREFLIGHT_STATIC);
	snprintf(text, sizeof(text), "#! \t%s", in_folder("one"));
	report = inspect(make_text("two", 0755, text));
	assert_string_equal(report.executed, in_folder("runs"));
}

static void env_leads_to_its_program(void **state)
{
	static const char *const lines[] = {
		"#!/usr/bin/env runs-env\n",	"#!/usr/bin/env -S runs-env -u\n",
		"#!/usr/bin/env -Sruns-env\n",	"#!/usr/bin/env -S A=1 -u B runs-env -x\n",
		"#!/usr/bin/env -i runs-env\n",
	};
	(void)state;

	(void)make_elf("runs-env", (struct recipe){.interp = LOADER});
	(void)setenv("PATH", folder, 1);
	for (size_t i = 0; i < MSCOPE_COUNT(lines); i++) {
		struct preflight_report report = inspect(make_text("script", 0755, lines[i]));

		assert_string_equal(report.executed, in_folder("runs-env"));
		assert_int_equal(report.finding_count, 0);
	}
	(void)setenv("PATH", "/usr/bin:/bin", 1);
}

static void missing_interpreter_is_found(void **state)
{
	struct preflight_report report;
	(void)state;

	report = inspect(make_text("script", 0755, "#!/nowhere/python\n"));
	assert_says(only(&report, PREFLIGHT_INTERPRETER), "/nowhere/python");
	report = inspect(make_text("script", 0755, "#!/usr/bin/env no-such-thing\n"));
	assert_says(only(&report, PREFLIGHT_INTERPRETER), "no-such-thing");
	/* What a terminal would obey is not printed. */
	report = inspect(make_text("script", 0755, "#!/nowhere/\033[2J\n"));
	assert_null(strchr(only(&report, PREFLIGHT_INTERPRETER), '\033'));
}

static void text_without_interpreter_is_for_the_shell(void **state)
{
	struct preflight_report report = inspect(make_text("script", 0755, "echo hello\n"));
	(void)state;

	assert_string_equal(report.executed, "/bin/sh");
}

static void scripts_in_a_circle_come_to_an_end(void **state)
{
	char text[512];
	struct preflight_report report;
	(void)state;

	snprintf(text, sizeof(text), "#!%s\n", in_folder("circle"));
	report = inspect(make_text("circle", 0755, text));
	assert_string_equal(report.executed, "");
	assert_int_equal(report.finding_count, 0);
}

static bool gains_are_forbidden(void)
{
	struct statvfs fs;

	return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ||
	       (statvfs(folder, &fs) == 0 && (fs.f_flag & ST_NOSUID) != 0);
}

static void privileged_program_is_found(void **state)
{
	const char *path = make_elf("privileged", (struct recipe){.interp = LOADER});
	struct preflight_report report;
	(void)state;

	/* Of the user who starts it: no change of user, no secure mode. */
	assert_int_equal(chmod(path, 06755), 0);
	report = inspect(path);
	assert_int_equal(report.finding_count, 0);
	if (getuid() != 0 || gains_are_forbidden())
		skip();
	assert_int_equal(chown(path, 1, (gid_t)-1), 0);
	assert_int_equal(chmod(path, 04755), 0);
	report = inspect(path);
	assert_says(only(&report, PREFLIGHT_PRIVILEGED), "setuid");
	assert_int_equal(chown(path, 0, 1), 0);
	assert_int_equal(chmod(path, 02755), 0);
	report = inspect(path);
	(void)only(&report, PREFLIGHT_PRIVILEGED);
	/* Without the group's execute bit the setgid bit means something else. */
	assert_int_equal(chmod(path, 02745), 0);
	report = inspect(path);
	assert_int_equal(report.finding_count, 0);
}

static void capabilities_count_for_others_than_root(void **state)
{
	const char *path = make_elf("capable", (struct recipe){.interp = LOADER});
	/* Version 2, effective; CAP_NET_RAW permitted. */
	const uint32_t capability[5] = {0x02000001, 1u << 13, 0, 0, 0};
	struct preflight_report report;
	int status;
	pid_t pid;
	(void)state;

	if (getuid() != 0 || gains_are_forbidden() ||
	    setxattr(path, "security.capability", capability, sizeof(capability), 0) != 0)
		skip();
	report = inspect(path);
	assert_int_equal(report.finding_count, 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		if (setgid(4711) != 0 || setuid(4711) != 0)
			_exit(1);
		_exit(preflight_inspect(path, &report) != 0 || report.finding_count != 1 ||
		      report.findings[0].kind != PREFLIGHT_PRIVILEGED);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void unreadable_or_strange_files_are_no_trouble(void **state)
{
	struct preflight_report report;
	(void)state;

	assert_int_equal(preflight_inspect(in_folder("absent"), &report), -ENOENT);
	assert_int_equal(inspect(folder).finding_count, 0);
	assert_int_equal(inspect("/dev/null").finding_count, 0);
	assert_int_equal(mkfifo(in_folder("fifo"), 0700), 0);
	assert_int_equal(inspect(in_folder("fifo")).finding_count, 0);
	assert_int_equal(inspect(make_text("empty", 0755, "")).finding_count, 0);
	(void)inspect(make_text("hash", 0755, "#!"));
	(void)inspect(make_text("blanks", 0755, "#! \t \n"));
	(void)inspect(make_text("env", 0755, "#!/usr/bin/env -S"));
}

/* Any answer will do, as long as there is one and no memory is touched that is not ours. */
static void damaged_files_get_an_answer(void **state)
{
	static const struct recipe recipes[] = {
		{.interp = LOADER, .needed = "libasan.so.8"},
		{.interp = LOADER, .symbol = "__asan_init"},
		{.interp = LOADER, .symbol = "__asan_init", .sysv_hash = true},
	};
	struct preflight_report report;
	struct image image, whole;
	unsigned char *bytes = (unsigned char *)&image;
	(void)state;

	for (size_t r = 0; r < MSCOPE_COUNT(recipes); r++) {
		make_image(&whole, recipes[r]);
		for (size_t i = 0; i < sizeof(image); i++) {
			const char *path = make_file("cut", 0755, &whole, i);

			assert_int_equal(preflight_inspect(path, &report), 0);
		}
		for (size_t i = 0; i < sizeof(image); i++) {
			static const unsigned char values[] = {0x00, 0x7f, 0xff};

			image = whole;
			if (i >= offsetof(struct image, strings) && bytes[i] == 0)
				continue;
			for (size_t v = 0; v < MSCOPE_COUNT(values); v++) {
				bytes[i] = values[v];
				(void)inspect(make_file("bad", 0755, &image, sizeof(image)));
			}
		}
	}
}

static void endless_hash_chains_come_to_an_end(void **state)
{
	(void)state;
	for (int sysv = 0; sysv < 2; sysv++) {
		struct preflight_report report;
		struct image image;

		make_image(&image, (struct recipe){.interp = LOADER,
						   .symbol = "__asan_hidden",
						   .sysv_hash = sysv != 0,
						   .endless = true});
		report = inspect(make_file("endless", 0755, &image, sizeof(image)));
		assert_int_equal(report.finding_count, 0);
	}
}

/* preflight_resolve() */

static int resolve(const char *name, char *out, struct mscope_error *err)
{
	memset(err, 0, sizeof(*err));
	strcpy(out, "untouched");
	return preflight_resolve(name, out, PATH_MAX, err);
}

static void name_is_looked_up_as_execvp_does(void **state)
{
	char path[PATH_MAX], search[1024];
	struct mscope_error err;
	(void)state;

	assert_int_equal(mkdir(in_folder("a"), 0755), 0);
	assert_int_equal(mkdir(in_folder("b"), 0755), 0);
	assert_int_equal(mkdir(in_folder("a/folder"), 0755), 0);
	(void)make_text("a/plain", 0644, "");
	(void)make_text("b/plain", 0755, "");
	(void)make_text("b/folder", 0755, "");
	(void)make_text("a/both", 0755, "");
	(void)make_text("b/both", 0755, "");
	(void)make_text("a/refused", 0644, "");
	snprintf(search, sizeof(search), "/nowhere:%s:%s", in_folder("a"), in_folder("b"));
	(void)setenv("PATH", search, 1);

	assert_int_equal(resolve("both", path, &err), 0);
	assert_string_equal(path, in_folder("a/both"));
	/* What cannot be executed hides nothing. */
	assert_int_equal(resolve("plain", path, &err), 0);
	assert_string_equal(path, in_folder("b/plain"));
	assert_int_equal(resolve("folder", path, &err), 0);
	assert_string_equal(path, in_folder("b/folder"));
	assert_int_equal(resolve("refused", path, &err), -EACCES);
	assert_says(err.message, in_folder("a/refused"));
	assert_string_equal(path, "untouched");
	(void)setenv("PATH", "/usr/bin:/bin", 1);
}

static void current_directory_never_shadows_the_path(void **state)
{
	char path[PATH_MAX], before[PATH_MAX];
	struct mscope_error err;
	(void)state;

	assert_non_null(getcwd(before, sizeof(before)));
	assert_int_equal(chdir(folder), 0);
	assert_int_equal(mkdir("true", 0755), 0);
	(void)make_text("only-here", 0755, "");
	(void)setenv("PATH", "/usr/bin:/bin", 1);
	assert_int_equal(resolve("true", path, &err), 0);
	assert_string_equal(path, "/usr/bin/true");
	assert_int_equal(resolve("only-here", path, &err), -ENOENT);
	assert_says(err.message, "./only-here");
	/* Unless PATH names it, by an empty element. */
	(void)setenv("PATH", "/usr/bin:", 1);
	assert_int_equal(resolve("only-here", path, &err), 0);
	assert_string_equal(path, "only-here");
	(void)unsetenv("PATH");
	assert_int_equal(resolve("true", path, &err), 0);
	(void)setenv("PATH", "/usr/bin:/bin", 1);
	assert_int_equal(chdir(before), 0);
}

static void name_with_a_slash_is_taken_as_it_is(void **state)
{
	char path[PATH_MAX];
	struct mscope_error err;
	(void)state;

	(void)make_text("program", 0755, "");
	assert_int_equal(resolve(in_folder("program"), path, &err), 0);
	assert_string_equal(path, in_folder("program"));
	assert_int_equal(resolve("nowhere/true", path, &err), -ENOENT);
	assert_says(err.message, "nowhere/true");
}

static void refusal_says_why_and_gives_the_exit_code(void **state)
{
	char path[PATH_MAX], name[PATH_MAX];
	struct mscope_error err;
	(void)state;

	assert_int_equal(preflight_exit_code(resolve("no-such-program", path, &err)), 127);
	assert_says(err.message, "no-such-program");
	assert_int_equal(err.code, -ENOENT);
	assert_int_equal(preflight_exit_code(resolve("", path, &err)), 127);
	assert_int_equal(preflight_exit_code(resolve(folder, path, &err)), 126);
	assert_says(err.message, folder);
	assert_says(err.message, "directory");
	assert_int_equal(preflight_exit_code(resolve(make_text("data", 0644, ""), path, &err)),
			 126);
	assert_says(err.message, "chmod +x");
	assert_int_equal(preflight_exit_code(resolve("/dev/null", path, &err)), 126);
	memset(name, 'x', sizeof(name) - 1);
	memcpy(name, "./", 2);
	name[sizeof(name) - 1] = '\0';
	assert_int_equal(preflight_exit_code(resolve(name, path, &err)), 126);
	assert_int_equal(preflight_resolve("true", path, 3, &err), -ENAMETOOLONG);
}

static int make_folder(void **state)
{
	(void)state;
	return mkdtemp(folder) == NULL || chmod(folder, 0755) != 0;
}

static int remove_folder(void **state)
{
	char command[128];
	(void)state;

	snprintf(command, sizeof(command), "rm -r %s", folder);
	return system(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ordinary_program_has_no_findings),
		cmocka_unit_test(static_program_is_found),
		cmocka_unit_test(loader_itself_is_not_static),
		cmocka_unit_test(program_for_another_machine_is_found),
		cmocka_unit_test(musl_is_found),
		cmocka_unit_test(missing_loader_is_found),
		cmocka_unit_test(shared_sanitizer_is_found_with_the_cure),
		cmocka_unit_test(cured_sanitizer_is_no_finding),
		cmocka_unit_test(sanitizer_inside_the_program_is_found),
		cmocka_unit_test(undefined_symbol_is_not_a_sanitizer),
		cmocka_unit_test(script_leads_to_its_interpreter),
		cmocka_unit_test(env_leads_to_its_program),
		cmocka_unit_test(missing_interpreter_is_found),
		cmocka_unit_test(text_without_interpreter_is_for_the_shell),
		cmocka_unit_test(scripts_in_a_circle_come_to_an_end),
		cmocka_unit_test(privileged_program_is_found),
		cmocka_unit_test(capabilities_count_for_others_than_root),
		cmocka_unit_test(unreadable_or_strange_files_are_no_trouble),
		cmocka_unit_test(damaged_files_get_an_answer),
		cmocka_unit_test(endless_hash_chains_come_to_an_end),
		cmocka_unit_test(name_is_looked_up_as_execvp_does),
		cmocka_unit_test(current_directory_never_shadows_the_path),
		cmocka_unit_test(name_with_a_slash_is_taken_as_it_is),
		cmocka_unit_test(refusal_says_why_and_gives_the_exit_code),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
