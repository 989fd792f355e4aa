/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Synthetic histories of places with known truth, and how often the judge of analysis/growth.h is right about them.
 *     shapes [RUNS [SEED]]    a table: shape, truth, and leak/suspect/kept in per cent for runs of several lengths
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include "analysis/growth.h"

static uint64_t rng;
static uint64_t rnd(void)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return rng * 0x2545F4914F6CDD1Dull;
}
static uint32_t below(uint32_t n)
{
	return n == 0 ? 0 : (uint32_t)((rnd() >> 33) % n);
}
static uint32_t between(uint32_t a, uint32_t b)
{
	return a + below(b - a + 1);
}
static double unit(void)
{
	return (double)(rnd() >> 11) / 9007199254740992.0;
}
static bool chance(double p)
{
	return unit() < p;
}
static uint32_t poisson(double m)
{
	double l = exp(-m), p = 1;
	uint32_t k = 0;
	do {
		k++;
		p *= unit();
	} while (p > l && k < 1000);
	return k - 1;
}

#define MAXB 200000
struct blk {
	uint32_t step, freed;
	uint64_t bytes;
};
struct sim {
	struct growth g;
	struct blk b[MAXB];
	uint32_t n, step, steps;
	uint32_t pend[MAXB];
	uint32_t pn;
	uint32_t p[64];
	uint64_t size;
	double d[8];
	bool touched;
};
static struct sim S;
static uint32_t A(uint64_t bytes)
{
	uint32_t i = S.n++;
	if (S.n >= MAXB)
		abort();
	S.b[i] = (struct blk){S.step, 0, bytes};
	growth_alloc(&S.g, bytes);
	S.touched = true;
	return i;
}
static void F(uint32_t i)
{
	if (S.b[i].freed)
		abort();
	S.b[i].freed = S.step;
	S.pend[S.pn++] = i;
}
static void end_step(void)
{
	for (uint32_t i = 0; i < S.pn; i++) {
		struct blk *b = &S.b[S.pend[i]];
		growth_free(&S.g, b->bytes, S.step - b->step);
		S.touched = true;
	}
	S.pn = 0;
	if (S.touched)
		growth_step(&S.g, S.step);
	S.touched = false;
}
static void T(uint64_t bytes)
{
	F(A(bytes));
}
static uint64_t vary(void)
{
	return S.size / 2 + below((uint32_t)S.size);
}
#define INIT (S.step == 1)
/* queues of live blocks in the shape's own memory */
static uint32_t q[MAXB];
static uint32_t qh, qt;
static void qpush(uint32_t b)
{
	q[qt++] = b;
}
static uint32_t qpop(void)
{
	return q[qh++];
}
static uint32_t qn(void)
{
	return qt - qh;
}
static void base(void)
{
	if (INIT) {
		qh = qt = 0;
	}
}
/* ---- leaks ---- */
static void l_every(void)
{
	A(S.size);
}
static void l_kth(void)
{
	if (INIT)
		S.p[0] = between(2, 5);
	if (S.step % S.p[0] == 0)
		A(S.size);
}
static void l_third(void)
{
	if (chance(1 / 3.0))
		A(S.size);
}
static void l_tenth(void)
{
	if (chance(0.1))
		A(S.size);
}
static void l_vary(void)
{
	A(vary());
}
static void l_7of8(void)
{
	for (int i = 0; i < 8; i++) {
		uint32_t b = A(S.size);
		if (i)
			F(b);
	}
}
static void l_7of8r(void)
{
	for (int i = 0; i < 8; i++) {
		uint32_t b = A(S.size);
		if (!chance(1 / 8.0))
			F(b);
	}
}
static void l_double(void)
{
	base();
	if (qn()) {
		uint32_t b = qpop();
		if (!chance(0.25))
			F(b);
	}
	qpush(A(S.size));
}
static void l_cat(void)
{
	base();
	uint32_t nb = A(S.size * S.step);
	if (qn())
		F(qpop());
	qpush(nb);
}
static void l_catv(void)
{
	if (INIT)
		S.d[0] = 0;
	base();
	S.d[0] += (double)vary();
	uint32_t nb = A((uint64_t)S.d[0]);
	if (qn())
		F(qpop());
	qpush(nb);
}
static void l_beside(void)
{
	base();
	if (INIT)
		qpush(A(S.size));
	A(S.size);
	if (S.step == S.steps * 3 / 4)
		F(qpop());
}
static void l_slow(void)
{
	if (S.step % 20 == 7)
		A(S.size);
}
static void l_late(void)
{
	if (INIT)
		S.p[0] = S.steps / 3;
	if (S.step > S.p[0])
		A(S.size);
}
static void l_temps(void)
{
	uint32_t m = between(3, 20);
	for (uint32_t i = 0; i < m; i++)
		T(S.size);
	A(S.size);
}
static void l_temps_rare(void)
{
	uint32_t m = between(3, 20);
	for (uint32_t i = 0; i < m; i++)
		T(S.size);
	if (chance(0.25))
		A(S.size);
}
static void l_poisson(void)
{
	uint32_t m = poisson(1.5);
	while (m--)
		A(vary());
}
static void l_cache_then(void)
{
	if (S.step <= S.steps / 4)
		A(S.size * 4);
	A(S.size);
}
static void l_session(void)
{
	base();
	if (INIT)
		S.p[0] = between(2, 5);
	for (int i = 0; i < 5; i++)
		qpush(A(S.size));
	while (qn() > S.p[0] * 5) {
		uint32_t b = qpop();
		if (!chance(0.1))
			F(b);
	}
}
/* ---- healthy ---- */
static void h_temps(void)
{
	uint32_t m = between(1, 20);
	while (m--)
		T(vary());
}
static void h_dbl(void)
{
	base();
	if (INIT)
		S.p[0] = between(1, 3);
	qpush(A(S.size));
	while (qn() > S.p[0])
		F(qpop());
}
static void h_dblv(void)
{
	base();
	if (INIT)
		S.p[0] = between(1, 3);
	qpush(A(vary()));
	while (qn() > S.p[0])
		F(qpop());
}
static void h_first(void)
{
	if (INIT)
		for (int i = 0; i < 10; i++)
			A(S.size);
}
static void h_check(void)
{
	base();
	if (S.step % 5 == 0) {
		uint32_t b = A(S.size);
		if (qn())
			F(qpop());
		qpush(b);
	}
}
static void h_fill(void)
{
	if (INIT)
		S.p[0] = between(2, 1 + S.steps / 4);
	if (S.step <= S.p[0])
		A(S.size);
}
static void h_fillr(void)
{
	if (INIT)
		S.p[0] = between(2, 1 + S.steps / 4), S.p[1] = 0;
	if (S.p[1] < S.p[0] && chance(0.8)) {
		S.p[1]++;
		A(S.size);
	}
	T(S.size);
}
static void h_warm(void)
{
	if (INIT)
		S.p[0] = between(1, 4);
	if (S.step <= S.p[0])
		for (uint32_t i = 0; i < 8 / S.step; i++)
			A(S.size);
}
static void h_vector(void)
{
	base();
	if (INIT)
		S.p[0] = 1, S.p[1] = 0;
	S.p[1] += 3;
	if (S.p[1] > S.p[0] || INIT) {
		while (S.p[0] < S.p[1])
			S.p[0] *= 2;
		uint32_t b = A(S.size * S.p[0]);
		if (qn())
			F(qpop());
		qpush(b);
	}
}
static void h_lazy(void)
{
	if (INIT)
		S.p[0] = between(2, 2 + S.steps / 3);
	if (S.step == S.p[0])
		A(S.size);
}
static void h_lazyt(void)
{
	if (INIT)
		S.p[0] = between(2, 2 + S.steps / 3);
	if (S.step == S.p[0])
		A(S.size);
	h_temps();
}
static void h_lru(void)
{
	base();
	if (INIT)
		S.p[0] = between(4, 4 + S.steps / 4);
	uint32_t m = below(4);
	while (m--) {
		qpush(A(vary()));
	}
	while (qn() > S.p[0])
		F(qpop());
}
static void h_ring(void)
{
	base();
	if (INIT)
		S.p[0] = between(2, 1 + S.steps / 4);
	qpush(A(S.size));
	while (qn() > S.p[0])
		F(qpop());
}
static void h_opt(void)
{
	if (INIT)
		S.p[0] = between(2, 8);
	if (S.step == S.p[0])
		for (int i = 0; i < 20; i++)
			A(S.size);
}
static void h_sess(void)
{ /* arrivals with exponential life, mean steps/20..steps/8 */
	if (INIT)
		S.d[0] = 1 + S.steps / (double)between(8, 20);
	uint32_t m = poisson(2);
	while (m--)
		A(vary());
	for (uint32_t i = 0; i < S.n; i++)
		if (!S.b[i].freed && S.b[i].step < S.step && chance(1 / S.d[0]))
			F(i);
}
static void h_max(void)
{
	base();
	static uint64_t mx;
	if (INIT)
		mx = 0;
	uint64_t want = vary();
	if (want > mx) {
		mx = want;
		uint32_t b = A(mx);
		if (qn())
			F(qpop());
		qpush(b);
	}
}
static void h_walk(void)
{
	base();
	if (INIT)
		S.p[0] = between(5, 10);
	uint32_t in = below(4), out = below(4);
	while (in--)
		if (qn() < S.p[0] * 2)
			qpush(A(S.size));
	while (out-- && qn() > 0)
		F(qpop());
}
static void h_zipf(void)
{
	static uint8_t seen[1000];
	if (INIT)
		memset(seen, 0, sizeof(seen)), S.p[0] = between(10, 40);
	for (int i = 0; i < 6; i++) {
		uint32_t k = (uint32_t)(pow((double)S.p[0], unit())) % 1000;
		if (!seen[k]) {
			seen[k] = 1;
			A(S.size);
		}
	}
}
static void h_two(void)
{
	if (INIT)
		S.p[0] = between(2, 2 + S.steps / 5), S.p[1] = S.p[0] + between(1, 1 + S.steps / 5);
	if (S.step == S.p[0] || S.step == S.p[1])
		A(S.size);
	T(S.size);
}
/* ---- cannot be told ---- */
static void u_ring(void)
{
	base();
	if (INIT)
		S.p[0] = S.steps + between(1, 10);
	qpush(A(S.size));
	while (qn() > S.p[0])
		F(qpop());
}
static void u_once(void)
{
	if (INIT)
		S.p[0] = between(2, S.steps);
	if (S.step == S.p[0])
		A(S.size);
	T(S.size);
}
static void u_last(void)
{
	if (S.step == S.steps)
		A(S.size);
	T(S.size);
}

