/* SPDX-License-Identifier: Apache-2.0 */
#include "findings/site.h"

#include <string.h>

#include "base/shown.h"
#include "base/text.h"
#include "symbols/demangle.h"

/* A function that is longer than both of its ends loses its middle. */
#define FUNCTION_START 44u
#define FUNCTION_END   24u

uint32_t site_of(struct replay *replay, uint32_t stack)
{
	return replay_site(replay, stack);
}

/* ---- one frame ---- */

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
	from = from == NULL ? text_file_name(file) : from + 1;
	end = strlen(from);
	if (end > 3 && strcmp(from + end - 3, ".py") == 0)
		end -= 3;
	if (end > 9 && strncmp(from + end - 9, "/__init__", 9) == 0)
		end -= 9;
	for (i = 0; i < end; i++)
		strbuf_add_char(out, from[i] == '/' ? '.' : from[i]);
}

/* "Linear.forward" of a method; a function keeps its module: "torch.nn.functional.relu". */
static void add_framework(const struct stack_line *line, struct strbuf *out)
{
	const char *dot = strrchr(line->function, '.'), *at;

	if (dot == NULL) {
		add_package(line->file, out);
		strbuf_addf(out, ".%s", line->function);
		return;
	}
	for (at = dot; at > line->function && at[-1] != '.'; at--)
		;
	strbuf_add_str(out, at);
}

/* Where a part of UTF-8 text may begin: at `at`, or after it. */
static size_t next_character(const char *text, size_t at)
{
	while (((unsigned char)text[at] & 0xc0) == 0x80)
		at++;
	return at;
}

static void add_function(const char *function, struct strbuf *out)
{
	size_t length = strlen(function);

	if (length <= FUNCTION_START + 3 + FUNCTION_END) {
		strbuf_add_str(out, function);
		return;
	}
	strbuf_add(out, function, next_character(function, FUNCTION_START));
	strbuf_add_str(out, "...");
	strbuf_add_str(out, function + next_character(function, length - FUNCTION_END));
}

/* Where the next part of a qualified name starts: "b::c" of "a<x::y>::b::c"; NULL: it is the last. */
static const char *next_part(const char *name)
{
	unsigned int depth = 0;

	for (; *name != '\0'; name++) {
		if (*name == '<' || *name == '(' || *name == '{')
			depth++;
		else if (*name == '>' || *name == ')' || *name == '}')
			depth -= depth > 0;
		else if (depth == 0 && name[0] == ':' && name[1] == ':')
			return name + 2;
	}
	return NULL;
}

/* Of a long name the namespaces go first, then its class: the function is what a person looks for. */
static void add_c_function(const struct stack_line *line, struct strbuf *out)
{
	struct strbuf name = {0};
	const char *from, *next;

	demangle_brief(line->function, &name);
	from = strbuf_str(&name);
	while (strlen(from) > FUNCTION_START + 3 + FUNCTION_END &&
	       (next = next_part(from)) != NULL && strcmp(next, "operator()") != 0)
		from = next;
	add_function(from, out);
	strbuf_fini(&name);
}

enum torch_frame { TORCH_OTHER, TORCH_OPERATOR, TORCH_NODE };

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
 * What a frame of C is to PyTorch, and its name there, which is appended:
 *
 *     at::_ops::mm::call(at::Tensor const&, ...)                operator aten::mm
 *     torch::autograd::generated::AddmmBackward0::apply(...)    node AddmmBackward0
 */
static enum torch_frame torch_frame(const struct stack_line *line, struct strbuf *out)
{
	enum torch_frame frame = TORCH_OTHER;
	struct strbuf name = {0};
	const char *part, *colon;
	size_t bytes;

	if (line->script || line->function == NULL)
		return frame;
	demangle_shorten(line->function, &name);
	bytes = between(strbuf_str(&name), "at::_ops::", "::call", &part);
	if (bytes == 0)
		bytes = between(strbuf_str(&name), "at::_ops::", "::redispatch", &part);
	if (bytes > 0) {
		frame = TORCH_OPERATOR;
		if (out != NULL)
			strbuf_add_str(out, "aten::");
	} else {
		bytes = between(strbuf_str(&name), "torch::autograd::", "::apply", &part);
		colon = bytes == 0 ? NULL : memrchr(part, ':', bytes);
		frame = bytes > 0 ? TORCH_NODE : TORCH_OTHER;
		if (colon != NULL) {
			bytes -= (size_t)(colon + 1 - part);
			part = colon + 1;
		}
	}
	if (out != NULL)
		strbuf_add(out, part, bytes);
	strbuf_fini(&name);
	return frame;
}

