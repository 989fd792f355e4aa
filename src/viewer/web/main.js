// SPDX-License-Identifier: Apache-2.0
// The page: one state, which the address bar has too, and what is drawn from it. Names of the program are only ever set as text.
import { ask, isReport } from "./data.js";
import { bytes, clampView, fromHash, lastNotAbove, ownerName, span, toHash } from "./format.js";
import { colourOf, LEFT } from "./draw.js";
import { drawOverview, drawTimeline, momentOf } from "./timeline.js";
import { drawBlocks } from "./blocks.js";
import { drawFlame, grow, tellNode } from "./flame.js";
import { drawRanks } from "./ranks.js";
import { askAgainAfter, isFollowed, liveChip, liveNote } from "./live.js";

const $ = id => document.getElementById(id);
const TABS = { timeline: "Timeline", blocks: "Blocks", flame: "Flame graph", table: "Table", ranks: "Ranks" };
const OF = { peak: "at the peak", moment: "at A", leaks: "leaks", end: "at the end", all: "all allocated" };

const state = { process: 0, pool: null, tab: "timeline", by: null, from: null, to: null, at: null, and: null, block: null, of: "peak", search: "", lines: true };
let run = null, whole = null, series = null, blocks = null, tree = null, focus = null, hits = [], moments = [], found = 0, processes = [];
let ranks = [], ranking = false;
let busy = false, again = false, frame = 0, withPanels = false, reading = 0, chosen = false, byOwner = "yes";

// An element with a class and texts or elements in it.
function make(tag, className, ...inside) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...inside.map(one => one ?? ""));
  return element;
}

function button(text, pressed, act, className) {
  const element = make("button", className, text);
  element.type = "button";
  element.setAttribute("aria-pressed", String(pressed));
  element.addEventListener("click", act);
  return element;
}

function pool() {
  return run.pools.find(one => one.index === state.pool) ?? run.pools[0];
}

// ---- the state ----

function change(part, panels = true) {
  Object.assign(state, part);
  const { process, pool: number, tab, by, at, and, block, of, search } = state;
  const isWhole = state.from === run.from_ns && state.to === run.to_ns;
  history.replaceState(null, "", toHash({ process: process || null, pool: number, tab, by, at, and, block, of, search,
    from: isWhole ? null : Math.round(state.from), to: isWhole ? null : Math.round(state.to) }));
  refresh(panels);
}

function show(from, to) {
  const [begin, end] = clampView(from, to, run.from_ns, run.to_ns);
  change({ from: begin, to: end }, false);
}

// ---- asking and drawing ----

function question(more) {
  return { process: state.process, pool: pool().index, by: state.by, from: Math.floor(state.from), to: Math.ceil(state.to),
    width: Math.min(1600, Math.max(200, $("main").clientWidth - LEFT)), now: run.complete ? undefined : 1, ...more };
}

// Asks for what is shown now. One question at a time: while it is under way the view may move on, and then the newest is asked for.
async function refresh(panels = true) {
  drawSoon(panels); // what is there, in its new place, until the answer comes
  again = true;
  if (busy) return;
  busy = true;
  try {
    while (again) {
      again = false;
      await fetchShown();
      drawSoon(!again); // panels wait until the view rests
    }
  } finally {
    busy = false;
  }
}

async function fetchShown() {
  const same = [state.process, state.pool, state.by, state.tab].join();
  const current = () => same === [state.process, state.pool, state.by, state.tab].join();
  if (state.tab === "timeline" || state.tab === "blocks") {
    const next = await ask("series", question());
    if (!current()) return;
    series = next.error ? series : next;
  }
  await fetchMoments();
  if (state.tab === "blocks") {
    const next = await ask("blocks", question());
    if (!current()) return;
    blocks = next.error ? blocks : next;
  }
  if (state.tab === "flame") {
    const moment = { peak: pool().peak_ns, moment: state.at ?? pool().peak_ns, end: run.to_ns }[state.of];
    const two = state.of === "moment" && state.and !== null;
    const next = await ask("tree", { process: state.process, pool: pool().index, of: state.of, at: moment && Math.round(moment), and: two ? Math.round(state.and) : undefined });
    if (!current() || again) return;
    tree = next.nodes ? grow(next.nodes) : null;
    focus = null;
    note(next.error ?? "");
  }
  if (state.tab === "table") await fillTable();
  if (state.tab === "ranks") fetchRanks();
}

