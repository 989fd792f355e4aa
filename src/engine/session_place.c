/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/session_place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
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

/*
 * With `wanted`, the file is made and filled; by writing, because a full disk would make a store into the mapping fatal. It is
 * locked before it is filled: a whole one without a lock was left behind. The lock is another
 * opening of the file, because a mapping would hold it longer than its descriptor.
 */
static int map_session(const char *directory, const struct session *wanted,
		       struct session_place *place)
{
	int flags = O_RDWR | (wanted != NULL ? O_CREAT | O_EXCL : 0), fd, r = 0;
	char path[SESSION_PATH_MAX + 16];
	struct stat st;
	void *p;

	(void)snprintf(path, sizeof(path), "%s/%s", directory, SESSION_FILE);
	fd = wanted != NULL ? open(path, flags | O_CLOEXEC | O_NOFOLLOW, 0600)
			    : io_open_file(path, flags | O_NOFOLLOW, NULL);
	if (fd < 0)
		return wanted != NULL ? -errno : fd;
	if (wanted != NULL)
		r = session_lock(place);
	errno = ENOSPC;
	if (r == 0 && wanted != NULL &&
	    pwrite(fd, wanted, sizeof(*wanted), 0) != (ssize_t)sizeof(*wanted))
		r = -errno;
	else if (r == 0 && (fstat(fd, &st) < 0 || st.st_size < (off_t)sizeof(struct session)))
		r = MSCOPE_E_FOREIGN;
	if (r == 0) {
		p = mmap(NULL, sizeof(struct session), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
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
		return error_set(err, -ENAMETOOLONG, "%s is too long a path", output);
	fd = open(place->pointer, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, place->directory, strlen(place->directory)) !=
			      (ssize_t)strlen(place->directory))
		r = error_set(err, errno != 0 ? -errno : -ENOSPC, "cannot write %s: %s",
			      place->pointer, strerror(errno));
	if (fd >= 0)
		(void)close(fd);
	return r;
}

int session_create(const struct session *wanted, const char *trace_dir, struct session_place *out,
		   struct mscope_error *err)
{
	const char *parent;
	char stamp[16], name[64];
	int attempt, r;

	*out = (struct session_place){0};
	r = project_mkdirs(wanted->output);
	if (r < 0)
		return error_set(err, r, "cannot create the output directory %s: %s",
				 wanted->output, strerror(-r));
	if (trace_dir != NULL && (r = project_mkdirs(trace_dir)) < 0)
		return error_set(err, r, "cannot create the trace directory %s: %s", trace_dir,
				 strerror(-r));
	if (access(wanted->output, W_OK | X_OK) < 0)
		return error_set(err, -errno, "cannot write to the output directory %s: %s",
				 wanted->output, strerror(errno));
	parent = session_choose(wanted->output, trace_dir, out);
	project_stamp(wanted->realtime_ns, wanted->utc_offset_s, stamp);
	for (attempt = 1;; attempt++) {
		(void)snprintf(name, sizeof(name), "%s%u_%s_%d", SESSION_PREFIX, wanted->launch_pid,
			       stamp, attempt);
		if (snprintf(out->directory, sizeof(out->directory), "%s/%s", parent, name) >=
		    (int)sizeof(out->directory))
			return error_set(err, -ENAMETOOLONG, "%s is too long a path", parent);
		if (mkdir(out->directory, 0700) == 0)
			break;
		if (errno != EEXIST || attempt == 1000)
			return error_set(err, -errno, "cannot create a directory in %s: %s", parent,
					 strerror(errno));
	}
	r = map_session(out->directory, wanted, out);
	if (r < 0) {
		(void)session_remove(out);
		return error_set(err, r, "cannot write to %s: %s", parent, mscope_status_str(r));
	}
	if (out->elsewhere) {
		r = write_pointer(out, wanted->output, name, err);
		if (r < 0) {
			out->pointer[0] = '\0';
			(void)session_remove(out);
		}
	}
	return r;
}

int session_open(const char *directory, struct session_place *out, struct mscope_error *err)
{
	struct session_place place = {0};
	int r;

	if (strlen(directory) >= sizeof(place.directory))
		return error_set(err, -ENAMETOOLONG, "%s is too long a path", directory);
	memcpy(place.directory, directory, strlen(directory) + 1);
	r = map_session(directory, NULL, &place);
	if (r == 0 &&
	    (memcmp(place.session->magic, SESSION_MAGIC, sizeof(place.session->magic)) != 0 ||
	     place.session->bytes != sizeof(struct session) ||
	     memchr(place.session->output, '\0', sizeof(place.session->output)) == NULL)) {
		session_close(&place);
		r = MSCOPE_E_FOREIGN;
	}
	if (r < 0)
		return error_set(err, r, "%s is not a session directory of msmemscope: %s",
				 directory, mscope_status_str(r));
	if (snprintf(place.pointer, sizeof(place.pointer), "%s%s%s", place.session->output,
		     strrchr(directory, '/') != NULL ? strrchr(directory, '/') : "",
		     SESSION_POINTER) >= (int)sizeof(place.pointer))
		place.pointer[0] = '\0';
	*out = place;
	return 0;
}

int session_lock(struct session_place *place)
{
	char path[SESSION_PATH_MAX + 16];
	int fd;

	if (place->locked)
		return 0;
	(void)snprintf(path, sizeof(path), "%s/%s", place->directory, SESSION_FILE);
	fd = io_open_file(path, O_RDWR, NULL);
	if (fd < 0)
		return fd;
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

bool session_remove(struct session_place *place)
{
	char path[SESSION_PATH_MAX + 300];
	DIR *dir = opendir(place->directory);
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
			if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
				continue;
			(void)snprintf(path, sizeof(path), "%s/%s", place->directory,
				       entry->d_name);
			(void)unlink(path);
		}
		left = rmdir(place->directory) < 0;
		if (!left && place->pointer[0] != '\0')
			(void)unlink(place->pointer);
	}
	(void)closedir(dir);
	return !left;
}

void session_close(struct session_place *place)
{
	if (place->session != NULL)
		(void)munmap(place->session, sizeof(*place->session));
	place->session = NULL;
	session_unlock(place);
}

static bool is_session(const char *directory)
{
	char path[SESSION_PATH_MAX + 300];
	struct stat st;

	(void)snprintf(path, sizeof(path), "%s/%s", directory, SESSION_FILE);
	return stat(path, &st) == 0 && S_ISREG(st.st_mode) &&
	       st.st_size == (off_t)sizeof(struct session);
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
