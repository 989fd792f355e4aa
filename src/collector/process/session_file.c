/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The session file, which the command wrote before the program started; see trace/session.h.
 */
#include "collector/process/process.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "collector/sys.h"
#include "trace/asked.h"

struct session *session_map(char *path, size_t path_bytes, const char *directory)
{
	struct session *session;
	int fd;

	(void)snprintf(path, path_bytes, "%s/%s", directory, SESSION_FILE);
	fd = sys_open(path, O_RDWR | O_CLOEXEC, 0);
	if (fd < 0)
		return NULL;
	/* The file is written in full before any process starts; a shorter one is not ours and must not be mapped. */
	if (lseek(fd, 0, SEEK_END) < (off_t)sizeof(*session)) {
		sys_close(fd);
		errno = EPROTO;
		return NULL;
	}
	session = mmap(NULL, sizeof(*session), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	sys_close(fd);
	if (session == MAP_FAILED)
		return NULL;
	if (memcmp(session->magic, SESSION_MAGIC, sizeof(session->magic)) != 0 ||
	    session->bytes != sizeof(*session)) {
		(void)munmap(session, sizeof(*session));
		errno = EPROTO;
		return NULL;
	}
	return session;
}

void session_map_asked(char *path, size_t path_bytes, const char *directory)
{
	struct asked *before = collector.asked;
	void *p;
	int fd;

	(void)snprintf(path, path_bytes, "%s/%s", directory, ASKED_FILE);
	fd = sys_open(path, O_RDWR | O_CLOEXEC, 0);
	if (fd < 0)
		return;
	if (lseek(fd, 0, SEEK_END) >= (off_t)sizeof(*before)) {
		/* In place of the one of an earlier session, which a thread may be reading. */
		p = mmap(before, sizeof(*before), PROT_READ | PROT_WRITE,
			 MAP_SHARED | (before != NULL ? MAP_FIXED : 0), fd, 0);
		if (p != MAP_FAILED)
			collector.asked = p;
	}
	sys_close(fd);
}

bool session_is_disabled(void)
{
	const char *value = getenv(SESSION_DISABLE_ENV);

	return value != NULL && value[0] != '\0' && strcmp(value, "0") != 0;
}

bool session_wants(const char *directory, uint32_t *out_wants)
{
	struct session *session = session_is_disabled()
					  ? NULL
					  : session_map(collector.path_scratch,
							sizeof(collector.path_scratch), directory);

	if (session == NULL)
		return false;
	*out_wants = control_wants(session);
	(void)munmap(session, sizeof(*session));
	return true;
}

MSCOPE_COLD bool session_wants_host(void)
{
	const char *directory = getenv(SESSION_ENV);
	char path[SESSION_PATH_MAX + sizeof(SESSION_FILE) + 1];
	int saved_errno = errno;
	struct session *session;
	bool wanted = false;

	if (directory == NULL || directory[0] != '/' || strlen(directory) >= SESSION_PATH_MAX ||
	    session_is_disabled())
		return false;
	session = session_map(path, sizeof(path), directory);
	if (session != NULL) {
		wanted = session->host != 0;
		(void)munmap(session, sizeof(*session));
		session_map_asked(path, sizeof(path), directory);
	}
	errno = saved_errno;
	return wanted;
}
