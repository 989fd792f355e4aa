/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From options to what a launch obeys: the session, and for the Python package how it gets the same settings from the words that
 * config() is given.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/launch_id.h"
#include "trace/launch.h"
#include "trace/settings.h"

_Static_assert(OPTION_NUMBERS_MAX == SESSION_STEPS_MAX, "every list of steps fits into a session");
_Static_assert(OPTION_WATCH_NAME_MAX < SESSION_WATCH_MAX, "every name fits into a session");

/* ---- the session ---- */

struct event_settings launch_choices(const struct options *options)
{
#define WORDS(option, words)	(options->option.mask & (words))
#define HAS(option, word)	option_set_has(&options->option, OPT_##word)
#define NUMBER(option, word)	options->option.number[OPT_##word]
#define EVERY(option, word)	(NUMBER(option, word) == UINT32_MAX)
#define OTHERWISE(option, a, b) (NUMBER(option, a) ^ NUMBER(option, b))
#define VALUE(option)		((uint32_t)options->option)
#define UNNAMED(option)                                                                            \
	(!options_given(options, OPTION_ID_##option) && !options_given(options, OPTION_ID_level))
#define SETTING(name, word, shift, bits, source, ...) .name = source,
	struct event_settings settings = {SETTINGS(SETTING)};
#undef SETTING
#undef WORDS
#undef HAS
#undef NUMBER
#undef OTHERWISE
#undef EVERY
#undef VALUE
#undef UNNAMED

	settings_complete(&settings, options_given(options, OPTION_ID_analysis));
	return settings;
}

void launch_settings(const struct options *options, struct session *out)
{
	struct event_settings choices = launch_choices(options);
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
		.step_count = options->steps.count,
#define OPTION(kind, field, ...) SESSION_OPTION_##kind(.field = (uint32_t)options->field, )
#include "options/options.def"
	};
	memcpy(out->magic, SESSION_MAGIC, sizeof(out->magic));
	settings_to_session(&choices, out);
	memcpy(out->steps, options->steps.value, options->steps.count * sizeof(out->steps[0]));
	if (options->watch.end[0] != '\0') {
		out->watch = (struct session_watch){.on = 1,
						    .full = options->watch.full_content,
						    .output = options->watch.output};
		memcpy(out->watch.start, options->watch.start, sizeof(options->watch.start));
		memcpy(out->watch.end, options->watch.end, sizeof(options->watch.end));
	}
	if (localtime_r(&seconds, &local) != NULL)
		out->utc_offset_s = (int32_t)local.tm_gmtoff;
	(void)snprintf(out->output, sizeof(out->output), "%s", options->output_path);
	launch_id_make(out);
	launch_write(out);
}

void launch_settings_again(const struct options *options, const char *launch, struct session *out)
{
	struct session *before = calloc(1, sizeof(*before));

	launch_settings(options, out);
	if (before == NULL || !launch_read(launch, before)) {
		/* What the trace has: tensors in host memory are there only if they were asked for. */
		if (!options_given(options, OPTION_ID_device))
			out->host = 1;
		free(before);
		return;
	}
	if (!options_given(options, OPTION_ID_device)) {
		out->devices = before->devices;
		out->all_devices = before->all_devices;
		out->gpus_otherwise = before->gpus_otherwise;
		out->host = before->host;
	}
	if (!options_given(options, OPTION_ID_analysis)) {
		out->analysis = before->analysis;
		out->oom_top = before->oom_top;
	}
	if (!options_given(options, OPTION_ID_inefficient)) {
		out->waste_kinds = before->waste_kinds;
		out->waste_bytes = before->waste_bytes;
		out->waste_idle = before->waste_idle;
	}
	if (out->launch_unnamed)
		out->launch_unnamed = before->launch_unnamed;
	if (!options_given(options, OPTION_ID_events))
		out->events = before->events | (options_given(options, OPTION_ID_analysis)
							? settings_events_of(out->analysis)
							: 0);
	/* A launch may have written no files; then these are as by default. */
	if (!options_given(options, OPTION_ID_format) && before->format != OPT_FORMAT_NONE)
		out->format = before->format;
	if (!options_given(options, OPTION_ID_insight_close_live))
		out->insight_close_live = before->insight_close_live;
	if (!options_given(options, OPTION_ID_steps)) {
		out->step_count = before->step_count;
		memcpy(out->steps, before->steps, sizeof(out->steps));
	}
	free(before);
}

/* ---- the Python package ---- */

/* How a setting comes from an option; the names are those of the functions in _control.py. */
struct source {
	const char *setting;
	const char *how;
	enum option_id option;
	uint32_t argument; /* mask or number of a word */
};

void settings_python(struct strbuf *sb)
{
#define WORDS(option, words)			      "words", OPTION_ID_##option, (words)
#define HAS(option, word)			      "has", OPTION_ID_##option, OPT_##word
#define NUMBER(option, word)			      "number", OPTION_ID_##option, OPT_##word
#define EVERY(option, word)			      "every", OPTION_ID_##option, OPT_##word
#define OTHERWISE(option, a, b)			      "otherwise", OPTION_ID_##option, OPT_##a << 8 | OPT_##b
#define VALUE(option)				      "value", OPTION_ID_##option, 0
#define UNNAMED(option)				      "unnamed", OPTION_ID_##option, 0
#define SETTING(name, word, shift, bits, source, ...) {#name, source},
	static const struct source sources[] = {SETTINGS(SETTING)};
#undef SETTING
#undef WORDS
#undef HAS
#undef NUMBER
#undef OTHERWISE
#undef EVERY
#undef VALUE
#undef UNNAMED
	size_t i;

	strbuf_add_str(sb, "\nSetting = namedtuple(\"Setting\", \"name option how argument\")\n\n"
			   "# Numbers that mscope_start() takes, in this order.\nSETTINGS = (\n");
	for (i = 0; i < MSCOPE_COUNT(sources); i++)
		strbuf_addf(sb, "    Setting(\"%s\", \"%s\", \"%s\", %u),\n", sources[i].setting,
			    options_name(sources[i].option), sources[i].how, sources[i].argument);
	strbuf_add_str(sb, ")\n");
}
