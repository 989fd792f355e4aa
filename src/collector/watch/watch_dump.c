/* SPDX-License-Identifier: Apache-2.0 */
#include "collector/watch/watch_dump.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/utf8.h"
#include "collector/record/chunk_supply.h"
#include "collector/vendor.h"
#include "collector/watch/checksum.h"
#include "collector/watch/watch_compare.h"

/* Memory is read in pieces of this, however large the tensor is. */
#define PIECE_BYTES (1u << 20)
/* Of blocks larger than that the device makes checksums itself, if it can, for so many chunks at a time. */
#define SUMS_AT_A_TIME 32768u
#define FILE_NAME_MAX  255u
#define FILE_TRIES     10000u
#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#endif
#define TEXT_SLOT 1u

/* How long a thread waits for another one's dump. When that takes longer, it dumps without comparing. */
#define DUMP_WAIT_NS UINT64_C(5000000000)
/* Declared spans up to so many are kept as they are; of more, those in watched memory. */
#define SPANS_KEPT 32u

struct result {
	uint64_t checksum;
	uint64_t bytes;
	uint32_t file; /* number of the hidden file with the bytes, 0: none */
	bool made;
	bool handed; /* the kernel was handed an address in it */
	struct watch_change change;
};

/* What one dump needs. Mapped once and then reused: the program's threads may have stacks of 16 KiB. */
struct watch_room {
	struct watch_plan plan;
	struct result results[WATCH_RANGES];
	struct comparison comparison;
	char inside[WATCH_SHOWN];
	bool handed[WATCH_RANGES]; /* by entry: the kernel was handed an address in it */
	bool locked;		   /* this thread holds the lock of dumps */
	char name[2 * SESSION_PATH_MAX + 512];
	char path[SESSION_PATH_MAX + 512];
	char hidden[SESSION_PATH_MAX + 512];
	uint64_t sums[SUMS_AT_A_TIME];
	_Alignas(4096) uint8_t piece[PIECE_BYTES];
};

/* What is noted in the trace once, however often it happens. */
enum noted {
	NOTED_CAPTURE,
	NOTED_SYNC,
	NOTED_RUNTIME,
	NOTED_UNREADABLE,
	NOTED_CUT,
	NOTED_FILE,
	NOTED_FREED,
	NOTED_ROOM,
	NOTED_COUNTERS,
	NOTED_CALLS,
	NOTED_END
};

struct watch collector_watch;

/* One dump after the other, so that each can be compared with the one before, and records have the order of the dumps. */
static struct lock dump_lock = {.foreign = true};
static struct watch_calls calls;
static _Atomic(struct watch_room *) spare;
static _Atomic uint32_t noted[NOTED_END];
static _Atomic uint32_t next_file = 1;
static _Atomic uint32_t directory_made;
static char directory[SESSION_PATH_MAX + 16]; /* "": the session has no output directory */

#define NOTE_ONCE(which, ...)                                                                      \
	do {                                                                                       \
		if (atomic_exchange(&noted[which], 1) == 0) {                                      \
			collector_note(__VA_ARGS__);                                               \
			collector_write_notes();                                                   \
		}                                                                                  \
	} while (0)

void watch_setup(const struct session *session)
{
	watch_init(&collector_watch, &session->watch, (uint32_t)collector.chosen.level);
	directory[0] = '\0';
	if (session->output[0] == '/')
		(void)snprintf(directory, sizeof(directory), "%.*s/watch_dump",
			       (int)SESSION_PATH_MAX - 1, session->output);
}

void watch_reset(void)
{
	uint32_t i;

	/* Room that a thread of the parent was using is lost; the spare one is a copy of our own. */
	watch_forget(&collector_watch);
	watch_blocks_reset();
	watch_calls_reset(&calls);
	compare_reset();
	for (i = 0; i < NOTED_END; i++)
		atomic_store(&noted[i], 0);
	atomic_store(&next_file, 1);
	atomic_store(&directory_made, 0);
}

static struct watch_room *room_take(void)
{
	struct watch_room *room = atomic_exchange(&spare, NULL);

	if (room != NULL)
		return room;
	room = mmap(NULL, sizeof(*room), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		    0);
	if (room == MAP_FAILED) {
		collector_count_loss(LOSS_no_memory);
		return NULL;
	}
	return room;
}

