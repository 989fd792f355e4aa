/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/pager.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/shown.h"
#include "cli/cli.h"

/* -F: a text that fits is only printed. -R: colours pass. -X: the text stays on the screen. */
#define PAGER_DEFAULT "less -FRX 2>/dev/null"

/* True if a pager took the text. */
static bool page(const char *pager, const struct strbuf *text)
{
	void (*before)(int) = signal(SIGPIPE, SIG_IGN);
	FILE *pipe = popen(pager, "w");
	int status = -1;

	if (pipe != NULL) {
		(void)fwrite(strbuf_str(text), 1, text->length, pipe);
		status = pclose(pipe);
	}
	(void)signal(SIGPIPE, before);
	/* 127: the shell found no such program. */
	return status != -1 && !(WIFEXITED(status) && WEXITSTATUS(status) == 127);
}

void pager_write(const struct strbuf *text)
{
	const char *pager = getenv("PAGER"), *term = getenv("TERM");
	struct strbuf lines = {0};
	bool wanted = isatty(STDOUT_FILENO) && isatty(STDIN_FILENO) && text->length > 0 &&
		      term != NULL && strcmp(term, "dumb") != 0;

	if (pager == NULL)
		pager = PAGER_DEFAULT;
	else if (pager[0] == '\0' || strcmp(pager, "cat") == 0)
		wanted = false;
	strbuf_add_lines(&lines, strbuf_str(text), text->length);
	if (!wanted || !page(pager, &lines))
		cli_write(STDOUT_FILENO, strbuf_str(&lines), lines.length);
	strbuf_fini(&lines);
}
