// SPDX-License-Identifier: Apache-2.0
// What the pictures have in common: a canvas in device pixels, colours, scales.
import { isByClock, placer, timeAtPart } from "./axis.js";
import { bytes, span, ticks } from "./format.js";
import { siteOf } from "./places.js";

// Told apart by people who see few colours; the last is for all others.
const COLOURS = ["#4477aa", "#ee7733", "#228833", "#aa3377", "#66ccee", "#ccbb44", "#ee6677", "#009988", "#bbaa88", "#8866cc", "#99bb33", "#cc6644"];
const OTHERS = "#9aa1ab";

const LEAKING = "#d7263d";
const numbers = new Map(); // of groups, in the order in which they were met: a group has one colour in all views
let leaking = new Set();

// The colour of a group; what leaks is red. One that no picture has shown yet gets the next colour only if asked to.
export function colourOf(name, isNew = true) {
  if (leaking.has(siteOf(name))) return LEAKING;
  if (name === undefined || name === "all others") return OTHERS;
  if (!numbers.has(name) && isNew) numbers.set(name, numbers.size);
  return numbers.has(name) ? COLOURS[numbers.get(name) % COLOURS.length] : OTHERS;
}

// Another run or pool: its groups get colours anew.
export function forgetGroups() {
  numbers.clear();
}

export function setLeaking(names) {
  leaking = names;
}

export function leakColour() {
  return LEAKING;
}

const known = new Map(); // colours of the theme

export function css(name) {
  if (!known.has(name)) known.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  return known.get(name);
}

export function forgetColours() {
  known.clear();
}

// Clears the canvas for a picture.
export function begin(canvas) {
  const ratio = devicePixelRatio || 1, box = canvas.getBoundingClientRect();
  const width = Math.max(1, Math.round(box.width)), height = Math.max(1, Math.round(box.height));
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "middle";
  return { pen, width, height };
}

// Text that fits into so many pixels, or as much of it as does.
export function fitted(pen, text, width) {
  if (width < 12) return "";
  if (pen.measureText(text).width <= width) return text;
  let low = 0, high = text.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (pen.measureText(text.slice(0, middle) + "\u2026").width <= width) low = middle; else high = middle - 1;
  }
  return low > 1 ? text.slice(0, low) + "\u2026" : "";
}

export const LEFT = 64, BOTTOM = 20, TOP = 18;

// Grid and labels of a picture of bytes over time; returns how to place both.
export function axes(pen, width, height, view, most, zero) {
  const plot = { x: LEFT, y: TOP, width: width - LEFT - 8, height: height - TOP - BOTTOM };
  const x = placer(view, plot);
  const y = value => plot.y + plot.height - value / (most || 1) * plot.height;
  pen.strokeStyle = css("--grid");
  pen.fillStyle = css("--pale");
  pen.lineWidth = 1;
  pen.textAlign = "right";
  for (const value of ticks(most, Math.max(2, plot.height / 60), 2)) {
    pen.beginPath();
    pen.moveTo(plot.x, Math.round(y(value)) + 0.5);
    pen.lineTo(plot.x + plot.width, Math.round(y(value)) + 0.5);
    pen.stroke();
    pen.fillText(bytes(value), plot.x - 6, y(value));
  }
  timeScale(pen, plot, height, view, x, zero);
  return { plot, x, y };
}

export function timeScale(pen, plot, height, view, x, zero) {
  const length = view.to - view.from, step = ticks(length, Math.max(2, plot.width / 110))[1] ?? length;
  pen.fillStyle = css("--pale");
  pen.textAlign = "center";
  if (!isByClock()) { // labels stand evenly, their times do not
    const count = Math.max(2, Math.floor(plot.width / 110));
    for (let i = 0; i < count; i++) pen.fillText(span(timeAtPart(view, (i + 0.5) / count) - zero), plot.x + (i + 0.5) / count * plot.width, height - BOTTOM / 2);
    return;
  }
  for (let time = Math.ceil((view.from - zero) / step) * step; time <= view.to - zero; time += step) {
    const at = x(time + zero);
    if (at > plot.x + 20 && at < plot.x + plot.width - 20) pen.fillText(span(time), at, height - BOTTOM / 2);
  }
}

// Steps as a ruled background: every second one is tinted, as many as there is room for.
export function stepBands(pen, plot, view, steps, x, end) {
  const shown = steps.filter(([, time], i) => (steps[i + 1]?.[1] ?? end) > view.from && time < view.to);
  if (shown.length === 0) return;
  const dense = (x(shown[shown.length - 1][1]) - x(shown[0][1])) / shown.length < 5;
  let free = plot.x; // where the next label may begin
  pen.textAlign = "center";
  shown.forEach(([number, time], i) => {
    const from = Math.max(x(time), plot.x), to = Math.min(x(shown[i + 1]?.[1] ?? end), plot.x + plot.width), middle = (from + to) / 2;
    if (number % 2 === 0 && !dense) {
      pen.fillStyle = css("--band");
      pen.fillRect(from, plot.y, to - from, plot.height);
    }
    if (!dense && to - from < 3) return; // its label would be taken for that of a wide one beside it
    const text = `step ${number}`, half = pen.measureText(text).width / 2 + 5;
    if (middle - half < free || middle + half > plot.x + plot.width) return;
    pen.fillStyle = css("--pale");
    pen.fillText(text, middle, plot.y - 9);
    free = middle + half;
  });
}

export function vertical(pen, plot, at, colour, label, down = 0) {
  if (at < plot.x || at > plot.x + plot.width) return;
  pen.strokeStyle = pen.fillStyle = colour;
  pen.lineWidth = 1;
  pen.beginPath();
  pen.moveTo(Math.round(at) + 0.5, plot.y);
  pen.lineTo(Math.round(at) + 0.5, plot.y + plot.height);
  pen.stroke();
  if (label) {
    pen.textAlign = at > plot.x + plot.width - 40 ? "right" : "left";
    const wide = pen.measureText(label).width + 4, isLeft = pen.textAlign === "left";
    pen.fillStyle = css("--back");
    pen.fillRect(isLeft ? at + 2 : at - 2 - wide, plot.y + down, wide, 16);
    pen.fillStyle = colour;
    pen.fillText(label, at + (isLeft ? 4 : -4), plot.y + 8 + down);
  }
}

// Extents of addresses as brackets at the side, each with its size where there is room.
export function bytesAxis(pen, plot, extents) {
  pen.strokeStyle = css("--line");
  pen.fillStyle = css("--pale");
  pen.textAlign = "right";
  pen.lineWidth = 1;
  for (const extent of extents) {
    pen.strokeRect(plot.x - 4.5, extent.bottom - extent.pixels, 2, extent.pixels);
    if (extent.pixels > 12) pen.fillText(bytes(extent.size), plot.x - 8, extent.bottom - extent.pixels / 2);
  }
}
