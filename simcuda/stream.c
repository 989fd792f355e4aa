/* SPDX-License-Identifier: Apache-2.0 */
/* Streams, events and graphs. Nothing runs, so everything is done at once; events know the host's clock, for programs that divide by a time. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CAPTURING 1

struct stream {
	int priority;
	unsigned int flags;
	unsigned long long capture; /* its number; 0: nothing is captured */
};

struct event {
	double milliseconds;
};

/* The stream without a handle, and those of each thread (1, 2), are one. */
static struct stream plain;
static unsigned long long captures;
static char captured; /* a graph while it is captured: only passed on */

static struct stream *of(void *handle)
{
	return (uintptr_t)handle <= 2 ? &plain : handle;
}

SIM_API int cudaStreamCreate(void **out);
SIM_API int cudaStreamCreateWithFlags(void **out, unsigned int flags);
SIM_API int cudaStreamCreateWithPriority(void **out, unsigned int flags, int priority);
SIM_API int cudaStreamDestroy(void *stream);
SIM_API int cudaStreamQuery(void *stream);
SIM_API int cudaStreamSynchronize(void *stream);
SIM_API int cudaStreamWaitEvent(void *stream, void *event, unsigned int flags);
SIM_API int cudaStreamGetPriority(void *stream, int *out);
SIM_API int cudaStreamGetFlags(void *stream, unsigned int *out);
SIM_API int cudaStreamGetDevice(void *stream, int *out);
SIM_API int cudaStreamAddCallback(void *stream, void (*call)(void *, int, void *), void *data,
				  unsigned int flags);
SIM_API int cudaLaunchHostFunc(void *stream, void (*call)(void *), void *data);
SIM_API int cudaStreamBeginCapture(void *stream, int mode);
SIM_API int cudaStreamEndCapture(void *stream, void **out_graph);
SIM_API int cudaStreamIsCapturing(void *stream, int *out);
SIM_API int cudaStreamGetCaptureInfo(void *stream, int *out, unsigned long long *id, void **graph,
				     void **dependencies, void **edges, size_t *count);
SIM_API int cudaStreamGetCaptureInfo_v2(void *stream, int *out, unsigned long long *id,
					void **graph, void **dependencies, size_t *count);
SIM_API int cudaThreadExchangeStreamCaptureMode(int *mode);
SIM_API int cudaEventCreate(void **out);
SIM_API int cudaEventCreateWithFlags(void **out, unsigned int flags);
SIM_API int cudaEventDestroy(void *event);
SIM_API int cudaEventQuery(void *event);
SIM_API int cudaEventRecord(void *event, void *stream);
SIM_API int cudaEventRecordWithFlags(void *event, void *stream, unsigned int flags);
SIM_API int cudaEventSynchronize(void *event);
SIM_API int cudaEventElapsedTime(float *out, void *start, void *end);
SIM_API int cudaGraphDestroy(void *graph);
SIM_API int cudaGraphExecDestroy(void *graph);
SIM_API int cudaGraphInstantiate(void **out, void *graph, unsigned long long flags);
SIM_API int cudaGraphInstantiateWithFlags(void **out, void *graph, unsigned long long flags);
SIM_API int cudaGraphLaunch(void *graph, void *stream);
SIM_API int cudaGraphGetNodes(void *graph, void **out, size_t *count);

int cudaStreamCreateWithPriority(void **out, unsigned int flags, int priority)
{
	struct stream *stream = calloc(1, sizeof(*stream));

	if (stream == NULL)
		return sim_error(SIM_OUT_OF_MEMORY);
	stream->flags = flags;
	stream->priority = priority;
	*out = stream;
	return SIM_OK;
}

int cudaStreamCreateWithFlags(void **out, unsigned int flags)
{
	return cudaStreamCreateWithPriority(out, flags, 0);
}

int cudaStreamCreate(void **out)
{
	return cudaStreamCreateWithPriority(out, 0, 0);
}

int cudaStreamDestroy(void *stream)
{
	if (of(stream) != &plain)
		free(stream);
	return SIM_OK;
}

int cudaStreamQuery(void *stream)
{
	(void)stream;
	return SIM_OK;
}

int cudaStreamSynchronize(void *stream)
{
	(void)stream;
	return SIM_OK;
}

int cudaStreamWaitEvent(void *stream, void *event, unsigned int flags)
{
	(void)stream;
	(void)event;
	(void)flags;
	return SIM_OK;
}

int cudaStreamGetPriority(void *stream, int *out)
{
	*out = of(stream)->priority;
	return SIM_OK;
}

int cudaStreamGetFlags(void *stream, unsigned int *out)
{
	*out = of(stream)->flags;
	return SIM_OK;
}

