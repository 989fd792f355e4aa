/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers as text, without locale, checks or branches that a processor could guess wrong: what rows of a dump mostly consist of.
 * Each function writes at `to` and returns where the text ends; it may write up to DIGITS_ROOM bytes there, more than the text has,
 * so the caller leaves that much room. No NUL. Eight digits are made at a time, one in each byte of a word.
 */
#ifndef MSCOPE_BASE_DIGITS_H
#define MSCOPE_BASE_DIGITS_H

#include <string.h>

#include "base/compiler.h"

#define DIGITS_ROOM 32u

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the first digit is the lowest byte");

/* The eight decimal digits of a number below 100,000,000, the first in the lowest byte. */
static inline uint64_t digits_eight(uint32_t value)
{
	/* Four digits in each half, two in each quarter, one in each byte. The factors divide by 100 and by 10. */
	uint64_t fours = value / 10000 | (uint64_t)(value % 10000) << 32;
	uint64_t hundreds = fours * 10486 >> 20 & UINT64_C(0x0000007f0000007f);
	uint64_t twos = hundreds | (fours - 100 * hundreds) << 16;
	uint64_t tens = twos * 103 >> 10 & UINT64_C(0x000f000f000f000f);

	return tens | (twos - 10 * tens) << 8;
}

#define DIGITS_ASCII UINT64_C(0x3030303030303030)

static inline char *digits_put_eight(char *to, uint32_t value)
{
	uint64_t text = digits_eight(value) | DIGITS_ASCII;

	memcpy(to, &text, sizeof(text));
	return to + sizeof(text);
}

/* The same without zeros in front. */
static inline char *digits_put_few(char *to, uint32_t value)
{
	uint64_t digits = digits_eight(value), text;
	unsigned int zeros = value == 0 ? 7 : (unsigned int)__builtin_ctzll(digits) / 8;

	text = (digits | DIGITS_ASCII) >> zeros * 8;
	memcpy(to, &text, sizeof(text));
	return to + sizeof(text) - zeros;
}

/* Decimal. */
static inline char *digits_put_u64(char *to, uint64_t value)
{
	if (value < 100000000u)
		return digits_put_few(to, (uint32_t)value);
	if (value < UINT64_C(10000000000000000)) {
		to = digits_put_few(to, (uint32_t)(value / 100000000u));
	} else {
		to = digits_put_few(to, (uint32_t)(value / UINT64_C(10000000000000000)));
		to = digits_put_eight(to, (uint32_t)(value / 100000000u % 100000000u));
	}
	return digits_put_eight(to, (uint32_t)(value % 100000000u));
}

/* The eight lower-case hexadecimal digits of a number, as ASCII, the first in the lowest byte. */
static inline uint64_t digits_eight_hex(uint32_t value)
{
	uint64_t digits = value, letters;

	digits = (digits | digits << 16) & UINT64_C(0x0000ffff0000ffff);
	digits = (digits | digits << 8) & UINT64_C(0x00ff00ff00ff00ff);
	digits = (digits | digits << 4) & UINT64_C(0x0f0f0f0f0f0f0f0f);
	letters = (digits + UINT64_C(0x0606060606060606)) >> 4 & UINT64_C(0x0101010101010101);
	return __builtin_bswap64(digits + DIGITS_ASCII + letters * ('a' - '0' - 10));
}

/* An address: 0x and sixteen digits. */
static inline char *digits_put_address(char *to, uint64_t value)
{
	uint64_t high = digits_eight_hex((uint32_t)(value >> 32)),
		 low = digits_eight_hex((uint32_t)value);

	memcpy(to, "0x", 2);
	memcpy(to + 2, &high, sizeof(high));
	memcpy(to + 10, &low, sizeof(low));
	return to + 18;
}

/* 0x and as many digits as the number has, at least one. */
static inline char *digits_put_hex(char *to, uint64_t value)
{
	char digits[DIGITS_ROOM];
	unsigned int zeros = value == 0 ? 15 : (unsigned int)__builtin_clzll(value) / 4;

	(void)digits_put_address(digits, value);
	memcpy(to, "0x", 2);
	memcpy(to + 2, digits + 2 + zeros, 16 - zeros);
	return to + 18 - zeros;
}

#endif
