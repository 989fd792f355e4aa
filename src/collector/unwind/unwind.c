/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A walk looks up each return address in a cache of rows; a row tells in one word where the caller's frame begins and where the frame
 * pointer and the return address lie in it. About a dozen instructions a frame. A row is made from .eh_frame when it is missed.
 *
 * The cache is one for all threads, of fixed size and without locks. A slot is two words, the row and the key mixed with the row. Threads
 * may write one slot at the same time: a reader that gets words of different rows finds that they do not belong together, as if the
 * row were missing. The epoch is part of the key, so that all rows are forgotten at once when an object goes.
 *
 * A walk follows three registers only: pc, sp and fp. A row that wants another one (RULES_OTHER) makes it begin again with all of them,
 * slowly. A walk ends when a frame does not lie further out than the one before, or outside of the stack.
 */
#include "collector/unwind/unwind.h"

#include <string.h>

#include "collector/unwind/frame_rules.h"

/* ---- rows ---- */

/*
 *     bits 0..2    kind
 *     bits 3..31   offset of the frame's address from its register, in bytes
 *     bits 32..47  where the frame pointer was saved, in words from the frame's address; 0: it was not
 *     bits 48..63  where the return address is, likewise (aarch64; one word below on x86-64)
 */
enum row_kind {
	ROW_MISSING,
	ROW_SP,	   /* the frame's address is sp + offset */
	ROW_FP,	   /* the frame's address is fp + offset */
	ROW_AT_FP, /* the frame's address lies at fp + offset, the frame pointer at fp + bits 32..47: realigned stacks */
	ROW_SIGNAL, /* the kernel has saved all registers at sp */
	ROW_GUESS,  /* no table: fp may be a frame pointer. Bits 32..63: the version that says so */
	ROW_OTHER,  /* as rules_step() finds */
	ROW_END,    /* nobody calls it, or nothing is known */
};

#define ROW_KIND(row)		((row)&7)
#define ROW_OFFSET(row)		((uint64_t)(int64_t)(int32_t)((uint32_t)(row) & ~7u))
#define ROW_FP_AT(row)		((uint64_t)((int64_t)(int16_t)((row) >> 32) * 8))
#define ROW_FP_IS_SAVED(row)	(((row) >> 32 & 0xffff) != 0)
#define ROW_FP_FIELD(words)	((uint64_t)(uint16_t)(int16_t)(words) << 32)
#define ROW_RETURN_FIELD(words) ((uint64_t)(uint16_t)(int16_t)(words) << 48)
#if defined(__x86_64__)
#define ROW_RETURN_AT(row) UINT64_C(-8)
#else
#define ROW_RETURN_AT(row) ((uint64_t)((int64_t)(row) >> 48) * 8)
#endif

#define CACHE_SETS 32768u /* of two rows: 1 MiB, touched where it is used */
#define MIX_SLOT   UINT64_C(0x9e3779b97f4a7c15)
#define MIX_ROW	   UINT64_C(0xd6e8feb86659fd93)
#define MIX_EPOCH  UINT64_C(0xff51afd7ed558ccd)
#define KEY_EXACT  (UINT64_C(1) << 63) /* no address has this bit */
#define LOWEST_PC  UINT64_C(4096)
#define FP_UNKNOWN UINT64_C(1) /* below every stack, and not aligned */

struct slot {
	_Atomic uint64_t check; /* key ^ row * MIX_ROW */
	_Atomic uint64_t row;
};

static struct slot cache[CACHE_SETS][2] __attribute__((aligned(64)));

MSCOPE_INLINE struct slot *cache_set(uint64_t key)
{
	return cache[key * MIX_SLOT >> (64 - 15)];
}

_Static_assert(CACHE_SETS == 1u << 15, "cache_set() takes 15 bits");

