/* SPDX-License-Identifier: Apache-2.0 */
/* The page with answers in it, as one file of at most 10 MB that can be mailed: whole runs at the resolution of a screen. */
#ifndef MSCOPE_VIEWER_HTML_REPORT_H
#define MSCOPE_VIEWER_HTML_REPORT_H

#include "viewer/questions.h"

/* Appends the file; it names `command` for what it leaves out. 0, or a negative code said in `err`: a run cannot be read. */
int html_report(struct viewed *viewed, const char *command, struct strbuf *out,
		struct mscope_error *err);

#endif
