/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How another process asks one that has the collector to begin or end a window: `msmemscope ctl PID start`.
 *
 * The collector has no thread, no socket and no signal. It has this block in its own memory, which the command finds by the exported
 * name mscope_collector_v1 and writes by process_vm_writev(); so the kernel decides who may, as for a debugger. The block says what is
 * wanted. Then the command sets CONTROL_ASKED in the word that the record path compares anyway (collector_switch.generation): the next
 * event of any thread leaves the fast path, finds the bit and carries out the command. The record path does not change for it.
 *
 * Remote writes of a word are no exchange. If the process writes the generation at the same time, the bit is lost, and the command sets
 * it again; and a generation that was old is harmless, because the process puts back its own.
 */
#ifndef MSCOPE_TRACE_CONTROL_H
#define MSCOPE_TRACE_CONTROL_H

#include <stdatomic.h>

#include "base/compiler.h"
#include "trace/session.h"

#define CONTROL_NAME  "mscope_collector_v1"
#define CONTROL_MAGIC "MSCCTRL1"
#define CONTROL_ASKED 0x80000000u /* bit of the generation */

enum control_kind {
	CONTROL_NOTHING = 0,  /* 1: it is recorded, 0: it is not */
	CONTROL_OPEN = 1,     /* record in the session of `session` */
	CONTROL_START = 2,    /* begin a window */
	CONTROL_STOP = 3,     /* end it */
	CONTROL_STEP = 4,     /* end a step */
	CONTROL_SNAPSHOT = 5, /* what the device of the thread holds now */
	CONTROL_WHO =
		6, /* find out which Python objects keep its memory; `looked` says when that is done */
};

struct control_block {
	/* Copies of the collector that found this one; first, as in all versions. */
	_Atomic uint32_t passive;
	uint32_t bytes;		/* sizeof(struct control_block) */
	char magic[8];		/* CONTROL_MAGIC */
	_Atomic uint32_t asked; /* number of the latest command; command */
	_Atomic uint32_t kind;	/* enum control_kind; command, before `asked` */
	_Atomic uint32_t done;	/* number of the latest that was carried out; process */
	/* Of it, as the function of the API returns it; process, before `done`. */
	_Atomic int32_t result;
	/* Addresses in the process: the generation, and enum recording. */
	_Atomic uint32_t *generation;
	_Atomic uint32_t *recording;
	char session[SESSION_PATH_MAX]; /* of CONTROL_OPEN; command */
	_Atomic uint32_t looked; /* number of the latest CONTROL_WHO that has ended; process */
};

#endif
