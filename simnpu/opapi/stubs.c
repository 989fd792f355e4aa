/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Both functions of every operator, for those that nobody computes: the definitions are weak, so the linker takes the others where
 * there are some. The first one fails. Where that is tolerated (SIMNPU_LENIENT) its arguments are of no interest; it leaves the size of the
 * workspace and the executor as they are, which callers set to 0 and NULL before.
 */
#include "op.h"

static void do_nothing(struct op *op)
{
	op_cannot(op, "it is not simulated");
}

static int launch(struct op_kind *kind, void *stream)
{
	struct op *op = op_new(sizeof(*op), kind);
	aclOpExecutor *executor;
	uint64_t bytes;
	int error = op_ready(op, 0, &bytes, &executor);

	return error ? error : op_launch(NULL, 0, executor, stream);
}

#define OPERATOR_NAME(NAME)                                                                        \
	__attribute__((weak, visibility("default"))) int aclnn##NAME##GetWorkspaceSize(void);      \
	int aclnn##NAME##GetWorkspaceSize(void)                                                    \
	{                                                                                          \
		return op_not_simulated("aclnn" #NAME);                                            \
	}                                                                                          \
	__attribute__((weak, visibility("default"))) int aclnn##NAME(                              \
		void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, void *stream);   \
	int aclnn##NAME(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,          \
			void *stream)                                                              \
	{                                                                                          \
		static struct op_kind kind = {"aclnn" #NAME, do_nothing, OP_PLAIN, NULL};          \
                                                                                                   \
		(void)workspace;                                                                   \
		(void)workspaceSize;                                                               \
		(void)executor;                                                                    \
		return launch(&kind, stream);                                                      \
	}
#include "operators.def"
