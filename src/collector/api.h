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

/* What a session or a window wants of Python code in the process; the bits that mscope_wants() returns. */
enum python_wants {
#define WANT(name, bit, meaning) PYTHON_WANTS_##name = (bit),
#include "collector/api.def"
};

#endif
