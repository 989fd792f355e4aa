/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PyTorch's operators and the tensors that they take and give, by the callback that PyTorch has for observers: on every thread, for
 * each operator that it calls, before and after. No Python is involved and the program is not changed.
 *
 * An operator that is made of others (CompositeImplicitAutograd) does not count, those that it calls do; of the rest the outermost
 * one. The thread's writer has the record of it, so that the operators that it calls in turn are passed over at once. Wrappers of
 * tensors (subclasses with a dispatch of their own, torch.func) and dispatch modes of the program do their work by calling operators
 * on ordinary tensors: those count. What a compiler traces with tensors that have no memory counts not at all.
 *
 *     begin, tensors that are read, the operator itself, tensors that were written, end
 *
 * The inputs are gone when the operator ends. Arguments that it writes and does not return are therefore told at its beginning.
 */
#include <errno.h>
#include <string.h>

#include "collector/api.h"
#include "collector/loader/lookup.h"
#include "collector/torch/filter.h"
#include "collector/torch/objects.h"
#include "collector/torch/operators.h"
#include "collector/torch/torch.h"

#define META   14 /* c10's number of the device whose tensors have no memory */
#define SCOPES 10 /* kinds of records; the first one is of operators */

/* at::RecordFunctionCallback. */
struct callback {
	void *start;
	void *end;
	double probability;
	bool scopes[SCOPES];
	bool inputs, outputs, ids;
};

enum phase {
	PHASE_CLOSED = 0,
	PHASE_PROBING = 1, /* one thread calls operators on two tensors of ours */
	PHASE_READY = 2,
};

/* What the probes have found. */
#define PROBED_NAME	 1u
#define PROBED_INPUTS	 2u
#define PROBED_OUTPUTS	 4u
#define PROBED_LIST	 8u
#define PROBED_OPTIONAL	 16u
#define PROBED_DEVICE	 32u
#define PROBED_COMPOSITE 64u
#define PROBED_ALL	 127u

static struct {
	uint32_t phase; /* enum phase; changes while no callback is there */
	uint32_t tid;	/* that probes */
	uint64_t first, second;
	uint32_t probed;
	uint64_t handle; /* of the callback, + 1; 0: there is none */
	bool accesses;
	uint64_t keys[TORCH_KEYS];
	uint64_t (*add)(struct callback callback);
	void (*remove)(uint64_t handle);
	int64_t (*modes)(void);
	const uint64_t *(*mode_state)(void);
} observer;

/* ---- which operators count, and where ---- */

/*
 * Whether a compiler's mode pretends to compute: the thread has more modes than are in its list. The list is a vector of pointers of
 * two words, at the beginning of the thread's state.
 */
static bool is_traced(int64_t modes)
{
	const uint64_t *list = observer.mode_state();

	return (uint64_t)modes > (list[1] - list[0]) / 16;
}

/* Where an operator works, from its inputs. */
struct place {
	uint64_t key;	/* device_key() of the first device that is not the host */
	bool device;	/* there is one */
	bool host;	/* a tensor or a device argument is of the host */
	bool elsewhere; /* one is of a kind that nothing is known of */
	bool wrapped;	/* a tensor stands for others */
};

/* The device that this thread works with. */
static uint64_t key_of_current_device(int type)
{
	static struct lookup_function cuda = {.name = "_ZN3c104cuda14current_deviceEv"};
	uint32_t vendor = device_key_vendor(vendor_torch_device((uint32_t)type << 8));
	const struct vendor_ops *ops = vendor_ops(vendor);
	uint32_t current = ops->current_device == NULL ? DEVICE_UNKNOWN : ops->current_device();
	int8_t (*ask)(void) = NULL;

	if (current != DEVICE_UNKNOWN)
		return device_key(vendor, current);
	if (type == C10_CUDA)
		ask = (int8_t(*)(void))lookup_function(&cuda);
	return vendor_torch_device((uint32_t)type << 8 |
				   (ask == NULL ? 0u : (uint32_t)ask() & 0xffu));
}

static uint64_t key_of_device(int type, int index)
{
	if (index < 0)
		return key_of_current_device(type);
	return vendor_torch_device((uint32_t)type << 8 | (uint32_t)index);
}

static void place_add(struct place *place, int type, int index)
{
	if (type == C10_CPU) {
		place->host = true;
	} else if (type == C10_CUDA || type == C10_ASCEND) {
		if (!place->device)
			place->key = key_of_device(type, index);
		place->device = true;
	} else if (type >= 0) {
		place->elsewhere = true;
	}
}

