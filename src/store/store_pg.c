/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "store/store.h"

int store_pg_open(const struct store_choice *choice, struct store **out, struct mscope_error *err)
{
	(void)choice;
	(void)out;
	return error_set(err, -ENOSYS, "PostgreSQL is not built in");
}
