/* SPDX-License-Identifier: Apache-2.0 */
/*
 * two_acts FIRST SECOND [CODE]: takes FIRST blocks, says "ready" on stdout, waits for the end of stdin, takes SECOND blocks,
 * and ends with CODE. What a test does in between happens to a running program.
 */
#include <stdio.h>

#include "target.h"

int main(int argc, char **argv)
{
	unsigned first = argc > 1 ? (unsigned)atoi(argv[1]) : 100;
	unsigned second = argc > 2 ? (unsigned)atoi(argv[2]) : 100;
	struct truth *truth = truth_new(2 * ((size_t)first + second));
	char byte;

	truth_live(truth, first, 0);
	puts("ready");
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	truth_live(truth, second, 1);
	truth_write();
	return argc > 3 ? atoi(argv[3]) : 0;
}