int cudaStreamGetDevice(void *stream, int *out)
{
	(void)stream;
	*out = 0;
	return SIM_OK;
}

int cudaStreamAddCallback(void *stream, void (*call)(void *, int, void *), void *data,
			  unsigned int flags)
{
	(void)flags;
	call(stream, SIM_OK, data);
	return SIM_OK;
}

int cudaLaunchHostFunc(void *stream, void (*call)(void *), void *data)
{
	(void)stream;
	call(data);
	return SIM_OK;
}

/* ---- capturing ---- */

int cudaStreamBeginCapture(void *stream, int mode)
{
	(void)mode;
	of(stream)->capture = __atomic_add_fetch(&captures, 1, __ATOMIC_RELAXED);
	return SIM_OK;
}

int cudaStreamEndCapture(void *stream, void **out_graph)
{
	of(stream)->capture = 0;
	*out_graph = malloc(1);
	return *out_graph == NULL ? sim_error(SIM_OUT_OF_MEMORY) : SIM_OK;
}

int cudaStreamIsCapturing(void *stream, int *out)
{
	*out = of(stream)->capture != 0 ? CAPTURING : 0;
	return SIM_OK;
}

int cudaStreamGetCaptureInfo_v2(void *stream, int *out, unsigned long long *id, void **graph,
				void **dependencies, size_t *count)
{
	(void)cudaStreamIsCapturing(stream, out);
	if (id != NULL)
		*id = of(stream)->capture;
	/* Of what is captured nothing is kept, so that nothing comes before the next piece of work. */
	if (graph != NULL)
		*graph = &captured;
	if (dependencies != NULL)
		*dependencies = NULL;
	if (count != NULL)
		*count = 0;
	return SIM_OK;
}

/* Until CUDA 12 it has three arguments. */
int cudaStreamGetCaptureInfo(void *stream, int *out, unsigned long long *id, void **graph,
			     void **dependencies, void **edges, size_t *count)
{
	(void)edges;
	if (sim_version() < 13000)
		return cudaStreamGetCaptureInfo_v2(stream, out, id, NULL, NULL, NULL);
	return cudaStreamGetCaptureInfo_v2(stream, out, id, graph, dependencies, count);
}

int cudaThreadExchangeStreamCaptureMode(int *mode)
{
	static __thread int current;
	int before = current;

	current = *mode;
	*mode = before;
	return SIM_OK;
}

int cudaGraphDestroy(void *graph)
{
	free(graph);
	return SIM_OK;
}

int cudaGraphExecDestroy(void *graph)
{
	free(graph);
	return SIM_OK;
}

int cudaGraphInstantiate(void **out, void *graph, unsigned long long flags)
{
	(void)graph;
	(void)flags;
	*out = malloc(1);
	return *out == NULL ? sim_error(SIM_OUT_OF_MEMORY) : SIM_OK;
}

int cudaGraphInstantiateWithFlags(void **out, void *graph, unsigned long long flags)
{
	return cudaGraphInstantiate(out, graph, flags);
}

int cudaGraphLaunch(void *graph, void *stream)
{
	(void)graph;
	(void)stream;
	sim_launched();
	return SIM_OK;
}

/* PyTorch asks whether there are any. */
int cudaGraphGetNodes(void *graph, void **out, size_t *count)
{
	(void)graph;
	if (out != NULL)
		return sim_error(sim_fail("the nodes of a graph are not simulated"));
	*count = 1;
	return SIM_OK;
}

/* ---- events ---- */

int cudaEventCreateWithFlags(void **out, unsigned int flags)
{
	(void)flags;
	*out = calloc(1, sizeof(struct event));
	return *out == NULL ? sim_error(SIM_OUT_OF_MEMORY) : SIM_OK;
}

int cudaEventCreate(void **out)
{
	return cudaEventCreateWithFlags(out, 0);
}

int cudaEventDestroy(void *event)
{
	free(event);
	return SIM_OK;
}

int cudaEventQuery(void *event)
{
	(void)event;
	return SIM_OK;
}

int cudaEventRecordWithFlags(void *event, void *stream, unsigned int flags)
{
	struct event *at = event;
	struct timespec now;

	(void)stream;
	(void)flags;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	at->milliseconds = (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
	return SIM_OK;
}

int cudaEventRecord(void *event, void *stream)
{
	return cudaEventRecordWithFlags(event, stream, 0);
}

int cudaEventSynchronize(void *event)
{
	(void)event;
	return SIM_OK;
}

int cudaEventElapsedTime(float *out, void *start, void *end)
{
	const struct event *first = start, *last = end;
	float passed = (float)(last->milliseconds - first->milliseconds);

	*out = passed > 0.001f ? passed : 0.001f;
	return SIM_OK;
}
