/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When kernels really ran: the device's task log (STARS), read from the driver's profiling channel by a thread of ours, one per
 * device, with all signals blocked. Kernel level only.
 *
 * A record says that a task of a stream began or ended, with the device's counter. Two layouts exist, by generation of the
 * device, and stream and task numbers are packed in several ways; they are unpacked here, so that the trace has plain numbers.
 */
#include "collector/ascend/ascend.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#define CHANNEL	     50u
#define BUFFER_BYTES (2u << 20)
#define STREAM_UNSET UINT32_MAX
#define COLLECT_MS   200
#define DEVICES	     64u /* more do not report kernels */

#define CLOCK_TOLERANCE_NS 100000u
#define CLOCK_TRIES	   10
#define CLOCK_AGAIN_NS	   UINT64_C(1000000000) /* clocks drift by 0.1 ms in that time at most */

#define INFO_SYSTEM    0
#define INFO_COUNTER   13
#define INFO_FREQUENCY 25

struct start {
	int channel_type;
	uint32_t period;
	uint32_t real_time;
	void *user;
	uint32_t user_bytes;
};

_Static_assert(sizeof(struct start) == 32, "the driver's layout");

static struct {
	int (*info)(uint32_t device, int32_t module, int32_t what, int64_t *value);
	int (*start)(unsigned int device, unsigned int channel, struct start *para);
	int (*stop)(unsigned int device, unsigned int channel);
	int (*read)(unsigned int device, unsigned int channel, char *buffer, unsigned int bytes);
	const char *(*soc)(void);
} driver;

static _Atomic uint32_t stopping;
static _Atomic uint32_t running;
static _Atomic uint32_t asked;		   /* counts calls of stars_collect() */
static _Atomic uint32_t answered[DEVICES]; /* the last one after which the log was empty */
static _Atomic uint64_t reading;	   /* bit n: device n has a reader */
static _Atomic uint32_t expanded;
static bool new_layout; /* records of 32 bytes, without a stream */

__asm__(".symver pthread_create,pthread_create@" SYS_FLOOR);
#pragma weak pthread_create

void stars_set_expanded(bool on)
{
	atomic_store(&expanded, on);
}

void stars_reset(void)
{
	atomic_store(&stopping, 0);
	atomic_store(&running, 0);
	atomic_store(&reading, 0);
}

static void find(const char *name, void *out)
{
	void *function = lookup_symbol(name);

	memcpy(out, &function, sizeof(function));
}

/* ---- records ---- */

/* Turns packed numbers into those of the launch; flags in the upper bits say how they are packed. */
static void unpack(uint32_t *stream, uint32_t *task, uint32_t kind)
{
	uint32_t s = *stream, t = *task;

	if (atomic_load_explicit(&expanded, memory_order_relaxed)) {
		if (kind != 3 && kind != 4 && (s & 0x8000)) {
			*stream = t & 0x7fff;
			*task = (t & 0x8000) | (s & 0x7fff);
		} else {
			*stream = s & 0x7fff;
		}
	} else if (s & 0x1000) {
		*task = (t & 0x1fff) | (s & 0xe000);
		*stream = s % 2048;
	} else if (s & 0x2000) {
		*stream = ((s & 0xf000) | (t & 0x0fff)) % 2048;
		*task = (t & 0xf000) | (s & 0x0fff);
	} else {
		*stream = s % 2048;
	}
}

static void event_execute(uint32_t device, uint32_t stream, uint32_t task, uint64_t counter,
			  uint32_t kind)
{
	struct event_kernel_execute event = {
		.stream = stream, .task = task, .counter = counter, .kind = kind};
	struct writer *w = writer_enter_on();
	uint32_t context;

	if (w == NULL)
		return;
	context = ascend_context(w, device);
	WRITER_PUT(w, kernel_execute, context, &event);
	writer_leave(w);
}

static void take_record(uint32_t device, const uint32_t *words)
{
	uint32_t function = words[0] & 0x3f, kind = words[0] >> 10 & 0x3f;
	uint32_t stream = words[1] & 0xffff, task = words[1] >> 16;
	uint64_t counter;

	if (function > 1)
		return;
	counter = words[2] | (uint64_t)words[3] << 32;
	if (new_layout) {
		stream = STREAM_UNSET;
		task = words[1];
	} else {
		unpack(&stream, &task, kind);
	}
	event_execute(device, stream, task, counter, function + 1);
}

/* ---- the reader ---- */

static void put_clock(uint32_t device, int64_t counter, int64_t frequency)
{
	struct event_device_clock event = {.counter = (uint64_t)counter,
					   .frequency_hz = (uint64_t)frequency};
	struct writer *w = writer_enter();
	uint32_t context;

	if (w == NULL)
		return;
	context = ascend_context(w, device);
	WRITER_PUT(w, device_clock, context, &event);
	writer_leave(w);
}

