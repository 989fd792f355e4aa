/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unwind tables as a damaged file may have them: the index, the descriptions, their programs and expressions. Nothing outside of the
 * segment or of the stack is read, and every step ends.
 */
#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "collector/quiet.h"
#include "collector/unwind/frame_rules.h"
#include "unwind_input.h"

#define AROUND (1 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void step(struct frame_function *f, uint64_t pc, const struct unwind_input *input)
{
	static uint64_t stack[256];
	struct own_stack own = {.high = (uintptr_t)(stack + 256)};
	struct stack_span span = {(uintptr_t)stack, own.high, &own, 0};
	struct registers regs = {.pc = pc, .known = input->known};
	struct frame_machine machine;
	uint32_t i;

	for (i = 0; i < 256; i++)
		stack[i] = (uintptr_t)&stack[i * 7 % 256];
	for (i = 0; i < REGISTERS; i++)
		regs.value[i] = (uintptr_t)&stack[(input->registers >> i % 24) % 256];
	if (rules_run(&machine, f, pc))
		(void)rules_step(f, &machine.now, &regs, &span);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	ElfW(Phdr) headers[4] = {{.p_type = PT_LOAD},
				 {.p_type = PT_GNU_EH_FRAME},
				 {.p_type = PT_LOAD},
				 {.p_type = PT_LOAD}};
	struct dl_phdr_info info = {.dlpi_phdr = headers, .dlpi_phnum = 4};
	struct unwind_input input;
	struct frame_function f;
	uint64_t start, pc;
	size_t bytes;
	uint8_t *segment;

	if (size <= sizeof(input))
		return 0;
	memcpy(&input, data, sizeof(input));
	bytes = size - sizeof(input);
	segment = malloc(bytes);
	if (segment == NULL)
		return 0;
	memcpy(segment, data + sizeof(input), bytes);
	start = (uintptr_t)segment;
	headers[0].p_vaddr = start;
	headers[0].p_memsz = bytes;
	headers[1].p_vaddr = start + input.index % bytes;
	headers[1].p_memsz = bytes - input.index % bytes;
	headers[2].p_vaddr = start - AROUND;
	headers[2].p_memsz = AROUND;
	headers[3].p_vaddr = start + bytes;
	headers[3].p_memsz = AROUND;
	/* Bytes are read in place, so that a sanitizer sees it. */
	atomic_store(&quiet.on, 1);
	tables_begin();
	tables_add(&info);
	tables_end();
	pc = start + (uint64_t)(int64_t)(input.pc % AROUND);
	if (tables_find(pc, &f) == FRAME_FOUND)
		step(&f, pc, &input);
	free(segment);
	return 0;
}
