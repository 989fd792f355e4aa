/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/session.h"
#include "trace/pack.h"

int input_find(const char *word, struct input *out, struct mscope_error *err)
{
	size_t length = strlen(word), suffix = strlen(SESSION_RAW);
	struct stat st;
	bool packed;
	int fd;

	*out = (struct input){0};
	if (length + 16 > sizeof(out->raw))
		return error_set(err, -ENAMETOOLONG, "%.64s... is too long a path", word);
	if (stat(word, &st) < 0)
		return error_set(err, -errno, "cannot open %s: %s", word, strerror(errno));
	if (S_ISDIR(st.st_mode)) {
		(void)snprintf(out->pack, sizeof(out->pack), "%s/trace.msc", word);
		if (access(out->pack, F_OK) < 0)
			return error_set(
				err, -ENOENT,
				"%s holds no trace.msc; name a trace or a project directory", word);
		return 0;
	}
	fd = open(word, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return error_set(err, -errno, "cannot open %s: %s", word, strerror(errno));
	packed = pack_probe(fd);
	(void)close(fd);
	if (packed) {
		(void)snprintf(out->pack, sizeof(out->pack), "%s", word);
		return 0;
	}
	(void)snprintf(out->raw, sizeof(out->raw), "%s", word);
	/* The engine's part of an unfinished trace lies beside it. */
	if (length > suffix && strcmp(word + length - suffix, SESSION_RAW) == 0) {
		(void)snprintf(out->pack, sizeof(out->pack), "%.*s%s", (int)(length - suffix), word,
			       SESSION_PART);
		if (access(out->pack, F_OK) < 0)
			out->pack[0] = '\0';
	}
	return 0;
}

const char *input_raw(const struct input *input)
{
	return input->raw[0] != '\0' ? input->raw : NULL;
}

const char *input_pack(const struct input *input)
{
	return input->pack[0] != '\0' ? input->pack : NULL;
}

/* Cuts the last component off an absolute path. */
static void cut_last(char *path)
{
	char *slash = strrchr(path, '/');

	slash[slash == path ? 1 : 0] = '\0';
}

static bool is_ours(const char *directory)
{
	const char *name = strrchr(directory, '/') + 1;

	/* Session directories have a dot before the same name. */
	name += name[0] == '.';
	return strncmp(name, "msmemscope_", strlen("msmemscope_")) == 0;
}

int input_home(const struct input *input, char *out, size_t bytes, struct mscope_error *err)
{
	const char *path = input->raw[0] != '\0' ? input->raw : input->pack;
	char place[PATH_MAX];
	struct session_place session;

	if (realpath(path, place) == NULL)
		return error_set(err, -errno, "cannot open %s: %s", path, strerror(errno));
	cut_last(place);
	if (session_open(place, &session, NULL) == 0) {
		/* Raw traces may lie on another disk than the results. */
		(void)snprintf(place, sizeof(place), "%s", session.session->output);
		session_close(&session);
	} else if (is_ours(place)) {
		cut_last(place);
	}
	if (snprintf(out, bytes, "%s", place) >= (int)bytes)
		return error_set(err, -ENAMETOOLONG, "%s is too long a path", place);
	return 0;
}

int input_exit_code(int code)
{
	return code == MSCOPE_E_DAMAGED || code == MSCOPE_E_TRUNCATED ? MSCOPE_EXIT_DAMAGED
								      : MSCOPE_EXIT_FAILED;
}
