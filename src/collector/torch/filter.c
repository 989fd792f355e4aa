/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a record costs is mostly PyTorch's work: it makes one for each operator, with all inputs in boxes, lists one by one. Before each
 * operator it asks a function of its own whom it is to tell; the answer lists the callbacks, and whether any wants inputs and outputs.
 * Here that answer is made smaller where ours is the only callback in it:
 *
 *     inside an operator that is recorded      no callback, so no record
 *     an operator that is made of others       the same
 *     what has a name and is no operator       the same; autograd makes a text for each of its nodes
 *     an operator whose device is known        no inputs, where its tensors are not told
 *     an operator that writes no result        no outputs, likewise
 *
 * Which operator it is about, the answer does not say; the place that asks does, when it lies in a function at::_ops::NAME::call: that
 * calls one operator, and the first record that comes from there tells which. Any other place gets the answer as it is, and so does
 * everybody else who listens, such as PyTorch's profiler.
 *
 * The device is told by the dispatch keys, which PyTorch passes on to a record without inputs: they have the kind of it and not its
 * number. So inputs are needed where a process sees two devices, by operators that take a device as an argument, and where the keys of
 * a tensor are hidden from the dispatcher.
 *
 * The layout of the answer is searched for. Nothing here is needed: the callback decides again by what it is told.
 */
#include "collector/torch/filter.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "collector/loader/lookup.h"
#include "collector/quiet.h"
#include "collector/torch/operators.h"
#include "collector/torch/torch.h"

#define CALLS_MAX      8192u
#define SITES	       4096u /* a power of two */
#define ANSWER_WORDS   40u
#define ANSWER_BYTES   104u /* of the answer in all versions so far */
#define SCOPE_FUNCTION 0u
#define SCOPE_OTHER    1u /* for which we have no callback */

struct torch_call {
	uintptr_t begin;
	uintptr_t end;
	_Atomic(const struct torch_operator *) op; /* NULL: not known yet */
};

static struct torch_call *calls; /* by address */
static uint32_t call_count;
static _Atomic(struct torch_call *) sites[SITES];

/* Bytes of the answer; 0 of `count`: not found. */
static struct {
	uint32_t engaged; /* 1: there is a list */
	uint32_t count;	  /* callbacks in it, 32 bits */
	uint32_t inputs;
	uint32_t outputs;
	/* Of the answer for what is no operator, which always has a list; 0: not found. */
	uint32_t named_count;
} at;

enum state {
	STATE_OFF = 0,
	STATE_PROBING = 1, /* the next answer to one thread is made smaller */
	STATE_PROBED = 2,  /* it was; now keys may come */
	STATE_ON = 3,
};

static struct {
	_Atomic uint32_t state; /* enum state */
	uint32_t tid;		/* that probes */
	bool accesses;
	bool one_device; /* of each kind */
	bool has_keys;	 /* records without inputs come with keys */
	uint64_t keys[TORCH_KEYS];
	bool (*excluded)(uint64_t keys);
	bool (*included)(uint64_t keys);
} filter;

/* ---- the places that ask ---- */

static void add_call(const char *name, void *address, size_t bytes, void *arg)
{
	static const char prefix[] = "_ZN2at4_ops";
	const char *digits = name + sizeof(prefix) - 1;
	char *behind;
	size_t length;

	(void)arg;
	if (call_count == CALLS_MAX || strncmp(name, prefix, sizeof(prefix) - 1) != 0)
		return;
	length = strtoul(digits, &behind, 10);
	if (behind == digits || length > strlen(behind) ||
	    strncmp(behind + length, "4callE", 6) != 0)
		return;
	calls[call_count++] =
		(struct torch_call){.begin = (uintptr_t)address, .end = (uintptr_t)address + bytes};
}

static int by_address(const void *a, const void *b)
{
	const struct torch_call *x = a, *y = b;

	return (x->begin > y->begin) - (x->begin < y->begin);
}

static void find_calls(const char *name, void *beside)
{
	if (call_count != 0)
		return;
	if (calls == NULL)
		calls = quiet_map(CALLS_MAX * sizeof(*calls));
	if (calls == NULL)
		return;
	lookup_functions_beside(name, beside, add_call, NULL);
	qsort(calls, call_count, sizeof(*calls), by_address);
}