/* The last record counts. If reading took long, this thread was interrupted and the pair is inaccurate: it tries again. */
static void event_clock(uint32_t device)
{
	int64_t counter = 0, frequency = 0;
	uint64_t start;
	int tries = 0;

	if (driver.info == NULL ||
	    driver.info(device, INFO_SYSTEM, INFO_FREQUENCY, &frequency) != 0 || frequency <= 0)
		return;
	/* The unit of the frequency differs between drivers; a counter runs at 10 MHz to 10 GHz. */
	if (frequency < 10000)
		frequency *= 1000000;
	else if (frequency < 10000000)
		frequency *= 1000;
	do {
		start = clock_ns();
		if (driver.info(device, INFO_SYSTEM, INFO_COUNTER, &counter) != 0)
			return;
		put_clock(device, counter, frequency);
	} while (clock_ns() - start > CLOCK_TOLERANCE_NS && ++tries < CLOCK_TRIES);
}

static void *read_device(void *argument)
{
	uint32_t device = (uint32_t)(uintptr_t)argument, have = 0, bytes = new_layout ? 32 : 64;
	char *buffer = mmap(NULL, BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			    -1, 0);
	uint64_t paired_ns = 0;

	if (buffer == MAP_FAILED) {
		atomic_fetch_and(&reading, ~(UINT64_C(1) << device));
		atomic_fetch_sub(&running, 1);
		return NULL;
	}
	for (;;) {
		uint32_t now_asked = atomic_load(&asked);
		bool last = atomic_load(&stopping) != 0;
		int got = driver.read(device, CHANNEL, buffer + have, BUFFER_BYTES - have);
		uint32_t at;

		if (recording_now() == RECORDING_ON && clock_ns() - paired_ns >= CLOCK_AGAIN_NS) {
			paired_ns = clock_ns();
			event_clock(device);
		}
		if (got <= 0) {
			/* Stopped and empty: all of it is recorded. The channel may return at once, so we pause. */
			if (last)
				break;
			atomic_store(&answered[device], now_asked);
			sys_sleep_ms(1);
			continue;
		}
		have += (uint32_t)got;
		for (at = 0; have - at >= bytes; at += bytes) {
			uint32_t words[16];

			memcpy(words, buffer + at, bytes);
			take_record(device, words);
		}
		have -= at;
		memmove(buffer, buffer + at, have);
	}
	(void)driver.stop(device, CHANNEL);
	(void)munmap(buffer, BUFFER_BYTES);
	atomic_fetch_and(&reading, ~(UINT64_C(1) << device));
	atomic_fetch_sub(&running, 1);
	return NULL;
}

static void start_reader(uint32_t device)
{
	pthread_attr_t attributes;
	sigset_t all, before;
	pthread_t thread;

	(void)sigfillset(&all);
	(void)sigprocmask(SIG_SETMASK, &all, &before);
	(void)pthread_attr_init(&attributes);
	(void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	atomic_fetch_add(&running, 1);
	atomic_fetch_or(&reading, UINT64_C(1) << device);
	if (pthread_create(&thread, &attributes, read_device, (void *)(uintptr_t)device) != 0) {
		atomic_fetch_and(&reading, ~(UINT64_C(1) << device));
		atomic_fetch_sub(&running, 1);
	}
	(void)pthread_attr_destroy(&attributes);
	(void)sigprocmask(SIG_SETMASK, &before, NULL);
}

void stars_start(uint32_t device)
{
	/* Task log and sub-tasks on (1), the rest unchanged (0); older drivers know only the first nine words. */
	static uint32_t wishes[11] = {[0] = 1, [6] = 1};
	struct start para = {.period = 20, .real_time = 1, .user = wishes};
	const char *soc;

	/* Earlier readers did not end in time. */
	if (atomic_load(&stopping) != 0)
		return;
	find("halGetDeviceInfo", &driver.info);
	find("prof_drv_start", &driver.start);
	find("prof_stop", &driver.stop);
	find("prof_channel_read", &driver.read);
	find("aclrtGetSocName", &driver.soc);
	if (driver.start != NULL && driver.stop != NULL && driver.read != NULL &&
	    pthread_create != NULL) {
		soc = driver.soc != NULL ? driver.soc() : NULL;
		new_layout =
			soc != NULL && (strstr(soc, "950") != NULL || strstr(soc, "960") != NULL);
		para.user_bytes = new_layout ? sizeof(wishes) : 9 * sizeof(wishes[0]);
		if (driver.start(device, CHANNEL, &para) == 0)
			start_reader(device);
		else
			collector_note(
				"no access to the profiling channel of device %u: kernels have no execution times",
				device);
	}
}

/* Whether all logs were empty after the call of this number. */
static bool is_collected(uint32_t number)
{
	uint64_t left = atomic_load(&reading);

	for (; left != 0; left &= left - 1) {
		if (atomic_load(&answered[__builtin_ctzll(left)]) < number)
			return false;
	}
	return true;
}

void stars_collect(void)
{
	uint32_t number = atomic_fetch_add(&asked, 1) + 1;
	int waited;

	for (waited = 0; waited < COLLECT_MS && !is_collected(number); waited++)
		sys_sleep_ms(1);
}

uint32_t stars_task(uint32_t task)
{
	return new_layout ? task : task & 0xffff;
}

void stars_stop(void)
{
	int waited;

	atomic_store(&stopping, 1);
	/* The program finalises its runtime: this is the last moment to read the log, for 0.2 s at most. */
	for (waited = 0; waited < COLLECT_MS && atomic_load(&running) > 0; waited++)
		sys_sleep_ms(1);
	if (atomic_load(&running) == 0)
		atomic_store(&stopping, 0);
}
