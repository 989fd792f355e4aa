/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Python trace: every call and return of a Python function, and of C functions called from Python, as `call` records.
 *
 * The interpreter calls on_event() as its profile function of a thread. Which threads have it:
 *
 *     - the one that starts the tracing, and all that the interpreter knows then;
 *     - those that the module threading starts later: a hook of that module, set by the package, calls mscope_trace_thread().
 *
 * From 3.12 on sys.monitoring calls us instead, in all threads, with the code object and without a frame object: a third of the time.
 * The package registers our callbacks there and takes them away; it uses the profile function when no tool id is free.
 *
 * Other profilers come first: a thread that has a profile function keeps it, and a thread that gets another one later is no longer
 * traced. When tracing is stopped, other threads find the generation changed at their next event.
 *
 * Before a thread's first event, the functions that are open then are recorded, outermost first. Functions of our own package are
 * left out (writer_code() gives them no number), with the C functions that they call, and so is all inside __torch_dispatch__. Imports
 * of the standard library and of site-packages are left out unless they are asked for: `import torch` alone makes a million calls.
 *
 * Budget per event: about 110 instructions, with the time (near_clock.h), a dozen stores, the fingerprint of a code object or of a C function.
 * A function that is known, entered or left by a thread that has begun, takes a path of its own (the near_ functions), which writes a record
 * of one word; all else goes through take_event(). Python objects are made only for the first text of a C function and for calls of
 * torch modules.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "collector/api.h"
#include "collector/loader/lookup.h"
#include "collector/memory.h"
#include "collector/python/boot.h"
#include "collector/python/call_records.h"
#include "collector/record/codes.h"

/* What the interpreter tells a profile function; the same in every version. */
enum py_event {
	PY_CALL = 0,
	PY_RETURN = 3,
	PY_C_CALL = 4,
	PY_C_EXCEPTION = 5,
	PY_C_RETURN = 6,
};

typedef int profile_function(struct py_object *self, struct py_object *frame, int what,
			     struct py_object *arg);

/* Functions of the interpreter. The last ones are not in every version. */
#define FUNCTIONS(X)                                                                               \
	X(PyEval_SetProfile, void, (profile_function *, struct py_object *))                       \
	X(PyFrame_GetCode, struct py_object *, (struct py_object *))                               \
	X(Py_DecRef, void, (struct py_object *))                                                   \
	X(PyErr_Clear, void, (void))                                                               \
	X(PyEval_GetFrame, struct py_object *, (void))                                             \
	X(PyLong_AsLong, long, (struct py_object *))                                               \
	X(PyObject_Repr, struct py_object *, (struct py_object *))                                 \
	X(PyObject_Type, struct py_object *, (struct py_object *))                                 \
	X(PyObject_GetAttrString, struct py_object *, (struct py_object *, const char *))          \
	X(PyMapping_GetItemString, struct py_object *, (struct py_object *, const char *))         \
	X(PyUnicode_AsUTF8, const char *, (struct py_object *))                                    \
	X(PySys_GetObject, struct py_object *, (const char *))                                     \
	X(PyObject_CallObject, struct py_object *, (struct py_object *, struct py_object *))       \
	X(PyThreadState_Get, struct py_thread *, (void))                                           \
	X(PyThreadState_Swap, struct py_thread *, (struct py_thread *))                            \
	X(PyThreadState_Next, struct py_thread *, (struct py_thread *))                            \
	X(PyInterpreterState_Get, struct py_interpreter *, (void))                                 \
	X(PyInterpreterState_ThreadHead, struct py_thread *, (struct py_interpreter *))
#define OPTIONAL(X)                                                                                \
	X(PyCFunction_NewEx, struct py_object *,                                                   \
	  (const struct method_def *, struct py_object *, struct py_object *))                     \
	X(PyFrame_GetLasti, int, (struct py_object *))                                             \
	X(PyEval_SetProfileAllThreads, void, (profile_function *, struct py_object *))

/* PyMethodDef */
struct method_def {
	const char *name;
	void *function;
	int flags;
	const char *text;
};

struct py_thread;      /* PyThreadState */
struct py_interpreter; /* PyInterpreterState */

