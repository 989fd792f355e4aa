/* SPDX-License-Identifier: Apache-2.0 */
/* A library whose constructor asks the program that loads it to fork there. */
void fork_here(void);

__attribute__((constructor)) static void constructor(void)
{
	fork_here();
}
