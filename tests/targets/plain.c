/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plain [CODE]: says one line on each stream and ends with CODE. Built statically, with a sanitizer or given a setuid bit, it
 * is a program that cannot be traced as it is.
 */
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	puts("plain stdout");
	fputs("plain stderr\n", stderr);
	return argc > 1 ? atoi(argv[1]) : 0;
}
