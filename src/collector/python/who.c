/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `msmemscope ctl PID who`. The command arrives in a hook: the thread may have no Python state, and objects of the interpreter may be
 * half changed. So nothing of Python is touched there. The interpreter gets a pending call, which its main thread makes between two
 * instructions of the program, with the interpreter's lock held.
 */
#include "collector/python/who.h"

#include <errno.h>

#include "collector/loader/lookup.h"
#include "collector/python/boot.h"
#include "trace/control.h"

/* Functions of the interpreter, the same from 3.8 on. */
#define FUNCTIONS(X)                                                                               \
	X(Py_IsInitialized, int, (void))                                                           \
	X(Py_AddPendingCall, int, (int (*)(void *), void *))                                       \
	X(PyImport_ImportModule, struct py_object *, (const char *))                               \
	X(PyObject_CallMethod, struct py_object *,                                                 \
	  (struct py_object *, const char *, const char *, ...))                                   \
	X(PyErr_ExceptionMatches, int, (struct py_object *))                                       \
	X(PyErr_Clear, void, (void))                                                               \
	X(Py_DecRef, void, (struct py_object *))

/* Set before the first pending call is made, and never changed. */
static struct {
#define X(name, return_type, parameters) return_type(*name) parameters;
	FUNCTIONS(X)
#undef X
	struct py_object **interrupt; /* PyExc_KeyboardInterrupt */
} python;

static bool find_functions(void)
{
	python.interrupt = lookup_symbol("PyExc_KeyboardInterrupt");
#define X(name, return_type, parameters)                                                           \
	python.name = (return_type(*) parameters)lookup_symbol(#name);                             \
	if (python.name == NULL)                                                                   \
		return false;
	FUNCTIONS(X)
#undef X
	return python.interrupt != NULL;
}

/* On the main thread, with the interpreter's lock. An error is ours and ends here, except the user's Ctrl-C. */
static int look(void *number)
{
	struct py_object *module = python.PyImport_ImportModule("msmemscope._who"), *result = NULL;
	int r = 0;

	if (module != NULL)
		result = python.PyObject_CallMethod(module, "look", NULL);
	if (result == NULL && python.PyErr_ExceptionMatches(*python.interrupt))
		r = -1;
	else if (result == NULL)
		python.PyErr_Clear();
	if (result != NULL)
		python.Py_DecRef(result);
	if (module != NULL)
		python.Py_DecRef(module);
	atomic_store(&lookup_own_block()->looked, (uint32_t)(uintptr_t)number);
	return r;
}

int python_ask_who(uint32_t number)
{
	if (!find_functions() || !python.Py_IsInitialized())
		return -ENOSYS;
	return python.Py_AddPendingCall(look, (void *)(uintptr_t)number) == 0 ? 0 : -EBUSY;
}
