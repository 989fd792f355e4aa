/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MSCOPE_SINK_REPORT_FINDINGS_H
#define MSCOPE_SINK_REPORT_FINDINGS_H

#include "sink/report.h"

/* The keys "judgement", "trends", "places", "peak" and "oom" of a process; report->found is there. */
void report_findings_json(const struct report *report, struct json *json);

#endif
