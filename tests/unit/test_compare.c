/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sequences side by side, against a table of longest common subsequences that is too slow for anything but a test, and against
 * the plain form of the algorithm whose ties must be met.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "unit.h"

#include "analysis/align.h"

struct walk {
	const uint32_t *first, *second;
	size_t x, y;
	size_t both, alone;
	char steps[512]; /* of short ones: = - + */
	size_t length;
};

static int on_step(void *arg, enum align_step step, size_t first, size_t second)
{
	struct walk *walk = arg;

	/* Every element once, in order, and only equal ones together. */
	assert_int_equal(first, walk->x);
	assert_int_equal(second, walk->y);
	if (step == ALIGN_BOTH)
		assert_int_equal(walk->first[first], walk->second[second]);
	walk->both += step == ALIGN_BOTH;
	walk->alone += step != ALIGN_BOTH;
	walk->x += step != ALIGN_SECOND;
	walk->y += step != ALIGN_FIRST;
	if (walk->length + 1 < sizeof(walk->steps))
		walk->steps[walk->length++] = "=-+"[step];
	return 0;
}

static bool run_align(struct walk *walk, const uint32_t *first, size_t n, const uint32_t *second,
		      size_t m)
{
	bool exact = false;

	*walk = (struct walk){.first = first, .second = second};
	assert_int_equal(align(first, n, second, m, on_step, walk, &exact), 0);
	assert_int_equal(walk->x, n);
	assert_int_equal(walk->y, m);
	walk->steps[walk->length] = '\0';
	return exact;
}

#define SHORT_MAX 60

static size_t common(const uint32_t *a, size_t n, const uint32_t *b, size_t m)
{
	static size_t table[SHORT_MAX + 1][SHORT_MAX + 1];
	size_t i, j;

	for (i = n + 1; i-- > 0;) {
		for (j = m + 1; j-- > 0;) {
			if (i == n || j == m)
				table[i][j] = 0;
			else if (a[i] == b[j])
				table[i][j] = table[i + 1][j + 1] + 1;
			else
				table[i][j] = table[i + 1][j] > table[i][j + 1] ? table[i + 1][j]
										: table[i][j + 1];
		}
	}
	return table[0][0];
}

/* Myers' algorithm as it is printed, all rows kept: the path that it goes back along, as text. */
static void plain_myers(const uint32_t *a, int n, const uint32_t *b, int m, char *out)
{
	static int rows[2 * SHORT_MAX + 2][4 * SHORT_MAX + 8];
	const int zero = 2 * SHORT_MAX + 3;
	char back[4 * SHORT_MAX];
	int d, k, x, y, length = 0;

	memset(rows, 0, sizeof(rows));
	for (d = 0;; d++) {
		int *v = rows[d] + zero, *before = rows[d == 0 ? 0 : d - 1] + zero;

		for (k = -d; k <= d; k += 2) {
			if (d == 0)
				x = 0;
			else if (k == -d || (k != d && before[k - 1] < before[k + 1]))
				x = before[k + 1];
			else
				x = before[k - 1] + 1;
			for (y = x - k; x < n && y < m && a[x] == b[y]; y++)
				x++;
			v[k] = x;
			if (x >= n && y >= m)
				goto found;
		}
	}
found:
	x = n;
	y = m;
	for (; d >= 0; d--) {
		int *before = rows[d == 0 ? 0 : d - 1] + zero, from_x = 0, from_y = 0;
		bool down = false;

		k = x - y;
		if (d > 0) {
			down = k == -d || (k != d && before[k - 1] < before[k + 1]);
			from_x = down ? before[k + 1] : before[k - 1];
			from_y = from_x - (down ? k + 1 : k - 1);
		}
		while (x > from_x + (d > 0 && !down) && y > from_y + (d > 0 && down)) {
			back[length++] = '=';
			x--;
			y--;
		}
		if (d > 0)
			back[length++] = down ? '+' : '-';
		x = from_x;
		y = from_y;
	}
	while (length > 0)
		*out++ = back[--length];
	*out = '\0';
}

static void random_sequences_are_aligned_best_and_as_the_original_does(void **state)
{
	uint32_t a[SHORT_MAX], b[SHORT_MAX];
	char expected[4 * SHORT_MAX];
	unsigned int seed = 1;
	struct walk walk;
	int round;
	(void)state;

	for (round = 0; round < 20000; round++) {
		size_t n = (size_t)rand_r(&seed) % (SHORT_MAX + 1),
		       m = (size_t)rand_r(&seed) % (SHORT_MAX + 1), i;
		uint32_t names = 1 + (uint32_t)rand_r(&seed) % 6;

		for (i = 0; i < n; i++)
			a[i] = (uint32_t)rand_r(&seed) % names;
		for (i = 0; i < m; i++)
			b[i] = (uint32_t)rand_r(&seed) % names;
		assert_true(run_align(&walk, a, n, b, m));
		assert_int_equal(walk.both, common(a, n, b, m));
		plain_myers(a, (int)n, b, (int)m, expected);
		assert_string_equal(walk.steps, expected);
	}
}

static void empty_sequences_are_aligned(void **state)
{
	static const uint32_t some[] = {1, 2, 3};
	struct walk walk;
	(void)state;

	assert_true(run_align(&walk, NULL, 0, NULL, 0));
	assert_string_equal(walk.steps, "");
	assert_true(run_align(&walk, some, 3, NULL, 0));
	assert_string_equal(walk.steps, "---");
	assert_true(run_align(&walk, NULL, 0, some, 3));
	assert_string_equal(walk.steps, "+++");
}

static double seconds(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

#define LONG 100000u

/* Limits are generous, because the test also runs under sanitizers and under emulation; quadratic work takes hours. */
static void long_sequences_are_quick(void **state)
{
	uint32_t *a = malloc(LONG * sizeof(*a)), *b = malloc(LONG * sizeof(*b));
	unsigned int seed = 7;
	struct walk walk;
	double start;
	size_t i;
	(void)state;

	assert_true(a != NULL && b != NULL);
	for (i = 0; i < LONG; i++)
		a[i] = b[i] = (uint32_t)rand_r(&seed) % 100;
	for (i = 0; i < 500; i++)
		b[(size_t)rand_r(&seed) % LONG] = 1000;
	start = seconds();
	assert_true(run_align(&walk, a, LONG, b, LONG));
	assert_true(walk.alone <= 1000 && walk.both >= LONG - 500);
	assert_true(seconds() - start < 30);
	/* Nothing in common: every element alone, in bounded time, and it is said that this is no proof. */
	for (i = 0; i < LONG; i++)
		b[i] = 1000 + a[i];
	start = seconds();
	assert_false(run_align(&walk, a, LONG, b, LONG));
	assert_int_equal(walk.alone, 2 * LONG);
	assert_true(seconds() - start < 120);
	print_message("%u against %u different: %.2f s\n", LONG, LONG, seconds() - start);
	/* One of them far longer. */
	assert_false(run_align(&walk, a, LONG, a + LONG / 2, 10));
	assert_int_equal(walk.both, 10);
	free(a);
	free(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_sequences_are_aligned_best_and_as_the_original_does),
		cmocka_unit_test(empty_sequences_are_aligned),
		cmocka_unit_test(long_sequences_are_quick),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
