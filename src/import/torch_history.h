/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory snapshots of PyTorch as histories of its pools, one for each device: what twin/program.h plays. A snapshot has requested
 * sizes, streams and segments, the settings since PyTorch 2.1, and no release.
 */
#ifndef MSCOPE_IMPORT_TORCH_HISTORY_H
#define MSCOPE_IMPORT_TORCH_HISTORY_H

#include "base/status.h"
#include "twin/pool_history.h"

struct pickle;

/* Whether torch_npu wrote the file: its own code is in the stacks, or its name in the settings. */
bool torch_history_of_npu(const struct pickle *pickle);

/* Histories of devices that have events. The caller ends each with pool_history_fini() and frees the array. */
int torch_history_read(const char *path, struct pool_history **out, size_t *out_count,
		       struct mscope_error *err);

#endif
