/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Locks, in this order: contexts (device.c), streams_lock, events (event.c), one per stream, kernels (kernel.c), callbacks
 * (host.c), models (model.c). Nothing is locked while a task runs or the profiler is told, so either may take its time and call us.
 */
#include "stream.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "codes.h"
#include "known.h"
#include "device.h"
#include "event.h"
#include "host.h"
#include "kernel.h"
#include "log.h"
#include "model.h"
#include "runtime/rt.h"
#include "slab.h"
#include "track.h"

enum {
	STREAM_MAX = 1 << 16,
	STREAM_NUMBERS = 1 << 11,	   /* on one device, */
	STREAM_NUMBERS_EXPANDED = 1 << 15, /* or so many */
};

struct stream {
	struct slab_entry entry;
	bool initialised; /* the place was used before, so the locks are there. Under streams_lock */

	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t wake;  /* for the thread: something to do */
	pthread_cond_t done;  /* for others: a task has ended */
	bool open;
	bool has_thread;
	pthread_t thread;
	struct context *context;
	uint32_t device;
	uint32_t number;
	uint32_t next_task;
	struct task *head;
	struct task **tail;
	uint64_t submitted;
	uint64_t finished;
	struct model *capture; /* where tasks go instead, NULL for none */
	char failure[128];     /* why its first task failed that did, empty for none */
};

static struct slab streams = SLAB_INIT(struct stream, STREAM_MAX);

/* Guards the beginning and the end of streams, and the numbers in use. */
static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t numbers[DEVICE_MAX][STREAM_NUMBERS_EXPANDED / 64];

/* The stream whose tasks this thread runs, NULL in threads of the program. */
static _Thread_local struct stream *served;

/* What the last wait of this thread found. */
static _Thread_local char found_failure[128];

/* The last task number of a device, where these are unique on it. */
static _Atomic uint32_t last_task[DEVICE_MAX];

void *task_new(size_t size)
{
	return calloc(1, size);
}

void task_free(struct task *task)
{
	if (task->release)
		task->release(task);
	free(task);
}

/* With streams_lock. */
static bool take_number(uint32_t device, uint32_t *out)
{
	uint32_t count = halSimStreamsExpanded() ? STREAM_NUMBERS_EXPANDED : STREAM_NUMBERS;
	uint32_t n;

	for (n = 0; n < count / 64; n++) {
		uint64_t *word = &numbers[device][n];

		if (~*word) {
			uint32_t bit = (uint32_t)__builtin_ctzll(~*word);

			*word |= 1ULL << bit;
			*out = n * 64 + bit;
			return true;
		}
	}
	return false;
}

static void give_number(uint32_t device, uint32_t number)
{
	numbers[device][number / 64] &= ~(1ULL << number % 64);
}

/* Waits on `done` may have an end, which no change of the host's time shall move. */
static void init_conditions(struct stream *s)
{
	pthread_condattr_t monotonic;

	(void)pthread_condattr_init(&monotonic);
	(void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&s->wake, NULL);
	(void)pthread_cond_init(&s->done, &monotonic);
	(void)pthread_condattr_destroy(&monotonic);
}

static void init_locks(struct stream *s)
{
	if (s->initialised)
		return;
	(void)pthread_mutex_init(&s->lock, NULL);
	init_conditions(s);
	s->initialised = true;
}

int stream_new(struct context *context, struct stream **out)
{
	uint32_t device = context_device(context);
	struct stream *s = NULL;
	uint32_t number;

	(void)pthread_mutex_lock(&streams_lock);
	if (take_number(device, &number)) {
		s = slab_take(&streams);
		if (!s)
			give_number(device, number);
	}
	if (s) {
		init_locks(s);
		(void)pthread_mutex_lock(&s->lock);
		s->open = true;
		s->context = context;
		s->device = device;
		s->number = number;
		s->next_task = 0;
		s->head = NULL;
		s->tail = &s->head;
		s->capture = NULL;
		s->failure[0] = '\0';
		(void)pthread_mutex_unlock(&s->lock);
		*out = s;
	}
	(void)pthread_mutex_unlock(&streams_lock);
	return s ? ACL_SUCCESS : ACL_ERROR_RT_RESOURCE_ALLOC_FAIL;
}

