/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What becomes known about a block after its rows were published: a small record of fixed size for each allocation_id, in a
 * mapped file, so that memory does not grow with events. When the run is over, files are written again only if a fact changes a
 * row in them. The file has no name, and vanishes with the process.
 */
#ifndef MSCOPE_REPLAY_FACTS_H
#define MSCOPE_REPLAY_FACTS_H

#include <stdbool.h>

#include "base/spool.h"
#include "base/status.h"
#include "base/strbuf.h"

struct owners;

/* How a block was not used well; the bits of struct fact. */
enum inefficiency {
	INEFFICIENT_EARLY = 1,
	INEFFICIENT_LATE = 2,
	INEFFICIENT_IDLE = 4,
};

struct fact {
	uint16_t undone_frees; /* frees that were announced and then failed */
	uint16_t inefficient;  /* bits of enum inefficiency */
	/* By labels that came later, a number of facts.owners; 0: unchanged. */
	uint32_t owner;
	/* What its pool had reserved when it was allocated, told later; 0: unchanged. */
	uint64_t reserved_bytes;
};

struct facts {
	struct spool records; /* struct fact, by allocation_id */
	bool changed;	      /* a fact changes rows that were published before */
	/* Of the pass that found the facts; borrowed from its replay. */
	const struct owners *owners;
	uint8_t step_source; /* enum step_source of the whole run */
};

/* `directory` is where the file without a name is made: beside the trace. */
int facts_init(struct facts *facts, const char *directory, struct mscope_error *err);
void facts_fini(struct facts *facts);

/* The record of an allocation, for the caller to change; NULL if there is no room. Valid until the next call. */
struct fact *facts_at(struct facts *facts, uint64_t allocation_id);

/* The record of an allocation; all zero if there is none. */
struct fact facts_get(const struct facts *facts, uint64_t allocation_id);

/* Appends the words of the bits, as the key inefficient_type has them: a list with commas. */
void inefficiency_text(uint32_t bits, struct strbuf *out);

#endif
