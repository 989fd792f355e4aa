/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where writers get chunks from: those that the engine has put back into the ring, else new ones at the end of the file.
 *
 * The header and the ring lie in a mapping that a stray store of the program can reach. So numbers that are read there are only
 * hints: a chunk is touched when the file is known to have it, and used when nobody else has it, which the chunk itself says.
 * What this process knows by itself is in struct collector.
 */
#include "collector/record/chunk_supply.h"

#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <time.h>

#include "collector/collector.h"
#include "collector/record/writer.h"
#include "collector/sys.h"
#include "trace/chunk.h"

/* Held by the thread that takes disk space, so that sixteen threads do not take the same one after another. */
static struct lock reserve_lock;

/*
 * One thread fills at a time while the others sleep: the kernel lets threads that write to one file wait for each other too, but awake,
 * which made sixteen of them pay eight times as much. 0: nobody fills, FILL_ALONE, FILL_AWAITED. Only time depends on it.
 */
static _Atomic uint32_t filling;
static _Atomic uint32_t fills; /* that have ended */

void chunk_supply_setup(void)
{
	/* A child's parent may have held it, or filled a chunk. */
	atomic_store(&reserve_lock.holder, 0);
	atomic_store(&filling, 0);
}

/* Makes a number that only grows as large as this. */
static void raise_to(_Atomic uint32_t *number, uint32_t least)
{
	uint32_t now = atomic_load_explicit(number, memory_order_relaxed);

	while (now < least &&
	       !atomic_compare_exchange_weak_explicit(number, &now, least, memory_order_relaxed,
						      memory_order_relaxed))
		;
}

/* ---- disk space ---- */

int writer_file_fits(uint64_t end)
{
	struct rlimit limit;

	/* Beyond the program's own limit on file sizes the kernel would send it SIGXFSZ. */
	if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
	    end > limit.rlim_cur)
		return -EFBIG;
	return 0;
}

/*
 * Takes disk space from `at` on and leaves some to the engine, which can do nothing on a full disk. On a file system without
 * fallocate it writes zeros. -errno.
 */
static int take_space(int fd, uint64_t at, uint64_t bytes)
{
	static const char zeros[4096];
	struct statfs disk;
	uint64_t done;
	int r = writer_file_fits(at + bytes);

	if (fstatfs(fd, &disk) == 0 &&
	    disk.f_bavail < (bytes + TRACE_SPARE_BYTES) / (uint64_t)disk.f_bsize)
		return -ENOSPC;
	if (r < 0 || sys_fallocate(fd, at, bytes) == 0)
		return r;
	if (errno != EOPNOTSUPP)
		return -errno;
	for (done = 0; done < bytes; done += sizeof(zeros)) {
		if (sys_pwrite(fd, zeros, sizeof(zeros), at + done) != (ssize_t)sizeof(zeros))
			return errno != 0 ? -errno : -ENOSPC;
	}
	return 0;
}

#define RESERVE_LIMIT 1 /* what reserve() returns when --max-disk is reached */
/* What it returns when the process may not open its trace: the engine takes space for it. */
#define RESERVE_LATER 2

/*
 * How many of `count` more chunks the file may have. A living engine packs what is there and drops the oldest of it, so the limit is its
 * own business; without one the events that come now are dropped, since what lived before is only known from the older ones.
 */
static uint32_t within_limit(uint32_t reserved, uint32_t count)
{
	struct trace_header *header = collector.header;
	uint32_t limit = atomic_load_explicit(&header->alone_chunks, memory_order_relaxed);
	uint32_t have =
		reserved - atomic_load_explicit(&header->punched_chunks, memory_order_relaxed);

	if (have + count <= limit || collector_engine_lives())
		return count;
	return have < limit ? limit - have : 0;
}

/*
 * As much again as there is: a process with few events takes little, and sixteen threads at full speed, which fill a chunk every 50 us,
 * meet few system calls. Where taking space takes long (tmpfs clears all its pages), less of it at a time holds the thread.
 */
