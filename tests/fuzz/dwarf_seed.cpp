// SPDX-License-Identifier: Apache-2.0
// The seed of fuzz_dwarf: namespaces, a template, a lambda, a block, functions inlined into one another. Needs no library.
#define INLINE inline __attribute__((always_inline))

namespace pool
{
template <class T> struct Box {
	T value;

	INLINE T times(T x)
	{
		return value * x;
	}
};

static INLINE int twice(int x)
{
	Box<int> box{x};

	return box.times(2);
}

namespace
{
__attribute__((noinline)) int hidden(int x)
{
	return twice(x) + 1;
}
} // namespace
} // namespace pool

extern "C" int seed_c(int x)
{
	auto add = [x](int y) { return pool::hidden(y) + x; };

	return add(x) + pool::twice(x);
}

int seed_cxx(long x, const char *text)
{
	int sum = 0;

	if (text != nullptr) {
		int part = (int)x;

		part += pool::twice(part);
		sum += part + text[0];
	}
	return sum;
}
