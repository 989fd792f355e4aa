// SPDX-License-Identifier: Apache-2.0
/*
 * places: takes device memory at places of all kinds that C++ has, and prints a line of JSON for each: the functions from the
 * innermost on, with file and line, as the compiler itself has them, and the bytes.
 */
#include <algorithm>
#include <functional>
#include <vector>

#include "places.h"

namespace shop
{

// A template, with an inlined function inside.
template <typename T, int Rows> class Table
{
      public:
	void grow(Arena &arena, size_t bytes)
	{
		take(arena, bytes, LINE_OF(grow));
	}
};

// Called by the standard library.
void each(Arena &arena, const std::vector<size_t> &sizes)
{
	std::for_each(sizes.begin(), sizes.end(), [&arena](size_t bytes) {
		take(arena, bytes, LINE_OF(lambda));
	});
}

// One line, several instructions: the loop is unrolled.
void unrolled(Arena &arena)
{
#pragma GCC unroll 4
	for (int i = 0; i < 4; i++)
		take(arena, 4096, LINE_OF(unrolled));
}

} // namespace shop

static void show(const char *name, const char *function, size_t bytes, int blocks)
{
	const Line &line = lines()[name];

	std::printf("{\"function\":\"%s\",\"file\":\"%s\",\"line\":%d,\"bytes\":%zu,"
		    "\"blocks\":%d}\n",
		    function, line.file.c_str(), line.line, bytes, blocks);
}

int main()
{
	shop::Table<float, 3> table;
	Arena arena;

	if (aclInit(nullptr) != 0 || aclrtSetDevice(0) != 0)
		return 1;
	table.grow(arena, 1 << 20);
	arena.keep(2 << 20);
	shop::each(arena, {3 << 20, 3 << 20});
	shop::unrolled(arena);
	show("grow", "shop::Table::grow", 1 << 20, 1);
	show("keep", "Arena::keep", 2 << 20, 1);
	show("lambda", "shop::each::{lambda}::operator()", 6 << 20, 2);
	show("unrolled", "shop::unrolled", 4 * 4096, 4);
	return 0;
}
