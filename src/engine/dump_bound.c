/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/dump_bound.h"

#include <errno.h>
#include <fts.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/compiler.h"

#define NEAR_BYTES (UINT64_C(64) << 20)

/* What dumps and reports may take of --max-disk. */
static uint64_t dumps_part(uint64_t limit)
{
	return limit - limit / 4;
}

uint64_t dump_bound_trace_beside(const struct session *session, uint64_t dump_bytes)
{
	uint64_t limit = session->max_disk_bytes;

	if (limit == 0)
		return session->max_trace_bytes;
	return min_u64(session->max_trace_bytes, limit - min_u64(dump_bytes, dumps_part(limit)));
}

uint64_t dump_bound_trace(const struct pipeline *pipeline)
{
	return dump_bound_trace_beside(pipeline->session,
				       pipeline->dump_bytes + pipeline->other_dump_bytes);
}

/* But for the trace, which is counted where it is written. */
static uint64_t bytes_below(char *directory)
{
	char *const roots[] = {directory, NULL};
	FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
	const FTSENT *entry;
	uint64_t sum = 0;

	while (tree != NULL && (entry = fts_read(tree)) != NULL) {
		if (entry->fts_info == FTS_F && strcmp(entry->fts_name, PROJECT_TRACE) != 0)
			sum += (uint64_t)entry->fts_statp->st_size;
	}
	if (tree != NULL)
		(void)fts_close(tree);
	return sum;
}

void dump_bound_measure(struct pipeline *pipeline)
{
	pipeline->dump_bytes = pipeline->project.made ? bytes_below(pipeline->project.path) : 0;
}

/* Whether the disk has less than --min-free, once `more` bytes are written. */
static bool is_low(const struct pipeline *pipeline, uint64_t more)
{
	struct statvfs fs;

	return pipeline->session->min_free_bytes != 0 &&
	       statvfs(pipeline->project.path, &fs) == 0 &&
	       (uint64_t)fs.f_bavail * fs.f_frsize < pipeline->session->min_free_bytes + more;
}

/* Says in the directory and to the user what the dump lacks, and how to get it. */
static void say(struct pipeline *pipeline, const char *lacks, const char *why)
{
	struct mscope_error err = {0};
	struct strbuf size = {0}, text = {0};

	strbuf_add_size(&size, pipeline->dump_bytes);
	strbuf_addf(&text,
		    "The dump in this directory is incomplete: %s, because %s (%s so far).\n"
		    "The trace goes on. To write the rows that it has, run: msmemscope export .\n",
		    lacks, why, strbuf_str(&size));
	(void)error_set(
		&pipeline->dump_stopped, -ENOSPC,
		"the dump of process %u is incomplete: %s, because %s; run: msmemscope export %s",
		pipeline->project.pid, lacks, why, pipeline->project.path);
	/* Its path is said. */
	pipeline->project.named = true;
	log_warn(&pipeline->log, "%s", pipeline->dump_stopped.message);
	/* On a full disk the screen alone says it. */
	(void)project_write(&pipeline->project, DUMP_BOUND_NOTE, &text, 0600, &err);
	strbuf_fini(&size);
	strbuf_fini(&text);
}

void dump_bound_look(struct pipeline *pipeline)
{
	uint64_t limit = pipeline->session->max_disk_bytes;
	struct mscope_error err = {0};
	const char *why = NULL;

	if (!pipeline->live || !pipeline->project.made || pipeline->pass.sink == NULL ||
	    pipeline->pass.sink_error.code != 0)
		return;
	/* A form may hold rows back. Near the bound it does not. */
	if (limit != 0 &&
	    pipeline->dump_bytes + pipeline->other_dump_bytes + NEAR_BYTES > dumps_part(limit))
		pass_flush(&pipeline->pass);
	dump_bound_measure(pipeline);
	if (limit != 0 && pipeline->dump_bytes + pipeline->other_dump_bytes > dumps_part(limit))
		why = "the run has reached --max-disk";
	else if (is_low(pipeline, 0))
		why = "the disk has less than --min-free left";
	if (why == NULL)
		return;
	say(pipeline, "its rows end here", why);
	if (pass_close_sink(&pipeline->pass, true, &err) < 0)
		pipeline->pass.sink_error = err;
}

bool dump_bound_has_room(struct pipeline *pipeline)
{
	uint64_t limit = pipeline->session->max_disk_bytes;
	bool fits;

	if (!pipeline->live)
		return true;
	fits = (limit == 0 || 2 * pipeline->dump_bytes + pipeline->other_dump_bytes <= limit) &&
	       !is_low(pipeline, pipeline->dump_bytes);
	if (!fits && pipeline->dump_stopped.code == 0)
		say(pipeline, "its first rows lack what was learned later",
		    "there is no room to write them again");
	return fits;
}
