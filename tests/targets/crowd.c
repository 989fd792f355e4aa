/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crowd TOTAL ALIVE PAIRS: TOTAL processes, ALIVE of them at a time. Each takes and gives back PAIRS blocks, waits until all that
 * live now have done so and the engine follows them (it has a packed trace of each; at most 20 s), does the same again, and ends.
 * Prints how many ended well, how long it took, and the engine's largest resident memory in KiB while they lived.
 */
#include <dirent.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>

#include "target.h"

struct shared {
	atomic_uint ready;
	atomic_uint round; /* that may go on to its second half */
};

static void pairs(unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		void *address = NULL;

		target_check(halMemAlloc(&address, 4096 + i, FLAG_NORMAL) == 0 &&
				     halMemFree(address) == 0,
			     "the driver failed");
	}
}

static void nap(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

static void child(struct shared *shared, unsigned round, unsigned count)
{
	pairs(count);
	atomic_fetch_add(&shared->ready, 1);
	while (atomic_load(&shared->round) <= round)
		nap();
	pairs(count);
	_exit(0);
}

static unsigned followed(void)
{
	const char *session = getenv("MSMEMSCOPE_SESSION");
	DIR *dir = session == NULL ? NULL : opendir(session);
	const struct dirent *entry;
	unsigned count = 0;

	while (dir != NULL && (entry = readdir(dir)) != NULL) {
		size_t length = strlen(entry->d_name);

		count += length > 5 && strcmp(entry->d_name + length - 5, ".part") == 0;
	}
	if (dir != NULL)
		closedir(dir);
	return count;
}

/* VmHWM of our sibling that has the engine's name, 0 when there is none. */
static unsigned long engine_kib(void)
{
	DIR *dir = opendir("/proc");
	const struct dirent *entry;
	unsigned long kib = 0;

	while (dir != NULL && kib == 0 && (entry = readdir(dir)) != NULL) {
		char path[300], line[256];
		int parent = 0;
		FILE *file;

		(void)snprintf(path, sizeof(path), "/proc/%s/status", entry->d_name);
		file = atoi(entry->d_name) > 0 && atoi(entry->d_name) != getpid() ? fopen(path, "r")
										  : NULL;
		while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
			(void)sscanf(line, "PPid: %d", &parent);
			if (parent == getppid())
				(void)sscanf(line, "VmHWM: %lu", &kib);
		}
		if (file != NULL)
			fclose(file);
	}
	if (dir != NULL)
		closedir(dir);
	return kib;
}

int main(int argc, char **argv)
{
	struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	unsigned total, alive, count, done = 0, well = 0;
	unsigned long kib = 0;
	struct timespec start, end;

	target_check(argc == 4 && shared != MAP_FAILED, "crowd TOTAL ALIVE PAIRS");
	total = (unsigned)atoi(argv[1]);
	alive = (unsigned)atoi(argv[2]);
	count = (unsigned)atoi(argv[3]);
	clock_gettime(CLOCK_MONOTONIC, &start);
	for (unsigned round = 0; done < total; round++) {
		unsigned now = total - done < alive ? total - done : alive, waits;
		int status;

		atomic_store(&shared->ready, 0);
		for (unsigned i = 0; i < now; i++) {
			pid_t pid = fork();

			target_check(pid >= 0, "fork failed");
			if (pid == 0)
				child(shared, round, count);
		}
		while (atomic_load(&shared->ready) < now)
			nap();
		for (waits = 0; followed() < now && waits < 10000; waits++)
			nap();
		if (engine_kib() > kib)
			kib = engine_kib();
		atomic_store(&shared->round, round + 1);
		for (unsigned i = 0; i < now; i++)
			well += wait(&status) > 0 && status == 0;
		done += now;
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	printf("{\"ended\":%u,\"seconds\":%.1f,\"engine_kib\":%lu}\n", well,
	       (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) / 1e9,
	       kib);
	return well == total ? 0 : 1;
}
