/* SPDX-License-Identifier: Apache-2.0 */
#include "collector/collector.h"

#include <stdarg.h>
#include <stdio.h>

_Alignas(COLLECTOR_PAGE) union collector_switch collector_switch;
struct collector collector;

void collector_count_loss(enum loss_cause cause)
{
	struct trace_header *header = collector.header;

	atomic_fetch_add_explicit(header != NULL ? &header->loss[cause] : &collector.early_losses,
				  1, memory_order_relaxed);
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
