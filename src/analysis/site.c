/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/site.h"

#include <string.h>

#include "symbols/demangle.h"

/* A caller behind the user's own frame is shown as long as the line is no longer than this. */
#define LINE_BYTES 72

uint32_t site_of(struct replay *replay, uint32_t stack)
{
	return replay_site(replay, stack);
}

/* ---- one frame ---- */

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash == NULL || slash[1] == '\0' ? path : slash + 1;
}

/* "torch.nn.functional" of ".../site-packages/torch/nn/functional.py", else the name of the file. */
static void add_package(const char *file, struct strbuf *out)
{
	static const char *const roots[] = {"/site-packages/", "/dist-packages/", "/python3"};
	const char *from = NULL;
	size_t i, end;

	for (i = 0; i < MSCOPE_COUNT(roots) && from == NULL; i++) {
		from = strstr(file, roots[i]);
		if (from != NULL)
			from = strchr(from + 1, '/');
	}
	from = from == NULL ? base_name(file) : from + 1;
	end = strlen(from);
	if (end > 3 && strcmp(from + end - 3, ".py") == 0)
		end -= 3;
	if (end > 9 && strncmp(from + end - 9, "/__init__", 9) == 0)
		end -= 9;
	for (i = 0; i < end; i++)
		strbuf_add_char(out, from[i] == '/' ? '.' : from[i]);
}

/* A frame in a line with others. */
static void add_short(const struct stack_line *line, struct strbuf *out)
{
	if (line->script && line->origin != ORIGIN_USER) {
		add_package(line->file, out);
		strbuf_addf(out, ".%s", line->function);
	} else if (line->script) {
		strbuf_addf(out, "%s:%u %s", base_name(line->file), line->line, line->function);
	} else if (line->function == NULL) {
		strbuf_addf(out, "%s+", line->module == NULL ? "?" : base_name(line->module));
		strbuf_add_hex(out, line->offset, 1);
	} else {
		demangle_shorten(line->function, out);
		if (line->origin != ORIGIN_USER)
			return;
		if (line->file != NULL && line->line != 0)
			strbuf_addf(out, " (%s:%u)", base_name(line->file), line->line);
		else if (line->module != NULL)
			strbuf_addf(out, " (%s)", base_name(line->module));
	}
}

/* A frame on a line of its own. */
static void add_long(const struct stack_line *line, struct strbuf *out)
{
	if (line->script) {
		strbuf_addf(out, "%s(%u): %s", line->file, line->line, line->function);
		return;
	}
	if (line->function == NULL) {
		strbuf_addf(out, "%s+", line->module == NULL ? "?" : line->module);
		strbuf_add_hex(out, line->offset, 1);
		return;
	}
	demangle_shorten(line->function, out);
	if (line->file != NULL && line->line != 0)
		strbuf_addf(out, " (%s:%u)", line->file, line->line);
	else if (line->module != NULL)
		strbuf_addf(out, " (%s)", line->module);
}

/* ---- which of them ---- */

/* The first line from `from` on that is the user's own; `count` if there is none. */
static uint32_t next_user(const struct stack_line *lines, uint32_t count, uint32_t from)
{
	while (from < count && lines[from].origin != ORIGIN_USER)
		from++;
	return from;
}

static bool is_passing(const struct stack_line *line)
{
	struct strbuf name = {0};
	bool passing;

	if (line->function == NULL)
		return false;
	if (line->script)
		return origin_is_passing(line->function);
	demangle_shorten(line->function, &name);
	passing = origin_is_passing(strbuf_str(&name));
	strbuf_fini(&name);
	return passing;
}

/* Where the user has no frame: the one that the user called, as far as the stack goes. */
static uint32_t outermost(const struct stack_line *lines, uint32_t count)
{
	static const enum origin order[] = {ORIGIN_FRAMEWORK, ORIGIN_RUNTIME, ORIGIN_STANDARD};
	uint32_t i, found = count;
	size_t k;

	for (k = 0; k < MSCOPE_COUNT(order); k++) {
		for (i = count; i > 0; i--) {
			if (lines[i - 1].origin != order[k])
				continue;
			if (lines[i - 1].script || !is_passing(&lines[i - 1]))
				return i - 1;
			if (found == count)
				found = i - 1;
		}
	}
	return found < count ? found : 0;
}

/* The part of a name between a prefix and an end, and its bytes; 0 if the name has no such form. */
static size_t between(const char *name, const char *prefix, const char *end, const char **out)
{
	size_t length = strlen(name), front = strlen(prefix), back = strlen(end);

	*out = name + front;
	return length > front + back && strncmp(name, prefix, front) == 0 &&
			       strcmp(name + length - back, end) == 0
		       ? length - front - back
		       : 0;
}

/*
 * Where a stack has no script: the outermost operator of PyTorch, and the node of autograd that called it.
 *
 *     at::_ops::mm::call(at::Tensor const&, ...)             aten::mm <- AddmmBackward0
 *     ...
 *     torch::autograd::generated::AddmmBackward0::apply(...)
 *
 * False, and nothing is appended, if there is neither.
 */
