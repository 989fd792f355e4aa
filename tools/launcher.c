/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `pip install` puts on PATH as msmemscope and msleaks. The command itself lies in the package, with all that it needs:
 *
 *     PREFIX/bin/msmemscope                                               this program
 *     PREFIX/lib/python3.11/site-packages/msmemscope/_home/bin/msmemscope   what it becomes
 *
 * A script in Python would take 20 ms and more, and hand on an environment and signals that the interpreter has changed. Where a prefix
 * has several interpreters, the package of this program's own version is taken first.
 */
#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define COMMAND	 "msmemscope/_home/bin/msmemscope"
#define OWN_INFO "msmemscope-" MSCOPE_VERSION ".dist-info"

static char **words;

/* Becomes the command of the package in a directory of packages, if there is one; `own`: only if it is of our version. */
static void become(const char *packages, bool own)
{
	char path[PATH_MAX];

	if (own && (snprintf(path, sizeof(path), "%s/" OWN_INFO, packages) >= (int)sizeof(path) ||
		    access(path, F_OK) < 0))
		return;
	if (snprintf(path, sizeof(path), "%s/" COMMAND, packages) < (int)sizeof(path))
		(void)execv(path, words);
}

/* Tries the packages of every interpreter below a directory such as PREFIX/lib. */
static void become_below(const char *directory, bool own)
{
	static const char *const names[] = {"site-packages", "dist-packages"};
	char packages[PATH_MAX];
	const struct dirent *entry;
	DIR *dir = opendir(directory);
	size_t i;

	while (dir != NULL && (entry = readdir(dir)) != NULL) {
		for (i = 0;
		     strncmp(entry->d_name, "py", 2) == 0 && i < sizeof(names) / sizeof(names[0]);
		     i++) {
			if (snprintf(packages, sizeof(packages), "%s/%s/%s", directory,
				     entry->d_name, names[i]) < (int)sizeof(packages))
				become(packages, own);
		}
	}
	if (dir != NULL)
		(void)closedir(dir);
}

int main(int argc, char **argv)
{
	/* The last two: pip install --target=PREFIX, and a wheel that a build system has unpacked. */
	static const char *const places[] = {"lib", "lib64", "", "site-packages"};
	char prefix[PATH_MAX], directory[PATH_MAX + 16], *slash = NULL;
	ssize_t length = readlink("/proc/self/exe", prefix, sizeof(prefix) - 1);
	int level, own;
	size_t i;

	(void)argc;
	words = argv;
	prefix[length > 0 ? length : 0] = '\0';
	for (level = 0; level < 2; level++) {
		slash = strrchr(prefix, '/');
		if (slash != NULL)
			*slash = '\0';
	}
	for (own = 1; own >= 0 && slash != NULL; own--) {
		for (i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
			(void)snprintf(directory, sizeof(directory), "%s/%s", prefix, places[i]);
			if (i < 2)
				become_below(directory, own != 0);
			else
				become(directory, own != 0);
		}
	}
	fprintf(stderr,
		"msmemscope: the package msmemscope is not below %s; where Python finds it, this is the same command: python3 -m msmemscope\n",
		prefix);
	return 1;
}
