/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings as numbers, and what one of them brings with it. Header-only: the command decides by it what a session says, the
 * injected library what a window does, the engine what an analysis can look at.
 */
#ifndef MSCOPE_TRACE_SETTINGS_H
#define MSCOPE_TRACE_SETTINGS_H

#include <stdbool.h>

#include "base/vendors.h"
#include "trace/record.h"
#include "trace/session.h"

/* Which number of mscope_settings() and mscope_start() is which setting. */
enum setting {
#define SETTING(name, ...) SETTING_##name,
	SETTINGS(SETTING) SETTING_COUNT
#undef SETTING
};

_Static_assert(SETTING_COUNT <= 32, "a program names settings by the bits of one word");

MSCOPE_INLINE struct event_settings settings_of_session(const struct session *session)
{
#define SETTING(name, ...) .name = session->name,
	return (struct event_settings){SETTINGS(SETTING)};
#undef SETTING
}

MSCOPE_INLINE void settings_to_session(const struct event_settings *settings,
				       struct session *session)
{
#define SETTING(name, ...) session->name = (uint32_t)settings->name;
	SETTINGS(SETTING)
#undef SETTING
}

MSCOPE_INLINE struct event_settings settings_of_numbers(const uint32_t *numbers)
{
#define SETTING(name, ...) .name = numbers[SETTING_##name],
	return (struct event_settings){SETTINGS(SETTING)};
#undef SETTING
}

MSCOPE_INLINE void settings_to_numbers(const struct event_settings *settings, uint32_t *numbers)
{
#define SETTING(name, ...) numbers[SETTING_##name] = (uint32_t)settings->name;
	SETTINGS(SETTING)
#undef SETTING
}

/* Bits of the devices that settings choose, as settings_take_device() has them: NPUs, and GPUs. */
#define SETTINGS_NPUS(settings)                                                                    \
	((settings)->all_devices ? UINT32_MAX : (uint32_t)(settings)->devices)
#define SETTINGS_GPUS(settings) (SETTINGS_NPUS(settings) ^ (uint32_t)(settings)->gpus_otherwise)

/* Whether pinned and registered host memory is chosen: by `cpu`, and where no device was named, so that all are chosen. */
MSCOPE_INLINE bool settings_take_pinned(uint32_t npus, uint32_t gpus, bool host)
{
	return host || (npus == UINT32_MAX && gpus == UINT32_MAX);
}

/*
 * Whether a device of a vendor is chosen: `npus` and `gpus` have a bit for each that is, all bits mean every one, also beyond 31.
 * Of a vendor that is unknown, either choice counts.
 */
MSCOPE_INLINE bool settings_take_device(uint32_t npus, uint32_t gpus, uint32_t vendor,
					uint32_t device)
{
	uint32_t bits = vendor == VENDOR_CUDA ? gpus : vendor == VENDOR_ASCEND ? npus : npus | gpus;

	return bits == UINT32_MAX || (device <= 31 && (bits >> device & 1) != 0);
}

/* Events that these analyses look at. */
MSCOPE_INLINE uint32_t settings_events_of(uint32_t analysis)
{
	uint32_t events = analysis != 0 ? SESSION_ALLOC | SESSION_FREE : 0;

	return analysis & SESSION_INEFFICIENT ? events | SESSION_ACCESS | SESSION_LAUNCH : events;
}

/* Analyses that have something to look at when these events are written: no leaks without blocks. */
MSCOPE_INLINE uint32_t settings_analysis_of(uint32_t analysis, uint32_t events)
{
	return events & SESSION_ALLOC ? analysis : analysis & ~(uint32_t)SESSION_LEAKS;
}

/*
 * Completes settings as they were typed. An analysis that the user named brings the events it looks at; the default one takes
 * what there is. An allocation without its free, or an access without its block, says nothing: each brings both.
 */
MSCOPE_INLINE void settings_complete(struct event_settings *settings, bool analysis_named)
{
	if (analysis_named)
		settings->events |= settings_events_of((uint32_t)settings->analysis);
	if (settings->events & (SESSION_ALLOC | SESSION_FREE | SESSION_ACCESS))
		settings->events |= SESSION_ALLOC | SESSION_FREE;
	settings->analysis =
		settings_analysis_of((uint32_t)settings->analysis, (uint32_t)settings->events);
}

#endif
