/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Python interpreter of the traced process, read and never called: where its objects keep what we want to know.
 *
 * A thread that is in C code cannot change its own Python frames, whether it holds the interpreter's lock or not, and a frame keeps
 * its code object alive. So a thread reads its own frames without the lock. Nothing here allocates an object or runs Python.
 *
 * Layouts differ by version. They are tried once on the frames of a live thread, with reads that cannot fault; when anything is
 * not as it should be there are no Python stacks, and a note says so.
 */
#ifndef MSCOPE_COLLECTOR_PYTHON_H
#define MSCOPE_COLLECTOR_PYTHON_H

#include "collector/collector.h"

#define PYTHON_PATH_MAX	 4096u	/* bytes of a file's name that are kept */
#define PYTHON_NAME_MAX	 1024u	/* of a function's name */
#define PYTHON_TABLE_MAX 65536u /* of a line table */

/* Byte offsets into the interpreter's objects. */
struct python_layout {
	uint32_t minor; /* x of version 3.x */
	/* Thread state: the innermost frame, or where a pointer to it lies (3.11, 3.12). */
	uint16_t thread_frame;
	bool frame_indirect;
	uint16_t indirect_frame;
	/* Frame. */
	uint16_t frame_previous;
	uint16_t frame_code;
	uint16_t frame_instruction; /* a pointer; before 3.11 a number */
	uint16_t frame_owner;
	uint8_t owner_shim; /* from this owner on it is no frame of a function */
	uintptr_t code_tag; /* bits of the code pointer that are no address */
	uint16_t object_type;
	/* Code. */
	uint16_t code_first_line;
	uint16_t code_file;
	uint16_t code_name;
	uint16_t code_table;
	uint16_t
		code_traceable; /* index of the first instruction that is the function's own, from 3.11 */
	uint16_t code_start; /* its instructions; before 3.11 they are an object of their own */
	/* Text and bytes. */
	uint16_t text_length;
	uint16_t text_state;
	uint16_t text_ascii;   /* where the characters of an ASCII text begin */
	uint16_t text_compact; /* and those of another */
	uint8_t text_shift;    /* of the kind of characters in the state */
	uint16_t bytes_size;
	uint16_t bytes_data;
};

enum python_state {
	PYTHON_UNKNOWN = 0, /* nobody has looked, or there is none so far */
	PYTHON_FOUND = 1,   /* there is an interpreter; its layout is to be tried */
	PYTHON_READY = 2,
	PYTHON_REFUSED = 3, /* its layout is not what we know */
};

struct python {
	_Atomic uint32_t
		state; /* enum python_state; the release store of READY publishes the rest */
	void *(*thread_state)(void); /* of the calling thread, NULL when Python does not know it */
	int (*finalizing)(void);     /* NULL: cannot be asked */
	const void *code_type;
	const void *text_type;
	const void *bytes_type;
	struct python_layout at;
	/* Directory of our own package with a trailing slash, "" when it is not imported. Its functions are nobody's call stack. */
	char own[PYTHON_PATH_MAX];
	_Atomic uint32_t own_bytes;
	_Atomic uint32_t own_seen; /* 1: a function of it was met on a stack */
};

extern struct python python;

struct code_slot {
	uint64_t print; /* 0: empty */
	uint32_t id;	/* 0: not to be named */
	uint32_t reserved;
};

#define PYTHON_CODES 4096u /* slots of a writer's code table, a power of two */

struct python_codes {
	struct code_slot slots[PYTHON_CODES];
	char file[PYTHON_PATH_MAX];
	char name[PYTHON_NAME_MAX];
};

/* layout.c */

/*
 * Looks for an interpreter. Cheap while nothing has been loaded since it was last not found. True when there is one that was
 * not refused.
 */
bool python_find_slow(void);

/* Tries the layout on this thread's own frames. True when it holds, now or before. */
bool python_verify_slow(const void *thread_state);

/* frames.c */

/*
 * Finds this thread's Python frames, innermost first, into w->python_frames, and adds them to the hash. About `depth` of them; some
 * more when frames of our own package may be among them. 0 on a thread that Python does not know.
 */
