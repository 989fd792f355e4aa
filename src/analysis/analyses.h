/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The analyses of one run. Those that the session asks for observe the replay, live or from a file, and report at the end what
 * they found, as text and as JSON. The list is analyses.def.
 *
 *     analyses_init(&analyses, session->analysis, true, &replay);     before the first event
 *     ... replay_event() ...
 *     analyses_text(&analyses, &view, &out);                           at the end, any number of times
 *     analyses_fini(&analyses);
 */
#ifndef MSCOPE_ANALYSIS_ANALYSES_H
#define MSCOPE_ANALYSIS_ANALYSES_H

#include "findings/findings.h"
#include "replay/replay.h"

struct json;
struct words;

/* How much a text shows. */
struct analysis_view {
	struct replay *replay;	      /* at the end of the run */
	uint32_t lines;		      /* of each list at most; one line counts the rest */
	uint32_t frames;	      /* of each call stack */
	const struct findings *found; /* what the analyses found, settled */
};

/* One analysis. `state` is `state_bytes` of zeroed memory of its own; functions that it does not need are NULL. */
struct analysis {
	const char *name; /* key of its JSON */
	uint32_t bits;	  /* of enum session_analysis: any of them asks for it */
	bool always;	  /* nothing has to ask for it */
	size_t state_bytes;
	uint32_t rows;		 /* kinds of rows that it wants: bits 1 << enum row_kind */
	uint32_t blocks;	 /* changes of blocks that it wants: bits 1 << enum block_change */
	uint32_t blocks_in_step; /* the same, while a step is in progress */
	/* Told before all else, and whenever the program chooses other settings. */
	void (*settings)(void *state, const struct event_settings *settings);
	/* While the run is replayed, as in struct replay_observer. 0 or a negative code, which ends this analysis. */
	int (*row)(void *state, struct replay *replay, const struct row *row);
	int (*step)(void *state, struct replay *replay, uint32_t step, bool begins);
	int (*sample)(void *state, struct replay *replay, const struct driver_usage *driver);
	int (*host)(void *state, struct replay *replay, const struct trace_event *event);
	int (*block)(void *state, struct replay *replay, enum block_change change,
		     const struct block *block, const struct usage *usage, uint32_t owner);
	/*
	 * In a checkpoint: saves the state as words, whose form is `version`, or loads it. Loading replaces the state, which has
	 * heard of live blocks and open steps before. 0 or a negative code, which ends this analysis. Contexts, stacks, owners
	 * and usages keep their numbers.
	 */
	uint32_t version;
	int (*keep)(void *state, const struct replay *replay, struct words *words);
	/* No event comes any more: frees what only events need. NULL: nothing. */
	void (*end)(void *state);
	/* At any moment, as often as wanted: adds what was found (findings/findings.h). 0 or -ENOMEM. */
	int (*judge)(const void *state, struct replay *replay, struct findings *out);
	/* Its JSON has an entry for each block or call site: only for who asks for all. */
	bool long_json;
	/* What its part of the screen and of the page is called; NULL: it has none, or renderers know it by its kinds of findings. */
	const char *section;
	bool own_view; /* the page has a view of it, and no part */
	/* `analyze WORD` answers with what it found, and with `nothing` if that is nothing; NULL: it answers no word. */
	const char *word;
	const char *nothing;
	bool by_steps; /* --steps chooses */
	/* At the end. Text: whole lines, or nothing. JSON: one value, under `name`. 0 or -ENOMEM. */
	int (*text)(void *state, const struct analysis_view *view, struct strbuf *out);
	int (*json)(void *state, const struct analysis_view *view, struct json *json);
	void (*fini)(void *state);
};

enum analysis_id {
#define ANALYSIS(name) ANALYSIS_ID_##name,
#include "analysis/analyses.def"
#undef ANALYSIS
	ANALYSES
};

/* Analyses by number, at most one of each. */
struct analysis_list {
	uint8_t count;
	uint8_t ids[ANALYSES];
};

/* One that wants a change of a block, ready to be called: most events are such changes. */
struct block_listener {
	int (*block)(void *state, struct replay *replay, enum block_change change,
		     const struct block *block, const struct usage *usage, uint32_t owner);
	void *state;
	bool *failed;
};

struct analyses {
	uint32_t bits;			/* asked for: by the session, or at last by the program */
	bool follow;			/* what the program chooses through the API counts */
	bool fixed;			/* but not what it chooses of these */
	bool owners_only;		/* none runs; rows have the owners that they would have */
	struct event_settings settings; /* in force; of these only what one of them obeys counts */
	void *state[ANALYSES];		/* NULL: never asked for, or there was no memory for it */
	bool failed[ANALYSES];
	struct replay_observer observer;      /* wants what any of them wants */
	struct analysis_list by_row[ROW_END]; /* those that want this kind of row */
	bool in_step;			      /* a step is in progress */
	uint32_t changes[2];		      /* of blocks, that any wants; in a step: the second */
	/* Up to one without a function. */
	struct block_listener by_change[2][BLOCK_CHANGES][ANALYSES + 1];
};

/*
 * Begins those that `bits` (enum session_analysis) asks for, as the observer of `replay`. With `follow`, the program's own choice
 * takes the place of `bits` when it comes. An analysis that has begun goes on, and reports if it is asked for at the end.
 */
void analyses_init(struct analyses *analyses, uint32_t bits, bool follow, struct replay *replay);

/* For a pass that only writes: no analysis runs, and rows have the owners that they have with analyses_init(). */
void analyses_init_owners(struct analyses *analyses, uint32_t bits, bool follow,
			  struct replay *replay);
void analyses_fini(struct analyses *analyses);

/*
 * What they look for; before the first event. All zero, which is the default, means what each takes for right. With `fixed`, what
 * the program chooses changes nothing of it.
 */
void analyses_settings(struct analyses *analyses, const struct event_settings *settings,
		       bool fixed);

/* No event comes any more: the analyses give back memory that judging does not need. */
void analyses_end(struct analyses *analyses);

/* What all of them have found, named and grouped; `frames`: call sites of each list that have their stack. */
void analyses_judge(const struct analyses *analyses, struct replay *replay, size_t frames,
		    struct findings *out);

void analyses_text(struct analyses *analyses, const struct analysis_view *view, struct strbuf *out);
/* The text of one of them; nothing if it was not asked for. */
void analyses_text_of(struct analyses *analyses, enum analysis_id id,
		      const struct analysis_view *view, struct strbuf *out);

/* What is known of one of them. */
const struct analysis *analysis_of(enum analysis_id id);

/* The value of one of them, under its key; nothing if it was not asked for. */
void analyses_json_of(struct analyses *analyses, enum analysis_id id,
		      const struct analysis_view *view, struct json *json);

/* ---- what several of them need ---- */

/* True if a step has ended. Steps in progress are not judged. */
bool step_has_ended(const struct replay *replay, uint32_t step);

#endif
