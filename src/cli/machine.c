/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/machine.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "cli/ld_so.h"

#define DEPTH_MAX 4  /* generations of a program */
#define CROWD_MAX 64 /* processes that are asked */

/* A file /dev/PREFIXnumber. */
static bool has_device(const char *prefix)
{
	DIR *dir = opendir("/dev");
	const struct dirent *entry;
	size_t length = strlen(prefix);
	bool found = false;

	while (dir != NULL && !found && (entry = readdir(dir)) != NULL)
		found = strncmp(entry->d_name, prefix, length) == 0 &&
			isdigit((unsigned char)entry->d_name[length]);
	if (dir != NULL)
		(void)closedir(dir);
	return found;
}

struct machine machine_look(void)
{
	static const char usual[] =
		"/usr/local/Ascend/driver/lib64/driver:/usr/local/Ascend/driver/lib64:/usr/local/Ascend/ascend-toolkit/latest/lib64";
	static const char driver[] = "libascend_hal.so";
	const char *home = getenv("ASCEND_HOME_PATH");
	char path[PATH_MAX], directory[PATH_MAX];
	struct machine machine = {.npu = has_device("davinci"), .gpu = has_device("nvidia")};

	if (!machine.npu)
		machine.npu = ld_so_find(driver, path, sizeof(path)) == 0 ||
			      ld_so_find_along(usual, driver, path, sizeof(path)) == 0;
	if (!machine.npu && home != NULL && home[0] != '\0') {
		(void)snprintf(directory, sizeof(directory), "%s/lib64", home);
		machine.npu = ld_so_find_along(directory, driver, path, sizeof(path)) == 0;
	}
	if (!machine.gpu)
		machine.gpu = ld_so_find("libcuda.so.1", path, sizeof(path)) == 0;
	return machine;
}

bool machine_is_bare(const struct machine *machine)
{
	return !machine->npu && !machine->gpu;
}

bool machine_default_device(const struct machine *machine, struct options *options)
{
	if (options_given(options, OPTION_ID_device) || !machine_is_bare(machine))
		return false;
	options->device.mask |= 1u << OPT_DEVICE_CPU;
	return true;
}

#define CHOICE "Recorded: CPU tensors too, because no NPU and no GPU was found here "

const char *machine_choice_text(bool api)
{
	return api ? CHOICE "(config(device=\"npu,gpu\"): devices only)\n"
		   : CHOICE "(--device=npu,gpu: devices only)\n";
}

static bool maps_torch(pid_t pid)
{
	char path[64], line[PATH_MAX + 128];
	bool found = false;
	FILE *maps;

	(void)snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	maps = fopen(path, "re");
	while (maps != NULL && !found && fgets(line, sizeof(line), maps) != NULL)
		found = strstr(line, "/libtorch_cpu.so") != NULL;
	if (maps != NULL)
		(void)fclose(maps);
	return found;
}

static bool any_torch(pid_t pid, int depth, int *left)
{
	char path[96], text[4096];
	char *at = text, *end;
	FILE *children;
	size_t length;

	if (pid <= 0 || depth > DEPTH_MAX || (*left)-- <= 0)
		return false;
	if (maps_torch(pid))
		return true;
	(void)snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
	children = fopen(path, "re");
	length = children == NULL ? 0 : fread(text, 1, sizeof(text) - 1, children);
	if (children != NULL)
		(void)fclose(children);
	text[length] = '\0';
	for (;; at = end) {
		long child = strtol(at, &end, 10);

		if (end == at)
			return false;
		if (any_torch((pid_t)child, depth + 1, left))
			return true;
	}
}

bool machine_runs_torch(pid_t pid)
{
	int left = CROWD_MAX;

	return any_torch(pid, 0, &left);
}
