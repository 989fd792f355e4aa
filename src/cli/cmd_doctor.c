/* SPDX-License-Identifier: Apache-2.0 */
/*
 * msmemscope doctor [-- PROGRAM...]: what of the tool will work on this machine, one line for each thing that can go wrong, with
 * the cure. Nothing is changed and nothing but /bin/true, /bin/sh and the loader's list of a program's libraries is run. A line is `ok`, a `note` (works, or is not needed by
 * everybody) or `BAD` (will not work); the exit code is 1 when there is a bad one.
 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/json.h"
#include "base/text.h"
#include "cli/child.h"
#include "cli/cli.h"
#include "cli/ld_so.h"
#include "cli/machine.h"
#include "cli/preflight.h"
#include "cli/tree.h"
#include "engine/session_place.h"
#include "sink/report.h"

#define PROBE_TIMEOUT_MS 10000
#define SPACE_LITTLE	 (UINT64_C(1) << 30)
#define SPACE_NONE	 (UINT64_C(64) << 20)

enum verdict { OK, NOTE, BAD };

static const char *const verdicts[] = {[OK] = "ok", [NOTE] = "note", [BAD] = "BAD"};

struct doctor {
	const struct options *options;
	struct json json;
	struct strbuf text;
	unsigned int count[3];	       /* lines of each verdict */
	char prefix[PATH_MAX];	       /* of the tree, "" : unknown */
	char collector[PATH_MAX + 64]; /* "" : cannot be read */
	const char *ascend_home;       /* NULL: not set */
};

/* One line: what it is about, what was found, and what helps (NULL: nothing needs to). */
static void add_line(struct doctor *doctor, enum verdict verdict, const char *subject,
		     const char *cure, const char *format, ...) MSCOPE_PRINTF(5, 6);

static void add_line(struct doctor *doctor, enum verdict verdict, const char *subject,
		     const char *cure, const char *format, ...)
{
	char found[1024];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(found, sizeof(found), format, args);
	va_end(args);
	doctor->count[verdict]++;
	if (!doctor->options->json) {
		strbuf_addf(&doctor->text, "%-4s  %-18s %s%s%s\n", verdicts[verdict], subject,
			    found, cure != NULL ? "; " : "", cure != NULL ? cure : "");
		return;
	}
	json_object(&doctor->json, NULL);
	json_string(&doctor->json, "check", subject);
	json_string(&doctor->json, "verdict", verdicts[verdict]);
	json_string(&doctor->json, "found", found);
	json_string(&doctor->json, "cure", cure != NULL ? cure : "");
	json_end(&doctor->json);
}

static const char *variable(const char *name)
{
	const char *value = getenv(name);

	return value != NULL && value[0] != '\0' ? value : NULL;
}

/* ---- ourselves ---- */

static void check_tree(struct doctor *doctor)
{
	struct mscope_error err = {0};
	const char *off = variable(SESSION_DISABLE_ENV);

	if (tree_prefix(doctor->prefix, sizeof(doctor->prefix), &err) < 0) {
		doctor->prefix[0] = '\0';
		add_line(doctor, BAD, "msmemscope", NULL, "%s", err.message);
	} else {
		add_line(doctor, OK, "msmemscope", NULL, "version %s in %s", MSCOPE_VERSION,
			 doctor->prefix);
	}
	if (tree_collector(doctor->collector, sizeof(doctor->collector), &err) < 0) {
		doctor->collector[0] = '\0';
		add_line(doctor, BAD, "collector", "copy the whole tree, not only bin/msmemscope",
			 "%s", err.message);
	}
	if (off != NULL && strcmp(off, "0") != 0)
		add_line(doctor, BAD, "switched off", "unset " SESSION_DISABLE_ENV,
			 SESSION_DISABLE_ENV "=%s: nothing is recorded", off);
}

/* The loader splits LD_PRELOAD at blanks and colons. A launch then goes around it by a link, and so do we. */
static bool link_collector(const char *collector, char *directory, char *link, size_t bytes)
{
	if (mkdtemp(directory) == NULL)
		return false;
	(void)snprintf(link, bytes, "%s/%s", directory, TREE_COLLECTOR);
	if (symlink(collector, link) == 0)
		return true;
	(void)rmdir(directory);
	return false;
}

