// SPDX-License-Identifier: Apache-2.0
// How figures are shown. No state, no page.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function bytes(value) {
  const sign = value < 0 ? "\u2212" : "";
  let size = Math.abs(value), unit = 0;
  while (size >= 1024 && unit < UNITS.length - 1) { size /= 1024; unit++; }
  return `${sign}${unit === 0 ? size : size.toFixed(size < 10 ? 2 : 1)} ${UNITS[unit]}`;
}

// A span of time in nanoseconds.
export function span(ns) {
  if (ns < 1e3) return `${Math.round(ns)} ns`;
  if (ns < 1e6) return `${(ns / 1e3).toFixed(1)} \u00b5s`;
  if (ns < 1e9) return `${(ns / 1e6).toFixed(1)} ms`;
  if (ns < 120e9) return `${(ns / 1e9).toFixed(2)} s`;
  if (ns < 7200e9) return `${(ns / 60e9).toFixed(1)} min`;
  return `${(ns / 3600e9).toFixed(1)} h`;
}

// Numbers at which a scale from 0 has lines: 1, 2, 5 times a power of the base, about `count` of them.
export function ticks(most, count, base = 10) {
  if (!(most > 0)) return [0];
  const rough = most / count, power = base ** Math.floor(Math.log(rough) / Math.log(base));
  const steps = base === 2 ? [1, 2] : [1, 2, 5, 10];
  const step = power * (steps.find(s => s * power >= rough) ?? steps[steps.length - 1]);
  const list = [];
  for (let at = 0; at <= most; at += step) list.push(at);
  return list;
}

// An owner without the pool that it begins with, which the page names already.
export function ownerName(text) {
  const at = text.indexOf("@");
  return at < 0 ? text : text.slice(at + 1);
}

// The part of a span that is shown, kept inside the whole; at least `least` long.
export function clampView(from, to, wholeFrom, wholeTo, least = 1000) {
  let length = Math.min(Math.max(to - from, least), wholeTo - wholeFrom);
  let begin = Math.min(Math.max(from, wholeFrom), wholeTo - length);
  return [begin, begin + length];
}

// Index of the last entry whose key is not above `value`; -1: all are.
export function lastNotAbove(list, value, key = x => x) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (key(list[middle]) <= value) low = middle + 1; else high = middle;
  }
  return low - 1;
}

// A state as the address bar has it, and back.
export function toHash(state) {
  return "#" + Object.entries(state).filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([key, value]) => `${key}=${encodeURIComponent(value)}`).join("&");
}

export function fromHash(hash) {
  return Object.fromEntries(hash.replace(/^#/, "").split("&").filter(Boolean).map(part => {
    const [key, ...rest] = part.split("=");
    return [key, decodeURIComponent(rest.join("="))];
  }));
}
