/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signs of life during long work. A program that waits for complete files gives up when the engine shows none for 10 s
 * (collector/process/control.c). Reading events shows them by itself; names of frames, a report or a database take as long as they
 * take, and on a busy machine the engine, which is nice, gets little time for them. A thread counts the header's heartbeat up
 * meanwhile. So the program waits for an engine that works, however slowly, and not for one that is stopped or gone.
 */
#ifndef MSCOPE_ENGINE_BEATER_H
#define MSCOPE_ENGINE_BEATER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct beater {
	_Atomic uint32_t *heartbeat; /* borrowed */
	_Atomic uint32_t ends;	     /* 1: the thread is to end; it waits on this word */
	pthread_t thread;
	bool runs;
};

/* Without a thread, which a limit may forbid, only the signs of life are missing. `heartbeat` NULL: no process waits. */
void beater_begin(struct beater *beater, _Atomic uint32_t *heartbeat);
void beater_end(struct beater *beater);

#endif