/* A program of this machine with the collector preloaded must run as without it. */
static void check_loads(struct doctor *doctor)
{
	static const char *const probes[][4] = {
		{"/bin/true"}, {"/usr/bin/true"}, {"/bin/sh", "-c", ":"}};
	bool split = strpbrk(doctor->collector, " :") != NULL;
	char directory[] = "/tmp/msmemscope-doctor-XXXXXX", link[sizeof(directory) + 64];
	struct child_variable changes[] = {
		{"LD_PRELOAD", doctor->collector}, {SESSION_ENV, NULL}, {NULL, NULL}};
	struct preflight_report report;
	struct strbuf output = {0};
	size_t i, k;
	int r;

	if (doctor->collector[0] == '\0')
		return;
	for (i = 0; i < MSCOPE_COUNT(probes); i++) {
		bool usable = preflight_inspect(probes[i][0], &report) == 0;

		for (k = 0; k < report.finding_count; k++)
			usable = usable && !report.findings[k].fatal;
		if (usable)
			break;
	}
	if (i == MSCOPE_COUNT(probes)) {
		add_line(doctor, NOTE, "collector", NULL,
			 "not tried: no suitable program found on this machine (%s)",
			 doctor->collector);
		return;
	}
	if (split) {
		if (!link_collector(doctor->collector, directory, link, sizeof(link))) {
			add_line(doctor, NOTE, "collector", NULL,
				 "not tried: cannot write to /tmp");
			return;
		}
		changes[0].value = link;
	}
	r = child_run(probes[i], changes, PROBE_TIMEOUT_MS, &output);
	if (split) {
		(void)unlink(link);
		(void)rmdir(directory);
	}
	for (k = 0; k < output.length; k++) {
		if ((unsigned char)output.data[k] < ' ')
			output.data[k] = ' ';
	}
	if (r == 0 && output.length == 0)
		add_line(doctor, OK, "collector", NULL, "loads into %s: %s", probes[i][0],
			 doctor->collector);
	else
		add_line(doctor, BAD, "collector", "use the msmemscope built for this machine",
			 "%s does not run with %s preloaded (%s%d): %.300s", probes[i][0],
			 doctor->collector, r < 0 ? "error " : "exit code ", r < 0 ? -r : r,
			 strbuf_str(&output));
	if (split)
		add_line(
			doctor, NOTE, "path",
			"move the tree to another path, if you set LD_PRELOAD by hand",
			"%s has a blank or a colon, where the loader splits LD_PRELOAD; a launch works, LD_PRELOAD set by hand does not",
			doctor->prefix);
	strbuf_fini(&output);
}

/* torch_npu and MindSpore report their pools only to a preloaded file whose real path ends in this name. */
static void check_gate(struct doctor *doctor)
{
	char real[PATH_MAX], extension[PATH_MAX + 64];

	if (doctor->collector[0] == '\0')
		return;
	if (realpath(doctor->collector, real) == NULL ||
	    strcmp(text_base_name(real), TREE_COLLECTOR) != 0) {
		add_line(
			doctor, BAD, "torch_npu's gate", "copy the file instead of linking to it",
			"pools of torch_npu and MindSpore will not be seen: %s is really %s, and they look for a file named " TREE_COLLECTOR,
			doctor->collector, real);
		return;
	}
	if (doctor->ascend_home == NULL) {
		add_line(doctor, NOTE, "torch_npu's gate",
			 "source set_env.sh of CANN for a program that uses torch_npu",
			 "sees msmemscope; but without ASCEND_HOME_PATH torch_npu reports no pool");
		return;
	}
	(void)snprintf(extension, sizeof(extension), "%s/lib64/libms_tools_ext.so",
		       doctor->ascend_home);
	if (access(extension, R_OK) < 0)
		add_line(doctor, BAD, "torch_npu's gate",
			 "set ASCEND_HOME_PATH to a CANN that has it",
			 "pools of torch_npu and MindSpore will not be seen: no %s", extension);
	else
		add_line(doctor, OK, "torch_npu's gate", NULL, "sees msmemscope, and %s is there",
			 extension);
}

/* ---- the machine's software ---- */

struct library {
	const char *name;
	const char *provides;
	bool needed; /* without it, nothing of what an NPU does is recorded */
};

static const struct library libraries[] = {
	{"libascend_hal.so", "memory of the driver", true},
	{"libascendcl.so", "start and end of the runtime, pinned host memory", false},
	{"libruntime.so", "kernel launches", false},
	{"libms_tools_ext.so", "marks, steps and pools of frameworks", false},
	{"libprofapi.so", "names of kernels", false},
	{"libdcmi.so", "usage of process and device, as the driver counts it", false},
};

/* Directories in which installations of Ascend software put libraries, for the cure. */
static const char usual_places[] =
	"/usr/local/Ascend/driver/lib64/driver:/usr/local/Ascend/driver/lib64/common:/usr/local/Ascend/driver/lib64:/usr/local/dcmi:/usr/local/Ascend/ascend-toolkit/latest/lib64:/usr/local/Ascend/latest/lib64";

