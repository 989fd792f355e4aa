/* SPDX-License-Identifier: Apache-2.0 */
/* Other settings of PyTorch's pool for a process whose trace this engine has written. */
#include <stdio.h>

#include "engine/pipeline.h"

static int open_again(void *arg, struct run **out, struct mscope_error *err)
{
	struct pipeline *pipeline = arg;
	char path[PROJECT_PATH_MAX + 16], name[64];

	(void)snprintf(path, sizeof(path), "%s/%s", pipeline->project.path, PROJECT_TRACE);
	/* Also after the file was removed. */
	(void)snprintf(name, sizeof(name), "/proc/self/fd/%d", pack_writer_fd(pipeline->pack));
	/* While the process runs on, only the copy of the window is whole. */
	return run_open(NULL, pipeline->ending ? name : path, false, out, err);
}

void pipeline_what_if(struct pipeline *pipeline, struct report *report)
{
	pipeline->what_if.open = open_again;
	pipeline->what_if.arg = pipeline;
	pipeline->what_if.when = pipeline->session->whatif;
	if (pipeline->pack != NULL && pipeline->pack_error.code == 0)
		what_if_into(report, &pipeline->what_if);
}
