/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MSCOPE_SINK_REPORT_WATCH_H
#define MSCOPE_SINK_REPORT_WATCH_H

#include "base/json.h"
#include "base/strbuf.h"
#include "replay/replay.h"

/*
 * What became of watched memory, `shown` lines at most: first each change that no operator declared, those of kernels that were
 * handed the memory last; then the blocks without one, and operators that --watch named and that never ran. Nothing when nothing
 * was to be watched. True when there are such changes.
 */
bool report_watch_text(struct replay *replay, size_t shown, struct strbuf *out);
void report_watch_json(struct replay *replay, struct json *json);
/* Of these changes the first `most`, as findings of the page: name, step and sentence. */
void report_watch_findings(struct replay *replay, size_t most, struct json *json);

#endif
