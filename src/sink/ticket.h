/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was found, to paste into an issue: one screen of Markdown as GitHub and GitLab render it. Names of the program stand in code spans
 * and code blocks, so that nothing in them is markup.
 */
#ifndef MSCOPE_SINK_TICKET_H
#define MSCOPE_SINK_TICKET_H

#include "sink/digest.h"

struct ticket_line {
	const char *name;
	const char *text;
};

struct ticket {
	const struct digest *digests; /* of all processes, in any order */
	size_t count;
	const struct ticket_line *environment; /* of the worst one, up to a line without a name */
};

void ticket_markdown(const struct ticket *ticket, struct strbuf *out);

#endif
