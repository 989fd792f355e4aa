/* SPDX-License-Identifier: Apache-2.0 */
#include "import/input.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "trace/pack.h"
#include "trace/session.h"

/* More files or projects than any real directory of results has; the rest is not looked at. */
#define NAMES_MAX 4096

struct names {
	char **all;
	size_t count, room;
};

static void names_fini(struct names *names)
{
	while (names->count > 0)
		free(names->all[--names->count]);
	free(names->all);
	*names = (struct names){0};
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Paths of what in `directory` fits the pattern, sorted. A directory that is not there has nothing in it. */
static int list(const char *directory, const char *pattern, bool directories, struct names *out)
{
	DIR *dir = opendir(directory);
	struct dirent *entry;
	struct stat st;
	char path[PATH_MAX];
	size_t before = out->count;
	int r = 0;

	if (dir == NULL)
		return errno == ENOENT || errno == ENOTDIR ? 0 : -errno;
	while (r == 0 && out->count < NAMES_MAX && (entry = readdir(dir)) != NULL) {
		if (fnmatch(pattern, entry->d_name, 0) != 0 ||
		    snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name) >=
			    (int)sizeof(path) ||
		    stat(path, &st) < 0 ||
		    (directories ? !S_ISDIR(st.st_mode) : !S_ISREG(st.st_mode)))
			continue;
		r = array_reserve(&out->all, &out->room, out->count + 1, sizeof(*out->all));
		if (r == 0 && (out->all[out->count] = strdup(path)) == NULL)
			r = -ENOMEM;
		if (r == 0)
			out->count++;
	}
	(void)closedir(dir);
	if (out->count > before)
		qsort(out->all + before, out->count - before, sizeof(*out->all), by_name);
	return r;
}

/* Dump files of one form in a directory, in its dump directory, and in the dump directory of each device below it. */
static int list_dumps(const char *directory, const char *extension, struct names *out)
{
	static const char *const stems[] = {"memscope_dump_*", "leaks_dump_*"};
	struct names devices = {0};
	char pattern[64], path[PATH_MAX];
	size_t i, k;
	int r = list(directory, "device_*", true, &devices);

	for (k = 0; k < MSCOPE_COUNT(stems) && r == 0; k++) {
		(void)snprintf(pattern, sizeof(pattern), "%s%s", stems[k], extension);
		r = list(directory, pattern, false, out);
		(void)snprintf(path, sizeof(path), "%s/dump", directory);
		if (r == 0)
			r = list(path, pattern, false, out);
		for (i = 0; i < devices.count && r == 0; i++) {
			(void)snprintf(path, sizeof(path), "%s/dump", devices.all[i]);
			r = list(path, pattern, false, out);
		}
	}
	names_fini(&devices);
	return r;
}

/* ---- dump files ---- */

/* An empty file of ours where there is room for more than memory holds. */
static int make_temporary(char path[PATH_MAX], struct mscope_error *err)
{
	const char *places[] = {getenv("TMPDIR"), "/var/tmp", "/tmp"};
	size_t i;
	int fd = -1;

	for (i = 0; i < MSCOPE_COUNT(places) && fd < 0; i++) {
		if (places[i] == NULL || places[i][0] != '/')
			continue;
		(void)snprintf(path, PATH_MAX, "%s/msmemscope-import-XXXXXX", places[i]);
		fd = mkostemp(path, O_CLOEXEC);
	}
	if (fd < 0)
		return error_set(err, -errno, "cannot make a temporary file %s: %s", path,
				 strerror(errno));
	(void)close(fd);
	return 0;
}

static bool is_db(const char *path)
{
	static const char magic[] = "SQLite format 3";
	char start[sizeof(magic)];
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	bool db;

	if (fd < 0)
		return false;
	db = read(fd, start, sizeof(start)) == (ssize_t)sizeof(start) &&
	     memcmp(start, magic, sizeof(magic)) == 0;
	(void)close(fd);
	return db;
}

static int import_files(struct import_input *input, const struct names *files,
			struct mscope_error *err)
{
	struct importer importer;
	char path[PATH_MAX];
	size_t i;
	int fd = -1, r = 0;

	importer_init(&importer);
	for (i = 0; i < files->count && r == 0; i++) {
		importer.file = (uint32_t)i;
		r = is_db(files->all[i])
			    ? dump_read_db(files->all[i], &importer, &input->reading, err)
			    : dump_read_csv(files->all[i], &importer, &input->reading, err);
	}
	input->imported = true;
	input->unknown = importer.unknown;
	if (r == 0 && importer.other_pid != 0)
		r = error_set(err, MSCOPE_E_LIMIT,
			      "%s has rows of several processes (%u, %u, ...); name the files of "
			      "one",
			      input->found, importer.pid, importer.other_pid);
	if (r == 0 && importer.row_count == 0)
		r = error_set(err, input->reading.bad_rows > 0 ? MSCOPE_E_DAMAGED : MSCOPE_E_ABSENT,
			      "%s has no rows%s%s", input->found,
			      input->reading.bad_rows > 0 ? " that can be read; " : "",
			      input->reading.first_bad);
	if (r == 0)
		r = make_temporary(path, err);
	if (r == 0)
		r = importer_write(&importer, path, &fd, err);
	if (r == 0) {
		(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		r = run_open(NULL, path, false, &input->run, err);
		(void)close(fd);
	}
	importer_fini(&importer);
	return r;
}

/* ---- what a path means ---- */

static int open_trace(struct import_input *input, const char *path, bool packed,
		      struct mscope_error *err)
{
	size_t length = strlen(path), suffix = strlen(SESSION_RAW);
	char part[PATH_MAX] = "";