MSCOPE_INLINE uint64_t cache_get(uint64_t key)
{
	struct slot *set = cache_set(key);
	uint64_t row = atomic_load_explicit(&set[0].row, memory_order_relaxed);

	if (MSCOPE_LIKELY((atomic_load_explicit(&set[0].check, memory_order_relaxed) ^
			   row * MIX_ROW) == key))
		return row;
	row = atomic_load_explicit(&set[1].row, memory_order_relaxed);
	if (MSCOPE_LIKELY((atomic_load_explicit(&set[1].check, memory_order_relaxed) ^
			   row * MIX_ROW) == key))
		return row;
	return ROW_MISSING;
}

static void cache_put(uint64_t key, uint64_t row)
{
	struct slot *set = cache_set(key);
	uint64_t old = atomic_load_explicit(&set[0].row, memory_order_relaxed);
	uint64_t check = atomic_load_explicit(&set[0].check, memory_order_relaxed);

	/* The first slot has the newer row, or an older one of the same key. */
	if ((check ^ old * MIX_ROW) != key) {
		atomic_store_explicit(&set[1].check, check, memory_order_relaxed);
		atomic_store_explicit(&set[1].row, old, memory_order_relaxed);
	}
	atomic_store_explicit(&set[0].check, key ^ row * MIX_ROW, memory_order_relaxed);
	atomic_store_explicit(&set[0].row, row, memory_order_relaxed);
}

/* ---- making rows ---- */

/* What the kernel lets a signal handler return to: two instructions that call it. */
static bool is_signal_return(uint64_t pc)
{
#if defined(__x86_64__)
	static const uint8_t code[] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};
#else
	static const uint8_t code[] = {0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4};
#endif
	uint8_t bytes[sizeof(code)];

	return tables_peek(pc, bytes, sizeof(bytes)) && memcmp(bytes, code, sizeof(code)) == 0;
}

/* Whether the instruction before `pc` is a call. Without a table, a word on the stack must look like a return address. */
static bool is_after_call(uint64_t pc)
{
	uint8_t b[8];

	if (pc < LOWEST_PC || !tables_peek(pc - sizeof(b), b, sizeof(b)))
		return false;
#if defined(__x86_64__)
	/* call with a distance; or through a register or memory, 2 to 7 bytes long. */
	if (b[3] == 0xe8)
		return true;
	return (b[6] == 0xff && (b[7] & 0xf8) == 0xd0) ||
	       (b[5] == 0xff && ((b[6] & 0xf8) == 0x50 || (b[6] & 0xf8) == 0x10)) ||
	       (b[4] == 0xff && (b[5] & 0xf8) == 0x50) ||
	       (b[2] == 0xff && ((b[3] & 0xf8) == 0x90 || b[3] == 0x15)) ||
	       (b[1] == 0xff && (b[2] & 0xf8) == 0x90);
#else
	/* bl, blr and blr with a signature. */
	return (b[7] & 0xfc) == 0x94 || (b[7] == 0xd6 && (b[6] & 0xe0) == 0x20) ||
	       (b[7] == 0xd7 && (b[6] & 0xe0) == 0x20);
#endif
}

static bool is_words(int64_t bytes)
{
	return bytes % 8 == 0 && bytes / 8 >= INT16_MIN && bytes / 8 <= INT16_MAX;
}

/* A frame whose address lies in memory beside the frame pointer, as GCC makes them for vectors on the stack. */
static uint64_t row_at_fp(struct frame_function *f, const struct frame_rules *rules)
{
	uint64_t fp = rules->saved[REGISTER_FP];
	uint32_t base, saved_base;
	int64_t offset, at;

	if (!rules_simple(f, rules->expression, true, &base, &offset) || base != REGISTER_FP ||
	    RULE_KIND(fp) != RULE_SAVED_EXPRESSION ||
	    !rules_simple(f, (uint64_t)RULE_VALUE(fp), false, &saved_base, &at) ||
	    saved_base != REGISTER_FP || !is_words(at) || !is_words(offset) ||
	    rules->saved[REGISTER_RETURN] != RULE(RULE_SAVED, -8))
		return ROW_OTHER;
	return ROW_AT_FP | (uint32_t)offset | ROW_FP_FIELD(at / 8);
}

