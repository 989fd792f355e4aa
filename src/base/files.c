/* SPDX-License-Identifier: Apache-2.0 */
#include "base/files.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *place)
{
	(void)st;
	(void)kind;
	(void)place;
	return remove(path) < 0 ? errno : 0;
}

int files_remove(const char *directory)
{
	int r = nftw(directory, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);

	return r > 0 ? -r : r < 0 ? -errno : 0;
}
