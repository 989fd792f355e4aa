/* SPDX-License-Identifier: Apache-2.0 */
/* Answers about the pools of the runs that a command names, whatif and advise: as text for people, or as one object of JSON. */
#ifndef MSCOPE_CLI_POOL_ANSWERS_H
#define MSCOPE_CLI_POOL_ANSWERS_H

#include "base/json.h"
#include "base/strbuf.h"
#include "options/options.h"

struct pool_answers {
	const struct options *options;
	/* Where the answers go: the one that `options->json` asks for. */
	struct json json;
	struct strbuf text;
	size_t answered;
	const char *run; /* in progress; NULL: it is the only one */
	/* Answers for one run, a snapshot or one rank. Returns the exit code. */
	int (*answer)(struct pool_answers *answers, const char *path);
	/* Whether an argument has several runs is not asked; NULL: it is. */
	bool (*is_one)(const char *path);
	bool names_one; /* the path stands above the answer also where a directory has one run */
};

/* Asks about all arguments of the command and writes the answers. Returns the worst exit code. */
int pool_answers_write(struct pool_answers *answers);

#endif
