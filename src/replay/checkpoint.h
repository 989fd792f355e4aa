/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints: the whole state of a replay as records, in the place of older records that were dropped to stay within --max-disk.
 * They belong to a writer of their own (CHECKPOINT_WRITER), which sorts before all others. A replay that reads them goes on as if
 * it had seen everything: each part saves what it has (parts.def), and loads it again (handlers.def).
 *
 * Things have the numbers in a checkpoint that they have in the replay: contexts and stacks their index, functions their index
 * + 1, owners their index. Texts are numbered as they are needed.
 */
#ifndef MSCOPE_REPLAY_CHECKPOINT_H
#define MSCOPE_REPLAY_CHECKPOINT_H

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
	bool has_sequence; /* at.sequence is known; a version before did not save it */
	bool complete;	   /* has the state of all parts; else it is of an older form */
};

/* Whether an event before loaded.time_ns is in the checkpoint. */
bool checkpoint_includes(struct loaded *loaded, const struct trace_event *event, bool definition);

#endif
