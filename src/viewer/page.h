/* SPDX-License-Identifier: Apache-2.0 */
/* The page itself: HTML with a place for data and one for the name of its script. */
#ifndef MSCOPE_VIEWER_PAGE_H
#define MSCOPE_VIEWER_PAGE_H

#include "base/strbuf.h"

/* Bytes of the page without data. */
size_t page_bytes(void);

/* Appends the page. `answers`: JSON that a report carries; NULL: the page asks a server. `nonce` names its script; NULL: none. */
void page_write(struct strbuf *out, const char *answers, const char *nonce);

#endif
