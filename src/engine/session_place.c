/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/session_place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/io.h"
#include "base/text.h"
#include "sink/project.h"
#include "trace/asked.h"

#define SESSION_PREFIX	".msmemscope_"
#define SESSION_POINTER ".where"

/* File systems whose pages are memory, or whose pages are elsewhere. Numbers as statfs(2) lists them. */
struct file_system {
	unsigned long magic;
	bool memory;
};

static const struct file_system unfit[] = {
	{0x01021994, true},  /* tmpfs */
	{0x858458f6, true},  /* ramfs */
	{0x6969, false},     /* nfs */
	{0xff534d42, false}, /* cifs */
	{0xfe534d42, false}, /* smb2 */
	{0x517b, false},     /* smb */
	{0x65735546, false}, /* fuse */
	{0x0bd00bd0, false}, /* lustre */
	{0x47504653, false}, /* gpfs */
	{0x01021997, false}, /* 9p */
	{0x00c36400, false}, /* ceph */
	{0x19830326, false}, /* fhgfs, beegfs */
};

bool session_is_remote(const char *directory, bool *out_memory)
{
	struct statfs fs;
	size_t i;

	*out_memory = false;
	if (statfs(directory, &fs) < 0)
		return false;
	for (i = 0; i < MSCOPE_COUNT(unfit); i++) {
		if ((unsigned long)fs.f_type == unfit[i].magic) {
			*out_memory = unfit[i].memory;
			return true;
		}
	}
	return false;
}

/* Opens the directory `name` in `parent`, and refuses one that another user may have filled. */
static int open_directory(const char *parent, const char *name, struct session_place *place)
{
	struct stat st;

	place->parent_fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (place->parent_fd < 0) {
		place->parent_fd = 0;
		return -errno;
	}
	place->dir_fd =
		openat(place->parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (place->dir_fd < 0) {
		place->dir_fd = 0;
		return errno == ELOOP || errno == ENOTDIR ? MSCOPE_E_FOREIGN : -errno;
	}
	if (fstat(place->dir_fd, &st) < 0)
		return -errno;
	if (st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)) != 0)
		return -EPERM;
	(void)snprintf(place->files, sizeof(place->files), "/proc/self/fd/%d", place->dir_fd);
	return access(place->files, F_OK) < 0 ? -errno : 0;
}

/*
 * With `wanted`, the file is made and filled; by writing, because a full disk would make a store into the mapping fatal. It is
 * locked before it is filled: a whole one without a lock was left behind. The lock is another
 * opening of the file, because a mapping would hold it longer than its descriptor.
 */
static int map_session(const struct session *wanted, struct session_place *place)
{
	int flags = O_RDWR | (wanted != NULL ? O_CREAT | O_EXCL : O_NONBLOCK), fd, r = 0;
	struct stat st;
	void *p;

	fd = openat(place->dir_fd, SESSION_FILE, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	if (wanted != NULL)
		r = session_lock(place);
	errno = ENOSPC;
	if (r == 0 && wanted != NULL &&
	    pwrite(fd, wanted, sizeof(*wanted), 0) != (ssize_t)sizeof(*wanted))
		r = -errno;
	else if (r == 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ||
			    st.st_size < (off_t)sizeof(struct session)))
		r = MSCOPE_E_FOREIGN;
	if (r == 0) {
		p = mmap(NULL, sizeof(struct session), PROT_READ | PROT_WRITE,
			 wanted != NULL ? MAP_SHARED : MAP_PRIVATE, fd, 0);
		if (p == MAP_FAILED)
			r = -errno;
		else
			place->session = p;
	}
	if (r < 0)
		session_unlock(place);
	(void)close(fd);
	return r;
}

