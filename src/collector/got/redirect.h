/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hooks in a program that does not have us preloaded: its calls are redirected where its objects keep the addresses of what they
 * call. What the functions do is the same as with a preload; see redirect.c.
 */
#ifndef MSCOPE_COLLECTOR_GOT_REDIRECT_H
#define MSCOPE_COLLECTOR_GOT_REDIRECT_H

#include "collector/loader/hook.h"

#define SLOT SLOT_DECLARE
#include "collector/got/slots.def"
#undef SLOT

/* Redirects what was loaded since the last time; nothing if we were never asked to redirect. Quick if nothing was. errno stays. */
void redirect_more(void);

#endif