static uint64_t row_of_rules(struct frame_function *f, const struct frame_rules *rules)
{
	uint64_t fp = rules->saved[REGISTER_FP], back = rules->saved[REGISTER_RETURN], row;

	if (RULE_KIND(back) == RULE_UNDEFINED)
		return ROW_END;
	if (f->signal || RULE_KIND(rules->saved[REGISTER_SP]) != RULE_SAME)
		return ROW_OTHER;
	if (rules->expression != 0)
		return row_at_fp(f, rules);
	if ((rules->base != REGISTER_SP && rules->base != REGISTER_FP) || rules->offset % 8 != 0 ||
	    rules->offset != (int32_t)rules->offset || RULE_KIND(back) != RULE_SAVED)
		return ROW_OTHER;
#if defined(__x86_64__)
	if (RULE_VALUE(back) != -8)
		return ROW_OTHER;
#endif
	if (!is_words(RULE_VALUE(back)))
		return ROW_OTHER;
	/* What is read must lie in the frame, from its register outwards. */
	if (rules->offset <= 0 || RULE_VALUE(back) >= 0 || rules->offset + RULE_VALUE(back) < 0)
		return ROW_OTHER;
	row = rules->base == REGISTER_SP ? ROW_SP : ROW_FP;
	row |= (uint32_t)rules->offset | ROW_RETURN_FIELD(RULE_VALUE(back) / 8);
	if (RULE_KIND(fp) == RULE_SAME)
		return row;
	if (RULE_KIND(fp) != RULE_SAVED || RULE_VALUE(fp) >= 0 || !is_words(RULE_VALUE(fp)) ||
	    rules->offset + RULE_VALUE(fp) < 0)
		return ROW_OTHER;
	return row | ROW_FP_FIELD(RULE_VALUE(fp) / 8);
}

/* Scratch of the slow paths, in the writer: the caller's stack may be small. */
struct scratch {
	/* Those beside pc, sp and fp belong to the frame that was reached with `regs_at` frames. */
	struct registers regs;
	struct frame_function function;
	struct frame_machine machine; /* machine.now: the rules of `function` */
};

_Static_assert(sizeof(struct scratch) <= sizeof(((struct own_stack *)0)->scratch), "it has room");

MSCOPE_INLINE struct scratch *scratch_of(struct own_stack *own)
{
	return (struct scratch *)(void *)own->scratch;
}

static enum frame_result find_rules(uint64_t pc, bool exact, struct scratch *room)
{
	/* A call may be the last instruction of its function. */
	uint64_t at = exact ? pc : pc - 1;
	enum frame_result result = tables_find(at, &room->function);

	if (result == FRAME_FOUND && !rules_run(&room->machine, &room->function, at))
		result = FRAME_BAD;
	return result;
}

static uint64_t row_make(uint64_t pc, bool exact, struct scratch *room)
{
	uint32_t version = atomic_load_explicit(&unwind_now.version, memory_order_acquire);
	struct frame_function *f = &room->function;
	uint64_t row = ROW_END;

	tables_enter();
	switch (find_rules(pc, exact, room)) {
	case FRAME_FOUND:
		row = f->signal && is_signal_return(pc) ? ROW_SIGNAL
							: row_of_rules(f, &room->machine.now);
		break;
	case FRAME_NONE:
		row = (exact || is_after_call(pc) ? ROW_GUESS : ROW_END) | (uint64_t)version << 32;
		if (is_signal_return(pc))
			row = ROW_SIGNAL;
		break;
	default:
		break;
	}
	tables_leave();
	return row;
}

/* ---- walking ---- */

struct walk {
	struct stack_span span;
	uint32_t regs_at; /* see struct scratch */
	uint32_t epoch;
	uint64_t salt; /* the epoch, as it is mixed into keys */
};

static bool is_guess_of_old(uint64_t row)
{
	return (ROW_KIND(row) == ROW_GUESS || (ROW_KIND(row) == ROW_END && row >> 32 != 0)) &&
	       row >> 32 != atomic_load_explicit(&unwind_now.version, memory_order_relaxed);
}

