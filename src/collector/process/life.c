/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How recording begins in a process, survives its forks, and ends.
 *
 * The first hook that is called attaches: it finds out whether this process is to be recorded, and sets everything up. So a
 * program that never touches device memory leaves nothing. (The one constructor only registers what runs around fork(), and
 * asks an interpreter to tell us when it is about to run the user's script.) The switch lies in a page that the kernel wipes on
 * fork; a child, however it was made, finds 0 there and attaches for itself, with the parent's session and a new file. What it
 * inherited from its parent is left alone: the generation tells.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "collector/api.h"
#include "collector/loader/lookup.h"
#include "collector/loader/walk.h"
#include "collector/process/process.h"
#include "collector/python/boot.h"
#include "collector/record/hot.h"
#include "collector/unrecorded_count.h"
#include "collector/unwind/unwind.h"
#include "collector/vendor.h"
#include "collector/watch/watch_dump.h"

static MSCOPE_AT_START _Atomic uint32_t fork_handlers_made;
/* The process that began here, or was made by fork() itself. */
static MSCOPE_AT_START uint32_t start_pid;
MSCOPE_AT_START bool main_is_awaited;

/*
 * glibc's own entry of pthread_atfork(), which is not in libc.so itself. Programs of another libc (musl) inherit the preload from a shell
 * or a launcher, and a name that it lacks would end them: the only one is weak, and nothing is recorded there.
 */
extern int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
			     void *dso) __attribute__((weak));
extern void *__dso_handle;

static bool is_glibc(void)
{
	return &__register_atfork != NULL;
}

static void after_fork_in_child(void)
{
	/* The kernel has done this already where it can; qemu-user accepts the wipe and does nothing. */
	atomic_store(&collector_switch.recording, RECORDING_DETACHED);
	atomic_store(&collector_switch.c_depth, 0);
	atomic_store(&collector_switch.python_depth, 0);
	atomic_store(&collector_switch.python_shown, 0);
	atomic_store(&collector_switch.generation, 0);
	atomic_store(&collector_switch.owner, 0);
	start_pid = (uint32_t)getpid();
	/* Nothing that the parent watched is here. */
	if (atomic_load(&collector_watch.active) != 0)
		watch_reset();
	/* Forked by a signal handler that interrupted our code: no thread must wait for that code here. */
	if (collector_writer == WRITER_BUILDING)
		collector_writer = WRITER_NONE;
}

static void make_fork_handlers(void)
{
	/* Once per process image; forked children inherit them. */
	if (MSCOPE_UNLIKELY(atomic_load_explicit(&fork_handlers_made, memory_order_relaxed) == 0) &&
	    atomic_exchange(&fork_handlers_made, 1) == 0)
		(void)__register_atfork(loader_before_fork, loader_after_fork, after_fork_in_child,
					&__dso_handle);
}

/* ---- attaching ---- */

/*
 * For a process that is not the one that began here: whether it has that one's memory, as a child of vfork() has, or a copy of it. The
 * thread library knows the thread ids of all but children of vfork() and raw clone; it writes them into mutexes. If the kernel does
 * not say either, it is vfork().
 */
static MSCOPE_COLD bool shares_memory(uint32_t pid)
{
	pthread_mutex_t mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
	uint32_t tid;

	(void)pthread_mutex_lock(&mutex);
	tid = (uint32_t)mutex.__data.__owner;
	(void)pthread_mutex_unlock(&mutex);
	return tid != sys_gettid() && syscall(SYS_NR_kcmp, getpid(), pid, SYS_KCMP_VM, 0, 0) <= 0;
}

/*
 * The process whose trace it is. A child of vfork(), or of clone() with shared memory, attaches on behalf of its parent: what it does
 * before its exec is recorded in the parent's trace, and the parent goes on with it.
 */
static uint32_t owner(void)
{
	uint32_t pid = atomic_load(&collector_switch.owner), own = (uint32_t)getpid();

	/* The word is wiped on fork once a process has attached; generation 1 is the first to attach. */
	if (pid == 0) {
		pid = collector.generation == 1 && start_pid != 0 && start_pid != own &&
				      shares_memory(start_pid)
			      ? start_pid
			      : own;
		atomic_store(&collector_switch.owner, pid);
	}
	return pid;
}

/* In a forked child: what it takes from its parent's trace. */
static void leave_parent(struct trace_header *inherited, uint64_t bytes, uint8_t *out_run)
{
	memcpy(out_run, inherited->run_id, sizeof(inherited->run_id));
	atomic_store(&collector.note_count, 0);
	unwind_reset();
	/* Only this thread exists here, so the parent's mapping is not in use. */
	(void)munmap(inherited, bytes);
}

/* What the engine asks of processes; a forked child has its parent's. */
static void map_asked(bool forked)
{
	if (!forked || collector.asked == NULL)
		session_map_asked(collector.path_scratch, sizeof(collector.path_scratch),
				  collector.session);
}

