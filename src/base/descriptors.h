/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors are few (256 to 1,024 in many containers), and an engine may follow hundreds of processes with several files each. What
 * may be closed for a while stands in one list of this process; when a file is opened and the list is full, the one that was used
 * longest ago is closed, and opened again by its path when it is used next.
 *
 * Three users share the limit: files of this list (half of it), processes (traced_process.c, a quarter) and executables
 * (elf_cache.c, a quarter). A few descriptors are left for what is opened and closed at once.
 *
 * One thread uses the list.
 */
#ifndef MSCOPE_BASE_DESCRIPTORS_H
#define MSCOPE_BASE_DESCRIPTORS_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/compiler.h"

/* Descriptors that may stay open in this process. */
uint32_t descriptors_limit(void);

/* Raises the process's soft limit to its hard one. For the engine alone: the program keeps what it was started with. */
void descriptors_raise(void);

/* Something that can be closed and opened again. Zeroed: closed. */
struct descriptor_user {
	struct descriptor_user *newer, *older;
	uint32_t count; /* descriptors that it has open, 0: it is closed */
	void (*close)(struct descriptor_user *user);
};

/* Before it is opened, or used while open: closes others until `count` descriptors fit, and is then the latest to be closed. */
void descriptor_user_opens(struct descriptor_user *user, uint32_t count);

/* It is closed. */
void descriptor_user_closed(struct descriptor_user *user);

/* Closes the one used longest ago, other than `except`; false when there is none. */
bool descriptors_close_oldest(const struct descriptor_user *except);

/* A file that is opened again by its path. Zeroed: none. */
struct lazy_file {
	struct descriptor_user user; /* first: `close` is handed this */
	char *path;		     /* NULL: no file */
	int flags;		     /* of open(2) when it is opened again */
	int fd;			     /* -1 while closed */
	dev_t device;
	ino_t inode;
	off_t at; /* its offset when it was closed */
};

/* Opens it. 0 or -errno. */
int lazy_file_open(struct lazy_file *file, const char *path, int flags, mode_t mode);

/*
 * Its descriptor, until this is called for another file. -errno when it cannot be opened again; -ESTALE when another file has its
 * name.
 */
int lazy_file_fd(struct lazy_file *file);

/* It was renamed. 0 or -ENOMEM. */
int lazy_file_renamed(struct lazy_file *file, const char *path);

/* 0 or -errno of close(2). A zeroed file is fine. */
int lazy_file_close(struct lazy_file *file);

#endif
