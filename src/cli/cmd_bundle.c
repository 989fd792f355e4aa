/* SPDX-License-Identifier: Apache-2.0 */
/*
 * msmemscope bundle DIR: what another person needs to look into a run, as one tar file: of each project in DIR its trace, report and
 * settings, and a file that names versions. Dump files are left out where a trace gives them again. Nothing else of the machine goes in:
 * entries have no owner, and no path but that of their project.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/io.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/cli.h"
#include "engine/what_if_finding.h"
#include "engine/anonymize.h"
#include "engine/pass.h"
#include "engine/projects.h"
#include "sink/config.h"
#include "sink/report.h"
#include "sink/report_json.h"
#include "sink/project.h"
#include "symbols/elf_cache.h"
#include "trace/session.h"

#define TAR_BLOCK     512u
#define TAR_SIZE_MAX  077777777777u /* what eleven octal digits hold */
#define PROJECTS_MAX  4096u
#define DUMP_DEPTH    2 /* device_ID/dump */
#define VERSIONS_NAME "bundle/versions.txt"

struct bundle {
	int fd;
	struct json json;
	struct strbuf text;
	char path[PATH_MAX], part[PATH_MAX + 8];
	uint64_t files;
	bool anonymize;
	struct anonymous names; /* of all projects */
	struct elf_cache elves;
	struct mscope_error err;
};

/* ---- tar ---- */

/* The header of POSIX.1-1988 (ustar). */
struct tar_header {
	char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, link[100],
		magic[6], version[2], user[32], group[32], major[8], minor[8], prefix[155], pad[12];
};

_Static_assert(sizeof(struct tar_header) == TAR_BLOCK, "a header is one block");

static bool put_name(struct tar_header *h, const char *name)
{
	const char *slash = name + strlen(name);

	if (strlen(name) <= sizeof(h->name)) {
		memcpy(h->name, name, strlen(name));
		return true;
	}
	/* The last slash that leaves a name, and a prefix, of allowed length. */
	while (slash > name && (*slash != '/' || (size_t)(slash - name) > sizeof(h->prefix)))
		slash--;
	if (slash == name || strlen(slash + 1) > sizeof(h->name) || slash[1] == '\0')
		return false;
	memcpy(h->prefix, name, (size_t)(slash - name));
	memcpy(h->name, slash + 1, strlen(slash + 1));
	return true;
}

static void put_size(struct tar_header *h, uint64_t size)
{
	size_t i;

	if (size <= TAR_SIZE_MAX) {
		(void)snprintf(h->size, sizeof(h->size), "%011llo", (unsigned long long)size);
		return;
	}
	/* As GNU tar has it: a number of base 256 with its highest bit set. */
	h->size[0] = (char)0x80;
	for (i = sizeof(h->size) - 1; i > 0; i--, size >>= 8)
		h->size[i] = (char)(size & 0xff);
}

static int begin_entry(struct bundle *bundle, const char *name, uint64_t size, uint64_t mtime)
{
	struct tar_header h = {0};
	const uint8_t *at = (const uint8_t *)&h;
	unsigned int sum = 0;
	size_t i;

	if (!put_name(&h, name))
		return -ENAMETOOLONG;
	(void)snprintf(h.mode, sizeof(h.mode), "%07o", 0600);
	(void)snprintf(h.uid, sizeof(h.uid), "%07o", 0);
	(void)snprintf(h.gid, sizeof(h.gid), "%07o", 0);
	(void)snprintf(h.mtime, sizeof(h.mtime), "%011llo", (unsigned long long)mtime);
	put_size(&h, size);
	h.type = '0';
	memcpy(h.magic, "ustar", 6);
	memcpy(h.version, "00", 2);
	memset(h.checksum, ' ', sizeof(h.checksum));
	for (i = 0; i < sizeof(h); i++)
		sum += at[i];
	(void)snprintf(h.checksum, sizeof(h.checksum), "%06o", sum);
	json_string(&bundle->json, NULL, name);
	bundle->files++;
	return io_write(bundle->fd, &h, sizeof(h));
}

static int pad(struct bundle *bundle, uint64_t size)
{
	static const char zeros[TAR_BLOCK];

	return size % TAR_BLOCK == 0 ? 0
				     : io_write(bundle->fd, zeros, TAR_BLOCK - size % TAR_BLOCK);
}

