/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/site.h"

#include <string.h>

/* Libraries that hand memory on to their callers: a place inside them says nothing about the program. */
static bool is_runtime(const char *path)
{
	static const char *const names[] = {
		"libascend_kernel_hook.so",
		"libascend_hal.so",
		"libascendcl.so",
		"libacl_rt_impl.so",
		"libruntime.so",
		"libprofapi.so",
		"libms_tools_ext.so",
		"libnnopbase.so",
		"libopapi.so",
		"libtorch_npu.so",
		"libtorch_cpu.so",
		"libtorch_cuda.so",
		"libtorch.so",
		"libtorch_python.so",
		"libc10.so",
		"libc10_cuda.so",
		"libc10_npu.so",
		"libcuda.so",
		"libcudart.so",
		"libmsmemscope.so",
	};
	const char *name = strrchr(path, '/') == NULL ? path : strrchr(path, '/') + 1;
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(names); i++) {
		/* Versions follow the name. */
		if (strncmp(name, names[i], strlen(names[i])) == 0)
			return true;
	}
	return false;
}

/* The mstx header puts functions of its own into the program. */
static bool is_marker(const char *frame)
{
	return strstr(frame, "(mstx") != NULL;
}

/* Functions of installed packages hand memory on, too. */
static bool is_package(const char *line)
{
	return strstr(line, "/site-packages/") != NULL || strstr(line, "/dist-packages/") != NULL ||
	       line[0] == '<';
}

/* Where a block comes from: the script where there is one, else the program. */
struct site {
	const struct python_place *places; /* NULL: frames count */
	const struct frame *frames;
	uint32_t count;
};

static const char *frame_line(struct replay *replay, const struct site *site, uint32_t i)
{
	return site->places != NULL ? replay_place_text(replay, &site->places[i])
				    : replay_frame_text(replay, &site->frames[i]);
}

static bool site_is_useful(struct replay *replay, const struct site *site, uint32_t i)
{
	const char *line = frame_line(replay, site, i);
	const struct module *module;

	if (site->places != NULL)
		return !is_package(line);
	module = replay_module(replay, site->frames[i].module);
	return module != NULL && !is_runtime(module->info.path) && !is_marker(line);
}

/* The lines from the first useful one on; all of them when none is. */
static struct site user_part(struct replay *replay, uint32_t stack)
{
	struct site site = {0};
	uint32_t i = 0;

	site.places = replay_places(replay, stack, &site.count);
	if (site.count == 0) {
		site.places = NULL;
		site.frames = replay_frames(replay, stack, &site.count);
	}
	while (i < site.count && !site_is_useful(replay, &site, i))
		i++;
	if (i == 0 || i == site.count)
		return site;
	site.count -= i;
	if (site.places != NULL)
		site.places += i;
	else
		site.frames += i;
	return site;
}

void site_text(struct replay *replay, uint32_t stack, uint32_t frames, struct strbuf *out)
{
	struct site site = user_part(replay, stack);
	uint32_t i;

	for (i = 0; i < site.count && i < frames; i++)
		strbuf_addf(out, "    %s\n", frame_line(replay, &site, i));
}

void site_json(struct replay *replay, uint32_t stack, const char *key, struct json *json)
{
	struct site site = user_part(replay, stack);
	uint32_t i;

	json_array(json, key);
	for (i = 0; i < site.count; i++) {
		json_object(json, NULL);
		json_string(json, "function", frame_line(replay, &site, i));
		json_end(json);
	}
	json_end(json);
}

uint32_t site_of(struct replay *replay, uint32_t stack)
{
	(void)replay;
	return stack;
}

bool site_line(struct replay *replay, uint32_t stack, struct strbuf *out)
{
	struct site site = user_part(replay, stack);

	if (site.count == 0)
		return false;
	strbuf_add_str(out, frame_line(replay, &site, 0));
	return true;
}