	if (packed)
		return run_open(NULL, path, false, &input->run, err);
	input->unfinished = true;
	/* The engine's part of an unfinished trace lies beside it. */
	if (length > suffix && strcmp(path + length - suffix, SESSION_RAW) == 0)
		(void)snprintf(part, sizeof(part), "%.*s%s", (int)(length - suffix), path,
			       SESSION_PART);
	return run_open(path, part[0] != '\0' && access(part, F_OK) == 0 ? part : NULL, false,
			&input->run, err);
}

static int open_file(struct import_input *input, const char *path, struct mscope_error *err)
{
	struct names one = {.count = 1, .all = &(char *){(char *)(uintptr_t)path}};
	char start[sizeof(TRACE_MAGIC) - 1] = "";
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	bool packed, raw;

	if (fd < 0)
		return error_set(err, -errno, "cannot open %s: %s", path, strerror(errno));
	packed = pack_probe(fd);
	raw = pread(fd, start, sizeof(start), 0) == (ssize_t)sizeof(start) &&
	      memcmp(start, TRACE_MAGIC, sizeof(start)) == 0;
	(void)close(fd);
	return packed || raw ? open_trace(input, path, packed, err)
			     : import_files(input, &one, err);
}

/* Appends the last components of some paths, as many as a sentence bears. */
static void add_names(char *text, size_t bytes, const struct names *names)
{
	size_t i, length = 0;

	text[0] = '\0';
	for (i = 0; i < names->count && i < 3; i++)
		length += (size_t)snprintf(text + length, bytes - length, "%s%.64s",
					   i == 0 ? "" : ", ", strrchr(names->all[i], '/') + 1);
	if (names->count > 3)
		(void)snprintf(text + length, bytes - length, ", ...");
}

static int open_directory(struct import_input *input, const char *path, bool projects,
			  struct mscope_error *err)
{
	static const char *const extensions[] = {".csv", ".db"};
	struct names files = {0}, below = {0};
	char trace[PATH_MAX], text[256];
	size_t i;
	int r = 0;

	(void)snprintf(input->found, sizeof(input->found), "%s", path);
	if (snprintf(trace, sizeof(trace), "%s/trace.msc", path) < (int)sizeof(trace) &&
	    access(trace, F_OK) == 0)
		return open_trace(input, trace, true, err);
	/* Of files in both forms one has the rows of the other. */
	for (i = 0; i < MSCOPE_COUNT(extensions) && files.count == 0 && r == 0; i++)
		r = list_dumps(path, extensions[i], &files);
	if (r == 0 && files.count > 0) {
		r = import_files(input, &files, err);
		names_fini(&files);
		return r;
	}
	names_fini(&files);
	if (r == 0 && projects)
		r = list(path, "msmemscope_*_*", true, &below);
	if (r == 0 && projects)
		r = list(path, "msleaks_*_*", true, &below);
	if (r < 0) {
		(void)error_set(err, r, "cannot read %s: %s", path, mscope_status_str(r));
	} else if (below.count == 1) {
		r = open_directory(input, below.all[0], false, err);
	} else if (below.count > 1) {
		add_names(text, sizeof(text), &below);
		r = error_set(err, MSCOPE_E_LIMIT, "%s holds %zu projects (%s); name one of them",
			      path, below.count, text);
	} else {
		r = error_set(err, MSCOPE_E_ABSENT,
			      "%s holds no trace, no memscope_dump file and no project", path);
	}
	names_fini(&below);
	return r;
}

int import_open(const char *path, struct import_input *input, struct mscope_error *err)
{
	struct stat st;

	if (snprintf(input->found, sizeof(input->found), "%s", path) >= (int)sizeof(input->found))
		return error_set(err, -ENAMETOOLONG, "%.64s... is too long a path", path);
	if (stat(path, &st) < 0)
		return error_set(err, -errno, "cannot open %s: %s", path, strerror(errno));
	if (S_ISDIR(st.st_mode))
		return open_directory(input, path, true, err);
	if (!S_ISREG(st.st_mode))
		return error_set(err, MSCOPE_E_FOREIGN, "%s is neither a file nor a directory",
				 path);
	return open_file(input, path, err);
}

void import_close(struct import_input *input)
{
	run_close(input->run);
	input->run = NULL;
}

bool import_is_damaged(const struct import_input *input)
{
	const struct run_damage *damage = run_damage(input->run);

	return input->reading.bad_rows > 0 || input->reading.cut || input->unfinished ||
	       damage->bad_chunks > 0 || damage->missing_chunks > 0 || damage->bad_records > 0 ||
	       damage->skipped_bytes > 0 || damage->cut;
}
