/* SPDX-License-Identifier: Apache-2.0 */
/* The seed of fuzz_elf and fuzz_imports: functions of each binding, and with IMPORTS one of the C library. */
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

#if defined(IMPORTS)
int rand(void);
int seed_import(void);

int seed_import(void)
{
	return rand();
}
#endif
