/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The profiling channels. Of all that real devices have, the STARS log is alive: each task that begins or ends leaves a
 * record there, which a reader takes with prof_channel_read().
 *
 *     A2, A3 (64 bytes)                               950, 960 (32 bytes)
 *     word 0   func:6 cnt:4 sqe:6 magic:16            word 0   the same
 *     word 1   stream:16 task:16                      word 1   task:32
 *     word 2   counter, low half                      word 2   counter, low half
 *     word 3   counter, high half                     word 3   counter, high half
 *     word 4   0:16 acc:6 acsq:10                     word 4   the same
 *     11 words of 0                                   3 words of 0
 *
 * Real schedulers write stream and task of the first layout in several ways, as they have bits to spare. So do we, by turns
 * of the task number: whoever reads must know them all. A task number is cut to its low 16 bits.
 *
 *     streams below 2048     stream            task
 *                            stream | 0x1000 | task & 0xe000      task & 0x1fff
 *                            0x2000 | task & 0xfff                task & 0xf000 | stream
 *     expanded to 32768      stream            task
 *                            0x8000 | task & 0x7fff               task & 0x8000 | stream     (not event records)
 *
 * Records wait in a ring of 64 MiB; what does not fit is lost and counted, as on a real device. A channel belongs to the
 * process that started it: a forked child has none.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "ascend_hal.h"
#include "config.h"
#include "device.h"

enum {
	STARS_MAGIC = 0x6bd3,
	STARS_BEGIN = 0,
	STARS_END = 1,
	STARS_WORDS_OLD = 16,
	STARS_WORDS_NEW = 8,
	RING_BYTES = 64 << 20,
	WAIT_NS = 5000000, /* of a reader that finds nothing */
	TASK_ENABLE = 1,   /* in the first word of the user data */
};

/* What belongs to a device. All but `live` and `count` is guarded by the lock. */
struct channels {
	pthread_mutex_t lock;
	pthread_cond_t filled;
	uint64_t started[(CHANNEL_NUM + 63) / 64]; /* bit n: channel n */
	char *ring; /* of the STARS channel, from its first start on */
	size_t read_at;
	size_t fill;
	uint64_t lost;		/* records, since the start */
	_Atomic bool live;	/* tasks are to be recorded */
	_Atomic uint32_t count; /* records so far */
};

static struct channels devices[CONFIG_DEVICES_MAX];