/* For the one thread whose task it is. Returns the new state. */
static uint32_t attach(void)
{
	struct trace_header *inherited = collector.header;
	uint64_t inherited_bytes = collector.mapped_bytes;
	uint8_t parent_run[16] = {0};
	struct session *session;
	uint32_t state = RECORDING_OFF;
	const char *value;
	int r;

	collector.generation++;
	if (!is_glibc())
		return RECORDING_OFF;
	/* A child of a process that has a filter and no session: it goes on as its parent did. */
	if (quiet_is_on() && collector.session[0] == '\0')
		return RECORDING_EARLY;
	/* The filter forbids a trace of its own: what this child does is counted in its parent's. */
	if (quiet_is_on()) {
		collector.counts_only = true;
		return RECORDING_BROKEN;
	}
	collector.pid = owner();
	collector.header = NULL;
	atomic_store(&collector.settings_pending, collector.settings_given);
	atomic_store(&collector.steps, 0);
	atomic_store(&collector.optimizer_steps, 0);
	atomic_store(&collector.ended, 0);
	/* What was seen before the session came is this process's own. */
	if (inherited != NULL || !early_is_used()) {
		atomic_store(&collector.early_losses, 0);
		vendors_reset();
	}
	watch_reset();
	/* After unload() the old mapping stays: a thread may have been too slow to leave it. */
	if (inherited != NULL && !collector.left)
		leave_parent(inherited, inherited_bytes, parent_run);
	collector.left = false;
	if (session_is_disabled())
		return RECORDING_OFF;
	if (collector.session[0] == '\0') {
		value = getenv(SESSION_ENV);
		if (value == NULL)
			return lookup_is_passive_quiet() ? RECORDING_OFF : early_begin();
		if (value[0] != '/' || strlen(value) >= sizeof(collector.session))
			return RECORDING_OFF;
		memcpy(collector.session, value, strlen(value) + 1);
	}
	/* A forked child knows from its parent that it is the active copy. */
	if (inherited == NULL && lookup_is_passive())
		return RECORDING_OFF;
	session = session_map(collector.path_scratch, sizeof(collector.path_scratch),
			      collector.session);
	if (session == NULL)
		return unrecorded_begin(UNRECORDED_SESSION, errno) ? RECORDING_BROKEN
								   : RECORDING_OFF;
	memcpy(collector.session_path, collector.path_scratch, sizeof(collector.session_path));
	map_asked(inherited != NULL);
	unrecorded_know(session->unrecorded, session->unrecorded_cookie);
	control_read(session);
	r = writers_setup();
	if (r == 0)
		r = raw_open(session, parent_run);
	if (r < 0 && unrecorded_begin(UNRECORDED_TRACE, -r)) {
		state = RECORDING_BROKEN;
	} else if (r < 0) {
		/* The engine tells the user; the program must not notice. */
		if (atomic_fetch_add(&session->failed_starts, 1) == 0)
			atomic_store(&session->failed_errno, (uint32_t)-r);
	} else {
		make_fork_handlers();
		collector.c_depth = control_apply();
		watch_setup(session);
		state = collector.header->first_state;
		stack_switch(state == RECORDING_ON);
		if (early_is_used())
			early_write();
	}
	(void)munmap(session, sizeof(*session));
	return state;
}

/* How long a thread waits for another that attaches: once. When one has waited in vain, no other waits any more. */
#define ATTACH_WAIT_NS UINT64_C(1000000000)
static _Atomic bool waited_in_vain;

MSCOPE_COLD uint32_t collector_attach_slow(void)
{
	uint32_t expected = RECORDING_DETACHED, seen = early_progress();
	struct writer *before = collector_writer;
	uint64_t start = clock_ns();
	int saved_errno = errno;

	if (before == WRITER_BUILDING) {
		/* A signal handler that interrupted this thread while it attached. */
		collector_count_loss(LOSS_starting);
		return RECORDING_OFF;
	}
	for (;;) {
		/* Whoever attaches is not to be left by siglongjmp(): all others would wait for it. */
		uint64_t signals = sys_signals_block();

		/* Stored before the exchange, so that a signal handler right after it does not wait for this thread. */
		collector_writer = WRITER_BUILDING;
		atomic_signal_fence(memory_order_seq_cst);
		if (atomic_compare_exchange_strong(&collector_switch.recording, &expected,
						   RECORDING_ATTACHING)) {
			/* A child of a quiet process has it from its parent. */
			if (!quiet_is_on())
				(void)madvise(&collector_switch, sizeof(collector_switch),
					      SYS_MADV_WIPEONFORK);
			expected = attach();
			/* What a child inherited is its parent's; a thread in teardown stays one. */
			collector_writer = before == WRITER_GONE ? WRITER_GONE : WRITER_NONE;
			atomic_store(&collector_switch.generation, collector.generation);
			atomic_store(&collector_switch.recording, expected);
			atomic_store(&waited_in_vain, false);
			sys_signals_restore(signals);
			break;
		}
		collector_writer = before;
		sys_signals_restore(signals);
		if (expected != RECORDING_ATTACHING)
			break;
		/* Many early blocks are written: a fraction of a microsecond each. */
		if (early_progress() != seen) {
			seen = early_progress();
			start = clock_ns();
		}
		/* Attaching takes well under a millisecond, and waiting saves the event; but no thread waits for ever. */
		if (atomic_load(&waited_in_vain) || clock_ns() - start > ATTACH_WAIT_NS) {
			atomic_store(&waited_in_vain, true);
			collector_count_loss(LOSS_starting);
			expected = RECORDING_OFF;
			break;
		}
		sys_yield();
		expected = RECORDING_DETACHED;
	}
	errno = saved_errno;
	return expected;
}

