/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/store_events.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/io.h"
#include "sink/digest.h"
#include "trace/launch.h"
#include "trace/session.h"
#include "trace/settings.h"

/* As recorded: what the launch wrote, or of a program that started recording by itself everything. */
static void choose_rows(struct session *session, const struct run *run)
{
	const struct trace_header *header = run_header(run);
	const char *launch = run_identity(run, SESSION_LAUNCH_KEY);

	if (!launch_read(launch, session)) {
		session->events = SESSION_ALLOC | SESSION_FREE | SESSION_LAUNCH | SESSION_ACCESS;
		session->all_devices = 1;
		session->host = 1;
	}
	session->level = SESSION_LEVEL_OP | SESSION_LEVEL_KERNEL;
	session->format = OPT_FORMAT_PARQUET;
	session->c_depth = header->c_depth;
	session->python_depth = header->python_shown;
}

int store_events_choose(struct store_events *out, const char *directory, const char *run,
			int64_t key, const struct input *input, struct pass_setup *setup)
{
	int64_t rank = digest_rank(input->run, false);

	out->session = calloc(1, sizeof(*out->session));
	if (out->session == NULL)
		return -ENOMEM;
	choose_rows(out->session, input->run);
	strbuf_addf(&out->partition, "%s/", directory);
	sink_add_partition(&out->partition, "run", run);
	strbuf_addf(&out->partition, "/rank=%lld", (long long)(rank < 0 ? 0 : rank));
	if (strbuf_failed(&out->partition))
		return -ENOMEM;
	(void)snprintf(out->part, sizeof(out->part), "part-%016llx", (unsigned long long)key);
	out->project = (struct project){.output = io_scratch()};
	setup->sink = pass_sink(out->session, &out->project);
	setup->sink.follow_rows = setup->sink.follow_stacks = true;
	setup->sink.partition = strbuf_str(&out->partition);
	setup->sink.part = out->part;
	setup->facts_directory = out->project.output;
	setup->oom_top = out->session->analysis & SESSION_OOM ? out->session->oom_top : 0;
	setup->close_live = out->session->insight_close_live;
	return 0;
}

int store_events_end(const struct pass *pass, const struct input *input, struct mscope_error *err)
{
	struct run *run = NULL;
	int r;

	if (!pass->facts.changed)
		return 0;
	r = input_reopen(input, &run, err);
	if (r == 0)
		r = pass_again(pass, run, true, err);
	run_close(run);
	return r;
}

void store_events_fini(struct store_events *events)
{
	strbuf_fini(&events->partition);
	free(events->session);
	*events = (struct store_events){0};
}
