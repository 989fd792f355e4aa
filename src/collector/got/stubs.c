/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dlopen(), dlsym() and dlvsym() in a program that does not have us preloaded. They are told of, not changed: before each of them
 * runs, what was loaded since the last one is redirected. So a library is redirected when the first function of it is asked for, and
 * an extension module of Python before its own first line.
 *
 * The real function is entered by a jump, with the return address and the arguments of the caller: it looks at the caller's address,
 * for its RUNPATH, its namespace and RTLD_NEXT, and would otherwise see us. Therefore nothing can be done when dlopen() returns.
 */
#include "collector/got/redirect.h"

#define SLOT HOOK_DEFINE
#include "collector/got/slots.def"
#undef SLOT

#if defined(__x86_64__)
#define STUB(name)                                                                                 \
	__asm__(".text\n\t.p2align 4\n\t.globl slot_" #name "\n\t.hidden slot_" #name              \
		"\n\t.type slot_" #name ", @function\nslot_" #name ":\n\t.cfi_startproc\n\t"       \
		"endbr64\n\t"                                                                      \
		"pushq %rdi\n\t.cfi_adjust_cfa_offset 8\n\t"                                       \
		"pushq %rsi\n\t.cfi_adjust_cfa_offset 8\n\t"                                       \
		"pushq %rdx\n\t.cfi_adjust_cfa_offset 8\n\t"                                       \
		"call before_" #name "\n\t"                                                        \
		"popq %rdx\n\t.cfi_adjust_cfa_offset -8\n\t"                                       \
		"popq %rsi\n\t.cfi_adjust_cfa_offset -8\n\t"                                       \
		"popq %rdi\n\t.cfi_adjust_cfa_offset -8\n\t"                                       \
		"jmpq *%rax\n\t.cfi_endproc\n\t.size slot_" #name ", . - slot_" #name);
#else
#define STUB(name)                                                                                 \
	__asm__(".text\n\t.p2align 4\n\t.globl slot_" #name "\n\t.hidden slot_" #name              \
		"\n\t.type slot_" #name ", %function\nslot_" #name ":\n\t.cfi_startproc\n\t"       \
		"hint #34\n\t" /* bti c */                                                         \
		"stp x29, x30, [sp, #-48]!\n\t.cfi_adjust_cfa_offset 48\n\t"                       \
		".cfi_rel_offset x29, 0\n\t.cfi_rel_offset x30, 8\n\t"                             \
		"stp x0, x1, [sp, #16]\n\tstr x2, [sp, #32]\n\t"                                   \
		"bl before_" #name "\n\t"                                                          \
		"mov x16, x0\n\t"                                                                  \
		"ldp x0, x1, [sp, #16]\n\tldr x2, [sp, #32]\n\t"                                   \
		"ldp x29, x30, [sp], #48\n\t.cfi_adjust_cfa_offset -48\n\t"                        \
		".cfi_restore x29\n\t.cfi_restore x30\n\t"                                         \
		"br x16\n\t.cfi_endproc\n\t.size slot_" #name ", . - slot_" #name);
#endif

/* Where the call goes on. A slot is redirected only when the original is known. */
#define SLOT(library, name, return_type, parameters)                                               \
	void *before_##name(void) MSCOPE_HIDDEN __attribute__((used));                             \
	void *before_##name(void)                                                                  \
	{                                                                                          \
		redirect_more();                                                                   \
		return hook_original(&hook_of_##name);                                             \
	}                                                                                          \
	STUB(name)
#include "collector/got/slots.def"
#undef SLOT