// The summary of each rank and its highest pool over time, one after the other: of many ranks the server keeps few open.
async function fetchRanks() {
  if (ranking || ranks.length > 0) return;
  ranking = true;
  for (let process = 0; process < processes.length; process++) {
    const summary = await ask("summary", { process }), best = summary.error ? undefined : mainPool(summary);
    if (best === undefined) continue;
    const answer = await ask("series", { process, pool: best.index, by: "owner", from: summary.from_ns, to: summary.to_ns, width: 240 });
    ranks.push({ process, name: processes[process].name, peak: best.peak_bytes, length: summary.to_ns - summary.from_ns, values: answer.most ?? [],
      leaks: summary.leaks.filter(one => one.verdict === "leak").length });
    if (state.tab === "ranks") drawSoon(false);
  }
  ranking = false;
}

// The pool that matters most: of a framework, then the one with the highest peak.
function mainPool(summary) {
  return [...summary.pools].sort((a, b) => a.driver - b.driver || b.peak_bytes - a.peak_bytes)[0];
}

function openRank(process) {
  chosen = false;
  Object.assign(state, { process, from: null, to: null, at: null, and: null, block: null });
  $("process").value = String(process);
  start();
}

// One drawing for each frame, however often it is asked for.
function drawSoon(panels) {
  withPanels ||= panels;
  if (frame !== 0) return;
  frame = requestAnimationFrame(() => {
    frame = 0;
    drawPictures();
    if (withPanels) drawPanels();
    withPanels = false;
  });
}

function drawPictures() {
  drawOverview($("overview"), whole, state, run);
  $("main").hidden = state.tab === "table";
  $("table").hidden = state.tab !== "table";
  hits = [];
  if (state.tab === "timeline") drawTimeline($("main"), series, state, run);
  else if (state.tab === "blocks") hits = drawBlocks($("main"), blocks, state, run);
  else if (state.tab === "flame") hits = drawFlame($("main"), tree, { focus, search: state.search });
  else if (state.tab === "ranks") hits = drawRanks($("main"), ranks, processes.length);
  if (series !== null && performance.getEntriesByName("picture").length === 0) performance.mark("picture");
}

function drawPanels() {
  drawTabs();
  drawTools();
  drawRight();
}

function note(text) {
  $("note").textContent = text || (liveNote(run) !== "" ? liveNote(run) :
    isReport ? "A report: the whole run at this resolution. msmemscope view shows every detail." : "");
}

function drawTabs() {
  $("tabs").replaceChildren(...Object.entries(TABS).filter(([key]) => key !== "ranks" || processes.length > 1).map(([key, text]) => {
    const tab = button(text, false, () => change({ tab: key }));
    tab.setAttribute("role", "tab");
    tab.setAttribute("aria-selected", String(state.tab === key));
    return tab;
  }));
}

function drawTools() {
  const parts = [];
  if (state.tab === "flame") {
    for (const [key, text] of Object.entries(OF)) {
      if (key === "moment" && isReport) continue;
      parts.push(button(text, state.of === key, () => change({ of: key })));
    }
    if (focus !== null) parts.push(button("whole tree", false, () => { focus = null; drawSoon(true); }));
  } else if (state.tab !== "table" && state.tab !== "ranks") {
    if (run.owners) parts.push(button("by owner", state.by === "owner", () => { byOwner = "yes"; change({ by: "owner" }); }));
    parts.push(button("by place", state.by === "place", () => change({ by: "place" })));
    if (pool().figures.length > 1) parts.push(button("reserved, device", state.lines, () => change({ lines: !state.lines })));
    parts.push(button("whole run", false, () => show(run.from_ns, run.to_ns)));
    const left = state.tab === "blocks" ? blocks?.left_out : 0;
    parts.push(make("span", "", `${span(state.to - state.from)} shown${left ? `; ${left.toLocaleString("en")} small blocks are left out: zoom in` : ""}`));
  }
  $("tools").hidden = parts.length === 0;
  $("tools").replaceChildren(...parts);
}

