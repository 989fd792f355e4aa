/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Windows, steps and requests: what the program asks for through the API while it runs.
 *
 * A window is the time between start() and stop(). Outside of windows the state is shadow, so that blocks older than a window
 * are known when it begins. A change of state is a record of the thread that asked for it; other threads switch at their next
 * event. The record comes before the switch goes on and after it went off, so that whatever belongs to a window lies between
 * the two records; what others record a moment too long is left out by the reader.
 *
 * Requests to the engine are words in the header of the trace, and the engine is woken by a word of the session file. Whether
 * there is an engine is asked by the lock on that file: it holds in other pid namespaces and for unreaped processes, too.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>

#include "collector/api.h"
#include "collector/process/process.h"
#include "collector/python/boot.h"
#include "collector/record/hot.h"
#include "collector/vendor.h"
#include "collector/watch/watch_dump.h"
#include "trace/context.h"
#include "trace/settings.h"

/* ---- settings ---- */

static void settings_in_force(struct event_settings *out)
{
	event_settings_decode(
		collector.settings_given ? collector.settings : collector.session_settings, out);
}

uint32_t control_apply(void)
{
	struct event_settings *chosen = &collector.chosen;

	settings_in_force(chosen);
	collector.python_shown = (uint32_t)chosen->python_depth;
	collector.python_depth =
		collector.python_shown != 0 ? collector.python_shown : SESSION_SITE_WALK;
	collector_watch.level = (uint32_t)chosen->level;
	return chosen->c_depth < WRITER_FRAMES_MAX ? (uint32_t)chosen->c_depth : WRITER_FRAMES_MAX;
}

void control_read(const struct session *session)
{
	struct event_settings settings = settings_of_session(session);

	event_settings_encode(collector.session_settings, &settings);
	collector.host_by_default = session->host_by_default != 0;
}

static uint32_t wants_of(const struct event_settings *settings, bool watch)
{
	uint32_t wants = watch ? PYTHON_WANTS_WATCH : 0;

	if (settings->traceback)
		wants |= PYTHON_WANTS_TRACE;
	if ((settings->level & SESSION_LEVEL_OP) && (settings->events & SESSION_LAUNCH))
		wants |= settings->launch_unnamed && !(settings->analysis & SESSION_INEFFICIENT)
				 ? PYTHON_WANTS_NPU_OPS
				 : PYTHON_WANTS_OPS;
	if ((settings->events | settings_events_of((uint32_t)settings->analysis)) & SESSION_ACCESS)
		wants |= PYTHON_WANTS_ACCESS;
	if (settings->analysis & SESSION_DECOMPOSE)
		wants |= PYTHON_WANTS_LABELS;
	if (settings->host)
		wants |= PYTHON_WANTS_HOST;
	if (settings->optimizer_steps)
		wants |= PYTHON_WANTS_STEPS;
	return wants;
}

uint32_t control_wants(const struct session *session)
{
	struct event_settings settings = settings_of_session(session);

	return wants_of(&settings, session->watch.on != 0);
}

MSCOPE_EXPORT uint32_t mscope_wants(void)
{
	struct event_settings settings;

	(void)mscope_recording();
	settings_in_force(&settings);
	return wants_of(&settings, collector_watch.settings.on != 0 ||
					   atomic_load(&collector_watch.active) != 0);
}

MSCOPE_EXPORT void mscope_settings(uint32_t *out)
{
	struct event_settings settings;

	(void)mscope_recording();
	event_settings_decode(collector.session_settings, &settings);
	settings_to_numbers(&settings, out);
}

MSCOPE_EXPORT int32_t mscope_session(char *out, uint32_t bytes)
{
	(void)mscope_recording();
	if (strlen(collector.session) >= bytes)
		return -ENAMETOOLONG;
	memcpy(out, collector.session, strlen(collector.session) + 1);
	return 0;
}

/* True when they differ from those in force so far. `named` has a bit for each that the program itself named. */
static bool settings_take(const uint32_t *numbers, uint32_t named)
{
	struct event_settings settings = settings_of_numbers(numbers);
	uint64_t words[COLLECTOR_SETTINGS_WORDS] = {0};

	if (collector.host_by_default && (named >> SETTING_host & 1) == 0)
		settings.host = 1;
	settings_complete(&settings, (named >> SETTING_analysis & 1) != 0);
	event_settings_encode(words, &settings);
	if (collector.settings_given && memcmp(words, collector.settings, sizeof(words)) == 0)
		return false;
	memcpy(collector.settings, words, sizeof(words));
	collector.settings_given = true;
	return true;
}

