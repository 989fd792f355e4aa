/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A training loop on one NPU that forgets something: every third step keeps its loss buffer, and one workspace is never given
 * back. It marks its steps, so msmemscope knows which is a leak and which is just held; with --call-stack=c it shows the places
 * that both come from:
 *
 *     msmemscope --call-stack=c -- leaky_npu [steps]
 */
#include <stdio.h>
#include <stdlib.h>

#include "ascend_hal.h"
#include "mstx/ms_tools_ext.h"

#define KIB 1024ull
#define MIB (1024 * KIB)

/* Device memory of device 0 in high bandwidth memory, normal and huge pages, as the runtime asks for it. */
#define FLAG_SMALL 0x2100000000904400ull
#define FLAG_LARGE 0x2100000000924400ull

static void *device_alloc(unsigned long long bytes)
{
	void *p = NULL;

	if (halMemAlloc(&p, bytes, bytes > MIB ? FLAG_LARGE : FLAG_SMALL) != 0) {
		fprintf(stderr, "leaky_npu: out of device memory\n");
		exit(1);
	}
	return p;
}

void *make_weights(void);
void open_workspace(void);
void train_step(int step);
void compute_loss(int step);

void *make_weights(void)
{
	return device_alloc(64 * MIB);
}

/* Nobody remembers the address. */
void open_workspace(void)
{
	(void)device_alloc(16 * MIB);
}

void compute_loss(int step)
{
	void *loss = device_alloc(256 * KIB);

	/* The bug: early return on the steps that log. */
	if (step % 3 == 0)
		return;
	(void)halMemFree(loss);
}

void train_step(int step)
{
	void *activations = device_alloc(8 * MIB);
	void *gradients = device_alloc(64 * MIB);

	compute_loss(step);
	(void)halMemFree(gradients);
	(void)halMemFree(activations);
}

int main(int argc, char **argv)
{
	int steps = argc > 1 ? atoi(argv[1]) : 30, step;
	void *weights = make_weights();

	open_workspace();
	for (step = 1; step <= steps; step++) {
		/* A range of this name is a step. Beyond a thousand this is a load and no training, and marks nothing. */
		uint64_t range = steps <= 1000 ? mstxRangeStartA("step start", NULL) : 0;

		train_step(step);
		if (range != 0)
			mstxRangeEnd(range);
	}
	(void)halMemFree(weights);
	printf("leaky_npu: trained %d steps\n", steps);
	return 0;
}
