// SPDX-License-Identifier: Apache-2.0
// Memory over time: stacked by group, with what the pool reserves and the device holds as lines above it, and what happened.
import { axes, begin, colourOf, css, fitted, leakColour, stepBands, vertical, LEFT } from "./draw.js";
import { eventKnots, placer, stepKnots } from "./axis.js";
import { bytes, span } from "./format.js";
import { button, change, fetchSeries, make, page, pool, show, state } from "./page.js";
import { siteOf } from "./places.js";
import { timeAt } from "./pointer.js";
import { advice, whatIf } from "./whatif.js";

const LANE = 13; // pixels of a row of ranges

function most(series, keys) {
  let value = 0;
  for (const key of keys) for (const one of series[key] ?? []) if (one !== null && one > value) value = one;
  return value;
}

// A figure as a line, with its name at its end.
function line(pen, series, key, place, colour, dash, label, labels) {
  const values = series[key], { x, y, plot } = place;
  if (values === undefined) return;
  const step = (series.to_ns - series.from_ns) / series.width;
  pen.beginPath();
  let drawing = false, last = 0;
  values.forEach((value, i) => {
    if (value === null) { drawing = false; return; }
    const from = x(series.from_ns + i * step), to = x(series.from_ns + (i + 1) * step);
    if (drawing) pen.lineTo(from, y(value)); else pen.moveTo(from, y(value));
    pen.lineTo(to, y(value));
    drawing = true;
    if (key !== "leaked" || value > last) last = value;
  });
  // Readable on any colour: the background's own around it.
  pen.strokeStyle = css("--back");
  pen.lineWidth = 3.5;
  pen.stroke();
  pen.strokeStyle = colour;
  pen.lineWidth = 1.6;
  pen.setLineDash(dash);
  pen.stroke();
  pen.setLineDash([]);
  if (last === 0 || plot.width < 200) return;
  const text = `${label} ${bytes(last)}`, width = pen.measureText(text).width;
  let at = Math.max(plot.y + 9, y(last) - 12), by = -4; // above what is there, or below it where there is no room
  while (labels.some(one => Math.abs(one - at) < 16)) { at += by; if (at < plot.y + 9) by = 4; }
  labels.push(at);
  pen.fillStyle = css("--back");
  pen.fillRect(plot.x + plot.width - width - 10, at - 8, width + 8, 16);
  pen.fillStyle = key === "leaked" ? css("--bad") : colour; // of the theme: the red of the curve is too dark on black
  pen.textAlign = "right";
  pen.fillText(text, plot.x + plot.width - 6, at);
}

// The most of each span, behind the groups: what was there only for a moment shows above them.
function envelope(pen, series, x, y) {
  const step = (series.to_ns - series.from_ns) / series.width;
  pen.fillStyle = css("--peak");
  pen.beginPath();
  pen.moveTo(x(series.from_ns), y(0));
  series.most.forEach((value, i) => {
    pen.lineTo(x(series.from_ns + i * step), y(value ?? 0));
    pen.lineTo(x(series.from_ns + (i + 1) * step), y(value ?? 0));
  });
  pen.lineTo(x(series.to_ns), y(0));
  pen.fill();
}

// Numbers of groups from the floor up: what leaks first, as the sloping floor that it is.
export function stackOrder(names, leaking) {
  const order = names.map((_, i) => i);
  return order.sort((a, b) => leaking.has(siteOf(names[b])) - leaking.has(siteOf(names[a])) || a - b);
}

// Groups on top of each other; the heaviest lies lowest. Rectangles on whole pixels: they cost less than one path with as many corners.
function stack(pen, series, x, y, leaking) {
  const step = (series.to_ns - series.from_ns) / series.width, floor = new Float64Array(series.width);
  const edges = Array.from({ length: series.width + 1 }, (_, i) => Math.round(x(series.from_ns + i * step)));
  for (const group of stackOrder(series.groups ?? [], leaking)) {
    const values = series.held[group];
    pen.fillStyle = colourOf(series.groups[group]);
    for (let i = 0, from = 0; i < series.width; i++) {
      if (i + 1 < series.width && values[i + 1] === values[i] && floor[i + 1] === floor[i]) continue;
      const top = Math.round(y(floor[i] + values[i])), bottom = Math.round(y(floor[i]));
      if (bottom > top) pen.fillRect(edges[from], top, edges[i + 1] - edges[from], bottom - top);
      from = i + 1;
    }
    for (let i = 0; i < series.width; i++) floor[i] += values[i];
  }
}

