// SPDX-License-Identifier: Apache-2.0
// Ranks, or processes, side by side: a row for each, the worst on top; dark is much, of what the fullest one ever held.
import { bytes, span } from "./format.js";
import { begin, css, fitted } from "./draw.js";
import { ask } from "./data.js";
import { drawSoon, make, page, state } from "./page.js";

const RANK_ROW = 18;

// Verdicts, the worst last, with what people call them; others have no mark.
const VERDICTS = ["none", "ok", "suspect", "leak", "oom"], MARKS = { suspect: "suspect", leak: "leak", oom: "out of memory" };

// Worst first, as on the screen: by verdict, then by growth, then by peak.
export function worstFirst(list) {
  const badness = one => VERDICTS.indexOf(one.verdict ?? "none");
  return [...list].sort((a, b) => badness(b) - badness(a) || b.growth - a.growth || b.highest - a.highest || a.process - b.process);
}

function tellRank(rank) {
  if (rank.error) return `${rank.name}\n${rank.error}`;
  const mark = MARKS[rank.verdict];
  return `${rank.name}: peak ${bytes(rank.peak)}${rank.total_bytes ? ` of ${bytes(rank.total_bytes)}` : ""}, ${rank.pool_name ?? ""}, ${span(rank.length)}${mark ? `\n${mark}` : ""}\nclick: its timeline`;
}

let ranksScrolled = 0;

// One sentence about all of them.
export function tellRanks(list, total) {
  const highest = Math.max(0, ...list.map(one => one.peak)), longest = Math.max(0, ...list.map(one => one.length));
  return `${list.length === total ? total : `${list.length} of ${total}`} processes, worst first; ${span(longest)} across; full colour: up to ${bytes(highest)}; click one for its timeline`;
}

export function drawRanks(canvas, all, scroll) {
  const { pen, width, height } = begin(canvas), list = worstFirst(all), hits = [];
  const names = width < 500 ? 112 : 170, room = Math.max(1, width - names - 80), highest = Math.max(1, ...list.map(one => one.peak)), longest = Math.max(1, ...list.map(one => one.length));
  const strong = css("--strong"), text = css("--text"), bad = css("--bad"), warn = css("--warn"), band = css("--band");
  list.forEach((rank, row) => {
    const y = 4 + row * RANK_ROW - scroll, tall = RANK_ROW - 2, pixels = room * rank.length / longest;
    if (y < 2 - RANK_ROW || y > height) return;
    pen.fillStyle = band;
    pen.fillRect(names, y, room, tall);
    pen.fillStyle = strong;
    rank.values.forEach((value, i) => {
      if (!value) return;
      pen.globalAlpha = 0.08 + 0.92 * value / highest;
      const from = Math.round(pixels * i / rank.values.length), to = Math.round(pixels * (i + 1) / rank.values.length);
      pen.fillRect(names + from, y, to - from, tall);
    });
    pen.globalAlpha = 1;
    const mark = rank.error ? "unreadable" : MARKS[rank.verdict] ?? "";
    pen.fillStyle = mark === MARKS.suspect ? warn : mark ? bad : text;
    pen.textAlign = "left";
    pen.fillText(fitted(pen, `${rank.name}${mark ? `  ${mark}` : ""}`, names - 16), 8, y + tall / 2);
    pen.fillText(bytes(rank.peak), names + room + 8, y + tall / 2);
    hits.push({ rank, x: 0, y, width, height: tall });
  });
  canvas.dataset.ranks = String(list.length);
  return hits;
}

// The pool that matters most: of a framework, then the one with the highest peak.
export function mainPool(summary) {
  return [...summary.pools].sort((a, b) => a.driver - b.driver || b.peak_bytes - a.peak_bytes)[0];
}

const ranks = [];
let ranking = null, ranksRead = 0;

// The process that is worst, once all are read; undefined: they cannot be.
export async function worstProcess() {
  await fetchRanks();
  return ranksRead < page.processes.length ? undefined : worstFirst(ranks.filter(one => !one.error))[0]?.process;
}

// What the server keeps of each process; as many with each answer as it could read in a moment.
function fetchRanks() {
  ranking ??= readRanks().finally(() => { ranking = null; });
  return ranking;
}

async function readRanks() {
  while (ranksRead < page.processes.length) {
    const answer = await ask("ranks", { process: "", from: ranksRead });
    if (answer.error) break;
    for (const one of answer.ranks) ranks.push({ ...one, peak: one.peak_bytes ?? 0, values: one.values ?? [], length: one.length_ns ?? 0, growth: one.growth ?? 0, highest: one.highest_bytes ?? 0 });
    ranksRead = answer.next;
    if (state.tab === "ranks") drawSoon(true);
  }
}

export const ranksView = {
  key: "ranks",
  title: "Ranks",
  shown: () => page.processes.length > 1,
  async fetch() { fetchRanks(); },
  draw: canvas => drawRanks(canvas, ranks, ranksScrolled),
  tools: () => [make("span", "", tellRanks(ranks, page.processes.length))],
  tip: hit => hit && tellRank(hit.rank),
  click(hit) {
    if (hit) { state.tab = "timeline"; page.openProcess(hit.rank.process); }
    return true;
  },
  wheel(delta, canvas) {
    const most = Math.max(0, ranks.length * RANK_ROW - canvas.clientHeight + 60);
    ranksScrolled = Math.min(most, Math.max(0, ranksScrolled + delta));
    drawSoon(false);
  },
};
