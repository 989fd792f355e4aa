/* SPDX-License-Identifier: Apache-2.0 */
#include "collector/watch/runtime.h"

#include <errno.h>

int runtime_wait(struct runtime *runtime, void *stream, bool has_stream)
{
	void *function =
		lookup_function(has_stream ? &runtime->sync_stream : &runtime->sync_device);
	int r;

	if (function == NULL)
		return -ENOSYS;
	if (runtime->is_capturing(runtime, has_stream ? stream : NULL))
		return -EBUSY;
	r = has_stream ? ((int (*)(void *))function)(stream) : ((int (*)(void))function)();
	return r == 0 ? 0 : -EIO;
}

void runtime_reset(struct runtime *runtime)
{
	lookup_forget(&runtime->sync_stream);
	lookup_forget(&runtime->sync_device);
	lookup_forget(&runtime->capturing);
	lookup_forget(&runtime->copy);
}