static struct torch_call *call_slow(uintptr_t site, _Atomic(struct torch_call *) *slot)
{
	uint32_t low = 0, high = call_count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (calls[middle].end <= site)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == call_count || site < calls[low].begin)
		return NULL;
	atomic_store_explicit(slot, &calls[low], memory_order_release);
	return &calls[low];
}

/* The call of one operator that this return address lies in; NULL: none. */
static struct torch_call *call_at(uintptr_t site)
{
	uint64_t hash = (uint64_t)site * UINT64_C(0x9e3779b97f4a7c15);
	_Atomic(struct torch_call *) *slot = &sites[hash >> 52];
	struct torch_call *call = atomic_load_explicit(slot, memory_order_acquire);

	if (call != NULL && site >= call->begin && site < call->end)
		return call;
	return call_slow(site, slot);
}

/* ---- answers ---- */

static void ask(void *original, void *answer, uint32_t scope)
{
	torch_call_into(original, answer, (const void *)(uintptr_t)scope, NULL);
}

/* Whether the keys that the dispatcher has are those of the tensors. */
static bool keys_are_whole(void)
{
	return !filter.excluded(filter.keys[TORCH_KEY_PYTHON]) &&
	       !filter.included(filter.keys[TORCH_KEY_LAYER_FRONT]) &&
	       !filter.included(filter.keys[TORCH_KEY_LAYER_BACK]);
}

static bool needs_inputs(const struct torch_operator *op)
{
	return op->schema.takes_device || !filter.one_device || !filter.has_keys ||
	       (filter.accesses && (op->schema.reads | op->schema.changes) != 0) ||
	       !keys_are_whole();
}

static void reduce(uint8_t *answer, struct writer *w, uintptr_t site)
{
	struct torch_call *call;
	const struct torch_operator *op;
	uint32_t count;

	memcpy(&count, answer + at.count, sizeof(count));
	w->asked_alone = answer[at.engaged] != 0 && count == 1;
	if (!w->asked_alone)
		return;
	call = call_at(site);
	op = call == NULL ? NULL : atomic_load_explicit(&call->op, memory_order_acquire);
	w->asked = call;
	if (op == NULL)
		return;
	if (op->transparent) {
		answer[at.engaged] = 0;
		return;
	}
	if (!needs_inputs(op))
		answer[at.inputs] = 0;
	if (op->schema.writes == 0)
		answer[at.outputs] = 0;
}

/*
 * Whether this is asked inside an operator that only we are told of. The answer lies on the stack, as the record will; see callback.c.
 * Who begins to listen while the thread is in an operator hears of the next one.
 */
static bool is_inside(const void *answer, const struct writer *w)
{
	return w->operator_record != NULL && w->operator_alone &&
	       (uintptr_t)answer < (uintptr_t)w->operator_record;
}

/* `site`: return address of PyTorch's call. */
MSCOPE_HIDDEN void *torch_filter_ask(uint8_t *answer, uint32_t scope, uintptr_t site);

void *torch_filter_ask(uint8_t *answer, uint32_t scope, uintptr_t site)
{
	void *original =
		(void *)HOOK_ORIGINAL(_ZN2at27getStepCallbacksUnlessEmptyENS_11RecordScopeE);
	uint32_t state = atomic_load_explicit(&filter.state, memory_order_relaxed);
	struct writer *w = collector_writer;

	if (MSCOPE_UNLIKELY(original == NULL))
		return memset(answer, 0, ANSWER_BYTES); /* cannot be: PyTorch has it */
	if ((scope & 0xff) != SCOPE_FUNCTION)
		state = STATE_OFF;
	if (state == STATE_ON && w > WRITER_GONE && is_inside(answer, w)) {
		answer[at.engaged] = 0;
		return answer;
	}
	ask(original, answer, scope);
	if (state == STATE_ON && w > WRITER_GONE)
		reduce(answer, w, site);
	if (MSCOPE_UNLIKELY(state == STATE_PROBING) && sys_gettid() == filter.tid &&
	    answer[at.engaged] != 0) {
		answer[at.inputs] = 0;
		atomic_store(&filter.state, STATE_PROBED);
	}
	return answer;
}

/* The same for what has a name of its own. */
MSCOPE_HIDDEN void *torch_filter_ask_named(uint8_t *answer, uint32_t scope);

