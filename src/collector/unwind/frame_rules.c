/* SPDX-License-Identifier: Apache-2.0 */
#include "collector/unwind/frame_rules.h"

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

/* ---- programs of rules ---- */

/* Registers that calls do not keep have rules, too; they are read and forgotten. */
static void set(struct frame_machine *m, uint64_t number, uint64_t rule)
{
	if (number < REGISTERS)
		m->now.saved[number] = rule;
}

static void restore(struct frame_machine *m, uint64_t number)
{
	if (number < REGISTERS)
		m->now.saved[number] = m->first[number];
}

static int64_t factored(struct frame_machine *m, uint64_t offset)
{
	return (int64_t)(offset * (uint64_t)m->f->data_align);
}

/* Length and bytes of an expression that is read when it is needed. Returns where it is. */
static uint64_t expression(struct frame_machine *m)
{
	uint64_t at = m->r.at;

	reader_skip(&m->r, reader_uleb(&m->r));
	return at;
}

static void define_base(struct frame_machine *m, uint64_t number, int64_t offset)
{
	m->now.expression = 0;
	m->now.base = number < REGISTERS ? (uint32_t)number : REGISTERS;
	m->now.offset = offset;
}

static void remember(struct frame_machine *m)
{
	if (m->remembered_count == RULES_REMEMBERED)
		m->r.failed = true;
	else
		m->remembered[m->remembered_count++] = m->now;
}

static void recall(struct frame_machine *m)
{
	if (m->remembered_count == 0)
		m->r.failed = true;
	else
		m->now = m->remembered[--m->remembered_count];
}

static void advance(struct frame_machine *m, uint64_t delta)
{
	m->code += delta * m->f->code_align;
}

/* Instructions about the frame's address, in DWARF's own numbers (DW_CFA_*); false: it is none of these. */
static bool run_base(struct frame_machine *m, uint8_t op)
{
	struct frame_reader *r = &m->r;
	uint64_t number;

	switch (op) {
	case 0x0c: /* def_cfa */
		number = reader_uleb(r);
		define_base(m, number, (int64_t)reader_uleb(r));
		return true;
	case 0x0d: /* def_cfa_register */
		define_base(m, reader_uleb(r), m->now.offset);
		return true;
	case 0x0e: /* def_cfa_offset */
		m->now.offset = (int64_t)reader_uleb(r);
		return true;
	case 0x0f: /* def_cfa_expression */
		m->now.expression = expression(m);
		return true;
	case 0x12: /* def_cfa_sf */
		number = reader_uleb(r);
		define_base(m, number, factored(m, (uint64_t)reader_sleb(r)));
		return true;
	case 0x13: /* def_cfa_offset_sf */
		m->now.offset = factored(m, (uint64_t)reader_sleb(r));
		return true;
	default:
		return false;
	}
}

/* The others that are no part of another byte. */
static void run_other(struct frame_machine *m, uint8_t op)
{
	struct frame_reader *r = &m->r;
	uint64_t number;

	switch (op) {
	case 0x00: /* nop */
		break;
	case 0x02: /* advance_loc1, 2, 4 */
		advance(m, reader_fixed(r, 1));
		break;
	case 0x03:
		advance(m, reader_fixed(r, 2));
		break;
	case 0x04:
		advance(m, reader_fixed(r, 4));
		break;
	case 0x05: /* offset_extended */
		number = reader_uleb(r);
		set(m, number, RULE(RULE_SAVED, factored(m, reader_uleb(r))));
		break;
	case 0x06: /* restore_extended */
		restore(m, reader_uleb(r));
		break;
	case 0x07: /* undefined */
		set(m, reader_uleb(r), RULE(RULE_UNDEFINED, 0));
		break;
	case 0x08: /* same_value */
		set(m, reader_uleb(r), RULE(RULE_SAME, 0));
		break;
	case 0x09: /* register */
		number = reader_uleb(r);
		set(m, number, RULE(RULE_REGISTER, reader_uleb(r) & UINT32_MAX));
		break;
	case 0x0a:
		remember(m);
		break;
	case 0x0b:
		recall(m);
		break;
	case 0x10: /* expression */
		number = reader_uleb(r);
		set(m, number, RULE(RULE_SAVED_EXPRESSION, expression(m)));
		break;
	case 0x11: /* offset_extended_sf */
		number = reader_uleb(r);
		set(m, number, RULE(RULE_SAVED, factored(m, (uint64_t)reader_sleb(r))));
		break;
	case 0x14: /* val_offset */
		number = reader_uleb(r);
		set(m, number, RULE(RULE_SUM, factored(m, reader_uleb(r))));
		break;
	case 0x15: /* val_offset_sf */
		number = reader_uleb(r);
		set(m, number, RULE(RULE_SUM, factored(m, (uint64_t)reader_sleb(r))));
		break;
	case 0x16: /* val_expression */
		number = reader_uleb(r);
		set(m, number, RULE(RULE_EXPRESSION, expression(m)));
		break;
#if defined(__aarch64__)
	case 0x2c: /* AARCH64_negate_ra_state_with_pc and negate_ra_state: address_strip() always does it */
	case 0x2d:
		break;
#endif
	case 0x2e: /* GNU_args_size */
		(void)reader_uleb(r);
		break;
	case 0x2f: /* GNU_negative_offset_extended */
		number = reader_uleb(r);
		set(m, number, RULE(RULE_SAVED, -factored(m, reader_uleb(r))));
		break;
	default: /* set_loc among them, which no compiler writes */
		r->failed = r->failed || !run_base(m, op);
	}
}

