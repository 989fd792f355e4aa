/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Call stacks of one run, C and Python frames as one, each distinct one kept once however many writers defined it, and the text
 * of their frames.
 *
 * A C frame is a module and an address, kept once and known by a number: stacks have many frames, and few are different. The module is looked up when the stack is defined, because the address may belong to
 * another library later. A Python frame is a function of struct codes and an offset in it. The text of a C frame is made once,
 * from the names that the trace carries or else from the module's file; so are its lines. Not thread-safe.
 */
#ifndef MSCOPE_REPLAY_STACKS_H
#define MSCOPE_REPLAY_STACKS_H

#include "base/index.h"
#include "base/strbuf.h"
#include "replay/frame_lines.h"
#include "replay/replay.h"
#include "symbols/modules.h"

/* The frames of a stack end where those of the next one begin. */
struct stack {
	uint32_t first;		   /* of its C frames in stacks.numbers */
	uint32_t first_place : 31; /* of its Python frames in stacks.places */
	uint32_t cut : 1;	   /* it had more Python frames */
};

/* A C frame and what is known of it. */
struct known_frame {
	struct frame frame;
	uint32_t text; /* offset in stacks.text + 1; 0: not made yet */
	bool used;     /* by a stack, and not only in the table of the trace */
	struct frame_range lines;
};

/* Python frames of a stack, innermost first. */
struct stack_places {
	const struct python_place *all;
	size_t count;
	bool cut; /* there were more */
};

struct stacks {
	struct modules *modules; /* borrowed */
	const char *root;	 /* where module paths begin: "" or "/proc/PID/root"; borrowed */
	struct known_frame *frames;
	size_t frame_count, frame_room;
	struct index by_address; /* of `frames` */
	uint32_t *numbers;	 /* of the frames of all stacks */
	size_t number_count, number_room;
	struct python_place *places;
	size_t place_count, place_room;
	struct stack *all; /* [0] is the empty stack, [count] where the next one begins */
	size_t count, room;
	struct index by_frames; /* of `all` */
	struct strbuf text;	/* NUL-terminated texts of frames */
	struct frame_lines lines;
	struct strbuf line_notes; /* sentences of lines_note() after the last reading */
};

void stacks_init(struct stacks *stacks, struct modules *modules, const char *root);
void stacks_fini(struct stacks *stacks);

/* No stack is defined any more: gives back what finds known ones. */
void stacks_end(struct stacks *stacks);

/* Index of the stack with these C return addresses and Python frames, new or known. 0 or -ENOMEM. */
int stacks_intern(struct stacks *stacks, const uint8_t *addresses, size_t count,
		  struct stack_places places, uint32_t *out_stack);

/* The same of frames whose modules are known: `frames` are `count` struct frame, aligned in any way. */
int stacks_intern_frames(struct stacks *stacks, const uint8_t *frames, size_t count,
			 struct stack_places places, uint32_t *out_stack);

/* Text of one frame as glibc's backtrace_symbols() has it. Borrowed until the next call; "" when out of memory. */
const char *stacks_frame_text(struct stacks *stacks, uint32_t frame);

/*
 * The lines of a C frame, innermost first; NULL if nothing is known. The first call for a frame that the trace tells nothing of reads
 * debug information, for all frames so far. Borrowed until the next stack is defined.
 */
struct frame_line *stacks_lines(struct stacks *stacks, uint32_t frame, size_t *out_count);

/* The numbers of the C frames of a stack, innermost first, and the frame with a number. */
const uint32_t *stacks_frames(const struct stacks *stacks, uint32_t stack, uint32_t *out_count);
const struct frame *stacks_frame(const struct stacks *stacks, uint32_t frame);

/* The number of a frame, new or known. 0 or -ENOMEM. */
int stacks_number(struct stacks *stacks, const struct frame *frame, uint32_t *out);
const struct python_place *stacks_places(const struct stacks *stacks, uint32_t stack,
					 uint32_t *out_count);
bool stacks_is_cut(const struct stacks *stacks, uint32_t stack);

/*
 * Makes the text and finds the lines of every frame, and puts them into `out` in the form that a packed trace keeps (kind FRAMES): at
 * once if `put` is NULL, else in parts of about 4 MiB, for each of which `put` is called. Frames are never cut; what follows a part
 * that was lost can be read. 0, or what `put` returned.
 */
int stacks_save(struct stacks *stacks, struct strbuf *out, replay_put *put, void *arg);

/* Takes the texts of a packed trace; malformed ones are skipped. */
void stacks_load(struct stacks *stacks, const void *data, size_t bytes);

#endif
