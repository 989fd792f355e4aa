/* SPDX-License-Identifier: Apache-2.0 */
/* The seed of fuzz_elf: functions of each binding, nothing else. */
int seed_global(int x);
int seed_weak(int x);

static __attribute__((noinline)) int local(int x)
{
	return x * 3;
}

int seed_global(int x)
{
	return local(x) + 1;
}

__attribute__((weak)) int seed_weak(int x)
{
	return local(x) + 2;
}
