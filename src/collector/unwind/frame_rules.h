/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the registers of a caller are found from those of the function that it called: the rules of .eh_frame at one instruction
 * (DWARF's call frame information), and their application.
 */
#ifndef MSCOPE_COLLECTOR_UNWIND_FRAME_RULES_H
#define MSCOPE_COLLECTOR_UNWIND_FRAME_RULES_H

#include "collector/unwind/frame_tables.h"
#include "collector/unwind/stack_span.h"

/* Registers by DWARF's numbers, as far as calls keep them. */
#if defined(__x86_64__)
#define REGISTERS	17u
#define REGISTER_FP	6u
#define REGISTER_SP	7u
#define REGISTER_RETURN 16u
#else
#define REGISTERS	32u
#define REGISTER_FP	29u
#define REGISTER_SP	31u
#define REGISTER_RETURN 30u
#endif

struct registers {
	uint64_t pc;
	uint32_t known; /* a bit for each */
	bool exact; /* pc is the next instruction, after a signal; else it is where a call returns to */
	uint64_t value[REGISTERS];
};

enum rule_kind {
	RULE_SAME,
	RULE_UNDEFINED,
	RULE_SAVED,	       /* at the frame's address + value */
	RULE_SUM,	       /* is the frame's address + value */
	RULE_REGISTER,	       /* is in register `value` */
	RULE_SAVED_EXPRESSION, /* at the result of the expression at `value` */
	RULE_EXPRESSION,       /* is that result */
};

/* A rule is value << 3 | kind. */
#define RULE(kind, value) ((uint64_t)(value) << 3 | (uint64_t)(kind))
#define RULE_KIND(rule)	  ((enum rule_kind)((rule)&7))
#define RULE_VALUE(rule)  ((int64_t)(rule) >> 3)

struct frame_rules {
	/* The frame's address (DWARF's CFA): register + offset, or an expression. */
	uint64_t expression; /* address of its length and bytes, 0: none */
	int64_t offset;
	uint32_t base;
	uint64_t saved[REGISTERS];
};

#define RULES_REMEMBERED 6u

/* What runs the programs that rules are made by. Too large for a stack that is not ours. */
struct frame_machine {
	struct frame_function *f;
	struct frame_reader r;
	uint64_t code; /* the rules count from this instruction on */
	struct frame_rules now;
	uint64_t first[REGISTERS]; /* after the common part */
	struct frame_rules remembered[RULES_REMEMBERED];
	uint32_t remembered_count;
};

/* Makes `m->now` the rules for the instruction at `pc` of the function. False: they make no sense. */
bool rules_run(struct frame_machine *m, struct frame_function *f, uint64_t pc);

enum step_result {
	STEP_DONE,
	STEP_END,     /* there is no caller, or none that can be found */
	STEP_UNKNOWN, /* a register is asked for that is not known */
};

/* Makes of the registers those of the caller. They are undefined after anything but STEP_DONE. */
enum step_result rules_step(struct frame_function *f, const struct frame_rules *rules,
			    struct registers *regs, struct stack_span *span);

/* Reads an expression of the form "register + n" or, with `deref`, "what lies at register + n". False: it is another. */
bool rules_simple(struct frame_function *f, uint64_t expression, bool deref, uint32_t *out_register,
		  int64_t *out_offset);

/* A return address without the signature that the processor may have put on it. */
static inline uint64_t address_strip(uint64_t address)
{
#if defined(__aarch64__)
	register uint64_t x30 __asm__("x30") = address;

	__asm__("hint 7" : "+r"(x30)); /* xpaclri; nothing on processors without signatures */
	return x30;
#else
	return address;
#endif
}

#endif
