/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which interpreter this process has and how it lays out its objects. From 3.13 on the interpreter describes itself, at the head
 * of _PyRuntime; the layouts of older versions will not change any more and stand here. Builds that move fields (Py_TRACE_REFS,
 * foreign patches) fail the trial.
 */
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include "collector/interp/layouts.h"
#include "collector/loader/lookup.h"
#include "collector/loader/walk.h"
#include "collector/lock.h"
#include "collector/memory.h"
#include "collector/sys.h"

struct interp interp;

#define NEWEST_MINOR 14

static bool is_a(const void *object, const void *type)
{
	return memory_readable(object, 64) && interp_pointer(object, interp.at.object_type) == type;
}

/* ---- the interpreter's own description ---- */

/* Its table, by version: the word at which each group begins. The first word of a group is its size. */
struct groups {
	uint16_t thread, frame, code, object, bytes, text, end;
};

static bool layout_from_runtime(const void *runtime, uint32_t minor, struct interp_layout *out)
{
	static const struct groups groups_3_13 = {19, 28, 34, 44, 64, 67, 71};
	static const struct groups groups_3_14 = {22, 31, 39, 50, 74, 77, 81};
	const struct groups *g = minor == 13 ? &groups_3_13 : &groups_3_14;
	uint64_t w[81];
	uint32_t i;

	if (runtime == NULL || !memory_readable(runtime, g->end * 8u))
		return false;
	memcpy(w, runtime, g->end * 8u);
	if (memcmp(w, "xdebugpy", 8) != 0 || (w[1] >> 16 & 0xff) != minor || w[1] >> 24 != 3)
		return false;
	/* Threads of a free-threaded 3.14 have copies of the instructions of their own. */
	if (w[2] != 0 && minor > 13)
		return false;
	for (i = g->thread; i < g->end; i++) {
		if (w[i] >= 65536)
			return false;
	}
	*out = (struct interp_layout){
		.minor = minor,
		.thread_frame = (uint16_t)w[g->thread + 4],
		.frame_previous = (uint16_t)w[g->frame + 1],
		.frame_code = (uint16_t)w[g->frame + 2],
		.frame_instruction = (uint16_t)w[g->frame + 3],
		.frame_owner = (uint16_t)w[g->frame + 5],
		.owner_shim = 3,
		.code_tag = minor > 13 ? 3 : 0,
		.object_type = (uint16_t)w[g->object + 1],
		.code_first_line = (uint16_t)w[g->code + 5],
		/* Not in the table: it comes six numbers of 32 bits after the first line. */
		.code_version = (uint16_t)(w[g->code + 5] + 24),
		.code_file = (uint16_t)w[g->code + 1],
		.code_name = (uint16_t)w[g->code + 3],
		.code_table = (uint16_t)w[g->code + 4],
		/* Not in the table; behind it there is only a pointer for extensions. */
		.code_traceable = (uint16_t)(w[g->code + 9] - 16),
		.code_start = (uint16_t)w[g->code + 9],
		.text_length = (uint16_t)w[g->text + 2],
		.text_state = (uint16_t)w[g->text + 1],
		.text_ascii = (uint16_t)w[g->text + 3],
		.text_compact = (uint16_t)(w[g->text + 3] + 16),
		.text_shift = minor > 13 ? 16 : 2,
		.bytes_size = (uint16_t)w[g->bytes + 1],
		.bytes_data = (uint16_t)w[g->bytes + 2],
	};
	return out->code_start >= 16;
}

/* Minor version, 0 when it is no Python 3. */
static uint32_t version(void)
{
	const uint32_t *number = lookup_symbol("Py_Version");
	const char *(*text)(void);
	void *function;
	const char *text_of_version;

	if (number != NULL)
		return *number >> 24 == 3 ? *number >> 16 & 0xff : 0;
	/* Before 3.11. Builds a text in a buffer of its own; no object is made. */
	function = lookup_symbol("Py_GetVersion");
	if (function == NULL)
		return 0;
	memcpy(&text, &function, sizeof(text));
	text_of_version = text();
	return strncmp(text_of_version, "3.", 2) == 0
		       ? (uint32_t)strtoul(text_of_version + 2, NULL, 10)
		       : 0;
}