/* The file that the loader or our collector finds for a library; false if neither does. */
static bool find_library(const struct doctor *doctor, const char *name, char *out, size_t bytes)
{
	char directory[PATH_MAX];

	if (ld_so_find(name, out, bytes) == 0)
		return true;
	if (doctor->ascend_home == NULL)
		return false;
	(void)snprintf(directory, sizeof(directory), "%s/lib64", doctor->ascend_home);
	return ld_so_find_along(directory, name, out, bytes) == 0;
}

static void check_libraries(struct doctor *doctor)
{
	char path[PATH_MAX], cure[PATH_MAX + 128];
	bool found[MSCOPE_COUNT(libraries)], any = false;
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(libraries); i++) {
		found[i] = find_library(doctor, libraries[i].name, path, sizeof(path));
		any = any || found[i];
	}
	if (!any && ld_so_find_along(usual_places, libraries[0].name, path, sizeof(path)) != 0) {
		add_line(
			doctor, NOTE, "Ascend software",
			"source set_env.sh of CANN; or use the simulated NPU: put simnpu/lib64 of this tree into LD_LIBRARY_PATH",
			"none of its libraries is found");
		return;
	}
	for (i = 0; i < MSCOPE_COUNT(libraries); i++) {
		const struct library *library = &libraries[i];

		if (found[i] && find_library(doctor, library->name, path, sizeof(path))) {
			add_line(doctor, OK, library->name, NULL, "%s: %s", path,
				 library->provides);
			continue;
		}
		if (ld_so_find_along(usual_places, library->name, path, sizeof(path)) == 0) {
			(void)snprintf(cure, sizeof(cure), "put %.*s into LD_LIBRARY_PATH",
				       (int)(strrchr(path, '/') - path), path);
			add_line(
				doctor, library->needed ? BAD : NOTE, library->name, cure,
				"is in a directory that the loader does not search; without it no %s",
				library->provides);
			continue;
		}
		add_line(doctor, library->needed ? BAD : NOTE, library->name,
			 "source set_env.sh of CANN, or install what it is part of",
			 "not found; without it no %s", library->provides);
	}
}

/* Device files /dev/PREFIXnumber, and how many of them may not be opened. */
static unsigned int count_devices(const char *prefix, unsigned int *out_closed)
{
	DIR *dir = opendir("/dev");
	const struct dirent *entry;
	size_t length = strlen(prefix);
	unsigned int count = 0;
	char path[300];

	*out_closed = 0;
	while (dir != NULL && (entry = readdir(dir)) != NULL) {
		const char *number = entry->d_name + length;

		if (strncmp(entry->d_name, prefix, length) != 0 || *number < '0' || *number > '9')
			continue;
		(void)snprintf(path, sizeof(path), "/dev/%s", entry->d_name);
		count++;
		if (access(path, R_OK | W_OK) < 0)
			(*out_closed)++;
	}
	if (dir != NULL)
		(void)closedir(dir);
	return count;
}

static void check_kind(struct doctor *doctor, const char *subject, const char *prefix,
		       const char *without)
{
	unsigned int closed, count = count_devices(prefix, &closed);

	if (count == 0)
		add_line(doctor, NOTE, subject, NULL,
			 "no device file /dev/%s*%s (a container must be given the devices)",
			 prefix, without);
	else if (closed > 0)
		add_line(doctor, NOTE, subject,
			 "join the group that owns them, or give them to the container",
			 "%u of %u device files /dev/%s* may not be opened", closed, count, prefix);
	else
		add_line(doctor, OK, subject, NULL, "%u device file%s /dev/%s*", count,
			 count == 1 ? "" : "s", prefix);
}

/* ---- other tools ---- */

struct other_tool {
	const char *variable;
	const char *unless; /* a value that means nothing, NULL: none */
	const char *what;
};

static const struct other_tool other_tools[] = {
	{"PROFILING_MODE", "false",
	 "the profiler of CANN is on; with --level=kernel only one of the two gets kernels"},
	{"PROFILER_SAMPLECONFIG", NULL,
	 "msprof is at work; with --level=kernel only one of the two gets kernels"},
	{"CUDA_INJECTION64_PATH", NULL,
	 "a CUDA tool is injected; it keeps the profiling interface"},
	{"NVTX_INJECTION64_PATH", NULL, "NVTX marks go to that library"},
};

/* Names under which this tool, or the one it stands in for, is preloaded. */
static const char *const own_names[] = {
	TREE_COLLECTOR,		 "libleaks_ascend_hal_hook.so", "libascend_mstx_hook.so",
	"libatb_abi_0_hook.so",	 "libatb_abi_1_hook.so",	"libmsmemscope.so",
	"libascend_hal_hook.so", "libascend_leaks.so",
};

