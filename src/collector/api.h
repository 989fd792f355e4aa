/* SPDX-License-Identifier: Apache-2.0 */
/* Prototypes of api.def. */
#ifndef MSCOPE_COLLECTOR_API_H
#define MSCOPE_COLLECTOR_API_H

#include "base/compiler.h"

/* What mscope_start() is given, one number each; _native.py has the same list. */
enum api_setting {
	API_EVENTS,	  /* bits of enum session_events */
	API_LEVEL,	  /* bits of enum session_level */
	API_ANALYSIS,	  /* bits of enum session_analysis */
	API_OOM_TOP,	  /* blocks that analysis oom lists */
	API_DEVICES,	  /* bit for each device */
	API_ALL_DEVICES,  /* 1: every device */
	API_HOST,	  /* 1: tensors in host memory */
	API_TRACEBACK,	  /* 1: calls of Python functions */
	API_C_DEPTH,	  /* frames, 0: no C stacks */
	API_PYTHON_DEPTH, /* frames, 0: no Python stacks */
	API_SETTINGS
};

#define API(name, return_type, parameters, meaning) return_type name parameters;
#include "collector/api.def"
#undef API

#endif
