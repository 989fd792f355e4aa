/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The raw trace of this process: made under a name that the engine does not follow yet, filled with what never changes, mapped, and
 * given its name last. trace/chunk.h is the layout.
 */
#include "collector/process/process.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>

#include "collector/record/chunk_supply.h"
#include "collector/record/writer.h"
#include "collector/sys.h"
#include "collector/testpoint.h"
#include "trace/table.h"

static void random_bytes(void *out, size_t bytes)
{
	uint64_t *words = out;

	if (syscall(SYS_NR_getrandom, out, bytes, 0) == (long)bytes)
		return;
	/* Before Linux 3.17. It need only be unique. */
	words[0] = clock_ns() * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)getpid() << 32;
	words[1] = words[0] ^ (uint64_t)(uintptr_t)&collector_switch;
}

/* Chunks that a process has at once if it may not be able to take more. */
#define RAW_CONFINED_CHUNKS 128u

/* Makes the file with space for its first chunk, under a hidden name that the engine skips, and fills the header `h`. -errno. */
static int raw_create(const struct session *session, const uint8_t *parent_run, int *out_fd,
		      char *out_hidden, size_t hidden_bytes, struct trace_header *h)
{
	uint64_t at, space;
	int fd, r;

	trace_header_init(h);
	h->pid = collector.pid;
	/* Of a child of vfork() our parent is the process itself. */
	h->parent_pid = h->pid == (uint32_t)getpid() ? (uint32_t)getppid() : 0;
	h->utc_offset_s = session->utc_offset_s;
	h->compatible = TRACE_FEATURE_LOSS_SUM;
	h->c_depth = control_apply();
	h->python_shown = collector.python_shown;
	h->first_state = collector.wanted_state != 0 ? collector.wanted_state : session->state;
	random_bytes(h->run_id, sizeof(h->run_id));
	memcpy(h->parent_run_id, parent_run, sizeof(h->parent_run_id));
	memcpy(&h->salt, h->run_id, sizeof(h->salt));
	h->start_ticks = identity_start_ticks();
	atomic_store(&h->state, TRACE_RECORDING);
	atomic_store(&h->alone_chunks, trace_alone_chunks(session->max_trace_bytes, 0));

	(void)snprintf(collector.raw_path, sizeof(collector.raw_path),
		       "%s/%u-%02x%02x%02x%02x%02x%02x%s", collector.session, h->pid, h->run_id[0],
		       h->run_id[1], h->run_id[2], h->run_id[3], h->run_id[4], h->run_id[5],
		       SESSION_RAW);
	(void)snprintf(out_hidden, hidden_bytes, "%s/.%s", collector.session,
		       collector.raw_path + strlen(collector.session) + 1);
	fd = sys_open(out_hidden, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	/* The mapping keeps the lock when the descriptor is closed; it ends with the process. */
	if (syscall(SYS_flock, fd, LOCK_EX | LOCK_NB) == 0)
		h->compatible |= TRACE_FEATURE_LOCKED;
	at = chunk_at(h, 0);
	/* A process that gives up rights cannot open the file again; the engine may be late. */
	space = (uint64_t)h->chunk_bytes * (collector.confined ? RAW_CONFINED_CHUNKS : 1);
	r = writer_file_fits(at + space);
	if (r < 0) {
		sys_close(fd);
		(void)unlink(out_hidden);
		return r;
	}
	/* Space for the header and the first chunks; the engine takes that of the ring when it needs it. */
	if (ftruncate(fd, (off_t)at) < 0 || sys_fallocate(fd, 0, h->header_bytes) < 0 ||
	    sys_fallocate(fd, at, space) < 0) {
		int error = errno;

		/* Without fallocate the first chunk's own reservation writes zeros; only the header must be safe now. */
		if (error != EOPNOTSUPP ||
		    sys_pwrite(fd, h, sizeof(*h), 0) != (ssize_t)sizeof(*h)) {
			sys_close(fd);
			(void)unlink(out_hidden);
			return -error;
		}
	} else {
		atomic_store(&h->reserved_chunks, (uint32_t)(space / h->chunk_bytes));
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

/* A busy machine may stop the thread between two readings: of several pairs the one counts that lies closest together. */
static void clock_pair(struct trace_header *h)
{
	uint64_t start = clock_ns(), end, shortest = UINT64_MAX;
	int i;

	for (i = 0; i < 32; i++)
		(void)clock_ns();
	end = clock_ns();
	h->clock_cost_ns = (end - start) / 33;
	for (i = 0; i < 5; i++) {
		struct timespec wall;

		start = clock_ns();
		(void)clock_gettime(CLOCK_REALTIME, &wall);
		end = clock_ns();
		if (end - start >= shortest)
			continue;
		shortest = end - start;
		h->monotonic_ns = start + shortest / 2;
		h->realtime_ns = (uint64_t)wall.tv_sec * 1000000000u + (uint64_t)wall.tv_nsec;
	}
}

int raw_open(const struct session *session, const uint8_t *parent_run)
{
	static struct trace_header first; /* one thread attaches, whose stack may be small */
	char *hidden = collector.path_scratch;
	struct trace_header *h;
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
	first.chunks_mapped = collector.chunks_mapped;
	memset(collector.losses, 0, sizeof(collector.losses));
	atomic_store(&collector.stop, TRACE_STOP_NONE);
	atomic_store(&collector.writers, 0);
	atomic_store(&collector.chunks_taken, 0);
	atomic_store(&collector.chunks_there, atomic_load(&first.reserved_chunks));
	collector.salt = first.salt;
	clock_pair(&first);
	first.table_bytes = (uint32_t)trace_table_bytes();
	memcpy((char *)h + TRACE_TABLE_AT, trace_table_text(), first.table_bytes);
	first.identity_bytes =
		identity_write(session, (char *)h + TRACE_IDENTITY_AT, TRACE_IDENTITY_MAX);
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
	atomic_store(&collector.losses[LOSS_starting], atomic_exchange(&collector.early_losses, 0));
	atomic_fetch_add(&h->loss[LOSS_starting], atomic_load(&collector.losses[LOSS_starting]));
	atomic_fetch_add(&h->loss_sum, atomic_load(&collector.losses[LOSS_starting]));
	return 0;
}