// ---- the panel on the right ----

function shownName(name) {
  return state.by === "owner" ? ownerName(name) : name;
}

// What the pool holds at A and B, or at the peak, exactly; asked for when one of them changes.
async function fetchMoments() {
  const times = [state.at ?? pool().peak_ns, state.and].filter(time => time !== null);
  const next = [];
  for (const time of times) {
    const answer = await ask("moment", { process: state.process, pool: pool().index, by: state.by, at: Math.round(time),
      now: run.complete ? undefined : 1, of: state.at === null ? "peak" : "" });
    const near = answer.error && whole !== null ? momentOf(whole, time) : null; // a report has few moments
    next.push({ time, ...(near ?? answer) });
  }
  moments = next;
}

function colourOfName(name) {
  const group = series?.groups?.indexOf(name) ?? -1;
  return colourOf(group < 0 || group >= 12 ? 99 : group);
}

function drawRight() {
  const [moment, second] = moments, parts = [make("h2", "", state.at === null ? "At the peak" : "At A")];
  if (moment !== undefined && moment.groups) {
    parts.push(make("div", "big", bytes(moment.used ?? 0)),
      make("span", "pale", `${span(moment.time - run.from_ns)} after the begin${moment.step ? `, step ${moment.step}` : ""}`));
    if (moment.reserved) parts.push(make("span", "pale", `${bytes(moment.reserved)} reserved by the pool`));
    if (moment.device) parts.push(make("span", "pale", `${bytes(moment.device)} of the device in use`));
    const list = make("section", `list ${state.by}`), leaking = new Set(run.leaks.filter(one => one.verdict === "leak").map(one => one.place));
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

// ---- the table ----

async function fillTable() {
  const answer = await ask("table", { process: state.process, pool: pool().index, from: Math.floor(state.from), to: Math.ceil(state.to),
    at: state.at ? Math.round(state.at) : undefined, text: state.search || undefined, offset: 0, count: 300, of: state.search ? "?" : "" });
  if (state.tab !== "table") return;
  if (answer.error) { $("table").replaceChildren(make("p", "pale", answer.error)); return; }
  const head = make("tr", "", ...["size", "allocated", "freed", "step", "owner", "place"].map((name, i) => make("th", i < 4 ? "number" : "", name)));
  const body = make("tbody", "", ...answer.blocks.map(block => {
    const row = make("tr", "", ...[[bytes(block.bytes), "number"], [span(block.start_ns - run.from_ns), "number"],
      [block.end_ns === null ? "never" : span(block.end_ns - run.from_ns), "number"], [block.step || "", "number"], [ownerName(block.owner), "place"], [block.place, "place"]]
      .map(([text, className]) => make("td", className, String(text))));
    row.addEventListener("click", () => change({ block: String(block.id) }));
    return row;
  }));
  const text = `${answer.found.toLocaleString("en")} blocks, ${bytes(answer.bytes)}${state.at ? ", alive at A" : " in the time shown"}` +
    `${answer.found > answer.blocks.length ? `; the largest ${answer.blocks.length} are listed` : ""}`;
  $("table").replaceChildren(make("p", "pale", text), make("table", "", make("thead", "", head), body));
}

// ---- the panel on the left, and the first lines ----

function drawLeft() {
  $("pools").replaceChildren(...run.pools.map(one => {
    const entry = button("", one.index === pool().index, () => { whole = series = blocks = tree = null; chosen = true; Object.assign(state, { pool: one.index, block: null }); open(); }, "entry");
    entry.append(`${one.pool} on ${one.device}`, make("small", "", `peak ${bytes(one.peak_bytes)}, ${one.blocks.toLocaleString("en")} blocks`));
    return entry;
  }));
  const list = run.leaks.map((leak, i) => {
    const entry = button("", false, () => goTo(i), `entry ${leak.verdict === "leak" ? "bad" : "warn"}`);
    entry.append(`${leak.verdict === "leak" ? "Leak" : "Suspect"}: ${leak.place}`, make("small", "", leak.sentence));
    return entry;
  });
  for (const marker of run.markers.filter(one => one.kind === "oom"))
    list.push(button("Out of memory", false, () => showAround(marker.time_ns), "entry bad"));
  if (list.length === 0) list.push(make("span", "pale", run.clean ? "No leak was found." : run.judged ? "Nothing to tell." : run.complete ? "Leaks are not judged: no steps." : "Too early to tell."));
  $("findings").replaceChildren(...list);
}

function drawChips() {
  // A second leak is told here only if it is not dust beside the first.
  const told = run.leaks.slice(0, 2).filter((leak, i) => i === 0 || leak.bytes_per_step * 100 >= run.leaks[0].bytes_per_step);
  const chips = told.map((leak, i) => button(`${leak.verdict === "leak" ? "LEAK" : "suspect"} +${bytes(leak.bytes_per_step)}/step  ${leak.place}`,
    false, () => goTo(i), `chip ${leak.verdict === "leak" ? "bad" : "warn"}`));
  const oom = run.markers.find(one => one.kind === "oom");
  if (oom) chips.push(button("OUT OF MEMORY", false, () => showAround(oom.time_ns), "chip bad"));
  if (chips.length === 0 && run.clean) chips.push(make("span", "chip good", "no leak was found"));
  chips.push(button(`peak ${bytes(pool().peak_bytes)}`, false, () => change({ at: pool().peak_ns, and: null }), "chip short"));
  if (liveChip(run)) chips.unshift(make("span", "chip good short", liveChip(run)));
  $("chips").replaceChildren(...chips);
  $("title").textContent = `${(run.command || run.input).split(" ").slice(0, 4).map(word => word.split("/").pop()).join(" ")}`;
  document.title = `${$("title").textContent} - msmemscope`;
}

function showAround(time) {
  const length = (run.to_ns - run.from_ns) / 8;
  Object.assign(state, { tab: "timeline", at: time });
  show(time - length / 2, time + length / 2);
}

// A finding: its blocks in the flame graph of leaks, its place beside it.
function goTo(index) {
  const leak = run.leaks[index];
  found = index;
  Object.assign(state, { pool: leak.pool, block: leak.block === undefined ? null : String(leak.block) });
  change({ tab: "flame", of: leak.verdict === "leak" ? "leaks" : "end" });
  drawLeft();
}

// ---- pointer and keys ----

function timeAt(event, canvas) {
  const box = canvas.getBoundingClientRect();
  return state.from + (event.clientX - box.left - LEFT) / (box.width - LEFT - 8) * (state.to - state.from);
}

function hitAt(event) {
  const box = $("main").getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
  return hits.findLast(one => x >= one.x && x <= one.x + Math.max(one.width, 2) && y >= one.y && y <= one.y + Math.max(one.height, 2)) ?? null;
}

function tip(event, text) {
  const element = $("tip");
  element.hidden = !text;
  if (!text) return;
  element.textContent = text;
  element.style.left = `${Math.min(event.clientX + 14, innerWidth - element.offsetWidth - 8)}px`;
  element.style.top = `${Math.min(event.clientY + 14, innerHeight - element.offsetHeight - 8)}px`;
}

function listen() {
  const canvas = $("main");
  let drag = null;
  canvas.addEventListener("pointerdown", event => { drag = { x: event.clientX, from: state.from, to: state.to, moved: false }; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", event => {
    if (drag !== null && event.buttons) {
      const shift = (drag.x - event.clientX) / (canvas.clientWidth - LEFT - 8) * (drag.to - drag.from);
      drag.moved ||= Math.abs(event.clientX - drag.x) > 4;
      if (drag.moved && state.tab !== "flame" && state.tab !== "ranks") show(drag.from + shift, drag.to + shift);
      return;
    }
    const hit = hitAt(event);
    if (state.tab === "flame") tip(event, hit && tellNode(hit.node, tree.root));
    else if (state.tab === "ranks") tip(event, hit && `${hit.rank.name}: peak ${bytes(hit.rank.peak)}${hit.rank.leaks ? ", leaks" : ""}`);
    else if (state.tab === "blocks") tip(event, hit && `${bytes(hit.size)}\n${blocks.groups[Math.min(hit.group, blocks.groups.length - 1)]}`);
    else if (state.tab === "timeline" && series !== null) {
      const moment = momentOf(series, timeAt(event, canvas));
      tip(event, moment && `${bytes(moment.used ?? 0)} at ${span(timeAt(event, canvas) - run.from_ns)}`);
    }
  });
  canvas.addEventListener("pointerup", event => {
    const moved = drag?.moved;
    drag = null;
    if (moved) return;
    const hit = hitAt(event);
    if (state.tab === "flame") { if (hit) { focus = hit.node === focus ? null : hit.node; drawSoon(true); } return; }
    if (state.tab === "ranks") { if (hit) { state.tab = "timeline"; openRank(hit.rank.process); } return; }
    if (state.tab === "blocks" && hit) { change({ block: String(hit.id) }); return; }
    const time = Math.round(timeAt(event, canvas));
    if (time >= run.from_ns && time <= run.to_ns) change(event.shiftKey ? { and: time } : { at: time, and: null });
  });
  canvas.addEventListener("pointerleave", event => tip(event, null));
  canvas.addEventListener("wheel", event => {
    if (state.tab === "flame" || state.tab === "ranks") return;
    event.preventDefault();
    zoom(event.deltaY < 0 ? 0.8 : 1.25, timeAt(event, canvas));
  }, { passive: false });
  const overview = $("overview");
  let brush = null;
  const timeIn = event => run.from_ns + Math.min(1, Math.max(0, (event.offsetX - LEFT) / (overview.clientWidth - LEFT - 8))) * (run.to_ns - run.from_ns);
  overview.addEventListener("pointerdown", event => { brush = timeIn(event); overview.setPointerCapture(event.pointerId); });
  overview.addEventListener("pointermove", event => { if (brush !== null && event.buttons) show(Math.min(brush, timeIn(event)), Math.max(brush, timeIn(event))); });
  overview.addEventListener("pointerup", event => {
    if (Math.abs(timeIn(event) - brush) < (run.to_ns - run.from_ns) / 200) { const half = (state.to - state.from) / 2; show(brush - half, brush + half); }
    brush = null;
  });
  $("search").addEventListener("input", event => change({ search: event.target.value }));
  $("search").addEventListener("keydown", event => { if (event.key === "Enter") change({ tab: "table" }); event.stopPropagation(); });
  $("help").addEventListener("click", () => $("keys").showModal());
  $("process").addEventListener("change", event => openRank(Number(event.target.value)));
  addEventListener("keydown", keys);
  addEventListener("resize", () => refresh());
  addEventListener("hashchange", () => { take(fromHash(location.hash)); refresh(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawSoon(true));
}

function zoom(factor, around) {
  const centre = around ?? (state.from + state.to) / 2;
  show(centre - (centre - state.from) * factor, centre + (state.to - centre) * factor);
}

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || $("keys").open) return;
  const length = state.to - state.from, names = Object.keys(TABS);
  const act = {
    w: () => zoom(0.6), s: () => zoom(1.6), a: () => show(state.from - length / 4, state.to - length / 4), d: () => show(state.from + length / 4, state.to + length / 4),
    0: () => show(run.from_ns, run.to_ns), "/": () => $("search").focus(), "?": () => $("keys").showModal(),
    n: () => run.leaks.length && goTo((found + 1) % run.leaks.length), p: () => run.leaks.length && goTo((found + run.leaks.length - 1) % run.leaks.length),
    g: () => goToStep(prompt("Go to step")), Escape: () => change({ at: null, and: null, block: null }),
    1: () => change({ tab: names[0] }), 2: () => change({ tab: names[1] }), 3: () => change({ tab: names[2] }), 4: () => change({ tab: names[3] }),
    5: () => processes.length > 1 && change({ tab: names[4] }),
  }[event.key];
  if (act) { event.preventDefault(); act(); }
}

function goToStep(text) {
  const at = lastNotAbove(run.steps, Number(text || NaN), ([number]) => number);
  if (at >= 0) show(run.steps[at][1], run.steps[at + 1]?.[1] ?? run.to_ns);
}

// ---- the begin ----

function take(hash) {
  for (const key of ["pool", "from", "to", "at", "and"]) if (hash[key] !== undefined && Number.isFinite(Number(hash[key]))) state[key] = Number(hash[key]);
  for (const key of ["tab", "by", "block", "of", "search"]) if (hash[key] !== undefined) state[key] = hash[key];
  if (!(state.tab in TABS)) state.tab = "timeline";
  if (!(state.of in OF)) state.of = "peak";
}

async function open() {
  const next = await ask("series", question({ from: run.from_ns, to: run.to_ns, width: 1200 }));
  if (!next.error) whole = next;
  if (byOwner === "unless one" && (run.complete || run.live) && state.by === "owner" && whole?.groups?.length === 1) {
    byOwner = "no"; // one owner tells nothing: places do
    state.by = "place";
    series = null;
    await open();
    return;
  }
  if (run.live) byOwner = "no"; // decided once: a picture that is looked at keeps its groups
  series ??= whole;
  drawLeft();
  drawChips();
  note("");
  change({});
}

// A run that is still being read: its picture grows, unless a part of it is looked at.
async function follow(turn) {
  while (!run.complete) {
    await new Promise(resolve => setTimeout(resolve, askAgainAfter(run)));
    const next = await ask("summary", { process: state.process, now: 1 });
    if (turn !== reading) return;
    if (next.error) { note(next.error); return; }
    await adopt(next);
  }
}

// A summary, the first or a later one.
async function adopt(next) {
  const isWhole = state.from === null || (run !== null && state.from === run.from_ns && state.to === run.to_ns);
  run = next;
  if (run.to_ns <= run.from_ns) run.to_ns = run.from_ns + 1;
  if (run.pools.length === 0) { note(run.complete ? "This run has no memory events." : ""); return; }
  const best = mainPool(run);
  const leaking = run.leaks.find(one => one.verdict === "leak");
  // What somebody looks at while it grows stays where it is.
  if (!chosen && !(isFollowed(run) && state.pool !== null)) state.pool = leaking?.pool ?? best.index;
  if (state.by !== "owner" && state.by !== "place") {
    state.by = run.owners ? "owner" : "place";
    byOwner = "unless one";
  }
  if (isWhole) [state.from, state.to] = [run.from_ns, run.to_ns];
  [state.from, state.to] = clampView(state.from, state.to, run.from_ns, run.to_ns);
  await open();
}

async function start() {
  // A link that names a part of the run needs all of it.
  const turn = ++reading, next = await ask("summary", { process: state.process, now: state.from === null ? 1 : undefined });
  if (turn !== reading) return;
  run = whole = series = blocks = tree = null;
  if (next.error) { note(next.error); return; }
  await adopt(next);
  await follow(turn);
}

async function main() {
  const hash = fromHash(location.hash);
  state.process = Number(hash.process) || 0;
  processes = (await ask("processes", { process: "" })).processes ?? [];
  if (processes.length > 1) {
    $("process").hidden = false;
    $("process").replaceChildren(...processes.map((one, i) => Object.assign(make("option", "", one.name), { value: i, selected: i === state.process })));
  }
  take(hash);
  chosen = state.pool !== null;
  $("search").value = state.search;
  listen();
  await start();
}

main();
