/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the simulated NPU offers beyond the interfaces that it copies: link with -lruntime.
 *
 * A kernel is a function of the program. The device runs it on a thread of its own, one call for all blocks, with a copy
 * of the arguments; device addresses among them can be read and written as they are.
 */
#ifndef SIMNPU_H
#define SIMNPU_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/*
 * Registers `fn` under `name` and stores a handle that serves every launch function: as function handle, as binary handle
 * and as stub function; AI CPU launches find the kernel by its name. Handles stay valid. Registering the same pair again
 * gives the same handle. 0, or a code of acl/acl_base.h: ACL_ERROR_RT_PARAM_INVALID when an argument is NULL, the name is
 * empty, has blanks in it or is taken by another function.
 */
int simnpuRegisterKernel(const char *name,
			 void (*fn)(void *args, size_t args_size, uint32_t block_dim),
			 void **out_func_handle);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
