/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the tree lies that this command is part of: HOME/bin/msmemscope, HOME/lib64, HOME/simnpu, HOME/examples. It is found
 * from the executable itself, so the tree may be copied anywhere. `make install` puts it into PREFIX/lib/msmemscope, and a link
 * to the command into PREFIX/bin.
 */
#ifndef MSCOPE_CLI_TREE_H
#define MSCOPE_CLI_TREE_H

#include "base/status.h"

/* Frameworks look for exactly this name among the preloaded libraries. */
#define TREE_COLLECTOR "libascend_kernel_hook.so"

/* Of the tree below a prefix. */
#define TREE_BELOW "/lib/msmemscope"

/* The directory above the one of our executable, without links in it; what lies in TREE_BELOW of it if it has no collector. */
int tree_prefix(char *out, size_t bytes, struct mscope_error *err);

/* The library that is preloaded; an error when it cannot be read. */
int tree_collector(char *out, size_t bytes, struct mscope_error *err);

#endif
