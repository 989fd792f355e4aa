/* SPDX-License-Identifier: Apache-2.0 */
/* Names in, names out: C++, Rust in both of its forms, and what is none of these. */
#include "unit.h"

#include <string.h>

#include "base/strbuf.h"
#include "symbols/demangle.h"

struct pair {
	const char *from;
	const char *to;
};

static void check(void (*change)(const char *name, struct strbuf *out), const struct pair *pairs,
		  size_t count)
{
	size_t i;

	for (i = 0; i < count; i++) {
		struct strbuf out = {0};

		/* What is there already stays. */
		strbuf_add_str(&out, "> ");
		change(pairs[i].from, &out);
		assert_int_equal(out.length, strlen(out.data));
		assert_string_equal(out.data + 2, pairs[i].to);
		strbuf_fini(&out);
	}
}

static void qualified_names_need_no_demangler(void **state)
{
	static const struct pair pairs[] = {
		{"_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_"
		 "11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_",
		 "at::native::vectorized_elementwise_kernel"},
		{"_Z6vecAddPfS_i", "vecAdd"},
		{"_ZL4fillPfi", "fill"},
		{"_ZN12_GLOBAL__N_16kernelEv", "(anonymous namespace)::kernel"},
		{"_ZNK1a1bEv", "a::b"},
		{"_ZSt4sortv", "std::sort"},
		{"_ZN7cutlass7Kernel2I4FooTE", "cutlass::Kernel2"},
		{"ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_tn"},
		{"_Znwm", "_Znwm"},
		{"_Z", "_Z"},
		{"_ZN", "_ZN"},
		{"_ZN99999999999999999999999999aE", "_ZN99999999999999999999999999aE"},
		{"_ZN4ab", "_ZN4ab"},
		{"", ""},
	};

	(void)state;
	check(demangle_qualified, pairs, MSCOPE_COUNT(pairs));
}

static void names_are_demangled(void **state)
{
	static const struct pair pairs[] = {
		{"_ZN2at6native4fillERNS_6TensorEf", "at::native::fill(at::Tensor&, float)"},
		{"_ZN12_GLOBAL__N_14PoolIiE4takeEv", "(anonymous namespace)::Pool<int>::take()"},
		{"_ZN1aC4Ev", "a::a()"},
		{"_Z1fv.cold", "f() [clone .cold]"},
		{"_Znwm", "operator new(unsigned long)"},
		/* Rust's older form. */
		{"_ZN4core3ptr13drop_in_place17h0123456789abcdefE", "core::ptr::drop_in_place"},
		{"_ZN71_$LT$Test$u20$$u2b$$u20$$u27$static$u20$as$u20$foo..Bar$LT$Test$GT$$GT$"
		 "3bar17h930b740aa94f1d3aE",
		 "<Test + 'static as foo::Bar<Test>>::bar"},
		/* A hash that is none. */
		{"_ZN1a17hxyz3456789abcdefE", "a::hxyz3456789abcdef"},
		/* Rust's newer form; examples of RFC 2603. */
		{"_RNvC6_123foo3bar", "123foo::bar"},
		{"_RNvMs_Cs4Cv8Wi1oAIB_7mycrateNtB4_7Example3foo", "<mycrate::Example>::foo"},
		{"_RNvXCs15kBYyAo9fc_7mycrateNtB2_7ExampleNtB2_5Trait3foo",
		 "<mycrate::Example as mycrate::Trait>::foo"},
		{"_RINvNtC3std3mem8align_ofdE", "std::mem::align_of::<f64>"},
		{"_RNCNCNgCs6DXkGYLi8lr_2cc5spawn00B5_", "cc::spawn::{closure#0}::{closure#0}"},
		{"_RINbNbCskIICzLVDPPb_5alloc5alloc8box_freeDINbNiB4_5boxed5FnBoxuEp6OutputuEL_"
		 "ECs1iopQbuBiw2_3std",
		 "alloc::alloc::box_free::<dyn alloc::boxed::FnBox<()><Output = ()>>"},
		{"_RINvC1a1fThEFmEuRSjAtj8_E", "a::f::<(u8,), fn(u32), &[usize], [u16; 0x8]>"},
		/* None, or damaged. */
		{"main", "main"},
		{"", ""},
		{"_Z", "_Z"},
		{"_R", "_R"},
		{"_ZN1a", "_ZN1a"},
		{"_RNvC6_123foo", "_RNvC6_123foo"},
		{"_RNvC99999999999999999999_a3bar", "_RNvC99999999999999999999_a3bar"},
		{"_RB_", "_RB_"},
		{"_RNvB_3foo", "_RNvB_3foo"},
	};

	(void)state;
#ifndef MSCOPE_HAVE_DEMANGLER
	skip();
#endif
	check(demangle, pairs, MSCOPE_COUNT(pairs));
}