// Ranges in rows from the bottom up, so that none lies over another; [row, range] of those in the view.
export function rangeRows(ranges, view, rows) {
  const free = new Array(rows).fill(-Infinity), list = [];
  for (const range of ranges) {
    if (range[1] < view.from || range[0] > view.to) continue;
    const row = free.findIndex(end => end <= range[0]);
    if (row < 0) continue;
    free[row] = range[1];
    list.push([row, range]);
  }
  return list;
}

function drawRanges(pen, plot, x, rows) {
  for (const [row, [from, to, name]] of rows) {
    const left = Math.max(x(from), plot.x), width = Math.max(1, Math.min(x(to), plot.x + plot.width) - left), y = plot.y + row * LANE;
    pen.fillStyle = css("--range");
    pen.fillRect(left, y, width, LANE - 1);
    pen.fillStyle = css("--text");
    pen.textAlign = "left";
    pen.fillText(fitted(pen, name, width - 6), left + 3, y + LANE / 2);
  }
}

function drawMarkers(pen, place, markers, down) {
  const { plot, x } = place;
  let labelled = -Infinity; // where the last label begins
  for (const marker of markers) {
    const at = x(marker.time_ns), label = at - labelled > 90;
    if (marker.kind !== "mark" && label) labelled = at;
    if (marker.kind === "oom") vertical(pen, plot, at, css("--bad"), label ? "out of memory" : "", down);
    else if (marker.kind === "snapshot") vertical(pen, plot, at, css("--good"), label ? marker.text : "", down);
    else if (at >= plot.x && at <= plot.x + plot.width) {
      pen.fillStyle = css("--strong");
      pen.fillRect(Math.round(at) - 1, plot.y + plot.height - 6, 2, 6);
    }
  }
}

const peakTop = ({ plot, y }) => Math.max(plot.y + 8, Math.round(y(pool().peak_bytes)) - 2);

// A small triangle on top of the highest moment of the pool, with its name where there is room.
function drawPeak(pen, place, canvas) {
  const { plot, x } = place, at = Math.round(x(pool().peak_ns)), top = peakTop(place), text = "peak";
  canvas.dataset.peak = "";
  if (pool().dropped_peak || at < plot.x || at > plot.x + plot.width) return;
  pen.fillStyle = css("--text");
  pen.beginPath();
  pen.moveTo(at, top);
  pen.lineTo(at - 5, top - 8);
  pen.lineTo(at + 5, top - 8);
  pen.fill();
  const isLeft = at + 12 + pen.measureText(text).width > plot.x + plot.width;
  pen.textAlign = isLeft ? "right" : "left";
  pen.fillText(text, at + (isLeft ? -8 : 8), top - 5);
  canvas.dataset.peak = `${at},${top}`;
}

// Moments A and B where this run has them.
export function drawMoments(pen, plot, x, down = 0) {
  if (state.at !== null) vertical(pen, plot, x(state.at), css("--strong"), "A", down);
  if (state.and !== null && state.with === null) vertical(pen, plot, x(state.and), css("--bad"), "B", down);
}

