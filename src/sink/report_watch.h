/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MSCOPE_SINK_REPORT_WATCH_H
#define MSCOPE_SINK_REPORT_WATCH_H

#include "base/json.h"
#include "replay/watches.h"

/* A line for each watched block, `shown` at most: when its bytes changed first. Nothing when nothing was watched. */
void report_watch_text(const struct watches *watches, size_t shown, struct strbuf *out);
void report_watch_json(const struct watches *watches, struct json *json);

#endif