static bool add_operator(const struct stack_line *lines, uint32_t count, struct strbuf *out)
{
	struct strbuf name = {0}, op = {0}, node = {0};
	uint32_t i;
	bool found;

	for (i = 0; i < count && node.length == 0; i++) {
		const char *part, *colon;
		size_t bytes;

		if (lines[i].function == NULL)
			continue;
		strbuf_reset(&name);
		demangle_shorten(lines[i].function, &name);
		bytes = between(strbuf_str(&name), "at::_ops::", "::call", &part);
		if (bytes == 0)
			bytes = between(strbuf_str(&name), "at::_ops::", "::redispatch", &part);
		if (bytes > 0) {
			strbuf_reset(&op);
			strbuf_add_str(&op, "aten::");
			strbuf_add(&op, part, bytes);
			continue;
		}
		bytes = between(strbuf_str(&name), "torch::autograd::", "::apply", &part);
		if (bytes == 0)
			continue;
		colon = memrchr(part, ':', bytes);
		if (colon != NULL) {
			bytes -= (size_t)(colon + 1 - part);
			part = colon + 1;
		}
		strbuf_add(&node, part, bytes);
	}
	strbuf_add_str(out, strbuf_str(&op));
	if (op.length > 0 && node.length > 0)
		strbuf_add_str(out, " <- ");
	strbuf_add_str(out, strbuf_str(&node));
	found = op.length + node.length > 0;
	strbuf_fini(&name);
	strbuf_fini(&op);
	strbuf_fini(&node);
	return found;
}

static bool has_script(const struct stack_line *lines, uint32_t count)
{
	uint32_t i;

	for (i = 0; i < count && !lines[i].script; i++)
		;
	return i < count;
}

/* What the user's line `user` called in a framework; `user` if that was none. */
static uint32_t callee(const struct stack_line *lines, uint32_t user)
{
	uint32_t i, found = user;

	for (i = user; i > 0; i--) {
		const struct stack_line *line = &lines[i - 1];

		if (line->origin == ORIGIN_RUNTIME || line->origin == ORIGIN_TOOL)
			break;
		/* What a script calls has a name in Python, or is what its own line says. */
		if (line->origin != ORIGIN_FRAMEWORK || line->function == NULL ||
		    line->script != lines[user].script)
			continue;
		if (!is_passing(line))
			return i - 1;
		if (found == user)
			found = i - 1;
	}
	return found;
}

bool site_line(struct replay *replay, uint32_t stack, struct strbuf *out)
{
	uint32_t count, user, called, caller;
	const struct stack_line *lines = replay_stack_lines(replay, stack, &count);
	size_t begin = out->length, before;

	if (count == 0)
		return false;
	user = next_user(lines, count, 0);
	if (user == count) {
		if (has_script(lines, count) || !add_operator(lines, count, out))
			add_short(&lines[outermost(lines, count)], out);
		return true;
	}
	called = callee(lines, user);
	if (called != user) {
		add_short(&lines[called], out);
		strbuf_add_str(out, " <- ");
	}
	add_short(&lines[user], out);
	caller = next_user(lines, count, user + 1);
	before = out->length;
	if (caller < count && !strbuf_failed(out)) {
		strbuf_add_str(out, " <- ");
		add_short(&lines[caller], out);
		if (!strbuf_failed(out) && out->length - begin > LINE_BYTES) {
			out->length = before;
			out->data[before] = '\0';
		}
	}
	return true;
}

void site_text(struct replay *replay, uint32_t stack, uint32_t frames, struct strbuf *out)
{
	uint32_t count, i, shown = 0;
	const struct stack_line *lines = replay_stack_lines(replay, stack, &count);
	bool all = frames == SITE_ALL || next_user(lines, count, 0) == count;

	for (i = 0; i < count && shown < frames; i++) {
		if (lines[i].origin == ORIGIN_TOOL || (!all && lines[i].origin != ORIGIN_USER))
			continue;
		strbuf_add_str(out, "    ");
		add_long(&lines[i], out);
		strbuf_add_char(out, '\n');
		shown++;
	}
}

void site_json(struct replay *replay, uint32_t stack, const char *key, struct json *json)
{
	uint32_t count, i;
	const struct stack_line *lines = replay_stack_lines(replay, stack, &count);

	json_array(json, key);
	for (i = 0; i < count; i++) {
		const struct stack_line *line = &lines[i];

		json_object(json, NULL);
		if (line->function != NULL)
			json_string(json, "function", line->function);
		if (line->file != NULL)
			json_string(json, "file", line->file);
		if (line->line != 0)
			json_u64(json, "line", line->line);
		if (line->module != NULL)
			json_string(json, "module", line->module);
		json_bool(json, "user", line->origin == ORIGIN_USER);
		json_end(json);
	}
	json_end(json);
}

void site_notes(struct replay *replay, struct strbuf *out)
{
	struct strbuf notes = {0};
	char *rest = NULL, *line;

	replay_line_notes(replay, &notes);
	for (line = notes.length == 0 ? NULL : strtok_r(notes.data, "\n", &rest); line != NULL;
	     line = strtok_r(NULL, "\n", &rest))
		strbuf_addf(out, "Note: %s\n", line);
	strbuf_fini(&notes);
}
