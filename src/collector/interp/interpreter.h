/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Python interpreter of the traced process, read and never called: where its objects have what we record.
 *
 * A thread that is in C code cannot change its own Python frames, whether it holds the interpreter's lock or not, and a frame keeps
 * its code object alive. So a thread reads its own frames without the lock. Nothing here allocates an object or runs Python.
 *
 * Layouts differ by version. They are tried once on the frames of a live thread, with reads that cannot fault; when anything is
 * not as it should be there are no Python stacks, and a note says so.
 */
#ifndef MSCOPE_COLLECTOR_INTERP_INTERPRETER_H
#define MSCOPE_COLLECTOR_INTERP_INTERPRETER_H

#include "collector/collector.h"

#define INTERP_PATH_MAX	 4096u	/* bytes of a file's name that are kept */
#define INTERP_NAME_MAX	 1024u	/* of a function's name */
#define INTERP_TABLE_MAX 65536u /* of a line table */

/* Byte offsets into the interpreter's objects. */
struct interp_layout {
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
	/* From 3.12: a number that no other code object of the interpreter has or had. 0: there is none. */
	uint16_t code_version;
	uint16_t code_file;
	uint16_t code_name;
	uint16_t code_table;
	/* Index of the first instruction that is the function's own, from 3.11. */
	uint16_t code_traceable;
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

enum interp_state {
	INTERP_UNKNOWN = 0, /* not searched for yet, or there is none so far */
	INTERP_FOUND = 1,   /* there is an interpreter; its layout is to be tried */
	INTERP_READY = 2,
	INTERP_REFUSED = 3, /* its layout is not what we know */
};

/* Which walk knows the layout's offsets. */
enum interp_walk {
	WALK_ANY,
	WALK_3_10,
	WALK_3_11,
	WALK_3_12,
	WALK_3_13,
};

struct interp {
	/* enum interp_state; the release store of READY publishes the rest. */
	_Atomic uint32_t state;
	void *(*thread_state)(void); /* of the calling thread, NULL when Python does not know it */
	int (*finalizing)(void);     /* NULL: cannot be asked */
	const void *code_type;
	const void *text_type;
	const void *bytes_type;
	struct interp_layout at;
	enum interp_walk walk;
	/* Directory of our own package with a trailing slash, "" when it is not imported. Stacks leave its functions out. */
	char own[INTERP_PATH_MAX];
	_Atomic uint32_t own_bytes;
	_Atomic uint32_t own_seen; /* 1: a function of it was met on a stack */
};

extern MSCOPE_HIDDEN struct interp interp;

/* A Python frame as it was found. */
struct interp_frame {
	const void *code;
	uint64_t offset; /* of the instruction in the code, in bytes; UINT32_MAX: not begun */
};

/* Frames of our own package that are skipped at most to find those of the program. */
#define INTERP_OWN_FRAMES 8u

/*
 * Searches for an interpreter. Cheap while nothing has been loaded since it was last not found. True when there is one that was
 * not refused.
 */
bool interp_find_slow(void);

/* Tries the layout on this thread's own frames. True when it holds, now or before. */
bool interp_verify_slow(const void *thread_state);

/*
 * This thread's Python frames, innermost first. About `depth` of them, and at most INTERP_OWN_FRAMES more when frames of our own package
 * may be among them: `out` has room for both. 0 on a thread that Python does not know, and where the interpreter was refused just
 * now, which a note says.
 */
uint32_t interp_frames(struct interp_frame *out, uint32_t depth);

/* The same frames, added to the hash; returns how many there are. What an event whose stack is known has to do. */
uint32_t interp_hash_frames(uint32_t depth, uint64_t *hash);

/*
 * A text of the interpreter as UTF-8, at most `room` bytes and no character in parts. Characters that UTF-8 does not have (halves
 * of pairs, which stand for the bytes of a file name that is not UTF-8) become those bytes or '?'. The length, or negative when
 * it is not a text.
 */
int interp_text(const void *text, char *out, uint32_t room);

MSCOPE_INLINE const void *interp_pointer(const void *object, uint32_t offset)
{
	return *(const void *const *)(const void *)((const char *)object + offset);
}

MSCOPE_INLINE int32_t interp_i32(const void *object, uint32_t offset)
{
	return *(const int32_t *)(const void *)((const char *)object + offset);
}

MSCOPE_INLINE uint64_t interp_u64(const void *object, uint32_t offset)
{
	uint64_t value;

	__builtin_memcpy(&value, (const char *)object + offset, sizeof(value));
	return value;
}

/* Low bits of a text's state: bytes of a character, then these. */
#define INTERP_TEXT_COMPACT 8u	/* the characters lie behind the head */
#define INTERP_TEXT_ASCII   16u /* and the head is the short one */

MSCOPE_INLINE uint32_t interp_text_state(const void *text)
{
	return (uint32_t)interp_i32(text, interp.at.text_state) >> interp.at.text_shift;
}

/*
 * A fingerprint of a code object, which differs from that of any other object that may get the same address later: the addresses of
 * its parts, and their first and last bytes. (A program that compiles text in a loop gets new objects at the old addresses.) A sum
 * of products of two, of which the one from an address is odd: no change of the other is lost. To be hashed by the caller.
 */
MSCOPE_INLINE uint64_t interp_code_contents(const struct interp_layout *at, const void *code)
{
	const void *file = interp_pointer(code, at->code_file);
	const void *table = interp_pointer(code, at->code_table);
	uint64_t length = interp_u64(file, at->text_length);
	uint64_t size = interp_u64(table, at->bytes_size);
	uint64_t first = 0, last = 0, file_end = 0;
	uint64_t sizes = (uint64_t)(uint32_t)interp_i32(code, at->code_first_line) << 44;

	sizes += (size << 24) + length;
	/* Of a text with a longer head or wider characters these are other bytes, but still its own. */
	if (MSCOPE_LIKELY(length >= 8 &&
			  (uint32_t)interp_i32(file, at->text_state) >> at->text_shift &
				  INTERP_TEXT_COMPACT))
		file_end = interp_u64((const char *)file + (uint32_t)length, at->text_ascii - 8u);
	if (MSCOPE_LIKELY(size >= 8)) {
		first = interp_u64(table, at->bytes_data);
		last = interp_u64((const char *)table + size, at->bytes_data - 8u);
	} else {
		for (; size > 0; size--)
			last = last << 8 |
			       ((const uint8_t *)table)[at->bytes_data + (uint32_t)size - 1];
	}
	return ((uintptr_t)code + 0x5bd1e995u) * (first + 0x2545f491u) +
	       ((uintptr_t)table + 0x7ed558cdu) * (last + 0x4f6cdd1du) +
	       ((uintptr_t)file + 0x68e31da5u) * (file_end + 0x1b873593u) +
	       ((uintptr_t)interp_pointer(code, at->code_name) + 0x27d4eb2fu) *
		       (sizes + 0x165667b1u);
}

/* The same; from 3.12 on from one cache line. A version of 0: the interpreter has run out of them. */
MSCOPE_INLINE uint64_t interp_code_print(const struct interp_layout *at, const void *code)
{
	uint64_t version = at->code_version == 0 ? 0 : (uint32_t)interp_i32(code, at->code_version);

	if (version == 0)
		return interp_code_contents(at, code);
	version |= (uint64_t)(uint32_t)interp_i32(code, at->code_first_line) << 32;
	return ((uintptr_t)code + 0x5bd1e995u) * UINT64_C(0xd6e8feb86659fd93) +
	       version * UINT64_C(0xc2b2ae3d27d4eb4f);
}

#endif
