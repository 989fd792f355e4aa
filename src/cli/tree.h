/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the tree lies that this command is part of: PREFIX/bin/msmemscope, PREFIX/lib64, PREFIX/simnpu, PREFIX/examples. It is
 * found from the executable itself, so the tree may be copied anywhere.
 */
#ifndef MSCOPE_CLI_TREE_H
#define MSCOPE_CLI_TREE_H

#include "base/status.h"

/* Frameworks look for exactly this name among the preloaded libraries. */
#define TREE_COLLECTOR "libascend_kernel_hook.so"

/* The directory above the one of our executable, without links in it. */
int tree_prefix(char *out, size_t bytes, struct mscope_error *err);

/* The library that is preloaded; an error when it cannot be read. */
int tree_collector(char *out, size_t bytes, struct mscope_error *err);

#endif
