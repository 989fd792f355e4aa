/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MSCOPE_CLI_PAGER_H
#define MSCOPE_CLI_PAGER_H

#include "base/strbuf.h"

/* Writes a text to stdout; on a terminal through $PAGER, or less if it is there. An empty PAGER, or cat: none. */
void pager_write(const struct strbuf *text);

#endif