/* A frame is one line wherever it is shown: line feeds and control characters in names of the program are spelled. */
static void add_spelled(void (*add)(const struct stack_line *, struct strbuf *),
			const struct stack_line *line, struct strbuf *out)
{
	struct strbuf frame = {0};

	add(line, &frame);
	strbuf_add_shown(out, strbuf_str(&frame), frame.length);
	out->failed = out->failed || strbuf_failed(&frame);
	strbuf_fini(&frame);
}

static void add_short(const struct stack_line *line, struct strbuf *out)
{
	if (line->script && line->origin != ORIGIN_USER) {
		add_framework(line, out);
	} else if (line->script) {
		strbuf_addf(out, "%s:%u", text_file_name(line->file), line->line);
		if (strcmp(line->function, "<module>") != 0) {
			strbuf_add_char(out, ' ');
			add_function(line->function, out);
		}
	} else if (line->function == NULL) {
		strbuf_addf(out, "%s+", line->module == NULL ? "?" : text_file_name(line->module));
		strbuf_add_hex(out, line->offset, 1);
	} else if (line->origin == ORIGIN_USER || torch_frame(line, out) == TORCH_OTHER) {
		add_c_function(line, out);
		if (line->origin != ORIGIN_USER)
			return;
		if (line->file != NULL && line->line != 0)
			strbuf_addf(out, " (%s:%u)", text_file_name(line->file), line->line);
		else if (line->module != NULL)
			strbuf_addf(out, " (%s)", text_file_name(line->module));
	}
}

void site_frame(const struct stack_line *line, struct strbuf *out)
{
	add_spelled(add_short, line, out);
}

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
	demangle_brief(line->function, out);
	if (line->file != NULL && line->line != 0)
		strbuf_addf(out, " (%s:%u)", line->file, line->line);
	else if (line->module != NULL)
		strbuf_addf(out, " (%s)", line->module);
}

