// SPDX-License-Identifier: Apache-2.0
// The panel on the right: what the pool holds at A or the peak, as a tree of owners or a list of places; what changed from A to B; and
// the block that was clicked.
import { ask } from "./data.js";
import { bytes, ownerTree, signed, span } from "./format.js";
import { colourOf } from "./draw.js";
import { $, button, change, drawSoon, make, page, pool, seeView, state } from "./page.js";
import { groupWords, ownerWords, placeName, siteOf } from "./places.js";
import { leakingPlaces, momentOf } from "./timeline.js";
import { difference, twoSides } from "./compare.js";

let moment = null, changes = null, block = null;
const folded = new Set(); // paths of owners whose parts are not shown
const opened = new Set(); // headings of lists that are shown, whichever block is

// What the pool holds at A, or at the peak, exactly; what changed until B; asked for when one of them changes.
export async function fetchMoments() {
  const time = state.at ?? pool().peak_ns, now = page.run.complete ? undefined : 1;
  const answer = await ask("moment", { process: state.process, pool: pool().index, by: state.by, at: Math.round(time), now, of: state.at === null ? "peak" : "" });
  const near = answer.error && page.whole !== null ? momentOf(page.whole, time) : null; // a report has few moments
  moment = { time, ...(near ?? answer) };
  const sides = state.and === null && state.with === null ? null : await twoSides();
  changes = sides === null ? null : await difference(sides, "");
  if (state.block === null) block = null;
  else if (block?.id !== Number(state.block)) {
    const next = await ask("block", { process: state.process, id: state.block, of: state.block });
    block = next.blocks?.[0] ?? null;
  }
}

function entry(depth, colour, name, size, className) {
  const mark = make("i", ""), row = make("div", `row ${className ?? ""}`, mark, make("span", "", name), make("b", "", size));
  if (colour) mark.style.background = colour;
  row.style.paddingLeft = `${depth * 12}px`;
  row.title = name;
  return row;
}

// Owners below each other, what they hold together beside the upper one.
function ownerRows(groups) {
  const rows = [], add = (node, depth) => {
    const open = !folded.has(node.path), many = node.children.length > 0;
    const row = entry(depth, many ? null : colourOf(node.group, false), many ? `${open ? "\u25be" : "\u25b8"} ${node.name}` : node.name, bytes(node.bytes));
    if (many) {
      row.classList.add("fold");
      row.addEventListener("click", () => { if (open) folded.add(node.path); else folded.delete(node.path); drawSoon(true); });
    }
    rows.push(row);
    if (open) for (const child of node.children) add(child, depth + 1);
  };
  for (const node of ownerTree(groups).children) add(node, 0);
  return rows;
}

function groupRows() {
  const leaking = leakingPlaces(), rest = moment.others ? [entry(0, colourOf(), "all others", bytes(moment.others))] : [];
  if (state.by !== "place") return [...ownerRows(moment.groups), ...rest];
  return [...moment.groups.slice(0, 40).map(one => {
    const row = entry(0, colourOf(one.name, false), placeName(one.name), bytes(one.bytes), leaking.has(siteOf(one.name)) ? "bad" : "");
    // Blocks of the first step, and those that are young or freed later, are no leak.
    if (one.leaked_bytes < one.bytes) row.children[1].append(make("small", "pale", `${bytes(one.leaked_bytes)} leaked, rest not judged`));
    return row;
  }), ...rest];
}

export function drawMoment() {
  const parts = [];
  if (block !== null) parts.push(tellBlock());
  if (changes?.groups) parts.push(...tellChanges());
  parts.push(make("h2", "", state.at === null ? "At the peak" : "At A"));
  if (moment?.groups) {
    parts.push(make("div", "big", bytes(moment.used ?? 0)),
      make("span", "pale", `${state.at === null && pool().dropped_peak ? "before the part of the trace that --max-disk left" : `at ${span(moment.time - page.run.from_ns)}`}${moment.step ? `, step ${moment.step}` : ""}`));
    if (moment.reserved) parts.push(make("span", "pale", `${bytes(moment.reserved)} reserved by the pool`));
    if (moment.device) parts.push(make("span", "pale", `${bytes(moment.device)} of the device in use`));
    // A finger has no shift key.
    if (state.at !== null && state.and === null) parts.push(button("set B here", false, () => change({ and: state.at }), "more"));
    parts.push(make("section", `list ${state.by}`, ...groupRows()));
  }
  $("right").replaceChildren(...parts);
}

function tellChanges() {
  const total = (changes.b.used ?? 0) - (changes.a.used ?? 0), rows = changes.groups.filter(one => one[1] !== one[3]).slice(0, 12);
  return [make("h2", "", "From A to B"), make("div", `big ${total > 0 ? "grew" : "shrank"}`, signed(total)),
    make("section", `list ${state.by}`, ...rows.map(([name, before, , after]) => entry(0, null, groupWords(state.by, name), signed(after - before), after > before ? "grew" : "shrank"))),
    button("compare A and B", false, () => { change({ tab: "compare" }); seeView(); }, "more")];
}

