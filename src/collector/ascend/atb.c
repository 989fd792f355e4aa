/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ascend Transformer Boost (libatb.so): operators, their kernels, and the tensors that both take and give.
 *
 * It is C++ and has no interface for tools, but functions meant to be replaced: Runner::Execute, which runs every operator, and
 * probes that ask whether tensors are to be saved. If a probe answers yes, ATB names a directory for each operator, which is its
 * place in the model, and passes the parameters of every kernel to StoreUtil::SaveLaunchParam, before and after it runs. We answer
 * the probes only while such records are wanted; otherwise the program's own probes answer.
 *
 * The library comes in two builds that differ in std::string: 32 bytes with room for short texts, or one pointer. In both the
 * first word is the text. Functions with a string parameter have different names in the two builds, so both are hooked. Objects
 * are read at their offsets. A count that its container could not hold means another layout, and is taken as 0.
 *
 *     atb::Tensor, 104 bytes                       Mki::Tensor, 464 bytes
 *       0 dtype, 4 format (32 bits each)             0 dtype, 4 format
 *       8 dims[8]   72 number of dims                8 dims[49]   400 number of dims
 *      80 device address   96 bytes                440 device address   448 bytes
 *     atb::SVector<Tensor>, 6784 bytes             Mki::SVector<Tensor>
 *       0 room   8 count                             0 tensors[49]   22736 count
 *      16 tensors[65]   6776 NULL, or where they are instead
 *     atb::RunnerVariantPack
 *       0 inputs (SVector)   6784 outputs   13784, 13792 workspace and its bytes   13808 bytes of intermediates
 *       13816 the context, or in newer versions 13832
 *
 * The context is needed to ask for the stream that watch waits for; it is the one whose virtual table is the library's own.
 */
#include "collector/ascend/ascend.h"

#include <errno.h>
#include <string.h>

#include "collector/memory.h"
#include "collector/watch/watch_dump.h"

#define ATB_ERROR_INTERNAL 3

#define PACK_INPUTS	  0u
#define PACK_OUTPUTS	  6784u
#define PACK_WORKSPACE	  13784u
#define PACK_BYTES	  13792u
#define PACK_INTERMEDIATE 13808u
#define PACK_CONTEXT	  13832u
#define PACK_CONTEXT_OLD  13816u

#define VECTOR_ROOM	0u
#define VECTOR_COUNT	8u
#define VECTOR_INLINE	16u
#define VECTOR_HEAP	6776u
#define INLINE_MAX	65u
#define HEAP_MAX	65536u
#define MKI_TENSORS_MAX 49u
#define MKI_COUNT	22736u

#define TENSOR_DTYPE	 0u
#define TENSOR_FORMAT	 4u
#define TENSOR_DIMS	 8u
#define ATB_TENSOR_BYTES 104u
#define ATB_DIMS_MAX	 8u
#define ATB_DIM_COUNT	 72u
#define ATB_ADDRESS	 80u
#define ATB_DATA_BYTES	 96u
#define MKI_TENSOR_BYTES 464u
#define MKI_DIMS_MAX	 49u
#define MKI_DIM_COUNT	 400u
#define MKI_ADDRESS	 440u
#define MKI_DATA_BYTES	 448u

/* For the place in the model: it contains a count of executions, so the same text hardly comes twice. */
#define PATH_SLOT 0u

static uint64_t word_at(const uint8_t *object, size_t offset)
{
	uint64_t word;

	memcpy(&word, object + offset, sizeof(word));
	return word;
}

/* ---- what is wanted ---- */

enum want {
	WANT_OPERATORS = 1,
	WANT_KERNELS = 2,
	WANT_ACCESSES = 4,	 /* of operators, kernels or both, as the bits above say */
	WANT_WATCH = 8,		 /* watched memory is dumped at operators, */
	WANT_WATCH_KERNELS = 16, /* and at kernels, too */
};