static MSCOPE_COLD uint64_t row_find_slow(const struct walk *w, uint64_t pc, bool exact)
{
	uint64_t key = (pc | (exact ? KEY_EXACT : 0)) ^ w->salt, row = cache_get(key);

	if (row != ROW_MISSING && !is_guess_of_old(row))
		return row;
	row = row_make(pc, exact, scratch_of(w->span.own));
	/* Not what may be gone already. An unload that begins now makes another epoch first. */
	if (!is_guess_of_old(row) && !tables_unloading() &&
	    atomic_load(&unwind_now.epoch) == w->epoch)
		cache_put(key, row);
	return row;
}

static enum step_result step_signal(struct walk *w)
{
	struct registers *regs = &scratch_of(w->span.own)->regs;
	uint64_t sp = regs->value[REGISTER_SP], at;
	uint32_t i;
	bool ok = true;
#if defined(__x86_64__)
	/* DWARF's numbers in the order of the kernel's: r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp. */
	static const uint8_t order[] = {8, 9, 10, 11, 12, 13, 14, 15, 5, 4, 6, 3, 1, 0, 2, 7};

	at = sp + 40;
	for (i = 0; i < MSCOPE_COUNT(order); i++)
		ok = ok && span_load(&w->span, at + i * 8, &regs->value[order[i]]);
	ok = ok && span_load(&w->span, at + i * 8, &regs->pc);
	regs->known = UINT32_C(0xffff);
#else
	/* struct siginfo, struct ucontext up to its registers, the address of a fault. */
	at = sp + 128 + 176 + 8;
	for (i = 0; i < REGISTERS; i++)
		ok = ok && span_load(&w->span, at + i * 8, &regs->value[i]);
	ok = ok && span_load(&w->span, at + i * 8, &regs->pc);
	regs->known = UINT32_MAX;
#endif
	regs->exact = true;
	/* The handler may run on a stack of its own; what it interrupted is on another. */
	if (!ok || !span_move(&w->span, regs->value[REGISTER_SP]))
		return STEP_END;
	return STEP_DONE;
}

/* Two words at fp: the caller's, and the return address. */
static enum step_result step_guess(struct walk *w)
{
	struct registers *regs = &scratch_of(w->span.own)->regs;
	uint64_t sp = regs->value[REGISTER_SP], fp = regs->value[REGISTER_FP], outer, back;

	if ((regs->known >> REGISTER_FP & 1) == 0)
		return STEP_UNKNOWN;
	if (fp < sp || !span_load(&w->span, fp, &outer) || !span_load(&w->span, fp + 8, &back))
		return STEP_END;
	regs->value[REGISTER_SP] = fp + 16;
	regs->value[REGISTER_FP] = outer;
	regs->pc = address_strip(back);
	regs->exact = false;
	regs->known = UINT32_C(1) << REGISTER_SP | UINT32_C(1) << REGISTER_FP;
#if defined(__aarch64__)
	{
		/* The two words are the innermost of a frame, so sp is not known; but the caller's own two lie at its fp. */
		uint64_t row = row_find_slow(w, regs->pc, false);

		if (ROW_KIND(row) == ROW_SP && ROW_FP_IS_SAVED(row)) {
			uint64_t inferred = outer - ROW_OFFSET(row) - ROW_FP_AT(row);

			if (inferred >= fp + 16 && inferred <= outer)
				regs->value[REGISTER_SP] = inferred;
		}
	}
#endif
	return STEP_DONE;
}

static enum step_result step_at_fp(struct walk *w, uint64_t row)
{
	struct registers *regs = &scratch_of(w->span.own)->regs;
	uint64_t fp = regs->value[REGISTER_FP], frame, outer, back;

	if (fp + 8 < regs->value[REGISTER_SP] ||
	    !span_load(&w->span, fp + ROW_OFFSET(row), &frame) ||
	    !span_load(&w->span, fp + ROW_FP_AT(row), &outer) ||
	    frame <= regs->value[REGISTER_SP] || !span_load(&w->span, frame - 8, &back))
		return STEP_END;
	regs->value[REGISTER_SP] = frame;
	regs->value[REGISTER_FP] = outer;
	regs->pc = back;
	regs->exact = false;
	regs->known = UINT32_C(1) << REGISTER_SP | UINT32_C(1) << REGISTER_FP;
	return STEP_DONE;
}

