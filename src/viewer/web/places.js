// SPDX-License-Identifier: Apache-2.0
// Places as a person looks for them: who called a function of the program that only passes requests on.

const callersOf = new Map(); // {the program's own innermost frame: those that it was called from}

// The parts of "torch.relu <- net.py:41 forward <- train.py:9 main", and which of them is the program's own innermost frame: it has a line.
function placeParts(text) {
  const parts = text.split(" <- ");
  return [parts, parts.findIndex(part => /:\d+/.test(part))];
}

// Takes note of places that the page shows.
export function learnPlaces(texts) {
  for (const text of texts) {
    const [parts, own] = placeParts(text);
    if (own < 0 || own + 1 >= parts.length) continue;
    if (!callersOf.has(parts[own])) callersOf.set(parts[own], new Set());
    callersOf.get(parts[own]).add(parts[own + 1]);
  }
}

// A place as a person looks for it: one that several callers go through is a wrapper, and its caller comes first.
export function placeName(text) {
  const [parts, own] = placeParts(text);
  return own >= 0 && callersOf.get(parts[own])?.size > 1 ? [...parts].reverse().join(" \u2192 ") : text;
}