static uint32_t wanted(void)
{
	uint32_t recording = recording_now(), want = 0;

	if (recording_is_off())
		return 0;
	if (recording == RECORDING_DETACHED || recording == RECORDING_ATTACHING)
		recording = collector_attach_slow();
	if (recording != RECORDING_ON)
		return 0;
	if (watch_is_active())
		want |= collector.chosen.level & SESSION_LEVEL_KERNEL
				? WANT_WATCH | WANT_WATCH_KERNELS
				: WANT_WATCH;
	if (!(collector.chosen.events & (SESSION_LAUNCH | SESSION_ACCESS)))
		return want;
	if (collector.chosen.level & SESSION_LEVEL_OP)
		want |= WANT_OPERATORS;
	if (collector.chosen.level & SESSION_LEVEL_KERNEL)
		want |= WANT_KERNELS;
	if (collector.chosen.events & SESSION_ACCESS)
		want |= WANT_ACCESSES;
	return want;
}

/* ---- tensors ---- */

/* Tensors side by side, as one of the two libraries lays them out. */
struct tensors {
	const uint8_t *first;
	uint64_t count;
	bool mki;
};

/* An operator or kernel begins or ended. */
struct moment {
	enum operation_kind kind;
	enum layer layer;
	const char *name, *path;
	size_t name_bytes;
	uint64_t workspace, workspace_bytes;
	struct tensors tensors; /* inputs when it begins, outputs when it ended */
};

static struct tensors atb_tensors(const uint8_t *vector)
{
	struct tensors tensors = {.first = vector + VECTOR_INLINE,
				  .count = word_at(vector, VECTOR_COUNT)};
	uint64_t heap = word_at(vector, VECTOR_HEAP), most = INLINE_MAX;

	if (heap != 0) {
		tensors.first = (const uint8_t *)(uintptr_t)heap;
		most = word_at(vector, VECTOR_ROOM);
		if (most > HEAP_MAX)
			most = 0;
	}
	if (tensors.count > most)
		tensors.count = 0;
	return tensors;
}

static struct tensors mki_tensors(const uint8_t *vector)
{
	struct tensors tensors = {.first = vector, .mki = true};

	if (vector != NULL)
		tensors.count = word_at(vector, MKI_COUNT);
	if (tensors.count > MKI_TENSORS_MAX)
		tensors.count = 0;
	return tensors;
}

/* Names of types and formats. The last ones exist in ATB only, not in Mki. */
struct number_name {
	int32_t number;
	const char *name;
};

static const struct number_name dtypes[] = {
	{0, "FLOAT"},	{1, "FLOAT16"}, {2, "INT8"},	{3, "INT32"},	   {4, "UINT8"},
	{6, "INT16"},	{7, "UINT16"},	{8, "UINT32"},	{9, "INT64"},	   {10, "UINT64"},
	{11, "DOUBLE"}, {12, "BOOL"},	{13, "STRING"}, {16, "COMPLEX64"}, {17, "COMPLEX128"},
	{27, "BF16"},	{29, "INT4"},	{30, "UINT1"},	{33, "COMPLEX32"},
};

#define MKI_DTYPES 16u

static const struct number_name formats[] = {
	{0, "NCHW"},	    {1, "NHWC"},	 {2, "ND"},	   {3, "NC1HWC0"},
	{4, "FRACTAL_Z"},   {12, "NC1HWC0_C04"}, {16, "HWCN"},	   {27, "NDHWC"},
	{29, "FRACTAL_NZ"}, {30, "NCDHW"},	 {32, "NDC1HWC0"}, {33, "FRACTAL_Z_3D"},
	{35, "NC"},	    {47, "NCL"},
};

#define MKI_FORMATS	    12u
#define FORMAT_FRACTAL_Z_3D 33

static const char *name_of(const struct number_name *names, size_t count, int32_t number)
{
	size_t i;

	for (i = 0; i < count; i++) {
		if (names[i].number == number)
			return names[i].name;
	}
	return NULL;
}

struct text {
	char *at;
	const char *end; /* room for a NUL stays behind it */
};

static void add(struct text *text, const char *part)
{
	while (*part != '\0' && text->at < text->end)
		*text->at++ = *part++;
}

