/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams, events, launches and graphs of the stand-in driver. A kernel computes what its text says, if ptx.c knows all of it; inside a
 * graph it does not. It takes a microsecond for each block, and one that looks at the time as many nanoseconds as its first argument
 * says, behind what its stream already has. Waiting waits for that time to pass.
 */
#include "driver.h"

#define NODES_MAX 64u

struct node {
	enum { KERNEL, TAKE, GIVE } kind;
	char name[512];
	uint64_t ns;
	uint64_t address, bytes;
	uint32_t device;
};

struct graph {
	uint32_t count;
	struct node nodes[NODES_MAX];
};

struct stream {
	uint32_t number;
	_Atomic uint64_t end_ns;
	struct graph *captures;
};

static _Atomic uint32_t streams = 7;
static struct stream defaults[FAKE_DEVICES_MAX];
static _Atomic uint64_t all_end_ns;

/* The stream that is captured into a graph, one at a time; whether something has broken that; and what this thread may call then. */
static _Atomic(void *) captured;
static _Atomic bool capture_broken;
static _Thread_local int capture_mode;
#define MODE_RELAXED 2

bool capture_breaks(int *out_error)
{
	if (atomic_load(&captured) == NULL || capture_mode == MODE_RELAXED)
		return false;
	atomic_store(&capture_broken, true);
	*out_error = CUDA_ERROR_CAPTURE_UNSUPPORTED;
	return true;
}

/* 0, 1 and 2 are the default streams. */
static struct stream *stream_of(void *handle)
{
	struct context *context = context_now();

	if ((uintptr_t)handle > 2)
		return handle;
	return &defaults[context == NULL ? 0 : context->device];
}

static void raise_to(_Atomic uint64_t *at, uint64_t value)
{
	uint64_t before = atomic_load(at);

	while (before < value && !atomic_compare_exchange_weak(at, &before, value))
		;
}

static void wait_until(uint64_t ns)
{
	uint64_t now;

	while ((now = fake_now_ns()) < ns) {
		struct timespec left = {.tv_nsec = (long)(ns - now < 1000000 ? ns - now : 1000000)};

		(void)nanosleep(&left, NULL);
	}
}

/* ---- streams and events ---- */

static int stream_new(void **out)
{
	struct stream *stream = calloc(1, sizeof(*stream));

	stream->number = atomic_fetch_add(&streams, 1) + 1;
	*out = stream;
	return CUDA_SUCCESS;
}

PLAIN(cuStreamCreate, (void **out, unsigned int flags))
{
	(void)flags;
	return stream_new(out);
}

PLAIN(cuStreamDestroy_v2, (void *stream))
{
	free(stream);
	return CUDA_SUCCESS;
}

static int waited(uint64_t until_ns)
{
	wait_until(until_ns);
	memory_waited();
	return CUDA_SUCCESS;
}

/* Whatever the thread's mode. */
static int capture_break(void)
{
	atomic_store(&capture_broken, true);
	return CUDA_ERROR_CAPTURE_UNSUPPORTED;
}

static int wait_for_stream(void *stream)
{
	if (stream != NULL && atomic_load(&captured) == stream)
		return capture_break();
	return waited(atomic_load(&stream_of(stream)->end_ns));
}

static int wait_for_all(void)
{
	if (atomic_load(&captured) != NULL)
		return capture_break();
	return context_now() == NULL ? CUDA_ERROR_INVALID_CONTEXT
				     : waited(atomic_load(&all_end_ns));
}

struct one_stream {
	void *stream;
};

REPORTED(126, cuStreamSynchronize, (void *stream), wait_for_stream(stream), one_stream, stream)
REPORTED(440, cuStreamSynchronize_ptsz, (void *stream), wait_for_stream(stream), one_stream, stream)

struct nothing {
	char none;
};

REPORTED(17, cuCtxSynchronize, (void), wait_for_all(), nothing, 0)

PLAIN(cuStreamIsCapturing, (void *stream, int *out))
{
	*out = stream_of(stream)->captures != NULL;
	return CUDA_SUCCESS;
}

struct event {
	uint64_t at_ns;
};

PLAIN(cuEventCreate, (void **out, unsigned int flags))
{
	(void)flags;
	*out = calloc(1, sizeof(struct event));
	return CUDA_SUCCESS;
}

PLAIN(cuEventDestroy_v2, (void *event))
{
	free(event);
	return CUDA_SUCCESS;
}

PLAIN(cuEventRecord, (void *event, void *stream))
{
	uint64_t end = atomic_load(&stream_of(stream)->end_ns), now = fake_now_ns();

	((struct event *)event)->at_ns = end > now ? end : now;
	return CUDA_SUCCESS;
}

REPORTED(121, cuEventSynchronize, (void *event), waited(((struct event *)event)->at_ns), one_stream,
	 event)

