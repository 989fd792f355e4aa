/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Python functions in the trace.
 */
#ifndef MSCOPE_COLLECTOR_RECORD_CODES_H
#define MSCOPE_COLLECTOR_RECORD_CODES_H

#include "collector/interp/layouts.h"
#include "collector/record/writer.h"

#define CODE_SLOTS     4096u /* a power of two */
#define CODE_SET_SLOTS 4u

struct code_slot {
	uint64_t print; /* 0: empty */
	uint32_t id;	/* 0: not to be named */
	uint16_t kinds;
	uint16_t class; /* the Python trace's, 0: not known yet */
};

struct known_codes {
	_Alignas(64) struct code_slot slots[CODE_SLOTS];
	char file[INTERP_PATH_MAX];
	char name[INTERP_NAME_MAX];
};

MSCOPE_INLINE uint64_t code_print(const void *code)
{
	uint64_t print;

	/* With the offsets as constants. */
	switch (interp.walk) {
	case WALK_3_11:
		print = interp_code_print(&layout_3_11, code);
		break;
	case WALK_3_12:
		print = interp_code_print(&layout_3_12, code);
		break;
	default:
		print = interp_code_print(&interp.at, code);
		break;
	}
	return (print ^ print >> 32) * UINT64_C(0x9e3779b97f4a7c15) | 1;
}

MSCOPE_INLINE struct code_slot *code_set(struct writer *w, uint64_t print)
{
	return &w->codes->slots[print >> 40 & (CODE_SLOTS - CODE_SET_SLOTS)];
}

/* The slot of a function that came before, if it is the newest of its set; else NULL. */
MSCOPE_INLINE struct code_slot *writer_code_near(struct writer *w, const void *code)
{
	/* A writer with codes has seen an interpreter whose layout holds. */
	if (MSCOPE_LIKELY(w->codes != NULL)) {
		uint64_t print = code_print(code);
		struct code_slot *slot = code_set(w, print);

		if (MSCOPE_LIKELY(slot->print == print))
			return slot;
	}
	return NULL;
}

/*
 * The slot of a function; a new function gets one. NULL if the function cannot be read or the table is full. Valid until the next
 * function is defined.
 */
struct code_slot *writer_code_slot_slow(struct writer *w, const void *code);

MSCOPE_INLINE struct code_slot *writer_code_slot(struct writer *w, const void *code)
{
	struct code_slot *slot = writer_code_near(w, code);

	return MSCOPE_LIKELY(slot != NULL) ? slot : writer_code_slot_slow(w, code);
}

/*
 * Number of a code object for records of this writer, defined when it is new. 0: a function of our own package, or an object
 * that cannot be read; such a frame is left out. The caller's thread keeps the object alive.
 */
uint32_t writer_code(struct writer *w, const void *code);

/*
 * Makes the `count` frames in w->python_frames, of at most `walked`, the words of a stack_def, at most `depth`, in *out, which is the
 * writer's own room; defines the functions that are new. Fewer words than were walked are a site: frames of PyTorch that only call on
 * are left out. *cut: the stack has other frames that are not among them. Returns how many words there are.
 */
uint32_t writer_code_frames(struct writer *w, uint32_t count, uint32_t walked, uint32_t depth,
			    bool *cut, const void **out);

/*
 * Functions of `file` that are defined from now on have `name` for their file, or are left out as those of our own package are when
 * it is empty. 0; -ENAMETOOLONG, -ENOSPC, -ENOMEM, -EBUSY: the file keeps its name.
 */
int codes_name_file(const char *file, const char *name);

#endif
