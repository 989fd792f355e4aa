/* SPDX-License-Identifier: Apache-2.0 */
#include "event.h"
#include "known.h"

#include <pthread.h>
#include <stdlib.h>

#include "codes.h"
#include "runtime/rt.h"
#include "slab.h"
#include "stream.h"

enum {
	EVENT_MAX = 1 << 18,
	EVENT_NOT_READY = 0,
	EVENT_COMPLETE = 1,
};

struct event {
	struct slab_entry entry;
	bool open;	   /* not destroyed by the program; tasks may still need it */
	uint32_t tasks;	   /* on streams, that refer to it */
	uint64_t recorded; /* how often it was put on a stream */
	uint64_t reached;  /* the last of these that ran */
	uint64_t time_ns;  /* when that was, 0 for never */
	struct stream
		*captured; /* where it was recorded last, if that stream is captured; else NULL */
};

struct event_task {
	struct task task;
	struct event *event;
	uint64_t number; /* which record it makes or waits for */
};

/* Guards all events. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t reached = PTHREAD_COND_INITIALIZER;
static struct slab events = SLAB_INIT(struct event, EVENT_MAX);

void event_lock(void)
{
	(void)pthread_mutex_lock(&lock);
}

void event_unlock(void)
{
	(void)pthread_mutex_unlock(&lock);
}

void event_forget_tasks(void)
{
	uint32_t n;

	for (n = 0; n < slab_count(&events); n++) {
		struct event *event = slab_at(&events, n);

		event->reached = event->recorded;
		event->tasks = 0;
	}
	(void)pthread_cond_init(&reached, NULL);
}

/* With the lock. */
static struct event *find(void *handle)
{
	struct event *event = handle;

	return slab_holds(&events, event) && event->open ? event : NULL;
}

/* With the lock. */
static void drop(struct event *event)
{
	if (!event->open && event->tasks == 0)
		slab_give(&events, event);
}

/* With the lock. */
static void reach(struct event *event, uint64_t number, uint64_t time_ns)
{
	if (number > event->reached) {
		event->reached = number;
		event->time_ns = time_ns;
	}
	(void)pthread_cond_broadcast(&reached);
}

static void run_record(struct task *task)
{
	struct event_task *t = (struct event_task *)task;

	event_lock();
	reach(t->event, t->number, halSimTime());
	t->event->tasks--;
	drop(t->event);
	event_unlock();
}

static void run_wait(struct task *task)
{
	struct event_task *t = (struct event_task *)task;

	event_lock();
	while (t->event->reached < t->number)
		(void)pthread_cond_wait(&reached, &lock);
	t->event->tasks--;
	drop(t->event);
	event_unlock();
}

/*
 * Events of captured streams have no time and no place in the model, which keeps the order anyway: they only let other streams be
 * captured. Whether this was one of them.
 */
static bool note_capture(void *handle, struct stream *s, bool records)
{
	struct model *own = stream_captured(s);
	struct stream *from = NULL;
	struct model *model;
	struct event *event;

	event_lock();
	event = find(handle);
	if (event && records)
		event->captured = own ? s : NULL;
	else if (event)
		from = event->captured;
	event_unlock();
	if (!event)
		return false;
	if (records)
		return own;
	model = from ? stream_captured(from) : NULL;
	if (model)
		stream_capture(s, model);
	return model;
}

static int submit(void *handle, void *stream, enum task_type type)
{
	bool records = type == TASK_TYPE_EVENT_RECORD;
	struct event_task *t;
	struct event *event;
	uint64_t number = 0;
	struct stream *s;
	int error;

	error = stream_find(stream, &s);
	if (error)
		return error;
	if (note_capture(handle, s, records))
		return ACL_SUCCESS;
	t = task_new(sizeof(*t));
	if (!t)
		return ACL_ERROR_BAD_ALLOC;
	event_lock();
	event = find(handle);
	if (event) {
		if (records)
			event->recorded++;
		number = event->recorded;
		event->tasks++;
	}
	event_unlock();
	if (!event) {
		free(t);
		return ACL_ERROR_RT_PARAM_INVALID;
	}
	t->task.type = type;
	t->task.run = records ? run_record : run_wait;
	t->event = event;
	t->number = number;
	error = stream_submit(s, &t->task);
	if (error) {
		/* Nobody shall wait for what will not come. */
		event_lock();
		if (records)
			reach(event, number, 0);
		event->tasks--;
		drop(event);
		event_unlock();
	}
	return error;
}