export function drawTimeline(canvas, series, run) {
  const { pen, width, height } = begin(canvas), view = { from: state.from, to: state.to };
  if (series === null || series.most === undefined) return;
  const ranges = rangeRows(run.ranges ?? [], view, 3), lanes = Math.max(0, ...ranges.map(([row]) => row + 1));
  const other = whatIf.series(), advised = advice.series();
  const own = Math.max(most(series, ["most", ...(state.lines ? ["reserved"] : [])]), other === null ? 0 : most(other, ["otherwise"])), device = most(series, ["device"]);
  // The device may hold far more of others: then it is told and not drawn, and the pool keeps its room.
  const far = device > 2 * own, top = Math.max(own, state.lines && !far ? device : 0, state.rss ? most(series, ["resident"]) : 0);
  const place = axes(pen, width, height, view, top * (1.08 + lanes * LANE / Math.max(100, height - 60)), run.from_ns);
  const isRight = time => place.x(time) > place.plot.x + place.plot.width - 240; // where names of lines stand
  const labels = run.markers.some(one => one.kind !== "mark" && isRight(one.time_ns)) ? [place.plot.y + 8 + lanes * LANE] : [];
  if (isRight(pool().peak_ns)) labels.push(peakTop(place) - 5);
  pen.save();
  pen.beginPath();
  pen.rect(place.plot.x, 0, place.plot.width, height);
  pen.clip();
  stepBands(pen, place.plot, view, run.steps, place.x, run.to_ns);
  envelope(pen, series, place.x, place.y);
  stack(pen, series, place.x, place.y, leakingPlaces());
  if (state.lines) {
    line(pen, series, "reserved", place, css("--text"), [5, 3], "reserved", labels);
    if (!far) line(pen, series, "device", place, css("--warn"), [2, 3], "device", labels);
  }
  if (state.rss) line(pen, series, "resident", place, css("--good"), [2, 3], "RSS of the process", labels);
  if (other !== null) line(pen, other, "otherwise", place, css("--good"), [8, 3], other.name, labels);
  if (advised !== null) line(pen, advised, "otherwise", place, css("--good"), [4, 3], advised.name, labels);
  Object.assign(canvas.dataset, { whatif: other?.name ?? "", advice: advised?.name ?? "" });
  if (series.leaked !== undefined) line(pen, series, "leaked", place, leakColour(), [], "leaked", labels);
  drawRanges(pen, place.plot, place.x, ranges);
  drawMarkers(pen, place, run.markers, lanes * LANE);
  drawPeak(pen, place, canvas);
  canvas.dataset.names = labels.join(" ");
  pen.restore();
  drawMoments(pen, place.plot, place.x, lanes * LANE);
}

export function drawOverview(canvas, series, run) {
  const { pen, width, height } = begin(canvas);
  if (series === null || series.most === undefined) return;
  const top = most(series, ["most"]) || 1, x = placer({ from: run.from_ns, to: run.to_ns }, { x: LEFT, width: width - LEFT - 8 });
  const y = value => height - 4 - value / top * (height - 10), step = (series.to_ns - series.from_ns) / series.width;
  const fill = (values, colour, alpha) => {
    pen.fillStyle = colour;
    pen.globalAlpha = alpha;
    pen.beginPath(); // one path: what is narrower than a pixel does not add up
    values.forEach((value, i) => {
      const at = x(series.from_ns + i * step);
      if (value) pen.rect(at, y(value), Math.max(1, x(series.from_ns + (i + 1) * step) - at), height - 4 - y(value));
    });
    pen.fill();
    pen.globalAlpha = 1;
  };
  fill(series.most, css("--strong"), 0.35);
  fill(series.leaked ?? [], leakColour(), 0.8);
  for (const marker of run.markers) if (marker.kind === "oom") { pen.fillStyle = css("--bad"); pen.fillRect(x(marker.time_ns) - 1, 2, 2, height - 4); }
  pen.fillStyle = css("--pale");
  pen.textAlign = "right";
  pen.fillText("whole run", LEFT - 6, height / 2);
  pen.globalAlpha = 0.22;
  pen.fillRect(LEFT, 0, x(state.from) - LEFT, height);
  pen.fillRect(x(state.to), 0, width - 8 - x(state.to), height);
  pen.globalAlpha = 1;
  for (const [time, colour] of [[state.at, css("--strong")], [state.with === null ? state.and : null, css("--bad")]]) {
    if (time === null) continue;
    pen.fillStyle = colour;
    pen.fillRect(Math.round(x(time)), 1, 1, height - 2);
  }
  pen.strokeStyle = css("--strong");
  pen.strokeRect(x(state.from) + 0.5, 1.5, Math.max(2, x(state.to) - x(state.from) - 1), height - 3);
}

