/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How recording begins in a process, survives its forks, and ends.
 *
 * The first hook that is called looks whether this process is to be recorded, so that a program which never touches device
 * memory leaves nothing. (The one constructor only registers what runs around fork(), and asks an interpreter to tell us when it
 * is about to run the user's script.) The switch lies in a page that the kernel wipes on fork; a child, however it was made,
 * finds 0 there and looks again, with the parent's session and a new file. What it inherited from its parent is left alone: the
 * generation tells.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "collector/loader/walk.h"
#include "collector/python/boot.h"
#include "collector/record/hot.h"
#include "collector/watch/watch_dump.h"
#include "trace/table.h"

_Alignas(COLLECTOR_PAGE) union collector_switch collector_switch;
struct collector collector;
__thread struct writer *collector_writer __attribute__((tls_model("initial-exec")));

pthread_key_t collector_thread_key;
bool collector_thread_key_made;

static _Atomic uint32_t fork_handlers_made;

/* Events that came while there was no header to count them in: those of signal handlers that interrupt look(). */
static _Atomic uint64_t early_losses;

/* glibc's own entry of pthread_atfork(), which is not in libc.so itself. */
extern int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
			     void *dso);
extern void *__dso_handle;

void collector_count_loss(enum loss_cause cause)
{
	struct trace_header *header = collector.header;

	atomic_fetch_add_explicit(header != NULL ? &header->loss[cause] : &early_losses, 1,
				  memory_order_relaxed);
}

void collector_note(const char *format, ...)
{
	uint32_t at;
	va_list args;

	if (!lock_take(&collector.notes_lock))
		return;
	at = atomic_load_explicit(&collector.note_count, memory_order_relaxed);
	if (at < COLLECTOR_NOTES_MAX) {
		va_start(args, format);
		(void)vsnprintf(collector.notes[at], sizeof(collector.notes[at]), format, args);
		va_end(args);
		atomic_store_explicit(&collector.note_count, at + 1, memory_order_relaxed);
	}
	lock_release(&collector.notes_lock);
}

void collector_break(enum trace_stop reason, int error)
{
	uint32_t none = TRACE_STOP_NONE;

	if (atomic_compare_exchange_strong(&collector.header->stop, &none, reason))
		atomic_store(&collector.header->stop_errno, (uint32_t)error);
	atomic_store(&collector_switch.recording, RECORDING_BROKEN);
}

void collector_thread_exit(void *pointer)
{
	struct writer *w = pointer;

	/* A child that was forked by a recording thread inherits the value of the key; its writer is the parent's. */
	if (w->generation != atomic_load(&collector_switch.generation) || w != collector_writer)
		return;
	collector_writer = WRITER_GONE;
	atomic_signal_fence(memory_order_seq_cst);
	writer_park(w);
}

static void after_fork_in_child(void)
{
	/* What the kernel has done already where it can; qemu-user says yes to the wipe and does nothing. */
	atomic_store(&collector_switch.recording, RECORDING_LOOK);
	atomic_store(&collector_switch.c_depth, 0);
	atomic_store(&collector_switch.python_depth, 0);
	atomic_store(&collector_switch.python_shown, 0);
	atomic_store(&collector_switch.generation, 0);
	/* Another thread may have held its lock; nothing that it watched is here. */
	if (atomic_load(&collector_watch.active) != 0)
		watch_reset();
	/* Forked by a signal handler in the middle of our code: that code is not going on here for anybody to wait for. */
	if (collector_writer == WRITER_BUILDING)
		collector_writer = WRITER_NONE;
}

void collector_fork_handlers(void)
{
	/* Once per process image; forked children inherit them. */
	if (MSCOPE_UNLIKELY(atomic_load_explicit(&fork_handlers_made, memory_order_relaxed) == 0) &&
	    atomic_exchange(&fork_handlers_made, 1) == 0)
		(void)__register_atfork(loader_before_fork, loader_after_fork, after_fork_in_child,
					&__dso_handle);
}

/* ---- setting up ---- */

/* Settings of the launch; mapped for writing when possible, so that a failed start can be told. */
struct session *collector_session_map(char *path, size_t path_bytes, const char *directory)
{
	struct session *session;
	int fd;

