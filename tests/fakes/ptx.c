/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs kernels from their PTX text, as far as the instructions are known here: a thread after the other, each up to the next barrier.
 * Loads and stores that are not aligned, or that are of no shared memory, end the process, as they would end a real context.
 */
#include "driver.h"

#define SHARED_MAX  49152u
#define OPERANDS    4u
#define THREADS_MAX 1024u
#define PARAMS_MAX  16u

/* OP(name, text): what an instruction is called. */
#define OPS                                                                                        \
	OP(MOV32, "mov.u32")                                                                       \
	OP(MOV64, "mov.u64")                                                                       \
	OP(WIDEN, "cvt.u64.u32")                                                                   \
	OP(GLOBAL, "cvta.to.global.u64")                                                           \
	OP(AND, "and.b64")                                                                         \
	OP(XOR, "xor.b64")                                                                         \
	OP(OR_PRED, "or.pred")                                                                     \
	OP(SHL, "shl.b64")                                                                         \
	OP(SHR, "shr.u64")                                                                         \
	OP(ADD64, "add.u64")                                                                       \
	OP(SUB32, "sub.u32")                                                                       \
	OP(SUB64, "sub.u64")                                                                       \
	OP(MUL_WIDE, "mul.wide.u32")                                                               \
	OP(MUL64, "mul.lo.u64")                                                                    \
	OP(MAD32, "mad.lo.u32")                                                                    \
	OP(MIN64, "min.u64")                                                                       \
	OP(BFE, "bfe.u64")                                                                         \
	OP(NE32, "setp.ne.u32")                                                                    \
	OP(NE64, "setp.ne.u64")                                                                    \
	OP(EQ64, "setp.eq.u64")                                                                    \
	OP(GE64, "setp.ge.u64")                                                                    \
	OP(LT64, "setp.lt.u64")                                                                    \
	OP(LOAD_PARAM, "ld.param.u64")                                                             \
	OP(LOAD_SHARED, "ld.shared.u64")                                                           \
	OP(LOAD_BYTE, "ld.global.u8")                                                              \
	OP(LOAD, "ld.global.u64")                                                                  \
	OP(STORE_SHARED, "st.shared.u64")                                                          \
	OP(STORE, "st.global.u64")                                                                 \
	OP(BRANCH, "bra")                                                                          \
	OP(BARRIER, "bar.sync")                                                                    \
	OP(RETURN, "ret")

enum op {
#define OP(name, text) OP_##name,
	OPS
#undef OP
		OP_COUNT
};

static const char *const op_texts[] = {
#define OP(name, text) text,
	OPS
#undef OP
};

enum operand_kind { PRED, REG32, REG64, NUMBER, THREAD, BLOCK, BLOCK_SIZE };

struct operand {
	enum operand_kind kind;
	uint64_t value; /* number of the register, or the number; of a parameter its place */
	uint64_t offset;
};

struct instruction {
	enum op op;
	int guard; /* register that must be true, -1: none */
	uint32_t target;
	struct operand operands[OPERANDS];
};

struct ptx {
	uint32_t count, labels, params;
	struct instruction code[512];
	struct {
		char name[32];
		uint32_t at;
	} label[32];
	char param[PARAMS_MAX][64];
};

struct thread {
	uint32_t at;
	bool done;
	uint64_t pred[8], r[32], d[32];
};

/* ---- reading ---- */

static bool read_register(const char *text, struct operand *out)
{
	out->value = strtoull(text + 2, NULL, 10);
	out->kind = text[1] == 'p' ? PRED : text[1] == 'r' ? REG32 : REG64;
	return strchr("prd", text[1]) != NULL && out->value < (out->kind == PRED ? 8u : 32u);
}

/* Names that are nothing else are the one array in shared memory, which begins at 0. */
static bool read_operand(const struct ptx *ptx, char *text, struct operand *out)
{
	uint32_t i;
	char *plus;

	*out = (struct operand){.kind = NUMBER};
	if (*text == '[') {
		text++;
		text[strcspn(text, "]")] = '\0';
		for (i = 0; i < ptx->params; i++) {
			if (strcmp(ptx->param[i], text) == 0)
				out->value = i;
		}
		if (*text != '%')
			return true;
		plus = strchr(text, '+');
		out->offset = plus == NULL ? 0 : strtoull(plus + 1, NULL, 0);
		return read_register(text, out);
	}
	if (strcmp(text, "%tid.x") == 0)
		out->kind = THREAD;
	else if (strcmp(text, "%ctaid.x") == 0)
		out->kind = BLOCK;
	else if (strcmp(text, "%ntid.x") == 0)
		out->kind = BLOCK_SIZE;
	else if (*text == '%')
		return read_register(text, out);
	else if (*text >= '0' && *text <= '9')
		out->value = strtoull(text, NULL, 0);
	return true;
}

