/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What other settings of PyTorch's allocator would have done for a run whose memory ran out, or that reserves far more than it uses:
 * a finding. The run is read once more and the settings are played on its record; a record that cannot be replayed gets no finding.
 */
#ifndef MSCOPE_ENGINE_WHAT_IF_FINDING_H
#define MSCOPE_ENGINE_WHAT_IF_FINDING_H

#include "engine/input.h"
#include "sink/report.h"
#include "trace/session.h"

/* One run, asked at most once: later reports of the same run get the same answer. Zeroed, then filled by what_if_into(). */
struct what_if_asker {
	/* Opens the run once more, from its start. 0 or a negative code. */
	int (*open)(void *arg, struct run **out, struct mscope_error *err);
	void *arg;
	enum session_whatif when;
	bool asked, answered;
	struct finding_what_if answer;
	char set[512]; /* its text */
};

/* Lets a report ask. `asker` must live as long as the report, and not move. */
void what_if_into(struct report *report, struct what_if_asker *asker);

/* The same of a file that was opened for reading. */
void what_if_of_input(struct report *report, struct what_if_asker *asker,
		      const struct input *input);

#endif
