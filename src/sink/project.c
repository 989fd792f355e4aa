/* SPDX-License-Identifier: Apache-2.0 */
#include "sink/project.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "base/vendors.h"
#include "replay/replay.h"

void project_stamp(uint64_t wall_ns, int32_t utc_offset_s, char out[16])
{
	time_t local = (time_t)(wall_ns / 1000000000u) + utc_offset_s;
	struct tm tm;

	if (gmtime_r(&local, &tm) == NULL || tm.tm_year + 1900 > 9999 || tm.tm_year + 1900 < 0) {
		memcpy(out, "00000000000000", 15);
		return;
	}
	(void)strftime(out, 16, "%Y%m%d%H%M%S", &tm);
}

void project_stem(const char *name, char out[PROJECT_STEM_MAX])
{
	const char *pid = strchr(name, '_');
	const char *stamp = pid == NULL ? NULL : strchr(pid + 1, '_');
	const char *end = stamp == NULL ? NULL : strchr(stamp + 1, '_');

	(void)snprintf(out, PROJECT_STEM_MAX, "%.*s",
		       end == NULL ? PROJECT_STEM_MAX - 1 : (int)(end - name), name);
}

int project_mkdirs(const char *path)
{
	char part[PROJECT_PATH_MAX];
	size_t length = strlen(path), i;

	if (length == 0 || length >= sizeof(part))
		return -ENAMETOOLONG;
	memcpy(part, path, length + 1);
	for (i = 1; i <= length; i++) {
		if (part[i] != '/' && part[i] != '\0')
			continue;
		part[i] = '\0';
		if (mkdir(part, 0750) < 0 && errno != EEXIST) {
			/* A directory that we may not write to may still be there, with the rest below it. */
			struct stat st;
			int error = errno;

			if (stat(part, &st) < 0 || !S_ISDIR(st.st_mode))
				return -error;
		}
		part[i] = path[i];
	}
	return 0;
}

void project_device_text(uint32_t device, char out[16])
{
	device_text(device, out);
}

#define MARKER PROJECT_UNFINISHED

static void marker_path(const char *directory, char out[PROJECT_PATH_MAX + 64])
{
	(void)snprintf(out, PROJECT_PATH_MAX + 64, "%s/%s", directory, MARKER);
}

static void marker_write(const struct project *project, const char *directory)
{
	char path[PROJECT_PATH_MAX + 64];
	int fd;

	marker_path(directory, path);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return; /* only a second directory after a crash depends on it */
	(void)!write(fd, project->run_id, sizeof(project->run_id));
	(void)close(fd);
}

static bool marker_is_ours(const struct project *project)
{
	char path[PROJECT_PATH_MAX + 64];
	uint8_t run_id[sizeof(project->run_id)];
	bool ours;
	int fd;

	marker_path(project->path, path);
	fd = io_open_file(path, O_RDONLY | O_NOFOLLOW, NULL);
	if (fd < 0)
		return false;
	ours = read(fd, run_id, sizeof(run_id)) == (ssize_t)sizeof(run_id) &&
	       memcmp(run_id, project->run_id, sizeof(run_id)) == 0;
	(void)close(fd);
	return ours;
}

static bool is_taken(int error)
{
	return error == EEXIST || error == ENOTEMPTY;
}

/*
 * The directory gets its name when its marker is in it: engines of two processes with the same number, in containers that write to one
 * place, must not take it both. An empty directory that has the name was left behind, and is replaced. 0 or -errno.
 */