	(void)snprintf(path, path_bytes, "%s/%s", directory, SESSION_FILE);
	fd = sys_open(path, O_RDWR | O_CLOEXEC, 0);
	if (fd < 0)
		return NULL;
	/* The file is written in full before any process starts; a shorter one is not ours and must not be mapped. */
	if (lseek(fd, 0, SEEK_END) < (off_t)sizeof(*session)) {
		sys_close(fd);
		return NULL;
	}
	session = mmap(NULL, sizeof(*session), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	sys_close(fd);
	if (session == MAP_FAILED)
		return NULL;
	if (memcmp(session->magic, SESSION_MAGIC, sizeof(session->magic)) != 0 ||
	    session->bytes != sizeof(*session)) {
		(void)munmap(session, sizeof(*session));
		return NULL;
	}
	return session;
}

bool collector_is_disabled(void)
{
	const char *value = getenv(SESSION_DISABLE_ENV);

	return value != NULL && value[0] != '\0' && strcmp(value, "0") != 0;
}

bool collector_wants_of(const char *directory, uint32_t *out_wants)
{
	struct session *session =
		collector_is_disabled()
			? NULL
			: collector_session_map(collector.path_scratch,
						sizeof(collector.path_scratch), directory);

	if (session == NULL)
		return false;
	*out_wants = control_wants(session);
	(void)munmap(session, sizeof(*session));
	return true;
}

static void random_bytes(void *out, size_t bytes)
{
	uint64_t *words = out;

	if (syscall(SYS_NR_getrandom, out, bytes, 0) == (long)bytes)
		return;
	/* Before Linux 3.17. Unique, which is all that is asked. */
	words[0] = clock_ns() * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)getpid() << 32;
	words[1] = words[0] ^ (uint64_t)(uintptr_t)&collector_switch;
}

/* The file with its header and first span of space, under a name that the engine does not look at yet. -errno on failure. */
static int raw_create(const struct session *session, const uint8_t *parent_run, int *out_fd,
		      char *out_hidden, size_t hidden_bytes, struct trace_header *h)
{
	uint64_t at;
	int fd, r;

	trace_header_init(h);
	h->pid = collector.pid;
	h->parent_pid = (uint32_t)getppid();
	h->utc_offset_s = session->utc_offset_s;
	h->c_depth = control_apply();
	h->python_shown = collector.python_shown;
	h->first_state = collector.wanted_state != 0 ? collector.wanted_state : session->state;
	random_bytes(h->run_id, sizeof(h->run_id));
	memcpy(h->parent_run_id, parent_run, sizeof(h->parent_run_id));
	memcpy(&h->salt, h->run_id, sizeof(h->salt));
	h->start_ticks = identity_start_ticks();
	atomic_store(&h->state, TRACE_RECORDING);

	(void)snprintf(collector.raw_path, sizeof(collector.raw_path),
		       "%s/%u-%02x%02x%02x%02x%02x%02x%s", collector.session, h->pid, h->run_id[0],
		       h->run_id[1], h->run_id[2], h->run_id[3], h->run_id[4], h->run_id[5],
		       SESSION_RAW);
	(void)snprintf(out_hidden, hidden_bytes, "%s/.%s", collector.session,
		       collector.raw_path + strlen(collector.session) + 1);
	fd = sys_open(out_hidden, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	at = chunk_at(h, 0);
	r = raw_fits_limit(at + TRACE_RESERVE_BYTES);
	if (r < 0) {
		sys_close(fd);
		(void)unlink(out_hidden);
		return r;
	}
	if (ftruncate(fd, (off_t)at) < 0 || sys_fallocate(fd, 0, at + TRACE_RESERVE_BYTES) < 0) {
		int error = errno;

		/* Without fallocate the first chunk's own reservation writes zeros; only the header must be safe now. */
		if (error != EOPNOTSUPP ||
		    sys_pwrite(fd, h, sizeof(*h), 0) != (ssize_t)sizeof(*h)) {
			sys_close(fd);
			(void)unlink(out_hidden);
			return -error;
		}
	} else {
		atomic_store(&h->reserved_chunks, TRACE_RESERVE_BYTES / h->chunk_bytes);
	}
	*out_fd = fd;
	return 0;
}

/* Maps as much of the file as the address space limit allows; the file grows into the mapping. */
static void *raw_map(int fd, const struct trace_header *h, uint32_t *out_chunks,
		     uint64_t *out_bytes)
{
	uint32_t chunks;

	for (chunks = h->chunks_max; chunks >= 64; chunks /= 8) {
		uint64_t bytes = h->chunks_at + (uint64_t)chunks * h->chunk_bytes;
		void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd,
			       0);

		if (p != MAP_FAILED) {
			*out_chunks = chunks;
			*out_bytes = bytes;
			return p;
		}
	}
	return NULL;
}