/* One frame by whatever means. `all`: keep all registers. */
static MSCOPE_COLD enum step_result step_slow(struct walk *w, uint64_t row, bool all)
{
	struct registers *regs = &scratch_of(w->span.own)->regs;
	struct scratch *room = scratch_of(w->span.own);
	enum step_result result;

	switch (ROW_KIND(row)) {
	case ROW_SIGNAL:
		return step_signal(w);
	case ROW_GUESS:
		return step_guess(w);
	case ROW_END:
		return STEP_END;
	case ROW_AT_FP:
		if (!all)
			return step_at_fp(w, row);
		break;
	default:
		break;
	}
	tables_enter();
	result = STEP_END;
	if (find_rules(regs->pc, regs->exact, room) == FRAME_FOUND)
		result = rules_step(&room->function, &room->machine.now, regs, &w->span);
	tables_leave();
	if (result == STEP_DONE && room->function.signal &&
	    !span_move(&w->span, regs->value[REGISTER_SP]))
		return STEP_END;
	return result;
}

/* The registers that calls keep, as they are in the function that uses it. */
MSCOPE_INLINE void registers_here(struct registers *regs)
{
#if defined(__x86_64__)
	__asm__ volatile(
		"leaq 0f(%%rip), %%rax\n0:\tmovq %%rax, %0\n\tmovq %%rbx, %1\n\tmovq %%rbp, %2\n\tmovq %%rsp, %3\n\tmovq %%r12, %4\n\tmovq %%r13, %5\n\tmovq %%r14, %6\n\tmovq %%r15, %7"
		: "=m"(regs->pc), "=m"(regs->value[3]), "=m"(regs->value[REGISTER_FP]),
		  "=m"(regs->value[REGISTER_SP]), "=m"(regs->value[12]), "=m"(regs->value[13]),
		  "=m"(regs->value[14]), "=m"(regs->value[15])
		:
		: "rax");
	regs->known = 1u << 3 | 1u << REGISTER_FP | 1u << REGISTER_SP | 0xf000u;
#else
	__asm__ volatile(
		"adr x1, 0f\n0:\tmov x0, sp\n\tstr x1, [%1]\n\tstp x19, x20, [%0, #152]\n\tstp x21, x22, [%0, #168]\n\tstp x23, x24, [%0, #184]\n\tstp x25, x26, [%0, #200]\n\tstp x27, x28, [%0, #216]\n\tstr x29, [%0, #232]\n\tstr x0, [%0, #248]"
		:
		: "r"(regs->value), "r"(&regs->pc)
		: "x0", "x1", "memory");
	regs->known = 0x3ff80000u | 1u << REGISTER_SP;
#endif
	regs->exact = true;
}

/* The whole walk once more, with all registers. `below`: the stack pointer of unwind_frames(), whose callers are wanted. */
static MSCOPE_COLD uint32_t walk_all(struct walk *w, uint64_t below, void **frames, uint32_t max)
{
	struct registers *regs = &scratch_of(w->span.own)->regs;
	uint32_t count = 0, steps;

	registers_here(regs);
	if (!span_begin(&w->span, w->span.own, regs->value[REGISTER_SP]))
		return 0;
	for (steps = 0; count < max && steps < max + 4; steps++) {
		uint64_t row = row_find_slow(w, regs->pc, regs->exact);
		uint64_t sp = regs->value[REGISTER_SP];

		if (step_slow(w, row, true) != STEP_DONE || regs->pc < LOWEST_PC)
			break;
		if (count > 0 || (sp >= below && regs->value[REGISTER_SP] > below))
			frames[count++] = (void *)(uintptr_t)regs->pc;
	}
	return count;
}

/* Where a walk is. */
struct place {
	uint64_t pc, sp, fp;
	uint64_t fp_at; /* where fp was read, 0: it is the register's */
};