static void add_i64(struct text *text, int64_t value)
{
	uint64_t left = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
	char digits[24];
	size_t at = sizeof(digits) - 1;

	digits[at] = '\0';
	do {
		digits[--at] = (char)('0' + left % 10);
		left /= 10;
	} while (left > 0);
	if (value < 0)
		digits[--at] = '-';
	add(text, digits + at);
}

#define TEXT(name, bytes)                                                                          \
	char name##_room[bytes];                                                                   \
	struct text name = {.at = name##_room, .end = name##_room + sizeof(name##_room) - 1}

/* As the libraries print their enums. */
static uint32_t put_dtype(struct writer *w, int32_t dtype, bool mki)
{
	const char *name = name_of(dtypes, mki ? MKI_DTYPES : MSCOPE_COUNT(dtypes), dtype);
	TEXT(text, 40);

	if (name == NULL)
		return writer_text(w, mki ? "TENSOR_DTYPE_UNDEFINED" : "ACL_DT_UNDEFINED");
	add(&text, mki ? "TENSOR_DTYPE_" : "ACL_");
	add(&text, name);
	*text.at = '\0';
	return writer_text(w, text_room);
}

static uint32_t put_format(struct writer *w, int32_t format, bool mki)
{
	const char *name = name_of(formats, mki ? MKI_FORMATS : MSCOPE_COUNT(formats), format);
	TEXT(text, 40);

	add(&text, mki ? "TENSOR_FORMAT_" : "ACL_FORMAT_");
	if (!mki && format == FORMAT_FRACTAL_Z_3D)
		text.at = text_room + strlen("ACL_"); /* the enum has no FORMAT_ here */
	add(&text, name == NULL ? "UNDEFINED" : name);
	*text.at = '\0';
	return writer_text(w, text_room);
}

static uint32_t put_shape(struct writer *w, const uint8_t *tensor, bool mki)
{
	uint64_t count = word_at(tensor, mki ? MKI_DIM_COUNT : ATB_DIM_COUNT), i;
	TEXT(text, 4 + MKI_DIMS_MAX * 21);

	if (count > (mki ? MKI_DIMS_MAX : ATB_DIMS_MAX))
		count = 0;
	add(&text, "[");
	for (i = 0; i < count; i++) {
		add_i64(&text, (int64_t)word_at(tensor, TENSOR_DIMS + 8 * i));
		add(&text, ",");
	}
	add(&text, "]");
	*text.at = '\0';
	return writer_text(w, text_room);
}

static void put_access(struct writer *w, uint32_t context, const struct moment *moment,
		       const uint8_t *tensor)
{
	bool mki = moment->tensors.mki;
	struct event_access event = {
		.address = word_at(tensor, mki ? MKI_ADDRESS : ATB_ADDRESS),
		.size_bytes = word_at(tensor, mki ? MKI_DATA_BYTES : ATB_DATA_BYTES),
		.kind = moment->kind == OPERATION_BEGINS ? ACCESS_UNKNOWN : ACCESS_WRITE,
		.layer = moment->layer,
	};
	int32_t dtype, format;

	if (event.address == 0)
		return; /* a tensor that is not there, or only in host memory */
	memcpy(&dtype, tensor + TENSOR_DTYPE, sizeof(dtype));
	memcpy(&format, tensor + TENSOR_FORMAT, sizeof(format));
	event.name = writer_text_part(w, moment->name, moment->name_bytes);
	event.dtype = put_dtype(w, dtype, mki);
	event.format = put_format(w, format, mki);
	event.shape = put_shape(w, tensor, mki);
	WRITER_PUT(w, access, context, &event);
}

/* ---- records ---- */

static void put_operation(struct writer *w, uint32_t context, const struct moment *moment)
{
	struct event_operation event = {
		.name = writer_text_part(w, moment->name, moment->name_bytes),
		.kind = moment->kind,
		.layer = moment->layer,
		.path = writer_text_once(w, PATH_SLOT, moment->path),
		.workspace = moment->workspace,
		.workspace_bytes = moment->workspace_bytes,
	};

	WRITER_PUT(w, operation, context, &event);
}

/*
 * Each tensor is recorded once: inputs when the work begins, outputs when it has ended. Inputs may be written too, which ATB does
 * not say. Outputs are recorded before the end, so that all accesses lie inside their operator.
 */
static void record(const struct moment *moment, uint32_t want)
{
	bool begins = moment->kind == OPERATION_BEGINS;
	size_t bytes = moment->tensors.mki ? MKI_TENSOR_BYTES : ATB_TENSOR_BYTES;
	uint32_t device = ascend_current_device(), context;
	struct writer *w = writer_enter_on();
	uint64_t i;

	if (w == NULL)
		return;
	context = ascend_context(w, device);
	if (begins)
		put_operation(w, context, moment);
	for (i = 0; i < moment->tensors.count && (want & WANT_ACCESSES); i++)
		put_access(w, context, moment, moment->tensors.first + i * bytes);
	if (!begins)
		put_operation(w, context, moment);
	writer_leave(w);
}

/* ---- operators ---- */

/*
 * A std::string that a function returns. The function builds it at an address that the caller passes, and a short text lies inside
 * it, so it must not be moved. As large as the larger of the two builds, so that C passes the same hidden pointer.
 */
struct cxx_string {
	const char *text;
	uint64_t rest[3];
};

typedef struct cxx_string get_string(const void *object);
typedef void drop_string(struct cxx_string *string);

struct runner_functions {
	get_string *name;
	get_string *path;
	drop_string *drop;
	void *(*stream)(const void *runner, void *context); /* NULL: there is none */
};

static struct runner_functions runner_functions;
static _Atomic uint32_t runner_functions_found; /* 1: they are there; 2: they are not */

/* Threads that come at the same time find the same. The library is loaded, since it called us. */
static const struct runner_functions *find_runner_functions(void)
{
	static const char *const names[][3] = {
		{"_ZNK3atb6Runner16GetOperationNameB5cxx11Ev",
		 "_ZNK3atb6Runner16GetSaveTensorDirB5cxx11Ev",
		 "_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEED1Ev"},
		{"_ZNK3atb6Runner16GetOperationNameEv", "_ZNK3atb6Runner16GetSaveTensorDirEv",
		 "_ZNSsD1Ev"},
	};
	uint32_t found = atomic_load_explicit(&runner_functions_found, memory_order_acquire);
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(names) && found == 0; i++) {
		void *name = lookup_symbol(names[i][0]), *path = lookup_symbol(names[i][1]),
		     *drop = lookup_symbol(names[i][2]);

		if (name == NULL || path == NULL || drop == NULL)
			continue;
		runner_functions.name = (get_string *)name;
		runner_functions.path = (get_string *)path;
		runner_functions.drop = (drop_string *)drop;
		name = lookup_symbol("_ZNK3atb6Runner16GetExecuteStreamEPNS_7ContextE");
		memcpy(&runner_functions.stream, &name, sizeof(name));
		found = 1;
	}
	if (found == 0)
		found = 2;
	atomic_store_explicit(&runner_functions_found, found, memory_order_release);
	return found == 1 ? &runner_functions : NULL;
}

