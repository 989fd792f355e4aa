/* SPDX-License-Identifier: Apache-2.0 */
/*
 * two_acts PAIRS [CODE]: takes memory, says "ready" on stdout, waits for the end of stdin, takes memory again, and ends with
 * CODE. What a test does in between happens to a running program.
 */
#include <stdio.h>

#include "target.h"

int main(int argc, char **argv)
{
	unsigned pairs = argc > 1 ? (unsigned)atoi(argv[1]) : 100;
	struct truth *truth = truth_new(4 * (size_t)pairs);
	char byte;

	truth_live(truth, pairs, 0);
	puts("ready");
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	truth_live(truth, pairs, 1);
	truth_write();
	return argc > 2 ? atoi(argv[2]) : 0;
}
