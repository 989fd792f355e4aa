/* SPDX-License-Identifier: Apache-2.0 */
#include "sink/digest_findings.h"

#include <string.h>

#include "trace/session.h"

void digest_take_findings(struct digest *out, const struct report *report)
{
	struct analysis_view view = {.replay = report->replay, .lines = 3, .frames = 1};

	if (report->analyses == NULL)
		return;
	analyses_text(report->analyses, &view, &out->judged);
	out->verdict = out->judged.length == 0			     ? DIGEST_NOTHING
		       : strstr(out->judged.data, "ERROR: ") != NULL ? DIGEST_LEAK
								     : DIGEST_FINE;
}
