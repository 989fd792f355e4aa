// SPDX-License-Identifier: Apache-2.0
// Pointer and keys.
import { along, moved, timeAtPart, zoomed } from "./axis.js";
import { lastNotAbove } from "./format.js";
import { forgetColours, LEFT } from "./draw.js";
import { $, change, drawSoon, isInFrame, page, show, state, view, views, wholeRun } from "./page.js";
import { goToNext } from "./findings.js";
import { jumpToFound } from "./table.js";

// The time under the pointer.
export function timeAt(event) {
  const box = $("main").getBoundingClientRect();
  return timeAtPart(state, (event.clientX - box.left - LEFT) / (box.width - LEFT - 8));
}

function hitAt(event) {
  const box = $("main").getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
  return page.hits.findLast(one => x >= one.x && x <= one.x + Math.max(one.width, 2) && y >= one.y && y <= one.y + Math.max(one.height, 2)) ?? null;
}

function tip(event, text) {
  const element = $("tip");
  element.hidden = !text;
  if (!text) return;
  element.textContent = text;
  element.style.left = `${Math.min(event.clientX + 14, innerWidth - element.offsetWidth - 8)}px`;
  element.style.top = `${Math.min(event.clientY + 14, innerHeight - element.offsetHeight - 8)}px`;
}

// A click chooses A, with shift B; a B that "set B here" put where A was waits for the next A.
function chooseMoment(time, second) {
  change(second ? { and: time, with: null } : { at: time, and: state.with === null && state.and !== state.at ? null : state.and });
}

function listenToCanvas() {
  const canvas = $("main");
  let drag = null;
  canvas.addEventListener("pointerdown", event => { drag = { x: event.clientX, from: state.from, to: state.to, moved: false }; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", event => {
    if (drag !== null && event.buttons) {
      drag.moved ||= Math.abs(event.clientX - drag.x) > 4;
      if (drag.moved && view().time) show(...moved(drag, (drag.x - event.clientX) / (canvas.clientWidth - LEFT - 8)));
      return;
    }
    tip(event, view().tip?.(hitAt(event), event));
  });
  canvas.addEventListener("pointerup", event => {
    const wasDragged = drag?.moved;
    drag = null;
    if (wasDragged || view().click?.(hitAt(event), event)) return;
    const time = Math.round(timeAt(event));
    if (view().time && time >= page.run.from_ns && time <= page.run.to_ns) chooseMoment(time, event.shiftKey);
  });
  canvas.addEventListener("pointerleave", event => tip(event, null));
  canvas.addEventListener("wheel", event => {
    if (isInFrame && !event.ctrlKey) return; // scrolls the notebook
    event.preventDefault();
    if (view().time) zoom(event.deltaY < 0 ? 0.8 : 1.25, timeAt(event));
    else view().wheel?.(event.deltaY, canvas);
  }, { passive: false });
}

function listenToOverview() {
  const overview = $("overview");
  let brush = null;
  const partOf = event => Math.min(1, Math.max(0, (event.offsetX - LEFT) / (overview.clientWidth - LEFT - 8)));
  const timeIn = event => timeAtPart(wholeRun(), partOf(event));
  overview.addEventListener("pointerdown", event => { brush = timeIn(event); overview.setPointerCapture(event.pointerId); });
  overview.addEventListener("pointermove", event => { if (brush !== null && event.buttons) show(Math.min(brush, timeIn(event)), Math.max(brush, timeIn(event))); });
  overview.addEventListener("pointerup", event => {
    if (Math.abs(along(timeIn(event)) - along(brush)) < (along(page.run.to_ns) - along(page.run.from_ns)) / 200) chooseMoment(Math.round(timeIn(event)), event.shiftKey);
    brush = null;
  });
}

export function listen() {
  listenToCanvas();
  listenToOverview();
  $("search").addEventListener("input", event => change({ search: event.target.value }));
  $("search").addEventListener("keydown", event => {
    if (event.key === "Enter") jumpToFound();
    if (event.key === "Escape") event.target.blur();
    event.stopPropagation();
  });
  $("help").addEventListener("click", () => $("keys").showModal());
  addEventListener("keydown", keys);
  $("theme").addEventListener("click", () => {
    const isDark = (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
    document.documentElement.dataset.theme = isDark ? "light" : "dark";
    repaint();
  });
  $("link").addEventListener("click", () => navigator.clipboard?.writeText(location.href).then(() => { $("link").textContent = "copied"; setTimeout(() => { $("link").textContent = "link"; }, 1500); }, () => {}));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
}

function repaint() {
  forgetColours();
  drawSoon(true);
}

function zoom(factor, around) {
  show(...zoomed(state, factor, around));
}

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || $("keys").open || page.run === null || event.target.closest?.("input, select")) return;
  const act = {
    w: () => zoom(0.6), s: () => zoom(1.6), a: () => show(...moved(state, -0.25)), d: () => show(...moved(state, 0.25)),
    0: () => show(page.run.from_ns, page.run.to_ns), "/": () => $("search").focus(), "?": () => $("keys").showModal(),
    n: () => goToNext(1), p: () => goToNext(-1), g: () => goToStep(prompt("Go to step")), Escape: () => change({ at: null, and: null, with: null, block: null }),
  }[event.key] ?? (views()[event.key - 1] && (() => change({ tab: views()[event.key - 1].key })));
  if (act) { event.preventDefault(); act(); }
}

function goToStep(text) {
  const { run } = page, at = lastNotAbove(run.steps, Number(text || NaN), ([number]) => number);
  if (at >= 0) show(run.steps[at][1], run.steps[at + 1]?.[1] ?? run.to_ns);
}
