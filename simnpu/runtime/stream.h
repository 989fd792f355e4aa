/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams and what is put on them. A task is known by three numbers, device, stream and task, which the runtime tells the
 * profiler when it takes the task and the device notes when it runs it.
 *
 * A stream has a thread from its first task on, which runs the tasks one after the other. In a forked child every stream is
 * empty and gets a new thread when it needs one: what the parent had put there runs in the parent only.
 */
#ifndef SIMNPU_RUNTIME_STREAM_H
#define SIMNPU_RUNTIME_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hal/device.h"

struct context;
struct model;
struct stream;

/* What a task is to the profiler. */
enum task_type {
	TASK_TYPE_AICORE = 0,
	TASK_TYPE_AICPU = 1,
	TASK_TYPE_EVENT_RECORD = 2,
	TASK_TYPE_EVENT_WAIT = 3,
	TASK_TYPE_MEMCPY = 5,
	TASK_TYPE_MODEL = 12,
	TASK_TYPE_HOST = 16, /* a function of the program */
};

/* First member of whatever is put on a stream. Made by task_new(), freed by the stream with task_free(). */
struct task {
	/* Set by its maker. */
	void (*run)(struct task *task); /* on the stream's thread */
	void (*release)(
		struct task *task); /* before it is freed, if it was put on a stream; may be NULL */
	const char *kernel;	    /* its name, NULL for what is no kernel; outlives the task */
	enum task_type type;

	/* Of the stream. */
	struct task *next;
	bool ready; /* the profiler was told; until then the task only keeps its place */
	struct simnpu_task id;
};

/* Zeroed memory for a task and what follows it, NULL when there is none. */
void *task_new(size_t size);
void task_free(struct task *task);

/* Runs it, and notes for the device when. */
void task_execute(struct task *task);

/* A stream of the context, with the lowest number that is free on its device. */
int stream_new(struct context *context, struct stream **out);

/* Waits for all tasks and ends the stream. ACL_ERROR_RT_STREAM_CONTEXT when it has ended already. */
int stream_free(struct stream *s);

/* The stream behind a handle of the calling thread: its context's default stream for NULL. */
int stream_find(void *handle, struct stream **out);

/*
 * Puts the task on the stream, where it belongs to the thread's context, and tells the profiler before the device can know
 * of it. Takes the task over; when it fails, the task is freed and not released.
 */
int stream_submit(struct stream *s, struct task *task);

/* The model that the stream is captured into, NULL for none. The caller does not use it longer than the stream is captured. */
struct model *stream_captured(struct stream *s);

/* Captures the stream as well, if it is not captured yet. */
void stream_capture(struct stream *s, struct model *model);

/*
 * Waits for all tasks put on the stream so far, or on any stream of a device, at most `timeout` milliseconds, -1 for no limit.
 * ACL_ERROR_RT_STREAM_SYNC_TIMEOUT when that was not enough.
 */
int stream_wait(struct stream *s, int32_t timeout);
int stream_wait_device(uint32_t device, int32_t timeout);

#endif
