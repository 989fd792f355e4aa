/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When kernels really ran: CUPTI's activity records of kernels, and of nothing else, where launches are asked for.
 *
 * CUPTI fills buffers of ours and gives them back when they are full or flushed, on a thread of its own; one that finds none
 * is dropped and told. They are flushed when a window ends and when the program ends. A process that is killed loses what is in them:
 * its launches are in the trace, and the engine says how many have no times.
 *
 * The interface is one for the whole process. Another tool that registers its own buffers, or enables records of any kind, finds it
 * unused: our hooks of these functions give it up first. What CUPTI's clock is depends on who else uses it, so nothing is set there:
 * each delivery measures where that clock stands.
 *
 * The part of a record that is used is CUDA 13's (CUpti_ActivityKernel10); older ones begin alike. A record that makes no sense is left
 * out: before its name is read, its launch must have been seen, and its times must lie between the beginning and now.
 */
#include "collector/cuda/cuda.h"

#include <string.h>
#include <sys/mman.h>

#include "collector/process/process.h"

#define KIND_KERNEL	       3u
#define KIND_CONCURRENT_KERNEL 10u
#define FLUSH_FORCED	       1u

#define BUFFERS	     64u /* bits of a word */
#define BUFFER_BYTES ((size_t)256 << 10)

#define CLOCK_TRIES 10
#define SLACK_NS    UINT64_C(5000000) /* by which times may be off and still make sense */

/* The beginning of CUpti_ActivityKernel4 and later. */
struct activity_kernel {
	uint32_t kind;
	uint32_t configuration[3];
	uint64_t start;
	uint64_t end;
	uint64_t completed;
	uint32_t device;
	uint32_t context;
	uint32_t stream;
	uint32_t grid[3], block[3], memory[4];
	uint32_t correlation;
	int64_t grid_number;
	const char *name;
};

_Static_assert(offsetof(struct activity_kernel, start) == 16 &&
		       offsetof(struct activity_kernel, correlation) == 92 &&
		       offsetof(struct activity_kernel, name) == 104,
	       "CUPTI's layout");

/* One moment by our clock and by CUPTI's. */
struct clock_pair {
	uint64_t ours;
	uint64_t theirs;
};

static struct {
	int (*enable)(uint32_t kind);
	int (*disable)(uint32_t kind);
	int (*callbacks)(activity_request *request, activity_complete *complete);
	int (*flush)(uint32_t flag);
	int (*next)(uint8_t *buffer, size_t bytes, void **record);
	int (*timestamp)(uint64_t *out);
	int (*dropped)(void *context, uint32_t stream, size_t *out);
} cupti;

static _Atomic uint32_t is_on;
static bool is_foreign; /* another tool uses activity records; guarded as cupti.c's subscription */
static uint8_t *buffers;
static _Atomic uint64_t taken; /* bit n: CUPTI has buffer n */
static struct clock_pair begun;
static _Atomic uint32_t latest; /* correlation of the latest launch */
static _Atomic uint32_t is_told;

void activity_find(void *library)
{
	*(void **)&cupti.enable = cupti_function(library, "cuptiActivityEnable");
	*(void **)&cupti.disable = cupti_function(library, "cuptiActivityDisable");
	*(void **)&cupti.callbacks = cupti_function(library, "cuptiActivityRegisterCallbacks");
	*(void **)&cupti.flush = cupti_function(library, "cuptiActivityFlushAll");
	*(void **)&cupti.next = cupti_function(library, "cuptiActivityGetNextRecord");
	*(void **)&cupti.timestamp = cupti_function(library, "cuptiGetTimestamp");
	*(void **)&cupti.dropped = cupti_function(library, "cuptiActivityGetNumDroppedRecords");
}

void activity_launched(uint32_t correlation)
{
	/* Threads overtake each other by less than what is_sane() allows. */
	atomic_store_explicit(&latest, correlation, memory_order_relaxed);
}

/* ---- the clock ---- */

/* Of several tries the quickest: a thread may be interrupted between the two clocks. */
static bool take_pair(struct clock_pair *out)
{
	uint64_t shortest = UINT64_MAX;
	int i;

	for (i = 0; i < CLOCK_TRIES; i++) {
		uint64_t before = clock_ns(), theirs = 0, behind;

		if (cupti.timestamp(&theirs) != CUPTI_SUCCESS)
			return false;
		behind = clock_ns();
		if (behind - before >= shortest)
			continue;
		shortest = behind - before;
		*out = (struct clock_pair){before + shortest / 2, theirs};
	}
	return true;
}

/*
 * CUPTI's clock is the time of day, which runs as ours does but for jumps; then only the distance to now counts. A tool that was there
 * before us may have given CUPTI another clock: then the rate since we began does.
 */
static uint64_t to_ours(const struct clock_pair *now, uint64_t theirs)
{
	__int128 ours_span = (__int128)now->ours - begun.ours;
	__int128 their_span = (__int128)now->theirs - begun.theirs;
	__int128 back = (__int128)now->theirs - theirs;
	__int128 apart = ours_span > their_span ? ours_span - their_span : their_span - ours_span;

	if (their_span > 0 && ours_span > (__int128)SLACK_NS && apart > ours_span / 4)
		back = back * ours_span / their_span;
	return (uint64_t)((__int128)now->ours - back);
}

/* ---- records ---- */