/* Whether a walk that was compiled for `known` reads the same. */
static bool is_laid_out_as(const struct interp_layout *at, const struct interp_layout *known)
{
	return at->frame_previous == known->frame_previous && at->frame_code == known->frame_code &&
	       at->frame_instruction == known->frame_instruction &&
	       at->frame_owner == known->frame_owner && at->owner_shim == known->owner_shim &&
	       at->code_tag == known->code_tag && at->object_type == known->object_type &&
	       at->code_first_line == known->code_first_line &&
	       at->code_version == known->code_version && at->code_file == known->code_file &&
	       at->code_name == known->code_name && at->code_table == known->code_table &&
	       at->code_traceable == known->code_traceable && at->code_start == known->code_start &&
	       at->text_length == known->text_length && at->text_state == known->text_state &&
	       at->text_ascii == known->text_ascii && at->text_shift == known->text_shift &&
	       at->bytes_size == known->bytes_size && at->bytes_data == known->bytes_data;
}

static bool layout_choose(uint32_t minor, struct interp_layout *out)
{
	interp.walk = WALK_ANY;
	switch (minor) {
	case 9:
		*out = layout_3_9;
		return true;
	case 10:
		*out = layout_3_10;
		interp.walk = WALK_3_10;
		return true;
	case 11:
		*out = layout_3_11;
		interp.walk = WALK_3_11;
		return true;
	case 12:
		*out = layout_3_12;
		interp.walk = WALK_3_12;
		return true;
	case 13:
	case NEWEST_MINOR:
		if (!layout_from_runtime(lookup_symbol("_PyRuntime"), minor, out))
			return false;
		if (minor == 13 && is_laid_out_as(out, &layout_3_13))
			interp.walk = WALK_3_13;
		return true;
	default:
		return false;
	}
}

/* ---- finding it ---- */

static int count_loads(struct dl_phdr_info *info, size_t size, void *arg)
{
	if (size >= offsetof(struct dl_phdr_info, dlpi_adds) + sizeof(info->dlpi_adds))
		*(uint64_t *)arg = info->dlpi_adds;
	return 1;
}

static void refuse(uint32_t minor, const char *why)
{
	uint32_t before = atomic_exchange(&interp.state, INTERP_REFUSED);

	atomic_store(&collector_switch.python_depth, 0);
	atomic_store(&collector_switch.python_shown, 0);
	if (before != INTERP_REFUSED)
		collector_note("no Python stacks: %s (Python 3.%u)", why, minor);
}

MSCOPE_COLD bool interp_find_slow(void)
{
	/* Loader's count of loads + 1 when it was last not found. */
	static _Atomic uint64_t missing_at;
	static struct lock finding;
	uint32_t state = atomic_load_explicit(&interp.state, memory_order_acquire);
	uint64_t loads = 0;
	void *function;
	uint32_t minor;

	if (state != INTERP_UNKNOWN)
		return state != INTERP_REFUSED;
	(void)loader_walk(count_loads, &loads);
	if (loads + 1 == atomic_load(&missing_at))
		return false;
	/* One thread searches; the others go on without it, for this once. */
	if (!lock_take_within(&finding, 0))
		return false;
	function = lookup_symbol("PyGILState_GetThisThreadState");
	if (function == NULL) {
		atomic_store(&missing_at, loads + 1);
		lock_release(&finding);
		return false;
	}
	memcpy(&interp.thread_state, &function, sizeof(function));
	function = lookup_symbol("Py_IsFinalizing");
	if (function == NULL)
		function = lookup_symbol("_Py_IsFinalizing");
	memcpy(&interp.finalizing, &function, sizeof(function));
	interp.code_type = lookup_symbol("PyCode_Type");
	interp.text_type = lookup_symbol("PyUnicode_Type");
	interp.bytes_type = lookup_symbol("PyBytes_Type");
	minor = version();
	if (interp.code_type == NULL || interp.text_type == NULL || interp.bytes_type == NULL ||
	    !layout_choose(minor, &interp.at))
		refuse(minor, "unknown interpreter");
	else
		atomic_store_explicit(&interp.state, INTERP_FOUND, memory_order_release);
	lock_release(&finding);
	return atomic_load(&interp.state) == INTERP_FOUND;
}

/* ---- the trial ---- */

static bool text_holds(const void *text)
{
	uint32_t state, kind;
	uint64_t length;

	if (!is_a(text, interp.text_type))
		return false;
	state = interp_text_state(text);
	kind = state & 7;
	length = interp_u64(text, interp.at.text_length);
	/* Compact, of a known kind, and ASCII only when its characters have one byte. */
	return (state & INTERP_TEXT_COMPACT) != 0 && (kind == 1 || kind == 2 || kind == 4) &&
	       ((state & INTERP_TEXT_ASCII) == 0 || kind == 1) && length < 65536;
}