// ---- a block ----

function frames(list) {
  return make("ul", "frames", ...list.map(frame => {
    const file = (frame.file ?? frame.module ?? "").split("/").pop();
    const line = make("li", frame.user ? "user" : "", `${frame.function ?? "?"}  ${file}${frame.line ? `:${frame.line}` : ""}`);
    line.title = `${frame.function ?? "?"} ${frame.file ?? frame.module ?? ""}${frame.line ? `:${frame.line}` : ""}`;
    return line;
  }));
}

// A list that its heading opens, and that stays open when the panel is drawn again.
function foldable(key, title, list) {
  const all = make("details", "", make("summary", "", title), list);
  all.open = opened.has(key);
  all.addEventListener("toggle", () => { if (all.open) opened.add(key); else opened.delete(key); });
  return all;
}

// Frames with a heading; frameworks' own between the user's are folded away unless there is nothing else.
function stackOf(title, list) {
  if (list.length === 0) return [];
  const own = list.filter(frame => frame.user), text = `${title}: ${list.length} frames`;
  if (own.length === 0) return [Object.assign(make("details", "", make("summary", "", text), frames(list)), { open: true })];
  return [make("h3", "", title), frames(own.slice(0, 6)), foldable(title, text, frames(list))];
}

function tellUses() {
  if (block.accesses === 0) return [];
  const list = make("ul", "frames", ...block.uses.slice(0, 100).map(([time, kind, name]) => make("li", "", `${span(time)}  ${kind.toLowerCase()}  ${name}`)));
  return [foldable("accesses", `${block.accesses.toLocaleString("en")} accesses`, list)];
}

// A block or hole beside the one that is shown.
function beside(title, one) {
  if (one === undefined) return [];
  const hole = one.hole ? `${bytes(one.hole)} free` : "", name = one.id === undefined ? "" : `${bytes(one.bytes)}  ${placeName(one.place)}`;
  const text = make("span", "pale", `${title}: ${[hole, name].filter(Boolean).join(", then ")}`);
  return one.id === undefined ? [text] : [text, button("show it", false, () => change({ block: String(one.id) }), "more")];
}

function tellSegment() {
  const { segment } = block;
  if (segment === undefined) return [];
  return [make("h3", "", "In its segment"), make("span", "pale", `${segment.address}, ${bytes(segment.bytes)}; ${bytes(segment.offset)} from its start`),
    ...beside("before it", segment.before), ...beside("after it", segment.after)];
}

// What the pool did before and after it handed out the block.
function tellAround() {
  if (block.around === undefined || block.around.length < 2) return [];
  const list = make("section", "list place", ...block.around.map(one => {
    const own = one.block === block.id, row = entry(0, null, `${span(one.time_ns)}  ${one.event.toLowerCase()}  ${placeName(one.place ?? "")}`, bytes(one.bytes));
    row.classList.add("fold", ...(own ? ["bold"] : []));
    if (!own) row.addEventListener("click", () => change({ block: String(one.block) }));
    return row;
  }));
  return [foldable("around", "The pool before and after", list)];
}

function tellBlock() {
  const section = make("section", "", make("h2", "", `Block ${block.id}`, button("\u00d7", false, () => change({ block: null }), "close")), make("div", "big", bytes(block.bytes)));
  section.id = "details";
  section.append(...block.findings.map(text => make("p", "bad", text)));
  const line = text => make("span", "pale", text);
  section.append(line(page.run.snapshot ? block.address : `${block.address}, thread ${block.thread}`), line(`allocated at ${span(block.start_ns)}${block.step ? `, step ${block.step}` : ""}`),
    line(block.end_ns === null ? "never freed" : `lived ${span(block.end_ns - block.start_ns)}${block.free_step && block.free_step !== block.step ? `, freed in step ${block.free_step}` : ""}`));
  if (block.requested) section.append(line(`${bytes(block.requested)} asked for (${block.requested.toLocaleString("en")} of ${block.bytes.toLocaleString("en")} bytes)`));
  if (block.stream !== undefined) section.append(line(block.stream === 0 ? "default stream" : `stream 0x${block.stream.toString(16)}`));
  if (block.operator) section.append(line(`in operator ${block.operator}`));
  section.append(line(`owner: ${ownerWords(block.owner)}`), ...stackOf("Allocated by", block.frames ?? []), ...stackOf("Freed by", block.free_frames ?? []), ...tellSegment(), ...tellAround(), ...tellUses(),
    button("show its life", false, () => page.showBlock(block), "more"));
  return section;
}