static void clock_pair(struct trace_header *h)
{
	struct timespec wall;
	uint64_t start = clock_ns(), end;
	int i;

	for (i = 0; i < 32; i++)
		(void)clock_ns();
	end = clock_ns();
	h->clock_cost_ns = (end - start) / 33;
	h->monotonic_ns = clock_ns();
	(void)clock_gettime(CLOCK_REALTIME, &wall);
	h->realtime_ns = (uint64_t)wall.tv_sec * 1000000000u + (uint64_t)wall.tv_nsec;
}

static int raw_open(const struct session *session, const uint8_t *parent_run)
{
	char *hidden = collector.path_scratch;
	struct trace_header first, *h;
	int fd = -1, r;

	r = raw_create(session, parent_run, &fd, hidden, sizeof(collector.path_scratch), &first);
	if (r < 0)
		return r;
	h = raw_map(fd, &first, &collector.chunks_mapped, &collector.mapped_bytes);
	sys_close(fd);
	if (h == NULL) {
		(void)unlink(hidden);
		return -ENOMEM;
	}
	clock_pair(&first);
	first.table_bytes = (uint32_t)trace_table_bytes();
	memcpy((char *)h + TRACE_TABLE_AT, trace_table_text(), first.table_bytes);
	first.identity_bytes = identity_write((char *)h + TRACE_IDENTITY_AT, TRACE_IDENTITY_MAX);
	if (syscall(SYS_NR_membarrier, SYS_MEMBARRIER_REGISTER_EXPEDITED, 0) == 0)
		atomic_store(&first.membarrier, 1);
	memcpy(h, &first, sizeof(first));
	TESTPOINT(header);
	if (rename(hidden, collector.raw_path) < 0) {
		r = -errno;
		(void)munmap(h, collector.mapped_bytes);
		(void)unlink(hidden);
		return r;
	}
	TESTPOINT(named);
	collector.header = h;
	atomic_signal_fence(memory_order_seq_cst);
	atomic_fetch_add(&h->loss[LOSS_starting], atomic_exchange(&early_losses, 0));
	return 0;
}

static void handlers_make(void)
{
	collector_fork_handlers();
	/* Once per process image, too. */
	if (!collector_thread_key_made && pthread_key_create != NULL && pthread_setspecific != NULL)
		collector_thread_key_made =
			pthread_key_create(&collector_thread_key, collector_thread_exit) == 0;
}

