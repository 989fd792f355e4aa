/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FOR_EACH(macro, (kind, name), ...) expands to macro_kind(name) for each pair, at most 32 of them.
 */
#ifndef SIMNPU_OPAPI_FOR_EACH_H
#define SIMNPU_OPAPI_FOR_EACH_H

#define FE_PAIR(macro, kind, name) macro##_##kind(name)
#define FE_OPEN(kind, name)	   kind, name
#define FE_CALL(macro, ...)	   FE_PAIR(macro, __VA_ARGS__)
#define FE_ONE(macro, pair)	   FE_CALL(macro, FE_OPEN pair)

#define FE_1(m, p)	 FE_ONE(m, p)
#define FE_2(m, p, ...)	 FE_ONE(m, p) FE_1(m, __VA_ARGS__)
#define FE_3(m, p, ...)	 FE_ONE(m, p) FE_2(m, __VA_ARGS__)
#define FE_4(m, p, ...)	 FE_ONE(m, p) FE_3(m, __VA_ARGS__)
#define FE_5(m, p, ...)	 FE_ONE(m, p) FE_4(m, __VA_ARGS__)
#define FE_6(m, p, ...)	 FE_ONE(m, p) FE_5(m, __VA_ARGS__)
#define FE_7(m, p, ...)	 FE_ONE(m, p) FE_6(m, __VA_ARGS__)
#define FE_8(m, p, ...)	 FE_ONE(m, p) FE_7(m, __VA_ARGS__)
#define FE_9(m, p, ...)	 FE_ONE(m, p) FE_8(m, __VA_ARGS__)
#define FE_10(m, p, ...) FE_ONE(m, p) FE_9(m, __VA_ARGS__)
#define FE_11(m, p, ...) FE_ONE(m, p) FE_10(m, __VA_ARGS__)
#define FE_12(m, p, ...) FE_ONE(m, p) FE_11(m, __VA_ARGS__)
#define FE_13(m, p, ...) FE_ONE(m, p) FE_12(m, __VA_ARGS__)
#define FE_14(m, p, ...) FE_ONE(m, p) FE_13(m, __VA_ARGS__)
#define FE_15(m, p, ...) FE_ONE(m, p) FE_14(m, __VA_ARGS__)
#define FE_16(m, p, ...) FE_ONE(m, p) FE_15(m, __VA_ARGS__)
#define FE_17(m, p, ...) FE_ONE(m, p) FE_16(m, __VA_ARGS__)
#define FE_18(m, p, ...) FE_ONE(m, p) FE_17(m, __VA_ARGS__)
#define FE_19(m, p, ...) FE_ONE(m, p) FE_18(m, __VA_ARGS__)
#define FE_20(m, p, ...) FE_ONE(m, p) FE_19(m, __VA_ARGS__)
#define FE_21(m, p, ...) FE_ONE(m, p) FE_20(m, __VA_ARGS__)
#define FE_22(m, p, ...) FE_ONE(m, p) FE_21(m, __VA_ARGS__)
#define FE_23(m, p, ...) FE_ONE(m, p) FE_22(m, __VA_ARGS__)
#define FE_24(m, p, ...) FE_ONE(m, p) FE_23(m, __VA_ARGS__)
#define FE_25(m, p, ...) FE_ONE(m, p) FE_24(m, __VA_ARGS__)
#define FE_26(m, p, ...) FE_ONE(m, p) FE_25(m, __VA_ARGS__)
#define FE_27(m, p, ...) FE_ONE(m, p) FE_26(m, __VA_ARGS__)
#define FE_28(m, p, ...) FE_ONE(m, p) FE_27(m, __VA_ARGS__)
#define FE_29(m, p, ...) FE_ONE(m, p) FE_28(m, __VA_ARGS__)
#define FE_30(m, p, ...) FE_ONE(m, p) FE_29(m, __VA_ARGS__)
#define FE_31(m, p, ...) FE_ONE(m, p) FE_30(m, __VA_ARGS__)
#define FE_32(m, p, ...) FE_ONE(m, p) FE_31(m, __VA_ARGS__)

#define FE_COUNT(_1, _2, _3, _4, _5, _6, _7, _8, _9, _10, _11, _12, _13, _14, _15, _16, _17, _18,  \
		 _19, _20, _21, _22, _23, _24, _25, _26, _27, _28, _29, _30, _31, _32, n, ...)     \
	FE_##n
#define FOR_EACH(macro, ...)                                                                       \
	FE_COUNT(__VA_ARGS__, 32, 31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16,  \
		 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)                             \
	(macro, __VA_ARGS__)

#endif
