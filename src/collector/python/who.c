/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `msmemscope ctl PID who`, and the engine's own question to a program without steps. Both arrive in a hook: the thread may have no
 * Python state, and objects of the interpreter may be half changed. So nothing of Python is touched there. The interpreter gets a pending
 * call, which its main thread makes between two instructions of the program, with the interpreter's lock held.
 *
 * A main thread that sleeps, or that waits for its threads until they end, makes none. The engine's question is then answered by a thread
 * that we start for it, the only one that this library ever starts. It waits for the interpreter's lock as any thread of the program
 * does, and ends with the answer. If the main thread comes back meanwhile, its pending call waits for that end, so that the
 * interpreter does not end below the thread.
 */
#include "collector/python/who.h"

#include <errno.h>

#include "collector/loader/lookup.h"
#include "collector/python/boot.h"
#include "collector/record/refused.h"
#include "collector/sys.h"
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
	X(Py_DecRef, void, (struct py_object *))                                                   \
	X(PyGILState_Ensure, int, (void))                                                          \
	X(PyGILState_Release, void, (int))                                                         \
	X(PyEval_SaveThread, void *, (void))                                                       \
	X(PyEval_RestoreThread, void, (void *))                                                    \
	X(PyThread_start_new_thread, unsigned long, (void (*)(void *), void *))

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

/* With the interpreter's lock. An error is ours and ends here, except the user's Ctrl-C: -1. */
static int call(const char *function)
{
	struct py_object *module = python.PyImport_ImportModule("msmemscope._who"), *result = NULL;
	int r = 0;

	if (module != NULL)
		result = python.PyObject_CallMethod(module, function, NULL);
	if (result == NULL && python.PyErr_ExceptionMatches(*python.interrupt))
		r = -1;
	else if (result == NULL)
		python.PyErr_Clear();
	if (result != NULL)
		python.Py_DecRef(result);
	if (module != NULL)
		python.Py_DecRef(module);
	return r;
}

static int look(void *number)
{
	int r = call("look");

	atomic_store(&lookup_own_block()->looked, (uint32_t)(uintptr_t)number);
	return r;
}

int python_ask_who(uint32_t number)
{
	if (!find_functions() || !python.Py_IsInitialized())
		return -ENOSYS;
	return python.Py_AddPendingCall(look, (void *)(uintptr_t)number) == 0 ? 0 : -EBUSY;
}

/* ---- the engine's question ---- */

/* The main thread does not wait longer for the other one: a scan takes a second of its time. */
#define ASIDE_MS 10000u

/* enum answer_turn, and the process that it is about: a forked child has its parent's. */
static _Atomic uint32_t turn, turn_pid;
static _Atomic uint32_t turn_to; /* enum answer_to */

enum answer_turn python_answer_turn(void)
{
	if (atomic_load(&turn_pid) != sys_getpid())
		return TURN_NOBODY;
	return (enum answer_turn)atomic_load(&turn);
}

static bool take_turn(void)
{
	uint32_t expected = TURN_MAIN;

	return atomic_compare_exchange_strong(&turn, &expected, TURN_TAKEN);
}

static int answer(void)
{
	int r = 0;

	if (atomic_load(&turn_to) == ANSWER_CONTAINERS)
		r = call("containers");
	else if (recording_now() == RECORDING_ON && !refused_lately())
		r = call("answer");
	atomic_store(&turn, TURN_NOBODY);
	return r;
}

/* On the main thread. */
static int answer_pending(void *number)
{
	uint32_t waited;
	void *state;

	(void)number;
	if (atomic_load(&turn_pid) != sys_getpid())
		return 0;
	if (take_turn())
		return answer();
	if (python_answer_turn() != TURN_TAKEN)
		return 0;
	state = python.PyEval_SaveThread();
	for (waited = 0; waited < ASIDE_MS && python_answer_turn() == TURN_TAKEN; waited++)
		sys_sleep_ms(1);
	python.PyEval_RestoreThread(state);
	return 0;
}

int python_ask_answer(enum answer_to to)
{
	if (!find_functions() || !python.Py_IsInitialized())
		return -ENOSYS;
	if (python_answer_turn() != TURN_NOBODY)
		return -EBUSY;
	atomic_store(&turn_pid, sys_getpid());
	atomic_store(&turn_to, to);
	atomic_store(&turn, TURN_MAIN);
	if (python.Py_AddPendingCall(answer_pending, NULL) == 0)
		return 0;
	atomic_store(&turn, TURN_NOBODY);
	return -EBUSY;
}

static void answer_aside(void *unused)
{
	int state = python.PyGILState_Ensure();

	(void)unused;
	if (answer() < 0)
		python.PyErr_Clear();
	python.PyGILState_Release(state);
}

void python_answer_aside(void)
{
	uint64_t signals;

	if (quiet_is_on() || sys_gettid() == sys_getpid() || !take_turn())
		return;
	/* No handler of the program runs on it. */
	signals = sys_signals_block();
	if (python.PyThread_start_new_thread(answer_aside, NULL) == (unsigned long)-1)
		atomic_store(&turn, TURN_NOBODY);
	sys_signals_restore(signals);
}
