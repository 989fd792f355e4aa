/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the simulated CUDA share. One library, libsimcuda.so, has all functions that are written, under their public names; the
 * libraries whose names a program asks for (libcudart.so.13, ...) are made for the installed program by msmemscope and have a stand-in for
 * each function that is not written (sim_not_written()).
 *
 * Environment: SIMCUDA_DEVICE (a word of devices.def, or cuda:BYTES), SIMCUDA_BYTES, SIMCUDA_VERSION (13000), SIMCUDA_CUDNN (91900),
 * SIMCUDA_WORKSPACE (none: convolutions ask for no workspace).
 */
#ifndef SIMCUDA_SIM_H
#define SIMCUDA_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_API __attribute__((visibility("default")))

/* Codes of the runtime and of the driver, which are the same where both have one. */
enum sim_code {
	SIM_OK = 0,
	SIM_INVALID_VALUE = 1,
	SIM_OUT_OF_MEMORY = 2,
	SIM_INVALID_DEVICE = 101,
	SIM_NOT_FOUND = 500,
	SIM_NOT_READY = 600,
	SIM_NOT_SUPPORTED = 801,
};

struct sim_card {
	const char *word, *name;
	int major, minor, sms, l2_kib, sm_threads, sm_shared, block_shared;
	uint64_t mib;
	unsigned int context;
};

/* ---- card.c ---- */
const struct sim_card *sim_card(void);
uint64_t sim_card_bytes(void); /* of the whole card */
int sim_version(void);	       /* of CUDA: 13000 */
int sim_cudnn_version(void);   /* 91900 */

/* ---- told.c ---- */
enum sim_told {
	SIM_READ = 0,	   /* the host reads a number that no kernel has computed */
	SIM_READ_MANY = 1, /* the same of more than 64 bytes */
	SIM_MISSING = 2,   /* a function that is not written was called, and failed */
	SIM_RANGE = 4,	   /* bytes of a workspace that a library may choose or not */
	SIM_FULL = 5,	   /* a size that depends on values: as large as it can be */
};
void sim_tell(enum sim_told kind, const char *what);

/* Tells what failed and keeps it for cudaGetErrorString(). SIM_NOT_SUPPORTED. */
int sim_fail(const char *what);
int sim_error(int code); /* the runtime's last error; returns the code */

/* What a stand-in of a function that is not written jumps to; the code of its library. */
SIM_API long simcuda_not_written(const char *name);

SIM_API const char *cudaGetErrorString(int code);

/* A function that fails so, for a name that is only known now. NULL when there are too many. */
void *sim_missing_function(const char *name);

/* ---- cudnn.c ---- */
/* A workspace that a library chooses by rules that are not public: `most` and told, or `least` if the answer is to have none. */
uint64_t sim_range(uint64_t least, uint64_t most);

/* ---- memory.c ---- */
bool sim_is_device(const void *address);
uint64_t sim_free_bytes(void);
int sim_take(uint64_t bytes, void **out); /* SIM_OK or SIM_OUT_OF_MEMORY */
int sim_give(void *address);
int sim_count(int64_t bytes); /* physical memory without an address */
void sim_beside(
	uint64_t
		bytes); /* what a library takes for itself; simcuda_outside() has it and the context */
void sim_copy(void *to, const void *from, size_t bytes);
void sim_fill(void *to, int value, size_t bytes);
void *sim_reserve(uint64_t bytes); /* addresses without memory */
/* Numbers that this thread reads of unknown memory are this; -1: they are 0. Returns what was set before. */
int64_t sim_largest(int64_t count);
/* The number that this thread reads next for the size of a result; -1: it is not known. Returns what was set before. */
int64_t sim_answer(int64_t number);
/* Why sizes that follow from numbers of unknown memory, read by this thread, have no bound; NULL: they have. Returns what was set before. */
const char *sim_unbounded(const char *why);
void sim_guess_true(void *address); /* the byte there reads as 1, and is told */

/* ---- launch.c ---- */
/* The library of this address if it is not PyTorch's own; NULL: it is. */
const char *sim_stranger(const void *address);
uint64_t sim_launches(void);
void sim_launched(void); /* something ran that may have written any memory of the device */

#endif
