/* SPDX-License-Identifier: Apache-2.0 */
/* many_kernels COUNT: kernels of so many names, as a compiler makes them for each shape; each is launched twice. */
#include <stdio.h>
#include <stdlib.h>

#include <acl/acl.h>
#include <acl/acl_rt.h>
#include <simnpu.h>

static void nothing(void *args, size_t args_size, uint32_t block_dim)
{
	(void)args;
	(void)args_size;
	(void)block_dim;
}

int main(int argc, char **argv)
{
	int count = argc > 1 ? atoi(argv[1]) : 0, i, round;
	void *stream = NULL, *kernel = NULL;
	char args[8] = {0}, name[64];

	if (aclInit(NULL) != 0 || aclrtSetDevice(0) != 0 || aclrtCreateStream(&stream) != 0)
		return 1;
	for (i = 0; i < count; i++) {
		(void)snprintf(name, sizeof(name), "te_matmul_of_shape_%d", i);
		if (simnpuRegisterKernel(name, nothing, &kernel) != 0)
			return 1;
		for (round = 0; round < 2; round++) {
			if (aclrtLaunchKernel(kernel, 1, args, sizeof(args), stream) != 0)
				return 1;
		}
	}
	return aclrtSynchronizeStream(stream) != 0;
}