rtError_t rtEventCreate(rtEvent_t *evt)
{
	struct event *event;

	if (!evt)
		return ACL_ERROR_RT_PARAM_INVALID;
	event_lock();
	event = slab_take(&events);
	if (event) {
		event->open = true;
		event->tasks = 0;
		event->recorded = 0;
		event->reached = 0;
		event->time_ns = 0;
		event->captured = NULL;
		*evt = event;
	}
	event_unlock();
	return event ? ACL_SUCCESS : ACL_ERROR_RT_RESOURCE_ALLOC_FAIL;
}

rtError_t rtEventDestroy(rtEvent_t evt)
{
	struct event *event;

	event_lock();
	event = find(evt);
	if (event) {
		event->open = false;
		drop(event);
	}
	event_unlock();
	return event ? ACL_SUCCESS : ACL_ERROR_RT_PARAM_INVALID;
}

rtError_t rtEventRecord(rtEvent_t evt, rtStream_t stm)
{
	return submit(evt, stm, TASK_TYPE_EVENT_RECORD);
}

rtError_t rtStreamWaitEvent(rtStream_t stm, rtEvent_t evt)
{
	return submit(evt, stm, TASK_TYPE_EVENT_WAIT);
}

/* An event that is recorded again is new by itself; whoever waits for the last record still gets it. */
rtError_t rtEventReset(rtEvent_t evt, rtStream_t stm)
{
	struct event *event;
	struct stream *s;
	int error = stream_find(stm, &s);

	if (error)
		return error;
	event_lock();
	event = find(evt);
	event_unlock();
	return event ? ACL_SUCCESS : ACL_ERROR_RT_PARAM_INVALID;
}

rtError_t rtEventSynchronize(rtEvent_t evt)
{
	struct event *event;
	uint64_t number;

	event_lock();
	event = find(evt);
	if (event) {
		number = event->recorded;
		event->tasks++;
		while (event->reached < number)
			(void)pthread_cond_wait(&reached, &lock);
		event->tasks--;
		drop(event);
	}
	event_unlock();
	known_tell();
	return event ? ACL_SUCCESS : ACL_ERROR_RT_PARAM_INVALID;
}

rtError_t rtEventQueryStatus(rtEvent_t evt, int32_t *status)
{
	struct event *event;

	if (!status)
		return ACL_ERROR_RT_PARAM_INVALID;
	event_lock();
	event = find(evt);
	if (event)
		*status = event->reached == event->recorded ? EVENT_COMPLETE : EVENT_NOT_READY;
	event_unlock();
	return event ? ACL_SUCCESS : ACL_ERROR_RT_PARAM_INVALID;
}

/* With the lock: whether it has a time, and is not on its way to another one. */
static bool is_timed(const struct event *event)
{
	return event && event->time_ns && event->reached == event->recorded;
}

rtError_t rtEventGetTimeStamp(uint64_t *timeval, rtEvent_t evt)
{
	const struct event *event;
	int error = ACL_ERROR_RT_PARAM_INVALID;

	if (!timeval)
		return error;
	event_lock();
	event = find(evt);
	if (is_timed(event)) {
		*timeval = event->time_ns;
		error = ACL_SUCCESS;
	}
	event_unlock();
	return error;
}

rtError_t rtEventElapsedTime(float *timeInterval, rtEvent_t startEvent, rtEvent_t endEvent)
{
	const struct event *start;
	const struct event *end;
	int error = ACL_ERROR_RT_PARAM_INVALID;

	if (!timeInterval)
		return error;
	event_lock();
	start = find(startEvent);
	end = find(endEvent);
	if (is_timed(start) && is_timed(end)) {
		*timeInterval = (float)((double)(int64_t)(end->time_ns - start->time_ns) / 1e6);
		error = ACL_SUCCESS;
	}
	event_unlock();
	return error;
}
