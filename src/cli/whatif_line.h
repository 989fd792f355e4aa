/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What other settings of PyTorch's allocator would have done for a run whose memory ran out, or that reserves far more than it uses: one
 * line of its screen. The settings are played on the record before anything is said; a record that cannot be replayed gets no line.
 */
#ifndef MSCOPE_CLI_WHATIF_LINE_H
#define MSCOPE_CLI_WHATIF_LINE_H

#include "sink/digest.h"

/* Fills digest->what_if from the trace that `word` names. Longer runs than can be played in about two seconds are left out. */
void whatif_line(struct digest *digest, const char *word);

/* The same for the one of several that the screen shows, from its project. */
void whatif_line_of_worst(struct digest *digests, size_t count);

#endif