static int add_text(struct bundle *bundle, const char *name, const struct strbuf *text)
{
	int r = begin_entry(bundle, name, text->length, 0);

	if (r == 0)
		r = io_write(bundle->fd, strbuf_str(text), text->length);
	return r == 0 ? pad(bundle, text->length) : r;
}

/* A file that becomes shorter while it is read ends with zeros, so that what follows is still read. */
static int copy(struct bundle *bundle, int fd, uint64_t size)
{
	char buffer[65536];
	uint64_t left = size;
	int r = 0;

	while (left > 0 && r == 0) {
		size_t wanted = left < sizeof(buffer) ? (size_t)left : sizeof(buffer);
		ssize_t got = read(fd, buffer, wanted);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0) {
			memset(buffer, 0, sizeof(buffer));
			got = (ssize_t)wanted;
		}
		r = io_write(bundle->fd, buffer, (size_t)got);
		left -= (uint64_t)got;
	}
	return r == 0 ? pad(bundle, size) : r;
}

static int add_file(struct bundle *bundle, const char *path, const char *name)
{
	struct stat st;
	int fd = io_open_file(path, O_RDONLY | O_NOFOLLOW, NULL), r;

	if (fd < 0)
		return fd == -ENOENT ? 0
				     : error_set(&bundle->err, fd, "cannot read %s: %s", path,
						 mscope_status_str(fd));
	r = fstat(fd, &st) < 0 ? -errno : 0;
	if (r == 0)
		r = begin_entry(bundle, name, (uint64_t)st.st_size, (uint64_t)st.st_mtime);
	if (r == 0)
		r = copy(bundle, fd, (uint64_t)st.st_size);
	(void)close(fd);
	return r == 0 ? 0
		      : error_set(&bundle->err, r, "cannot write %s to %s: %s", path, bundle->path,
				  mscope_status_str(r));
}

/* ---- projects ---- */

