// SPDX-License-Identifier: Apache-2.0
// A run whose process is being recorded: the page asks again and says what it sees.

export function isFollowed(run) {
  return run !== null && run.live === true && !run.complete;
}

// Milliseconds until the next question: what grows is watched, what is only being read is waited for.
export function askAgainAfter(run) {
  return isFollowed(run) ? 1000 : 200;
}

// What the note says of a run that is not complete, or was not a moment ago; "" where there is nothing to say.
export function liveNote(run) {
  if (run === null) return "";
  if (isFollowed(run)) return `Live: ${run.events.toLocaleString("en")} events so far. The picture grows while the program runs.`;
  if (!run.complete) return `Reading the run: ${(run.events / 1e6).toFixed(1)} million events so far`;
  return run.live ? "The program has ended. This is the whole run." : "";
}

// A word beside the title: that the run goes on, or that it has ended while it was looked at.
export function liveChip(run) {
  return isFollowed(run) ? "live" : run?.live ? "ended" : "";
}
