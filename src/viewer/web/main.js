// SPDX-License-Identifier: Apache-2.0
// The page: its views, and how a run is opened and followed while it is read.
import { ask, isReport } from "./data.js";
import { clampView, fromHash } from "./format.js";
import { colourOf, forgetGroups, setLeaking } from "./draw.js";
import { $, button, change, make, note, page, question, refresh, seeView, setAxis, show, state, view, views } from "./page.js";
import { drawOverview, leakingPlaces, timelineView } from "./timeline.js";
import { blocksView } from "./blocks.js";
import { flameView } from "./flame.js";
import { segmentsView } from "./segments.js";
import { compareView } from "./compare.js";
import { tableView } from "./table.js";
import { mainPool, ranksView, worstProcess } from "./ranks.js";
import { drawMoment, fetchMoments } from "./moment.js";
import { drawChips, drawLeft, fetchWaste } from "./findings.js";
import { setClasses } from "./places.js";
import { listen } from "./pointer.js";
import { askAgainAfter, isFollowed } from "./live.js";

// Keys 1, 2, ... choose them in this order.
const VIEWS = [timelineView, blocksView, flameView, segmentsView, compareView, tableView, ranksView];

let reading = 0, chosen = false, byOwner = "unless one";

function drawTabs() {
  $("tabs").replaceChildren(...views().map(one => {
    const tab = button(one.title, false, () => change({ tab: one.key }));
    tab.setAttribute("role", "tab");
    tab.setAttribute("aria-selected", String(state.tab === one.key));
    return tab;
  }));
  const strip = $("tabs"), chosenTab = strip.querySelector("[aria-selected=true]");
  if (strip.scrollWidth > strip.clientWidth && chosenTab !== null) strip.scrollLeft = chosenTab.offsetLeft - (strip.clientWidth - chosenTab.offsetWidth) / 2;
}

function drawTools() {
  const parts = view().tools?.() ?? [];
  $("tools").hidden = parts.length === 0;
  $("tools").replaceChildren(...parts);
}

// What has been asked for is of another run or pool.
function forget() {
  forgetGroups();
  page.whole = page.series = null;
  for (const one of page.views) one.forget?.();
}

function openPool(index) {
  forget();
  chosen = true;
  Object.assign(state, { pool: index, block: null });
  if (!views().includes(view())) state.tab = "timeline";
  open();
}

function openProcess(process) {
  chosen = false;
  Object.assign(state, { process, from: null, to: null, at: null, and: null, with: null, block: null });
  $("process").value = String(process);
  start();
}

// The life of a block among its neighbours.
function showBlock(block) {
  const { run } = page, end = block.end_ns ?? run.to_ns, length = Math.max(1000, (end - block.start_ns) * 0.1);
  Object.assign(state, { tab: "blocks", pool: block.pool });
  show(block.start_ns - length, end + length);
  seeView();
}

// Of several processes: two runs that were named are compared, many are shown side by side.
function openOnAnswer() {
  const inputs = new Set(page.processes.map(one => one.input));
  if (inputs.size === 2 && page.processes.length === 2 && !isReport) Object.assign(state, { tab: "compare", with: state.process === 0 ? 1 : 0 });
  else { state.tab = "ranks"; openWorst(); }
}

// Behind the ranks side by side is the worst of them, unless something else is looked at by now.
async function openWorst() {
  const before = state.process, worst = await worstProcess();
  if (worst !== undefined && worst !== before && state.process === before && state.tab === "ranks") openProcess(worst);
}

function take(hash) {
  const number = key => hash[key] && Number.isFinite(Number(hash[key])) ? Number(hash[key]) : null, text = key => hash[key] || null;
  for (const key of ["at", "and", "with"]) state[key] = number(key);
  for (const key of ["block", "up", "order", "list", "event", "sort", "axis"]) state[key] = text(key);
  // What a link does not name stays as it is; the time is the whole run.
  for (const key of ["tab", "by", "of"]) state[key] = text(key) ?? state[key];
  state.pool = number("pool") ?? state.pool;
  state.search = hash.search ?? "";
  [state.from, state.to] = [number("from"), number("to")];
  if (page.run !== null) [state.from, state.to] = clampView(state.from ?? page.run.from_ns, state.to ?? page.run.to_ns, page.run.from_ns, page.run.to_ns);
  state.lines = hash.lines !== "0";
  state.rss = hash.rss === "1";
  if (!page.views.some(one => one.key === state.tab)) state.tab = page.views[0].key;
}

