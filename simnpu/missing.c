/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of missing.def that belong to the library this is compiled for: SIMNPU_MISSING_<library> is 1. A caller's
 * arguments are of no interest, so each takes none.
 */
#include "acl/impl.h"

#ifndef SIMNPU_MISSING_ascendcl
#define SIMNPU_MISSING_ascendcl 0
#endif
#ifndef SIMNPU_MISSING_acl_op_compiler
#define SIMNPU_MISSING_acl_op_compiler 0
#endif
#ifndef SIMNPU_MISSING_acl_tdt_channel
#define SIMNPU_MISSING_acl_tdt_channel 0
#endif
#ifndef SIMNPU_MISSING_hccl
#define SIMNPU_MISSING_hccl 0
#endif

#define DEFINE_0(name)
#define DEFINE_1(name)                                                                             \
	__attribute__((visibility("default"))) int name(void);                                     \
	int name(void)                                                                             \
	{                                                                                          \
		return aclSimNotSimulated(#name);                                                  \
	}

#define DEFINE_POINTER_0(name)
#define DEFINE_POINTER_1(name)                                                                     \
	__attribute__((visibility("default"))) void *name(void);                                   \
	void *name(void)                                                                           \
	{                                                                                          \
		(void)aclSimNotSimulated(#name);                                                   \
		return NULL;                                                                       \
	}

#define CHOOSE(kind, is_ours, name)	     CHOOSE_EXPANDED(kind, is_ours, name)
#define CHOOSE_EXPANDED(kind, is_ours, name) kind##_##is_ours(name)

#define MISSING(library, name)	       CHOOSE(DEFINE, SIMNPU_MISSING_##library, name)
#define MISSING_POINTER(library, name) CHOOSE(DEFINE_POINTER, SIMNPU_MISSING_##library, name)
#include "missing.def"
