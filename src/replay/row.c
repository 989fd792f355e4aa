/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of columns that rows have in every form. */
#include <stdio.h>

#include "replay/replay.h"

bool pool_is_driver(uint8_t pool)
{
	return pool == POOL_hal || pool == POOL_host_pinned || pool == POOL_host ||
	       pool == POOL_UNKNOWN;
}

const char *pool_event_type(uint8_t pool)
{
	static const char *const names[] = {
		[POOL_UNKNOWN] = "UNKNOWN",
#define POOL(number, name, event_type, meaning) [number] = event_type,
#include "trace/pools.def"
#undef POOL
	};

	return pool < MSCOPE_COUNT(names) && names[pool] != NULL ? names[pool]
								 : names[POOL_UNKNOWN];
}

void device_text(uint32_t device, char out[16])
{
	if (device == DEVICE_HOST)
		(void)snprintf(out, 16, "cpu");
	else if (device == DEVICE_UNKNOWN)
		(void)snprintf(out, 16, "N/A");
	else
		(void)snprintf(out, 16, "%u", device);
}

struct row_text {
	const char *event;
	const char *event_type;
	enum row_group group;
};

static const struct row_text row_texts[ROW_END] = {
#define ROW(symbol, event_, event_type_, group_)                                                   \
	[ROW_##symbol] = {.event = event_, .event_type = event_type_, .group = ROW_GROUP_##group_},
#include "replay/rows.def"
#undef ROW
};

const char *row_event(enum row_kind kind)
{
	return row_texts[kind].event;
}

const char *row_event_type(const struct row *row)
{
	const char *text = row_texts[row->kind].event_type;

	return text != NULL ? text : pool_event_type(row->context->pool);
}

enum row_group row_group(enum row_kind kind)
{
	return row_texts[kind].group;
}