/* ---- windows ---- */

/* The context has the device that the thread works with: the engine asks what that device has free. */
static void put_state(struct writer *w, uint32_t state, uint64_t device)
{
	struct event_state event = {.state = state};

	WRITER_PUT(w, state, writer_device(w, device), &event);
}

MSCOPE_EXPORT int32_t mscope_start(const uint32_t *settings, uint32_t named)
{
	uint32_t recording = mscope_recording(), depth;
	bool changed = false;
	uint64_t device;
	struct writer *w;

	if (recording == RECORDING_BROKEN)
		return collector.header == NULL ? -EACCES : -ENOSPC;
	if (recording != RECORDING_ON && recording != RECORDING_SHADOW)
		return -ENOENT;
	if (settings != NULL)
		changed = settings_take(settings, named);
	if (recording == RECORDING_ON && collector.window && !changed)
		return 0;
	/* What devices finished before the window is dropped: numbers of streams and tasks are used again. */
	if (recording == RECORDING_SHADOW)
		vendors_collect();
	depth = control_apply();
	device = vendor_current_device();
	w = writer_enter();
	if (w == NULL)
		return -EBUSY;
	writer_put_notes(w);
	if (changed)
		writer_put_settings(w);
	put_state(w, RECORDING_ON, device);
	collector.c_depth = depth;
	stack_switch(true);
	/* Not over a trace that broke meanwhile. */
	recording = RECORDING_SHADOW;
	(void)atomic_compare_exchange_strong(&collector_switch.recording, &recording, RECORDING_ON);
	collector.wanted_state = RECORDING_ON;
	collector.window = true;
	writer_leave(w);
	return 0;
}

/* Ends the window of a trace that ran out of space: the caller waits for its files, too. False: there was none. */
static bool window_of_broken(void)
{
	uint32_t wanted = collector.wanted_state;

	if (collector.header == NULL || collector.counts_only)
		return false;
	if (wanted == 0)
		wanted = collector.header->first_state;
	collector.wanted_state = RECORDING_SHADOW;
	collector.window = false;
	return wanted == RECORDING_ON;
}

MSCOPE_EXPORT int32_t mscope_stop(void)
{
	uint32_t on = RECORDING_ON;
	struct writer *w;

	/* It may be the first thing that this process does with us. */
	if (mscope_recording() == RECORDING_ON)
		vendors_collect();
	if (!atomic_compare_exchange_strong(&collector_switch.recording, &on, RECORDING_SHADOW))
		return on == RECORDING_BROKEN && window_of_broken() ? 1 : 0;
	stack_switch(false);
	early_forget();
	collector.wanted_state = RECORDING_SHADOW;
	collector.window = false;
	/* Without a record of it, the window ends with its last event. */
	w = writer_enter();
	if (w != NULL) {
		put_state(w, RECORDING_SHADOW, DEVICE_KEY_NONE);
		writer_leave(w);
	}
	return 1;
}

MSCOPE_EXPORT uint32_t mscope_step(void)
{
	uint32_t context, number = 0;
	uint64_t device;
	struct writer *w;

	if (mscope_recording() != RECORDING_ON)
		return 0;
	device = vendor_current_device();
	w = writer_enter();
	if (w == NULL)
		return 0;
	context = writer_device(w, device);
	number = atomic_fetch_add(&collector.steps, 1) + 1;
	WRITER_PUT(w, step, context, &(struct event_step){.number = number});
	writer_leave(w);
	return number;
}

MSCOPE_EXPORT void mscope_optimizer_step(void)
{
	struct event_optimizer_step event;
	struct writer *w;

	/* The program's own steps count more, once there are enough of them; nothing but optimizers leaves no trace. */
	if (recording_now() != RECORDING_ON || !collector.chosen.optimizer_steps ||
	    atomic_load(&collector.steps) >= STEP_LATE_MARKS ||
	    atomic_load(&collector.writers) == 0)
		return;
	w = writer_enter();
	if (w == NULL)
		return;
	event.number = atomic_fetch_add(&collector.optimizer_steps, 1) + 1;
	WRITER_PUT(w, optimizer_step, 0, &event);
	writer_leave(w);
}