void *torch_filter_ask_named(uint8_t *answer, uint32_t scope)
{
	void *original = (void *)HOOK_ORIGINAL(_ZN2at16getStepCallbacksENS_11RecordScopeE);
	uint32_t count;

	if (MSCOPE_UNLIKELY(original == NULL))
		return memset(answer, 0, ANSWER_BYTES - 8);
	ask(original, answer, scope);
	if (atomic_load_explicit(&filter.state, memory_order_relaxed) == STATE_ON &&
	    (scope & 0xff) == SCOPE_FUNCTION && at.named_count != 0) {
		memcpy(&count, answer + at.named_count, sizeof(count));
		if (count == 1)
			memset(answer + at.named_count, 0, sizeof(count));
	}
	return answer;
}

#if defined(__aarch64__)
/* The place of the answer comes in a register of its own. */
#define FUNCTION(name, ours)                                                                       \
	__asm__(".text\n.globl " name "\n.type " name ", %function\n" name ":\n"                   \
		"	hint #34\n" /* bti c */                                                    \
		"	mov x1, x0\n"                                                                    \
		"	mov x0, x8\n"                                                                    \
		"	mov x2, x30\n"                                                                   \
		"	b " ours "\n"                                                              \
		".size " name ", . - " name "\n")
FUNCTION("_ZN2at27getStepCallbacksUnlessEmptyENS_11RecordScopeE", "torch_filter_ask");
FUNCTION("_ZN2at16getStepCallbacksENS_11RecordScopeE", "torch_filter_ask_named");
#else
MSCOPE_EXPORT void *_ZN2at27getStepCallbacksUnlessEmptyENS_11RecordScopeE(void *answer,
									  uint32_t scope)
{
	return torch_filter_ask(answer, scope, (uintptr_t)__builtin_return_address(0));
}

MSCOPE_EXPORT void *_ZN2at16getStepCallbacksENS_11RecordScopeE(void *answer, uint32_t scope)
{
	return torch_filter_ask_named(answer, scope);
}
#endif

/* A record without inputs is about to begin. */
MSCOPE_EXPORT void
_ZN3c1010Dispatcher17runRecordFunctionERN2at14RecordFunctionESt17reference_wrapperIKNS_14FunctionSchemaEENS_11DispatchKeyENS_14DispatchKeySetE(
	void *record, const void *schema, uint32_t key, uint64_t keys)
{
	hook__ZN3c1010Dispatcher17runRecordFunctionERN2at14RecordFunctionESt17reference_wrapperIKNS_14FunctionSchemaEENS_11DispatchKeyENS_14DispatchKeySetE
		*original = HOOK_ORIGINAL(
			_ZN3c1010Dispatcher17runRecordFunctionERN2at14RecordFunctionESt17reference_wrapperIKNS_14FunctionSchemaEENS_11DispatchKeyENS_14DispatchKeySetE);
	uint32_t state = atomic_load_explicit(&filter.state, memory_order_relaxed);
	struct writer *w = collector_writer;

	if (state == STATE_ON && w > WRITER_GONE) {
		w->keys_record = record;
		w->keys = keys;
	} else if (state == STATE_PROBED && sys_gettid() == filter.tid) {
		filter.has_keys =
			filter.keys[TORCH_KEY_BACKENDS] != 0 &&
			(keys & filter.keys[TORCH_KEY_BACKENDS]) == filter.keys[TORCH_KEY_HOST];
		atomic_store(&filter.state, STATE_OFF);
	}
	if (original != NULL)
		original(record, schema, key, keys);
	/* The callback has seen them; another record may lie at the same place later. */
	w = collector_writer;
	if (state == STATE_ON && w > WRITER_GONE)
		w->keys_record = NULL;
}

bool torch_filter_keys(const struct writer *w, const void *record, uint64_t *out_keys)
{
	if (w <= WRITER_GONE || w->keys_record != record)
		return false;
	*out_keys = w->keys;
	return true;
}

void torch_filter_learn(struct writer *w, const struct torch_operator *op)
{
	if (w <= WRITER_GONE || w->asked == NULL)
		return;
	atomic_store_explicit(&w->asked->op, op, memory_order_release);
	w->asked = NULL;
}

/* ---- opening ---- */