static void init_wait(pthread_cond_t *filled)
{
	pthread_condattr_t attributes;

	(void)pthread_condattr_init(&attributes);
	(void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	(void)pthread_cond_init(filled, &attributes);
	(void)pthread_condattr_destroy(&attributes);
}

static struct channels *find(unsigned device, unsigned channel)
{
	if (device >= config_get()->device_count || channel == 0 || channel >= CHANNEL_NUM)
		return NULL;
	return &devices[device];
}

static bool is_started(const struct channels *c, unsigned channel)
{
	return c->started[channel / 64] >> channel % 64 & 1;
}

static bool open_ring(struct channels *c)
{
	void *ring;

	if (c->ring)
		return true;
	ring = mmap(NULL, RING_BYTES, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (ring == MAP_FAILED)
		return false;
	(void)madvise(ring, RING_BYTES, MADV_DONTDUMP);
	c->ring = ring;
	return true;
}

static bool wants_tasks(const struct prof_start_para *para)
{
	uint32_t enable = 0;

	if (!para->user_data || para->user_data_size < sizeof(enable))
		return false;
	memcpy(&enable, para->user_data, sizeof(enable));
	return enable == TASK_ENABLE;
}

int prof_drv_start(unsigned int device_id, unsigned int channel_id,
		   struct prof_start_para *start_para)
{
	struct channels *c = find(device_id, channel_id);
	int result = PROF_OK;

	if (!c || !start_para)
		return PROF_ERROR;
	(void)pthread_mutex_lock(&c->lock);
	if (is_started(c, channel_id)) {
		result = PROF_STARTED_ALREADY;
	} else if (channel_id == CHANNEL_STARS_SOC_LOG_BUFFER && !open_ring(c)) {
		result = PROF_ERROR;
	} else {
		c->started[channel_id / 64] |= 1ULL << channel_id % 64;
		if (channel_id == CHANNEL_STARS_SOC_LOG_BUFFER) {
			c->fill = 0;
			c->lost = 0;
			atomic_store_explicit(&c->live, wants_tasks(start_para),
					      memory_order_relaxed);
		}
	}
	(void)pthread_mutex_unlock(&c->lock);
	return result;
}

int prof_stop(unsigned int device_id, unsigned int channel_id)
{
	struct channels *c = find(device_id, channel_id);
	uint64_t lost = 0;
	int result = PROF_OK;

	if (!c)
		return PROF_ERROR;
	(void)pthread_mutex_lock(&c->lock);
	if (is_started(c, channel_id)) {
		c->started[channel_id / 64] &= ~(1ULL << channel_id % 64);
		if (channel_id == CHANNEL_STARS_SOC_LOG_BUFFER) {
			atomic_store_explicit(&c->live, false, memory_order_relaxed);
			lost = c->lost;
		}
		(void)pthread_cond_broadcast(&c->filled);
	} else {
		result = PROF_STOPPED_ALREADY;
	}
	(void)pthread_mutex_unlock(&c->lock);
	if (lost)
		(void)fprintf(stderr,
			      "simnpu: nobody read %llu profiling records of device %u in time\n",
			      (unsigned long long)lost, device_id);
	return result;
}

/* Waits until there is something to read, for a short while. With the lock. */
static void wait_filled(struct channels *c, unsigned channel)
{
	struct timespec end;

	(void)clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_nsec += WAIT_NS;
	if (end.tv_nsec >= 1000000000) {
		end.tv_sec++;
		end.tv_nsec -= 1000000000;
	}
	while ((channel != CHANNEL_STARS_SOC_LOG_BUFFER || !c->fill) && is_started(c, channel) &&
	       pthread_cond_timedwait(&c->filled, &c->lock, &end) == 0)
		;
}

static size_t take(struct channels *c, char *buf, size_t size)
{
	size_t count = c->fill < size ? c->fill : size;
	size_t first = RING_BYTES - c->read_at;

	if (first > count)
		first = count;
	memcpy(buf, c->ring + c->read_at, first);
	memcpy(buf + first, c->ring, count - first);
	c->fill -= count;
	/* An emptied ring starts over, so that a diligent reader keeps it to a few pages. */
	c->read_at = c->fill ? (c->read_at + count) % RING_BYTES : 0;
	return count;
}

int prof_channel_read(unsigned int device_id, unsigned int channel_id, char *out_buf,
		      unsigned int buf_size)
{
	struct channels *c = find(device_id, channel_id);
	int result = 0;

	if (!c || !out_buf || buf_size == 0 || buf_size > INT32_MAX)
		return PROF_ERROR;
	(void)pthread_mutex_lock(&c->lock);
	wait_filled(c, channel_id);
	if (channel_id == CHANNEL_STARS_SOC_LOG_BUFFER && c->fill)
		result = (int)take(c, out_buf, buf_size);
	else if (!is_started(c, channel_id))
		result = PROF_STOPPED_ALREADY;
	(void)pthread_mutex_unlock(&c->lock);
	return result;
}

static void put(struct channels *c, const void *record, size_t size)
{
	size_t at;
	size_t first;

	(void)pthread_mutex_lock(&c->lock);
	if (RING_BYTES - c->fill < size) {
		c->lost++;
	} else {
		at = (c->read_at + c->fill) % RING_BYTES;
		first = RING_BYTES - at < size ? RING_BYTES - at : size;
		memcpy(c->ring + at, record, first);
		memcpy(c->ring, (const char *)record + first, size - first);
		c->fill += size;
		(void)pthread_cond_signal(&c->filled);
	}
	(void)pthread_mutex_unlock(&c->lock);
}

/* Word 1 of the first layout; the table at the top of the file. */
static uint32_t encode_ids(const struct simnpu_task *task)
{
	uint32_t turn = task->id;
	uint32_t id = task->id & 0xffff;
	uint32_t stream = task->stream;

	if (halSimStreamsExpanded()) {
		if (turn % 2 && task->kind != SIMNPU_TASK_EVENT_RECORD) {
			stream = 0x8000 | (id & 0x7fff);
			id = (id & 0x8000) | task->stream;
		}
	} else if (turn % 3 == 1) {
		stream |= 0x1000 | (id & 0xe000);
		id &= 0x1fff;
	} else if (turn % 3 == 2) {
		stream = 0x2000 | (id & 0xfff);
		id = (id & 0xf000) | task->stream;
	}
	return stream | id << 16;
}

static void record(const struct simnpu_task *task, uint32_t func, uint64_t time_ns)
{
	struct channels *c = &devices[task->device];
	uint64_t counter = time_ns / SIMNPU_CLOCK_PERIOD_NS;
	uint32_t words[STARS_WORDS_OLD] = {0};
	uint32_t count;

	if (!atomic_load_explicit(&c->live, memory_order_relaxed))
		return;
	count = atomic_fetch_add_explicit(&c->count, 1, memory_order_relaxed);
	words[0] = func | (count & 0xf) << 6 | (uint32_t)task->kind << 10 |
		   (uint32_t)STARS_MAGIC << 16;
	words[1] = halSimSocIsNew() ? task->id : encode_ids(task);
	words[2] = (uint32_t)counter;
	words[3] = (uint32_t)(counter >> 32);
	words[4] = (task->stream & 0x3ff) << 22;
	put(c, words, (halSimSocIsNew() ? STARS_WORDS_NEW : STARS_WORDS_OLD) * sizeof(words[0]));
}

void halSimTaskBegins(const struct simnpu_task *task, uint64_t time_ns)
{
	record(task, STARS_BEGIN, time_ns);
}

void halSimTaskEnds(const struct simnpu_task *task, uint64_t time_ns)
{
	record(task, STARS_END, time_ns);
}

static void before_fork(void)
{
	unsigned n;

	for (n = 0; n < CONFIG_DEVICES_MAX; n++)
		(void)pthread_mutex_lock(&devices[n].lock);
}

static void after_fork(void)
{
	unsigned n;

	for (n = CONFIG_DEVICES_MAX; n-- > 0;)
		(void)pthread_mutex_unlock(&devices[n].lock);
}

static void after_fork_in_child(void)
{
	unsigned n;

	for (n = 0; n < CONFIG_DEVICES_MAX; n++) {
		struct channels *c = &devices[n];

		memset(c->started, 0, sizeof(c->started));
		c->fill = 0;
		atomic_store_explicit(&c->live, false, memory_order_relaxed);
		/* The parent's readers may have waited there. */
		init_wait(&c->filled);
	}
	after_fork();
}

__attribute__((constructor)) static void prepare(void)
{
	unsigned n;

	for (n = 0; n < CONFIG_DEVICES_MAX; n++) {
		(void)pthread_mutex_init(&devices[n].lock, NULL);
		init_wait(&devices[n].filled);
	}
	(void)pthread_atfork(before_fork, after_fork, after_fork_in_child);
}
