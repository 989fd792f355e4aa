/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run of a store in the browser: all ranks over time, the worst first, and from each the page of its own trace, where that lies on
 * this machine. What it says of ranks is what `fleet show --json` says.
 *
 *     /                    the page (web/store.html)
 *     /rank                the page of a trace, as of `msmemscope view RUN`; #process=N says of which
 *     /api/fleet           fleet show --json
 *     /api/timeline?pool=N what each rank held of a pool over time
 *
 * A run that goes on is asked for again and again. One thread.
 */
#ifndef MSCOPE_VIEWER_STORE_PAGE_H
#define MSCOPE_VIEWER_STORE_PAGE_H

#include "store/store.h"
#include "viewer/questions.h"

struct store_page;

/* Whether a word of the command line names a store and no run. */
bool store_page_is_url(const char *word);

/* Loads a run by its name; "" is the latest. `choice` and `viewed`, which gets the traces of the ranks, are borrowed. */
int store_page_open(const struct store_choice *choice, const char *run, struct viewed *viewed,
		    struct store_page **out, struct mscope_error *err);
void store_page_close(struct store_page *page);

/* Answers what is its own; false: somebody else's. `out_type` is of the answer's content. */
bool store_page_reply(struct store_page *page, const char *path, const char *query,
		      const char *nonce, struct strbuf *out, const char **out_type);

#endif
