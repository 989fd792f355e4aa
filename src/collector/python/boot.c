/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How our Python package runs before the first line of the user's script, although nothing in the script, in PYTHONPATH or in the
 * installation asks for it.
 *
 *     loader        the one constructor of this library: without an interpreter among the loaded objects, that is all; else
 *                   python_boot() asks the interpreter, which has not started yet, to tell us its audit events
 *     interpreter   starts: reads its flags, finds its library, runs site
 *     on_audit()    "cpython.run_file", "cpython.run_module", ...: the interpreter is about to run what the user named, on the
 *                   main thread, with its lock held. Our package is imported from beside this library and told what is wanted;
 *                   then the hook takes itself out of the interpreter's list. Where only steps of optimizers and the end are
 *                   wanted, the package is not imported before a module comes that they need. Without a session it is only made
 *                   known to the interpreter: a script that imports it finds it, whatever sys.path says.
 *
 * Why it is taken out: with any audit hook in its list the interpreter builds a tuple for each of its events, and id() is one;
 * and it would free the hook's entry with the allocator that it has chosen since (-X dev: one that checks what it frees and
 * aborts). The interpreter has no function for this. The head of the list is a word of its one global, _PyRuntime, whose size the
 * symbol table has. We know the entry's address, because the interpreter allocates it by a function that we may set. So the word
 * that holds this address is the head.
 *
 * A failure of ours is a note in the trace and nothing else.
 */
#include "collector/python/boot.h"

#include <stdlib.h>
#include <string.h>

#include "collector/api.h"
#include "collector/loader/lookup.h"
#include "collector/record/writer.h"

#define PY_FILE_INPUT 257 /* Py_file_input: a sequence of statements */

typedef int audit_hook(const char *event, struct py_object *args, void *user);

/* The interpreter's record of a hook; the same since 3.8. */
struct audit_entry {
	struct audit_entry *next;
	audit_hook *hook;
	void *user;
};

/* PyMemAllocatorEx. */
struct py_allocator {
	void *ctx;
	void *(*malloc)(void *ctx, size_t bytes);
	void *(*calloc)(void *ctx, size_t count, size_t bytes);
	void *(*realloc)(void *ctx, void *p, size_t bytes);
	void (*free)(void *ctx, void *p);
};

#define PY_DOMAIN_RAW 0 /* PYMEM_DOMAIN_RAW */

/* PyMethodDef. */
struct py_method {
	const char *name;
	struct py_object *(*function)(struct py_object *self, struct py_object *args);
	int flags;
	const char *doc;
};

#define PY_NO_ARGUMENTS 4 /* METH_NOARGS */

static struct {
	struct audit_entry *entry;
	uintptr_t *runtime; /* _PyRuntime */
	size_t runtime_words;
	struct py_allocator allocator; /* the one that was there */
	bool in_session;
	uint32_t wants; /* enum python_wants */
	uint32_t retired;
	struct py_object *none; /* Py_None */
	void (*add_reference)(struct py_object *);
} boot;

/* ---- running our package ---- */

/*
 * Where something is wanted at once, imports the package from its own place, not by the user's sys.path, and starts it; else when
 * one of the modules comes that it works with. In any case, a script that imports a module of ours finds it there, unless its
 * sys.path has one of that name. `ended` is called when the interpreter begins to end; the package sees to it that this comes before
 * exit handlers of the script; it is None without a session. An error is left in `failure`. Ctrl-C is for the user's script.
 */
static const char bootstrap[] =
	"try:\n"
	"    import atexit, sys\n"
	"    def begin():\n"
	"        sys.meta_path.insert(0, Finder)\n"
	"        try:\n"
	"            import msmemscope._boot as boot\n"
	"        finally:\n"
	"            sys.meta_path.remove(Finder)\n"
	"        boot.begin(wants, ended)\n"
	"        return boot\n"
	"    class Finder:\n"
	"        @staticmethod\n"
	"        def find_spec(name, path=None, target=None):\n"
	"            if name not in ('msmemscope', 'msleaks'):\n"
	"                return None\n"
	"            from _frozen_importlib_external import PathFinder\n"
	"            return PathFinder.find_spec(name, [place])\n"
	"    class First:\n"
	"        @staticmethod\n"
	"        def find_spec(name, path=None, target=None):\n"
	"            if name != 'threading' and name != 'torch' or First not in sys.meta_path:\n"
	"                return None\n"
	"            sys.meta_path.remove(First)\n"
	"            try:\n"
	"                boot = begin()\n"
	"            except Exception:\n"
	"                return None\n"
	"            return boot.find_spec(name, path, target)\n"
	"    if ended:\n"
	"        atexit.register(ended)\n"
	"    if now or ended and 'threading' in sys.modules:\n"
	"        begin()\n"
	"    elif ended:\n"
	"        sys.meta_path.insert(0, First)\n"
	"    sys.meta_path.append(Finder)\n"
	"except KeyboardInterrupt:\n"
	"    raise\n"
	"except BaseException as error:\n"
	"    failure = '%s: %s' % (type(error).__name__, error)\n";

