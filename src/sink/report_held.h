/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MSCOPE_SINK_REPORT_HELD_H
#define MSCOPE_SINK_REPORT_HELD_H

#include "sink/report.h"

/* What was held at the end, by place, each with its blocks: address, size, step, kernel and thread. */
void report_held_text(const struct report *report, struct strbuf *out);

/* Which blocks and which order a report asks for. */
struct alive_choice report_held_choice(const struct report_shown *shown);

#endif
