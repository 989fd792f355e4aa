/* SPDX-License-Identifier: Apache-2.0 */
/* What the analyses found, as a part of a digest. */
#ifndef MSCOPE_SINK_DIGEST_FINDINGS_H
#define MSCOPE_SINK_DIGEST_FINDINGS_H

#include "sink/digest.h"

/* Verdict, places, trends, peak, out of memory, and the tables of other analyses. */
void digest_take_findings(struct digest *out, const struct report *report);

#endif
