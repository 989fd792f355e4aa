// SPDX-License-Identifier: Apache-2.0
// Two moments, two steps or two runs side by side: what grew is red, what shrank is blue.
import { ask, isReport } from "./data.js";
import { bytes, ownerName, signed, signedCount, span, stepEnd, usualMoments } from "./format.js";
import { $, button, change, make, page, pool, state } from "./page.js";
import { groupWords, siteOf } from "./places.js";
import { differenceOf, groupTools } from "./timeline.js";
import { mainPool } from "./ranks.js";

// The same pool of another run, or the one that matters most there.
export function poolLike(wanted, summary) {
  return summary.pools.find(one => one.pool === wanted.pool && one.device === wanted.device) ?? mainPool(summary);
}

// Both sides of a comparison: process, pool and moment of each. null: the other run cannot be read.
export async function twoSides() {
  if (state.with === null) {
    const [first, last] = isUsual() ? usualMoments(page.run) : [state.at ?? pool().peak_ns, state.and ?? page.run.to_ns];
    const side = at => ({ process: state.process, pool: pool().index, at: Math.round(at), run: page.run });
    return [side(first), side(last)];
  }
  const summary = await ask("summary", { process: state.with });
  if (summary.error || summary.pools.length === 0) return null;
  const other = poolLike(pool(), summary);
  return [{ process: state.process, pool: pool().index, at: Math.round(state.at ?? pool().peak_ns), run: page.run },
    { process: state.with, pool: other.index, at: Math.round(state.and ?? other.peak_ns), run: summary }];
}

// What changed between both sides: the server's answer; in a report, which has few moments, what its picture shows.
export async function difference(pair, of) {
  const answer = await ask("difference", { ...sidesQuestion(pair), by: state.by, of });
  const isOne = pair[0].process === pair[1].process && pair[0].pool === pair[1].pool;
  const near = answer.error && isReport && isOne && page.whole !== null ? differenceOf(page.whole, pair[0].at, pair[1].at) : null;
  return near ?? answer;
}

// The question that both sides make, for a table or a tree.
export function sidesQuestion([first, second]) {
  const other = second.process === first.process ? {} : { with: second.process, with_pool: second.pool };
  return { process: first.process, pool: first.pool, at: first.at, and: second.at, ...other };
}

// Whether both sides are those that a report has.
function isUsual() {
  return state.at === null && state.and === null && state.with === null;
}

let compared = null, sides = null;

function tellSide(letter, side, figures) {
  const name = page.processes.length > 1 ? `${page.processes[side.process]?.name ?? ""}, ` : "", pool = side.run.pools.find(one => one.index === side.pool), isPeak = side.at === pool?.peak_ns && !pool.dropped_peak;
  return make("div", "side", make("b", letter.toLowerCase(), letter), make("span", "big", bytes(figures?.used ?? 0)),
    make("span", "pale", `${name}${isPeak ? "its peak, " : ""}at ${span(figures?.at_ns ?? side.at)}${figures?.step ? `, step ${figures.step}` : ""}`));
}

function changeBar(value, largest) {
  const bar = make("div", `bar ${value > 0 ? "grew" : "shrank"}`), part = make("i", "");
  part.style.width = `${Math.abs(value) / (largest || 1) * 100}%`;
  bar.append(part);
  return bar;
}

function drawCompared() {
  const box = $("compare");
  if (sides === null || compared === null || compared.error) {
    box.replaceChildren(make("p", "pale", compared?.error ?? "The other run cannot be read."));
    return;
  }
  const total = (compared.b.used ?? 0) - (compared.a.used ?? 0), rows = compared.groups.filter(one => one[1] !== one[3]);
  const largest = Math.max(1, ...rows.map(one => Math.abs(one[3] - one[1]))), same = compared.groups.length - rows.length;
  const head = make("tr", "", ...[{ owner: "owner", layer: "layer" }[state.by] ?? "call site", "A", "B", "change", "", compared.near ? "" : "blocks"].map((name, i) => make("th", i === 4 ? "wide" : i > 0 ? "number" : "", name)));
  const body = make("tbody", "", ...rows.map(([name, before, beforeBlocks, after, afterBlocks]) => {
    const row = make("tr", "", make("td", "place", groupWords(state.by, name)), make("td", "number", bytes(before)), make("td", "number", bytes(after)),
      make("td", `number ${after > before ? "grew" : "shrank"}`, signed(after - before)), make("td", "wide", changeBar(after - before, largest)),
      make("td", "number", compared.near ? "" : signedCount(afterBlocks - beforeBlocks)));
    row.title = name;
    row.addEventListener("click", () => change({ tab: "table", list: null, search: state.by === "place" ? siteOf(name) : ownerName(name), at: state.at ?? sides[0].at }));
    return row;
  }));
  const list = rows.length === 0 ? make("p", "pale", "Both hold the same memory.") : make("table", "", make("thead", "", head), body);
  box.replaceChildren(make("div", "sides", tellSide("A", sides[0], compared.a), make("div", `side ${total > 0 ? "grew" : "shrank"}`, make("span", "big", signed(total)), make("span", "pale", "from A to B")),
    tellSide("B", sides[1], compared.b)), list, make("p", "pale", [same > 0 ? `${same} more hold the same in both.` : "", compared.near ? "At the resolution of the picture: a report has few exact moments." : ""].filter(Boolean).join(" ")));
}

// Two steps by number: their ends, or where each held most.
async function chooseSteps(first, last, atPeak) {
  const { run } = page, times = [];
  for (const number of [first, last]) {
    const end = stepEnd(run.steps, number, run.to_ns), begin = run.steps.find(([one]) => one === number)?.[1];
    if (end === null || begin === undefined) return;
    const highest = atPeak ? await ask("highest", { process: state.process, pool: pool().index, from: begin, to: end }) : null;
    times.push(highest?.at_ns ?? end);
  }
  change({ at: times[0], and: times[1], with: null });
}

function stepTools() {
  const { steps } = page.run;
  if (steps.length < 2) return [];
  const box = value => Object.assign(make("input", "number"), { type: "number", min: steps[0][0], max: steps[steps.length - 1][0], value, ariaLabel: "step" });
  const first = box(steps[0][0]), last = box(steps[Math.max(0, steps.length - 2)][0]), kind = make("select", "", make("option", "", "at its end"), make("option", "", "at its peak"));
  kind.setAttribute("aria-label", "which moment of a step");
  return [make("span", "", "step"), first, make("span", "", "with"), last, kind, button("Compare steps", false, () => chooseSteps(Number(first.value), Number(last.value), kind.selectedIndex === 1))];
}

function runTools() {
  if (page.processes.length < 2) return [];
  const choice = make("select", "", Object.assign(make("option", "", "this run"), { value: "" }),
    ...page.processes.map((one, i) => Object.assign(make("option", "", one.name), { value: i, selected: state.with === i })));
  choice.setAttribute("aria-label", "run of B");
  choice.addEventListener("change", () => change({ with: choice.value === "" ? null : Number(choice.value), and: null }));
  return [make("span", "", "B in"), choice];
}

export const compareView = {
  key: "compare",
  title: "Compare",
  element: "compare",
  async fetch(current) {
    const next = await twoSides(), answer = next === null ? null : await difference(next, isUsual() ? "usual" : "?");
    if (!current()) return;
    [sides, compared] = [next, answer];
    drawCompared();
  },
  tools: () => [...groupTools(), ...stepTools(), ...runTools(),
    ...(isReport ? [] : [button("as flame graph", false, () => change({ tab: "flame", of: "difference" }))])],
  forget() { sides = compared = null; },
};
