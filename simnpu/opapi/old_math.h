/* SPDX-License-Identifier: Apache-2.0 */
/*
 * <math.h> with the versions of its functions that every glibc since 2.17 has. Those of 2.29 differ only in how they set errno.
 */
#ifndef SIMNPU_OPAPI_OLD_MATH_H
#define SIMNPU_OPAPI_OLD_MATH_H

#include <math.h>

#if defined(__x86_64__)
#define OLD_MATH "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define OLD_MATH "GLIBC_2.17"
#endif

#ifdef OLD_MATH
__asm__(".symver exp,exp@" OLD_MATH);
__asm__(".symver exp2,exp2@" OLD_MATH);
__asm__(".symver log,log@" OLD_MATH);
__asm__(".symver log2,log2@" OLD_MATH);
__asm__(".symver pow,pow@" OLD_MATH);
#endif

#endif