static bool run(struct frame_machine *m, uint64_t at, uint64_t end, uint64_t pc)
{
	reader_begin(&m->r, &m->f->table, at, end);
	while (m->r.at < end && m->code <= pc && !m->r.failed) {
		uint8_t op = reader_u8(&m->r), low = op & 0x3f;

		switch (op >> 6) {
		case 1:
			advance(m, low);
			break;
		case 2:
			set(m, low, RULE(RULE_SAVED, factored(m, reader_uleb(&m->r))));
			break;
		case 3:
			restore(m, low);
			break;
		default:
			run_other(m, op);
		}
	}
	return !m->r.failed;
}

bool rules_run(struct frame_machine *m, struct frame_function *f, uint64_t pc)
{
	uint32_t i;

	m->f = f;
	m->code = f->begin;
	m->remembered_count = 0;
	m->now = (struct frame_rules){.base = REGISTERS};
	for (i = 0; i < REGISTERS; i++)
		m->first[i] = 0;
	if (!run(m, f->common, f->common_end, pc))
		return false;
	for (i = 0; i < REGISTERS; i++)
		m->first[i] = m->now.saved[i];
	if (!run(m, f->program, f->program_end, pc))
		return false;
	return m->now.expression != 0 || m->now.base < REGISTERS;
}

/* ---- expressions ---- */

#define EXPRESSION_DEPTH 16u
#define EXPRESSION_STEPS 256u

struct stack_machine {
	struct frame_reader r;
	const struct registers *regs;
	struct stack_span *span;
	uint64_t values[EXPRESSION_DEPTH];
	uint32_t depth;
	bool unknown; /* a register was asked for that is not known */
};

static void push(struct stack_machine *m, uint64_t value)
{
	if (m->depth == EXPRESSION_DEPTH)
		m->r.failed = true;
	else
		m->values[m->depth++] = value;
}

static uint64_t pop(struct stack_machine *m)
{
	if (m->depth == 0) {
		m->r.failed = true;
		return 0;
	}
	return m->values[--m->depth];
}

static bool register_get(const struct registers *regs, uint64_t number, uint64_t *out)
{
#if defined(__x86_64__)
	if (number == REGISTER_RETURN) {
		*out = regs->pc;
		return true;
	}
#else
	/* The vector granule, which frames with scalable vectors are measured in. */
	if (number == 46 && (getauxval(AT_HWCAP) & (1 << 22)) != 0) {
		__asm__(".inst 0x04e0e3e0\n\tmov %0, x0" : "=r"(*out) : : "x0"); /* cntd x0 */
		return true;
	}
#endif
	if (number >= REGISTERS || (regs->known >> number & 1) == 0)
		return false;
	*out = regs->value[number];
	return true;
}

static void push_register(struct stack_machine *m, uint64_t number)
{
	int64_t offset = reader_sleb(&m->r);
	uint64_t value = 0;

	m->unknown = m->unknown || !register_get(m->regs, number, &value);
	push(m, value + (uint64_t)offset);
}

/* Comparisons (DW_OP_*). */
static bool relate(struct stack_machine *m, uint8_t op, int64_t a, int64_t b)
{
	switch (op) {
	case 0x29:
		return a == b;
	case 0x2a:
		return a >= b;
	case 0x2b:
		return a > b;
	case 0x2c:
		return a <= b;
	case 0x2d:
		return a < b;
	case 0x2e:
		return a != b;
	default:
		m->r.failed = true;
		return false;
	}
}