/* The answer over memory that has the byte `fill` everywhere. */
static void ask_over(void *original, uint64_t *words, uint8_t fill, uint32_t scope)
{
	memset(words, fill, ANSWER_WORDS * 8);
	ask(original, words, scope);
}

#define NOT_FOUND UINT32_MAX

/* The one byte that is 1 in `with` and 0 in `without`; NOT_FOUND: there is none, or several. */
static uint32_t find_byte(const uint8_t *with, const uint8_t *without)
{
	uint32_t i, found = NOT_FOUND;

	for (i = 0; i < ANSWER_WORDS * 8; i++) {
		if (with[i] != 1 || without[i] != 0)
			continue;
		if (found != NOT_FOUND)
			return NOT_FOUND;
		found = i;
	}
	return found;
}

static uint32_t find_count(const uint64_t *words, void *start, void *end)
{
	uint32_t i;

	for (i = 0; i + 3 < ANSWER_WORDS; i++) {
		uint64_t list = words[i] - (uint64_t)(uintptr_t)words;

		if (list % 8 == 0 && list / 8 + 1 < ANSWER_WORDS &&
		    words[list / 8] == (uint64_t)(uintptr_t)start &&
		    words[list / 8 + 1] == (uint64_t)(uintptr_t)end && (uint32_t)words[i + 1] == 1)
			return (i + 1) * 8;
	}
	return 0;
}

/* Whether all was found. The same memory each time: the list has a pointer into it. */
static bool search(void *original, void *named, void *start, void *end, void (*again)(bool, bool))
{
	static uint64_t words[ANSWER_WORDS], with[ANSWER_WORDS], without[ANSWER_WORDS];

	ask_over(original, words, 0xff, SCOPE_OTHER);
	memcpy(without, words, sizeof(without));
	ask_over(original, words, 0, SCOPE_FUNCTION);
	memcpy(with, words, sizeof(with));
	at.count = find_count(words, start, end);
	at.engaged = find_byte((uint8_t *)with, (uint8_t *)without);
	at.named_count = 0;
	if (named != NULL) {
		ask_over(named, words, 0, SCOPE_FUNCTION);
		at.named_count = find_count(words, start, end);
	}
	again(false, true);
	ask_over(original, words, 0, SCOPE_FUNCTION);
	at.inputs = find_byte((uint8_t *)with, (uint8_t *)words);
	again(true, false);
	ask_over(original, words, 0, SCOPE_FUNCTION);
	at.outputs = find_byte((uint8_t *)with, (uint8_t *)words);
	again(true, true);
	return at.count != 0 && at.engaged != NOT_FOUND && at.inputs != NOT_FOUND &&
	       at.outputs != NOT_FOUND;
}

void torch_filter_open(const uint64_t *keys, void *start, void *end, void (*again)(bool, bool))
{
	struct hook *hook = &hook_of__ZN2at27getStepCallbacksUnlessEmptyENS_11RecordScopeE;
	void *original = hook_original(hook);
	void *named = (void *)HOOK_ORIGINAL(_ZN2at16getStepCallbacksENS_11RecordScopeE);

	atomic_store(&filter.state, STATE_OFF);
	filter.has_keys = false;
	memcpy(filter.keys, keys, sizeof(filter.keys));
	filter.excluded = (bool (*)(uint64_t))lookup_symbol(
		"_ZN3c104impl31tls_is_dispatch_keyset_excludedENS_14DispatchKeySetE");
	filter.included = (bool (*)(uint64_t))lookup_symbol(
		"_ZN3c104impl31tls_is_dispatch_keyset_includedENS_14DispatchKeySetE");
	if (original == NULL || !search(original, named, start, end, again)) {
		at.count = 0;
		return;
	}
	find_calls(hook->name, original);
	filter.tid = sys_gettid();
	if (filter.excluded != NULL && filter.included != NULL)
		atomic_store(&filter.state, STATE_PROBING);
}

void torch_filter_set(bool on, bool accesses, bool one_device)
{
	filter.accesses = accesses;
	filter.one_device = one_device;
	atomic_store(&filter.state, on && at.count != 0 ? STATE_ON : STATE_OFF);
}

void torch_filter_forget(void)
{
	uint32_t i;

	for (i = 0; i < call_count; i++)
		atomic_store_explicit(&calls[i].op, NULL, memory_order_relaxed);
}