static void place_add_value(struct place *place, const struct torch_value *value, bool deep)
{
	int type, index;

	if (value->tag == TORCH_TAG_TENSOR) {
		torch_tensor_device(value, &type, &index);
		place->wrapped |=
			(torch_tensor_keys(value) & observer.keys[TORCH_KEY_WRAPPERS]) != 0;
		place_add(place, type, index);
	} else if (torch_value_device(value, &type, &index)) {
		place_add(place, type, index);
	} else if (deep) {
		struct torch_values list = torch_value_list(value);
		uint64_t i;

		for (i = 0; i < list.count; i++)
			place_add_value(place, &list.first[i], false);
	}
}

/* The same by the keys of all tensors together; there is one device of each kind. */
static void place_add_keys(struct place *place, uint64_t keys)
{
	uint64_t known = observer.keys[TORCH_KEY_HOST] | observer.keys[TORCH_KEY_CUDA] |
			 observer.keys[TORCH_KEY_ASCEND];

	place->wrapped = (keys & observer.keys[TORCH_KEY_WRAPPERS]) != 0;
	place->elsewhere = (keys & observer.keys[TORCH_KEY_BACKENDS] & ~known) != 0;
	if ((keys & observer.keys[TORCH_KEY_CUDA]) != 0)
		place_add(place, C10_CUDA, 0);
	else if ((keys & observer.keys[TORCH_KEY_ASCEND]) != 0)
		place_add(place, C10_ASCEND, 0);
}

/* A call with values on a stack has those of its callers below its own. */
static struct torch_values own_values(struct torch_values values, uint32_t count)
{
	if (count != 0 && values.count > count) {
		values.first += values.count - count;
		values.count = count;
	}
	return values;
}

/* ---- accesses ---- */

static void access_value(struct torch_batch *batch, const struct torch_value *value, uint32_t kind,
			 bool deep, const void *caller)
{
	struct torch_tensor tensor;
	int type, index;

	if (value->tag == TORCH_TAG_TENSOR) {
		if ((torch_tensor_keys(value) & (observer.keys[TORCH_KEY_WRAPPERS] |
						 observer.keys[TORCH_KEY_UNREADABLE])) != 0 ||
		    !torch_tensor_read(value, &tensor))
			return;
		torch_tensor_device(value, &type, &index);
		if (type == C10_CPU ? collector.chosen.host == 0
				    : type != C10_CUDA && type != C10_ASCEND)
			return;
		if (batch->count == TORCH_BATCH_TENSORS)
			torch_batch_put(batch, caller);
		batch->touches[batch->count++] =
			(struct torch_touch){.key = key_of_device(type, index),
					     .address = tensor.address,
					     .size_bytes = tensor.size_bytes,
					     .kind = kind,
					     .dtype = tensor.dtype,
					     .sizes = tensor.sizes,
					     .dims = tensor.dims};
	} else if (deep) {
		struct torch_values list = torch_value_list(value);
		uint64_t i;

		for (i = 0; i < list.count; i++)
			access_value(batch, &list.first[i], kind, false, caller);
	}
}

static void access_values(struct torch_batch *batch, struct torch_values values, uint64_t bits,
			  uint32_t kind, const void *caller)
{
	uint64_t i;

	for (i = 0; i < values.count && i < 64; i++) {
		if (bits >> i & 1)
			access_value(batch, &values.first[i], kind, true, caller);
	}
}

/* ---- probes ---- */

static bool is_name(const struct torch_operator *op, const char *full)
{
	return strcmp(op->full, full) == 0;
}

static MSCOPE_COLD void probe_start(const void *record)
{
	const struct torch_operator *op;

	if (sys_gettid() != observer.tid)
		return;
	op = torch_operator_of(record);
	if (op == NULL)
		return;
	if (is_name(op, "torch._ops.aten.add_.Tensor")) {
		observer.probed |= op->transparent ? 0 : PROBED_NAME;
		if (torch_layout_inputs(record, observer.first, observer.second))
			observer.probed |= PROBED_INPUTS;
	} else if (is_name(op, "torch._ops.aten.cat.default")) {
		if (torch_layout_list(record, observer.first, observer.second))
			observer.probed |= PROBED_LIST;
	} else if (is_name(op, "torch._ops.aten.index.Tensor")) {
		if (torch_layout_optional_list(record, observer.second))
			observer.probed |= PROBED_OPTIONAL;
	} else if (is_name(op, "torch._ops.aten.empty_like.default")) {
		if (torch_layout_device(record, 3, META))
			observer.probed |= PROBED_DEVICE;
	} else if (is_name(op, "torch._ops.aten.reshape.default")) {
		observer.probed |= op->transparent ? PROBED_COMPOSITE : 0;
	}
}