static struct {
	/* Of the tracing that is on, 0: none. Read by each event without a lock; changed with the interpreter's lock held. */
	_Atomic uint32_t generation;
	uint32_t last_generation;
	bool found;		     /* the functions below */
	bool monitored;		     /* by sys.monitoring, else by the profile function */
	bool frames_known;	     /* what read_code() does is right */
	bool untold, told;	     /* imports were left out; a note says so */
	bool imports;		     /* imports of libraries are recorded */
	char libraries[1024];	     /* directory of the standard library, ends in a slash */
	const void *module_call;     /* code of torch.nn.Module.__call__, NULL: unknown */
	const void *function_type;   /* PyCFunction_Type */
	const void *method_type;     /* PyCMethod_Type, the same layout and more */
	const void *descriptor_type; /* PyMethodDescr_Type */
	const void *object_type;     /* PyBaseObject_Type */
	struct py_object *none;
#define X(name, return_type, parameters) return_type(*name) parameters;
	FUNCTIONS(X)
	OPTIONAL(X)
#undef X
} trace;

/* What is known of a function. */
enum code_class {
	CODE_UNKNOWN = 0,
	CODE_PLAIN = 1,
	CODE_DISPATCH = 2, /* a __torch_dispatch__ */
	CODE_IMPORTER = 3, /* of the import system */
	CODE_LIBRARY = 4,  /* module level of the standard library or of site-packages */
};

/* The frame keeps it alive, so the reference that the interpreter hands out is dropped at once. */
static const void *asked_code(struct py_object *frame)
{
	struct py_object *code = trace.PyFrame_GetCode(frame);

	trace.Py_DecRef(code);
	return code;
}

/* From 3.11 on the frame object has a pointer to the frame itself, after the pointer to the next one outwards. */
MSCOPE_INLINE const void *read_code(const void *frame)
{
	const void *inner = interp_pointer(frame, interp.at.object_type + 16u);

	return (const void *)((uintptr_t)interp_pointer(inner, interp.at.frame_code) &
			      ~interp.at.code_tag);
}

MSCOPE_INLINE const void *frame_code(struct py_object *frame)
{
	if (MSCOPE_LIKELY(trace.frames_known))
		return read_code(frame);
	/* Before 3.11 the frame is the object itself. */
	return interp.at.minor < 11 ? interp_pointer(frame, interp.at.frame_code)
				    : asked_code(frame);
}

/* Tries read_code() on the frame that starts the tracing. */
static bool try_frames(void)
{
	struct py_object *frame = interp.at.minor < 11 ? NULL : trace.PyEval_GetFrame();
	const char *inner;

	if (frame == NULL || !memory_readable(frame, interp.at.object_type + 24u))
		return false;
	inner = interp_pointer(frame, interp.at.object_type + 16u);
	return memory_readable(inner + interp.at.frame_code, sizeof(void *)) &&
	       read_code(frame) == asked_code(frame);
}

/* Byte offset of what the frame does now. */
static uint32_t frame_offset(struct py_object *frame)
{
	int at;

	if (trace.PyFrame_GetLasti != NULL) {
		at = trace.PyFrame_GetLasti(frame);
		return at < 0 ? NOT_BEGUN : (uint32_t)at;
	}
	/* 3.10 counts instructions of two bytes. */
	at = interp_i32(frame, interp.at.frame_instruction);
	return at < 0 ? NOT_BEGUN : (uint32_t)at * (interp.at.minor == 10 ? 2 : 1);
}

/* From 3.11 on the name has the class in front. */
static bool is_dispatch(const void *code)
{
	static const char method[] = "__torch_dispatch__";
	const int length = (int)sizeof(method) - 1;
	char name[256];
	int bytes = interp_text(interp_pointer(code, interp.at.code_name), name, sizeof(name));

	return bytes >= length && memcmp(name + bytes - length, method, (size_t)length) == 0 &&
	       (bytes == length || name[bytes - length - 1] == '.');
}

/* Modules that the interpreter carries in itself are of its library. */
static bool is_of_library(const char *file)
{
	return strstr(file, "/site-packages/") != NULL || strstr(file, "/dist-packages/") != NULL ||
	       strncmp(file, "<frozen ", strlen("<frozen ")) == 0 ||
	       strncmp(file, trace.libraries, strlen(trace.libraries)) == 0;
}

