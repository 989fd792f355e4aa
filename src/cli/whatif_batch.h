/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MSCOPE_CLI_WHATIF_BATCH_H
#define MSCOPE_CLI_WHATIF_BATCH_H

#include "options/options.h"

/* whatif RUN RUN [RUN] --batch=LIST: what the pool would reserve with other batches. Returns the exit code. */
int whatif_batch(const struct options *options);

#endif
