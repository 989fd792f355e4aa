/* SPDX-License-Identifier: Apache-2.0 */
/* What a screen says of an out-of-memory: why, and what was held. Whole lines; they may be broken, and cut. */
#ifndef MSCOPE_SINK_SCREEN_OOM_H
#define MSCOPE_SINK_SCREEN_OOM_H

#include "findings/findings.h"

/* A request that was refused, `earlier` came before it; and who held memory at that moment. */
void screen_oom(const struct findings *found, const struct finding_oom *oom, size_t earlier,
		struct strbuf *out, struct strbuf *held);

#endif
