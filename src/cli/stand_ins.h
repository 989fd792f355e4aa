/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Libraries of CUDA for one installed PyTorch, without CUDA: each library that PyTorch asks for, under its name and versions, with the functions
 * that libsimcuda.so (simcuda/README.md) does not have. These fail with their names. Nothing is compiled: symbols/elf_stub.h writes them.
 */
#ifndef MSCOPE_CLI_STAND_INS_H
#define MSCOPE_CLI_STAND_INS_H

#include "base/status.h"
#include "base/strbuf.h"

/*
 * Reads the libraries of PyTorch in `torch` and writes the others' stand-ins into `directory`; adds to `preload` what LD_PRELOAD needs, libsimcuda.so
 * first. 0 or a negative code with a sentence; MSCOPE_E_ABSENT: this PyTorch does not use CUDA.
 */
int stand_ins_make(const char *torch, const char *simcuda, const char *directory,
		   struct strbuf *preload, struct mscope_error *err);

#endif
