// SPDX-License-Identifier: Apache-2.0
// Where a time lies across a picture: by the clock; by step, where all steps are equally wide; or by event, where time passes with
// allocations and frees. A scale is a list of knots [time, position], straight between them; null is the clock.
import { lastNotAbove } from "./format.js";

let scale = null;

// What comes before the first step, such as imports, is as wide as a step.
export function stepKnots(run) {
  const knots = [[run.from_ns, 0]];
  for (const [, time] of run.steps) if (time > knots[knots.length - 1][0] && time < run.to_ns) knots.push([time, knots.length]);
  return knots.length < 3 ? null : [...knots, [run.to_ns, knots.length]];
}

// From the picture of the whole run, which counts what came and went in each of its spans; a span without any keeps a little width.
export function eventKnots(series) {
  const { changes, width, from_ns: from, to_ns: to } = series ?? {};
  if (changes === undefined || width < 2) return null;
  const least = changes.reduce((sum, one) => sum + one, 0) / width / 50, knots = [[from, 0]];
  if (least === 0) return null;
  changes.forEach((count, i) => knots.push([from + (to - from) * (i + 1) / width, knots[i][1] + count + least]));
  return knots;
}

export function setScale(knots) {
  scale = knots;
}

function between(knots, value, from, to) {
  const i = Math.min(knots.length - 2, Math.max(0, lastNotAbove(knots, value, one => one[from])));
  const [a, b] = [knots[i], knots[i + 1]], length = b[from] - a[from];
  return a[to] + (length === 0 ? 0 : (value - a[from]) / length * (b[to] - a[to]));
}

// The position of a time, and the time of a position.
export function along(time) {
  return scale === null ? time : between(scale, time, 0, 1);
}

export function timeOf(position) {
  return scale === null ? position : between(scale, position, 1, 0);
}

export function isByClock() {
  return scale === null;
}

// How to place times of a view on a plot.
export function placer(view, plot) {
  const from = along(view.from), to = along(view.to);
  return time => plot.x + (along(time) - from) / (to - from || 1) * plot.width;
}

// The time at a part of a view, from 0 to 1.
export function timeAtPart(view, part) {
  const from = along(view.from), to = along(view.to);
  return timeOf(from + part * (to - from));
}

// A view moved by a part of its width, or made wider or narrower around a time.
export function moved(view, part) {
  const from = along(view.from), to = along(view.to), by = part * (to - from);
  return [timeOf(from + by), timeOf(to + by)];
}

export function zoomed(view, factor, time) {
  const from = along(view.from), to = along(view.to), centre = time === undefined ? (from + to) / 2 : along(time);
  return [timeOf(centre - (centre - from) * factor), timeOf(centre + (to - centre) * factor)];
}