void site_frame_long(const struct stack_line *line, struct strbuf *out)
{
	add_spelled(add_long, line, out);
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

static bool has_script(const struct stack_line *lines, uint32_t count)
{
	uint32_t i;

	for (i = 0; i < count && !lines[i].script; i++)
		;
	return i < count;
}

/*
 * Where a stack has no script: the outermost operator of PyTorch below the innermost node of autograd, and that node, as bits. 0 if
 * there is neither.
 */
static uint64_t operators(const struct stack_line *lines, uint32_t count)
{
	uint64_t found = 0;
	uint32_t i;

	for (i = 0; i < count && i < SITE_FRAMES; i++) {
		enum torch_frame frame = torch_frame(&lines[i], NULL);

		if (frame == TORCH_NODE)
			return found | UINT64_C(1) << i;
		if (frame == TORCH_OPERATOR)
			found = UINT64_C(1) << i;
	}
	return found;
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

/* "kv::Cache::Cache", "Buffer<...>::Buffer": every object of that class comes through it, so it says nothing of what makes this one. */
static bool is_constructor(const struct stack_line *line)
{
	struct strbuf name = {0};
	const char *text, *last, *at;
	size_t length;
	bool same = false;

	if (line->script || line->function == NULL)
		return false;
	demangle_brief(line->function, &name);
	text = strbuf_str(&name);
	for (last = NULL, at = text; (at = strstr(at, "::")) != NULL; at += 2)
		last = at;
	if (last != NULL) {
		size_t class_end = (size_t)(last - text);

		length = strlen(last + 2);
		if (class_end > 0 && text[class_end - 1] == '>')
			class_end = strcspn(text, "<");
		same = class_end >= length &&
		       strncmp(text + class_end - length, last + 2, length) == 0 &&
		       (class_end == length || text[class_end - length - 1] == ':');
	}
	strbuf_fini(&name);
	return same;
}

/* A comprehension of Python before 3.12 is a frame of its own, with the line of the function that it is written in. */
static bool is_part_of_caller(const struct stack_line *lines, uint32_t count, uint32_t at)
{
	static const char *const kinds[] = {"<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>"};
	const struct stack_line *line = &lines[at], *caller = line + 1;
	const char *dot;
	size_t i;

	if (at + 1 >= count || !line->script || !caller->script || line->line != caller->line ||
	    strcmp(line->file, caller->file) != 0)
		return false;
	dot = strrchr(line->function, '.');
	for (i = 0; i < MSCOPE_COUNT(kinds); i++) {
		if (strcmp(dot == NULL ? line->function : dot + 1, kinds[i]) == 0)
			return true;
	}
	return false;
}

uint64_t site_frames_shown(const struct stack_line *lines, uint32_t count)
{
	uint32_t user = next_user(lines, count, 0), caller;
	uint64_t shown = 0;

	if (count == 0)
		return 0;
	if (user == count && !has_script(lines, count))
		shown = operators(lines, count);
	if (shown != 0)
		return shown;
	if (user == count || user >= SITE_FRAMES) {
		uint32_t outer = outermost(lines, count);

		return UINT64_C(1) << (outer < SITE_FRAMES ? outer : SITE_FRAMES - 1);
	}
	while (is_part_of_caller(lines, count, user) && user + 1 < SITE_FRAMES)
		user++;
	caller = next_user(lines, count, user + 1);
	while (caller < count && is_part_of_caller(lines, count, caller))
		caller++;
	shown = UINT64_C(1) << user | UINT64_C(1) << callee(lines, user);
	while (caller < count && is_constructor(&lines[caller]) &&
	       next_user(lines, count, caller + 1) < count)
		caller = next_user(lines, count, caller + 1);
	if (caller < count && caller < SITE_FRAMES)
		shown |= UINT64_C(1) << caller;
	return shown;
}

bool site_frame_tells(const struct stack_line *lines, uint32_t count, uint32_t at)
{
	uint32_t user = next_user(lines, count, 0);
	const struct stack_line *line = &lines[at];

	if (line->origin == ORIGIN_USER)
		return !is_part_of_caller(lines, count, at);
	return line->origin == ORIGIN_FRAMEWORK && line->function != NULL && user < count &&
	       line->script == lines[user].script && !is_passing(line);
}

static void add_frames(const struct stack_line *lines, uint32_t count, uint64_t shown,
		       struct strbuf *out)
{
	const char *between = "";
	uint32_t i;

	for (i = count < SITE_FRAMES ? count : SITE_FRAMES; i > 0; i--) {
		if (!(shown >> (i - 1) & 1))
			continue;
		strbuf_add_str(out, between);
		site_frame(&lines[i - 1], out);
		between = " -> ";
	}
}

void site_add_name(struct replay *replay, uint32_t stack, const struct stack_line *lines,
		   uint32_t count, uint64_t shown, struct strbuf *out)
{
	if (replay_stack_is_cut(replay, stack) && next_user(lines, count, 0) == count)
		strbuf_add_str(out, "... -> ");
	add_frames(lines, count, shown, out);
}

bool site_line(struct replay *replay, uint32_t stack, struct strbuf *out)
{
	uint32_t count;
	const struct stack_line *lines = replay_stack_lines(replay, stack, &count);

	if (count == 0)
		return false;
	site_add_name(replay, stack, lines, count, site_frames_shown(lines, count), out);
	return true;
}

uint32_t site_own_frames(const struct stack_line *lines, uint32_t count)
{
	uint32_t i;

	for (i = count; i > 0; i--) {
		const struct stack_line *line = &lines[i - 1];

		if (!line->script && line->function != NULL && strcmp(line->function, "main") == 0)
			return i;
	}
	for (i = count; i > 0 && lines[i - 1].origin == ORIGIN_STANDARD && !lines[i - 1].script;
	     i--)
		;
	return i > 0 ? i : count;
}

static bool is_listed(const struct stack_line *line, bool all)
{
	return line->origin != ORIGIN_TOOL && (all || line->origin == ORIGIN_USER);
}

void site_text(struct replay *replay, uint32_t stack, uint32_t frames, struct strbuf *out)
{
	uint32_t count, i, from, shown = 0;
	const struct stack_line *lines = replay_stack_lines(replay, stack, &count);
	bool all = frames == SITE_ALL || next_user(lines, count, 0) == count;

	count = site_own_frames(lines, count);
	/* The innermost ones are shown. */
	for (from = 0; from < count && shown < frames; from++)
		shown += is_listed(&lines[from], all);
	if (count > 0 && from == count && replay_stack_is_cut(replay, stack))
		strbuf_add_str(out, "    ...\n");
	for (i = from; i > 0; i--) {
		if (!is_listed(&lines[i - 1], all))
			continue;
		strbuf_add_str(out, "    ");
		site_frame_long(&lines[i - 1], out);
		strbuf_add_char(out, '\n');
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
