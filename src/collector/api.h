/* SPDX-License-Identifier: Apache-2.0 */
/* api.def as C: the functions that the Python package calls, and what the collector wants of it. */
#ifndef MSCOPE_COLLECTOR_API_H
#define MSCOPE_COLLECTOR_API_H

#include "base/compiler.h"

#define API_TYPE(c_type, name, python_type)	    c_type name
#define NOTHING					    void
#define API(name, result, parameters, how, meaning) result name parameters;
#include "collector/api.def"
#undef API_TYPE
#undef NOTHING

/* Which calls mscope_trace_start() records. */
enum trace_how {
	TRACE_ONE_THREAD = 0,  /* of this thread */
	TRACE_ALL_THREADS = 1, /* of all threads that the interpreter knows */
	TRACE_MONITORED = 2,   /* those that sys.monitoring tells our callbacks */
};

/* Callbacks of sys.monitoring. */
enum trace_callback {
	TRACE_ON_ENTER = 0,
	TRACE_ON_LEAVE = 1,
	TRACE_ON_C_ENTER = 2,
	TRACE_ON_C_LEAVE = 3,
};

/* What is to be done about what keeps memory, now that a step has ended. */
enum due {
	DUE_NOTHING = 0,
	DUE_ASK = 1, /* memory grows: the engine is to be asked, mscope_judge(), and waited for */
	DUE_ANSWER = 2, /* it has judged meanwhile */
};

/* What a session or a window wants of Python code in the process; the bits that mscope_wants() returns. */
enum python_wants {
#define WANT(name, bit, meaning) PYTHON_WANTS_##name = (bit),
#include "collector/api.def"
};

#endif
