/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The document of --summary-json and `info --json`: {"schema": 1, "processes": [...]}. docs/summary.schema.json describes it.
 */
#ifndef MSCOPE_SINK_REPORT_JSON_H
#define MSCOPE_SINK_REPORT_JSON_H

#include "sink/report.h"

#define REPORT_SCHEMA 1

/* Begins and ends a document; between them come the processes. */
void report_json_begin(struct json *json, struct strbuf *out);
void report_json_end(struct json *json);

/* One process. */
void report_json(const struct report *report, struct json *json);

/* Begins a process with who it was; the answer to one question follows, and json_end(). */
void report_json_process(const struct report *report, struct json *json);

#endif