/* A walk goes by an address that lies at `at`; 0: in the register. */
static void reads_add_base(struct walk_reads *reads, uint64_t at, uint64_t value)
{
	if (reads->bases == WALK_WORDS || value - reads->sp > UINT32_MAX) {
		reads->complete = false;
		return;
	}
	reads->base[reads->bases++] = (struct walk_base){
		.value = (uint32_t)(value - reads->sp),
		.at = at == 0 ? WALK_BASE_REGISTER : (uint32_t)(at - reads->sp),
	};
}

/* A frame that the row alone tells: makes of the place the caller's. False: it is as it was. */
UNWIND_RAW MSCOPE_INLINE bool step_fast(const struct stack_span *span, uint64_t row,
					struct place *p, struct walk_reads *reads)
{
	uint64_t frame;

	/* What lies between sp and the frame's end was checked when the row was made. */
	if (MSCOPE_LIKELY(ROW_KIND(row) == ROW_SP)) {
		frame = p->sp + ROW_OFFSET(row);
	} else {
		if (MSCOPE_UNLIKELY(ROW_KIND(row) != ROW_FP || p->fp < p->sp ||
				    p->fp > span->high || (p->fp & 7) != 0))
			return false;
		reads_add_base(reads, p->fp_at, p->fp);
		frame = p->fp + ROW_OFFSET(row);
	}
	if (MSCOPE_UNLIKELY(frame > span->high))
		return false;
	p->pc = address_strip(*(const volatile uint64_t *)(uintptr_t)(frame + ROW_RETURN_AT(row)));
	if (ROW_FP_IS_SAVED(row)) {
		p->fp_at = frame + ROW_FP_AT(row);
		p->fp = *(const volatile uint64_t *)(uintptr_t)p->fp_at;
	}
	p->sp = frame;
	return true;
}

/*
 * Threads walk the same frames again and again. Each keeps the rows of its last walks by stack pointer, and with each the place of the
 * caller's row. So the processor has a row before it has read the return address, which then only confirms it.
 */
MSCOPE_INLINE uint64_t own_row_of(uint64_t sp)
{
	return (sp >> 4 ^ sp >> 12) & (OWN_ROWS - 1);
}

/* A row from the cache for all threads, which the slot keeps. A third of all frames need it: a function has many callers. */
static __attribute__((noinline)) uint64_t own_row_fill(const struct walk *w, struct own_row *slot,
						       uint64_t key, uint64_t pc)
{
	uint64_t row = cache_get(key ^ w->salt);

	if (MSCOPE_UNLIKELY(ROW_KIND(row) != ROW_SP && ROW_KIND(row) != ROW_FP)) {
		row = row_find_slow(w, pc, (key & KEY_EXACT) != 0);
		/* What holds for one list of objects only is asked for each time. */
		if (ROW_KIND(row) == ROW_GUESS || ROW_KIND(row) == ROW_END)
			return row;
	}
	slot->key = key ^ w->salt;
	slot->row = row;
	return row;
}

/* Where a walk begins, and what it goes by. */
struct walk_start {
	struct place place;
	uint64_t tables; /* epoch and version, mixed */
	uint64_t salt;
	uint32_t epoch;
};

UNWIND_RAW MSCOPE_INLINE uint64_t stack_word(uint64_t sp, uint16_t place)
{
	return address_strip(*(const volatile uint64_t *)(uintptr_t)(sp + UINT64_C(8) * place));
}

UNWIND_RAW MSCOPE_INLINE uint64_t base_value(const struct walk_start *start, uint16_t place)
{
	uint64_t sp = start->place.sp, value = start->place.fp;

	if (place != WALK_PLACE_REGISTER)
		value = *(const volatile uint64_t *)(uintptr_t)(sp + UINT64_C(8) * place);
	return value - sp;
}