/* Operations on the two values on top. */
static void compute(struct stack_machine *m, uint8_t op)
{
	uint64_t b = pop(m), a = pop(m);
	int64_t sa = (int64_t)a, sb = (int64_t)b;

	switch (op) {
	case 0x1a:
		push(m, a & b);
		break;
	case 0x1b:
		m->r.failed = m->r.failed || sb == 0 || (sa == INT64_MIN && sb == -1);
		push(m, m->r.failed ? 0 : (uint64_t)(sa / sb));
		break;
	case 0x1c:
		push(m, a - b);
		break;
	case 0x1d:
		m->r.failed = m->r.failed || b == 0;
		push(m, m->r.failed ? 0 : a % b);
		break;
	case 0x1e:
		push(m, a * b);
		break;
	case 0x21:
		push(m, a | b);
		break;
	case 0x22:
		push(m, a + b);
		break;
	case 0x24:
		push(m, b < 64 ? a << b : 0);
		break;
	case 0x25:
		push(m, b < 64 ? a >> b : 0);
		break;
	case 0x26:
		push(m, (uint64_t)(sa >> (b < 64 ? b : 63)));
		break;
	case 0x27:
		push(m, a ^ b);
		break;
	default:
		push(m, relate(m, op, sa, sb));
	}
}

/* Operations that move values or the place in the expression; false: it is none of these. */
static bool move(struct stack_machine *m, uint8_t op, uint64_t begin)
{
	uint64_t a, b, c;
	int64_t jump;

	switch (op) {
	case 0x12: /* dup */
	case 0x14: /* over */
	case 0x15: /* pick */
		a = op == 0x12 ? 0 : op == 0x14 ? 1 : reader_u8(&m->r);
		if (a >= m->depth)
			m->r.failed = true;
		else
			push(m, m->values[m->depth - 1 - a]);
		return true;
	case 0x13: /* drop */
		(void)pop(m);
		return true;
	case 0x16: /* swap */
		b = pop(m);
		a = pop(m);
		push(m, b);
		push(m, a);
		return true;
	case 0x17: /* rot */
		c = pop(m);
		b = pop(m);
		a = pop(m);
		push(m, c);
		push(m, a);
		push(m, b);
		return true;
	case 0x28: /* bra */
	case 0x2f: /* skip */
		jump = (int16_t)reader_fixed(&m->r, 2);
		if (op == 0x28 && pop(m) == 0)
			return true;
		a = m->r.at + (uint64_t)jump;
		if (a < begin || a > m->r.end)
			m->r.failed = true;
		else
			reader_begin(&m->r, m->r.table, a, m->r.end);
		return true;
	default:
		return false;
	}
}

static void evaluate_one(struct stack_machine *m, uint8_t op)
{
	struct frame_reader *r = &m->r;
	uint64_t value;

	switch (op) {
	case 0x06: /* deref */
		m->r.failed = !span_load(m->span, pop(m), &value) || m->r.failed;
		push(m, m->r.failed ? 0 : value);
		break;
	case 0x08: /* const1u, 1s, 2u, 2s, 4u, 4s, 8u, 8s, constu, consts */
		push(m, reader_fixed(r, 1));
		break;
	case 0x09:
		push(m, (uint64_t)(int64_t)(int8_t)reader_fixed(r, 1));
		break;
	case 0x0a:
		push(m, reader_fixed(r, 2));
		break;
	case 0x0b:
		push(m, (uint64_t)(int64_t)(int16_t)reader_fixed(r, 2));
		break;
	case 0x0c:
		push(m, reader_fixed(r, 4));
		break;
	case 0x0d:
		push(m, (uint64_t)(int64_t)(int32_t)reader_fixed(r, 4));
		break;
	case 0x0e:
	case 0x0f:
		push(m, reader_fixed(r, 8));
		break;
	case 0x10:
		push(m, reader_uleb(r));
		break;
	case 0x11:
		push(m, (uint64_t)reader_sleb(r));
		break;
	case 0x19: /* abs, neg, not, plus_uconst */
		value = pop(m);
		push(m, (int64_t)value < 0 ? 0 - value : value);
		break;
	case 0x1f:
		push(m, 0 - pop(m));
		break;
	case 0x20:
		push(m, ~pop(m));
		break;
	case 0x23:
		value = pop(m);
		push(m, value + reader_uleb(r));
		break;
	case 0x92: /* bregx */
		value = reader_uleb(r);
		push_register(m, value);
		break;
	case 0x96: /* nop */
		break;
	default:
		if (op >= 0x30 && op <= 0x4f) /* lit0 to 31 */
			push(m, op - 0x30u);
		else if (op >= 0x70 && op <= 0x8f) /* breg0 to 31 */
			push_register(m, op - 0x70u);
		else
			compute(m, op);
	}
}

