/* SPDX-License-Identifier: Apache-2.0 */
#include "known.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "acl/acl_rt.h"
#include "runtime/rt.h"

enum {
	TOLD_MAX = 32,
};

struct range {
	uintptr_t begin, end;
};

/* Known ranges by address; none touches another. */
static struct {
	pthread_mutex_t lock;
	struct range *all;
	size_t count, room;
} known = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* What is to be told at the next wait. */
static struct {
	pthread_mutex_t lock;
	rtSimListener listener;
	struct {
		uint32_t kind;
		const char *name;
	} all[TOLD_MAX];
	_Atomic size_t count;
} told = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool is_on(void)
{
	return rtSimComputed() < RT_SIM_ALL;
}

/* Index of the first range that ends after `address`. */
static size_t first_after(uintptr_t address)
{
	size_t low = 0, high = known.count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (known.all[middle].end <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Puts `count` ranges in the place of those from `first` to before `last`. Without memory, what is known is forgotten. */
static void replace(size_t first, size_t last, const struct range *ranges, size_t count)
{
	size_t wanted = known.count - (last - first) + count;

	if (wanted > known.room) {
		size_t room = wanted * 2;
		struct range *all = realloc(known.all, room * sizeof(*all));

		if (!all) {
			known.count = 0;
			return;
		}
		known.all = all;
		known.room = room;
	}
	memmove(known.all + first + count, known.all + last,
		(known.count - last) * sizeof(*known.all));
	memcpy(known.all + first, ranges, count * sizeof(*ranges));
	known.count = wanted;
}

static void add(uintptr_t begin, uintptr_t end)
{
	struct range whole = {begin, end};
	size_t first = first_after(begin == 0 ? 0 : begin - 1), last = first;

	while (last < known.count && known.all[last].begin <= end) {
		if (known.all[last].begin < whole.begin)
			whole.begin = known.all[last].begin;
		if (known.all[last].end > whole.end)
			whole.end = known.all[last].end;
		last++;
	}
	replace(first, last, &whole, 1);
}

static void take_out(uintptr_t begin, uintptr_t end)
{
	size_t first = first_after(begin), last = first, count = 0;
	struct range rest[2];

	while (last < known.count && known.all[last].begin < end)
		last++;
	if (first == last)
		return;
	if (known.all[first].begin < begin)
		rest[count++] = (struct range){known.all[first].begin, begin};
	if (known.all[last - 1].end > end)
		rest[count++] = (struct range){end, known.all[last - 1].end};
	replace(first, last, rest, count);
}

void rtSimKnow(const void *data, uint64_t bytes, bool is_known)
{
	uintptr_t begin = (uintptr_t)data;

	if (!is_on() || bytes == 0)
		return;
	(void)pthread_mutex_lock(&known.lock);
	if (is_known)
		add(begin, begin + bytes);
	else
		take_out(begin, begin + bytes);
	(void)pthread_mutex_unlock(&known.lock);
}

bool rtSimIsKnown(const void *data, uint64_t bytes)
{
	uintptr_t begin = (uintptr_t)data;
	bool found;
	size_t at;

	if (!is_on() || bytes == 0)
		return true;
	(void)pthread_mutex_lock(&known.lock);
	at = first_after(begin);
	found = at < known.count && known.all[at].begin <= begin &&
		known.all[at].end >= begin + bytes;
	(void)pthread_mutex_unlock(&known.lock);
	return found;
}

void rtSimUnknown(uint32_t kind, const char *name)
{
	size_t n;

	if (!is_on())
		return;
	(void)pthread_mutex_lock(&told.lock);
	n = told.count;
	if (told.listener && n < TOLD_MAX) {
		told.all[n].kind = kind;
		told.all[n].name = name;
		told.count = n + 1;
	}
	(void)pthread_mutex_unlock(&told.lock);
}

void rtSimListen(rtSimListener listener)
{
	(void)pthread_mutex_lock(&told.lock);
	told.listener = listener;
	told.count = 0;
	(void)pthread_mutex_unlock(&told.lock);
}

void known_tell(void)
{
	while (atomic_load_explicit(&told.count, memory_order_relaxed) > 0) {
		rtSimListener listener = NULL;
		const char *name = NULL;
		uint32_t kind = 0;

		(void)pthread_mutex_lock(&told.lock);
		if (told.count > 0) {
			listener = told.listener;
			kind = told.all[0].kind;
			name = told.all[0].name;
			told.count = told.count - 1;
			memmove(told.all, told.all + 1, told.count * sizeof(told.all[0]));
		}
		(void)pthread_mutex_unlock(&told.lock);
		/* Without the lock: it may come here again. */
		if (listener)
			listener(kind, name);
	}
}

static bool is_zero(const unsigned char *bytes, uint64_t count)
{
	return count == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, count - 1) == 0);
}

void known_copied(void *dst, const void *src, uint64_t bytes, int32_t kind, enum copy_way way)
{
	bool whole = way == COPY_IS_DONE;

	if (!is_on() || kind == ACL_MEMCPY_HOST_TO_HOST)
		return;
	if (kind == ACL_MEMCPY_HOST_TO_DEVICE)
		rtSimKnow(dst, bytes, whole);
	else if (kind != ACL_MEMCPY_DEVICE_TO_HOST)
		rtSimKnow(dst, bytes, whole && rtSimIsKnown(src, bytes));
	else if (!whole || !rtSimIsKnown(src, bytes))
		rtSimUnknown(way == COPY_IS_SKIPPED || !is_zero(dst, bytes) ? RT_SIM_READ
									    : RT_SIM_READ_ZERO,
			     "copy");
}