static void room_release(struct watch_room *room)
{
	struct watch_room *none = NULL;

	if (!atomic_compare_exchange_strong(&spare, &none, room))
		(void)munmap(room, sizeof(*room));
}

/* ---- files with the bytes ---- */

static void make_directory(struct watch_room *room)
{
	size_t i;

	if (atomic_load(&directory_made))
		return;
	for (i = 1; directory[i - 1] != '\0'; i++) {
		if (directory[i] != '/' && directory[i] != '\0')
			continue;
		memcpy(room->path, directory, i);
		room->path[i] = '\0';
		(void)mkdir(room->path, 0750);
	}
	atomic_store(&directory_made, 1);
}

static void hidden_path(struct watch_room *room, uint32_t file)
{
	const uint8_t *run = collector.header->run_id;

	/* The engine finds those of a killed process by its run and removes them. */
	(void)snprintf(room->hidden, sizeof(room->hidden), "%s/.%02x%02x%02x%02x%02x%02x_%u.part",
		       directory, run[0], run[1], run[2], run[3], run[4], run[5], file);
}

static void note_file_error(int error)
{
	NOTE_ONCE(NOTED_FILE,
		  "watch: cannot write the bytes to %.150s: %s; only checksums are kept", directory,
		  strerror(error));
}

/* Under a hidden name until the dump is complete. -1: no file. */
static int file_begin(struct watch_room *room, uint64_t bytes, uint32_t *out_file)
{
	int fd, r = writer_file_fits(bytes);

	*out_file = atomic_fetch_add(&next_file, 1);
	hidden_path(room, *out_file);
	if (r < 0) {
		note_file_error(-r);
		return -1;
	}
	make_directory(room);
	fd = sys_open(room->hidden, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		note_file_error(errno);
	return fd;
}

static int file_add(int fd, const uint8_t *data, size_t bytes, uint64_t at)
{
	while (bytes > 0) {
		ssize_t wrote = sys_pwrite(fd, data, bytes, at);

		if (wrote < 0 && errno == EINTR)
			continue;
		if (wrote <= 0)
			return wrote < 0 ? -errno : -ENOSPC;
		data += wrote;
		bytes -= (size_t)wrote;
		at += (uint64_t)wrote;
	}
	return 0;
}

/*
 * Turns the name of a dump into that of its file: slashes become dots, bytes that no text should have underscores, and a name that is too long for a file is cut and gets a
 * checksum of the whole, so that two long names stay different.
 */
static size_t file_name(char *name, size_t room)
{
	static const char tail[] = ".bin";
	size_t length = strlen(name), keep = FILE_NAME_MAX - 40, bytes, i;
	uint64_t sum = checksum_end(checksum_add(CHECKSUM_BEGIN, name, length));

	for (i = 0; i < length; i += bytes) {
		const unsigned char *at = (const unsigned char *)name + i;
		size_t found = utf8_length(at, length - i);

		bytes = found == 0 ? 1 : found;
		if (name[i] == '/')
			name[i] = '.';
		else if (found == 0 || utf8_is_control(at, found))
			memset(name + i, '_', bytes);
	}
	if (length > FILE_NAME_MAX - 16) {
		const char *moment = strrchr(name, '_'); /* "_before" and "_after" stay */
		char kept[16];

		(void)snprintf(kept, sizeof(kept), "%s", moment != NULL ? moment : "");
		while (keep > 0 && ((uint8_t)name[keep] & 0xc0) == 0x80)
			keep--;
		length = keep + (size_t)snprintf(name + keep, room - keep, "~%016llx%s",
						 (unsigned long long)sum, kept);
	}
	memcpy(name + length, tail, sizeof(tail));
	return length;
}

/* Renames without replacing. Where the file system cannot do that in one step, the name is reserved first. */
static int rename_new(const char *from, const char *to)
{
	int fd;

	if (syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != ENOSYS && errno != EINVAL)
		return -errno;
	fd = sys_open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	sys_close(fd);
	return rename(from, to) == 0 ? 0 : -errno;
}

/* Gives the hidden file its name. A file that another run has left is never overwritten. */
static bool file_finish(struct watch_room *room, uint32_t file)
{
	size_t stem = file_name(room->name, sizeof(room->name));
	uint32_t attempt;
	int r = -EEXIST;

	hidden_path(room, file);
	for (attempt = 0; attempt < FILE_TRIES && r == -EEXIST; attempt++) {
		if (attempt == 0)
			(void)snprintf(room->path, sizeof(room->path), "%s/%.*s.bin", directory,
				       (int)stem, room->name);
		else
			(void)snprintf(room->path, sizeof(room->path), "%s/%.*s.%u.bin", directory,
				       (int)stem, room->name, attempt);
		r = rename_new(room->hidden, room->path);
	}
	if (r == 0)
		return true;
	note_file_error(-r);
	(void)unlink(room->hidden);
	return false;
}

/* ---- reading ---- */

static size_t read_piece(struct watch_range *range, uint64_t at, uint8_t *out, size_t bytes,
			 int *error)
{
	const struct vendor_ops *ops = vendor_ops(range->vendor);
	uint64_t readable;
	int64_t got = -ENOSYS;

	*error = 0;
	if (!watch_read_begin(range)) {
		*error = -ENOENT;
		return 0;
	}
	readable = atomic_load(&range->readable);
	if (at >= readable)
		bytes = 0;
	else if (bytes > readable - at)
		bytes = (size_t)(readable - at);
	if (bytes == 0)
		got = 0;
	else if (ops->copy != NULL)
		got = ops->copy(out, range->address + at, bytes);
	watch_read_end(range);
	if (got < 0)
		*error = (int)got;
	return got < 0 ? 0 : (size_t)got;
}

/* True when one of the words that a kernel was handed is an address in the range. */
static bool is_handed(const struct watch_call *call, const struct watch_range *range)
{
	size_t at;

	for (at = 0; call->arguments != NULL && at + 8 <= call->argument_bytes; at += 8) {
		uint64_t word;

		memcpy(&word, (const uint8_t *)call->arguments + at, sizeof(word));
		if (word - range->address < range->bytes)
			return true;
	}
	return false;
}

/*
 * What may change in the range until now: what calls in progress declared, and blocks that are not the range's own any more. Where
 * no operators are seen at all, a kernel may write what it was handed.
 */
static void find_allowed(struct comparison *comparison, uint32_t entry,
			 const struct watch_range *range, bool handed)
{
	struct watch_span within = {range->address, range->address + range->bytes};
	struct watch_span ignored[WATCH_IGNORED];
	uint32_t i, count;

	count = watch_calls_allowed(&calls, within, comparison->allowed, WATCH_SPANS);
	if (handed && calls.order == 0)
		count = watch_span_add(comparison->allowed, count, WATCH_SPANS, within);
	for (i = watch_ignored(&collector_watch, entry, ignored); i-- > 0;)
		count = watch_span_add(comparison->allowed, count, WATCH_SPANS, ignored[i]);
	comparison->allowed_count = count;
	/* As offsets. */
	for (i = 0; i < count; i++) {
		struct watch_span *span = &comparison->allowed[i];

		span->first = span->first < within.first ? 0 : span->first - within.first;
		span->end -= within.first;
	}
}

/* Reads the range in pieces. Returns how many bytes could be read. */
static uint64_t read_range(struct watch_room *room, struct watch_range *range, int *fd,
			   uint64_t *state, int *error)
{
	uint64_t at = 0;
	int r;

	while (at < range->bytes) {
		uint64_t left = range->bytes - at;
		size_t wanted = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
		size_t got = read_piece(range, at, room->piece, wanted, error);

		*state = checksum_add(*state, room->piece, got);
		if (room->locked)
			compare_piece(&room->comparison, at, room->piece, got);
		if (*fd >= 0 && (r = file_add(*fd, room->piece, got, at)) < 0) {
			note_file_error(-r);
			sys_close(*fd);
			*fd = -1;
			(void)unlink(room->hidden);
		}
		at += got;
		if (got < wanted)
			break;
	}
	return at;
}

/* Checksums of `count` chunks from `at` on, by the device. */
static int read_sums(struct watch_range *range, uint64_t at, uint64_t bytes, uint64_t *out)
{
	const struct vendor_ops *ops = vendor_ops(range->vendor);
	int r;

	if (!watch_read_begin(range))
		return -ENOENT;
	r = atomic_load(&range->readable) < range->bytes
		    ? -ENOSYS
		    : ops->sums(range->address + at, bytes, out);
	watch_read_end(range);
	return r;
}

/* Reads chunks that are to be compared byte by byte. False: not all of them could be read. */
static bool read_run(struct watch_room *room, struct watch_range *range, struct chunk_run run,
		     int *error)
{
	uint64_t at = run.first * CHECKSUM_CHUNK, end = run.end * CHECKSUM_CHUNK;

	end = end < range->bytes ? end : range->bytes;
	while (at < end) {
		size_t wanted = end - at < PIECE_BYTES ? (size_t)(end - at) : PIECE_BYTES;
		size_t got = read_piece(range, at, room->piece, wanted, error);

		compare_piece(&room->comparison, at, room->piece, got);
		if (got < wanted)
			return false;
		at += got;
	}
	return true;
}

/*
 * The same by checksums that the device makes: only chunks that have changed come over to the host. 0 when the device cannot, and
 * nothing is done yet.
 */
static uint64_t sum_range(struct watch_room *room, struct watch_range *range, uint64_t *state,
			  int *error)
{
	uint64_t chunks = (range->bytes + CHECKSUM_CHUNK - 1) / CHECKSUM_CHUNK, at, i;

	if (!room->locked || vendor_ops(range->vendor)->sums == NULL ||
	    range->bytes <= PIECE_BYTES || !compare_sums_begin(&room->comparison, chunks))
		return 0;
	for (at = 0; at < chunks;) {
		uint64_t count = chunks - at < SUMS_AT_A_TIME ? chunks - at : SUMS_AT_A_TIME;
		uint64_t first = at * CHECKSUM_CHUNK, left = range->bytes - first;
		uint64_t bytes = left < count * CHECKSUM_CHUNK ? left : count * CHECKSUM_CHUNK;
		struct chunk_run run = {.end = at};
		int r = read_sums(range, first, bytes, room->sums);

		if (r < 0) {
			*error = r;
			return first;
		}
		for (i = 0; i < count;
		     i++, bytes -= bytes < CHECKSUM_CHUNK ? bytes : CHECKSUM_CHUNK)
			*state = checksum_join(*state, room->sums[i],
					       bytes < CHECKSUM_CHUNK ? bytes : CHECKSUM_CHUNK);
		while (compare_next(&room->comparison, at, room->sums, count, run.end, &run)) {
			if (!read_run(room, range, run, error))
				return run.first * CHECKSUM_CHUNK;
		}
		compare_sums_keep(&room->comparison, at, room->sums, count);
		at += count;
	}
	return range->bytes;
}

static void dump_range(struct watch_room *room, const struct watch_call *call, uint32_t entry,
		       struct result *result)
{
	struct watch_range *range = &collector_watch.ranges[entry];
	struct comparison *comparison = room->locked ? &room->comparison : NULL;
	bool keep = collector_watch.settings.full != 0 && directory[0] != '\0';
	int fd = -1, error = 0;
	uint64_t state = CHECKSUM_BEGIN, at = 0;

	*result = (struct result){.handed = room->handed[entry] && call->kind == OPERATION_ENDED};
	if (comparison != NULL) {
		find_allowed(comparison, entry, range, result->handed);
		compare_begin(comparison, entry, range->bytes, atomic_load(&range->compared) == 0);
	}
	if (keep)
		fd = file_begin(room, range->bytes, &result->file);
	else
		at = sum_range(room, range, &state, &error);
	if (at == 0) {
		/* As if sums had not been tried. */
		room->comparison.sums = NULL;
		state = CHECKSUM_BEGIN;
		error = 0;
		at = read_range(room, range, &fd, &state, &error);
	}
	result->made = error != -ENOENT && at > 0;
	result->checksum = checksum_end(state);
	result->bytes = at;
	if (comparison != NULL && result->made) {
		compare_end(comparison, at, result->checksum);
		atomic_store(&range->compared, 1);
		result->change = comparison->change;
	}
	if (fd >= 0)
		sys_close(fd);
	if (fd >= 0 && !result->made)
		(void)unlink(room->hidden);
	if (fd < 0 || !result->made)
		result->file = 0;
	if (error == -ENOENT)
		return; /* freed while it was read: watch_freed_slow() notes it */
	if (at == 0)
		NOTE_ONCE(NOTED_UNREADABLE, "watch: the memory of %.100s at 0x%llx cannot be read",
			  range->name, (unsigned long long)range->address);
	else if (at < range->bytes)
		NOTE_ONCE(NOTED_CUT,
			  "watch: only the first %llu of the %llu bytes of %.100s can be read",
			  (unsigned long long)at, (unsigned long long)range->bytes, range->name);
}

/* Waits for the device, when anything of it is to be read. */
static bool wait_for_device(const struct watch_room *room, const struct watch_call *call)
{
	bool device = call->device < DEVICE_HOST;
	uint8_t vendor = call->vendor;
	uint32_t i;
	int r;

	for (i = 0; i < room->plan.count && !device; i++) {
		const struct watch_range *range = &collector_watch.ranges[room->plan.ranges[i]];

		device = range->device != DEVICE_HOST;
		vendor = range->vendor;
	}
	if (!device)
		return true;
	r = vendor_ops(vendor)->wait == NULL
		    ? -ENOSYS
		    : vendor_ops(vendor)->wait(call->stream, call->has_stream);
	if (r == -EBUSY)
		NOTE_ONCE(NOTED_CAPTURE, "watch: nothing is dumped while a graph is captured");
	else if (r == -ENOSYS)
		NOTE_ONCE(NOTED_RUNTIME, "watch: no loaded runtime can read the device");
	else if (r < 0)
		NOTE_ONCE(NOTED_SYNC, "watch: waiting for the device failed: nothing was dumped");
	return r == 0;
}

static bool dump_all(struct watch_room *room, const struct watch_call *call)
{
	uint32_t i;

	if (room->plan.dropped > 0)
		NOTE_ONCE(NOTED_ROOM,
			  "watch: more than %u blocks are watched; %u outputs of %.100s are not",
			  WATCH_RANGES, room->plan.dropped, collector_watch.settings.start);
	if (!wait_for_device(room, call))
		return false;
	room->locked = lock_take_within(&dump_lock, DUMP_WAIT_NS);
	for (i = 0; i < room->plan.count; i++)
		dump_range(room, call, room->plan.ranges[i], &room->results[i]);
	if (room->locked)
		watch_calls_seen(&calls);
	return true;
}

static void dump_done(struct watch_room *room)
{
	uint32_t i;

	if (!room->locked)
		return;
	for (i = 0; i < room->plan.count; i++) {
		const struct watch_range *range = &collector_watch.ranges[room->plan.ranges[i]];

		/* Nobody will compare with it again. */
		if (atomic_load(&range->gone))
			compare_forget(room->plan.ranges[i]);
	}
	room->locked = false;
	lock_release(&dump_lock);
}

/* ---- recording ---- */

static void device_text(uint32_t device, char out[16])
{
	if (device >= DEVICE_HOST)
		memcpy(out, device == DEVICE_HOST ? "cpu" : "N/A", 4);
	else
		(void)snprintf(out, 16, "%u", device);
}

static void record(struct watch_room *room, const struct watch_call *call, uint32_t at)
{
	struct watch_range *range = &collector_watch.ranges[room->plan.ranges[at]];
	const char *shown = watch_shown(&collector_watch, call);
	bool after = call->kind == OPERATION_ENDED;
	struct result *result = &room->results[at];
	struct event_watch_dump event;
	struct writer *w;
	uint32_t context;
	bool inside;
	char device[16];

	if (!result->made)
		return;
	if (result->file != 0) {
		device_text(range->device, device);
		(void)snprintf(room->name, sizeof(room->name) - 8, "%s_%u_%s_%llu-%s_%u_%s", device,
			       sys_gettid(), shown, (unsigned long long)room->plan.number,
			       range->name, range->output, after ? "after" : "before");
		if (!file_finish(room, result->file))
			result->file = 0;
	}
	inside = result->change.bytes > 0 &&
		 watch_calls_inside(&calls, sys_gettid(), call->name, room->inside);
	w = writer_enter();
	if (w == NULL)
		return;
	context = writer_device(w, device_key(range->vendor, range->device));
	event = (struct event_watch_dump){
		/* A path has the number of the execution in it and hardly comes twice. */
		.name = collector_watch.by_path ? writer_text_once(w, TEXT_SLOT, shown)
						: writer_text(w, shown),
		.flags = (result->file != 0 ? DUMP_IN_FILE : 0) | (after ? DUMP_AFTER : 0) |
			 (atomic_exchange(&range->begun, 1) == 0 ? DUMP_FIRST : 0) |
			 (result->change.compared ? DUMP_COMPARED : 0) |
			 (result->handed ? DUMP_HANDED : 0) | (range->from_api ? DUMP_NAMED : 0),
		.checksum = result->checksum,
		.size_bytes = result->bytes,
		.watched = writer_text(w, range->name),
		.output = range->output,
		.number = room->plan.number,
		.address = range->address,
		.changed_bytes = result->change.bytes,
		.stray_bytes = result->change.stray_bytes,
		.first_stray = result->change.first,
		.last_stray = result->change.last,
		.stack = stack_capture_deep(w),
		.inside = inside ? writer_text(w, room->inside) : 0,
	};
	WRITER_PUT(w, watch_dump, context, &event);
	writer_leave(w);
}

static void record_all(struct watch_room *room, const struct watch_call *call)
{
	uint32_t i;

	for (i = 0; i < room->plan.count; i++)
		record(room, call, i);
}

/* ---- what the adapters call ---- */

/* Room for a plan that has something to dump; NULL: there is none, and nothing is dumped. */
static struct watch_room *room_for(const struct watch_plan *plan)
{
	struct watch_room *room = room_take();

	if (room == NULL) {
		watch_finish(&collector_watch, plan, false);
		return NULL;
	}
	room->plan = *plan;
	memset(room->handed, 0, sizeof(room->handed));
	return room;
}

static bool dump_and_record(struct watch_room *room, const struct watch_call *call)
{
	bool made = dump_all(room, call);

	if (made) {
		record_all(room, call);
		dump_done(room);
	}
	watch_finish(&collector_watch, &room->plan, made);
	room_release(room);
	return made;
}

/* Out of line, so that the room for spans is on the stack only here: threads may have small stacks. */
MSCOPE_COLD static void declare(const char *name, const struct watch_output *outputs,
				uint32_t count, bool lasting)
{
	struct watch_span spans[WATCH_SPANS];
	uint32_t i, found = 0;

	if (count > SPANS_KEPT) {
		found = watch_touching(&collector_watch, outputs, count, spans, WATCH_SPANS);
	} else {
		for (i = 0; i < count; i++)
			spans[found++] = (struct watch_span){outputs[i].address,
							     outputs[i].address + outputs[i].bytes};
	}
	watch_calls_declare(&calls, sys_gettid(), name, spans, found, lasting);
}

void watch_writes(const struct watch_output *outputs, uint32_t count, bool lasting)
{
	declare(NULL, outputs, count, lasting);
}

/* For a name that never runs: which ones did. */
static void record_seen(const struct watch_call *call, uint32_t flags)
{
	const char *texts[] = {watch_shown(&collector_watch, call), call->name, call->path};
	struct writer *w = writer_enter();
	uint32_t i, k;

	if (w == NULL)
		return;
	for (i = 0; i < MSCOPE_COUNT(texts); i++) {
		struct event_watch_seen event = {.flags = flags};

		for (k = 0; k < i && texts[i] != texts[k]; k++)
			;
		if (texts[i] == NULL || k < i)
			continue;
		event.name = writer_text_once(w, TEXT_SLOT, texts[i]);
		WRITER_PUT(w, watch_seen, 0, &event);
	}
	writer_leave(w);
}

/*
 * After its dump: what changed before a call started was not its doing. While nothing is watched, no later dump can ask what the
 * call wrote.
 */
static void follow_call(const struct watch_call *call, bool dumped)
{
	bool seen = dumped || atomic_load(&collector_watch.range_count) == 0;

	if (call->kind == OPERATION_ENDED)
		watch_calls_close(&calls, sys_gettid(), call->name, seen);
	else if (watch_calls_open(&calls, sys_gettid(), call->name, call->frame))
		declare(call->name, call->outputs, call->output_count, false);
	else
		NOTE_ONCE(
			NOTED_CALLS,
			"watch: more than %u operators at a time; writes of the others are unknown",
			WATCH_CALLS);
}

static uint64_t dump_now(const struct watch_call *call)
{
	bool ended = call->kind == OPERATION_ENDED, made = false;
	int saved_errno = errno;
	struct watch_room *room;
	struct watch_plan plan;

	if (ended && !call->opaque)
		declare(call->name, call->outputs, call->output_count, false);
	if (watch_plan(&collector_watch, call, &plan)) {
		room = room_for(&plan);
		if (room != NULL)
			made = dump_and_record(room, call);
	}
	if (MSCOPE_UNLIKELY(plan.is_new || plan.seen != 0))
		record_seen(call, plan.seen);
	if (!call->opaque)
		follow_call(call, made);
	if (collector_watch.full)
		NOTE_ONCE(NOTED_COUNTERS,
			  "watch: more than %u different operators; further ones are not counted",
			  WATCH_COUNTERS / 2);
	errno = saved_errno;
	return plan.number;
}

uint64_t watch_begin(struct watch_call *call)
{
	call->kind = OPERATION_BEGINS;
	return watch_is_active() && call->name != NULL ? dump_now(call) : 0;
}

void watch_end(struct watch_call *call)
{
	call->kind = OPERATION_ENDED;
	if (watch_is_active() && call->name != NULL)
		(void)dump_now(call);
}

/* Which ranges the kernel is handed an address of, for the dump when it has run. */
static void note_handed(struct watch_room *room, const struct watch_call *call)
{
	uint32_t i;

	for (i = 0; i < room->plan.count; i++) {
		uint8_t entry = room->plan.ranges[i];

		room->handed[entry] = is_handed(call, &collector_watch.ranges[entry]);
	}
}

struct watch_room *watch_launch_begin(struct watch_call *call)
{
	struct watch_room *room = NULL;
	int saved_errno = errno;
	struct watch_plan plan;

	if (!watch_is_active() || atomic_load(&collector_watch.range_count) == 0)
		return NULL;
	call->kind = OPERATION_BEGINS;
	call->name = NULL;
	if (watch_plan(&collector_watch, call, &plan))
		room = room_for(&plan);
	if (room != NULL && !dump_all(room, call)) {
		watch_finish(&collector_watch, &plan, false);
		room_release(room);
		room = NULL;
	}
	if (room != NULL) {
		dump_done(room);
		note_handed(room, call);
	}
	errno = saved_errno;
	return room;
}

/* Records what was read before the launch, now that its name and number are known; or forgets it. */
static void finish_before(struct watch_room *before, struct watch_call *call, uint64_t number,
			  bool ran)
{
	uint32_t i;

	call->kind = OPERATION_BEGINS;
	before->plan.number = number;
	for (i = 0; i < before->plan.count; i++) {
		if (ran) {
			record(before, call, i);
		} else if (before->results[i].file != 0) {
			hidden_path(before, before->results[i].file);
			(void)unlink(before->hidden);
		}
	}
	watch_finish(&collector_watch, &before->plan, ran);
	room_release(before);
}

void watch_launch_end(struct watch_room *before, struct watch_call *call, bool ran)
{
	struct watch_plan plan = {0};
	int saved_errno = errno;
	struct watch_room *after = NULL;

	ran = ran && watch_is_active();
	call->late_name = true;
	call->kind = OPERATION_ENDED;
	/* Planned first, because that gives the call its number; dumped when what came before is recorded. */
	if (ran && watch_plan(&collector_watch, call, &plan))
		after = room_for(&plan);
	if (plan.is_new || plan.seen != 0)
		record_seen(call, plan.seen);
	if (before != NULL && after != NULL)
		memcpy(after->handed, before->handed, sizeof(after->handed));
	if (before != NULL)
		finish_before(before, call, plan.number, ran);
	call->kind = OPERATION_ENDED;
	if (after != NULL)
		(void)dump_and_record(after, call);
	errno = saved_errno;
}

MSCOPE_COLD void watch_freed_slow(uint8_t pool, uint64_t address, uint64_t bytes)
{
	char name[SESSION_WATCH_MAX];
	int saved_errno = errno;

	if (bytes == 0)
		bytes = watch_block_take(pool, address);
	if (atomic_load(&collector_watch.range_count) > 0 &&
	    watch_free(&collector_watch, address, bytes, pool == POOL_hal, name) > 0)
		NOTE_ONCE(NOTED_FREED,
			  "watch: the memory of %.100s was freed and is no longer watched", name);
	errno = saved_errno;
}
