/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claims about interp/frames.c: which stacks get one hash, with an interpreter made of plain memory for each layout. The walk that was
 * compiled for a layout and the one that looks its offsets up are the same.
 */
#include "unit.h"

#include "collector/interp/layouts.h"

#define FRAMES 5u
#define OBJECT 512u

struct interp interp;
struct collector collector;

/* A stack of functions, innermost first. Objects are addressed by the layout that is tried. */
static struct {
	_Alignas(16) uint8_t thread[OBJECT], holder[OBJECT];
	_Alignas(16) uint8_t frame[FRAMES][OBJECT];
	_Alignas(16) uint8_t code[FRAMES][OBJECT], file[OBJECT], name[OBJECT], table[OBJECT];
	_Alignas(16) uint8_t code_type[16];
} stack;

bool interp_verify_slow(const void *thread_state)
{
	(void)thread_state;
	return false;
}

static void *thread_state(void)
{
	return stack.thread;
}

static void set(uint8_t *object, uint32_t at, uint64_t value, size_t bytes)
{
	memcpy(object + at, &value, bytes);
}

static void set_pointer(uint8_t *object, uint32_t at, const void *to)
{
	set(object, at, (uintptr_t)to, sizeof(to));
}

/* Where frame `i` is in its function, in bytes. */
static void set_instruction(uint32_t i, int32_t offset)
{
	const struct interp_layout *at = &interp.at;

	if (at->minor < 11)
		set(stack.frame[i], at->frame_instruction,
		    (uint32_t)(offset / (at->minor == 9 ? 1 : 2)), 4);
	else
		set_pointer(stack.frame[i], at->frame_instruction,
			    stack.code[i] + at->code_start + offset);
}

static void make(const struct interp_layout *layout, enum interp_walk walk)
{
	const struct interp_layout *at = &interp.at;
	uint8_t *innermost = layout->frame_indirect ? stack.holder : stack.thread;
	uint32_t i;

	memset(&stack, 0, sizeof(stack));
	interp.at = *layout;
	interp.walk = walk;
	interp.thread_state = thread_state;
	interp.code_type = stack.code_type;
	atomic_store(&interp.state, INTERP_READY);
	set_pointer(stack.thread, at->thread_frame,
		    layout->frame_indirect ? stack.holder : stack.frame[0]);
	if (layout->frame_indirect)
		set_pointer(innermost, at->indirect_frame, stack.frame[0]);
	set(stack.file, at->text_length, 22, 8);
	set(stack.file, at->text_state, (uint32_t)INTERP_TEXT_COMPACT << at->text_shift, 4);
	memcpy(stack.file + at->text_ascii, "/opt/models/train_1.py", 22);
	set(stack.table, at->bytes_size, 24, 8);
	memcpy(stack.table + at->bytes_data, "lines of a function.....", 24);
	for (i = 0; i < FRAMES; i++) {
		set_pointer(stack.code[i], at->object_type, stack.code_type);
		set(stack.code[i], at->code_first_line, 10 * i + 1, 4);
		set_pointer(stack.code[i], at->code_file, stack.file);
		set_pointer(stack.code[i], at->code_name, stack.name);
		set_pointer(stack.code[i], at->code_table, stack.table);
		if (at->code_version != 0)
			set(stack.code[i], at->code_version, 1000 + i, 4);
		if (i + 1 < FRAMES)
			set_pointer(stack.frame[i], at->frame_previous, stack.frame[i + 1]);
		set_pointer(stack.frame[i], at->frame_code, stack.code[i]);
		set_instruction(i, 40 + 2 * (int32_t)i);
	}
}

static uint64_t hash_of(uint32_t depth, uint32_t expected)
{
	uint64_t hash = 0;

	assert_int_equal(interp_hash_frames(depth, &hash), expected);
	return hash;
}

static uint64_t hash(void)
{
	return hash_of(FRAMES + 1, FRAMES);
}

static const struct {
	const struct interp_layout *layout;
	enum interp_walk walk;
} known[] = {
	{&layout_3_9, WALK_ANY},   {&layout_3_10, WALK_3_10}, {&layout_3_11, WALK_3_11},
	{&layout_3_12, WALK_3_12}, {&layout_3_13, WALK_3_13},
};

