/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/store_place.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli/tree.h"

static const char *or_variable(const char *value, const char *name)
{
	const char *set = value != NULL ? value : getenv(name);

	return set == NULL || set[0] == '\0' ? NULL : set;
}

int store_place_find(const struct options *options, bool write, struct store_place *out,
		     struct mscope_error *err)
{
	const char *url =
		or_variable(options->to != NULL ? options->to : options->store, "MSMEMSCOPE_STORE");
	const char *fault;
	const char *code = or_variable(options->commit, "MSMEMSCOPE_COMMIT");
	char prefix[PATH_MAX - 32];

	*out = (struct store_place){
		.choice = {.url = url, .write = write},
		.label = {.run = or_variable(options->run, "MSMEMSCOPE_RUN"),
			  .job = or_variable(options->job, "MSMEMSCOPE_JOB"),
			  .tags = or_variable(options->tag, "MSMEMSCOPE_TAG")},
	};
	code = or_variable(code, "GITHUB_SHA");
	out->label.code = or_variable(code, "CI_COMMIT_SHA");
	if (tree_prefix(prefix, sizeof(prefix), NULL) == 0)
		(void)snprintf(out->helper, sizeof(out->helper), "%s/bin/msmemscope-pg", prefix);
	fault = url == NULL ? NULL : store_url_fault(url);
	return fault == NULL ? 0 : error_set(err, MSCOPE_E_USAGE, "--store: %s", fault);
}