static bool in_tree(const struct doctor *doctor, const char *path)
{
	char real[PATH_MAX];
	size_t length = strlen(doctor->prefix);

	return realpath(path, real) != NULL && length > 0 &&
	       strncmp(real, doctor->prefix, length) == 0 && real[length] == '/';
}

static void check_preloads(struct doctor *doctor)
{
	const char *preload = variable("LD_PRELOAD");
	char *copy = preload == NULL ? NULL : strdup(preload), *rest = copy, *one;
	size_t i;

	while (copy != NULL && (one = strsep(&rest, " :")) != NULL) {
		bool ours = false;

		for (i = 0; i < MSCOPE_COUNT(own_names); i++)
			ours = ours || strcmp(text_base_name(one), own_names[i]) == 0;
		if (one[0] == '\0' || in_tree(doctor, one))
			continue;
		if (ours)
			add_line(
				doctor, BAD, "LD_PRELOAD", "take it out of LD_PRELOAD",
				"%s is another memory tool, or another copy of this one, and would interfere",
				one);
		else
			add_line(doctor, NOTE, "LD_PRELOAD", NULL,
				 "%s is preloaded too, after msmemscope", one);
	}
	free(copy);
}

static void check_others(struct doctor *doctor)
{
	const char *mstx = variable("MSTX_INJECTION_PATH");
	unsigned int before = doctor->count[NOTE] + doctor->count[BAD];
	size_t i;

	if (mstx != NULL && !in_tree(doctor, mstx))
		add_line(
			doctor, BAD, "mstx", "unset MSTX_INJECTION_PATH",
			"MSTX_INJECTION_PATH=%s: that tool gets marks, steps and pools instead of msmemscope",
			mstx);
	for (i = 0; i < MSCOPE_COUNT(other_tools); i++) {
		const struct other_tool *tool = &other_tools[i];
		const char *value = variable(tool->variable);
		char cure[64];

		if (value == NULL || (tool->unless != NULL && strcmp(value, tool->unless) == 0))
			continue;
		(void)snprintf(cure, sizeof(cure), "unset %s", tool->variable);
		add_line(doctor, NOTE, "another profiler", cure, "%s=%.200s: %s", tool->variable,
			 value, tool->what);
	}
	check_preloads(doctor);
	if (doctor->count[NOTE] + doctor->count[BAD] == before)
		add_line(doctor, OK, "other profilers", NULL, "not set up in this environment");
}

/* ---- the system ---- */

static void check_libc(struct doctor *doctor)
{
	char path[PATH_MAX], version[16];
	unsigned int major = 0, minor = 0;

	if (ld_so_find("libc.so.6", path, sizeof(path)) != 0) {
		add_line(
			doctor, BAD, "C library",
			"run the program on a system with glibc, such as a container of Debian or openEuler",
			"no glibc is found, and the collector needs one");
		return;
	}
	if (ld_so_glibc_version(path, version, sizeof(version)) != 0 ||
	    sscanf(version, "%u.%u", &major, &minor) != 2) {
		add_line(doctor, NOTE, "C library", NULL, "%s does not say which version it is",
			 path);
		return;
	}
	if (major < 2 || (major == 2 && minor < 17))
		add_line(doctor, BAD, "C library", "use a newer system",
			 "glibc %s; the collector needs 2.17", version);
	else
		add_line(doctor, OK, "C library", NULL, "glibc %s (%s)", version, path);
}

/* Numbers that the oldest headers lack. */
#define ADVISE_WIPEONFORK 18
#define BARRIER_QUERY	  0
#define BARRIER_EXPEDITED 2
#if defined(__x86_64__)
#define NR_MEMBARRIER 324
#else
#define NR_MEMBARRIER 283
#endif
#define NR_PIDFD_OPEN 434

static void check_kernel(struct doctor *doctor)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *p = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	long barriers = syscall(NR_MEMBARRIER, BARRIER_QUERY, 0);
	int pidfd = (int)syscall(NR_PIDFD_OPEN, getpid(), 0);
	struct strbuf missing = {0};
	struct utsname name;

	if (barriers < 0 || !(barriers & BARRIER_EXPEDITED))
		strbuf_add_str(&missing,
			       ", no expedited membarrier (files come when the program has ended)");
	if (pidfd >= 0)
		(void)close(pidfd);
	else
		strbuf_add_str(&missing, ", no pidfd (ends of processes are looked up in /proc)");
	if (p == MAP_FAILED || madvise(p, page, ADVISE_WIPEONFORK) < 0)
		strbuf_add_str(&missing, ", no wipe on fork (a raw clone() goes unnoticed)");
	if (p != MAP_FAILED)
		(void)munmap(p, page);
	if (uname(&name) < 0)
		(void)snprintf(name.release, sizeof(name.release), "unknown");
	if (missing.length > 0)
		add_line(doctor, NOTE, "kernel", NULL, "Linux %s%s", name.release,
			 strbuf_str(&missing));
	else
		add_line(doctor, OK, "kernel", NULL, "Linux %s has membarrier, pidfd, wipe on fork",
			 name.release);
	strbuf_fini(&missing);
}

