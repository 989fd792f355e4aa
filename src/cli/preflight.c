/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two parts: the way from a name to a file (PATH, #! lines, env), and what the ELF file at its end says about itself. A
 * table lists the sanitizers.
 */
#include "cli/preflight.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/io.h"
#include "base/text.h"
#include "symbols/elf_file.h"
#include "symbols/elf_imports.h"

enum {
	SCRIPT_LEVELS = 4,	 /* as deep as the kernel follows */
	SCRIPT_LINE_BYTES = 256, /* as much of a #! line as the kernel reads */
};

static const struct sanitizer {
	const char *name;
	const char *gcc; /* beginning of the shared runtime's name */
	const char *clang;
	const char *symbol; /* exported by programs that hold the runtime; NULL: none is */
} sanitizers[] = {
	{"AddressSanitizer", "libasan.so", "libclang_rt.asan", "__asan_init"},
	{"HWAddressSanitizer", "libhwasan.so", "libclang_rt.hwasan", "__hwasan_init"},
	{"ThreadSanitizer", "libtsan.so", "libclang_rt.tsan", "__tsan_init"},
	{"MemorySanitizer", "libmsan.so", "libclang_rt.msan", "__msan_init"},
	{"LeakSanitizer", "liblsan.so", "libclang_rt.lsan", "__lsan_init"},
	{"UndefinedBehaviorSanitizer", "libubsan.so", "libclang_rt.ubsan", NULL},
};

/* 0 when execve() would accept the file at least at first sight. */
static int check_executable(const char *path)
{
	struct stat st;

	if (stat(path, &st) != 0)
		return -errno;
	if (S_ISDIR(st.st_mode))
		return -EISDIR;
	if (!S_ISREG(st.st_mode))
		return -EACCES;
	return faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) == 0 ? 0 : -errno;
}

static int refuse(const char *path, int code, struct mscope_error *err)
{
	struct stat st;

	if (code == -EACCES && stat(path, &st) == 0) {
		if (!S_ISREG(st.st_mode))
			return error_set(err, code, "cannot execute %s: it is not a file", path);
		if ((st.st_mode & 0111) == 0)
			return error_set(
				err, code,
				"cannot execute %s: it has no execute permission; if it is a program, use chmod +x",
				path);
	}
	return error_set(err, code, "cannot execute %s: %s", path, strerror(-code));
}

int preflight_exit_code(int code)
{
	return code == -ENOENT ? MSCOPE_EXIT_NOT_FOUND : MSCOPE_EXIT_NOT_EXECUTABLE;
}

/* The file along PATH; -ENOENT, or the reason why the first one of that name cannot be executed, with its path. */
static int search_path(const char *name, char *out, size_t bytes)
{
	char fallback[256] = "/bin:/usr/bin", candidate[PATH_MAX];
	const char *path = getenv("PATH");
	int refused = 0;

	if (path == NULL) {
		(void)confstr(_CS_PATH, fallback, sizeof(fallback));
		path = fallback;
	}
	for (;;) {
		size_t length = strcspn(path, ":");
		int n = snprintf(candidate, sizeof(candidate), "%.*s%s%s", (int)length, path,
				 length > 0 ? "/" : "", name);
		int r = n < 0 || (size_t)n >= sizeof(candidate) ? -ENAMETOOLONG
								: check_executable(candidate);

		/* As in execvp(), what cannot be executed is passed over, and named only if nothing else is found. */
		if (r == 0 || (refused == 0 && (r == -EACCES || r == -EISDIR))) {
			if ((size_t)n >= bytes)
				return -ENAMETOOLONG;
			memcpy(out, candidate, (size_t)n + 1);
			if (r == 0)
				return 0;
			refused = r;
		}
		if (path[length] == '\0')
			break;
		path += length + 1;
	}
	return refused != 0 ? refused : -ENOENT;
}

int preflight_resolve(const char *name, char *out_path, size_t out_bytes, struct mscope_error *err)
{
	char found[PATH_MAX];
	size_t length = strlen(name);
	int r;

	if (length == 0)
		return error_set(err, -ENOENT, "the name of the program is empty");
	if (length >= sizeof(found) || length >= out_bytes)
		return error_set(err, -ENAMETOOLONG, "the name of the program is too long");
	if (strchr(name, '/') != NULL) {
		memcpy(found, name, length + 1);
		r = check_executable(found);
	} else {
		r = search_path(name, found, sizeof(found));
		if (r == -ENOENT && check_executable(name) == 0)
			return error_set(
				err, r,
				"no program %s in PATH; for the one in the current directory write ./%s",
				name, name);
		if (r == -ENOENT)
			return error_set(err, r, "no program %s in PATH", name);
	}
	if (r != 0)
		return refuse(found, r, err);
	if (strlen(found) >= out_bytes)
		return error_set(err, -ENAMETOOLONG, "the path of the program is too long");
	memcpy(out_path, found, strlen(found) + 1);
	return 0;
}

