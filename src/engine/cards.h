/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which device of a process a figure of the driver is about. A management library that numbers devices otherwise than programs do (NVML)
 * names them by UUID; the process says by which it knows its own (struct trace_cards). What fits nothing is left out, never taken for
 * another device.
 */
#ifndef MSCOPE_ENGINE_CARDS_H
#define MSCOPE_ENGINE_CARDS_H

#include "trace/run.h"
#include "trace/sampler.h"

#define CARDS_SEEN 64u

/* The cards that the management library has figures of. */
struct cards {
	uint8_t seen[CARDS_SEEN][16];
	uint32_t count;
	bool came;     /* such a library answers */
	bool complete; /* all that it has came at least once */
};

/* Behind each record of a device, and behind each round. */
void cards_take(struct cards *cards, const struct sampler_record *record);
void cards_round_ends(struct cards *cards);

/* The record with the number that the process has for the device. False: it is none of its devices, or nobody can tell. */
bool cards_number(struct run *run, const struct sampler_record *record, struct sampler_record *out);

/* The process has ended: a note tells of devices that have no figures because nobody can tell which they are. */
void cards_end(const struct cards *cards, struct run *run, uint64_t now_ns);

#endif
