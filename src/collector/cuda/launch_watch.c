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
#define OPEN_MAX	  64u
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

/*
 * What was read before launches that are in progress. The word that CUPTI keeps from before a call to behind it may be anything for a
 * call that was in progress when we subscribed.
 */
static _Atomic uintptr_t open_rooms[OPEN_MAX];

/* False: there is no room for it. */
static bool room_keep(struct watch_room *room)
{
	uint32_t i;

	for (i = 0; i < OPEN_MAX; i++) {
		uintptr_t none = 0;

		if (atomic_compare_exchange_strong(&open_rooms[i], &none, (uintptr_t)room))
			return true;
	}
	return false;
}

static struct watch_room *room_take(uint64_t kept)
{
	uint32_t i;

	for (i = 0; kept != 0 && i < OPEN_MAX; i++) {
		uintptr_t wanted = (uintptr_t)kept;

		if (atomic_compare_exchange_strong(&open_rooms[i], &wanted, 0))
			return (struct watch_room *)(uintptr_t)kept;
	}
	return NULL;
}

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
	struct watch_room *before;
	uint64_t handed[HANDED_MAX];
	struct launch launch = {0};

	if (strncmp(function, "cuGraphLaunch", 13) == 0) {
		launch.shape.stream = ((const struct graph_launch *)call->data->parameters)->stream;
	} else if (strncmp(function, "cuLaunchKernelEx", 16) == 0) {
		const struct launch_ex *ex = call->data->parameters;

		if (ex->shape != NULL) /* else the call fails */
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
		before = watch_launch_begin(&watched);
		if (before != NULL && !room_keep(before)) {
			watched.name = name;
			watch_launch_end(before, &watched, false);
			before = NULL;
		}
		*call->data->kept = (uint64_t)(uintptr_t)before;
		return;
	}
	before = room_take(*call->data->kept);
	*call->data->kept = 0;
	watched.name = name;
	watch_launch_end(before, &watched, call->result == 0);
}