#define RESERVE_CHUNKS_SLOW 16u
#define RESERVE_SLOW_NS	    UINT64_C(5000000)

static _Atomic uint32_t reserve_most = TRACE_RESERVE_CHUNKS;

/* Chunks to take space for after `reserved`, which is less than chunks_mapped. */
static uint32_t reserve_step(uint32_t reserved)
{
	uint32_t most = atomic_load_explicit(&reserve_most, memory_order_relaxed);
	uint32_t quarter =
		atomic_load_explicit(&collector.header->alone_chunks, memory_order_relaxed) / 4;

	if (most > quarter + 1)
		most = quarter + 1;
	if (most > collector.chunks_mapped - reserved)
		most = collector.chunks_mapped - reserved;
	return reserved < most ? reserved + 1 : most;
}

/*
 * Finds out how many chunks the file has, by its size: its space is taken from the start to the end. The program may have closed our
 * descriptor or changed its directory, so the file is opened anew by its absolute path. A descriptor, or -errno.
 */
static int open_file(void)
{
	int fd = sys_open(collector.raw_path, O_RDWR | O_CLOEXEC, 0);
	long bytes;

	if (fd < 0)
		return -errno;
	bytes = syscall(SYS_lseek, fd, 0L, SEEK_END);
	if (bytes > (long)TRACE_CHUNKS_AT) {
		uint64_t there = ((uint64_t)bytes - TRACE_CHUNKS_AT) / TRACE_CHUNK_BYTES;

		raise_to(&collector.chunks_there, there < collector.chunks_mapped
							  ? (uint32_t)there
							  : collector.chunks_mapped);
	}
	return fd;
}

/* Takes disk space until more than `number` chunks have it. -errno, RESERVE_LIMIT or RESERVE_LATER. */
static int reserve(uint32_t number)
{
	struct trace_header *header = collector.header;
	int fd = open_file(), r = 0;
	uint32_t there;

	if (fd < 0)
		return collector.confined ? RESERVE_LATER : fd;
	while (r == 0 && number >= (there = atomic_load(&collector.chunks_there))) {
		uint32_t count = within_limit(there, reserve_step(there));
		uint64_t start = clock_ns();

		if (count == 0) {
			r = RESERVE_LIMIT;
			break;
		}
		r = take_space(fd, chunk_at_own(there), (uint64_t)count * TRACE_CHUNK_BYTES);
		if (r == 0) {
			if (count > RESERVE_CHUNKS_SLOW && clock_ns() - start > RESERVE_SLOW_NS)
				atomic_store_explicit(&reserve_most, RESERVE_CHUNKS_SLOW,
						      memory_order_relaxed);
			/* Another thread, or the engine, may have taken the same span. */
			raise_to(&collector.chunks_there, there + count);
		} else if (r == -EINTR) {
			r = 0;
		} else if ((r == -ENOSPC || r == -EDQUOT || r == -EFBIG) && count > 1) {
			/* The rest of the disk is taken in smaller steps. */
			atomic_store_explicit(&reserve_most, count / 2, memory_order_relaxed);
			r = 0;
		}
	}
	sys_close(fd);
	raise_to(&header->reserved_chunks, atomic_load(&collector.chunks_there));
	return r;
}

/* How long a thread waits for another one that takes space; then it takes the same space itself. */
#define RESERVE_WAIT_NS UINT64_C(2000000)

/*
 * Whether the engine says that the chunk has space. For a process that cannot look at the file itself, which has to believe it as far
 * as engines reserve ahead.
 */
static bool is_promised(uint32_t number)
{
	uint32_t reserved =
		atomic_load_explicit(&collector.header->reserved_chunks, memory_order_acquire);

	return number < reserved && reserved <= collector.chunks_mapped;
}

/* Whether the file has the chunk, which somebody says. */
static bool is_there(uint32_t number)
{
	int fd;

	if (number < atomic_load_explicit(&collector.chunks_there, memory_order_relaxed))
		return true;
	fd = quiet_is_on() ? -EPERM : open_file();
	if (fd < 0)
		return is_promised(number);
	sys_close(fd);
	return number < atomic_load_explicit(&collector.chunks_there, memory_order_relaxed);
}