static bool file_holds(const char *path, const char *const words[], size_t count)
{
	char text[4096];
	FILE *file = fopen(path, "re");
	size_t got = file == NULL ? 0 : fread(text, 1, sizeof(text) - 1, file), i;

	if (file != NULL)
		(void)fclose(file);
	text[got] = '\0';
	for (i = 0; i < count; i++) {
		if (strstr(text, words[i]) != NULL)
			return true;
	}
	return false;
}

static void check_container(struct doctor *doctor)
{
	static const char *const words[] = {"docker", "kubepods", "containerd",
					    "lxc",    "isulad",	  "libpod"};

	if (access("/.dockerenv", F_OK) == 0 || access("/run/.containerenv", F_OK) == 0 ||
	    variable("container") != NULL ||
	    file_holds("/proc/1/cgroup", words, MSCOPE_COUNT(words)))
		add_line(doctor, NOTE, "container", NULL,
			 "inside a container: only results on a volume outlive it");
	else
		add_line(doctor, OK, "container", NULL, "none noticed");
}

static void check_limits(struct doctor *doctor)
{
	struct strbuf size = {0};
	struct rlimit limit;

	if (getrlimit(RLIMIT_FSIZE, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY)
		return;
	strbuf_add_size(&size, limit.rlim_cur);
	add_line(doctor, limit.rlim_cur < SPACE_NONE ? BAD : NOTE, "file size limit",
		 "ulimit -f unlimited", "files are limited to %s; a trace stops at this size",
		 strbuf_str(&size));
	strbuf_fini(&size);
}

/* ---- places ---- */

/* The directory itself, or the nearest one above it that exists: what is missing is made by a launch. */
static void existing_part(const char *directory, char *out, size_t bytes)
{
	struct stat st;
	char *slash;

	(void)snprintf(out, bytes, "%s", directory);
	while (stat(out, &st) < 0 && (slash = strrchr(out, '/')) != NULL)
		slash[slash == out ? 1 : 0] = '\0';
}

static void check_place(struct doctor *doctor, const char *subject, const char *directory, bool raw,
			const char *option)
{
	struct strbuf size = {0};
	struct statvfs fs;
	char there[PATH_MAX], cure[64];
	bool memory, remote;
	uint64_t bytes;

	existing_part(directory, there, sizeof(there));
	(void)snprintf(cure, sizeof(cure), "name another with %s", option);
	if (access(there, W_OK | X_OK) < 0 || statvfs(there, &fs) < 0) {
		add_line(doctor, BAD, subject, cure, "%s: cannot write to %s: %s", directory, there,
			 strerror(errno));
		return;
	}
	bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
	strbuf_add_size(&size, bytes);
	remote = session_is_remote(there, &memory);
	if (bytes < SPACE_NONE)
		add_line(doctor, BAD, subject, cure, "%s: only %s free", directory,
			 strbuf_str(&size));
	else if (raw && remote)
		add_line(
			doctor, NOTE, subject, cure,
			"%s: %s, and no local disk was found; recording works, but costs the program %s",
			directory, memory ? "in memory" : "on a network",
			memory ? "memory" : "time");
	else if (bytes < SPACE_LITTLE)
		add_line(doctor, NOTE, subject, cure,
			 "%s: %s free; a trace may use a tenth of it (--max-disk)", directory,
			 strbuf_str(&size));
	else
		add_line(doctor, OK, subject, NULL, "%s: %s, %s free", directory,
			 !remote  ? "local disk"
			 : memory ? "in memory, which is fine for results"
				  : "on a network, which is fine for results",
			 strbuf_str(&size));
	strbuf_fini(&size);
}

static void check_places(struct doctor *doctor)
{
	const struct options *options = doctor->options;
	struct session_place place = {0};
	char there[PATH_MAX];
	const char *raw;

	check_place(doctor, "results", options->output_path, false, "-o");
	existing_part(options->output_path, there, sizeof(there));
	raw = session_choose(there, options->trace_dir, &place);
	check_place(doctor, "raw traces", raw == there ? options->output_path : raw, true,
		    "--trace-dir");
}

/* ---- the program ---- */

/* Libraries that the loader does not find for a program, and what it says of those that do not fit. It runs nothing of either. */
static void find_missing(const struct preflight_report *report, struct strbuf *missing,
			 struct strbuf *unfit)
{
	const char *const argv[] = {report->loader, report->executed, NULL};
	struct child_variable changes[] = {
		{"LD_TRACE_LOADED_OBJECTS", "1"}, {"LD_PRELOAD", NULL}, {NULL, NULL}};
	static const char absent[] = " => not found", needs[] = "' not found";
	struct strbuf output = {0};
	char *line, *rest = NULL;

	if (child_run(argv, changes, PROBE_TIMEOUT_MS, &output) < 0 || output.length == 0) {
		strbuf_fini(&output);
		return;
	}
	(void)strbuf_str(&output);
	for (line = strtok_r(output.data, "\n", &rest); line != NULL;
	     line = strtok_r(NULL, "\n", &rest)) {
		const char *end = strstr(line, absent);

		line += strspn(line, " \t");
		if (end != NULL)
			strbuf_addf(missing, "%s%.*s", missing->length > 0 ? ", " : "",
				    (int)(end - line), line);
		else if (unfit->length == 0 && (strstr(line, needs) != NULL ||
						strstr(line, "error while loading") != NULL))
			strbuf_add_str(unfit, line);
	}
	strbuf_fini(&output);
}

static void check_loadable(struct doctor *doctor, const struct preflight_report *report)
{
	struct strbuf missing = {0}, unfit = {0};

	/* The loader of glibc alone is known to do no more than list. */
	if (strncmp(text_base_name(report->loader), "ld-linux", 8) != 0 ||
	    access(report->loader, X_OK) < 0 || report->executed[0] == '\0')
		return;
	find_missing(report, &missing, &unfit);
	if (missing.length > 0)
		add_line(
			doctor, BAD, "its libraries",
			"put their directories into LD_LIBRARY_PATH, or source the set_env.sh that belongs to them",
			"%s cannot start: the loader does not find %s", report->executed,
			strbuf_str(&missing));
	else if (unfit.length > 0)
		add_line(doctor, BAD, "its libraries", "use the versions it was built with",
			 "%s cannot start: %s", report->executed, strbuf_str(&unfit));
	else
		add_line(doctor, OK, "its libraries", NULL, "the loader finds all");
	strbuf_fini(&missing);
	strbuf_fini(&unfit);
}

static void check_program(struct doctor *doctor)
{
	const struct options *options = doctor->options;
	struct preflight_report report;
	struct mscope_error err = {0};
	char path[PATH_MAX];
	size_t i;

	if (options->argc < 2)
		return;
	if (preflight_resolve(options->argv[1], path, sizeof(path), &err) < 0) {
		add_line(doctor, BAD, "program", NULL, "%s", err.message);
		return;
	}
	if (preflight_inspect(path, &report) < 0) {
		add_line(doctor, NOTE, "program", NULL, "%s cannot be read, so it is not checked",
			 path);
		return;
	}
	preflight_inspect_words(options->argv + 1, &report);
	/* Each sentence has its cure in it. */
	for (i = 0; i < report.finding_count; i++)
		add_line(doctor, report.findings[i].fatal ? BAD : NOTE, "program", NULL, "%s",
			 report.findings[i].sentence);
	if (report.finding_count == 0)
		add_line(doctor, OK, "program", NULL, "%s can be recorded%s%s", path,
			 strcmp(report.executed, path) != 0 && report.executed[0] != '\0'
				 ? "; what runs is "
				 : "",
			 strcmp(report.executed, path) != 0 ? report.executed : "");
	check_loadable(doctor, &report);
}

/* ---- packages of the Python that would run ---- */

typedef void package_folder(struct doctor *doctor, const char *directory, void *arg);

struct package {
	const char *name;
	const char *found; /* what there is to know of it */
	const char *cure;
	enum verdict verdict;
};

static const struct package packages[] = {
	{"torch", "its tensors are recorded on an NPU, on a GPU and on the CPU", NULL, OK},
	{"torch_npu", "its own marks (torch_npu.npu.mstx) are not sent while a tool is preloaded",
	 "use the module mstx of CANN, or step() of msmemscope", NOTE},
	{"mstx", "this package of PyPI is an empty placeholder: its marks go nowhere",
	 "uninstall it, and use the module mstx that comes with CANN", NOTE},
};

/* Looks into one folder of packages for those that are installed there, by the folders that pip leaves. */
static void check_packages(struct doctor *doctor, const char *directory, void *arg)
{
	const struct dirent *entry;
	DIR *dir = opendir(directory);
	size_t i;

	(void)arg;
	while (dir != NULL && (entry = readdir(dir)) != NULL) {
		const char *end = strstr(entry->d_name, ".dist-info");

		for (i = 0; end != NULL && i < MSCOPE_COUNT(packages); i++) {
			size_t length = strlen(packages[i].name);

			if (strncmp(entry->d_name, packages[i].name, length) != 0 ||
			    entry->d_name[length] != '-')
				continue;
			add_line(doctor, packages[i].verdict, packages[i].name, packages[i].cure,
				 "%.*s in %s: %s",
				 (int)(end - entry->d_name - (ptrdiff_t)length - 1),
				 entry->d_name + length + 1, directory, packages[i].found);
		}
	}
	if (dir != NULL)
		(void)closedir(dir);
}

/*
 * Hands the folders of packages to `take`: those of the interpreter that is named, else of the one that `python3` means. They lie
 * beside it, in a virtual environment too.
 */
static void walk_packages(struct doctor *doctor, package_folder *take, void *arg)
{
	static const char *const places[] = {"site-packages", "dist-packages"};
	const struct options *options = doctor->options;
	const char *word = "python3";
	char prefix[PATH_MAX], directory[2 * PATH_MAX];
	struct mscope_error err = {0};
	const struct dirent *entry;
	size_t i;
	DIR *dir;

	if (options->argc >= 2 && strncmp(text_base_name(options->argv[1]), "python", 6) == 0)
		word = options->argv[1];
	if (preflight_resolve(word, prefix, sizeof(prefix), &err) < 0)
		return;
	for (i = 0; i < 2; i++) {
		char *slash = strrchr(prefix, '/');

		if (slash == NULL)
			return;
		*slash = '\0';
	}
	(void)snprintf(directory, sizeof(directory), "%s/lib", prefix);
	dir = opendir(directory);
	while (dir != NULL && (entry = readdir(dir)) != NULL) {
		for (i = 0; strncmp(entry->d_name, "python3", 7) == 0 && i < MSCOPE_COUNT(places);
		     i++) {
			(void)snprintf(directory, sizeof(directory), "%s/lib/%.200s/%s", prefix,
				       entry->d_name, places[i]);
			take(doctor, directory, arg);
		}
	}
	if (dir != NULL)
		(void)closedir(dir);
}

static void check_python(struct doctor *doctor)
{
	walk_packages(doctor, check_packages, NULL);
}

/* ---- NVIDIA ---- */

/* The driver's version, as its kernel module says it; "" if there is none. */
static void driver_version(char *out, size_t bytes)
{
	FILE *file = fopen("/proc/driver/nvidia/version", "re");
	char line[256], *at;

	out[0] = '\0';
	if (file == NULL)
		return;
	at = fgets(line, sizeof(line), file) == NULL ? NULL : strstr(line, "Kernel Module");
	if (at != NULL) {
		at += strlen("Kernel Module");
		at += strcspn(at, "0123456789");
		(void)snprintf(out, bytes, ", version %.*s", (int)strspn(at, "0123456789."), at);
	}
	(void)fclose(file);
}

/* CUPTI lies in the toolkit, or in packages of Python; its name ends in the version of the toolkit. */
static const char *const cupti_names[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8",
					  "libcupti.so"};

static void find_cupti_package(struct doctor *doctor, const char *directory, void *arg)
{
	char *out = arg; /* of PATH_MAX bytes, empty until it is found */
	char places[4 * PATH_MAX];
	size_t i;

	(void)doctor;
	(void)snprintf(places, sizeof(places), "%s/nvidia/cu13/lib:%s/nvidia/cuda_cupti/lib",
		       directory, directory);
	for (i = 0; i < MSCOPE_COUNT(cupti_names) && out[0] == '\0'; i++) {
		if (ld_so_find_along(places, cupti_names[i], out, PATH_MAX) != 0)
			out[0] = '\0';
	}
}

/* In the order in which the collector looks: what the program itself has comes first. */
static bool find_cupti(struct doctor *doctor, char out[PATH_MAX])
{
	const char *homes[] = {variable("CUDA_HOME"), variable("CUDA_PATH"), "/usr/local/cuda"};
	const char *named = variable("CUPTI_LIBRARY");
	char places[2 * PATH_MAX];
	size_t i;

	out[0] = '\0';
	if (named != NULL) {
		(void)snprintf(out, PATH_MAX, "%s", named);
		return ld_so_fits(named);
	}
	walk_packages(doctor, find_cupti_package, out);
	for (i = 0; i < MSCOPE_COUNT(cupti_names) && out[0] == '\0'; i++) {
		if (ld_so_find(cupti_names[i], out, PATH_MAX) != 0)
			out[0] = '\0';
	}
	for (i = 0; i < MSCOPE_COUNT(homes) && out[0] == '\0'; i++) {
		if (homes[i] == NULL)
			continue;
		(void)snprintf(places, sizeof(places), "%.4000s/extras/CUPTI/lib64:%.4000s/lib64",
			       homes[i], homes[i]);
		if (ld_so_find_along(places, "libcupti.so", out, PATH_MAX) != 0)
			out[0] = '\0';
	}
	return out[0] != '\0';
}

/* Who gets CUPTI: one subscriber a process. */
static void check_subscriber(struct doctor *doctor)
{
	const char *injected = variable("CUDA_INJECTION64_PATH");

	if (injected != NULL && !in_tree(doctor, injected))
		add_line(doctor, NOTE, "CUPTI subscriber",
			 "unset CUDA_INJECTION64_PATH to record driver memory and kernels",
			 "used by %s (CUDA_INJECTION64_PATH); PyTorch's pools are still recorded",
			 injected);
	else
		add_line(
			doctor, OK, "CUPTI subscriber", NULL,
			"free; if a profiler in the program needs it, msmemscope releases it and says so");
}

static void check_cuda(struct doctor *doctor)
{
	char path[PATH_MAX], version[64];

	driver_version(version, sizeof(version));
	if (ld_so_find("libcuda.so.1", path, sizeof(path)) != 0) {
		add_line(doctor, BAD, "libcuda.so.1",
			 "install the driver's libraries, or give them to the container",
			 "not found%s; without it no program uses the GPU", version);
		return;
	}
	add_line(doctor, OK, "libcuda.so.1", NULL,
		 "%s%s: memory of PyTorch on the GPU is recorded by default", path, version);
	if (find_cupti(doctor, path))
		add_line(doctor, OK, "CUPTI", NULL, "%s: driver memory, kernels", path);
	else
		add_line(
			doctor, NOTE, "CUPTI",
			"install it (pip install nvidia-cuda-cupti), or set CUPTI_LIBRARY to the file",
			"not found; without it, driver memory outside of pools and kernels are not recorded");
	if (ld_so_find("libnvidia-ml.so.1", path, sizeof(path)) == 0)
		add_line(doctor, OK, "NVML", NULL,
			 "%s: usage of process and device, as the driver counts it", path);
	else
		add_line(doctor, NOTE, "NVML", "install the driver's management library",
			 "no libnvidia-ml.so.1; without it no usage of process and device");
	check_subscriber(doctor);
}

static void check_devices(struct doctor *doctor)
{
	struct machine machine = machine_look();
	const char *beside = machine.gpu ? machine.npu ? "npu,gpu,cpu" : "gpu,cpu" : "npu,cpu";

	check_kind(doctor, "NPU", "davinci", ": only the simulated NPU works here");
	check_kind(doctor, "GPU", "nvidia", "");
	if (machine.gpu)
		check_cuda(doctor);
	if (machine.npu || machine.gpu)
		add_line(
			doctor, OK, "CPU", NULL,
			"CPU tensors of PyTorch are recorded with --device=cpu, or together with a device with --device=%s",
			beside);
	else
		add_line(
			doctor, OK, "CPU", NULL,
			"CPU tensors of PyTorch are recorded by default, because this machine has no NPU and no GPU");
}

static void (*const checks[])(struct doctor *doctor) = {
	check_tree,   check_loads,   check_gate,   check_libraries, check_devices,
	check_others, check_libc,    check_kernel, check_container, check_limits,
	check_places, check_program, check_python,
};

int cmd_doctor(const struct options *options)
{
	struct doctor doctor = {.options = options, .ascend_home = variable("ASCEND_HOME_PATH")};
	size_t i;

	json_begin(&doctor.json, &doctor.text);
	if (options->json)
		json_array(&doctor.json, NULL);
	for (i = 0; i < MSCOPE_COUNT(checks); i++)
		checks[i](&doctor);
	if (options->json) {
		json_end(&doctor.json);
		strbuf_add_char(&doctor.text, '\n');
	}
	cli_show(STDOUT_FILENO, &doctor.text);
	strbuf_fini(&doctor.text);
	if (options->log_level <= OPT_LOG_WARN)
		cli_say("%u ok, %u notes, %u bad", doctor.count[OK], doctor.count[NOTE],
			doctor.count[BAD]);
	return doctor.count[BAD] > 0 ? MSCOPE_EXIT_FAILED : MSCOPE_EXIT_OK;
}