static void record_operator(enum operation_kind kind, const char *name, const char *path,
			    const uint8_t *pack, uint32_t want)
{
	struct moment moment = {
		.kind = kind,
		.layer = LAYER_ATB,
		.name = name,
		.name_bytes = name == NULL ? 0 : strlen(name),
		.path = path,
		.workspace = word_at(pack, PACK_WORKSPACE),
		.workspace_bytes = word_at(pack, PACK_BYTES) + word_at(pack, PACK_INTERMEDIATE),
		.tensors =
			atb_tensors(pack + (kind == OPERATION_BEGINS ? PACK_INPUTS : PACK_OUTPUTS)),
	};

	record(&moment, want);
}

/* ---- watch ---- */

static uint32_t find_outputs(const struct tensors *tensors, struct watch_output *out, uint32_t room)
{
	size_t bytes = tensors->mki ? MKI_TENSOR_BYTES : ATB_TENSOR_BYTES;
	uint32_t i;

	for (i = 0; i < tensors->count && i < room; i++) {
		const uint8_t *tensor = tensors->first + i * bytes;

		out[i].address = word_at(tensor, tensors->mki ? MKI_ADDRESS : ATB_ADDRESS);
		out[i].bytes = word_at(tensor, tensors->mki ? MKI_DATA_BYTES : ATB_DATA_BYTES);
	}
	return i;
}

