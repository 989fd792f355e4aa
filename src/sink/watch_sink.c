/* SPDX-License-Identifier: Apache-2.0 */
#include "sink/watch_sink.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/io.h"
#include "dump/csv_text.h"
#include "sink/sink.h"

#define DIRECTORY   "watch_dump"
#define FILE_NAME   "watch_dump_data_check_sum_"
#define MARKER	    PROJECT_UNFINISHED "_watch_"
#define FLUSH_BYTES (64u << 10)
#define CLASHES_MAX 10000

static const char header[] = "Tensor info,Check data sum\n";

struct watch_file {
	uint32_t device;
	int fd;
	char path[PROJECT_PATH_MAX + 128];
	char marker[PROJECT_PATH_MAX + 64]; /* "": none was written */
	struct strbuf buffer;
};

void watch_dump_name(struct strbuf *out, const struct dump *dump)
{
	char device[16];

	project_device_text(dump->context->device, device);
	strbuf_addf(out, "%s_%u_%s_%llu-%s_%u_%s.bin", device, dump->tid, dump->operation,
		    (unsigned long long)dump->number, dump->watched, dump->output,
		    dump->after ? "after" : "before");
}

/* ---- files ---- */

/* Files that a killed process did not finish begin with this; `start` has room for 16 bytes. */
static void leftover_start(const struct project *project, char start[16])
{
	const uint8_t *run = project->run_id;

	(void)snprintf(start, 16, ".%02x%02x%02x%02x%02x%02x_", run[0], run[1], run[2], run[3],
		       run[4], run[5]);
}