/* Makes sure that chunk `number` has disk space. The engine reserves ahead; a writer does it only when the engine lags. */
static bool ensure_reserved(uint32_t number)
{
	bool locked;
	int r;

	if (number < atomic_load_explicit(&collector.chunks_there, memory_order_relaxed))
		return true;
	if (quiet_is_on())
		return is_promised(number);
	locked = lock_take_within(&reserve_lock, RESERVE_WAIT_NS);
	r = reserve(number);
	if (locked)
		lock_release(&reserve_lock);
	if (r == RESERVE_LATER)
		return is_promised(number);
	if (r == RESERVE_LIMIT)
		collector_break(TRACE_STOP_LIMIT, 0);
	else if (r < 0)
		collector_break(TRACE_STOP_NO_SPACE, -r);
	return r == 0;
}

/*
 * The thread that finds half of the last step used takes the next one while the others go on. A failure is met again by the
 * thread that needs it.
 */
static void reserve_soon(uint32_t number)
{
	uint32_t there = atomic_load_explicit(&collector.chunks_there, memory_order_relaxed);
	uint32_t left = there - number;

	if (there < 4 || there <= number || there >= collector.chunks_mapped ||
	    left > reserve_step(there) / 2 || quiet_is_on() ||
	    atomic_load_explicit(&reserve_lock.holder, memory_order_relaxed) != 0 ||
	    !lock_take_within(&reserve_lock, 0))
		return;
	(void)reserve(number + left);
	lock_release(&reserve_lock);
}

/* Chunks that have space when the process becomes quiet: the engine needs a moment to see it. */
#define QUIET_CHUNKS 16u

void writers_become_quiet(void)
{
	struct trace_header *header = collector.header;

	(void)reserve(atomic_load(&collector.chunks_taken) + QUIET_CHUNKS);
	atomic_store(&header->quiet, 1);
}

/* ---- chunks ---- */

#define FILL_ALONE   1u
#define FILL_AWAITED 2u
/* Then a thread goes on beside the one that fills. */
#define FILL_WAIT_NS UINT64_C(2000000)

/*
 * True: this thread's turn, which it ends. If no turn has ended for as long as it waited, the one whose turn it is may be gone, taken away
 * by a handler of the program, and this one takes its place.
 */
static bool fill_begin(void)
{
	uint64_t until = clock_ns() + FILL_WAIT_NS;
	const struct timespec end = {.tv_sec = (time_t)(until / 1000000000u),
				     .tv_nsec = (long)(until % 1000000000u)};
	uint32_t nobody = 0, before = atomic_load(&fills);

	if (atomic_compare_exchange_strong(&filling, &nobody, FILL_ALONE))
		return true;
	while (atomic_exchange(&filling, FILL_AWAITED) != 0) {
		if (syscall(SYS_futex, &filling, FUTEX_WAIT_BITSET_PRIVATE, FILL_AWAITED, &end,
			    NULL, FUTEX_BITSET_MATCH_ANY) < 0 &&
		    errno != EAGAIN && errno != EINTR)
			return atomic_load(&fills) == before;
	}
	return true;
}