/* ---- requests ---- */

#define WAIT_SLICE_NS 20000000L
/* No thread of the program waits longer for an engine that shows no sign of life (engine/beater.h). */
#define CONTROL_WAIT_NS UINT64_C(10000000000)
/* The second time, for one that has shown none since a thread gave up. */
#define CONTROL_WAIT_AGAIN_NS UINT64_C(1000000000)

/* The trace whose engine was given up, and its heartbeat then. */
static struct {
	_Atomic(const struct trace_header *) header;
	_Atomic uint32_t beat;
} given_up;

/* The engine may be asleep; one word of the session wakes it, whichever process it waits for. */
static void engine_wake(struct session *session)
{
	atomic_fetch_add(&session->wake, 1);
	(void)syscall(SYS_futex, &session->wake, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void control_leave(struct session *session)
{
	atomic_store(&session->left, 1);
	engine_wake(session);
}

int control_request(enum trace_request kind)
{
	return control_request_within(kind, UINT64_MAX);
}

int control_request_within(enum trace_request kind, uint64_t most_ns)
{
	struct timespec slice = {.tv_nsec = WAIT_SLICE_NS};
	struct trace_header *header = collector.header;
	uint32_t number, answer, beat, last_beat;
	char path[SESSION_PATH_MAX + 16];
	uint64_t alive_ns = clock_ns(), start_ns = alive_ns, limit_ns = CONTROL_WAIT_NS;
	struct session *session;
	int saved_errno = errno, r = 0;

	if (header == NULL)
		return -ESRCH;
	session = session_map(path, sizeof(path), collector.session);
	if (session == NULL) {
		r = errno == ENOENT ? -ESRCH : -errno;
		errno = saved_errno;
		return r;
	}
	last_beat = atomic_load(&header->heartbeat);
	if (atomic_load(&given_up.header) == header && atomic_load(&given_up.beat) == last_beat)
		limit_ns = CONTROL_WAIT_AGAIN_NS;
	atomic_store(&header->request_ns, alive_ns);
	atomic_store(&header->request_kind, kind);
	/* Publishes the two before it. Pairs with the acquire in the engine's round. */
	number = atomic_fetch_add(&header->request, 1) + 1;
	engine_wake(session);
	/* `msmemscope ctl` may ask as well; an answer to a later request is one to this. */
	while (most_ns != 0 && (int32_t)((answer = atomic_load(&header->answer)) - number) < 0) {
		(void)syscall(SYS_futex, &header->answer, FUTEX_WAIT, answer, &slice, NULL, 0);
		if ((int32_t)(atomic_load(&header->answer) - number) >= 0)
			break;
		if (!collector_engine_lives()) {
			r = -ESRCH;
			break;
		}
		if (clock_ns() - start_ns >= most_ns) {
			r = -EAGAIN;
			break;
		}
		beat = atomic_load(&header->heartbeat);
		if (beat != last_beat) {
			last_beat = beat;
			alive_ns = clock_ns();
			limit_ns = CONTROL_WAIT_NS;
		} else if (clock_ns() - alive_ns > limit_ns) {
			atomic_store(&given_up.beat, beat);
			atomic_store(&given_up.header, header);
			r = -ETIMEDOUT;
			break;
		}
	}
	(void)munmap(session, sizeof(*session));
	errno = saved_errno;
	return r;
}

/* How long a program waits for an engine that works and is behind: a program that is faster than the engine would wait longer each time. */
#define BEHIND_WAIT_ENV "MSMEMSCOPE_STOP_WAIT"
#define BEHIND_WAIT_S	60u

static uint64_t behind_wait_ns(void)
{
	const char *value = getenv(BEHIND_WAIT_ENV);
	unsigned long seconds = value == NULL ? 0 : strtoul(value, NULL, 10);

	return (seconds == 0 || seconds > UINT32_MAX ? BEHIND_WAIT_S : seconds) *
	       UINT64_C(1000000000);
}

MSCOPE_EXPORT int32_t mscope_flush(void)
{
	return control_request_within(TRACE_REQUEST_FLUSH, behind_wait_ns());
}

MSCOPE_EXPORT int32_t mscope_complete(uint32_t ends)
{
	return ends ? control_request(TRACE_REQUEST_END)
		    : control_request_within(TRACE_REQUEST_COMPLETE, behind_wait_ns());
}