/* The functions of the interpreter that this takes. */
#define FUNCTIONS(X)                                                                               \
	X(PyDict_New, struct py_object *, (void))                                                  \
	X(PyDict_SetItemString, int, (struct py_object *, const char *, struct py_object *))       \
	X(PyDict_GetItemString, struct py_object *, (struct py_object *, const char *))            \
	X(PyUnicode_DecodeFSDefault, struct py_object *, (const char *))                           \
	X(PyUnicode_AsUTF8, const char *, (struct py_object *))                                    \
	X(PyLong_FromUnsignedLong, struct py_object *, (unsigned long))                            \
	X(PyCFunction_NewEx, struct py_object *,                                                   \
	  (struct py_method *, struct py_object *, struct py_object *))                            \
	X(Py_CompileString, struct py_object *, (const char *, const char *, int))                 \
	X(PyEval_EvalCode, struct py_object *,                                                     \
	  (struct py_object *, struct py_object *, struct py_object *))                            \
	X(PyEval_GetBuiltins, struct py_object *, (void))                                          \
	X(PyErr_ExceptionMatches, int, (struct py_object *))                                       \
	X(PyErr_Clear, void, (void))                                                               \
	X(PyErr_SetInterrupt, void, (void))                                                        \
	X(Py_IncRef, void, (struct py_object *))                                                   \
	X(Py_DecRef, void, (struct py_object *))

struct functions {
#define X(name, return_type, parameters) return_type(*name) parameters;
	FUNCTIONS(X)
#undef X
};