/* Goes on with the file that a killed engine began for this run; false when there is none. */
static bool take_over(struct watch_file *file, const char *directory)
{
	unsigned long long inode;
	char text[256], name[200];
	struct stat status;

	if (!io_read_text(file->marker, text, sizeof(text)) ||
	    sscanf(text, "%llu %199s", &inode, name) != 2 ||
	    strncmp(name, FILE_NAME, strlen(FILE_NAME)) != 0 || strchr(name, '/') != NULL)
		return false;
	(void)snprintf(file->path, sizeof(file->path), "%s/%s", directory, name);
	file->fd = open(file->path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	if (file->fd >= 0 && fstat(file->fd, &status) == 0 && status.st_ino == inode &&
	    ftruncate(file->fd, 0) == 0)
		return true;
	if (file->fd >= 0)
		(void)close(file->fd);
	return false;
}

/* The number of the file tells it from another run's of the same name. Only a second file after a crash depends on it. */
static void write_marker(const struct watch_file *file, unsigned long long inode)
{
	int fd;

	if (file->marker[0] == '\0')
		return;
	fd = open(file->marker, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return;
	(void)dprintf(fd, "%llu %s", inode, strrchr(file->path, '/') + 1);
	(void)close(fd);
}

/* Gives a file its name unless the name is taken. 0 or -errno. */
static int name_file(const char *from, const char *to)
{
	if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -errno;
	/* This file system knows no such renaming. */
	if (link(from, to) < 0)
		return -errno;
	(void)unlink(from);
	return 0;
}

/* The marker tells of the file before it has its name: a kill in between leaves a hidden file, never a second csv. */
static int file_create(struct watch_file *file, const struct project *project,
		       const char *directory, const char *device, const char *stamp)
{
	char hidden[PROJECT_PATH_MAX + 64], start[16];
	struct stat status;
	int attempt, r;

	leftover_start(project, start);
	(void)snprintf(hidden, sizeof(hidden), "%s/%ssums_%s_%d", directory, start, device,
		       getpid());
	file->fd = open(hidden, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (file->fd < 0)
		return -errno;
	r = fstat(file->fd, &status) < 0 ? -errno : -EEXIST;
	for (attempt = 1; r == -EEXIST && attempt < CLASHES_MAX; attempt++) {
		int length = snprintf(file->path, sizeof(file->path), "%s/" FILE_NAME "%s_%s",
				      directory, device, stamp);

		if (attempt > 1)
			length += snprintf(file->path + length, sizeof(file->path) - (size_t)length,
					   "_%d", attempt);
		(void)snprintf(file->path + length, sizeof(file->path) - (size_t)length, ".csv");
		write_marker(file, status.st_ino);
		r = name_file(hidden, file->path);
	}
	if (r < 0) {
		(void)unlink(hidden);
		(void)close(file->fd);
	}
	return r;
}

static int file_make(struct watch_sink *sink, const struct dump *dump, struct watch_file **out,
		     struct mscope_error *err)
{
	struct project *project = sink->project;
	char directory[PROJECT_PATH_MAX], device[16], stamp[16];
	struct watch_file *file;
	int r;

	r = project_make(project, dump->context->vendor, err);
	if (r < 0)
		return r;
	if (ARRAY_RESERVE(sink->files, sink->room, sink->count + 1) < 0 ||
	    (file = calloc(1, sizeof(*file))) == NULL)
		return error_set(err, -ENOMEM, "no memory");
	file->device = dump->context->device;
	file->fd = -1;
	project_device_text(file->device, device);
	if (file->device == DEVICE_UNKNOWN)
		memcpy(device, "unknown", sizeof("unknown"));
	project_stamp(dump->time_ns, project->utc_offset_s, stamp);
	(void)snprintf(directory, sizeof(directory), "%.*s/" DIRECTORY, PROJECT_PATH_MAX - 32,
		       project->output);
	r = project_mkdirs(directory);
	if (!project->exclusive)
		(void)snprintf(file->marker, sizeof(file->marker), "%s/" MARKER "%s", project->path,
			       device);
	if (r == 0 && (project->exclusive || sink->fresh || !take_over(file, directory)))
		r = file_create(file, project, directory, device, stamp);
	if (r < 0) {
		free(file);
		return error_set(err, r, "cannot write checksums of watched memory to %s: %s",
				 directory, strerror(-r));
	}
	strbuf_add(&file->buffer, header, sizeof(header) - 1);
	sink->files[sink->count++] = file;
	project->dumps++;
	*out = file;
	return 0;
}

static int file_flush(struct watch_file *file, struct mscope_error *err)
{
	int r = io_flush(file->fd, &file->buffer);

	return r == 0 ? 0 : error_set(err, r, "cannot write %s: %s", file->path, strerror(-r));
}

/* ---- lines ---- */

int watch_sink_dump(struct watch_sink *sink, const struct dump *dump, struct mscope_error *err)
{
	struct watch_file *file = NULL;
	struct strbuf name = {0};
	size_t i;
	int r;

	if (dump->in_file) {
		sink->leftovers = true;
		return 0;
	}
	for (i = 0; i < sink->count && file == NULL; i++) {
		if (sink->files[i]->device == dump->context->device)
			file = sink->files[i];
	}
	if (file == NULL) {
		r = file_make(sink, dump, &file, err);
		if (r < 0)
			return r;
	}
	watch_dump_name(&name, dump);
	csv_add_text(&file->buffer, strbuf_str(&name), name.length);
	strbuf_addf(&file->buffer, ",%016llx\n", (unsigned long long)dump->checksum);
	strbuf_fini(&name);
	return file->buffer.length >= FLUSH_BYTES ? file_flush(file, err) : 0;
}

int watch_sink_flush(struct watch_sink *sink, struct mscope_error *err)
{
	int r, first = 0;
	size_t i;

	for (i = 0; i < sink->count; i++) {
		r = file_flush(sink->files[i], first == 0 ? err : NULL);
		if (first == 0)
			first = r;
	}
	return first;
}

static void remove_leftovers(const struct project *project)
{
	char path[PROJECT_PATH_MAX + 300], start[16];
	const struct dirent *entry;
	size_t length;
	DIR *dir;

	leftover_start(project, start);
	length = (size_t)snprintf(path, sizeof(path), "%.*s/" DIRECTORY, PROJECT_PATH_MAX - 32,
				  project->output);
	dir = opendir(path);
	while (dir != NULL && (entry = readdir(dir)) != NULL) {
		if (strncmp(entry->d_name, start, strlen(start)) != 0)
			continue;
		(void)snprintf(path + length, sizeof(path) - length, "/%s", entry->d_name);
		(void)unlink(path);
	}
	if (dir != NULL)
		(void)closedir(dir);
}

int watch_sink_close(struct watch_sink *sink, bool keep, struct mscope_error *err)
{
	int first = keep ? watch_sink_flush(sink, err) : 0;
	size_t i;

	for (i = 0; i < sink->count; i++) {
		struct watch_file *file = sink->files[i];

		if (close(file->fd) < 0 && keep && first == 0)
			first = error_set(err, -errno, "cannot write %s: %s", file->path,
					  strerror(errno));
		strbuf_fini(&file->buffer);
		free(file);
	}
	if (keep && (sink->leftovers || sink->count > 0) && !sink->project->exclusive)
		remove_leftovers(sink->project);
	free(sink->files);
	sink->files = NULL;
	sink->count = sink->room = 0;
	return first;
}