static bool is_sane(const struct activity_kernel *record, const struct clock_pair *now)
{
	uint32_t ahead = record->correlation - atomic_load_explicit(&latest, memory_order_relaxed);

	return record->start != 0 && record->start <= record->end && record->device < 1024 &&
	       record->correlation != 0 && ((int32_t)ahead <= 4096) &&
	       to_ours(now, record->start) + SLACK_NS >= begun.ours &&
	       to_ours(now, record->end) <= now->ours + SLACK_NS && record->name != NULL;
}

static void take_record(const struct activity_kernel *record, const struct clock_pair *now)
{
	struct event_kernel_ran event;
	struct writer *w;
	uint32_t context;

	/* Not ended yet when it was flushed by force, or of a layout that we do not know; or our own, of a watch. */
	if (!is_sane(record, now) || reading_is_own_kernel(record->name))
		return;
	w = writer_enter_on();
	if (w == NULL)
		return;
	context = writer_device(w, device_key(VENDOR_CUDA, cuda_physical_device(record->device)));
	event = (struct event_kernel_ran){
		.name = writer_text(w, record->name),
		.stream = record->stream,
		.task = record->correlation,
		.start_ns = to_ours(now, record->start),
		.end_ns = to_ours(now, record->end),
	};
	WRITER_PUT(w, kernel_ran, context, &event);
	writer_leave(w);
}

static void on_request(uint8_t **buffer, size_t *bytes, size_t *records)
{
	uint64_t now = atomic_load(&taken);
	int number;

	*buffer = NULL;
	*bytes = 0;
	*records = 0;
	do {
		if (now == UINT64_MAX || atomic_load(&is_on) == 0)
			return;
		number = __builtin_ctzll(~now);
	} while (!atomic_compare_exchange_weak(&taken, &now, now | UINT64_C(1) << number));
	*buffer = buffers + (size_t)number * BUFFER_BYTES;
	*bytes = BUFFER_BYTES;
}

static MSCOPE_COLD void tell_dropped(void)
{
	size_t dropped = 0;

	if (cupti.dropped == NULL || cupti.dropped(NULL, 0, &dropped) != CUPTI_SUCCESS ||
	    dropped == 0 || atomic_exchange(&is_told, 1) != 0)
		return;
	collector_note("CUPTI dropped records of kernels: some have no execution times");
}

static void on_complete(void *context, uint32_t stream, uint8_t *buffer, size_t bytes,
			size_t valid_bytes)
{
	size_t at = (size_t)(buffer - buffers);
	struct clock_pair now;
	void *record = NULL;

	(void)context;
	(void)stream;
	(void)bytes;
	if (buffer < buffers || at >= BUFFERS * BUFFER_BYTES)
		return;
	if (recording_now() == RECORDING_ON && valid_bytes != 0 && take_pair(&now)) {
		while (cupti.next(buffer, valid_bytes, &record) == CUPTI_SUCCESS) {
			const struct activity_kernel *kernel = record;

			if (kernel->kind == KIND_CONCURRENT_KERNEL || kernel->kind == KIND_KERNEL)
				take_record(kernel, &now);
		}
		tell_dropped();
	}
	atomic_fetch_and(&taken, ~(UINT64_C(1) << at / BUFFER_BYTES));
}

/* ---- on and off, with the lock of cupti.c ---- */

static bool can_begin(void)
{
	return cupti.enable != NULL && cupti.disable != NULL && cupti.callbacks != NULL &&
	       cupti.flush != NULL && cupti.next != NULL && cupti.timestamp != NULL;
}

static bool make_buffers(void)
{
	void *room;

	if (buffers != NULL)
		return true;
	room = mmap(NULL, BUFFERS * BUFFER_BYTES, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (room == MAP_FAILED)
		return false;
	buffers = room;
	return true;
}

MSCOPE_COLD void activity_begin(void)
{
	int r;

	if (atomic_load(&is_on) != 0)
		return;
	if (is_foreign) {
		collector_note(
			"another tool uses activity records of CUPTI: kernels have no execution times");
		return;
	}
	if (!can_begin() || !make_buffers() || !take_pair(&begun)) {
		collector_note(
			"this CUPTI has no activity records: kernels have no execution times");
		return;
	}
	atomic_store(&is_on, 1);
	r = cupti.callbacks(on_request, on_complete);
	if (r == CUPTI_SUCCESS)
		r = cupti.enable(KIND_CONCURRENT_KERNEL);
	if (r != CUPTI_SUCCESS) {
		atomic_store(&is_on, 0);
		collector_note(
			"CUPTI refused activity records with error %d: kernels have no execution times",
			r);
	}
}

/* All buffers are ours again behind it: what CUPTI has not finished comes as it is, and is left out. */
MSCOPE_COLD bool activity_end(bool for_another)
{
	bool was_on = atomic_load(&is_on) != 0;

	is_foreign = is_foreign || for_another;
	if (!was_on)
		return false;
	(void)cupti.disable(KIND_CONCURRENT_KERNEL);
	(void)cupti.flush(0);
	atomic_store(&is_on, 0);
	(void)cupti.flush(FLUSH_FORCED);
	return true;
}

void activity_flush(bool at_end)
{
	if (atomic_load(&is_on) != 0)
		(void)cupti.flush(at_end ? FLUSH_FORCED : 0);
}

void activity_reset(void)
{
	/* In a forked child: CUPTI does not work there. */
	atomic_store(&is_on, 0);
	atomic_store(&taken, 0);
	buffers = NULL;
}