struct shape {
	const char *name;
	char truth;
	void (*f)(void);
};
static const struct shape shapes[] = {
#define L(x)                                                                                       \
	{                                                                                          \
#x, 'L', x                                                                         \
	}
#define H(x)                                                                                       \
	{                                                                                          \
#x, 'H', x                                                                         \
	}
#define U(x)                                                                                       \
	{                                                                                          \
#x, 'U', x                                                                         \
	}
	L(l_every), L(l_kth),	 L(l_third),	  L(l_tenth),	L(l_vary),	 L(l_7of8),
	L(l_7of8r), L(l_double), L(l_cat),	  L(l_catv),	L(l_beside),	 L(l_slow),
	L(l_late),  L(l_temps),	 L(l_temps_rare), L(l_poisson), L(l_cache_then), L(l_session),
	H(h_temps), H(h_dbl),	 H(h_dblv),	  H(h_first),	H(h_check),	 H(h_fill),
	H(h_fillr), H(h_warm),	 H(h_vector),	  H(h_lazy),	H(h_lazyt),	 H(h_lru),
	H(h_ring),  H(h_opt),	 H(h_sess),	  H(h_max),	H(h_walk),	 H(h_zipf),
	H(h_two),   U(u_ring),	 U(u_once),	  U(u_last)};