static void fill_end(void)
{
	atomic_fetch_add(&fills, 1);
	if (atomic_exchange(&filling, 0) == FILL_AWAITED)
		(void)syscall(SYS_futex, &filling, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* The first chunks of a process come by faults: it may not fill them. */
#define FILL_FROM 8u

/*
 * Fills a fresh chunk with zeros, so that its pages are there, as those of a chunk from the ring are: threads that fault the pages of one
 * file in parallel wait for each other at every page.
 */
static void fill_chunk(uint32_t number)
{
	static const char zeros[16384];
	struct iovec parts[TRACE_CHUNK_BYTES / sizeof(zeros)];
	bool turn;
	size_t i;
	int fd;

	if (number < FILL_FROM || quiet_is_on() || collector.confined ||
	    writer_file_fits(chunk_at_own(number + 1)) < 0)
		return;
	fd = sys_open(collector.raw_path, O_RDWR | O_CLOEXEC, 0);
	if (fd < 0)
		return;
	for (i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		parts[i] = (struct iovec){(void *)(uintptr_t)zeros, sizeof(zeros)};
	turn = fill_begin();
	(void)!pwritev(fd, parts, (int)(sizeof(parts) / sizeof(parts[0])),
		       (off_t)chunk_at_own(number));
	if (turn)
		fill_end();
	sys_close(fd);
}

/* Makes a chunk ours alone. False: it is in use, or its header was written over. The file must have it. */
static bool claim(uint32_t number)
{
	struct chunk *chunk =
		(struct chunk *)(void *)((char *)collector.header + chunk_at_own(number));
	uint32_t state = atomic_load_explicit(&chunk->state, memory_order_relaxed);

	raise_to(&collector.chunks_taken, number + 1);
	return atomic_load_explicit(&chunk->magic, memory_order_relaxed) == 0 &&
	       (state == CHUNK_UNUSED || state == CHUNK_FREE) &&
	       atomic_compare_exchange_strong(&chunk->state, &state, CHUNK_OPEN);
}

/* Chunks that an engine has taken and we have not seen, at most; it keeps 256 ready, and takes 16 at a time. */
#define AHEAD_MAX 320u

/* Entries of the ring that are looked at for one chunk; only a ring that was written over has so many that cannot be used. */
#define RING_TRIES 64u

/* Takes a chunk that the engine has put back; false when there is none. */
static bool ring_take(uint32_t *out_number)
{
	struct trace_header *header = collector.header;
	const _Atomic uint32_t *ring =
		(const _Atomic uint32_t *)(const void *)((const char *)header + TRACE_HEADER_BYTES);
	uint64_t tail = atomic_load_explicit(&header->ring_tail, memory_order_relaxed);
	uint32_t tries;

	for (tries = 0; tries < RING_TRIES; tries++) {
		uint32_t number;

		/* Pairs with the release store in the engine's release of a chunk. */
		if (tail >= atomic_load_explicit(&header->ring_head, memory_order_acquire))
			return false;
		number = atomic_load_explicit(&ring[tail % TRACE_CHUNKS_MAX], memory_order_relaxed);
		if (!atomic_compare_exchange_weak_explicit(&header->ring_tail, &tail, tail + 1,
							   memory_order_acquire,
							   memory_order_relaxed))
			continue;
		*out_number = number;
		if (number < collector.chunks_mapped && is_there(number) && claim(number))
			return true;
		tail++;
	}
	return false;
}

/* Chunks that are passed over for one that can be used; only chunks that were written over are in the way. */
#define FRESH_TRIES 4096u

/* A chunk that was never used. */
static bool fresh_take(uint32_t *out_number)
{
	struct trace_header *header = collector.header;
	uint32_t tries;

	for (tries = 0; tries < FRESH_TRIES; tries++) {
		uint32_t number = atomic_load_explicit(&header->next_chunk, memory_order_relaxed);
		uint32_t taken =
			atomic_load_explicit(&collector.chunks_taken, memory_order_relaxed);

		/* The engine takes chunks too, to fill them; what differs by more is a stray store, unless it has changed since. */
		if (number < taken || number - taken > AHEAD_MAX) {
			(void)atomic_compare_exchange_strong(&header->next_chunk, &number, taken);
			continue;
		}
		if (number >= collector.chunks_mapped) {
			collector_break(TRACE_STOP_FULL, 0);
			return false;
		}
		/* Space first, number second: a number below next_chunk always has space, so a reader never meets a hole. */
		if (!ensure_reserved(number))
			return false;
		if (!atomic_compare_exchange_strong(&header->next_chunk, &number, number + 1) ||
		    !claim(number))
			continue;
		reserve_soon(number);
		fill_chunk(number);
		*out_number = number;
		return true;
	}
	collector_break(TRACE_STOP_FULL, 0);
	return false;
}

bool chunk_supply_take(uint32_t *out_number)
{
	return ring_take(out_number) || fresh_take(out_number);
}