/* Out of line, so that the room for the outputs is on the stack only here: threads may have small stacks. */
MSCOPE_COLD static void watch_moment(struct watch_call *call, enum operation_kind kind,
				     const struct tensors *written)
{
	struct watch_output outputs[WATCH_RANGES];

	call->outputs = outputs;
	call->output_count = find_outputs(written, outputs, MSCOPE_COUNT(outputs));
	if (kind == OPERATION_BEGINS)
		call->number = watch_begin(call);
	else
		watch_end(call);
	call->outputs = NULL;
	call->output_count = 0;
}

/* The context that the pack has at `offset`; NULL when it has none there. May read behind the end of an older pack. */
static void *context_at(const uint8_t *pack, size_t offset, const void *library)
{
	void *context = NULL, *table = NULL;

	if (memory_read(&context, (uint64_t)(uintptr_t)pack + offset, sizeof(context)) !=
		    sizeof(context) ||
	    context == NULL || ((uintptr_t)context & 7) != 0 ||
	    memory_read(&table, (uint64_t)(uintptr_t)context, sizeof(table)) != sizeof(table))
		return NULL;
	return lookup_is_same_object(table, library) ? context : NULL;
}

static void find_stream(const struct runner_functions *functions, const void *runner,
			const uint8_t *pack, struct watch_call *call)
{
	void *context, *library;

	if (functions == NULL || functions->stream == NULL)
		return;
	memcpy(&library, &functions->stream, sizeof(library));
	context = context_at(pack, PACK_CONTEXT, library);
	if (context == NULL)
		context = context_at(pack, PACK_CONTEXT_OLD, library);
	if (context == NULL)
		return; /* then watch waits for all of the device */
	call->stream = functions->stream(runner, context);
	call->has_stream = true;
}

/* Runs the operator between its two records. `error` is errno as the program has it. */
static int32_t execute(hook__ZN3atb6Runner7ExecuteERNS_17RunnerVariantPackE *original, void *runner,
		       void *pack, const char *name, const char *path, uint32_t want, int *error)
{
	struct watch_call call = {.level = SESSION_LEVEL_OP,
				  .name = name,
				  .path = path != NULL && path[0] != '\0' ? path : NULL,
				  .vendor = VENDOR_ASCEND,
				  .frame = (uintptr_t)__builtin_frame_address(0)};
	struct tensors outputs;
	int32_t r;

	if (want & WANT_OPERATORS)
		record_operator(OPERATION_BEGINS, name, path, pack, want);
	if (want & WANT_WATCH) {
		call.device = ascend_current_device();
		find_stream(name == NULL ? NULL : &runner_functions, runner, pack, &call);
		outputs = atb_tensors((const uint8_t *)pack + PACK_OUTPUTS);
		watch_moment(&call, OPERATION_BEGINS, &outputs);
	}
	errno = *error;
	r = original(runner, pack);
	*error = errno;
	if (want & WANT_OPERATORS)
		record_operator(OPERATION_ENDED, name, path, pack, want);
	if (want & WANT_WATCH) {
		outputs = atb_tensors((const uint8_t *)pack + PACK_OUTPUTS);
		watch_moment(&call, OPERATION_ENDED, &outputs);
	}
	return r;
}

