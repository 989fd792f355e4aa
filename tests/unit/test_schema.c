/* SPDX-License-Identifier: Apache-2.0 */
/* What schemas of PyTorch's operators say of their tensors. */
#include "collector/torch/schema.h"

#include <string.h>

#include "unit.h"

struct expected {
	const char *line;
	size_t name;
	struct torch_schema schema;
};

static void schemas_say_what_is_read_and_written(void **state)
{
	static const struct expected all[] = {
		{"aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
		 16,
		 {.reads = 3, .writes = 1, .arguments = 3, .results = 1}},
		{"aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> "
		 "Tensor(a!)",
		 17,
		 {.reads = 2, .writes = 1, .arguments = 3, .results = 1}},
		{"aten::add.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out) -> "
		 "Tensor(a!)",
		 13,
		 {.reads = 3, .writes = 1, .arguments = 4, .results = 1}},
		/* A view touches nothing; nor does the new memory of empty. */
		{"aten::split.Tensor(Tensor(a -> *) self, SymInt split_size, int dim=0) -> "
		 "Tensor(a)[]",
		 18,
		 {.arguments = 3, .results = 1}},
		{"aten::empty_like(Tensor self, *, Device? device=None) -> Tensor",
		 16,
		 {.arguments = 2, .results = 1}},
		{"aten::zeros_like(Tensor self, *, Device? device=None) -> Tensor",
		 16,
		 {.writes = 1, .arguments = 2, .results = 1}},
		/* Written and not returned: lists of optimizers. */
		{"aten::_foreach_add_.Scalar(Tensor(a!)[] self, Scalar scalar) -> ()",
		 26,
		 {.changes = 1, .arguments = 2}},
		{"aten::f(Tensor(a!)[] self, Tensor(b!)[] grads, Tensor[] steps, *, float lr) -> "
		 "()",
		 7,
		 {.reads = 4, .changes = 3, .arguments = 4}},
		{"aten::index.Tensor(Tensor self, Tensor?[] indices) -> Tensor",
		 18,
		 {.reads = 3, .writes = 1, .arguments = 2, .results = 1}},
		{"aten::conv(Tensor x, int[2] stride=[1, 1], str mode=\"a, (b\", Tensor? b=None) "
		 "-> "
		 "(Tensor, int, Tensor)",
		 10,
		 {.reads = 9, .writes = 5, .arguments = 4, .results = 3}},
		{"my::none() -> ()", 8, {.arguments = 0}},
		{"no schema", 0, {.arguments = 0}},
		{"aten::half(Tensor self", 0, {.arguments = 0}},
	};
	size_t i;

	(void)state;
	for (i = 0; i < MSCOPE_COUNT(all); i++) {
		struct torch_schema found;
		size_t name = torch_schema_parse(all[i].line, strlen(all[i].line), &found);

		assert_int_equal(name, all[i].name);
		if (name == 0)
			continue;
		assert_int_equal(found.reads, all[i].schema.reads);
		assert_int_equal(found.changes, all[i].schema.changes);
		assert_int_equal(found.writes, all[i].schema.writes);
		assert_int_equal(found.arguments, all[i].schema.arguments);
		assert_int_equal(found.results, all[i].schema.results);
	}
}

static void every_prefix_of_a_schema_is_read_safely(void **state)
{
	static const char line[] =
		"aten::a.b(Tensor(a!)[] x, str s=\"q\", Tensor?[] y=[]) -> (Tensor(a!), Tensor)";
	struct torch_schema found;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(line); i++) {
		char *copy = test_malloc(i + 1);

		memcpy(copy, line, i);
		(void)torch_schema_parse(copy, i, &found);
		test_free(copy);
	}
}

static void an_unknown_operator_reads_what_it_is_given(void **state)
{
	struct torch_schema found;

	(void)state;
	torch_schema_guess("my::op.x", &found);
	assert_true(found.reads == UINT64_MAX && found.writes == UINT64_MAX && found.changes == 0);
	torch_schema_guess("my::op_", &found);
	assert_true(found.reads == ~UINT64_C(1) && found.changes == 1 && found.writes == 0);
	torch_schema_guess("my::empty_like", &found);
	assert_true(found.reads == 0 && found.writes == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(schemas_say_what_is_read_and_written),
		cmocka_unit_test(every_prefix_of_a_schema_is_read_safely),
		cmocka_unit_test(an_unknown_operator_reads_what_it_is_given),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