static int make_marked(const struct project *project)
{
	char fresh[PROJECT_PATH_MAX], marker[PROJECT_PATH_MAX + 64];
	uint64_t number;
	int error = ENAMETOOLONG;

	memcpy(&number, project->run_id, sizeof(number));
	if (snprintf(fresh, sizeof(fresh), "%s/.msmemscope_new_%016llx", project->output,
		     (unsigned long long)number) < (int)sizeof(fresh)) {
		if (mkdir(fresh, 0750) < 0 && errno != EEXIST)
			return -errno;
		/* One of this run that was killed here may have left half of it. */
		marker_path(fresh, marker);
		(void)unlink(marker);
		marker_write(project, fresh);
		if (rename(fresh, project->path) == 0)
			return 0;
		error = errno;
		(void)unlink(marker);
		(void)rmdir(fresh);
	}
	if (is_taken(error))
		return -EEXIST;
	/* A file system that cannot rename a directory. */
	if (mkdir(project->path, 0750) < 0)
		return -errno;
	marker_write(project, project->path);
	return 0;
}

int project_write(const struct project *project, const char *name, const struct strbuf *text,
		  uint32_t mode, struct mscope_error *err)
{
	char path[PROJECT_PATH_MAX + 64];
	int fd, r;

	(void)snprintf(path, sizeof(path), "%s/%s", project->path, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode);
	r = fd < 0 ? -errno : io_write(fd, strbuf_str(text), text->length);
	if (r < 0)
		(void)error_set(err, r, "cannot write %s: %s", path, strerror(-r));
	if (fd >= 0)
		(void)close(fd);
	return r;
}

void project_complete(const struct project *project)
{
	char path[PROJECT_PATH_MAX + 300];
	const struct dirent *entry;
	DIR *dir = opendir(project->path);

	while (dir != NULL && (entry = readdir(dir)) != NULL) {
		if (strncmp(entry->d_name, MARKER, strlen(MARKER)) != 0)
			continue;
		(void)snprintf(path, sizeof(path), "%s/%s", project->path, entry->d_name);
		(void)unlink(path);
	}
	if (dir != NULL)
		(void)closedir(dir);
}

/* Its path with the n-th name that it may have. */
static void name_it(struct project *project, uint8_t vendor, int attempt)
{
	char stamp[16];
	int length;

	project_stamp(project->start_ns, project->utc_offset_s, stamp);
	length = snprintf(project->path, sizeof(project->path), "%s/msmemscope_%u_%s_%s",
			  project->output, project->pid, stamp, vendor_row(vendor)->suffix);
	if (attempt > 1)
		(void)snprintf(project->path + length, sizeof(project->path) - (size_t)length,
			       "_%d", attempt);
}

void project_settle(struct project *project, uint8_t vendor)
{
	char before[PROJECT_PATH_MAX];
	int attempt;

	if (!project->made || project->named || project->vendor == vendor ||
	    strcmp(vendor_row(project->vendor)->suffix, vendor_row(vendor)->suffix) == 0)
		return;
	memcpy(before, project->path, sizeof(before));
	for (attempt = 1; attempt < 10000; attempt++) {
		name_it(project, vendor, attempt);
		/* Takes the name unless a directory that has it is in use, which is never empty. */
		if (rename(before, project->path) == 0) {
			project->vendor = vendor;
			return;
		}
		if (!is_taken(errno))
			break;
	}
	memcpy(project->path, before, sizeof(before));
}

int project_make(struct project *project, uint8_t vendor, struct mscope_error *err)
{
	int attempt, r;

	if (project->made)
		return 0;
	project->vendor = vendor;
	r = project_mkdirs(project->output);
	if (r < 0)
		return error_set(err, r, "cannot create %s: %s", project->output, strerror(-r));
	for (attempt = 1; attempt < 10000; attempt++) {
		name_it(project, vendor, attempt);
		r = !project->exclusive		     ? make_marked(project)
		    : mkdir(project->path, 0750) < 0 ? -errno
						     : 0;
		if (r == -EEXIST && !project->exclusive && marker_is_ours(project))
			r = 0;
		if (r == 0) {
			project->made = true;
			return 0;
		}
		if (r != -EEXIST)
			break;
	}
	return error_set(err, r, "cannot create %s: %s", project->path, strerror(-r));
}