int stream_free(struct stream *s)
{
	struct model *capture;
	bool has_thread;
	pthread_t thread;

	(void)pthread_mutex_lock(&s->lock);
	if (!s->open) {
		(void)pthread_mutex_unlock(&s->lock);
		return ACL_ERROR_RT_STREAM_CONTEXT;
	}
	s->open = false;
	has_thread = s->has_thread;
	thread = s->thread;
	s->has_thread = false;
	capture = s->capture;
	s->capture = NULL;
	(void)pthread_cond_signal(&s->wake);
	(void)pthread_mutex_unlock(&s->lock);
	if (has_thread)
		(void)pthread_join(thread, NULL);
	if (capture)
		model_drop(capture);

	(void)pthread_mutex_lock(&streams_lock);
	give_number(s->device, s->number);
	slab_give(&streams, s);
	(void)pthread_mutex_unlock(&streams_lock);
	return ACL_SUCCESS;
}

int stream_find(void *handle, struct stream **out)
{
	struct context *context;
	int error;

	if (handle) {
		if (!slab_holds(&streams, handle))
			return ACL_ERROR_RT_STREAM_CONTEXT;
		*out = handle;
		return ACL_SUCCESS;
	}
	error = context_current(&context);
	return error ? error : context_stream(context, out);
}

void task_execute(struct task *task)
{
	uint64_t begin_ns = halSimTime();
	uint64_t end_ns;

	halSimTaskBegins(&task->id, begin_ns);
	task->run(task);
	end_ns = halSimTime();
	if (task->kernel)
		log_kernel(&task->id, task->kernel, begin_ns, end_ns);
	halSimTaskEnds(&task->id, end_ns);
}

static void *serve(void *argument)
{
	struct stream *s = argument;
	struct task *task;
	char name[16];

	served = s;
	(void)snprintf(name, sizeof(name), "npu%u-%u", s->device, s->number);
	(void)pthread_setname_np(pthread_self(), name);

	(void)pthread_mutex_lock(&s->lock);
	for (;;) {
		while (!(s->head && s->head->ready) && (s->open || s->head))
			(void)pthread_cond_wait(&s->wake, &s->lock);
		task = s->head;
		if (!task)
			break;
		s->head = task->next;
		if (!s->head)
			s->tail = &s->head;
		(void)pthread_mutex_unlock(&s->lock);
		task_execute(task);
		task_free(task);
		(void)pthread_mutex_lock(&s->lock);
		s->finished++;
		(void)pthread_cond_broadcast(&s->done);
	}
	(void)pthread_mutex_unlock(&s->lock);
	return NULL;
}

/* With the stream's lock. The program's signals are none of the device's business. */
static bool start_thread(struct stream *s)
{
	sigset_t all;
	sigset_t before;

	if (s->has_thread)
		return true;
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	s->has_thread = pthread_create(&s->thread, NULL, serve, s) == 0;
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	return s->has_thread;
}

static void number_task(struct stream *s, struct task *task)
{
	static const enum simnpu_task_kind kinds[] = {
		[TASK_TYPE_AICORE] = SIMNPU_TASK_AICORE,
		[TASK_TYPE_AICPU] = SIMNPU_TASK_AICPU,
		[TASK_TYPE_EVENT_RECORD] = SIMNPU_TASK_EVENT_RECORD,
		[TASK_TYPE_EVENT_WAIT] = SIMNPU_TASK_EVENT_WAIT,
		[TASK_TYPE_MEMCPY] = SIMNPU_TASK_COPY,
		[TASK_TYPE_MODEL] = SIMNPU_TASK_PLACE_HOLDER,
		[TASK_TYPE_HOST] = SIMNPU_TASK_PLACE_HOLDER,
	};

	task->id.device = s->device;
	task->id.stream = s->number;
	task->id.kind = kinds[task->type];
	task->id.id = halSimSocIsNew() ? atomic_fetch_add_explicit(&last_task[s->device], 1,
								   memory_order_relaxed)
				       : s->next_task++;
}

/* Gives the task its numbers and its place; `*capture` is the model that is to have it instead, with a use of its own. */
static int append(struct stream *s, struct context *context, struct task *task,
		  struct model **capture)
{
	int error = ACL_SUCCESS;

	*capture = NULL;

	(void)pthread_mutex_lock(&s->lock);
	if (!s->open || s->context != context) {
		error = ACL_ERROR_RT_STREAM_CONTEXT;
	} else if (s->capture) {
		number_task(s, task);
		*capture = model_use(s->capture);
	} else if (!start_thread(s)) {
		error = ACL_ERROR_RT_RESOURCE_ALLOC_FAIL;
	} else {
		number_task(s, task);
		*s->tail = task;
		s->tail = &task->next;
		s->submitted++;
	}
	(void)pthread_mutex_unlock(&s->lock);
	return error;
}

