/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two ways in which a stream calls a function of the program: on the stream's own thread (rtsLaunchHostFunc), or on a thread
 * of the program that subscribed to the stream and comes to rtProcessReport() for its callbacks, one at a time.
 */
#include "host.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "codes.h"
#include "runtime/rt.h"
#include "stream.h"

enum {
	SUBSCRIPTION_MAX = 1024,
};

struct host_task {
	struct task task;
	rtCallback_t fn;
	void *data;
	uint64_t thread; /* for callbacks: who runs it */
	bool blocks;
};

/* A callback that a stream has reached, until the thread has run it. */
struct report {
	struct report *next;
	rtCallback_t fn;
	void *data;
	uint64_t thread;
	bool *done; /* of a stream that waits; NULL when none does */
};

/* Guards what follows. Never held while a function of the program runs. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct {
	uint64_t thread;
	struct stream *stream;
} subscriptions[SUBSCRIPTION_MAX];
static unsigned subscription_count;
static struct report *reports; /* oldest first */

void host_lock(void)
{
	(void)pthread_mutex_lock(&lock);
}

void host_unlock(void)
{
	(void)pthread_mutex_unlock(&lock);
}

void host_forget_tasks(void)
{
	struct report *report;

	while ((report = reports)) {
		reports = report->next;
		free(report);
	}
	(void)pthread_cond_init(&changed, NULL);
}

static void run_function(struct task *task)
{
	struct host_task *t = (struct host_task *)task;

	t->fn(t->data);
}

static void run_callback(struct task *task)
{
	struct host_task *t = (struct host_task *)task;
	struct report *report = malloc(sizeof(*report));
	struct report **link = &reports;
	bool done = false;

	if (!report)
		return;
	*report = (struct report){
		.fn = t->fn,
		.data = t->data,
		.thread = t->thread,
		.done = t->blocks ? &done : NULL,
	};
	host_lock();
	while (*link)
		link = &(*link)->next;
	*link = report;
	(void)pthread_cond_broadcast(&changed);
	while (t->blocks && !done)
		(void)pthread_cond_wait(&changed, &lock);
	host_unlock();
}

static int submit(const struct host_task *what, struct stream *s)
{
	struct host_task *t = task_new(sizeof(*t));

	if (!t)
		return ACL_ERROR_BAD_ALLOC;
	*t = *what;
	t->task.type = TASK_TYPE_HOST;
	return stream_submit(s, &t->task);
}

rtError_t rtsLaunchHostFunc(rtStream_t stm, rtCallback_t fn, void *args)
{
	struct stream *s;
	int error;

	if (!fn)
		return ACL_ERROR_RT_PARAM_INVALID;
	error = stream_find(stm, &s);
	if (error)
		return error;
	return submit(&(struct host_task){.task.run = run_function, .fn = fn, .data = args}, s);
}

/* With the lock: the number of the stream's subscription, or subscription_count. */
static unsigned find_subscription(const struct stream *s)
{
	unsigned n;

	for (n = 0; n < subscription_count && subscriptions[n].stream != s; n++)
		;
	return n;
}

rtError_t rtSubscribeReport(uint64_t threadId, rtStream_t stm)
{
	struct stream *s;
	int error = stream_find(stm, &s);

	if (error)
		return error;
	host_lock();
	if (find_subscription(s) < subscription_count) {
		error = ACL_ERROR_REPEAT_SUBSCRIBE;
	} else if (subscription_count == SUBSCRIPTION_MAX) {
		error = ACL_ERROR_RT_RESOURCE_ALLOC_FAIL;
	} else {
		subscriptions[subscription_count].thread = threadId;
		subscriptions[subscription_count].stream = s;
		subscription_count++;
	}
	host_unlock();
	return error;
}

rtError_t rtUnSubscribeReport(uint64_t threadId, rtStream_t stm)
{
	struct stream *s;
	int error = stream_find(stm, &s);
	unsigned n;

	if (error)
		return error;
	host_lock();
	n = find_subscription(s);
	if (n < subscription_count && subscriptions[n].thread == threadId)
		subscriptions[n] = subscriptions[--subscription_count];
	else
		error = ACL_ERROR_STREAM_NOT_SUBSCRIBE;
	host_unlock();
	return error;
}

rtError_t rtCallbackLaunch(rtCallback_t fn, void *fnData, rtStream_t stm, bool isBlock)
{
	struct host_task what = {
		.task.run = run_callback, .fn = fn, .data = fnData, .blocks = isBlock};
	struct stream *s;
	unsigned n;
	int error;

	if (!fn)
		return ACL_ERROR_RT_PARAM_INVALID;
	error = stream_find(stm, &s);
	if (error)
		return error;
	host_lock();
	n = find_subscription(s);
	if (n < subscription_count)
		what.thread = subscriptions[n].thread;
	else
		error = ACL_ERROR_STREAM_NOT_SUBSCRIBE;
	host_unlock();
	return error ? error : submit(&what, s);
}

/* With the lock: takes the oldest callback of the thread out of the list. */
static struct report *take_report(uint64_t thread)
{
	struct report **link;
	struct report *report;

	for (link = &reports; *link && (*link)->thread != thread; link = &(*link)->next)
		;
	report = *link;
	if (report)
		*link = report->next;
	return report;
}

/* With the lock. */
static bool is_subscribed(uint64_t thread)
{
	unsigned n;

	for (n = 0; n < subscription_count; n++) {
		if (subscriptions[n].thread == thread)
			return true;
	}
	return false;
}

static struct timespec time_after(int32_t timeout_ms)
{
	struct timespec end;

	(void)clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += timeout_ms / 1000;
	end.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
	if (end.tv_nsec >= 1000000000) {
		end.tv_nsec -= 1000000000;
		end.tv_sec++;
	}
	return end;
}

rtError_t rtProcessReport(int32_t timeout)
{
	uint64_t self = (uint64_t)pthread_self();
	struct timespec end = time_after(timeout < 0 ? 0 : timeout);
	struct report *report;
	int failure = 0;

	host_lock();
	if (!is_subscribed(self)) {
		host_unlock();
		return ACL_ERROR_THREAD_NOT_SUBSCRIBE;
	}
	while (!(report = take_report(self)) && failure != ETIMEDOUT) {
		if (timeout < 0)
			(void)pthread_cond_wait(&changed, &lock);
		else
			failure = pthread_cond_timedwait(&changed, &lock, &end);
	}
	host_unlock();
	if (!report)
		return ACL_ERROR_WAIT_CALLBACK_TIMEOUT;
	report->fn(report->data);
	host_lock();
	if (report->done) {
		*report->done = true;
		(void)pthread_cond_broadcast(&changed);
	}
	host_unlock();
	free(report);
	return ACL_SUCCESS;
}
