/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the stand-in for a tool (mstx_tool.c) saw, for test_simnpu_mstx.c, which finds it under the name mstx_tool_seen.
 */
#ifndef MSCOPE_TESTS_MSTX_TOOL_H
#define MSCOPE_TESTS_MSTX_TOOL_H

#include <stdatomic.h>
#include <stdint.h>

#define MSTX_NO_IMPL
#include "mstx/ms_tools_ext.h"

enum { MSTX_TOOL_TABLES = 4 };

struct mstx_tool_seen {
	_Atomic unsigned starts;	  /* calls of InitInjectionMstx */
	_Atomic unsigned calls;		  /* calls through any slot */
	_Atomic unsigned at_once;	  /* threads inside InitInjectionMstx, the most */
	unsigned sizes[MSTX_TOOL_TABLES]; /* by module, of the last start */
	mstxFuncPointer **tables[MSTX_TOOL_TABLES];
	int ends_are_null;	  /* entries 0 and size of all tables */
	int unknown_module_fails; /* modules 0, 4 and -1 */
	/* Of the last call: */
	const char *name; /* the function */
	const void *text; /* message or name */
	const void *stream;
	const void *domain;
	const void *desc;
	uint64_t id; /* range or heap */
};

#endif
