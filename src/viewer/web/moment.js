// SPDX-License-Identifier: Apache-2.0
// The panel on the right: what the pool holds at A, B or the peak, and by whom; and the block that was clicked.
import { ask } from "./data.js";
import { bytes, ownerName, span } from "./format.js";
import { colourOf } from "./draw.js";
import { $, make, page, pool, state } from "./page.js";
import { momentOf } from "./timeline.js";

let moments = [];

export function shownName(name) {
  return state.by === "owner" ? ownerName(name) : name;
}

// What the pool holds at A and B, or at the peak, exactly; asked for when one of them changes.
export async function fetchMoments() {
  const times = [state.at ?? pool().peak_ns, state.and].filter(time => time !== null);
  const next = [];
  for (const time of times) {
    const answer = await ask("moment", { process: state.process, pool: pool().index, by: state.by, at: Math.round(time),
      now: page.run.complete ? undefined : 1, of: state.at === null ? "peak" : "" });
    const near = answer.error && page.whole !== null ? momentOf(page.whole, time) : null; // a report has few moments
    next.push({ time, ...(near ?? answer) });
  }
  moments = next;
}

function colourOfName(name) {
  const group = page.series?.groups?.indexOf(name) ?? -1;
  return colourOf(group < 0 || group >= 12 ? 99 : group);
}

export function drawMoment() {
  const [moment, second] = moments, parts = [make("h2", "", state.at === null ? "At the peak" : "At A")];
  if (moment !== undefined && moment.groups) {
    parts.push(make("div", "big", bytes(moment.used ?? 0)),
      make("span", "pale", `${span(moment.time - page.run.from_ns)} after the begin${moment.step ? `, step ${moment.step}` : ""}`));
    if (moment.reserved) parts.push(make("span", "pale", `${bytes(moment.reserved)} reserved by the pool`));
    if (moment.device) parts.push(make("span", "pale", `${bytes(moment.device)} of the device in use`));
    const list = make("section", `list ${state.by}`), leaking = new Set(page.run.leaks.filter(one => one.verdict === "leak").map(one => one.place));
    for (const one of [...moment.groups, ...(moment.others ? [{ name: "all others", bytes: moment.others }] : [])]) {
      const mark = make("i", "");
      mark.style.background = colourOfName(one.name);
      const row = make("div", `row ${leaking.has(one.name) ? "bad" : ""}`, mark, make("span", "", shownName(one.name)), bytes(one.bytes));
      row.title = one.name;
      list.append(row);
    }
    parts.push(list);
  }
  if (moment?.groups && second?.groups) parts.push(...difference(moment, second));
  const details = make("section", "");
  details.id = "details";
  parts.push(details);
  $("right").replaceChildren(...parts);
  if (state.block !== null) tellBlock(details);
}

function difference(before, after) {
  const change_ = new Map();
  for (const one of after.groups) change_.set(one.name, one.bytes);
  for (const one of before.groups) change_.set(one.name, (change_.get(one.name) ?? 0) - one.bytes);
  const rows = [...change_].filter(([, size]) => size !== 0).sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
  const total = (after.used ?? 0) - (before.used ?? 0);
  return [make("h2", "", "From A to B"), make("div", "big", `${total > 0 ? "+" : ""}${bytes(total)}`),
    make("section", "", ...rows.map(([name, size]) => make("div", "row", make("i", ""), make("span", "", shownName(name)), `${size > 0 ? "+" : ""}${bytes(size)}`)))];
}

async function tellBlock(section) {
  const answer = await ask("block", { process: state.process, id: state.block, of: state.block });
  const block = answer.blocks?.[0];
  if (!block) { section.replaceChildren(make("span", "pale", answer.error ?? "")); return; }
  section.replaceChildren(make("h2", "", `Block ${block.id}`), make("div", "big", bytes(block.bytes)),
    make("span", "pale", `${block.address}, thread ${block.thread}${block.step ? `, step ${block.step}` : ""}`),
    make("span", "pale", block.end_ns === null ? "never freed" : `lived ${span(block.end_ns - block.start_ns)}`),
    make("span", "pale", block.owner), frames(block.frames ?? []));
}

function frames(list) {
  return Object.assign(make("ul", "frames", ...list.map(frame => {
    const file = (frame.file ?? frame.module ?? "").split("/").pop();
    const line = make("li", frame.user ? "user" : "", `${frame.function ?? "?"}  ${file}${frame.line ? `:${frame.line}` : ""}`);
    line.title = `${frame.function ?? "?"} ${frame.file ?? frame.module ?? ""}${frame.line ? `:${frame.line}` : ""}`;
    return line;
  })));
}
