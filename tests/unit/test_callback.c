/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch's callback, called as C++ calls it: the place of the result comes where the machine's convention has it. */
#include "collector/torch/operators.h"

#include <string.h>

#include "unit.h"

/* As C++ returns an object of three words that it may not copy in registers: in memory of the caller. */
struct three {
	uint64_t word[3];
};

static struct three method(const uint64_t *object, const uint64_t *argument)
{
	return (struct three){{*object, argument == NULL ? 0 : *argument, 7}};
}

static void a_result_arrives_in_the_memory_of_the_caller(void **state)
{
	uint64_t object = 11, argument = 22;
	struct three result = {{0, 0, 0}};

	(void)state;
	torch_call_into((void *)method, &result, &object, &argument);
	assert_true(result.word[0] == 11 && result.word[1] == 22 && result.word[2] == 7);
	torch_call_into((void *)method, &result, &object, NULL);
	assert_true(result.word[0] == 11 && result.word[1] == 0 && result.word[2] == 7);
}

/* What PyTorch calls when an operator begins, and what that is to leave in the result: no object. */
extern void *const torch_callback_start;

static void a_callback_leaves_no_object(void **state)
{
	uint64_t record[64] = {0}, result[3] = {1, 2, 3};

	(void)state;
	torch_call_into(torch_callback_start, result, record, NULL);
	assert_true(result[0] == 0 && result[1] == 2 && result[2] == 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_result_arrives_in_the_memory_of_the_caller),
		cmocka_unit_test(a_callback_leaves_no_object),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
