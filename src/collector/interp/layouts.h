/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layouts that are known before the program runs. Walks are compiled for each, with its offsets as constants: half the instructions.
 */
#ifndef MSCOPE_COLLECTOR_INTERP_LAYOUTS_H
#define MSCOPE_COLLECTOR_INTERP_LAYOUTS_H

#include "collector/interp/interpreter.h"

static const struct interp_layout layout_3_9 = {
	.minor = 9,
	.thread_frame = 24,
	.frame_previous = 24,
	.frame_code = 32,
	.frame_instruction = 104,
	.object_type = 8,
	.code_first_line = 40,
	.code_file = 104,
	.code_name = 112,
	.code_table = 120,
	.code_start = 48,
	.text_length = 16,
	.text_state = 32,
	.text_ascii = 48,
	.text_compact = 72,
	.text_shift = 2,
	.bytes_size = 16,
	.bytes_data = 32,
};

static const struct interp_layout layout_3_10 = {
	.minor = 10,
	.thread_frame = 24,
	.frame_previous = 24,
	.frame_code = 32,
	.frame_instruction = 96,
	.object_type = 8,
	.code_first_line = 40,
	.code_file = 104,
	.code_name = 112,
	.code_table = 120,
	.code_start = 48,
	.text_length = 16,
	.text_state = 32,
	.text_ascii = 48,
	.text_compact = 72,
	.text_shift = 2,
	.bytes_size = 16,
	.bytes_data = 32,
};

static const struct interp_layout layout_3_11 = {
	.minor = 11,
	.thread_frame = 56,
	.frame_indirect = true,
	.indirect_frame = 8,
	.frame_previous = 48,
	.frame_code = 32,
	.frame_instruction = 56,
	.frame_owner = 69,
	.owner_shim = 3,
	.object_type = 8,
	.code_first_line = 72,
	.code_file = 112,
	.code_name = 128,
	.code_table = 136,
	.code_traceable = 168,
	.code_start = 184,
	.text_length = 16,
	.text_state = 32,
	.text_ascii = 48,
	.text_compact = 72,
	.text_shift = 2,
	.bytes_size = 16,
	.bytes_data = 32,
};

static const struct interp_layout layout_3_12 = {
	.minor = 12,
	.thread_frame = 56,
	.frame_indirect = true,
	.indirect_frame = 0,
	.frame_previous = 8,
	.frame_code = 0,
	.frame_instruction = 56,
	.frame_owner = 70,
	.owner_shim = 3,
	.object_type = 8,
	.code_first_line = 68,
	.code_version = 92,
	.code_file = 112,
	.code_name = 128,
	.code_table = 136,
	.code_traceable = 176,
	.code_start = 192,
	.text_length = 16,
	.text_state = 32,
	.text_ascii = 40,
	.text_compact = 56,
	.text_shift = 2,
	.bytes_size = 16,
	.bytes_data = 32,
};

/* Of an ordinary build; the interpreter's own description says whether it is one. */
static const struct interp_layout layout_3_13 = {
	.minor = 13,
	.thread_frame = 72,
	.frame_previous = 8,
	.frame_code = 0,
	.frame_instruction = 56,
	.frame_owner = 70,
	.owner_shim = 3,
	.object_type = 8,
	.code_first_line = 68,
	.code_version = 92,
	.code_file = 112,
	.code_name = 128,
	.code_table = 136,
	.code_traceable = 184,
	.code_start = 200,
	.text_length = 16,
	.text_state = 32,
	.text_ascii = 40,
	.text_compact = 56,
	.text_shift = 2,
	.bytes_size = 16,
	.bytes_data = 32,
};

#endif
