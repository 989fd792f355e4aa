/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints: the whole state of a replay as records, in the place of older records that were dropped to stay within --max-disk.
 * They belong to a writer of their own (CHECKPOINT_WRITER), which sorts before all others. A replay that reads them goes on as if
 * it had seen everything: each part saves what it has, and loads it again (parts.def). Definitions, blocks and what a pool tells are
 * records of the kinds that a trace has, or much like these; everything else is records kept_part, whose words a function of the part
 * both saves and loads.
 *
 * Things have the numbers in a checkpoint that they have in the replay: contexts and stacks their index, functions their index
 * + 1, owners their index. Texts are numbered as they are needed.
 */
#ifndef MSCOPE_REPLAY_CHECKPOINT_H
#define MSCOPE_REPLAY_CHECKPOINT_H

#include "base/word_list.h"
#include "replay/replay.h"
#include "trace/builder.h"

/* A checkpoint that is being written. */
struct checkpoint {
	struct builder builder;
	struct map texts;   /* offset + 1 in replay.texts -> number here */
	uint32_t next_text; /* the last number that was given */
	uint32_t as_writer; /* the writer that was named last */
};

/* Names the writer that the records that follow are about; 0: the checkpoint's own. */
void checkpoint_as_writer(struct checkpoint *cp, uint32_t writer);

/* Number of a text, which is written as well; 0 for NULL. `offset` is as in replay.texts: the same text is written once. */
uint32_t checkpoint_text(struct checkpoint *cp, const char *text);
uint32_t checkpoint_text_at(struct checkpoint *cp, const struct replay *replay, uint32_t offset);

/* State of a part on its way into a checkpoint, or out of it. */
struct keeping {
	struct words words;
	struct checkpoint *cp;		 /* saving */
	const struct trace_event *event; /* loading: a record of the checkpoint */
};

/* Saves or loads what others know the number of: a text by its offset + 1, and a stack. Loading, one that is not known is 0. */
uint32_t keeping_text(struct replay *replay, struct keeping *k, uint32_t offset);
uint32_t keeping_stack(struct replay *replay, struct keeping *k, uint32_t stack);

/* The same with a text of its own; NULL: there is none. 0 or -ENOMEM. */
int keeping_string(struct replay *replay, struct keeping *k, char **text);

/* Where a replay stands: after this many events of this writer at this time, in the chunk of the last of them. */
struct position {
	uint64_t time_ns;
	uint32_t writer;
	uint32_t events;
	uint32_t sequence; /* of that chunk: older ones may be gone */
};

/* Takes note of an event that is about to be taken. */
static inline void position_advance(struct position *position, const struct trace_event *event)
{
	if (MSCOPE_LIKELY(event->time_ns > position->time_ns)) {
		*position = (struct position){event->time_ns, event->writer, 1, event->sequence};
	} else if (event->time_ns == position->time_ns) {
		position->events =
			event->writer == position->writer && event->sequence == position->sequence
				? position->events + 1
				: 1;
		position->writer = event->writer;
		position->sequence = event->sequence;
	}
}

/* What a replay knows of the checkpoint that it has loaded. */
struct loaded {
	uint64_t time_ns; /* events before this time may be in it; 0: none was loaded */
	struct position at;
	bool has_sequence;  /* at.sequence is known; a version before did not save it */
	bool complete;	    /* has the state of all parts; else a version before wrote it */
	struct strbuf kept; /* what came so far of a state in several records */
};

/* Whether an event before loaded.time_ns is in the checkpoint. */
bool checkpoint_includes(struct loaded *loaded, const struct trace_event *event);

#endif
