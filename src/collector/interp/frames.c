/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Python frames of the calling thread. Budget (make bench): about 5 ns a frame, 20 frames <= 0.3 us with the event they are
 * recorded with. What is read: three or four words of each frame, those of its code object that tell it from another, and before
 * 3.12 the ends of its file name and line table. Frames are skipped as the interpreter's own traceback skips them: those that have
 * not begun, and those that stand for a call from C.
 *
 * An event whose stack is known needs the hash and nothing else, so frames are stored only for a stack that is new.
 */
#include "collector/interp/layouts.h"
#include "collector/sys.h"

#define OWNER_GENERATOR 1u

/* What a walk makes. */
struct walked {
	struct interp_frame *out; /* NULL: the hash */
	uint64_t hash;
};

MSCOPE_INLINE void take(struct walked *to, const struct interp_layout *at, uint32_t count,
			const void *code, uint64_t offset)
{
	uint64_t hash;

	if (to->out != NULL) {
		to->out[count].code = code;
		to->out[count].offset = offset > INT32_MAX ? UINT32_MAX : offset;
		return;
	}
	hash = (to->hash ^ (interp_code_print(at, code) + offset)) * UINT64_C(0x9e3779b97f4a7c15);
	to->hash = hash ^ hash >> 32;
}

/* 3.9 and 3.10: frames are objects. */
MSCOPE_INLINE uint32_t walk_objects(const struct interp_layout *at, struct walked *to,
				    const void *frame, uint32_t depth)
{
	uint32_t unit = at->minor == 9 ? 1 : 2, count = 0;

	for (; frame != NULL && count < depth; frame = interp_pointer(frame, at->frame_previous)) {
		int64_t instruction = interp_i32(frame, at->frame_instruction);

		/* Below 0: it has not begun. */
		take(to, at, count, interp_pointer(frame, at->frame_code),
		     (uint64_t)(instruction * unit));
		count++;
	}
	return count;
}

/* Every object that a frame of 3.11 or 3.12 has for its code is one; later ones have others, too. */
MSCOPE_INLINE bool is_code(const struct interp_layout *at, const void *code)
{
	return (at->minor < 13 && at->minor > 10) ||
	       interp_pointer(code, at->object_type) == interp.code_type;
}

MSCOPE_INLINE uint32_t walk_structs(const struct interp_layout *at, struct walked *to,
				    const void *frame, uint32_t depth)
{
	uint32_t count = 0;

	for (; frame != NULL && count < depth; frame = interp_pointer(frame, at->frame_previous)) {
		uint8_t owner = ((const uint8_t *)frame)[at->frame_owner];
		const void *code;
		int64_t offset;

		if (owner >= at->owner_shim)
			continue;
		code = (const void *)((uintptr_t)interp_pointer(frame, at->frame_code) &
				      ~at->code_tag);
		if (MSCOPE_UNLIKELY(!is_code(at, code)))
			continue;
		offset = (const char *)interp_pointer(frame, at->frame_instruction) -
			 (const char *)code - at->code_start;
		if (MSCOPE_UNLIKELY(offset < 2 * (int64_t)interp_i32(code, at->code_traceable)) &&
		    owner != OWNER_GENERATOR)
			continue;
		take(to, at, count, code, (uint64_t)offset);
		count++;
	}
	return count;
}

MSCOPE_INLINE uint32_t walk(const struct interp_layout *at, struct walked *to, const void *frame,
			    uint32_t depth)
{
	return at->minor < 11 ? walk_objects(at, to, frame, depth)
			      : walk_structs(at, to, frame, depth);
}

#define HASH(name, layout)                                                                         \
	static __attribute__((noinline)) uint32_t name(const void *frame, uint32_t depth,          \
						       uint64_t *hash)                             \
	{                                                                                          \
		struct walked to = {.hash = *hash};                                                \
		uint32_t count = walk(layout, &to, frame, depth);                                  \
                                                                                                   \
		*hash = to.hash;                                                                   \
		return count;                                                                      \
	}
HASH(hash_any, &interp.at)
HASH(hash_3_10, &layout_3_10)
HASH(hash_3_11, &layout_3_11)
HASH(hash_3_12, &layout_3_12)
HASH(hash_3_13, &layout_3_13)
#undef HASH

/*
 * While the interpreter shuts down, it may free the frames of threads that it no longer waits for. The main thread is the one that
 * shuts it down, so its own frames stay.
 */
static MSCOPE_COLD bool may_read_finalizing(void)
{
	return sys_gettid() == collector.pid;
}

/* The innermost frame, NULL: none that may be read. Adds frames of our own package to the depth. */
MSCOPE_INLINE const void *innermost(uint32_t *depth)
{
	const void *thread_state = interp.thread_state(), *frame;

	if (thread_state == NULL)
		return NULL;
	if (MSCOPE_UNLIKELY(interp.finalizing != NULL && interp.finalizing() != 0) &&
	    !may_read_finalizing())
		return NULL;
	if (MSCOPE_UNLIKELY(atomic_load_explicit(&interp.state, memory_order_acquire) !=
			    INTERP_READY) &&
	    !interp_verify_slow(thread_state))
		return NULL;
	if (MSCOPE_UNLIKELY(atomic_load_explicit(&interp.own_seen, memory_order_relaxed)))
		*depth += INTERP_OWN_FRAMES;
	frame = interp_pointer(thread_state, interp.at.thread_frame);
	if (interp.at.frame_indirect && frame != NULL)
		frame = interp_pointer(frame, interp.at.indirect_frame);
	return frame;
}

uint32_t interp_frames(struct interp_frame *out, uint32_t depth)
{
	const void *frame = innermost(&depth);
	struct walked to = {.out = out};

	return walk(&interp.at, &to, frame, depth);
}

uint32_t interp_hash_frames(uint32_t depth, uint64_t *hash)
{
	const void *frame = innermost(&depth);

	switch (interp.walk) {
	case WALK_3_10:
		return hash_3_10(frame, depth, hash);
	case WALK_3_11:
		return hash_3_11(frame, depth, hash);
	case WALK_3_12:
		return hash_3_12(frame, depth, hash);
	case WALK_3_13:
		return hash_3_13(frame, depth, hash);
	default:
		return hash_any(frame, depth, hash);
	}
}
