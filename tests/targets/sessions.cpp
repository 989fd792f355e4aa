/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that a constructor takes for the constructor of another class: every session has its cache from there. Prints the line of
 * the function that opens sessions.
 */
#include <cstdio>
#include <memory>
#include <vector>

#include "acl/acl.h"

namespace kv
{

template <class T> class Buffer
{
      public:
	explicit Buffer(size_t count)
	{
		(void)aclrtMalloc(&memory, count * sizeof(T), ACL_MEM_MALLOC_HUGE_FIRST);
	}

      private:
	void *memory = nullptr;
};

class Cache
{
      public:
	explicit Cache(size_t tokens) : keys(tokens * 256), values(tokens * 256)
	{
	}

      private:
	Buffer<float> keys, values;
};

} // namespace kv

static std::vector<std::unique_ptr<kv::Cache>> sessions;
static int opening_line;

__attribute__((noinline)) static void open_session()
{
	opening_line = __LINE__ + 1;
	sessions.emplace_back(new kv::Cache(1024));
}

int main()
{
	if (aclInit(nullptr) != 0 || aclrtSetDevice(0) != 0)
		return 1;
	for (int i = 0; i < 8; i++)
		open_session();
	std::printf("{\"line\": %d}\n", opening_line);
	return 0;
}
