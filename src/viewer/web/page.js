// SPDX-License-Identifier: Apache-2.0
// What all parts of the page share: the state, which the address bar has too, the run that is shown, and when what is drawn. Views are
// objects (main.js lists them) with these members; only key and title must be there:
//   key, title        word in the address bar, text of the tab
//   time              the view has time across: it is panned, zoomed, and a click sets a moment
//   element           id of the element that it fills; else it draws on the canvas
//   shown()           whether there is such a view of this run
//   fetch(current)    asks for what it shows; current() is false once something else is shown
//   draw(canvas)      draws, and returns boxes {x, y, width, height, ...} that the pointer can hit
//   tools()           elements of the line above it
//   tip(hit, event)   text under the pointer
//   click(hit, event) true: it has taken the click
//   wheel(delta, canvas) scrolls what is longer than the canvas
//   forget()          another run or pool is shown now
// Names of the program are only ever set as text.
import { aboutReport, ask } from "./data.js";
import { eventKnots, setScale, stepKnots } from "./axis.js";
import { clampView, toHash } from "./format.js";
import { LEFT } from "./draw.js";
import { liveNote } from "./live.js";

export const $ = id => document.getElementById(id);

export const isInFrame = window.parent !== window; // the cell of a notebook

export const state = { process: 0, pool: null, tab: "timeline", by: null, from: null, to: null, at: null, and: null, block: null, of: "peak", search: "", lines: true, rss: false,
  with: null, // process of B, if that is another run
  up: null, order: null, list: null, event: null, sort: null, axis: null }; // how views show what they show

export const page = {
  run: null, // summary of the process that is shown
  whole: null, // its memory over the whole time
  series: null, // the same over the time shown,
  seriesBy: null, // by these groups
  processes: [],
  views: [],
  panels: [], // functions that draw what stands beside the view
  hits: [], // boxes of the view under the pointer
  whenMoved: async () => {}, // asks for what panels show
};

// An element with a class and texts or elements in it.
export function make(tag, className, ...inside) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...inside.map(one => one ?? ""));
  return element;
}

export function button(text, pressed, act, className) {
  const element = make("button", className, text);
  element.type = "button";
  element.setAttribute("aria-pressed", String(pressed));
  element.addEventListener("click", act);
  return element;
}

// Where all is one column, what was asked for is below or above what was clicked.
export function seeView() {
  if (innerWidth <= 700) $("tabs").scrollIntoView();
}

export function pool() {
  return page.run.pools.find(one => one.index === state.pool) ?? page.run.pools[0];
}

export function view() {
  return page.views.find(one => one.key === state.tab) ?? page.views[0];
}

export function views() {
  return page.views.filter(one => one.shown === undefined || one.shown());
}

// The whole run as a part of it that is shown.
export function wholeRun() {
  return { from: page.run.from_ns, to: page.run.to_ns };
}

// ---- the state ----

// What `state.axis` says; by the clock where there are no steps, or nothing has come and gone.
export function setAxis() {
  setScale(state.axis === "step" ? stepKnots(page.run) : state.axis === "event" ? eventKnots(page.whole) : null);
}

export function change(part, panels = true) {
  Object.assign(state, part);
  setAxis();
  const { lines, rss, from, to, ...told } = state, { run } = page, isWhole = from === run.from_ns && to === run.to_ns;
  const hash = toHash({ ...told, process: told.process || null, lines: lines ? null : 0, rss: rss ? 1 : null, from: isWhole ? null : Math.round(from), to: isWhole ? null : Math.round(to) });
  if (!isInFrame) history.replaceState(null, "", hash); // the address is not the page's own there
  refresh(panels);
}

export function show(from, to) {
  const [begin, end] = clampView(from, to, page.run.from_ns, page.run.to_ns);
  change({ from: begin, to: end }, false);
}

// ---- asking and drawing ----

let busy = false, again = false, frame = 0, withPanels = false;

// A question about the time shown.
export function question(more) {
  return { process: state.process, pool: pool().index, by: state.by, from: Math.floor(state.from), to: Math.ceil(state.to),
    width: Math.min(1600, Math.max(200, $("main").clientWidth - LEFT)), now: page.run.complete ? undefined : 1, ...more };
}

// Memory over the time shown; true: it is still wanted.
export async function fetchSeries(current) {
  const next = await ask("series", question());
  if (!current()) return false;
  if (!next.error) { page.series = next; page.seriesBy = question().by; }
  return true;
}

// Asks for what is shown now. One question at a time: while it is under way the view may move on, and then the newest is asked for.
export async function refresh(panels = true) {
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
  const what = () => [state.process, state.pool, state.by, state.tab, state.list].join(), same = what();
  const current = () => same === what();
  await view().fetch?.(current);
  if (page.seriesBy !== state.by && current()) await fetchSeries(current); // panels have its colours
  await page.whenMoved();
}

// Whether the view has moved on since the question that is under way.
export function isStale() {
  return again;
}

// One drawing for each frame, however often it is asked for.
export function drawSoon(panels) {
  withPanels ||= panels;
  if (frame !== 0 || page.run === null) return;
  frame = requestAnimationFrame(() => {
    frame = 0;
    drawView();
    if (withPanels) for (const draw of page.panels) draw();
    withPanels = false;
  });
}

function drawView() {
  const { element, draw } = view();
  $("main").hidden = element !== undefined;
  for (const one of page.views) if (one.element) $(one.element).hidden = one.element !== element;
  page.drawOverview?.();
  page.hits = draw?.($("main")) ?? [];
  if (page.series !== null && performance.getEntriesByName("picture").length === 0) performance.mark("picture");
}

export function note(text) {
  const { run } = page;
  $("note").textContent = text || liveNote(run) || aboutReport;
}
