/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/recover.h"

int recover_session(const char *directory, const struct runs_ops *ops, struct runs_result *out,
		    struct mscope_error *err)
{
	struct session_place place = {0};
	struct runs runs;
	size_t i;
	int r;

	*out = (struct runs_result){0};
	r = session_open(directory, &place, err);
	if (r < 0)
		return r;
	runs_init(&runs, &place, false, ops);
	r = session_lock(&place);
	if (r < 0)
		(void)error_set(err, r, "%s is in use: its program is still running", directory);
	else
		r = runs_scan(&runs);
	for (i = 0; r == 0 && i < runs.count; i++) {
		struct session_run *item = runs.items[i];

		if (runs_is_alive(item, false) && !process_ends_soon(&item->process))
			runs.result.still_alive++;
		else if (!runs_finish(&runs, item))
			break;
	}
	*out = runs.result;
	runs_fini(&runs);
	if (r == 0 && !out->interrupted && out->still_alive == 0)
		(void)session_remove(&place);
	session_close(&place);
	return r;
}
