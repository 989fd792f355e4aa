/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints everything that a program inherits besides its arguments: descriptors and what they lead to, dispositions, mask, nice,
 * umask, directory, limits, alarm, group, session, environment. Two runs are alike when they print the same.
 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

static int by_number(const struct dirent **a, const struct dirent **b)
{
	return atoi((*a)->d_name) - atoi((*b)->d_name);
}

static void print_descriptors(void)
{
	struct dirent **entries;
	int count = scandir("/proc/self/fd", &entries, NULL, by_number);

	for (int i = 0; i < count; i++) {
		int fd = atoi(entries[i]->d_name);
		char target[PATH_MAX] = "";
		char path[64];
		int flags = fcntl(fd, F_GETFD);

		/* The one that listed the folder is gone. */
		if (entries[i]->d_name[0] == '.' || flags < 0)
			continue;
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		if (readlink(path, target, sizeof(target) - 1) < 0)
			strcpy(target, "?");
		printf("fd %d %s flags %d mode %d\n", fd, target, flags, fcntl(fd, F_GETFL));
	}
}

static void print_lines(const char *path, const char *const *wanted)
{
	FILE *file = fopen(path, "re");
	char line[256];

	while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
		for (const char *const *w = wanted; *w != NULL; w++) {
			if (strncmp(line, *w, strlen(*w)) == 0)
				fputs(line, stdout);
		}
	}
	if (file != NULL)
		fclose(file);
}

int main(void)
{
	static const char *const status[] = {"SigBlk",	   "SigIgn", "SigPnd", "ShdPnd",
					     "NoNewPrivs", "Umask",  "Groups", NULL};
	static const char *const everything[] = {"", NULL};
	struct itimerval timer;
	char cwd[PATH_MAX];

	print_descriptors();
	print_lines("/proc/self/status", status);
	print_lines("/proc/self/oom_score_adj", everything);
	print_lines("/proc/self/limits", everything);
	print_lines("/proc/self/timerslack_ns", everything);
	printf("cwd %s\n", getcwd(cwd, sizeof(cwd)));
	printf("nice %d\n", getpriority(PRIO_PROCESS, 0));
	getitimer(ITIMER_REAL, &timer);
	printf("alarm %s\n", timerisset(&timer.it_value) ? "set" : "not set");
	printf("session %d group %d\n", (int)getsid(0), (int)getpgrp());
	for (char **e = environ; *e != NULL; e++)
		puts(*e);
	return 0;
}
