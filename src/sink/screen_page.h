/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of a screen, and how they are made to fit. Private to the screen.
 */
#ifndef MSCOPE_SINK_SCREEN_PAGE_H
#define MSCOPE_SINK_SCREEN_PAGE_H

#include "sink/screen.h"

#define PAGE_PARTS 32
#define PAGE_STAYS UINT32_MAX

/* What is worth less goes before blank lines do. */
#define PAGE_BLANKS 20u

/* What a part is worth: of those that do not fit the least goes first. */
enum worth {
	WORTH_POOLS = 15,
	WORTH_LAYERS = 25,
	WORTH_DEVICE = 30,
	WORTH_NOTES = 40,
	WORTH_PEAK = 50,
	WORTH_ASKED = 60,
	WORTH_OOM_HELD = 85,
};

struct part {
	struct strbuf text; /* whole lines */
	/* Parts that are worth less are left out first; PAGE_STAYS: never. */
	unsigned int worth;
	const char *name;	/* what the last line calls it if it is left out; NULL: nothing */
	enum severity severity; /* the colour of its first line */
	bool apart;		/* a blank line before it, if there is room */
	bool whole;		/* its lines are not cut: a person copies them */
	bool left_out;		/* set by page_fit() */
};

struct page {
	struct part parts[PAGE_PARTS];
	size_t count;
	bool spaced; /* blank lines are there */
};

/* How long lists may be; while a page is too long, they get shorter. */
struct room {
	size_t processes, sites, suspects, holders, pools;
	bool brief;   /* verdicts without what was checked, lines of the original without blocks */
	bool keepers; /* what keeps the blocks of each call site */
	bool cures;   /* what to do about each, not about the worst alone */
	bool host_said; /* growth of host memory is said above */
};

struct part *page_add(struct page *page, unsigned int worth, const char *name);
/* Rows of parts that are worth this at least; without blank lines where these go first. */
unsigned int page_worth(const struct page *page, unsigned int least);
void page_fit(struct page *page, unsigned int budget);
void page_print(struct page *page, bool colours, struct strbuf *out);
void page_fini(struct page *page);

/* ---- screen_verdicts.c ---- */

/* Whether memory leaks or may leak there, worst first. */
void page_verdicts(struct page *page, const struct digest *digest, const struct room *room);

/* "HOST MEMORY GROWS: RSS of 2 DataLoader workers +1.5 MiB per step, ...", a line or more. */
void page_host_growth(const struct finding_host_growth *growth, struct strbuf *out);

/* The lines that scripts of the original's users look for; on a terminal no single blocks. */
void page_compatible(struct page *page, const struct digest *digest, bool brief, bool terminal);

/* ---- screen_process.c ---- */

/* What ran: "train.py (pid 429): 40 steps in 5.5 s on GPU 0 (140 GiB)". */
void page_head(struct page *page, const struct digest *digest, const char *before);

/* All about one process but its headline; `alone`: it is the only one. */
void page_process(struct page *page, const struct screen *screen, const struct digest *digest,
		  const struct room *room, bool alone);

#endif