static void add_finding(struct preflight_report *report, enum preflight_kind kind, bool fatal,
			const char *format, ...) MSCOPE_PRINTF(4, 5);

static void add_finding(struct preflight_report *report, enum preflight_kind kind, bool fatal,
			const char *format, ...)
{
	struct preflight_finding *finding = &report->findings[report->finding_count];
	va_list args;

	for (size_t i = 0; i < report->finding_count; i++) {
		if (report->findings[i].kind == kind)
			return;
	}
	report->finding_count++;
	finding->kind = kind;
	finding->fatal = fatal;
	va_start(args, format);
	(void)vsnprintf(finding->sentence, sizeof(finding->sentence), format, args);
	va_end(args);
	/* Names out of the file end on a terminal, which must not obey them. */
	for (char *c = finding->sentence; *c != '\0'; c++) {
		if ((unsigned char)*c < ' ' || *c == 127)
			*c = '?';
	}
}

struct program {
	int fd;
	const char *path;
	struct preflight_report *report;
	struct elf_file elf;
};

static bool environment_holds(const char *variable, const char *text)
{
	const char *value = getenv(variable);

	return value != NULL && strstr(value, text) != NULL;
}

/* Only AddressSanitizer insists; the others merely miss what happens before they are loaded. */
static void check_needed(struct program *p, const char *library)
{
	struct preflight_report *report = p->report;

	for (size_t i = 0; i < MSCOPE_COUNT(sanitizers); i++) {
		const struct sanitizer *z = &sanitizers[i];
		bool insists = i == 0;

		if (!text_starts_with(library, z->gcc) && !text_starts_with(library, z->clang))
			continue;
		/* The linker lists the one that matters first. */
		if (report->runtime[0] != '\0')
			return;
		(void)snprintf(report->runtime, sizeof(report->runtime), "%s", library);
		if (environment_holds("LD_PRELOAD", library) ||
		    (insists && environment_holds("ASAN_OPTIONS", "verify_asan_link_order=0")))
			return;
		add_finding(
			report, PREFLIGHT_SANITIZED, insists,
			"%s is built with %s, whose runtime %s before any other library: put it first with LD_PRELOAD=%s%s",
			p->path, z->name, insists ? "must be loaded" : "should be loaded", library,
			insists ? ", or set ASAN_OPTIONS=verify_asan_link_order=0" : "");
	}
}

static bool exports(const struct elf_imports *imports, const char *name)
{
	for (size_t i = 0; i < imports->symbol_count; i++) {
		if (imports->symbols[i].defined && strcmp(imports->symbols[i].name, name) == 0)
			return true;
	}
	return false;
}

/* Sanitizers, and whether the file is a dynamic loader itself. */
static bool inspect_dynamic(struct program *p)
{
	struct elf_imports imports;
	bool loader;

	if (elf_imports_read(p->fd, &imports, NULL) < 0)
		return false;
	for (size_t i = 0; i < imports.needed_count; i++)
		check_needed(p, imports.needed[i]);
	for (size_t i = 0; i < MSCOPE_COUNT(sanitizers); i++) {
		const struct sanitizer *z = &sanitizers[i];

		if (z->symbol != NULL && p->report->runtime[0] == '\0' &&
		    exports(&imports, z->symbol))
			add_finding(
				p->report, PREFLIGHT_SANITIZED, false,
				"%s contains %s: the order of preloads does not matter, but times and host memory differ from an ordinary build",
				p->path, z->name);
	}
	loader = text_starts_with(imports.soname, "ld-linux") ||
		 text_starts_with(imports.soname, "ld-musl");
	elf_imports_fini(&imports);
	return loader;
}

/*
 * Whether the kernel would start this file in secure mode for us: it changes the user or group, or gives capabilities to one who is not
 * root. Not where the file system or the process forbids such gains.
 */
static bool gains_rights(const struct program *p)
{
	unsigned char capability[64];
	struct statvfs fs;
	struct stat st;
	ssize_t n;

	if (fstat(p->fd, &st) != 0 || prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ||
	    (fstatvfs(p->fd, &fs) == 0 && (fs.f_flag & ST_NOSUID) != 0))
		return false;
	if ((st.st_mode & S_ISUID) != 0 && st.st_uid != getuid())
		return true;
	if ((st.st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) && st.st_gid != getgid())
		return true;
	n = fgetxattr(p->fd, "security.capability", capability, sizeof(capability));
	/* A version word, then sets: empty sets give nothing. */
	for (ssize_t i = 4; getuid() != 0 && i < n; i++) {
		if (capability[i] != 0)
			return true;
	}
	return false;
}