static MSCOPE_COLD void probe_end(const void *record)
{
	const struct torch_operator *op;

	if (sys_gettid() != observer.tid)
		return;
	op = torch_operator_of(record);
	if (op != NULL && is_name(op, "torch._ops.aten.add_.Tensor") &&
	    torch_layout_outputs(record, observer.first))
		observer.probed |= PROBED_OUTPUTS;
}

/* ---- the callback ---- */

/* Makes this the operator that the thread is in; those that it calls are passed over. `op` NULL: it is not recorded. */
static void enter(const void *record, const struct torch_operator *op, uint64_t key)
{
	struct writer *w = collector_writer;

	if (w > WRITER_GONE) {
		w->operator_record = record;
		w->op = op;
		w->operator_key = key;
		w->operator_alone = w->asked_alone;
		w->asked_alone = false;
	}
}

static void begin(const void *record, const void *caller)
{
	const struct torch_operator *op = torch_operator_of(record);
	struct place place = {0};
	struct torch_batch batch;
	struct torch_values inputs;
	int64_t modes;
	uint64_t i, keys;

	torch_filter_learn(collector_writer, op);
	if (op == NULL || op->transparent)
		return;
	modes = observer.modes();
	if (modes > 0) {
		if (is_traced(modes))
			enter(record, NULL, 0);
		return;
	}
	inputs = own_values(torch_record_inputs(record), op->schema.arguments);
	if (torch_filter_keys(collector_writer, record, &keys))
		place_add_keys(&place, keys);
	for (i = 0; i < inputs.count; i++)
		place_add_value(&place, &inputs.first[i], true);
	if (place.wrapped)
		return;
	if (!place.device) {
		if (place.elsewhere) {
			enter(record, NULL, 0);
			return;
		}
		/* Also what is made from nothing, without a device in the arguments. */
		if (collector.chosen.host == 0)
			return;
		place.key = device_key(VENDOR_CPU, DEVICE_HOST);
	}
	batch.key = place.key;
	batch.name = op->full;
	batch.name_bytes = op->full_bytes;
	batch.begins = 1;
	batch.ended = 0;
	batch.count = 0;
	if (observer.accesses) {
		access_values(&batch, inputs, op->schema.reads, ACCESS_READ, caller);
		access_values(&batch, inputs, op->schema.changes, ACCESS_WRITE, caller);
	}
	torch_batch_put(&batch, caller);
	enter(record, op, place.key);
}

/* The result is a pointer that C++ would delete: none. */
MSCOPE_HIDDEN void *torch_record_starts(void **result, const void *record);

void *torch_record_starts(void **result, const void *record)
{
	const struct writer *w = collector_writer;
	uint32_t recording = recording_now();

	*result = NULL;
	if (observer.phase != PHASE_READY) {
		if (observer.phase == PHASE_PROBING)
			probe_start(record);
		return result;
	}
	/* Records lie on the stack: one of a caller has a higher address. A record that never ended does not count. */
	if ((recording != RECORDING_ON && recording != RECORDING_DETACHED) ||
	    (w > WRITER_GONE && w->operator_record != NULL &&
	     (uintptr_t)record < (uintptr_t)w->operator_record))
		return result;
	begin(record, __builtin_return_address(0));
	return result;
}

static void record_ends(const void *record, void *context)
{
	struct writer *w = collector_writer;
	const struct torch_operator *op;
	const void *caller = __builtin_return_address(0);
	struct torch_batch batch;

	(void)context;
	if (observer.phase != PHASE_READY) {
		if (observer.phase == PHASE_PROBING)
			probe_end(record);
		return;
	}
	if (w <= WRITER_GONE || w->operator_record != record)
		return;
	op = w->op;
	w->operator_record = NULL;
	if (op == NULL)
		return;
	batch.key = w->operator_key;
	batch.name = op->full;
	batch.name_bytes = op->full_bytes;
	batch.begins = batch.ended = 0;
	batch.count = 0;
	if (observer.accesses && op->schema.writes != 0)
		access_values(&batch, own_values(torch_record_outputs(record), op->schema.results),
			      op->schema.writes, ACCESS_WRITE, caller);
	batch.ended = 1;
	torch_batch_put(&batch, caller);
}

