/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A shared object that takes device memory for its host program. It is built several times, with PLUGIN as the middle of the
 * functions' names, so that copies which land at the same address can be told apart in a stack. Their frames have different sizes:
 * who takes one for the other does not find the caller.
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
	volatile char room[8 + PLUGIN_ROOM];
	void *address = NULL;

	room[PLUGIN_ROOM] = 1;
	if (halMemAlloc(&address, size, flag) != 0)
		return NULL;
	return room[PLUGIN_ROOM] == 1 ? address : NULL;
}

int plugin_free(void *address)
{
	return halMemFree(address) == 0 ? 0 : -1;
}
