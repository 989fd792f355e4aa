// SPDX-License-Identifier: Apache-2.0
// Shared by places.cpp and the static library that it is linked with.
#ifndef PLACES_H
#define PLACES_H

#include <cstddef>
#include <cstdio>
#include <map>
#include <string>

#include "acl/acl.h"

// The line of this call, as the compiler sees it, under a name.
#define LINE_OF(name) (note(#name, __FILE__, __LINE__))

struct Line {
	std::string file;
	int line;
};

inline std::map<std::string, Line> &lines()
{
	static std::map<std::string, Line> all;

	return all;
}

inline int note(const char *name, const char *file, int line)
{
	lines()[name] = {file, line};
	return line;
}

class Arena
{
      public:
	void keep(size_t bytes);
	size_t blocks = 0;
};

// Inlined into whatever calls it, at any level of optimisation.
__attribute__((always_inline)) inline void *take(Arena &arena, size_t bytes, int)
{
	void *address = nullptr;

	if (aclrtMalloc(&address, bytes, ACL_MEM_MALLOC_HUGE_FIRST) != 0)
		std::fprintf(stderr, "no memory\n");
	arena.blocks++;
	return address;
}

#endif