/* `frame`: for the rule of a register, whose expression begins with the frame's address. */
static enum step_result evaluate(struct frame_function *f, uint64_t at,
				 const struct registers *regs, struct stack_span *span,
				 const uint64_t *frame, uint64_t *out)
{
	struct stack_machine m = {.regs = regs, .span = span};
	uint64_t bytes, begin;
	uint32_t steps;

	reader_begin(&m.r, &f->table, at, f->table.end);
	bytes = reader_uleb(&m.r);
	if (m.r.failed || bytes > m.r.end - m.r.at)
		return STEP_END;
	begin = m.r.at;
	m.r.end = m.r.at + bytes;
	if (frame != NULL)
		push(&m, *frame);
	for (steps = 0; m.r.at < m.r.end && !m.r.failed && !m.unknown; steps++) {
		uint8_t op = reader_u8(&m.r);

		if (steps == EXPRESSION_STEPS)
			m.r.failed = true;
		else if (!move(&m, op, begin))
			evaluate_one(&m, op);
	}
	if (m.unknown)
		return STEP_UNKNOWN;
	*out = pop(&m);
	return m.r.failed ? STEP_END : STEP_DONE;
}

bool rules_simple(struct frame_function *f, uint64_t expression, bool deref, uint32_t *out_register,
		  int64_t *out_offset)
{
	struct frame_reader r;
	uint64_t bytes;
	uint8_t op;

	reader_begin(&r, &f->table, expression, f->table.end);
	bytes = reader_uleb(&r);
	if (r.failed || bytes > r.end - r.at)
		return false;
	r.end = r.at + bytes;
	op = reader_u8(&r);
	if (op < 0x70 || op > 0x8f)
		return false;
	*out_register = op - 0x70u;
	*out_offset = reader_sleb(&r);
	if (deref && reader_u8(&r) != 0x06)
		return false;
	return !r.failed && r.at == r.end;
}

/* ---- a step ---- */

/* What a register of the caller is. */
static enum step_result recover(struct frame_function *f, uint64_t rule, uint32_t number,
				const struct registers *regs, struct stack_span *span,
				uint64_t frame, uint64_t *out)
{
	uint64_t value = (uint64_t)RULE_VALUE(rule);
	enum step_result result;

	switch (RULE_KIND(rule)) {
	case RULE_SAME:
		return register_get(regs, number, out) ? STEP_DONE : STEP_UNKNOWN;
	case RULE_REGISTER:
		return register_get(regs, value, out) ? STEP_DONE : STEP_UNKNOWN;
	case RULE_SUM:
		*out = frame + value;
		return STEP_DONE;
	case RULE_SAVED:
		return span_load(span, frame + value, out) ? STEP_DONE : STEP_END;
	case RULE_EXPRESSION:
		return evaluate(f, value, regs, span, &frame, out);
	case RULE_SAVED_EXPRESSION:
		result = evaluate(f, value, regs, span, &frame, &value);
		if (result != STEP_DONE)
			return result;
		return span_load(span, value, out) ? STEP_DONE : STEP_END;
	case RULE_UNDEFINED:
	default:
		return STEP_END;
	}
}

static bool is_root(uint64_t rule)
{
#if defined(__x86_64__)
	/* A call has put it into memory. */
	if (RULE_KIND(rule) == RULE_SAME)
		return true;
#endif
	return RULE_KIND(rule) == RULE_UNDEFINED;
}

enum step_result rules_step(struct frame_function *f, const struct frame_rules *rules,
			    struct registers *regs, struct stack_span *span)
{
	struct registers caller = {.exact = f->signal};
	enum step_result result;
	uint64_t frame, value = 0;
	uint32_t i;

	if (is_root(rules->saved[REGISTER_RETURN]))
		return STEP_END;
	if (rules->expression != 0) {
		result = evaluate(f, rules->expression, regs, span, NULL, &frame);
		if (result != STEP_DONE)
			return result;
	} else {
		if (!register_get(regs, rules->base, &frame))
			return STEP_UNKNOWN;
		frame += (uint64_t)rules->offset;
	}
	for (i = 0; i < REGISTERS; i++) {
		uint64_t rule = rules->saved[i];

		/* A call has put the stack pointer back to the frame's address. */
		if (i == REGISTER_SP && RULE_KIND(rule) == RULE_SAME)
			rule = RULE(RULE_SUM, 0);
		result = recover(f, rule, i, regs, span, frame, &value);
		if (result == STEP_DONE) {
			caller.value[i] = value;
			caller.known |= UINT32_C(1) << i;
		} else if (i == REGISTER_RETURN || i == REGISTER_SP) {
			return result;
		}
	}
	caller.pc = address_strip(caller.value[REGISTER_RETURN]);
	/* A call writes the link register, or the return address was never in one. */
	if (!f->signal)
		caller.known &= ~(UINT32_C(1) << REGISTER_RETURN);
	/* Stacks grow downwards; only a signal may have come on another one. */
	if (!f->signal && caller.value[REGISTER_SP] < regs->value[REGISTER_SP])
		return STEP_END;
	if (caller.value[REGISTER_SP] == regs->value[REGISTER_SP] && caller.pc == regs->pc)
		return STEP_END;
	*regs = caller;
	return STEP_DONE;
}