#if defined(__aarch64__)
/* The place of the result comes in a register of its own. */
MSCOPE_HIDDEN void torch_record_starts_x8(void);
__asm__(".text\n"
	".hidden torch_record_starts_x8\n"
	".type torch_record_starts_x8, %function\n"
	"torch_record_starts_x8:\n"
	"	hint #34\n" /* bti c */
	"	mov x1, x0\n"
	"	mov x0, x8\n"
	"	b torch_record_starts\n"
	".size torch_record_starts_x8, . - torch_record_starts_x8\n");
#define START ((void *)torch_record_starts_x8)
#else
#define START ((void *)torch_record_starts)
#endif

/* What PyTorch calls. */
extern void *const torch_callback_start MSCOPE_HIDDEN;
void *const torch_callback_start = START;

static void unregister(void)
{
	if (observer.handle != 0)
		observer.remove(observer.handle - 1);
	observer.handle = 0;
}

static void register_(bool inputs, bool outputs)
{
	struct callback callback = {.start = torch_callback_start,
				    .end = (void *)record_ends,
				    .probability = 1.0,
				    .scopes = {true},
				    .inputs = inputs,
				    .outputs = outputs};

	unregister();
	observer.handle = observer.add(callback) + 1;
}

/* ---- what Python calls ---- */

MSCOPE_EXPORT int mscope_torch_open(uint64_t first, uint64_t second, const uint64_t *keys)
{
	if (observer.handle != 0)
		unregister();
	observer.phase = PHASE_CLOSED;
	observer.add = (uint64_t(*)(struct callback))lookup_symbol(
		"_ZN2at17addGlobalCallbackENS_22RecordFunctionCallbackE");
	observer.remove = (void (*)(uint64_t))lookup_symbol("_ZN2at14removeCallbackEm");
	observer.modes =
		(int64_t(*)(void))lookup_symbol("_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv");
	observer.mode_state = (const uint64_t *(*)(void))lookup_symbol(
		"_ZN3c104impl20TorchDispatchModeTLS9get_stateEv");
	if (observer.add == NULL || observer.remove == NULL || observer.modes == NULL ||
	    observer.mode_state == NULL ||
	    torch_operators_open((uint32_t)keys[TORCH_KEY_COMPOSITE]) != 0)
		return -ENOSYS;
	torch_layout_reset();
	observer.first = first;
	observer.second = second;
	memcpy(observer.keys, keys, sizeof(observer.keys));
	observer.tid = sys_gettid();
	observer.probed = 0;
	observer.phase = PHASE_PROBING;
	register_(true, true);
	torch_filter_open(keys, torch_callback_start, (void *)record_ends, register_);
	return 0;
}

MSCOPE_EXPORT int mscope_torch_tensor(const uint64_t *facts, uint32_t count, const char *dtype)
{
	return observer.phase == PHASE_PROBING ? torch_layout_tensor(facts, count, dtype) : -EINVAL;
}

MSCOPE_EXPORT int mscope_torch_schemas(const char *text)
{
	return torch_operators_schemas(text);
}

MSCOPE_EXPORT int mscope_torch_check(char *out, uint32_t bytes)
{
	const char *missing = "names of operators";
	int result = -EINVAL;

	if (observer.phase != PHASE_PROBING)
		return result;
	unregister();
	torch_filter_set(false, false, false);
	observer.phase = PHASE_CLOSED;
	result = torch_layout_check(&missing);
	if (result == 0 && observer.probed != PROBED_ALL)
		result = -ENOSYS;
	if (result == 0)
		observer.phase = PHASE_READY;
	else if (strlen(missing) < bytes)
		memcpy(out, missing, strlen(missing) + 1);
	return result;
}

MSCOPE_EXPORT int mscope_torch_observe(uint32_t what, uint32_t one_device)
{
	bool accesses = (what & PYTHON_WANTS_ACCESS) != 0;

	if (observer.phase != PHASE_READY)
		return -ENOSYS;
	torch_filter_set(what != 0, accesses, one_device != 0);
	if (what == 0) {
		unregister();
	} else if (observer.handle == 0 || observer.accesses != accesses) {
		observer.accesses = accesses;
		register_(true, accesses);
	}
	return 0;
}
