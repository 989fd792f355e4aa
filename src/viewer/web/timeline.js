// SPDX-License-Identifier: Apache-2.0
// Memory over time: stacked by group, with what the pool reserves and the device holds as lines above it.
import { axes, begin, colourOf, css, stepBands, vertical, LEFT } from "./draw.js";
import { bytes, span } from "./format.js";
import { button, change, fetchSeries, make, page, pool, show, state } from "./page.js";
import { timeAt } from "./pointer.js";

function most(series, keys) {
  let value = 0;
  for (const key of keys) for (const one of series[key] ?? []) if (one !== null && one > value) value = one;
  return value;
}

function line(pen, series, key, x, y, colour, dash) {
  const values = series[key];
  if (values === undefined) return;
  const step = (series.to_ns - series.from_ns) / series.width;
  pen.strokeStyle = colour;
  pen.lineWidth = 1.3;
  pen.setLineDash(dash);
  pen.beginPath();
  let drawing = false;
  values.forEach((value, i) => {
    if (value === null) { drawing = false; return; }
    const from = x(series.from_ns + i * step), to = x(series.from_ns + (i + 1) * step);
    if (drawing) pen.lineTo(from, y(value)); else pen.moveTo(from, y(value));
    pen.lineTo(to, y(value));
    drawing = true;
  });
  pen.stroke();
  pen.setLineDash([]);
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

// Groups on top of each other; the heaviest lies lowest. Rectangles on whole pixels: they cost less than one path with as many corners.
function stack(pen, series, x, y) {
  const step = (series.to_ns - series.from_ns) / series.width, floor = new Float64Array(series.width);
  const edges = Array.from({ length: series.width + 1 }, (_, i) => Math.round(x(series.from_ns + i * step)));
  (series.held ?? []).forEach((values, group) => {
    pen.fillStyle = colourOf(group < 12 ? group : 99);
    for (let i = 0, from = 0; i < series.width; i++) {
      const top = Math.round(y(floor[i] + values[i])), bottom = Math.round(y(floor[i]));
      if (i + 1 < series.width && values[i + 1] === values[i] && floor[i + 1] === floor[i]) continue;
      if (bottom > top) pen.fillRect(edges[from], top, edges[i + 1] - edges[from], bottom - top);
      from = i + 1;
    }
    for (let i = 0; i < series.width; i++) floor[i] += values[i];
  });
}

export function drawTimeline(canvas, series, state, run) {
  const { pen, width, height } = begin(canvas), view = { from: state.from, to: state.to };
  if (series === null || series.most === undefined) return;
  const keys = ["most", ...(state.lines ? ["reserved", "device"] : [])];
  const place = axes(pen, width, height, view, most(series, keys) * 1.05, run.from_ns);
  pen.save();
  pen.beginPath();
  pen.rect(place.plot.x, 0, place.plot.width, height);
  pen.clip();
  stepBands(pen, place.plot, view, run.steps, place.x, run.to_ns);
  envelope(pen, series, place.x, place.y);
  stack(pen, series, place.x, place.y);
  if (state.lines) {
    line(pen, series, "reserved", place.x, place.y, css("--pale"), [5, 3]);
    line(pen, series, "device", place.x, place.y, css("--warn"), [2, 3]);
  }
  for (const marker of run.markers) {
    if (marker.kind === "oom") vertical(pen, place.plot, place.x(marker.time_ns), css("--bad"), "OOM");
    else if (marker.kind === "snapshot") vertical(pen, place.plot, place.x(marker.time_ns), css("--good"), marker.text);
  }
  pen.restore();
  if (state.at) vertical(pen, place.plot, place.x(state.at), css("--strong"), "A");
  if (state.and) vertical(pen, place.plot, place.x(state.and), css("--bad"), "B");
}

export function drawOverview(canvas, series, state, run) {
  const { pen, width, height } = begin(canvas);
  if (series === null || series.most === undefined) return;
  const top = most(series, ["most"]) || 1, x = time => LEFT + (time - run.from_ns) / (run.to_ns - run.from_ns || 1) * (width - LEFT - 8);
  const y = value => height - 4 - value / top * (height - 10), step = (series.to_ns - series.from_ns) / series.width;
  pen.fillStyle = css("--strong");
  pen.globalAlpha = 0.35;
  series.most.forEach((value, i) => {
    const at = x(series.from_ns + i * step);
    if (value !== null) pen.fillRect(at, y(value), Math.max(1, x(series.from_ns + (i + 1) * step) - at), height - 4 - y(value));
  });
  pen.globalAlpha = 1;
  for (const marker of run.markers) if (marker.kind === "oom") { pen.fillStyle = css("--bad"); pen.fillRect(x(marker.time_ns) - 1, 2, 2, height - 4); }
  pen.fillStyle = css("--pale");
  pen.globalAlpha = 0.22;
  pen.fillRect(LEFT, 0, x(state.from) - LEFT, height);
  pen.fillRect(x(state.to), 0, width - 8 - x(state.to), height);
  pen.globalAlpha = 1;
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

// Tools of views with time across.
export function timeTools(more) {
  const { run } = page, parts = [];
  if (run.owners) parts.push(button("by owner", state.by === "owner", () => change({ by: "owner" })));
  parts.push(button("by place", state.by === "place", () => change({ by: "place" })));
  if (pool().figures.length > 1) parts.push(button("reserved, device", state.lines, () => change({ lines: !state.lines })));
  parts.push(button("whole run", false, () => show(run.from_ns, run.to_ns)));
  parts.push(make("span", "", `${span(state.to - state.from)} shown${more ?? ""}`));
  return parts;
}

export const timelineView = {
  key: "timeline",
  title: "Timeline",
  time: true,
  fetch: fetchSeries,
  draw: canvas => drawTimeline(canvas, page.series, state, page.run),
  tools: () => timeTools(),
  tip(hit, event) {
    const time = timeAt(event), moment = page.series && momentOf(page.series, time);
    return moment && `${bytes(moment.used ?? 0)} at ${span(time - page.run.from_ns)}`;
  },
};