static bool exists(const char *directory, const char *name)
{
	char path[PATH_MAX];

	return snprintf(path, sizeof(path), "%s/%s", directory, name) < (int)sizeof(path) &&
	       access(path, F_OK) == 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int no_dots(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

/* Dump files below a project that has no trace. */
static int add_dumps(struct bundle *bundle, const char *directory, const char *name, int depth)
{
	char path[PATH_MAX], inner[PATH_MAX];
	struct dirent **entries = NULL;
	struct stat st;
	int count = scandir(directory, &entries, no_dots, by_name), i, r = 0;

	for (i = 0; i < count; i++) {
		const char *entry = entries[i]->d_name;

		if (r == 0 &&
		    snprintf(path, sizeof(path), "%s/%s", directory, entry) < (int)sizeof(path) &&
		    snprintf(inner, sizeof(inner), "%s/%s", name, entry) < (int)sizeof(inner) &&
		    lstat(path, &st) == 0) {
			if (S_ISDIR(st.st_mode) && depth > 0)
				r = add_dumps(bundle, path, inner, depth - 1);
			else if (S_ISREG(st.st_mode) &&
				 (text_ends_with(entry, ".csv") || text_ends_with(entry, ".db")))
				r = add_file(bundle, path, inner);
		}
		free(entries[i]);
	}
	free(entries);
	return r;
}

/* The report of a trace without names, made from it. */
static int add_report(struct bundle *bundle, const struct input *input, const char *name)
{
	struct pass_setup setup = {.run = input->run,
				   .elves = &bundle->elves,
				   .analysis = SESSION_LEAKS | SESSION_DECOMPOSE};
	struct strbuf text = {0}, document = {0};
	struct what_if_asker what_if;
	struct pass pass = {0};
	char inner[PATH_MAX];
	struct json json;
	int r = pass_open(&pass, &setup, &bundle->err);

	if (r < 0)
		return r;
	r = pass_all(&pass, &bundle->err);
	if (r == 0) {
		struct report report = {.replay = pass.replay,
					.analyses = &pass.analyses,
					.from_dump = input->imported};

		what_if_of_input(&report, &what_if, input);
		report_text(&report, &text);
		(void)snprintf(inner, sizeof(inner), "bundle/%.200s/" PROJECT_REPORT, name);
		r = strbuf_failed(&text) ? -ENOMEM : add_text(bundle, inner, &text);
		report_json_begin(&json, &document);
		report_json(&report, &json);
		report_json_end(&json);
		(void)snprintf(inner, sizeof(inner), "bundle/%.200s/" PROJECT_FINDINGS, name);
		if (r == 0)
			r = strbuf_failed(&document) ? -ENOMEM : add_text(bundle, inner, &document);
	}
	pass_close(&pass);
	strbuf_fini(&document);
	strbuf_fini(&text);
	return r;
}

/* A project without names: its trace, and the report of that. */
static int add_anonymous(struct bundle *bundle, const char *directory, const char *name)
{
	struct input input;
	struct stat st;
	char inner[PATH_MAX];
	int r = input_open(&input, directory, NULL, NULL, &bundle->err);

	if (r == 0)
		r = input_anonymize(&input, &bundle->names, &bundle->err);
	if (r == 0 && fstat(input.import_fd, &st) < 0)
		r = -errno;
	(void)snprintf(inner, sizeof(inner), "bundle/%.200s/" PROJECT_TRACE, name);
	if (r == 0)
		r = begin_entry(bundle, inner, (uint64_t)st.st_size, 0);
	if (r == 0 && lseek(input.import_fd, 0, SEEK_SET) < 0)
		r = -errno;
	if (r == 0)
		r = copy(bundle, input.import_fd, (uint64_t)st.st_size);
	if (r == 0)
		r = add_report(bundle, &input, name);
	input_close(&input);
	return r;
}

static int add_project(struct bundle *bundle, const char *directory, const char *name)
{
	static const char *const files[] = {PROJECT_TRACE, PROJECT_REPORT, PROJECT_FINDINGS,
					    "config.json"};
	char path[PATH_MAX], inner[PATH_MAX];
	size_t i;
	int r = 0;

	if (bundle->anonymize)
		return add_anonymous(bundle, directory, name);
	for (i = 0; i < MSCOPE_COUNT(files) && r == 0; i++) {
		if (snprintf(path, sizeof(path), "%s/%s", directory, files[i]) >=
			    (int)sizeof(path) ||
		    snprintf(inner, sizeof(inner), "bundle/%s/%s", name, files[i]) >=
			    (int)sizeof(inner))
			return -ENAMETOOLONG;
		r = add_file(bundle, path, inner);
	}
	(void)snprintf(inner, sizeof(inner), "bundle/%.200s", name);
	return r == 0 && !exists(directory, PROJECT_TRACE)
		       ? add_dumps(bundle, directory, inner, DUMP_DEPTH)
		       : r;
}

static bool is_project(const char *directory)
{
	return exists(directory, PROJECT_TRACE) || exists(directory, PROJECT_REPORT);
}

/* Whether `export` made it of another project in the directory, which has all that it has. */
static bool is_copy(const struct paths *projects, const char *path)
{
	char stem[PROJECT_STEM_MAX];
	size_t i;

	if (!config_exported_from(path, stem))
		return false;
	for (i = 0; i < projects->count && strcmp(projects->all[i], path) != 0; i++)
		;
	return projects->count > 0 && i == projects->count;
}

static int add_projects(struct bundle *bundle, const char *directory)
{
	struct dirent **entries = NULL;
	struct paths projects = {0};
	char path[PATH_MAX];
	int count, i, r = 0;

	if (is_project(directory))
		return add_project(bundle, directory, text_base_name(directory));
	count = scandir(directory, &entries, no_dots, by_name);
	if (count < 0)
		return error_set(&bundle->err, -errno, "cannot read %s: %s", directory,
				 strerror(errno));
	(void)projects_list(directory, &projects, NULL);
	for (i = 0; i < count; i++) {
		if (r == 0 && (unsigned int)i < PROJECTS_MAX &&
		    snprintf(path, sizeof(path), "%s/%s", directory, entries[i]->d_name) <
			    (int)sizeof(path) &&
		    is_project(path) && !is_copy(&projects, path))
			r = add_project(bundle, path, entries[i]->d_name);
		free(entries[i]);
	}
	free(entries);
	paths_fini(&projects);
	if (r == 0 && bundle->files == 1)
		r = error_set(&bundle->err, MSCOPE_E_ABSENT,
			      "%s has no project; give the results directory", directory);
	return r;
}

/* ---- the file ---- */

static int add_versions(struct bundle *bundle)
{
	struct utsname name;
	struct strbuf text = {0};
	int r;

	strbuf_addf(&text, "msmemscope %s (%s)\n", MSCOPE_VERSION, MSCOPE_COMMIT);
	if (uname(&name) == 0)
		strbuf_addf(&text, "bundled on %s %s, %s\n", name.sysname, name.release,
			    name.machine);
	r = strbuf_failed(&text) ? -ENOMEM : add_text(bundle, VERSIONS_NAME, &text);
	strbuf_fini(&text);
	return r;
}

/* Opens the first of the names that is free; the name is taken by a link at the end, so that nothing is written over. */
static int open_bundle(struct bundle *bundle, const char *output)
{
	unsigned int number;

	for (number = 1; number < 100000; number++) {
		int length = number == 1 ? snprintf(bundle->path, sizeof(bundle->path),
						    "%s/msmemscope_bundle.tar", output)
					 : snprintf(bundle->path, sizeof(bundle->path),
						    "%s/msmemscope_bundle_%u.tar", output, number);

		if (length >= (int)sizeof(bundle->path))
			return -ENAMETOOLONG;
		if (access(bundle->path, F_OK) == 0)
			continue;
		(void)snprintf(bundle->part, sizeof(bundle->part), "%s.part", bundle->path);
		bundle->fd = open(bundle->part,
				  O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (bundle->fd >= 0 || errno != EEXIST)
			return bundle->fd < 0 ? -errno : 0;
	}
	return -EEXIST;
}

static int write_bundle(struct bundle *bundle, const char *directory, const char *output)
{
	static const char end[2 * TAR_BLOCK];
	int r = project_mkdirs(output);

	if (r == 0)
		r = open_bundle(bundle, output);
	if (r < 0)
		return error_set(&bundle->err, r, "cannot write to %s: %s", output,
				 mscope_status_str(r));
	r = add_versions(bundle);
	if (r == 0)
		r = add_projects(bundle, directory);
	if (r == 0)
		r = io_write(bundle->fd, end, sizeof(end));
	if (close(bundle->fd) < 0 && r == 0)
		r = -errno;
	if (r == 0 && rename(bundle->part, bundle->path) < 0)
		r = -errno;
	if (r < 0) {
		(void)unlink(bundle->part);
		if (bundle->err.code == 0)
			(void)error_set(&bundle->err, r, "cannot write %s: %s", bundle->path,
					mscope_status_str(r));
	}
	return r;
}

int cmd_bundle(const struct options *options)
{
	struct bundle *bundle = calloc(1, sizeof(*bundle));
	char directory[PATH_MAX], output[PATH_MAX], *slash;
	int r;

	if (bundle == NULL) {
		cli_say("no memory");
		return MSCOPE_EXIT_FAILED;
	}
	if (realpath(options->argv[1], directory) == NULL) {
		cli_say("cannot open %s: %s", options->argv[1], strerror(errno));
		free(bundle);
		return MSCOPE_EXIT_FAILED;
	}
	(void)snprintf(output, sizeof(output), "%s", directory);
	slash = strrchr(output, '/');
	if (options_given(options, OPTION_ID_output_path))
		(void)snprintf(output, sizeof(output), "%s", options->output_path);
	else if (is_project(directory) && slash != output)
		*slash = '\0';
	bundle->anonymize = options->anonymize;
	bundle->elves.no_lines = true;
	json_begin(&bundle->json, &bundle->text);
	json_object(&bundle->json, NULL);
	json_array(&bundle->json, "files");
	r = write_bundle(bundle, directory, output);
	json_end(&bundle->json);
	json_string(&bundle->json, "bundle", bundle->path);
	json_end(&bundle->json);
	if (!options->json) {
		strbuf_reset(&bundle->text);
		strbuf_add_str(&bundle->text, bundle->path);
	}
	strbuf_add_char(&bundle->text, '\n');
	if (r < 0)
		cli_say("%s", bundle->err.message);
	else
		cli_write(STDOUT_FILENO, strbuf_str(&bundle->text), bundle->text.length);
	strbuf_fini(&bundle->text);
	anonymous_fini(&bundle->names);
	elf_cache_fini(&bundle->elves);
	free(bundle);
	return r < 0 ? MSCOPE_EXIT_FAILED : MSCOPE_EXIT_OK;
}
