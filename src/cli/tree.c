/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/tree.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool holds_collector(const char *directory)
{
	char path[PATH_MAX];

	return snprintf(path, sizeof(path), "%s/lib64/" TREE_COLLECTOR, directory) <
		       (int)sizeof(path) &&
	       access(path, F_OK) == 0;
}

int tree_prefix(char *out, size_t bytes, struct mscope_error *err)
{
	char self[PATH_MAX], *slash;
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
	int level;

	if (length <= 0)
		return error_set(err, -errno,
				 "cannot find the directory of msmemscope: /proc is not mounted");
	self[length] = '\0';
	for (level = 0; level < 2; level++) {
		slash = strrchr(self, '/');
		if (slash == NULL)
			return error_set(
				err, -ENOENT,
				"cannot find the directory of msmemscope: unexpected path %s",
				self);
		*slash = '\0';
	}
	/* A copy of an installation may have the command itself in place of the link to it. */
	if (!holds_collector(self) && strlen(self) + sizeof(TREE_BELOW) <= sizeof(self)) {
		slash = self + strlen(self);
		memcpy(slash, TREE_BELOW, sizeof(TREE_BELOW));
		if (!holds_collector(self))
			*slash = '\0';
	}
	if (snprintf(out, bytes, "%s", self) >= (int)bytes)
		return error_set(err, -ENAMETOOLONG, "the path %s is too long", self);
	return 0;
}

int tree_collector(char *out, size_t bytes, struct mscope_error *err)
{
	char prefix[PATH_MAX];
	int r = tree_prefix(prefix, sizeof(prefix), err);

	if (r < 0)
		return r;
	if (snprintf(out, bytes, "%s/lib64/%s", prefix, TREE_COLLECTOR) >= (int)bytes)
		return error_set(err, -ENAMETOOLONG, "the path %s is too long", prefix);
	if (access(out, R_OK) < 0)
		return error_set(err, -errno, "cannot read the collector %s: %s", out,
				 strerror(errno));
	return 0;
}