MSCOPE_EXPORT int32_t _ZN3atb6Runner7ExecuteERNS_17RunnerVariantPackE(void *runner, void *pack)
{
	hook__ZN3atb6Runner7ExecuteERNS_17RunnerVariantPackE *original =
		HOOK_ORIGINAL(_ZN3atb6Runner7ExecuteERNS_17RunnerVariantPackE);
	const struct runner_functions *functions;
	uint32_t want = wanted();
	int error = errno;
	int32_t r;

	if (original == NULL)
		return ATB_ERROR_INTERNAL;
	if (!(want & (WANT_OPERATORS | WANT_WATCH)) || runner == NULL || pack == NULL)
		return original(runner, pack);
	functions = find_runner_functions();
	if (functions == NULL) {
		r = execute(original, runner, pack, NULL, NULL, want, &error);
	} else {
		struct cxx_string name = functions->name(runner);
		struct cxx_string path = functions->path(runner);

		r = execute(original, runner, pack, name.text, path.text, want, &error);
		functions->drop(&path);
		functions->drop(&name);
	}
	errno = error;
	return r;
}

/* ---- kernels ---- */

typedef const uint8_t *get_tensors(const void *param);

static _Atomic(get_tensors *) get_inputs, get_outputs;

static struct tensors launch_tensors(const void *param, enum operation_kind kind)
{
	_Atomic(get_tensors *) *place = kind == OPERATION_BEGINS ? &get_inputs : &get_outputs;
	get_tensors *get = atomic_load_explicit(place, memory_order_acquire);

	if (get == NULL) {
		get = (get_tensors *)lookup_symbol(
			kind == OPERATION_BEGINS ? "_ZN3Mki11LaunchParam12GetInTensorsEv"
						 : "_ZN3Mki11LaunchParam13GetOutTensorsEv");
		atomic_store_explicit(place, get, memory_order_release);
	}
	return mki_tensors(get == NULL ? NULL : get(param));
}

/* Reads the moment and the kernel's name from a directory. False: it is not of a kernel. */
static bool parse_path(const char *path, struct moment *out)
{
	size_t length = path == NULL ? 0 : strlen(path), end, start;
	static const char before[] = "/before", after[] = "/after";

	if (length > strlen(before) && strcmp(path + length - strlen(before), before) == 0) {
		out->kind = OPERATION_BEGINS;
		end = length - strlen(before);
	} else if (length > strlen(after) && strcmp(path + length - strlen(after), after) == 0) {
		out->kind = OPERATION_ENDED;
		end = length - strlen(after);
	} else {
		return false;
	}
	for (start = end; start > 0 && path[start - 1] != '/'; start--)
		;
	out->path = path;
	out->name = path + start;
	out->name_bytes = end - start;
	return true;
}

/* True when the program itself, or another tool in it, wants this saved: then ATB would have called without us. */
static bool program_saves(const struct moment *moment)
{
	hook__ZN3atb5Probe18IsSaveTensorBeforeEv *before =
		HOOK_ORIGINAL(_ZN3atb5Probe18IsSaveTensorBeforeEv);
	hook__ZN3atb5Probe17IsSaveTensorAfterEv *after =
		HOOK_ORIGINAL(_ZN3atb5Probe17IsSaveTensorAfterEv);

	if (moment->kind == OPERATION_BEGINS)
		return before == NULL || before();
	return after == NULL || after();
}

/* The path without "/before" and "/after", which ends with the kernel's name. */
static void watch_kernel(const struct moment *moment, void *stream, const struct tensors *written)
{
	char path[1024];
	size_t end = (size_t)(moment->name - moment->path) + moment->name_bytes;
	struct watch_call call = {.level = SESSION_LEVEL_KERNEL,
				  .device = ascend_current_device(),
				  .vendor = VENDOR_ASCEND,
				  .stream = stream,
				  .has_stream = true};

	if (end >= sizeof(path))
		return;
	memcpy(path, moment->path, end);
	path[end] = '\0';
	call.path = path;
	call.name = path + (moment->name - moment->path);
	call.opaque = written->count == 0;
	watch_moment(&call, moment->kind, written);
}

