/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A shared object that takes device memory for its host program. It is built several times, with PLUGIN as the middle of the
 * functions' names, so that copies which land at the same address can be told apart in a stack.
 */
#include "ascend_hal.h"

#define PASTE(name)	 plugin_##name
#define EXPAND(name)	 PASTE(name)
#define PLUGIN_SYMBOL(x) EXPAND(x)
#define STRING(x)	 #x
#define QUOTE(x)	 STRING(x)

void *PLUGIN_SYMBOL(PLUGIN)(unsigned long long size, unsigned long long flag);
int plugin_free(void *address);
extern const char plugin_name[];

const char plugin_name[] = QUOTE(PLUGIN);

/* Not a tail call: this frame must be on the stack. */
void *PLUGIN_SYMBOL(PLUGIN)(unsigned long long size, unsigned long long flag)
{
	void *address = NULL;

	if (halMemAlloc(&address, size, flag) != 0)
		return NULL;
	return address;
}

int plugin_free(void *address)
{
	return halMemFree(address) == 0 ? 0 : -1;
}
