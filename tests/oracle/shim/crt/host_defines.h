/* SPDX-License-Identifier: Apache-2.0 */
/* The few words of CUDA's host_defines.h that its runtime headers use, for a host compiler. */
#ifndef MSCOPE_SHIM_HOST_DEFINES_H
#define MSCOPE_SHIM_HOST_DEFINES_H
#define CUDARTAPI
#define CUDARTAPI_CDECL
#define CUDAAPI
#define __host__
#define __device__
#define __global__
#define __shared__
#define __constant__
#define __managed__
#define __forceinline__	     inline
#define __align__(n)	     __attribute__((aligned(n)))
#define __builtin_align__(n) __align__(n)
#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __cudart_builtin__
#define __CUDA_ARCH_HAS_FEATURE__(x) 0
#endif