/* Whether the words that a walk was made from are on the thread's own stack, of which all is readable from sp on. */
UNWIND_RAW MSCOPE_INLINE bool is_again(struct known_walk *walk, const struct walk_start *start,
				       uint64_t high, uint32_t max)
{
	const uint16_t *place = walk->place, *end = place + walk->places;
	uint64_t sp = start->place.sp;
	struct words_hash words = {{0}};

	if (walk->places == 0 || walk->tables != start->tables || walk->max != max ||
	    high - sp < walk->reach)
		return false;
	do {
		words_add(&words, 0, stack_word(sp, place[0]));
		words_add(&words, 1, stack_word(sp, place[1]));
		words_add(&words, 2, stack_word(sp, place[2]));
		words_add(&words, 3, stack_word(sp, place[3]));
		place += WALK_LANES;
	} while (place < end);
	for (end += walk->bases; place < end; place += WALK_LANES) {
		words_add(&words, 0, base_value(start, place[0]));
		words_add(&words, 1, base_value(start, place[1]));
		words_add(&words, 2, base_value(start, place[2]));
		words_add(&words, 3, base_value(start, place[3]));
	}
	return words_end(&words) == walk->words;
}

/* The walk that is expected now, if it has come. Not inlined: what it needs of the stack is given back before walk_from() begins. */
static __attribute__((noinline)) bool find_again(struct known_walks *walks,
						 const struct own_stack *own,
						 const struct walk_start *start, uint32_t max)
{
	uint16_t unit = walks->guess;
	struct known_walk *walk = walk_at(walks, unit);

	if (MSCOPE_UNLIKELY(!is_again(walk, start, own->high, max))) {
		unit = *walk_expected(walks);
		walk = walk_at(walks, unit);
		if (unit == walks->guess || !is_again(walk, start, own->high, max))
			return false;
	}
	walk_came(walks, walk, unit);
	walks->found = walk;
	return true;
}

MSCOPE_INLINE void reads_begin(struct walk_reads *reads, uint64_t tables, uint64_t sp)
{
	reads->tables = tables;
	reads->sp = sp;
	reads->words = reads->bases = 0;
	reads->complete = true;
}

/* One frame by other means than its row. The place becomes the caller's. */
static MSCOPE_COLD enum step_result step_otherwise(struct walk *w, uint64_t row, struct place *p,
						   struct walk_reads *reads, uint32_t count)
{
	struct registers *regs = &scratch_of(w->span.own)->regs;
	enum step_result result;

	regs->pc = p->pc;
	regs->value[REGISTER_SP] = p->sp;
	regs->value[REGISTER_FP] = p->fp;
	regs->known |= UINT32_C(1) << REGISTER_SP;
	if (p->fp != FP_UNKNOWN)
		regs->known |= UINT32_C(1) << REGISTER_FP;
	result = step_slow(w, row, false);
	if (result == STEP_DONE && regs->pc < LOWEST_PC)
		result = STEP_END;
	/* A function is outermost by the tables. Anything but these two may depend on more than the stack and the tables. */
	if (result == STEP_DONE && ROW_KIND(row) == ROW_AT_FP) {
		reads_add_base(reads, p->fp_at, p->fp);
		reads_add_base(reads, p->fp + ROW_OFFSET(row), regs->value[REGISTER_SP]);
		reads->at[count % WALK_WORDS] =
			(uint32_t)(regs->value[REGISTER_SP] - 8 - reads->sp);
		p->fp_at = p->fp + ROW_FP_AT(row);
	} else if (ROW_KIND(row) != ROW_END) {
		reads->complete = false;
	}
	p->pc = regs->pc;
	p->sp = regs->value[REGISTER_SP];
	p->fp = (regs->known >> REGISTER_FP & 1) != 0 ? regs->value[REGISTER_FP] : FP_UNKNOWN;
	return result;
}

