/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/oom_watch.h"

#include "analysis/oom.h"
#include "sink/report.h"

/* A storm of them is told in part; report.txt has more. */
#define SAID_MAX 5u

bool oom_watch_settle(struct pipeline *pipeline, uint64_t now_ns)
{
	uint64_t words[EVENT_BYTES_oom_end / 8], last_ns;
	struct event_oom_end event = {0};
	uint32_t writer = 0;

	if (!pipeline->live || pipeline->finished || now_ns < OOM_SETTLED_NS)
		return false;
	last_ns = replay_open_oom(pipeline->pass.replay, now_ns - OOM_SETTLED_NS, &writer);
	if (last_ns == 0 || last_ns == pipeline->oom_settled_ns)
		return false;
	pipeline->oom_settled_ns = last_ns;
	event.writer = writer;
	event_oom_end_encode(words, &event);
	return run_inject(pipeline->run, EVENT_oom_end, now_ns, words, MSCOPE_COUNT(words)) == 0;
}

void oom_watch_say(struct pipeline *pipeline, struct strbuf *out)
{
	size_t count = analyses_oom_count(&pipeline->pass.analyses), i;
	struct findings found = {0};
	struct strbuf line = {0};

	if (pipeline->ooms_said < count && pipeline->ooms_said < SAID_MAX)
		analyses_find_ooms(&pipeline->pass.analyses, pipeline->pass.replay, &found);
	for (i = pipeline->ooms_said; i < FINDINGS_COUNT(&found, oom) && i < SAID_MAX; i++) {
		const struct finding_oom *oom = &FINDINGS(&found, oom)[i];

		strbuf_reset(&line);
		oom_headline(oom, &line);
		log_warn(&pipeline->log, "%s", strbuf_str(&line));
		strbuf_addf(out, "%s\n  Why: ", strbuf_str(&line));
		oom_why(&found, oom, out);
		strbuf_add_str(out, oom->limited ? ".\n  " : ".\n");
		oom_limit(oom, out);
	}
	if (count > SAID_MAX && pipeline->ooms_said <= SAID_MAX)
		strbuf_add_str(out, "Out of memory again; see report.txt.\n");
	pipeline->ooms_said = count > SAID_MAX ? SAID_MAX + 1 : count;
	findings_fini(&found);
	strbuf_fini(&line);
}

void oom_watch_write(struct pipeline *pipeline)
{
	size_t count = analyses_oom_count(&pipeline->pass.analyses);
	struct replay *replay = pipeline->pass.replay;
	struct mscope_error err = {0};
	struct findings found = {0};
	struct strbuf text = {0};

	if (count == pipeline->ooms_written || count == 0)
		return;
	pipeline->ooms_written = count;
	strbuf_addf(&text, "Process %u was still running when this was written.\n",
		    run_header(pipeline->run)->pid);
	analyses_find_ooms(&pipeline->pass.analyses, replay, &found);
	if (findings_settle(&found, replay, 0) == 0)
		ooms_text(&found, replay, false, REPORT_FRAMES, &text);
	findings_fini(&found);
	/* A full disk is told at the end. */
	if (project_make(&pipeline->project, replay_likely_vendor(replay), &err) == 0)
		(void)project_write(&pipeline->project, PROJECT_REPORT, &text, 0600, &err);
	strbuf_fini(&text);
}
