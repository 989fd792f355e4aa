/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an operator's schema says of the tensors that it takes and gives, from its text:
 *
 *     aten::add.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out) -> Tensor(a!)
 *
 * Needs nothing but the text. Arguments and results are bits; those behind the 64th are not looked at.
 */
#ifndef MSCOPE_COLLECTOR_TORCH_SCHEMA_H
#define MSCOPE_COLLECTOR_TORCH_SCHEMA_H

#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"

struct torch_schema {
	/* Arguments whose data is read. */
	uint64_t reads;
	/* Arguments that are written and are no result. */
	uint64_t changes;
	/* Results that were written: new memory, and arguments that are returned. */
	uint64_t writes;
	uint8_t arguments;
	uint8_t results;
	bool takes_device; /* as an argument, or it is not known */
};

/* Reads one line. The length of the operator's name with overload, at its beginning; 0: it is no schema. */
size_t torch_schema_parse(const char *line, size_t bytes, struct torch_schema *out);

/* For an operator without a known schema: it reads what it is given, and writes its results. */
void torch_schema_guess(const char *name, struct torch_schema *out);

#endif