/* Everything that look() does once it is this thread's task. Returns the new state. */
static uint32_t look(void)
{
	struct trace_header *inherited = collector.header;
	uint64_t inherited_bytes = collector.mapped_bytes;
	uint8_t parent_run[16] = {0};
	bool unwinder_free = true, loader_free;
	struct session *session;
	uint32_t state = RECORDING_OFF;
	const char *value;
	int r;

	collector.pid = (uint32_t)getpid();
	collector.generation++;
	collector.header = NULL;
	atomic_store(&collector.parked, 0);
	atomic_store(&collector.modules_adds, 0);
	atomic_store(&early_losses, 0);
	atomic_store(&collector.settings_pending, collector.settings_given);
	atomic_store(&collector.steps, 0);
	ascend_reset();
	torch_reset();
	watch_reset();
	if (inherited != NULL) {
		/* Forked: only this thread exists here, nobody else can touch the parent's mapping. */
		memcpy(parent_run, inherited->run_id, sizeof(parent_run));
		atomic_store(&collector.note_count, 0);
		unwinder_free =
			stack_unwinder_is_free(collector.writers, atomic_load(&inherited->writers));
		(void)munmap(inherited, inherited_bytes);
	}
	/* The unwinder wants the loader's lock as well. */
	loader_free = !loader_is_stuck();
	if (collector_is_disabled())
		return RECORDING_OFF;
	if (collector.session[0] == '\0') {
		value = getenv(SESSION_ENV);
		if (value == NULL || value[0] != '/' || strlen(value) >= sizeof(collector.session))
			return RECORDING_OFF;
		memcpy(collector.session, value, strlen(value) + 1);
	}
	/* A forked child knows from its parent that it is the active copy. */
	if (inherited == NULL && lookup_is_passive())
		return RECORDING_OFF;
	session = collector_session_map(collector.path_scratch, sizeof(collector.path_scratch),
					collector.session);
	if (session == NULL)
		return RECORDING_OFF;
	control_read(session);

	/* After a fork the old table belongs to the parent's threads; it is left where it is. */
	collector.writers =
		mmap(NULL, COLLECTOR_WRITERS_MAX * sizeof(*collector.writers),
		     PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	r = (void *)collector.writers == MAP_FAILED ? -ENOMEM : raw_open(session, parent_run);
	if (r < 0) {
		/* The engine tells the user; here nobody may be disturbed. */
		if (atomic_fetch_add(&session->failed_starts, 1) == 0)
			atomic_store(&session->failed_errno, (uint32_t)-r);
	} else {
		uint32_t depth = control_apply();

		handlers_make();
		collector.unwinder_stuck = !unwinder_free || !loader_free;
		if (depth != 0 && !collector.unwinder_stuck)
			stack_setup();
		else if (depth != 0)
			collector_note("forked while a thread was %s: recorded without stacks",
				       unwinder_free ? "in the loader" : "walking its stack");
		watch_setup(session);
		state = collector.header->first_state;
		collector.c_depth = collector.unwinder_stuck ? 0 : depth;
		stack_switch(state == RECORDING_ON);
	}
	(void)munmap(session, sizeof(*session));
	return state;
}

MSCOPE_COLD bool collector_host_is_wanted(void)
{
	const char *directory = getenv(SESSION_ENV);
	char path[SESSION_PATH_MAX + sizeof(SESSION_FILE) + 1];
	int saved_errno = errno;
	struct session *session;
	bool wanted = false;

	if (directory == NULL || directory[0] != '/' || strlen(directory) >= SESSION_PATH_MAX ||
	    collector_is_disabled())
		return false;
	session = collector_session_map(path, sizeof(path), directory);
	if (session != NULL) {
		wanted = session->host != 0;
		(void)munmap(session, sizeof(*session));
	}
	errno = saved_errno;
	return wanted;
}

/* How long a thread waits for another that is looking. */
#define LOOK_WAIT_NS UINT64_C(1000000000)

MSCOPE_COLD uint32_t collector_look_slow(void)
{
	uint32_t expected = RECORDING_LOOK;
	struct writer *before = collector_writer;
	uint64_t start = clock_ns();
	int saved_errno = errno;

	if (before == WRITER_BUILDING) {
		/* A signal handler that interrupted this thread's own look. */
		collector_count_loss(LOSS_starting);
		return RECORDING_OFF;
	}
	for (;;) {
		/* Said before the exchange, so that a handler which comes right after it does not wait for this thread. */
		collector_writer = WRITER_BUILDING;
		atomic_signal_fence(memory_order_seq_cst);
		if (atomic_compare_exchange_strong(&collector_switch.recording, &expected,
						   RECORDING_LOOKING)) {
			(void)madvise(&collector_switch, sizeof(collector_switch),
				      SYS_MADV_WIPEONFORK);
			expected = look();
			/* What a child inherited is its parent's; a thread in teardown stays one. */
			collector_writer = before == WRITER_GONE ? WRITER_GONE : WRITER_NONE;
			atomic_store(&collector_switch.generation, collector.generation);
			atomic_store(&collector_switch.recording, expected);
			break;
		}
		collector_writer = before;
		if (expected != RECORDING_LOOKING)
			break;
		/* Setting up takes well under a millisecond, and an event lost now is lost for good; but nobody waits for ever. */
		if (clock_ns() - start > LOOK_WAIT_NS) {
			collector_count_loss(LOSS_starting);
			expected = RECORDING_OFF;
			break;
		}
		(void)sched_yield();
		expected = RECORDING_LOOK;
	}
	errno = saved_errno;
	return expected;
}

/* Before there are threads: a fork() that begins before the handlers are there is not held up by them. */
__attribute__((constructor)) static void process_start(void)
{
	int saved_errno = errno;

	collector_fork_handlers();
	python_boot();
	errno = saved_errno;
}

/* Tells a clean end from a killed process. Nothing is given back: other threads and exit handlers may still record. */
__attribute__((destructor)) static void process_exit(void)
{
	if (collector.header != NULL && collector.pid == (uint32_t)getpid()) {
		ascend_exit();
		atomic_store(&collector.header->state, TRACE_CLOSED);
		/* The first process of a container takes everything with it, an engine of its own too. */
		if (collector.own_session && collector.pid == 1)
			(void)control_request(TRACE_REQUEST_FINISH, 30000);
	}
}
