// SPDX-License-Identifier: Apache-2.0
// Ranks side by side: a row for each, the highest peak on top; dark is much, of what the fullest rank ever held.
import { bytes, span } from "./format.js";
import { begin, css, fitted, TOP } from "./draw.js";
import { ask } from "./data.js";
import { drawSoon, page, state } from "./page.js";

const NAMES = 120, PEAKS = 80, RANK_ROW = 18;

// Worst first; ranks with a leak before those without one of the same peak.
export function worstFirst(ranks) {
  return [...ranks].sort((a, b) => b.peak - a.peak || b.leaks - a.leaks || a.process - b.process);
}

export function drawRanks(canvas, ranks, total) {
  const { pen, width, height } = begin(canvas), list = worstFirst(ranks);
  const room = Math.max(1, width - NAMES - PEAKS - 16), each = Math.max(2, Math.min(RANK_ROW, (height - TOP - 8) / (total || 1)));
  const most = list[0]?.peak || 1, longest = Math.max(1, ...list.map(one => one.length)), hits = [];
  pen.textAlign = "left";
  pen.fillStyle = css("--pale");
  pen.fillText(`${list.length} of ${total} ranks, highest peak first; ${span(longest)} across`, 8, TOP / 2 + 2);
  const strong = css("--strong"), text = css("--text"), bad = css("--bad"), band = css("--band");
  list.forEach((rank, row) => {
    const y = TOP + 4 + row * each, tall = Math.max(1, each - (each > 6 ? 2 : 0)), pixels = room * rank.length / longest;
    pen.fillStyle = band;
    pen.fillRect(NAMES, y, room, tall);
    pen.fillStyle = strong;
    rank.values.forEach((value, i) => {
      if (!value) return;
      pen.globalAlpha = 0.08 + 0.92 * value / most;
      const from = Math.round(pixels * i / rank.values.length), to = Math.round(pixels * (i + 1) / rank.values.length);
      pen.fillRect(NAMES + from, y, to - from, tall);
    });
    pen.globalAlpha = 1;
    if (each >= 11) {
      pen.fillStyle = rank.leaks ? bad : text;
      pen.fillText(fitted(pen, `${rank.name}${rank.leaks ? "  leak" : ""}`, NAMES - 16), 8, y + tall / 2);
      pen.fillText(bytes(rank.peak), NAMES + room + 8, y + tall / 2);
    }
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
let ranking = false;

// The summary of each rank and its highest pool over time, one after the other: of many ranks the server keeps few open.
async function fetchRanks() {
  if (ranking || ranks.length > 0) return;
  ranking = true;
  for (let process = 0; process < page.processes.length; process++) {
    const summary = await ask("summary", { process }), best = summary.error ? undefined : mainPool(summary);
    if (best === undefined) continue;
    const answer = await ask("series", { process, pool: best.index, by: "owner", from: summary.from_ns, to: summary.to_ns, width: 240 });
    ranks.push({ process, name: page.processes[process].name, peak: best.peak_bytes, length: summary.to_ns - summary.from_ns, values: answer.most ?? [],
      leaks: summary.leaks.filter(one => one.verdict === "leak").length });
    if (state.tab === "ranks") drawSoon(false);
  }
  ranking = false;
}

export const ranksView = {
  key: "ranks",
  title: "Ranks",
  shown: () => page.processes.length > 1,
  async fetch() { fetchRanks(); },
  draw: canvas => drawRanks(canvas, ranks, page.processes.length),
  tip: hit => hit && `${hit.rank.name}: peak ${bytes(hit.rank.peak)}${hit.rank.leaks ? ", leaks" : ""}`,
  click(hit) {
    if (hit) { state.tab = "timeline"; page.openProcess(hit.rank.process); }
    return true;
  },
};