uint32_t python_frames(struct writer *w, uint32_t depth, uint64_t *hash);

/*
 * Makes the frames just found the words of a stack_def, at most `depth`, in *out, which is the writer's own room; defines
 * the functions that are new. Returns how many there are.
 */
uint32_t python_frames_define(struct writer *w, uint32_t count, uint32_t depth, const void **out);

/* codes.c */

/*
 * Number of a code object for records of this writer, defined when it is new. 0: a function of our own package, or an object
 * that cannot be read; such a frame is left out. The caller's thread keeps the object alive and is inside the writer.
 */
uint32_t python_code(struct writer *w, const void *code);

/*
 * A text of the interpreter as UTF-8, at most `room` bytes and no character in parts. Characters that UTF-8 does not have (halves of
 * pairs, which stand for the bytes of a file name that is not UTF-8) become those bytes or '?'. The length, or negative when it
 * is not a text.
 */
int python_text(const void *text, char *out, uint32_t room);

MSCOPE_INLINE const void *python_pointer(const void *object, uint32_t offset)
{
	return *(const void *const *)(const void *)((const char *)object + offset);
}

MSCOPE_INLINE int32_t python_i32(const void *object, uint32_t offset)
{
	return *(const int32_t *)(const void *)((const char *)object + offset);
}

MSCOPE_INLINE uint64_t python_u64(const void *object, uint32_t offset)
{
	uint64_t value;

	__builtin_memcpy(&value, (const char *)object + offset, sizeof(value));
	return value;
}

/* Low bits of a text's state: bytes of a character, then these. */
#define PYTHON_TEXT_COMPACT 8u	/* the characters lie behind the head */
#define PYTHON_TEXT_ASCII   16u /* and the head is the short one */

MSCOPE_INLINE uint32_t python_text_state(const void *text)
{
	return (uint32_t)python_i32(text, python.at.text_state) >> python.at.text_shift;
}

/*
 * What tells a code object from any other that may come to lie at its address: where its parts lie, and what the parts begin and
 * end with. Programs that compile text in a loop get new objects at the old addresses, all of them. The sum is linear in its
 * inputs with odd factors; it ends up in a hash.
 */
MSCOPE_INLINE uint64_t python_code_print(const void *code)
{
	const struct python_layout *at = &python.at;
	const void *file = python_pointer(code, at->code_file);
	const void *table = python_pointer(code, at->code_table);
	uint64_t length = python_u64(file, at->text_length);
	uint64_t size = python_u64(table, at->bytes_size);
	uint64_t print = (uint64_t)(uintptr_t)code * UINT64_C(0x9e3779b97f4a7c15);

	print += (uint64_t)(uintptr_t)file * UINT64_C(0xd6e8feb86659fd93);
	print += (uint64_t)(uintptr_t)table * UINT64_C(0xc2b2ae3d27d4eb4f);
	print += (uint64_t)(uintptr_t)python_pointer(code, at->code_name) *
		 UINT64_C(0x165667b19e3779f9);
	print += (uint64_t)(uint32_t)python_i32(code, at->code_first_line) *
		 UINT64_C(0xff51afd7ed558ccd);
	print += length * UINT64_C(0xc4ceb9fe1a85ec53);
	/* Of a text with a longer head or wider characters these are other bytes, but still its own. */
	if (MSCOPE_LIKELY(length >= 8 && python_text_state(file) & PYTHON_TEXT_COMPACT))
		print += python_u64(file, at->text_ascii + (uint32_t)length - 8) *
			 UINT64_C(0x87c37b91114253d5);
	print += size * UINT64_C(0x4cf5ad432745937f);
	if (MSCOPE_LIKELY(size >= 8)) {
		print += python_u64(table, at->bytes_data) * UINT64_C(0x52dce729da3ed5f7);
		print += python_u64((const char *)table + size, at->bytes_data - 8u) *
			 UINT64_C(0x38495ab5bd1e995b);
	} else {
		for (; size > 0; size--)
			print = print * 31 +
				((const uint8_t *)table)[at->bytes_data + (uint32_t)size - 1];
	}
	return print;
}

#endif