int stream_submit(struct stream *s, struct task *task)
{
	struct context *context;
	struct model *capture;
	int error;

	error = context_current(&context);
	if (!error)
		error = append(s, context, task, &capture);
	if (error) {
		free(task);
		return error;
	}
	track_task(&task->id, task->type, task->kernel);
	if (capture) {
		model_append(capture, task);
		model_drop(capture);
		return ACL_SUCCESS;
	}
	(void)pthread_mutex_lock(&s->lock);
	task->ready = true;
	(void)pthread_cond_signal(&s->wake);
	(void)pthread_mutex_unlock(&s->lock);
	return ACL_SUCCESS;
}

/* `timeout` milliseconds from now; NULL, for no end, when that is negative. */
static const struct timespec *deadline_after(int32_t timeout, struct timespec *room)
{
	const int64_t second_ns = 1000000000;
	int64_t ns;

	if (timeout < 0)
		return NULL;
	(void)clock_gettime(CLOCK_MONOTONIC, room);
	ns = room->tv_nsec + (int64_t)timeout * 1000000;
	room->tv_sec += ns / second_ns;
	room->tv_nsec = ns % second_ns;
	return room;
}

/* With the stream's lock. */
static int wait_locked(struct stream *s, const struct timespec *deadline)
{
	uint64_t target = s->submitted;
	int failure = 0;

	while (s->finished < target && !failure) {
		if (deadline)
			failure = pthread_cond_timedwait(&s->done, &s->lock, deadline);
		else
			(void)pthread_cond_wait(&s->done, &s->lock);
	}
	if (s->finished < target)
		return ACL_ERROR_RT_STREAM_SYNC_TIMEOUT;
	if (!s->failure[0])
		return ACL_SUCCESS;
	memcpy(found_failure, s->failure, sizeof(found_failure));
	return ACL_ERROR_RT_AICORE_EXCEPTION;
}

void rtSimTaskFailed(const char *why)
{
	struct stream *s = served;

	if (!s)
		return;
	(void)pthread_mutex_lock(&s->lock);
	if (!s->failure[0])
		(void)snprintf(s->failure, sizeof(s->failure), "%s", why);
	(void)pthread_mutex_unlock(&s->lock);
}

const char *rtSimFailure(void)
{
	return found_failure;
}

int stream_wait(struct stream *s, int32_t timeout)
{
	struct timespec room;
	const struct timespec *deadline = deadline_after(timeout, &room);
	int error = ACL_ERROR_RT_STREAM_CONTEXT;

	(void)pthread_mutex_lock(&s->lock);
	if (s->open)
		error = wait_locked(s, deadline);
	(void)pthread_mutex_unlock(&s->lock);
	return error;
}

int stream_wait_device(uint32_t device, int32_t timeout)
{
	struct timespec room;
	const struct timespec *deadline = deadline_after(timeout, &room);
	uint32_t count = slab_count(&streams);
	int error = ACL_SUCCESS;
	uint32_t n;

	for (n = 0; n < count && !error; n++) {
		struct stream *s = slab_at(&streams, n);

		if (!slab_holds(&streams, s))
			continue;
		(void)pthread_mutex_lock(&s->lock);
		if (s->open && s->device == device)
			error = wait_locked(s, deadline);
		(void)pthread_mutex_unlock(&s->lock);
	}
	return error;
}

struct model *stream_captured(struct stream *s)
{
	struct model *capture;

	(void)pthread_mutex_lock(&s->lock);
	capture = s->capture;
	(void)pthread_mutex_unlock(&s->lock);
	return capture;
}

void stream_capture(struct stream *s, struct model *model)
{
	(void)pthread_mutex_lock(&s->lock);
	if (!s->capture)
		s->capture = model_use(model);
	(void)pthread_mutex_unlock(&s->lock);
}

/* What is put on streams runs again, on all that were captured into the model. */
static void release_streams(struct model *model)
{
	uint32_t n;

	for (n = 0; n < slab_count(&streams); n++) {
		struct stream *s = slab_at(&streams, n);
		bool captured;

		(void)pthread_mutex_lock(&s->lock);
		captured = s->capture == model;
		if (captured)
			s->capture = NULL;
		(void)pthread_mutex_unlock(&s->lock);
		if (captured)
			model_drop(model);
	}
}

