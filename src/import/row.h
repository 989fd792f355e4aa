/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A row of memscope_dump as the importer keeps it, between row_reader.c, which makes it out of texts, and row_records.c, which
 * makes records out of it. Members have the names that dump/rows.def gives them.
 */
#ifndef MSCOPE_IMPORT_ROW_H
#define MSCOPE_IMPORT_ROW_H

#include "import/rows.h"

/* Texts are offsets + 1 into importer.texts, 0: none. */
struct import_row {
	uint64_t time_ns;
	uint64_t id;
	union {
		uint64_t address;   /* of a block, or the first byte that is accessed */
		uint64_t workspace; /* of an operator */
		uint64_t number;    /* of a step, of the range that ends, or in importer.figures */
	};
	uint64_t size_bytes;
	uint64_t total_bytes; /* UINT64_MAX: unknown */
	uint32_t device;
	uint32_t tid;
	uint32_t name;
	union {
		uint32_t path;
		uint32_t dtype;
	};
	uint32_t shape, format;
	uint32_t stream, task; /* UINT32_MAX: unknown */
	uint32_t stack;	       /* Python's, of an allocation */
	uint32_t class, label; /* of a block's owner: row_owners.h */
	uint32_t module;       /* likewise */
	uint32_t file;
	uint8_t kind;	    /* enum row_kind */
	uint8_t pool;	    /* of a block */
	uint8_t layer;	    /* of an access; enum layer */
	uint8_t page;	    /* enum page_class */
	uint8_t block_kind; /* enum block_kind */
	uint8_t process;    /* in importer.pids */
	bool shadow;
};

#endif
