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

	atomic_fetch_add_explicit(header != NULL ? &header->loss[cause] : &collector.early_losses,
				  1, memory_order_relaxed);
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
	switch (atomic_load_explicit(&collector.header->stop, memory_order_relaxed)) {
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

	if (atomic_compare_exchange_strong(&collector.header->stop, &none, reason))
		atomic_store(&collector.header->stop_errno, (uint32_t)error);
	atomic_store(&collector_switch.recording, RECORDING_BROKEN);
}
