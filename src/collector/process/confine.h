/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls by which a process gives up what recording needs: see confine.c and sandbox.c.
 */
#ifndef MSCOPE_COLLECTOR_PROCESS_CONFINE_H
#define MSCOPE_COLLECTOR_PROCESS_CONFINE_H

#include <sys/resource.h>
#include <sys/types.h>

#include "collector/loader/hook.h"

#define HOOK HOOK_DECLARE
#include "collector/process/hooks.def"
#undef HOOK

/*
 * The program is about to confine itself: attaches now, if there is a session and nothing is attached yet. errno stays as it was.
 */
void confine_begins(void);

#endif
