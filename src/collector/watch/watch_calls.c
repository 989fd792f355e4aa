/* SPDX-License-Identifier: Apache-2.0 */
#include "collector/watch/watch_calls.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"

void watch_calls_reset(struct watch_calls *calls)
{
	uint32_t i;

	for (i = 0; i < calls->room_used; i++)
		calls->calls[i].tid = 0;
	calls->room_used = 0;
	calls->order = 0;
}

/* The innermost call in progress of a thread, NULL: none. */
static struct watch_open_call *innermost(struct watch_calls *calls, uint32_t tid)
{
	struct watch_open_call *found = NULL;
	uint32_t i;

	for (i = 0; i < calls->room_used; i++) {
		struct watch_open_call *call = &calls->calls[i];

		if (call->tid == tid && !call->ended &&
		    (found == NULL || call->order > found->order))
			found = call;
	}
	return found;
}

static struct watch_open_call *named(struct watch_calls *calls, uint32_t tid, const char *name)
{
	struct watch_open_call *call = innermost(calls, tid);

	return call != NULL && (name == NULL || call->name == hash_text(name)) ? call : NULL;
}

/* Makes two calls that have ended, the oldest, one that allows what both declared. Returns the entry that is free then. */
static uint32_t join_oldest(struct watch_calls *calls)
{
	struct watch_open_call *oldest = NULL, *next = NULL;
	uint32_t i;

	for (i = 0; i < calls->room_used; i++) {
		struct watch_open_call *call = &calls->calls[i];

		if (!call->ended)
			continue;
		if (oldest == NULL || call->order < oldest->order) {
			next = oldest;
			oldest = call;
		} else if (next == NULL || call->order < next->order) {
			next = call;
		}
	}
	if (next == NULL)
		return WATCH_CALLS;
	for (i = 0; i < oldest->count; i++)
		next->count =
			watch_span_add(next->spans, next->count, WATCH_SPANS, oldest->spans[i]);
	if (oldest->lasts > next->lasts)
		next->lasts = oldest->lasts;
	oldest->tid = 0;
	return (uint32_t)(oldest - calls->calls);
}

bool watch_calls_open(struct watch_calls *calls, uint32_t tid, const char *name, uintptr_t frame)
{
	uint32_t i;

	if (!lock_take(&calls->lock))
		return false;
	for (i = 0; i < calls->room_used && frame != 0; i++) {
		struct watch_open_call *old = &calls->calls[i];

		if (old->tid == tid && !old->ended && old->frame != 0 && old->frame <= frame)
			old->tid = 0;
	}
	for (i = 0; i < calls->room_used && calls->calls[i].tid != 0; i++)
		;
	if (i == WATCH_CALLS)
		i = join_oldest(calls);
	if (i < WATCH_CALLS) {
		struct watch_open_call *call = &calls->calls[i];

		if (i == calls->room_used)
			calls->room_used++;
		call->tid = tid;
		call->ended = false;
		call->name = hash_text(name);
		call->order = ++calls->order;
		call->frame = frame;
		(void)snprintf(call->shown, sizeof(call->shown), "%s", name);
		call->count = 0;
		call->lasts = 0;
	}
	lock_release(&calls->lock);
	return i < WATCH_CALLS;
}

void watch_calls_declare(struct watch_calls *calls, uint32_t tid, const char *name,
			 const struct watch_span *spans, uint32_t count, bool lasting)
{
	struct watch_open_call *call;
	uint32_t i;

	if (count == 0 || !lock_take(&calls->lock))
		return;
	call = named(calls, tid, name);
	for (i = 0; call != NULL && i < count; i++)
		call->count = watch_span_add(call->spans, call->count, WATCH_SPANS, spans[i]);
	if (call != NULL && lasting)
		call->lasts = WATCH_LASTS;
	lock_release(&calls->lock);
}

