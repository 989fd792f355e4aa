/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scale EVENTS LIVE CALLERS: EVENTS allocations and frees at 200,000 call sites, each a function of its own, which CALLERS functions call
 * in turn: so 200,000 * CALLERS stacks. LIVE blocks live at a time, and at the end: the oldest is freed first.
 */
#include <stdio.h>
#include <stdlib.h>

#include "ascend_hal.h"

#define SITES	    200000
#define CALLERS_MAX 32
#define MODULE	    ((unsigned long long)33 << 56)

#define TEXT(x)	  #x
#define QUOTED(x) TEXT(x)

/*
 * Function site_N takes a block for its caller; all are of one size in bytes, so that the first one's address tells the others'. Written by
 * the assembler, since a compiler takes minutes for so many.
 */
#if defined(__x86_64__)
#define SITE_BYTES 16
#define SITE_BODY                                                                                  \
	"sub $8, %rsp; .cfi_adjust_cfa_offset 8; call take; add $8, %rsp; .cfi_adjust_cfa_offset -8; ret;"
#else
#define SITE_BYTES 32
#define SITE_BODY                                                                                  \
	"stp x29, x30, [sp, #-16]!; .cfi_def_cfa_offset 16; .cfi_offset 29, -16; .cfi_offset 30, -8; bl take; ldp x29, x30, [sp], #16; .cfi_restore 29; .cfi_restore 30; .cfi_def_cfa_offset 0; ret;"
#endif
__asm__(".altmacro\n"
	".macro one_site number\n"
	".globl site_\\number; .type site_\\number, %function\n"
	".balign " QUOTED(SITE_BYTES) "\n"
				      "site_\\number: .cfi_startproc; " SITE_BODY
				      " .cfi_endproc; .size site_\\number, .-site_\\number\n"
				      ".endm\n"
				      ".macro next_site\n"
				      "one_site %count\n"
				      ".set count, count + 1\n"
				      ".endm\n"
				      ".set count, 0\n"
				      ".text\n"
				      ".rept " QUOTED(SITES) "; next_site; .endr\n"
							     ".noaltmacro\n");

typedef void *site(unsigned long long bytes);

extern site site_0;
site take;

__attribute__((noinline)) void *take(unsigned long long bytes)
{
	void *block = NULL;

	if (halMemAlloc(&block, bytes, MODULE) != DRV_ERROR_NONE)
		exit(1);
	__asm__ volatile("" ::: "memory");
	return block;
}

/* Each caller is another return address in one function. */
static __attribute__((noinline)) void *call_by(unsigned caller, site *called,
					       unsigned long long bytes)
{
	void *block = NULL;

	switch (caller) {
#define CALL(number)                                                                               \
	case number:                                                                               \
		block = called(bytes);                                                             \
		__asm__ volatile("/* %c0 */" ::"i"(number) : "memory");                            \
		break;
#define CALLS(tens)                                                                                \
	CALL(tens)                                                                                 \
	CALL(tens + 1)                                                                             \
	CALL(tens + 2)                                                                             \
	CALL(tens + 3) CALL(tens + 4) CALL(tens + 5) CALL(tens + 6) CALL(tens + 7)
		CALLS(0)
		CALLS(8)
		CALLS(16)
		CALLS(24)
	default:
		break;
	}
	return block;
}

int main(int argc, char **argv)
{
	unsigned long long events, made = 0, taken = 0, freed = 0;
	unsigned long live, callers;
	void **blocks;

	if (argc != 4 || (live = strtoul(argv[2], NULL, 10)) == 0 ||
	    (callers = strtoul(argv[3], NULL, 10)) == 0 || callers > CALLERS_MAX) {
		fprintf(stderr, "usage: scale EVENTS LIVE CALLERS\n");
		return 2;
	}
	events = strtoull(argv[1], NULL, 10);
	blocks = calloc(live, sizeof(*blocks));
	if (blocks == NULL)
		return 1;
	while (made < events) {
		unsigned long number = taken % SITES;
		site *called = (site *)((char *)site_0 + number * SITE_BYTES);

		if (taken - freed == live) {
			(void)halMemFree(blocks[freed++ % live]);
			made++;
		}
		blocks[taken % live] = call_by((unsigned)(taken / SITES % callers), called,
					       512 + number % 64 * 512);
		taken++;
		made++;
	}
	free(blocks);
	printf("{\"events\": %llu, \"live\": %llu}\n", made, taken - freed);
	return 0;
}