static const char *machine_name(unsigned int machine, bool wide)
{
	switch (machine) {
	case EM_X86_64:
		return wide ? "x86-64" : "x32";
	case EM_386:
		return "32-bit x86";
	case EM_AARCH64:
		return "aarch64";
	case EM_ARM:
		return "32-bit ARM";
	case EM_RISCV:
		return "RISC-V";
	case EM_PPC64:
		return "PowerPC";
	default:
		return "another machine";
	}
}

static void inspect_elf(struct program *p)
{
	struct preflight_report *report = p->report;
	const Elf64_Phdr *interp;
	char loader[PATH_MAX] = "";
	const Elf64_Ehdr *header = &p->elf.header;
	bool wide, little, is_loader;
	unsigned int machine;
	int r = elf_file_open(p->fd, &p->elf, NULL);

	if (p->elf.bytes < sizeof(*header))
		return;
	wide = header->e_ident[EI_CLASS] == ELFCLASS64;
	little = header->e_ident[EI_DATA] == ELFDATA2LSB;
	machine = little ? header->e_machine : __builtin_bswap16(header->e_machine);
	if (!wide || !little || machine != ELF_OWN_MACHINE) {
		add_finding(
			report, PREFLIGHT_FOREIGN, true,
			"%s is a program for %s, this msmemscope is for %s: use the msmemscope built for that machine",
			p->path, machine_name(machine, wide), machine_name(ELF_OWN_MACHINE, true));
		return;
	}
	if (gains_rights(p))
		add_finding(
			report, PREFLIGHT_PRIVILEGED, true,
			"%s gains rights when it is started (setuid, setgid or capabilities), so the loader ignores msmemscope: start it as the user whose rights it takes, or use a copy without them",
			p->path);
	if (r < 0)
		return;
	is_loader = inspect_dynamic(p);

	interp = elf_file_segment(&p->elf, PT_INTERP);
	if (interp == NULL) {
		if (!is_loader)
			add_finding(
				report, PREFLIGHT_STATIC, true,
				"%s is linked statically, so nothing can be recorded: link it with the shared C library",
				p->path);
		return;
	}
	if (interp->p_filesz == 0 || interp->p_filesz >= sizeof(loader) ||
	    io_read_at(p->fd, loader, interp->p_filesz, interp->p_offset) < 0)
		return;
	(void)snprintf(report->loader, sizeof(report->loader), "%.*s",
		       (int)sizeof(report->loader) - 1, loader);
	if (access(loader, F_OK) != 0)
		add_finding(
			report, PREFLIGHT_INTERPRETER, true,
			"%s needs the loader %s, which is not here: install the C library that it was built for",
			p->path, loader);
	if (text_starts_with(text_base_name(loader), "ld-musl"))
		add_finding(
			report, PREFLIGHT_MUSL, true,
			"%s runs on musl, where a library for glibc cannot be loaded: run it on a system with glibc, built for that",
			p->path);
}

static char *skip_blanks(char *text)
{
	return text + strspn(text, " \t");
}

/* Cuts the first word off `text` and moves on to what follows it. */
static char *next_word(char **text)
{
	char *word = skip_blanks(*text);
	char *end = word + strcspn(word, " \t");

	*text = *end == '\0' ? end : end + 1;
	*end = '\0';
	return word;
}

/* The program that `env` would start with these arguments; NULL when that is unknown. */
static const char *env_program(char *arguments)
{
	for (;;) {
		char *word = next_word(&arguments);

		if (*word == '\0')
			return NULL;
		/* -S and its text may be one word or two. */
		if (text_starts_with(word, "-S") && word[2] != '\0')
			return word + 2;
		if (strcmp(word, "-u") == 0 || strcmp(word, "-C") == 0)
			(void)next_word(&arguments);
		else if (*word != '-' && strchr(word, '=') == NULL)
			return word;
	}
}

/*
 * The file that executes a script beginning with `line`, into `out_path`. 0, -ENOENT with a finding, or another code when the
 * search ends here.
 */
