/* SPDX-License-Identifier: Apache-2.0 */
/* The page with answers in it, as one file that can be mailed: the whole run at the resolution of a screen. */
#ifndef MSCOPE_VIEWER_HTML_REPORT_H
#define MSCOPE_VIEWER_HTML_REPORT_H

#include "viewer/questions.h"

/* Appends the file. 0, or a negative code said in `err`: a run cannot be read. */
int html_report(struct viewed *viewed, struct strbuf *out, struct mscope_error *err);

#endif
