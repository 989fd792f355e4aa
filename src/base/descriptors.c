/* SPDX-License-Identifier: Apache-2.0 */
#include "base/descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define AT_ONCE	  48u	 /* for directories, /proc, a second pass: opened and closed again */
#define LIMIT_MIN 8u	 /* with fewer than that the list alone does not help */
#define LIMIT_MAX 65536u /* more are of no use */

static struct {
	uint32_t limit; /* 0: not asked yet */
	uint32_t open;	/* descriptors of the list */
	struct descriptor_user *newest, *oldest;
} list;

uint32_t descriptors_limit(void)
{
	struct rlimit limit;

	if (list.limit == 0) {
		if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
			limit.rlim_cur = 256;
		list.limit = limit.rlim_cur < AT_ONCE + LIMIT_MIN ? LIMIT_MIN
			     : limit.rlim_cur > AT_ONCE + LIMIT_MAX
				     ? LIMIT_MAX
				     : (uint32_t)limit.rlim_cur - AT_ONCE;
	}
	return list.limit;
}

void descriptors_raise(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &limit);
	}
	list.limit = 0;
}

static void unlink_user(struct descriptor_user *user)
{
	*(user->newer != NULL ? &user->newer->older : &list.newest) = user->older;
	*(user->older != NULL ? &user->older->newer : &list.oldest) = user->newer;
	user->newer = user->older = NULL;
	list.open -= user->count;
	user->count = 0;
}

bool descriptors_close_oldest(const struct descriptor_user *except)
{
	struct descriptor_user *user = list.oldest;

	if (user != NULL && user == except)
		user = user->newer;
	if (user == NULL)
		return false;
	user->close(user);
	descriptor_user_closed(user);
	return true;
}

void descriptor_user_opens(struct descriptor_user *user, uint32_t count)
{
	if (user->count == count && list.newest == user)
		return;
	descriptor_user_closed(user);
	while (list.open + count > descriptors_limit() / 2 && descriptors_close_oldest(user))
		continue;
	user->older = list.newest;
	*(user->older != NULL ? &user->older->newer : &list.oldest) = user;
	list.newest = user;
	user->count = count;
	list.open += count;
}

void descriptor_user_closed(struct descriptor_user *user)
{
	if (user->count > 0)
		unlink_user(user);
}

/* ---- files ---- */

static void close_for_now(struct descriptor_user *user)
{
	struct lazy_file *file = (struct lazy_file *)(void *)user;

	file->at = lseek(file->fd, 0, SEEK_CUR);
	(void)close(file->fd);
	file->fd = -1;
}

/* Opens a path while the list has something to close; the limit may be the machine's. */
static int open_somehow(const struct lazy_file *file, const char *path, int flags, mode_t mode)
{
	int fd;

	do
		fd = open(path, flags | O_CLOEXEC, mode);
	while (fd < 0 && (errno == EMFILE || errno == ENFILE) &&
	       descriptors_close_oldest(&file->user));
	return fd < 0 ? -errno : fd;
}

int lazy_file_open(struct lazy_file *file, const char *path, int flags, mode_t mode)
{
	struct stat st;

	*file = (struct lazy_file){.user = {.close = close_for_now},
				   .path = strdup(path),
				   .flags = (flags & ~(O_CREAT | O_EXCL | O_TRUNC)) | O_NOFOLLOW,
				   .fd = -1};
	if (file->path == NULL)
		return -ENOMEM;
	descriptor_user_opens(&file->user, 1);
	file->fd = open_somehow(file, path, flags, mode);
	if (file->fd < 0 || fstat(file->fd, &st) < 0) {
		int r = file->fd < 0 ? file->fd : -errno;

		(void)lazy_file_close(file);
		return r;
	}
	file->device = st.st_dev;
	file->inode = st.st_ino;
	return 0;
}

int lazy_file_fd(struct lazy_file *file)
{
	struct stat st;
	int fd;

	if (file->path == NULL)
		return -EBADF;
	descriptor_user_opens(&file->user, 1);
	if (file->fd >= 0)
		return file->fd;
	fd = open_somehow(file, file->path, file->flags, 0);
	if (fd >= 0 && (fstat(fd, &st) < 0 || st.st_dev != file->device ||
			st.st_ino != file->inode || lseek(fd, file->at, SEEK_SET) < 0)) {
		(void)close(fd);
		fd = -ESTALE;
	}
	if (fd < 0)
		descriptor_user_closed(&file->user);
	else
		file->fd = fd;
	return fd;
}

int lazy_file_renamed(struct lazy_file *file, const char *path)
{
	char *copy = strdup(path);

	if (copy == NULL)
		return -ENOMEM;
	free(file->path);
	file->path = copy;
	return 0;
}

int lazy_file_close(struct lazy_file *file)
{
	int r = 0;

	if (file->path != NULL && file->fd >= 0 && close(file->fd) < 0)
		r = -errno;
	descriptor_user_closed(&file->user);
	free(file->path);
	*file = (struct lazy_file){.fd = -1};
	return r;
}