/*
 * ATB calls this because of our own answers to the probes, so nothing is saved while we record. A call that comes when recording
 * has just ended is still ours, unless the program's own probes say otherwise.
 */
static void
save_launch_param(hook__ZN3atb9StoreUtil15SaveLaunchParamEPvRKN3Mki11LaunchParamERKSs *original,
		  void *stream, const void *param, const void *path)
{
	struct moment moment = {.layer = LAYER_ATB_KERNEL};
	struct tensors written;
	uint32_t want = wanted();
	int saved_errno = errno;
	const char *text;
	bool known;

	memcpy(&text, path, sizeof(text));
	known = parse_path(text, &moment);
	if (want & (WANT_KERNELS | WANT_WATCH_KERNELS)) {
		if (known)
			moment.tensors = launch_tensors(param, moment.kind);
		if (known && (want & WANT_KERNELS))
			record(&moment, want);
		if (known && (want & WANT_WATCH_KERNELS)) {
			written = launch_tensors(param, OPERATION_ENDED);
			watch_kernel(&moment, stream, &written);
		}
	} else if (original != NULL && (!known || program_saves(&moment))) {
		errno = saved_errno;
		original(stream, param, path);
		return;
	}
	errno = saved_errno;
}

MSCOPE_EXPORT void _ZN3atb9StoreUtil15SaveLaunchParamEPvRKN3Mki11LaunchParamERKSs(void *stream,
										  const void *param,
										  const void *path)
{
	save_launch_param(
		HOOK_ORIGINAL(_ZN3atb9StoreUtil15SaveLaunchParamEPvRKN3Mki11LaunchParamERKSs),
		stream, param, path);
}

MSCOPE_EXPORT void
_ZN3atb9StoreUtil15SaveLaunchParamEPvRKN3Mki11LaunchParamERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE(
	void *stream, const void *param, const void *path)
{
	save_launch_param(
		HOOK_ORIGINAL(
			_ZN3atb9StoreUtil15SaveLaunchParamEPvRKN3Mki11LaunchParamERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE),
		stream, param, path);
}

/* ---- probes ---- */

/* Answers `answer` while one of the bits `when` is wanted; else as the original does, or no if there is none. */
#define PROBE(name, when, answer, parameters, arguments)                                           \
	MSCOPE_EXPORT bool name parameters                                                         \
	{                                                                                          \
		hook_##name *original;                                                             \
                                                                                                   \
		if (wanted() & (when))                                                             \
			return answer;                                                             \
		original = HOOK_ORIGINAL(name);                                                    \
		return original != NULL && original arguments;                                     \
	}

/* This one alone makes ATB keep the place of each operator. */
PROBE(_ZN3atb5Probe16IsSaveTensorDescEv, WANT_OPERATORS | WANT_KERNELS | WANT_WATCH, true, (void),
      ())
PROBE(_ZN3atb5Probe18IsSaveTensorBeforeEv, WANT_KERNELS | WANT_WATCH_KERNELS, true, (void), ())
PROBE(_ZN3atb5Probe17IsSaveTensorAfterEv, WANT_KERNELS | WANT_WATCH_KERNELS, true, (void), ())
PROBE(_ZN3atb5Probe21IsExecuteCountInRangeEm, WANT_KERNELS | WANT_WATCH_KERNELS, true,
      (uint64_t count), (count))
PROBE(_ZN3atb5Probe16IsTensorNeedSaveERKSt6vectorIlSaIlEERKSs, WANT_KERNELS | WANT_WATCH_KERNELS,
      true, (const void *ids, const void *type), (ids, type))
PROBE(_ZN3atb5Probe16IsTensorNeedSaveERKSt6vectorIlSaIlEERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE,
      WANT_KERNELS | WANT_WATCH_KERNELS, true, (const void *ids, const void *type), (ids, type))
/* ATB derives it from the others; yes would save the tensors of operators. */
PROBE(_ZNK3atb6Runner12IsSaveTensorEv, WANT_KERNELS | WANT_WATCH_KERNELS, false,
      (const void *runner), (runner))