static struct growth_survivor surv[MAXB];
static struct growth_judgement run(const struct shape *sh, uint32_t steps, bool stacks)
{
	struct growth_judgement j;
	uint32_t k = 0;
	growth_fini(&S.g);
	S.n = S.pn = 0;
	S.steps = steps;
	S.touched = false;
	S.size = 1024ull << below(12);
	for (S.step = 1; S.step <= steps; S.step++) {
		sh->f();
		end_step();
	}
	for (uint32_t i = 0; i < S.n; i++)
		if (!S.b[i].freed)
			surv[k++] = (struct growth_survivor){S.b[i].step, S.b[i].bytes};
	struct growth_facts f = {
		.steps = steps, .stacks_known = stacks, .survivors = surv, .survivor_count = k};
	growth_judge(&S.g, &f, &j);
	return j;
}
int main(int argc, char **argv)
{
	uint32_t runs = argc > 1 ? (uint32_t)atoi(argv[1]) : 300;
	static const uint32_t len[] = {5, 10, 20, 50, 100, 200};
	double mean[3][6][3] = {{{0}}};
	uint32_t cnt[3] = {0};
	rng = argc > 2 ? strtoull(argv[2], NULL, 0) | 1 : 88172645463325252ull;
	for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
		int t = shapes[s].truth == 'L' ? 0 : shapes[s].truth == 'H' ? 1 : 2;
		cnt[t]++;
		printf("%-14s %c", shapes[s].name, shapes[s].truth);
		for (int l = 0; l < 6; l++) {
			uint32_t c[3] = {0};
			for (uint32_t r = 0; r < runs; r++)
				c[run(&shapes[s], len[l], true).verdict]++;
			for (int v = 0; v < 3; v++)
				mean[t][l][v] += 100.0 * c[v] / runs;
			printf("  %3.0f/%3.0f/%3.0f", 100.0 * c[2] / runs, 100.0 * c[1] / runs,
			       100.0 * c[0] / runs);
		}
		printf("\n");
	}
	for (int t = 0; t < 3; t++) {
		printf("mean %c          ", "LHU"[t]);
		for (int l = 0; l < 6; l++)
			printf("  %3.0f/%3.0f/%3.0f", mean[t][l][2] / cnt[t],
			       mean[t][l][1] / cnt[t], mean[t][l][0] / cnt[t]);
		printf("\n");
	}
	return 0;
}