static const char *find_functions(struct functions *f)
{
#define X(name, return_type, parameters)                                                           \
	f->name = (return_type(*) parameters)lookup_symbol(#name);                                 \
	if (f->name == NULL)                                                                       \
		return #name;
	FUNCTIONS(X)
#undef X
	return NULL;
}

/* What the interpreter calls when it begins to end; a built-in function, so that no frame of ours is in a traceback. */
static struct py_object *on_end(struct py_object *self, struct py_object *args)
{
	(void)self;
	(void)args;
	mscope_ended();
	boot.add_reference(boot.none);
	return boot.none;
}

static struct py_method end_method = {"ended", on_end, PY_NO_ARGUMENTS, NULL};

static void set_item(const struct functions *f, struct py_object *dict, const char *name,
		     struct py_object *value)
{
	if (value == NULL || f->PyDict_SetItemString(dict, name, value) < 0)
		f->PyErr_Clear();
	f->Py_DecRef(value);
}

/*
 * The folder that holds our packages: `python` beside the folder of this library. An installation by pip has its whole tree in the
 * package itself; see tools/build_wheel.py.
 */
static void package_place(char *out, size_t bytes)
{
	static const char beside[] = "python", inside[] = "/msmemscope/_home/lib64/";
	size_t length;

	lookup_own_directory(out, bytes - sizeof(beside));
	length = strlen(out);
	if (length >= sizeof(inside) && strcmp(out + length - (sizeof(inside) - 1), inside) == 0) {
		out[length - (sizeof(inside) - 1)] = '\0';
		return;
	}
	if (length > 0)
		out[--length] = '\0';
	while (length > 0 && out[length - 1] != '/')
		length--;
	memcpy(out + length, beside, sizeof(beside));
}

static void run_package(void)
{
	char place[SESSION_PATH_MAX];
	struct functions f;
	struct py_object *names, *code, *result, *failure, **interrupt;
	const char *missing = find_functions(&f), *text;
	bool interrupted;
	size_t length;

	boot.none = lookup_symbol("_Py_NoneStruct");
	if (missing == NULL && boot.none == NULL)
		missing = "_Py_NoneStruct";
	if (missing != NULL) {
		collector_note(
			"msmemscope's Python code does not run in this interpreter: it has no %s",
			missing);
		return;
	}
	boot.add_reference = f.Py_IncRef;
	package_place(place, sizeof(place) - sizeof("/msmemscope/_boot"));
	names = f.PyDict_New();
	if (names == NULL) {
		f.PyErr_Clear();
		return;
	}
	/* Borrowed; before 3.10 the interpreter does not add it. */
	(void)f.PyDict_SetItemString(names, "__builtins__", f.PyEval_GetBuiltins());
	set_item(&f, names, "place", f.PyUnicode_DecodeFSDefault(place));
	set_item(&f, names, "wants", f.PyLong_FromUnsignedLong(boot.wants));
	set_item(&f, names, "now",
		 f.PyLong_FromUnsignedLong(boot.wants & ~(uint32_t)PYTHON_WANTS_STEPS));
	if (boot.in_session)
		set_item(&f, names, "ended", f.PyCFunction_NewEx(&end_method, NULL, NULL));
	else
		(void)f.PyDict_SetItemString(names, "ended", boot.none);
	/* Named as a file of the package, so that traces and stacks leave it out. */
	length = strlen(place);
	memcpy(place + length, "/msmemscope/_boot", sizeof("/msmemscope/_boot"));
	code = f.Py_CompileString(bootstrap, place, PY_FILE_INPUT);
	result = code == NULL ? NULL : f.PyEval_EvalCode(code, names, names);
	if (result == NULL) {
		/* The user's Ctrl-C: raised again for the first line of the script. */
		interrupt = lookup_symbol("PyExc_KeyboardInterrupt");
		interrupted = interrupt != NULL && f.PyErr_ExceptionMatches(*interrupt);
		f.PyErr_Clear();
		if (interrupted)
			f.PyErr_SetInterrupt();
	}
	f.Py_DecRef(result);
	f.Py_DecRef(code);
	failure = f.PyDict_GetItemString(names, "failure");
	if (failure != NULL) {
		text = f.PyUnicode_AsUTF8(failure);
		if (text == NULL)
			f.PyErr_Clear();
		collector_note("msmemscope's Python code does not run in this process: %s",
			       text != NULL ? text : "for an unknown reason");
	}
	f.Py_DecRef(names);
}

/* ---- the audit hook ---- */

static audit_hook on_audit;

/* Takes our entry out of the interpreter's list. The interpreter may be walking it, so the entry itself stays as it is. */
static void retire(void)
{
	size_t i;

	boot.retired = 1;
	/*
	 * The interpreter may have allocated it by other means; then its address is unknown, and the hook stays and does nothing.
	 */
	if (boot.entry == NULL || boot.entry->hook != on_audit)
		return;
	for (i = 0; i < boot.runtime_words; i++) {
		if (boot.runtime[i] == (uintptr_t)boot.entry) {
			boot.runtime[i] = (uintptr_t)boot.entry->next;
			return;
		}
	}
}

static int on_audit(const char *event, struct py_object *args, void *user)
{
	static const char *const begins[] = {"run_command", "run_file",	   "run_interactivehook",
					     "run_module",  "run_startup", "run_stdin"};
	size_t i;

	(void)args;
	(void)user;
	if (boot.retired || strncmp(event, "cpython.", 8) != 0)
		return 0;
	event += 8;
	if (strcmp(event, "_PySys_ClearAuditHooks") == 0)
		retire();
	for (i = 0; i < MSCOPE_COUNT(begins) && !boot.retired; i++) {
		if (strcmp(event, begins[i]) == 0) {
			retire();
			run_package();
		}
	}
	return 0;
}

/* The interpreter's allocator during the one allocation whose address we need. */
static void *learning_malloc(void *ctx, size_t bytes)
{
	void *p = boot.allocator.malloc(boot.allocator.ctx, bytes);

	(void)ctx;
	if (bytes == sizeof(struct audit_entry))
		boot.entry = p;
	return p;
}

bool python_is_starting(void)
{
	int (*is_running)(void);

	if (lookup_symbol("PySys_AddAuditHook") == NULL || lookup_is_passive_quiet())
		return false;
	/* Loaded late, into a script that runs already: it is too late for the first line, and we may not hold the lock. */
	is_running = (int (*)(void))lookup_symbol("Py_IsInitialized");
	return is_running != NULL && !is_running();
}

void python_boot(bool in_session, uint32_t wants)
{
	int (*add)(audit_hook *, void *) =
		(int (*)(audit_hook *, void *))lookup_symbol("PySys_AddAuditHook");
	void (*get)(int, struct py_allocator *) =
		(void (*)(int, struct py_allocator *))lookup_symbol("PyMem_GetAllocator");
	void (*set)(int, struct py_allocator *) =
		(void (*)(int, struct py_allocator *))lookup_symbol("PyMem_SetAllocator");
	struct py_allocator learning;

	boot.in_session = in_session;
	boot.wants = wants;
	boot.runtime = lookup_symbol_sized("_PyRuntime", &boot.runtime_words);
	boot.runtime_words /= sizeof(*boot.runtime);
	/* Another interpreter than CPython, or one that hides its state: the hook could not be taken out again. */
	if (add == NULL || get == NULL || set == NULL || boot.runtime == NULL)
		return;
	get(PY_DOMAIN_RAW, &boot.allocator);
	learning = boot.allocator;
	learning.malloc = learning_malloc;
	set(PY_DOMAIN_RAW, &learning);
	(void)add(on_audit, NULL);
	set(PY_DOMAIN_RAW, &boot.allocator);
}

MSCOPE_EXPORT void mscope_note(const char *text)
{
	uint32_t recording = recording_now();

	if (text == NULL)
		return;
	collector_note("%s", text);
	/* A note alone must not make a process leave a trace. */
	if (recording == RECORDING_ON || recording == RECORDING_SHADOW)
		collector_write_notes();
}