static MSCOPE_COLD enum code_class find_class(const void *code)
{
	static const char importer[] = "<frozen importlib._bootstrap";
	char file[4096], name[16];
	int bytes;

	if (is_dispatch(code))
		return CODE_DISPATCH;
	bytes = interp_text(interp_pointer(code, interp.at.code_file), file, sizeof(file) - 1);
	if (trace.libraries[0] == '\0' || bytes < 0)
		return CODE_PLAIN;
	file[bytes] = '\0';
	if (strncmp(file, importer, sizeof(importer) - 1) == 0)
		return CODE_IMPORTER;
	bytes = interp_text(interp_pointer(code, interp.at.code_name), name, sizeof(name));
	return bytes == 8 && memcmp(name, "<module>", 8) == 0 && is_of_library(file) ? CODE_LIBRARY
										     : CODE_PLAIN;
}

/* `slot`: NULL where there is none. */
MSCOPE_INLINE enum code_class class_of(struct code_slot *slot, const void *code)
{
	enum code_class class;

	if (MSCOPE_LIKELY(slot != NULL && slot->class != CODE_UNKNOWN))
		return (enum code_class)slot->class;
	/* Functions of our own have no number; they are not imported by others. */
	class = slot != NULL && slot->id != 0 ? find_class(code)
		: is_dispatch(code)	      ? CODE_DISPATCH
					      : CODE_PLAIN;
	if (slot != NULL)
		slot->class = (uint16_t) class;
	return class;
}

/* ---- the first event of a thread ---- */

/* This frame or the next one outwards that is a function's, and its code; NULL at the end. */
static const void *outer_frame(const void *frame, const void **out_code)
{
	const struct interp_layout *at = &interp.at;

	while (frame != NULL && at->owner_shim != 0 &&
	       ((const uint8_t *)frame)[at->frame_owner] >= at->owner_shim)
		frame = interp_pointer(frame, at->frame_previous);
	if (frame != NULL)
		*out_code = (const void *)((uintptr_t)interp_pointer(frame, at->frame_code) &
					   ~at->code_tag);
	return frame;
}

static const void *innermost_frame(void)
{
	const void *thread_state = interp.thread_state(), *frame;

	if (thread_state == NULL)
		return NULL;
	frame = interp_pointer(thread_state, interp.at.thread_frame);
	if (frame != NULL && interp.at.frame_indirect)
		frame = interp_pointer(frame, interp.at.indirect_frame);
	return frame;
}