PLAIN(cuEventElapsedTime, (float *out, void *from, void *to))
{
	*out = (float)((double)(((struct event *)to)->at_ns - ((struct event *)from)->at_ns) / 1e6);
	return CUDA_SUCCESS;
}

/* ---- launches ---- */

static void run_kernel(struct stream *stream, const char *name, uint64_t ns, uint32_t correlation)
{
	struct context *context = context_now();
	uint64_t now = fake_now_ns(), before = atomic_load(&stream->end_ns), start;

	do
		start = before > now ? before : now;
	while (!atomic_compare_exchange_weak(&stream->end_ns, &before, start + ns));
	raise_to(&all_end_ns, start + ns);
	tell_kernel(&(struct fake_kernel){.name = name,
					  .start_ns = start,
					  .end_ns = start + ns,
					  .device = context == NULL ? 0 : context->device,
					  .context_uid = context == NULL ? 0 : context->uid,
					  .stream = stream->number,
					  .correlation = correlation});
}

static struct node *node_new(struct graph *graph, int kind)
{
	struct node *node;

	if (graph->count == NODES_MAX)
		abort();
	node = &graph->nodes[graph->count++];
	*node = (struct node){.kind = kind, .device = context_now()->device};
	return node;
}

static int launch(struct call *call, void *function, void *handle, const unsigned int grid[3],
		  const unsigned int block[3], void **arguments)
{
	struct stream *stream = stream_of(handle);
	const struct kernel *kernel = function;
	unsigned int blocks = grid[0] * grid[1] * grid[2], threads = block[0] * block[1] * block[2];
	uint64_t ns = blocks * UINT64_C(1000);

	if (kernel == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	if (arguments != NULL && strstr(kernel->text, "%globaltimer") != NULL)
		memcpy(&ns, arguments[0], sizeof(ns));
	else if (stream->captures == NULL)
		ptx_run(kernel->text, kernel->name, blocks, threads, arguments);
	if (stream->captures != NULL) {
		struct node *node = node_new(stream->captures, KERNEL);

		memcpy(node->name, kernel->name, sizeof(node->name));
		node->ns = ns;
	} else {
		run_kernel(stream, kernel->name, ns, call->event.correlation);
	}
	return CUDA_SUCCESS;
}

static const char *symbol_of(void *function)
{
	return function == NULL ? NULL : ((struct kernel *)function)->name;
}

struct launch {
	void *function;
	unsigned int grid[3], block[3], shared;
	void *stream;
	void **arguments, **extra;
};

static int launch_reported(uint32_t cbid, const char *name, const struct launch *p)
{
	struct call call;

	call_enter(&call, cbid, name, p, symbol_of(p->function));
	return call_exit(&call,
			 launch(&call, p->function, p->stream, p->grid, p->block, p->arguments));
}

#define LAUNCH(cbid, function_name)                                                                \
	PLAIN(function_name, (void *function, unsigned int gx, unsigned int gy, unsigned int gz,   \
			      unsigned int bx, unsigned int by, unsigned int bz,                   \
			      unsigned int shared, void *stream, void **arguments, void **extra))  \
	{                                                                                          \
		struct launch parameters = {function, {gx, gy, gz}, {bx, by, bz}, shared,          \
					    stream,   arguments,    extra};                        \
                                                                                                   \
		return launch_reported(cbid, #function_name, &parameters);                         \
	}

LAUNCH(307, cuLaunchKernel)
LAUNCH(442, cuLaunchKernel_ptsz)

#define LAUNCH_COOPERATIVE(cbid, function_name)                                                    \
	PLAIN(function_name, (void *function, unsigned int gx, unsigned int gy, unsigned int gz,   \
			      unsigned int bx, unsigned int by, unsigned int bz,                   \
			      unsigned int shared, void *stream, void **arguments))                \
	{                                                                                          \
		struct launch parameters = {function, {gx, gy, gz}, {bx, by, bz}, shared,          \
					    stream,   arguments,    NULL};                         \
                                                                                                   \
		return launch_reported(cbid, #function_name, &parameters);                         \
	}

LAUNCH_COOPERATIVE(477, cuLaunchCooperativeKernel)
LAUNCH_COOPERATIVE(478, cuLaunchCooperativeKernel_ptsz)

struct launch_config {
	unsigned int grid[3], block[3], shared;
	void *stream;
};

struct launch_ex {
	const void *config;
	void *function;
	void **arguments, **extra;
};

#define LAUNCH_EX(cbid, function_name)                                                             \
	PLAIN(function_name, (const void *config, void *function, void **arguments, void **extra)) \
	{                                                                                          \
		struct launch_ex parameters = {config, function, arguments, extra};                \
		const struct launch_config *c = config;                                            \
		struct call call;                                                                  \
                                                                                                   \
		call_enter(&call, cbid, #function_name, &parameters, symbol_of(function));         \
		return call_exit(                                                                  \
			&call, launch(&call, function, c->stream, c->grid, c->block, arguments));  \
	}

LAUNCH_EX(652, cuLaunchKernelEx)
LAUNCH_EX(653, cuLaunchKernelEx_ptsz)

/* ---- graphs ---- */

PLAIN(cuGraphCreate, (void **out, unsigned int flags))
{
	(void)flags;
	*out = calloc(1, sizeof(struct graph));
	return CUDA_SUCCESS;
}

PLAIN(cuStreamBeginCapture_v2, (void *stream, int mode))
{
	(void)mode;
	atomic_store(&capture_broken, false);
	atomic_store(&captured, stream);
	return cuGraphCreate((void **)&stream_of(stream)->captures, 0);
}

PLAIN(cuStreamEndCapture, (void *stream, void **out))
{
	bool broken = atomic_load(&capture_broken);

	*out = stream_of(stream)->captures;
	stream_of(stream)->captures = NULL;
	atomic_store(&captured, NULL);
	if (!broken)
		return CUDA_SUCCESS;
	free(*out);
	*out = NULL;
	return CUDA_ERROR_CAPTURE_INVALIDATED;
}

PLAIN(cuThreadExchangeStreamCaptureMode, (int *mode))
{
	int before = capture_mode;

	capture_mode = *mode;
	*mode = before;
	return CUDA_SUCCESS;
}

bool capture_memory(void *stream, uint64_t *address, uint64_t bytes)
{
	struct graph *graph = stream_of(stream)->captures;
	struct node *node;

	if (graph == NULL)
		return false;
	if (bytes != 0)
		*address = graph_address(bytes);
	node = node_new(graph, bytes != 0 ? TAKE : GIVE);
	node->address = *address;
	node->bytes = bytes;
	return true;
}

/* CUDA_MEM_ALLOC_NODE_PARAMS. */
struct alloc_node {
	struct {
		uint32_t type, handles;
		struct location location;
		void *security;
		size_t most;
		char reserved[56];
	} properties;
	const void *access;
	size_t access_count, bytes;
	uint64_t address;
};

struct add_node {
	void **out;
	void *graph;
	const void *behind;
	size_t behind_count;
	struct alloc_node *node;
};

static int add_take(void **out, struct graph *graph, struct alloc_node *wanted)
{
	struct node *node = node_new(graph, TAKE);

	node->device = (uint32_t)wanted->properties.location.id;
	node->bytes = wanted->bytes;
	node->address = wanted->address = graph_address(wanted->bytes);
	*out = node;
	return CUDA_SUCCESS;
}

REPORTED(638, cuGraphAddMemAllocNode,
	 (void **out, void *graph, const void *behind, size_t count, struct alloc_node *node),
	 add_take(out, graph, node), add_node, out, graph, behind, count, node)

struct add_free_node {
	void **out;
	void *graph;
	const void *behind;
	size_t behind_count;
	uint64_t address;
};

static int add_give(void **out, struct graph *graph, uint64_t address)
{
	struct node *node = node_new(graph, GIVE);

	node->address = address;
	*out = node;
	return CUDA_SUCCESS;
}

REPORTED(639, cuGraphAddMemFreeNode,
	 (void **out, void *graph, const void *behind, size_t count, uint64_t address),
	 add_give(out, graph, address), add_free_node, out, graph, behind, count, address)

PLAIN(cuGraphInstantiateWithFlags, (void **out, void *graph, unsigned long long flags))
{
	(void)flags;
	*out = malloc(sizeof(struct graph));
	memcpy(*out, graph, sizeof(struct graph));
	return CUDA_SUCCESS;
}

struct one_graph {
	void *graph;
};

static int graph_end(void *graph)
{
	free(graph);
	return CUDA_SUCCESS;
}

REPORTED(516, cuGraphExecDestroy, (void *graph), graph_end(graph), one_graph, graph)

PLAIN(cuGraphDestroy, (void *graph))
{
	return graph_end(graph);
}

struct graph_launch {
	void *graph, *stream;
};

static int graph_run(struct call *call, const struct graph *graph, void *stream)
{
	uint32_t i;
	int r = CUDA_SUCCESS;

	for (i = 0; i < graph->count && r == CUDA_SUCCESS; i++) {
		const struct node *node = &graph->nodes[i];

		if (node->kind == KERNEL)
			run_kernel(stream_of(stream), node->name, node->ns,
				   call->event.correlation);
		else
			r = graph_back(node->device, node->address, node->bytes,
				       node->kind == TAKE);
	}
	return r;
}

#define GRAPH_LAUNCH(cbid, name)                                                                   \
	PLAIN(name, (void *graph, void *stream))                                                   \
	{                                                                                          \
		struct graph_launch parameters = {graph, stream};                                  \
		struct call call;                                                                  \
                                                                                                   \
		call_enter(&call, cbid, #name, &parameters, NULL);                                 \
		return call_exit(&call, graph_run(&call, graph, stream));                          \
	}
GRAPH_LAUNCH(514, cuGraphLaunch)
GRAPH_LAUNCH(515, cuGraphLaunch_ptsz)
