/* SPDX-License-Identifier: Apache-2.0 */
/* The page with answers in it, as one file of limited size that can be mailed: whole runs at the resolution of a screen. */
#ifndef MSCOPE_VIEWER_HTML_REPORT_H
#define MSCOPE_VIEWER_HTML_REPORT_H

#include "viewer/questions.h"

#define HTML_REPORT_BYTES 10000000u /* if no limit is named */
#define HTML_REPORT_LEAST 400000u   /* the page itself, and a summary */

/*
 * Appends the file, of at most `limit` bytes; it names `command` for what it leaves out. 0, or a negative code said in `err`: a run
 * cannot be read.
 */
int html_report(struct viewed *viewed, size_t limit, const char *command, struct strbuf *out,
		struct mscope_error *err);

#endif