/* Without it nothing is asked of processes, so a failure is none of the session. */
static void make_asked(const struct session_place *place)
{
	static const struct asked empty;
	int fd = openat(place->dir_fd, ASKED_FILE, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (fd < 0)
		return;
	if (write(fd, &empty, sizeof(empty)) != (ssize_t)sizeof(empty))
		(void)unlinkat(place->dir_fd, ASKED_FILE, 0);
	(void)close(fd);
}

struct asked *session_asked(const struct session_place *place)
{
	int fd = openat(place->dir_fd, ASKED_FILE, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	struct stat st;
	void *p = MAP_FAILED;

	if (fd < 0)
		return NULL;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size >= (off_t)sizeof(struct asked))
		p = mmap(NULL, sizeof(struct asked), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	(void)close(fd);
	return p == MAP_FAILED ? NULL : p;
}

const char *session_choose(const char *output, const char *trace_dir, struct session_place *place)
{
	const char *candidates[] = {getenv("TMPDIR"), "/var/tmp", "/tmp"};
	bool memory;
	size_t i;

	if (trace_dir != NULL) {
		place->elsewhere = strcmp(trace_dir, output) != 0;
		place->on_memory = session_is_remote(trace_dir, &memory) && memory;
		return trace_dir;
	}
	if (!session_is_remote(output, &memory))
		return output;
	for (i = 0; i < MSCOPE_COUNT(candidates); i++) {
		bool other;

		if (candidates[i] != NULL && candidates[i][0] == '/' &&
		    access(candidates[i], W_OK) == 0 && !session_is_remote(candidates[i], &other)) {
			place->elsewhere = true;
			return candidates[i];
		}
	}
	place->on_memory = memory;
	return output;
}

static int write_pointer(struct session_place *place, const char *output, const char *name,
			 struct mscope_error *err)
{
	int fd, r = 0;

	if (snprintf(place->pointer, sizeof(place->pointer), "%s/%s%s", output, name,
		     SESSION_POINTER) >= (int)sizeof(place->pointer))
		return error_set(err, -ENAMETOOLONG, "the path %s is too long", output);
	fd = open(place->pointer, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, place->directory, strlen(place->directory)) !=
			      (ssize_t)strlen(place->directory))
		r = error_set(err, errno != 0 ? -errno : -ENOSPC, "cannot write %s: %s",
			      place->pointer, strerror(errno));
	if (fd >= 0 && r < 0)
		(void)unlink(place->pointer);
	if (fd >= 0)
		(void)close(fd);
	return r;
}

static bool is_directory(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Makes a directory that no other launch has, in `parent`. Its name is left in `name`. */
static int make_directory(const struct session *wanted, const char *parent, char name[64],
			  struct session_place *place, struct mscope_error *err)
{
	char stamp[16];
	int attempt, r;

	project_stamp(wanted->realtime_ns, wanted->utc_offset_s, stamp);
	for (attempt = 1;; attempt++) {
		(void)snprintf(name, 64, "%s%u_%s_%d", SESSION_PREFIX, wanted->launch_pid, stamp,
			       attempt);
		if (snprintf(place->directory, sizeof(place->directory), "%s/%s", parent, name) >=
		    (int)sizeof(place->directory))
			return error_set(err, -ENAMETOOLONG, "the path %s is too long", parent);
		if (mkdir(place->directory, 0700) == 0)
			break;
		if (errno != EEXIST || attempt == 1000)
			return error_set(err, -errno, "cannot create a directory in %s: %s", parent,
					 strerror(errno));
	}
	r = open_directory(parent, name, place);
	return r < 0 ? error_set(err, r, "cannot open %s: %s", place->directory,
				 mscope_status_str(r))
		     : 0;
}

int session_create(const struct session *wanted, const char *trace_dir, struct session_place *out,
		   struct mscope_error *err)
{
	const char *parent;
	char name[64];
	int r;

	*out = (struct session_place){0};
	r = project_mkdirs(wanted->output);
	if (r < 0)
		return error_set(err, r, "cannot create the output directory %s: %s",
				 wanted->output, strerror(-r));
	if (trace_dir != NULL && (r = project_mkdirs(trace_dir)) < 0)
		return error_set(err, r, "cannot create the trace directory %s: %s", trace_dir,
				 strerror(-r));
	if (!is_directory(wanted->output))
		return error_set(err, -ENOTDIR, "the output directory %s is a file",
				 wanted->output);
	if (access(wanted->output, W_OK | X_OK) < 0)
		return error_set(err, -errno, "cannot write to the output directory %s: %s",
				 wanted->output, strerror(errno));
	parent = session_choose(wanted->output, trace_dir, out);
	r = make_directory(wanted, parent, name, out, err);
	if (r == 0) {
		r = map_session(wanted, out);
		if (r < 0)
			(void)error_set(err, r, "cannot write to %s: %s", parent,
					mscope_status_str(r));
	}
	if (r == 0)
		make_asked(out);
	if (r == 0 && out->elsewhere) {
		r = write_pointer(out, wanted->output, name, err);
		if (r < 0)
			out->pointer[0] = '\0';
	}
	if (r < 0) {
		(void)session_remove(out);
		session_close(out);
	}
	return r;
}

/* True when the file `path` is the caller's own and names the session's directory. */
static bool points_here(const struct session_place *place, const char *path)
{
	char target[SESSION_PATH_MAX];
	struct stat st;

	return lstat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
	       io_read_text(path, target, sizeof(target)) && strcmp(target, place->directory) == 0;
}

/* Whether the output directory that the session names is where the session lies. */
static bool is_parent(const struct session_place *place, const char *output)
{
	struct stat a, b;

	return stat(output, &a) == 0 && fstat(place->parent_fd, &b) == 0 && a.st_dev == b.st_dev &&
	       a.st_ino == b.st_ino;
}

/* Makes what was read fit for use: numbers within their bounds, and an output directory that points back. */
static void sanitize(struct session_place *place, const char *name)
{
	struct session *session = place->session;

	session->output[sizeof(session->output) - 1] = '\0';
	session->watch.start[SESSION_WATCH_MAX - 1] = session->watch.end[SESSION_WATCH_MAX - 1] =
		'\0';
	if (session->step_count > SESSION_STEPS_MAX)
		session->step_count = SESSION_STEPS_MAX;
	if (snprintf(place->pointer, sizeof(place->pointer), "%s/%s%s", session->output, name,
		     SESSION_POINTER) >= (int)sizeof(place->pointer) ||
	    session->output[0] != '/' || !points_here(place, place->pointer))
		place->pointer[0] = '\0';
	if (place->pointer[0] == '\0' && !is_parent(place, session->output))
		(void)snprintf(session->output, sizeof(session->output), "%.*s",
			       (int)(strrchr(place->directory, '/') - place->directory),
			       place->directory);
}

/* The real path of the directory's parent, and its name there: links are followed to the parent only. */
static int split(const char *directory, char parent[PATH_MAX], char name[NAME_MAX + 1])
{
	char path[PATH_MAX], copy[PATH_MAX];
	const char *last;

	if (snprintf(path, sizeof(path), "%s", directory) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	memcpy(copy, path, sizeof(copy));
	last = basename(copy);
	if (strcmp(last, ".") == 0 || strcmp(last, "..") == 0) {
		if (realpath(directory, path) == NULL)
			return -errno;
		memcpy(copy, path, sizeof(copy));
		last = basename(copy);
	}
	if (snprintf(name, NAME_MAX + 1, "%s", last) > NAME_MAX)
		return -ENAMETOOLONG;
	return realpath(dirname(path), parent) == NULL ? -errno : 0;
}

int session_open(const char *directory, struct session_place *out, struct mscope_error *err)
{
	struct session_place place = {0};
	char parent[PATH_MAX], name[NAME_MAX + 1];
	int r;

	r = split(directory, parent, name);
	if (r == 0 &&
	    snprintf(place.directory, sizeof(place.directory), "%s/%s",
		     strcmp(parent, "/") == 0 ? "" : parent, name) >= (int)sizeof(place.directory))
		r = -ENAMETOOLONG;
	if (r < 0)
		return error_set(err, r, "cannot open %s: %s", directory, strerror(-r));
	r = open_directory(parent, name, &place);
	if (r == 0)
		r = map_session(NULL, &place);
	if (r == 0 &&
	    (memcmp(place.session->magic, SESSION_MAGIC, sizeof(place.session->magic)) != 0 ||
	     place.session->bytes != sizeof(struct session) ||
	     memchr(place.session->output, '\0', sizeof(place.session->output)) == NULL))
		r = MSCOPE_E_FOREIGN;
	if (r < 0)
		session_close(&place);
	if (r == -EPERM)
		return error_set(
			err, r,
			"%s belongs to another user, or others can write to it: only its owner can recover it",
			directory);
	if (r < 0)
		return error_set(err, r, "%s is not a session directory of msmemscope: %s",
				 directory, mscope_status_str(r));
	sanitize(&place, name);
	*out = place;
	return 0;
}

int session_lock(struct session_place *place)
{
	int fd;

	if (place->locked)
		return 0;
	fd = openat(place->dir_fd, SESSION_FILE, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		int error = errno;

		(void)close(fd);
		return error == EWOULDBLOCK ? -EBUSY : -error;
	}
	place->locked = true;
	place->lock_fd = fd;
	return 0;
}

void session_unlock(struct session_place *place)
{
	if (place->locked)
		(void)close(place->lock_fd);
	place->locked = false;
}

/* Removes the directory unless its name means another one by now. */
static bool remove_directory(const struct session_place *place)
{
	const char *name = strrchr(place->directory, '/') + 1;
	struct stat ours, named;

	return fstat(place->dir_fd, &ours) == 0 &&
	       fstatat(place->parent_fd, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
	       ours.st_dev == named.st_dev && ours.st_ino == named.st_ino &&
	       unlinkat(place->parent_fd, name, AT_REMOVEDIR) == 0;
}

bool session_remove(struct session_place *place)
{
	DIR *dir = place->dir_fd > 0 ? opendir(place->files) : NULL;
	const struct dirent *entry;
	bool left = false;

	if (dir == NULL)
		return true;
	while ((entry = readdir(dir)) != NULL) {
		if (entry->d_name[0] != '.' && (text_ends_with(entry->d_name, SESSION_RAW) ||
						text_ends_with(entry->d_name, SESSION_PART)))
			left = true;
	}
	if (!left) {
		/* Half-made traces of processes that were killed before their first event, and our own file. */
		rewinddir(dir);
		while ((entry = readdir(dir)) != NULL) {
			if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
				(void)unlinkat(place->dir_fd, entry->d_name, 0);
		}
		/* The pointer first: with the directory its name becomes free, and a launch that takes it makes a pointer of its own. */
		if (place->pointer[0] != '\0' && points_here(place, place->pointer))
			(void)unlink(place->pointer);
		left = !remove_directory(place);
	}
	(void)closedir(dir);
	return !left;
}

void session_show(const struct session_place *place, struct mscope_error *err)
{
	char *at = strstr(err->message, place->files), rest[sizeof(err->message)];

	if (at == NULL)
		return;
	(void)snprintf(rest, sizeof(rest), "%s", at + strlen(place->files));
	(void)snprintf(at, sizeof(err->message) - (size_t)(at - err->message), "%s%s",
		       place->directory, rest);
}

void session_close(struct session_place *place)
{
	if (place->session != NULL)
		(void)munmap(place->session, sizeof(*place->session));
	place->session = NULL;
	session_unlock(place);
	if (place->dir_fd > 0)
		(void)close(place->dir_fd);
	if (place->parent_fd > 0)
		(void)close(place->parent_fd);
	place->dir_fd = place->parent_fd = 0;
}

static bool is_session(const char *directory)
{
	char path[SESSION_PATH_MAX + 300];
	struct stat st;

	(void)snprintf(path, sizeof(path), "%s/%s", directory, SESSION_FILE);
	return lstat(directory, &st) == 0 && S_ISDIR(st.st_mode) && lstat(path, &st) == 0 &&
	       S_ISREG(st.st_mode) && st.st_size == (off_t)sizeof(struct session);
}

static void search_pointer(const char *path, session_found *found, void *arg)
{
	char target[SESSION_PATH_MAX];

	if (io_read_text(path, target, sizeof(target)) && target[0] == '/' && is_session(target))
		found(arg, target);
}

void session_search(const char *directory, session_found *found, void *arg)
{
	char path[SESSION_PATH_MAX + 300];
	DIR *dir;
	const struct dirent *entry;

	if (is_session(directory)) {
		found(arg, directory);
		return;
	}
	dir = opendir(directory);
	if (dir == NULL)
		return;
	while ((entry = readdir(dir)) != NULL) {
		if (strncmp(entry->d_name, SESSION_PREFIX, strlen(SESSION_PREFIX)) != 0)
			continue;
		(void)snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name);
		if (text_ends_with(entry->d_name, SESSION_POINTER))
			search_pointer(path, found, arg);
		else if (is_session(path))
			found(arg, path);
	}
	(void)closedir(dir);
}
