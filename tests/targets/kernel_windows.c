/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel_windows WINDOWS KERNELS MS: so many windows with so many kernels in each. A window has two streams, one after the other,
 * whose numbers and tasks are those of the ones before, waits for its kernels and ends at once. Between windows there are
 * kernels, too, and so many milliseconds.
 */
#include <dlfcn.h>
#include <unistd.h>

#include "target.h"

#include "acl/acl.h"
#include "simnpu.h"

#define DO(call) target_check((call) == 0, #call " failed")

static void nothing(void *arguments, size_t size, uint32_t blocks)
{
	(void)arguments;
	(void)size;
	(void)blocks;
}

static void launch(void *kernel, int count)
{
	aclrtStream stream;
	uint64_t word = 0;

	for (int half = 0; half < 2; half++) {
		DO(aclrtCreateStream(&stream));
		for (int i = 0; i < count / 2; i++)
			DO(aclrtLaunchKernel(kernel, 1, &word, sizeof(word), stream));
		DO(aclrtSynchronizeStream(stream));
		DO(aclrtDestroyStream(stream));
	}
}

int main(int argc, char **argv)
{
	int32_t (*start)(const uint32_t *, uint32_t);
	int32_t (*stop)(void);
	void *inside, *outside;

	target_check(argc == 4, "usage: kernel_windows WINDOWS KERNELS MS");
	*(void **)&start = dlsym(RTLD_DEFAULT, "mscope_start");
	*(void **)&stop = dlsym(RTLD_DEFAULT, "mscope_stop");
	target_check(start != NULL && stop != NULL, "not recorded");
	DO(aclInit(NULL));
	DO(aclrtSetDevice(0));
	DO(simnpuRegisterKernel("inside", nothing, &inside));
	DO(simnpuRegisterKernel("outside", nothing, &outside));
	for (int i = 0; i < atoi(argv[1]); i++) {
		DO(start(NULL, 0));
		launch(inside, atoi(argv[2]));
		target_check(stop() == 1, "no window");
		launch(outside, 10);
		(void)usleep((useconds_t)atoi(argv[3]) * 1000);
	}
	DO(aclFinalize());
	return 0;
}