/* Records what is open on this thread; with `entered` without the innermost function, whose own record comes next. */
static MSCOPE_COLD void begin(struct writer *w, uint32_t generation, bool entered)
{
	const void *code, *frame;
	size_t depth = 0, bytes, i = 0;
	uint32_t *ids;

	if (w->calls == NULL) {
		void *p = mmap(NULL, sizeof(*w->calls), PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (p == MAP_FAILED)
			return;
		w->calls = p;
	}
	w->calls_generation = generation;
	w->calls_left_out = 0;
	w->calls->depth = 0;
	/* Ends what an earlier tracing left open: another profiler may have ended that tracing. */
	put_call(w, CALL_STOP, 0, NOT_BEGUN);
	for (frame = outer_frame(innermost_frame(), &code); frame != NULL;
	     frame = outer_frame(interp_pointer(frame, interp.at.frame_previous), &code))
		depth++;
	if (depth == 0)
		return;
	bytes = depth * sizeof(*ids);
	ids = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if ((void *)ids == MAP_FAILED)
		return;
	for (frame = outer_frame(innermost_frame(), &code); frame != NULL && i < depth;
	     frame = outer_frame(interp_pointer(frame, interp.at.frame_previous), &code)) {
		ids[i] = writer_code(w, code);
		if (entered && ids[i] != 0) {
			ids[i] = 0;
			entered = false;
		}
		i++;
	}
	while (depth-- > 0) {
		if (ids[depth] != 0)
			put_call(w, CALL_OPEN_AT_START, ids[depth], NOT_BEGUN);
	}
	(void)munmap(ids, bytes);
}

/* ---- texts that the interpreter makes ---- */

/*
 * "<built-in method append of list object at 0x7f...>" without the address: one text for each function, however many objects it is
 * called on.
 */
static MSCOPE_COLD void text_of(struct py_object *function, char *out, size_t bytes)
{
	struct py_object *repr = trace.PyObject_Repr(function);
	const char *text = repr == NULL ? NULL : trace.PyUnicode_AsUTF8(repr), *place;
	size_t length;

	if (text == NULL) {
		trace.PyErr_Clear();
		text = "<built-in function>";
	}
	length = strlen(text);
	place = strstr(text, " object at 0x");
	if (place != NULL && text[length - 1] == '>')
		length = (size_t)(place - text) + strlen(" object");
	else
		place = NULL;
	if (length > bytes - 2)
		length = bytes - 2;
	memcpy(out, text, length);
	if (place != NULL)
		out[length++] = '>';
	out[length] = '\0';
	trace.Py_DecRef(repr);
}

static struct c_function *function_slot(struct writer *w, const struct c_function *key)
{
	uint64_t hash = ((uintptr_t)key->definition ^ (uintptr_t)key->type >> 3) *
			UINT64_C(0x9e3779b97f4a7c15);

	return &w->calls->functions[hash >> 40 & (C_FUNCTIONS - 1)];
}

/* A C function, and where it is called. */
struct c_call {
	struct py_object *function;
	struct py_object *self; /* of a method descriptor; NULL: the function has it */
	uint32_t offset;
};

/* What the text of a C function hangs on; false: its text is made each time. */
MSCOPE_INLINE bool function_key(const struct c_call *call, struct c_function *key)
{
	/* After the head, which ends with the type. */
	const uint32_t body = interp.at.object_type + 8u;
	const void *self = call->self;

	/* PyMethodDescrObject has its definition in the fourth word, PyCFunctionObject has it and its object first. */
	if (self != NULL) {
		key->definition = interp_pointer(call->function, body + 24);
	} else {
		const void *type = interp_pointer(call->function, interp.at.object_type);

		if (MSCOPE_UNLIKELY(type != trace.function_type && type != trace.method_type))
			return false;
		key->definition = interp_pointer(call->function, body);
		self = interp_pointer(call->function, body + 8);
	}
	key->name = interp_pointer(key->definition, 0);
	key->type = self == NULL ? NULL : interp_pointer(self, interp.at.object_type);
	return true;
}

/* Text number of a C function that has one; 0: none yet. */
MSCOPE_INLINE uint32_t known_text(struct writer *w, const struct c_function *key)
{
	const struct c_function *slot = function_slot(w, key);

	return MSCOPE_LIKELY(slot->definition == key->definition && slot->name == key->name &&
			     slot->type == key->type)
		       ? slot->text
		       : 0;
}

/* The same for each. The writer is left while the interpreter makes the text, which may run any code. */
static uint32_t c_function_text(struct writer **w, const struct c_call *call)
{
	struct c_function key = {0}, *slot;
	const uint32_t body = interp.at.object_type + 8u;
	bool kept = function_key(call, &key);
	uint32_t known = kept ? known_text(*w, &key) : 0;
	char text[512];

	if (known != 0)
		return known;
	writer_leave(*w);
	if (call->self !=
	    NULL) /* as the bound method shows itself; the name of a type follows its size */
		(void)snprintf(text, sizeof(text), "<built-in method %s of %s object>",
			       (const char *)key.name,
			       (const char *)interp_pointer(key.type, body + 8));
	else
		text_of(call->function, text, sizeof(text));
	*w = writer_enter();
	if (*w == NULL || (*w)->calls == NULL)
		return 0;
	if (!kept)
		return writer_text(*w, text);
	slot = function_slot(*w, &key);
	*slot = (struct c_function){0};
	key.text = writer_text_owned(*w, (uint32_t)(slot - (*w)->calls->functions), text);
	if (key.text != 0)
		*slot = key;
	return key.text;
}

/* "nn.Module: Linear" for a call of torch.nn.Module.__call__; false when the frame has no such object. */
static MSCOPE_COLD bool module_text(struct py_object *frame, char *out, size_t bytes)
{
	struct py_object *locals = trace.PyObject_GetAttrString(frame, "f_locals");
	struct py_object *self =
		locals == NULL ? NULL : trace.PyMapping_GetItemString(locals, "self");
	struct py_object *type = self == NULL ? NULL : trace.PyObject_Type(self);
	struct py_object *name =
		type == NULL ? NULL : trace.PyObject_GetAttrString(type, "__name__");
	const char *text = name == NULL ? NULL : trace.PyUnicode_AsUTF8(name);

	if (text != NULL)
		(void)snprintf(out, bytes, "nn.Module: %s", text);
	else
		trace.PyErr_Clear();
	trace.Py_DecRef(name);
	trace.Py_DecRef(type);
	trace.Py_DecRef(self);
	trace.Py_DecRef(locals);
	return text != NULL;
}

/* ---- events ---- */

/* Whether the import system runs the module level of a library; a script of one that is the program itself is no import. */
static bool is_import(const struct call_state *calls, enum code_class class)
{
	return class == CODE_LIBRARY && calls->depth > 0 && calls->depth <= DEPTH &&
	       calls->entered[calls->depth - 1].imports;
}

static void on_call(struct writer *w, const void *code, const char *module)
{
	struct code_slot *slot;
	enum code_class class;
	uint32_t id;

	if (w->calls_left_out > 0) {
		w->calls_left_out++;
		return;
	}
	slot = writer_code_slot(w, code);
	id = slot == NULL ? 0 : slot->id;
	class = class_of(slot, code);
	if (MSCOPE_UNLIKELY(class >= CODE_IMPORTER) && trace.imports)
		class = CODE_PLAIN;
	if (MSCOPE_UNLIKELY(class == CODE_IMPORTER)) {
		remember(w->calls, code, 0, true);
		return;
	}
	if (MSCOPE_UNLIKELY(is_import(w->calls, class))) {
		remember(w->calls, code, 0, false);
		w->calls_left_out = 1;
		if (!trace.told)
			trace.untold = true;
		return;
	}
	remember(w->calls, code, id, false);
	if (MSCOPE_UNLIKELY(module != NULL))
		put_call(w, CALL_MODULE_ENTER, writer_text(w, module), id);
	else if (id != 0)
		put_function(w, CALL_ENTER, id);
	w->calls_left_out = class == CODE_DISPATCH;
}

static void on_return(struct writer *w, const void *code)
{
	uint32_t id;

	if (w->calls_left_out > 0 && --w->calls_left_out > 0)
		return;
	id = innermost_id(w, code);
	forget(w->calls);
	if (id != 0)
		put_function(w, CALL_LEAVE, id);
}

static void on_c(struct writer **w, const void *code, int what, const struct c_call *call)
{
	uint32_t text;

	if ((*w)->calls_left_out > 0 || innermost_id(*w, code) == 0)
		return;
	if (what != PY_C_CALL) {
		put_short(*w, CALL_C_LEAVE, 0);
		return;
	}
	text = c_function_text(w, call);
	if (*w != NULL && (*w)->calls != NULL)
		put_c(*w, text, call->offset);
}

/* Tracing was stopped by another thread. */
static MSCOPE_COLD void end_here(void)
{
	struct writer *w = writer_enter();

	trace.PyEval_SetProfile(NULL, NULL);
	if (w == NULL)
		return;
	if (w->calls_generation != 0)
		put_call(w, CALL_STOP, 0, NOT_BEGUN);
	w->calls_generation = 0;
	writer_leave(w);
}

static MSCOPE_COLD void tell_imports(void)
{
	trace.untold = false;
	trace.told = true;
	mscope_note(
		"imports of the standard library and of site-packages are left out of the Python trace; tracer.start(imports=True) or MSMEMSCOPE_TRACE_IMPORTS=1 records them");
}

/* A call of torch.nn.Module.__call__, which the frame has the module of. */
static MSCOPE_COLD void on_module_call(const void *code, uint32_t generation)
{
	char name[160];
	bool named = module_text(trace.PyEval_GetFrame(), name, sizeof(name));
	struct writer *w = writer_enter();

	if (w == NULL)
		return;
	if (w->calls_generation != generation)
		begin(w, generation, writer_code(w, code) != 0);
	if (w->calls != NULL)
		on_call(w, code, named ? name : NULL);
	writer_leave(w);
}

static __attribute__((noinline)) void take_event(int what, const void *code,
						 const struct c_call *call)
{
	uint32_t generation = atomic_load_explicit(&trace.generation, memory_order_relaxed);
	struct writer *w;

	w = writer_enter();
	if (MSCOPE_UNLIKELY(w == NULL))
		return;
	if (MSCOPE_UNLIKELY(w->calls_generation != generation))
		begin(w, generation, what == PY_CALL && writer_code(w, code) != 0);
	if (w->calls == NULL)
		; /* no memory for it */
	else if (what == PY_CALL)
		on_call(w, code, NULL);
	else if (what == PY_RETURN)
		on_return(w, code);
	else
		on_c(&w, code, what, call);
	if (w != NULL)
		writer_leave(w);
	if (what == PY_CALL && MSCOPE_UNLIKELY(trace.untold))
		tell_imports();
}

/* ---- events of functions that are known ---- */

static struct writer *nobody(void)
{
	return NULL;
}

/* The writer of a thread that has begun and leaves nothing out; entered. NULL: take_event() knows what to do. */
MSCOPE_INLINE struct writer *near_enter(uint32_t generation)
{
	struct writer *w = collector_writer;

	if (MSCOPE_UNLIKELY(w <= WRITER_GONE || w->calls_generation != generation ||
			    w->calls_left_out != 0))
		return NULL;
	return writer_enter_or(nobody);
}

/* It is the thread's own. */
MSCOPE_INLINE void near_leave(struct writer *w)
{
	atomic_signal_fence(memory_order_seq_cst);
	w->entered = 0;
}

MSCOPE_INLINE void near_call(uint32_t generation, const void *code)
{
	struct writer *w = near_enter(generation);
	const struct code_slot *slot;
	struct call_state *calls;

	if (MSCOPE_UNLIKELY(w == NULL))
		goto other;
	calls = w->calls;
	slot = writer_code_near(w, code);
	if (MSCOPE_UNLIKELY(slot == NULL || slot->class != CODE_PLAIN || !is_short(slot->id) ||
			    calls->depth >= DEPTH)) {
		near_leave(w);
		goto other;
	}
	calls->entered[calls->depth++] = (struct entered){.code = code, .id = slot->id};
	put_short(w, CALL_ENTER, slot->id);
	near_leave(w);
	return;
other:
	take_event(PY_CALL, code, NULL);
}

MSCOPE_INLINE void near_return(uint32_t generation, const void *code)
{
	struct writer *w = near_enter(generation);
	const struct entered *entered = MSCOPE_LIKELY(w != NULL) ? near_innermost(w, code) : NULL;

	if (MSCOPE_LIKELY(entered != NULL)) {
		w->calls->depth--;
		put_short(w, CALL_LEAVE, entered->id);
	}
	if (MSCOPE_LIKELY(w != NULL))
		near_leave(w);
	if (MSCOPE_UNLIKELY(entered == NULL))
		take_event(PY_RETURN, code, NULL);
}

/* Whether that is all. */
MSCOPE_INLINE bool near_put_c(struct writer *w, int what, const void *code,
			      const struct c_call *call)
{
	struct c_function key;
	uint32_t text;

	if (MSCOPE_UNLIKELY(near_innermost(w, code) == NULL))
		return false;
	if (what != PY_C_CALL) {
		put_short(w, CALL_C_LEAVE, 0);
		return true;
	}
	text = MSCOPE_LIKELY(function_key(call, &key)) ? known_text(w, &key) : 0;
	if (MSCOPE_UNLIKELY(text == 0))
		return false;
	put_c(w, text, call->offset);
	return true;
}

MSCOPE_INLINE void near_c(uint32_t generation, int what, const void *code,
			  const struct c_call *call)
{
	struct writer *w = near_enter(generation);
	bool taken = false;

	if (MSCOPE_LIKELY(w != NULL)) {
		taken = near_put_c(w, what, code, call);
		near_leave(w);
	}
	if (MSCOPE_UNLIKELY(!taken))
		take_event(what, code, call);
}

static int on_event(struct py_object *self, struct py_object *frame, int what,
		    struct py_object *arg)
{
	uint32_t generation = atomic_load_explicit(&trace.generation, memory_order_relaxed);
	struct c_call call = {.function = arg};
	const void *code;

	(void)self;
	if (MSCOPE_UNLIKELY(generation == 0)) {
		end_here();
		return 0;
	}
	if (MSCOPE_UNLIKELY(what != PY_CALL && (what < PY_RETURN || what > PY_C_RETURN)))
		return 0;
	code = frame_code(frame);
	switch (what) {
	case PY_CALL:
		if (MSCOPE_UNLIKELY(code == trace.module_call))
			on_module_call(code, generation);
		else
			near_call(generation, code);
		break;
	case PY_RETURN:
		near_return(generation, code);
		break;
	case PY_C_CALL:
		call.offset = frame_offset(frame);
		near_c(generation, PY_C_CALL, code, &call);
		break;
	default:
		near_c(generation, PY_C_RETURN, code, &call);
		break;
	}
	return 0;
}

/* ---- sys.monitoring ---- */

/*
 * Arguments are (code, offset, ...), of a call (code, offset, function, first argument). What is returned is None, which never dies
 * from 3.12 on.
 */
typedef struct py_object *callback(struct py_object *self, struct py_object *const *args,
				   intptr_t count);

MSCOPE_INLINE uint32_t generation_now(void)
{
	return atomic_load_explicit(&trace.generation, memory_order_relaxed);
}

static struct py_object *on_enter(struct py_object *self, struct py_object *const *args,
				  intptr_t count)
{
	uint32_t generation = generation_now();

	(void)self;
	if (MSCOPE_UNLIKELY(generation == 0 || count < 1))
		;
	else if (MSCOPE_UNLIKELY(args[0] == trace.module_call))
		on_module_call(args[0], generation);
	else
		near_call(generation, args[0]);
	return trace.none;
}

static struct py_object *on_leave(struct py_object *self, struct py_object *const *args,
				  intptr_t count)
{
	uint32_t generation = generation_now();

	(void)self;
	if (MSCOPE_LIKELY(generation != 0 && count > 0))
		near_return(generation, args[0]);
	return trace.none;
}

/* Of all that can be called, C functions and methods, as the profile function is told. */
MSCOPE_INLINE void take_c(int what, struct py_object *const *args, intptr_t count)
{
	uint32_t generation = generation_now();
	struct c_call call = {0};
	const void *type;

	if (generation == 0 || count < 3)
		return;
	call.function = args[2];
	type = interp_pointer(args[2], interp.at.object_type);
	if (type == trace.descriptor_type) {
		/* Without an argument, that is a bare object. */
		if (count < 4 ||
		    interp_pointer(args[3], interp.at.object_type) == trace.object_type)
			return;
		call.self = args[3];
	} else if (type != trace.function_type && type != trace.method_type) {
		return;
	}
	if (what == PY_C_CALL)
		call.offset = (uint32_t)trace.PyLong_AsLong(args[1]);
	near_c(generation, what, args[0], &call);
}

static struct py_object *on_c_enter(struct py_object *self, struct py_object *const *args,
				    intptr_t count)
{
	(void)self;
	take_c(PY_C_CALL, args, count);
	return trace.none;
}

static struct py_object *on_c_leave(struct py_object *self, struct py_object *const *args,
				    intptr_t count)
{
	(void)self;
	take_c(PY_C_RETURN, args, count);
	return trace.none;
}

/* ---- beginning and ending ---- */

static bool find_functions(void)
{
#define X(name, return_type, parameters)                                                           \
	trace.name = (return_type(*) parameters)lookup_symbol(#name);                              \
	if (trace.name == NULL)                                                                    \
		return false;
	FUNCTIONS(X)
#undef X
#define X(name, return_type, parameters)                                                           \
	trace.name = (return_type(*) parameters)lookup_symbol(#name);
	OPTIONAL(X)
#undef X
	trace.function_type = lookup_symbol("PyCFunction_Type");
	trace.method_type = lookup_symbol("PyCMethod_Type");
	trace.descriptor_type = lookup_symbol("PyMethodDescr_Type");
	trace.object_type = lookup_symbol("PyBaseObject_Type");
	trace.none = lookup_symbol("_Py_NoneStruct");
	return trace.function_type != NULL && trace.none != NULL;
}

/* True when the present thread state has a profile function that is not ours. Ours has no object and shows as None. */
static bool is_profiled(void)
{
	struct py_object *get = trace.PySys_GetObject("getprofile");
	struct py_object *now = get == NULL ? NULL : trace.PyObject_CallObject(get, NULL);
	bool other = now != NULL && (const void *)now != trace.none;

	if (now == NULL)
		trace.PyErr_Clear();
	trace.Py_DecRef(now);
	return other;
}

/*
 * Threads that run already. From 3.12 on the interpreter has a function for it, which also replaces the profilers of others.
 * Before, each thread state is made the present one for a moment; we hold the interpreter's lock, so its own thread does not run
 * Python.
 */
static void set_others(void)
{
	struct py_thread *own = trace.PyThreadState_Get(), *thread;

	if (trace.PyEval_SetProfileAllThreads != NULL) {
		trace.PyEval_SetProfileAllThreads(on_event, NULL);
		return;
	}
	for (thread = trace.PyInterpreterState_ThreadHead(trace.PyInterpreterState_Get());
	     thread != NULL; thread = trace.PyThreadState_Next(thread)) {
		if (thread == own)
			continue;
		(void)trace.PyThreadState_Swap(thread);
		if (!is_profiled())
			trace.PyEval_SetProfile(on_event, NULL);
		(void)trace.PyThreadState_Swap(own);
	}
}

MSCOPE_EXPORT void *mscope_trace_callback(uint32_t which)
{
#define FAST_CALL 0x80 /* METH_FASTCALL */
	static callback *const functions[] = {[TRACE_ON_ENTER] = on_enter,
					      [TRACE_ON_LEAVE] = on_leave,
					      [TRACE_ON_C_ENTER] = on_c_enter,
					      [TRACE_ON_C_LEAVE] = on_c_leave};
	static struct method_def definitions[MSCOPE_COUNT(functions)];
	struct py_object *made = NULL;

	if (!trace.found)
		trace.found = find_functions();
	if (!trace.found)
		return lookup_symbol("_Py_NoneStruct");
	if (which < MSCOPE_COUNT(functions) && trace.PyCFunction_NewEx != NULL &&
	    interp_verify_slow(NULL)) {
		definitions[which] =
			(struct method_def){.name = "msmemscope", .flags = FAST_CALL, .text = ""};
		memcpy(&definitions[which].function, &functions[which], sizeof(void *));
		made = trace.PyCFunction_NewEx(&definitions[which], NULL, NULL);
	}
	return made == NULL ? trace.none : made;
}

MSCOPE_EXPORT void mscope_trace_libraries(const char *directory, uint32_t imports)
{
	trace.imports = imports != 0;
	(void)snprintf(trace.libraries, sizeof(trace.libraries), "%s",
		       directory == NULL ? "" : directory);
}

MSCOPE_EXPORT int32_t mscope_trace_start(uint32_t how)
{
	uint32_t recording = mscope_recording();
	struct writer *w;
	bool busy;

	if (atomic_load(&trace.generation) != 0)
		return -EALREADY;
	if (recording != RECORDING_ON && recording != RECORDING_SHADOW)
		return -ESRCH;
	if (!trace.found)
		trace.found = find_functions();
	if (!trace.found || !interp_verify_slow(NULL))
		return -ENOSYS;
	near_clock_begin();
	trace.frames_known = try_frames();
	if (++trace.last_generation == 0)
		trace.last_generation = 1;
	trace.monitored = how == TRACE_MONITORED;
	busy = !trace.monitored && is_profiled();
	atomic_store(&trace.generation, trace.last_generation);
	if (how == TRACE_ALL_THREADS && !(busy && trace.PyEval_SetProfileAllThreads != NULL))
		set_others();
	if (busy)
		return -EBUSY;
	w = writer_enter();
	if (w != NULL) {
		begin(w, trace.last_generation, false);
		writer_leave(w);
	}
	if (!trace.monitored)
		trace.PyEval_SetProfile(on_event, NULL);
	return 0;
}

/* No callback comes any more: this thread ends the tracing of all. */
static void end_all(void)
{
	struct writer *w = writer_enter();

	if (w == NULL)
		return;
	put_call(w, CALL_STOP_ALL, 0, NOT_BEGUN);
	w->calls_generation = 0;
	writer_leave(w);
}

MSCOPE_EXPORT int32_t mscope_trace_stop(void)
{
	if (atomic_load(&trace.generation) == 0)
		return -ESRCH;
	atomic_store(&trace.generation, 0);
	/* Other threads end at their next event. */
	if (trace.monitored)
		end_all();
	else if (!is_profiled())
		end_here();
	return 0;
}

MSCOPE_EXPORT void mscope_trace_thread(void *frame)
{
	if (atomic_load(&trace.generation) == 0) {
		trace.PyEval_SetProfile(NULL, NULL);
		return;
	}
	trace.PyEval_SetProfile(on_event, NULL);
	(void)on_event(NULL, frame, PY_CALL, NULL);
}

MSCOPE_EXPORT void mscope_trace_module(void *code)
{
	trace.module_call = code;
}

MSCOPE_EXPORT void mscope_range(const char *name, uint32_t begins)
{
	uint32_t recording = mscope_recording();
	struct writer *w;

	if (recording != RECORDING_ON && recording != RECORDING_SHADOW)
		return;
	w = writer_enter();
	if (w == NULL)
		return;
	put_call(w, begins ? CALL_RANGE_BEGIN : CALL_RANGE_END, writer_text(w, name), NOT_BEGUN);
	writer_leave(w);
}
