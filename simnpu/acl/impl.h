/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of libacl_rt_impl.so: for each public name one with Impl at its end, doing what acl/acl.h says. They check
 * what the program passed and leave the work to the runtime.
 */
#ifndef SIMNPU_ACL_IMPL_H
#define SIMNPU_ACL_IMPL_H

#include "acl/acl.h"

#pragma GCC visibility push(default)
#define ACL_FUNCTION(type, name, parameters, arguments) type name##Impl parameters;
#include "acl_api.def"
#undef ACL_FUNCTION

/*
 * Says on stderr, and to aclGetRecentErrMsg(), that the function of this name does nothing, and returns
 * ACL_ERROR_RT_FEATURE_NOT_SUPPORT. For all libraries above this one.
 */
aclError aclSimNotSimulated(const char *function);

/* Remembers the error and what failed, for aclGetRecentErrMsg(), and returns the error. `what` is copied. */
aclError aclSimFailed(aclError error, const char *what);
#pragma GCC visibility pop

/* Remembers what went wrong, for aclGetRecentErrMsg(), and returns it. */
aclError acl_result(aclError error);

#endif
