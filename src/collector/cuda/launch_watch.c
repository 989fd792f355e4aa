/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watched memory before and behind each launch of a kernel, at kernel level. What a kernel writes is not known: the operator that
 * launches it decides, and where there are none, what the kernel is handed (cuFuncGetParamInfo(), of CUDA 12.4). A launch into a
 * stream that is captured runs nothing, and nothing is looked at.
 */
#include "collector/cuda/cuda.h"

#include <string.h>

#include "collector/watch/watch_dump.h"

#define HANDED_MAX	  64u /* words */
#define STREAM_PER_THREAD ((void *)2)

/* CUlaunchConfig begins with the same. */
struct shape {
	unsigned int grid[3], block[3], shared;
	void *stream;
};

struct launch {
	void *function;
	struct shape shape;
	void **arguments;
};

struct launch_ex {
	const struct shape *shape;
	void *function;
	void **arguments;
};

struct graph_launch {
	void *graph;
	void *stream;
};

static struct lookup_function parameter = {.name = "cuFuncGetParamInfo"};

/* The parameters of the kernel, one behind the other. Returns how many words. */
static size_t read_handed(void *function, void **arguments, uint64_t out[HANDED_MAX])
{
	int (*ask)(void *, size_t, size_t *, size_t *) =
		(int (*)(void *, size_t, size_t *, size_t *))lookup_function(&parameter);
	size_t i, offset, bytes, words = 0;

	for (i = 0; ask != NULL && arguments != NULL && words < HANDED_MAX; i++) {
		size_t most = (HANDED_MAX - words) * sizeof(*out);

		if (ask(function, i, &offset, &bytes) != 0)
			break;
		if (bytes < sizeof(*out))
			continue; /* no address */
		bytes = bytes < most ? bytes / sizeof(*out) : HANDED_MAX - words;
		memcpy(&out[words], arguments[i], bytes * sizeof(*out));
		words += bytes;
	}
	return words;
}

void launch_watch_slow(const struct driver_call *call, const char *name)
{
	const char *function = call->data->function != NULL ? call->data->function : "";
	struct watch_call watched = {
		.level = SESSION_LEVEL_KERNEL, .vendor = VENDOR_CUDA, .has_stream = true};
	struct watch_room *before = (struct watch_room *)(uintptr_t)*call->data->kept;
	uint64_t handed[HANDED_MAX];
	struct launch launch = {0};

	if (strncmp(function, "cuGraphLaunch", 13) == 0) {
		launch.shape.stream = ((const struct graph_launch *)call->data->parameters)->stream;
	} else if (strncmp(function, "cuLaunchKernelEx", 16) == 0) {
		const struct launch_ex *ex = call->data->parameters;

		launch = (struct launch){ex->function, *ex->shape, ex->arguments};
	} else {
		memcpy(&launch, call->data->parameters, sizeof(launch));
	}
	watched.stream = launch.shape.stream;
	if (watched.stream == NULL && strstr(function, "_ptsz") != NULL)
		watched.stream = STREAM_PER_THREAD;
	watched.device = cupti_device(call->data->context, call->data->context_number);
	if (call->before) {
		watched.arguments = handed;
		watched.argument_bytes = 8 * read_handed(launch.function, launch.arguments, handed);
		*call->data->kept = (uint64_t)(uintptr_t)watch_launch_begin(&watched);
		return;
	}
	*call->data->kept = 0;
	watched.name = name;
	watch_launch_end(before, &watched, call->result == 0);
}