#define EACH_LAYOUT(i) for (size_t i = 0; i < MSCOPE_COUNT(known); i++)

static void the_walk_of_a_layout_is_that_of_any(void **state)
{
	(void)state;
	EACH_LAYOUT(i)
	{
		uint64_t fast;

		make(known[i].layout, known[i].walk);
		fast = hash();
		interp.walk = WALK_ANY;
		assert_int_equal(hash(), fast);
	}
}

static void frames_are_counted_as_they_are_found(void **state)
{
	struct interp_frame frames[FRAMES + INTERP_OWN_FRAMES];

	(void)state;
	EACH_LAYOUT(i)
	{
		uint32_t k;

		make(known[i].layout, known[i].walk);
		assert_int_equal(interp_frames(frames, FRAMES), FRAMES);
		for (k = 0; k < FRAMES; k++) {
			assert_ptr_equal(frames[k].code, stack.code[k]);
			assert_int_equal(frames[k].offset, 40 + 2 * k);
		}
		assert_int_equal(interp_frames(frames, 2), 2);
		assert_int_not_equal(hash_of(2, 2), hash_of(3, 3));
		/* Not begun: named without an instruction where frames are objects, left out where they are not. */
		set_instruction(1, -2);
		if (interp.at.minor < 11) {
			assert_int_equal(interp_frames(frames, FRAMES), FRAMES);
			assert_int_equal(frames[1].offset, UINT32_MAX);
			hash_of(FRAMES, FRAMES);
			continue;
		}
		assert_int_equal(interp_frames(frames, FRAMES), FRAMES - 1);
		hash_of(FRAMES, FRAMES - 1);
		set(stack.frame[2], interp.at.frame_owner, interp.at.owner_shim, 1);
		hash_of(FRAMES, FRAMES - 2);
	}
}

static void each_instruction_makes_another_stack(void **state)
{
	(void)state;
	EACH_LAYOUT(i)
	{
		uint64_t seen[FRAMES + 1];
		uint32_t k, n;

		make(known[i].layout, known[i].walk);
		seen[FRAMES] = hash();
		for (k = 0; k < FRAMES; k++) {
			set_instruction(k, 80);
			seen[k] = hash();
			set_instruction(k, 40 + 2 * (int32_t)k);
			for (n = 0; n < k; n++)
				assert_int_not_equal(seen[k], seen[n]);
			assert_int_not_equal(seen[k], seen[FRAMES]);
		}
		assert_int_equal(hash(), seen[FRAMES]);
	}
}

/* A program that compiles text in a loop gets such objects. */
static void another_function_at_the_same_address_is_another_stack(void **state)
{
	(void)state;
	EACH_LAYOUT(i)
	{
		const struct interp_layout *at = &interp.at;
		uint64_t before;

		make(known[i].layout, known[i].walk);
		before = hash();
		if (at->code_version != 0) {
			set(stack.code[3], at->code_version, 2000, 4);
			assert_int_not_equal(hash(), before);
			/* The interpreter has no versions left: what the object refers to counts. */
			set(stack.code[3], at->code_version, 0, 4);
			before = hash();
		}
		memcpy(stack.file + at->text_ascii, "/opt/models/train_2.py", 22);
		assert_int_not_equal(hash(), before);
		before = hash();
		stack.table[at->bytes_data + 2] = 'N';
		assert_int_not_equal(hash(), before);
		before = hash();
		stack.table[at->bytes_data + 22] = 'N';
		assert_int_not_equal(hash(), before);
		before = hash();
		set(stack.table, at->bytes_size, 5, 8);
		assert_int_not_equal(hash(), before);
		before = hash();
		stack.table[at->bytes_data + 4] = 'N';
		assert_int_not_equal(hash(), before);
		before = hash();
		set(stack.code[3], at->code_first_line, 7, 4);
		assert_int_not_equal(hash(), before);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_walk_of_a_layout_is_that_of_any),
		cmocka_unit_test(frames_are_counted_as_they_are_found),
		cmocka_unit_test(each_instruction_makes_another_stack),
		cmocka_unit_test(another_function_at_the_same_address_is_another_stack),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
