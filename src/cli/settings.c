/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From options to what a launch obeys, and what has to be said about them before anything starts: wishes that this version
 * cannot fulfil yet, an analysis that other options switch off, an output directory that others can change.
 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "trace/session.h"

_Static_assert(OPTION_NUMBERS_MAX == SESSION_STEPS_MAX, "every list of steps fits into a session");
_Static_assert(OPTION_WATCH_NAME_MAX < SESSION_WATCH_MAX, "every name fits into a session");
_Static_assert(SESSION_ACCESS == 1 << OPT_EVENTS_ACCESS &&
		       SESSION_LEVEL_KERNEL == 1 << OPT_LEVEL_KERNEL &&
		       SESSION_OOM == 1 << OPT_ANALYSIS_OOM,
	       "bits of a session are those of the options");

/* What an analysis that the user named needs to be written. The default one needs nothing: it looks at what there is. */
static uint32_t events_of_analysis(const struct options *options)
{
	uint32_t events = 0;

	if (!options_given(options, OPTION_ID_analysis))
		return 0;
	if (options->analysis.mask != 0)
		events |= SESSION_ALLOC | SESSION_FREE;
	if (option_set_has(&options->analysis, OPT_ANALYSIS_INEFFICIENT))
		events |= SESSION_ACCESS | SESSION_LAUNCH;
	return events;
}

static uint32_t events_written(const struct options *options)
{
	uint32_t events = options->events.mask &
			  (SESSION_ALLOC | SESSION_FREE | SESSION_LAUNCH | SESSION_ACCESS);

	events |= events_of_analysis(options);
	/* An allocation without its free, or an access without its block, says nothing. */
	if (events & (SESSION_ALLOC | SESSION_FREE | SESSION_ACCESS))
		events |= SESSION_ALLOC | SESSION_FREE;
	return events;
}

/* A bit for each device. The trace numbers the devices of every vendor from 0, so the words of all vendors fill one set. */
static uint32_t devices_written(const struct options *options)
{
	uint32_t devices = 0;
	size_t i;

	for (i = 0; i < OPTION_SET_BITS; i++)
		devices |= options->device.number[i];
	return devices;
}

void launch_settings(const struct options *options, struct session *out)
{
	struct timespec now;
	struct tm local;
	time_t seconds;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	seconds = now.tv_sec;
	*out = (struct session){
		.bytes = sizeof(*out),
		.state = options->collect_mode == OPT_COLLECT_DEFERRED ? RECORDING_SHADOW
								       : RECORDING_ON,
		.launch_pid = (uint32_t)getpid(),
		.realtime_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec,
		.keep_trace = !options->no_keep_trace,
		.level = options->level.mask,
		.events = events_written(options),
		.format = (uint32_t)options->format,
		.devices = devices_written(options),
		.all_devices = devices_written(options) == UINT32_MAX,
		.host = option_set_has(&options->device, OPT_DEVICE_CPU),
		.analysis = options->analysis.mask,
		.oom_top = options->analysis.number[OPT_ANALYSIS_OOM],
		.log_level = (uint32_t)options->log_level,
		.close_live = options->insight_close_live,
		.step_count = options->steps.count,
	};
	memcpy(out->magic, SESSION_MAGIC, sizeof(out->magic));
	/* Without allocations and frees nothing can be said about leaks; launch_advise() says so. */
	if (!(out->events & SESSION_ALLOC))
		out->analysis &= ~(uint32_t)SESSION_LEAKS;
	memcpy(out->steps, options->steps.value, options->steps.count * sizeof(out->steps[0]));
	if (option_set_has(&options->call_stack, OPT_STACK_C))
		out->c_depth = options->call_stack.number[OPT_STACK_C];
	if (option_set_has(&options->call_stack, OPT_STACK_PYTHON))
		out->python_shown = options->call_stack.number[OPT_STACK_PYTHON];
	if (options_given(options, OPTION_ID_watch)) {
		out->watch = (struct session_watch){.on = 1,
						    .full = options->watch.full_content,
						    .output = options->watch.output};
		memcpy(out->watch.start, options->watch.start, sizeof(options->watch.start));
		memcpy(out->watch.end, options->watch.end, sizeof(options->watch.end));
	}
	out->traceback = option_set_has(&options->events, OPT_EVENTS_TRACEBACK);
	if (localtime_r(&seconds, &local) != NULL)
		out->utc_offset_s = (int32_t)local.tm_gmtoff;
	(void)snprintf(out->output, sizeof(out->output), "%s", options->output_path);
}

/* ---- what is said before the start ---- */

/* Whoever makes one of these come true deletes a line. */
void launch_tell_missing(const struct options *options)
{
	const struct {
		enum option_id option;
		const struct option_set *set;
		int bit;
		const char *what;
	} missing[] = {
		{OPTION_ID_analysis, &options->analysis, OPT_ANALYSIS_OOM, "analysis oom"},
	};
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(missing); i++) {
		if (options_given(options, missing[i].option) &&
		    option_set_has(missing[i].set, missing[i].bit))
			cli_say("%s is not in this version%s", missing[i].what,
				missing[i].option == OPTION_ID_analysis
					? "; its events are recorded in the trace"
					: "");
	}
}

bool cli_tell_root(const char *what)
{
	if (geteuid() != 0)
		return false;
	cli_say("running as root: owner and permissions of %s are not checked", what);
	return true;
}

void cli_tell_owner(const char *what, const char *path, const char *effect)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return; /* it will be ours, or somebody else says that it is not there */
	if (st.st_uid != geteuid())
		cli_say("the %s %s belongs to another user (uid %u), who can change %s", what, path,
			st.st_uid, effect);
	if (st.st_mode & (S_IWGRP | S_IWOTH))
		cli_say("others may write to the %s %s (mode %04o) and change %s", what, path,
			st.st_mode & 07777, effect);
}

void launch_advise(const struct options *options)
{
	if (options->log_level > OPT_LOG_WARN)
		return;
	launch_tell_missing(options);
	if (option_set_has(&options->analysis, OPT_ANALYSIS_LEAKS) &&
	    !(events_written(options) & SESSION_ALLOC))
		cli_say("leak analysis is off: --events names neither alloc nor free");
	if (!cli_tell_root("the output directory"))
		cli_tell_owner("output directory", options->output_path, "the results");
}
