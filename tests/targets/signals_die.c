/* SPDX-License-Identifier: Apache-2.0 */
/* Ends in one way: `signals_die exit N` or `signals_die signal N`, after a line on each output. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int number = argc == 3 ? atoi(argv[2]) : 0;

	if (argc != 3)
		return 2;
	printf("out\n");
	fflush(stdout);
	fprintf(stderr, "err\n");
	if (strcmp(argv[1], "exit") == 0)
		_exit(number);
	signal(number, SIG_DFL);
	raise(number);
	return 1;
}