/* The walk itself, from unwind_frames() on, whose frame is the first one. */
UNWIND_RAW static __attribute__((noinline)) uint32_t
walk_from(struct own_stack *own, void **frames, uint32_t max, const struct walk_start *start)
{
	struct walk_reads *reads = &own->reads;
	struct place p = start->place, there; /* its address is taken: not in registers */
	enum step_result result;
	struct registers *regs;
	struct own_row *last;
	uint32_t count = 0;
	struct walk w;
	uint64_t key;

	/* Each in a register: a compiler that copies two at a time waits for each when it is read. */
	__asm__("" : "+r"(p.pc), "+r"(p.sp), "+r"(p.fp), "+r"(p.fp_at));
	w.epoch = start->epoch;
	w.salt = start->salt;
	w.regs_at = UINT32_MAX;
	reads_begin(reads, start->tables, p.sp);
	if (MSCOPE_UNLIKELY(!span_begin(&w.span, own, p.sp)))
		return 0;
	key = p.pc | KEY_EXACT;
	last = &own->rows[OWN_ROWS];
	while (count < max) {
		struct own_row *slot = &own->rows[last->next];
		uint64_t row = slot->row;

		if (slot->key != (key ^ w.salt)) {
			last->next = own_row_of(p.sp);
			slot = &own->rows[last->next];
			row = slot->key == (key ^ w.salt) ? slot->row
							  : own_row_fill(&w, slot, key, p.pc);
		}
		last = slot;
	again:
		if (MSCOPE_LIKELY(step_fast(&w.span, row, &p, reads))) {
			reads->at[count % WALK_WORDS] =
				(uint32_t)(p.sp + ROW_RETURN_AT(row) - reads->sp);
			if (MSCOPE_UNLIKELY(p.pc < LOWEST_PC)) {
				reads->end = (void *)(uintptr_t)p.pc;
				reads->words = count + 1;
				return count;
			}
			frames[count++] = (void *)(uintptr_t)p.pc;
			key = p.pc;
			continue;
		}
		/* A stack that is not the thread's own is looked at as far as it is needed. */
		if (ROW_KIND(row) == ROW_SP && span_grow_slow(&w.span, p.sp + ROW_OFFSET(row) - 8))
			goto again;
		regs = &scratch_of(own)->regs;
		if (w.regs_at != count)
			regs->known = 0;
		regs->exact = (key & KEY_EXACT) != 0;
		there = p;
		result = step_otherwise(&w, row, &there, reads, count);
		p = there;
		if (result == STEP_UNKNOWN)
			return walk_all(&w, reads->sp, frames, max);
		if (result != STEP_DONE)
			break;
		key = p.pc | (regs->exact ? KEY_EXACT : 0);
		frames[count++] = (void *)(uintptr_t)p.pc;
		w.regs_at = count;
	}
	reads->words = count;
	return count;
}

__attribute__((noinline)) uint32_t unwind_frames(struct own_stack *own, struct known_walks *walks,
						 void **frames, uint32_t max)
{
	struct walk_start start = {0};

	start.epoch = atomic_load_explicit(&unwind_now.epoch, memory_order_acquire);
	start.salt = (uint64_t)start.epoch * MIX_EPOCH;
	start.tables = start.salt ^ atomic_load_explicit(&unwind_now.version, memory_order_relaxed);
#if defined(__x86_64__)
	__asm__ volatile("leaq 0f(%%rip), %0\n0:\tmovq %%rsp, %1\n\tmovq %%rbp, %2"
			 : "=&r"(start.place.pc), "=&r"(start.place.sp), "=&r"(start.place.fp));
#else
	__asm__ volatile("adr %0, 0f\n0:\tmov %1, sp\n\tmov %2, x29"
			 : "=&r"(start.place.pc), "=&r"(start.place.sp), "=&r"(start.place.fp));
#endif
	if (walks != NULL) {
		walks->found = NULL;
		/* On another stack than the thread's own each walk must look. */
		if (own_has_seen(own, start.place.sp) && find_again(walks, own, &start, max))
			return walks->found->count;
	}
	return walk_from(own, frames, max, &start);
}

/* ---- objects that go ---- */

void unwind_forget(void)
{
	atomic_fetch_add(&unwind_now.epoch, 1);
}

void unwind_reset(void)
{
	tables_reset();
	unwind_forget();
}

void unwind_unload_begin(void)
{
	tables_unload_begin();
	unwind_forget();
}

void unwind_unload_end(void)
{
	unwind_forget();
	tables_unload_end();
}
