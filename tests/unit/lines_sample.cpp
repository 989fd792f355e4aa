// SPDX-License-Identifier: Apache-2.0
// Functions of each kind that C++ makes hard to read: in namespaces and classes, templates, inlined into one another. Built in
// several versions of DWARF, always optimised. Each place calls note() with the lines that lead to it.
#include "lines_sample.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#define NOINLINE __attribute__((noinline))
#define INLINE	 inline __attribute__((always_inline))

static struct samples *current;
volatile int sample_sink;

// The empty statement keeps the call from becoming a jump, here and in the caller.
NOINLINE static void note(const char *function, int line, int second = 0, int third = 0)
{
	struct sample_place *place = &current->places[current->count++];

	place->address = __builtin_return_address(0);
	place->function = function;
	place->lines[0] = line;
	place->lines[1] = second;
	place->lines[2] = third;
	place->depth = third != 0 ? 3 : second != 0 ? 2 : 1;
	__asm__ volatile("");
}

namespace sample
{
namespace
{
NOINLINE void hidden()
{
	note("sample::(anonymous namespace)::hidden()", __LINE__);
	__asm__ volatile("");
}
} // namespace

INLINE void inner(int second, int third)
{
	note("sample::inner(int, int)", __LINE__, second, third);
	__asm__ volatile("");
}

INLINE void middle(int third)
{
	inner(__LINE__, third);
}

NOINLINE void outer()
{
	middle(__LINE__);
	sample_sink = 1;
}

template <class T, int N> struct Pool {
	std::vector<T> items;

	NOINLINE void take(T item)
	{
		items.push_back(item);
		note("sample::Pool<long, 3>::take(long)", __LINE__);
		sample_sink = N;
	}

	INLINE void give(int second)
	{
		note("sample::Pool<long, 3>::give(int)", __LINE__, second);
		sample_sink = N;
	}

	NOINLINE bool operator<(const Pool &other) const
	{
		note("sample::Pool<long, 3>::operator<(sample::Pool<long, 3> const&) const", __LINE__);
		sample_sink = N;
		return items.size() < other.items.size();
	}
};

template <class T> NOINLINE int twice(T value)
{
	note("int sample::twice<char>(char)", __LINE__);
	return value + sample_sink;
}
} // namespace sample

extern "C" NOINLINE void sample_plain()
{
	note("sample_plain", __LINE__);
	sample_sink = 2;
}

// Much code of others, which addr2line is asked about as well.
NOINLINE static size_t much(const std::map<std::string, std::vector<int>> &from)
{
	std::map<std::string, std::vector<int>> to;
	size_t sum = 0;

	for (const auto &entry : from) {
		std::vector<int> &values = to[entry.first + "x"];

		values.insert(values.end(), entry.second.begin(), entry.second.end());
		std::sort(values.begin(), values.end());
		sum += values.size() + entry.first.size();
	}
	return sum;
}

extern "C" __attribute__((visibility("default"))) void sample_run(struct samples *samples)
{
	sample::Pool<long, 3> pool;

	current = samples;
	sample::hidden();
	sample::outer();
	pool.take(7);
	pool.give(__LINE__);
	sample_sink = pool < pool;
	sample_sink = sample::twice<char>('a');
	sample_plain();
	sample_sink = (int)much({{"a", {3, 1, 2}}, {"b", {}}});
}

#ifdef SAMPLE_WITH_ENDLESS // which addr2line does not survive, either
extern "C" __attribute__((visibility("default"))) void sample_endless() __asm__(SAMPLE_ENDLESS_NAME);
void sample_endless()
{
	sample_sink = 3;
}
#endif

#line 1 "red\033[31m\tfile.c"
extern "C" __attribute__((visibility("default"))) void sample_escapes()
{
	sample_sink = 4;
}
