/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/scratch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/files.h"
#include "base/text.h"

#define STEM  "msmemscope-dry."
#define TRIES 3u

/* The loader splits LD_PRELOAD at blanks and colons, and maps no code from a file system without programs. */
static bool preloads_from(const char *place)
{
	struct statvfs status;

	return strpbrk(place, " :") == NULL && statvfs(place, &status) == 0 &&
	       (status.f_flag & ST_NOEXEC) == 0;
}

static int lock_directory(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0) {
		int code = errno;

		(void)close(fd);
		errno = code;
		return -1;
	}
	return fd;
}

static void remove_left(const char *place)
{
	DIR *directory = opendir(place);
	struct dirent *entry;

	while (directory != NULL && (entry = readdir(directory)) != NULL) {
		struct stat status;
		char path[PATH_MAX];
		int fd;

		if (!text_starts_with(entry->d_name, STEM))
			continue;
		(void)snprintf(path, sizeof(path), "%s/%s", place, entry->d_name);
		fd = lock_directory(path);
		if (fd >= 0 && fstat(fd, &status) == 0 && status.st_uid == geteuid())
			(void)files_remove(path);
		if (fd >= 0)
			(void)close(fd);
	}
	if (directory != NULL)
		(void)closedir(directory);
}

/* Before it is locked, another command may take it for one that was left. */
static int make_in(const char *place, struct scratch *scratch)
{
	unsigned int tries;

	for (tries = 0; tries < TRIES; tries++) {
		(void)snprintf(scratch->path, sizeof(scratch->path), "%s/" STEM "XXXXXX", place);
		if (mkdtemp(scratch->path) == NULL)
			return errno;
		scratch->lock = lock_directory(scratch->path);
		/* Where nothing can be locked, nobody removes it. */
		if (scratch->lock >= 0 || (errno != EWOULDBLOCK && errno != ENOENT))
			return 0;
	}
	return EBUSY;
}

int scratch_make(struct scratch *scratch, bool preloads, struct mscope_error *err)
{
	const char *places[] = {getenv("TMPDIR"), "/tmp", "/var/tmp", "/dev/shm"};
	int code = ENOENT;
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(places); i++) {
		const char *place = places[i];

		if (place == NULL || place[0] != '/' || (preloads && !preloads_from(place)))
			continue;
		remove_left(place);
		code = make_in(place, scratch);
		if (code == 0)
			return 0;
	}
	return error_set(
		err, -code,
		"cannot create a directory for %s in $TMPDIR, /tmp, /var/tmp or /dev/shm: %s",
		preloads ? "libraries" : "files", strerror(code));
}

void scratch_remove(struct scratch *scratch)
{
	(void)files_remove(scratch->path);
	if (scratch->lock >= 0)
		(void)close(scratch->lock);
}
