/* SPDX-License-Identifier: Apache-2.0 */
#include "collector/collector.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/file.h>

#include "collector/sys.h"
#include "collector/unrecorded_count.h"

_Alignas(COLLECTOR_PAGE) union collector_switch collector_switch;
struct collector collector;

void collector_count_loss(enum loss_cause cause)
{
	struct trace_header *header = collector.header;
	uint64_t own, told;

	if (header == NULL) {
		atomic_fetch_add_explicit(&collector.early_losses, 1, memory_order_relaxed);
		return;
	}
	atomic_fetch_add_explicit(&header->loss_sum, 1, memory_order_relaxed);
	if (collector.counts_only) {
		atomic_fetch_add_explicit(&header->loss[cause], 1, memory_order_relaxed);
		return;
	}
	own = atomic_fetch_add_explicit(&collector.losses[cause], 1, memory_order_relaxed) + 1;
	told = atomic_fetch_add_explicit(&header->loss[cause], 1, memory_order_relaxed) + 1;
	/* A child that only counts adds to it too; anything else is a stray store. */
	if (MSCOPE_UNLIKELY(told < own || told - own > UINT32_MAX))
		(void)atomic_compare_exchange_strong(&header->loss[cause], &told, own);
}

void collector_tell_losses(void)
{
	struct trace_header *header = collector.header;
	uint64_t sum = 0;
	uint32_t i;

	/* Children that only count have added to it; there are none but under a seccomp filter. */
	if (quiet_is_on())
		return;
	for (i = 0; i < TRACE_LOSSES_MAX; i++) {
		uint64_t own = atomic_load_explicit(&collector.losses[i], memory_order_relaxed);

		atomic_store_explicit(&header->loss[i], own, memory_order_relaxed);
		sum += own;
	}
	atomic_store_explicit(&header->loss_sum, sum, memory_order_relaxed);
}

void collector_count_stopped(void)
{
	if (collector.header == NULL)
		unrecorded_count();
	else
		collector_count_loss(collector_stop_cause());
}

enum loss_cause collector_stop_cause(void)
{
	switch (atomic_load_explicit(&collector.stop, memory_order_relaxed)) {
	case TRACE_STOP_NONE:
		return LOSS_sandboxed; /* recording goes on when the engine has made a chunk ready */
	case TRACE_STOP_FULL:
		return LOSS_trace_full;
	case TRACE_STOP_LIMIT:
		return LOSS_disk_limit;
	default:
		return LOSS_no_space;
	}
}

bool collector_engine_lives(void)
{
	int fd = sys_open(collector.session_path, O_RDONLY | O_CLOEXEC, 0);
	bool held;

	if (fd < 0)
		return errno != ENOENT; /* no error tells that it is gone */
	held = syscall(SYS_flock, fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
	sys_close(fd);
	return held;
}

void collector_note(const char *format, ...)
{
	va_list args;
	uint32_t at;

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

	if (atomic_compare_exchange_strong(&collector.stop, &none, reason)) {
		atomic_store(&collector.header->stop_errno, (uint32_t)error);
		atomic_store(&collector.header->stop, reason);
	}
	atomic_store(&collector_switch.recording, RECORDING_BROKEN);
}