void watch_calls_close(struct watch_calls *calls, uint32_t tid, const char *name, bool seen)
{
	uint64_t wanted = hash_text(name);
	struct watch_open_call *call = NULL;
	uint32_t i;

	if (!lock_take(&calls->lock))
		return;
	for (i = 0; i < calls->room_used; i++) {
		struct watch_open_call *found = &calls->calls[i];

		if (found->tid == tid && !found->ended && found->name == wanted &&
		    (call == NULL || found->order > call->order))
			call = found;
	}
	/* Calls inside it whose end did not come are over, too. */
	for (i = 0; call != NULL && i < calls->room_used; i++) {
		if (calls->calls[i].tid == tid && calls->calls[i].order > call->order)
			calls->calls[i].tid = calls->calls[i].ended ? tid : 0;
	}
	if (call != NULL && (!seen || call->lasts > 0) && call->count > 0)
		call->ended = true;
	else if (call != NULL)
		call->tid = 0;
	lock_release(&calls->lock);
}

void watch_calls_seen(struct watch_calls *calls)
{
	uint32_t i;

	if (!lock_take(&calls->lock))
		return;
	for (i = 0; i < calls->room_used; i++) {
		struct watch_open_call *call = &calls->calls[i];

		if (call->ended && (call->lasts == 0 || --call->lasts == 0))
			call->tid = 0;
	}
	while (calls->room_used > 0 && calls->calls[calls->room_used - 1].tid == 0)
		calls->room_used--;
	lock_release(&calls->lock);
}

bool watch_calls_inside(struct watch_calls *calls, uint32_t tid, const char *but,
			char out[WATCH_SHOWN])
{
	uint64_t not_this = hash_text(but);
	const struct watch_open_call *found = NULL;
	uint32_t i;

	if (!lock_take(&calls->lock))
		return false;
	for (i = 0; i < calls->room_used; i++) {
		const struct watch_open_call *call = &calls->calls[i];

		if (call->tid == 0 || call->ended || call->name == not_this)
			continue;
		if (found == NULL || (call->tid == tid) > (found->tid == tid) ||
		    ((call->tid == tid) == (found->tid == tid) && call->order > found->order))
			found = call;
	}
	if (found != NULL)
		memcpy(out, found->shown, WATCH_SHOWN);
	lock_release(&calls->lock);
	return found != NULL;
}

uint32_t watch_span_add(struct watch_span *list, uint32_t count, uint32_t room,
			struct watch_span span)
{
	uint32_t at = 0, behind;

	if (span.first >= span.end)
		return count;
	while (at < count && list[at].end < span.first)
		at++;
	/* Those that it overlaps or touches become one with it. */
	for (behind = at; behind < count && list[behind].first <= span.end; behind++) {
		if (list[behind].first < span.first)
			span.first = list[behind].first;
		if (list[behind].end > span.end)
			span.end = list[behind].end;
	}
	if (behind == at && count == room) {
		/* Room is for one that is a little too large. */
		at = at == count ? at - 1 : at;
		if (list[at].first > span.first)
			list[at].first = span.first;
		if (list[at].end < span.end)
			list[at].end = span.end;
		return count;
	}
	memmove(&list[at + 1], &list[behind], (count - behind) * sizeof(*list));
	list[at] = span;
	return count - (behind - at) + 1;
}

static struct watch_span common(struct watch_span a, struct watch_span b)
{
	return (struct watch_span){a.first > b.first ? a.first : b.first,
				   a.end < b.end ? a.end : b.end};
}

uint32_t watch_calls_allowed(struct watch_calls *calls, struct watch_span within,
			     struct watch_span *out, uint32_t room)
{
	uint32_t i, k, count = 0;

	if (!lock_take(&calls->lock))
		return 0;
	for (i = 0; i < calls->room_used; i++) {
		const struct watch_open_call *call = &calls->calls[i];

		if (call->tid == 0 || (!call->ended && innermost(calls, call->tid) != call))
			continue;
		for (k = 0; k < call->count; k++)
			count = watch_span_add(out, count, room, common(call->spans[k], within));
	}
	lock_release(&calls->lock);
	return count;
}