// What the panel "at this moment" shows, from the picture itself.
export function momentOf(series, time) {
  const i = Math.floor((time - series.from_ns) / (series.to_ns - series.from_ns) * series.width);
  if (!(i >= 0 && i < series.width) || series.held === undefined) return null;
  const groups = series.groups.map((name, group) => ({ name, group, bytes: series.held[group][i] }));
  return { used: series.most?.[i] ?? null, reserved: series.reserved?.[i] ?? null, device: series.device?.[i] ?? null,
    groups: groups.filter(one => one.bytes > 0).sort((a, b) => b.bytes - a.bytes) };
}

// What changed between two moments, as the server answers it, from the picture itself; blocks are not known there.
export function differenceOf(series, first, last) {
  const a = momentOf(series, first), b = momentOf(series, last), names = series.groups ?? [];
  if (a === null || b === null) return null;
  const of = (moment, name) => moment.groups.find(one => one.name === name)?.bytes ?? 0;
  const groups = names.map(name => [name, of(a, name), null, of(b, name), null]);
  groups.sort((x, y) => Math.abs(y[3] - y[1]) - Math.abs(x[3] - x[1]));
  const sum = moment => moment.groups.reduce((bytes, one) => bytes + one.bytes, 0);
  return { near: true, a: { used: sum(a), at_ns: first }, b: { used: sum(b), at_ns: last }, groups };
}

// Names of places that are called leaks.
export function leakingPlaces() {
  return new Set(page.run.leaks.filter(one => one.verdict === "leak").map(one => one.place));
}

// By owner or by place, for all views with groups.
export function groupTools() {
  const parts = page.run.owners ? [button("by owner", state.by === "owner", () => change({ by: "owner" }))] : [];
  if (page.run.layers) parts.push(button("by layer", state.by === "layer", () => change({ by: "layer" })));
  return [...parts, button("by call site", state.by === "place", () => change({ by: "place" }))];
}

// What the pictures have across: the clock, steps of equal width, or what comes and goes.
function axisTool() {
  const kinds = [["by time", ""], ...(stepKnots(page.run) === null ? [] : [["by step", "step"]]), ...(eventKnots(page.whole) === null ? [] : [["by event", "event"]])];
  const choice = make("select", "", ...kinds.map(([text, value]) => Object.assign(make("option", "", text), { value, selected: (state.axis ?? "") === value })));
  choice.setAttribute("aria-label", "horizontal axis");
  choice.addEventListener("change", () => change({ axis: choice.value || null }));
  return choice;
}

// Tools of views with time across.
export function timeTools(...more) {
  const { run } = page, parts = [...groupTools(), ...more];
  if (state.tab === "timeline" && pool().figures.includes("resident")) parts.push(button("RSS", state.rss, () => change({ rss: !state.rss })));
  if (state.tab === "timeline" && pool().figures.some(one => one !== "used" && one !== "resident")) parts.push(button("reserved, device", state.lines, () => change({ lines: !state.lines })));
  if (state.tab === "timeline") parts.push(...whatIf.tools(), ...advice.tools());
  parts.push(axisTool());
  parts.push(button("whole run", false, () => show(run.from_ns, run.to_ns)));
  parts.push(make("span", "", `${span(state.to - state.from)} shown${state.tab === "timeline" ? "; click: moment A, shift click: B" : ""}`));
  return parts;
}

function rangeAt(time) {
  return (page.run.ranges ?? []).filter(([from, to]) => from <= time && time <= to).map(([, , name]) => name).slice(-3);
}

export const timelineView = {
  key: "timeline",
  title: "Timeline",
  time: true,
  fetch: fetchSeries,
  draw: canvas => drawTimeline(canvas, page.series, page.run),
  tools: () => timeTools(),
  tip(hit, event) {
    const time = timeAt(event), moment = page.series && momentOf(page.series, time);
    if (!moment) return null;
    const lines = moment.groups.slice(0, 6).map(one => `${bytes(one.bytes)}  ${one.name}`);
    return [`${bytes(moment.used ?? 0)} at ${span(time - page.run.from_ns)}`, ...rangeAt(time).map(name => `in ${name}`), ...lines].join("\n");
  },
};
