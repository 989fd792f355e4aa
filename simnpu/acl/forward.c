/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libascendcl.so: forwarders, one for each function. The calls go to another library, so by way of the dynamic linker:
 * whoever defines the Impl name earlier in the process gets them, as with the real library.
 */
#include "impl.h"

#define ACL_FUNCTION(type, name, parameters, arguments)                                            \
	type name parameters                                                                       \
	{                                                                                          \
		return name##Impl arguments;                                                       \
	}
#include "acl_api.def"
