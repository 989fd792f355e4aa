/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MSCOPE_SINK_REPORT_FINDINGS_H
#define MSCOPE_SINK_REPORT_FINDINGS_H

#include "sink/report.h"

#define REPORT_PLACES_JSON 1000 /* places of a document that does not have all */

/* The keys "judgement", "places", "peak" and "oom" of a process. */
void report_findings_json(const struct report *report, struct json *json);

#endif
