/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
int cmd_doctor(const struct options *options)
{
	(void)options;
	return MSCOPE_EXIT_FAILED;
}
