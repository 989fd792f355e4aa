/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory snapshots of PyTorch and torch_npu (torch.cuda.memory._dump_snapshot()) become traces: segments are memory of the driver,
 * blocks are memory of PyTorch's pool, annotations are ranges, frames are Python frames, those of C among them (symbols/origin.h tells them apart). What lived before the first entry of the
 * history is found by going back from the segments at its end; it is allocated outside of windows, because its history is unknown.
 */
#ifndef MSCOPE_IMPORT_TORCH_SNAPSHOT_H
#define MSCOPE_IMPORT_TORCH_SNAPSHOT_H

#include "import/import.h"

/* Times of a file that has none: a microsecond from entry to entry. */
#define SNAPSHOT_FIRST_US UINT64_C(1000000)

/* Whether a file begins as a pickle. */
bool snapshot_probe(const char *path);

/* Writes the trace of a snapshot to `trace`, as importer_write() does. */
int snapshot_import(const char *path, const char *trace, struct import *import, int *out_fd,
		    struct mscope_error *err);

#endif