static int follow_script(const char *script, char *line, struct preflight_report *report,
			 char *out_path)
{
	const char *target = "/bin/sh", *wanted;
	char *rest = line + 2;
	char *interpreter;

	/* Text without a #! line is given to the shell. */
	if (text_starts_with(line, "#!")) {
		rest[strcspn(rest, "\n")] = '\0';
		interpreter = next_word(&rest);
		target = interpreter;
		if (access(target, F_OK) == 0 && strcmp(text_base_name(target), "env") == 0) {
			wanted = env_program(rest);
			if (wanted == NULL)
				return -ENOEXEC;
			if (preflight_resolve(wanted, out_path, PATH_MAX, NULL) == 0)
				return 0;
			add_finding(
				report, PREFLIGHT_INTERPRETER, true,
				"%s is a script for %s, which is not in PATH: install it or correct the first line",
				script, wanted);
			return -ENOENT;
		}
	}
	if (access(target, F_OK) != 0) {
		add_finding(
			report, PREFLIGHT_INTERPRETER, true,
			"%s is a script for %s, which is not here: install it or correct the first line",
			script, target);
		return -ENOENT;
	}
	(void)snprintf(out_path, PATH_MAX, "%s", target);
	return 0;
}

int preflight_inspect(const char *path, struct preflight_report *out_report)
{
	struct program *p = calloc(1, sizeof(*p));
	char current[PATH_MAX], next[PATH_MAX], line[SCRIPT_LINE_BYTES];
	int r = 0;

	memset(out_report, 0, sizeof(*out_report));
	if (p == NULL)
		return -ENOMEM;
	if (strlen(path) >= sizeof(current)) {
		free(p);
		return -ENAMETOOLONG;
	}
	memcpy(current, path, strlen(path) + 1);
	for (int level = 0; level <= SCRIPT_LEVELS; level++) {
		ssize_t n;

		/* Not blocking: the name may have become a pipe. */
		p->fd = open(current, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
		if (p->fd < 0) {
			r = level == 0 ? -errno : 0;
			break;
		}
		p->path = current;
		p->report = out_report;
		n = pread(p->fd, line, sizeof(line) - 1, 0);
		line[n > 0 ? n : 0] = '\0';
		if (n >= SELFMAG && memcmp(line, ELFMAG, SELFMAG) == 0) {
			memcpy(out_report->executed, current, sizeof(current));
			inspect_elf(p);
			elf_file_fini(&p->elf);
			(void)close(p->fd);
			break;
		}
		(void)close(p->fd);
		if (n <= 0 || follow_script(current, line, out_report, next) != 0)
			break;
		memcpy(current, next, sizeof(current));
	}
	free(p);
	return r;
}

/* The user that setpriv is told to become; NULL: none, or the one that we are. */
static const char *setpriv_user(char *const *argv)
{
	static const char *const options[] = {"--reuid", "--euid"};
	const char *user = NULL;
	char own[16];

	(void)snprintf(own, sizeof(own), "%u", (unsigned int)geteuid());
	for (size_t i = 1; argv[i] != NULL && argv[i][0] == '-'; i++) {
		for (size_t k = 0; k < MSCOPE_COUNT(options); k++) {
			size_t length = strlen(options[k]);

			if (!text_starts_with(argv[i], options[k]))
				continue;
			if (argv[i][length] == '=')
				user = argv[i] + length + 1;
			else if (argv[i][length] == '\0' && argv[i + 1] != NULL)
				user = argv[++i];
		}
	}
	return user == NULL || strcmp(user, own) == 0 ||
			       (geteuid() == 0 && strcmp(user, "root") == 0)
		       ? NULL
		       : user;
}

void preflight_inspect_words(char *const *argv, struct preflight_report *report)
{
	static const char *const changers[] = {"su", "runuser", "sudo", "doas", "gosu", "su-exec"};
	const char *name = text_base_name(argv[0]), *user;

	if (strcmp(name, "setpriv") == 0 && (user = setpriv_user(argv)) != NULL)
		add_finding(
			report, PREFLIGHT_ELSEWHERE, true,
			"%s runs its command as user %s, who cannot write to the trace of this launch, so events are counted but not recorded: put msmemscope after it",
			name, user);
	if (strcmp(name, "chroot") == 0)
		add_finding(
			report, PREFLIGHT_ELSEWHERE, true,
			"%s runs its command in a tree without msmemscope: put msmemscope after it, in that tree",
			name);
	for (size_t i = 0; i < MSCOPE_COUNT(changers); i++) {
		if (strcmp(name, changers[i]) == 0)
			add_finding(
				report, PREFLIGHT_ELSEWHERE, false,
				"%s may run its command as another user, who cannot write to the trace of this launch, so events are counted but not recorded: put msmemscope after it",
				name);
	}
}