rtError_t rtsStreamBeginCapture(rtStream_t stm)
{
	struct model *model;
	struct stream *s;
	int error;

	/* The default stream cannot be captured. */
	if (!stm)
		return ACL_ERROR_RT_PARAM_INVALID;
	error = stream_find(stm, &s);
	if (error)
		return error;
	if (stream_captured(s))
		return ACL_ERROR_RT_STREAM_CAPTURED;
	model = model_new();
	if (!model)
		return ACL_ERROR_BAD_ALLOC;
	stream_capture(s, model);
	model_drop(model);
	return ACL_SUCCESS;
}

rtError_t rtsStreamEndCapture(rtStream_t stm, rtModel_t *captureMdl)
{
	struct model *model;
	struct stream *s;
	int error;

	if (!captureMdl)
		return ACL_ERROR_RT_PARAM_INVALID;
	error = stream_find(stm, &s);
	if (error)
		return error;
	model = stream_captured(s);
	if (!model)
		return ACL_ERROR_RT_STREAM_NOT_CAPTURED;
	*captureMdl = model_use(model);
	release_streams(model);
	return ACL_SUCCESS;
}

rtError_t rtSimStreamCapture(rtStream_t stm, rtModel_t *captureMdl)
{
	struct stream *s;
	int error;

	if (!captureMdl)
		return ACL_ERROR_RT_PARAM_INVALID;
	error = stream_find(stm, &s);
	if (!error)
		*captureMdl = stream_captured(s);
	return error;
}

rtError_t rtStreamCreate(rtStream_t *stm, int32_t priority)
{
	struct context *context;
	struct stream *s;
	int error;

	(void)priority;
	if (!stm)
		return ACL_ERROR_RT_PARAM_INVALID;
	error = context_current(&context);
	if (!error)
		error = stream_new(context, &s);
	if (!error)
		*stm = s;
	return error;
}

rtError_t rtStreamDestroy(rtStream_t stm)
{
	return slab_holds(&streams, stm) ? stream_free(stm) : ACL_ERROR_RT_STREAM_CONTEXT;
}

rtError_t rtStreamSynchronize(rtStream_t stm)
{
	return rtStreamSynchronizeWithTimeout(stm, -1);
}

rtError_t rtStreamSynchronizeWithTimeout(rtStream_t stm, int32_t timeout)
{
	struct stream *s;
	int error = stream_find(stm, &s);

	if (!error)
		error = stream_wait(s, timeout);
	known_tell();
	return error;
}

rtError_t rtSimStreamIdle(rtStream_t stm, bool *idle)
{
	struct stream *s;
	int error;

	if (!idle)
		return ACL_ERROR_RT_PARAM_INVALID;
	error = stream_find(stm, &s);
	if (error)
		return error;
	(void)pthread_mutex_lock(&s->lock);
	*idle = s->finished == s->submitted;
	(void)pthread_mutex_unlock(&s->lock);
	return ACL_SUCCESS;
}

rtError_t rtGetStreamId(rtStream_t stm, int32_t *streamId)
{
	struct stream *s;
	int error;

	if (!streamId)
		return ACL_ERROR_RT_PARAM_INVALID;
	error = stream_find(stm, &s);
	if (!error)
		*streamId = (int32_t)s->number;
	return error;
}

static void before_fork(void)
{
	uint32_t n;

	device_lock();
	(void)pthread_mutex_lock(&streams_lock);
	event_lock();
	for (n = 0; n < slab_count(&streams); n++)
		(void)pthread_mutex_lock(&((struct stream *)slab_at(&streams, n))->lock);
	kernel_lock();
	host_lock();
	model_lock();
}

static void after_fork(void)
{
	uint32_t n;

	model_unlock();
	host_unlock();
	kernel_unlock();
	for (n = slab_count(&streams); n-- > 0;)
		(void)pthread_mutex_unlock(&((struct stream *)slab_at(&streams, n))->lock);
	event_unlock();
	(void)pthread_mutex_unlock(&streams_lock);
	device_unlock();
}

/* The threads are gone, and so is whoever waited. */
static void empty(struct stream *s)
{
	struct task *task;

	while ((task = s->head)) {
		s->head = task->next;
		task_free(task);
	}
	s->tail = &s->head;
	s->finished = s->submitted;
	s->has_thread = false;
	s->failure[0] = '\0';
	init_conditions(s);
}

static void after_fork_in_child(void)
{
	uint32_t n;

	for (n = 0; n < slab_count(&streams); n++)
		empty(slab_at(&streams, n));
	event_forget_tasks();
	host_forget_tasks();
	after_fork();
}

__attribute__((constructor)) static void watch_forks(void)
{
	(void)pthread_atfork(before_fork, after_fork, after_fork_in_child);
}