/* The place of a label, which may come later. */
static uint32_t label_of(struct ptx *ptx, const char *name)
{
	uint32_t i;

	for (i = 0; i < ptx->labels && strcmp(ptx->label[i].name, name) != 0; i++)
		;
	if (i == ptx->labels && i < 32) {
		(void)snprintf(ptx->label[i].name, sizeof(ptx->label[i].name), "%s", name);
		ptx->label[i].at = UINT32_MAX;
		ptx->labels++;
	}
	return i;
}

static bool read_instruction(struct ptx *ptx, char *line)
{
	struct instruction *code = &ptx->code[ptx->count];
	char *rest, *word = strtok_r(line, " ,\t", &rest);
	uint32_t i;

	*code = (struct instruction){.guard = -1, .op = OP_COUNT};
	if (*word == '@') {
		code->guard = (int)strtol(word + 3, NULL, 10);
		word = strtok_r(NULL, " ,\t", &rest);
	}
	for (i = 0; word != NULL && i < OP_COUNT; i++) {
		if (strcmp(op_texts[i], word) == 0)
			code->op = (enum op)i;
	}
	if (code->op == OP_COUNT || ptx->count + 1 == 512)
		return false;
	for (i = 0; i < OPERANDS && (word = strtok_r(NULL, " ,\t", &rest)) != NULL; i++) {
		if (code->op == OP_BRANCH)
			code->target = label_of(ptx, word);
		else if (!read_operand(ptx, word, &code->operands[i]))
			return false;
	}
	ptx->count++;
	return true;
}

static void read_params(struct ptx *ptx, const char *at, const char *end)
{
	while ((at = strstr(at, ".param .u64 ")) != NULL && at < end && ptx->params < PARAMS_MAX) {
		size_t length = strcspn(at += 12, ",) \n");

		(void)snprintf(ptx->param[ptx->params++], 64, "%.*s", (int)length, at);
	}
}

/* NULL: not all of it is known here. */
static struct ptx *read_kernel(const char *text, const char *name)
{
	struct ptx *ptx = calloc(1, sizeof(*ptx));
	char *copy = strdup(text), entry[600], *at, *line, *rest;
	bool known = ptx != NULL && copy != NULL;

	(void)snprintf(entry, sizeof(entry), ".entry %s", name);
	at = known ? strstr(copy, entry) : NULL;
	line = at == NULL ? NULL : strchr(at, '{');
	known = line != NULL;
	if (known)
		read_params(ptx, at, line);
	for (line = known ? strtok_r(line + 1, "\n;", &rest) : NULL; known && line != NULL;
	     line = strtok_r(NULL, "\n;", &rest)) {
		line += strspn(line, " \t");
		if (*line == '}')
			break;
		if (*line == '\0' || *line == '.')
			continue;
		if (line[strlen(line) - 1] == ':') {
			line[strlen(line) - 1] = '\0';
			ptx->label[label_of(ptx, line)].at = ptx->count;
		} else {
			known = read_instruction(ptx, line);
		}
	}
	free(copy);
	if (!known) {
		free(ptx);
		return NULL;
	}
	return ptx;
}

/* ---- running ---- */

struct place {
	uint32_t thread, block, block_size;
	uint8_t *shared;
	void **arguments;
};

static uint64_t value_of(const struct thread *t, const struct place *place,
			 const struct operand *operand)
{
	switch (operand->kind) {
	case PRED:
		return t->pred[operand->value];
	case REG32:
		return t->r[operand->value];
	case REG64:
		return t->d[operand->value];
	case THREAD:
		return place->thread;
	case BLOCK:
		return place->block;
	case BLOCK_SIZE:
		return place->block_size;
	case NUMBER:
	default:
		return operand->value;
	}
}

static void *memory_at(const struct thread *t, const struct place *place,
		       const struct operand *operand, uint8_t *shared, uint32_t bytes)
{
	uint64_t address = value_of(t, place, operand) + operand->offset;

	if (address % bytes != 0 || (shared != NULL && address + bytes > SHARED_MAX))
		abort();
	return shared != NULL ? shared + address : (void *)(uintptr_t)address;
}