/* Runs before there are threads: the handlers must be registered before the first fork(). */
__attribute__((constructor)) static void process_start(void)
{
	const char *session = getenv(SESSION_ENV);
	int saved_errno = errno;
	bool in_session;
	uint32_t wants = 0;

	if (!is_glibc())
		return;
	make_fork_handlers();
	start_pid = (uint32_t)getpid();
	/* The interpreter has an end of its own. */
	if (!python_is_starting()) {
		main_is_awaited = session != NULL;
	} else {
		in_session = session != NULL && session[0] == '/' && session_wants(session, &wants);
		python_boot(in_session, wants);
	}
	errno = saved_errno;
}

MSCOPE_COLD void program_end(enum end_kind kind)
{
	uint32_t recording = recording_now();
	struct writer *w = collector_writer;

	if ((recording != RECORDING_ON && recording != RECORDING_SHADOW) ||
	    collector.header == NULL)
		return;
	/* This record alone must not make a process leave a trace. */
	if (atomic_load(&collector.writers) == 0)
		return;
	/* exit() in a signal handler that interrupted our code. */
	if (w == WRITER_BUILDING || (w > WRITER_GONE && w->entered != 0))
		return;
	/* A child of vfork() leaves, not this program. */
	if (!quiet_is_on() && collector.pid != sys_getpid())
		return;
	if (atomic_exchange(&collector.ended, 1) != 0)
		return;
	vendors_collect();
	w = writer_enter();
	if (w == NULL)
		return;
	WRITER_PUT(w, ended, 0, &(struct event_ended){.kind = kind});
	writer_leave(w);
}

MSCOPE_EXPORT void mscope_ended(void)
{
	program_end(END_INTERPRETER);
}

/* The trace is whole. Threads that still record make more of it than is said here, which does no harm. */
static void close_trace(void)
{
	atomic_store(&collector.header->made_records, writers_made());
	collector_tell_losses();
	atomic_store(&collector.header->state, TRACE_CLOSED);
}

/*
 * From now on this process is as one that never recorded: what it frees is not seen any more, so its trace must end. The engine of a
 * session of its own finishes the files and ends; one of a command finishes them with the process.
 */
MSCOPE_EXPORT int32_t mscope_leave(void)
{
	uint32_t recording = mscope_recording();
	struct session *session;
	int r = 0;

	if (collector.header == NULL || collector.left || recording == RECORDING_OFF ||
	    collector.pid != sys_getpid())
		return -ENOENT;
	vendors_collect();
	collector_write_notes();
	atomic_store(&collector_switch.recording, RECORDING_OFF);
	writers_drain();
	close_trace();
	session = session_map(collector.path_scratch, sizeof(collector.path_scratch),
			      collector.session);
	if (session == NULL && collector.own_session)
		r = errno == ENOENT ? -ESRCH : -errno;
	if (session != NULL && collector.own_session) {
		r = control_request(TRACE_REQUEST_FINISH);
		control_leave(session);
	}
	if (session != NULL)
		(void)munmap(session, sizeof(*session));
	collector.session[0] = '\0';
	collector.own_session = false;
	collector.window = false;
	collector.wanted_state = 0;
	collector.left = true;
	return r;
}

/*
 * The engine of a session of this process's own finishes the files while the process waits for it, as stop() does: none appears after the
 * program has ended. Children that record into the session have an end of their own. What is freed after this is not recorded.
 */
static void end_own_session(void)
{
	struct session *session = session_map(collector.path_scratch,
					      sizeof(collector.path_scratch), collector.session);

	if (session == NULL)
		return;
	/* The first process of a container takes the engine with it. */
	if ((session->launch_pid == collector.pid || collector.pid == 1) &&
	    control_request(TRACE_REQUEST_FINISH) == 0) {
		atomic_store(&collector_switch.recording, RECORDING_OFF);
		control_leave(session);
	}
	(void)munmap(session, sizeof(*session));
}

/* Marks a clean end. Nothing is freed: other threads and exit handlers may still record. */
__attribute__((destructor)) static void process_exit(void)
{
	/* A child that has recorded nothing is detached, or still has its parent's pid here. */
	if (recording_now() != RECORDING_DETACHED && collector.header != NULL &&
	    !collector.counts_only && collector.pid == sys_getpid()) {
		vendors_exit();
		close_trace();
		if (collector.own_session)
			end_own_session();
	}
}
