/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The unwind tables of loaded objects: which object an address is in, and the description of the function that it belongs to
 * (.eh_frame_hdr, .eh_frame).
 *
 * The list of objects is a copy, made while the loader's list is walked (record/module_map.c). Readers take no lock: a new list is made
 * beside the old one, and a reader that comes to see two new ones begins again. The tables themselves stay where they are. They are
 * never trusted: a file may be damaged, and an object may be gone while a wrong return address still leads there. So every offset is
 * checked, and every page before it is read. While an object is being unloaded the kernel copies the bytes, which does not fault; it
 * takes ten times as long.
 */
#ifndef MSCOPE_COLLECTOR_UNWIND_FRAME_TABLES_H
#define MSCOPE_COLLECTOR_UNWIND_FRAME_TABLES_H

#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/compiler.h"

/* What a walk goes by, together in a cache line: each event reads it. */
struct unwind_now {
	/* Grows before and after an object may go: what an address meant before may not be what it means now. */
	_Alignas(8) _Atomic uint32_t epoch;
	_Atomic uint32_t version; /* another value means another list of tables; not 0 */
};

extern MSCOPE_HIDDEN struct unwind_now unwind_now;

/* Makes a new list; one thread at a time. What is added counts from tables_end() on. */
void tables_begin(void);
void tables_add(const struct dl_phdr_info *info);
void tables_end(void);

/* An object, as the list has it. */
struct frame_table {
	uint64_t start; /* of the object in memory */
	uint64_t end;
	uint64_t index; /* .eh_frame_hdr, 0: it has none */
	uint64_t index_bytes;
	uint64_t part_start; /* the segment with the index in it, which is mapped as a whole */
	uint64_t part_end;
	/* Of a copy, for its one user: */
	bool in_place;	   /* bytes may be read where they are, page by page */
	uint64_t pages[4]; /* that were found readable, the last one first */
};

/* Reads bytes of an object in order, from `at` up to `end`. What cannot be read is 0, and `failed` says so. */
struct frame_reader {
	struct frame_table *table;
	uint64_t at;
	uint64_t end;
	uint64_t from; /* where `bytes` were copied from */
	uint32_t have;
	bool failed;
	uint8_t bytes[128];
};

void reader_begin(struct frame_reader *r, struct frame_table *table, uint64_t at, uint64_t end);
uint8_t reader_u8(struct frame_reader *r);
uint64_t reader_fixed(struct frame_reader *r, uint32_t bytes);
uint64_t reader_uleb(struct frame_reader *r);
int64_t reader_sleb(struct frame_reader *r);
void reader_skip(struct frame_reader *r, uint64_t bytes);

/* A function as .eh_frame describes it. */
struct frame_function {
	struct frame_table table;
	uint64_t begin; /* first byte of its code */
	uint64_t end;
	uint64_t program; /* its rules */
	uint64_t program_end;
	uint64_t common; /* rules that it shares with others, run before */
	uint64_t common_end;
	uint64_t code_align;
	int64_t data_align;
	bool signal; /* what it returns to was interrupted, and not a call */
};

enum frame_result {
	FRAME_NONE, /* there is no table for this address */
	FRAME_BAD,  /* what the table says makes no sense */
	FRAME_FOUND,
};

/* Around all reading of tables, so that dlclose() does not take them away meanwhile. Takes no lock. */
void tables_enter(void);
void tables_leave(void);

/* Around a dlclose(). The first waits for threads between the two above, a few milliseconds at most. */
void tables_unload_begin(void);
void tables_unload_end(void);

/* True while an object may be about to go. */
bool tables_unloading(void);

/* In a forked child: no other thread is in any of these. */
void tables_reset(void);

/* The function with the instruction at `pc`. Between tables_enter() and tables_leave(). */
enum frame_result tables_find(uint64_t pc, struct frame_function *out);

/* Copies code or table bytes from anywhere. False: not all can be read. */
bool tables_peek(uint64_t at, void *out, uint32_t bytes);

#endif