async function open() {
  const { run } = page, next = await ask("series", question({ from: run.from_ns, to: run.to_ns, width: 1200 }));
  if (!next.error) page.whole = next;
  if (byOwner === "unless one" && (run.complete || run.live) && state.by === "owner" && page.whole?.groups?.length === 1) {
    byOwner = "no"; // one owner tells nothing: places do
    state.by = "place";
    page.series = null;
    await open();
    return;
  }
  if (run.live) byOwner = "no"; // decided once: a picture that is looked at keeps its groups
  page.series ??= page.whole;
  setLeaking(leakingPlaces());
  for (const name of page.whole?.groups ?? []) colourOf(name);
  drawLeft();
  drawChips();
  fetchWaste();
  note("");
  change({});
}

// A run that is still being read: its picture grows, unless a part of it is looked at.
async function follow(turn) {
  while (!page.run.complete) {
    await new Promise(resolve => setTimeout(resolve, askAgainAfter(page.run)));
    const next = await ask("summary", { process: state.process, now: 1 });
    if (turn !== reading) return;
    if (next.error) { note(next.error); return; }
    await adopt(next);
  }
}

// A summary, the first or a later one.
async function adopt(next) {
  const before = page.run, isWhole = state.from === null || (before !== null && state.from === before.from_ns && state.to === before.to_ns), run = page.run = next;
  setClasses(run.classes);
  if (run.to_ns <= run.from_ns) run.to_ns = run.from_ns + 1;
  if (isReport) Object.assign(run, { complete: true, live: false }); // nothing comes any more, also where the program ran on
  if (run.pools.length === 0) {
    note(run.complete ? "This run has no memory events." : "");
    drawLeft();
    return;
  }
  const leaking = run.leaks.find(one => one.verdict === "leak");
  // What somebody looks at while it grows stays where it is.
  if (!chosen && !(isFollowed(run) && state.pool !== null)) state.pool = leaking?.pool ?? mainPool(run).index;
  if (state.by !== "owner" && state.by !== "place" && !(state.by === "layer" && run.layers)) {
    state.by = run.owners && leaking === undefined ? "owner" : "place"; // places show what leaks
    byOwner = "unless one";
  }
  if (!views().includes(view())) state.tab = "timeline"; // a link may name a view that this pool does not have
  if (isWhole) [state.from, state.to] = [run.from_ns, run.to_ns];
  [state.from, state.to] = clampView(state.from, state.to, run.from_ns, run.to_ns);
  await open();
}

async function start() {
  // A link that names a part of the run needs all of it.
  const turn = ++reading, next = await ask("summary", { process: state.process, now: state.from === null ? 1 : undefined });
  if (turn !== reading) return;
  page.run = null;
  forget();
  if (next.error) { note(next.error); return; }
  await adopt(next);
  await follow(turn);
}

async function main() {
  const hash = fromHash(location.hash);
  Object.assign(page, { views: VIEWS, panels: [drawTabs, drawTools, drawMoment], whenMoved: fetchMoments, openPool, openProcess, showBlock,
    drawOverview: () => drawOverview($("overview"), page.whole, page.run) });
  state.process = Number(hash.process) || 0;
  $("link").hidden = isReport;
  page.processes = (await ask("processes", { process: "" })).processes ?? [];
  if (page.processes.length > 1) {
    $("process").hidden = false;
    $("process").replaceChildren(...page.processes.map((one, i) => Object.assign(make("option", "", one.name), { value: i, selected: i === state.process })));
    $("process").addEventListener("change", event => openProcess(Number(event.target.value)));
  }
  take(hash);
  if (page.processes.length > 1 && !hash.tab && hash.process === undefined) openOnAnswer();
  chosen = state.pool !== null;
  byOwner = state.by === null ? "unless one" : "no";
  $("search").value = state.search;
  listen();
  addEventListener("resize", () => refresh());
  addEventListener("hashchange", () => {
    take(fromHash(location.hash));
    if (!views().includes(view())) state.tab = "timeline";
    $("search").value = state.search;
    setAxis();
    refresh();
  });
  await start();
}

main();