static uint64_t computed(const struct instruction *i, uint64_t a, uint64_t b, uint64_t c)
{
	switch (i->op) {
	case OP_AND:
		return a & b;
	case OP_XOR:
		return a ^ b;
	case OP_OR_PRED:
		return a | b;
	case OP_SHL:
		return b > 63 ? 0 : a << b;
	case OP_SHR:
		return b > 63 ? 0 : a >> b;
	case OP_ADD64:
		return a + b;
	case OP_SUB32:
	case OP_SUB64:
		return a - b;
	case OP_MUL_WIDE:
	case OP_MUL64:
		return a * b;
	case OP_MAD32:
		return a * b + c;
	case OP_MIN64:
		return a < b ? a : b;
	case OP_BFE:
		return a >> b & ((UINT64_C(1) << c) - 1);
	case OP_NE32:
	case OP_NE64:
		return a != b;
	case OP_EQ64:
		return a == b;
	case OP_GE64:
		return a >= b;
	case OP_LT64:
		return a < b;
	default:
		return a;
	}
}

static void put(struct thread *t, const struct operand *to, uint64_t value)
{
	if (to->kind == PRED)
		t->pred[to->value] = value;
	else if (to->kind == REG32)
		t->r[to->value] = (uint32_t)value;
	else
		t->d[to->value] = value;
}

/* One instruction that goes on with the next. */
static void run_one(struct thread *t, const struct place *place, const struct instruction *i)
{
	const struct operand *o = i->operands;
	uint64_t value;

	switch (i->op) {
	case OP_LOAD_PARAM:
		put(t, &o[0], *(const uint64_t *)place->arguments[o[1].value]);
		break;
	case OP_LOAD_SHARED:
		put(t, &o[0], *(uint64_t *)memory_at(t, place, &o[1], place->shared, 8));
		break;
	case OP_LOAD:
		put(t, &o[0], *(uint64_t *)memory_at(t, place, &o[1], NULL, 8));
		break;
	case OP_LOAD_BYTE:
		put(t, &o[0], *(uint8_t *)memory_at(t, place, &o[1], NULL, 1));
		break;
	case OP_STORE_SHARED:
		value = value_of(t, place, &o[1]);
		memcpy(memory_at(t, place, &o[0], place->shared, 8), &value, 8);
		break;
	case OP_STORE:
		value = value_of(t, place, &o[1]);
		memcpy(memory_at(t, place, &o[0], NULL, 8), &value, 8);
		break;
	default:
		put(t, &o[0],
		    computed(i, value_of(t, place, &o[1]), value_of(t, place, &o[2]),
			     value_of(t, place, &o[3])));
	}
}

/* Up to the next barrier, or the end. */
static void run_thread(const struct ptx *ptx, struct thread *t, const struct place *place)
{
	while (!t->done) {
		const struct instruction *i = &ptx->code[t->at];

		if (t->at >= ptx->count)
			abort();
		t->at++;
		if (i->guard >= 0 && !t->pred[i->guard])
			continue;
		if (i->op == OP_RETURN)
			t->done = true;
		else if (i->op == OP_BRANCH)
			t->at = ptx->label[i->target].at;
		else if (i->op == OP_BARRIER)
			return;
		else
			run_one(t, place, i);
	}
}

uint32_t ptx_parameters(const char *text, const char *name)
{
	struct ptx *ptx = read_kernel(text, name);
	uint32_t count = ptx == NULL ? 0 : ptx->params;

	free(ptx);
	return count;
}

void ptx_run(const char *text, const char *name, uint32_t blocks, uint32_t threads,
	     void **arguments)
{
	struct ptx *ptx = threads > THREADS_MAX ? NULL : read_kernel(text, name);
	struct thread *all = calloc(THREADS_MAX, sizeof(*all));
	uint8_t *shared = aligned_alloc(64, SHARED_MAX);
	struct place place = {.block_size = threads, .shared = shared, .arguments = arguments};

	for (place.block = 0; ptx != NULL && place.block < blocks; place.block++) {
		bool again = true;

		memset(all, 0, THREADS_MAX * sizeof(*all));
		memset(shared, 0xa5, SHARED_MAX);
		while (again) {
			again = false;
			for (place.thread = 0; place.thread < threads; place.thread++) {
				run_thread(ptx, &all[place.thread], &place);
				again = again || !all[place.thread].done;
			}
		}
	}
	free(ptx);
	free(all);
	free(shared);
}