static bool code_holds(const void *code)
{
	const void *table;
	int32_t line;

	if (!is_a(code, interp.code_type) || !memory_readable(code, interp.at.code_start + 64u))
		return false;
	line = interp_i32(code, interp.at.code_first_line);
	table = interp_pointer(code, interp.at.code_table);
	return line >= 0 && line < 1 << 28 &&
	       text_holds(interp_pointer(code, interp.at.code_file)) &&
	       text_holds(interp_pointer(code, interp.at.code_name)) &&
	       is_a(table, interp.bytes_type) && interp_u64(table, interp.at.bytes_size) < 1u << 30;
}

static bool instruction_holds(const void *frame, const void *code)
{
	uint64_t offset, bytes;

	if (interp.at.minor < 11) {
		const void *instructions = interp_pointer(code, interp.at.code_start);
		int64_t at = interp_i32(frame, interp.at.frame_instruction);

		if (!is_a(instructions, interp.bytes_type))
			return false;
		bytes = interp_u64(instructions, interp.at.bytes_size);
		return at >= -1 && at < (int64_t)(interp.at.minor == 9 ? bytes : bytes / 2);
	}
	/* The size of a code object counts its instructions of two bytes; one before the first means "not begun". */
	bytes = interp_u64(code, interp.at.bytes_size) * 2;
	offset = interp_u64(frame, interp.at.frame_instruction) - (uintptr_t)code -
		 interp.at.code_start + 2;
	return offset % 2 == 0 && offset <= bytes + 2;
}

/* Whether each code object has a version of its own. */
static bool versions_hold(const void *const *codes, int count)
{
	int i, k;

	for (i = 0; i < count; i++) {
		uint32_t version = (uint32_t)interp_i32(codes[i], interp.at.code_version);

		if (version == 0)
			return false;
		for (k = 0; k < i; k++) {
			if (codes[k] != codes[i] &&
			    (uint32_t)interp_i32(codes[k], interp.at.code_version) == version)
				return false;
		}
	}
	return true;
}

/* Frames from the inside out, some of them. The innermost must be there and one of them must be a function. */
static bool frames_hold(const void *thread_state)
{
	const struct interp_layout *at = &interp.at;
	const void *frame, *codes[64];
	int i, functions = 0;

	if (!memory_readable(thread_state, at->thread_frame + 8u))
		return false;
	frame = interp_pointer(thread_state, at->thread_frame);
	if (at->frame_indirect) {
		if (!memory_readable(frame, at->indirect_frame + 8u))
			return false;
		frame = interp_pointer(frame, at->indirect_frame);
	}
	for (i = 0; frame != NULL && i < 64; i++) {
		const void *code;

		if (!memory_readable(frame, 112))
			return false;
		if (at->owner_shim == 0 ||
		    ((const uint8_t *)frame)[at->frame_owner] < at->owner_shim) {
			code = (const void *)((uintptr_t)interp_pointer(frame, at->frame_code) &
					      ~at->code_tag);
			if (!code_holds(code) || !instruction_holds(frame, code))
				return false;
			codes[functions++] = code;
		}
		frame = interp_pointer(frame, at->frame_previous);
	}
	if (at->code_version != 0 && !versions_hold(codes, functions)) {
		interp.walk = WALK_ANY;
		interp.at.code_version = 0;
	}
	return functions > 0;
}

/* True when the thread runs Python code; only then there is something to try the layout on. */
static bool has_frames(const void *thread_state)
{
	const void *frame;

	if (!memory_readable(thread_state, interp.at.thread_frame + 8u))
		return true; /* and will be refused */
	frame = interp_pointer(thread_state, interp.at.thread_frame);
	if (frame != NULL && interp.at.frame_indirect &&
	    memory_readable(frame, interp.at.indirect_frame + 8u))
		frame = interp_pointer(frame, interp.at.indirect_frame);
	return frame != NULL;
}

MSCOPE_COLD bool interp_verify_slow(const void *thread_state)
{
	uint32_t state = atomic_load_explicit(&interp.state, memory_order_acquire);

	if (state == INTERP_UNKNOWN && interp_find_slow())
		state = INTERP_FOUND;
	if (state != INTERP_FOUND)
		return state == INTERP_READY;
	if (thread_state == NULL)
		thread_state = interp.thread_state();
	if (thread_state == NULL || !has_frames(thread_state))
		return false;
	if (!frames_hold(thread_state)) {
		refuse(interp.at.minor, "unexpected layout of the interpreter's frames");
		return false;
	}
	atomic_store_explicit(&interp.state, INTERP_READY, memory_order_release);
	return true;
}