static void names_are_shortened(void **state)
{
	static const struct pair pairs[] = {
		{"void at::native::fill<float>(at::Tensor&, float) [clone .cold]",
		 "at::native::fill"},
		{"(anonymous namespace)::Pool<int>::take(unsigned long) const",
		 "(anonymous namespace)::Pool::take"},
		{"void (anonymous namespace)::f<int>(int)", "(anonymous namespace)::f"},
		{"std::vector<int, std::allocator<int> >::push_back(int const&)",
		 "std::vector::push_back"},
		{"(anonymous namespace)::Pool::take(unsigned "
		 "long)::{lambda(int)#1}::operator()(int) const",
		 "(anonymous namespace)::Pool::take::{lambda#1}::operator()"},
		{"bool std::operator< <char, std::char_traits<char> >(std::string const&)",
		 "std::operator<"},
		{"std::ostream& std::operator<< <char>(std::ostream&, char)", "std::operator<<"},
		{"std::unique_ptr<a>::operator->() const", "std::unique_ptr::operator->"},
		{"a::operator bool() const", "a::operator bool"},
		{"operator new[](unsigned long)", "operator new[]"},
		{"operator\"\" _ms(unsigned long long)", "operator\"\" _ms"},
		{"std::map<a, b>::operator[](a&&)", "std::map::operator[]"},
		{"std::string f[abi:cxx11](int)", "f"},
		{"decltype (f({parm#1})) apply<int>(int)", "apply"},
		{"unsigned long const* a::b<(c::d)3>::e<x(y)>(int)", "a::b::e"},
		{"non-virtual thunk to A::f()", "A::f"},
		{"work.part.0", "work"},
		{"sample_plain", "sample_plain"},
		{"operators(int)", "operators"},
		{"my_operator<int>()", "my_operator"},
		{"core::ptr::drop_in_place", "core::ptr::drop_in_place"},
		{"std::mem::align_of::<f64>", "std::mem::align_of"},
		/* Not of the form: as they are. */
		{"<mycrate::Example as mycrate::Trait>::foo",
		 "<mycrate::Example as mycrate::Trait>::foo"},
		{"void (*f(int))(char)", "void (*f(int))(char)"},
		{"f<int", "f<int"},
		{"f(int", "f(int"},
		{"{lambda", "{lambda"},
		{"f[abi:x", "f[abi:x"},
		{")", ")"},
		{"", ""},
	};

	(void)state;
	check(demangle_shorten, pairs, MSCOPE_COUNT(pairs));
}

static void people_see_where_template_arguments_are(void **state)
{
	static const struct pair pairs[] = {
		{"void at::native::fill<float>(at::Tensor&, float) [clone .cold]",
		 "at::native::fill<...>"},
		{"serve::Buffer<float, std::vector<int> >::Buffer(unsigned long)",
		 "serve::Buffer<...>::Buffer"},
		{"std::mem::align_of::<f64>", "std::mem::align_of<...>"},
		{"std::ostream& std::operator<< <char>(std::ostream&, char)",
		 "std::operator<<<...>"},
		{"serve::run(int)", "serve::run"},
		{"f<int", "f<int"},
	};

	(void)state;
	check(demangle_brief, pairs, MSCOPE_COUNT(pairs));
}

/* A name of Rust whose every argument has twice as much in it as the one before. */
static void add_doubling(struct strbuf *out)
{
	static const char digits[] =
		"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
	size_t i, last = 8;

	strbuf_add_str(out, "_RINvC1a1fThhE");
	for (i = 0; i < 60; i++) {
		size_t here = out->length - 2, number = last - 1;
		char back[8] = {'B', digits[number / 62], digits[number % 62], '_'};

		strbuf_addf(out, "T%s%sE", back, back);
		last = here;
	}
	strbuf_add_str(out, "E");
}

/* Names that stand for more than anybody wants to read. */
static void long_names_are_cut(void **state)
{
	char plain[8192], deep[DEMANGLE_IN_BYTES_MAX + 1];
	struct strbuf out = {0}, doubling = {0};

	(void)state;
	memset(plain, 'x', sizeof(plain) - 1);
	plain[sizeof(plain) - 1] = '\0';
	demangle(plain, &out);
	assert_int_equal(out.length, DEMANGLE_OUT_BYTES_MAX + 3);
	assert_string_equal(out.data + DEMANGLE_OUT_BYTES_MAX, "...");

	strbuf_reset(&out);
	add_doubling(&doubling);
	demangle(doubling.data, &out);
	strbuf_fini(&doubling);
	assert_int_equal(out.length, DEMANGLE_OUT_BYTES_MAX + 3);
	assert_string_equal(out.data + DEMANGLE_OUT_BYTES_MAX, "...");
	assert_memory_equal(out.data, "a::f::<(u8, u8), ((u8, u8), (u8, u8)), (", 40);

	/* Deeper than anybody nests: left as it is. */
	memset(deep, 'P', sizeof(deep) - 1);
	memcpy(deep, "_RINvC1a1f", 10);
	deep[sizeof(deep) - 1] = '\0';
	strbuf_reset(&out);
	demangle(deep, &out);
	assert_string_equal(out.data, deep);
	memset(deep, 'P', sizeof(deep) - 1);
	memcpy(deep, "_Z1f", 4);
	strbuf_reset(&out);
	demangle(deep, &out);
	assert_string_equal(out.data, deep);
	strbuf_fini(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_are_demangled),
		cmocka_unit_test(qualified_names_need_no_demangler),
		cmocka_unit_test(names_are_shortened),
		cmocka_unit_test(people_see_where_template_arguments_are),
		cmocka_unit_test(long_names_are_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
